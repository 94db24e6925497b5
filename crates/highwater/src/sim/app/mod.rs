//! The application under simulation: every way to answer, every way to take a body, and some kinds
//! of misbehaviour. It counts living futures and streams, so that leftovers are noticed.

mod panics;
mod waits;

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use super::threads::OtherThreads;
use crate::app::{
    App, Body, BodyStream, Closed, Error, Handler, Path, Response, Router, State, blocking, fixed,
};
use crate::websocket::{WebSocket, websocket};

/// How long `/tardy` and `/late` may take.
pub(super) const ROUTE_TIMEOUT: Duration = Duration::from_secs(2);

/// The body limit of `/small`.
pub(super) const SMALL_BODY_MAX: u64 = 64;

/// State that handlers share with the simulated world.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) threads: Arc<OtherThreads>,
    alive: AtomicUsize,
    /// Turns of the worker so far.
    turns: AtomicUsize,
    pub(super) detached_begun: AtomicUsize,
    pub(super) detached_done: AtomicUsize,
    /// How often each key of `/once` was begun.
    once: Mutex<HashMap<u32, u32>>,
}

impl Shared {
    /// Futures and streams that were made and not dropped.
    pub(super) fn alive(&self) -> usize {
        self.alive.load(Relaxed)
    }

    /// A turn has passed.
    pub(super) fn turn(&self) {
        self.turns.fetch_add(1, Relaxed);
    }

    /// How often `/once/{key}` was begun.
    pub(super) fn begun(&self, key: u32) -> u32 {
        self.once.lock().expect("no holder panics").get(&key).copied().unwrap_or(0)
    }

    /// Waits for this many turns.
    async fn rest(&self, turns: usize) {
        let until = self.turns.load(Relaxed) + turns;
        while self.turns.load(Relaxed) < until {
            Yield(1).await;
        }
    }

    fn enter(self: &Arc<Self>) -> Alive {
        self.alive.fetch_add(1, Relaxed);
        Alive(Arc::clone(self))
    }
}

/// Counts as alive until it is dropped, which must happen before the end of the run.
struct Alive(Arc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Relaxed);
    }
}

type SharedState = State<Arc<Shared>>;

/// Builds the application.
pub(super) fn app(shared: Arc<Shared>) -> App {
    let router = Router::new()
        .state(shared)
        .get("/fixed", fixed("ok"))
        .get("/square/{n}", |Path(n): Path<u64>| (n * n).to_string())
        .get("/slow/{n}", blocking(slow))
        .get("/late/{n}", blocking(late).timeout(ROUTE_TIMEOUT))
        .get("/panic", panic)
        .get("/pieces/{n}", pieces)
        .get("/exact/{n}", exact)
        .get("/broken/{n}", broken)
        .get("/big/{n}", |Path(n): Path<usize>| Bytes::from(big(n)))
        .get("/once/{key}", once)
        .post("/once/{key}", once)
        .get("/never", never)
        .get("/tardy", never.timeout(ROUTE_TIMEOUT))
        .get("/detached", detached.detached())
        // If it were refused, its clients' next bytes would not be HTTP.
        .get("/upgrade", upgrade.never_shed())
        .get("/ws", websocket(talk).never_shed())
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

/// Piece number `n` of streamed content.
pub(super) fn piece(n: u64) -> String {
    let mut piece = format!("piece {n:04}");
    let fill = piece_len(n) - piece.len() as u64 - 1;
    piece.extend(big(fill as usize).into_iter().map(char::from));
    piece + "\n"
}

/// The length of [`piece`] number `n`. Most are short, so that many streams stay quick. Some are the longest and
/// the shortest whose chunk size has a certain number of digits; one is long enough to be sent without a copy.
fn piece_len(n: u64) -> u64 {
    match n {
        3 => 0xf,
        5 => 0x10,
        9 => 0xff,
        12 => 0x100,
        20 => 0xfff,
        25 => 0x1000,
        36 => 0x1_0000,
        _ => 11,
    }
}

/// The length of the first `count` pieces together.
fn pieces_len(count: u64) -> u64 {
    (0..count).map(piece_len).sum()
}

/// Must run once for each key: some other instance runs it if this one refuses.
fn once(Path(key): Path<u32>, State(shared): SharedState) -> String {
    *shared.once.lock().expect("no holder panics").entry(key).or_default() += 1;
    format!("once {key}")
}

fn panic() -> &'static str {
    // Unlike `panic!`, this does not run the hook that prints.
    std::panic::resume_unwind(Box::new("simulated"))
}

