//! The application under simulation: every way to answer, every way to take a body, and some ways to
//! misbehave. It keeps count of what is alive, so that nothing can be left behind unnoticed.

mod panics;
mod waits;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use super::elsewhere::Elsewhere;
use crate::app::{
    App, Body, BodyStream, Error, Handler, Path, Response, Router, State, blocking, fixed,
};

/// How long `/tardy` and `/late` may take.
pub(super) const ROUTE_TIMEOUT: Duration = Duration::from_secs(2);

/// How much `/small` takes.
pub(super) const SMALL_BODY_MAX: u64 = 64;

/// What is alive in the application.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) elsewhere: Arc<Elsewhere>,
    alive: AtomicUsize,
    /// Turns of the worker so far.
    turns: AtomicUsize,
    pub(super) detached_begun: AtomicUsize,
    pub(super) detached_done: AtomicUsize,
}

impl Ledger {
    /// Futures and streams that were made and not dropped.
    pub(super) fn alive(&self) -> usize {
        self.alive.load(Relaxed)
    }

    /// A turn has passed.
    pub(super) fn turn(&self) {
        self.turns.fetch_add(1, Relaxed);
    }

    /// Waits for so many turns.
    async fn rest(&self, turns: usize) {
        let until = self.turns.load(Relaxed) + turns;
        while self.turns.load(Relaxed) < until {
            Yield(1).await;
        }
    }

    fn enter(self: &Arc<Self>) -> Guest {
        self.alive.fetch_add(1, Relaxed);
        Guest(Arc::clone(self))
    }
}

/// Something that must be dropped before the end.
struct Guest(Arc<Ledger>);

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Relaxed);
    }
}

type Books = State<Arc<Ledger>>;

/// Builds the application.
pub(super) fn app(ledger: Arc<Ledger>) -> App {
    let router = Router::new()
        .state(ledger)
        .get("/fixed", fixed("ok"))
        .get("/square/{n}", |Path(n): Path<u64>| (n * n).to_string())
        .get("/slow/{n}", blocking(slow))
        .get("/late/{n}", blocking(late).timeout(ROUTE_TIMEOUT))
        .get("/panic", panic)
        .get("/pieces/{n}", pieces)
        .get("/exact/{n}", exact)
        .get("/broken/{n}", broken)
        .get("/big/{n}", |Path(n): Path<usize>| Bytes::from(big(n)))
        .get("/never", never)
        .get("/tardy", never.timeout(ROUTE_TIMEOUT))
        .get("/detached", detached.detached())
        // Refused, what its clients say next would no longer be HTTP.
        .get("/upgrade", upgrade.never_shed())
        .post("/echo", echo)
        .post("/small", echo.body_max(SMALL_BODY_MAX))
        .post("/length", length)
        .post("/sip", sip)
        .post("/ignore", ignore)
        .get("/prompt/{n}", prompt)
        .get("/odd/{status}/{n}", odd)
        .get("/odd/{status}/stream/{n}", odd_stream)
        .merge(waits::router())
        .merge(panics::router());
    router.build().expect("the routes do not conflict")
}

/// The content of `/big/{len}`.
pub(super) fn big(len: usize) -> Vec<u8> {
    (0..len).map(|at| b'a' + (at % 26) as u8).collect()
}

/// The nth piece of `/pieces`, `/exact` and `/broken`.
pub(super) fn piece(n: u64) -> String {
    format!("piece {n:04}\n")
}

/// The length of every [`piece`].
pub(super) const PIECE_LEN: u64 = 11;

fn panic() -> &'static str {
    // Unlike `panic!`, this does not run the hook that prints.
    std::panic::resume_unwind(Box::new("simulated"))
}

/// All of its pieces are there at once.
fn prompt(Path(count): Path<u64>, State(ledger): Books) -> Body {
    let (mut next, guest) = (0, ledger.enter());
    Body::stream(stream_of(move |_| {
        let _guest = &guest;
        next += 1;
        Poll::Ready((next <= count).then(|| piece(next - 1)))
    }))
}

/// So much content, with a status that may allow none.
fn odd(Path((status, len)): Path<(u16, usize)>) -> Response {
    let status = StatusCode::from_u16(status).expect("its script names a status");
    Response::new(status).with_body(big(len))
}

