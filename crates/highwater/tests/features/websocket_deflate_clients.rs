//! Compressed messages of WebSockets over real sockets: over HTTP/1.1 on all transports, and over HTTP/2.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use highwater::server::TransportChoice;
use highwater::websocket::{Deflate, Message};
use highwater::{Closed, Router, WebSocket, websocket};
use highwater_core::websocket::{Kind, encode};
use highwater_testkit::read_some;

use crate::served::{HANG, start};
use crate::transports::on_each_transport;
use crate::tunnel::with_client;

const KEY: Option<[u8; 4]> = Some([0x37, 0xfa, 0x21, 0x3d]);

async fn echo(mut socket: WebSocket) -> Result<(), Closed> {
    while let Some(message) = socket.recv().await {
        socket.send(message).await?;
    }
    Ok(())
}

/// Answers a message with a hundred of each of four threads, which send at the same time.
async fn many(mut socket: WebSocket) {
    while socket.recv().await.is_some() {
        for thread in 0..4 {
            let sender = socket.sender();
            std::thread::spawn(move || {
                for number in 0..100 {
                    let message: Message = format!("message {number} of thread {thread}").into();
                    while sender.try_send(message.clone())
                        == Err(highwater::websocket::TrySendError::Full)
                    {
                        std::thread::yield_now();
                    }
                }
            });
        }
    }
}

fn router() -> Router {
    let keeps = Deflate::new().server_context_takeover().client_context_takeover().bytes_min(1);
    Router::new()
        .get("/ws", websocket(echo).message_max(4 << 20).frame_max(4 << 20).deflate(Deflate::new()))
        .get("/keeps", websocket(echo).deflate(keeps.clone()))
        .get("/many", websocket(many).deflate(keeps))
}

/// A client with the compressor and the decompressor of RFC 7692 §7.2, and the simplest loops around them.
struct Peer {
    stream: TcpStream,
    /// What came and was not read yet.
    received: Vec<u8>,
    codec: Codec,
}

struct Codec {
    compress: Compress,
    decompress: Decompress,
    keeps: bool,
}

impl Codec {
    fn new(keeps: bool) -> Codec {
        let compress = Compress::new(Compression::default(), false);
        Codec { compress, decompress: Decompress::new(false), keeps }
    }

    /// A frame.
    fn frame(&mut self, content: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(content.len() + content.len() / 10 + 100);
        self.compress
            .compress_vec(content, &mut out, FlushCompress::Sync)
            .expect("it is compressed");
        assert!(out.ends_with(&[0, 0, 0xff, 0xff]));
        out.truncate(out.len() - 4);
        let mut frame = Vec::new();
        encode::message(Kind::Binary, &out, KEY, &mut frame);
        frame[0] |= encode::COMPRESSED;
        if !self.keeps {
            self.compress.reset();
        }
        frame
    }

    /// The first message of a server's frames, which is removed; `None`: it is not complete.
    fn message(&mut self, received: &mut Vec<u8>) -> Option<Vec<u8>> {
        let (header, len) = match *received.get(1)? {
            126 => (4, u16::from_be_bytes(received.get(2..4)?.try_into().ok()?).into()),
            127 => (10, u64::from_be_bytes(received.get(2..10)?.try_into().ok()?) as usize),
            len => (2, len.into()),
        };
        let mut content = received.get(header..header + len)?.to_vec();
        let is_compressed = match received[0] {
            0xc1 | 0xc2 => true,
            0x81 | 0x82 => false,
            other => panic!("{other:02x} begins no message"),
        };
        received.drain(..header + len);
        if !is_compressed {
            return Some(content);
        }
        content.extend([0, 0, 0xff, 0xff]);
        let mut out = Vec::with_capacity(5 << 20);
        let status = self.decompress.decompress_vec(&content, &mut out, FlushDecompress::Sync);
        status.expect("it is valid");
        if !self.keeps {
            self.decompress.reset(false);
        }
        Some(out)
    }
}

fn connect(address: SocketAddr, path: &str, expected: &str) -> Peer {
    let mut stream = TcpStream::connect_timeout(&address, HANG).expect("it listens");
    stream.set_read_timeout(Some(HANG)).expect("it is open");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("it is open");
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("it answers");
        head.extend(byte);
    }
    let head = String::from_utf8(head).expect("it is text").to_ascii_lowercase();
    assert!(head.contains(&format!("\r\nsec-websocket-extensions: {expected}\r\n")), "{head}");
    let codec = Codec::new(!expected.contains("takeover"));
    Peer { stream, received: Vec::new(), codec }
}

