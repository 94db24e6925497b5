//! Every layer of tower-http 0.7 around native routes: the table of `docs/recipes.md`, a test for each row.
#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use highwater::http::{self, HeaderName, HeaderValue, header};
use highwater::sse::{Event, Sse};
use highwater::testing::{Client, Response};
use highwater::tower::Body;
use highwater::{Bytes, Extension, HeaderMap, Method, Response as Answer, Router, StatusCode};
use http_body_util::BodyExt as _;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::CorsLayer;
use tower_http::csrf::CsrfLayer;
use tower_http::follow_redirect::FollowRedirectLayer;
use tower_http::normalize_path::NormalizePathLayer;
use tower_http::propagate_header::PropagateHeaderLayer;
use tower_http::services::{Redirect, ServeDir, ServeFile};
use tower_http::set_status::SetStatusLayer;
use tower_http::timeout::{
    RequestBodyDeadlineLayer, RequestBodyTimeoutLayer, ResponseBodyDeadlineLayer,
    ResponseBodyTimeoutLayer, TimeoutLayer,
};
use tower_http::{add_extension, auth, compression, decompression, limit, map_request_body};
use tower_http::{map_response_body, metrics, on_early_drop, request_id, sensitive_headers};
use tower_http::{set_header, trace, validate_request};
use tower_layer::Stack;

const TEST: HeaderName = HeaderName::from_static("x-test");
const SECOND: Duration = Duration::from_secs(1);

/// Routes to put a layer around.
fn routes() -> Router {
    Router::new()
        .get("/", async || "hello")
        .get("/sees", async |fields: HeaderMap| {
            let value =
                fields.get(TEST).map(|value| (value.to_str().unwrap_or("?"), value.is_sensitive()));
            format!("{value:?}")
        })
        .get("/says", async || ([("x-test", "handler")], "hello"))
        .get("/large", async || "hello ".repeat(1000))
        .get("/slow", async || {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            "late"
        })
        .get("/panics", panics)
        .post("/", async |content: Bytes| content)
}

async fn panics() -> &'static str {
    panic!("as it was asked for")
}

/// Those routes within a layer.
macro_rules! within {
    ($layer:expr) => {
        Client::new(routes().layer($layer))
    };
}

fn ask(client: &Client, target: &str, name: &str, value: &str) -> Response {
    client.request(Method::GET, target).header(name, value).send()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
    encoder.write_all(content).expect("into memory");
    encoder.finish().expect("into memory")
}

/// Purpose: `AddExtensionLayer` gives handlers a value.
#[test]
fn add_extension() {
    let router = Router::new().layer(add_extension::AddExtensionLayer::new(7_u8));
    let client =
        Client::new(router.get("/", async |Extension(seven): Extension<u8>| seven.to_string()));
    assert_eq!(client.get("/").text(), "7");
}

/// Purpose: `AddAuthorizationLayer` adds the field for what is behind it.
#[test]
fn add_authorization() {
    let router = Router::new().layer(auth::AddAuthorizationLayer::bearer("token"));
    let client = Client::new(router.get("/", async |fields: HeaderMap| {
        fields[header::AUTHORIZATION].to_str().unwrap_or("?").to_owned()
    }));
    assert_eq!(client.get("/").text(), "Bearer token");
}

/// Purpose: `AsyncRequireAuthorizationLayer` waits for a verdict, and lets nobody through without one.
#[test]
fn async_require_authorization() {
    let check = |request: http::Request<Body>| async move {
        tokio::time::sleep(SECOND).await;
        match request.headers().contains_key(header::AUTHORIZATION) {
            true => Ok(request),
            false => {
                let mut refused = http::Response::new(Body::empty());
                *refused.status_mut() = StatusCode::UNAUTHORIZED;
                Err(refused)
            }
        }
    };
    let client = within!(auth::AsyncRequireAuthorizationLayer::new(check));
    assert_eq!(client.get("/").status, 401);
    assert_eq!(ask(&client, "/", "authorization", "x").text(), "hello");
}

