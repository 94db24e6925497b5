//! A connection without a network: a client that writes any frames, and a server that answers by the path.

use std::time::Duration;

use highwater_core::driver::Then;
use highwater_core::http::{BodyPlan, Limits, Method, OwnedFields, Payload, Reject};
use highwater_core::http2::hpack::{self, Indexing};
use highwater_core::http2::server::Scratch;
use highwater_core::http2::{
    Connection, Decoder, Frame, HEADER_LEN, Header, PREFACE, Setting, encode,
};
use highwater_core::link::Link;
use highwater_core::protocol::{
    Begun, Expired, Next, Pending as _, Protocol as _, Request, Step, Stream as _, StreamId,
};
use highwater_core::time::Instant;

const DATE: &[u8; 29] = b"Thu, 01 Jan 1970 00:00:00 GMT";

/// The largest content that is collected.
pub(crate) const BODY_MAX: u64 = 40_000;

pub(crate) struct Scene {
    pub(crate) limits: Limits,
    pub(crate) now: Instant,
    pub(crate) link: Link,
    pub(crate) server: Connection,
    scratch: Scratch,
    encoder: hpack::Encoder,
    decoder: Decoder,
    fields: hpack::Decoder,
    /// What the server has sent, one line per frame.
    pub(crate) seen: Vec<String>,
    /// The content of answers, by stream.
    pub(crate) content: std::collections::BTreeMap<u32, Vec<u8>>,
    /// What handlers have been given, one line each.
    pub(crate) handled: Vec<String>,
    /// The settings of the server.
    pub(crate) settings: Vec<Setting>,
    /// The windows that were opened: stream, and how much.
    pub(crate) windows: Vec<(u32, u32)>,
    /// Bytes that the client has not read are not taken.
    pub(crate) is_stuck: bool,
}

impl Scene {
    /// A connection, before its first byte.
    pub(crate) fn silent() -> Scene {
        let mut limits = Limits::default();
        limits.http2.streams_max = 4;
        limits.http2.window = 65_535;
        limits.http2.connection_window = 1 << 20;
        Scene::with(limits)
    }

    pub(crate) fn with(limits: Limits) -> Scene {
        let now = Instant::from_nanos(1_000_000_000);
        Scene {
            limits,
            now,
            link: Link::new(),
            server: Connection::new(now),
            scratch: Scratch::default(),
            encoder: hpack::Encoder::new(),
            decoder: Decoder::default(),
            fields: hpack::Decoder::new(4096),
            seen: Vec::new(),
            content: Default::default(),
            handled: Vec::new(),
            settings: Vec::new(),
            windows: Vec::new(),
            is_stuck: false,
        }
    }

    /// A connection whose preface and settings are exchanged.
    pub(crate) fn open() -> Scene {
        let mut scene = Scene::silent();
        scene.greet(&[]);
        scene
    }

    pub(crate) fn greet(&mut self, settings: &[Setting]) {
        let mut hello = PREFACE.to_vec();
        encode::settings(settings, &mut hello);
        encode::settings_ack(&mut hello);
        self.receive(&hello);
        self.windows.clear(); // The connection's first one.
    }

    /// The client's decoder is to keep a table of `size` bytes, and the server learns that.
    pub(crate) fn resize_table(&mut self, size: u32) {
        let mut bytes = Vec::new();
        encode::settings(&[Setting::HeaderTableSize(size)], &mut bytes);
        self.receive(&bytes);
        self.fields.set_limit(size as usize);
    }

    /// The bytes of HEADERS with these fields.
    pub(crate) fn headers(&mut self, id: u32, is_last: bool, fields: &[(&[u8], &[u8])]) -> Vec<u8> {
        let (mut out, encoder) = (Vec::new(), &mut self.encoder);
        encode::headers(id, is_last, 1 << 14, &mut out, |block| {
            encoder.begin(block);
            for (name, value) in fields {
                encoder.field(name, value, Indexing::Without, block);
            }
        });
        out
    }

