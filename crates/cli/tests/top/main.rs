//! `highwater top` as it is called, against a server that is asked, killed and started again.

mod terminal;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::process::{Command, Output, Stdio};
use std::thread;

use highwater::{Response, Router, Server, ServerConfig, StatusCode};
use highwater_testkit::{Load, PATIENCE, Process, full_disk, lasting_ports, program, within};
use serde_json::Value;

use terminal::{ENTER, LEAVE, Terminal};

/// Says where a re-executed test is to serve: the address of the server, and of its metrics.
const SERVE: &str = "TOP_TEST_SERVES";

/// Purpose: none of its own. It is the server if the environment says so, and does not return then.
#[test]
fn serve() {
    let Ok(addresses) = std::env::var(SERVE) else { return };
    let parse = |address: &str| address.parse::<SocketAddr>().expect("an address");
    let mut addresses = addresses.split(' ').map(parse);
    let config = ServerConfig {
        listen: vec![addresses.next().expect("the first").into()],
        metrics: addresses.next(),
        workers: NonZeroUsize::new(1),
        ..ServerConfig::default()
    };
    let router = Router::new()
        .get("/", || "Hello")
        .get("/users/{id}", || "one")
        .get("/never", || Response::from("no").with_status(StatusCode::NOT_FOUND));
    let server = Server::new(router).config(config).start().expect("the ports are free");
    let metrics = server.metrics_address().expect("it was asked for");
    eprintln!(" serving address={} metrics={metrics}", server.address());
    loop {
        thread::park();
    }
}

/// A server in a process of its own on these two ports: its own, and for its metrics.
fn served(first: u16) -> Process {
    let own = std::env::current_exe().expect("this program");
    let mut command = program(&own.to_string_lossy());
    command.args(["--exact", "serve", "--nocapture"]);
    command.env(SERVE, format!("127.0.0.1:{first} 127.0.0.1:{}", first + 1));
    Process::start(&mut command)
}

fn url(server: &Process) -> String {
    format!("http://{}", server.metrics())
}

fn top(arguments: &[&str]) -> Output {
    let command = Command::new(env!("CARGO_BIN_EXE_highwater")).arg("top").args(arguments).output();
    command.expect("the binary under test was built")
}

/// What it prints, if it ends well.
fn printed(arguments: &[&str]) -> String {
    let output = top(arguments);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {complaint}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Purpose: a snapshot that cannot be written, as on a full disk, is not a success, and the reason is said; but whoever
/// reads may stop.
#[test]
fn what_cannot_be_written_is_said() {
    let server = served(lasting_ports(2));
    let url = url(&server);
    let written_to = |stdout: Stdio, form: &str| {
        let arguments = ["top", &url, "--interval", "100ms", form];
        let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
        command.args(arguments).stdout(stdout).stderr(Stdio::piped());
        let output = command.spawn().and_then(std::process::Child::wait_with_output);
        let output = output.expect("the binary under test was built");
        (String::from_utf8_lossy(&output.stderr).into_owned(), output.status.code())
    };
    for form in ["--once", "--json"] {
        let (stderr, status) = written_to(full_disk().into(), form);
        assert!(stderr.contains("standard output: No space left on device"), "{stderr}");
        assert_eq!(status, Some(2), "{stderr}");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        assert_eq!(written_to(writer.into(), form), (String::new(), Some(0)));
    }
}

/// What it complains of, with its exit status.
fn complaint(arguments: &[&str]) -> (String, Option<i32>) {
    let output = top(arguments);
    (String::from_utf8_lossy(&output.stderr).into_owned(), output.status.code())
}

/// Purpose: a script gets the figures of a server under load as JSON, and a log as text, also where
/// nobody said that there is no terminal.
#[test]
fn snapshots() {
    let server = served(lasting_ports(2));
    let load = Load::on(server.address, "/users/7");
    // The load may take a while to begin.
    let mut json = Value::Null;
    let moves = within(PATIENCE, || {
        json = serde_json::from_str(&printed(&[&url(&server), "--json", "--interval", "500ms"]))
            .expect("JSON");
        json["requests_per_s"].as_f64() > Some(0.0)
    });
    assert!(moves, "{json:#}");
    assert_eq!(json["url"], format!("{}/metrics", url(&server)));
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(json["endpoints"][0]["endpoint"], "/users/{id}");
    assert!(json["endpoints"][0]["p50_us"].as_f64() > Some(0.0), "{json:#}");
    assert!(json["latency"]["p99_us"].as_f64() >= json["latency"]["p50_us"].as_f64(), "{json:#}");
    assert!(json["goodput_per_s"].as_f64() > Some(0.0), "{json:#}");
    assert!(json["memory_bytes"].as_f64() > Some(0.0), "{json:#}");
    assert_eq!(json["needs_scaleout"], false);
    assert!(json["transport"]["reason"].is_string() && json["gate"]["reason"].is_string());
    assert_eq!(json["workers"].as_array().map(Vec::len), Some(1));

    let page = format!("{}/metrics/", url(&server));
    for arguments in [&[&*page, "--once"][..], &[&*page]] {
        let text = printed(&[arguments, &["--interval", "200ms"]].concat());
        assert!(text.starts_with(&format!("Highwater {}", env!("CARGO_PKG_VERSION"))), "{text}");
        assert!(text.contains("\n/users/{id} "), "{text}");
    }
    drop(load);
}

/// Purpose: a program that is not a running Highwater server is recognized; the message says what is wrong and what to do.
#[test]
fn what_is_no_server() {
    let server = served(lasting_ports(2));
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    let stranger = TcpListener::bind("127.0.0.1:0").expect("a port");
    let strange = stranger.local_addr().expect("bound");
    thread::spawn(move || {
        for mut stream in stranger.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nup 1\n");
        }
    });
    for (url, message, status) in [
        (
            format!("http://{closed}"),
            "nothing listens there (connection refused); is the server running?",
            1,
        ),
        (format!("http://{strange}"), "its page has 1 samples, but no highwater_build_info", 1),
        (
            format!("http://{}", server.address),
            "answered 404: metrics are on a port of their own",
            1,
        ),
        ("ftp://x".to_owned(), "use one like http://127.0.0.1:9090", 2),
    ] {
        let (text, code) = complaint(&[&url, "--once"]);
        assert!(text.contains(message) && code == Some(status), "{url}: {code:?} {text}");
    }
    let (text, code) = complaint(&["--interval", "1ms"]);
    assert!(text.contains("--interval") && code == Some(2), "{text}");
}

