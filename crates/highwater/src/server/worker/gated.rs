//! The accept gate over real sockets: how many connections it admits, and that it never stays shut.
//!
//! Handlers await, so that every admitted request is in flight; clients open a connection for each request,
//! and fail if they are not answered.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{array, io};

use highwater_core::prng::Prng;
use highwater_sys::epoll::Epoll;
use highwater_sys::portable::Portable;
use highwater_sys::uring::Uring;
use highwater_sys::{DriverConfig, Listener};

use super::run::Phase;
use super::{Inbox, Pool, ServerConfig, WorkerConfig};
use crate::admission::Shed;
use crate::admission::gate::{Bound, Counts, WorkerGate};
use crate::app::{Router, State, WorkerInfo};
use crate::metrics::WorkerMetrics;
use crate::server::threads;
use crate::server::transport::Kind;

/// A client gives up, and its test fails, when it was not answered for this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many handlers run at once, as they count themselves.
#[derive(Default)]
struct Seen {
    now: AtomicU32,
    most: AtomicU32,
    done: AtomicU64,
}

/// Lasts for a few turns of the worker, so that others are admitted meanwhile.
async fn linger(State(seen): State<Arc<Seen>>) -> &'static str {
    let now = seen.now.fetch_add(1, SeqCst) + 1;
    seen.most.fetch_max(now, SeqCst);
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
    seen.now.fetch_sub(1, SeqCst);
    seen.done.fetch_add(1, SeqCst);
    "done"
}

