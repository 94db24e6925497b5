//! Adds one while all is well, and takes off a tenth when it is not.
//!
//! This is the classic of congestion control (D. Chiu and R. Jain, "Analysis of the increase and
//! decrease algorithms for congestion avoidance in computer networks", 1989), with the constants of
//! Netflix's `AIMDLimit`. It needs only a verdict per sample. It pays with a saw-tooth of a tenth
//! and with slow starts. It is here for comparison, and for servers of which nothing else is known.
//!
//! Two things differ from Netflix's version. Requests that waited too long and were dropped count
//! like late answers. The limit grows in proportion to the time that passed, not once per sample:
//! otherwise more frequent samples would make it climb faster.

use core::time::Duration;

use super::{LIMIT_MAX, Limit, Sample};
use crate::time::Instant;

/// The first limit, and the lowest; Netflix's defaults.
const START: f64 = 20.0;
const FLOOR: f64 = 1.0;

/// The factor applied to the limit after a bad sample; Netflix's default.
const DECREASE: f64 = 0.9;

/// What is added per second while all is well: 1 for each tenth of a second, the usual span of a
/// sample.
const INCREASE_PER_SECOND: f64 = 10.0;

/// The share of answers that may be late or dropped. Smaller shares are the noise of any network.
const BAD_MAX: f64 = 0.05;

/// Additive increase, multiplicative decrease.
#[derive(Clone, Debug)]
pub struct Aimd {
    limit: f64,
    limit_min: f64,
    limit_max: f64,
    target: Duration,
}

impl Aimd {
    /// A limit of at most `limit_max` (clamped to 1 to [`LIMIT_MAX`]). It falls while requests wait
    /// for longer than `target` on average, and when more than one in twenty is late.
    pub fn new(limit_max: u32, target: Duration) -> Self {
        let limit_max = f64::from(limit_max.clamp(1, LIMIT_MAX));
        Aimd { limit: START.min(limit_max), limit_min: FLOOR, limit_max, target }
    }

    /// Sets the first limit and the lowest. The defaults are 20 and 1.
    #[must_use]
    pub fn starting_at(mut self, start: u32, limit_min: u32) -> Self {
        self.limit_min = f64::from(limit_min).clamp(FLOOR, self.limit_max);
        self.limit = f64::from(start).clamp(self.limit_min, self.limit_max);
        self
    }

    fn is_bad(&self, sample: &Sample) -> bool {
        let late = sample.completed.saturating_sub(sample.good) + sample.dropped;
        let all = sample.completed + sample.dropped;
        late as f64 > all as f64 * BAD_MAX || sample.queue_delay_mean > self.target
    }
}

impl Limit for Aimd {
    fn on_sample(&mut self, _now: Instant, sample: &Sample) -> u32 {
        if self.is_bad(sample) {
            self.limit = (self.limit * DECREASE).max(self.limit_min);
        } else if sample.is_felt(self.limit()) {
            // Without demand, the limit would grow without evidence.
            let grown = self.limit + INCREASE_PER_SECOND * sample.span.as_secs_f64();
            self.limit = grown.min(self.limit_max);
        }
        self.limit()
    }

    fn limit(&self) -> u32 {
        self.limit as u32
    }

    fn name(&self) -> &'static str {
        "aimd"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(completed: u64, late: u64, in_flight: u32) -> Sample {
        Sample {
            span: Duration::from_millis(100),
            completed,
            good: completed - late,
            in_flight,
            in_flight_max: in_flight,
            ..Sample::default()
        }
    }

    /// Purpose: the two moves, each at the edge of its condition.
    #[test]
    fn it_adds_and_it_multiplies() {
        let mut limit = Aimd::new(1000, Duration::from_millis(10));
        let now = Instant::ZERO;
        assert_eq!(limit.limit(), 20);
        assert_eq!(limit.on_sample(now, &sample(100, 5, 20)), 21, "one in twenty is noise");
        assert_eq!(limit.on_sample(now, &sample(100, 6, 20)), 18, "more than that is not");
        assert_eq!(limit.on_sample(now, &sample(100, 0, 2)), 18, "no growth without demand");
        let waited = Sample { queue_delay_mean: Duration::from_millis(11), ..sample(100, 0, 18) };
        assert_eq!(limit.on_sample(now, &waited), 17);
        let dropped = Sample { dropped: 10, ..sample(100, 0, 18) };
        assert_eq!(limit.on_sample(now, &dropped), 15, "what was dropped was late");
    }

    /// Purpose: it starts at the given limit, and does not fall below the given bound.
    #[test]
    fn bounds_can_be_given() {
        let mut limit = Aimd::new(1000, Duration::from_millis(10)).starting_at(256, 50);
        assert_eq!(limit.limit(), 256);
        for _ in 0..100 {
            limit.on_sample(Instant::ZERO, &sample(100, 100, 20));
        }
        assert_eq!(limit.limit(), 50);
        let beyond = Aimd::new(30, Duration::from_millis(10)).starting_at(256, 50);
        assert_eq!(beyond.limit(), 30);
    }

    /// Purpose: growth is per time, so that a slow sampler does not make a slow climber.
    #[test]
    fn growth_does_not_depend_on_the_pace_of_samples() {
        let limit = Aimd::new(1000, Duration::from_millis(10));
        let (mut often, mut seldom) = (limit.clone(), limit);
        for _ in 0..10 {
            let in_flight = often.limit();
            often.on_sample(Instant::ZERO, &sample(100, 0, in_flight));
        }
        let whole = Sample { span: Duration::from_secs(1), ..sample(1000, 0, 20) };
        seldom.on_sample(Instant::ZERO, &whole);
        assert_eq!((often.limit(), seldom.limit()), (30, 30));
    }
}
