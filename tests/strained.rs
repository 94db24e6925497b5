//! A server to be put under strain: the probe application, and handlers that do on demand what
//! handlers in the field do by mistake or by nature: panic, wait, stream, read slowly.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

mod bombs;
mod scenes;

use clap::Parser;
use highwater::http::{HeaderValue, header};
use highwater::server::args::{self, ServerArgs};
use highwater::sse::{Event, LastEventId, Sse};
use highwater::websocket::Deflate;
use highwater::{
    Body, BodySender, BodyStream, Bytes, Closed, Disconnected, Draining, Error, Handler, Query,
    Response, Router, Server, StatusCode, Upgraded, WebSocket, blocking, websocket,
};
use serde::Deserialize;

use self::scenes::Scene;

/// Serves handlers that misbehave on demand.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    server: ServerArgs,
    /// Which application is served.
    #[arg(long, value_enum, default_value_t)]
    scene: Scene,
}

fn main() -> ExitCode {
    let args: Args = args::parse();
    match Server::new(args.scene.routes()).config(args.server.config()).run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("strained: {error}");
            ExitCode::FAILURE
        }
    }
}

fn routes() -> Router {
    let limit = Duration::from_millis(300);
    let router = Router::new()
        .get("/content", content)
        .get("/pieces", pieces)
        .get("/blocks", blocks)
        .get("/broken", broken)
        .get("/panic", || -> StatusCode { panic!("on demand, at once") })
        .get("/panic-async", panic_async)
        .get("/panic-blocking", blocking(|| -> StatusCode { panic!("on demand, on the pool") }))
        .get("/wait", wait)
        .get("/wait-detached", wait.detached())
        .get("/wait-limited", wait.timeout(limit))
        .get("/block", blocking(block))
        .get("/block-limited", blocking(block).timeout(limit))
        .post("/slow", slow.body_max(1 << 30))
        .get("/block-counted", blocking(block_counted))
        .get("/block-counted-limited", blocking(block_counted).timeout(limit))
        .get("/block-counted-detached", blocking(block_counted).detached())
        .get("/spawn-elsewhere", spawn_elsewhere)
        .get("/sleep-elsewhere", sleep_elsewhere)
        .get("/ran-after", || format!("{}", RAN_AFTER_MS.load(Relaxed)))
        .get("/endless", endless)
        .get("/endless-polite", endless_polite)
        .post("/repeat", repeat.body_max(1 << 30))
        .post("/place", measure.body_max(1 << 30).concurrency_limit(8))
        .post("/place-whole", (|body: Bytes| body.len().to_string()).concurrency_limit(1))
        .get("/upgrade", || Response::upgrade(HeaderValue::from_static("echo"), echo))
        .get("/events", events)
        .get("/ticks", ticks)
        .get("/quiet", quiet)
        .get("/learns", learns)
        .post("/hold", hold.body_max(1 << 30))
        .post("/ignore-slowly", wait)
        .get("/upgrade-deaf", || Response::upgrade(HeaderValue::from_static("deaf"), deaf))
        .get("/socket", websocket(echo_messages))
        .get("/socket-deflate", websocket(measure_messages).deflate(Deflate::new()))
        .get(
            "/socket-deflate-kept",
            websocket(measure_messages).deflate(Deflate::new().client_context_takeover()),
        )
        .get("/counts", counts);
    let router = bombs::routes(router);
    highwater_arena::probe::routes(router)
}

#[derive(Deserialize)]
struct Size {
    bytes: usize,
}

/// Answers with this many bytes, which all such answers share.
fn content(Query(Size { bytes }): Query<Size>) -> Result<Response, Error> {
    static SHARED: OnceLock<Bytes> = OnceLock::new();
    let shared = SHARED.get_or_init(|| Bytes::from(vec![b'x'; 64 << 20]));
    if bytes > shared.len() {
        return Err(Error::bad_request("at most 64 MiB"));
    }
    Ok(Response::new(StatusCode::OK).with_body(shared.slice(..bytes)))
}

/// Answers with this many bytes, made as they are sent.
async fn pieces(Query(Size { bytes }): Query<Size>) -> Response {
    let (sender, body) = Body::channel();
    tokio::task::spawn_local(send(sender, bytes));
    Response::new(StatusCode::OK).with_body(body)
}

