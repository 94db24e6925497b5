//! Layers that observe how answers ended, and layers that see requests which the server answers itself: over
//! real workers, simulated connections, and every way in which an answer can end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use highwater::testing::Client;
use highwater::{
    Body, Handler, HeaderName, Layer, Request, Response, Router, blocking, fixed, layer,
};

/// What a layer observed: path, status, whether the answer was complete, and its bytes.
type Entries = Arc<Mutex<Vec<(String, u16, bool, u64)>>>;

fn log(entries: &Entries) -> Layer {
    observe(entries).everywhere()
}

/// Observes the routes that it covers.
fn observe(entries: &Entries) -> Layer {
    let entries = Arc::clone(entries);
    layer::on_end(move |request: &Request<'_>, ended: &layer::Ended| {
        let (status, complete) = (ended.status().as_u16(), ended.is_complete());
        let path = request.path().to_owned();
        entries.lock().expect("no test panics").push((path, status, complete, ended.bytes()));
    })
}

fn take(entries: &Entries) -> Vec<(String, u16, bool)> {
    let entries = std::mem::take(&mut *entries.lock().expect("no test panics"));
    entries.into_iter().map(|(path, status, complete, _)| (path, status, complete)).collect()
}

fn app(entries: &Entries) -> Router {
    Router::new()
        .layer(log(entries))
        .get("/now", || "now")
        .get("/fixed", fixed("fixed"))
        .get("/later", async || {
            tokio::task::yield_now().await;
            "later"
        })
        .get("/pool", blocking(|| "pool"))
        .get("/panic", || -> &'static str { panic!("on demand") })
        .get("/panic-later", async || -> &'static str { panic!("on demand") })
        .get("/never", std::future::pending::<&'static str>)
        .get(
            "/slow",
            (async || std::future::pending::<&'static str>().await).timeout(Duration::from_secs(1)),
        )
        .get("/stream", stream)
        .post("/whole", |body: String| body)
}

async fn stream() -> Response {
    let (mut sender, body) = Body::channel();
    tokio::task::spawn_local(async move {
        for _ in 0..3 {
            sender.send("0123456789").await.expect("it is read");
        }
        sender.finish();
    });
    Response::from(body)
}

/// Purpose: each answer is reported once, with its status, also the server's own answers.
#[test]
fn each_answer_is_told_once() {
    let entries = Entries::default();
    let client = Client::new(app(&entries));
    let table = [
        ("/now", 200),
        ("/fixed", 200),
        ("/later", 200),
        ("/pool", 200),
        ("/panic", 500),
        ("/panic-later", 500),
        ("/stream", 200),
        ("/slow", 503),
        ("/nowhere", 404),
        ("/whole", 405),
    ];
    for (path, status) in table {
        assert_eq!(client.get(path).status.as_u16(), status, "{path}");
        assert_eq!(take(&entries), [(path.to_owned(), status, true)]);
    }
    assert_eq!(client.post("/whole", vec![b'x'; 2 << 20]).status.as_u16(), 413);
    assert_eq!(take(&entries), [("/whole".to_owned(), 413, true)]);
}

/// Purpose: what is counted is what was given to the connection: head and content, chunks with their framing.
#[test]
fn bytes_are_those_given() {
    let entries = Entries::default();
    let client = Client::new(app(&entries));
    for path in ["/now", "/stream", "/fixed"] {
        let mut connection = client.connect();
        connection.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
        let received = connection.received().len() as u64;
        let entries = std::mem::take(&mut *entries.lock().expect("no test panics"));
        assert_eq!(entries, [(path.to_owned(), 200, true, received)]);
    }
}

/// Purpose: pipelined answers are reported one by one, and a client that disconnects before its answer is
/// reported as such.
#[test]
fn pipelined_and_broken() {
    let entries = Entries::default();
    let client = Client::new(app(&entries));
    let mut connection = client.connect();
    let request = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    connection.send(request("/now") + &request("/later") + &request("/fixed") + &request("/never"));
    connection.received();
    let now = ["/now", "/later", "/fixed"].map(|path| (path.to_owned(), 200, true));
    assert_eq!(take(&entries), now);
    drop(connection);
    client.advance(Duration::from_millis(10));
    assert_eq!(take(&entries), [("/never".to_owned(), 499, false)]);
}

/// Purpose: bytes are those of the answer alone. What was streamed before on the same connection, to a request that no layer
/// observes, was once reported for one whose client disconnected before its answer.
#[test]
fn bytes_of_other_answers_do_not_count() {
    let entries = Entries::default();
    let observed =
        Router::new().layer(observe(&entries)).get("/never", std::future::pending::<&'static str>);
    let client = Client::new(Router::new().get("/stream", stream).merge(observed));
    let mut connection = client.connect();
    connection.send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(connection.received().ends_with(b"\r\n0\r\n\r\n"));
    connection.send("GET /never HTTP/1.1\r\nHost: h\r\n\r\n");
    connection.received();
    drop(connection);
    client.advance(Duration::from_millis(10));
    let entries = std::mem::take(&mut *entries.lock().expect("no test panics"));
    assert_eq!(entries, [("/never".to_owned(), 499, false, 0)]);
}

/// Purpose: a layer that changes each response by its request also changes those that the server makes: of a
/// handler that took too long, that panicked, and of a body that is too large.
#[test]
fn answers_of_the_server_are_covered() {
    let echo = layer::on_response(|request: &Request<'_>, response: &mut Response| {
        let origin = request.header("origin").unwrap_or("none").to_owned();
        let origin = origin.parse().expect("it came in a field");
        response.set_header(HeaderName::from_static("x-origin"), origin);
    });
    let entries = Entries::default();
    let client = Client::new(Router::new().layer(echo.everywhere()).merge(app(&entries)));
    for (method, path, status) in [
        ("GET", "/slow", 503),
        ("GET", "/panic", 500),
        ("GET", "/panic-later", 500),
        ("GET", "/fixed", 200),
        ("GET", "/nowhere", 404),
        ("POST", "/whole", 413),
    ] {
        let mut connection = client.connect();
        connection.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: h\r\nOrigin: me\r\nContent-Length: {}\r\n\r\n",
            if method == "POST" { 2 << 20 } else { 0 }
        ));
        client.advance(Duration::from_secs(2));
        let received = String::from_utf8_lossy(connection.received()).into_owned();
        assert!(received.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {received}");
        assert!(received.contains("\r\nx-origin: me\r\n"), "{path}: {received}");
    }
}
