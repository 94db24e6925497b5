//! How many requests may a worker start before it polls its driver again?
//!
//! A turn budget is a time. Reading the clock for each request would cost as much as routing it, so requests
//! are started in batches between two readings, and each reading sizes the next batch.
//!
//! Never here: which request is next (`queue/mod.rs`), whether it may be served at all (`worker.rs`).
//!
//! Invariant: a turn exceeds its budget by one batch, or by one request, at most.

use std::time::Duration;

use highwater_core::time::Instant;

/// The time of one turn, after which the worker polls its driver again. A single request may take longer: it
/// is not interrupted.
pub(crate) const TURN_MAX: Duration = Duration::from_millis(1);

/// Most requests started between two readings of the clock. A reading costs about 25 ns, so a sixteenth of
/// it does not matter even to a pipelined request. Before a turn's first reading only a few are started,
/// in case requests suddenly take long.
const UNTIMED_MAX: u32 = 16;
const UNTIMED_FIRST: u32 = 4;

/// Clock readings in a full turn, about.
const READINGS: u64 = 8;

/// The turn budget: the time that is left of a turn.
#[derive(Debug)]
pub(super) struct TurnBudget {
    /// In nanoseconds: it is computed with twice per turn.
    turn_max: u64,
    /// Requests that may still be started before the clock is read, and how many were granted at the last
    /// reading.
    left: u32,
    granted: u32,
    /// How many fit between two readings.
    batch: u32,
    read_at: Instant,
    /// When the previous turn ended.
    ended: Instant,
    /// When the turn's time is used up.
    until: Instant,
}

impl TurnBudget {
    pub(super) fn new(turn_max: Duration) -> Self {
        let [read_at, ended, until] = [Instant::ZERO; 3];
        let turn_max = nanos(turn_max);
        TurnBudget { turn_max, left: 0, granted: 0, batch: UNTIMED_FIRST, read_at, ended, until }
    }

    /// A turn begins. With `hold` no request starts before the queue is handled, since requests already wait
    /// there.
    #[inline]
    pub(super) fn begin(&mut self, now: Instant, hold: bool) {
        self.until = now.plus_nanos(self.turn_max);
        let hold = hold || self.turn_max == 0;
        self.grant(now, if hold { 0 } else { self.batch.min(UNTIMED_FIRST) });
    }

    /// Whether the clock must be read before another request is started.
    #[inline]
    pub(super) fn is_used_up(&self) -> bool {
        self.left == 0
    }

    /// A request is started.
    #[inline]
    pub(super) fn count(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// The clock was read: is there time for more requests? Grants as many as fit between two readings.
    pub(super) fn has_time(&mut self, now: Instant) -> bool {
        self.learn(now);
        self.grant(now, if now < self.until { self.batch } else { 0 });
        self.left > 0
    }

    /// The turn is over, and the clock has been read for that.
    #[inline]
    pub(super) fn end(&mut self, now: Instant) {
        self.learn(now);
        self.grant(now, 0);
        self.ended = now;
    }

    /// Work of another size than a request's was done until `now`: the clock is read before the next request, and the
    /// time tells nothing about requests.
    pub(super) fn charge(&mut self, now: Instant) {
        self.grant(now, 0);
    }

    /// Exactly one request may be started now, whatever the time.
    pub(super) fn allow_one(&mut self, now: Instant) {
        self.grant(now, 1);
    }

    /// When the previous turn ended.
    pub(super) fn ended(&self) -> Instant {
        self.ended
    }

    /// The turn gets its full time again, from `now` on; or `least` if that is more.
    pub(super) fn extend(&mut self, now: Instant, least: Duration) {
        self.until = self.until.max(now.plus_nanos(self.turn_max.max(nanos(least))));
    }

    /// Nothing more is started in this turn.
    pub(super) fn stop(&mut self) {
        self.granted -= self.left;
        self.left = 0;
    }

    /// Whether the turn's time is used up at `now`.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        now >= self.until
    }

    fn grant(&mut self, now: Instant, count: u32) {
        self.read_at = now;
        self.left = count;
        self.granted = count;
    }

