//! What does the guard know at this moment?
//!
//! The line (`line.rs`) and the metrics (`page.rs`) show only values from here, so they cannot
//! disagree. The scaling signals use only the kernel's counts, so a source in trouble does not
//! silence them.

use std::time::Duration;

use highwater::admission::Signal;
use highwater::metrics::Signals;
use highwater_core::limit::Sample;
use highwater_core::time::Instant;

use super::meter::{Meter, Rates};
use super::policy::{Policy, State};
use super::window::{Counted, Window};

/// How often the signals are updated.
const PACE: Duration = Duration::from_millis(100);

/// How long a connection is assumed to last where that cannot be seen. A guess.
const STAY: Duration = Duration::from_secs(1);

/// All that is known about a guarded server.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) limit: u32,
    pub(crate) limiter: &'static str,
    pub(crate) mechanism: &'static str,
    /// Why this mechanism was chosen.
    pub(crate) reason: String,
    pub(crate) counted: Counted,
    pub(crate) in_flight: Option<u32>,
    pub(crate) rates: Rates,
    /// How long requests wait to be read.
    pub(crate) waited: Option<Duration>,
    pub(crate) source: State,
    pub(crate) signals: Signals,
}

/// Keeps a [`Report`] up to date.
pub(crate) struct Reporter {
    meter: Meter,
    window: Window,
    signal: Signal,
    report: Report,
}

impl Reporter {
    pub(crate) fn new(
        (mechanism, reason): (&'static str, String),
        policy: &Policy,
        queue_target: Duration,
        now: Instant,
    ) -> Self {
        let report = Report {
            limit: policy.limit(),
            limiter: policy.limiter(),
            mechanism,
            reason,
            counted: Counted::default(),
            in_flight: None,
            rates: Rates::default(),
            waited: None,
            source: policy.state().clone(),
            signals: Signals::default(),
        };
        let signal = Signal::new(queue_target);
        Reporter { meter: Meter::default(), window: Window::new(now), signal, report }
    }

    /// The report of the last turn.
    pub(crate) fn report(&self) -> &Report {
        &self.report
    }

    /// Another mechanism is in use, because of `reason`.
    pub(crate) fn set_reason(&mut self, reason: &str) {
        reason.clone_into(&mut self.report.reason);
    }

    /// Takes in the counts until `now`, and what the policy decided from them.
    pub(crate) fn on_turn(&mut self, now: Instant, counted: Counted, policy: &Policy) -> &Report {
        self.window.add(now, counted);
        if now.saturating_since(self.window.began) >= PACE {
            let sample = match counted.completed {
                Some(_) => self.window.sample(now, self.window.completed() as f64),
                None => without_ends(self.window.sample(now, 0.0), self.report.limit),
            };
            self.report.signals = self.signal.on_sample(&sample, self.report.limit);
            self.window.restart(now);
        }
        let report = &mut self.report;
        report.rates = self.meter.add(now, counted);
        report.limit = policy.limit();
        report.in_flight = counted.in_flight;
        report.waited = counted.waited.or(report.waited);
        report.counted = counted;
        if report.source != *policy.state() {
            report.source = policy.state().clone();
        }
        report
    }
}

/// A sample of a mechanism that does not see connections end. Each is assumed to last for [`STAY`]: then the demand is the
/// connections in flight, and those refused in as long, over the limit. Without a gate, as many would have been refused as
/// there are beyond the limit.
fn without_ends(sample: Sample, limit: u32) -> Sample {
    let stays = sample.span.as_secs_f64() / STAY.as_secs_f64();
    let ended = |connections: u32| (f64::from(connections) * stays).ceil() as u64;
    Sample {
        completed: ended(sample.in_flight.min(limit)),
        refused: sample.refused + ended(sample.in_flight.saturating_sub(limit)),
        ..sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the demand exceeds 1 where a mechanism sees neither beginnings nor ends: by what it refuses, or would refuse;
    /// and it does not while there is room.
    #[test]
    fn demand_is_seen_without_ends() {
        for (in_flight, refused_per_s, least, most) in
            [(32, 0, 0.3, 0.7), (64, 0, 0.9, 1.1), (64, 640, 5.0, 15.0), (192, 0, 2.5, 3.5)]
        {
            let mut signal = Signal::new(Duration::from_millis(10));
            let mut demand = 0.0;
            for _ in 0..100 {
                let refused = refused_per_s / 10;
                let sample = Sample { span: PACE, in_flight, refused, ..Sample::default() };
                demand = signal.on_sample(&without_ends(sample, 64), 64).demand_ratio;
            }
            assert!((least..most).contains(&demand), "{in_flight} {refused_per_s}: {demand}");
        }
    }
}
