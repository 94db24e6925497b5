//! Moves the limit in steps of a hundred, following the request rate.
//!
//! Every five seconds it compares the rate with its peak:
//!
//! ```text
//!   a new peak               store it, restart the count
//!   more than 10 % below     limit − 100; the present rate is the new peak   (so the peak decays)
//!   less than 5 % below      the third time in a row: limit + 100
//!   in between               restart the count
//! ```
//!
//! It stores what each limit achieved, and does not step to a limit that was worse lately. Below
//! 1000 requests per second it concludes nothing.
//!
//! It is here for comparison. The rate of answers has no maximum over the limit: it is as high with a thousand requests
//! waiting as with ten, although all of the thousand are answered too late. So this algorithm passes the point at which
//! `queue_delay.rs` stops, and its memory does not prevent that. It is useful for a server of which only the request rate
//! is known, and whose rate falls when there is too much to do.

use core::time::Duration;

use super::{Limit, Sample};
use crate::time::Instant;

/// The first limit, the bounds, and the step.
const START: u32 = 800;
const MIN: u32 = 100;
const MAX: u32 = 2000;
const STEP: u32 = 100;
const RUNGS: usize = ((MAX - MIN) / STEP) as usize + 1;

/// How often it decides.
const PERIOD: Duration = Duration::from_secs(5);

/// Below this many requests per second, a change of the rate says more about the clients than about
/// the server.
const RATE_MIN: f64 = 1000.0;

/// How far below its peak a rate counts as dropped, and how far it still counts as stable.
const DROP: f64 = 0.10;
const STABLE: f64 = 0.05;

/// Stable periods in a row before a step up.
const STABLE_PERIODS: u32 = 3;

/// How long the result of a limit stays valid. A guess: the time to climb twenty steps at three
/// periods each, which the way back to a limit can take.
const MEMORY: Duration = Duration::from_secs(300);

/// The hill climber.
#[derive(Clone, Debug)]
pub struct HillClimb {
    limit: u32,
    limit_max: u32,
    peak: f64,
    stable: u32,
    /// In the current period.
    completed: u64,
    span: Duration,
    memory: [Option<Achieved>; RUNGS],
}

/// What a limit achieved, and when.
#[derive(Clone, Copy, Debug)]
struct Achieved {
    rate: f64,
    at: Instant,
}

impl HillClimb {
    /// The first limit, unless the given bound is lower.
    pub const START: u32 = START;
    /// The lowest limit, likewise.
    pub const MIN: u32 = MIN;
    /// The highest limit, whatever the bound.
    pub const MAX: u32 = MAX;

    /// A climber that starts at 800, or at `limit_max` if that is less, and stays within 100 to
    /// 2000 and `limit_max`.
    pub fn new(limit_max: u32) -> Self {
        let limit_max = limit_max.clamp(1, MAX);
        HillClimb {
            limit: START.min(limit_max),
            limit_max,
            peak: 0.0,
            stable: 0,
            completed: 0,
            span: Duration::ZERO,
            memory: [None; RUNGS],
        }
    }

    fn decide(&mut self, now: Instant, rate: f64) {
        if rate < RATE_MIN {
            return;
        }
        self.memory[rung(self.limit)] = Some(Achieved { rate, at: now });
        if rate > self.peak {
            self.peak = rate;
            self.stable = 0;
        } else if rate < self.peak * (1.0 - DROP) {
            self.peak = rate;
            self.stable = 0;
            self.limit = self.limit.saturating_sub(STEP).max(MIN.min(self.limit_max));
        } else if rate > self.peak * (1.0 - STABLE) {
            self.stable += 1;
            if self.stable == STABLE_PERIODS {
                self.stable = 0;
                self.step_up(now, rate);
            }
        } else {
            self.stable = 0;
        }
    }

    /// Steps up, unless that was tried lately and was worse.
    fn step_up(&mut self, now: Instant, rate: f64) {
        let higher = (self.limit + STEP).min(self.limit_max);
        let was_worse = self.memory[rung(higher)]
            .is_some_and(|there| now - there.at <= MEMORY && there.rate < rate * (1.0 - DROP));
        if !was_worse {
            self.limit = higher;
        }
    }
}

