//! The result of one concurrency, to be compared with another.

use super::{FELT, SAME, STEP};
use crate::limit::Sample;

/// How far the mean number in flight may be off, because it is rounded.
const ROUNDED: f64 = 0.5;

/// The result of one concurrency.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    /// The time covered, in seconds.
    pub(super) span: f64,
    pub(super) in_flight: f64,
    pub(super) in_flight_max: f64,
    pub(super) rate: f64,
    pub(super) latency: f64,
    /// The part of the latency that is known to be waiting.
    pub(super) waited: f64,
    pub(super) is_felt: bool,
    /// As many requests were refused as answered.
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
        // The mean is rounded: a 0 stands for anything below half of one.
        let in_flight = f64::from(window.in_flight).max(0.5);
        Some(Point {
            span: seconds,
            in_flight,
            in_flight_max: f64::from(window.in_flight_max).max(in_flight),
            rate,
            latency: latency.max(0.5 / rate / in_flight.max(1.0)).max(1e-6),
            // If a request waited all the time, its latency says nothing about service.
            waited: Some(window.queue_delay_mean.as_secs_f64())
                .filter(|waited| *waited < latency.min(in_flight / rate))
                .unwrap_or(0.0),
            is_felt: window.is_felt(limit),
            is_doubled: window.refused.saturating_sub(window.dropped) >= window.completed,
        })
    }

    /// Whether the latency is that of the present queue. While a queue shrinks it exceeds Little's
    /// law.
    pub(super) fn is_steady(&self) -> bool {
        self.latency <= (self.in_flight + ROUNDED) / self.rate * FELT
    }

    /// Whether the window was shorter than an answer took before. Then its answers are to requests of that time, and its rate
    /// is that of fewer in flight.
    pub(super) fn is_shorter_than_answers(&self, before: Point) -> bool {
        self.span < before.latency
    }

    /// How long an answer takes now.
    pub(super) fn shorter(&self) -> f64 {
        match self.is_steady() {
            true => self.latency,
            false => self.in_flight / self.rate,
        }
    }

    /// Whether the same concurrency yields a very different rate, so that the back end itself has
    /// changed.
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

    /// Whether this point is below the knee, so that its latency is service time: `more` yields a
    /// much higher rate, whatever the latency.
    pub(super) fn is_below(&self, more: Point) -> bool {
        let (rate, latency) = self.growth(more);
        rate >= latency.min(FELT)
    }

    /// The part of the latency that is not known to be waiting.
    pub(super) fn service(&self) -> f64 {
        (self.shorter() - self.waited).max(1e-6)
    }
}
