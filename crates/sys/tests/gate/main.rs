//! The kernel gates, against real clients in network namespaces of their own.
//!
//! Expectations come from what the gate promises and from counting connections on both sides, not
//! from the programs. Where a namespace cannot be made, the tests say so and pass.

mod floods;
mod sources;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Deref;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use highwater_skip::skip;
use highwater_sys::Listener;
use highwater_sys::bpf::{self, Counts, Mode, PortGate, SocketGate};
use highwater_sys::capability::{self, Capability};

/// No step of a test takes this long unless something hangs.
const HANG: Duration = Duration::from_secs(20);
/// How long a client waits before it counts a connection as silently dropped: less than the second after
/// which its kernel repeats the SYN, and far longer than loopback takes.
const SILENCE: Duration = Duration::from_millis(400);

/// Runs a test in a network namespace of its own; its loopback works. The namespace ends with the
/// last thread and socket in it.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !capability::has(Capability::SysAdmin) || !capability::has(Capability::Bpf) {
        return skip("root", "no CAP_SYS_ADMIN or no CAP_BPF");
    }
    let test = move || {
        if enter_own_namespace() {
            test();
        } else {
            skip("root", "this sandbox allows no network namespaces");
        }
    };
    // Named after the test, so that its messages show the test.
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let thread = std::thread::Builder::new().name(name).spawn(test).expect("a thread can be had");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// The same for tests that need a control group that includes all processes.
fn in_namespace_with_cgroup(test: impl FnOnce(PathBuf) + Send + 'static) {
    let Some(cgroup) = bpf::cgroup_root() else {
        return skip("cgroup2", "it is not mounted");
    };
    in_namespace(move || test(cgroup));
}

/// Whether this thread is in a namespace of its own now.
fn enter_own_namespace() -> bool {
    // SAFETY: takes no pointers, and concerns this thread only.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return false;
    }
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().expect("ip(8)");
    assert!(up.success());
    true
}

/// Listeners, and their standard library handles to accept from.
struct Listeners {
    accepting: Vec<TcpListener>,
    /// The listeners that the gate was attached to.
    _known: Vec<Listener>,
}

impl Listeners {
    fn of(listeners: Vec<Listener>) -> Listeners {
        let accepting = |listener: &Listener| {
            let listener = TcpListener::from(listener.as_fd().try_clone_to_owned().unwrap());
            listener.set_nonblocking(true).unwrap();
            listener
        };
        Listeners { accepting: listeners.iter().map(accepting).collect(), _known: listeners }
    }
}

impl Deref for Listeners {
    type Target = [TcpListener];

    fn deref(&self) -> &[TcpListener] {
        &self.accepting
    }
}

/// A process that ends with the test, even if the test is killed. It does not inherit our output: a
/// reader that waits for the end of the output would wait for the process.
struct Process(Child);

impl Process {
    fn start(program: &mut Command) -> Process {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program.get_program()).args(program.get_args());
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Process(command.spawn().expect("setpriv(1)"))
    }

    /// Kills it, and waits until it is gone.
    fn kill(&mut self) {
        // It may have ended on its own.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `count` listeners on one address, and the gate before them.
fn gated(address: &str, count: usize, limit: u32) -> (Listeners, SocketAddr, SocketGate) {
    let first = Listener::bind(address.parse().unwrap(), 1024).unwrap();
    let address = first.local_addr().unwrap();
    let mut listeners = vec![first];
    for _ in 1..count {
        let another = listeners[0].another().unwrap();
        listeners.push(another);
    }
    let gate = SocketGate::attach(&[(address, &listeners)], limit).unwrap();
    (Listeners::of(listeners), address, gate)
}

/// One listener with a queue of this length, and the gate before it.
fn gated_behind(address: &str, backlog: u32, limit: u32) -> (Listeners, SocketAddr, SocketGate) {
    let listeners = vec![Listener::bind(address.parse().unwrap(), backlog).unwrap()];
    let address = listeners[0].local_addr().unwrap();
    let gate = SocketGate::attach(&[(address, &listeners)], limit).unwrap();
    (Listeners::of(listeners), address, gate)
}

/// A port on every address.
fn every(port: u16) -> SocketAddr {
    (Ipv6Addr::UNSPECIFIED, port).into()
}

fn loopback(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => (Ipv4Addr::LOCALHOST, address.port()).into(),
        IpAddr::V6(ip) if ip.is_unspecified() => (Ipv6Addr::LOCALHOST, address.port()).into(),
        _ => address,
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&address, SILENCE)
}

