//! The application as its worker sees it: heads in, responses out, no socket.

mod allocations;
mod collected;
mod cover;
mod extract;
mod fair;
mod layers;
mod onion;
mod respond;
mod route;
mod tuple;
mod wrapped;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::app::routed::Routed;
use highwater_core::http::{self as core_http, BodyPlan, Limits};
use highwater_core::http1::{self, Connection, Scratch};
use highwater_core::link::Link;
use highwater_core::time::Instant;

use http::{HeaderValue, StatusCode};

use super::*;
use crate::app::body::Repr;

/// Builds a router that has to be right.
pub(super) fn build(router: Router) -> App {
    router.build().unwrap_or_else(|error| panic!("{error}"))
}

/// An answer as a client receives it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) status: u16,
    pub(super) body: String,
    pub(super) headers: Vec<(String, String)>,
}

impl Received {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(existing, _)| existing == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} is there twice");
        value
    }
}

/// Has `app` answer a request, futures polled and jobs run to their end.
pub(super) fn request(app: &App, raw: &str) -> Response {
    let from = SocketAddr::from(([192, 0, 2, 7], 4711));
    request_with(app, raw, Some(from), Vec::new())
}

/// Like [`request`]; `pieces` follow as a streamed body.
pub(super) fn request_with(
    app: &App,
    raw: &str,
    peer: Option<SocketAddr>,
    pieces: Vec<&'static str>,
) -> Response {
    let limits = Limits::default();
    let mut connection = Connection::new(Instant::ZERO);
    let (mut scratch, mut input) = (Scratch::default(), raw.as_bytes());
    let mut routed = Routed::default();
    let mut target = None;
    let next = connection.next(
        &mut Link::new(),
        &mut input,
        &mut scratch,
        &limits,
        Instant::ZERO,
        |head| {
            let found = app.find(head, &mut routed.params);
            target = Some(found);
            app.plan(found, &limits)
        },
    );
    let request = match next {
        http1::Next::Request(request) => request,
        http1::Next::Reject(reject) => return app.fail(None, Error::of_reject(reject)),
        other => panic!("the request is not complete: {other:?}"),
    };
    let target = target.expect("every head is planned for");
    let body = match request.body {
        core_http::Body::Whole(bytes) => RequestBody::Whole(bytes),
        core_http::Body::Collected(bytes) => RequestBody::Collected(bytes),
        core_http::Body::Streamed if app.reads_stream(target) => {
            let (feed, stream) = channel(1024, Waker::noop().clone());
            pieces.into_iter().for_each(|piece| feed.push(piece.as_ref()));
            feed.finish();
            RequestBody::Stream(stream)
        }
        core_http::Body::Streamed => RequestBody::Whole(&[]),
    };
    let disconnected = Default::default();
    let request = app.request(target, &request.head, &routed, body, peer, &disconnected);
    match guarded(|| call(app, &request)) {
        Ok(outcome) => resolve(outcome),
        Err(panic) => app.fail(Some(target), Error::internal(panic)),
    }
}

/// Calls the application as a worker does.
fn call<'a>(app: &'a App, request: &Request<'_>) -> Outcome<'a> {
    let mut outcome = app.call(request);
    request.with_head(|head| app.render(request.route(), head, &mut outcome));
    outcome
}

fn resolve(outcome: Outcome<'_>) -> Response {
    match outcome {
        Outcome::Ready(response) => response,
        Outcome::Later(future) => block_on(future).expect("the app's futures catch"),
        Outcome::Offload(job) => job.run().expect("the app's jobs catch"),
        Outcome::Fixed(fixed) => {
            let status = StatusCode::from_u16(fixed.status()).expect("it came from one");
            let mut response = Response::new(status).with_body(fixed.body().clone());
            for (name, value) in fixed.fields().iter() {
                let value = HeaderValue::from_bytes(value).expect("a value");
                response.append_header(name.parse().expect("a name"), value);
            }
            response.with_header("x-fixed", "yes")
        }
    }
}

/// Polls a future that must not have to wait for anything.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    for _ in 0..1000 {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
    }
    panic!("the future waits for something that does not come");
}

