//! WebSockets: frames that are wrong, messages without an end, floods. The codes are those of RFC 6455 §7.4.1.

use crate::strike::{Case, Protocol};
use crate::wire::socket_frame;

const P: Protocol = Protocol::WebSocket;
const FIN: u8 = 0x80;
const CONTINUED: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

const WRONG: &[&str] = &["close 1002"];

/// The first frame of a message that is compressed.
const COMPRESSED: u8 = 0x40;

const UPGRADE: &str = "GET /socket HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";

/// An empty block that is stored (RFC 1951 §3.2.4): whole bytes that become nothing.
const NOTHING: [u8; 5] = [0, 0, 0, 0xff, 0xff];

/// As much as a message may have.
const MIB: usize = 1 << 20;

pub(crate) fn cases() -> Vec<Case> {
    [frames(), messages(), compressed()].concat()
}

fn once(name: &'static str, frames: impl AsRef<[u8]>, ends: &'static [&'static str]) -> Case {
    Case::once(P, name, [UPGRADE.as_bytes(), frames.as_ref()].concat(), ends)
}

fn repeated(
    name: &'static str,
    (first, again, times): (Vec<u8>, Vec<u8>, u32),
    ends: &'static [&'static str],
) -> Case {
    Case::repeated(P, name, ([UPGRADE.as_bytes(), &first].concat(), again, times), ends)
}

fn frames() -> Vec<Case> {
    vec![
        once("a frame without a mask", [FIN | TEXT, 1, b'a'], WRONG),
        once("a reserved bit", socket_frame(FIN | 0x40 | TEXT, b"a"), WRONG),
        once("a reserved type", socket_frame(FIN | 3, b"a"), WRONG),
        once("a reserved type of control", socket_frame(FIN | 11, b"a"), WRONG),
        once("a ping in parts", socket_frame(PING, b"a"), WRONG),
        once("a ping of 126 bytes", socket_frame(FIN | PING, &[0; 126]), WRONG),
        once(
            "a length beyond all lengths",
            [&[FIN | BINARY, 255][..], &[255; 8], &[0; 4]].concat(),
            &["close 1002", "close 1009"],
        ),
        once(
            "a length beyond the limit",
            [&[FIN | BINARY, 255][..], &(1_u64 << 40).to_be_bytes(), &[0; 4]].concat(),
            &["close 1009"],
        ),
        once(
            "a short length in eight bytes",
            [&[FIN | BINARY, 255][..], &1_u64.to_be_bytes(), &[0; 4], b"a"].concat(),
            WRONG,
        ),
        once("a message behind no beginning", socket_frame(FIN | CONTINUED, b"a"), WRONG),
        once(
            "a message within another",
            [socket_frame(TEXT, b"a"), socket_frame(FIN | TEXT, b"b")].concat(),
            WRONG,
        ),
        once(
            "a close code that may not be sent",
            socket_frame(FIN | CLOSE, &1005_u16.to_be_bytes()),
            WRONG,
        ),
        once("a close code of one byte", socket_frame(FIN | CLOSE, &[3]), WRONG),
        once("text that is not UTF-8", socket_frame(FIN | TEXT, &[0xc0, 0x80]), &["close 1007"]),
        once(
            "text that is not UTF-8 across two frames",
            [socket_frame(TEXT, &[0xe2, 0x82]), socket_frame(FIN | CONTINUED, b"a")].concat(),
            &["close 1007"],
        ),
        once("a handshake without a key", "", &["lives"]),
    ]
}

fn messages() -> Vec<Case> {
    let part = socket_frame(CONTINUED, &[b'a'; 4096]);
    vec![
        repeated(
            "a message without an end",
            (socket_frame(BINARY, b""), part, 10_000),
            &["close 1009"],
        ),
        repeated(
            "a message of parts of one byte",
            (socket_frame(BINARY, b"a"), socket_frame(CONTINUED, b"a"), 2_000_000),
            &["close 1009"],
        ),
        repeated(
            "a message of empty parts",
            (socket_frame(BINARY, b""), socket_frame(CONTINUED, b""), 500_000),
            &["lives", "close 1008", "close 1009"],
        ),
        repeated("pings", (vec![], socket_frame(FIN | PING, &[7; 125]), 100_000), &["lives"]),
        repeated(
            "pings whose answers nobody reads",
            (vec![], socket_frame(FIN | PING, &[7; 125]), 1_000_000),
            &["pushed back"],
        )
        .unread(),
        repeated(
            "pongs that nobody asked for",
            (vec![], socket_frame(FIN | PONG, &[7; 125]), 100_000),
            &["lives"],
        ),
        repeated(
            "messages that nobody reads the answers of",
            (vec![], socket_frame(FIN | BINARY, &[7; 4096]), 100_000),
            &["pushed back"],
        )
        .unread(),
    ]
}

