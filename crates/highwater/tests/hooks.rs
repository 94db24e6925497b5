//! What an application does before it serves, beside serving, and after it has served.
#![forbid(unsafe_code)]

mod answers;
mod served;

use std::future::pending;
use std::io::Error;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use highwater::server::TransportChoice;
use highwater::{Draining, HOOK_TIME_MAX, Router, Running, Server, ServerConfig, ServerError};
use served::HANG;

/// The tests here look at the threads of the process, and have to be alone for that.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> impl Drop {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What has happened, in order.
#[derive(Clone, Default)]
struct EventLog(Arc<Mutex<Vec<String>>>);

impl EventLog {
    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A hook that notes something before it does something else.
macro_rules! hook {
    ($event_log:expr, $what:literal, $body:expr) => {{
        let event_log = $event_log.clone();
        move || async move {
            event_log.lock().push($what.to_owned());
            let body: Result<(), Error> = $body;
            body
        }
    }};
}

fn panics() -> Result<(), Error> {
    panic!("on demand")
}

fn start(router: Router, config: ServerConfig) -> Result<Running, ServerError> {
    Server::new(router).config(config).start()
}

fn config() -> ServerConfig {
    served::config(TransportChoice::Auto)
}

fn free() -> SocketAddr {
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    free.expect("a free port")
}

fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux has it");
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    let names = tasks.filter_map(name).map(|name| name.trim().to_owned());
    names.filter(|name| name == "highwater-hooks").collect()
}

