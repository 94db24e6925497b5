//! The testing client over HTTP/2, as its users see it.

use std::time::Duration;

use highwater::sse::{Event, Sse};
use highwater::testing::{Client, Received, Setup};
use highwater::websocket::CloseCode;
use highwater::{
    BodyStream, Bytes, Closed, Handler, HeaderMap, Limits, Method, Path, Router, ServerConfig,
    StatusCode, WebSocket, websocket,
};
use tokio::time::sleep;

async fn echo_messages(mut socket: WebSocket) -> Result<(), Closed> {
    while let Some(message) = socket.recv().await {
        socket.send(message).await?;
    }
    Ok(())
}

/// Three events, a second apart.
async fn events() -> Sse {
    Sse::run(async |mut events| {
        for at in 0..3 {
            sleep(Duration::from_secs(1)).await;
            events.send(Event::data(at.to_string())).await?;
        }
        Ok::<(), Closed>(())
    })
}

/// How much came, and what stood behind it.
async fn upload(mut body: BodyStream) -> String {
    let mut len = 0;
    while let Some(Ok(piece)) = body.next().await {
        len += piece.len();
    }
    let trailers = body.take_trailers();
    let checksum = trailers.get("checksum").map(|value| value.to_str().expect("text").to_owned());
    format!("{len} {checksum:?}")
}

fn app() -> Router {
    async fn echo(body: Bytes) -> Bytes {
        body
    }
    async fn sleeps(Path(secs): Path<u64>) -> String {
        sleep(Duration::from_secs(secs)).await;
        format!("slept {secs}")
    }
    async fn never() {
        std::future::pending().await
    }
    Router::new()
        .get("/hello/{name}", |Path(name): Path<String>| format!("Hello, {name}!"))
        .get("/fields", |headers: HeaderMap| format!("{headers:?}"))
        .post("/echo", echo)
        .post("/upload", upload)
        .get("/sleep/{secs}", sleeps)
        .get("/never", never.timeout(Duration::from_millis(50)))
        .get("/ws", websocket(echo_messages).protocols(["chat"]))
        .get("/events", events)
}

/// Purpose: what works over HTTP/1.1 works on one connection of HTTP/2, however its bytes are cut.
#[test]
fn requests() {
    for seed in [None, Some(1), Some(2), Some(3)] {
        let mut setup = Setup::new(app()).header("x-token", "t");
        if let Some(seed) = seed {
            setup = setup.seed(seed);
        }
        let client = setup.start();
        let connection = client.http2();
        assert_eq!(connection.get("/hello/you").text(), "Hello, you!");
        let large = vec![b'x'; 300_000];
        let answer = connection.request(Method::POST, "/echo").body(large.clone()).send();
        assert_eq!(answer.body, large, "more than any window");
        let head = connection.request(Method::HEAD, "/hello/you").send();
        assert_eq!((head.header("content-length"), head.text()), (Some("11"), ""));
        assert_eq!(connection.get("/missing").status, StatusCode::NOT_FOUND);
        assert_eq!(connection.get("/never").status, StatusCode::SERVICE_UNAVAILABLE);
        let fields = connection.request(Method::GET, "/fields").header("host", "other").send();
        assert!(fields.text().contains("\"x-token\": \"t\""), "{}", fields.text());
        assert_eq!((client.connections(), connection.streams()), (1, 0));
        drop(connection);
        assert_eq!(client.connections(), 0);
    }
}

/// Purpose: requests are under way beside each other, and are answered in the order in which time finishes them.
#[test]
fn streams_beside_each_other() {
    let client = Client::new(app());
    let connection = client.http2();
    let begin = |secs: u64| connection.request(Method::GET, &format!("/sleep/{secs}")).begin();
    let mut answers = [3, 1, 2].map(begin);
    assert_eq!((connection.streams(), client.connections()), (3, 1));
    assert_eq!(connection.get("/hello/you").status, 200);
    for come in [[false; 3], [false, true, false], [false, true, true], [true; 3]] {
        assert_eq!(answers.each_mut().map(|answer| answer.has_come()), come);
        client.advance(Duration::from_secs(1));
    }
    assert_eq!(answers.map(|answer| answer.response().text().to_owned())[0], "slept 3");
}

/// Purpose: trailers reach the handler over both versions, and do not where there are none.
#[test]
fn trailers() {
    let client = Client::new(app());
    let connection = client.http2();
    for over_http2 in [false, true] {
        let request = || match over_http2 {
            true => connection.request(Method::POST, "/upload"),
            false => client.request(Method::POST, "/upload"),
        };
        let large = vec![b'x'; 200_000];
        let with = request().body(large).trailer("checksum", "c").send();
        assert_eq!(with.text(), "200000 Some(\"c\")");
        assert_eq!(request().trailer("checksum", "c").send().text(), "0 Some(\"c\")");
        assert_eq!(request().body("abc").send().text(), "3 None");
    }
}

