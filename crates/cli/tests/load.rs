//! `highwater load` as it is called, against servers that misbehave and against our own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use highwater::{Router, Server, ServerConfig};
use highwater_testkit::full_disk;
use serde_json::Value;

/// A server of one thread per connection, until the process ends.
fn serve(on_connection: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || on_connection(stream));
        }
    });
    address
}

/// Reads one request without a body. False at the end of the connection.
fn read_request(stream: &mut TcpStream) -> bool {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => request.push(byte[0]),
            _ => return false,
        }
    }
    true
}

/// Says `answer` to each request.
fn answer(mut stream: TcpStream, answer: &str) {
    while read_request(&mut stream) && stream.write_all(answer.as_bytes()).is_ok() {}
}

fn highwater(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_highwater"))
        .arg("load")
        .args(arguments)
        .output()
        .expect("the binary under test was built")
}

/// The JSON of a short run, and its exit status.
fn load(address: SocketAddr, arguments: &[&str]) -> (Value, i32) {
    let url = format!("http://{address}/path");
    let fixed = [&url, "--json", "--warmup", "0s", "--duration", "300ms"];
    let output = highwater(&[&fixed[..], arguments].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    let json = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr))
    });
    (json, output.status.code().expect("not killed"))
}

fn count(json: &Value, field: &str) -> u64 {
    json[field].as_u64().unwrap_or_else(|| panic!("{field} in {json}"))
}

/// That every request of a run ended in the one way called `field`, on every transport.
fn all_end_as(field: &str, address: SocketAddr, arguments: &[&str], status: i32) -> Value {
    let mut last = Value::Null;
    for transport in ["auto", "epoll"] {
        let (json, code) = load(address, &[arguments, &["--transport", transport]].concat());
        assert_eq!(code, status, "{json}");
        assert!(count(&json, "sent") > 0, "{json}");
        for end in ["ok", "non_2xx", "refused", "timeouts", "resets", "truncated", "malformed"] {
            let expected = if end == field { count(&json, "sent") } else { 0 };
            assert_eq!(count(&json, end), expected, "{end} of {json}");
        }
        last = json;
    }
    last
}

/// Purpose: where a run is interrupted while all connections are busy, those are what was missing, and not the client's CPU;
/// one that is interrupted in its warm-up blames nobody.
#[test]
fn an_interruption_blames_nobody_else() {
    let silent = serve(|mut stream| while read_request(&mut stream) {});
    let url = format!("http://{silent}/");
    for (warmup, expected) in [
        ("0s", "none of 1 connections was free in time"),
        ("20s", "no request succeeded: the run was interrupted before anything was measured"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
        command.args(["load", &url, "--warmup", warmup, "-d", "20s", "-c", "1", "--rate", "200"]);
        let client = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let client = client.expect("the binary under test was built");
        std::thread::sleep(Duration::from_millis(1500));
        let kill = Command::new("kill").args(["-INT", &client.id().to_string()]).status();
        assert!(kill.expect("kill is everywhere").success());
        let output = client.wait_with_output().expect("it ends");
        let output = [output.stdout, output.stderr].concat();
        let output = String::from_utf8_lossy(&output);
        assert!(output.contains("(interrupted)") && output.contains(expected), "{output}");
        assert!(!output.contains("on which less else runs"), "{output}");
    }
}

/// Purpose: a report that cannot be written, as on a full disk, is not a success, and the reason is said.
#[test]
fn a_report_that_cannot_be_written_is_a_failure() {
    let server = serve(|s| answer(s, "HTTP/1.1 204 No Content\r\n\r\n"));
    let url = format!("http://{server}/");
    for form in ["--json", "--quiet"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
        command.args(["load", &url, "--warmup", "0s", "--duration", "100ms", form]);
        command.stdout(full_disk()).stderr(Stdio::piped());
        let output = command.spawn().and_then(std::process::Child::wait_with_output);
        let output = output.expect("the binary under test was built");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("standard output: No space left on device"), "{stderr}");
        assert_eq!(output.status.code(), Some(2), "{stderr}");
    }
}