async fn send(mut sender: BodySender, mut left: usize) {
    while left > 0 {
        let piece = vec![b'y'; left.min(10_000)];
        left -= piece.len();
        if sender.send(piece).await.is_err() {
            return;
        }
    }
    sender.finish();
}

/// Answers with this many bytes in pieces of 4 MiB, which all such answers share.
async fn blocks(Query(Size { bytes }): Query<Size>) -> Response {
    static BLOCK: OnceLock<Bytes> = OnceLock::new();
    let block = BLOCK.get_or_init(|| Bytes::from(vec![b'z'; 4 << 20])).clone();
    let (mut sender, body) = Body::channel();
    tokio::task::spawn_local(async move {
        let mut left = bytes;
        while left > 0 {
            let piece = block.slice(..left.min(block.len()));
            left -= piece.len();
            if sender.send(piece).await.is_err() {
                return;
            }
        }
        sender.finish();
    });
    Response::new(StatusCode::OK).with_body(body)
}

/// Answers with the request's body, as it comes.
async fn repeat(mut incoming: BodyStream) -> Response {
    let (mut sender, body) = Body::channel();
    tokio::task::spawn_local(async move {
        while let Some(Ok(piece)) = incoming.next().await {
            if sender.send(piece).await.is_err() {
                return;
            }
        }
        sender.finish();
    });
    Response::new(StatusCode::OK).with_body(body)
}

/// Answers with how much a body was, reading it as it comes.
async fn measure(mut body: BodyStream) -> Result<String, Error> {
    let mut length = 0;
    while let Some(piece) = body.next().await {
        length += piece?.len();
    }
    Ok(length.to_string())
}

/// Begins an answer, and gives up.
async fn broken() -> Response {
    let (mut sender, body) = Body::channel();
    tokio::task::spawn_local(async move {
        // If the peer has gone already, all the better.
        let _ = sender.send("the beginning").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    });
    Response::new(StatusCode::OK).with_body(body)
}

async fn panic_async() -> StatusCode {
    tokio::task::yield_now().await;
    panic!("on demand, in a future")
}

static BEGUN: AtomicU64 = AtomicU64::new(0);
static FINISHED: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Counts how a handler ended: it ran to its end, or it was dropped before.
struct Ending {
    finished: bool,
}

impl Ending {
    fn begin() -> Self {
        BEGUN.fetch_add(1, Relaxed);
        Ending { finished: false }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let counter = if self.finished { &FINISHED } else { &DROPPED };
        counter.fetch_add(1, Relaxed);
    }
}

fn counts() -> String {
    let [begun, finished, dropped] = [&BEGUN, &FINISHED, &DROPPED].map(|count| count.load(Relaxed));
    let learned = LEARNED.load(Relaxed);
    match learned {
        0 => format!("begun {begun} finished {finished} dropped {dropped}"),
        _ => format!("begun {begun} finished {finished} dropped {dropped} learned {learned}"),
    }
}

#[derive(Deserialize)]
struct Time {
    ms: u64,
}

async fn wait(Query(Time { ms }): Query<Time>) -> String {
    let mut ending = Ending::begin();
    tokio::time::sleep(Duration::from_millis(ms)).await;
    ending.finished = true;
    format!("waited {ms}")
}

fn block(Query(Time { ms }): Query<Time>) -> String {
    std::thread::sleep(Duration::from_millis(ms));
    format!("blocked {ms}")
}

/// Blocks, and counts that it began and ended.
fn block_counted(Query(Time { ms }): Query<Time>) -> String {
    let mut ending = Ending::begin();
    std::thread::sleep(Duration::from_millis(ms));
    ending.finished = true;
    format!("blocked {ms}")
}

/// How long what another thread asked of this worker's runtime took; `u64::MAX` while it has not run.
static RAN_AFTER_MS: AtomicU64 = AtomicU64::new(u64::MAX);

/// Has another thread spawn a task on this worker's runtime, when the worker has been idle for a while.
fn spawn_elsewhere(Query(Time { ms }): Query<Time>) -> &'static str {
    RAN_AFTER_MS.store(u64::MAX, Relaxed);
    let handle = tokio::runtime::Handle::current();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(ms));
        let spawned = Instant::now();
        handle.spawn(async move {
            RAN_AFTER_MS.store(spawned.elapsed().as_millis() as u64, Relaxed);
        });
    });
    "a thread will spawn"
}

