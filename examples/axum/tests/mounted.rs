//! Do services and layers of the tower ecosystem work inside a native router?
#![forbid(unsafe_code)]

mod common;

use std::cell::Cell;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread::ThreadId;

use axum::extract::{ConnectInfo, OriginalUri};
use axum::routing::get;
use common::{Answer, HIGHWATER, Server, Under};
use futures_util::{Stream, StreamExt as _, stream};
use highwater::layer::{self, Layer};
use highwater::server::TransportChoice;
use highwater::tower::Body;
use highwater::{
    BodyStream, Error, HeaderValue, Json, Request, Response, Router, fixed, header, http,
};
use highwater_core::http1::client::Asked;
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::decompression::RequestDecompressionLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_service::Service;

/// Serves on each driver, and checks.
fn on_both(app: impl Fn() -> Router, check: impl Fn(&Server)) {
    for under in HIGHWATER {
        let Under::Highwater(transport) = under else { continue };
        check(&Server::highwater(transport, app()));
    }
}

fn ask(server: &Server, line: &str, fields: &str, content: &[u8]) -> Answer {
    let length = content.len();
    let head = format!(
        "{line} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{fields}content-length: {length}\r\n\r\n"
    );
    Answer::parse(&server.ask(&[head.as_bytes(), content].concat()), Asked::Plain)
}

fn axum_part() -> axum::Router {
    axum::Router::new()
        .route("/", get(|OriginalUri(uri): OriginalUri| async move { format!("root {uri}") }))
        .route("/{*path}", get(|OriginalUri(uri): OriginalUri| async move { uri.to_string() }))
}

/// Purpose: a service below a prefix sees paths without it; native routes stay; what neither has is
/// answered by the fallback, and a known path with another method is 405.
#[test]
fn prefixes_and_fallbacks() {
    let app = || {
        let tenant = Router::new().nest_service("/old", axum_part());
        Router::new()
            .get("/health", fixed("ok"))
            .nest_service("/axum", axum_part())
            .nest("/tenants/{id}", tenant)
            .fallback_service(axum::Router::new().fallback(|| async { "fallback" }))
            .get("/native", || "native")
    };
    on_both(app, |server| {
        for (path, wanted) in [
            ("/health", "ok"),
            ("/native", "native"),
            ("/axum", "root /"),
            ("/axum/", "root /"),
            ("/axum?a=b", "root /?a=b"),
            ("/axum/a/b%2Fc?d", "/a/b%2Fc?d"),
            ("/tenants/7/old/a", "/a"),
            ("/", "fallback"),
            ("/elsewhere/a", "fallback"),
        ] {
            assert_eq!(server.get(path).text(), wanted, "{path}");
        }
        let refused = ask(server, "POST /native", "", b"");
        assert_eq!(refused.status, 405);
        // The service has the say about methods below its prefix.
        let refused = ask(server, "POST /axum/a", "", b"");
        assert_eq!((refused.status, refused.field("allow")), (405, Some("GET,HEAD")));
    });
}

/// Purpose: `/` mounts a whole application, with the peer's address by way of its make-service.
#[test]
fn make_services() {
    let peer = |ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.ip().to_string() };
    let app = || {
        let axum = axum::Router::new().route("/peer", get(peer));
        Router::new().nest_service("/", axum.into_make_service_with_connect_info::<SocketAddr>())
    };
    on_both(app, |server| assert_eq!(server.get("/peer").text(), "127.0.0.1"));
}

/// Content whose second piece fails, or panics.
fn broken(how: &'static str) -> impl Stream<Item = io::Result<&'static str>> + Send {
    stream::iter(["piece", how]).map(|piece| match piece {
        "fail" => Err(io::Error::other("it is a mood")),
        "panic" => panic!("it is a mood"),
        piece => Ok(piece),
    })
}

/// Purpose: content that fails or panics while it is sent cuts off only its own connection, whether
/// it comes from a service or through a layer.
#[test]
fn content_that_breaks() {
    let app = || {
        let service = axum::Router::new()
            .route("/fail", get(|| async { axum::body::Body::from_stream(broken("fail")) }))
            .route("/panic", get(|| async { axum::body::Body::from_stream(broken("panic")) }));
        let native = Router::new()
            .get("/fail", async || Response::from(highwater::Body::stream(broken("fail"))))
            .get("/panic", async || Response::from(highwater::Body::stream(broken("panic"))))
            .layer(CompressionLayer::new());
        Router::new().nest_service("/service", service).nest("/layered", native).get("/", || "fine")
    };
    on_both(app, |server| {
        for path in ["/service/fail", "/service/panic", "/layered/fail", "/layered/panic"] {
            let mut stream = server.connect();
            let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).expect("the server reads");
            let mut answer = Vec::new();
            // Whether what came before is still read depends on when the reset arrives.
            let cut = stream.read_to_end(&mut answer);
            assert!(cut.is_err() || !answer.ends_with(b"\r\n0\r\n\r\n"), "{path}: {answer:?}");
            assert_eq!(server.get("/").text(), "fine", "after {path}");
        }
    });
}

