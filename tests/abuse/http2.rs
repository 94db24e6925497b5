//! HTTP/2: floods, resets, field blocks that expand, windows that never open, frames that are wrong.
//! The codes are those of RFC 9113 and RFC 7541; the limits, those of `docs/http2.md`.

use crate::strike::{Case, Protocol};
use crate::wire::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED, PING, PREFACE,
    PRIORITY, PRIORITY_UPDATE, PUSH_PROMISE, RST_STREAM, SETTINGS, fields, frame, get, headers,
    post, request, settings, stream, window_update,
};

const P: Protocol = Protocol::Http2;
const CALM: &[&str] = &["goaway ENHANCE_YOUR_CALM"];
const PROTOCOL: &[&str] = &["goaway PROTOCOL_ERROR"];
const SIZE: &[&str] = &["goaway FRAME_SIZE_ERROR"];
const COMPRESSION: &[&str] = &["goaway COMPRESSION_ERROR"];
/// RFC 9113 §8.1.1: a request that is malformed ends its stream. We answer 400 where a client may read it.
const MALFORMED: &[&str] = &["reset PROTOCOL_ERROR"];

const CANCEL: [u8; 4] = [0, 0, 0, 8];

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;

/// Until it is refused.
const MANY: u32 = 200_000;

pub(crate) fn cases() -> Vec<Case> {
    [floods(), streams(), made_to_reset(), blocks(), windows(), frames(), malformed()].concat()
}

fn opening(pairs: &[(u16, u32)]) -> Vec<u8> {
    [PREFACE, &settings(pairs)].concat()
}

/// Behind the opening, these frames.
fn once(name: &'static str, frames: &[u8], ends: &'static [&'static str]) -> Case {
    Case::once(P, name, [opening(&[]), frames.to_vec()].concat(), ends)
}

/// Behind the opening, this again and again.
fn flood(name: &'static str, again: Vec<u8>, ends: &'static [&'static str]) -> Case {
    Case::repeated(P, name, (opening(&[]), again, MANY), ends)
}

/// Behind `first`, frames for stream after stream.
fn each(
    name: &'static str,
    first: Vec<u8>,
    times: u32,
    frames: impl Fn(u32) -> Vec<u8> + 'static,
    ends: &'static [&'static str],
) -> Case {
    let piece = move |n: u32| match n {
        0 => Some(first.clone()),
        n => (n <= times).then(|| frames(stream(n - 1))),
    };
    Case::each(P, name, piece, ends)
}

fn floods() -> Vec<Case> {
    let open = [opening(&[]), post(1, "/hold")].concat();
    vec![
        // Their answers are more than the client's first window: a reset may overtake the farewell behind them.
        flood("pings", frame(PING, 0, 0, &[7; 8]), &["goaway ENHANCE_YOUR_CALM", "silence"]),
        flood(
            "pings whose answers nobody reads",
            frame(PING, 0, 0, &[7; 8]),
            &["unread", "pushed back", "silence", "goaway ENHANCE_YOUR_CALM"],
        )
        .unread(),
        flood("acknowledgements of pings that were not sent", frame(PING, ACK, 0, &[7; 8]), CALM),
        flood("settings", settings(&[]), CALM),
        flood("settings that change windows", settings(&[(INITIAL_WINDOW_SIZE, 1)]), CALM),
        flood("priorities", frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 9]), CALM),
        flood("updates of priorities", frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1"), CALM),
        flood("frames of an unknown type", frame(0xee, 0, 0, b"x"), CALM),
        flood("windows that open by one byte", window_update(0, 1), CALM),
        Case::repeated(
            P,
            "a stream's windows that open by one byte",
            (open.clone(), window_update(1, 1), MANY),
            CALM,
        ),
        Case::repeated(
            P,
            "content of no bytes",
            (open.clone(), frame(DATA, 0, 1, b""), MANY),
            CALM,
        ),
        Case::repeated(
            P,
            "content of nothing but padding",
            (open.clone(), frame(DATA, PADDED, 1, &[1, 0]), MANY),
            CALM,
        ),
        Case::repeated(
            P,
            "resets of a stream that is gone",
            ([opening(&[]), get(1, "/")].concat(), frame(RST_STREAM, 0, 1, &CANCEL), MANY),
            CALM,
        ),
    ]
}

