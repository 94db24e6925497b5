//! The Tokio runtime around an application: what may be spawned and awaited where, and the errors
//! where it may not.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use highwater::http::HeaderValue;
use highwater::{Body, Bytes, Response, Router, StatusCode, Upgraded};

use crate::served::{HANG, start};
use crate::transports::transports;

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, HANG).expect("it accepts");
    stream.set_read_timeout(Some(HANG)).expect("a timeout can be set");
    stream
}

/// What is answered to `GET path` until the server closes.
fn ask(address: SocketAddr, path: &str) -> String {
    let mut stream = connect(address);
    let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

fn eventually(condition: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !condition() && begun.elapsed() < HANG {
        std::thread::sleep(Duration::from_millis(5));
    }
    condition()
}

/// A stream of one piece, which comes when a Tokio timer fires; dropped, it spawns a task that counts.
struct Timed {
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
    is_over: bool,
    dropped: Arc<AtomicUsize>,
}

impl Timed {
    fn new(dropped: &Arc<AtomicUsize>) -> Self {
        Timed { timer: None, is_over: false, dropped: Arc::clone(dropped) }
    }
}

impl futures_core::Stream for Timed {
    type Item = Result<Bytes, std::io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let sleep = || Box::pin(tokio::time::sleep(Duration::from_millis(20)));
        let timer = self.timer.get_or_insert_with(sleep);
        std::task::ready!(timer.as_mut().poll(context));
        self.is_over = true;
        Poll::Ready(Some(Ok(Bytes::from_static(b"in time"))))
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        count_later(&self.dropped);
    }
}

/// Spawns a task of this thread that counts.
fn count_later(count: &Arc<AtomicUsize>) {
    let count = Arc::clone(count);
    tokio::task::spawn_local(async move {
        tokio::time::sleep(Duration::from_millis(1)).await;
        count.fetch_add(1, SeqCst);
    });
}

/// Purpose: even in an application of plain handlers, streamed content and upgraded connections
/// have a runtime: their timers fire, and their destructors may spawn.
#[test]
fn streams_and_upgrades_have_a_runtime() {
    for transport in transports() {
        let count = Arc::new(AtomicUsize::new(0));
        let (streamed, upgraded) = (Arc::clone(&count), Arc::clone(&count));
        let stream = move || Response::from(Body::stream(Timed::new(&streamed)));
        let upgrade = move || {
            let count = Arc::clone(&upgraded);
            Response::upgrade(HeaderValue::from_static("timed"), move |upgraded: Upgraded| {
                // Even what runs before the first poll.
                count_later(&count);
                async move {
                    // A protocol that no longer reads would end with its client.
                    let Upgraded { mut outgoing, incoming: _incoming } = upgraded;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    outgoing.send("in time").await.expect("the peer listens");
                    outgoing.finish();
                }
            })
        };
        for first in ["/stream", "/upgrade"] {
            let router =
                Router::new().get("/stream", stream.clone()).get("/upgrade", upgrade.clone());
            let server = start(router, transport);
            for path in [first, "/stream", "/upgrade", "/stream"] {
                let before = count.load(SeqCst);
                let mut peer = connect(server.address());
                let fields = "Connection: upgrade\r\nUpgrade: timed\r\n";
                let fields = if path == "/upgrade" { fields } else { "Connection: close\r\n" };
                let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
                peer.write_all(request.as_bytes()).expect("open");
                if path == "/upgrade" {
                    peer.shutdown(std::net::Shutdown::Write).expect("open");
                }
                let mut answer = String::new();
                peer.read_to_string(&mut answer).expect("an orderly end");
                assert!(answer.contains("in time"), "{transport:?} {path}: {answer}");
                assert!(eventually(|| count.load(SeqCst) > before), "{transport:?} {path}");
            }
        }
    }
}

