//! What does the server tell its operator?
//!
//! Few, structured lines on standard error, as text for people or JSON for machines:
//!
//! ```
//! use highwater::log;
//!
//! let address = std::net::Ipv4Addr::LOCALHOST;
//! log::info!("listening", address = %address, workers = 4);
//! // 2026-02-03T04:05:06.789Z INFO  listening address=127.0.0.1 workers=4
//! ```
//!
//! `key = value` takes numbers, truth values, strings and socket addresses, or an `Option` of one,
//! which is left out if there is none; `key = %value` takes whatever can be displayed.
//!
//! This is no framework: no filters, no spans, no subscribers. It exists so that the server can speak
//! without a dependency that every application would inherit; an application is free to use `tracing`
//! beside it. It is for events in a server's life, not for requests: those are counted
//! ([`crate::metrics`]).
//!
//! Invariants: logging never waits for whoever reads standard error (a thread writes; a full queue
//! drops lines and says how many); a value cannot forge a line; a warning or error is told at most
//! [`BURST`] times in [`PERIOD`] by one place in the code, and what was left out is counted.
//!
//! `line.rs` writes a line down, `writer.rs` gets it out.

mod line;
mod writer;

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use self::writer::Writer;

pub use self::line::{Level, Value};
#[doc(inline)]
pub use crate::{__highwater_error as error, __highwater_info as info, __highwater_warn as warn};

/// How often one place in the code may warn within a [`PERIOD`].
pub const BURST: u32 = 5;

/// After this, one place in the code may warn again.
pub const PERIOD: Duration = Duration::from_secs(10);

/// How long the end of a program may wait for its last lines to be written.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);

/// How the log is written to standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
    /// Not at all.
    Off,
}

/// Text, until somebody chooses.
static FORMAT: AtomicU8 = AtomicU8::new(LogFormat::Text as u8);

/// The one log of the process: there is one standard error.
static LOG: Mutex<Log> = Mutex::new(Log { writer: None, sessions: Vec::new(), opened: 0 });

struct Log {
    /// Starts with the first line, and ends with the last session.
    writer: Option<Arc<Writer>>,
    /// Those who log for as long as they live, by number, the oldest first, and how each wants it.
    sessions: Vec<(u64, LogFormat)>,
    opened: u64,
}

impl Log {
    fn lock() -> MutexGuard<'static, Log> {
        // Nothing panics while it holds the lock.
        LOG.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The oldest session decides, unless it says nothing at all: one server can neither change another's
    /// log nor silence it.
    fn settle(&self) {
        let mut formats = self.sessions.iter().map(|(_, format)| *format);
        if let Some(format) = formats.clone().find(|&format| format != LogFormat::Off) {
            set_format(format);
        } else if formats.next().is_some() {
            set_format(LogFormat::Off);
        }
    }
}

/// Chooses the format of the lines that follow. A server does, by its `--log`; while several servers live
/// in one process, the one that began first decides, unless it wants no log.
pub fn set_format(format: LogFormat) {
    FORMAT.store(format as u8, Relaxed);
}

/// A server's share of the log. What writes it ends with the last of them.
#[derive(Debug)]
pub(crate) struct Session(u64);

impl Session {
    /// From now on somebody logs who wants `format`.
    pub(crate) fn open(format: LogFormat) -> Session {
        let mut log = Log::lock();
        log.opened += 1;
        let number = log.opened;
        log.sessions.push((number, format));
        log.settle();
        Session(number)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut log = Log::lock();
        log.sessions.retain(|(number, _)| *number != self.0);
        log.settle();
        let writer = if log.sessions.is_empty() { log.writer.take() } else { None };
        drop(log);
        // Somebody may be writing a line in this moment; then it is his to end it.
        if let Some(mut writer) = writer.and_then(Arc::into_inner) {
            writer.stop(FLUSH_PATIENCE);
        }
    }
}

fn format() -> LogFormat {
    let chosen = FORMAT.load(Relaxed);
    let all = [LogFormat::Text, LogFormat::Json, LogFormat::Off];
    all.into_iter().find(|&format| format as u8 == chosen).unwrap_or_default()
}

/// Milliseconds since the epoch.
fn now() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}

/// Waits until everything logged so far is written, but no longer than a second. To be called right
/// before the process ends.
pub fn flush() {
    let writer = Log::lock().writer.clone();
    if let Some(writer) = writer {
        writer.flush(FLUSH_PATIENCE);
    }
}

/// One place in the code that warns, and how often it has lately. Used by the macros.
#[doc(hidden)]
#[derive(Debug)]
pub struct Site {
    /// When the period began, in milliseconds since the epoch.
    since: AtomicU64,
    count: AtomicU32,
}

impl Site {
    #[allow(clippy::new_without_default, reason = "only ever a static")]
    pub const fn new() -> Self {
        Site { since: AtomicU64::new(0), count: AtomicU32::new(0) }
    }