fn streams() -> Vec<Case> {
    let reset = |stream| frame(RST_STREAM, 0, stream, &CANCEL);
    vec![
        // CVE-2023-44487.
        each(
            "streams that are opened and reset",
            opening(&[]),
            MANY,
            move |n| [get(n, "/wait?ms=1000"), reset(n)].concat(),
            CALM,
        ),
        each(
            "answers that are reset behind a closed window",
            opening(&[(INITIAL_WINDOW_SIZE, 0)]),
            MANY,
            move |n| [get(n, "/content?bytes=100000"), reset(n)].concat(),
            CALM,
        ),
        each(
            "more streams than there may be",
            opening(&[]),
            400,
            |n| get(n, "/wait?ms=100"),
            &["reset REFUSED_STREAM", "goaway ENHANCE_YOUR_CALM"],
        ),
        each(
            "answers behind closed windows",
            opening(&[(INITIAL_WINDOW_SIZE, 0)]),
            1000,
            |n| get(n, "/content?bytes=1000000"),
            &["reset REFUSED_STREAM", "goaway ENHANCE_YOUR_CALM"],
        ),
        each(
            "answers that nobody reads",
            [
                opening(&[(INITIAL_WINDOW_SIZE, i32::MAX as u32)]),
                window_update(0, i32::MAX as u32 - 65_535),
            ]
            .concat(),
            10_000,
            |n| get(n, "/content?bytes=1000000"),
            &["unread", "pushed back"],
        )
        .unread(),
        each(
            "streams that nobody reads",
            opening(&[]),
            100,
            |n| get(n, "/endless"),
            &["unread", "pushed back"],
        )
        .unread(),
        each(
            "uploads that are only begun",
            opening(&[]),
            128,
            |n| post(n, "/hold"),
            &["reset NO_ERROR", "lives"],
        ),
        once("a request on an even stream", &get(2, "/"), PROTOCOL),
        once(
            "a request on a stream before the last",
            &[get(5, "/"), get(3, "/")].concat(),
            &["goaway PROTOCOL_ERROR", "goaway STREAM_CLOSED"],
        ),
        once("a request on the connection's stream", &get(0, "/"), PROTOCOL),
        once(
            "a second request on a stream",
            &[get(1, "/"), get(1, "/")].concat(),
            &["goaway PROTOCOL_ERROR", "goaway STREAM_CLOSED", "reset STREAM_CLOSED"],
        ),
        once("content on a stream that was never opened", &frame(DATA, 0, 1, b"x"), PROTOCOL),
        once(
            "content behind the end",
            &[get(1, "/wait?ms=100"), frame(DATA, 0, 1, b"x")].concat(),
            &["goaway STREAM_CLOSED", "reset STREAM_CLOSED"],
        ),
        once("a reset of a stream that was never opened", &reset(1), PROTOCOL),
    ]
}

/// CVE-2025-8671: a mistake of the client has the server reset the stream, whose handler may have begun.
fn made_to_reset() -> Vec<Case> {
    let begun = |name, mistake: fn(u32) -> Vec<u8>| {
        let frames = move |n| [get(n, "/wait?ms=1000"), mistake(n)].concat();
        each(name, opening(&[]), MANY, frames, CALM)
    };
    let uploading = |name, mistake: fn(u32) -> Vec<u8>| {
        let frames = move |n| [post(n, "/hold"), mistake(n)].concat();
        each(name, opening(&[]), MANY, frames, CALM)
    };
    let of_length = |n| {
        let head = [fields(&request("POST", "/hold")), fields(&[("content-length", "1")])].concat();
        [headers(0, n, &head), frame(DATA, 0, n, b"more")].concat()
    };
    vec![
        begun("streams that the server is made to reset", |n| window_update(n, 0)),
        begun("windows of streams that overflow", |n| window_update(n, i32::MAX as u32)),
        begun("content behind the ends of requests", |n| frame(DATA, 0, n, b"x")),
        begun("fields behind the ends of requests", |n| get(n, "/")),
        begun("priorities of three bytes", |n| frame(PRIORITY, 0, n, &[0; 3])),
        uploading("trailers that end no request", |n| headers(0, n, &fields(&[("x", "1")]))),
        uploading("trailers with a path", |n| headers(END_STREAM, n, &fields(&[(":path", "/")]))),
        each("contents longer than their lengths", opening(&[]), MANY, of_length, CALM),
    ]
}

