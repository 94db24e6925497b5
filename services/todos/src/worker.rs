//! A worker: applies commands from Kafka until a signal stops it, and serves only its metrics.

use std::sync::Arc;
use std::time::Duration;

use highwater::logging::{self, tracing};
use highwater::metrics::{Metrics, Readiness};
use highwater::server::{Running, Server, ServerConfig, Signals};
use highwater::{Handler as _, Response, Router, StatusCode};
use highwater_kit::ending::Failure;
use highwater_kit::waiting::unless_ended;

use crate::args::WorkerArgs;
use crate::engine;
use crate::metrics;

/// How long a transaction that is under way may take at the end. What Kafka still has stays there.
const END_MAX: Duration = Duration::ZERO;

/// Applies commands until a signal stops it; then commits what was applied and ends.
///
/// # Errors
///
/// What failed, and what to do about it.
pub fn run(args: &WorkerArgs) -> Result<(), Failure> {
    logging::install(args.log);
    let signals = Signals::catch()?;
    let engine = args.engine.clone();
    let start = move || engine::worker(&engine);
    let waits = ("the start", "the store and Kafka");
    let Some(worker) = unless_ended(&signals, false, waits, start)? else { return Ok(()) };
    let counted = Metrics::new();
    metrics::of_applier(&counted, &worker.stats)?;
    let readiness = Readiness::new();
    for part in worker.parts.clone() {
        readiness.check(part.name(), move || part.down().map_or(Ok(()), Err));
    }
    let served = args.metrics.map(|listen| serve(listen, &counted, &readiness)).transpose()?;
    tracing::info!(
        topic = %args.engine.kafka_todo_topic,
        metrics = served.as_ref().map_or_else(|| "off".to_owned(), |served| served.address().to_string()),
        "working"
    );
    let outcome = match served {
        Some(served) => served.until_signal(&signals).map_err(Failure::from),
        None => signals.wait().map(drop).map_err(Failure::from),
    };
    worker.applier.drain(END_MAX);
    tracing::info!("stopped");
    outcome
}

/// What others serve on their metrics port: here there is no other.
fn serve(
    listen: std::net::SocketAddr,
    metrics: &Metrics,
    readiness: &Readiness,
) -> Result<Running, Failure> {
    let (page, ready) = (metrics.clone(), Arc::new(readiness.clone()));
    let router = Router::new()
        .get("/metrics", move || {
            Response::from(page.page())
                .with_content_type("text/plain; version=0.0.4; charset=utf-8")
        })
        .get("/livez", || "ok\n")
        .get(
            "/readyz",
            // Its 503 is a statement, so it is not logged as a failed request.
            (move || match ready.verdict() {
                Ok(()) => Response::from("ok\n"),
                Err(why) => Response::from(why).with_status(StatusCode::SERVICE_UNAVAILABLE),
            })
            .never_shed(),
        );
    let config = ServerConfig {
        listen: vec![listen.into()],
        inherited: false,
        metrics: None,
        workers: std::num::NonZeroUsize::new(1),
        ..ServerConfig::default()
    };
    Ok(Server::new(router).config(config).start()?)
}