/// Purpose: in a terminal, figures move under load; a server that is killed is said to be gone, and
/// comes back as restarted; keys work, and the shell's screen comes back.
#[test]
fn a_terminal() {
    let first = lasting_ports(2);
    let mut server = served(first);
    let Some(mut terminal) = Terminal::start(&url(&server)) else { return };
    terminal
        .until("live", |screen| screen.contains(" live\n") && screen.contains("no request yet"));
    let load = Load::on(server.address, "/users/7");
    terminal.until("busy", |screen| screen.contains("\n/users/{id} "));
    let moves = |screen: &str| {
        let rate = screen.split("Requests").nth(1).and_then(|rest| rest.split_whitespace().next());
        rate.and_then(|rate| rate.parse().ok()).is_some_and(|rate: f64| rate > 0.0)
    };
    terminal.until("moving", moves);
    server.kill();
    terminal.until("gone", |screen| screen.contains(" gone\n") && screen.contains("GONE for "));
    let _server = served(first);
    terminal.until("back", |screen| screen.contains(" ago\n") && !screen.contains("GONE for "));
    terminal.until("moving again", moves);
    terminal.press("p");
    terminal.until("paused", |screen| screen.contains(" paused\n"));
    terminal.press("p\t");
    terminal.until("in another order", |screen| screen.contains("slowest first"));
    terminal.press("q");
    assert_eq!(terminal.wait(), Some(0));
    let written = terminal.written();
    assert!(written.contains(ENTER) && written.trim_end().contains(LEAVE));
    drop(load);
}

/// Purpose: whoever ends it from outside gets the terminal back, and the shell learns of the signal.
#[test]
fn a_signal_restores_the_terminal() {
    let server = served(lasting_ports(2));
    for (signal, status) in [("TERM", 143), ("INT", 130)] {
        let Some(mut terminal) = Terminal::start(&url(&server)) else { return };
        terminal.until("live", |screen| screen.contains(" live\n"));
        terminal.signal(signal);
        assert_eq!(terminal.wait(), Some(status), "{signal}");
        assert!(terminal.written().contains(LEAVE), "{signal}");
    }
    // Ctrl-C is a key like another.
    let Some(mut terminal) = Terminal::start(&url(&server)) else { return };
    terminal.until("live", |screen| screen.contains(" live\n"));
    terminal.press("\u{3}");
    assert_eq!(terminal.wait(), Some(0));
}
