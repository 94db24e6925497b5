//! How much more is asked of this server than it can do, and does it need company?
//!
//! A saturated server cannot tell twice its capacity from ten times: occupancy, and CPU time, end at
//! one. So an autoscaler that multiplies by them adds a quarter per step, whatever comes. The *demand
//! ratio* does not end there. It is work offered over work that can be done:
//!
//! ```text
//!          used + cost × (refused + growth)     used      of the span, busy with work that is served
//! demand = ────────────────────────────────     cost      used ÷ completed: the server's time per request
//!                      span                     refused   turned away, by whatever layer
//!                                               growth    of what is in flight: came and is not done
//! ```
//!
//! `used ÷ span` is how near its end the scarcest resource is: the cores (busy), or the places under
//! the limit (in flight ÷ limit), or all of it if even the least wait exceeds the target in one sample
//! after the other: a queue that is never empty leaves nothing unused, whatever a clock of the CPU
//! says on a machine that is shared. While nothing is refused or queued the ratio therefore is that
//! occupancy; while much is, it is offered ÷ completed, and so higher by what refusing takes from the
//! completed: 18 % if that is 15 % of the core. Completions count and not goodput: lateness is the
//! demand's fault, not the capacity's, and a machine more would not mend an error.
//!
//! **What is no demand.** Handlers that wait, requests whose client has gone or whose own deadline has
//! passed, and the limits of routes: none of them would be helped by another server, and none is among
//! `refused` or `in flight`. Of a crowd that comes at once no more than [`GROWTH_MAX`] spans count, until a
//! queue stands: a burst that is worked off in time is no reason to start another server.
//!
//! **Retries.** A refused client that tries again is counted again, and no server can tell the two
//! apart. `demand_ratio` counts attempts and so is an upper bound: too high by less than a factor of
//! the number of times that a client tries. `demand_ratio_min` assumes that everybody tries
//! [`TRIES_ASSUMED`] times: where a share p of attempts is admitted, each client then makes
//! 1 + (1 − p) + (1 − p)² of them. Both agree while nothing is refused.
//!
//! **Needing to scale out** is decided by what the server would owe: the queue, in seconds of its
//! time, that would have built up if it worked at a reference pace ([`Debt`]; a CUSUM test). Poisson
//! arrivals make bursts, and a burst is paid back at once while an overload never is: no smoothing
//! tells the two apart as fast for the same number of false alarms.
//!
//! Never here: a clock, a counter, the decision whom to refuse.
//!
//! Invariants: every number is finite and not negative; without a refusal or a queue the demand is at
//! most 1; `demand_ratio_min <= demand_ratio <=` [`DEMAND_RATIO_MAX`].

use std::collections::VecDeque;
use std::time::Duration;

use highwater_core::limit::Sample;

use crate::metrics::Signals;

/// No demand is reported beyond this many times what can be done: it says nothing more, and a bug or
/// a single giant request must not ask for a million machines.
pub(crate) const DEMAND_RATIO_MAX: f64 = 1000.0;

/// How often a refused client is taken to try in all, for [`Signals::demand_ratio_min`]. Three is
/// the default of the AWS SDKs and of HAProxy's `retries`.
pub(crate) const TRIES_ASSUMED: i32 = 3;

/// The time constant of the ratios' smoothing. A step has shown 63 % of itself after this long.
const SMOOTHING: Duration = Duration::from_secs(2);

/// A server may owe this much, in seconds: it is reached `0.4 s ÷ (demand − 1)` after the onset.
const OWED_AT_FULL_PACE_MAX: f64 = 0.4;

/// Or this many requests if they are longer than 4 ms, as chance counts in requests: at 80 % load
/// and exponential service the work in a queue exceeds that of n requests for a share e^(−n ÷ 5) of
/// the time, once in 10⁹.
const OWED_REQUESTS_AT_FULL_PACE_MAX: f64 = 100.0;

/// The pace at which a server should not run for long, as nothing is left for bursts.
const SUSTAINED_PACE: f64 = 0.9;

/// What may be owed at that pace: reached in 20 s at a demand of 1, in 40 s at 0.95.
const OWED_AT_SUSTAINED_PACE_MAX: f64 = 2.0;

/// Or this many requests. Twice as many as at full pace, for the drift back is half as strong.
const OWED_REQUESTS_AT_SUSTAINED_PACE_MAX: f64 = 200.0;

/// Owing less than this at that pace is calm: bursts do.
const OWED_CALM_MAX: f64 = 0.25;

/// How long it has to be calm before a server says that it no longer needs company. Longer than
/// autoscalers take to look twice.
const CALM: Duration = Duration::from_secs(60);

/// The most that a sample's growth counts for, in spans, while no queue stands.
const GROWTH_MAX: f64 = 1.0;

/// What the rejection rate looks back on.
const RATE_WINDOW: Duration = Duration::from_secs(1);

