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
//! * *drops are ignored* (Netflix's Gradient2): requests dropped from the queue count as waiting, as
//!   far as dropping them costs more than to let the cores run dry;
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
//! A rush that is sudden is bounded before it is known to last ([`Limit::on_glance`]), by what would
//! wait hopelessly long for the cores. What only awaits is not in that bound, so thousands that come at
//! once and then wait for a database are let in.
//!
//! Invariants: 1 ≤ limit ≤ the bound given; the limit falls to no less than [`STEP_DOWN_DEAR`] of
//! itself in one sample and grows to no more than double; a glance never raises it; the same samples
//! give the same limits.

mod knee;
mod slack;

use core::time::Duration;

use self::knee::{Knee, Look};
use self::slack::{LATE_FEW, Slack};
use super::{LIMIT_MAX, Limit, Sample};
use crate::time::Instant;

/// A decision is taken over at least this many answers, or this much time: the mean of fewer says
/// more about the requests than about the server.
const ANSWERS_MIN: u64 = 20;
const WINDOW_MAX: Duration = Duration::from_secs(1);

/// The most that one step takes away, and gives: the limit stays above, and below, this many times
/// itself. Seven halvings turn a thousand into ten, in as many tenths of a
/// second.
const STEP_DOWN_MAX: f64 = 0.5;
const STEP_UP_MAX: f64 = 2.0;

/// The same while dropping takes more than this part of the cores' time: what is let in beyond what
/// Little's law allows is dropped, too.
const STEP_DOWN_DEAR: f64 = 0.1;
const WASTE_DEAR: f64 = 0.03;

/// Growth per sample from this part of what was in flight when the queue began to stand: what is let
/// in now may reach the cores only after it has waited for something else (as TCP's slow start ends).
const GROWTH: f64 = 1.1;
const THRESHOLD: f64 = 0.7;

/// Mean waits below this part of the target are no queue: scheduling alone makes them.
const QUIET: f64 = 0.25;

/// If even the least wait of a sample is above this part of the target, the queue is a standing one.
/// (A burst leaves a queue too, but it empties; K. Nichols and V. Jacobson, "Controlling queue
/// delay", 2012.)
const STANDING: f64 = 0.5;
/// For so many samples in a row, unless it is as long as this times the target: a few requests that
/// cost twenty times the usual make a short queue stand for a tenth of a second.
const STANDING_SAMPLES: u32 = 3;
const STANDING_LONG: f64 = 4.0;

/// The part of the cores' time that dropping requests from the queue may take before it counts as a
/// queue that is too long.
const WASTE_MAX: f64 = 0.01;

/// Weight of the newest sample in what is smoothed: two thirds of it are three samples old at most.
const WEIGHT: f64 = 0.3;

/// Weight of a sample that shows more silent connections than before.
const SILENT_WEIGHT: f64 = 0.1;

/// What is left per sample of the belief in silent connections while the queue drops requests.
const DISBELIEF: f64 = 0.5;

/// How fast growth becomes less careful, per second.
const FORGET_PER_SECOND: f64 = 0.10;

/// How long nobody must have been kept out, and nothing have waited, for the limit to return to where
/// it began, in seconds. What it was before says little about the next rush, which is noticed in a
/// hundredth of a second; a limit that is kept would turn it away even if it only awaits.
const CALM: f64 = 1.0;

/// A rush is bounded before it is known to last once whoever comes would wait for this long, in
/// seconds. Twice CoDel's interval, after which a queue is no burst and refuses what waits.
const HOPELESS: f64 = 0.2;

/// As many must have been begun to foretell that.
const STARTS_MIN: u64 = 20;

/// What [`Gradient`] is to aim at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aim {
    /// How long a request may wait for its turn while there is more to do than can be done.
    pub target: Duration,
    /// The most the limit may be, brought into 1 to [`LIMIT_MAX`].
    pub limit_max: u32,
    /// Where the limit begins, and what it comes back to when it has not been needed for a while. The
    /// first rush is turned away beyond it; the first overload lets in this many more than can be
    /// done.
    pub start: u32,
    /// How many requests beyond those that Little's law names: one for each core that serves, so
    /// that none is idle between two.
    pub spare: u32,
}

/// The limit from queueing delay.
#[derive(Clone, Debug)]
pub struct Gradient {
    limit_max: f64,
    start: f64,
    spare: f64,
    limit: f64,
    /// Samples that were too thin to decide by, added up.
    thin: Sample,
    slack: Slack,
    /// Smoothed over the samples in which the cores were the bottleneck.
    rate: Smooth,
    service: Smooth,
    /// Connections that have work in name only: their client has not sent its request yet.
    silent: f64,
    /// Latency has been told: where it is not, none was.
    sighted: bool,
    /// Where the queue began to stand the last time; there growth becomes careful.
    threshold: f64,
    /// Samples in a row with a standing queue.
    stood: u32,
    /// How long nobody has been kept out and nothing has waited, in seconds.
    calm: f64,
    /// How many were under way at most in the last sample.
    before: f64,
    knee: Knee,
}

impl Gradient {
    /// A limit that aims as told.
    pub fn new(aim: Aim) -> Self {
        let limit_max = f64::from(aim.limit_max.clamp(1, LIMIT_MAX));
        let start = f64::from(aim.start.max(1)).min(limit_max);
        Gradient {
            limit_max,
            spare: f64::from(aim.spare.max(1)),
            limit: start,
            start,
            thin: Sample::default(),
            slack: Slack::new(aim.target.as_secs_f64()),
            rate: Smooth::default(),
            service: Smooth::default(),
            silent: 0.0,
            sighted: false,
            threshold: f64::INFINITY,
            stood: 0,
            calm: 0.0,
            before: 0.0,
            knee: Knee::default(),
        }
    }