/// Purpose: trailers of an answer are distinguished from its fields, over both versions.
#[cfg(feature = "tower")]
#[test]
fn trailers_of_an_answer() {
    use std::convert::Infallible;
    use std::future::{Ready, ready};
    use std::task::{Context, Poll};

    use highwater::http;
    use highwater::tower::Body;

    /// Gives back the content with its trailers.
    #[derive(Clone)]
    struct Echo;

    impl tower_service::Service<http::Request<Body>> for Echo {
        type Response = http::Response<Body>;
        type Error = Infallible;
        type Future = Ready<Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: http::Request<Body>) -> Self::Future {
            let response = http::Response::builder().header("trailer", "checksum");
            ready(Ok(response.body(request.into_body()).expect("is valid")))
        }
    }
    let client = Client::new(Router::new().nest_service("/echo", Echo));
    let connection = client.http2();
    for request in [
        connection.request(Method::POST, "/echo"),
        client.request(Method::POST, "/echo").header("te", "trailers"),
    ] {
        let answer = request.body("content").trailer("checksum", "c").send();
        assert_eq!(answer.text(), "content");
        assert_eq!(answer.trailers.get("checksum").map(|value| value.as_bytes()), Some(&b"c"[..]));
        assert_eq!((answer.trailers.len(), answer.header("checksum")), (1, None));
    }
}

/// Purpose: WebSockets stand beside other streams, with their protocol, time, pings, and an end in good order.
#[test]
fn websockets() {
    let client = Client::new(app());
    let connection = client.http2();
    let request = connection.request(Method::GET, "/ws");
    let mut socket = request.header("sec-websocket-protocol", "chat").websocket();
    assert_eq!(socket.protocol(), Some("chat"));
    let mut other = connection.websocket("/ws");
    assert_eq!(other.protocol(), None);
    for len in [0, 5, 126, 65_536, 200_000] {
        let bytes = vec![7_u8; len];
        socket.send(bytes.clone());
        other.send("x".repeat(len));
        assert_eq!(connection.get("/hello/you").status, 200);
        assert_eq!(socket.recv(), Some(bytes.into()));
        assert_eq!(other.recv(), Some("x".repeat(len).into()));
    }
    assert_eq!((client.connections(), connection.streams()), (1, 2));
    client.advance(Duration::from_secs(35));
    assert!(matches!(socket.try_recv_any(), Some(Received::Ping(_))), "it was silent");
    socket.close(CloseCode(4321), "done");
    assert!(
        matches!(socket.recv_any(), Some(Received::Close(Some(close))) if close.code.0 == 4321)
    );
    assert_eq!(socket.recv_any(), None);
    assert!(socket.is_closed() && !socket.is_reset());
    assert_eq!(connection.streams(), 1, "the other one goes on");
    drop(other);
    assert_eq!(connection.streams(), 0);
    assert_eq!(connection.get("/hello/you").status, 200);
}

/// Purpose: events come one by one while other requests are answered, and their end is told.
#[test]
fn server_sent_events() {
    let client = Client::new(app());
    let connection = client.http2();
    let mut events = connection.request(Method::GET, "/events").events();
    for expected in ["0", "1", "2"] {
        assert_eq!(connection.get("/hello/you").status, 200);
        assert_eq!(events.next().expect("it comes").data, expected);
    }
    assert_eq!(events.next(), None);
    assert!(events.has_ended());
}

/// Purpose: an answer that is dropped is given up, so that its handler ends; and one whose connection ends says why.
#[test]
fn answers_that_do_not_come() {
    let client = Client::new(app());
    let connection = client.http2();
    let answer = connection.request(Method::GET, "/sleep/60").begin();
    drop(answer);
    assert_eq!(connection.streams(), 0);
    let mut http1 = client.request(Method::GET, "/sleep/60").begin();
    assert_eq!((http1.failure(), client.connections()), (None, 2));
    drop(http1);
    assert_eq!(client.connections(), 1);
    let limits = Limits { uri_max: 100, ..Limits::default() };
    let config = ServerConfig { limits, ..ServerConfig::default() };
    let small = Setup::new(app()).config(config).start();
    let small_connection = small.http2();
    let long = small_connection.request(Method::GET, &format!("/{}", "x".repeat(100))).send();
    assert_eq!(long.status, StatusCode::URI_TOO_LONG);
    let mut malformed =
        small_connection.request(Method::GET, "/").header("connection", "close").begin();
    let why = malformed.failure().expect("HTTP/2 has no such field");
    assert!(why.contains("PROTOCOL_ERROR"), "{why}");
}

/// Purpose: a drain says GOAWAY, lets what is under way end, ends WebSockets with 1001, and then the connection.
#[test]
fn drains() {
    let client = Client::new(app());
    let connection = client.http2();
    let mut answer = connection.request(Method::GET, "/sleep/5").begin();
    let mut socket = connection.websocket("/ws");
    assert_eq!(connection.go_away(), None);
    client.drain();
    assert_eq!(connection.go_away(), Some(0));
    assert!(
        matches!(socket.recv_any(), Some(Received::Close(Some(close))) if close.code.0 == 1001)
    );
    socket.close(CloseCode::NORMAL, "");
    assert!(!answer.has_come() && !connection.is_closed());
    assert_eq!(answer.response().text(), "slept 5");
    assert!(connection.is_closed());
}

/// Purpose: what cannot be done says so: more streams than the server allows, and a WebSocket where there is none.
#[test]
#[should_panic(expected = "the server takes no WebSockets over HTTP/2: none of its routes is one")]
fn no_websocket() {
    let client = Client::new(Router::new().get("/", || "page"));
    client.http2().websocket("/");
}

/// Purpose: a route that is no WebSocket is said to have answered otherwise.
#[test]
#[should_panic(expected = "the answer to a WebSocket's handshake")]
fn not_this_route() {
    Client::new(app()).http2().websocket("/hello/you");
}
