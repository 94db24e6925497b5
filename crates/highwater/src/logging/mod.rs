//! Where do the server's events go?
//!
//! The library emits events through [`tracing`](https://docs.rs/tracing), and nothing else: they go to the
//! subscriber that the application has set. Their targets begin with `highwater`; the rest is the module, and may
//! change. They are about a server's life and its failures, never about a single request that went well: those are
//! counted ([`crate::metrics`]).
//!
//! Every answer with a status from 500 on is an event, `a request failed`, with its method, route, status, the chain of causes
//! down to the last ([`Error::source`](crate::Error::source)), and the request's id: the `X-Request-Id` that it came with, else
//! a new one. The answer has the same id in its own `X-Request-Id`, so that a client can say which failure it met. So is a
//! panic, and an answer that HTTP does not allow. These are not events: refusals for load (they are counted, by reason),
//! deadlines that clients set themselves, and 503 from a route that is [never shed](crate::Handler::never_shed), with which
//! health checks report problems.
//!
//! A program without a subscriber of its own gets one here, which writes few, structured lines to standard
//! error, as text for people or JSON for machines:
//!
//! ```
//! use highwater::logging::{self, LogFormat};
//!
//! logging::install(LogFormat::Text);
//! let address = std::net::Ipv4Addr::LOCALHOST;
//! tracing::info!(address = %address, workers = 4, "serving");
//! // 2026-02-03T04:05:06.789Z INFO  serving address=127.0.0.1 workers=4
//! # logging::flush();
//! ```
//!
//! The library calls [`install`] where a server starts, unless [`ServerConfig::log`](crate::ServerConfig::log) is
//! [`LogFormat::Off`]: `--log off`, `HIGHWATER_LOG=off`. An application that brings a subscriber sets it before it
//! starts a server.
//!
//! Invariants: a subscriber that the application has set stays; logging never waits for the reader of standard
//! error (a thread writes; a full queue drops lines and reports how many); a value cannot forge a line; events that
//! can happen at any rate are emitted at most [`BURST`] times per [`PERIOD`] by one place in the code (failures: for
//! one route), and the rest are counted.
//!
//! `subscriber.rs` takes events, `line.rs` formats one, `writer.rs` writes it, `rate.rs` limits, `panics.rs` takes panics.

mod line;
mod panics;
mod rate;
mod subscriber;
mod writer;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use self::subscriber::Lines;
use crate::choice::choices;

pub use self::rate::{BURST, PERIOD};
#[doc(inline)]
pub use crate::__highwater_rate_limited as rate_limited;

#[doc(hidden)]
pub use self::rate::Site;
/// For [`rate_limited!`].
#[doc(hidden)]
pub use tracing;

/// How long the end of a program may wait for its last lines to be written.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);

choices! {
    /// How events are written to standard error, where the application has no subscriber of its own.
    pub enum LogFormat {
        /// Lines for people.
        Text = "text",
        /// One JSON object per line.
        Json = "json",
        /// Not at all.
        Off = "off",
    }
}

/// Writes the events of the process to standard error, in `format`: those of the server, and of all other code that uses
/// `tracing`.
///
/// Returns whether this subscriber is now in force. It is not if a global subscriber has been set already, by the
/// application or by an earlier call, which stays; nor with [`LogFormat::Off`], which leaves the place free.
///
/// It also writes the messages of panics on the server's threads as lines, unless the program already has a panic hook,
/// because Rust's default hook waits for the reader of standard error.
pub fn install(format: LogFormat) -> bool {
    if format == LogFormat::Off {
        return false;
    }
    let lines = Lines::new(format, now, Box::new(std::io::stderr()));
    let lines = tracing::Dispatch::new(lines);
    let is_in_force = tracing::dispatcher::set_global_default(lines.clone()).is_ok();
    if is_in_force {
        panics::install(lines);
    }
    is_in_force
}

/// Waits until every line so far is written, but no longer than a second. Call it right before the process ends. Without
/// the subscriber of [`install`] there is nothing to wait for.
pub fn flush() {
    tracing::dispatcher::get_default(|dispatch| {
        if let Some(lines) = dispatch.downcast_ref::<Lines>() {
            lines.writer().flush(FLUSH_PATIENCE);
        }
    });
}

/// Calls [`flush`] when it is dropped, however a server ends.
#[derive(Debug)]
pub(crate) struct FlushAtEnd;

impl Drop for FlushAtEnd {
    fn drop(&mut self) {
        flush();
    }
}

/// Milliseconds since the epoch.
#[doc(hidden)]
pub fn now() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::mpsc::{self, Sender};

    use super::*;

    /// Writes each line slowly.
    struct Slow(Sender<()>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            std::thread::sleep(Duration::from_millis(20));
            self.0.send(()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Purpose: the last lines are written before a program ends, even if writing is slow.
    #[test]
    fn the_last_lines_are_written() {
        let (taken, lines) = mpsc::channel();
        let subscriber = Lines::new(LogFormat::Text, now, Box::new(Slow(taken)));
        tracing::subscriber::with_default(subscriber, || {
            let at_end = FlushAtEnd;
            tracing::info!("a line");
            tracing::info!("another");
            drop(at_end);
            assert_eq!(lines.try_iter().count(), 2);
        });
    }
}
