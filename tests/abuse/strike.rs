//! One connection of an abusive client: it sends all it has, reads or does not, and says how it ended.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use highwater_testkit::{Client, PATIENCE, Process};

use crate::wire;

/// The number of a piece, from 0 on, and its bytes; nothing when there are no more.
pub(crate) type Pieces = Arc<dyn Fn(u32) -> Option<Vec<u8>>>;

/// An abusive client.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) protocol: Protocol,
    pub(crate) pieces: Pieces,
    pub(crate) reading: Reading,
    /// A pause after each piece.
    pub(crate) pause: Duration,
    /// How it may end. What the server says when its client is yet to send much depends on what was read by then.
    pub(crate) ends: &'static [&'static str],
    /// What it may cost in memory, if that is not as usual.
    pub(crate) kib_max: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protocol {
    Http1,
    Http2,
    WebSocket,
    Tls,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// All that comes.
    All,
    /// Nothing, until the server takes no more.
    Nothing,
}

/// What a case did.
pub(crate) struct Struck {
    pub(crate) ending: String,
    /// The memory that the server took for it, while it was there.
    pub(crate) kib: u64,
    pub(crate) cpu: Duration,
}

impl Case {
    /// Sends these bytes once.
    pub(crate) fn once(
        protocol: Protocol,
        name: &'static str,
        bytes: impl Into<Vec<u8>>,
        ends: &'static [&'static str],
    ) -> Case {
        let bytes = bytes.into();
        Case::each(protocol, name, move |n| (n == 0).then(|| bytes.clone()), ends)
    }

    /// Sends `first`, and then `again` so often.
    pub(crate) fn repeated(
        protocol: Protocol,
        name: &'static str,
        (first, again, times): (impl Into<Vec<u8>>, impl Into<Vec<u8>>, u32),
        ends: &'static [&'static str],
    ) -> Case {
        let (first, again) = (first.into(), again.into());
        let piece = move |n: u32| match n {
            0 => Some(first.clone()),
            n => (n <= times).then(|| again.clone()),
        };
        Case::each(protocol, name, piece, ends)
    }

    /// Sends pieces until there are no more.
    pub(crate) fn each(
        protocol: Protocol,
        name: &'static str,
        piece: impl Fn(u32) -> Option<Vec<u8>> + 'static,
        ends: &'static [&'static str],
    ) -> Case {
        let (reading, pause) = (Reading::All, Duration::ZERO);
        Case { name, protocol, pieces: Arc::new(piece), reading, pause, ends, kib_max: None }
    }

    pub(crate) fn unread(self) -> Case {
        Case { reading: Reading::Nothing, ..self }
    }

    pub(crate) fn slowly(self, pause: Duration) -> Case {
        Case { pause, ..self }
    }
}

/// Runs the case.
pub(crate) fn strike(server: &Process, case: &Case) -> Struck {
    let (resident, cpu) = (server.resident_kib(), server.cpu());
    let mut connection = Connection::open(address(server, case.protocol), case);
    connection.send(case);
    let ending = connection.ending(case);
    let kib = server.resident_kib().saturating_sub(resident);
    drop(connection);
    Struck { ending, kib, cpu: server.cpu().saturating_sub(cpu) }
}

fn address(server: &Process, protocol: Protocol) -> SocketAddr {
    match protocol {
        Protocol::Tls => {
            let log = server.log();
            let others =
                log.split_once(" others=").and_then(|(_, rest)| rest.split_whitespace().next());
            others
                .and_then(|address| address.parse().ok())
                .expect("the address of the second listener")
        }
        _ => server.address,
    }
}

struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    /// The server ended it.
    is_over: bool,
    /// The server took nothing for a while.
    is_pushed_back: bool,
}

impl Connection {
    fn open(address: SocketAddr, case: &Case) -> Connection {
        let client = match case.reading {
            Reading::All => Client::connect(address),
            Reading::Nothing => Client::connect_small(address, 16 * 1024),
        };
        let stream = client.stream().try_clone().expect("a descriptor");
        stream.set_nonblocking(true).expect("a socket");
        Connection { stream, received: Vec::new(), is_over: false, is_pushed_back: false }
    }

    /// Sends until there is no more to send, the server takes no more, or it ends the connection.
    fn send(&mut self, case: &Case) {
        let mut unsent: Vec<u8> = Vec::new();
        let mut number = 0;
        let mut has_more = true;
        while (has_more || !unsent.is_empty()) && !self.is_over && !self.is_pushed_back {
            while has_more && unsent.len() < 16 * 1024 {
                match (case.pieces)(number) {
                    Some(piece) => unsent.extend(piece),
                    None => has_more = false,
                }
                number += 1;
                if !case.pause.is_zero() {
                    break;
                }
            }
            self.write(&mut unsent, case);
            if !case.pause.is_zero() {
                std::thread::sleep(case.pause);
                self.read(case);
            }
        }
    }

    fn write(&mut self, unsent: &mut Vec<u8>, case: &Case) {
        // Long enough for a server that other work delays; a server that takes no more, takes none for ever.
        let patience = Duration::from_millis(1500);
        let mut took = Instant::now();
        while !unsent.is_empty() && !self.is_over {
            match self.stream.write(unsent) {
                Ok(count) => {
                    unsent.drain(..count);
                    took = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if took.elapsed() > patience {
                        self.is_pushed_back = true;
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                // What the server has said before is still to be read.
                Err(_) => return self.read_to_end(),
            }
            self.read(case);
        }
    }

    fn read(&mut self, case: &Case) {
        if case.reading == Reading::All {
            self.read_some();
        }
    }

    fn read_some(&mut self) {
        let mut bytes = [0; 64 * 1024];
        while !self.is_over {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.is_over = true,
                Ok(count) => self.received.extend(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.is_over = true,
            }
        }
    }

    fn read_to_end(&mut self) {
        let until = Instant::now() + PATIENCE;
        while !self.is_over && Instant::now() < until {
            self.read_some();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// How it ended: if it has not, once the server has answered a last question, or the end of what it is sent.
    fn ending(&mut self, case: &Case) -> String {
        if self.is_pushed_back {
            return "pushed back".to_owned();
        }
        if case.reading == Reading::Nothing && !self.is_over {
            // The server answers meanwhile, as far as it will.
            std::thread::sleep(Duration::from_millis(300));
            return "unread".to_owned();
        }
        if !self.is_over {
            self.settle(case);
        }
        match case.protocol {
            Protocol::Http1 => wire::http1_ending(&self.received),
            Protocol::Http2 => wire::http2_ending(&self.received),
            Protocol::WebSocket => wire::websocket_ending(&self.received),
            Protocol::Tls => wire::tls_ending(&self.received),
        }
    }

    fn settle(&mut self, case: &Case) {
        match case.protocol {
            Protocol::Http2 => {
                let _ = self.stream.write(&wire::are_you_there());
                let until = Instant::now() + PATIENCE;
                while !self.is_over && !wire::is_settled(&self.received) && Instant::now() < until {
                    self.read_some();
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            _ => {
                let _ = self.stream.shutdown(std::net::Shutdown::Write);
                self.read_to_end();
            }
        }
    }
}
