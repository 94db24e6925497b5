//! What is compared: what one degree of concurrency yielded, and another.

use super::{FELT, SAME, STEP};
use crate::limit::Sample;

/// How far a mean of what is under way may be off, since it is rounded.
const ROUNDED: f64 = 0.5;

/// What a degree of concurrency yielded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) in_flight: f64,
    pub(super) in_flight_max: f64,
    pub(super) rate: f64,
    pub(super) latency: f64,
    /// The part of the latency that is known to be waiting.
    pub(super) waited: f64,
    pub(super) is_felt: bool,
    /// As many were kept out as were answered.
    pub(super) is_doubled: bool,
}

impl Point {
    pub(super) fn of(window: &Sample, limit: u32) -> Option<Point> {
        let seconds = window.span.as_secs_f64();
        if window.completed == 0 || seconds <= 0.0 {
            return None;
        }
        let rate = window.completed as f64 / seconds;
        let latency = match window.latency_mean.is_zero() {
            true => f64::from(window.in_flight) / rate,
            false => window.latency_mean.as_secs_f64(),
        };
        // The mean is rounded: less than half of one is none.
        let in_flight = f64::from(window.in_flight).max(0.5);
        Some(Point {
            in_flight,
            in_flight_max: f64::from(window.in_flight_max).max(in_flight),
            rate,
            latency: latency.max(0.5 / rate / in_flight.max(1.0)).max(1e-6),
            // Who is said to have only waited has told nothing about service.
            waited: Some(window.queue_delay_mean.as_secs_f64())
                .filter(|waited| *waited < latency.min(in_flight / rate))
                .unwrap_or(0.0),
            is_felt: window.is_felt(limit),
            is_doubled: window.refused.saturating_sub(window.dropped) >= window.completed,
        })
    }

    /// What was measured lags behind a queue that shrinks; then it is more than Little's law says.
    pub(super) fn is_steady(&self) -> bool {
        self.latency <= (self.in_flight + ROUNDED) / self.rate * FELT
    }

    /// How long an answer takes now.
    pub(super) fn shorter(&self) -> f64 {
        match self.is_steady() {
            true => self.latency,
            false => self.in_flight / self.rate,
        }
    }

    /// Whether the same concurrency yields something else by far, so that it is no longer the back end
    /// that it was.
    pub(super) fn has_changed_since(&self, mark: Point) -> bool {
        let (ratio, rate) = (self.in_flight / mark.in_flight, self.rate / mark.rate);
        let is_alike = (1.0 / SAME..SAME).contains(&ratio);
        self.is_felt && mark.is_felt && is_alike && !(SAME / STEP..STEP / SAME).contains(&rate)
    }

    /// The factors by which the rate and the latency grow to `more`.
    pub(super) fn growth(&self, more: Point) -> (f64, f64) {
        let rate = more.rate / self.rate;
        (rate, more.in_flight / self.in_flight / rate)
    }

    /// Whether this is below the knee, so that its latency is service: `more` yields more by far,
    /// whatever became of the latency.
    pub(super) fn is_below(&self, more: Point) -> bool {
        let (rate, latency) = self.growth(more);
        rate >= latency.min(FELT)
    }

    /// What is not known to be waiting.
    pub(super) fn service(&self) -> f64 {
        (self.shorter() - self.waited).max(1e-6)
    }
}
