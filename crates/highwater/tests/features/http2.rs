//! HTTP/2 over real sockets, asked by the client of another implementation (`h2`): requests in parallel, content both
//! ways and larger than any window, resets, trailers, drain; and what is refused.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream};
use highwater::layers::request_id;
use highwater::server::TransportChoice;
use highwater::{
    Body, BodyStream, Bytes, Disconnected, Error, OriginalUri, Query, RequestId, Response, Router,
    Running, ServerConfig, StatusCode, Uri,
};
use http::{Method, Request as HttpRequest, Version};

use crate::served::{HANG, config, start, start_with};
use crate::transports::on_each_transport;

#[derive(serde::Deserialize)]
struct Size {
    bytes: usize,
}

#[derive(serde::Deserialize)]
struct Time {
    ms: u64,
}

/// As many bytes as asked, each of which says where it stands.
async fn many(Query(Size { bytes }): Query<Size>) -> Response {
    let (mut sender, body) = Body::channel();
    tokio::task::spawn_local(async move {
        let mut sent = 0;
        while sent < bytes {
            let piece: Vec<u8> =
                (sent..bytes.min(sent + 50_000)).map(|place| (place % 251) as u8).collect();
            sent += piece.len();
            if sender.send(piece).await.is_err() {
                return;
            }
        }
        sender.finish();
    });
    Response::new(StatusCode::OK).with_body(body)
}

/// The same at once.
fn whole(Query(Size { bytes }): Query<Size>) -> Vec<u8> {
    (0..bytes).map(|place| (place % 251) as u8).collect()
}

async fn sum(mut body: BodyStream) -> Result<String, Error> {
    let (mut length, mut sum) = (0, 0_u64);
    while let Some(piece) = body.next().await {
        let piece = piece?;
        length += piece.len();
        sum += piece.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    }
    let trailer = body.take_trailers().get("x-end").map_or("none", |_| "one").to_owned();
    Ok(format!("{length} {sum} {trailer}"))
}

fn length(body: Bytes) -> String {
    body.len().to_string()
}

async fn repeat(mut incoming: BodyStream) -> Response {
    let (mut sender, body) = Body::channel();
    tokio::task::spawn_local(async move {
        while let Some(Ok(piece)) = incoming.next().await {
            if sender.send(piece).await.is_err() {
                return;
            }
        }
        sender.finish();
    });
    Response::new(StatusCode::OK).with_body(body)
}

/// Nine of them fill the output.
static PAGE: [u8; 8_000] = [b'x'; 8_000];

/// Answers with a piece, and never with the rest.
async fn endless() -> Response {
    let (mut sender, body) = Body::channel();
    tokio::task::spawn_local(async move {
        if sender.send("begun").await.is_ok() {
            sender.closed().await;
        }
    });
    Response::new(StatusCode::OK).with_body(body)
}

async fn delay(Query(Time { ms }): Query<Time>) -> &'static str {
    tokio::time::sleep(Duration::from_millis(ms)).await;
    "late"
}

static LEARNED: AtomicUsize = AtomicUsize::new(0);

/// Counts when it is dropped.
struct Counts;

impl Drop for Counts {
    fn drop(&mut self) {
        LEARNED.fetch_add(1, SeqCst);
    }
}

async fn learns(disconnected: Disconnected) -> &'static str {
    let _counts = Counts;
    disconnected.await;
    "gone"
}

/// The version and the host of a request.
struct Seen(String);

impl highwater::FromRequest for Seen {
    fn from_request(request: &highwater::Request<'_>) -> Result<Self, Error> {
        let host = request.header("host").unwrap_or("none");
        Ok(Seen(format!("{:?} {host}", request.version())))
    }
}

fn version(Seen(seen): Seen) -> String {
    seen
}

fn router() -> Router {
    Router::new()
        .get("/", || "Hello")
        .get("/version", version)
        .get("/many", many)
        .get("/whole", whole)
        .get("/endless", endless)
        .get("/page", || &PAGE[..])
        .get("/delay", delay)
        .get("/learns", learns)
        .post("/sum", sum)
        .post("/length", length)
        .post("/repeat", repeat)
        .post("/early", || "early")
}

