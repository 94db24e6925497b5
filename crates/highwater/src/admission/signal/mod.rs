//! Demand as a multiple of capacity: should the server scale out?
//!
//! A saturated server cannot tell twice its capacity from ten times: occupancy, and CPU time, end at one. So
//! an autoscaler that multiplies by them adds a quarter per step, whatever the load. The *demand ratio* is
//! not bounded by one. It is offered work over possible work:
//!
//! ```text
//!          used + cost × (refused + growth)     used      of the span, busy with work that is served
//! demand = ────────────────────────────────     cost      used ÷ completed: the server's time per request
//!                      span                     refused   turned away, by whatever layer
//!                                               growth    of requests in flight: arrived, not done
//! ```
//!
//! `used ÷ span` is the occupancy of the scarcest resource: of the cores (busy), or of the places under the
//! limit (in flight ÷ limit). It is one if even the least wait exceeds the target in two consecutive samples:
//! a queue that is never empty leaves nothing unused, whatever a CPU clock says on a shared machine. While
//! nothing is refused or queued, the ratio is this occupancy. While much is, it is offered ÷ completed, and
//! so higher by what refusing takes from the completions: 18 % if that is 15 % of the core. It counts
//! completions, not goodput: too much demand causes late answers, and another server does not cure errors.
//!
//! **What does not count as demand.** Handlers that wait, requests whose client has disconnected or whose own
//! deadline has passed, and refusals at the limits of routes: another server would help none of them, and
//! none is among `refused` or `in flight`. A burst counts for at most [`GROWTH_MAX`] spans until there is a
//! standing queue: a burst that is served in time is not a reason to start another server.
//!
//! **Retries.** A refused client that retries is counted again: a server cannot tell a retry from a first
//! attempt. `demand_ratio` counts attempts and so is an upper bound: too high by less than a factor of the
//! number of tries per client. `demand_ratio_min` assumes that every client tries [`TRIES_ASSUMED`] times:
//! where a share p of attempts is admitted, each client then makes 1 + (1 − p) + (1 − p)² of them. Both agree
//! while nothing is refused.
//!
//! **The need to scale out** is decided by a debt: the queue, in seconds of server time, that would have
//! built up at a reference rate ([`Debt`]; a CUSUM test). Poisson arrivals make bursts. The debt of a burst
//! is paid back at once, that of an overload never: no smoothing distinguishes the two as fast for the same
//! number of false alarms.
//!
//! Never here: a clock, a counter, the verdict about a request.
//!
//! Invariants: every number is finite and not negative; without a refusal or a queue the demand is at
//! most 1; `demand_ratio_min <= demand_ratio <=` [`DEMAND_RATIO_MAX`].

use std::collections::VecDeque;
use std::time::Duration;

use highwater_core::limit::Sample;

use crate::metrics::Signals;

/// Demand is reported up to this multiple of capacity: a larger value carries no information, and a bug or a
/// single giant request must not ask for a million machines.
pub(crate) const DEMAND_RATIO_MAX: f64 = 1000.0;

/// How many tries per client are assumed in all, for [`Signals::demand_ratio_min`]. Three is the default of
/// the AWS SDKs and of HAProxy's `retries`.
pub(crate) const TRIES_ASSUMED: i32 = 3;

/// The time constant of the ratios' smoothing. 63 % of a step are visible after this long.
const SMOOTHING: Duration = Duration::from_secs(2);

/// A server may owe this much, in seconds: it is reached `0.4 s ÷ (demand − 1)` after the onset.
const OWED_AT_FULL_PACE_MAX: f64 = 0.4;

/// Or this many requests if they are longer than 4 ms, as chance counts in requests: at 80 % load
/// and exponential service the work in a queue exceeds that of n requests for a share e^(−n ÷ 5) of
/// the time, once in 10⁹.
const OWED_REQUESTS_AT_FULL_PACE_MAX: f64 = 100.0;

/// The reference rate: a server should not run at it for long, as nothing is left for bursts.
const SUSTAINED_PACE: f64 = 0.9;

/// The debt allowed at that rate: reached in 20 s at a demand of 1, in 40 s at 0.95.
const OWED_AT_SUSTAINED_PACE_MAX: f64 = 2.0;

/// Or this many requests. Twice as many as at the full rate, because the debt shrinks half as fast.
const OWED_REQUESTS_AT_SUSTAINED_PACE_MAX: f64 = 200.0;

/// A debt below this at that rate is calm: bursts cause as much.
const OWED_CALM_MAX: f64 = 0.25;

/// How long it must be calm before a server withdraws its request to scale out. Longer than two polling
/// intervals of autoscalers.
const CALM: Duration = Duration::from_secs(60);

/// The most that a sample's growth counts for, in spans, without a standing queue.
const GROWTH_MAX: f64 = 1.0;

/// The window of the rejection rate.
const RATE_WINDOW: Duration = Duration::from_secs(1);

/// Most samples kept for it: those of its window at the shortest interval between samples.
const RATE_SAMPLES_MAX: usize = 32;