/// Purpose: a service may hand on what another server answered, `Transfer-Encoding` and all, and content
/// with a status that has none is left out, as under `axum::serve`.
#[test]
fn framing_is_the_servers() {
    let app = || {
        let pieces = || axum::body::Body::from_stream(broken("another"));
        let proxied = move || async move { ([("transfer-encoding", "chunked")], pieces()) };
        let gone = move || async move { (http::StatusCode::NO_CONTENT, pieces()) };
        let known = || async { (http::StatusCode::NOT_MODIFIED, "text") };
        let wrong = || async { ([("content-length", "3")], "text") };
        let service = axum::Router::new()
            .route("/proxied", get(proxied))
            .route("/gone", get(gone))
            .route("/known", get(known))
            .route("/wrong", get(wrong));
        Router::new().fallback_service(service)
    };
    on_both(app, |server| {
        let proxied = server.get("/proxied");
        assert_eq!((proxied.status, proxied.text()), (200, "pieceanother"));
        for (path, status) in [("/gone", 204), ("/known", 304)] {
            let answer = server.get(path);
            assert_eq!((answer.status, answer.text()), (status, ""), "{path}");
        }
        assert_eq!(server.get("/wrong").status, 500);
    });
}

/// Fails, panics, or answers with a future that is not `Send`, by its path.
#[derive(Clone)]
struct Moody;

impl Service<http::Request<Body>> for Moody {
    type Response = http::Response<Body>;
    type Error = std::io::Error;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            match request.uri().path() {
                "/fail" => return Err(std::io::Error::other("the disk is on fire")),
                "/panic" => panic!("it is a mood"),
                "/101" => {
                    let mut response = http::Response::new(Body::empty());
                    *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
                    return Ok(response);
                }
                _ => {}
            }
            let text = std::rc::Rc::new("not Send".to_owned());
            tokio::task::yield_now().await;
            Ok(http::Response::new(Body::from(highwater::Bytes::from(text.as_bytes().to_vec()))))
        })
    }
}

/// Purpose: any service is served; its failures and panics are errors in the application's shape, and
/// tell the peer nothing.
#[test]
fn failures_of_services() {
    let app = || {
        let shape = |error: &Error| format!("ours: {} {}", error.code(), error.message());
        Router::new().nest_service("/", Moody).errors(shape)
    };
    on_both(app, |server| {
        assert_eq!(server.get("/").text(), "not Send");
        for path in ["/fail", "/panic", "/101"] {
            let answer = server.get(path);
            let wanted = (500, "ours: internal Internal Server Error");
            assert_eq!((answer.status, answer.text()), wanted, "{path}");
        }
    });
}

/// Purpose: tower layers and native ones form one list, in the order they are given; a native layer that
/// covers everything is seen on what the tower ones do not cover.
#[test]
fn layers_of_both_kinds() {
    fn mark(name: &'static str) -> Layer {
        layer::on_response(move |_: &Request<'_>, response: &mut Response| {
            response.append_header(header::VIA, HeaderValue::from_static(name));
        })
    }
    fn tower(name: &'static str) -> SetResponseHeaderLayer<HeaderValue> {
        SetResponseHeaderLayer::appending(header::VIA, HeaderValue::from_static(name))
    }
    let app = || {
        Router::new()
            .layer(mark("4").everywhere())
            .layer(tower("3"))
            .layer(mark("2"))
            .layer(tower("1"))
            .get("/inline", || "x")
            .get("/async", async || "x")
            .get("/fixed", fixed("x"))
            .nest_service("/service", axum::Router::new().route("/x", get(|| async { "x" })))
    };
    on_both(app, |server| {
        // In the order they were sent, which an `Answer` does not keep.
        let via = |path: &str| {
            let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
            let answer = server.ask(request.as_bytes());
            let answer = String::from_utf8(answer).expect("the answer is text");
            answer.lines().filter_map(|line| line.strip_prefix("via: ")).collect::<String>()
        };
        for path in ["/inline", "/async", "/service/x", "/missing"] {
            assert_eq!(via(path), "1234", "{path}");
        }
        assert_eq!(via("/fixed"), "4");
    });
}

