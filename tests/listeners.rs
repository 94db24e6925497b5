//! A server with several listeners, as its operator meets it: where it serves, sockets that a service manager passes,
//! restarts that lose no connection, and what it says about listeners that it cannot have.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use highwater_testkit::{PATIENCE, Process, eventually, get, program};

const SERVER: &str = env!("CARGO_BIN_EXE_strained");

/// The transports that work here.
fn transports() -> &'static [&'static str] {
    match highwater_sys::probe().uring {
        Ok(()) => &["uring", "epoll", "portable"],
        Err(reason) => {
            highwater_skip::skip("io_uring", reason);
            &["epoll", "portable"]
        }
    }
}

/// A directory for the time of a test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hw-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("the temporary directory can be written");
        Directory(path)
    }

    fn is_empty(&self) -> bool {
        fs::read_dir(&self.0).expect("it is there").next().is_none()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The server, to be started with these flags.
fn server(flags: &[&str]) -> Command {
    let mut command = program(SERVER);
    command.args(["--metrics", "127.0.0.1:0", "--shed", "accept"]).args(flags);
    command
}

/// The same, started with `socket` as a service manager passes it: descriptor 3, for this process.
fn activated(socket: OwnedFd, flags: &[&str]) -> Command {
    let mut command = program("/bin/sh");
    let script =
        r#"exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_FDNAMES=web LISTEN_PID=$$ exec "$0" "$@""#;
    command.args(["-c", script, SERVER, "--metrics", "127.0.0.1:0", "--shed", "accept"]);
    command.args(flags).stdin(Stdio::from(socket));
    command
}

/// The answer to `GET target` over a Unix socket.
fn ask_unix(path: &Path, target: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// What a server that does not start says, after a check of its status.
fn complaint(command: &mut Command) -> String {
    let output = command.stderr(Stdio::piped()).output().expect("it can be started");
    assert!(!output.status.success());
    String::from_utf8(output.stderr).expect("it is text")
}

/// Purpose: one server serves on several addresses of both kinds, counts their connections apart, gives the file of a
/// Unix socket its permissions, and removes it at the end.
#[test]
fn several_listeners() {
    for transport in transports() {
        let directory = Directory::new(&format!("several-{transport}"));
        let path = directory.0.join("s");
        let unix = format!("unix:{},mode=660", path.display());
        let flags = ["--transport", transport, "--workers", "2", "--listen", "127.0.0.1:0"];
        let second = ["--listen", "[::1]:0,http1", "--listen", &unix];
        let server = Process::start(server(&flags).args(second));
        let line = server.log();
        let others = line.split("others=\"").nth(1).expect("it says all addresses");
        let ipv6 = others.split(' ').next().expect("the second address");
        let ipv6: SocketAddr = ipv6.parse().expect("an address");
        assert!(others.contains(&format!("unix:{}\"", path.display())), "{line}");

        assert_eq!(server.get("/").status, 200);
        let mut client = highwater_testkit::Client::connect(ipv6);
        assert_eq!(client.get("/").status, 200);
        for _ in 0..20 {
            let answer = ask_unix(&path, "/").expect("it serves");
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
        let mode = fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        let count = |listener: &str| {
            server.metric(&format!("http_listener_connections_total{{listener=\"{listener}\"}}"))
        };
        assert_eq!(count(&ipv6.to_string()), 1.0);
        assert_eq!(count(&server.address.to_string()), 1.0);
        assert_eq!(count(&format!("unix:{}", path.display())), 20.0);
        assert_eq!(server.metric("http_connections_total"), 22.0);
        drop(client);
        server.stop();
        assert!(directory.is_empty());
    }
}

/// Purpose: a socket file that a killed server left behind does not keep the next one from starting.
#[test]
fn a_killed_servers_file_is_replaced() {
    let directory = Directory::new("killed");
    let path = directory.0.join("s");
    let listen = format!("unix:{}", path.display());
    let start = || {
        let flags = ["--workers", "1", "--listen", "127.0.0.1:0", "--listen", &listen];
        Process::start(&mut server(&flags))
    };
    let mut first = start();
    first.kill();
    assert!(path.exists());
    let second = start();
    assert!(ask_unix(&path, "/").expect("it serves").starts_with("HTTP/1.1 200 "));
    second.stop();
}

/// Purpose: if one of several listeners cannot be had, the server says which and why, and leaves none of them behind.
#[test]
fn one_that_cannot_be_had() {
    let directory = Directory::new("cannot");
    let path = directory.0.join("s");
    let unix = format!("unix:{}", path.display());
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound").to_string();
    let flags = ["--workers", "2", "--listen", &unix, "--listen", &address];
    let log = complaint(&mut server(&flags));
    let expected = format!("strained: cannot listen on {address}: ");
    assert!(log.contains(&expected) && log.contains("stop it, or choose another port"), "{log}");
    assert!(directory.is_empty(), "the file of the first is left behind");

    let live = UnixListener::bind(&path).expect("nothing is there");
    let log = complaint(&mut server(&["--workers", "1", "--listen", &unix]));
    assert!(log.contains(&format!("strained: cannot listen on {unix}: ")), "{log}");
    assert!(log.contains("another process listens there"), "{log}");
    UnixStream::connect(&path).expect("it is untouched");
    drop(live);
    let log = complaint(&mut server(&["--listen", "127.0.0.1:80,tsl"]));
    let expected =
        "--listen \"127.0.0.1:80,tsl\" (from a flag): the option \"tsl\" is unknown; use proxy, ";
    assert!(log.contains(expected), "{log}");
    // With TLS in the build, that is listed, too.
    assert!(log.contains("http1 or http2, and mode=OCTAL for Unix sockets"), "{log}");
}

/// Purpose: a Unix socket has no gate: its client is a proxy, which would take a refused connection for a broken server.
#[test]
fn no_gate_at_unix_sockets() {
    for transport in transports() {
        let directory = Directory::new(&format!("gate-{transport}"));
        let path = directory.0.join("s");
        let unix = format!("unix:{}", path.display());
        let flags = ["--transport", transport, "--workers", "1", "--connection-limit", "1"];
        let listen = ["--listen", "127.0.0.1:0", "--listen", &unix];
        let server = Process::start(server(&flags).args(listen));
        let mut busy = server.connect();
        busy.send(get("/wait?ms=60000")).expect("it is open");
        eventually("the limit is reached", || server.metric("http_connections_in_flight") == 1.0);
        let waits = server.connect();
        assert!(ask_unix(&path, "/").expect("it serves").starts_with("HTTP/1.1 200 "));
        let accepted = server.metric("http_connections_total");
        assert_eq!(accepted, 2.0, "the second client over TCP is held back");
        drop((busy, waits));
    }
}

/// Purpose: what is passed and does not listen is refused by its number, and no other socket is opened instead.
#[test]
fn a_passed_socket_that_does_not_listen() {
    let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let log = complaint(&mut activated(datagrams.into(), &["--workers", "1"]));
    let expected = "strained: descriptor 3 (\"web\") of LISTEN_FDS is a datagram socket; pass listening stream sockets only";
    assert!(log.contains(expected), "{log}");
}

/// Purpose: a Unix socket can be passed, too, and its file is the manager's: it stays.
#[test]
fn a_passed_unix_socket() {
    for transport in transports() {
        let directory = Directory::new(&format!("passed-{transport}"));
        let path = directory.0.join("s");
        let manager = UnixListener::bind(&path).expect("nothing is there");
        for _ in 0..2 {
            let socket = manager.try_clone().expect("there are descriptors").into();
            let flags = ["--transport", transport, "--workers", "2"];
            let mut command = activated(socket, &flags);
            command.stdout(Stdio::null()).stderr(Stdio::piped());
            let server = Process::of(command.spawn().expect("there is a shell"), " serving ");
            let answer = ask_unix(&path, "/").expect("it serves");
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            server.stop();
            assert!(path.exists());
        }
    }
}

/// Purpose: the manager learns when the server is ready and when it begins to stop, by a path and by an abstract name.
#[test]
fn the_manager_is_notified() {
    let directory = Directory::new("notified");
    let path = directory.0.join("n").display().to_string();
    let name = format!("hw-listeners-{}", std::process::id());
    for (variable, at) in [
        (path.clone(), UnixAddr::from_pathname(&path).expect("a path")),
        (format!("@{name}"), UnixAddr::from_abstract_name(&name).expect("a name")),
    ] {
        let manager = UnixDatagram::bind_addr(&at).expect("nobody listens there");
        manager.set_read_timeout(Some(PATIENCE)).expect("an option");
        let hear = || {
            let mut received = [0; 128];
            let len = manager.recv(&mut received).expect("the server notifies");
            String::from_utf8_lossy(&received[..len]).into_owned()
        };
        let flags = ["--workers", "2", "--listen", "127.0.0.1:0"];
        let server = Process::start(server(&flags).env("NOTIFY_SOCKET", variable));
        assert_eq!(hear(), "READY=1\n");
        assert_eq!(server.get("/").status, 200);
        server.signal("TERM");
        assert_eq!(hear(), "STOPPING=1\n");
        server.stop();
    }
}

/// Purpose: a manager that wants signs of life gets them from a server without a request, and one that wants none does not.
#[test]
fn signs_of_life() {
    let name = format!("hw-alive-{}", std::process::id());
    let at = UnixAddr::from_abstract_name(&name).expect("a name");
    let manager = UnixDatagram::bind_addr(&at).expect("nobody listens there");
    manager.set_read_timeout(Some(PATIENCE)).expect("an option");
    let hear = || {
        let mut received = [0; 128];
        let len = manager.recv(&mut received).expect("the server notifies");
        String::from_utf8_lossy(&received[..len]).into_owned()
    };
    for wanted in [Some("400000"), None] {
        let mut command = server(&["--workers", "2", "--listen", "127.0.0.1:0"]);
        command.env("NOTIFY_SOCKET", format!("@{name}"));
        if let Some(micros) = wanted {
            command.env("WATCHDOG_USEC", micros);
        }
        let server = Process::start(&mut command);
        assert_eq!(hear(), "READY=1\n");
        for _ in 0..wanted.map_or(0, |_| 4) {
            assert_eq!(hear(), "WATCHDOG=1\n");
        }
        server.signal("TERM");
        let last =
            std::iter::repeat_with(hear).find(|state| wanted.is_none() || state != "WATCHDOG=1\n");
        assert_eq!(last.as_deref(), Some("STOPPING=1\n"));
        server.stop();
    }
}

/// Clients that ask all the time, and remember each request that was not answered.
struct Clients {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Vec<String>>>,
}

impl Clients {
    fn start(address: SocketAddr, count: usize) -> Clients {
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let spawn = |index: usize| {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            // Every other one asks several times on a connection.
            let most = if index.is_multiple_of(2) { 1 } else { 10 };
            thread::spawn(move || {
                let mut lost = Vec::new();
                while !stop.load(Relaxed) {
                    if let Err(error) = visit(address, most, &answered) {
                        lost.push(error.to_string());
                    }
                    // Otherwise they would take the cores from the servers that start.
                    thread::sleep(Duration::from_millis(1));
                }
                lost
            })
        };
        let threads = (0..count).map(spawn).collect();
        Clients { stop, answered, threads }
    }

    /// Waits until they have been answered some more.
    fn go_on(&self) {
        let before = self.answered.load(Relaxed);
        eventually("the clients are served", || self.answered.load(Relaxed) > before + 300);
    }

    /// The requests that were not answered.
    fn end(self) -> Vec<String> {
        self.stop.store(true, Relaxed);
        self.threads.into_iter().flat_map(|thread| thread.join().expect("it ends")).collect()
    }
}

/// Asks up to `most` times on one connection. The first request must be answered; a later one may find that the server
/// has closed the idle connection, as it may at any time (RFC 9112, 9.5).
fn visit(address: SocketAddr, most: usize, answered: &AtomicU64) -> io::Result<()> {
    let at =
        |what: &str, error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
    let mut stream =
        TcpStream::connect_timeout(&address, PATIENCE).map_err(|error| at("connect", error))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    for asked in 0..most {
        let close = if asked + 1 == most { "Connection: close\r\n" } else { "" };
        let request = format!("GET / HTTP/1.1\r\nHost: h\r\n{close}\r\n");
        let answer = stream.write_all(request.as_bytes()).and_then(|()| read_answer(&mut stream));
        match answer {
            Ok(is_last) => {
                answered.fetch_add(1, Relaxed);
                if is_last {
                    return Ok(());
                }
            }
            Err(_) if asked > 0 => return Ok(()),
            Err(error) => return Err(at("the first request", error)),
        }
    }
    Ok(())
}

/// Reads an answer to the end of its content. Returns whether the server closes the connection behind it.
fn read_answer(stream: &mut TcpStream) -> io::Result<bool> {
    let mut received = Vec::new();
    let mut piece = [0; 1024];
    loop {
        if let Some(end) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
            let field = |name: &str| {
                head.lines().find_map(|line| line.strip_prefix(name).map(|it| it.trim().to_owned()))
            };
            let length: usize = field("content-length:")
                .and_then(|length| length.parse().ok())
                .ok_or_else(|| io::Error::other(format!("no length in {head}")))?;
            if received.len() >= end + 4 + length {
                return match head.starts_with("http/1.1 200 ") {
                    true => Ok(field("connection:").is_some_and(|it| it == "close")),
                    false => Err(io::Error::other(head)),
                };
            }
        }
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => received.extend_from_slice(&piece[..len]),
        }
    }
}

/// How many sockets listen on `port` over IPv4.
fn listening(port: u16) -> usize {
    const LISTEN: &str = "0A";
    let table = fs::read_to_string("/proc/net/tcp").expect("Linux has it");
    let port = format!(":{port:04X}");
    let is_there = |line: &&str| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let local = fields.next().is_some_and(|local| local.ends_with(&port));
        local && fields.nth(1) == Some(LISTEN)
    };
    table.lines().filter(is_there).count()
}

