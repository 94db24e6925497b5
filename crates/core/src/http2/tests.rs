//! Every frame in both directions, every error of its size and content, and input split at every byte.

use std::string::{String, ToString as _};
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// A frame without borrowed bytes; the pieces of DATA are joined.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Data(u32, Vec<u8>, u32, bool),
    Other(String),
    Failed(Error),
}

/// What the decoder makes of `parts`, and how much memory it needed at most.
fn decode(parts: &[&[u8]]) -> Vec<Seen> {
    let (mut decoder, mut seen, mut is_open) = (Decoder::default(), Vec::new(), false);
    for part in parts {
        let mut input = *part;
        loop {
            match decoder.next(&mut input) {
                Ok(None) => break,
                Ok(Some(Frame::Data { stream, piece, flow, is_last })) => {
                    match seen.last_mut() {
                        // The pieces of one frame follow each other; two frames of one stream are joined as well.
                        Some(Seen::Data(last, bytes, sum, ended)) if *last == stream && is_open => {
                            bytes.extend_from_slice(piece);
                            *sum += flow;
                            *ended |= is_last;
                        }
                        _ => seen.push(Seen::Data(stream, piece.to_vec(), flow, is_last)),
                    }
                    is_open = !is_last;
                    continue;
                }
                Ok(Some(frame)) => seen.push(Seen::Other(std::format!("{frame:?}"))),
                Err(error) => {
                    seen.push(Seen::Failed(error));
                    if error.scope == Scope::Connection {
                        assert_eq!(decoder.next(&mut &[0; 20][..]), Err(error), "it stays so");
                        return seen;
                    }
                }
            }
            is_open = false;
        }
        assert!(input.is_empty(), "more is needed, and {} bytes are left", input.len());
        assert!(decoder.allocated() <= 2 * FRAME_SIZE_DEFAULT as usize);
    }
    seen
}

fn raw(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let header = Header { len: payload.len() as u32, kind, flags, stream };
    [&header.encode()[..], payload].concat()
}

