//! The backend behind the workers: a journal, a journal that is delivered to Kafka, Kafka itself, or nothing.
//!
//! ```text
//!   --sink journal                     worker ─▶ journal
//!   --sink kafka  --ack memory, disk   worker ─▶ journal ─▶ delivery ─▶ Kafka
//!   --sink kafka  --ack kafka          worker ─▶ client ─▶ Kafka
//!   --sink null                        worker ─▶ null
//! ```
//!
//! It outlives the workers: when they end, they hand over the records that they have accepted; only then is it
//! [closed](Backend::close).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use highwater::batcher::Sink;
use highwater::batcher::delivery::{Delivery, DeliveryOptions, Progress};
use highwater::batcher::sink::kafka::{Client, Limits};
use highwater::batcher::sink::{JournalSink, Null};
use highwater::journal::{self, Directory, Health, Journal, Retention};
use highwater::logging::rate_limited;
use highwater::metrics::Readiness;

use crate::args::{Ack, Plan};
use crate::failure::Failure;

/// The most records in a batch.
pub const RECORDS_MAX: usize = 1 << 16;

/// The journal's consumer for the delivery to Kafka.
const CONSUMER: &str = "kafka";

/// The consumer that marks where a journal ceased to be a spool: later records were never meant for Kafka.
const SINCE: &str = "journal-since";

/// The file of dead letters in the data directory.
const DEAD_LETTERS: &str = "dead-letters.jsonl";

/// The backend of all workers.
pub struct Backend {
    parts: Mutex<Parts>,
    /// The delivery's progress, if there is one.
    progress: Option<Arc<Progress>>,
    ack: Ack,
}

#[derive(Default)]
struct Parts {
    // In the order in which they are to end.
    client: Option<Client>,
    delivery: Option<Delivery>,
    journal: Option<Journal>,
}

impl Backend {
    /// Opens the backend that `plan` describes.
    ///
    /// # Errors
    /// The data directory or the topic cannot be used. An unreachable Kafka is not an error.
    pub fn open(plan: &Plan) -> Result<Arc<Backend>, Failure> {
        let mut parts = Parts::default();
        if plan.has_journal() {
            let journal = open_journal(plan)?;
            match &plan.kafka {
                Some(kafka) => {
                    // From now on everything in it is for Kafka.
                    journal.forget_consumer(SINCE)?;
                    let options = DeliveryOptions::new(plan.data.join(DEAD_LETTERS));
                    let consumer = journal.consumer(CONSUMER)?;
                    parts.delivery = Some(Delivery::start(kafka.clone(), options, consumer)?);
                }
                None => keep_undelivered(plan, &journal)?,
            }
            parts.journal = Some(journal);
        } else if let Some(kafka) = &plan.kafka {
            let mut limits = Limits::default();
            limits.ack_timeout = plan.ack_timeout;
            parts.client = Some(Client::start(kafka.clone(), limits)?);
        }
        let progress = parts.delivery.as_ref().map(Delivery::progress);
        Ok(Arc::new(Backend { parts: Mutex::new(parts), progress, ack: plan.ack }))
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A sink for another worker.
    ///
    /// # Errors
    /// There are too many, or it is closed.
    pub fn sink(&self) -> Result<Box<dyn Sink>, Failure> {
        let parts = self.parts();
        if let Some(client) = &parts.client {
            return Ok(Box::new(client.sink()));
        }
        let Some(journal) = &parts.journal else { return Ok(Box::new(Null::default())) };
        let sink = JournalSink::new(journal.producer()?);
        match &parts.delivery {
            // Records acknowledged in memory must leave it by any available way.
            Some(delivery) if self.ack == Ack::Memory => Ok(Box::new(delivery.sink(sink))),
            _ => Ok(Box::new(sink)),
        }
    }

    /// Undelivered records in the spool when it was opened.
    pub fn found(&self) -> u64 {
        self.progress.as_ref().map_or(0, |progress| progress.left_at_start())
    }

    /// How many records have reached their destination, given that `durable` are durable.
    pub fn delivered(&self, durable: u64) -> u64 {
        self.progress.as_ref().map_or(durable, |progress| progress.delivered())
    }

    /// How many bytes on the disk hold records that are not delivered.
    pub fn spool_bytes(&self) -> u64 {
        match (&self.progress, &self.parts().journal) {
            (Some(progress), Some(journal)) if !progress.is_idle() => journal.stat().bytes,
            _ => 0,
        }
    }

    /// How often the journal could not record its position.
    pub fn unmarked(&self) -> u64 {
        self.parts().journal.as_ref().map_or(0, |journal| journal.stat().unmarked)
    }

    /// The health of the journal, if there is one.
    fn health(&self) -> Option<Health> {
        self.parts().journal.as_ref().map(Journal::health)
    }

    /// Whether the journal accepts records, as far as is known.
    pub fn has_room(&self) -> bool {
        !matches!(self.health(), Some(Health::Full(_)))
    }

    /// Whether the journal has failed: it accepts nothing until it is opened again.
    pub fn has_failed(&self) -> bool {
        matches!(self.health(), Some(Health::Poisoned(_)))
    }

    /// How to make room, for the operator.
    pub fn remedy(&self) -> &'static str {
        match (&self.progress, self.ack) {
            (None, _) => {
                "Give the disk more room, raise --data-max, or let --retain-bytes or --retain-age remove old records"
            }
            (Some(_), Ack::Memory) => {
                "It makes room by itself as Kafka takes what is on the disk; if the disk stays full, what is in memory \
                 goes to Kafka after that. If Kafka is unreachable, that comes first; or give the disk more room, or raise \
                 --data-max"
            }
            (Some(_), _) => {
                "It makes room by itself as Kafka takes what is on the disk. If Kafka is unreachable, that comes first; or \
                 give the disk more room, or raise --data-max"
            }
        }
    }