fn with_layers() -> Router {
    async fn length(mut body: BodyStream) -> Result<String, Error> {
        let mut length = 0;
        while let Some(piece) = body.next().await {
            length += piece?.len();
        }
        Ok(length.to_string())
    }
    Router::new()
        .layer(CorsLayer::permissive())
        .layer(CompressionLayer::new())
        .layer(SetResponseHeaderLayer::overriding(header::SERVER, HeaderValue::from_static("x")))
        .layer(RequestDecompressionLayer::new())
        .errors(|error: &Error| format!("ours: {}", error.code()))
        .get("/text", || "text ".repeat(1000))
        .get("/fail", || Err::<(), _>(Error::conflict("no")))
        .post("/json", |Json(number): Json<u32>| number.to_string())
        .post("/length", length)
        .get("/http", || {
            http::Response::new(http_body_util::Full::new(highwater::Bytes::from("http")))
        })
}

/// Purpose: tower layers cover native routes, errors and 404s; they may answer themselves (a preflight),
/// change a response (compression, fields) and the content of a request (decompression), whole or streamed.
#[test]
fn layers_around_native_routes() {
    // `gzip -9n` of `12345`.
    let zipped = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff\x33\x34\x32\x36\x31\x05\x00\x1c\x3a\xf5\xcb\x05\x00\x00\x00";
    on_both(with_layers, |server| {
        let text = ask(server, "GET /text", "accept-encoding: gzip\r\n", b"");
        assert_eq!(text.field("content-encoding"), Some("gzip"));
        assert!(text.content.starts_with(&[0x1f, 0x8b]) && text.content.len() < 1000);
        assert_eq!(server.get("/text").text(), "text ".repeat(1000));
        let preflight = ask(
            server,
            "OPTIONS /text",
            "origin: a\r\naccess-control-request-method: GET\r\n",
            b"",
        );
        assert_eq!(preflight.status, 200);
        assert_eq!(preflight.field("access-control-allow-origin"), Some("*"));
        let failed = server.get("/fail");
        assert_eq!((failed.status, failed.text()), (409, "ours: conflict"));
        let missing = server.get("/missing");
        assert_eq!((missing.status, missing.field("server")), (404, Some("x")));
        assert_eq!(server.get("/http").text(), "http");
        let typed = "content-type: application/json\r\n";
        assert_eq!(ask(server, "POST /json", typed, b"12").text(), "12");
        assert_eq!(ask(server, "POST /length", "", &[7; 100_000]).text(), "100000");
        let zip = "content-encoding: gzip\r\n";
        assert_eq!(ask(server, "POST /json", &format!("{typed}{zip}"), zipped).text(), "12345");
        assert_eq!(ask(server, "POST /length", zip, zipped).text(), "5");
        let broken = ask(server, "POST /json", &format!("{typed}{zip}"), &zipped[..9]);
        assert_eq!(broken.status, 400);
    });
}

/// Purpose: an upgrade of a native handler passes through layers.
#[test]
fn upgrades_pass_layers() {
    let upgrade = || {
        Response::upgrade(HeaderValue::from_static("shout"), |mut upgraded| async move {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let mut word = [0; 3];
            if upgraded.read_exact(&mut word).await.is_ok() {
                let _ = upgraded.write_all(&word.to_ascii_uppercase()).await;
                let _ = upgraded.shutdown().await;
            }
        })
    };
    let app = move || Router::new().layer(CorsLayer::permissive()).get("/", upgrade);
    on_both(app, |server| {
        let request =
            b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: shout\r\n\r\nabc";
        let answer = String::from_utf8(server.ask(request)).expect("text");
        assert!(answer.starts_with("HTTP/1.1 101 ") && answer.ends_with("\r\n\r\nABC"), "{answer}");
    });
}

