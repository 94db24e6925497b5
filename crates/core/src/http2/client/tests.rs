//! The client against a server that the test writes: what is reported, and what each broken rule costs.

use std::format;
use std::string::{String, ToString as _};
use std::vec;
use std::vec::Vec;

use super::*;
use crate::http2::hpack::Indexing;

/// A client with open requests, and the other side's compressor.
struct Scene {
    client: Connection,
    encoder: hpack::Encoder,
}

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":authority", "h"), (":path", "/")];

impl Scene {
    /// After both sides' settings, with `streams` requests without content.
    fn new(streams: u32) -> Scene {
        let mut scene =
            Scene { client: Connection::new(Config::default()), encoder: hpack::Encoder::new() };
        assert_eq!(scene.receive(&settings(&[])), ["Settings"]);
        for _ in 0..streams {
            scene.begin(b"");
        }
        scene.client.sent();
        scene
    }

    fn begin(&mut self, content: &[u8]) -> u32 {
        self.client.begin(false, content, |add| {
            GET.iter().for_each(|(name, value)| {
                add(name.as_bytes(), value.as_bytes(), Indexing::Incremental)
            });
        })
    }

    /// What the client makes of `bytes`; an error of the connection is the last.
    fn receive(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut seen = vec![];
        if let Err(error) = self.client.receive(bytes, &mut |event| seen.push(format!("{event:?}")))
        {
            seen.push(format!("error: {error}"));
        }
        seen
    }

    fn fields(&mut self, stream: u32, is_last: bool, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut out = vec![];
        encode::headers(stream, is_last, FRAME_SIZE_DEFAULT, &mut out, |block| {
            for (name, value) in fields {
                self.encoder.field(name.as_bytes(), value.as_bytes(), Indexing::Incremental, block);
            }
        });
        out
    }

    /// The frames of the client's output, which is taken.
    fn output(&mut self) -> Vec<String> {
        let output = self.client.output().to_vec();
        self.client.sent();
        let (mut decoder, mut input, mut seen) = (Decoder::default(), &output[..], vec![]);
        while let Some(frame) = decoder.next(&mut input).expect("is allowed") {
            seen.push(match frame {
                Frame::Data { stream, piece, is_last, .. } => {
                    format!("data {stream} {} {is_last}", piece.len())
                }
                Frame::Headers { stream, is_last, .. } => format!("headers {stream} {is_last}"),
                Frame::WindowUpdate { stream, increment } => format!("window {stream} {increment}"),
                Frame::Reset { stream, code } => format!("reset {stream} {code}"),
                Frame::GoAway { code, .. } => format!("goaway {code}"),
                other => format!("{other:?}"),
            });
        }
        seen
    }
}

fn settings(settings: &[Setting]) -> Vec<u8> {
    let mut out = vec![];
    encode::settings(settings, &mut out);
    out
}

fn data(stream: u32, content: &[u8], is_last: bool) -> Vec<u8> {
    let mut out = vec![];
    encode::data(stream, content, is_last, &mut out);
    out
}

/// Purpose: answers of several streams are distinguished, with interim answers, trailers, and content in pieces.
#[test]
fn answers() {
    let mut scene = Scene::new(2);
    let bytes = [
        scene.fields(1, false, &[(":status", "103"), ("link", "x")]),
        scene.fields(3, true, &[(":status", "404"), ("content-length", "0")]),
        scene.fields(1, false, &[(":status", "200"), ("content-length", "5")]),
        data(1, b"he", false),
        data(1, b"", false),
        data(1, b"llo", false),
        scene.fields(1, true, &[("grpc-status", "0")]),
    ]
    .concat();
    let seen = scene.receive(&bytes);
    let field = |stream: u32, name: &str, value: &str| {
        format!("{:?}", Event::Field(stream, name.as_bytes(), value.as_bytes()))
    };
    let expected = [
        "Status(3, 404)".to_string(),
        field(3, "content-length", "0"),
        "End(3, 404)".to_string(),
        "Status(1, 200)".to_string(),
        field(1, "content-length", "5"),
        format!("{:?}", Event::Content(1, b"he")),
        format!("{:?}", Event::Content(1, b"llo")),
        format!("{:?}", Event::Trailer(1, b"grpc-status", b"0")),
        "End(1, 200)".to_string(),
    ];
    assert_eq!(seen, expected);
    assert_eq!(scene.client.open_streams(), 0);
    assert!(scene.output().is_empty());
    // The same, byte by byte.
    let (mut again, mut pieces) = (Scene::new(2), vec![]);
    bytes.iter().for_each(|byte| pieces.extend(again.receive(&[*byte])));
    let others = |seen: &[String]| {
        seen.iter().filter(|seen| !seen.starts_with("Content")).cloned().collect::<Vec<_>>()
    };
    assert_eq!(others(&pieces), others(&expected));
}

