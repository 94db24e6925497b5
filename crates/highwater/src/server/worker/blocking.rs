//! Which handler blocks its worker?
//!
//! While a handler computes or blocks, every other connection of its worker waits. Timing each call would
//! cost two readings of the clock per request. So calls are timed only for a while after a turn that took
//! suspiciously long.

use std::time::Duration;

use highwater_core::time::{Clock, Instant};

/// A turn that takes longer than this makes the detector time calls.
const TURN_MAX: Duration = Duration::from_millis(2);

/// One call that takes longer than this is blocking.
const CALL_MAX: Duration = Duration::from_millis(1);

/// How many calls are timed after a long turn.
const CALLS_WATCHED: u32 = 1000;

/// Calls of one endpoint that must have blocked before it is named: a single one may be a page fault.
const BLOCKED_MIN: u32 = 3;

/// The time within which these calls must come. Less: a handler that blocks seldom is not named; more: pauses by other
/// processes add up, and the route that is used most is named. A guess.
const MEMORY: Duration = Duration::from_secs(60);

/// A finding of the detector: an endpoint, and how long its longest call took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) endpoint: u16,
    pub(super) longest: Duration,
}

/// Room for so many suspects from the start, so that a machine which pauses a handler makes nothing allocate.
const CAPACITY: usize = 8;

#[derive(Debug)]
pub(super) struct BlockingDetector {
    watching: u32,
    suspects: Vec<Suspect>,
    /// How many of them block, and were not named yet.
    found: u32,
}

#[derive(Debug)]
struct Suspect {
    endpoint: u16,
    /// When its first call blocked.
    since: Instant,
    blocked: u32,
    longest: Duration,
    is_named: bool,
}

impl Suspect {
    fn new(endpoint: u16, since: Instant) -> Self {
        Suspect { endpoint, since, blocked: 0, longest: Duration::ZERO, is_named: false }
    }

    /// Whether enough of its calls have blocked.
    fn blocks(&self) -> bool {
        self.blocked >= BLOCKED_MIN
    }
}

impl Default for BlockingDetector {
    fn default() -> Self {
        BlockingDetector { watching: 0, suspects: Vec::with_capacity(CAPACITY), found: 0 }
    }
}

impl BlockingDetector {
    /// A call begins. If it is to be timed, pass the result to [`BlockingDetector::end`].
    #[inline]
    pub(super) fn begin(&mut self, clock: &impl Clock) -> Option<Instant> {
        if self.watching == 0 {
            return None;
        }
        self.watching -= 1;
        Some(clock.now())
    }

    /// A call that was timed has ended.
    #[cold]
    pub(super) fn end(&mut self, began: Instant, clock: &impl Clock, endpoint: u16) {
        let ended = clock.now();
        if ended > began + CALL_MAX {
            self.suspect(endpoint, (began, ended));
        }
    }

    #[inline(never)]
    fn suspect(&mut self, endpoint: u16, (began, ended): (Instant, Instant)) {
        let at = self.suspects.iter().position(|suspect| suspect.endpoint == endpoint);
        let at = at.unwrap_or_else(|| {
            self.suspects.push(Suspect::new(endpoint, began));
            self.suspects.len() - 1
        });
        let suspect = &mut self.suspects[at];
        if !suspect.blocks() && began > suspect.since + MEMORY {
            *suspect = Suspect::new(endpoint, began);
        }
        suspect.blocked = suspect.blocked.saturating_add(1);
        suspect.longest = suspect.longest.max(ended - began);
        self.found += u32::from(suspect.blocked == BLOCKED_MIN);
    }

    #[inline]
    pub(super) fn end_turn(&mut self, took: Duration) {
        if took > TURN_MAX {
            self.watching = CALLS_WATCHED;
        }
    }

    /// The next finding; each endpoint is named once.
    #[inline]
    pub(super) fn take_finding(&mut self) -> Option<Finding> {
        if self.found == 0 { None } else { self.name_one() }
    }

    #[cold]
    fn name_one(&mut self) -> Option<Finding> {
        let mut suspects = self.suspects.iter_mut();
        let suspect = suspects.find(|suspect| suspect.blocks() && !suspect.is_named)?;
        suspect.is_named = true;
        self.found -= 1;
        Some(Finding { endpoint: suspect.endpoint, longest: suspect.longest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimClock;

    /// Calls `endpoint`, which takes so long.
    fn call(detector: &mut BlockingDetector, clock: &SimClock, endpoint: u16, micros: u64) {
        let timed = detector.begin(clock);
        clock.advance(Duration::from_micros(micros));
        if let Some(began) = timed {
            detector.end(began, clock, endpoint);
        }
    }

    /// Purpose: a handler that blocks again and again is named once, with its longest call; one that
    /// is merely served in the same long turns is not; and nothing is timed without cause.
    #[test]
    fn names_the_blocker_once() {
        let clock = SimClock::starting_at(Instant::ZERO);
        let mut detector = BlockingDetector::default();
        let call = |detector: &mut _, endpoint, micros| call(detector, &clock, endpoint, micros);
        call(&mut detector, 7, 5000);
        assert_eq!(detector.take_finding(), None, "no long turn yet");
        detector.end_turn(Duration::from_millis(5));
        for round in 1..=BLOCKED_MIN {
            assert_eq!(detector.take_finding(), None, "before call {round}");
            call(&mut detector, 3, 900);
            call(&mut detector, 7, 1000 + u64::from(round));
        }
        let longest = Duration::from_micros(1000 + u64::from(BLOCKED_MIN));
        assert_eq!(detector.take_finding(), Some(Finding { endpoint: 7, longest }));
        call(&mut detector, 7, 9000);
        assert_eq!(detector.take_finding(), None, "it was named before");
    }

    /// Purpose: each of two handlers that turn out to block in the same turn is named. The second once took the place of
    /// the first, which was then never named.
    #[test]
    fn names_both_of_two() {
        let clock = SimClock::starting_at(Instant::ZERO);
        let mut detector = BlockingDetector::default();
        detector.end_turn(Duration::from_millis(5));
        for _ in 0..BLOCKED_MIN {
            call(&mut detector, &clock, 7, 2000);
            call(&mut detector, &clock, 8, 3000);
        }
        let named = [detector.take_finding(), detector.take_finding(), detector.take_finding()];
        assert_eq!(named.map(|found| found.map(|found| found.endpoint)), [Some(7), Some(8), None]);
    }

    /// Purpose: calls that were slow now and then, as on a machine that other processes keep busy, do not add up to a
    /// handler that blocks. After three of them, days apart, the route that was used most was named.
    #[test]
    fn rare_pauses_do_not_add_up() {
        let clock = SimClock::starting_at(Instant::ZERO);
        let mut detector = BlockingDetector::default();
        for _ in 0..10 {
            for _ in 1..BLOCKED_MIN {
                detector.end_turn(Duration::from_millis(5));
                call(&mut detector, &clock, 7, 2000);
                assert_eq!(detector.take_finding(), None);
            }
            clock.advance(MEMORY);
        }
        detector.end_turn(Duration::from_millis(5));
        clock.advance(MEMORY);
        for _ in 1..BLOCKED_MIN {
            call(&mut detector, &clock, 7, 2000);
        }
        clock.advance(MEMORY - Duration::from_millis(4));
        call(&mut detector, &clock, 7, 2000);
        assert!(detector.take_finding().is_some(), "the last within a minute");
    }
}
