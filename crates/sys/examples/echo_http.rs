//! What does a driver cost by itself? The least that looks like an HTTP server on top of one:
//! every `\r\n\r\n` is answered with 120 bytes, from recycled buffers, and nothing is parsed.
//!
//! `echo_http uring|epoll PORT [CORE] [close]` — `close` ends each connection after its first
//! answer. To be compared with a bare event loop under the same load.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use highwater_core::driver::{
    Accepting, ConnId, Driver, Event, ListenerId, Output, Reading, Then, Wait,
};
use highwater_sys::epoll::Epoll;
use highwater_sys::uring::Uring;
use highwater_sys::{DriverConfig, External, Listener, cpu};

const ANSWER: &[u8; 120] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nServer: echo\r\n\
    Content-Length: 41\r\n\r\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

#[derive(Clone, Copy, Default)]
struct Connection {
    /// How much of `\r\n\r\n` the input so far ends with.
    matched: u8,
    streaming: bool,
    sending: bool,
    /// Answers owed while a send is in flight.
    owed: u32,
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let driver = arguments.next().expect("which driver: uring or epoll");
    let port = arguments.next().and_then(|port| port.parse().ok()).unwrap_or(8080);
    if let Some(core) = arguments.next().and_then(|core| core.parse().ok()) {
        cpu::pin_thread(core)?;
    }
    let then = if arguments.next().is_some() { Then::Close } else { Then::Keep };
    let listener = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), 4096)?;
    // As in a server with several workers: the descriptor table is shared, which costs something.
    std::thread::spawn(|| {
        loop {
            std::thread::park()
        }
    });
    let config = DriverConfig::default();
    match driver.as_str() {
        "uring" => serve(Uring::new(vec![listener], &config)?, then),
        _ => serve(Epoll::new(vec![listener], &config)?, then),
    }
}

fn serve(mut driver: impl External, then: Then) -> io::Result<()> {
    let mut server = Server::default();
    driver.accept(ListenerId(0), Accepting::On);
    loop {
        driver.poll(Wait::Forever, &mut |event| server.on_event(event))?;
        server.answer(&mut driver, then);
        driver.report_done(&mut |event| server.on_event(event));
        server.answer(&mut driver, then);
    }
}

#[derive(Default)]
struct Server {
    connections: Vec<Connection>,
    pool: Vec<Vec<u8>>,
    todo: Vec<ConnId>,
}

impl Server {
    fn on_event(&mut self, event: Event<'_>) {
        let Server { connections, pool, todo } = self;
        match event {
            Event::Accepted(id, ..) => {
                connections.resize(connections.len().max(id.index() + 1), Connection::default());
                connections[id.index()] = Connection::default();
            }
            Event::Received(id, bytes) => {
                let connection = &mut connections[id.index()];
                let answers = count(&mut connection.matched, bytes);
                if answers > 0 {
                    connection.owed += answers;
                    todo.push(id);
                }
            }
            Event::Sent(id, bytes) => {
                pool.push(bytes);
                let connection = &mut connections[id.index()];
                connection.sending = false;
                if connection.owed > 0 {
                    todo.push(id);
                }
            }
            Event::HungUp(_) => {}
            Event::Eof(id) => {
                connections[id.index()].owed = u32::MAX;
                todo.push(id);
            }
            Event::Progress(_) | Event::Closed(_) => {}
            Event::AcceptFailed(error) => eprintln!("{error:?}"),
        }
    }

    fn answer(&mut self, driver: &mut impl Driver, then: Then) {
        let Server { connections, pool, todo } = self;
        for id in todo.drain(..) {
            let connection = &mut connections[id.index()];
            match connection.owed {
                u32::MAX => driver.close(id, highwater_core::driver::Close::Fin),
                owed if owed > 0 && !connection.sending => {
                    let mut bytes = pool.pop().unwrap_or_default();
                    for _ in 0..std::mem::take(&mut connection.owed) {
                        bytes.extend_from_slice(ANSWER);
                    }
                    connection.sending = true;
                    driver.send(id, Output { bytes, ..Output::default() }, then);
                }
                _ => {}
            }
            if then == Then::Keep && !connection.streaming {
                connection.streaming = true;
                driver.read(id, Reading::Stream);
            }
        }
    }
}

/// How many requests end in `bytes`.
fn count(matched: &mut u8, bytes: &[u8]) -> u32 {
    if *matched == 0 && bytes.len() < 64 && bytes.ends_with(b"\r\n\r\n") {
        return 1; // As cheap as it gets: the driver is measured, not this.
    }
    let mut ends = 0;
    for byte in bytes {
        *matched = match (byte, *matched) {
            (b'\r', 0 | 2) | (b'\n', 1) => *matched + 1,
            (b'\n', 3) => {
                ends += 1;
                0
            }
            (b'\r', _) => 1,
            _ => 0,
        };
    }
    ends
}