/// Purpose: a native router is served in the same place.
#[test]
fn native_routers_are_served() {
    let server = Server::highwater(TransportChoice::Auto, Router::new().get("/", || "native"));
    assert_eq!(server.get("/").text(), "native");
}

/// Asks with chunked content and `trailers` behind it.
fn ask_with_trailers(server: &Server, path: &str, trailers: &str) -> Answer {
    let head = format!("POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n");
    let body = format!("transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n{trailers}\r\n");
    Answer::parse(&server.ask((head + &body).as_bytes()), Asked::Plain)
}

/// Purpose: trailers of requests reach native streams, services, and what is behind layers that change
/// content; without those that cannot be trailers. What is taken whole has none, and malformed ones are refused.
#[test]
fn trailers_of_requests() {
    fn joined(trailers: &http::HeaderMap) -> String {
        let line = |(name, value): (&http::HeaderName, &HeaderValue)| format!("{name}={value:?};");
        trailers.iter().map(line).collect()
    }
    async fn native(mut body: BodyStream) -> Result<String, Error> {
        while let Some(piece) = body.next().await {
            piece?;
        }
        Ok(joined(&body.take_trailers()))
    }
    async fn service(body: axum::body::Body) -> Result<String, http::StatusCode> {
        let content = http_body_util::BodyExt::collect(body).await;
        let content = content.map_err(|_| http::StatusCode::BAD_REQUEST)?;
        Ok(content.trailers().map(joined).unwrap_or_default())
    }
    let app = || {
        let service = axum::Router::new().route("/x", axum::routing::post(service));
        let layered = Router::new()
            .layer(CorsLayer::permissive())
            .layer(RequestDecompressionLayer::new())
            .post("/native", native)
            .nest_service("/service", service.clone());
        let whole = async |content: highwater::Bytes| content;
        let plain = Router::new().post("/native", native).post("/whole", whole);
        plain.nest_service("/service", service).nest("/layered", layered)
    };
    on_both(app, |server| {
        let trailers = "X-Sum: 6\r\nContent-Length: 9\r\nHost: evil\r\nx-sum: 7\r\n";
        for path in ["/native", "/service/x", "/layered/native", "/layered/service/x"] {
            let answer = ask_with_trailers(server, path, trailers);
            assert_eq!((answer.status, answer.text()), (200, "x-sum=\"6\";x-sum=\"7\";"), "{path}");
            assert_eq!(ask_with_trailers(server, path, "").text(), "", "{path}");
            assert_eq!(ask_with_trailers(server, path, "a b\r\n").status, 400, "{path}");
        }
        assert_eq!(ask_with_trailers(server, "/whole", trailers).text(), "abc");
    });
}

/// Purpose: an axum handler learns that its client has finished sending.
#[test]
fn services_learn_that_clients_go() {
    use axum::Extension;
    let wait = |Extension(gone): Extension<highwater::Disconnected>| async {
        gone.await;
        "gone"
    };
    let app = || Router::new().nest_service("/", axum::Router::new().route("/", get(wait)));
    on_both(app, |server| {
        let mut stream = server.connect();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").expect("the server reads");
        stream.shutdown(std::net::Shutdown::Write).expect("it is open");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it is answered all the same");
        assert_eq!(Answer::parse(&answer, Asked::Plain).text(), "gone");
    });
}

/// Where layered services were made and dropped.
#[derive(Debug, Default)]
struct Life {
    made: Vec<ThreadId>,
    dropped: Vec<ThreadId>,
}

/// Counts the requests of each worker. Its services stay on their threads.
#[derive(Clone, Default)]
struct CountLayer(Arc<Mutex<Life>>);

impl<S> tower_layer::Layer<S> for CountLayer {
    type Service = CountService<S>;

    fn layer(&self, inner: S) -> CountService<S> {
        let runtime = tokio::runtime::Handle::try_current();
        assert!(runtime.is_ok(), "a layer that spawns tasks can do so");
        let mut life = self.0.lock().expect("no test panics with it");
        life.made.push(std::thread::current().id());
        let number = life.made.len();
        CountService {
            inner,
            counter: Rc::new(Counter { number, count: Cell::new(0), life: self.0.clone() }),
        }
    }
}

