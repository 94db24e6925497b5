//! Does `highwater guard` keep the peak of other servers, and leave nothing behind?
//!
//! Everything here runs the real command against real servers, each test in a network namespace of its
//! own. Where that needs a privilege or a program that is missing, the test says that it is skipped.
#![forbid(unsafe_code)]

mod scene;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use scene::{Guard, Load, eventually, in_namespace, skip_without};

/// Where the guarded server of each test listens; the namespace is the test's own.
const PORT: u16 = 8080;

/// The port of its metrics: not behind the gate, so that they are reachable during an overload.
const METRICS: u16 = 8081;

/// A gate with a limit, which is the only thing about the overload tests that needs a privilege.
const GATE_NEEDS: &str = "root";

fn highwater() -> Command {
    Command::new(env!("CARGO_BIN_EXE_highwater"))
}

/// Purpose: an impossible setting is refused before anything is opened: with exit 2, the setting,
/// the value and the range.
#[test]
fn absurd_settings_are_refused() {
    for (flags, message) in [
        (&["--port", "80", "--limit", "0"][..], "use 1 to 1048576, or auto"),
        (&["--port", "80", "--limit", "-1"], "use 1 to 1048576, or auto"),
        (&["--port", "80", "--limit", "99999999"], "use 1 to 1048576, or auto"),
        (&["--port", "0"], "use 1 to 65535"),
        (&["--port", "80", "--limit-min", "9", "--limit-start", "8"], "--limit-min 9"),
        (&["--port", "80", "--dry-run"], "--metrics"),
        (&[], "--port"),
    ] {
        let output = highwater().arg("guard").args(flags).output().expect("it is built");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {text}");
        assert!(text.contains(message), "{flags:?}: {text}");
    }
}

/// Purpose: without any privilege there is no gate, and the message says which are needed and how
/// to grant them; it names a mechanism that was asked for by name.
#[test]
fn without_privilege_it_says_what_it_needs() {
    in_namespace("without_privilege_it_says_what_it_needs", || {
        for mechanism in ["auto", "ebpf", "nft", "iptables"] {
            let output = Command::new("setpriv")
                .args(["--reuid", "65534", "--clear-groups", "--inh-caps=-all", "--"])
                .arg(env!("CARGO_BIN_EXE_highwater"))
                .args(["guard", "--port", "80", "--limit", "5", "--mechanism", mechanism])
                .output()
                .expect("setpriv is here");
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{mechanism}: {text}");
            assert!(text.contains("CAP_"), "{mechanism}: {text}");
        }
    });
}

/// Purpose: each privilege alone gives the gate that it suffices for, and the log says why not a
/// better one.
#[test]
fn each_privilege_suffices_for_a_gate() {
    in_namespace("each_privilege_suffices_for_a_gate", || {
        for (capabilities, mechanism, reason) in [
            ("+bpf,+net_admin", "ebpf", "counts"),
            ("+bpf", "ebpf", "CAP_NET_ADMIN"),
            ("+net_admin", "nft", "CAP_BPF"),
        ] {
            if mechanism == "nft" && skip_without("nft") {
                continue;
            }
            let Some(mut guard) = Guard::try_start_as(capabilities, PORT, &["--limit", "2"]) else {
                continue;
            };
            let line = guard.next_line();
            assert_eq!(line["mechanism"], mechanism, "{capabilities}: {}", guard.log());
            assert!(guard.log().contains(reason), "{capabilities}: {}", guard.log());

            let listener =
                TcpListener::bind(("127.0.0.1", PORT)).expect("the port is free in this namespace");
            let connect = || TcpStream::connect(("127.0.0.1", PORT));
            let held = [connect().expect("room"), connect().expect("room")];
            connect().expect_err("it is over the limit");
            drop((held, listener.accept(), listener.accept()));
            assert!(eventually(|| connect().is_ok()), "{capabilities}: it never opened again");
            assert_eq!(guard.stop(), Some(0));
        }
    });
}

/// Answers every request with what `pages` says at that moment.
fn exporter(pages: mpsc::Receiver<String>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    thread::spawn(move || {
        let mut body = String::new();
        for client in listener.incoming() {
            let mut client = client.expect("a client");
            let _ = client.read(&mut [0; 4096]);
            body = pages.try_iter().last().unwrap_or(body);
            let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length:";
            let _ = write!(client, "{head} {}\r\n\r\n{body}", body.len());
        }
    });
    port
}

