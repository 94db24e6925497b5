//! The service's own metrics, beside those of every server.
//!
//! Each scrape reads them from counters that the parts keep anyway; requests do not pass here.

use std::sync::Arc;

use highwater::metrics::{MetricError, Metrics};

use crate::applier::Stats;
use crate::engine::Engine;
use crate::http::Service;
use crate::model::Model;

/// An outcome of commands, and how many had it.
type Outcomes = (&'static str, fn(&Stats) -> u64);

/// Registers the metrics of a serving process.
///
/// # Errors
///
/// `metrics` has one of the names already.
pub fn register(
    metrics: &Metrics,
    engine: &Engine,
    service: &Arc<Service>,
) -> Result<(), MetricError> {
    of_queue(metrics, service)?;
    if let Some(stats) = &engine.stats {
        of_applier(metrics, stats)?;
    }
    engine.model.as_ref().map_or(Ok(()), |model| of_model(metrics, model))
}

fn of_queue(metrics: &Metrics, service: &Arc<Service>) -> Result<(), MetricError> {
    let help = "Commands by their answer: accepted (202 and better) once durable, refused (503).";
    let counted = Arc::clone(service);
    let accepted = move || counted.counts.accepted();
    metrics.counter_fn("todos_requests_total", help, &[("answer", "accepted")], accepted)?;
    let counted = Arc::clone(service);
    let refused = move || counted.counts.refused();
    metrics.counter_fn("todos_requests_total", help, &[("answer", "refused")], refused)?;
    let queue = Arc::clone(&service.queue);
    let help = "How often the queue on the disk could not record its position (written.pos). Commands are queued all the same.";
    metrics.counter_fn("todos_queue_unmarked_total", help, &[], move || queue.unmarked())?;
    let queue = Arc::clone(&service.queue);
    let help = "Commands that are durable and not applied yet.";
    metrics.gauge_fn("todos_queue_depth", help, &[], move || queue.depth() as f64)
}

/// Registers the metrics of an applier.
///
/// # Errors
///
/// `metrics` has one of the names already.
pub fn of_applier(metrics: &Metrics, stats: &Arc<Stats>) -> Result<(), MetricError> {
    let outcomes: [Outcomes; 4] = [
        ("applied", Stats::applied),
        ("not_found", Stats::not_found),
        ("dead", Stats::dead),
        ("repeated", Stats::repeated),
    ];
    for (outcome, count) in outcomes {
        let stats = Arc::clone(stats);
        let help = "Deliveries from the queue by outcome; repeated ones had been applied before.";
        metrics.counter_fn("todos_commands_total", help, &[("outcome", outcome)], move || {
            count(&stats)
        })?;
    }
    let counted = Arc::clone(stats);
    let help = "Deliveries that could not be applied, and are kept with the reason.";
    metrics.counter_fn("todos_dead_letters_total", help, &[], move || counted.dead())?;
    let counted = Arc::clone(stats);
    let help = "How often the queue or the store failed the applier, which tries again.";
    metrics.counter_fn("todos_apply_failures_total", help, &[], move || counted.failures())?;
    let counted = Arc::clone(stats);
    let help = "How long the oldest command of the transaction in progress has waited, or that of the last one had; 0 while \
                nothing waits.";
    metrics.gauge_fn("todos_apply_lag_seconds", help, &[], move || counted.lag_us() as f64 / 1e6)
}

fn of_model(metrics: &Metrics, model: &Arc<Model>) -> Result<(), MetricError> {
    let read = |count: fn(&Model) -> u64| {
        let model = Arc::clone(model);
        move || count(&model)
    };
    let hits = read(|model| model.cache().hits);
    metrics.counter_fn("http_cache_hits", "Lists answered from the cache.", &[], hits)?;
    let misses = read(|model| model.cache().misses);
    metrics.counter_fn("http_cache_misses", "Lists that had to be assembled.", &[], misses)?;
    let size = read(|model| model.cache().answers as u64);
    metrics.gauge_fn("http_cache_size", "Lists in the cache.", &[], move || size() as f64)?;
    let count = read(|model| model.snapshot().count());
    metrics.gauge_fn("http_store_size", "Todos.", &[], move || count() as f64)?;
    let shown = read(|model| model.snapshot().len() as u64);
    let help = "Todos in memory; the others are read from the store.";
    metrics.gauge_fn("todos_in_memory", help, &[], move || shown() as f64)?;
    let version = read(|model| model.snapshot().revision().version);
    let help = "How many transactions have changed todos.";
    metrics.gauge_fn("todos_store_version", help, &[], move || version() as f64)
}
