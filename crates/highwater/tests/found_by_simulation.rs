//! Failures that the simulator has found, each as the shortest story that shows it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use highwater::http::HeaderValue;
use highwater::testing::{Client, Setup};
use highwater::{Body, Bytes, Handler, Path, Response, Router, ServerConfig, blocking};

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

fn config(set: impl FnOnce(&mut ServerConfig)) -> ServerConfig {
    let mut config = ServerConfig::default();
    set(&mut config);
    config
}

/// More than any window here holds.
fn large() -> Bytes {
    Bytes::from(vec![b'x'; 100_000])
}

/// Purpose: a 101 says `Connection: upgrade` once. Both the response and the connection wrote it.
#[test]
fn an_upgrade_is_announced_once() {
    let client = Client::new(Router::new().get("/", || {
        Response::upgrade(HeaderValue::from_static("echo"), |upgraded| async move {
            upgraded.outgoing.finish();
        })
    }));
    let mut connection = client.connect();
    connection.send(GET);
    let received = String::from_utf8_lossy(connection.received()).into_owned();
    assert_eq!(received.matches("connection: upgrade\r\n").count(), 1, "{received}");
}

/// Purpose: when a send is complete the deadline of what follows counts, though it is nearer than the
/// send's was. It used to fire with the write timeout, 30 seconds, at the earliest: a lingering close
/// took fifteen times as long as it may, and a drain never got rid of its idle connections in time.
#[test]
fn a_nearer_deadline_after_a_send_is_kept() {
    let settings = config(|config| config.limits.idle_timeout = Duration::from_secs(2));
    let client = Setup::new(Router::new().get("/", || "ok")).config(settings).start();
    let mut idle = client.connect();
    idle.send(GET);
    let mut lingering = client.connect();
    lingering.send("nonsense\r\n\r\n");
    client.advance(Duration::from_millis(1900));
    assert_eq!(client.connections(), 2);
    client.advance(Duration::from_millis(200));
    assert_eq!(client.connections(), 0);
}

/// Purpose: a client that asked for the close and then does not read is reset like any other. No deadline of
/// a connection was checked once its last send had been commanded, so it stayed for ever, and even the end of
/// a drain did not cut it.
#[test]
fn a_last_send_that_stalls_is_reset() {
    let client = Client::new(Router::new().get("/", large));
    let mut slow = client.connect_slow(1000);
    slow.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    client.advance(Duration::from_secs(29));
    slow.read(10);
    client.advance(Duration::from_secs(29));
    assert!(!slow.is_reset(), "it has taken something in the last 30 seconds");
    client.advance(Duration::from_secs(2));
    assert!(slow.is_reset());
    assert_eq!(client.connections(), 0);
}

/// Purpose: a connection is not idle while its answer is on its way. It was closed to make room for
/// another if a slow reader had been at it for a second, and the answer broke off.
#[test]
fn an_answer_in_flight_is_not_evicted() {
    let settings = config(|config| config.connections_max = Some(1));
    let client = Setup::new(Router::new().get("/", large)).config(settings).start();
    let mut slow = client.connect_slow(1000);
    slow.send(GET);
    let _waiting = client.connect();
    client.advance(Duration::from_secs(20));
    assert_eq!(client.connections(), 1);
    assert!(slow.read(1000).starts_with(b"HTTP/1.1 200 OK"));
    let mut len = 1000;
    while len < 100_000 {
        let piece = slow.read(1000).len();
        assert!(piece > 0, "the answer broke off after {len} bytes");
        len += piece;
    }
}

/// Purpose: the answer of a blocking handler that came too late is dropped. It used to be given to the
/// next request on the connection that waited for the pool: one client's data to another's question,
/// behind a proxy.
#[test]
fn a_late_answer_answers_nothing_else() {
    let slow = |Path(name): Path<String>| name;
    let router = Router::new().get("/{name}", blocking(slow).timeout(Duration::from_secs(1)));
    let client = Client::new(router);
    client.hold_pool(true);
    let mut connection = client.connect();
    connection.send("GET /first HTTP/1.1\r\nHost: h\r\n\r\n");
    client.advance(Duration::from_secs(2));
    assert!(connection.received().starts_with(b"HTTP/1.1 503 "));
    connection.send("GET /second HTTP/1.1\r\nHost: h\r\n\r\n");
    client.hold_pool(false);
    assert!(connection.received().ends_with(b"\r\n\r\nsecond"));
}

/// Purpose: content that has failed is not polled again. Woken twice, a stream was polled once more after it
/// had broken off, or had panicked.
#[test]
fn broken_content_is_left_alone() {
    struct Broken(Arc<AtomicUsize>);
    impl Stream for Broken {
        type Item = Result<Bytes, std::fmt::Error>;
        fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            if self.0.fetch_add(1, Ordering::Relaxed) > 0 {
                return Poll::Ready(Some(Err(std::fmt::Error)));
            }
            cx.waker().wake_by_ref();
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    }
    let polls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&polls);
    let client =
        Client::new(Router::new().get("/", move || Body::stream(Broken(Arc::clone(&counter)))));
    let mut connection = client.connect();
    connection.send(GET);
    assert!(connection.is_reset());
    assert_eq!(polls.load(Ordering::Relaxed), 2);
}