/// Turns samples into [`Signals`].
#[derive(Debug)]
pub struct Signal {
    /// The wait beyond which a queue counts as a standing queue.
    queue_target: Duration,
    smoothed: Smoothed,
    cost: Cost,
    in_flight: u32,
    crowd: Crowd,
    /// Whether even the least wait was beyond the target in the last sample.
    stood: bool,
    full_pace: Debt,
    sustained_pace: Debt,
    calm: Duration,
    needs_scaleout: bool,
    /// Since the demand was last at [`SUSTAINED_PACE`] or above, or `needs_scaleout` rose.
    below_pace: Duration,
    window: RateWindow,
}

impl Signal {
    /// `queue_target` is the least wait of a sample from which on the server counts as overloaded:
    /// `--queue-target`.
    pub fn new(queue_target: Duration) -> Self {
        Signal {
            queue_target,
            smoothed: Smoothed::idle(),
            cost: Cost::default(),
            in_flight: 0,
            crowd: Crowd::default(),
            stood: false,
            full_pace: Debt {
                pace: 1.0,
                owed: 0.0,
                owed_max: OWED_AT_FULL_PACE_MAX,
                requests_max: OWED_REQUESTS_AT_FULL_PACE_MAX,
            },
            sustained_pace: Debt {
                pace: SUSTAINED_PACE,
                owed: 0.0,
                owed_max: OWED_AT_SUSTAINED_PACE_MAX,
                requests_max: OWED_REQUESTS_AT_SUSTAINED_PACE_MAX,
            },
            calm: Duration::ZERO,
            needs_scaleout: false,
            below_pace: Duration::ZERO,
            window: RateWindow::default(),
        }
    }

    /// Adds a sample, during which `limit` was in force.
    pub fn on_sample(&mut self, sample: &Sample, limit: u32) -> Signals {
        let span = sample.span.as_secs_f64();
        let occupied = self.occupied(sample, limit);
        let growth = f64::from(sample.in_flight) - f64::from(self.in_flight);
        self.in_flight = sample.in_flight;
        let needed_scaleout = self.needs_scaleout;
        if span > 0.0 {
            let (completed, refused) = (sample.completed as f64, sample.refused as f64);
            let cost = self.cost.add(span, occupied * span, completed);
            let growth = self.crowd.count(growth, sample, cost);
            self.smoothed.add(span, [span, occupied * span, completed, refused, growth]);
            let offered = occupied * span + cost * (refused + growth);
            self.decide(offered, cost, sample.span);
        }
        self.window.push(sample.span, sample.refused);
        let demand_ratio = self.smoothed.demand(self.cost.per_request());
        let has_risen = self.needs_scaleout && !needed_scaleout;
        self.below_pace = match demand_ratio >= SUSTAINED_PACE || has_risen {
            true => Duration::ZERO,
            false => self.below_pace.saturating_add(sample.span),
        };
        Signals {
            demand_ratio,
            demand_ratio_min: demand_ratio * self.smoothed.first_attempts(),
            needs_scaleout: self.needs_scaleout,
            calm_seconds: self.below_pace.as_secs_f64(),
            saturation_ratio: self
                .smoothed
                .used()
                .max(f64::from(sample.in_flight) / f64::from(limit.max(1)))
                .min(1.0),
            headroom: limit.saturating_sub(sample.in_flight),
            rejection_rate: self.window.rate(),
        }
    }

    /// The occupancy of the scarcest resource, 0 to 1.
    fn occupied(&mut self, sample: &Sample, limit: u32) -> f64 {
        let stands = sample.queue_delay_min > self.queue_target;
        if std::mem::replace(&mut self.stood, stands) && stands {
            return 1.0;
        }
        let cores = f64::from(sample.busy);
        let places = f64::from(sample.in_flight) / f64::from(limit.max(1));
        // `max` returns the other value if one is NaN; `clamp` would keep NaN.
        cores.max(places).clamp(0.0, 1.0)
    }

    fn decide(&mut self, offered: f64, cost: f64, span: Duration) {
        let late = self.full_pace.add(offered, cost, span);
        let strained = self.sustained_pace.add(offered, cost, span);
        if self.sustained_pace.owed > OWED_CALM_MAX {
            self.calm = Duration::ZERO;
        } else {
            self.calm = self.calm.saturating_add(span);
        }
        self.needs_scaleout = late || strained || (self.needs_scaleout && self.calm < CALM);
    }
}

/// Requests of a burst that are not counted as demand.
///
/// They are served one after the other. Until then they do not reduce the demand as they complete.
#[derive(Debug, Default)]
struct Crowd {
    uncounted: f64,
}