    /// A request without content.
    pub(crate) fn get(&mut self, id: u32, path: &str) {
        let bytes = self.request(id, "GET", path, true);
        self.receive(&bytes);
    }

    pub(crate) fn request(&mut self, id: u32, method: &str, path: &str, is_last: bool) -> Vec<u8> {
        let fields: [(&[u8], &[u8]); 4] = [
            (b":method", method.as_bytes()),
            (b":scheme", b"http"),
            (b":authority", b"h"),
            (b":path", path.as_bytes()),
        ];
        self.headers(id, is_last, &fields)
    }

    pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let header = Header { len: payload.len() as u32, kind, flags, stream };
        [&header.encode()[..], payload].concat()
    }

    /// Bytes come, as one delivery in a turn.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        let mut carry = self.link.take_carry();
        carry.extend_from_slice(bytes);
        let mut input = carry.as_slice();
        self.serve(&mut input);
        let rest = input.len();
        self.link.stash_owned(carry, rest);
        self.flush();
    }

    /// Goes on with what was not used.
    pub(crate) fn read_on(&mut self) {
        self.receive(&[]);
    }

    fn serve(&mut self, input: &mut &[u8]) {
        loop {
            let Scene { server, link, scratch, limits, now, .. } = self;
            let step = server.advance(link, input, scratch, limits, *now);
            let (id, next) = match step {
                Step::Head(pending) => {
                    let (id, head) = (pending.stream(), pending.head());
                    let plan = match head.path() {
                        "/later" | "/early" | "/stream" => BodyPlan::Streamed(1 << 20),
                        "/unread" => BodyPlan::Unwanted,
                        _ => BodyPlan::Whole(BODY_MAX),
                    };
                    match pending.begin(link, input, plan, limits, *now) {
                        Begun::Request(body) => (id, Next::Request(Request { head, body })),
                        Begun::Collecting => continue,
                        Begun::Reject(reject) => (id, Next::Reject(reject)),
                    }
                }
                Step::Next(id, next) => (id, next),
                Step::Reset(id) => {
                    self.handled.push(format!("reset {}", id.0));
                    continue;
                }
            };
            let answer = match next {
                Next::Wait => return,
                Next::Request(request) => answer(&request),
                Next::Reject(reject) => Some(refusal(reject)),
                Next::Body(piece) => {
                    self.handled.push(format!("body {} {}", id.0, piece.len()));
                    continue;
                }
                Next::Trailers(fields) => {
                    self.handled.push(format!("trailers {} {fields:?}", id.0));
                    continue;
                }
                Next::BodyEnd => {
                    self.handled.push(format!("end {}", id.0));
                    continue;
                }
                Next::BodyFailed(reject) => {
                    self.handled.push(format!("failed {} {reject:?}", id.0));
                    continue;
                }
                Next::Raw(bytes) => {
                    self.handled.push(format!("raw {} {}", id.0, bytes.len()));
                    continue;
                }
                Next::RawEnd => {
                    self.handled.push(format!("raw end {}", id.0));
                    continue;
                }
            };
            if let Some((status, content)) = answer {
                self.respond(id.0, status, &content);
            }
        }
    }

    pub(crate) fn respond(&mut self, id: u32, status: u16, content: &[u8]) {
        let Scene { server, link, limits, now, .. } = self;
        let mut stream = server.stream(link, StreamId(id));
        stream.respond(status, DATE, limits, *now, |_| {}, Payload::Bytes(content));
    }

    /// An answer begins whose content follows.
    pub(crate) fn begin_stream(&mut self, id: u32) {
        let Scene { server, link, limits, now, .. } = self;
        let mut stream = server.stream(link, StreamId(id));
        stream.respond(200, DATE, limits, *now, |_| {}, Payload::Stream(None));
        self.flush();
    }

    /// A piece of its content.
    pub(crate) fn push(&mut self, id: u32, piece: &[u8]) {
        let mut stream = self.server.stream(&mut self.link, StreamId(id));
        stream.push_body(piece).expect("no length was said");
        self.flush();
    }

    /// The end of a turn: what is to be sent is sent, and read.
    pub(crate) fn flush(&mut self) {
        let Scene { server, link, limits, now, .. } = self;
        server.flush(link, limits, *now);
        while !self.is_stuck
            && let Some((output, then)) = self.link.take_output(self.now)
        {
            self.link.on_sent(self.now);
            self.read(&output.bytes);
            self.read(&output.tail);
            if then != Then::Keep {
                self.seen.push("closed".into());
                break;
            }
            self.server.flush(&mut self.link, &self.limits, self.now);
        }
    }

    fn read(&mut self, mut bytes: &[u8]) {
        while let Some(frame) =
            self.decoder.next(&mut bytes).expect("the server keeps to the rules")
        {
            let end = |is_last| if is_last { " end" } else { "" };
            let line = match frame {
                Frame::Headers { stream, fragment, is_last, .. } => {
                    let mut status = String::new();
                    let decoded = self.fields.decode(fragment, 1 << 20, &mut |field| {
                        if field.name == b":status" {
                            status = String::from_utf8_lossy(field.value).into_owned();
                        }
                    });
                    decoded.expect("a field block");
                    if status.is_empty() {
                        status.push_str("trailers");
                    }
                    format!("HEADERS {stream} {status}{}", end(is_last))
                }
                Frame::Data { stream, piece, is_last, .. } => {
                    self.content.entry(stream).or_default().extend_from_slice(piece);
                    format!("DATA {stream} {}{}", piece.len(), end(is_last))
                }
                Frame::Reset { stream, code } => format!("RST_STREAM {stream} {code}"),
                Frame::GoAway { last, code, .. } => format!("GOAWAY {last} {code}"),
                Frame::PingAck(_) => "PING ack".into(),
                Frame::Ping(_) => "PING".into(),
                Frame::WindowUpdate { stream, increment } => {
                    self.windows.push((stream, increment));
                    continue;
                }
                Frame::Settings(settings) => {
                    self.settings.extend(settings.iter());
                    continue;
                }
                _ => continue,
            };
            self.seen.push(line);
        }
    }

    /// Time passes, and a deadline may be due.
    pub(crate) fn pass(&mut self, time: Duration) -> Expired {
        self.now += time;
        let Scene { server, link, limits, now, .. } = self;
        let (id, expired) = server.on_deadline(link, *now, limits);
        match expired {
            Expired::Reject(reject) => {
                let (status, content) = refusal(reject);
                self.respond(id.0, status, &content);
            }
            Expired::BodyFailed(reject) => self.handled.push(format!("failed {} {reject:?}", id.0)),
            _ => {}
        }
        self.flush();
        expired
    }

    pub(crate) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.seen)
    }
}

fn refusal(reject: Reject) -> (u16, Vec<u8>) {
    (reject.status(), b"nope".to_vec())
}

fn answer(request: &Request<'_>) -> Option<(u16, Vec<u8>)> {
    let head = &request.head;
    let content = request.body.whole().unwrap_or_default();
    Some(match (head.method(), head.path()) {
        (Method::Connect, "/tunnel") => return None,
        (Method::Connect, _) => (405, b"nope".to_vec()),
        (_, "/later" | "/stream") => return None,
        (_, "/204") => (204, Vec::new()),
        (_, "/304") => (304, Vec::new()),
        (_, "/large") => (200, vec![b'x'; 100_000]),
        (_, "/cookie") => (200, head.headers().get("cookie").unwrap_or_default().to_vec()),
        (Method::Post, "/") => (200, content.len().to_string().into_bytes()),
        _ => {
            assert_eq!(OwnedFields::copy(head.headers()).fields().get("host"), Some(&b"h"[..]));
            (200, b"ok".to_vec())
        }
    })
}

const _: () = assert!(HEADER_LEN == 9);