/// Purpose: answers of every framing are whole answers.
#[test]
fn answers_are_counted() {
    for (server, extra) in [
        (serve(|s| answer(s, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")), &[][..]),
        (serve(|s| answer(s, "HTTP/1.1 204 No Content\r\n\r\n")), &["--pipeline", "7"]),
        (
            serve(|s| {
                answer(
                    s,
                    "HTTP/1.1 103 Hint\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
                )
            }),
            &["--requests-per-connection", "5"],
        ),
        (
            serve(|mut stream| {
                read_request(&mut stream);
                let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nto the end");
            }),
            &["--connections", "4", "--close"],
        ),
        (
            serve(|s| answer(s, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")),
            &["--method", "HEAD", "--rate", "200"],
        ),
    ] {
        all_end_as("ok", server, extra, 0);
    }
}

/// Purpose: other statuses are counted by number, and are no goodput.
#[test]
fn other_statuses() {
    let server = serve(|s| answer(s, "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"));
    let json = all_end_as("non_2xx", server, &["--deadline", "2s"], 1);
    assert_eq!(count(&json["statuses"], "503"), count(&json, "sent"));
    assert_eq!(json["goodput_per_s"], 0.0);
}

/// Purpose: a port on which no server listens is a refusal, and exit status 1 says that nothing was
/// loaded.
#[test]
fn refused() {
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    all_end_as("refused", closed.expect("loopback has a free port"), &[], 1);
}

/// Purpose: a server that resets connections is distinguished from one that closes them too early.
#[test]
fn reset_and_truncated() {
    let resets = serve(|stream| {
        // With the request unread, the kernel resets.
        let _ = stream.peek(&mut [0]);
    });
    all_end_as("resets", resets, &[], 1);
    let truncates = serve(|mut stream| {
        read_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfive!");
    });
    all_end_as("truncated", truncates, &[], 1);
}

/// Purpose: an answer that is not HTTP is malformed, and the report says how.
#[test]
fn malformed() {
    let lies = serve(|s| answer(s, "HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok"));
    let json = all_end_as("malformed", lies, &[], 1);
    assert_eq!(json["malformation"], "Content-Length is not a number");
    let talks_on =
        serve(|s| answer(s, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nmore than two"));
    let json = all_end_as("ok", talks_on, &[], 0);
    assert_eq!(json["malformation"], "bytes after the end of an answer");
}

/// Purpose: a server that stalls costs each request its deadline, and the run still ends.
#[test]
fn stalled() {
    let stalls = serve(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    for extra in [
        &["--rate", "300", "--close", "--deadline", "1s"][..],
        // Its users must come back within the span.
        &["--connections", "8", "--deadline", "50ms"],
    ] {
        all_end_as("timeouts", stalls, extra, 1);
    }
}

/// Purpose: in an open loop, a stall of a server is charged to every request that was due meanwhile. It
/// stalls for half a second from the first of 120 that are due within 300 ms: the one at 150 ms cannot
/// have been answered in less than 350, and half of them were due earlier, however slow this machine is.
#[test]
fn no_coordinated_omission() {
    let stalls_once = serve(|mut stream| {
        read_request(&mut stream);
        std::thread::sleep(Duration::from_millis(500));
        let mut more = true;
        while more {
            let sent = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            more = sent.is_ok() && read_request(&mut stream);
        }
    });
    let (json, _) = load(stalls_once, &["--rate", "400", "--connections", "1"]);
    assert_eq!(count(&json, "ok"), 120);
    assert!(json["p50_us"].as_f64() >= Some(350_000.0), "{json}");
    assert!(json["max_us"].as_f64() >= Some(500_000.0), "{json}");
    assert!(count(&json, "waited") > 0, "{json}");
}

/// Purpose: our own server answers all of it, in both loops and over both transports; the figures add
/// up, and so does the series.
#[test]
fn our_own_server() {
    fn hello() -> &'static str {
        "Hello, World!"
    }
    let config = ServerConfig {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
        metrics: None,
        workers: NonZeroUsize::new(1),
        ..ServerConfig::default()
    };
    let router = Router::new().get("/path", hello);
    let mut server = Server::new(router).config(config).start().expect("loopback has a free port");
    for extra in [
        &["--rate", "2000", "--arrivals", "poisson"][..],
        &["--rate", "500", "--close", "--source", "127.0.0.2-127.0.0.4"],
        &["--rate", "4000", "--burst", "16"],
        &["--connections", "20", "--pipeline", "8", "--threads", "2"],
        &["--connections", "20", "--close", "--deadline", "5s"],
        &["--requests-per-connection", "3", "--header", "X-A: b", "--header", "host: other"],
    ] {
        let json = all_end_as("ok", server.address(), extra, 0);
        assert_eq!(count(&json["statuses"], "200"), count(&json, "ok"));
        assert_eq!(count(&json, "good"), count(&json, "ok"));
        let series = json["series"].as_array().expect("a series is a list");
        let of_series: u64 = series.iter().map(|point| count(point, "ok")).sum();
        assert!(of_series >= count(&json, "ok"), "{json}");
        assert_eq!(series[0]["t"], 0.0, "{json}");
        let times = ["p25", "p50", "p75", "p90", "p95", "p99", "p999", "p9999", "max"];
        let times = times.map(|name| json[format!("{name}_us")].as_f64().expect("a number"));
        assert!(times[0] > 0.0 && times.is_sorted(), "{json}");
        let iqr = json["iqr_us"].as_f64().expect("a number");
        assert!((iqr - (times[2] - times[0])).abs() < 0.2, "{json}");
    }
    server.stop().expect("it was running");
}

/// Purpose: the request is what was asked for, byte by byte (RFC 9112 §3), and several URLs take turns.
#[test]
fn requests_as_asked() {
    static HEARD: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let listens = serve(|mut stream| {
        let mut request = vec![0; 4096];
        while let Ok(len @ 1..) = stream.read(&mut request) {
            let text = String::from_utf8_lossy(&request[..len]).into_owned();
            HEARD.lock().expect("no panic").push(text);
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
        }
    });
    let second = format!("http://{listens}?q=%20#fragment");
    let flags = [
        "-X",
        "PATCH",
        "-H",
        "A:b ",
        "--body",
        "{}",
        "--connections",
        "1",
        "--requests-per-connection",
    ];
    let (json, _) = load(listens, &[&[second.as_str()], &flags[..], &["2"]].concat());
    assert!(count(&json, "ok") > 2);
    let rest = format!("HTTP/1.1\r\nA: b\r\nHost: {listens}\r\nContent-Length: 2\r\n\r\n{{}}");
    let heard = HEARD.lock().expect("no panic");
    assert_eq!(heard[0], format!("PATCH /path {rest}"));
    assert_eq!(heard[1], format!("PATCH /?q=%20 {rest}"));
    drop(heard);
    load(listens, &["--body", "{}", "--connections", "1", "--requests-per-connection", "1"]);
    let heard = HEARD.lock().expect("no panic");
    let last = heard.last().expect("it is there");
    assert!(last.starts_with("POST /path "), "with a body and no method: {last}");
    assert_eq!(heard[2], heard[0]);
}

/// Purpose: people get a table, and the client says when the figures are about itself.
#[test]
fn summary() {
    let silent = serve(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let url = format!("http://{silent}/");
    let short = [&url, "--warmup", "0s", "--duration", "300ms", "--timeout", "100ms"];
    let narrow = ["--rate", "500", "--connections", "1"];
    let output = highwater(&[&short[..], &narrow].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("timed out"), "{text}");
    assert!(text.contains("none of 1 connections was free in time"), "{text}");
    assert!(text.contains("raise --connections"), "{text}");
    let fine = serve(|s| answer(s, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"));
    let url = format!("http://{fine}/");
    let output = highwater(&[&url, "--warmup", "0s", "--duration", "300ms"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("ok (2xx)") && text.contains("p99.99"), "{text}");
    assert!(
        text.contains("latency of 2xx, from the send\n"),
        "a closed loop has no schedule: {text}"
    );
    assert!(text.contains("p25 to p75") && text.contains("p95"), "{text}");
    assert!(output.stderr.is_empty(), "the live line is for terminals only");
}

/// Purpose: a port on which nothing listens is said, and ends the run, long before its duration is over.
#[test]
fn a_dead_port_ends_the_run() {
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let url = format!("http://{}/", closed.expect("loopback has a free port"));
    for extra in [&["--rate", "50"][..], &["--connections", "3"]] {
        let output = highwater(&[&[&url, "--duration", "1h", "--json"], extra].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("was made; start the server"), "{stderr}");
        let json: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert!(count(&json, "refused") > 0, "{json}");
        assert_eq!(count(&json, "refused"), count(&json, "sent"), "{json}");
    }
}

/// Purpose: a run of which nothing succeeded, whose answers were not as expected, or whose rate was not sent, is told
/// by its exit status and by one line that says why; answers other than 2xx are listed by status.
#[test]
fn failures_have_their_status() {
    let missing = serve(|s| answer(s, "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"));
    let fine = serve(|s| answer(s, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"));
    // Each connection answers once: while it is open, no other request is sent.
    let holds = serve(|mut stream| {
        read_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let narrow = ["--rate", "400", "--connections", "1", "--timeout", "200ms"];
    for (server, extra, status, shown, message) in [
        (missing, &[][..], 1, "  404: ", "no request succeeded: "),
        (missing, &["--expect-status", "404"], 0, "  404: ", ""),
        (fine, &["--expect-status", "201"], 4, "  unexpected  ", "answers were not as expected: "),
        (fine, &["--expect-contains", "k"], 0, "ok (2xx)", ""),
        (holds, &narrow, 3, "warning: the load was not the one", "of the asked rate was sent: "),
    ] {
        let url = format!("http://{server}/");
        let fixed = [&url, "--warmup", "0s", "--duration", "600ms"];
        let output = highwater(&[&fixed[..], extra].concat());
        let (text, problem) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(status), "{extra:?}: {text}{problem}");
        assert!(text.contains(shown), "{extra:?}: {text}");
        assert!(problem.contains(message), "{extra:?}: {problem}");
        assert!(problem.is_empty() == (status == 0), "{extra:?}: {problem}");
        assert!(problem.lines().count() <= 1, "{problem}");
    }
}

/// Purpose: a client that is stopped for a second, as a busy machine may do, goes on where the schedule is: it once
/// stood from then on, and reported a server that answers as dead. What it could not send is not sent, and that is
/// told; the server is blamed for nothing.
#[test]
fn a_stopped_client_recovers() {
    let fine = serve(|mut stream| {
        if read_request(&mut stream) {
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        }
    });
    let url = format!("http://{fine}/");
    let mut client = Command::new(env!("CARGO_BIN_EXE_highwater"));
    client.args(["load", &url, "--rate", "500", "--close", "--deadline", "2s", "--json"]);
    client.args(["--warmup", "0s", "--duration", "9s", "--series", "500ms", "--seed", "7"]);
    let client = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let client = client.expect("the binary under test was built");
    let signal = |name: &str| {
        let kill = Command::new("kill").args([name, &client.id().to_string()]).status();
        assert!(kill.expect("kill is everywhere").success());
    };
    // Real time is the subject: it is stopped for longer than its deadline.
    std::thread::sleep(Duration::from_secs(2));
    signal("-STOP");
    std::thread::sleep(Duration::from_secs(4));
    signal("-CONT");
    let output = client.wait_with_output().expect("it ends");
    let json: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(output.status.code(), Some(3), "{json}");
    assert_eq!(count(&json, "asked"), 4500);
    assert_eq!(count(&json, "sent") + count(&json, "not_sent"), 4500, "{json}");
    // Those of the stop that were older than half their time when it ended: 1500 of 2000.
    assert!(count(&json, "not_sent") >= 1000, "{json}");
    let ratio = json["rate_ratio"].as_f64().expect("a number");
    assert!((ratio - count(&json, "sent") as f64 / 4500.0).abs() < 1e-3, "{json}");
    let last = json["series"].as_array().expect("a list").iter().rev().take(4);
    assert!(last.map(|point| count(point, "goodput")).sum::<u64>() > 0, "{json}");
    assert!(json["client_stood_us"].as_f64() >= Some(3e6), "{json}");
}

/// Purpose: each wrong flag exits with 2 and says what to write instead.
#[test]
fn wrong_flags() {
    let url = "http://127.0.0.1:1/";
    for (arguments, message) in [
        (&["ftp://127.0.0.1/"][..], "write http://HOST[:PORT]/PATH"),
        (&["http://127.0.0.1:0/"], "names no host or port"),
        (&["http://127.0.0.1:65536/"], "the port is not a number up to 65535"),
        (&["http://u:p@127.0.0.1/"], "--header 'Authorization"),
        (&["http://127.0.0.1/a b"], "percent-encoded"),
        (&[url, "http://127.0.0.2:1/"], "the same host and port"),
        (&[url, "--connections", "0"], "1..=100000"),
        (&[url, "--connections", "100001"], "1..=100000"),
        (&[url, "--rate", "0"], "0.001 to 10000000"),
        (&[url, "--rate", "10000001"], "0.001 to 10000000"),
        (&[url, "--rate", "NaN"], "0.001 to 10000000"),
        (&[url, "--duration", "10"], "write 10s"),
        (&[url, "--duration", "0s"], "less than 1ms"),
        (&[url, "--duration", "25h"], "more than 24h"),
        (&[url, "--deadline", "0ms"], "less than 1ms"),
        (&[url, "--timeout", "0ms"], "less than 1ms"),
        (&[url, "--series", "1ms"], "less than 10ms"),
        (&[url, "--series", "10ms", "--duration", "1h"], "more than 100000 points"),
        (&[url, "--threads", "0"], "1..=64"),
        (&[url, "--threads", "2", "--connections", "1"], "a thread needs a connection"),
        (&[url, "--pipeline", "1025"], "1..=1024"),
        (&[url, "--pipeline", "2", "--rate", "5"], "cannot be used with"),
        (&[url, "--backoff", "1s", "--rate", "5"], "cannot be used with"),
        (&[url, "--pipeline", "2", "--close"], "cannot be used with"),
        (&[url, "--arrivals", "poisson"], "--rate"),
        (&[url, "--burst", "2"], "--rate"),
        (&[url, "--burst", "4097", "--rate", "5"], "1..=4096"),
        (&[url, "--burst", "0", "--rate", "5"], "1..=4096"),
        (&[url, "--arrivals", "often", "--rate", "5"], "[possible values: uniform, poisson]"),
        (&[url, "--method", "G ET"], "write GET or POST"),
        (&[url, "--header", "no colon"], "write 'Name: value'"),
        (&[url, "--header", "A: b\r\nC: d"], "write 'Name: value'"),
        (&[url, "--header", "Content-Length: 3"], "added automatically"),
        (&[url, "--body", "a", "--body-file", "b"], "cannot be used with"),
        (&[url, "--body-file", "/no/such/file"], "--body-file /no/such/file"),
        (&[url, "--source", "10.0.0.9-10.0.0.1"], "lower address first"),
        (&[url, "--source", "10.0.0.0-10.1.0.0"], "shorter range"),
        (&[url, "--source", "10.0.0.1-::1"], "both IPv6"),
        (&[url, "--source", "::1"], "family of --source"),
        (&[], "<URL>"),
    ] {
        let output = highwater(arguments);
        let problem = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {problem}");
        assert!(problem.contains(message), "{arguments:?}: {problem}");
    }
}