/// Has `app` answer a request without a body.
pub(super) fn send(app: &App, method: &str, target: &str) -> Received {
    receive(request(app, &format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n")))
}

pub(super) fn get(app: &App, target: &str) -> Received {
    send(app, "GET", target)
}

/// Has `app` answer a `POST` with a body.
pub(super) fn post(app: &App, target: &str, content_type: &str, body: &str) -> Received {
    let length = body.len();
    receive(request(
        app,
        &format!(
            "POST {target} HTTP/1.1\r\nHost: h\r\nContent-Type: {content_type}\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        ),
    ))
}

pub(super) fn receive(mut response: Response) -> Received {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("these tests use UTF-8");
    let headers = response.headers().map(|(name, value)| (name.into(), text(value))).collect();
    let status = response.status().as_u16();
    let body = match response.take_body().into_repr() {
        Repr::Stream(mut stream, _) => block_on(async {
            let mut whole = Vec::new();
            while let Some(piece) = std::future::poll_fn(|context| stream.poll_next(context)).await
            {
                whole.extend_from_slice(&piece.expect("these bodies do not fail"));
            }
            text(&whole)
        }),
        Repr::Empty => String::new(),
        Repr::Static(bytes) => text(bytes),
        Repr::Owned(bytes) => text(&bytes),
        Repr::Pooled(bytes) => text(&bytes),
        Repr::Shared(bytes) => text(&bytes),
        Repr::Upgrade(_) => String::from("(upgrade)"),
    };
    Received { status, body, headers }
}

/// The default rendering of an error.
pub(super) fn rendered(code: &str, message: &str) -> String {
    let message = message.replace('\\', "\\\\").replace('"', "\\\"");
    format!("{{\"error\":{{\"code\":\"{code}\",\"message\":\"{message}\"}}}}")
}

/// Purpose: the plan for a body follows from the handler's arguments.
#[test]
fn plans() {
    async fn streamed(_: BodyStream) {}
    let app = build(
        Router::new()
            .get("/none", || "")
            .post("/whole", |_: bytes::Bytes| "")
            .post("/streamed", streamed)
            .post("/more", (|_: String| "").body_max(8 << 20)),
    );
    let limits = Limits { body_max: 10, ..Limits::default() };
    let plan = |method: &str, path: &str| {
        let raw = format!("{method} {path} HTTP/1.1\r\nHost: h\r\n\r\n");
        let mut planned = None;
        Connection::new(Instant::ZERO).next(
            &mut Link::new(),
            &mut raw.as_bytes(),
            &mut Scratch::default(),
            &limits,
            Instant::ZERO,
            |head| {
                let plan = app.plan(app.find(head, &mut Routed::default().params), &limits);
                planned = Some(plan);
                plan
            },
        );
        planned.expect("the head is complete")
    };
    assert_eq!(plan("GET", "/none"), BodyPlan::Unwanted);
    assert_eq!(plan("POST", "/whole"), BodyPlan::Whole(10));
    assert_eq!(plan("POST", "/streamed"), BodyPlan::Streamed(10));
    assert_eq!(plan("POST", "/more"), BodyPlan::Whole(8 << 20));
    assert_eq!(plan("POST", "/nowhere"), BodyPlan::Unwanted);
    assert_eq!(plan("DELETE", "/whole"), BodyPlan::Unwanted);
}

/// Purpose: what the worker has to set up follows from the handlers, and no more.
#[test]
fn needs() {
    let needs = |router: Router| {
        let app = build(router);
        (app.needs_runtime(), app.awaits_pool(), app.needs_peer())
    };
    assert_eq!(needs(Router::new().get("/", || "")), (false, false, false));
    assert_eq!(needs(Router::new().get("/", async || "")), (true, false, false));
    assert_eq!(needs(Router::new().get("/", blocking(|| ""))), (false, false, false));
    let around = || layer::around(async |request, next: Next| next.run(request).await);
    let covered = || Router::new().layer(around());
    assert_eq!(needs(covered().get("/", blocking(|| ""))), (true, true, false));
    assert_eq!(needs(Router::new().get("/", |_: Option<PeerAddr>| "")), (false, false, true));
    assert_eq!(needs(Router::new().peer_addresses()), (false, false, true));
    assert_eq!(needs(Router::new().nest("/x", covered())), (true, false, false));
}
