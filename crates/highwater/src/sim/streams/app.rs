//! The application under the protocol with streams. Each request has a key, under which handlers note what
//! happened to it.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;

use super::super::threads::{OtherThreads, Wait};
use crate::app::{
    App, Body, BodyStream, Closed, Disconnected, Error, Handler, Path, Router, State, blocking,
};
use crate::websocket::{WebSocket, websocket};

/// How long `/never` may take.
pub(super) const ROUTE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a WebSocket may be silent: longer than any run, since clients that read slowly speak seldom.
const SILENCE: Duration = Duration::from_secs(24 * 3600);

/// What handlers share with the world.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) threads: Arc<OtherThreads>,
    /// Futures and streams that were made and not dropped.
    alive: AtomicUsize,
    notes: Mutex<Notes>,
}

#[derive(Default)]
pub(super) struct Notes {
    /// How often each key was begun.
    pub(super) begun: BTreeMap<u32, u32>,
    /// Handlers that wait for their client to go, and those that were told so.
    pub(super) waiting: BTreeSet<u32>,
    pub(super) notified: BTreeSet<u32>,
    pub(super) failure: Option<String>,
}

impl Shared {
    pub(super) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().expect("no holder panics")
    }

    pub(super) fn alive(&self) -> usize {
        self.alive.load(Relaxed)
    }

    fn enter(self: &Arc<Self>, key: u32) -> Alive {
        *self.notes().begun.entry(key).or_default() += 1;
        self.alive.fetch_add(1, Relaxed);
        Alive(Arc::clone(self))
    }

    fn pause(self: &Arc<Self>, key: u32, millis: u64) -> Woken {
        let wait = self.threads.wait(key, Duration::from_millis(millis));
        Woken { wait, shared: Arc::clone(self), key, waker: None }
    }
}

struct Alive(Arc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Relaxed);
    }
}

/// A wait that may be polled only after it was woken: a late wake-up of a stream that is over must not reach the
/// task of another.
struct Woken {
    wait: Wait,
    shared: Arc<Shared>,
    key: u32,
    waker: Option<Arc<Noting>>,
}

/// Notes that it was used.
struct Noting {
    is_woken: AtomicBool,
    inner: Waker,
}

impl Wake for Noting {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Relaxed);
        self.inner.wake_by_ref();
    }
}

impl Future for Woken {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let waker = match self.waker.take() {
            Some(waker) => {
                if !waker.is_woken.swap(false, Relaxed) {
                    let what = format!("the task of {} was polled, and not woken", self.key);
                    self.shared.notes().failure.get_or_insert(what);
                }
                waker
            }
            None => {
                let inner = context.waker().clone();
                Arc::new(Noting { is_woken: AtomicBool::new(false), inner })
            }
        };
        self.waker = Some(Arc::clone(&waker));
        let waker = Waker::from(waker);
        Pin::new(&mut self.wait).poll(&mut Context::from_waker(&waker))
    }
}

type Named = Path<(u32, u64)>;
type SharedState = State<Arc<Shared>>;

/// The application.
pub(super) fn app(shared: Arc<Shared>) -> App {
    let router = Router::new()
        .state(shared)
        .get("/big/{key}/{n}", ready)
        .get("/wait/{key}/{n}", wait)
        .get("/slow/{key}/{n}", blocking(slow))
        .get("/pieces/{key}/{n}", pieces)
        .get("/broken/{key}/{n}", broken)
        .get("/never/{key}/{n}", never.timeout(ROUTE_TIMEOUT))
        .get("/gone/{key}/{n}", gone.detached())
        .get("/socket/{key}/{n}", websocket(socket).ping_after(SILENCE).idle_timeout(SILENCE))
        .post("/echo/{key}/{n}", echo)
        .post("/count/{key}/{n}", count);
    router.build().expect("the routes do not conflict")
}

/// The content of `len` bytes for `key`: that of another key differs.
pub(super) fn content(key: u32, len: u64) -> Vec<u8> {
    const LETTERS: &[u8; 26] = b"abcdefghijklmnopqrstuvwxyz";
    let (begin, len) = ((u64::from(key) * 7 % 26) as usize, len as usize);
    // Copied, not computed byte by byte: in debug builds that took two thirds of the simulation's time.
    let mut content = LETTERS.repeat((begin + len).div_ceil(LETTERS.len()));
    content.drain(..begin);
    content.truncate(len);
    content
}

fn ready(Path((key, len)): Named, State(shared): SharedState) -> Bytes {
    drop(shared.enter(key));
    content(key, len).into()
}

async fn wait(Path((key, millis)): Named, State(shared): SharedState) -> Vec<u8> {
    let _alive = shared.enter(key);
    shared.pause(key, millis).await;
    content(key, millis)
}

fn slow(Path((key, len)): Named, State(shared): SharedState) -> Vec<u8> {
    shared.threads.begin_job();
    drop(shared.enter(key));
    content(key, len)
}

fn pieces(Path((key, len)): Named, State(shared): SharedState) -> Body {
    Body::stream(Pieces::new(&shared, key, len))
}

/// Breaks off before its end.
fn broken(Path((key, len)): Named, State(shared): SharedState) -> Body {
    Body::stream_of_length(len + 1, Pieces::new(&shared, key, len))
}

async fn never(Path((key, _)): Named, State(shared): SharedState) -> &'static str {
    let _alive = shared.enter(key);
    std::future::pending().await
}

/// Waits until its client has gone.
async fn gone(
    Path((key, _)): Named,
    disconnected: Disconnected,
    State(shared): SharedState,
) -> &'static str {
    let _alive = shared.enter(key);
    shared.notes().waiting.insert(key);
    disconnected.await;
    shared.notes().notified.insert(key);
    "gone"
}

/// Sends back each message.
async fn socket(
    mut socket: WebSocket,
    Path((key, _)): Named,
    State(shared): SharedState,
) -> Result<(), Closed> {
    let _alive = shared.enter(key);
    while let Some(message) = socket.recv().await {
        socket.send(message).await?;
    }
    Ok(())
}

async fn echo(Path((key, _)): Named, body: Bytes, State(shared): SharedState) -> Bytes {
    let _alive = shared.enter(key);
    body
}

/// Counts the bytes of its content, and reads slowly.
async fn count(
    Path((key, millis)): Named,
    mut body: BodyStream,
    State(shared): SharedState,
) -> Result<String, Error> {
    let _alive = shared.enter(key);
    let mut length = 0;
    while let Some(piece) = body.next().await {
        let piece = piece?;
        if !content(key, (length + piece.len()) as u64).ends_with(&piece) {
            shared.notes().failure.get_or_insert(format!("{key} got the content of another"));
        }
        length += piece.len();
        if length % 3 == 0 {
            shared.threads.wait(key, Duration::from_millis(millis)).await;
        }
    }
    Ok(length.to_string())
}

/// Content in pieces, of which every second has to be waited for.
struct Pieces {
    rest: Bytes,
    rests: bool,
    _alive: Alive,
}

impl Pieces {
    fn new(shared: &Arc<Shared>, key: u32, len: u64) -> Self {
        Pieces { rest: content(key, len).into(), rests: false, _alive: shared.enter(key) }
    }
}

impl futures_core::Stream for Pieces {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.rests = !self.rests;
        if self.rests {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let len = self.rest.len().min(700);
        let piece = self.rest.split_to(len);
        Poll::Ready((len > 0).then_some(Ok(piece)))
    }
}
