//! The RFC's examples, every error, the limits, input split at every byte, and tungstenite as the other side.

use std::format;
use std::io::{Cursor, Read, Write};
use std::string::{String, ToString as _};
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// What a decoder makes of `parts`.
fn decode(role: Role, limits: Limits, parts: &[&[u8]]) -> Vec<String> {
    let (mut decoder, mut seen) = (Decoder::new(role, limits), vec![]);
    for part in parts {
        let mut input = *part;
        loop {
            match decoder.next(&mut input) {
                Ok(None) => break,
                Ok(Some(Event::Close(Some(close)))) => {
                    seen.push(format!("close {} {:?}", close.code.0, close.reason))
                }
                Ok(Some(Event::Close(None))) => seen.push("close".to_string()),
                Ok(Some(event)) => seen.push(match event {
                    Event::Message(kind, bytes) => format!("{kind:?} {}", bytes.escape_ascii()),
                    Event::Ping(bytes) => format!("ping {}", bytes.escape_ascii()),
                    Event::Pong(bytes) => format!("pong {}", bytes.escape_ascii()),
                    Event::Close(_) => unreachable!("both are above"),
                }),
                Err(error) => {
                    assert_eq!(decoder.next(&mut &[0x81, 0][..]), Err(error), "it stays so");
                    seen.push(format!("error {}", error.code.0));
                    return seen;
                }
            }
        }
        assert!(input.is_empty());
    }
    seen
}

fn client(bytes: &[u8]) -> Vec<String> {
    decode(Role::Client, Limits::default(), &[bytes])
}

/// Purpose: the examples of RFC 6455 §5.7.
#[test]
fn examples() {
    assert_eq!(client(&[0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f]), ["Text Hello"]);
    let masked = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    assert_eq!(decode(Role::Server, Limits::default(), &[&masked]), ["Text Hello"]);
    assert_eq!(client(&[0x01, 0x03, 0x48, 0x65, 0x6c, 0x80, 0x02, 0x6c, 0x6f]), ["Text Hello"]);
    assert_eq!(client(&[0x89, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f]), ["ping Hello"]);
    let pong = [0x8a, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    assert_eq!(decode(Role::Server, Limits::default(), &[&pong]), ["pong Hello"]);
    for (len, header) in
        [(256, &[0x82, 0x7e, 0x01, 0x00][..]), (65_536, &[0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0])]
    {
        let mut out = vec![];
        encode::message(Kind::Binary, &vec![b'x'; len], None, &mut out);
        assert_eq!(&out[..header.len()], header);
        assert_eq!(client(&out), [format!("Binary {}", "x".repeat(len))]);
    }
}

/// Purpose: control frames come between the fragments of a message; after a close frame nothing is read.
#[test]
fn control_frames() {
    let mut out = vec![];
    encode::frame(Kind::Text, b"a", true, false, None, &mut out);
    encode::ping(b"p", None, &mut out);
    encode::frame(Kind::Text, b"", false, false, None, &mut out);
    encode::pong(b"", None, &mut out);
    encode::frame(Kind::Text, b"b", false, true, None, &mut out);
    encode::close(Some(CloseCode::GOING_AWAY), "bye", None, &mut out);
    out.extend_from_slice(&[0xff; 20]);
    assert_eq!(client(&out), ["ping p", "pong ", "Text ab", "close 1001 \"bye\""]);
    let mut out = vec![];
    encode::close(None, "", None, &mut out);
    assert_eq!((client(&out), out.len()), (vec!["close".to_string()], 2));
    let mut out = vec![];
    encode::close(Some(CloseCode::NORMAL), &"é".repeat(100), None, &mut out);
    assert_eq!(client(&out), [format!("close 1000 {:?}", "é".repeat(61))]);
}

/// Purpose: what RFC 6455 forbids is refused with the code that it names.
#[test]
fn errors() {
    for (bytes, code) in [
        (&[0xc1, 0x00][..], 1002), // RSV1
        (&[0x83, 0x00], 1002),     // reserved opcodes
        (&[0x8b, 0x00], 1002),
        (&[0x80, 0x00], 1002),             // a continuation of nothing
        (&[0x01, 0x00, 0x81, 0x00], 1002), // a message within another
        (&[0x09, 0x00], 1002),             // a fragmented ping
        (&[0x89, 0x7e, 0x00, 0x7e], 1002), // 126 bytes
        (&[0x82, 0x7e, 0x00, 0x7d], 1002), // not the shortest length
        (&[0x82, 0x7f, 0, 0, 0, 0, 0, 0, 0xff, 0xff], 1002),
        (&[0x82, 0x7f, 0x80, 0, 0, 0, 0, 0, 0, 0], 1002),
        (&[0x81, 0x80, 1, 2, 3, 4], 1002),       // a server masks
        (&[0x88, 0x01, 0x03], 1002),             // half a code
        (&[0x88, 0x02, 0x03, 0xed], 1002),       // 1005
        (&[0x88, 0x02, 0x0b, 0xb7], 1002),       // 2999
        (&[0x88, 0x03, 0x03, 0xe8, 0xff], 1007), // a reason that is not text
        (&[0x81, 0x01, 0xff], 1007),
        (&[0x81, 0x02, 0xe2, 0x82], 1007), // it ends within a character
        (&[0x01, 0x02, 0xe2, 0x82, 0x80, 0x01, 0x28], 1007),
        (&[0x01, 0x0a, 0xc0], 1007), // found before the frame is whole
        (&[0x82, 0x7f, 0, 0, 0, 0, 0, 0x10, 0, 1], 1009),
    ] {
        assert_eq!(client(bytes), [format!("error {code}")], "{bytes:02x?}");
    }
    assert_eq!(decode(Role::Server, Limits::default(), &[&[0x81, 0x00]]), ["error 1002"]);
}

/// Purpose: the limit holds for one frame and for several, at it and one above; nothing is allocated for what is only
/// announced.
#[test]
fn limits() {
    let limits = Limits { message_max: 10, ..Limits::default() };
    for (parts, is_allowed) in [
        (&[10][..], true),
        (&[11], false),
        (&[4, 6], true),
        (&[4, 6, 1], false),
        (&[4, 6, 0], true),
    ] {
        let mut out = vec![];
        for (index, len) in parts.iter().enumerate() {
            let is_last = index + 1 == parts.len();
            encode::frame(Kind::Binary, &vec![b'x'; *len], index == 0, is_last, None, &mut out);
        }
        let expected = if is_allowed { "Binary xxxxxxxxxx" } else { "error 1009" };
        assert_eq!(decode(Role::Client, limits, &[&out]), [expected], "{parts:?}");
    }
    let mut decoder = Decoder::new(Role::Client, Limits::default());
    assert_eq!(decoder.next(&mut &[0x82, 0x7f, 0, 0, 0, 0, 0, 0x10, 0, 0, 1][..]), Ok(None));
    assert!(decoder.allocated() < 100);
}

fn some_bytes() -> impl Strategy<Value = Vec<u8>> {
    let frame =
        (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..8)).prop_map(|(first, payload)| {
            let mut bytes = vec![first & 0x8b, payload.len() as u8];
            bytes.extend(payload);
            bytes
        });
    let frames = proptest::collection::vec(frame, 0..6).prop_map(|frames| frames.concat());
    prop_oneof![4 => frames, 1 => proptest::collection::vec(any::<u8>(), 0..40)]
}

