//! What each worker has for itself, over the public API: by test clients, and by a server with real workers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use highwater::server::TransportChoice;
use highwater::testing::Client;
use highwater::{
    Bytes, Next, OwnedRequest, PerWorker, Router, Server, ServerConfig, StatusCode, WorkerLocal,
    blocking, layer,
};

use crate::served;

/// A value that cannot leave its thread.
struct Counter {
    hits: Cell<u32>,
    _not_send: Rc<()>,
}

impl Counter {
    fn new() -> Self {
        Counter { hits: Cell::new(0), _not_send: Rc::new(()) }
    }

    fn hit(&self) -> String {
        self.hits.set(self.hits.get() + 1);
        self.hits.get().to_string()
    }
}

fn counting() -> Router {
    Router::new()
        .per_worker(PerWorker::new(|_| Counter::new()))
        .get("/", |counter: WorkerLocal<Counter>| counter.hit())
        .get("/async", async |counter: WorkerLocal<Counter>| {
            tokio::task::yield_now().await;
            counter.hit()
        })
        .get("/current", async || {
            tokio::task::yield_now().await;
            WorkerLocal::<Counter>::current().map(|counter| counter.hit())
        })
}

/// Purpose: handlers of every kind that runs on the worker find the worker's value, before and after they
/// have waited.
#[test]
fn handlers_share_what_their_worker_has() {
    let client = Client::new(counting());
    assert_eq!(client.get("/").text(), "1");
    assert_eq!(client.get("/async").text(), "2");
    assert_eq!(client.get("/current").text(), "3");
    assert!(WorkerLocal::<Counter>::current().is_none(), "this is no worker's turn");
}

/// Purpose: two workers on one thread keep apart, however their turns alternate. The pool of a thread was
/// once that of the client which was made last, and jobs of the first never ran.
#[test]
fn two_clients_on_one_thread() {
    let pass = async |request: OwnedRequest, next: Next| next.run(request).await;
    let app = || counting().layer(layer::around(pass)).get("/blocking", blocking(|| "done"));
    let (first, second) = (Client::new(app()), Client::new(app()));
    for round in 1..=3 {
        for client in [&first, &second] {
            assert_eq!(client.get("/").text(), round.to_string());
            assert_eq!(client.get("/blocking").text(), "done");
        }
    }
    drop(second);
    assert_eq!(first.get("/blocking").text(), "done");
}

/// Purpose: the end-of-turn hook sees all values of the turn, in order, and a hook that panics does no harm.
#[test]
fn the_end_of_a_turn() {
    type Batches = Arc<Mutex<Vec<Vec<Bytes>>>>;
    struct Batch(RefCell<Vec<Bytes>>, Batches);
    let batches = Batches::default();
    let shared = Arc::clone(&batches);
    let batch = PerWorker::new(move |_| Batch(RefCell::default(), Arc::clone(&shared)));
    let app = Router::new()
        .per_worker(batch.at_turn_end(|batch| {
            let records = batch.0.take();
            if !records.is_empty() {
                batch.1.lock().expect("no test panics").push(records);
            }
        }))
        .per_worker(PerWorker::new(|_| ()).at_turn_end(|()| panic!("on demand")))
        .post("/", |batch: WorkerLocal<Batch>, record: Bytes| {
            batch.0.borrow_mut().push(record);
            StatusCode::ACCEPTED
        });
    let client = Client::new(app);
    for record in ["a", "b", "c"] {
        assert_eq!(client.post("/", record).status, StatusCode::ACCEPTED);
    }
    let batches = batches.lock().expect("no test panics").concat();
    assert_eq!(batches, ["a", "b", "c"]);
}

/// Purpose: an end-of-turn hook that waits, for time to pass or for another thread, is called again although no client
/// does anything: batches that wait for their time, or for a disk, would lie there for ever. Wherever the worker waits.
#[test]
fn a_hook_may_wait() {
    #[derive(Default)]
    struct Seen {
        calls: AtomicU32,
        woken: AtomicU32,
        waker: Mutex<Option<Waker>>,
    }
    const LATER: u32 = 5;
    for transport in [TransportChoice::Auto, TransportChoice::Epoll] {
        for is_async in [false, true] {
            let seen = Arc::<Seen>::default();
            let shared = Arc::clone(&seen);
            let hook = move |_: &(), waker: &Waker| {
                let calls = seen.calls.fetch_add(1, SeqCst) + 1;
                if seen.waker.lock().expect("no test panics").replace(waker.clone()).is_some() {
                    seen.woken.fetch_add(1, SeqCst);
                }
                (calls < LATER).then_some(Duration::from_millis(3))
            };
            let router = Router::new().per_worker(PerWorker::new(|_| ()).poll_at_turn_end(hook));
            let router = if is_async {
                router.get("/", async |_: WorkerLocal<()>| "async")
            } else {
                router.get("/", |_: WorkerLocal<()>| "at once")
            };
            let mut server = served::start(router, transport);
            let mut stream = TcpStream::connect(server.address()).expect("it listens");
            stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect("sent");
            let until = |what: &str, done: &dyn Fn() -> bool| {
                let begun = Instant::now();
                while !done() {
                    assert!(begun.elapsed() < Duration::from_secs(20), "{what}: {transport:?}");
                    thread::sleep(Duration::from_millis(1));
                }
            };
            until("by time", &|| shared.calls.load(SeqCst) >= LATER);
            let before = shared.woken.load(SeqCst);
            shared.waker.lock().expect("no test panics").take().expect("it was called").wake();
            // The hook finds no waker, and leaves one; woken by that, it finds one.
            until("first", &|| shared.waker.lock().expect("no test panics").is_some());
            shared.waker.lock().expect("no test panics").clone().expect("it was left").wake();
            until("by another thread", &|| shared.woken.load(SeqCst) > before);
            server.stop().expect("it stops");
        }
    }
}