fn odd_stream(Path((status, count)): Path<(u16, u64)>, State(ledger): Books) -> Response {
    let status = StatusCode::from_u16(status).expect("its script names a status");
    Response::new(status).with_body(Body::stream(Pieces::new(count, &ledger)))
}

fn pieces(Path(count): Path<u64>, State(ledger): Books) -> Body {
    Body::stream(Pieces::new(count, &ledger))
}

fn exact(Path(count): Path<u64>, State(ledger): Books) -> Body {
    Body::stream_of_length(count * PIECE_LEN, Pieces::new(count, &ledger))
}

/// Breaks off after so many pieces.
fn broken(Path(count): Path<u64>, State(ledger): Books) -> Body {
    Body::stream_of_length((count + 1) * PIECE_LEN, Pieces::new(count, &ledger))
}

fn slow(Path(n): Path<u64>, State(ledger): Books) -> String {
    ledger.elsewhere.begin_job();
    format!("slow {n}")
}

fn late(Path(n): Path<u64>, State(ledger): Books) -> String {
    ledger.elsewhere.begin_job();
    format!("late {n}")
}

async fn never(State(ledger): Books) -> &'static str {
    let _guest = ledger.enter();
    std::future::pending().await
}

/// Has to come to its end, whether the client is there or not.
async fn detached(State(ledger): Books) -> &'static str {
    let _guest = ledger.enter();
    ledger.detached_begun.fetch_add(1, Relaxed);
    Yield(20).await;
    ledger.detached_done.fetch_add(1, Relaxed);
    "detached"
}

/// Echoes whatever comes until the client finishes.
fn upgrade(State(ledger): Books) -> Response {
    Response::upgrade(HeaderValue::from_static("echo"), move |mut upgraded| async move {
        let _guest = ledger.enter();
        while let Some(Ok(piece)) = upgraded.incoming.next().await {
            if upgraded.outgoing.send(piece).await.is_err() {
                return;
            }
        }
        upgraded.outgoing.finish();
    })
}

async fn echo(body: Bytes, State(ledger): Books) -> Bytes {
    let _guest = ledger.enter();
    Yield(body.len() % 3).await;
    body
}

async fn length(mut body: BodyStream, State(ledger): Books) -> Result<String, Error> {
    let _guest = ledger.enter();
    let mut length = 0;
    while let Some(piece) = body.next().await {
        length += piece?.len();
        Yield(length % 2).await;
    }
    Ok(length.to_string())
}

/// Takes its time, so that the client has to wait: six turns for every 4 KiB, so a hundred for as much as
/// may wait for a handler.
async fn sip(mut body: BodyStream, State(ledger): Books) -> Result<String, Error> {
    let _guest = ledger.enter();
    let (mut length, mut rested_at) = (0, 0);
    while let Some(piece) = body.next().await {
        length += piece?.len();
        if length - rested_at > 4096 {
            rested_at = length;
            ledger.rest(6).await;
        }
    }
    Ok(length.to_string())
}

async fn ignore(body: BodyStream, State(ledger): Books) -> &'static str {
    let _guest = ledger.enter();
    Yield(1).await;
    drop(body);
    Yield(1).await;
    "ignored"
}

/// Is pending so many times.
struct Yield(usize);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.0 == 0 {
            return Poll::Ready(());
        }
        self.0 -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// A body in pieces, each of which has to be waited for.
struct Pieces {
    next: u64,
    count: u64,
    rest: bool,
    _guest: Guest,
}

impl Pieces {
    fn new(count: u64, ledger: &Arc<Ledger>) -> Self {
        Pieces { next: 0, count, rest: false, _guest: ledger.enter() }
    }
}

impl futures_core::Stream for Pieces {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.rest = !self.rest;
        if self.rest {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.next == self.count {
            return Poll::Ready(None);
        }
        let piece = piece(self.next);
        self.next += 1;
        Poll::Ready(Some(Ok(piece.into())))
    }
}

/// A stream of whatever `poll` gives.
fn stream_of<F>(poll: F) -> StreamOf<F>
where
    F: FnMut(&mut Context<'_>) -> Poll<Option<String>> + Unpin,
{
    StreamOf(poll)
}

struct StreamOf<F>(F);

impl<F> futures_core::Stream for StreamOf<F>
where
    F: FnMut(&mut Context<'_>) -> Poll<Option<String>> + Unpin,
{
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        (self.0)(cx).map(|piece| piece.map(|piece| Ok(piece.into())))
    }
}