/// Purpose: whatever a source answers, the command keeps running and keeps the limit, and reports
/// each change once. The test refuses no connection, so it needs no privilege.
#[test]
fn a_source_in_trouble_moves_nothing() {
    let (sender, pages) = mpsc::channel();
    let url = format!("http://127.0.0.1:{}/metrics", exporter(pages));
    let port =
        TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
    let flags = ["--metrics", &url, "--interval", "100ms", "--dry-run", "--limit-start", "77"];
    sender.send("<html>".to_owned()).expect("it listens");
    let mut guard = Guard::start(port, &flags);
    for (page, message) in [
        ("<html>", "wrong:"),
        ("up 1\n", "missing:"),
        ("http_requests_total 5 1000\n", "stale:"),
        ("http_requests_total 100\n", "the source answers"),
        ("http_requests_total 5\n", "reset:"),
        ("http_requests_total 1e300\n", "absurd:"),
    ] {
        sender.send(page.to_owned()).expect("it listens");
        assert!(eventually(|| guard.log().contains(message)), "{page}: {}", guard.log());
        assert_eq!(guard.next_line()["limit"], 77, "{page}");
    }
    assert_eq!(guard.stop(), Some(0));
}

/// Purpose: the gate works from the first moment, admits exactly the limit, admits the next
/// connection when one ends, and ends with the guard, however the guard ends.
#[test]
fn the_gate_opens_and_vanishes() {
    in_namespace("the_gate_opens_and_vanishes", || {
        let listener =
            TcpListener::bind(("127.0.0.1", PORT)).expect("the port is free in this namespace");
        let connect = || TcpStream::connect(("127.0.0.1", PORT));
        for signal in ["TERM", "INT", "KILL"] {
            let Some(mut guard) = Guard::try_start(PORT, &["--limit", "3"], GATE_NEEDS) else {
                return;
            };
            let mut held: Vec<(TcpStream, TcpStream)> = Vec::new();
            for _ in 0..3 {
                let client = connect().expect("it is under the limit");
                held.push((client, listener.accept().expect("it waits").0));
            }
            connect().expect_err("it is over the limit");
            held.pop();
            assert!(eventually(|| connect().is_ok()), "one went, so one may come");

            guard.signal(signal);
            let vanished = eventually(|| (0..10).all(|_| connect().is_ok()));
            assert!(vanished, "after SIG{signal}");
            let expected = (signal != "KILL").then_some(0);
            assert_eq!(guard.wait(), expected, "after SIG{signal}");
            while listener_is_busy(&listener) {}
        }
    });
}

/// Purpose: idle connections take no place of a limit that was found, and take one of a limit that
/// the operator gave.
#[test]
fn idle_connections_take_no_place() {
    in_namespace("idle_connections_take_no_place", || {
        let listener =
            TcpListener::bind(("127.0.0.1", PORT)).expect("the port is free in this namespace");
        let connect = || TcpStream::connect(("127.0.0.1", PORT));
        let two = ["--limit-min", "2", "--limit-start", "2", "--limit-max", "2"];
        let Some(mut guard) = Guard::try_start(PORT, &two, GATE_NEEDS) else { return };
        let answered = || {
            let mut client = connect().expect("room");
            let mut server = listener.accept().expect("it waits").0;
            server.write_all(b"hello").expect("it is open");
            client.read_exact(&mut [0; 5]).expect("it was sent");
            (client, server)
        };
        let held = [answered(), answered()];
        connect().expect_err("it is over the limit");
        let line = guard.line_until(|line| line["idle"] == 2);
        assert_eq!((&line["limit"], &line["in_flight"]), (&2.into(), &0.into()));
        let more = [answered(), answered()];
        connect().expect_err("it is over the limit");
        assert_eq!(guard.stop(), Some(0));

        let Some(mut guard) = Guard::try_start(PORT, &["--limit", "4"], GATE_NEEDS) else { return };
        // A line a second: after the third they have been idle for long enough to be so.
        let line = (0..3).map(|_| guard.next_line()).last().expect("three");
        assert_eq!((&line["limit"], &line["in_flight"]), (&4.into(), &4.into()));
        connect().expect_err("an idle connection is one, too");
        assert_eq!(guard.stop(), Some(0));
        drop((held, more));
    });
}