/// Purpose: `ValidateRequestHeaderLayer` refuses what the client does not accept.
#[test]
fn validate_request_header() {
    let client = within!(validate_request::ValidateRequestHeaderLayer::accept("text/plain"));
    assert_eq!(ask(&client, "/", "accept", "text/plain").text(), "hello");
    assert_eq!(ask(&client, "/", "accept", "image/png").status, 406);
}

/// Purpose: `CatchPanicLayer` is never reached by a panic of a native handler: the server answers it before, with 500.
#[test]
fn catch_panic() {
    let client = within!(CatchPanicLayer::new());
    assert_eq!(client.get("/panics").status, 500);
    assert_eq!(client.get("/").text(), "hello");
}

/// Purpose: `CompressionLayer` compresses what handlers answer.
#[test]
fn compression() {
    let client = within!(compression::CompressionLayer::new());
    let answer = ask(&client, "/large", "accept-encoding", "gzip");
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(&answer.body[..]).read_to_string(&mut text).expect("it is gzip");
    assert_eq!(text, "hello ".repeat(1000));
}

/// Purpose: `DecompressionLayer` decodes what a handler has passed on from elsewhere.
#[test]
fn decompression() {
    let router = Router::new().layer(decompression::DecompressionLayer::new());
    let zipped = gzip(b"hello");
    let client =
        Client::new(router.get("/", move || {
            Answer::from(zipped.clone()).with_header("content-encoding", "gzip")
        }));
    let answer = client.get("/");
    assert_eq!((answer.text(), answer.header("content-encoding")), ("hello", None));
}

/// Purpose: `RequestDecompressionLayer` decodes what clients send.
#[test]
fn request_decompression() {
    let client = within!(decompression::RequestDecompressionLayer::new());
    let request = client.request(Method::POST, "/").header("content-encoding", "gzip");
    assert_eq!(request.body(gzip(b"hello")).send().text(), "hello");
}

/// Purpose: `CorsLayer` answers preflights and lets scripts of other sites read.
#[test]
fn cors() {
    let client = within!(CorsLayer::permissive());
    let answer = ask(&client, "/", "origin", "https://a.example");
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    let preflight = client
        .request(Method::OPTIONS, "/")
        .header("origin", "https://a.example")
        .header("access-control-request-method", "POST")
        .send();
    assert_eq!(preflight.header("access-control-allow-methods"), Some("*"));
}

/// Purpose: `CsrfLayer` refuses what another site sends in its visitor's name.
#[test]
fn csrf() {
    let client = within!(CsrfLayer::new());
    let post = |site: &str| client.request(Method::POST, "/").header("sec-fetch-site", site).send();
    assert_eq!(
        (post("cross-site").status.as_u16(), post("same-origin").status.as_u16()),
        (403, 200)
    );
}

/// Purpose: `FollowRedirectLayer`, which is for clients, leaves a redirect for a browser alone: its target has no host here.
#[test]
fn follow_redirect() {
    let router = Router::new().layer(FollowRedirectLayer::new());
    let client = Client::new(router.get("/", async || highwater::Redirect::temporary("/there")));
    let answer = client.get("/");
    assert_eq!((answer.status.as_u16(), answer.header("location")), (307, Some("/there")));
}

/// Purpose: `RequestBodyLimitLayer` refuses longer content with 413.
#[test]
fn request_body_limit() {
    let client = within!(limit::RequestBodyLimitLayer::new(5));
    assert_eq!(client.post("/", "hello").text(), "hello");
    assert_eq!(client.post("/", "hello!").status, 413);
}