struct Counter {
    number: usize,
    count: Cell<u64>,
    life: Arc<Mutex<Life>>,
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.life.lock().expect("no test panics with it").dropped.push(std::thread::current().id());
    }
}

#[derive(Clone)]
struct CountService<S> {
    inner: S,
    counter: Rc<Counter>,
}

impl<S, B> Service<http::Request<B>> for CountService<S>
where
    S: Service<http::Request<B>, Response = http::Response<Body>>,
    S::Future: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let (answer, counter) = (self.inner.call(request), self.counter.clone());
        Box::pin(async move {
            let mut answer = answer.await?;
            counter.count.set(counter.count.get() + 1);
            let value = format!("{} of {}", counter.count.get(), counter.number);
            let value = HeaderValue::from_str(&value).expect("digits are a value");
            answer.headers_mut().insert("x-count", value);
            Ok(answer)
        })
    }
}

/// Purpose: of each layer there is one instance a worker: made on its thread, within its runtime; not `Send`;
/// counting the requests of that worker only; and dropped there. Requests of other routes count, too.
#[test]
fn layers_have_one_instance_a_worker() {
    for under in HIGHWATER {
        let Under::Highwater(transport) = under else { continue };
        let (outer, inner) = (CountLayer::default(), CountLayer::default());
        let nested = Router::new().layer(inner.clone()).get("/b", async || "b");
        let app = Router::new().layer(outer.clone()).get("/a", || "a").nest("/nested", nested);
        let server = Server::highwater(transport, app);
        let mut counts = [0_u64; 2];
        for _ in 0..20 {
            // Two requests on one connection are on one worker.
            let two = b"GET /a HTTP/1.1\r\nhost: a\r\n\r\n\
                GET /nested/b HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
            let answers = String::from_utf8(server.ask(two)).expect("it is text");
            let values = answers.lines().filter_map(|line| line.strip_prefix("x-count: "));
            let values: Vec<&str> = values.collect();
            let [(first, of), (second, of_second)] = [values[0], values[1]]
                .map(|value| value.split_once(" of ").expect("so it is said"));
            assert_eq!(of, of_second, "one worker has one instance");
            let count = &mut counts[of.parse::<usize>().expect("a number") - 1];
            assert_eq!((first.parse(), second.parse()), (Ok(*count + 1), Ok(*count + 2)));
            *count += 2;
        }
        assert_eq!(counts.iter().sum::<u64>(), 40);
        server.stop().expect("it drains");
        for layer in [outer, inner] {
            let mut life = layer.0.lock().expect("no test panics with it");
            assert_eq!(life.made.len(), 2, "one for each of two workers");
            assert_ne!(life.made[0], life.made[1]);
            let Life { made, dropped } = &mut *life;
            made.sort_by_key(|id| format!("{id:?}"));
            dropped.sort_by_key(|id| format!("{id:?}"));
            assert_eq!(made, dropped, "they are dropped where they were made");
        }
    }
}

/// Purpose: layers that want the future within them to be `Send` compile around native routes, and work: axum's own
/// middleware around a handler whose future is not `Send`.
#[test]
fn layers_that_want_a_send_future() {
    use axum::middleware::{self, Next};
    use tower_http::map_request_body::MapRequestBodyLayer;

    async fn name(request: axum::extract::Request, next: Next) -> axum::response::Response {
        if request.headers().contains_key("x-refused") {
            return axum::response::IntoResponse::into_response(http::StatusCode::FORBIDDEN);
        }
        let mut response = next.run(request).await;
        response.headers_mut().insert("x-named", HeaderValue::from_static("yes"));
        response
    }

    async fn native(content: String) -> String {
        let not_send = Rc::new(Cell::new(content.len()));
        tokio::task::yield_now().await;
        format!("{} bytes", not_send.get())
    }

    let app = || {
        Router::new()
            .layer(tower_layer::Stack::new(
                middleware::from_fn(name),
                MapRequestBodyLayer::new(axum::body::Body::new), // The outer one of the two.
            ))
            .post("/", native)
    };
    on_both(app, |server| {
        let answer = ask(server, "POST /", "", b"12345");
        assert_eq!((answer.status, answer.text()), (200, "5 bytes"));
        assert_eq!(answer.field("x-named"), Some("yes"));
        assert_eq!(ask(server, "POST /", "x-refused: 1\r\n", b"").status, 403);
    });
}
