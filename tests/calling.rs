//! Does a server drain from wherever it is run? Each place of `callers.rs`, as a process of its own, with each signal.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use highwater_testkit::{Client, Process, eventually, get, program, refuses_wrong_addresses};

/// Where servers are run, all of which drain.
const PLACES: [&str; 10] = [
    "main",
    "threads",
    "async",
    "task",
    "spawn-blocking",
    "spawn-blocking-one-thread",
    "handlers",
    "serve",
    "serve-one-thread",
    "graceful",
];

fn caller(place: &str) -> Command {
    let mut command = program(env!("CARGO_BIN_EXE_callers"));
    command.arg(place).env("HIGHWATER_LISTEN", "127.0.0.1:0").env("HIGHWATER_METRICS", "off");
    command.env("HIGHWATER_WORKERS", "2");
    command
}

/// A request is in flight, the signal comes, the request is answered, and the process ends with 0.
fn drains(place: &str, name: &str) {
    let mut server = Process::start(&mut caller(place));
    let mut client = server.connect();
    client.send(get("/slow")).expect("open");
    // Its request is behind this one, at another worker or the same; either way it is read before the end.
    assert_eq!(server.get("/").status, 200);
    thread::sleep(Duration::from_millis(200));
    server.signal(name);
    let answer = client.answer();
    assert_eq!((answer.status, answer.text()), (200, "slow"), "{place}, {name}: {}", server.log());
    let status = server.wait();
    let log = server.log();
    assert_eq!(status.code(), Some(0), "{place}, {name}: {status}, after\n{log}");
    if place == "handlers" {
        assert!(log.contains("the application has heard"), "{name}: {log}");
    }
    if place != "graceful" {
        assert!(log.contains(&format!("stopping signal=SIG{name}")), "{place}, {name}: {log}");
    }
    assert!(
        log.contains(" stopped address=") && log.contains(" answered_in_drain=1 connections_cut=0"),
        "{place}, {name}: {log}"
    );
}

/// Purpose: a request in flight is answered and the process ends with 0, wherever the server is run and whichever
/// signal stops it: nobody loses a drain by opening a pool in an async `main`.
#[test]
fn a_drain_is_never_lost() {
    thread::scope(|scope| {
        for place in PLACES {
            scope
                .spawn(move || ["TERM", "INT", "QUIT"].iter().for_each(|name| drains(place, name)));
        }
    });
}

/// Purpose: where `run` would block the runtime that the application's pools live on, it says so and what to write.
#[test]
fn a_blocked_runtime_is_refused() {
    let output = caller("one-thread").output().expect("the binary under test was built");
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(
        log.starts_with("Error: `run()` would block the only thread of the Tokio runtime"),
        "{log}"
    );
    assert!(log.contains("write `.serve().await`"), "{log}");
}

/// Purpose: dropping the future ends the server, and the program continues.
#[test]
fn a_dropped_future_ends_the_server() {
    let mut command = caller("dropped");
    command.stdin(Stdio::piped());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary under test was built");
    let mut stdin = child.stdin.take().expect("it is piped");
    let mut server = Process::of(child, " serving ");
    assert_eq!(server.get("/").status, 200);
    stdin.write_all(b"enough\n").expect("it reads");
    eventually("nobody listens", || Client::try_connect(server.address).is_err());
    server.wait_for(|line| line.contains(" stopped "));
    server.signal("TERM");
    // Its handlers are gone with the server.
    assert_eq!(server.wait().code(), None);
}

/// Purpose: a mistake in an address ends the program with one sentence that says what to write, whoever opens the
/// listener.
#[test]
fn wrong_addresses_get_a_remedy() {
    for place in ["main", "serve"] {
        refuses_wrong_addresses(|address| {
            let mut command = caller(place);
            command.env("HIGHWATER_LISTEN", address);
            command
        });
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().expect("it is bound").to_string();
    let is_taken = "another process listens there: stop it, or choose another port";
    for (place, variable, value, remedy) in [
        ("main", "HIGHWATER_METRICS", &*taken, is_taken),
        ("serve", "HIGHWATER_METRICS", &taken, is_taken),
        ("tower", "HIGHWATER_METRICS", &taken, is_taken),
        (
            "main",
            "HIGHWATER_METRICS",
            "9090",
            "the IP address is missing; use an IP address and a port",
        ),
        ("main", "HIGHWATER_WORKER", "2", "did you mean HIGHWATER_WORKERS?"),
        // Tokio's own sentences do not name the address.
        (
            "tower",
            "HIGHWATER_LISTEN",
            "127.0.0.1",
            "use an IP address and a port, such as 127.0.0.1:8080",
        ),
        ("tower", "HIGHWATER_LISTEN", &taken, is_taken),
    ] {
        let output = caller(place).env(variable, value).output().expect("it was built");
        let log = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{log}");
        let lines: Vec<&str> = log.lines().filter(|line| line.starts_with("Error: ")).collect();
        let [line] = lines[..] else { panic!("{place}, {variable}={value}: {log}") };
        assert!(line.contains(remedy), "{place}, {variable}={value}: {log}");
        assert!(place == "tower" || line.contains(value), "{variable}={value}: {log}");
        assert!(!line.contains("Custom {"), "{place}: {log}");
    }
}