/// Purpose: `MapRequestBodyLayer` and `MapResponseBodyLayer` change content on its way.
#[test]
fn map_bodies() {
    let client = within!(map_request_body::MapRequestBodyLayer::new(|content: Body| {
        content.map_frame(|frame| frame.map_data(|data| Bytes::from(data.to_ascii_uppercase())))
    }));
    assert_eq!(client.post("/", "hello").text(), "HELLO");
    let client = within!(map_response_body::MapResponseBodyLayer::new(|content: Body| {
        content.map_frame(|frame| frame.map_data(|data| Bytes::from(data.to_ascii_uppercase())))
    }));
    assert_eq!(client.get("/").text(), "HELLO");
}

/// Purpose: `InFlightRequestsLayer` counts the requests that are under way.
#[test]
fn in_flight_requests() {
    let (layer, counter) = metrics::InFlightRequestsLayer::pair();
    let client = within!(layer);
    let mut slow = client.connect();
    slow.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    client.advance(SECOND);
    assert_eq!(counter.get(), 1);
    client.advance(Duration::from_secs(3600));
    assert!(slow.received().ends_with(b"late"));
    assert_eq!(counter.get(), 0);
}

/// Purpose: `NormalizePathLayer` does nothing to the route, which is chosen before; `Router::trailing_slash` does.
#[test]
fn normalize_path() {
    let client = within!(NormalizePathLayer::trim_trailing_slash());
    assert_eq!(
        (client.get("/large").status.as_u16(), client.get("/large/").status.as_u16()),
        (200, 404)
    );
}

/// Purpose: `OnEarlyDropLayer` notices clients that leave before their answer.
#[test]
fn on_early_drop() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&dropped);
    let client = within!(on_early_drop::OnEarlyDropLayer::builder().on_future_drop(
        move |_: &http::Request<Body>| {
            let counter = Arc::clone(&counter);
            move || {
                counter.fetch_add(1, Ordering::SeqCst);
            }
        }
    ));
    assert_eq!(client.get("/").status, 200);
    let mut gone = client.connect();
    gone.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    client.advance(SECOND);
    assert_eq!(dropped.load(Ordering::SeqCst), 0);
    drop(gone);
    client.advance(SECOND);
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

/// Purpose: `PropagateHeaderLayer` repeats a field of the request in the answer.
#[test]
fn propagate_header() {
    let client = within!(PropagateHeaderLayer::new(TEST));
    assert_eq!(ask(&client, "/", "x-test", "7").header("x-test"), Some("7"));
}

/// Purpose: `SetRequestIdLayer` gives requests an id, and `PropagateRequestIdLayer` answers it.
#[test]
fn request_ids() {
    let ids = routes()
        .layer(request_id::SetRequestIdLayer::x_request_id(request_id::MakeRequestUuid))
        .layer(request_id::PropagateRequestIdLayer::x_request_id());
    let client = Client::new(ids);
    assert_eq!(client.get("/").header("x-request-id").map(str::len), Some(36));
    assert_eq!(ask(&client, "/", "x-request-id", "mine").header("x-request-id"), Some("mine"));
}

/// Purpose: the deadlines of requests' content: for the whole, and for each piece.
#[test]
fn request_body_timeouts() {
    let begun = |client: &Client| {
        let mut connection = client.connect();
        connection.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
        client.advance(SECOND / 2);
        assert!(connection.received().is_empty());
        client.advance(SECOND);
        String::from_utf8_lossy(connection.received()).into_owned()
    };
    for answer in [
        begun(&Client::new(streamed().layer(RequestBodyTimeoutLayer::new(SECOND)))),
        begun(&Client::new(streamed().layer(RequestBodyDeadlineLayer::new(SECOND)))),
    ] {
        assert!(answer.contains("cut off"), "{answer}");
    }
    let client = Client::new(streamed().layer(RequestBodyTimeoutLayer::new(SECOND)));
    assert_eq!(client.post("/", "hello").text(), "5 bytes");
}