/// Purpose: start hooks run in the order in which they were given, those of inner routers later, before anybody is let in; stop
/// hooks run backwards, after the drain and the tasks.
#[test]
fn order() {
    let _alone = alone();
    let event_log = EventLog::default();
    let address = free();
    let listens = {
        let event_log = event_log.clone();
        move || async move {
            event_log.lock().push(format!("listens: {}", TcpStream::connect(address).is_ok()));
            Ok::<(), Error>(())
        }
    };
    let task = {
        let event_log = event_log.clone();
        move |draining: Draining| async move {
            event_log.lock().push("task begins".into());
            draining.begun().await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            event_log.lock().push("task ends".into());
        }
    };
    let inner = Router::new()
        .on_start("inner", hook!(event_log, "inner start", Ok(())))
        .on_stop("inner", hook!(event_log, "inner stop", Ok(())));
    let router = Router::new()
        .get("/", || "OK")
        .nest("/inner", inner)
        .on_start("first", hook!(event_log, "first start", Ok(())))
        .on_stop("first", hook!(event_log, "first stop", Ok(())))
        .background("task", task)
        .on_start("second", listens)
        .on_stop("second", hook!(event_log, "second stop", Ok(())));
    let config = ServerConfig { listen: vec![address.into()], ..config() };
    let mut running = start(router, config).expect("it starts");
    let answer =
        served::exchange(address, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert_eq!(answer.status, 200);
    assert_eq!(threads().len(), 1);
    running.stop().expect("all ended well");
    let expected = [
        "first start",
        "listens: false",
        "inner start",
        "task begins",
        "task ends",
        "inner stop",
        "second stop",
        "first stop",
    ];
    assert_eq!(*event_log.lock(), expected);
    running.stop().expect("there is nothing left to do");
    assert_eq!(event_log.lock().len(), expected.len(), "each hook runs once");
}

/// Purpose: a start hook that fails, panics or takes too long ends the start with a sentence that names it; hooks behind it do not
/// run, stop hooks before it do, and nobody was let in.
#[test]
fn starts_that_fail() {
    let _alone = alone();
    let quick = Duration::from_millis(20);
    for (kind, sentence) in [
        ("error", "the start hook `migrations` failed: the table is locked"),
        ("panic", "the start hook `migrations` panicked: on demand"),
        (
            "pending",
            "the start hook `migrations` takes longer than 20ms; give it more time with `Router::on_start_within`",
        ),
    ] {
        let event_log = EventLog::default();
        let fails = move || async move {
            match kind {
                "error" => Err(Error::other("the table is locked")),
                "panic" => panic!("on demand"),
                _ => pending().await,
            }
        };
        let router = Router::new()
            .on_stop("opened before", hook!(event_log, "closed", Ok(())))
            .on_start_within(quick, "migrations", fails)
            .on_stop("opened later", hook!(event_log, "not opened", Ok(())))
            .on_start("later", hook!(event_log, "later", Ok(())))
            .background("task", |_| pending());
        let address = free();
        let error = start(router, ServerConfig { listen: vec![address.into()], ..config() });
        let error = error.expect_err(kind);
        assert!(matches!(error, ServerError::Hook(_)));
        assert_eq!((error.to_string(), format!("{error:?}")), (sentence.into(), sentence.into()));
        assert_eq!(*event_log.lock(), ["closed"], "{kind}");
        assert!(TcpStream::connect(address).is_err(), "{kind}: it listens");
    }
}

/// Purpose: if the server cannot listen although the hooks have succeeded, what they have opened is closed.
#[test]
fn a_taken_port_closes_what_was_opened() {
    let _alone = alone();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound");
    let event_log = EventLog::default();
    let router = Router::new()
        .on_start("pool", hook!(event_log, "opened", Ok(())))
        .on_stop("pool", hook!(event_log, "closed", Ok(())));
    let error = start(router, ServerConfig { listen: vec![address.into()], ..config() });
    assert!(matches!(error, Err(ServerError::Bind(..))));
    assert_eq!(*event_log.lock(), ["opened", "closed"]);
}

/// Purpose: a stop hook that fails, panics or hangs keeps no other from running, and the end is bounded.
#[test]
fn stops_that_fail() {
    let _alone = alone();
    let event_log = EventLog::default();
    let router = Router::new()
        .on_stop("last", hook!(event_log, "last", Ok(())))
        .on_stop("fails", hook!(event_log, "fails", Err(Error::other("on demand"))))
        .on_stop("panics", hook!(event_log, "panics", panics()))
        .on_stop_within(
            Duration::from_millis(20),
            "hangs",
            hook!(event_log, "hangs", pending().await),
        );
    let mut running = start(router, config()).expect("it starts");
    let begun = Instant::now();
    running.stop().expect("it has served");
    assert!(begun.elapsed() < HOOK_TIME_MAX, "{:?}", begun.elapsed());
    assert_eq!(*event_log.lock(), ["hangs", "panics", "fails", "last"]);
}

/// Purpose: the drain waits for tasks until its end, as for requests; one that panics ends alone, and a server without a drain
/// does not wait.
#[test]
fn tasks_and_the_drain() {
    let _alone = alone();
    struct Dropped(EventLog);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.lock().push("dropped".into());
        }
    }
    let event_log = EventLog::default();
    let endless = Dropped(event_log.clone());
    let router = Router::new()
        .get("/", || "OK")
        .background("panics", |_| async { panic!("on demand") })
        .background("ends at once", |_| async {})
        .background("endless", move |_| async move {
            let _endless = endless;
            pending().await
        })
        .on_stop("after", hook!(event_log, "after", Ok(())));
    let drain_timeout = Duration::from_millis(200);
    let mut running = start(router, ServerConfig { drain_timeout, ..config() }).expect("it starts");
    let address = running.address();
    let answer =
        served::exchange(address, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert_eq!(answer.status, 200, "a task that panics ends alone");
    let begun = Instant::now();
    running.stop().expect("it has served");
    assert!(begun.elapsed() >= drain_timeout && begun.elapsed() < HANG, "{:?}", begun.elapsed());
    assert_eq!(*event_log.lock(), ["dropped", "after"]);

    let event_log = EventLog::default();
    let router = Router::new()
        .background("endless", |_| pending())
        .on_stop("after", hook!(event_log, "after", Ok(())));
    let running =
        start(router, ServerConfig { drain_timeout: HANG, ..config() }).expect("it starts");
    let begun = Instant::now();
    drop(running);
    assert!(begun.elapsed() < HANG / 2, "{:?}", begun.elapsed());
    assert_eq!(*event_log.lock(), ["after"]);
}

/// Purpose: hooks may block in the pool of their runtime and spawn tasks that live on; an application without hooks has no thread
/// for them.
#[test]
fn a_runtime_of_their_own() {
    let _alone = alone();
    let running = start(Router::new().get("/", || "OK"), config()).expect("it starts");
    assert_eq!(threads(), Vec::<String>::new());
    drop(running);

    let event_log = EventLog::default();
    let (again, ends) = (event_log.clone(), event_log.clone());
    let spawns = move || async move {
        let read = tokio::task::spawn_blocking(|| std::fs::read_to_string("/proc/self/comm"));
        assert!(!read.await.expect("it does not panic")?.is_empty());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            again.lock().push("later".into());
        });
        Ok::<(), Error>(())
    };
    let router = Router::new().on_start("spawns", spawns).on_stop("ends", move || async move {
        let begun = Instant::now();
        while ends.lock().is_empty() && begun.elapsed() < HANG {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        ends.lock().push("stopped".into());
        Ok::<(), Error>(())
    });
    start(router, config()).expect("it starts").stop().expect("it has served");
    assert_eq!(*event_log.lock(), ["later", "stopped"]);
}