/// Has another thread wait on a timer of this worker's runtime.
fn sleep_elsewhere(Query(Time { ms }): Query<Time>) -> &'static str {
    RAN_AFTER_MS.store(u64::MAX, Relaxed);
    let handle = tokio::runtime::Handle::current();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(ms));
        let began = Instant::now();
        handle.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
        RAN_AFTER_MS.store(began.elapsed().as_millis() as u64, Relaxed);
    });
    "a thread will sleep"
}

/// An answer that never ends: a piece now and then.
async fn endless() -> Response {
    let (mut sender, body) = Body::channel();
    tokio::task::spawn_local(async move {
        while sender.send("still here\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    Response::new(StatusCode::OK).with_body(body)
}

/// The same, but it ends when the server is about to.
async fn endless_polite(draining: Draining) -> Response {
    let (mut sender, body) = Body::channel();
    tokio::task::spawn_local(async move {
        while !draining.has_begun() && sender.send("still here\n").await.is_ok() {
            // Either is a reason to go on.
            let _ = tokio::time::timeout(Duration::from_secs(60), draining.begun()).await;
        }
        sender.finish();
    });
    Response::new(StatusCode::OK).with_body(body)
}

/// An endless stream of events: one at once, the next after a minute.
async fn events() -> Response {
    quiet()
        .await
        .with_header(header::CONTENT_TYPE, HeaderValue::from_static("Text/Event-Stream; x"))
}

/// Numbered events that say when they were sent, in milliseconds since 1970.
async fn ticks(last: LastEventId) -> Sse {
    let next = last.number().map_or(0, |last| last + 1);
    Sse::run(move |mut events| async move {
        for number in next.. {
            let sent = SystemTime::UNIX_EPOCH.elapsed().expect("it is later than 1970");
            events.send(Event::data(sent.as_millis().to_string()).id(number)).await?;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Ok::<(), Closed>(())
    })
}

/// Like [`events`], without saying that these are events.
async fn quiet() -> Response {
    let ending = Ending::begin();
    let (mut sender, body) = Body::channel();
    tokio::task::spawn_local(async move {
        let _ending = ending;
        while sender.send("data: 1\n\n").await.is_ok() {
            let minute = Duration::from_secs(60);
            // The next round tells whether it is time or the client has gone.
            let _ = tokio::time::timeout(minute, sender.closed()).await;
        }
    });
    Response::new(StatusCode::OK).with_body(body)
}

static LEARNED: AtomicU64 = AtomicU64::new(0);

/// Waits for its client to go.
async fn learns(disconnected: Disconnected) -> &'static str {
    disconnected.clone().await;
    assert!(disconnected.is_disconnected());
    LEARNED.fetch_add(1, Relaxed);
    "you have gone"
}

/// Takes the first piece of a body, then nothing for a minute.
async fn hold(mut body: BodyStream) -> Result<String, Error> {
    let _ending = Ending::begin();
    body.next().await.transpose()?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    Ok("held".into())
}

/// A protocol that only speaks, and seldom.
async fn deaf(upgraded: Upgraded) {
    let _ending = Ending::begin();
    let Upgraded { incoming, mut outgoing } = upgraded;
    drop(incoming);
    while outgoing.send("tick\n").await.is_ok() {
        let minute = Duration::from_secs(60);
        // The next round tells whether it is time or the client has gone.
        let _ = tokio::time::timeout(minute, outgoing.closed()).await;
    }
}

/// Reads a body more slowly than any client sends; answers with how much it was.
async fn slow(Query(Time { ms }): Query<Time>, mut body: BodyStream) -> Result<String, Error> {
    let mut length = 0;
    while let Some(piece) = body.next().await {
        length += piece?.len();
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
    Ok(length.to_string())
}

async fn echo(upgraded: Upgraded) {
    let Upgraded { mut incoming, mut outgoing } = upgraded;
    while let Some(Ok(piece)) = incoming.next().await {
        if outgoing.send(piece).await.is_err() {
            return;
        }
    }
    outgoing.finish();
}

/// Answers each message with its length.
async fn measure_messages(mut socket: WebSocket) {
    while let Some(message) = socket.recv().await {
        if socket.send(message.len().to_string()).await.is_err() {
            return;
        }
    }
}

async fn echo_messages(mut socket: WebSocket) {
    while let Some(message) = socket.recv().await {
        if socket.send(message).await.is_err() {
            return;
        }
    }
}