impl Crowd {
    /// How many of the `growth` in flight count, at `cost` seconds each.
    fn count(&mut self, growth: f64, sample: &Sample, cost: f64) -> f64 {
        if sample.standing > 0 || sample.in_flight == 0 {
            self.uncounted = 0.0;
            return growth;
        }
        // Without a known cost none is counted.
        let span = sample.span.as_secs_f64();
        let most = if cost > 0.0 { GROWTH_MAX * span / cost } else { 0.0 };
        let counted = match growth < 0.0 {
            true => (growth + self.uncounted).min(0.0),
            false => growth.min(most),
        };
        self.uncounted = (self.uncounted + growth - counted).max(0.0);
        counted
    }
}

/// Debt: seconds of offered work beyond what a server can do at a given rate.
#[derive(Debug)]
struct Debt {
    /// The rate, as a share of the server's capacity.
    pace: f64,
    owed: f64,
    /// The cap, so that an hour of overload is paid back as fast as a minute of it: the greater of this many
    /// seconds, and the cost of this many requests.
    owed_max: f64,
    requests_max: f64,
}

impl Debt {
    /// `offered` seconds of work came in `span`, in requests that cost `cost` each. Returns whether the debt
    /// is at its cap.
    fn add(&mut self, offered: f64, cost: f64, span: Duration) -> bool {
        let owed_max = self.owed_max.max(self.requests_max * cost);
        let owed = self.owed + offered - self.pace * span.as_secs_f64();
        self.owed = owed.clamp(0.0, owed_max);
        self.owed >= owed_max
    }
}

/// The recent cost of a request, in seconds of the whole server's time.
///
/// It is computed from completions, so it does not change while there are none: a server without completions
/// has not become slow, and the time it was busy is counted with the next completion, up to a bound.
#[derive(Debug, Default)]
struct Cost {
    used: f64,
    completed: f64,
    /// Since the last completion: the time that passed, and the time used.
    waited: f64,
    unaccounted: f64,
}

impl Cost {
    /// Returns the cost of a request.
    fn add(&mut self, span: f64, used: f64, completed: f64) -> f64 {
        let bound = SMOOTHING.as_secs_f64();
        self.waited = (self.waited + span).min(bound);
        self.unaccounted = (self.unaccounted + used).min(bound);
        if completed > 0.0 {
            let kept = (-std::mem::take(&mut self.waited) / bound).exp();
            self.used = self.used * kept + std::mem::take(&mut self.unaccounted);
            self.completed = self.completed * kept + completed;
        }
        self.per_request()
    }

    fn per_request(&self) -> f64 {
        if self.completed > 0.0 { self.used / self.completed } else { 0.0 }
    }
}

/// Exponentially decaying sums with time constant [`SMOOTHING`]: of the span, the time used, the requests
/// completed, those refused, and the growth of those in flight.
#[derive(Debug)]
struct Smoothed([f64; 5]);

impl Smoothed {
    /// Begins as after a long idle time, so that the first sample does not dominate.
    fn idle() -> Self {
        Smoothed([SMOOTHING.as_secs_f64(), 0.0, 0.0, 0.0, 0.0])
    }

    fn add(&mut self, span: f64, amounts: [f64; 5]) {
        let kept = (-span / SMOOTHING.as_secs_f64()).exp();
        for (sum, amount) in self.0.iter_mut().zip(amounts) {
            *sum = *sum * kept + amount;
        }
    }

    fn demand(&self, cost: f64) -> f64 {
        let [span, used, _, refused, growth] = self.0;
        ((used + cost * (refused + growth)) / span).clamp(0.0, DEMAND_RATIO_MAX)
    }

    /// The part of the time that was used.
    fn used(&self) -> f64 {
        let [span, used, ..] = self.0;
        (used / span).clamp(0.0, 1.0)
    }

    /// The share of first attempts, if every refused client tries [`TRIES_ASSUMED`] times.
    fn first_attempts(&self) -> f64 {
        let [_, _, completed, refused, growth] = self.0;
        let admitted = (completed + growth).max(0.0);
        let p = if refused > 0.0 { admitted / (admitted + refused) } else { 1.0 };
        // The mean number of attempts per client: it makes the i-th if i − 1 were refused.
        let attempts: f64 = (0..TRIES_ASSUMED).map(|i| (1.0 - p).powi(i)).sum();
        attempts.recip()
    }
}

/// The refusals of the last second.
#[derive(Debug, Default)]
struct RateWindow {
    samples: VecDeque<(Duration, u64)>,
}

impl RateWindow {
    fn push(&mut self, span: Duration, refused: u64) {
        self.samples.push_back((span, refused));
        while self.samples.len() > RATE_SAMPLES_MAX || self.covers_without_oldest() {
            self.samples.pop_front();
        }
    }

    fn covers_without_oldest(&self) -> bool {
        self.samples.iter().skip(1).map(|(span, _)| *span).sum::<Duration>() >= RATE_WINDOW
    }

    fn rate(&self) -> f64 {
        let (span, refused) =
            self.samples.iter().fold((Duration::ZERO, 0_u64), |(span, sum), (s, r)| {
                (span + *s, sum.saturating_add(*r))
            });
        if span.is_zero() { 0.0 } else { refused as f64 / span.as_secs_f64() }
    }
}

#[cfg(test)]
mod tests;
