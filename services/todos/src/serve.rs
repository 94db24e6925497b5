//! Starts and stops the service.
//!
//! The order matters. Signals are caught first, so that one during startup is not lost. The port opens once every
//! acknowledged write is visible; a signal ends the wait for that. At shutdown the clients get their answers first; then queued commands are applied.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use highwater::ServerArgs;
use highwater::logging;
use highwater::metrics::{Metrics, Readiness};
use highwater::server::{Running, Server, Signals};
use highwater_kit::ending::{Failure, print};
use highwater_kit::urls;
use highwater_kit::waiting::unless_ended;

use crate::args::{RepartitionArgs, SeedArgs, TodosArgs, TokenArgs};
use crate::auth::{issue, tokens};
use crate::engine;
use crate::http::{self, Counts, Missing, Service};
use crate::metrics;

/// How long what is queued may take to be applied at the end; what is left is applied after the next start.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// How long the token is valid that is printed for who tries the service.
const DEMO_TOKEN_SECONDS: f64 = 86_400.0;

/// Serves todos until a signal stops it.
///
/// # Errors
///
/// What failed, and what to do about it.
pub fn todos(
    args: &TodosArgs,
    secret: &str,
    server: &ServerArgs,
    demo: bool,
) -> Result<(), Failure> {
    logging::install(server.log);
    let signals = Signals::catch()?;
    let reloads = !server.tls_cert.is_empty();
    let (parts, embedded_worker) = (args.engine.clone(), args.embedded_worker);
    let build = move || engine::build(&parts, embedded_worker);
    let waits = ("the start", "the store and the queue");
    let Some(engine) = unless_ended(&signals, reloads, waits, build)? else { return Ok(()) };
    let service = Arc::new(Service {
        reads: Arc::clone(&engine.reads),
        queue: Arc::clone(&engine.queue),
        tokens: tokens(secret),
        bounds: args.bounds(),
        parts: engine.parts.clone(),
        counts: Counts::default(),
        missing: Missing::default(),
    });
    let counted = Metrics::new();
    metrics::register(&counted, &engine, &service)?;
    let readiness = Readiness::new();
    let asked = Arc::clone(&service);
    readiness.check("todos", move || match &asked.down()[..] {
        [] => Ok(()),
        down => Err(down
            .iter()
            .map(|(name, why)| format!("{name}: {why}"))
            .collect::<Vec<_>>()
            .join("; ")),
    });
    let running = Server::new(http::router(&service))
        .config(server)
        .metrics(&counted)
        .readiness(readiness)
        .start()?;
    if demo {
        print_urls(&running, secret);
    }
    let outcome = running.until_signal(&signals);
    drop(service);
    let close = move || {
        engine.close(DRAIN_MAX);
        Ok(())
    };
    // What was acknowledged is durable, so a further signal loses nothing.
    unless_ended(&signals, reloads, ("the end", "queued commands"), close)?;
    Ok(outcome?)
}

/// Fills the store with todos to try the service with.
///
/// # Errors
///
/// What failed, and what to do about it.
pub fn seed(args: &SeedArgs) -> Result<(), Failure> {
    logging::install(logging::LogFormat::Text);
    engine::seed(args)?;
    print(&format!("{} todos of {} are in the store", args.count, args.subject));
    Ok(())
}

/// Divides commands by as many partitions as the topic has from now on.
///
/// # Errors
///
/// What failed, and what to do about it.
pub fn repartition(args: &RepartitionArgs) -> Result<(), Failure> {
    logging::install(logging::LogFormat::Text);
    let (now, before) = engine::repartition(&args.engine)?;
    let topic = &args.engine.kafka_todo_topic;
    print(&match before {
        Some(before) if before == now => {
            format!("commands in topic {topic} are divided by {now} partitions, as before")
        }
        Some(before) => {
            format!(
                "commands in topic {topic} are divided by {now} partitions now, {before} before"
            )
        }
        None => format!("commands in topic {topic} are divided by {now} partitions now"),
    });
    Ok(())
}

/// Prints a token.
pub fn token(args: &TokenArgs, secret: &str) {
    print(&issue(secret, &args.subject, now(), args.ttl.as_secs_f64()));
}

fn now() -> f64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}

/// Prints the URLs, and commands with a token, for a user who tries the service.
fn print_urls(running: &Running, secret: &str) {
    let todos = &running.addresses()[0];
    let [metrics, dashboard] = urls::of_metrics(running);
    let token = issue(secret, "demo-user", now(), DEMO_TOKEN_SECONDS);
    print(&format!(
        "\n  \
         todos     http://{todos}/todos?limit=10\n  \
         docs      http://{todos}/docs\n  \
         health    http://{todos}/health\n  \
         ready     http://{todos}/ready\n  \
         metrics   {metrics}\n  \
         dashboard {dashboard}\n\n  \
         TOKEN={token}\n  \
         curl -X POST 'http://{todos}/todos?wait=applied' -H \"Authorization: Bearer $TOKEN\" \
         -d '{{\"title\":\"Water the plants\",\"description\":\"All of them\"}}'\n  \
         curl 'http://{todos}/todos?limit=10'\n\n  \
         Ctrl-C stops it.\n"
    ));
}
