//! Starting and stopping servers inside a program: a failure leaves nothing behind, and servers do
//! not affect each other.

mod answers;
mod served;
mod transports;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZero;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use highwater::metrics::Metrics;
use highwater::server::{LogFormat, TransportChoice};
use highwater::{Router, Running, Server, ServerConfig, ServerError};
use served::HANG;
use transports::transports;

/// The tests here look at the threads of the process, and have to be alone for that.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> impl Drop {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn config(transport: TransportChoice) -> ServerConfig {
    ServerConfig { workers: NonZero::new(2), ..served::config(transport) }
}

fn start(config: ServerConfig) -> Result<Running, ServerError> {
    Server::new(Router::new().get("/", || "OK")).config(config).start()
}

/// What the server at `address` answers.
fn ask(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, HANG)?;
    stream.set_read_timeout(Some(HANG))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The names of the threads that servers have started.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux has it");
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        // A thread may end while we look.
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    let names = tasks.filter_map(name).map(|name| name.trim().to_owned());
    names.filter(|name| name.starts_with("highwater-")).collect()
}

fn eventually(condition: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !condition() && begun.elapsed() < HANG {
        std::thread::sleep(Duration::from_millis(5));
    }
    condition()
}

/// Purpose: a server whose metrics port is taken does not start: no worker serves, no thread is
/// left, and the port is free again.
#[test]
fn a_late_failure_leaves_nothing_behind() {
    let _alone = alone();
    for transport in transports() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let listen = free.expect("a free port");
        let metrics = Some(taken.local_addr().expect("it is bound"));
        let error =
            start(ServerConfig { listen: vec![listen.into()], metrics, ..config(transport) });
        let error = error.expect_err("the metrics port is taken");
        assert!(matches!(error, ServerError::Bind(..)), "{error}");
        assert_eq!(threads(), Vec::<String>::new(), "{transport:?}");
        assert!(ask(listen).is_err(), "{transport:?}: it still serves");
        let running = start(ServerConfig { listen: vec![listen.into()], ..config(transport) })
            .expect("it is free");
        assert!(ask(listen).expect("it serves").ends_with("OK"));
        drop(running);
    }
}

/// Purpose: a second server on the same port, or with the same metrics, is an error with a clear
/// message, and does not affect the first.
#[test]
fn a_second_server_is_an_error() {
    let _alone = alone();
    for transport in transports() {
        let metrics = Metrics::new();
        let first = Server::new(Router::new().get("/", || "OK")).metrics(&metrics);
        let first = first.config(config(transport)).start().expect("it starts");
        let same_port = ServerConfig { listen: vec![first.address().into()], ..config(transport) };
        let error = start(same_port.clone()).expect_err("the port is taken");
        assert!(matches!(error, ServerError::Bind(..)), "{error}");
        let second = Server::new(Router::new()).metrics(&metrics).config(same_port).start();
        let error = second.expect_err("all of it is taken");
        assert!(matches!(error, ServerError::Metrics), "{error}");
        assert!(ask(first.address()).expect("it serves").ends_with("OK"));
    }
}

/// Purpose: nothing of a server outlives it, and the end of one server does not affect another.
#[test]
fn nothing_outlives_a_server() {
    let _alone = alone();
    for transport in transports() {
        let first = start(config(transport)).expect("it starts");
        let second = start(config(transport)).expect("it starts");
        drop(first);
        assert!(ask(second.address()).expect("it serves").ends_with("OK"));
        drop(second);
        assert!(eventually(|| threads().is_empty()), "{:?}", threads());
    }
}

/// Purpose: a second service on one machine starts although the first has the default metrics port, with its metrics
/// elsewhere; a port that was asked for by name is not replaced.
#[test]
fn a_default_metrics_port_that_is_taken_is_replaced() {
    let _alone = alone();
    // This test may hold it, or another process.
    let _taken = TcpListener::bind("127.0.0.1:9090");
    let default = ServerConfig { log: LogFormat::Off, ..ServerConfig::default() };
    let settings = || ServerConfig { metrics: default.metrics, ..config(TransportChoice::Auto) };
    let running = start(settings()).expect("it starts");
    let metrics = running.metrics_address().expect("there are metrics");
    assert!(metrics.ip().is_loopback() && metrics.port() != 9090, "{metrics}");
    let mut stream = TcpStream::connect_timeout(&metrics, HANG).expect("it listens");
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").expect("open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is answered");
    assert!(answer.ends_with("ok"), "{answer}");
    drop(running);

    let error = start(ServerConfig { metrics_is_fixed: true, ..settings() });
    let error = error.expect_err("it is taken").to_string();
    assert!(error.starts_with("cannot listen on 127.0.0.1:9090: "), "{error}");
    let expected = "another process listens there: stop it, or choose another port (the setting metrics, or HIGHWATER_METRICS)";
    assert!(error.ends_with(expected), "{error}");
}
