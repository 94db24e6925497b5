//! The memory that compressed messages of a WebSocket cost: what the documentation says.
#![forbid(unsafe_code)]

use allocation_counter::measure;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use highwater::testing::{Client, Received};
use highwater::websocket::{Deflate, Message};
use highwater::{Closed, Method, Router, WebSocket, websocket};
use highwater_core::websocket::{Kind, encode};

const MESSAGE_MAX: usize = 1 << 20;

async fn echo(mut socket: WebSocket) -> Result<(), Closed> {
    while let Some(message) = socket.recv().await {
        socket.send(message).await?;
    }
    Ok(())
}

fn client(deflate: Deflate) -> Client {
    let endpoint = websocket(echo).message_max(MESSAGE_MAX).deflate(deflate);
    Client::new(Router::new().get("/ws", endpoint))
}

fn open(client: &Client) -> highwater::testing::WebSocket<'_> {
    let offer = "permessage-deflate; client_max_window_bits";
    client.request(Method::GET, "/ws").header("sec-websocket-extensions", offer).websocket()
}

/// A frame of a whole compressed message.
fn frame(content: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    encode::message(Kind::Binary, content, Some([1, 2, 3, 4]), &mut frame);
    frame[0] |= encode::COMPRESSED;
    frame
}

/// Bytes that become this many zeros.
fn zeros(len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len / 100 + 100);
    let content = vec![0; len];
    let mut compress = Compress::new(Compression::best(), false);
    compress.compress_vec(&content, &mut out, FlushCompress::Sync).expect("it is compressed");
    out.truncate(out.len() - 4);
    out
}

/// Purpose: what a connection keeps with a context, in KiB, is what the documentation of `Deflate` says.
#[test]
fn contexts() {
    let kib = |bytes: u64| bytes.div_ceil(1024);
    for (bits, compressor, decompressor) in [(15, 372, 47), (9, 246, 47)] {
        let compress = measure(|| {
            let mut state = Compress::new_with_window_bits(Compression::new(4), false, bits);
            let (content, mut out) = (vec![7; 100_000], Vec::with_capacity(10_000));
            state.compress_vec(&content, &mut out, FlushCompress::Sync).expect("it is compressed");
            drop((content, out));
            std::mem::forget(state);
        });
        assert_eq!(kib(compress.bytes_current as u64), compressor, "a compressor of {bits} bits");
        let zeros = zeros(100_000);
        let decompress = measure(|| {
            let mut state = Decompress::new_with_window_bits(false, bits);
            let mut out = Vec::with_capacity(200_000);
            state.decompress_vec(&zeros, &mut out, FlushDecompress::None).expect("it is valid");
            drop(out);
            std::mem::forget(state);
        });
        assert_eq!(
            kib(decompress.bytes_current as u64),
            decompressor,
            "a decompressor of {bits} bits"
        );
    }
}

/// Purpose: without a context, a connection between two messages keeps nothing for compression: as much as one without it.
#[test]
fn idle_connections() {
    let client = client(Deflate::new());
    let kept = |is_compressed: bool| {
        let converse = |socket: &mut highwater::testing::WebSocket<'_>| {
            for _ in 0..3 {
                // Without compression a short one, since the client remembers all that it was sent.
                let text = "to be or not to be ".repeat(if is_compressed { 500 } else { 5 });
                socket.send(text.clone());
                assert_eq!(socket.recv().as_ref().and_then(Message::as_text), Some(&*text));
                assert_eq!(socket.was_compressed(), is_compressed);
            }
            // The client keeps the last message.
            socket.send("enough");
            assert!(socket.recv().is_some());
        };
        let open = || if is_compressed { open(&client) } else { client.websocket("/ws") };
        // What belongs to the thread is made, and what the client remembers has its room.
        converse(&mut open());
        let mut sockets = Vec::with_capacity(8);
        let kept = measure(|| {
            for _ in 0..8 {
                let mut socket = open();
                converse(&mut socket);
                sockets.push(socket);
            }
        });
        kept.bytes_current / 8
    };
    let (plain, compressed) = (kept(false), kept(true));
    assert!(compressed < plain + 4096, "{compressed} bytes for each connection, {plain} without");
}

/// Purpose: a bomb costs the limit of a message and a constant, however it comes, and ends with 1009: 16 MiB in 16 KiB.
#[test]
fn bombs() {
    let content: Vec<u8> = zeros(16 << 20);
    let (deflates, frame) =
        ([Deflate::new(), Deflate::new().client_context_takeover()], frame(&content));
    for deflate in deflates {
        let client = client(deflate);
        drop(open(&client));
        let mut code = None;
        let cost = measure(|| {
            let mut socket = open(&client);
            for piece in frame.chunks(1000) {
                socket.send_bytes(piece);
            }
            let Some(Received::Close(close)) = socket.recv_any() else { panic!("a close frame") };
            code = close.map(|close| close.code.0);
        });
        assert_eq!(code, Some(1009));
        // While it grows for the last time, its two halves of the memory and the whole are there.
        let most = (MESSAGE_MAX + MESSAGE_MAX / 2 + 192 * 1024) as u64;
        assert!(cost.bytes_max < most, "{} bytes of {most}", cost.bytes_max);
    }
}