/// Purpose: an answer that RFC 9113 §8 does not allow fails its stream, which is reset, and no other.
#[test]
fn malformed_answers() {
    let fields: [(&[(&str, &str)], bool); 14] = [
        (&[("a", "b")], false),
        (&[(":status", "200"), (":status", "200")], false),
        (&[("a", "b"), (":status", "200")], false),
        (&[(":status", "20")], false),
        (&[(":status", "600")], false),
        (&[(":status", "101")], false),
        (&[(":path", "/")], false),
        (&[(":status", "200"), ("Upper", "b")], false),
        (&[(":status", "200"), ("", "b")], false),
        (&[(":status", "200"), ("connection", "close")], false),
        (&[(":status", "200"), ("a", "b\nc")], false),
        (&[(":status", "200"), ("content-length", "1x")], false),
        (&[(":status", "200"), ("content-length", "5")], true),
        (&[(":status", "100")], true),
    ];
    let mut wrong: Vec<Vec<u8>> = vec![];
    let mut scene = Scene::new(20);
    let mut id = 1;
    for (fields, is_last) in fields {
        wrong.push(scene.fields(id, is_last, fields));
        id += 2;
    }
    let head = scene.fields(id, false, &[(":status", "200"), ("content-length", "3")]);
    wrong.push([head, data(id, b"four", false)].concat());
    let head = scene.fields(id + 2, false, &[(":status", "200"), ("content-length", "3")]);
    wrong.push([head, data(id + 2, b"fo", true)].concat());
    wrong.push(data(id + 4, b"content", true));
    let head = scene.fields(id + 6, false, &[(":status", "200")]);
    let trailers = scene.fields(id + 6, false, &[("a", "b")]);
    wrong.push([head, trailers].concat());
    for (index, bytes) in wrong.iter().enumerate() {
        let seen = scene.receive(bytes);
        let last = seen.last().expect("it is reported");
        let id = 2 * index + 1;
        assert!(last.starts_with(&format!("Failed({id}, Malformed(")), "{index}: {seen:?}");
        assert_eq!(scene.output(), [format!("reset {id} PROTOCOL_ERROR")]);
    }
    assert_eq!(scene.client.open_streams(), 2, "the others are open");
    let last = scene.fields(39, true, &[(":status", "204")]);
    assert_eq!(scene.receive(&last), ["Status(39, 204)", "End(39, 204)"]);
}

/// Purpose: what breaks the connection's rules ends it, with the code of RFC 9113.
#[test]
fn errors_of_the_connection() {
    let promise = || {
        let mut out = vec![];
        encode::push_promise(1, 2, &[0x82], &mut out);
        out
    };
    let window = |stream, increment| {
        let mut out = vec![];
        encode::window_update(stream, increment, &mut out);
        out
    };
    for (bytes, code) in [
        (promise(), "PROTOCOL_ERROR"),
        (settings(&[Setting::EnablePush(true)]), "PROTOCOL_ERROR"),
        (data(2, b"", true), "PROTOCOL_ERROR"),
        (data(5, b"", true), "PROTOCOL_ERROR"),
        (window(5, 1), "PROTOCOL_ERROR"),
        (window(0, WINDOW_MAX), "FLOW_CONTROL_ERROR"),
        ([0, 0, 1, 1, 4, 0, 0, 0, 1, 0x80].to_vec(), "COMPRESSION_ERROR"),
        (settings(&[]).repeat(1001), "ENHANCE_YOUR_CALM"),
    ] {
        let mut scene = Scene::new(1);
        let seen = scene.receive(&bytes);
        assert!(
            seen.last().is_some_and(|last| last.ends_with(&format!("({code})"))),
            "{code}: {seen:?}"
        );
        let output = scene.output();
        assert_eq!(output.last(), Some(&format!("goaway {code}")));
    }
    let mut fresh = Connection::new(Config::default());
    assert!(fresh.receive(&data(1, b"", true), &mut |_| ()).is_err(), "SETTINGS come first");
}