#[track_caller]
fn assert_refused(address: SocketAddr) {
    let error = connect(address).expect_err("the gate is closed");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
}

#[track_caller]
fn assert_silent(address: SocketAddr) {
    let error = connect(address).expect_err("the gate is closed");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
}

fn accept(listeners: &[TcpListener]) -> Option<TcpStream> {
    listeners.iter().find_map(|listener| listener.accept().ok()).map(|(connection, _)| connection)
}

/// The next connection, once it is there.
#[track_caller]
fn accept_next(listeners: &[TcpListener]) -> TcpStream {
    let mut connection = None;
    eventually("accepted", || {
        connection = accept(listeners);
        connection.is_some()
    });
    connection.expect("it was waited for")
}

fn accept_all(listeners: &[TcpListener]) -> Vec<TcpStream> {
    std::iter::from_fn(|| accept(listeners)).collect()
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < HANG, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Purpose: exactly the limit is admitted, whatever the number of listeners; the next connection is
/// refused at once; a freed place is taken again; a store changes the limit at once.
fn admits_exactly_the_limit(address: &'static str, listeners: usize) {
    in_namespace(move || {
        let (listeners, address, gate) = gated(address, listeners, 3);
        let address = loopback(address);
        let clients: Vec<_> = (0..3).map(|_| connect(address).unwrap()).collect();
        assert_refused(address);
        assert_refused(address);
        assert_eq!(accept_all(&listeners).len(), 3);
        assert_eq!(gate.words().counts(), Counts { admitted: 3, reset: 2, dropped: 0 });

        gate.words().add_taken(-1);
        let _more = connect(address).unwrap();
        assert_refused(address);
        gate.words().set_limit(4);
        let _one_more = connect(address).unwrap();
        assert_refused(address);
        gate.words().set_limit(2);
        gate.words().add_taken(-1);
        assert_refused(address);
        assert_eq!(gate.words().taken(), 3);
        drop(clients);
    });
}

#[test]
fn admits_exactly_the_limit_ipv4() {
    admits_exactly_the_limit("127.0.0.1:0", 1);
}

#[test]
fn admits_exactly_the_limit_ipv4_wildcard_and_workers() {
    admits_exactly_the_limit("0.0.0.0:0", 4);
}

#[test]
fn admits_exactly_the_limit_ipv6() {
    admits_exactly_the_limit("[::1]:0", 2);
}

#[test]
fn admits_exactly_the_limit_ipv6_wildcard() {
    admits_exactly_the_limit("[::]:0", 2);
}

/// Purpose: the IPv6 wildcard takes IPv4 too, and the gate with it.
#[test]
fn the_ipv6_wildcard_is_gated_for_ipv4() {
    in_namespace(|| {
        let (_listeners, address, gate) = gated("[::]:0", 1, 1);
        let address: SocketAddr = (Ipv4Addr::LOCALHOST, address.port()).into();
        let _client = connect(address).unwrap();
        assert_refused(address);
        assert_eq!(gate.words().counts(), Counts { admitted: 1, reset: 1, dropped: 0 });
    });
}

/// Purpose: refusing can be made silent and back by a store, and can be turned off without losing count.
#[test]
fn modes_change_by_a_store() {
    in_namespace(|| {
        let (_listeners, address, gate) = gated("127.0.0.1:0", 2, 1);
        let _first = connect(address).unwrap();
        gate.words().set_mode(Mode::Drop);
        assert_silent(address);
        let Counts { admitted, reset, dropped } = gate.words().counts();
        assert_eq!((admitted, reset), (1, 0));
        assert!(dropped >= 1);
        gate.words().set_mode(Mode::Reset);
        assert_refused(address);
        gate.words().set_mode(Mode::Off);
        let _second = connect(address).unwrap();
        assert_eq!(gate.words().taken(), 2);
        gate.words().set_mode(Mode::Reset);
        gate.words().add_taken(-1);
        assert_refused(address);
    });
}

/// Purpose: a gate affects only its own address and port.
#[test]
fn neighbours_are_unaffected() {
    in_namespace(|| {
        let (_listeners, address, gate) = gated("127.0.0.1:0", 1, 0);
        let other_address = TcpListener::bind(("127.0.0.2", address.port())).unwrap();
        let other_port = TcpListener::bind("127.0.0.1:0").unwrap();
        let ipv6 = TcpListener::bind(("::1", address.port())).unwrap();
        for mode in [Mode::Reset, Mode::Drop] {
            gate.words().set_mode(mode);
            for neighbour in [&other_address, &other_port, &ipv6] {
                connect(neighbour.local_addr().unwrap()).unwrap();
            }
        }
        assert_eq!(gate.words().counts(), Counts::default());
        // In another namespace there is no gate, whatever the port.
        std::thread::spawn(move || {
            assert!(enter_own_namespace());
            let elsewhere = TcpListener::bind(address).unwrap();
            connect(elsewhere.local_addr().unwrap()).unwrap();
        })
        .join()
        .unwrap();
    });
}

/// Purpose: several addresses have one limit between them, and each keeps it; the neighbours are none of its business.
#[test]
fn addresses_share_the_limit() {
    in_namespace(|| {
        let bind = |address: &str| Listener::bind(address.parse().unwrap(), 64).unwrap();
        let listeners = ["127.0.0.1:0", "[::1]:0", "127.0.0.2:0"].map(bind);
        let addresses = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
        let [first, second, third] = listeners.map(|listener| vec![listener]);
        let places = [(addresses[0], &first[..]), (addresses[1], &second[..])];
        let gate = SocketGate::attach(&places, 2).unwrap();
        let _held = [connect(addresses[0]).unwrap(), connect(addresses[1]).unwrap()];
        assert_refused(addresses[0]);
        assert_refused(addresses[1]);
        assert_eq!(gate.words().taken(), 2);
        assert_eq!(gate.words().counts(), Counts { admitted: 2, reset: 2, ..Counts::default() });
        connect(addresses[2]).unwrap();
        gate.words().add_taken(-1);
        connect(addresses[1]).unwrap();
        drop((first, second, third));
    });
}

/// Purpose: packets that begin no connection take no place: an answer to a connection that is over,
/// and all those of one that is established but not accepted yet.
#[test]
fn stray_packets_take_no_place() {
    in_namespace(|| {
        let (listeners, address, gate) = gated("127.0.0.1:0", 1, 100);
        for _ in 0..20 {
            let mut client = connect(address).unwrap();
            client.write_all(b"some bytes").unwrap();
            let server = accept_next(&listeners);
            // Unread bytes turn the close into a reset, and later packets belong to no connection.
            drop(server);
            gate.words().add_taken(-1);
            for _ in 0..5 {
                let _ = client.write_all(b"more");
            }
        }
        assert_eq!(gate.words().taken(), 0);
        assert_eq!(gate.words().counts(), Counts { admitted: 20, reset: 0, dropped: 0 });
    });
}

/// Purpose: simultaneous attempts on several cores never admit one more than the limit, while the
/// limit changes a thousand times. An independent count checks it: admitted less given back never
/// exceeds the larger of the limit and the number held when the limit was set.
#[test]
fn a_thousand_changes_under_load_never_exceed_the_limit() {
    in_namespace(|| {
        let (listeners, address, gate) = gated("127.0.0.1:0", 2, 1);
        let words = gate.words().clone();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        drop(TcpStream::connect_timeout(&address, Duration::from_millis(20)));
                    }
                });
            }
            let decided = || words.counts().admitted + words.counts().reset;
            let mut released = 0_u64;
            for change in 0..1000_u64 {
                words.set_mode(if change % 50 == 49 { Mode::Drop } else { Mode::Reset });
                let limit = change * 7919 % 20;
                words.set_limit(limit as u32);
                // Connections decided by the previous limit are already in this count.
                let bound = u64::try_from(words.taken()).unwrap().max(limit);
                let before = decided();
                let patience = Instant::now();
                while decided() < before + 3 && patience.elapsed() < Duration::from_millis(5) {
                    let held = words.counts().admitted - released;
                    assert!(held <= bound, "change {change}: {held} held, limit {limit}");
                    std::thread::yield_now();
                }
                for connection in accept_all(&listeners) {
                    drop(connection);
                    // Counted before it happens: another connection may take the place at once.
                    released += 1;
                    words.add_taken(-1);
                }
            }
            assert!(released > 1000, "there was load: {released}");
            over.store(true, Ordering::Relaxed);
        });
        assert!(gate.words().counts().reset > 0);
    });
}