/// Purpose: a gate before one address does not affect the same port of other addresses, with any
/// mechanism.
#[test]
fn one_address_is_guarded() {
    in_namespace("one_address_is_guarded", || {
        for mechanism in ["ebpf", "nft", "iptables"] {
            let tool = if mechanism == "ebpf" { "ip" } else { mechanism };
            if skip_without(tool) {
                continue;
            }
            let listener =
                TcpListener::bind(("0.0.0.0", PORT)).expect("the port is free in this namespace");
            let flags = ["--address", "127.0.0.2", "--limit", "1", "--mechanism", mechanism];
            let need = if mechanism == "ebpf" { GATE_NEEDS } else { mechanism };
            let Some(guard) = Guard::try_start(PORT, &flags, need) else { continue };
            let held = TcpStream::connect(("127.0.0.2", PORT)).expect("room");
            TcpStream::connect(("127.0.0.2", PORT)).expect_err("it is over the limit");
            let others: Vec<TcpStream> = (0..3)
                .map(|_| TcpStream::connect(("127.0.0.3", PORT)).expect("nothing is there"))
                .collect();
            assert_eq!(guard.stop(), Some(0));
            drop((held, others, listener));
        }
    });
}

/// Purpose: without an address a server is guarded by IPv4 and IPv6, with any mechanism; for iptables these are two counts.
#[test]
fn every_address_is_guarded() {
    in_namespace("every_address_is_guarded", || {
        for mechanism in ["ebpf", "nft", "iptables"] {
            let tool = if mechanism == "ebpf" { "ip" } else { mechanism };
            if skip_without(tool) {
                continue;
            }
            let listener =
                TcpListener::bind(("::", PORT)).expect("the port is free in this namespace");
            let flags = ["--limit", "1", "--mechanism", mechanism];
            let need = if mechanism == "ebpf" { GATE_NEEDS } else { mechanism };
            let Some(guard) = Guard::try_start(PORT, &flags, need) else { continue };
            let mut held = vec![TcpStream::connect(("127.0.0.1", PORT)).expect("room")];
            if mechanism == "iptables" {
                held.push(TcpStream::connect(("::1", PORT)).expect("it has a count of its own"));
            }
            for address in ["127.0.0.1", "::1"] {
                let refused = TcpStream::connect((address, PORT));
                refused.expect_err("it is over the limit");
            }
            assert_eq!(guard.stop(), Some(0));
            drop((held, listener));
        }
    });
}

/// Purpose: packets that belong to no connection, with sources that nobody has, refuse no client and do
/// not move the limit, whether it is found or fixed, and with each way of counting. The guard once let
/// them take places: 20 a second refused four clients of five.
#[test]
fn strays_refuse_nobody() {
    in_namespace("strays_refuse_nobody", || {
        if skip_without("python3") {
            return;
        }
        let mut strays = scene::Strays::new(PORT);
        let listener =
            TcpListener::bind(("127.0.0.1", PORT)).expect("the port is free in this namespace");
        thread::spawn(move || listener.incoming().for_each(drop));
        for (capabilities, mechanism, limit) in [
            ("+bpf,+net_admin", "ebpf", &["--limit", "32"][..]),
            ("+bpf,+net_admin", "ebpf", &[]),
            // These hold places until the next look, which may be late on a busy machine.
            ("+bpf", "ebpf", &["--limit", "2000"]),
            ("+bpf", "ebpf", &["--limit-start", "2000"]),
            ("+net_admin", "nft", &["--limit", "32"]),
        ] {
            if mechanism == "nft" && skip_without("nft") {
                continue;
            }
            let flags = [&["--mechanism", mechanism], limit].concat();
            let Some(mut guard) = Guard::try_start_as(capabilities, PORT, &flags) else { continue };
            let before = guard.next_line()["limit"].clone();
            for client in 0..100 {
                // At most 1000 strays per second, however slow the machine is.
                strays.send(10);
                thread::sleep(Duration::from_millis(10));
                let refused = TcpStream::connect(("127.0.0.1", PORT)).err();
                assert!(
                    refused.is_none(),
                    "{capabilities} {flags:?}, client {client}: {refused:?}"
                );
            }
            let line = guard.next_line();
            assert_eq!(line["refused_total"], 0, "{capabilities} {flags:?}: {line}");
            assert_eq!(line["limit"], before, "{capabilities} {flags:?}: {line}");
            assert_eq!(guard.stop(), Some(0));
        }
    });
}