fn blocks() -> Vec<Case> {
    let begun = frame(HEADERS, END_STREAM, 1, &fields(&request("GET", "/")));
    let large = fields(&[("x", &"a".repeat(4000))]);
    // Adds a field of 4 KiB to the table, which one byte names from then on: dynamic index 62.
    let named = [&[0x40, 1, b'x', 127, 0xa1, 0x1e][..], &[b'a'; 4000]].concat();
    let expanding = [fields(&request("GET", "/")), named, vec![0xbe; 10_000]].concat();
    let block = |block: &[u8]| headers(END_STREAM, 1, block);
    vec![
        // CVE-2024-27316.
        Case::repeated(
            P,
            "a field block without an end",
            ([opening(&[]), begun.clone()].concat(), frame(CONTINUATION, 0, 1, &large), MANY),
            CALM,
        ),
        Case::repeated(
            P,
            "a field block of empty parts",
            ([opening(&[]), begun.clone()].concat(), frame(CONTINUATION, 0, 1, b""), MANY),
            CALM,
        ),
        once("fields that expand", &block(&expanding), &["lives", "goaway ENHANCE_YOUR_CALM"]),
        each(
            "fields that expand, again and again",
            opening(&[]),
            2000,
            move |n| headers(END_STREAM, n, &expanding),
            &["lives", "goaway ENHANCE_YOUR_CALM", "reset REFUSED_STREAM"],
        ),
        once(
            "4000 cookies",
            &block(
                &[fields(&request("GET", "/")), fields(&[("cookie", "a=b")]).repeat(4000)].concat(),
            ),
            &["goaway FRAME_SIZE_ERROR"],
        ),
        once("an index that is not in the table", &block(&[0xff, 0xff, 0x7f]), COMPRESSION),
        once("an index that wraps around", &block(&[0xff; 20]), COMPRESSION),
        once(
            "a length that wraps around",
            &block(&[0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
            COMPRESSION,
        ),
        once(
            "a text with the code that ends texts",
            &block(&[0, 0x84, 0xff, 0xff, 0xff, 0xff, 1, b'a']),
            COMPRESSION,
        ),
        once("a table larger than allowed", &block(&[0x3f, 0xe1, 0xff, 0x7f]), COMPRESSION),
        once(
            "a change of the table within a block",
            &block(&[fields(&request("GET", "/")), vec![0x20]].concat()),
            COMPRESSION,
        ),
        once("a block that is cut off", &block(&[0, 5, b'a']), COMPRESSION),
        once(
            "another stream's frame within a block",
            &[begun.clone(), frame(DATA, 0, 3, b"")].concat(),
            PROTOCOL,
        ),
        once(
            "a part of a block that was not begun",
            &frame(CONTINUATION, END_HEADERS, 1, b""),
            PROTOCOL,
        ),
        Case::repeated(
            P,
            "tables of many sizes",
            (
                opening(&[]),
                settings(&(0..100).map(|n| (HEADER_TABLE_SIZE, n * 40)).collect::<Vec<_>>()),
                MANY,
            ),
            CALM,
        ),
    ]
}

fn windows() -> Vec<Case> {
    let open = post(1, "/hold");
    vec![
        once("a window that opens by nothing", &window_update(0, 0), PROTOCOL),
        once(
            "a connection's window that overflows",
            &window_update(0, i32::MAX as u32),
            &["goaway FLOW_CONTROL_ERROR"],
        ),
        once(
            "a stream's window that overflows",
            &[open.clone(), window_update(1, i32::MAX as u32)].concat(),
            &["reset FLOW_CONTROL_ERROR"],
        ),
        once(
            "a first window that overflows",
            &settings(&[(INITIAL_WINDOW_SIZE, 1 << 31)]),
            &["goaway FLOW_CONTROL_ERROR"],
        ),
        once(
            "windows that settings make overflow",
            &[
                get(1, "/wait?ms=300"),
                window_update(1, 1 << 30),
                settings(&[(INITIAL_WINDOW_SIZE, i32::MAX as u32)]),
            ]
            .concat(),
            &["goaway FLOW_CONTROL_ERROR"],
        ),
        Case::repeated(
            P,
            "content beyond the window",
            (
                [opening(&[]), post(1, "/ignore-slowly?ms=3000")].concat(),
                frame(DATA, 0, 1, &[b'a'; 16_384]),
                1000,
            ),
            &["goaway FLOW_CONTROL_ERROR", "reset FLOW_CONTROL_ERROR"],
        ),
        each(
            "windows that open byte by byte",
            [
                opening(&[(INITIAL_WINDOW_SIZE, 0)]),
                (0..100).flat_map(|n| get(stream(n), "/content?bytes=100000")).collect(),
            ]
            .concat(),
            MANY,
            |n| settings(&[(INITIAL_WINDOW_SIZE, n / 2 + 1)]),
            CALM,
        ),
    ]
}

fn frames() -> Vec<Case> {
    vec![
        Case::once(
            P,
            "another preface",
            b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n".to_vec(),
            &["goaway PROTOCOL_ERROR", "silence"],
        ),
        Case::once(
            P,
            "no settings behind the preface",
            [PREFACE, &frame(PING, 0, 0, &[0; 8])].concat(),
            PROTOCOL,
        ),
        once("a frame larger than allowed", &frame(DATA, 0, 1, &[0; 16_385]), SIZE),
        once("a ping of seven bytes", &frame(PING, 0, 0, &[0; 7]), SIZE),
        once("a ping on a stream", &frame(PING, 0, 1, &[0; 8]), PROTOCOL),
        once("settings of five bytes", &frame(SETTINGS, 0, 0, &[0; 5]), SIZE),
        once("settings on a stream", &frame(SETTINGS, 0, 1, b""), PROTOCOL),
        once("an acknowledgement with settings", &frame(SETTINGS, ACK, 0, &[0; 6]), SIZE),
        once("a push that is neither on nor off", &settings(&[(ENABLE_PUSH, 2)]), PROTOCOL),
        once("frames of no bytes at most", &settings(&[(MAX_FRAME_SIZE, 0)]), PROTOCOL),
        once("a window update of three bytes", &frame(8, 0, 0, &[0; 3]), SIZE),
        once(
            "a reset of three bytes",
            &[get(1, "/wait?ms=100"), frame(RST_STREAM, 0, 1, &[0; 3])].concat(),
            SIZE,
        ),
        once("a reset of the connection", &frame(RST_STREAM, 0, 0, &CANCEL), PROTOCOL),
        once("a farewell on a stream", &frame(GOAWAY, 0, 1, &[0; 8]), PROTOCOL),
        once("a push by the client", &frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]), PROTOCOL),
        once(
            "more padding than content",
            &[post(1, "/hold"), frame(DATA, PADDED, 1, &[9, 0])].concat(),
            PROTOCOL,
        ),
        once(
            "more padding than fields",
            &frame(HEADERS, PADDED | END_HEADERS, 1, &[9, 0]),
            PROTOCOL,
        ),
    ]
}