/// Set in the process that [`kill_9_leaves_nothing`] kills: the port it is to guard.
const VICTIM: &str = "HIGHWATER_TEST_VICTIM_PORT";

/// Not a test of its own: the process that holds a closed gate until it is killed.
#[test]
fn victim() {
    let Ok(port) = std::env::var(VICTIM) else { return };
    let port: u16 = port.parse().unwrap();
    let cgroup = bpf::cgroup_root();
    let _gate = PortGate::attach(every(port), cgroup.as_deref(), 0).unwrap();
    std::thread::sleep(HANG);
}

/// Purpose: a killed process leaves no gate behind: its port is open again.
#[test]
fn kill_9_leaves_nothing() {
    in_namespace(|| {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let mut victim = Process::start(
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "victim", "--nocapture"])
                .env(VICTIM, address.port().to_string()),
        );
        eventually("the gate is closed", || connect(address).is_err());
        victim.kill();
        eventually("the gate is gone", || connect(address).is_ok());
    });
}

/// Purpose: a dropped gate has no effect, although its listeners continue.
#[test]
fn a_dropped_gate_is_open() {
    in_namespace(|| {
        let (_listeners, address, gate) = gated("127.0.0.1:0", 1, 0);
        assert_refused(address);
        gate.words().set_mode(Mode::Drop);
        assert_silent(address);
        drop(gate);
        connect(address).unwrap();
    });
}

