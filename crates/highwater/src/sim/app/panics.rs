//! Panics in all code of an application that runs or is dropped.

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use super::{Alive, Shared, SharedState, Yield, piece, stream_of};
use crate::app::{
    Body, BodyStream, Error, FromRequest, Handler, IntoResponse, Next, OwnedRequest, Path, Request,
    Response, Router, State, blocking, layer,
};

pub(super) fn router() -> Router {
    contained().merge(dropped())
}

/// Panics in code that is called.
fn contained() -> Router {
    let before = Router::new()
        .layer(layer::on_request(|_| -> Result<(), Error> { blow() }))
        .get("/bomb/before", || "unreachable")
        .get("/bomb/before-async", async || "unreachable");
    let after = Router::new()
        .layer(layer::on_response(|_, _| blow()))
        .get("/bomb/after", || "ok")
        .get("/bomb/after-async", async || "ok")
        .get("/bomb/after-pool", blocking(|| "ok"));
    let layers = Router::new().layer(layer::around(bad_layer)).get("/bomb/layer/{when}", || "ok");
    let renderer = Router::new()
        .errors(|_: &Error| -> &'static str { blow() })
        .get("/bomb/render", || Err::<&str, _>(Error::bad_request("no")))
        .get("/bomb/render-async", async || Err::<&str, _>(Error::bad_request("no")))
        .get("/bomb/render-panic", || -> &'static str { blow() });
    Router::new()
        .get("/bomb/inline", || -> &'static str { blow() })
        .get("/bomb/async/{polls}", late)
        .get("/bomb/pool", blocking(|| -> &'static str { blow() }))
        .get("/bomb/extract", |_: BadArgument| "unreachable")
        .get("/bomb/extract-async", async |_: BadArgument| "unreachable")
        .get("/bomb/into", || BadAnswer)
        .get("/bomb/into-async", async || BadAnswer)
        .get("/bomb/into-pool", blocking(|| BadAnswer))
        .get("/bomb/stream/{n}", bad_stream)
        .get("/bomb/upgraded/{polls}", upgraded.never_shed())
        .post("/bomb/body", body)
        .get("/bomb/detached/{polls}", late.detached())
        .merge(before)
        .merge(after)
        .merge(layers)
        .merge(renderer)
}

/// Panics in values that are dropped, and where no handler call surrounds the panic.
fn dropped() -> Router {
    Router::new()
        .get("/drop/payload", || -> &'static str { blow_with(Bomb) })
        .get("/drop/payload-async", async || -> &'static str { blow_with(Bomb) })
        .get("/drop/payload-pool", blocking(|| -> &'static str { blow_with(Bomb) }))
        .get("/drop/payload-stream", payload_stream)
        .get("/drop/locals/{polls}", locals)
        .get("/drop/locals-detached/{polls}", locals.detached())
        .get("/drop/future/{polls}", |Path(polls): Path<usize>, State(shared): SharedState| {
            BadFuture { polls: Yield(polls), _bomb: Bomb, _alive: shared.enter() }
        })
        .get("/drop/stream/{n}", stream)
        .get("/drop/closure", closure.never_shed())
        .get("/drop/upgraded/{polls}", bad_upgraded.never_shed())
}

/// Panics, without the hook that prints.
fn blow() -> ! {
    resume_unwind(Box::new("simulated"))
}

fn blow_with(payload: Bomb) -> ! {
    resume_unwind(Box::new(payload))
}

/// Panics when it is dropped, unless that would end the process.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            blow();
        }
    }
}

struct BadArgument;

impl FromRequest for BadArgument {
    fn from_request(_: &Request<'_>) -> Result<Self, Error> {
        blow()
    }
}

struct BadAnswer;

impl IntoResponse for BadAnswer {
    fn into_response(self) -> Response {
        blow()
    }
}

async fn bad_layer(request: OwnedRequest, next: Next) -> Response {
    if request.path().ends_with("/before") {
        blow();
    }
    let response = next.run(request).await;
    if response.status() == StatusCode::OK {
        blow();
    }
    response
}

/// Panics at its last poll.
async fn late(Path(polls): Path<usize>, State(shared): SharedState) -> &'static str {
    let _alive = shared.enter();
    Yield(polls).await;
    blow()
}

/// Panics when the whole body has come.
async fn body(mut body: BodyStream, State(shared): SharedState) -> &'static str {
    let _alive = shared.enter();
    while let Some(Ok(_)) = body.next().await {}
    blow()
}

/// Panics instead of a last piece.
fn bad_stream(Path(count): Path<u64>, State(shared): SharedState) -> Body {
    pieces_then(count, shared, || blow())
}

fn payload_stream(State(shared): SharedState) -> Body {
    pieces_then(3, shared, || blow_with(Bomb))
}

fn pieces_then(count: u64, shared: Arc<Shared>, end: fn()) -> Body {
    let (mut next, alive) = (0, shared.enter());
    Body::stream(stream_of(move |_| {
        let _alive = &alive;
        if next == count {
            end();
        }
        next += 1;
        Poll::Ready(Some(piece(next - 1)))
    }))
}

fn upgraded(Path(polls): Path<usize>, State(shared): SharedState) -> Response {
    Response::upgrade(HeaderValue::from_static("bad"), move |_upgraded| async move {
        let _alive = shared.enter();
        Yield(polls).await;
        blow()
    })
}

/// Its local values panic when its client disconnects before its end, or at its end.
async fn locals(Path(polls): Path<usize>, State(shared): SharedState) -> &'static str {
    let _alive = shared.enter();
    let _bomb = Bomb;
    Yield(polls).await;
    "unreachable: the bomb goes off first"
}

/// Is ready, and panics when it is dropped.
struct BadFuture {
    polls: Yield,
    _bomb: Bomb,
    _alive: Alive,
}

/// Sends all pieces, and then panics when it is dropped.
fn stream(Path(count): Path<u64>, State(shared): SharedState) -> Body {
    let (mut next, alive, bomb) = (0, shared.enter(), Bomb);
    Body::stream(stream_of(move |_| {
        let _held = (&alive, &bomb);
        next += 1;
        Poll::Ready((next <= count).then(|| piece(next - 1)))
    }))
}

fn closure() -> Response {
    Response::upgrade(HeaderValue::from_static("bad"), |_upgraded| -> std::future::Ready<()> {
        blow()
    })
}

fn bad_upgraded(Path(polls): Path<usize>, State(shared): SharedState) -> Response {
    Response::upgrade(HeaderValue::from_static("bad"), move |_upgraded| async move {
        let _alive = shared.enter();
        let _bomb = Bomb;
        Yield(polls).await;
    })
}

impl Future for BadFuture {
    type Output = Bytes;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Bytes> {
        Pin::new(&mut self.polls).poll(cx).map(|()| Bytes::from_static(b"dropped"))
    }
}
