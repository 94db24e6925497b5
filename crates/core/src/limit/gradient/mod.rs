//! The limit that follows from how long requests wait.
//!
//! ```text
//!   nothing waits        the limit stays at twice what there is, or more: nobody is refused
//!   requests wait for    limit = rate × (time in service + target) + spare      (Little's law)
//!   our own cores
//!   all else             the knee of the rate over the concurrency: see `knee.rs`
//! ```
//!
//! With as many requests under way as Little's law allows, the last of them waits just as long as
//! the target says. That is one computation, not a search: it is right a sample after the load
//! changed, and it does not swing. It steers by delay and by what comes in time, never by the rate
//! of answers alone, which is as high with a thousand requests waiting in vain as with ten.
//!
//! What users of other limiters complain of, and what is done about it:
//!
//! * *drops are ignored* (Netflix's Gradient2): requests dropped from the queue count as waiting;
//! * *grows without bound while the delay is stable* (Gradient2): there is growth only while the
//!   limit is felt, and only as long as it yields a higher rate;
//! * *the queue term is added even when latency grows* (Gradient2): the spare is a constant;
//! * *the probe that pins concurrency to three causes errors* (Envoy): there is no such probe; in
//!   normal operation the least delay is seen anyway;
//! * *the estimate of the least latency creeps up under sustained load* (Envoy): time alone never
//!   raises it;
//! * *once too high or too low it never recovers* (both): a limit that is felt while nothing waits
//!   doubles with every sample, one that makes requests late falls whatever it is.
//!
//! Invariants: 1 ≤ limit ≤ the bound given; the limit falls to no less than [`STEP_DOWN_MAX`] of
//! itself in one sample and grows to no more than double; the same samples give the same limits.

mod knee;

use core::time::Duration;

use self::knee::{Knee, Look};
use super::{LIMIT_MAX, Limit, Sample};
use crate::time::Instant;

/// Where the limit begins, and what it comes back to when it has not been needed for a while.
///
/// A guess between two evils: lower, and the first rush of a service that merely waits for its
/// database is turned away for a few tenths of a second; higher, and the first overload of one that
/// computes lets in more than it can do, which then has to be dropped at a higher price.
const START: f64 = 1024.0;

/// A decision is taken over at least this many answers, or this much time: the mean of fewer says
/// more about the requests than about the server.
const ANSWERS_MIN: u64 = 20;
const WINDOW_MAX: Duration = Duration::from_secs(1);

/// The most that one step takes away, and gives: the limit stays above, and below, this many times
/// itself. Seven halvings turn a thousand into ten, in as many tenths of a
/// second.
const STEP_DOWN_MAX: f64 = 0.5;
const STEP_UP_MAX: f64 = 2.0;

/// Towards Little's limit it is approached from below no faster than this per step.
const APPROACH_MAX: f64 = 1.25;

/// Waits below this part of the target are no queue: scheduling alone makes them.
const QUIET: f64 = 0.25;

/// Weight of the newest sample in what is smoothed: two thirds of it are three samples old at most.
const WEIGHT: f64 = 0.3;

/// The share of answers that may be late, and the share at which time is being given back.
const LATE_MAX: f64 = 0.10;
const LATE_FEW: f64 = 0.02;

/// How the target shrinks, and recovers, per sample, for clients whose deadline is shorter; and to
/// which part of itself at the least.
const TIGHTEN: f64 = 0.7;
const RELAX: f64 = 1.02;
const TIGHT_MAX: f64 = 0.05;

/// How fast an unneeded limit returns to [`START`], per second.
const FORGET_PER_SECOND: f64 = 0.10;

/// What [`Gradient`] is to aim at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aim {
    /// How long a request may wait for its turn while there is more to do than can be done.
    pub target: Duration,
    /// The most the limit may be, brought into 1 to [`LIMIT_MAX`].
    pub limit_max: u32,
    /// How many requests beyond those that Little's law names: one for each core that serves, so
    /// that none is idle between two.
    pub spare: u32,
}

/// The limit from queueing delay.
#[derive(Clone, Debug)]
pub struct Gradient {
    target: f64,
    limit_max: f64,
    spare: f64,
    limit: f64,
    /// Samples that were too thin to decide by, added up.
    thin: Sample,
    /// What part of the target is aimed at.
    tightness: f64,
    /// Smoothed over the samples in which the cores were the bottleneck.
    rate: Smooth,
    service: Smooth,
    /// Connections that have work in name only: their client has not sent its request yet.
    silent: f64,
    knee: Knee,
}

