//! How much of a worker's time have handshakes for certain?
//!
//! A handshake costs as much as dozens of requests. A client that floods a server with handshakes must not end the service of
//! those that are connected, so handshakes wait behind requests. But those that are connected must not keep everybody else
//! out either, and one connection with enough streams could: so a tenth of the time is for handshakes. As long as they
//! ask for less, they wait among the requests.
//!
//! Never here: a clock.

use std::time::Duration;

use highwater_core::time::Instant;

use super::queue::Class;

/// One part of so many of the time is for handshakes.
const SHARE: u32 = 10;

/// How much of it can be saved up: so long may a burst of handshakes keep requests waiting.
const SAVED_MAX: Duration = Duration::from_millis(2);

/// What one costs at least, before that is known: about as much as with a key of an elliptic curve.
const COST_MIN: Duration = Duration::from_micros(250);

/// How much one handshake changes what is known about their cost: an eighth.
const WEIGHT: u32 = 8;

/// The time that handshakes have for certain.
#[derive(Debug)]
pub(super) struct Handshakes {
    /// Nanoseconds; less than nothing after one that cost more than was saved.
    saved: i64,
    looked_at: Instant,
    /// The recent cost of one.
    cost: Duration,
}

impl Handshakes {
    pub(super) fn new(now: Instant) -> Self {
        Handshakes { saved: nanos(SAVED_MAX), looked_at: now, cost: COST_MIN }
    }

    /// Among which requests a handshake waits that comes at `now`.
    pub(super) fn class(&mut self, now: Instant) -> Class {
        let earned = nanos((now - self.looked_at) / SHARE);
        self.saved = self.saved.saturating_add(earned).min(nanos(SAVED_MAX));
        self.looked_at = now;
        if self.saved > 0 { Class::Normal } else { Class::Low }
    }

    /// One waits among the requests of `class`.
    pub(super) fn wait(&mut self, class: Class) {
        if class == Class::Normal {
            self.saved -= nanos(self.cost.max(COST_MIN));
        }
    }

    /// One was done in this time.
    pub(super) fn learn(&mut self, took: Duration) {
        self.cost = self.cost - self.cost / WEIGHT + took / WEIGHT;
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: handshakes that come all the time wait among the requests for a tenth of the time, and behind them
    /// otherwise, whatever one costs; after a pause, a few more.
    #[test]
    fn a_tenth_of_the_time() {
        for cost in
            [Duration::from_micros(250), Duration::from_millis(3), Duration::from_millis(50)]
        {
            let mut handshakes = Handshakes::new(Instant::ZERO);
            (0..100).for_each(|_| handshakes.learn(cost));
            let mut among = |from: u64, to: u64| {
                let at = (from..to).map(|step| Instant::from_nanos(step * 50_000));
                let classes = at.map(|now| {
                    let class = handshakes.class(now);
                    handshakes.wait(class);
                    class
                });
                cost * classes.filter(|class| *class == Class::Normal).count() as u32
            };
            let at_once = among(0, 1);
            assert_eq!(at_once, cost, "nothing has come before");
            among(1, 20_000);
            let share = among(20_000, 220_000).as_secs_f64() / 10.0;
            assert!((0.095..0.105).contains(&share), "{cost:?}: {share}");
        }
    }
}
