//! Handlers that panic, or leave behind what panics when it is dropped, wherever that is possible;
//! and handlers that answer what no handler may.

use std::error::Error as StdError;
use std::fmt;
use std::future::{Future, pending};
use std::panic::panic_any;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use highwater::http::HeaderValue;
use highwater::{
    Body, Bytes, Error, FromRequest, Handler, Next, OwnedRequest, Path, Request, Response, Router,
    StatusCode, Upgraded, blocking, layer,
};

/// Panics when it is dropped.
#[derive(Clone, Debug)]
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        // A second panic while one unwinds ends the process, in any Rust program.
        if !std::thread::panicking() {
            panic!("a bomb was dropped");
        }
    }
}

impl fmt::Display for Bomb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a bomb")
    }
}

impl StdError for Bomb {}

impl AsRef<[u8]> for Bomb {
    fn as_ref(&self) -> &[u8] {
        &[b'x'; 20_000]
    }
}

impl FromRequest for Bomb {
    fn from_request(_: &Request<'_>) -> Result<Self, Error> {
        Ok(Bomb)
    }
}

/// What a panic may carry: it panics with another of its kind when it is dropped, for ever.
struct Payload;

impl Drop for Payload {
    fn drop(&mut self) {
        panic_any(Payload);
    }
}

/// A future that is ready, and panics when it is dropped.
struct Ready<T>(Bomb, Option<T>);

impl<T: Unpin> Future for Ready<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        self.1.take().map_or(Poll::Pending, Poll::Ready)
    }
}

/// Content of one piece, which goes on as `then` says and panics when it is dropped.
struct Pieces {
    begun: bool,
    then: fn() -> Poll<Option<Result<Bytes, Bomb>>>,
    _bomb: Bomb,
}

impl Stream for Pieces {
    type Item = Result<Bytes, Bomb>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match std::mem::replace(&mut self.begun, true) {
            false => Poll::Ready(Some(Ok(Bytes::from_static(b"begun")))),
            true => (self.then)(),
        }
    }
}

fn stream(then: fn() -> Poll<Option<Result<Bytes, Bomb>>>) -> Response {
    let pieces = Pieces { begun: false, then, _bomb: Bomb };
    Response::new(StatusCode::OK).with_body(Body::stream(pieces))
}

fn upgrade<F, Fut>(then: F) -> Response
where
    F: FnOnce(Upgraded) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + 'static,
{
    Response::upgrade(HeaderValue::from_static("echo"), then)
}

async fn explode(_: Upgraded) {
    panic_any(Payload)
}

fn bytes(length: usize) -> Bytes {
    Bytes::from_owner(Bomb).slice(..length)
}

/// Holds a bomb while it waits.
async fn hold() -> &'static str {
    let _bomb = Bomb;
    pending().await
}

pub(crate) fn routes(router: Router) -> Router {
    let limit = Duration::from_millis(100);
    router
        .get("/bomb/payload", || -> StatusCode { panic_any(Payload) })
        .get("/bomb/payload-async", async || -> StatusCode { panic_any(Payload) })
        .get("/bomb/payload-blocking", blocking(|| -> StatusCode { panic_any(Payload) }))
        .get("/bomb/payload-stream", || stream(|| panic_any(Payload)))
        .get("/bomb/argument", |_: Bomb| "")
        .get("/bomb/argument-async", async |_: Bomb| "")
        .get("/bomb/argument-blocking", blocking(|_: Bomb| ""))
        .get("/bomb/future", || Ready(Bomb, Some("ready")))
        .get("/bomb/hold", hold)
        .get("/bomb/hold-detached", hold.detached())
        .get("/bomb/hold-limited", hold.timeout(limit))
        .get("/bomb/error", || -> Result<(), Error> { Err(Error::internal(Bomb)) })
        .get("/bomb/error-async", async || -> Result<(), Error> { Err(Error::internal(Bomb)) })
        .get("/bomb/error-blocking", blocking(|| Err::<(), _>(Error::internal(Bomb))))
        .get("/bomb/stream", || stream(|| Poll::Ready(None)))
        .get("/bomb/stream-async", async || stream(|| Poll::Ready(None)))
        .get("/bomb/stream-waits", || stream(|| Poll::Pending))
        .get("/bomb/stream-fails", || stream(|| Poll::Ready(Some(Err(Bomb)))))
        .get("/bomb/stream-piece", || stream(|| Poll::Ready(Some(Ok(bytes(20_000))))))
        .get("/bomb/bytes", || bytes(5))
        .get("/bomb/bytes-async", async || bytes(5))
        .get("/bomb/bytes-large", || bytes(20_000))
        .get("/bomb/upgrade", || {
            Response::upgrade(HeaderValue::from_static("echo"), |_| -> Ready<()> {
                panic_any(Payload)
            })
        })
        .get("/bomb/upgraded", || upgrade(explode))
        .get("/bomb/upgraded-holds", || {
            upgrade(|upgraded| async move {
                let _bomb = Bomb;
                let _upgraded = upgraded;
                pending().await
            })
        })
        .get("/bomb/spawned", async || {
            tokio::task::spawn_local(async { panic!("in a task of its own") });
            "spawned"
        })
        .nest("/bomb/before", before())
        .nest(
            "/bomb/after",
            Router::new().layer(layer::on_response(|_, _| panic_any(Payload))).get("/x", || "x"),
        )
        .nest(
            "/bomb/errors",
            Router::new().errors(|_| -> StatusCode { panic_any(Payload) }).get("/x", fails),
        )
        .nest("/bomb/middleware", Router::new().layer(layer::around(middleware)).get("/x", || "x"))
        .nest("/bomb/extension", extension().get("/x", || "x"))
        .nest("/bomb/extension-async", extension().get("/x", async || "x"))
        .get("/say/{status}", say)
        .get("/say/{status}/content", |path: Path<u16>| say(path).with_body("content"))
        .get("/say-later/{status}", async |path: Path<u16>| say(path))
        .get("/say-chunked", || Response::from("x").with_header("transfer-encoding", "chunked"))
        .get("/say-length", || Response::from("x").with_header("content-length", "2"))
        .get("/say-lines", || Response::from("x").with_header("x", "a\r\nb: c"))
}

fn say(Path(status): Path<u16>) -> Response {
    Response::new(StatusCode::from_u16(status).unwrap_or(StatusCode::IM_A_TEAPOT))
}

fn fails() -> StatusCode {
    StatusCode::CONFLICT
}

fn before() -> Router {
    let before = layer::on_request(|_| -> Result<(), Error> { panic_any(Payload) });
    Router::new().layer(before).get("/x", || "x")
}

fn extension() -> Router {
    Router::new().layer(layer::on_response(|_, _| {})).layer(layer::on_request(|request| {
        request.insert(Bomb);
        Ok::<(), Error>(())
    }))
}

async fn middleware(request: OwnedRequest, next: Next) -> Response {
    let _bomb = Bomb;
    next.run(request).await
}