/// Purpose: a guard whose output nobody reads goes on, with each way of counting, and is stopped by a signal: it once stood
/// still, counted no end of a connection, and refused all.
#[test]
fn a_reader_that_stops_refuses_nobody() {
    in_namespace("a_reader_that_stops_refuses_nobody", || {
        let listener =
            TcpListener::bind(("127.0.0.1", PORT)).expect("the port is free in this namespace");
        thread::spawn(move || listener.incoming().for_each(drop));
        for capabilities in ["+bpf", "+bpf,+net_admin"] {
            let started = Guard::try_start_unread(capabilities, PORT, &["--limit-start", "200"]);
            let Some((guard, _unread)) = started else { continue };
            for client in 0..1000 {
                if client % 10 == 0 {
                    thread::sleep(Duration::from_millis(20));
                }
                let refused = TcpStream::connect(("127.0.0.1", PORT)).err();
                assert!(refused.is_none(), "{capabilities}, client {client}: {refused:?}");
            }
            assert_eq!(guard.stop(), Some(0), "{capabilities}");
        }
    });
}

/// Purpose: a guard that is stopped does not refuse for long, and refuses again when it goes on.
#[test]
fn a_stopped_guard_is_open() {
    in_namespace("a_stopped_guard_is_open", || {
        let listener =
            TcpListener::bind(("127.0.0.1", PORT)).expect("the port is free in this namespace");
        let connect = || TcpStream::connect(("127.0.0.1", PORT));
        let Some(guard) = Guard::try_start(PORT, &["--limit", "1"], GATE_NEEDS) else { return };
        let held = connect().expect("room");
        connect().expect_err("it is over the limit");
        guard.signal("STOP");
        assert!(eventually(|| connect().is_ok()), "it refuses for ever");
        guard.signal("CONT");
        assert!(eventually(|| connect().is_err()), "it does not refuse again");
        assert_eq!(guard.stop(), Some(0));
        drop((held, listener));
    });
}

/// Purpose: a rule that vanishes is made again, and goes on counting what it refused.
#[test]
fn a_rule_that_vanishes_comes_back() {
    in_namespace("a_rule_that_vanishes_comes_back", || {
        if skip_without("nft") || skip_without("pkill") {
            return;
        }
        let listener =
            TcpListener::bind(("127.0.0.1", PORT)).expect("the port is free in this namespace");
        let connect = || TcpStream::connect(("127.0.0.1", PORT));
        let flags = ["--limit", "1", "--mechanism", "nft"];
        let Some(mut guard) = Guard::try_start(PORT, &flags, "nft") else { return };
        let held = connect().expect("room");
        connect().expect_err("it is over the limit");
        let line = guard.line_until(|line| line["refused_total"].as_u64() > Some(0));
        assert!(line["admitted_total"].is_null() && line["admitted_per_s"].is_null(), "{line}");
        guard.kill_nft();
        assert!(eventually(|| guard.log().contains("opened again")), "{}", guard.log());
        // conntrack may know the connection or not: two are over the limit in any case.
        let more = [connect(), connect()];
        assert!(more.iter().any(Result::is_err), "{}", guard.log());
        guard.line_until(|line| line["refused_total"].as_u64() > Some(1));
        assert_eq!(guard.stop(), Some(0));
        drop((held, listener));
    });
}

/// Purpose: a gate whose control group is not that of the server would learn of no connection and refuse
/// nothing: it notices, says so, and goes by the list of connections.
#[test]
fn the_wrong_control_group_is_left() {
    in_namespace("the_wrong_control_group_is_left", || {
        let Some(group) = scene::EmptyGroup::new() else { return };
        let listener =
            TcpListener::bind(("127.0.0.1", PORT)).expect("the port is free in this namespace");
        let flags = ["--limit", "2", "--cgroup", group.path()];
        let Some(guard) = Guard::try_start(PORT, &flags, GATE_NEEDS) else { return };
        let connect = || TcpStream::connect(("127.0.0.1", PORT));
        let mut held = Vec::new();
        let closes = eventually(|| match connect() {
            Ok(client) => {
                held.push(client);
                false
            }
            Err(_) => true,
        });
        assert!(closes, "it refuses: {}", guard.log());
        assert!(guard.log().contains("not in the control group"), "{}", guard.log());
        assert_eq!(guard.stop(), Some(0));
        drop(listener);
    });
}

