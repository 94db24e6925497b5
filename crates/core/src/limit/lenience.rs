//! May a request wait longer in a standing queue, because its client is not the cause of the queue?
//!
//! Where clients have shares, clients that ask for less are served first. Now and then several of their requests come
//! together, or cost more than usual, and wait longer than the short target although there is room for all of them. They
//! are excused if a client that asks for more than its share has been seen lately, and if the delay is temporary:
//!
//! ```text
//!             a request that is alone waits too long
//!  in time ──────────────────────────────────────────▶ excused, for LENIENCE targets
//!     ▲                                                    │ still too long
//!     └────────── nothing too late for PAUSE targets ───────┴─▶ refused like the others
//! ```
//!
//! Without a client to blame, no request is excused: many clients with one request each are an overload like any other.
//!
//! It never reads a clock, and does not know requests.

use core::time::Duration;

use crate::time::Instant;

/// How many targets an excused request may wait, and for how long requests are excused. Less: quiet clients are refused when
/// the cost of requests varies, or few fit into the queue; more: all wait for longer where all ask for too much.
const LENIENCE: u32 = 6;

/// After this many targets in which no request was too late, requests are excused again. Less: as more [`LENIENCE`]; more:
/// a second cluster of requests is refused.
const PAUSE: u32 = 4;

/// Who was to blame, and since when requests are too late.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lenience {
    blamed_at: Option<Instant>,
    late: Option<Late>,
}

/// Requests that are alone have waited too long since the one time, at the other for the last time.
#[derive(Clone, Copy, Debug)]
struct Late {
    since: Instant,
    last: Instant,
}

impl Lenience {
    /// A request of a client that asks for more than its share has waited too long.
    pub fn blame(&mut self, now: Instant) {
        self.blamed_at = Some(now);
    }

    /// A request that is the only one of its client has `waited` for longer than `target`. Returns whether it may continue
    /// to wait, but never for longer than `longest`.
    pub fn excuses(
        &mut self,
        now: Instant,
        waited: Duration,
        target: Duration,
        longest: Duration,
    ) -> bool {
        let pause = target.saturating_mul(PAUSE);
        let late = self.late.filter(|late| now - late.last <= pause);
        let since = late.map_or(now, |late| late.since);
        self.late = Some(Late { since, last: now });
        let most = target.saturating_mul(LENIENCE).min(longest);
        let is_recent = |at: Instant| now - at <= most;
        self.blamed_at.is_some_and(is_recent) && is_recent(since) && waited <= most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_millis(10);

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(1_000_000_000) + Duration::from_millis(millis)
    }

    /// Asks at `now` for a request that has waited for `waited` milliseconds.
    fn excuses(lenience: &mut Lenience, now: u64, waited: u64) -> bool {
        lenience.excuses(at(now), Duration::from_millis(waited), TARGET, Duration::from_secs(1))
    }

    /// Purpose: requests are excused only while there is a client to blame.
    #[test]
    fn somebody_must_be_to_blame() {
        let mut lenience = Lenience::default();
        assert!(!excuses(&mut lenience, 0, 11));
        lenience.blame(at(100));
        assert!(excuses(&mut lenience, 160, 11));
        assert!(!excuses(&mut lenience, 161, 11), "long ago");
    }

    /// Purpose: an excused request waits for no longer than six targets, or for as long as is allowed at all.
    #[test]
    fn waits_are_bounded() {
        let mut lenience = Lenience::default();
        lenience.blame(at(0));
        assert!(excuses(&mut lenience, 0, 60) && !excuses(&mut lenience, 0, 61));
        let mut excuses = |waited| {
            let waited = Duration::from_millis(waited);
            lenience.excuses(at(0), waited, TARGET, Duration::from_millis(30))
        };
        assert!(excuses(30) && !excuses(31));
    }

    /// Purpose: requests that are always too late are excused for six targets, and then again once none was too late
    /// for four.
    #[test]
    fn it_must_pass() {
        let mut lenience = Lenience::default();
        for now in 0..300 {
            lenience.blame(at(now));
            assert_eq!(excuses(&mut lenience, now, 11), now <= 60, "{now}");
        }
        lenience.blame(at(340));
        assert!(!excuses(&mut lenience, 339, 11));
        assert!(excuses(&mut lenience, 380, 11));
    }
}