/// A handshake that agrees on compressed messages.
fn compressing(path: &str, parameters: &str) -> String {
    let offer = format!("\r\nSec-WebSocket-Extensions: permessage-deflate{parameters}\r\n\r\n");
    UPGRADE.replace("/socket", path).trim_end().to_owned() + &offer
}

/// A compressed message of this many bytes at least, all the same: 258 of them in 13 bits (RFC 1951 §3.2.6).
fn bomb(bytes: usize) -> Vec<u8> {
    let (mut out, mut filled) = (vec![0_u8], 0);
    let mut push = |bits: u32, count: u32| {
        for bit in (0..count).rev() {
            if filled == 8 {
                out.push(0);
                filled = 0;
            }
            *out.last_mut().expect("there is one") |= ((bits >> bit & 1) as u8) << filled;
            filled += 1;
        }
    };
    push(0b010, 3); // A block that is not the last, with the fixed codes.
    push(0x30 + u32::from(b'x'), 8);
    for _ in 0..bytes.div_ceil(258) {
        push(0b1100_0101, 8); // 258 bytes,
        push(0, 5); // as the one before them.
    }
    push(0, 7); // The end of the block,
    push(0, 3); // and an empty one, whose length the receiver adds.
    out
}

/// RFC 7692: what is small and becomes large, what is marked as compressed and may not be, a context that is not kept.
fn compressed() -> Vec<Case> {
    let alone = compressing("/socket-deflate", "");
    let kept = compressing("/socket-deflate-kept", "; client_max_window_bits=9");
    let first =
        |first: u8, content: &[u8]| [alone.as_bytes(), &socket_frame(first, content)].concat();
    let whole = |content: &[u8]| socket_frame(FIN | COMPRESSED | BINARY, content);
    let again =
        |name, first, again, times, ends| Case::repeated(P, name, (first, again, times), ends);
    vec![
        Case::once(P, "a compressed ping", first(FIN | COMPRESSED | PING, &NOTHING), WRONG),
        Case::once(P, "a compressed close", first(FIN | COMPRESSED | CLOSE, b""), WRONG),
        Case::once(P, "a bit that no extension has", first(FIN | 0x20 | TEXT, b"a"), WRONG),
        again(
            "a later frame that is marked as compressed",
            first(COMPRESSED | BINARY, &NOTHING),
            socket_frame(FIN | COMPRESSED, &NOTHING),
            1,
            WRONG,
        ),
        Case::once(
            P,
            "bytes that are not compressed",
            first(FIN | COMPRESSED | BINARY, &[0xff; 100]),
            &["close 1007"],
        ),
        Case::once(
            P,
            "a message that becomes 64 MiB",
            first(FIN | COMPRESSED | BINARY, &bomb(64 * MIB)),
            &["close 1009"],
        ),
        again(
            "a message that becomes larger with each of its parts",
            first(COMPRESSED | BINARY, &NOTHING),
            socket_frame(CONTINUED, &[&bomb(MIB / 16)[..], &NOTHING[1..]].concat()),
            10_000,
            &["close 1009"],
        ),
        again(
            "a compressed message of nothing, without an end",
            first(COMPRESSED | BINARY, &NOTHING),
            socket_frame(CONTINUED, &NOTHING.repeat(800)),
            10_000,
            &["close 1009"],
        ),
        again(
            "a compressed message of empty parts",
            first(COMPRESSED | BINARY, &bomb(1000)),
            socket_frame(CONTINUED, b""),
            500_000,
            &["lives", "close 1008"],
        ),
        again(
            "compressed messages of nothing",
            first(FIN | COMPRESSED | BINARY, b""),
            whole(b""),
            50_000,
            &["lives"],
        ),
        again(
            "small messages that become large",
            alone.clone().into(),
            whole(&bomb(MIB - 1000)),
            50,
            &["lives"],
        ),
        again(
            "the same with a context",
            kept.clone().into(),
            whole(&bomb(MIB - 1000)),
            50,
            &["lives"],
        ),
        again(
            "small messages that become large, and whose answers nobody reads",
            alone.clone().into(),
            whole(&bomb(MIB - 1000)),
            100,
            &["unread", "pushed back"],
        )
        .unread(),
    ]
}