/// The index of `limit` in the memory; limits between two steps share the lower one's entry.
fn rung(limit: u32) -> usize {
    ((limit.saturating_sub(MIN) / STEP) as usize).min(RUNGS - 1)
}

impl Limit for HillClimb {
    fn on_sample(&mut self, now: Instant, sample: &Sample) -> u32 {
        self.completed += sample.completed;
        self.span += sample.span;
        if self.span >= PERIOD {
            let rate = self.completed as f64 / self.span.as_secs_f64();
            self.decide(now, rate);
            (self.completed, self.span) = (0, Duration::ZERO);
        }
        self.limit
    }

    fn limit(&self) -> u32 {
        self.limit
    }

    fn name(&self) -> &'static str {
        "hill-climb"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets a period pass at `rate` requests per second, in samples of a tenth of a second.
    fn period(climber: &mut HillClimb, now: &mut Instant, rate: u64) -> u32 {
        let span = Duration::from_millis(100);
        for _ in 0..50 {
            *now += span;
            let sample = Sample { span, completed: rate / 10, ..Sample::default() };
            climber.on_sample(*now, &sample);
        }
        climber.limit()
    }

    fn play(climber: &mut HillClimb, now: &mut Instant, rates: &[u64]) -> [u32; 8] {
        let mut limits = [0; 8];
        for (limit, &rate) in limits.iter_mut().zip(rates) {
            *limit = period(climber, now, rate);
        }
        limits
    }

    /// Purpose: the rules as they stand in this module's header, each at its edge.
    #[test]
    fn it_climbs_by_its_rules() {
        let (mut climber, mut now) = (HillClimb::new(u32::MAX), Instant::ZERO);
        // A peak, then three stable periods; the third earns a step.
        let limits = play(&mut climber, &mut now, &[10_000, 9_600, 9_600, 9_600]);
        assert_eq!(limits[..4], [800, 800, 800, 900]);
        // 5 % and 10 % below are neither stable nor a drop; stability is counted from the start.
        let limits = play(&mut climber, &mut now, &[9_600, 9_600, 9_500, 9_000, 9_600, 9_600]);
        assert_eq!(limits[..6], [900; 6]);
        // More than 10 % below is a drop, and becomes the peak: the same rate again is stable.
        let limits = play(&mut climber, &mut now, &[8_990, 8_990, 8_990, 8_990]);
        assert_eq!(limits[..3], [800, 800, 800]);
        // A new peak restarts the count.
        let limits = play(&mut climber, &mut now, &[20_000, 20_000, 20_000, 20_000]);
        assert_eq!(limits[3] - limits[2], 100);
    }

    /// Purpose: it does not return to a worse limit, and forgets after a while.
    #[test]
    fn it_remembers_what_each_limit_achieved() {
        let (mut climber, mut now) = (HillClimb::new(u32::MAX), Instant::ZERO);
        let up = [10_000, 10_000, 10_000, 10_000];
        assert_eq!(play(&mut climber, &mut now, &up)[3], 900);
        assert_eq!(play(&mut climber, &mut now, &[8_000])[0], 800, "900 was worse");
        let again = [10_000, 10_000, 10_000, 10_000, 10_000, 10_000, 10_000];
        assert_eq!(play(&mut climber, &mut now, &again)[..7], [800; 7], "so it stays");
        for _ in 0..7 {
            play(&mut climber, &mut now, &[10_000; 8]);
        }
        assert!(climber.limit() > 800, "five minutes later it is worth another try");
    }

    /// Purpose: a quiet server says nothing about its limit, and the bounds hold.
    #[test]
    fn it_stays_within_its_bounds() {
        let (mut climber, mut now) = (HillClimb::new(u32::MAX), Instant::ZERO);
        assert_eq!(play(&mut climber, &mut now, &[999, 100, 999, 10])[..4], [800; 4]);
        let mut rate = 1 << 30;
        for _ in 0..9 {
            rate = rate * 8 / 10;
            period(&mut climber, &mut now, rate);
        }
        assert_eq!(climber.limit(), MIN);
        for _ in 0..100 {
            period(&mut climber, &mut now, 5000);
        }
        assert_eq!(climber.limit(), MAX);
        let small = HillClimb::new(40);
        assert_eq!(small.limit(), 40);
    }
}
