//! WebSockets over real sockets, on both transports, with tungstenite as the other side.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use highwater::server::TransportChoice;
use highwater::websocket::Broadcast;
use highwater::{Closed, Router, ServerConfig, State, WebSocket, websocket};
use highwater_testkit::read_some;
use tungstenite::client::client_with_config;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tungstenite::{Error, Message, WebSocket as Peer};

use crate::served::{HANG, config, start, start_with};
use crate::transports::on_each_transport;

async fn echo(mut socket: WebSocket) -> Result<(), Closed> {
    while let Some(message) = socket.recv().await {
        socket.send(message).await?;
    }
    Ok(())
}

fn router() -> Router {
    Router::new().get("/ws", websocket(echo).message_max(8 << 20).frame_max(8 << 20))
}

/// A socket with a time limit that reads on after a signal, which is for another test's server.
struct Patient(TcpStream);

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        read_some(&mut self.0, buffer)
    }
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn dial(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, HANG).expect("it listens");
    stream.set_read_timeout(Some(HANG)).expect("it is open");
    stream.set_write_timeout(Some(HANG)).expect("it is open");
    stream
}

fn connect(address: SocketAddr) -> Peer<Patient> {
    let unlimited = WebSocketConfig::default().max_frame_size(None).max_message_size(None);
    let url = format!("ws://{address}/ws");
    let opened = client_with_config(url, Patient(dial(address)), Some(unlimited));
    opened.expect("the handshake is accepted").0
}