/// Purpose: RST_STREAM and GOAWAY end the streams that they name, and say whether the request was processed.
#[test]
fn resets_and_goaway() {
    let mut scene = Scene::new(4);
    let mut bytes = vec![];
    encode::reset(1, ErrorCode::REFUSED_STREAM, &mut bytes);
    encode::reset(3, ErrorCode::INTERNAL_ERROR, &mut bytes);
    encode::reset(3, ErrorCode::INTERNAL_ERROR, &mut bytes);
    encode::go_away(5, ErrorCode::NO_ERROR, b"bye", &mut bytes);
    let expected = [
        "Failed(1, Refused)".to_string(),
        "Failed(3, Reset(INTERNAL_ERROR))".to_string(),
        format!("{:?}", Event::GoAway(ErrorCode::NO_ERROR, b"bye")),
        "Failed(7, Unprocessed(NO_ERROR))".to_string(),
    ];
    assert_eq!(scene.receive(&bytes), expected);
    assert_eq!(
        (scene.client.room(), scene.client.is_leaving(), scene.client.open_streams()),
        (0, true, 1)
    );
    let last = scene.fields(5, true, &[(":status", "200")]);
    assert_eq!(scene.receive(&last), ["Status(5, 200)", "End(5, 200)"]);
}

/// Purpose: content is sent as far as both windows and the server's frame size allow, and goes on when they grow; a
/// stream that is answered before it was all sent is reset.
#[test]
fn content_waits_for_windows() {
    let mut scene = Scene::new(0);
    assert_eq!(
        scene.receive(&settings(&[
            Setting::InitialWindowSize(10),
            Setting::MaxConcurrentStreams(2)
        ])),
        ["Settings"]
    );
    scene.client.sent();
    assert_eq!(scene.client.room(), 2);
    let stream = scene.begin(&[b'x'; 25]);
    assert_eq!(scene.client.room(), 1);
    assert_eq!(scene.output(), ["headers 1 false", "data 1 10 false"]);
    let mut more = vec![];
    encode::window_update(stream, 4, &mut more);
    scene.receive(&more);
    assert_eq!(scene.output(), ["data 1 4 false"]);
    scene.receive(&settings(&[Setting::InitialWindowSize(21)]));
    assert_eq!(scene.output(), ["data 1 11 true", "SettingsAck"]);
    let other = scene.begin(&[b'x'; 70_000]);
    assert_eq!(scene.output(), ["headers 3 false", "data 3 21 false"]);
    let mut more = vec![];
    encode::window_update(other, 100_000, &mut more);
    scene.receive(&more);
    // The connection's window: 65 535, of which 25 and 21 are used.
    let sent =
        ["data 3 16384 false", "data 3 16384 false", "data 3 16384 false", "data 3 16337 false"];
    assert_eq!(scene.output(), sent);
    let early = scene.fields(other, true, &[(":status", "413")]);
    assert_eq!(scene.receive(&early), ["Status(3, 413)", "End(3, 413)"]);
    assert_eq!(scene.output(), ["reset 3 CANCEL"]);
    scene.client.cancel(stream);
    assert_eq!(scene.output(), ["reset 1 CANCEL"]);
    assert!(
        scene.receive(&data(stream, b"late", true)).is_empty(),
        "nothing is reported of it any more"
    );
}

/// Purpose: windows for the server are opened again before they are used up, for each stream and for the connection.
#[test]
fn windows_are_opened() {
    let config = Config { window: WINDOW_DEFAULT, ..Config::default() };
    let mut scene = Scene { client: Connection::new(config), encoder: hpack::Encoder::new() };
    scene.receive(&settings(&[]));
    scene.begin(b"");
    scene.client.sent();
    let head = scene.fields(1, false, &[(":status", "200")]);
    scene.receive(&head);
    let mut opened = vec![];
    for _ in 0..8 {
        scene.receive(&data(1, &[0; 16_000], false));
        opened.extend(scene.output());
    }
    assert_eq!(opened, ["window 0 48000", "window 1 48000", "window 0 48000", "window 1 48000"]);
}

