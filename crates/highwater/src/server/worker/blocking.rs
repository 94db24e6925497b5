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
    finding: Option<Finding>,
}

#[derive(Debug)]
struct Suspect {
    endpoint: u16,
    blocked: u32,
    longest: Duration,
}

impl Default for BlockingDetector {
    fn default() -> Self {
        BlockingDetector { watching: 0, suspects: Vec::with_capacity(CAPACITY), finding: None }
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
            self.suspect(endpoint, ended - began);
        }
    }

    #[inline(never)]
    fn suspect(&mut self, endpoint: u16, took: Duration) {
        let at = self.suspects.iter().position(|suspect| suspect.endpoint == endpoint);
        let at = at.unwrap_or_else(|| {
            self.suspects.push(Suspect { endpoint, blocked: 0, longest: Duration::ZERO });
            self.suspects.len() - 1
        });
        let suspect = &mut self.suspects[at];
        suspect.blocked = suspect.blocked.saturating_add(1);
        suspect.longest = suspect.longest.max(took);
        if suspect.blocked == BLOCKED_MIN {
            self.finding = Some(Finding { endpoint, longest: suspect.longest });
        }
    }

    #[inline]
    pub(super) fn end_turn(&mut self, took: Duration) {
        if took > TURN_MAX {
            self.watching = CALLS_WATCHED;
        }
    }

    /// The findings since the last time; each endpoint is named once.
    #[inline]
    pub(super) fn take_finding(&mut self) -> Option<Finding> {
        self.finding.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimClock;

    /// Purpose: a handler that blocks again and again is named once, with its longest call; one that
    /// is merely served in the same long turns is not; and nothing is timed without cause.
    #[test]
    fn names_the_blocker_once() {
        let clock = SimClock::starting_at(Instant::ZERO);
        let mut detector = BlockingDetector::default();
        let call = |detector: &mut BlockingDetector, endpoint, micros| {
            let timed = detector.begin(&clock);
            clock.advance(Duration::from_micros(micros));
            if let Some(began) = timed {
                detector.end(began, &clock, endpoint);
            }
        };
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
}