    fn decide(&mut self, sample: &Sample) {
        let look = Look::at(sample, self.limit());
        self.sighted |= look.knows_latency;
        let is_dropping = look.dropped_share > LATE_FEW && look.wasted > WASTE_MAX * self.spare;
        let target = self.slack.bound();
        let is_standing = self.has_stood(look.wait_min, target);
        let is_queue = look.is_felt && look.wait > target * QUIET;
        let reached = self.limit.min(look.in_flight_max.max(1.0));
        let by_little = is_dropping || is_standing || is_queue;
        let wanted = if by_little {
            self.calm = 0.0;
            if self.knee.forget() && !is_queue {
                self.threshold = reached * THRESHOLD;
            }
            self.slack.adapt(&look);
            let wanted = self.by_little(&look);
            self.threshold = self.threshold.min(wanted.max(1.0));
            wanted
        } else {
            self.rate.forget();
            self.service.forget();
            let settled = self.slack.has_settled(&look);
            // Long waits of clients, or of handlers, say nothing about how many there may be.
            let is_silent = look.rate < 1.0 && self.sighted;
            let judged = settled && !is_silent;
            let bound = if judged { self.knee.step(&look, self.limit, target) } else { None };
            bound.unwrap_or_else(|| self.at_ease(&look))
        };
        // A limit that nobody reached is not what made anybody wait; what there was is.
        let is_dear = look.wasted > WASTE_DEAR * self.spare;
        let step_down = if is_dear { STEP_DOWN_DEAR } else { STEP_DOWN_MAX };
        let bounded = wanted.clamp(reached * step_down, self.limit * STEP_UP_MAX);
        let limit = bounded.clamp(1.0, self.limit_max);
        if by_little {
            self.slack.on_limit(&look, self.limit, limit);
        }
        self.limit = limit;
    }

    /// Whether the queue stands: for a while if it is short, at once if it is long.
    fn has_stood(&mut self, wait_min: f64, target: f64) -> bool {
        self.stood = if wait_min > target * STANDING { self.stood + 1 } else { 0 };
        self.stood >= STANDING_SAMPLES || wait_min > target * STANDING_LONG
    }

    /// The cores are the bottleneck: the limit that makes the wait what is aimed at.
    fn by_little(&mut self, look: &Look) -> f64 {
        let rate = self.rate.take(look.rate);
        let service = self.service.take(look.service);
        self.hear(look);
        rate * (service + self.slack.aim()) + self.spare + self.silent
    }

    /// Nothing waits: the limit must not be what keeps anybody out.
    fn at_ease(&mut self, look: &Look) -> f64 {
        self.hear(look);
        let growth = if self.limit < self.threshold { STEP_UP_MAX } else { GROWTH };
        self.threshold *= 1.0 + FORGET_PER_SECOND * look.seconds;
        let is_calm = !look.is_felt && look.wait < self.slack.bound() * QUIET;
        self.calm = if is_calm { self.calm + look.seconds } else { 0.0 };
        if look.is_felt {
            // Busy with what is not answered yet, a server says nothing about its limit.
            return if look.is_stuck { self.limit } else { self.limit * growth };
        }
        let mut limit = self.limit.max(2.0 * look.in_flight_max);
        if self.calm >= CALM {
            self.threshold = f64::INFINITY;
            limit = limit.max(self.start);
        }
        limit
    }

    /// By Little's law `rate × latency` requests are under way; connections beyond that are silent.
    /// Believed slowly when it grows, and not while requests wait, since at the onset of an overload
    /// the latency of what was answered lags behind; at once when it shrinks. What the queue holds and
    /// then drops looks the same, so while it drops, less and less is believed: if they were silent
    /// after all, the drops end with the limit that falls, and they are believed again.
    fn hear(&mut self, look: &Look) {
        if !look.knows_latency {
            return;
        }
        let silent = (look.in_flight - look.rate * (look.service + look.wait)).max(0.0);
        let bound = self.slack.bound();
        let is_waiting = look.wait_min > bound * STANDING || look.wait > bound;
        if silent < self.silent {
            self.silent = silent;
        } else if look.dropped_share > 0.0 {
            self.silent *= DISBELIEF;
        } else if !is_waiting {
            self.silent += (silent - self.silent) * SILENT_WEIGHT;
        }
    }
}

impl Limit for Gradient {
    fn on_sample(&mut self, _now: Instant, sample: &Sample) -> u32 {
        self.before = f64::from(sample.in_flight_max);
        let window = self.thin.and(sample);
        if window.completed + window.dropped < ANSWERS_MIN && window.span < WINDOW_MAX {
            self.thin = window;
        } else {
            self.thin = Sample::default();
            self.decide(&window);
        }
        self.limit()
    }

    fn on_glance(&mut self, so_far: &Sample) -> u32 {
        // What waits is not told, but what was begun is, and what was under way before.
        let span = so_far.span.as_secs_f64().max(1e-3);
        let begun = so_far.started.saturating_sub(so_far.completed) as f64 + self.before;
        let bound = so_far.started as f64 / span * HOPELESS + begun;
        let waits = so_far.queue_delay_mean.as_secs_f64() > self.slack.bound();
        if waits && so_far.started >= STARTS_MIN {
            self.limit = self.limit.min(bound.max(1.0));
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