/// All of its pieces are ready at once.
fn prompt(Path(count): Path<u64>, State(shared): SharedState) -> Body {
    let (mut next, alive) = (0, shared.enter());
    Body::stream(stream_of(move |_| {
        let _alive = &alive;
        next += 1;
        Poll::Ready((next <= count).then(|| piece(next - 1)))
    }))
}

/// Content of this length, with a status that may not allow content.
fn odd(Path((status, len)): Path<(u16, usize)>) -> Response {
    let status = StatusCode::from_u16(status).expect("its script names a status");
    Response::new(status).with_body(big(len))
}

fn odd_stream(Path((status, count)): Path<(u16, u64)>, State(shared): SharedState) -> Response {
    let status = StatusCode::from_u16(status).expect("its script names a status");
    Response::new(status).with_body(Body::stream(Pieces::new(count, &shared)))
}

fn pieces(Path(count): Path<u64>, State(shared): SharedState) -> Body {
    Body::stream(Pieces::new(count, &shared))
}

fn exact(Path(count): Path<u64>, State(shared): SharedState) -> Body {
    Body::stream_of_length(pieces_len(count), Pieces::new(count, &shared))
}

/// Breaks off after `count` pieces.
fn broken(Path(count): Path<u64>, State(shared): SharedState) -> Body {
    Body::stream_of_length(pieces_len(count + 1), Pieces::new(count, &shared))
}

fn slow(Path(n): Path<u64>, State(shared): SharedState) -> String {
    shared.threads.begin_job();
    format!("slow {n}")
}

fn late(Path(n): Path<u64>, State(shared): SharedState) -> String {
    shared.threads.begin_job();
    format!("late {n}")
}

async fn never(State(shared): SharedState) -> &'static str {
    let _alive = shared.enter();
    std::future::pending().await
}

/// Must run to its end, whether the client is connected or not.
async fn detached(State(shared): SharedState) -> &'static str {
    let _alive = shared.enter();
    shared.detached_begun.fetch_add(1, Relaxed);
    Yield(20).await;
    shared.detached_done.fetch_add(1, Relaxed);
    "detached"
}

/// Echoes all bytes until the client finishes.
fn upgrade(State(shared): SharedState) -> Response {
    Response::upgrade(HeaderValue::from_static("echo"), move |mut upgraded| async move {
        let _alive = shared.enter();
        while let Some(Ok(piece)) = upgraded.incoming.next().await {
            if upgraded.outgoing.send(piece).await.is_err() {
                return;
            }
        }
        upgraded.outgoing.finish();
    })
}

/// Echoes all messages until the client closes.
async fn talk(mut socket: WebSocket, State(shared): SharedState) -> Result<(), Closed> {
    let _alive = shared.enter();
    while let Some(message) = socket.recv().await {
        Yield(message.len() % 3).await;
        socket.send(message).await?;
    }
    Ok(())
}

async fn echo(body: Bytes, State(shared): SharedState) -> Bytes {
    let _alive = shared.enter();
    Yield(body.len() % 3).await;
    body
}

async fn length(mut body: BodyStream, State(shared): SharedState) -> Result<String, Error> {
    let _alive = shared.enter();
    let mut length = 0;
    while let Some(piece) = body.next().await {
        length += piece?.len();
        Yield(length % 2).await;
    }
    Ok(length.to_string())
}

/// Reads slowly, so that the client has to wait: six turns for every 4 KiB, which makes a hundred
/// for the largest amount that may wait for a handler.
async fn sip(mut body: BodyStream, State(shared): SharedState) -> Result<String, Error> {
    let _alive = shared.enter();
    let (mut length, mut rested_at) = (0, 0);
    while let Some(piece) = body.next().await {
        length += piece?.len();
        if length - rested_at > 4096 {
            rested_at = length;
            shared.rest(6).await;
        }
    }
    Ok(length.to_string())
}

async fn ignore(body: BodyStream, State(shared): SharedState) -> &'static str {
    let _alive = shared.enter();
    Yield(1).await;
    drop(body);
    Yield(1).await;
    "ignored"
}

/// Is pending this many times.
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
    _alive: Alive,
}

impl Pieces {
    fn new(count: u64, shared: &Arc<Shared>) -> Self {
        Pieces { next: 0, count, rest: false, _alive: shared.enter() }
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

/// A stream of the items that `poll` returns.
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