/// Samples kept for it, at most: those of its window at the closest that they come.
const RATE_SAMPLES_MAX: usize = 32;

/// Turns samples into [`Signals`].
#[derive(Debug)]
pub struct Signal {
    /// The wait beyond which a queue counts as standing.
    queue_target: Duration,
    smoothed: Smoothed,
    cost: Cost,
    in_flight: u32,
    /// Whether even the least wait was beyond the target in the last sample.
    stood: bool,
    full_pace: Debt,
    sustained_pace: Debt,
    calm: Duration,
    needs_scaleout: bool,
    window: RateWindow,
}

impl Signal {
    /// `queue_target` is the least wait over a sample that an unhurried server does not show:
    /// `--queue-target`.
    pub fn new(queue_target: Duration) -> Self {
        Signal {
            queue_target,
            smoothed: Smoothed::idle(),
            cost: Cost::default(),
            in_flight: 0,
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
            window: RateWindow::default(),
        }
    }

    /// Takes in what happened since the last sample, while `limit` was in force.
    pub fn on_sample(&mut self, sample: &Sample, limit: u32) -> Signals {
        let span = sample.span.as_secs_f64();
        let occupied = self.occupied(sample, limit);
        let growth = f64::from(sample.in_flight) - f64::from(self.in_flight);
        self.in_flight = sample.in_flight;
        if span > 0.0 {
            let (completed, refused) = (sample.completed as f64, sample.refused as f64);
            let cost = self.cost.add(span, occupied * span, completed);
            let growth = match sample.standing > 0 || cost == 0.0 {
                true => growth,
                false => growth.min(GROWTH_MAX * span / cost),
            };
            self.smoothed.add(span, [span, occupied * span, completed, refused, growth]);
            let offered = occupied * span + cost * (refused + growth);
            self.decide(offered, cost, sample.span);
        }
        self.window.push(sample.span, sample.refused);
        let demand_ratio = self.smoothed.demand(self.cost.per_request());
        Signals {
            demand_ratio,
            demand_ratio_min: demand_ratio * self.smoothed.first_attempts(),
            needs_scaleout: self.needs_scaleout,
            saturation_ratio: demand_ratio
                .max(f64::from(sample.in_flight) / f64::from(limit.max(1)))
                .min(1.0),
            headroom: limit.saturating_sub(sample.in_flight),
            rejection_rate: self.window.rate(),
        }
    }

    /// How near its end the scarcest resource is, 0 to 1.
    fn occupied(&mut self, sample: &Sample, limit: u32) -> f64 {
        let stands = sample.queue_delay_min > self.queue_target;
        if std::mem::replace(&mut self.stood, stands) && stands {
            return 1.0;
        }
        let cores = f64::from(sample.busy);
        let places = f64::from(sample.in_flight) / f64::from(limit.max(1));
        // `max` takes the other if one is not a number; `clamp` would keep it.
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

/// Seconds of work that a server has not done which, at its pace, it could only have done later.
#[derive(Debug)]
struct Debt {
    /// What it does in a second, as a share of all that it can do.
    pace: f64,
    owed: f64,
    /// Where counting ends, so that an hour of overload is paid back as fast as a minute of it: the
    /// greater of so many seconds, and what so many requests cost.
    owed_max: f64,
    requests_max: f64,
}

impl Debt {
    /// `offered` seconds of work came in `span`, in requests that cost `cost` each. Answers whether
    /// as much is owed as can be.
    fn add(&mut self, offered: f64, cost: f64, span: Duration) -> bool {
        let owed_max = self.owed_max.max(self.requests_max * cost);
        let owed = self.owed + offered - self.pace * span.as_secs_f64();
        self.owed = owed.clamp(0.0, owed_max);
        self.owed >= owed_max
    }
}

/// Seconds of the whole server's time that one request costs, lately.
///
/// Known from completions, so it stays as it is while there are none: a server that is stuck has not
/// become slow, and what it was busy with meanwhile is counted when it completes, up to a bound.
#[derive(Debug, Default)]
struct Cost {
    used: f64,
    completed: f64,
    /// Since the last completion: the time that passed, and of it the time used.
    waited: f64,
    unaccounted: f64,
}

impl Cost {
    /// Answers what a request costs.
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

/// Sums in which what is older than [`SMOOTHING`] counts for little: of the span, the time used, the
/// requests completed, those refused, and the growth of those in flight.
#[derive(Debug)]
struct Smoothed([f64; 5]);

impl Smoothed {
    /// As if nothing had happened for long, lest the first sample speak for all.
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

    /// Which share of attempts are first ones, if whoever is refused tries [`TRIES_ASSUMED`] times.
    fn first_attempts(&self) -> f64 {
        let [_, _, completed, refused, growth] = self.0;
        let admitted = (completed + growth).max(0.0);
        let p = if refused > 0.0 { admitted / (admitted + refused) } else { 1.0 };
        // The attempts that a client makes on average: it makes the i-th if i − 1 were refused.
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