/// Purpose: each frame that is encoded is decoded to the same, and its bytes are those of RFC 9113 §6.
#[test]
fn frames() {
    let one = |encode: &dyn Fn(&mut Vec<u8>)| {
        let mut out = vec![];
        encode(&mut out);
        out
    };
    let settings = [
        Setting::HeaderTableSize(0),
        Setting::EnablePush(false),
        Setting::MaxConcurrentStreams(100),
        Setting::InitialWindowSize(WINDOW_MAX),
        Setting::MaxFrameSize(FRAME_SIZE_MAX),
        Setting::MaxHeaderListSize(16_384),
        Setting::EnableConnectProtocol(true),
        Setting::Unknown(0xabcd, 7),
    ];
    for (bytes, expected) in [
        (one(&|out| encode::reset(3, ErrorCode::CANCEL, out)), "Reset { stream: 3, code: CANCEL }"),
        (one(&encode::settings_ack), "SettingsAck"),
        (one(&|out| encode::ping([7; 8], out)), "Ping([7, 7, 7, 7, 7, 7, 7, 7])"),
        (one(&|out| encode::ping_ack([7; 8], out)), "PingAck([7, 7, 7, 7, 7, 7, 7, 7])"),
        (
            one(&|out| encode::go_away(WINDOW_MAX, ErrorCode(99), b"bye", out)),
            "GoAway { last: 2147483647, code: error 0x63, debug: [98, 121, 101] }",
        ),
        (one(&|out| encode::window_update(0, 1, out)), "WindowUpdate { stream: 0, increment: 1 }"),
        (
            one(&|out| encode::push_promise(1, 2, &[0x82], out)),
            "PushPromise { stream: 1, promised: 2, fragment: [130], is_whole: true }",
        ),
        (
            one(&|out| encode::headers(5, true, 16_384, out, |block| block.push(0x82))),
            "Headers { stream: 5, fragment: [130], is_whole: true, is_last: true, depends_on: None }",
        ),
    ] {
        assert_eq!(decode(&[&bytes]), [Seen::Other(expected.to_string())]);
    }
    let bytes = one(&|out| encode::settings(&settings, out));
    assert_eq!(bytes[..15], [0, 0, 48, 4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    let (mut decoder, mut input) = (Decoder::default(), &bytes[..]);
    match decoder.next(&mut input) {
        Ok(Some(Frame::Settings(decoded))) => {
            assert_eq!(decoded.iter().collect::<Vec<_>>(), settings)
        }
        other => panic!("{other:?}"),
    }
    let bytes = one(&|out| encode::data(1, b"hello", true, out));
    assert_eq!(bytes, b"\x00\x00\x05\x00\x01\x00\x00\x00\x01hello");
    assert_eq!(decode(&[&bytes]), [Seen::Data(1, b"hello".to_vec(), 5, true)]);
}

/// Purpose: a field block that is larger than a frame is continued, at the limit it is not; the parts come back.
#[test]
fn continuations() {
    for (len, frames) in [(0, 1), (16_384, 1), (16_385, 2), (32_768, 2), (32_769, 3)] {
        let block: Vec<u8> = (0..len).map(|index| index as u8).collect();
        let mut out = vec![9; 3];
        encode::headers(1, false, FRAME_SIZE_DEFAULT, &mut out, |out| {
            out.extend_from_slice(&block)
        });
        let (mut decoder, mut input, mut joined, mut count) =
            (Decoder::default(), &out[3..], Block::default(), 0);
        let whole = loop {
            let (fragment, is_whole) = match decoder.next(&mut input) {
                Ok(Some(Frame::Headers {
                    stream: 1, fragment, is_whole, is_last: false, ..
                })) if count == 0 => (fragment, is_whole),
                Ok(Some(Frame::Continuation { stream: 1, fragment, is_whole })) if count > 0 => {
                    (fragment, is_whole)
                }
                other => panic!("{other:?}"),
            };
            count += 1;
            joined.add(fragment, len as usize).expect("is as large as it is");
            if is_whole {
                break joined.take();
            }
        };
        assert_eq!((whole, count, input), (block, frames, &[][..]));
    }
}

/// Purpose: padding and priority are taken away, and padding counts for flow control (RFC 9113 §6.1, §6.2).
#[test]
fn padding() {
    let (padded, end) = (flag::PADDED, flag::END_STREAM);
    let data = raw(kind::DATA, padded | end, 1, b"\x03abc\0\0\0");
    assert_eq!(decode(&[&data]), [Seen::Data(1, b"abc".to_vec(), 7, true)]);
    let only_padding = raw(kind::DATA, padded | end, 1, b"\x03\0\0\0");
    assert_eq!(decode(&[&only_padding]), [Seen::Data(1, vec![], 4, true)]);
    let empty = raw(kind::DATA, end, 1, b"");
    assert_eq!(decode(&[&empty]), [Seen::Data(1, vec![], 0, true)]);
    let headers = raw(
        kind::HEADERS,
        padded | flag::PRIORITY | flag::END_HEADERS,
        3,
        b"\x02\x80\0\0\x01\x10ab\0\0",
    );
    let expected = "Headers { stream: 3, fragment: [97, 98], is_whole: true, is_last: false, depends_on: Some(1) }";
    assert_eq!(decode(&[&headers]), [Seen::Other(expected.to_string())]);
    let promise = raw(kind::PUSH_PROMISE, padded | flag::END_HEADERS, 3, b"\x01\0\0\0\x04a\0");
    let expected = "PushPromise { stream: 3, promised: 4, fragment: [97], is_whole: true }";
    assert_eq!(decode(&[&promise]), [Seen::Other(expected.to_string())]);
}

/// Purpose: whatever RFC 9113 §6 forbids is refused with the code and for the scope that it names; unknown frames are
/// passed over (§4.1), and after an error of a stream the next frame is read.
#[test]
fn errors() {
    use ErrorCode as Code;
    let end = flag::END_HEADERS;
    let connection = [
        (raw(kind::DATA, 0, 0, b"a"), Code::PROTOCOL_ERROR),
        (raw(kind::DATA, flag::PADDED, 1, b""), Code::FRAME_SIZE_ERROR),
        (raw(kind::DATA, flag::PADDED, 1, b"\x01"), Code::PROTOCOL_ERROR),
        (raw(kind::DATA, flag::PADDED, 1, b"\x03ab"), Code::PROTOCOL_ERROR),
        (raw(kind::DATA, 0, 1, &[0; 16_385]), Code::FRAME_SIZE_ERROR),
        (raw(kind::HEADERS, end, 0, b"\x82"), Code::PROTOCOL_ERROR),
        (raw(kind::HEADERS, end | flag::PADDED, 1, b""), Code::FRAME_SIZE_ERROR),
        (raw(kind::HEADERS, end | flag::PADDED, 1, b"\x02\x82"), Code::PROTOCOL_ERROR),
        (raw(kind::HEADERS, end | flag::PRIORITY, 1, b"\0\0\0\0"), Code::FRAME_SIZE_ERROR),
        (raw(kind::HEADERS, end, 1, &[0; 16_385]), Code::FRAME_SIZE_ERROR),
        (raw(kind::PRIORITY, 0, 0, &[0; 5]), Code::PROTOCOL_ERROR),
        (raw(kind::RST_STREAM, 0, 0, &[0; 4]), Code::PROTOCOL_ERROR),
        (raw(kind::RST_STREAM, 0, 1, &[0; 3]), Code::FRAME_SIZE_ERROR),
        (raw(kind::RST_STREAM, 0, 1, &[0; 5]), Code::FRAME_SIZE_ERROR),
        (raw(kind::SETTINGS, 0, 1, b""), Code::PROTOCOL_ERROR),
        (raw(kind::SETTINGS, flag::ACK, 0, &[0; 6]), Code::FRAME_SIZE_ERROR),
        (raw(kind::SETTINGS, 0, 0, &[0; 5]), Code::FRAME_SIZE_ERROR),
        (raw(kind::SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 2]), Code::PROTOCOL_ERROR),
        (raw(kind::SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0]), Code::FLOW_CONTROL_ERROR),
        (raw(kind::SETTINGS, 0, 0, &[0, 5, 0, 0, 0x3f, 0xff]), Code::PROTOCOL_ERROR),
        (raw(kind::SETTINGS, 0, 0, &[0, 5, 1, 0, 0, 0]), Code::PROTOCOL_ERROR),
        (raw(kind::SETTINGS, 0, 0, &[0, 8, 0, 0, 0, 2]), Code::PROTOCOL_ERROR),
        (raw(kind::PUSH_PROMISE, end, 0, &[0, 0, 0, 2]), Code::PROTOCOL_ERROR),
        (raw(kind::PUSH_PROMISE, end, 1, &[0, 0, 2]), Code::FRAME_SIZE_ERROR),
        (raw(kind::PING, 0, 1, &[0; 8]), Code::PROTOCOL_ERROR),
        (raw(kind::PING, 0, 0, &[0; 7]), Code::FRAME_SIZE_ERROR),
        (raw(kind::PING, 0, 0, &[0; 9]), Code::FRAME_SIZE_ERROR),
        (raw(kind::GOAWAY, 0, 1, &[0; 8]), Code::PROTOCOL_ERROR),
        (raw(kind::GOAWAY, 0, 0, &[0; 7]), Code::FRAME_SIZE_ERROR),
        (raw(kind::WINDOW_UPDATE, 0, 1, &[0; 3]), Code::FRAME_SIZE_ERROR),
        (raw(kind::WINDOW_UPDATE, 0, 0, &[0; 5]), Code::FRAME_SIZE_ERROR),
        (raw(kind::WINDOW_UPDATE, 0, 0, &[0; 4]), Code::PROTOCOL_ERROR),
        (raw(kind::WINDOW_UPDATE, 0, 0, &[0x80, 0, 0, 0]), Code::PROTOCOL_ERROR),
        (raw(kind::CONTINUATION, end, 1, b"\x82"), Code::PROTOCOL_ERROR),
    ];
    for (bytes, code) in connection {
        match decode(&[&bytes]).as_slice() {
            [Seen::Failed(error)] => {
                assert_eq!(
                    (error.scope, error.code),
                    (Scope::Connection, code),
                    "{:02x?}",
                    &bytes[..9]
                );
            }
            other => panic!("{:02x?}: {other:?}", &bytes[..9]),
        }
    }
    for (bytes, code) in [
        (raw(kind::PRIORITY, 0, 7, &[0; 4]), Code::FRAME_SIZE_ERROR),
        (raw(kind::PRIORITY, 0, 7, &[0x80, 0, 0, 7, 0]), Code::PROTOCOL_ERROR),
        (raw(kind::WINDOW_UPDATE, 0, 7, &[0x80, 0, 0, 0]), Code::PROTOCOL_ERROR),
    ] {
        let both = [bytes, raw(kind::SETTINGS, flag::ACK, 0, b"")].concat();
        match decode(&[&both]).as_slice() {
            [Seen::Failed(error), Seen::Other(_)] => {
                assert_eq!((error.scope, error.code), (Scope::Stream(7), code))
            }
            other => panic!("{other:?}"),
        }
    }
    let unknown = [raw(0xaa, 0xff, 9, &[1; 300]), raw(kind::PRIORITY, 0, 1, &[0; 5])].concat();
    assert_eq!(decode(&[&unknown]).len(), 2);
}