impl Peer {
    fn send(&mut self, content: &[u8]) {
        let frame = self.codec.frame(content);
        self.stream.write_all(&frame).expect("it is open");
    }

    fn recv(&mut self) -> Vec<u8> {
        let mut piece = [0; 16 * 1024];
        loop {
            if let Some(message) = self.codec.message(&mut self.received) {
                return message;
            }
            let len = read_some(&mut self.stream, &mut piece).expect("it is open");
            assert_ne!(len, 0, "it ended");
            self.received.extend_from_slice(&piece[..len]);
        }
    }
}

const NEITHER: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
const KEPT: &str = "permessage-deflate";

/// Content of this length, with repetitions.
fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7 % 251) as u8).collect()
}

on_each_transport! {
    /// Purpose: messages of every length come back as they were, one by one and many at once, with a context and without.
    fn echoes(transport) {
        let mut server = start(router(), transport);
        for (path, answer) in [("/ws", NEITHER), ("/keeps", KEPT)] {
            let mut peer = connect(server.address(), path, answer);
            for len in [0, 1, 1023, 1024, 70_000, 1 << 20] {
                peer.send(&content(len));
                assert_eq!(peer.recv(), content(len));
            }
            for len in 1000..1100 {
                peer.send(&content(len));
            }
            for len in 1000..1100 {
                assert_eq!(peer.recv(), content(len));
            }
        }
        server.stop().expect("it served");
    }

    /// Purpose: clients that leave in the middle of a compressed message, or of a compressed answer, cost the server nothing:
    /// others go on, and it drains at once.
    fn rude_clients(transport) {
        let mut server = start(router(), transport);
        let mut polite = connect(server.address(), "/ws", NEITHER);
        for (path, answer) in [("/ws", NEITHER), ("/keeps", KEPT)] {
            for part in 1..=3 {
                let mut rude = connect(server.address(), path, answer);
                let frame = rude.codec.frame(&content(1 << 20));
                rude.stream.write_all(&frame[..frame.len() * part / 3]).expect("it is open");
                drop(rude);
                polite.send(&content(5000));
                assert_eq!(polite.recv(), content(5000));
            }
        }
        drop(polite);
        server.stop().expect("it served");
    }

    /// Purpose: senders on several threads share a context: messages are compressed in the order in which they are sent.
    fn senders_on_threads(transport) {
        let mut server = start(router(), transport);
        let mut peer = connect(server.address(), "/many", KEPT);
        peer.send(b"go");
        let mut next = [0; 4];
        for _ in 0..400 {
            let message = String::from_utf8(peer.recv()).expect("it is text");
            let thread = message.chars().last().and_then(|digit| digit.to_digit(10)).expect("a number") as usize;
            assert_eq!(message, format!("message {} of thread {thread}", next[thread]));
            next[thread] += 1;
        }
        drop(peer);
        server.stop().expect("it served");
    }

    /// Purpose: on a stream of HTTP/2 the same is agreed on, and messages are compressed in the same way.
    fn over_http2(transport) {
        let mut server = start(router(), transport);
        with_client(server.address(), async |client| {
            for (path, answer) in [("/ws", NEITHER), ("/keeps", KEPT)] {
                let offer = [("sec-websocket-extensions", "permessage-deflate; client_max_window_bits")];
                let mut socket = client.connect(path, &offer).await.expect("it opens a WebSocket");
                assert_eq!(socket.fields.get(offer[0].0).map(|value| value.as_bytes()), Some(answer.as_bytes()));
                let (mut codec, mut received) = (Codec::new(answer == KEPT), Vec::new());
                for len in [0, 1, 5000, 300_000] {
                    socket.send(codec.frame(&content(len))).await;
                    let message = loop {
                        if let Some(message) = codec.message(&mut received) {
                            break message;
                        }
                        let piece = socket.receiver.data().await.expect("it is open").expect("it is open");
                        socket.receiver.flow_control().release_capacity(piece.len()).expect("it came");
                        received.extend_from_slice(&piece);
                    };
                    assert_eq!(message, content(len));
                }
                // It leaves in the middle of a message.
                let frame = codec.frame(&content(5000));
                socket.send(frame[..frame.len() / 2].to_vec()).await;
                socket.sender.send_reset(h2::Reason::CANCEL);
            }
            let page = client.ask(http::Method::GET, "/nowhere").await;
            assert_eq!(page.status, 404);
        });
        server.stop().expect("it served");
    }
}
