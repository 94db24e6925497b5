//! Starts and stops the gateway.
//!
//! The order matters. The journal is opened before the port, so that a gateway that can be reached is ready. At the end
//! the clients get their answers first; then each worker hands what it has accepted to its sink, and ends; then the
//! journal makes durable what it has been given, and is closed.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use highwater::batcher::sink::{JournalSink, Null};
use highwater::batcher::{Layout, OnFailure, Options, Sink};
use highwater::journal::{self, Directory, Health, Journal, Retention};
use highwater::logging;
use highwater::metrics::{Metrics, Readiness};
use highwater::server::Signals;
use highwater::{PerWorker, Server, ServerArgs, ServerError};

use crate::args::{Ack, Plan, SinkChoice};
use crate::counts::Counts;
use crate::http;
use crate::intake::{Intake, IntakeOptions};
use crate::metrics::{self, Arrived, Downstream};

/// So many records are in a batch, at most.
const RECORDS_MAX: usize = 1 << 16;

/// Batches under `--ack disk` that the journal has not answered for, of a worker: more than one sync's worth, so that the
/// journal never waits for the worker.
const DISK_IN_FLIGHT_MAX: usize = 64;

/// Batches under `--ack kafka` that Kafka has not answered for, of a partition. As many as an idempotent producer has.
const KAFKA_IN_FLIGHT_MAX: usize = 5;

/// The journal while it is open. Workers that start take their producers from it.
type Open = Arc<Mutex<Option<Journal>>>;

/// Serves until a signal stops it.
///
/// # Errors
/// What failed, and what to do about it.
pub fn ingest(plan: Plan, server: &ServerArgs) -> Result<(), Failure> {
    logging::install(server.log);
    let signals = Signals::block()?;
    let journal = plan.has_journal().then(|| open(&plan)).transpose()?;
    let journal: Open = Arc::new(Mutex::new(journal));
    let counts = Arc::new(Counts::new(plan.ack, 0));
    let downstream: Arc<dyn Downstream> = Arc::new(Arrived);

    let counted = Metrics::new();
    metrics::of_records(&counted, &counts, &downstream)?;
    let readiness = Readiness::new();
    watch(&readiness, &journal);
    let router = http::router(plan.ack, intake(&plan, server, &journal, &counts));
    let running =
        Server::new(router).config(server).metrics(&counted).readiness(readiness).start()?;
    let outcome = running.until_signal(&signals);

    let lost = counts.accepted() - counts.durable();
    if lost > 0 {
        tracing::error!(
            records = lost,
            "records that were acknowledged in memory could not be written before the end"
        );
    }
    let journal = journal.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(journal) = journal {
        journal.close()?;
    }
    Ok(outcome?)
}

/// What each worker has.
fn intake(
    plan: &Plan,
    server: &ServerArgs,
    journal: &Open,
    counts: &Arc<Counts>,
) -> PerWorker<Intake> {
    let (plan, journal, counts) = (plan.clone(), Arc::clone(journal), Arc::clone(counts));
    let end_timeout = server.drain_timeout;
    PerWorker::fallible(move |worker| {
        let sink = sink(&plan, &journal)?;
        let first_partition = u32::try_from(worker.index).unwrap_or_default();
        let options = IntakeOptions { batcher: options(&plan), first_partition, end_timeout };
        Ok::<_, Failure>(Intake::new(sink, options, counts.worker())?)
    })
}

fn sink(plan: &Plan, journal: &Open) -> Result<Box<dyn Sink>, Failure> {
    let journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(match (&*journal, plan.sink) {
        (Some(journal), _) => Box::new(JournalSink::new(journal.producer()?)),
        (None, SinkChoice::Kafka) => return Err(Failure(NO_KAFKA.to_owned())),
        (None, SinkChoice::Journal | SinkChoice::Null) => Box::new(Null::default()),
    })
}

const NO_KAFKA: &str = "this build has no Kafka client; use --sink journal";

/// The batcher's options.
fn options(plan: &Plan) -> Options {
    let mut options = Options::default();
    options.partitions = plan.partitions;
    options.batch_bytes = plan.batch_bytes;
    options.records_max = RECORDS_MAX;
    options.record_bytes_max = plan.record_bytes_max;
    options.memory_max = plan.memory_max;
    options.linger = plan.linger;
    options.answer_timeout = plan.ack_timeout;
    (options.layout, options.in_flight_max, options.on_failure) = match plan.ack {
        Ack::Memory => (Layout::Mixed, 1, OnFailure::Keep),
        Ack::Disk => (Layout::Mixed, DISK_IN_FLIGHT_MAX, OnFailure::Report),
        Ack::Kafka => (Layout::Partitioned, KAFKA_IN_FLIGHT_MAX, OnFailure::Report),
    };
    options
}

/// Opens the journal, and logs what it has found.
fn open(plan: &Plan) -> Result<Journal, Failure> {
    let mut options = journal::Options::default();
    let bytes = plan.batch_bytes.max(plan.record_bytes_max);
    options.batch_bytes_max = JournalSink::batch_bytes_of(RECORDS_MAX, bytes);
    options.queue_bytes_max = options.queue_bytes_max.max(2 * options.batch_bytes_max);
    options.bytes_max = plan.data_max;
    options.retention =
        Retention { bytes: plan.retain_bytes, age: plan.retain_age, ..Retention::default() };
    let journal = Journal::open(Directory::open(&plan.data)?, options)?;
    for line in journal.recovery().to_string().lines() {
        tracing::warn!(data = %plan.data.display(), "{line}");
    }
    let stat = journal.stat();
    tracing::info!(data = %plan.data.display(), records = stat.records, bytes = stat.bytes, "journal open");
    Ok(journal)
}

/// Says on `/readyz` when the journal takes nothing.
fn watch(readiness: &Readiness, journal: &Open) {
    let journal = Arc::clone(journal);
    readiness.check("journal", move || {
        let journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
        match journal.as_ref().map(Journal::health) {
            Some(Health::Full(error) | Health::Poisoned(error)) => Err(error.to_string()),
            _ => Ok(()),
        }
    });
}

/// Why the gateway could not start, or had to stop: one sentence with cause and remedy.
#[derive(Debug)]
pub struct Failure(String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

macro_rules! failures {
    ($($from:ty),+) => {$(
        impl From<$from> for Failure {
            fn from(error: $from) -> Failure {
                Failure(error.to_string())
            }
        }
    )+};
}

failures!(
    io::Error,
    ServerError,
    highwater::batcher::OptionsError,
    highwater::journal::Error,
    highwater::metrics::MetricError
);