/// A stream of bytes that are there, for tungstenite.
struct Wire(Cursor<Vec<u8>>, Vec<u8>);

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.1.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

proptest! {
    /// Purpose: how bytes are split makes no difference.
    #[test]
    fn splits(bytes in some_bytes()) {
        let whole = client(&bytes);
        for at in 0..=bytes.len() {
            let parts = [&bytes[..at], &bytes[at..]];
            prop_assert_eq!(&decode(Role::Client, Limits::default(), &parts), &whole, "split at {}", at);
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(&decode(Role::Client, Limits::default(), &single), &whole);
    }

    /// Purpose: what we send another implementation reads, fragmented and masked, and we read what it sends.
    #[test]
    fn tungstenite_agrees(messages in proptest::collection::vec((any::<String>(), any::<Option<u8>>()), 1..6)) {
        use tungstenite::protocol::{Role as Theirs, WebSocket};
        let mut out = vec![];
        for (text, split) in &messages {
            let at = text.floor_char_boundary(split.map_or(text.len(), usize::from).min(text.len()));
            let (first, second) = text.as_bytes().split_at(at);
            encode::frame(Kind::Text, first, true, split.is_none(), Some(KEY), &mut out);
            if split.is_some() {
                encode::ping(b"between", Some(KEY), &mut out);
                encode::frame(Kind::Text, second, false, true, Some(KEY), &mut out);
            }
        }
        let wire = Wire(Cursor::new(out), vec![]);
        let mut theirs = WebSocket::from_raw_socket(wire, Theirs::Server, None);
        let mut answers = vec![];
        for (text, split) in &messages {
            if split.is_some() {
                prop_assert_eq!(theirs.read().expect("our ping"), tungstenite::Message::Ping("between".into()));
                answers.push("pong between".to_string());
            }
            let read = theirs.read().expect("our message");
            prop_assert_eq!(&read, &tungstenite::Message::text(text.as_str()));
            theirs.send(read).expect("memory takes everything");
            answers.push(format!("Text {}", text.as_bytes().escape_ascii()));
        }
        prop_assert_eq!(client(&theirs.get_ref().1), answers);
    }
}
