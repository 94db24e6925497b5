//! Starts and stops the gateway.
//!
//! The order matters. The backend is opened before the port, so a reachable gateway is ready. At shutdown the clients
//! get their answers first; then each worker hands its accepted records to its sink, and ends; then the backend makes
//! them durable, and is closed.

use std::sync::Arc;

use highwater::batcher::{Layout, OnFailure, Options};
use highwater::logging;
use highwater::metrics::{Metrics, Readiness};
use highwater::server::Signals;
use highwater::{PerWorker, Server, ServerArgs};

use crate::args::{Ack, Plan};
use crate::backend::{Backend, RECORDS_MAX};
use crate::counts::Counts;
use crate::failure::Failure;
use crate::http;
use crate::intake::{Intake, IntakeOptions};
use crate::metrics;
use crate::notice::Notice;
use crate::topic;

/// The most unanswered batches per worker under `--ack disk`: more than one sync's worth, so that the journal never
/// waits for the worker.
const DISK_IN_FLIGHT_MAX: usize = 64;

/// The most unanswered batches per partition under `--ack kafka`: as many as an idempotent producer may have in flight.
const KAFKA_IN_FLIGHT_MAX: usize = 5;

/// Serves until a signal stops it.
///
/// # Errors
/// What failed, and what to do about it.
pub fn ingest(plan: &Plan, server: &ServerArgs) -> Result<(), Failure> {
    logging::install(server.log);
    let signals = Signals::catch()?;
    let (plan, partitions) = &topic::settle(plan)?;
    let backend = Backend::open(plan)?;
    topic::remember(plan);
    let counts = Arc::new(Counts::new(plan.ack, backend.found()));

    let counted = Metrics::new();
    metrics::of_records(&counted, &counts, &backend)?;
    let readiness = Readiness::new();
    backend.watch(&readiness);
    let intake = intake(plan, *partitions, server, &backend, &counts);
    let router = http::router(plan.ack, intake);
    let running =
        Server::new(router).config(server).metrics(&counted).readiness(readiness).start()?;
    let outcome = running.until_signal(&signals);

    let lost = counts.accepted().saturating_sub(counts.durable());
    let closed = backend.close(server.drain_timeout, counts.durable());
    closed.map_err(|error| Failure::journal(&error, &plan.data, lost))?;
    outcome?;
    if lost > 0 {
        return Err(Failure::lost(lost, server.drain_timeout));
    }
    Ok(())
}

/// Creates a worker's intake.
fn intake(
    plan: &Plan,
    partitions: u32,
    server: &ServerArgs,
    backend: &Arc<Backend>,
    counts: &Arc<Counts>,
) -> PerWorker<Intake> {
    let (plan, backend, counts) = (plan.clone(), Arc::clone(backend), Arc::clone(counts));
    let end_timeout = server.drain_timeout;
    let data = plan.data.display().to_string();
    let notice = Arc::new(Notice::new(Arc::clone(&backend), Arc::clone(&counts), data));
    PerWorker::fallible(move |worker| {
        let first_partition = u32::try_from(worker.index).unwrap_or_default();
        // Per worker: each begins with different ids.
        let batcher = options(&plan, partitions);
        let options = IntakeOptions { batcher, first_partition, end_timeout };
        let (sink, notice) = (backend.sink()?, Arc::clone(&notice));
        Ok::<_, Failure>(Intake::new(sink, options, counts.worker(), notice)?)
    })
}

/// The batcher's options.
fn options(plan: &Plan, partitions: u32) -> Options {
    let mut options = Options::default();
    options.partitions = partitions;
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
