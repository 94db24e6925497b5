//! The floor of TLS: the epoll loop of `floor` with rustls, its buffered interface and ring between the socket and the fixed
//! answer. No HTTP is parsed, nothing is routed: what remains is what TLS and the kernel's TCP path cost.
//!
//! The same answer is given without TLS beside it, on threads, to whoever asks whether the program is up and right.

#[expect(dead_code, reason = "the answers of the plain loop are not needed here")]
#[path = "floor/protocol.rs"]
mod protocol;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::sync::Arc;

use highwater_floor::epoll::{Epoll, Events};
use highwater_floor::flags::{self, Flags};
use highwater_floor::socket;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};

use protocol::{BATCH_MAX, Matched, Protocol};

/// Bytes of opened content that are looked at in one go.
const BUFFER_SIZE: usize = 16 * 1024;

/// The answer to everything: what the servers that are compared with send, and what is expected of them.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 13\r\nDate: Thu, 26 Nov 2026 12:00:00 GMT\r\n\r\nHello, World!";

const HELP: &str = "\
A bare server loop with TLS, to compare with.

Usage: floor-tls --cert FILE --key FILE [flags]

  --listen ADDR      IPv4 address and port without TLS [127.0.0.1:8090]
  --tls-listen ADDR  with TLS [127.0.0.1:8443]
  --cert FILE        the certificate and its chain, in PEM
  --key FILE         its key, in PEM
  --cpu N            pin to this CPU [0]
  --help             this text";

fn main() -> ExitCode {
    flags::main("floor-tls", HELP, run)
}

fn run(arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let flags = Flags::parse(arguments, &["listen", "tls-listen", "cert", "key", "cpu"], &[])?;
    let listen = |name: &str, port| {
        let addr = flags.value(name, SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
        socket::listen(addr).map_err(|error| format!("--{name} {addr}: {error}"))
    };
    let (plain, sealed) = (listen("listen", 8090)?, listen("tls-listen", 8443)?);
    let config = config(&flags.value("cert", String::new())?, &flags.value("key", String::new())?)?;
    let cpu = flags.value("cpu", 0)?;
    socket::pin(cpu).map_err(|error| format!("--cpu {cpu}: {error}"))?;
    // It waits, and makes the descriptor table shared, as that of any server with threads is.
    plain.set_nonblocking(false).map_err(|error| error.to_string())?;
    std::thread::spawn(move || {
        for stream in plain.incoming().flatten() {
            std::thread::spawn(move || answer_plain(stream));
        }
    });
    serve(sealed, &Arc::new(config)).map_err(|error| error.to_string())
}

/// Answers whatever comes, each time.
fn answer_plain(mut stream: TcpStream) {
    let mut request = [0; 4096];
    while matches!(stream.read(&mut request), Ok(1..)) && stream.write_all(ANSWER).is_ok() {}
}

/// TLS 1.2 and 1.3, with tickets.
fn config(cert: &str, key: &str) -> Result<ServerConfig, String> {
    let chain = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| format!("--cert {cert}: {error}"))?;
    let key_der =
        PrivateKeyDer::from_pem_file(key).map_err(|error| format!("--key {key}: {error}"))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key_der)
        .map_err(|error| format!("--cert {cert} --key {key}: {error}"))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.ticketer =
        rustls::crypto::ring::Ticketer::new().map_err(|error| format!("tickets: {error}"))?;
    Ok(config)
}

struct Scratch {
    buffer: Vec<u8>,
    /// As many answers in a row as are sent at once.
    answers: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    tls: ServerConnection,
    matched: Matched,
}

/// Serves until the process is killed. Level-triggered: a record may be opened before all bytes of the socket are read.
fn serve(listener: TcpListener, config: &Arc<ServerConfig>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let (epoll, protocol) = (Epoll::new()?, Protocol::new());
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut scratch = Scratch { buffer: vec![0; BUFFER_SIZE], answers: ANSWER.repeat(BATCH_MAX) };
    epoll.add(&listener, libc::EPOLLIN)?;
    let listening = listener.as_raw_fd() as usize;
    let mut events = Events::new();
    loop {
        epoll.wait(&mut events, -1)?;
        for (fd, _) in events.iter() {
            if fd == listening {
                while let Some(stream) = socket::accept(&listener)? {
                    let tls = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
                    epoll.add(&stream, libc::EPOLLIN)?;
                    let fd = stream.as_raw_fd() as usize;
                    if fd >= connections.len() {
                        connections.resize_with(fd + 1, || None);
                    }
                    connections[fd] = Some(Connection { stream, tls, matched: Matched::default() });
                }
            } else if let Some(connection) = &mut connections[fd]
                && !connection.serve(&protocol, &mut scratch)
            {
                connections[fd] = None;
            }
        }
    }
}

impl Connection {
    /// Reads once, and answers every request that ended. Returns whether the connection goes on.
    fn serve(&mut self, protocol: &Protocol, scratch: &mut Scratch) -> bool {
        let Scratch { buffer, answers } = scratch;
        match self.tls.read_tls(&mut self.stream) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
        let is_broken = self.tls.process_new_packets().is_err();
        let mut requests = 0;
        while let Ok(len) = self.tls.reader().read(buffer)
            && len > 0
        {
            requests += protocol.count(&mut self.matched, &buffer[..len]);
        }
        if requests > BATCH_MAX {
            return false;
        }
        let answers = &answers[..requests * ANSWER.len()];
        if requests > 0 && self.tls.writer().write_all(answers).is_err() {
            return false;
        }
        // A client that lets its receive window fill up is not measured here: it is let go.
        while self.tls.wants_write() {
            if self.tls.write_tls(&mut self.stream).is_err() {
                return false;
            }
        }
        !is_broken
    }
}