    /// Computes from the requests started since the last reading how many to start before the next.
    fn learn(&mut self, now: Instant) {
        let started = u64::from(self.granted - self.left);
        if started == 0 {
            return;
        }
        let (took, share) = (now.nanos_since(self.read_at), self.turn_max / READINGS);
        let fit = (share * started).checked_div(took).unwrap_or(u64::MAX);
        self.batch = fit.clamp(1, u64::from(UNTIMED_MAX)) as u32;
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts requests that take `each` until the turn that began at `now` has no more time. Returns how
    /// many, and how often the clock was read for that.
    fn turn(budget: &mut TurnBudget, now: &mut Instant, each: Duration) -> (u32, u32) {
        let (mut started, mut readings) = (0, 0);
        budget.begin(*now, false);
        loop {
            if budget.is_used_up() {
                readings += 1;
                if !budget.has_time(*now) {
                    break;
                }
            }
            budget.count();
            started += 1;
            *now += each;
        }
        budget.end(*now);
        (started, readings)
    }

    /// Purpose: a turn ends after its time, give or take one reading of the clock, however long a request
    /// takes; and cheap requests pay for a sixteenth of a reading each.
    #[test]
    fn a_turn_is_bounded() {
        for each in [200, 1_000, 10_000, 60_000, 900_000, 5_000_000].map(Duration::from_nanos) {
            let (mut budget, mut now) = (TurnBudget::new(TURN_MAX), Instant::ZERO);
            turn(&mut budget, &mut now, each);
            let begun = now;
            let (started, readings) = turn(&mut budget, &mut now, each);
            let bound = TURN_MAX + (TURN_MAX / READINGS as u32).max(each);
            assert!(now - begun <= bound, "{each:?}: {:?}", now - begun);
            if each <= Duration::from_micros(1) {
                assert!(readings <= 2 + started / UNTIMED_MAX, "{each:?}: {readings} of {started}");
            }
        }
    }

    /// Purpose: when requests suddenly take long, the first such turn lasts no longer than a few of them.
    #[test]
    fn a_sudden_change_is_found_out() {
        let (mut budget, mut now) = (TurnBudget::new(TURN_MAX), Instant::ZERO);
        for _ in 0..10 {
            turn(&mut budget, &mut now, Duration::from_nanos(200));
        }
        let slow = Duration::from_millis(2);
        assert_eq!(turn(&mut budget, &mut now, slow).0, UNTIMED_FIRST);
        assert_eq!(turn(&mut budget, &mut now, slow).0, 1);
    }

    /// Purpose: a handshake takes as long as many requests. The turn's time is charged for it, so the clock is read before
    /// the next request; but requests are not taken for slow ones because of it.
    #[test]
    fn a_handshake_is_charged_as_time() {
        let (mut budget, mut now) = (TurnBudget::new(TURN_MAX), Instant::ZERO);
        for _ in 0..10 {
            turn(&mut budget, &mut now, Duration::from_nanos(200));
        }
        let batch = budget.batch;
        budget.begin(now, false);
        for _ in 0..2 {
            assert!(budget.has_time(now));
            budget.count();
            now += TURN_MAX / 2;
            budget.charge(now);
            assert!(budget.is_used_up());
        }
        assert!(!budget.has_time(now), "two handshakes have taken the turn");
        assert_eq!(budget.batch, batch);
    }

    /// Purpose: the queue's part of a turn is as long as it is told, and never shorter than a turn.
    #[test]
    fn the_queue_gets_its_time() {
        let (mut budget, began) = (TurnBudget::new(TURN_MAX), Instant::ZERO);
        budget.end(began);
        assert_eq!(budget.ended(), began);
        for (least, expected) in [(0, 1), (1, 1), (7, 7)] {
            budget.begin(began, true);
            let now = began + 9 * TURN_MAX;
            budget.extend(now, least * TURN_MAX);
            assert!(!budget.is_over(now + (expected * TURN_MAX - Duration::from_nanos(1))));
            assert!(budget.is_over(now + expected * TURN_MAX));
        }
    }

    /// Purpose: if requests wait in the queue, none is started before the queue is handled, and exactly one
    /// for each entry taken from it.
    #[test]
    fn waiting_requests_come_first() {
        let mut budget = TurnBudget::new(TURN_MAX);
        budget.begin(Instant::ZERO, true);
        assert!(budget.is_used_up());
        budget.allow_one(Instant::ZERO);
        assert!(!budget.is_used_up());
        budget.count();
        assert!(budget.is_used_up());
    }
}