/// Takes content as it comes, so that a layer sees it before it is whole.
fn streamed() -> Router {
    Router::new().post("/", async |mut content: highwater::BodyStream| {
        let mut bytes = 0;
        while let Some(piece) = content.next().await {
            match piece {
                Ok(piece) => bytes += piece.len(),
                Err(_) => return "cut off".to_owned(),
            }
        }
        format!("{bytes} bytes")
    })
}

/// Purpose: the deadlines of answers' content, for the whole and for each piece, cut the connection.
#[test]
fn response_body_timeouts() {
    let endless = || {
        Router::new().get("/", async || {
            let (mut sender, content) = highwater::Body::channel();
            tokio::task::spawn_local(async move {
                while sender.send("tick").await.is_ok() {
                    tokio::time::sleep(Duration::from_secs(20)).await;
                }
            });
            Answer::from(content)
        })
    };
    for client in [
        Client::new(endless().layer(ResponseBodyTimeoutLayer::new(10 * SECOND))),
        Client::new(endless().layer(ResponseBodyDeadlineLayer::new(10 * SECOND))),
    ] {
        let mut connection = client.connect();
        connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client.advance(9 * SECOND);
        assert!(!connection.is_closed());
        client.advance(2 * SECOND);
        assert!(connection.is_closed());
        assert!(!connection.received().ends_with(b"\r\n0\r\n\r\n"), "it is not whole");
    }
}

fn value(value: &'static str) -> HeaderValue {
    HeaderValue::from_static(value)
}

/// Purpose: `SetRequestHeaderLayer` and `SetMultipleRequestHeadersLayer` set what handlers see.
#[test]
fn set_request_headers() {
    use set_header::request::SetMultipleRequestHeadersLayer;
    let one = within!(set_header::SetRequestHeaderLayer::overriding(TEST, value("layer")));
    assert_eq!(ask(&one, "/sees", "x-test", "client").text(), r#"Some(("layer", false))"#);
    let several = SetMultipleRequestHeadersLayer::<http::Request<Body>>::overriding(vec![
        (TEST, value("layer")).into(),
    ]);
    assert_eq!(within!(several).get("/sees").text(), r#"Some(("layer", false))"#);
}

/// Purpose: `SetResponseHeaderLayer` and `SetMultipleResponseHeadersLayer` set what clients see.
#[test]
fn set_response_headers() {
    use set_header::response::SetMultipleResponseHeadersLayer;
    let one = within!(set_header::SetResponseHeaderLayer::if_not_present(TEST, value("layer")));
    assert_eq!(one.get("/").header("x-test"), Some("layer"));
    assert_eq!(one.get("/says").header("x-test"), Some("handler"));
    let several = SetMultipleResponseHeadersLayer::<http::Response<Body>>::overriding(vec![
        (TEST, value("layer")).into(),
    ]);
    assert_eq!(within!(several).get("/says").header("x-test"), Some("layer"));
}

/// Purpose: the layers of sensitive headers mark fields for the layers in the same stack; the mark does not reach handlers, and
/// clients see fields as they are.
#[test]
fn sensitive_headers() {
    use sensitive_headers::{SetSensitiveHeadersLayer, SetSensitiveRequestHeadersLayer};
    let requests = SetSensitiveRequestHeadersLayer::new([TEST]);
    let stacked = within!(Stack::new(tower_layer::layer_fn(Shout), requests.clone()));
    assert_eq!(ask(&stacked, "/", "x-test", "a").header("x-test"), Some("hidden"));
    let both = Stack::new(tower_layer::layer_fn(Shout), SetSensitiveHeadersLayer::new([TEST]));
    assert_eq!(ask(&within!(both), "/", "x-test", "a").header("x-test"), Some("hidden"));
    assert_eq!(ask(&within!(requests), "/sees", "x-test", "a").text(), r#"Some(("a", false))"#);
    let responses = within!(sensitive_headers::SetSensitiveResponseHeadersLayer::new([TEST]));
    assert_eq!(responses.get("/says").header("x-test"), Some("handler"));
}

/// Purpose: `SetStatusLayer` sets the status.
#[test]
fn set_status() {
    let client = within!(SetStatusLayer::new(StatusCode::ACCEPTED));
    assert_eq!((client.get("/").status.as_u16(), client.get("/").text()), (202, "hello"));
}

/// Purpose: `TimeoutLayer` answers in place of a handler that takes too long.
#[test]
fn timeout() {
    let client = within!(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, SECOND));
    assert_eq!(client.get("/slow").status, 504);
    assert_eq!(client.get("/").text(), "hello");
}

/// Purpose: `TraceLayer` sees each answer and its status.
#[test]
fn trace() {
    let seen: Arc<Mutex<Vec<u16>>> = Arc::default();
    let statuses = Arc::clone(&seen);
    let layer = trace::TraceLayer::new_for_http().on_response(
        move |answer: &http::Response<_>, _: Duration, _: &tracing::Span| {
            let _: &http::Response<Body> = answer;
            statuses.lock().expect("it is sound").push(answer.status().as_u16());
        },
    );
    let client = within!(layer);
    assert_eq!(
        (client.get("/").status.as_u16(), client.get("/nowhere").status.as_u16()),
        (200, 404)
    );
    assert_eq!(*seen.lock().expect("it is sound"), [200, 404]);
}

/// Purpose: the services of tower-http are mounted below a prefix.
#[test]
fn services() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("a.txt"), "file").expect("a file");
    let there: Redirect<Body> = Redirect::permanent(http::Uri::from_static("/there"));
    let router = Router::new()
        .nest_service("/files", ServeDir::new(folder.path()))
        .nest_service("/file", ServeFile::new(folder.path().join("a.txt")))
        .nest_service("/old", there);
    // The disk does not wait for a clock of the test's.
    let client = highwater::testing::Setup::new(router).real_time().start();
    assert_eq!(client.get("/files/a.txt").text(), "file");
    assert_eq!(client.get("/files/b.txt").status, 404);
    assert_eq!(client.get("/file").text(), "file");
    let moved = client.get("/old");
    assert_eq!((moved.status.as_u16(), moved.header("location")), (308, Some("/there")));
}