    /// When the oldest durable and undelivered record was accepted, in microseconds since 1970.
    pub fn oldest_us(&self) -> Option<u64> {
        self.progress.as_ref().map(|progress| progress.oldest_us()).filter(|oldest| *oldest > 0)
    }

    /// Reports on `/readyz` when no records are accepted. With a spool, an unreachable Kafka does not count.
    pub fn watch(self: &Arc<Self>, readiness: &Readiness) {
        let backend = Arc::clone(self);
        readiness.check("journal", move || match backend.health() {
            Some(Health::Full(error) | Health::Poisoned(error)) => Err(error.to_string()),
            _ => Ok(()),
        });
        let backend = Arc::clone(self);
        readiness.check("kafka", move || {
            match backend.parts().client.as_ref().and_then(Client::trouble) {
                Some(trouble) => Err(trouble),
                None => Ok(()),
            }
        });
    }

    /// Ends the backend after the workers have ended: their records are made durable, and delivered as far as possible
    /// within `timeout`. `durable` is the number of durable records.
    ///
    /// # Errors
    /// The disk has failed.
    pub fn close(&self, timeout: Duration, durable: u64) -> Result<(), journal::Error> {
        let Parts { client, delivery, journal } = std::mem::take(&mut *self.parts());
        let until = Instant::now() + timeout;
        if let Some(client) = client {
            client.close(timeout);
        }
        if let Some(delivery) = delivery
            && !delivery.stop(until.saturating_duration_since(Instant::now()))
        {
            let records = durable.saturating_sub(self.delivered(durable));
            // With none, only the connection to the broker could not be closed in time.
            if records > 0 {
                tracing::warn!(
                    records,
                    "records wait in the spool on the disk; they are delivered after the next start"
                );
            }
        }
        journal.map_or(Ok(()), Journal::close)
    }
}

/// Opens the journal, and logs its recovery.
fn open_journal(plan: &Plan) -> Result<Journal, Failure> {
    let mut options = journal::Options::default();
    let bytes = plan.batch_bytes.max(plan.record_bytes_max);
    options.batch_bytes_max = JournalSink::batch_bytes_of(RECORDS_MAX, bytes);
    options.queue_bytes_max = options.queue_bytes_max.max(2 * options.batch_bytes_max);
    options.bytes_max = plan.data_max;
    options.retention = match plan.kafka {
        // Delivered records need not be kept.
        Some(_) => Retention { bytes: Some(0), keep_unread: true, ..Retention::default() },
        // Until it is known that no record in it waits for Kafka.
        None => Retention { bytes: plan.retain_bytes, age: plan.retain_age, keep_unread: true },
    };
    options.on_unmarked = Arc::new(|error| {
        rate_limited!(
            WARN,
            cause = %error,
            "records are written, but if the journal's newest files are lost, that may go unnoticed: \
             give the disk room, or make the file writable"
        );
    });
    let directory = Directory::open(&plan.data).map_err(|error| Failure::directory(&error))?;
    let journal = Journal::open(directory, options)?;
    let data = plan.data.display();
    for line in journal.recovery().to_string().lines() {
        tracing::warn!(data = %data, "{line}");
    }
    let stat = journal.stat();
    tracing::info!(data = %data, records = stat.records, bytes = stat.bytes, "journal open");
    Ok(journal)
}

/// Undelivered records that were accepted for Kafka are kept, whatever retention says. New records belong to the
/// journal and follow its retention.
fn keep_undelivered(plan: &Plan, journal: &Journal) -> Result<(), Failure> {
    let consumers = journal.consumers();
    let position =
        consumers.iter().find(|(name, _)| name == CONSUMER).map(|(_, position)| *position);
    let since = match journal_since(journal, position) {
        Some(since) => since?,
        None => 0,
    };
    match position.filter(|position| *position < since) {
        Some(position) => tracing::warn!(
            data = %plan.data.display(),
            records = since - position,
            "records were taken for Kafka and are not delivered: they are kept, and everything after them, whatever \
             --retain-bytes and --retain-age say. To deliver them, start once with --sink kafka; to give them up, stop, \
             and remove consumer-{CONSUMER}.pos from the directory",
        ),
        None => journal.release_unread(),
    }
    Ok(())
}

/// Where the directory ceased to be a spool, if it ever was one.
fn journal_since(journal: &Journal, position: Option<u64>) -> Option<Result<u64, journal::Error>> {
    position?;
    Some(match journal.consumer_from_end(SINCE) {
        Ok(since) => Ok(since.position()),
        // It cannot be saved now; until it is, everything is kept.
        Err(error) if error.kind() == journal::ErrorKind::Full => Ok(journal.stat().next_offset),
        Err(error) => Err(error),
    })
}
