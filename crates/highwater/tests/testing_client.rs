//! The testing client, as its users see it.

use std::time::Duration;

use highwater::testing::{Client, Setup};
use highwater::{Bytes, Error, Handler, Path, Router, ServerConfig, StatusCode, blocking};

fn app() -> Router {
    async fn echo(body: Bytes) -> Bytes {
        body
    }
    async fn sleep(Path(ms): Path<u64>) -> &'static str {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        "slept"
    }
    async fn never() {
        std::future::pending().await
    }
    Router::new()
        .get("/hello/{name}", |Path(name): Path<String>| format!("Hello, {name}!"))
        .get("/blocking", blocking(|| "blocked"))
        .post("/echo", echo)
        .get("/sleep/{ms}", sleep)
        .get("/never", never.timeout(Duration::from_millis(50)))
        .get("/error", || Err::<(), _>(Error::conflict("twice")))
}

/// Purpose: each kind of handler answers through the client as it does through a socket.
#[test]
fn every_kind_of_handler() {
    let client = Client::new(app());
    assert_eq!(client.get("/hello/world").text(), "Hello, world!");
    assert_eq!(client.get("/blocking").text(), "blocked");
    assert_eq!(client.post("/echo", vec![b'x'; 100_000]).body.len(), 100_000);
    assert_eq!(client.get("/sleep/5").text(), "slept");
    assert_eq!(client.get("/never").status, StatusCode::SERVICE_UNAVAILABLE);
    let error = client.get("/error");
    assert_eq!(
        (error.status.as_u16(), error.header("content-type")),
        (409, Some("application/json"))
    );
    assert_eq!(client.head("/hello/you").header("content-length"), Some("11"));
    assert_eq!(client.get("/missing").status, StatusCode::NOT_FOUND);
    assert_eq!(client.connections(), 0, "each request's connection ends with it");
}

/// Purpose: an hour of simulated time takes no real time, and timeouts expire in it.
#[test]
fn time_is_simulated() {
    let client = Client::new(Router::new().get("/", || "ok"));
    let mut connection = client.connect();
    connection.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(connection.heard().ends_with(b"\r\n\r\nok"));
    client.advance(Duration::from_secs(59));
    assert!(!connection.is_closed());
    client.advance(Duration::from_secs(2));
    assert!(connection.is_closed() && !connection.is_reset(), "the idle timeout is a minute");
}

/// Purpose: however a seed cuts the bytes, the application answers the same.
#[test]
fn seeds_cut_bytes() {
    for seed in 0..50 {
        let client = Setup::new(app()).seed(seed).start();
        let body = vec![b'x'; 20_000];
        assert_eq!(client.post("/echo", body.clone()).body, body, "seed {seed}");
    }
}

/// Purpose: settings apply as they do to a server.
#[test]
fn settings() {
    let mut config = ServerConfig::default();
    config.limits.body_max = 10;
    let client = Setup::new(app()).config(config).start();
    assert_eq!(client.post("/echo", "12345678901").status, StatusCode::PAYLOAD_TOO_LARGE);
}

/// Purpose: a test that waits for an event that never comes fails with a message.
#[test]
#[should_panic(expected = "GET /: no answer: it waits for something that nothing will bring about")]
fn an_answer_that_never_comes() {
    let client = Client::new(Router::new().get("/", blocking(|| "OK")));
    client.hold_pool(true);
    client.get("/");
}