/// Purpose: content that comes bit by bit is sent in order and within the windows; the end, or the trailers, stand behind all
/// of it; a finished request takes no more.
#[test]
fn content_bit_by_bit() {
    let mut scene = Scene::new(0);
    scene.receive(&settings(&[Setting::InitialWindowSize(10)]));
    scene.client.sent();
    let open = |scene: &mut Scene| {
        scene.client.open(|add| {
            GET.iter().for_each(|(name, value)| {
                add(name.as_bytes(), value.as_bytes(), Indexing::Incremental)
            });
        })
    };
    let [plain, with_trailers] = [open(&mut scene), open(&mut scene)];
    assert_eq!(scene.output(), ["headers 1 false", "headers 3 false"]);
    assert!(scene.client.send(plain, b"abc"));
    assert!(scene.client.finish(plain, &[]));
    assert_eq!(scene.output(), ["data 1 3 false", "data 1 0 true"]);
    assert!(!scene.client.send(plain, b"d") && !scene.client.finish(plain, &[]));
    assert!(scene.output().is_empty());

    assert!(scene.client.send(with_trailers, &[b'x'; 8]));
    assert!(scene.client.send(with_trailers, &[b'y'; 8]));
    assert!(scene.client.finish(with_trailers, &[("checksum", "1")]));
    assert_eq!(scene.client.unsent(with_trailers), 6);
    assert_eq!(scene.output(), ["data 3 8 false", "data 3 2 false"]);
    let mut more = vec![];
    encode::window_update(with_trailers, 5, &mut more);
    scene.receive(&more);
    assert_eq!(scene.client.unsent(with_trailers), 1);
    assert_eq!(scene.output(), ["data 3 5 false"], "no trailers before all of the content");
    scene.receive(&more);
    assert_eq!(scene.output(), ["data 3 1 false", "headers 3 true"]);
    let ends = [
        scene.fields(plain, true, &[(":status", "204")]),
        scene.fields(with_trailers, true, &[(":status", "204")]),
    ];
    scene.receive(&ends.concat());
    assert!(scene.output().is_empty(), "both were sent whole, so neither is reset");
}

/// Purpose: what waits for a window goes before what is added after it has opened in part.
#[test]
fn content_keeps_its_order() {
    let mut scene = Scene::new(0);
    scene.receive(&settings(&[Setting::InitialWindowSize(1)]));
    let stream = scene.client.open(|_| {});
    scene.client.sent();
    let mut sent = vec![];
    for piece in [&b"ab"[..], b"cd", b"ef"] {
        scene.client.send(stream, piece);
        let mut more = vec![];
        encode::window_update(stream, 1, &mut more);
        scene.receive(&more);
        scene.receive(&more);
        let (mut decoder, output) = (Decoder::default(), scene.client.output().to_vec());
        let mut input = &output[..];
        while let Some(frame) = decoder.next(&mut input).expect("is allowed") {
            if let Frame::Data { piece, .. } = frame {
                sent.extend_from_slice(piece);
            }
        }
        scene.client.sent();
    }
    assert_eq!(sent, b"abcdef");
}

/// Purpose: a tunnel is allowed by a setting; its content has no length whatever the answer says, and once the server has ended its
/// direction the client ends its own, unless content still waits.
#[test]
fn tunnels() {
    let mut scene = Scene::new(0);
    assert!(!scene.client.allows_connect());
    scene
        .receive(&settings(&[Setting::EnableConnectProtocol(true), Setting::InitialWindowSize(4)]));
    assert!(scene.client.allows_connect());
    scene.client.sent();
    let connect = |scene: &mut Scene| {
        scene.client.connect(|add| {
            add(b":method", b"CONNECT", Indexing::Incremental);
            add(b":protocol", b"websocket", Indexing::Incremental);
            GET[1..].iter().for_each(|(name, value)| {
                add(name.as_bytes(), value.as_bytes(), Indexing::Incremental)
            });
        })
    };
    let [orderly, hasty, refused] = [connect(&mut scene), connect(&mut scene), connect(&mut scene)];
    let accepted = [
        scene.fields(orderly, false, &[(":status", "200"), ("content-length", "1")]),
        scene.fields(hasty, false, &[(":status", "200")]),
    ];
    scene.receive(&accepted.concat());
    scene.output();
    assert!(scene.client.send(orderly, b"ping"));
    assert!(scene.client.send(hasty, b"a long message"));
    assert_eq!(scene.output(), ["data 1 4 false", "data 3 4 false"]);
    let answer = [data(orderly, b"pong", true), data(hasty, b"", true)].concat();
    let seen = scene.receive(&answer);
    let content = format!("{:?}", Event::Content(orderly, b"pong"));
    assert_eq!(seen, [&content, "End(1, 200)", "End(3, 200)"]);
    assert_eq!(scene.output(), ["data 1 0 true", "reset 3 CANCEL"]);
    let no = scene.fields(refused, false, &[(":status", "404"), ("content-length", "2")]);
    scene.receive(&[no, data(refused, b"no!", true)].concat());
    assert_eq!(scene.output(), ["reset 5 PROTOCOL_ERROR"], "a refusal is an answer like others");
}