fn malformed() -> Vec<Case> {
    let with = |more: &[(&str, &str)]| [fields(&request("GET", "/")), fields(more)].concat();
    let ask = |name, block: Vec<u8>| once(name, &headers(END_STREAM, 1, &block), MALFORMED);
    vec![
        ask("a name with a capital", with(&[("X", "1")])),
        ask("a name with a colon", with(&[("a:b", "1")])),
        ask("a name of no bytes", with(&[("", "1")])),
        ask("a value with a line's end", with(&[("x", "a\r\nb: c")])),
        ask("a field of connections", with(&[("connection", "close")])),
        ask("chunks", with(&[("transfer-encoding", "chunked")])),
        ask(
            "a pseudo-field behind a field",
            [fields(&[("x", "1")]), fields(&request("GET", "/"))].concat(),
        ),
        ask("a pseudo-field twice", with(&[(":path", "/other")])),
        ask("a pseudo-field that is not there", with(&[(":protocol2", "x")])),
        ask("no path", fields(&[(":method", "GET"), (":scheme", "http"), (":authority", "h")])),
        ask("a path of no bytes", fields(&request("GET", ""))),
        ask("a length without content", with(&[("content-length", "5")])),
        once(
            "content longer than its length",
            &[
                headers(
                    0,
                    1,
                    &[fields(&request("POST", "/hold")), fields(&[("content-length", "1")])]
                        .concat(),
                ),
                frame(DATA, END_STREAM, 1, b"more"),
            ]
            .concat(),
            MALFORMED,
        ),
        once(
            "pseudo-fields behind the content",
            &[post(1, "/hold"), headers(END_STREAM, 1, &fields(&[(":path", "/")]))].concat(),
            MALFORMED,
        ),
    ]
}