    /// Whether a line may be told at `now` (milliseconds since the epoch), and if so how many were
    /// not since the last that was.
    fn admit(&self, now: u64) -> Option<u32> {
        let since = self.since.load(Relaxed);
        let period = PERIOD.as_millis() as u64;
        // A clock set back begins a new period too.
        let over = now < since || now - since >= period;
        if over && self.since.compare_exchange(since, now, Relaxed, Relaxed).is_ok() {
            return Some(self.count.swap(1, Relaxed).saturating_sub(BURST));
        }
        (self.count.fetch_add(1, Relaxed) < BURST).then_some(0)
    }
}

/// Logs a line. Used by the macros.
#[doc(hidden)]
pub fn write(level: Level, site: Option<&Site>, message: &str, fields: &[(&str, Value<'_>)]) {
    let format = format();
    if format == LogFormat::Off {
        return;
    }
    let now = now();
    let Some(suppressed) = site.map_or(Some(0), |site| site.admit(now)) else { return };
    let mut line = line::begin(format, now, level, message);
    for (key, value) in fields {
        line.field(key, value);
    }
    if suppressed > 0 {
        line.field("suppressed", &Value::from(suppressed));
    }
    let start = || Arc::new(Writer::start(Box::new(std::io::stderr())));
    let writer = Arc::clone(Log::lock().writer.get_or_insert_with(start));
    writer.write(line.end());
}

/// Logs that something failed and what it means for the operator.
#[doc(hidden)]
#[macro_export]
macro_rules! __highwater_error {
    ($message:expr $(, $($fields:tt)*)?) => {{
        static SITE: $crate::log::Site = $crate::log::Site::new();
        $crate::__highwater_log!(Error, ::core::option::Option::Some(&SITE), $message, [] $($($fields)*)?)
    }};
}

/// Logs that something needs the operator's attention.
#[doc(hidden)]
#[macro_export]
macro_rules! __highwater_warn {
    ($message:expr $(, $($fields:tt)*)?) => {{
        static SITE: $crate::log::Site = $crate::log::Site::new();
        $crate::__highwater_log!(Warn, ::core::option::Option::Some(&SITE), $message, [] $($($fields)*)?)
    }};
}

/// Logs an event in the server's life.
#[doc(hidden)]
#[macro_export]
macro_rules! __highwater_info {
    ($message:expr $(, $($fields:tt)*)?) => {
        $crate::__highwater_log!(Info, ::core::option::Option::None, $message, [] $($($fields)*)?)
    };
}

/// Takes the fields one by one.
#[doc(hidden)]
#[macro_export]
macro_rules! __highwater_log {
    ($level:ident, $site:expr, $message:expr, [$($done:tt)*] $key:ident = % $value:expr $(, $($rest:tt)*)?) => {
        $crate::__highwater_log!($level, $site, $message,
            [$($done)* (stringify!($key), $crate::log::Value::Shown(&$value)),] $($($rest)*)?)
    };
    ($level:ident, $site:expr, $message:expr, [$($done:tt)*] $key:ident = $value:expr $(, $($rest:tt)*)?) => {
        $crate::__highwater_log!($level, $site, $message,
            [$($done)* (stringify!($key), $crate::log::Value::from($value)),] $($($rest)*)?)
    };
    ($level:ident, $site:expr, $message:expr, [$($done:tt)*]) => {
        $crate::log::write($crate::log::Level::$level, $site, $message, &[$($done)*])
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a storm of one warning is told a few times, then summed up once it is over.
    #[test]
    fn one_place_warns_a_few_times_a_period() {
        let site = Site::new();
        let start = 1_700_000_000_000;
        let told: Vec<_> = (0..100).map(|step| site.admit(start + step)).collect();
        assert_eq!(told[..5], [Some(0); 5]);
        assert!(told[5..].iter().all(Option::is_none));
        assert_eq!(site.admit(start + 9_999), None);
        assert_eq!(site.admit(start + 10_000), Some(96));
        assert_eq!(site.admit(start + 10_001), Some(0));
    }

    /// Purpose: a quiet place says nothing about suppression, and a clock set back silences nobody.
    #[test]
    fn quiet_places_and_odd_clocks() {
        let site = Site::new();
        for step in 0..20 {
            assert_eq!(site.admit(1_700_000_000_000 + step * 5_000), Some(0));
        }
        assert_eq!(site.admit(5), Some(0));
    }

    /// Purpose: the macros take every form of field, in any number, with or without a last comma.
    #[test]
    fn macros_take_fields() {
        use crate::log;
        let name = String::from("n");
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 80));
        log::info!("macros are tested");
        log::warn!("macros are tested", count = 1_usize, ratio = 0.5, fine = true,);
        log::error!("macros are tested", name = &name, why = name.clone(), at = %address.ip());
        log::info!("macros are tested", at = address, metrics = Some(address), open = None::<u64>);
        crate::log::flush();
    }
}
