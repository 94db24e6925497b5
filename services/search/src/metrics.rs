//! The service's own metrics, beside those of every server.
//!
//! Each scrape reads them from counters that the parts keep anyway; requests do not pass here.

use std::sync::Arc;

use highwater::metrics::{MetricError, Metrics};

use crate::catalog::Catalog;
use crate::feed::Skip;
use crate::http::Search;
use crate::poller::PollStats;

/// Registers the metrics of the catalog and of the cache of answers.
///
/// # Errors
/// `metrics` has one of the names already.
pub fn of_search(
    metrics: &Metrics,
    catalog: &Arc<Catalog>,
    search: &Arc<Search>,
) -> Result<(), MetricError> {
    let read = |count: fn(&Search) -> u64| {
        let search = Arc::clone(search);
        move || count(&search)
    };
    let hits = read(|search| search.cache().hits);
    metrics.counter_fn("http_cache_hits", "Searches answered from the cache.", &[], hits)?;
    let misses = read(|search| search.cache().misses);
    metrics.counter_fn(
        "http_cache_misses",
        "Searches whose answer had to be built.",
        &[],
        misses,
    )?;
    let size = read(|search| search.cache().answers as u64);
    metrics.gauge_fn("http_cache_size", "Answers in the cache.", &[], move || size() as f64)?;

    let of_catalog = |count: fn(&Catalog) -> u64| {
        let catalog = Arc::clone(catalog);
        move || count(&catalog)
    };
    let events = of_catalog(|catalog| catalog.snapshot().len() as u64);
    metrics.gauge_fn("http_store_size", "Stored events.", &[], move || events() as f64)?;
    let version = of_catalog(|catalog| catalog.snapshot().version());
    let help = "How often the served data changed since the start, loading included.";
    metrics.gauge_fn("search_store_version", help, &[], move || version() as f64)?;
    let refused = of_catalog(Catalog::refused_total);
    let help = "New events beyond the limit on events, neither stored nor served.";
    metrics.counter_fn("search_events_refused_total", help, &[], refused)
}

/// An outcome, and how many polls had it.
type Polls = (&'static str, fn(&PollStats) -> u64);

/// Registers the poller's counters.
///
/// # Errors
/// `metrics` has one of the names already.
pub fn of_poller(metrics: &Metrics, stats: &Arc<PollStats>) -> Result<(), MetricError> {
    let outcomes: [Polls; 3] = [
        ("ok", PollStats::ok),
        ("not_modified", PollStats::not_modified),
        ("failed", PollStats::failed),
    ];
    for (outcome, count) in outcomes {
        let stats = Arc::clone(stats);
        let labels = [("outcome", outcome)];
        let help = "Polls of the provider that are over.";
        metrics.counter_fn("search_polls_total", help, &labels, move || count(&stats))?;
    }
    for reason in Skip::ALL {
        let stats = Arc::clone(stats);
        let labels = [("reason", reason.name())];
        let help = "Plans skipped, counted again in every feed that has them.";
        let count = move || stats.skipped(reason);
        metrics.counter_fn("search_plans_skipped_total", help, &labels, count)?;
    }
    let stats = Arc::clone(stats);
    let help = "When the last poll began that did not fail, in seconds since the epoch; 0 before.";
    metrics.gauge_fn("search_last_success_timestamp_seconds", help, &[], move || {
        stats.last_success().unwrap_or_default() as f64
    })
}