/// Purpose: nothing may stand between the parts of a field block, not even an unknown frame, and no part of another
/// stream's (RFC 9113 §4.3).
#[test]
fn blocks_are_not_interrupted() {
    let first = raw(kind::HEADERS, 0, 1, b"\x82");
    let more = raw(kind::CONTINUATION, 0, 1, b"\x82");
    for other in [
        raw(kind::DATA, 0, 1, b""),
        raw(kind::SETTINGS, 0, 0, b""),
        raw(kind::HEADERS, flag::END_HEADERS, 1, b""),
        raw(kind::CONTINUATION, flag::END_HEADERS, 3, b""),
        raw(0xaa, 0, 0, b""),
    ] {
        for before in [&first[..], &[&first[..], &more].concat()] {
            let seen = decode(&[before, &other]);
            match seen.last() {
                Some(Seen::Failed(error)) => assert_eq!(error.code, ErrorCode::PROTOCOL_ERROR),
                last => panic!("{last:?}"),
            }
        }
    }
    let last = raw(kind::CONTINUATION, flag::END_HEADERS, 1, b"\x82");
    let whole = [&first[..], &more, &last, &raw(kind::DATA, 0, 1, b"")].concat();
    assert_eq!(decode(&[&whole]).len(), 4);
}

fn some_frames() -> impl Strategy<Value = Vec<u8>> {
    let payload = proptest::collection::vec(any::<u8>(), 0..40);
    let likely = (0_u8..=10, any::<u8>(), 0_u32..4, payload.clone());
    let lengths = prop_oneof![Just(0_usize), Just(4), Just(5), Just(6), Just(8), Just(12)];
    let fitting = (0_u8..=9, 0_u8..2, 0_u32..2, lengths.prop_map(|len| vec![0; len]));
    let frame = prop_oneof![likely, fitting]
        .prop_map(|(kind, flags, stream, payload)| raw(kind, flags, stream, &payload));
    let frames = proptest::collection::vec(frame, 0..8).prop_map(|frames| frames.concat());
    prop_oneof![4 => frames, 1 => proptest::collection::vec(any::<u8>(), 0..60)]
}

proptest! {
    /// Purpose: how bytes are split makes no difference: at every single byte, and into single bytes.
    #[test]
    fn splits(bytes in some_frames()) {
        let whole = decode(&[&bytes]);
        for at in 0..=bytes.len() {
            prop_assert_eq!(&decode(&[&bytes[..at], &bytes[at..]]), &whole, "split at {}", at);
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(&decode(&single), &whole);
    }
}
