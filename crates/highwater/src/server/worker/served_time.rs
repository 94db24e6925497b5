//! How much time has passed for the clients of a worker?
//!
//! A process may be stopped, a machine frozen, a core given to other processes. Time in which the worker is
//! kept from its connections is neither the clients' fault nor overload. A worker plans how long it waits, so
//! it notices when it returns too late:
//!
//! ```text
//!  look ── works ── leave ┈┈┈ waits as planned ┈┈┈ look                  all of it counts
//!  look ── works ── leave ┈┈┈ waits as planned ┈┈┈────── late ────▶ look of that, LATE_MAX counts
//! ```
//!
//! Time that does not count is *lost*: served time is the clock's time without the lost time. Deadlines, idle times and
//! waiting times run on served time. What a worker does between two looks counts in full, however long a handler takes:
//! durations and queueing delays stay true.
//!
//! Invariant: served time never goes back.

use std::cell::Cell;
use std::time::Duration;

use highwater_core::driver::Wait;
use highwater_core::time::{Clock, Instant, UnixSeconds};

/// A worker that is later than this was kept from running. Schedulers of busy machines make a thread wait for
/// some 10 ms; the bound is ten times that, beyond which clients would miss deadlines through no fault of
/// theirs. A guess, on the safe side: too low a bound only makes deadlines longer on a machine that other
/// processes overload.
pub(super) const LATE_MAX: Duration = Duration::from_millis(100);

const LATE_MAX_NANOS: u64 = LATE_MAX.as_nanos() as u64;

/// A clock without the time in which its worker was kept from running. All times in it are nanoseconds: it is
/// read twice per turn, and making a `Duration` costs a division.
#[derive(Clone, Debug)]
pub(super) struct ServedTime<C> {
    clock: C,
    lost: u64,
    /// When the worker last began to poll its driver, and when it last finished its work; by `clock`.
    looked_at: u64,
    left_at: u64,
    /// Until when it then planned to wait, in served time; zero if it did not.
    planned: Cell<u64>,
}

/// What a worker learns when it reads the clock again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// The served time.
    pub(super) now: Instant,
    /// How much was lost just now.
    pub(super) lost: Duration,
    /// It was kept from running for so long that much input may have arrived: that must be read before a
    /// deadline is judged.
    pub(super) is_behind: bool,
}

impl<C: Clock> ServedTime<C> {
    pub(super) fn new(clock: C) -> Self {
        let now = clock.now().as_nanos();
        ServedTime { clock, lost: 0, looked_at: now, left_at: now, planned: Cell::new(0) }
    }

    /// The clock itself: for deadlines that clients have sent.
    pub(super) fn clock(&self) -> &C {
        &self.clock
    }

    /// The same moment by the clock that all workers share. Each loses time of its own, so served times of two workers
    /// say nothing about each other.
    #[inline]
    pub(super) fn shared(&self, served: Instant) -> Instant {
        Instant::from_nanos(served.as_nanos().saturating_add(self.lost))
    }

    /// The total time lost so far.
    #[cfg(feature = "sim")]
    pub(super) fn lost(&self) -> Duration {
        Duration::from_nanos(self.lost)
    }

    /// The worker polls its driver.
    #[inline]
    pub(super) fn look(&mut self) -> Look {
        let now = self.clock.now().as_nanos();
        let until = self.left_at.max(self.planned.replace(0).saturating_add(self.lost));
        let late = now.saturating_sub(until);
        let worked = self.left_at - self.looked_at;
        let lost = late.saturating_sub(LATE_MAX_NANOS);
        self.lost += lost;
        self.looked_at = now;
        self.left_at = now;
        let is_behind = late.max(worked) > LATE_MAX_NANOS;
        let lost = if lost == 0 { Duration::ZERO } else { Duration::from_nanos(lost) };
        Look { now: self.served(now), lost, is_behind }
    }

    /// The worker has finished its work at `now` in served time.
    #[inline]
    pub(super) fn leave(&mut self, now: Instant) {
        self.left_at = now.as_nanos().saturating_add(self.lost);
    }

    /// Remembers how long the worker plans to wait, and returns the same by the clock.
    #[inline]
    pub(super) fn plan(&self, wait: Wait) -> Wait {
        match wait {
            Wait::No => Wait::No,
            Wait::Until(due) => {
                self.planned.set(due.as_nanos());
                Wait::Until(Instant::from_nanos(due.as_nanos().saturating_add(self.lost)))
            }
            Wait::Forever => {
                self.planned.set(u64::MAX);
                Wait::Forever
            }
        }
    }

    #[inline]
    fn served(&self, nanos: u64) -> Instant {
        Instant::from_nanos(nanos.saturating_sub(self.lost))
    }
}

/// Served time as a clock. The wall clock includes the lost time.
impl<C: Clock> Clock for ServedTime<C> {
    #[inline]
    fn now(&self) -> Instant {
        self.served(self.clock.now().as_nanos())
    }

    fn unix_time(&self) -> UnixSeconds {
        self.clock.unix_time()
    }

    fn unix_millis(&self) -> u64 {
        self.clock.unix_millis()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimClock;

    fn started() -> (SimClock, ServedTime<SimClock>) {
        let hand = SimClock::starting_at(Instant::from_nanos(7));
        let time = ServedTime::new(hand.clone());
        (hand, time)
    }

    fn pass(hand: &SimClock, millis: u64) {
        hand.advance(Duration::from_millis(millis));
    }

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Purpose: a worker that is no later than it may be sees the clock's own time, however long it
    /// waits as planned and however long its handlers take.
    #[test]
    fn nothing_is_lost_without_need() {
        let (hand, mut time) = started();
        for (wait, passes) in [
            (Wait::No, 100),
            (Wait::Until(hand.now() + ms(60_000)), 60_000),
            (Wait::Forever, 3_600_000),
        ] {
            time.plan(wait);
            pass(&hand, passes);
            let look = time.look();
            assert_eq!((look.now, look.lost, look.is_behind), (hand.now(), ms(0), false));
            time.leave(time.now());
        }
        pass(&hand, 0);
        time.look();
        pass(&hand, 3_000); // A handler that blocks.
        time.leave(time.now());
        let look = time.look();
        assert_eq!((look.now, look.lost, look.is_behind), (hand.now(), ms(0), true));
    }

    /// Purpose: a worker that was stopped goes on where it was, plus what it may be late.
    #[test]
    fn a_stop_is_lost() {
        let (hand, mut time) = started();
        let due = time.now() + ms(500);
        assert_eq!(time.plan(Wait::Until(due)), Wait::Until(due));
        pass(&hand, 3_500);
        let look = time.look();
        assert_eq!((look.now, look.lost, look.is_behind), (due + LATE_MAX, ms(2_900), true));
        time.leave(time.now());
        // From now on the clock runs ahead by what was lost.
        let next = time.now() + ms(50);
        assert_eq!(time.plan(Wait::Until(next)), Wait::Until(next + ms(2_900)));
        pass(&hand, 50);
        assert_eq!(time.look().now, next);
    }

    /// Purpose: time goes on even for a worker that is late each time.
    #[test]
    fn late_for_ever() {
        let (hand, mut time) = started();
        let begun = time.now();
        for _ in 0..100 {
            pass(&hand, 1_000);
            time.look();
            time.leave(time.now());
        }
        assert_eq!(time.now() - begun, LATE_MAX * 100);
    }
}