/// One worker behind a gate whose limit the test moves.
struct Gated {
    address: SocketAddr,
    bound: Arc<Bound>,
    seen: Arc<Seen>,
    metrics: Arc<WorkerMetrics>,
    phase: Arc<Phase>,
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Gated {
    fn start(kind: Kind, limit: u32) -> Gated {
        let seen = Arc::new(Seen::default());
        let router = Router::new().state(Arc::clone(&seen)).get("/", linger);
        let app = router.build().expect("one route");
        let metrics = Arc::new(WorkerMetrics::new(app.endpoints().len()));
        let bound = Bound::new(limit);
        // No request is to be refused for waiting, however slow the machine is that tests.
        let server = ServerConfig {
            patience: PATIENCE,
            queue_target: PATIENCE,
            connections_max: Some(10_000),
            ..ServerConfig::default()
        };
        let worker = WorkerConfig {
            gate: WorkerGate::new(Shed::Accept, &bound, (0, 1), Arc::clone(&metrics), None)
                .counting(Counts::Work),
            metrics: Arc::clone(&metrics),
            ..WorkerConfig::new(app, &server)
        };
        let listener = Listener::bind(([127, 0, 0, 1], 0).into(), 4096).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let phase = Arc::new(Phase::default());
        let (ready, started) = mpsc::sync_channel(1);
        let followed = Arc::clone(&phase);
        let thread = thread::spawn(move || {
            let (config, pool) = (DriverConfig::default(), Pool::new(1, PATIENCE, 1));
            let begins = |inbox: &Arc<Inbox>| ready.send(Arc::clone(inbox)).expect("it is awaited");
            match kind {
                Kind::Uring { .. } => threads::work(
                    Uring::new(vec![listener], &config)?,
                    worker,
                    WorkerInfo::new(0, 1),
                    pool,
                    &followed,
                    begins,
                ),
                Kind::Epoll => threads::work(
                    Epoll::new(vec![listener], &config)?,
                    worker,
                    WorkerInfo::new(0, 1),
                    pool,
                    &followed,
                    begins,
                ),
                Kind::Portable => threads::work(
                    Portable::new(vec![listener], &config)?,
                    worker,
                    WorkerInfo::new(0, 1),
                    pool,
                    &followed,
                    begins,
                ),
            }
        });
        let inbox = started.recv().expect("the worker begins");
        Gated { address, bound, seen, metrics, phase, inbox, thread: Some(thread) }
    }

    /// Waits until `count` more requests have been answered.
    fn see_out(&self, count: u64) {
        let until = self.seen.done.load(SeqCst) + count;
        while self.seen.done.load(SeqCst) < until {
            thread::sleep(Duration::from_micros(200));
        }
    }
}

impl Drop for Gated {
    fn drop(&mut self) {
        self.phase.drain();
        self.inbox.nudge();
        let ended = self.thread.take().expect("it is dropped once").join();
        if !thread::panicking() {
            ended.expect("a worker does not panic").expect("its driver does not fail");
        }
    }
}

/// Asks once, over a connection of its own.
fn ask(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    match answer.starts_with(b"HTTP/1.1 200 ") && answer.ends_with(b"done") {
        true => Ok(()),
        false => Err(io::Error::other(answer.escape_ascii().to_string())),
    }
}

/// The transports that this machine has.
fn transports() -> Vec<Kind> {
    match highwater_sys::probe().uring {
        Ok(()) => vec![Kind::Uring { or_epoll: false }, Kind::Epoll, Kind::Portable],
        Err(reason) => {
            highwater_skip::skip("io_uring", reason);
            vec![Kind::Epoll, Kind::Portable]
        }
    }
}

/// Purpose: a limit of four admits four and not a fifth, and every client is served.
#[test]
fn a_limit_of_four_lets_in_four() {
    for kind in transports() {
        let gated = Gated::start(kind, 4);
        let address = gated.address;
        let clients: [_; 16] =
            array::from_fn(|_| thread::spawn(move || (0..50).try_for_each(|_| ask(address))));
        for client in clients {
            let outcome = client.join().expect("no client panics");
            outcome.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        }
        assert_eq!(gated.seen.done.load(SeqCst), 16 * 50);
        assert_eq!(gated.seen.most.load(SeqCst), 4, "{kind:?}: it is filled, and not overfilled");
        assert_eq!(gated.metrics.take_load_max(), 4, "{kind:?}");
    }
}

/// Purpose: a gate that shuts after each connection opens again after each answer, ten thousand times over.
/// (Other servers have missed one resume, and never accepted again.)
#[test]
fn ten_thousand_pauses_end() {
    for kind in transports() {
        let gated = Gated::start(kind, 1);
        let address = gated.address;
        let clients: [_; 4] =
            array::from_fn(|_| thread::spawn(move || (0..2500).try_for_each(|_| ask(address))));
        for client in clients {
            let outcome = client.join().expect("no client panics");
            outcome.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        }
        assert_eq!(gated.seen.done.load(SeqCst), 10_000);
        assert_eq!(gated.seen.most.load(SeqCst), 1, "{kind:?}");
        // The last client may have its answer before the worker's turn has ended.
        while gated.metrics.in_flight.get() > 0 {
            thread::yield_now();
        }
    }
}

/// Purpose: the limit may change a thousand times under load, and no request is admitted beyond it. Requests
/// admitted under a higher limit may finish: so each time the limit falls, that many requests complete before
/// the test counts.
#[test]
fn a_changing_limit_is_never_exceeded() {
    for kind in transports() {
        let gated = Gated::start(kind, 8);
        let (address, stop) = (gated.address, Arc::new(AtomicBool::new(false)));
        let clients: [_; 12] = array::from_fn(|_| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                while !stop.load(SeqCst) {
                    ask(address)?;
                }
                Ok::<(), io::Error>(())
            })
        });
        let (mut prng, mut limit) = (Prng::from_seed(7), 8);
        for change in 0..1000 {
            let next = prng.range(1..9) as u32;
            gated.bound.set(next);
            // Requests in flight, and requests that still fitted when it fell.
            gated.see_out(u64::from(2 * limit));
            // The thread of a client that was let in before may not have run since.
            while gated.metrics.in_flight.get() > u64::from(next) {
                thread::sleep(Duration::from_micros(200));
            }
            gated.seen.most.store(0, SeqCst);
            gated.metrics.take_load_max();
            gated.see_out(4);
            let (most, held) = (gated.seen.most.load(SeqCst), gated.metrics.take_load_max());
            assert!(
                most <= next && held <= next,
                "{kind:?}, change {change}: {most}, {held} > {next}"
            );
            limit = next;
        }
        stop.store(true, SeqCst);
        gated.bound.set(8);
        for client in clients {
            let outcome = client.join().expect("no client panics");
            outcome.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        }
    }
}
