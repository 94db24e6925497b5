//! What have all workers done so far, and what since the last look?
//!
//! For whoever decides by it (the admission controller), ten times a second. Everything is read from
//! counters that workers write anyway; a look costs them nothing.
//!
//! Invariant: one looker per server, because the least and the most since the last look are taken
//! away by looking.

use std::time::Duration;

use highwater_core::limit::Sample;
use highwater_core::time::Instant;

use super::counters::{Tally, WorkerMetrics};
use super::sampler::Busy;
use super::{Metrics, Server};

/// Totals of a server at one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    at: Instant,
    completed: u64,
    good: u64,
    /// Turned away by the workers, and of those the ones that had been waiting in their queue.
    shed: u64,
    dropped: u64,
    /// Connections accepted.
    pub(crate) connections: u64,
    in_flight: u32,
    in_flight_max: u32,
    queued: u64,
    queue_nanos: u64,
    queue_nanos_min: Option<u64>,
    latency_nanos: u64,
    workers: Vec<Busy>,
}

impl Metrics {
    /// A look at all workers, at the time `at` of a clock of the caller's.
    pub(crate) fn totals(&self, at: Instant) -> Totals {
        self.0.server.get().map_or_else(Totals::default, |server| server.totals(at))
    }
}

impl Server {
    fn totals(&self, at: Instant) -> Totals {
        let sum =
            |of: fn(&WorkerMetrics) -> u64| self.workers.iter().map(|worker| of(worker)).sum();
        let count = |of: fn(&WorkerMetrics) -> &Tally| self.sum(of);
        let (mut in_flight_max, mut queue_nanos_min) = (0_u32, None::<u64>);
        for worker in &self.workers {
            in_flight_max = in_flight_max.saturating_add(worker.take_in_flight_max());
            let least = worker.queue_delay.take_min();
            queue_nanos_min = queue_nanos_min.into_iter().chain(least).min();
        }
        Totals {
            at,
            completed: sum(WorkerMetrics::completed),
            good: count(|worker| &worker.good),
            shed: sum(WorkerMetrics::shed),
            dropped: sum(WorkerMetrics::dropped),
            connections: count(|worker| &worker.connections),
            in_flight: u32::try_from(count(|worker| &worker.in_flight)).unwrap_or(u32::MAX),
            in_flight_max,
            queued: sum(|worker| worker.queue_delay.count()),
            queue_nanos: count(|worker| &worker.queue_delay.nanos),
            queue_nanos_min,
            latency_nanos: count(|worker| &worker.latency_nanos),
            workers: self.look(at).workers,
        }
    }
}

impl Totals {
    /// What happened since `before`. Workers' maxima may not have occurred together, so their sum is
    /// an upper bound.
    pub(crate) fn since(&self, before: &Totals) -> Sample {
        let span = self.at - before.at;
        let completed = self.completed.saturating_sub(before.completed);
        let mean = |sum: u64, count: u64| Duration::from_nanos(sum.checked_div(count).unwrap_or(0));
        let queued = self.queued.saturating_sub(before.queued);
        let shed = self.shed.saturating_sub(before.shed);
        let ratios = self.workers.iter().zip(&before.workers);
        let busy: f64 = ratios.map(|(now, before)| now.ratio_since(*before, span)).sum();
        Sample {
            span,
            completed,
            good: self.good.saturating_sub(before.good).min(completed),
            refused: shed,
            dropped: self.dropped.saturating_sub(before.dropped).min(shed),
            started: queued,
            // Two instants are a poor mean, but those of one second are ten.
            in_flight: self.in_flight.midpoint(before.in_flight),
            in_flight_max: self.in_flight_max,
            queue_delay_min: Duration::from_nanos(self.queue_nanos_min.unwrap_or(0)),
            queue_delay_mean: mean(self.queue_nanos.saturating_sub(before.queue_nanos), queued),
            latency_mean: mean(self.latency_nanos.saturating_sub(before.latency_nanos), completed),
            busy: (busy / self.workers.len().max(1) as f64) as f32,
        }
    }

    /// Whether nothing has happened since `before`, and nothing is under way.
    pub(crate) fn is_idle_since(&self, before: &Totals) -> bool {
        let counts = |totals: &Totals| (totals.completed, totals.shed, totals.connections);
        self.in_flight == 0 && self.in_flight_max == 0 && counts(self) == counts(before)
    }
}
