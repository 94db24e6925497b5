//! Does an application that logs with `tracing-subscriber`, as most do, find the server's events among its own?
#![forbid(unsafe_code)]

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// Where the application's log goes.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("no panic").clone()).expect("it is text")
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Purpose: with the environment's settings, which ask for lines, everything goes through the application's
/// subscriber, in its format and by its filter.
#[tokio::test]
async fn the_servers_events_are_among_the_applications() {
    let log = Log::default();
    let writer = log.clone();
    let format = tracing_subscriber::fmt::layer().with_ansi(false);
    let format = format.with_writer(move || writer.clone());
    // What `highwater::server` tells, and nothing else.
    let filter = Targets::new().with_target("highwater::server", tracing::Level::INFO);
    tracing_subscriber::registry().with(format).with(filter).init();

    let app = Router::new().route("/", get(|| async { "OK" }));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = highwater::serve(listener, app);
    let serving = serving.with_graceful_shutdown(async { drop(stopped.await) });
    // A server that is asked to stop while it starts never serves.
    let asked = async {
        while !log.text().contains(" serving ") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(stop);
    };
    let ended = async { tokio::join!(async { serving.await.expect("it serves") }, asked) };
    tokio::time::timeout(Duration::from_secs(60), ended).await.expect("it serves and ends");

    let log = log.text();
    let line = log.lines().find(|line| line.contains(" serving address="));
    let line = line.unwrap_or_else(|| panic!("no such line in {log:?}"));
    assert!(line.contains(" INFO highwater::server::"), "{line}");
    assert!(line.contains(&format!(" address={address} workers=")), "{line}");
    assert!(!log.contains(" admission "), "the filter leaves it out: {log}");
}
