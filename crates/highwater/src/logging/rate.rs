//! How often may one place in the code emit an event?

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How many events one place in the code may emit within a [`PERIOD`].
pub const BURST: u32 = 5;

/// After this, a place in the code that was silenced may emit again.
pub const PERIOD: Duration = Duration::from_secs(10);

/// One place in the code, or one thing it reports about, and how often it has emitted lately. Used by
/// [`rate_limited!`](super::rate_limited).
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Site {
    /// When the period began, in milliseconds since the epoch.
    since: AtomicU64,
    count: AtomicU32,
}

impl Site {
    pub const fn new() -> Self {
        Site { since: AtomicU64::new(0), count: AtomicU32::new(0) }
    }

    /// Whether an event may be emitted at `now` (milliseconds since the epoch), and if so, how many
    /// were suppressed since the last one.
    pub fn admit(&self, now: u64) -> Option<Option<u32>> {
        let since = self.since.load(Relaxed);
        let period = PERIOD.as_millis() as u64;
        // A clock set back begins a new period too.
        let over = now < since || now - since >= period;
        if over && self.since.compare_exchange(since, now, Relaxed, Relaxed).is_ok() {
            let suppressed = self.count.swap(1, Relaxed).saturating_sub(BURST);
            return Some(Some(suppressed).filter(|count| *count > 0));
        }
        (self.count.fetch_add(1, Relaxed) < BURST).then_some(None)
    }
}

/// Emits an event, unless this place in the code has emitted [`BURST`](crate::logging::BURST) of them
/// within a [`PERIOD`](crate::logging::PERIOD). The next event that is emitted has a field
/// `suppressed`: how many were left out.
///
/// For events that a client or a broken dependency can cause at any rate. The level comes first, as
/// [`tracing::Level`] names it; the rest is as in [`tracing::warn!`].
///
/// ```
/// # let error = std::io::Error::other("unreachable");
/// highwater::logging::rate_limited!(WARN, error = %error, "the database does not answer");
/// ```
///
/// Where one place in the code reports about several things, of which a noisy one must not hide a quiet one, each has
/// a [`Site`](crate::logging::Site) of its own: `rate_limited!(by site; WARN, …)`.
#[doc(hidden)]
#[macro_export]
macro_rules! __highwater_rate_limited {
    ($level:ident, $($event:tt)+) => {{
        static SITE: $crate::logging::Site = $crate::logging::Site::new();
        $crate::logging::rate_limited!(by SITE; $level, $($event)+);
    }};
    (by $site:expr; $level:ident, $($event:tt)+) => {
        if $crate::logging::tracing::level_enabled!($crate::logging::tracing::Level::$level)
            && let ::core::option::Option::Some(suppressed) = $site.admit($crate::logging::now())
        {
            $crate::logging::tracing::event!(
                $crate::logging::tracing::Level::$level,
                suppressed,
                $($event)+
            );
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a burst of one warning is logged a few times, then summed up once it is over.
    #[test]
    fn one_place_warns_a_few_times_a_period() {
        let site = Site::new();
        let start = 1_700_000_000_000;
        let admitted: Vec<_> = (0..100).map(|step| site.admit(start + step)).collect();
        assert_eq!(admitted[..5], [Some(None); 5]);
        assert!(admitted[5..].iter().all(Option::is_none));
        assert_eq!(site.admit(start + 9_999), None);
        assert_eq!(site.admit(start + 10_000), Some(Some(96)));
        assert_eq!(site.admit(start + 10_001), Some(None));
    }

    /// Purpose: a quiet place reports no suppression, and a clock that is set back silences no place.
    #[test]
    fn quiet_places_and_odd_clocks() {
        let site = Site::new();
        for step in 0..20 {
            assert_eq!(site.admit(1_700_000_000_000 + step * 5_000), Some(None));
        }
        assert_eq!(site.admit(5), Some(None));
    }
}