/// Purpose: each worker makes its own value on its own thread, and drops it there.
#[test]
fn each_worker_has_its_own() {
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<(usize, ThreadId)>>>, Arc<AtomicU32>);
    struct Mine(Seen, ThreadId);
    impl Drop for Mine {
        fn drop(&mut self) {
            assert_eq!(self.1, thread::current().id(), "it is dropped where it was made");
            self.0.1.fetch_add(1, SeqCst);
        }
    }
    let seen = Seen::default();
    let maker = seen.clone();
    let app = Router::new()
        .per_worker(PerWorker::with_future(move |worker| {
            let seen = maker.clone();
            async move {
                tokio::task::yield_now().await;
                let here = thread::current().id();
                assert_eq!(worker.workers, 3);
                seen.0.lock().expect("no test panics").push((worker.index, here));
                Ok::<_, std::io::Error>(Mine(seen, here))
            }
        }))
        .get("/", |mine: WorkerLocal<Mine>| {
            assert_eq!(mine.1, thread::current().id());
            "mine"
        });
    let workers = NonZeroUsize::new(3);
    let config = ServerConfig { workers, ..served::config(TransportChoice::Auto) };
    let mut server = served::start_with(app, config);
    for _ in 0..20 {
        let mut stream = TcpStream::connect(server.address()).expect("it listens");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        assert!(answer.ends_with("mine"), "{answer}");
    }
    server.stop().expect("it stops");
    let made = seen.0.lock().expect("no test panics");
    let indices: BTreeSet<usize> = made.iter().map(|(index, _)| *index).collect();
    let threads = made.iter().fold(Vec::new(), |mut all: Vec<ThreadId>, (_, thread)| {
        if !all.contains(thread) {
            all.push(*thread);
        }
        all
    });
    assert_eq!((indices, threads.len()), (BTreeSet::from([0, 1, 2]), 3));
    assert_eq!(seen.1.load(SeqCst), 3, "all were dropped");
}

/// Purpose: a value whose `Drop` panics when its worker ends is not a failure of the worker: the server has
/// drained, and says so. It was once reported as a worker that died.
#[test]
fn a_panic_in_drop_is_no_death() {
    struct Spiteful;
    impl Drop for Spiteful {
        fn drop(&mut self) {
            panic!("on demand, when dropped");
        }
    }
    let app = Router::new()
        .per_worker(PerWorker::new(|_| Spiteful).at_turn_end(|_| {}))
        .get("/", |_: WorkerLocal<Spiteful>| "here");
    let config = ServerConfig { workers: None, ..served::config(TransportChoice::Auto) };
    let mut server = served::start_with(app, config);
    server.stop().expect("all workers end well");
    assert!(!server.has_failed());
}

/// Purpose: a server whose workers lack a value does not start, and reports which and why; an application
/// whose handlers take what is not given, or is given twice, is not built.
#[test]
fn what_is_missing_is_said_at_start() {
    let app = Router::new()
        .per_worker(PerWorker::fallible(|_| Err::<Counter, _>("the database is away")))
        .get("/", || "ok");
    let config = ServerConfig { workers: None, ..served::config(TransportChoice::Auto) };
    let error = Server::new(app).config(config).start().expect_err("it must not start").to_string();
    assert!(error.contains("Counter` of a worker cannot be made: the database is away"), "{error}");

    let takes = |counter: WorkerLocal<Counter>| counter.hit();
    let error = Router::new().get("/", takes).build().expect_err("it has none").to_string();
    assert!(error.contains("add `.per_worker(…)`"), "{error}");
    let given = || PerWorker::new(|_| Counter::new());
    let twice = Router::new().per_worker(given()).nest("/n", Router::new().per_worker(given()));
    let error = twice.get("/", takes).build().expect_err("it has two").to_string();
    assert!(error.contains("two values per worker of type"), "{error}");
}
