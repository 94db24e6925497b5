//! Programs that run a server, each from another place: a plain `main`, an async one, beside other threads, within
//! `spawn_blocking`, with handlers of signals of its own. `calling.rs` tells each to stop.
//!
//! The argument names the place; all else comes from the environment.
#![forbid(unsafe_code)]

use std::future::Future;
use std::time::Duration;

use highwater::{Router, Server, ServerError, State};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};

/// How long a request is in flight.
const SLOW: Duration = Duration::from_secs(1);

fn main() -> Result<(), ServerError> {
    let place = std::env::args().nth(1).unwrap_or_default();
    match place.as_str() {
        "main" => server().run(),
        "threads" => {
            for _ in 0..4 {
                std::thread::spawn(std::thread::park);
            }
            server().run()
        }
        "async" => several().block_on(async { server().run() }),
        "task" => several().block_on(spawned(async { server().run() })),
        "spawn-blocking" => several().block_on(off_the_runtime()),
        "spawn-blocking-one-thread" => one().block_on(off_the_runtime()),
        "handlers" => several().block_on(async {
            watch_signals();
            server().run()
        }),
        "serve" => several().block_on(async { server().serve().await }),
        "serve-one-thread" => one().block_on(async { server().serve().await }),
        "graceful" => several().block_on(async {
            let any = any_signal();
            server().serve().with_graceful_shutdown(any).await
        }),
        "tower" => several().block_on(tower()),
        "one-thread" => one().block_on(async { server().run() }),
        "dropped" => one().block_on(dropped()),
        _ => panic!("no such place: {place:?}"),
    }
}

/// As `#[tokio::main]` makes one.
fn several() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads are left")
}

/// As `#[tokio::main(flavor = "current_thread")]` makes one.
fn one() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("descriptors are left")
}

async fn spawned(
    work: impl Future<Output = Result<(), ServerError>> + Send + 'static,
) -> Result<(), ServerError> {
    tokio::spawn(work).await.expect("it does not panic")
}

async fn off_the_runtime() -> Result<(), ServerError> {
    tokio::task::spawn_blocking(|| server().run()).await.expect("it does not panic")
}

/// Serves `/slow`, which waits on the caller's runtime, as for an answer from a pool of connections that was opened
/// there.
fn server() -> Server {
    let pool = Handle::try_current().ok();
    Server::new(Router::new().state(pool).get("/", || "ready").get("/slow", slow))
}

async fn slow(State(pool): State<Option<Handle>>) -> &'static str {
    let wait = tokio::time::sleep(Duration::ZERO);
    match pool {
        Some(pool) => pool.spawn(async { tokio::time::sleep(SLOW).await }).await.expect("it runs"),
        None => tokio::time::sleep(SLOW).await,
    }
    wait.await;
    "slow"
}

/// The application's own handlers, which were there before the server's.
fn watch_signals() {
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::quit()] {
        let mut signals = signal(kind).expect("signals can be handled");
        tokio::spawn(async move {
            signals.recv().await;
            eprintln!("the application has heard {}", kind.as_raw_value());
        });
    }
}

/// Ready when one of the signals comes.
fn any_signal() -> impl Future<Output = ()> + Send + 'static {
    let hear = |kind| signal(kind).expect("signals can be handled");
    let (mut term, mut int) = (hear(SignalKind::terminate()), hear(SignalKind::interrupt()));
    let mut quit = hear(SignalKind::quit());
    async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
            _ = quit.recv() => {}
        }
    }
}

/// As a program does that came from `axum::serve`: the listener is its own.
async fn tower() -> Result<(), ServerError> {
    let address = std::env::var("HIGHWATER_LISTEN").unwrap_or_default();
    let listener = tokio::net::TcpListener::bind(address).await?;
    highwater::serve(listener, Router::new().get("/", || "ready")).await?;
    Ok(())
}

/// Serves until a line comes on standard input, drops the future, and goes on without the server.
async fn dropped() -> Result<(), ServerError> {
    let line = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    tokio::select! {
        ended = server().serve() => return ended,
        _ = line => {}
    }
    std::future::pending().await
}