/// Purpose: everything that a worker still holds when its server ends is dropped inside the
/// runtime.
#[test]
fn what_is_left_is_dropped_inside() {
    struct Guard(Arc<AtomicUsize>);

    impl Drop for Guard {
        fn drop(&mut self) {
            let _inside = tokio::runtime::Handle::try_current().expect("inside a runtime");
            self.0.fetch_add(1, SeqCst);
        }
    }

    for transport in transports() {
        use highwater::Handler;
        let count = Arc::new(AtomicUsize::new(0));
        let held = Arc::clone(&count);
        let wait = move || {
            let guard = Guard(Arc::clone(&held));
            async move {
                let _guard = guard;
                std::future::pending::<()>().await;
                StatusCode::OK
            }
        };
        let router = Router::new()
            .get("/ready", || "OK")
            .get("/wait", wait.clone())
            .get("/detached", wait.detached());
        let server = start(router, transport);
        let _waiting: Vec<TcpStream> = ["/wait", "/detached", "/detached"]
            .iter()
            .map(|path| {
                let mut stream = connect(server.address());
                let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
                stream.write_all(request.as_bytes()).expect("open");
                stream
            })
            .collect();
        assert!(ask(server.address(), "/ready").ends_with("OK"));
        drop(server);
        assert_eq!(count.load(SeqCst), 3, "{transport:?}");
    }
}

/// Purpose: a plain handler that spawns becomes a 500 in an application without a runtime, and
/// works in one with a runtime.
#[test]
fn plain_handlers_ask_for_a_runtime() {
    thread_local!(static SPAWNED: Cell<u32> = const { Cell::new(0) });
    fn spawn() -> String {
        tokio::task::spawn_local(async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            SPAWNED.set(SPAWNED.get() + 1);
        });
        SPAWNED.get().to_string()
    }
    for transport in transports() {
        let server = start(Router::new().get("/", spawn), transport);
        assert!(ask(server.address(), "/").starts_with("HTTP/1.1 500 "), "{transport:?}");
        assert!(ask(server.address(), "/").starts_with("HTTP/1.1 500 "), "{transport:?}");
        let nested = Router::new().nest("/below", Router::new().runtime()).get("/", spawn);
        for router in [Router::new().runtime().get("/", spawn), nested] {
            let server = start(router, transport);
            assert!(ask(server.address(), "/").ends_with("\r\n\r\n0"), "{transport:?}");
            assert!(eventually(|| !ask(server.address(), "/").ends_with("\r\n\r\n0")));
        }
    }
}

/// Purpose: the handle of a worker's runtime works on other threads even while the worker has
/// nothing else to do.
#[test]
fn handles_work_elsewhere() {
    for transport in transports() {
        let (give, taken) = std::sync::mpsc::channel();
        let handler = move || give.send(tokio::runtime::Handle::current()).map_or("", |()| "OK");
        let server = start(Router::new().runtime().get("/", handler), transport);
        assert!(ask(server.address(), "/").ends_with("OK"));
        let handle = taken.recv_timeout(HANG).expect("it was sent");
        std::thread::sleep(Duration::from_millis(200));
        for _ in 0..20 {
            let (sender, receiver) = std::sync::mpsc::channel();
            handle.spawn(async move { sender.send(()) });
            receiver.recv_timeout(HANG).expect("the task runs");
            handle.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
        }
        drop(server);
    }
}

/// A task that is woken by another thread ten thousand times while its first poll lasts; it counts its
/// polls.
struct Stormed {
    polls: u32,
}

impl Future for Stormed {
    type Output = u32;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u32> {
        self.polls += 1;
        if self.polls == 1 {
            let waker = context.waker().clone();
            let storm = move || (0..10_000).for_each(|_| waker.wake_by_ref());
            std::thread::spawn(storm).join().expect("it does not panic");
        }
        Poll::Pending
    }
}

/// Purpose: a handler that is woken ten thousand times is polled for all of it at once. Each wake-up once
/// was a poll of its own.
#[test]
fn a_storm_of_wake_ups_is_one_poll() {
    for transport in transports() {
        let router = Router::new().get("/", || async {
            let mut stormed = Stormed { polls: 0 };
            // The timer is another reason for polls: its wake-up, and the runtime's turns.
            let _ = tokio::time::timeout(Duration::from_millis(100), &mut stormed).await;
            stormed.polls.to_string()
        });
        let server = start(router, transport);
        let answer = ask(server.address(), "/");
        let polls: u32 =
            answer.rsplit("\r\n").next().and_then(|body| body.parse().ok()).expect("a number");
        assert!((2..100).contains(&polls), "{polls} polls over {transport:?}");
    }
}
