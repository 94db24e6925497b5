//! Does an application that logs with `tracing-subscriber`, as most do, find the server's events among its own?
#![forbid(unsafe_code)]

use std::io;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// Where the application's log goes.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

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
        let mut client = TcpStream::connect(address).await.expect("it listens");
        client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.expect("it is open");
        client.read_u8().await.expect("an answer");
        drop(stop);
    };
    tokio::join!(async { serving.await.expect("it serves") }, asked);

    let log = String::from_utf8(log.0.lock().expect("no panic").clone()).expect("it is text");
    let line = log.lines().find(|line| line.contains(" serving address="));
    let line = line.unwrap_or_else(|| panic!("no such line in {log:?}"));
    assert!(line.contains(" INFO highwater::server::"), "{line}");
    assert!(line.contains(&format!(" address={address} workers=")), "{line}");
    assert!(!log.contains(" admission "), "the filter leaves it out: {log}");
}
