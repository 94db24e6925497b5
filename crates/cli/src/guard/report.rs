//! What does the guard know at this moment?
//!
//! The line (`line.rs`) and the metrics (`page.rs`) show only values from here, so they cannot
//! disagree. The scaling signals use only the kernel's counts, so a source in trouble does not
//! silence them.

use std::time::Duration;

use highwater::admission::Signal;
use highwater::metrics::Signals;
use highwater_core::time::Instant;

use super::meter::{Meter, Rates};
use super::policy::{Policy, State};
use super::window::{Counted, Window};

/// How often the signals are updated.
const PACE: Duration = Duration::from_millis(100);

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
            // Ends that the mechanism cannot see are assumed to be as frequent as beginnings.
            let ended = counted
                .completed
                .map_or_else(|| self.window.admitted(), |_| self.window.completed());
            let sample = self.window.sample(now, ended as f64);
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