impl Gradient {
    /// A limit that aims as told.
    pub fn new(aim: Aim) -> Self {
        let limit_max = f64::from(aim.limit_max.clamp(1, LIMIT_MAX));
        Gradient {
            target: aim.target.as_secs_f64().max(1e-6),
            limit_max,
            spare: f64::from(aim.spare.max(1)),
            limit: START.min(limit_max),
            thin: Sample::default(),
            tightness: 1.0,
            rate: Smooth::default(),
            service: Smooth::default(),
            silent: 0.0,
            knee: Knee::default(),
        }
    }

    fn decide(&mut self, sample: &Sample) {
        let look = Look::at(sample, self.limit());
        self.tighten(&look);
        let target = self.target * self.tightness;
        let wanted = if look.wait > target * QUIET || look.dropped_share > LATE_FEW {
            self.knee.forget();
            self.by_little(&look, target)
        } else {
            self.rate.forget();
            self.service.forget();
            let (knee, limit) = (&mut self.knee, self.limit);
            knee.step(&look, limit).unwrap_or_else(|| self.at_ease(&look))
        };
        let bounded = wanted.clamp(self.limit * STEP_DOWN_MAX, self.limit * STEP_UP_MAX);
        self.limit = bounded.clamp(1.0, self.limit_max);
    }

    /// Clients whose deadline is shorter than the target need a shorter queue.
    fn tighten(&mut self, look: &Look) {
        if look.late_share > LATE_MAX && look.wait > 0.0 {
            self.tightness = (self.tightness * TIGHTEN).max(TIGHT_MAX);
        } else if look.late_share < LATE_FEW {
            self.tightness = (self.tightness * RELAX).min(1.0);
        }
    }

    /// The cores are the bottleneck: the limit that makes the wait the target.
    fn by_little(&mut self, look: &Look, target: f64) -> f64 {
        let rate = self.rate.take(look.rate);
        let service = self.service.take(look.service);
        self.hear(look);
        let little = rate * (service + target) + self.spare + self.silent;
        let overloaded = look.wait > target || look.dropped_share > LATE_FEW;
        if overloaded {
            // A limit that nobody reached is not what made them wait; what there was is.
            little.min(self.limit).min(look.in_flight_max.max(1.0))
        } else if look.is_felt {
            little.min(self.limit * APPROACH_MAX)
        } else {
            self.limit
        }
    }

    /// Nothing waits: the limit must not be what keeps anybody out.
    fn at_ease(&mut self, look: &Look) -> f64 {
        self.hear(look);
        let idle = if look.is_felt { self.limit * STEP_UP_MAX } else { self.limit };
        let forgotten = self.limit * (1.0 + FORGET_PER_SECOND * look.seconds);
        idle.max(forgotten.min(START)).max(2.0 * look.in_flight_max)
    }

    /// By Little's law `rate × latency` requests are under way; connections beyond that are silent.
    /// Believed slowly when it grows, since at the onset of an overload the latency of what was
    /// answered lags behind, and at once when it shrinks.
    fn hear(&mut self, look: &Look) {
        if !look.knows_latency {
            return;
        }
        let silent = (look.in_flight - look.rate * (look.service + look.wait)).max(0.0);
        self.silent = if silent < self.silent {
            silent
        } else if look.dropped_share > 0.0 {
            self.silent
        } else {
            self.silent + (silent - self.silent) * 0.1
        };
    }
}

impl Limit for Gradient {
    fn on_sample(&mut self, _now: Instant, sample: &Sample) -> u32 {
        let window = self.thin.and(sample);
        if window.completed < ANSWERS_MIN && window.span < WINDOW_MAX {
            // Those who are kept out while nothing happens must not wait for the window's end.
            self.thin = window;
        } else {
            self.thin = Sample::default();
            self.decide(&window);
        }
        self.limit()
    }

    fn limit(&self) -> u32 {
        (self.limit + 0.5) as u32
    }

    fn name(&self) -> &'static str {
        "gradient"
    }
}

/// An exponentially weighted mean.
#[derive(Clone, Copy, Debug, Default)]
struct Smooth(Option<f64>);

impl Smooth {
    fn take(&mut self, value: f64) -> f64 {
        let mean = self.0.map_or(value, |mean| mean + (value - mean) * WEIGHT);
        self.0 = Some(mean);
        mean
    }

    fn forget(&mut self) {
        self.0 = None;
    }
}