/// Purpose: while clients ask all the time, a server on an inherited socket is replaced again and again, by one that
/// starts before it and by one that starts after it. Every connection is served by one or the other.
///
/// A worker that had a socket of its own beside the inherited one would reset connections when it closes that: those
/// whose handshake is under way, and those that come between the last accept and the close. Over loopback both are too
/// rare to be seen, so the sockets are counted, too.
fn restarts(transport: &str) {
    let manager = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = manager.local_addr().expect("it is bound");
    let start = || {
        let socket = manager.try_clone().expect("there are descriptors").into();
        let flags = ["--transport", transport, "--workers", "2"];
        let server = Process::start(&mut activated(socket, &flags));
        assert_eq!(server.address, address, "it serves on the socket that was passed");
        server
    };
    let mut server = start();
    let clients = Clients::start(address, 4);
    for _ in 0..6 {
        clients.go_on();
        let next = start();
        assert_eq!(
            listening(address.port()),
            1,
            "sockets that listen, of two servers with two workers each"
        );
        clients.go_on();
        server.stop();
        server = next;
    }
    for _ in 0..2 {
        clients.go_on();
        server.stop();
        server = start();
    }
    clients.go_on();
    let lost = clients.end();
    assert_eq!(lost, [] as [String; 0]);
    server.stop();
}

#[test]
fn restarts_lose_nothing_over_uring() {
    if transports().contains(&"uring") {
        restarts("uring");
    }
}

#[test]
fn restarts_lose_nothing_over_epoll() {
    restarts("epoll");
}

#[test]
fn restarts_lose_nothing_over_portable() {
    restarts("portable");
}

/// Purpose: a successor may use the other driver: neither leaves the shared socket in a state that the other cannot use.
#[test]
fn drivers_share_a_socket() {
    let manager = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = manager.local_addr().expect("it is bound");
    let start = |transport: &str| {
        let socket = manager.try_clone().expect("there are descriptors").into();
        Process::start(&mut activated(socket, &["--transport", transport, "--workers", "2"]))
    };
    let mut servers: Vec<Process> = transports().iter().map(|transport| start(transport)).collect();
    let clients = Clients::start(address, 4);
    clients.go_on();
    for server in &servers {
        eventually("each accepts", || server.metric("http_connections_total") > 0.0);
    }
    let last = servers.pop().expect("portable works everywhere");
    for server in servers {
        server.stop();
        clients.go_on();
    }
    assert_eq!(clients.end(), [] as [String; 0]);
    last.stop();
}