/// The service of a layer of one's own.
#[derive(Clone)]
struct Shout<S>(S);

impl<S> tower_service::Service<http::Request<Body>> for Shout<S>
where
    S: tower_service::Service<
            http::Request<Body>,
            Response = http::Response<Body>,
            Error = Infallible,
        >,
    S::Future: 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    // Neither boxed as `Send` nor used on another thread.
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let is_hidden = request.headers().get(TEST).is_some_and(HeaderValue::is_sensitive);
        let answer = self.0.call(request);
        Box::pin(async move {
            let mut answer = answer.await?;
            answer.headers_mut().insert(TEST, value(if is_hidden { "hidden" } else { "LOUD" }));
            Ok(answer)
        })
    }
}

/// Purpose: a layer of one's own needs no future that is `Send`.
#[test]
fn own_layer() {
    let client = within!(tower_layer::layer_fn(Shout));
    assert_eq!(client.get("/").header("x-test"), Some("LOUD"));
}

/// Purpose: a stream of events ends when its server drains, also where a layer has wrapped it. Once, it was cut off when the drain
/// had waited for it to its end.
#[test]
fn events_end_at_a_drain() {
    let ticks = async || {
        Sse::run(|mut events| async move {
            while events.send(Event::data("tick")).await.is_ok() {
                tokio::time::sleep(SECOND).await;
            }
        })
    };
    let routes = || Router::new().get("/ticks", ticks);
    for router in [routes(), routes().layer(trace::TraceLayer::new_for_http())] {
        let client = Client::new(router);
        let mut events = client.events("/ticks");
        assert!(events.next().is_some());
        client.drain();
        assert!(events.has_ended());
        client.advance(SECOND);
        assert_eq!(client.connections(), 0);
    }
}