/// Purpose: a port without a server is named, in the log and in each line, and so is the server's
/// arrival.
#[test]
fn a_port_without_a_server_is_named() {
    in_namespace("a_port_without_a_server_is_named", || {
        let flags = ["--dry-run", "--metrics", "http://127.0.0.1:1/"];
        let mut guard = Guard::start(PORT, &flags);
        assert!(eventually(|| guard.log().contains("nothing listens on the port")));
        assert_eq!(guard.next_line()["listening"], false);
        let listener =
            TcpListener::bind(("127.0.0.1", PORT)).expect("the port is free in this namespace");
        assert!(eventually(|| guard.log().contains("a server listens on the port")));
        let line = guard.line_until(|line| line["listening"] == true);
        assert_eq!(line["queue_delay_ms"], 0.0, "{line}");
        assert_eq!(guard.stop(), Some(0));
        drop(listener);
    });
}

/// Takes one connection out of the backlog; whether there was one.
fn listener_is_busy(listener: &TcpListener) -> bool {
    listener.set_nonblocking(true).expect("a socket");
    let is_busy = listener.accept().is_ok();
    listener.set_nonblocking(false).expect("a socket");
    is_busy
}

/// Purpose: a server without Highwater, loaded far beyond its capacity, keeps answering in time,
/// with a limit that the guard finds from the kernel's counts alone.
#[test]
fn a_python_server_holds_its_peak() {
    in_namespace("a_python_server_holds_its_peak", || {
        if skip_without("python3") {
            return;
        }
        let _server = scene::python(PORT);
        let Some(mut guard) = Guard::try_start(PORT, &[], GATE_NEEDS) else { return };
        let load = Load { port: PORT, path: "/", rate: 3000, seconds: 4, header: None };
        let result = load.run();
        let line = guard.line_until(|line| line["refused_total"].as_u64() > Some(0));
        eprintln!("with the guard: {result}\n{line}");
        assert!(line["limit"].as_u64() < Some(256), "it came down: {line}");
        assert!(result["ok"].as_u64() > Some(0), "{result}");
        assert_eq!(line["source"], "kernel");
        assert_eq!(guard.stop(), Some(0));
    });
}

/// Purpose: nginx with a real Prometheus that scrapes it: the limit follows the query, and a Prometheus
/// that dies leaves the gate where it was.
#[test]
fn nginx_is_guarded_by_a_query() {
    in_namespace("nginx_is_guarded_by_a_query", || {
        if skip_without("nginx") || skip_without("prometheus") {
            return;
        }
        let _nginx = scene::nginx(PORT, METRICS);
        let mut prometheus = scene::prometheus(9090, METRICS);
        let query = "sum(rate(nginx_http_requests_total[5s]))";
        let flags = [
            "--prometheus",
            "http://127.0.0.1:9090",
            "--query",
            query,
            "--interval",
            "500ms",
            "--limit-start",
            "32",
        ];
        let Some(mut guard) = Guard::try_start(PORT, &flags, GATE_NEEDS) else { return };
        let load = Load {
            port: PORT,
            path: "/text",
            rate: 3000,
            seconds: 6,
            header: Some("Accept-Encoding: gzip"),
        };
        let result = load.run();
        let line = guard.line_until(|line| line["source"] == "ok");
        eprintln!("with the guard: {result}\n{line}");
        assert!(result["ok"].as_u64() > Some(0), "{result}");

        prometheus.kill();
        let line = guard.line_until(|line| line["source"] == "silent");
        let limit = line["limit"].clone();
        thread::sleep(Duration::from_millis(300)); // Some more turns, in none of which it moves.
        assert_eq!(guard.next_line()["limit"], limit);
        assert_eq!(guard.stop(), Some(0));
    });
}

/// Purpose: an address for its own metrics that cannot be listened on ends the guard with what to write instead.
#[test]
fn wrong_addresses() {
    highwater_testkit::refuses_wrong_addresses(|address| {
        let mut command = highwater_testkit::program(env!("CARGO_BIN_EXE_highwater"));
        let source = "--metrics=http://127.0.0.1:9/metrics";
        command.args(["guard", "--dry-run", "--port=19190", source, "--listen", address]);
        command
    });
}