/// Purpose: an attached gate keeps working when the process gives up the privilege.
#[test]
fn needs_no_privilege_once_attached() {
    in_namespace(|| {
        let (_listeners, address, gate) = gated("127.0.0.1:0", 1, 1);
        capability::give_up(&Capability::ALL).unwrap();
        let _client = connect(address).unwrap();
        assert_refused(address);
        gate.words().set_mode(Mode::Drop);
        assert_silent(address);
        gate.words().set_limit(2);
        connect(address).unwrap();
    });
}

/// Purpose: the same before nginx, in whose processes nothing is changed.
#[test]
fn a_port_gate_stands_before_nginx() {
    in_namespace_with_cgroup(|cgroup| {
        let directory =
            std::env::temp_dir().join(format!("highwater-nginx-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let at = directory.display();
        let configuration = format!(
            "daemon off; pid {at}/pid; error_log {at}/error; events {{}} http {{ access_log off; \
             server {{ listen 8099; location / {{ return 200 'hi'; }} }} }}"
        );
        let file = directory.join("nginx.conf");
        std::fs::write(&file, configuration).unwrap();
        if Command::new("nginx").arg("-v").output().is_err() {
            return skip("nginx", "it cannot be run");
        }
        // In a namespace of processes, its workers end with it however it does.
        let nginx = Process::start(
            Command::new("unshare")
                .args(["--pid", "--fork", "--kill-child", "nginx", "-c"])
                .arg(&file),
        );
        let address: SocketAddr = "127.0.0.1:8099".parse().unwrap();
        eventually("nginx listens", || connect(address).is_ok());
        let gate = PortGate::attach(every(address.port()), Some(&cgroup), 3).unwrap();
        let clients: Vec<_> = (0..3).map(|_| connect(address).unwrap()).collect();
        assert_refused(address);
        drop(clients);
        eventually("all places are free", || gate.words().taken() == 0);
        for _ in 0..100 {
            let mut client = connect(address).unwrap();
            client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            drop(client);
            eventually("its place is free", || gate.words().taken() == 0);
        }
        assert_eq!(gate.words().lives(), (103, 103));
        drop(nginx);
        std::fs::remove_dir_all(&directory).unwrap();
    });
}

/// Purpose: before a server that is not ours, places are taken by SYNs and freed as connections end.
#[test]
fn a_port_gate_counts_connections_of_others() {
    in_namespace_with_cgroup(|cgroup| {
        for address in ["127.0.0.1:0", "[::]:0"] {
            let server = TcpListener::bind(address).unwrap();
            let address = loopback(server.local_addr().unwrap());
            let gate = PortGate::attach(every(address.port()), Some(&cgroup), 2).unwrap();
            for round in 0..10_u64 {
                let clients = [connect(address).unwrap(), connect(address).unwrap()];
                assert_refused(address);
                let accepted = [server.accept().unwrap(), server.accept().unwrap()];
                assert_eq!(gate.words().lives(), (2 * round + 2, 2 * round));
                drop((clients, accepted));
                eventually("both places are free", || gate.words().taken() == 0);
            }
            assert_eq!(gate.words().counts(), Counts { admitted: 20, reset: 10, dropped: 0 });
            assert_eq!(gate.words().lives(), (20, 20));
        }
    });
}

/// Purpose: a gate before one address counts and refuses there only, for a server that listens on it
/// and for one that listens on all.
#[test]
fn a_port_gate_stands_before_one_address() {
    in_namespace_with_cgroup(|cgroup| {
        for (listen, guarded, other) in [
            ("127.0.0.2:0", "127.0.0.2", "127.0.0.2"),
            ("0.0.0.0:0", "127.0.0.2", "127.0.0.3"),
            ("[::]:0", "127.0.0.2", "127.0.0.3"),
            ("[::]:0", "127.0.0.2", "::1"),
            ("[::]:0", "::1", "127.0.0.2"),
        ] {
            let server = TcpListener::bind(listen).unwrap();
            let port = server.local_addr().unwrap().port();
            let at = |ip: &str| SocketAddr::new(ip.parse().unwrap(), port);
            let gate = PortGate::attach(at(guarded), Some(&cgroup), 2).unwrap();
            for round in 0..3_u64 {
                let clients = [connect(at(guarded)).unwrap(), connect(at(guarded)).unwrap()];
                assert_refused(at(guarded));
                let accepted = [server.accept().unwrap(), server.accept().unwrap()];
                if other != guarded {
                    let pairs: Vec<_> =
                        (0..5).map(|_| (connect(at(other)).unwrap(), server.accept())).collect();
                    drop(pairs);
                }
                assert_eq!(gate.words().lives(), (2 * round + 2, 2 * round), "{listen} {guarded}");
                drop((clients, accepted));
                eventually("both places are free", || gate.words().taken() == 0);
            }
            assert_eq!(gate.words().counts(), Counts { admitted: 6, reset: 3, dropped: 0 });
        }
        let wildcard = PortGate::attach("0.0.0.0:1".parse().unwrap(), Some(&cgroup), 2);
        assert_eq!(wildcard.unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}
