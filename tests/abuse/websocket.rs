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

const UPGRADE: &str = "GET /socket HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";

pub(crate) fn cases() -> Vec<Case> {
    [frames(), messages()].concat()
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
