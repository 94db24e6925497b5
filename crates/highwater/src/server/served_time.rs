//! How much time has passed for the clients of a worker?
//!
//! A process that was stopped, a machine that was frozen, a core that was given to others: time in which
//! the worker could not look at its connections is not the clients' fault, and no overload. A worker says
//! for how long it waits, so it can tell when it comes back too late:
//!
//! ```text
//!  look ── works ── leave ┈┈┈ waits as planned ┈┈┈ look                  all of it counts
//!  look ── works ── leave ┈┈┈ waits as planned ┈┈┈────── late ────▶ look of that, LATE_MAX counts
//! ```
//!
//! What does not count is lost: served time is the clock's time without what was lost. Deadlines, idle
//! times and waiting times run on served time. What a worker does between two looks counts in full,
//! however long a handler takes: durations and queueing delays stay true.
//!
//! Invariant: served time never goes back.

use std::cell::Cell;
use std::time::Duration;

use highwater_core::driver::Wait;
use highwater_core::time::{Clock, Instant, UnixSeconds};

/// A worker that is later than this was kept from working. Schedulers of busy machines make a thread
/// wait for some 10 ms; beyond ten times that, its clients would pay for it. A guess, on the safe side:
/// too low a bound only makes deadlines longer on a machine that is overloaded by others.
pub(super) const LATE_MAX: Duration = Duration::from_millis(100);

/// A clock without the time in which its worker was kept from working.
#[derive(Clone, Debug)]
pub(super) struct ServedTime<C> {
    clock: C,
    lost: Duration,
    /// When the worker last began to look, and when it last had done all there was to do; by `clock`.
    looked_at: Instant,
    left_at: Instant,
    /// Until when it meant to wait since, in served time; zero if it did not mean to.
    planned: Cell<Instant>,
}

/// What a worker finds when it looks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// The served time.
    pub(super) now: Instant,
    /// How much was lost just now.
    pub(super) lost: Duration,
    /// It has not looked for so long that much may have arrived: that is to be read before anybody is
    /// blamed for what is missing.
    pub(super) is_behind: bool,
}

impl<C: Clock> ServedTime<C> {
    pub(super) fn new(clock: C) -> Self {
        let now = clock.now();
        let planned = Cell::new(Instant::ZERO);
        ServedTime { clock, lost: Duration::ZERO, looked_at: now, left_at: now, planned }
    }

    /// The clock itself: for what is due to others at a time that they have named.
    pub(super) fn clock(&self) -> &C {
        &self.clock
    }

    /// All that was lost so far.
    pub(super) fn lost(&self) -> Duration {
        self.lost
    }

    /// The worker looks at its driver.
    #[inline]
    pub(super) fn look(&mut self) -> Look {
        let now = self.clock.now();
        let planned = self.planned.replace(Instant::ZERO);
        let until = self.left_at.max(planned + self.lost);
        let late = now - until;
        let worked = self.left_at - self.looked_at;
        let lost = late.saturating_sub(LATE_MAX);
        self.lost += lost;
        self.looked_at = now;
        self.left_at = now;
        let is_behind = late.max(worked) > LATE_MAX;
        Look { now: self.served(now), lost, is_behind }
    }

    /// The worker has done what there was to do, at `now` in served time.
    #[inline]
    pub(super) fn leave(&mut self, now: Instant) {
        self.left_at = now + self.lost;
    }

    /// Remembers how long the worker is going to wait, and says the same by the clock.
    #[inline]
    pub(super) fn plan(&self, wait: Wait) -> Wait {
        match wait {
            Wait::No => Wait::No,
            Wait::Until(due) => {
                self.planned.set(due);
                Wait::Until(due + self.lost)
            }
            Wait::Forever => {
                self.planned.set(Instant::MAX);
                Wait::Forever
            }
        }
    }

    #[inline]
    fn served(&self, time: Instant) -> Instant {
        time.checked_sub(self.lost).unwrap_or(Instant::ZERO)
    }
}

/// Served time as a clock. The wall clock is everybody's, and counts what was lost.
impl<C: Clock> Clock for ServedTime<C> {
    #[inline]
    fn now(&self) -> Instant {
        self.served(self.clock.now())
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
    use std::rc::Rc;

    #[derive(Clone, Debug)]
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

    fn started() -> (Hand, ServedTime<Hand>) {
        let hand = Hand(Rc::new(Cell::new(Instant::from_nanos(7))));
        let time = ServedTime::new(hand.clone());
        (hand, time)
    }

    fn pass(hand: &Hand, millis: u64) {
        hand.0.set(hand.0.get() + Duration::from_millis(millis));
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