on_each_transport! {
    /// Purpose: messages of every length come back as they were, one by one and many at once, and the closing handshake is
    /// kept: another implementation accepts all of it.
    fn echoes(transport) {
        let mut server = start(router(), transport);
        let mut peer = connect(server.address());
        for len in [0, 1, 125, 126, 65_535, 65_536, 1 << 20, 5 << 20] {
            let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
            peer.send(Message::from(bytes.clone())).expect("it is open");
            assert_eq!(peer.read().expect("it is open"), Message::from(bytes));
        }
        for number in 0..1000 {
            peer.write(Message::from(format!("message {number}"))).expect("it is open");
        }
        peer.flush().expect("it is open");
        for number in 0..1000 {
            assert_eq!(peer.read().expect("it is open"), Message::from(format!("message {number}")));
        }
        let close_frame = CloseFrame { code: CloseCode::Library(4000), reason: "done".into() };
        peer.close(Some(close_frame)).expect("it is open");
        let Ok(Message::Close(Some(close))) = peer.read() else { panic!("a close frame") };
        assert_eq!(close.code, CloseCode::Library(4000));
        assert!(matches!(peer.read(), Err(Error::ConnectionClosed)));
        server.stop().expect("it served");
    }

    /// Purpose: fragments, control frames between them and frames of one byte per packet are one message.
    fn fragments_byte_by_byte(transport) {
        let mut server = start(router(), transport);
        let mut peer = connect(server.address());
        let mut bytes = Vec::new();
        for (first, content) in [(0x01, "frag"), (0x89, "ping"), (0x00, "men"), (0x80, "ts")] {
            bytes.extend_from_slice(&[first, 0x80 | content.len() as u8, 0, 0, 0, 0]);
            bytes.extend_from_slice(content.as_bytes());
        }
        let stream = &mut peer.get_mut().0;
        stream.set_nodelay(true).expect("it is open");
        for byte in bytes {
            stream.write_all(&[byte]).expect("it is open");
        }
        assert_eq!(peer.read().expect("it is open"), Message::Pong("ping".into()));
        assert_eq!(peer.read().expect("it is open"), Message::from("fragments"));
        drop(peer);
        server.stop().expect("it served");
    }

    /// Purpose: clients that leave in every rude way cost the server nothing: others go on, and it drains at once.
    fn rude_clients(transport) {
        let mut server = start(router(), transport);
        let address = server.address();
        let mut polite = connect(address);
        for way in 0..4 {
            let mut rude = connect(address);
            let stream = &mut rude.get_mut().0;
            match way {
                0 => {} // Gone.
                1 => stream.write_all(&[0x82, 0xfe, 0xff]).expect("it is open"), // In the middle of a header.
                2 => stream.write_all(&[0x82, 0x85, 1, 2, 3, 4, 5]).expect("it is open"), // Of a payload.
                _ => stream.shutdown(std::net::Shutdown::Write).expect("it is open"),
            }
            drop(rude);
            polite.send(Message::from("still here")).expect("it is open");
            assert_eq!(polite.read().expect("it is open"), Message::from("still here"));
        }
        let mut half = dial(address);
        half.write_all(
            b"GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
              Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\
              \x81\x85\x00\x00\x00\x00early",
        )
        .expect("it is open");
        half.shutdown(std::net::Shutdown::Write).expect("it is open");
        let mut received = Vec::new();
        half.read_to_end(&mut received).expect("it ends");
        assert!(received.ends_with(b"\x81\x05early"), "what it said with its request is answered: {}", received.escape_ascii());
        drop(polite);
        server.stop().expect("it served");
    }

    /// Purpose: a client that sends and never reads is held back, and what waits for it is bounded: by the server's buffers
    /// and the kernel's, not by what it sends.
    fn clients_that_never_read(transport) {
        let mut server = start(router(), transport);
        let mut peer = connect(server.address());
        peer.get_mut().0.set_nonblocking(true).expect("it is open");
        let mut frame = vec![0x82, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        frame.resize(frame.len() + 0x1_0000, 0);
        let (mut sent, mut idle) = (0, 0);
        while sent < 256 << 20 && idle < 100 {
            match peer.get_mut().0.write(&frame[sent % frame.len()..]) {
                Ok(size) => (sent, idle) = (sent + size, 0),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    idle += 1;
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(sent < 64 << 20, "{sent} bytes were taken for a client that reads nothing");
        drop(peer);
        server.stop().expect("it served");
    }

    /// Purpose: a server that stops says 1001, waits for the answer, and has nothing left to cut.
    fn drains(transport) {
        let mut server = start(router(), transport);
        let mut peers: Vec<_> = (0..5).map(|_| connect(server.address())).collect();
        for peer in &mut peers {
            peer.send(Message::from("x")).expect("it is open");
            peer.read().expect("it is open");
        }
        let stopping = std::thread::spawn(move || server.stop().expect("it served"));
        for peer in &mut peers {
            let Ok(Message::Close(Some(close))) = peer.read() else { panic!("a close frame") };
            assert_eq!(close.code, CloseCode::Away);
            while !matches!(peer.read(), Err(Error::ConnectionClosed)) {}
        }
        stopping.join().expect("it does not panic");
    }

    /// Purpose: a drain waits for what a handler does behind its loop, although its client has left: it takes itself off a list
    /// in a database.
    fn drains_wait_for_the_end_of_handlers(transport) {
        async fn leaves(mut socket: WebSocket, State(left): State<Arc<AtomicBool>>) {
            while socket.recv().await.is_some() {}
            tokio::time::sleep(Duration::from_millis(500)).await;
            left.store(true, SeqCst);
        }
        for goes_first in [false, true] {
            let left = Arc::new(AtomicBool::new(false));
            let router = Router::new().state(Arc::clone(&left)).get("/ws", websocket(leaves));
            let mut server = start(router, transport);
            let mut peer = connect(server.address());
            let mut goes = move || {
                if !goes_first {
                    while peer.read().is_ok() {}
                }
            };
            match goes_first {
                true => goes(),
                false => drop(std::thread::spawn(goes)),
            }
            server.stop().expect("it served");
            assert!(left.load(SeqCst), "its client went first: {goes_first}");
        }
    }

    /// Purpose: a message reaches all members of a group on all workers, in the order in which it was sent.
    fn broadcasts_across_workers(transport) {
        async fn chat(mut socket: WebSocket, State(room): State<Broadcast>) {
            let _member = room.join(&socket);
            while let Some(message) = socket.recv().await {
                room.send(message);
            }
        }
        let router = Router::new().state(Broadcast::default()).get("/ws", websocket(chat));
        let workers = std::num::NonZero::new(3);
        let mut server = start_with(router, ServerConfig { workers, ..config(transport) });
        let mut peers: Vec<_> = (0..20).map(|_| connect(server.address())).collect();
        for (at, peer) in peers.iter_mut().enumerate() {
            // A client that has received its own message is a member.
            let own = Message::from(format!("{at} is here"));
            peer.send(own.clone()).expect("it is open");
            while peer.read().expect("it is open") != own {}
        }
        for number in 0..50 {
            peers[0].send(Message::from(format!("news {number}"))).expect("it is open");
        }
        for peer in &mut peers {
            let mut next = 0;
            while next < 50 {
                let message = peer.read().expect("it is open");
                if message.to_text().expect("it is text").starts_with("news") {
                    assert_eq!(message, Message::from(format!("news {next}")));
                    next += 1;
                }
            }
        }
        drop(peers);
        server.stop().expect("it served");
    }
}
