//! The gateway's own metrics, beside those of every server. Each scrape adds up the workers' counts.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use highwater::metrics::{MetricError, Metrics};

use crate::backend::Backend;
use crate::counts::Counts;

const RECORDS: &str = "Records, by what became of them. accepted: answered 202, or to be, and those found undelivered \
    in the spool at start. durable: confirmed by the sink: on disk, in Kafka, or counted by the null sink. delivered: \
    arrived where --sink says, records put aside as undeliverable among them. refused: answered 503. At rest, accepted \
    = durable = delivered + pending.";
const PENDING: &str = "Records that were accepted and are not delivered yet.";
const SPOOL: &str = "Bytes of the files with records that wait for Kafka; 0 if none waits.";
const UNMARKED: &str = "How often the journal could not record its position (written.pos). Records are written all the same.";
const LAG: &str = "Age of the oldest record that was accepted and is not delivered yet, in seconds; 0 if there is none.";

/// A number computed from the workers' counts and the backend.
type Read = fn(&Counts, &Backend) -> u64;

/// Registers the metrics of records.
///
/// # Errors
/// `metrics` has one of the names already.
pub fn of_records(
    metrics: &Metrics,
    counts: &Arc<Counts>,
    backend: &Arc<Backend>,
) -> Result<(), MetricError> {
    let with = |read: Read| {
        let (counts, backend) = (Arc::clone(counts), Arc::clone(backend));
        move || read(&counts, &backend)
    };
    let states: [(&str, Read); 4] = [
        ("accepted", |counts, _| counts.accepted()),
        ("durable", |counts, _| counts.durable()),
        ("delivered", |counts, backend| backend.delivered(counts.durable())),
        ("refused", |counts, _| counts.refused()),
    ];
    for (state, read) in states {
        let labels = [("state", state)];
        metrics.counter_fn("highwater_ingest_records_total", RECORDS, &labels, with(read))?;
    }
    let pending = with(pending);
    metrics.gauge_fn("highwater_ingest_pending", PENDING, &[], move || pending() as f64)?;
    let spool = with(|_, backend| backend.spool_bytes());
    metrics.gauge_fn("highwater_ingest_spool_bytes", SPOOL, &[], move || spool() as f64)?;
    let unmarked = with(|_, backend| backend.unmarked());
    metrics.counter_fn("highwater_ingest_unmarked_total", UNMARKED, &[], unmarked)?;
    let lag = with(lag_us);
    metrics.gauge_fn("highwater_ingest_lag_seconds", LAG, &[], move || lag() as f64 / 1e6)
}

/// Records in the batchers and in the backend.
fn pending(counts: &Counts, backend: &Backend) -> u64 {
    // Read in this order, `delivered` cannot exceed `accepted`.
    let delivered = backend.delivered(counts.durable());
    counts.accepted().saturating_sub(delivered)
}

fn lag_us(counts: &Counts, backend: &Backend) -> u64 {
    let oldest = [counts.oldest_us(), backend.oldest_us()].into_iter().flatten().min();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
    oldest.map_or(0, |oldest| now.saturating_sub(oldest))
}