fn with_client<T>(server: &Running, work: impl AsyncFnOnce(SendRequest<Bytes>) -> T) -> T {
    with_windows(server, 65_535, work)
}

/// The same for a client that lets the server send `window` bytes ahead.
fn with_windows<T>(
    server: &Running,
    window: u32,
    work: impl AsyncFnOnce(SendRequest<Bytes>) -> T,
) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("it is built").block_on(async {
        let stream = tokio::net::TcpStream::connect(server.address()).await.expect("it listens");
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(window).initial_connection_window_size(window);
        let (client, connection) = builder.handshake(stream).await.expect("it speaks HTTP/2");
        let driving = tokio::spawn(async move {
            let _ = connection.await;
        });
        let work = tokio::time::timeout(HANG, work(client)).await.expect("nothing hangs");
        driving.abort();
        work
    })
}

fn request(method: Method, path: &str) -> HttpRequest<()> {
    let uri = format!("http://example.com{path}");
    HttpRequest::builder().method(method).uri(uri).version(Version::HTTP_2).body(()).expect("valid")
}

async fn get(client: &SendRequest<Bytes>, path: &str) -> (StatusCode, Vec<u8>) {
    let mut client = client.clone().ready().await.expect("it is open");
    let (answer, _) = client.send_request(request(Method::GET, path), true).expect("it is open");
    content(answer).await
}

async fn content(answer: ResponseFuture) -> (StatusCode, Vec<u8>) {
    let (head, mut body) = answer.await.expect("it answers").into_parts();
    (head.status, read(&mut body).await)
}

async fn read(body: &mut RecvStream) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.expect("the answer is complete");
        body.flow_control().release_capacity(piece.len()).expect("it came");
        all.extend_from_slice(&piece);
    }
    all
}

async fn post(
    client: &SendRequest<Bytes>,
    path: &str,
    content_length: usize,
) -> (StatusCode, Vec<u8>) {
    let mut client = client.clone().ready().await.expect("it is open");
    let (answer, mut body) = client.send_request(request(Method::POST, path), false).expect("open");
    let sending = async move {
        let mut left = content_length;
        while left > 0 {
            body.reserve_capacity(left.min(30_000));
            let Some(Ok(room)) = poll_fn(|context| body.poll_capacity(context)).await else {
                return;
            };
            let len = room.min(left);
            left -= len;
            if body.send_data(Bytes::from(vec![7; len]), false).is_err() {
                return;
            }
        }
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-end", http::HeaderValue::from_static("1"));
        let _ = body.send_trailers(trailers);
    };
    let (_, answer) = tokio::join!(sending, content(answer));
    answer
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|place| (place % 251) as u8).collect()
}

/// What is answered to these bytes, until the server closes.
fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect_timeout(&address, HANG).expect("it listens");
    stream.set_read_timeout(Some(HANG)).expect("it is open");
    stream.write_all(bytes).expect("it is open");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it closes");
    answer
}

