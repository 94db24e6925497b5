//! What have all workers done so far, and what since the last reading?
//!
//! For the admission controller, ten times a second. All values come from counters that workers
//! write anyway; a reading costs them nothing.
//!
//! Invariant: one reader per server, because a reading resets the minima and maxima.

use std::time::Duration;

use highwater_core::limit::Sample;
use highwater_core::time::Instant;

use super::counters::WorkerMetrics;
use super::sampler::Busy;
use super::tally::Tally;
use super::{Metrics, Server};

/// Totals of a server at one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    at: Instant,
    completed: u64,
    good: u64,
    /// Refusals by the workers; of those, the ones because of load, and the ones of requests that
    /// had waited in the queue.
    shed: u64,
    refused: u64,
    dropped: u64,
    /// Connections accepted; of those, the ones to which the gate applies.
    pub(crate) connections: u64,
    pub(crate) connections_gated: u64,
    load: u32,
    load_max: u32,
    queues: Vec<Queue>,
    judged: u64,
    passed_on: u64,
    queued: u64,
    queue_nanos: u64,
    queue_nanos_min: Option<u64>,
    latency_nanos: u64,
    workers: Vec<Busy>,
}

/// How requests arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrivals {
    /// Connections accepted.
    pub(crate) connections: u64,
    /// Requests answered or refused.
    pub(crate) requests: u64,
    /// Requests that came while a queue stood.
    pub(crate) judged: u64,
    /// Of those, the ones that a proxy passed on.
    pub(crate) passed_on: u64,
}

/// The state of one worker's queue.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    waiting: u64,
    stands: bool,
    is_long: bool,
    cost_nanos: u64,
    target_nanos: u64,
    empty_nanos: u64,
}

impl Metrics {
    /// Reads all workers, at the time `at` of the caller's clock.
    pub(crate) fn totals(&self, at: Instant) -> Totals {
        self.0.server.get().map_or_else(Totals::default, |server| server.totals(at))
    }
}

impl Server {
    fn totals(&self, at: Instant) -> Totals {
        let sum =
            |of: fn(&WorkerMetrics) -> u64| self.workers.iter().map(|worker| of(worker)).sum();
        let count = |of: fn(&WorkerMetrics) -> &Tally| self.sum(of);
        let (mut load_max, mut queue_nanos_min) = (0_u32, None::<u64>);
        for worker in &self.workers {
            load_max = load_max.saturating_add(worker.take_load_max());
            let least = worker.queue_delay.take_min();
            queue_nanos_min = queue_nanos_min.into_iter().chain(least).min();
        }
        Totals {
            at,
            completed: sum(WorkerMetrics::completed),
            good: count(|worker| &worker.good),
            shed: sum(WorkerMetrics::shed),
            refused: sum(WorkerMetrics::refused_for_load),
            dropped: sum(WorkerMetrics::dropped),
            connections: count(|worker| &worker.connections),
            connections_gated: count(|worker| &worker.connections)
                .saturating_sub(count(|worker| &worker.connections_ungated)),
            load: u32::try_from(count(|worker| &worker.load)).unwrap_or(u32::MAX),
            load_max,
            judged: count(|worker| &worker.queue.judged),
            passed_on: count(|worker| &worker.queue.passed_on),
            queues: self.workers.iter().map(|worker| Queue::of(worker)).collect(),
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
        let refused = self.refused.saturating_sub(before.refused);
        let ratios = self.workers.iter().zip(&before.workers);
        let busy: f64 = ratios.map(|(now, before)| now.ratio_since(*before, span)).sum();
        let queues = Queues::since(&self.queues, &before.queues, span);
        Sample {
            span,
            completed,
            good: self.good.saturating_sub(before.good).min(completed),
            refused,
            dropped: self.dropped.saturating_sub(before.dropped).min(refused),
            started: queued,
            workers: u32::try_from(self.workers.len()).unwrap_or(u32::MAX),
            standing: queues.standing,
            long: self.queues.iter().filter(|it| it.is_long || it.stands).count() as u32,
            cost: queues.cost,
            target: queues.target,
            queued: queues.waiting,
            asleep: self.load.saturating_sub(queues.waiting),
            empty: queues.empty,
            // The mean of two instants is inaccurate, but a second has ten of them.
            in_flight: self.load.midpoint(before.load),
            in_flight_max: self.load_max,
            queue_delay_min: Duration::from_nanos(self.queue_nanos_min.unwrap_or(0)),
            queue_delay_mean: mean(self.queue_nanos.saturating_sub(before.queue_nanos), queued),
            latency_mean: mean(self.latency_nanos.saturating_sub(before.latency_nanos), completed),
            busy: (busy / self.workers.len().max(1) as f64) as f32,
        }
    }

    /// How the requests since `before` arrived.
    pub(crate) fn arrivals_since(&self, before: &Totals) -> Arrivals {
        let since = |of: fn(&Totals) -> u64| of(self).saturating_sub(of(before));
        Arrivals {
            connections: since(|totals| totals.connections),
            requests: since(|totals| totals.completed + totals.shed),
            judged: since(|totals| totals.judged),
            passed_on: since(|totals| totals.passed_on),
        }
    }

    /// Whether nothing has happened since `before`, and nothing is in progress.
    pub(crate) fn is_idle_since(&self, before: &Totals) -> bool {
        let counts = |totals: &Totals| (totals.completed, totals.shed, totals.connections);
        self.load == 0 && self.load_max == 0 && counts(self) == counts(before)
    }
}

impl Queue {
    fn of(worker: &WorkerMetrics) -> Queue {
        Queue {
            waiting: worker.queue.waiting.get(),
            stands: worker.queue.stands.get() != 0,
            is_long: worker.queue.is_long.get() != 0,
            cost_nanos: worker.queue.cost_nanos.get(),
            target_nanos: worker.queue.target_nanos.get(),
            empty_nanos: worker.queue.empty_nanos.get(),
        }
    }
}

/// The same over the workers that matter: those whose queue stands, or all if none does.
#[derive(Debug, Default)]
struct Queues {
    waiting: u32,
    standing: u32,
    cost: Duration,
    target: Duration,
    empty: f32,
}

impl Queues {
    fn since(now: &[Queue], before: &[Queue], span: Duration) -> Queues {
        let standing = now.iter().filter(|queue| queue.stands).count();
        let matters = |queue: &Queue| queue.stands || standing == 0;
        let waiting: u64 = now.iter().map(|queue| queue.waiting).sum();
        let (mut known, mut cost, mut target) = (0, 0, 0_u64);
        let (mut counted, mut empty) = (0_u32, 0.0);
        for (now, before) in now.iter().zip(before).filter(|(now, _)| matters(now)) {
            known += u64::from(now.cost_nanos > 0);
            cost += now.cost_nanos;
            target = target.saturating_add(now.target_nanos);
            counted += 1;
            empty += now.empty_nanos.saturating_sub(before.empty_nanos) as f64;
        }
        let time = span.as_nanos() as f64 * f64::from(counted);
        Queues {
            waiting: u32::try_from(waiting).unwrap_or(u32::MAX),
            standing: u32::try_from(standing).unwrap_or(u32::MAX),
            cost: Duration::from_nanos(cost.checked_div(known).unwrap_or(0)),
            target: Duration::from_nanos(target.checked_div(counted.into()).unwrap_or(0)),
            empty: if time > 0.0 { (empty / time).min(1.0) as f32 } else { 0.0 },
        }
    }
}
