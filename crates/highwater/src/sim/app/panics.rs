//! Panics wherever code of an application runs, and wherever something of it is dropped.

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use super::{Books, Guest, Ledger, Yield, piece, stream_of};
use crate::app::{
    Body, BodyStream, Error, FromRequest, Handler, IntoResponse, MiddlewareRequest, Next, Path,
    Request, Response, Router, State, blocking,
};

pub(super) fn router() -> Router {
    contained().merge(dropped())
}

/// Panics in code that is called.
fn contained() -> Router {
    let hooks = Router::new()
        .before(|_| blow())
        .get("/bomb/before", || "unreachable")
        .get("/bomb/before-async", async || "unreachable");
    let after = Router::new()
        .after(|_, _| blow())
        .get("/bomb/after", || "ok")
        .get("/bomb/after-async", async || "ok")
        .get("/bomb/after-pool", blocking(|| "ok"));
    let layers = Router::new().middleware(bad_layer).get("/bomb/layer/{when}", || "ok");
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
        .merge(hooks)
        .merge(after)
        .merge(layers)
        .merge(renderer)
}

/// Panics in what is dropped, and where nothing else stands around the call.
fn dropped() -> Router {
    Router::new()
        .get("/drop/payload", || -> &'static str { blow_with(Bomb) })
        .get("/drop/payload-async", async || -> &'static str { blow_with(Bomb) })
        .get("/drop/payload-pool", blocking(|| -> &'static str { blow_with(Bomb) }))
        .get("/drop/payload-stream", payload_stream)
        .get("/drop/locals/{polls}", locals)
        .get("/drop/locals-detached/{polls}", locals.detached())
        .get("/drop/future/{polls}", |Path(polls): Path<usize>, State(ledger): Books| BadFuture {
            polls: Yield(polls),
            _bomb: Bomb,
            _guest: ledger.enter(),
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

async fn bad_layer(request: MiddlewareRequest, next: Next) -> Response {
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
async fn late(Path(polls): Path<usize>, State(ledger): Books) -> &'static str {
    let _guest = ledger.enter();
    Yield(polls).await;
    blow()
}

/// Panics when all of the body has come.
async fn body(mut body: BodyStream, State(ledger): Books) -> &'static str {
    let _guest = ledger.enter();
    while let Some(Ok(_)) = body.next().await {}
    blow()
}

/// Panics instead of a last piece.
fn bad_stream(Path(count): Path<u64>, State(ledger): Books) -> Body {
    pieces_then(count, ledger, || blow())
}

fn payload_stream(State(ledger): Books) -> Body {
    pieces_then(3, ledger, || blow_with(Bomb))
}

fn pieces_then(count: u64, ledger: Arc<Ledger>, end: fn()) -> Body {
    let (mut next, guest) = (0, ledger.enter());
    Body::stream(stream_of(move |_| {
        let _guest = &guest;
        if next == count {
            end();
        }
        next += 1;
        Poll::Ready(Some(piece(next - 1)))
    }))
}

fn upgraded(Path(polls): Path<usize>, State(ledger): Books) -> Response {
    Response::upgrade(HeaderValue::from_static("bad"), move |_upgraded| async move {
        let _guest = ledger.enter();
        Yield(polls).await;
        blow()
    })
}

/// What it holds panics when its client goes before its end, or at its end.
async fn locals(Path(polls): Path<usize>, State(ledger): Books) -> &'static str {
    let _guest = ledger.enter();
    let _bomb = Bomb;
    Yield(polls).await;
    "unreachable: the bomb goes off first"
}

/// Is ready, and panics when it is dropped.
struct BadFuture {
    polls: Yield,
    _bomb: Bomb,
    _guest: Guest,
}

/// All pieces come, and then it panics when it is dropped.
fn stream(Path(count): Path<u64>, State(ledger): Books) -> Body {
    let (mut next, guest, bomb) = (0, ledger.enter(), Bomb);
    Body::stream(stream_of(move |_| {
        let _held = (&guest, &bomb);
        next += 1;
        Poll::Ready((next <= count).then(|| piece(next - 1)))
    }))
}

fn closure() -> Response {
    Response::upgrade(HeaderValue::from_static("bad"), |_upgraded| -> std::future::Ready<()> {
        blow()
    })
}

fn bad_upgraded(Path(polls): Path<usize>, State(ledger): Books) -> Response {
    Response::upgrade(HeaderValue::from_static("bad"), move |_upgraded| async move {
        let _guest = ledger.enter();
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