on_each_transport! {
    /// Purpose: requests are answered as over HTTP/1, and handlers see the version and the host.
    fn requests(transport) {
        let server = start(router(), transport);
        with_client(&server, async |client| {
            let text = |answer: (StatusCode, Vec<u8>)| {
                (answer.0.as_u16(), String::from_utf8(answer.1).expect("text"))
            };
            assert_eq!(text(get(&client, "/").await), (200, "Hello".into()));
            assert_eq!(text(get(&client, "/version").await), (200, "HTTP/2.0 example.com".into()));
            assert_eq!(get(&client, "/nowhere").await.0, 404);
            assert_eq!(text(post(&client, "/length", 3).await), (200, "3".into()));
        });
    }

    /// Purpose: the path of each stream is rewritten before its route is found, and each has an id of its own, whether its
    /// content comes at once or not.
    fn rewrites_and_ids(transport) {
        let describe = |uri: Uri, OriginalUri(sent): OriginalUri, RequestId(id): RequestId, content: Bytes| {
            format!("{} {} {} {id}", uri.path(), sent.path(), content.len())
        };
        let app = Router::new()
            .layer(request_id())
            .rewrite_prefix("/v1", "/api")
            .get("/api/a", describe)
            .post("/api/b", describe);
        let server = start(app, transport);
        let answers = with_client(&server, async |client| {
            let (got, posted) = tokio::join!(get(&client, "/v1/a"), post(&client, "/v1/b", 70_000));
            [got.1, posted.1].map(|content| String::from_utf8(content).expect("text"))
        });
        let ids = answers.each_ref().map(|answer| answer.rsplit(' ').next().expect("an id"));
        assert!(answers[0].starts_with("/api/a /v1/a 0 "), "{answers:?}");
        assert!(answers[1].starts_with("/api/b /v1/b 70000 "), "{answers:?}");
        assert!(ids[0] != ids[1] && ids.iter().all(|id| id.len() == 16), "{answers:?}");
    }

    /// Purpose: a hundred streams at a time are all answered, twice, those that wait and those that do not.
    fn a_hundred_at_a_time(transport) {
        let server = start(router(), transport);
        with_client(&server, async |client| {
            for path in ["/delay?ms=20", "/whole?bytes=3000"] {
                let mut answers = Vec::new();
                for _ in 0..100 {
                    let mut client = client.clone().ready().await.expect("it is open");
                    answers.push(client.send_request(request(Method::GET, path), true).expect("open").0);
                }
                for answer in answers {
                    assert_eq!(content(answer).await.0, 200);
                }
            }
        });
    }

    /// Purpose: requests that come while the output is full are served when it is sent, also where an answer goes on beside them:
    /// they once waited until the client or that answer said something more.
    fn requests_beside_an_endless_answer(transport) {
        let server = start(router(), transport);
        with_windows(&server, 1 << 20, async |client| {
            let mut sender = client.clone().ready().await.expect("it is open");
            let asked = sender.send_request(request(Method::GET, "/endless"), true).expect("open");
            let mut endless = asked.0.await.expect("it answers").into_body();
            assert_eq!(endless.data().await.expect("a piece").expect("a piece"), "begun");
            let mut answers = Vec::new();
            for _ in 0..100 {
                let mut client = client.clone().ready().await.expect("it is open");
                let asked = client.send_request(request(Method::GET, "/page"), true);
                answers.push(asked.expect("open").0);
            }
            for answer in answers {
                assert!(content(answer).await.1 == PAGE);
            }
        });
    }

    /// Purpose: demand is counted twice. A connection with twenty requests under way has one place of two among the
    /// connections, so that another is accepted; among the requests it has twenty, as the metric says.
    fn one_connection_has_one_place_for_all_its_streams(transport) {
        let config = ServerConfig {
            metrics: Some(([127, 0, 0, 1], 0).into()),
            connection_limit: Some(2),
            ..config(transport)
        };
        let server = start_with(router(), config);
        let metrics = server.metrics_address().expect("a port");
        with_client(&server, async |client| {
            let mut answers = Vec::new();
            for _ in 0..20 {
                let mut client = client.clone().ready().await.expect("it is open");
                answers.push(client.send_request(request(Method::GET, "/learns"), true).expect("open"));
            }
            assert_eq!(get(&client, "/").await.0, 200, "all twenty have begun");
            let address = server.address();
            let (answer, seen) = tokio::task::spawn_blocking(move || {
                let ask = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
                let answer = exchange(address, ask.as_bytes());
                let scrape = "GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
                (answer, exchange(metrics, scrape.as_bytes()))
            })
            .await
            .expect("no panic");
            let (answer, seen) = (String::from_utf8_lossy(&answer), String::from_utf8_lossy(&seen));
            assert!(answer.starts_with("HTTP/1.1 200"), "another connection is accepted: {answer}");
            let in_flight = seen.lines().find(|line| line.starts_with("http_connections_in_flight "));
            assert_eq!(in_flight, Some("http_connections_in_flight 20"));
        });
    }

    /// Purpose: content larger than any window arrives whole, both ways and on several streams at a time.
    fn content_beyond_the_windows(transport) {
        let server = start(router(), transport);
        with_client(&server, async |client| {
            let (many, whole, sum, repeated, length) = tokio::join!(
                get(&client, "/many?bytes=1500000"),
                get(&client, "/whole?bytes=1000000"),
                post(&client, "/sum", 1_000_000),
                post(&client, "/repeat", 700_000),
                post(&client, "/length", 600_000),
            );
            assert!(many.1 == pattern(1_500_000), "{}", many.1.len());
            assert!(whole.1 == pattern(1_000_000), "{}", whole.1.len());
            assert_eq!(String::from_utf8_lossy(&sum.1), "1000000 7000000 one");
            assert!(repeated.1 == vec![7; 700_000], "{}", repeated.1.len());
            assert_eq!(length.1, b"600000");
        });
    }

    /// Purpose: a stream whose client does not read holds up no other.
    fn a_stalled_stream_holds_up_no_other(transport) {
        let server = start(router(), transport);
        with_client(&server, async |client| {
            let mut sender = client.clone().ready().await.expect("it is open");
            let (stalled, _) =
                sender.send_request(request(Method::GET, "/many?bytes=40000"), true).expect("open");
            let mut stalled = stalled.await.expect("it answers").into_body();
            for _ in 0..20 {
                assert_eq!(get(&client, "/whole?bytes=20000").await.1.len(), 20_000);
            }
            assert!(read(&mut stalled).await == pattern(40_000));
        });
    }

    /// Purpose: a handler whose stream is reset is dropped, and the others of the connection are answered.
    fn a_reset_ends_its_handler(transport) {
        let server = start(router(), transport);
        let before = LEARNED.load(SeqCst);
        with_client(&server, async |client| {
            let mut sender = client.clone().ready().await.expect("it is open");
            let (answer, mut stream) =
                sender.send_request(request(Method::GET, "/learns"), true).expect("open");
            assert_eq!(get(&client, "/").await.0, 200, "the first request has begun");
            stream.send_reset(Reason::CANCEL);
            drop(answer);
            while LEARNED.load(SeqCst) == before {
                assert_eq!(get(&client, "/").await.0, 200);
            }
        });
    }

    /// Purpose: an answer before the request is complete is the answer, and the rest is not wanted.
    fn an_early_answer(transport) {
        let server = start(router(), transport);
        with_client(&server, async |client| {
            let mut sender = client.clone().ready().await.expect("it is open");
            let (answer, _body) =
                sender.send_request(request(Method::POST, "/nowhere"), false).expect("open");
            assert_eq!(content(answer).await.0, 404);
            assert_eq!(get(&client, "/").await.0, 200);
        });
    }

    /// Purpose: a server that drains answers the requests that have begun, and says that it leaves.
    fn drain(transport) {
        let mut server = start(router(), transport);
        let address = server.address();
        let client = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("it is built").block_on(async {
                let stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
                let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
                let driving = tokio::spawn(connection);
                let mut answers = Vec::new();
                for _ in 0..10 {
                    let mut client = client.clone().ready().await.expect("it is open");
                    let slow = request(Method::GET, "/delay?ms=300");
                    answers.push(client.send_request(slow, true).expect("open").0);
                }
                assert_eq!(get(&client, "/").await.0, 200, "the others have begun");
                BEGUN.fetch_add(1, SeqCst);
                for answer in answers {
                    assert_eq!(content(answer).await, (StatusCode::OK, b"late".to_vec()));
                }
                driving.await.expect("it does not panic").expect("a graceful end");
            });
        });
        let begun = BEGUN.load(SeqCst);
        while BEGUN.load(SeqCst) == begun && !client.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        server.stop().expect("it drains");
        client.join().expect("all are answered");
    }

    /// Purpose: a listener for one version refuses the other, and never answers it.
    fn the_other_version_is_refused(transport) {
        let only = |option: &str| {
            let listen = format!("127.0.0.1:0,{option}").parse().expect("valid");
            start_with(router(), highwater::ServerConfig { listen: vec![listen], ..config(transport) })
        };
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        let refused = exchange(only("http1").address(), preface);
        assert!(refused.starts_with(b"HTTP/1.1 505 "), "{}", refused.escape_ascii());
        let refused = exchange(only("http2").address(), b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(refused.get(3..17), Some(&[7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..]));
        let both = start(router(), transport);
        let request = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        assert!(exchange(both.address(), request).ends_with(b"Hello"));
        with_client(&only("http2"), async |client| assert_eq!(get(&client, "/").await.0, 200));
    }
}

static BEGUN: AtomicUsize = AtomicUsize::new(0);
