//! The accept gate over real sockets: whom it lets in, and that it never stays shut.
//!
//! Handlers await, so that as many are under way as are let in; clients open a connection for each
//! request, and fail if they are not answered.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{array, io};

use highwater_core::http1::Limits;
use highwater_core::prng::Prng;
use highwater_sys::epoll::Epoll;
use highwater_sys::uring::Uring;
use highwater_sys::{DriverConfig, Listener};

use super::run::Phase;
use super::transport::Kind;
use super::{Bounds, Inbox, Pool, ServerConfig, THINK_MAX, WorkerParts, crew};
use crate::admission::Shed;
use crate::admission::gate::{Bound, Counts, WorkerGate};
use crate::app::{Router, State};
use crate::log;
use crate::metrics::WorkerMetrics;

/// A client gives up, and its test fails, when it was not answered for so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// What handlers see of each other.
#[derive(Default)]
struct Seen {
    now: AtomicU32,
    most: AtomicU32,
    done: AtomicU64,
}

/// Lasts for a few turns of the worker, so that others are let in meanwhile.
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
        let config = ServerConfig::default();
        let parts = WorkerParts {
            app,
            limits: Limits::default(),
            connections_max: 10_000,
            metrics: Arc::clone(&metrics),
            gate: WorkerGate::new(Shed::Accept, &bound, (0, 1), Arc::clone(&metrics), None)
                .counting(Counts::Work),
            // Nobody is to be refused for waiting, however slow the machine is that tests.
            patience: PATIENCE,
            queue_target: PATIENCE,
            deadline_max: config.deadline_max,
            think_max: THINK_MAX,
            bounds: Bounds::default(),
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
                Kind::Uring => {
                    crew::work(Uring::new(listener, &config)?, parts, pool, &followed, begins)
                }
                Kind::Epoll => {
                    crew::work(Epoll::new(listener, &config)?, parts, pool, &followed, begins)
                }
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
        Ok(()) => vec![Kind::Uring, Kind::Epoll],
        Err(reason) => {
            log::warn!("only epoll is tested", reason = %reason);
            vec![Kind::Epoll]
        }
    }
}

/// Purpose: a limit of four lets in four and not a fifth, and everybody's turn comes.
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

/// Purpose: a gate that shuts after each connection opens again after each answer, ten thousand
/// times over. (Other servers have been seen to miss one resume, and never to accept again.)
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
        // The last client may have heard before the worker's turn has ended.
        while gated.metrics.in_flight.get() > 0 {
            thread::yield_now();
        }
    }
}

/// Purpose: the limit may move a thousand times under load, and nobody is let in beyond it. What came
/// in under a higher limit may finish: so each time it falls, as many as that let in are seen out
/// before anybody counts.
#[test]
fn a_moving_limit_lets_in_nobody_beyond_it() {
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
            // Those who were in, and those for whom there was room when it fell.
            gated.see_out(u64::from(2 * limit));
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
