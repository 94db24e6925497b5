//! Names the handler that blocks its worker.
//!
//! While a handler computes or waits, every other connection of its worker stands still. Timing each
//! call would cost every application two clock readings a request; so calls are timed only for a
//! while after a turn took suspiciously long.

use std::time::Duration;

use highwater_core::time::Clock;

/// A turn that takes longer than this makes the advisor look closer.
const TURN_MAX: Duration = Duration::from_millis(2);

/// One call that takes longer than this is blocking.
const CALL_MAX: Duration = Duration::from_millis(1);

/// How many calls are timed after a long turn.
const CALLS_WATCHED: u32 = 1000;

/// Calls of one endpoint that must have blocked before it is named: once may be a page fault.
const OFFENCES_MIN: u32 = 3;

/// What the advisor found: an endpoint, and how long its longest call took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Advice {
    pub(super) endpoint: u16,
    pub(super) longest: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Advisor {
    watching: u32,
    suspects: Vec<Suspect>,
    advice: Option<Advice>,
}

#[derive(Debug)]
struct Suspect {
    endpoint: u16,
    offences: u32,
    longest: Duration,
}

impl Advisor {
    /// Runs `call`, timed if that is due.
    #[inline]
    pub(super) fn watch<T>(
        &mut self,
        clock: &impl Clock,
        endpoint: u16,
        call: impl FnOnce() -> T,
    ) -> T {
        if self.watching == 0 {
            return call();
        }
        self.watching -= 1;
        let before = clock.now();
        let outcome = call();
        let took = clock.now() - before;
        if took > CALL_MAX {
            self.suspect(endpoint, took);
        }
        outcome
    }

    #[cold]
    fn suspect(&mut self, endpoint: u16, took: Duration) {
        let at = self.suspects.iter().position(|suspect| suspect.endpoint == endpoint);
        let at = at.unwrap_or_else(|| {
            self.suspects.push(Suspect { endpoint, offences: 0, longest: Duration::ZERO });
            self.suspects.len() - 1
        });
        let suspect = &mut self.suspects[at];
        suspect.offences = suspect.offences.saturating_add(1);
        suspect.longest = suspect.longest.max(took);
        if suspect.offences == OFFENCES_MIN {
            self.advice = Some(Advice { endpoint, longest: suspect.longest });
        }
    }

    #[inline]
    pub(super) fn end_turn(&mut self, took: Duration) {
        if took > TURN_MAX {
            self.watching = CALLS_WATCHED;
        }
    }

    /// What was found since the last time; each endpoint is named once.
    #[inline]
    pub(super) fn take_advice(&mut self) -> Option<Advice> {
        self.advice.take()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use highwater_core::time::{Instant, UnixSeconds};

    use super::*;

    #[derive(Clone, Default)]
    struct Hand(Rc<Cell<Instant>>);

    impl Clock for Hand {
        fn now(&self) -> Instant {
            self.0.get()
        }

        fn unix_time(&self) -> UnixSeconds {
            UnixSeconds(0)
        }

        fn unix_millis(&self) -> u64 {
            0
        }
    }

    /// Purpose: a handler that blocks again and again is named once, with its longest call; one that
    /// is merely served in the same long turns is not; and nothing is timed without cause.
    #[test]
    fn names_the_blocker_once() {
        let (clock, mut advisor) = (Hand::default(), Advisor::default());
        let spend = |micros| clock.0.set(clock.now() + Duration::from_micros(micros));
        advisor.watch(&clock, 7, || spend(5000));
        assert_eq!(advisor.take_advice(), None, "nothing pointed to it yet");
        advisor.end_turn(Duration::from_millis(5));
        for call in 1..=OFFENCES_MIN {
            assert_eq!(advisor.take_advice(), None, "before call {call}");
            advisor.watch(&clock, 3, || spend(900));
            advisor.watch(&clock, 7, || spend(1000 + u64::from(call)));
        }
        let longest = Duration::from_micros(1000 + u64::from(OFFENCES_MIN));
        assert_eq!(advisor.take_advice(), Some(Advice { endpoint: 7, longest }));
        advisor.watch(&clock, 7, || spend(9000));
        assert_eq!(advisor.take_advice(), None, "it was named before");
    }
}
