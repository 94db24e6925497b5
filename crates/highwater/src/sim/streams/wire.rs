//! How does a client write and read frames? In the simulator's own protocol, or in HTTP/2.
//!
//! Both are read into the same few events, so that one client checks both. HTTP/2 is read with the codecs of the core,
//! which are checked against another implementation; nothing here knows the server's connection.

use std::collections::VecDeque;

use highwater_core::http2::hpack::{self, Indexing};
use highwater_core::http2::{Decoder, ErrorCode, Frame, PREFACE, Setting, encode};
use highwater_core::prng::Prng;

/// The window of each stream for the server, in both protocols.
pub(super) const WINDOW_IN: i64 = 4096;

/// The last stream that HTTP/2 can name: GOAWAY with it refuses none.
pub(super) const NO_LAST: u32 = (1 << 31) - 1;

/// What a client receives.
#[derive(Debug)]
pub(super) enum Received {
    /// The head of an answer.
    Status(u32, Vec<u8>),
    /// Content, and whether it is the last.
    Content(u32, Vec<u8>, bool),
    /// The stream is reset.
    Reset(u32),
    /// So much more may be sent on a stream, or on the connection.
    Window(u32, u32),
    /// Every stream's window is larger by so much.
    Windows(i64),
    /// No stream beyond this one is served.
    Away(u32),
    /// The server has found a mistake.
    Error(ErrorCode),
}

/// The frames of one side of a connection.
pub(super) enum Wire {
    Toy,
    Http2(Box<Http2>),
}

/// The state of HTTP/2's codecs.
pub(super) struct Http2 {
    decoder: Decoder,
    fields_in: hpack::Decoder,
    fields_out: hpack::Encoder,
    received: VecDeque<Received>,
    /// Answers that are owed to SETTINGS and PING.
    owed: Vec<u8>,
    initial_window: u32,
}

fn frame(stream: u32, kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = stream.to_be_bytes().to_vec();
    frame.push(kind);
    frame.extend((payload.len() as u16).to_be_bytes());
    frame.extend(payload);
    frame
}

impl Wire {
    pub(super) fn http2() -> Wire {
        Wire::Http2(Box::new(Http2 {
            decoder: Decoder::default(),
            fields_in: hpack::Decoder::new(hpack::SIZE_DEFAULT),
            fields_out: hpack::Encoder::new(),
            received: VecDeque::new(),
            owed: Vec::new(),
            initial_window: 65_535,
        }))
    }

    /// What a connection begins with.
    pub(super) fn hello(&self) -> Vec<u8> {
        let mut hello = Vec::new();
        if let Wire::Http2(_) = self {
            hello.extend_from_slice(PREFACE);
            encode::settings(&[Setting::InitialWindowSize(WINDOW_IN as u32)], &mut hello);
        }
        hello
    }

    /// The windows before anything was granted: of a stream and of the connection for us, and of the connection for the
    /// server.
    pub(super) fn windows(&self) -> (i64, i64, i64) {
        match self {
            Wire::Toy => (4096, 24 * 1024, 24 * 1024),
            Wire::Http2(_) => (65_535, 65_535, 65_535),
        }
    }

    /// A stream's identifier behind `id`.
    pub(super) fn next_id(&self, id: u32, prng: &mut Prng) -> u32 {
        let step = 1 + prng.below(3) as u32;
        match (self, id) {
            (Wire::Toy, _) => id + step,
            (Wire::Http2(_), 0) => 2 * step - 1,
            (Wire::Http2(_), _) => id + 2 * step,
        }
    }

    /// Whether streams may be tunnels.
    pub(super) fn has_tunnels(&self) -> bool {
        matches!(self, Wire::Http2(_))
    }

    /// Opens a stream with a request, or a tunnel with CONNECT; a method that is empty makes one that is not valid.
    pub(super) fn open(&mut self, id: u32, method: &str, path: &str, prng: &mut Prng) -> Vec<u8> {
        let is_last = !matches!(method, "POST" | "CONNECT");
        match self {
            Wire::Toy => {
                let line =
                    if method.is_empty() { "bad".into() } else { format!("{method} {path}") };
                frame(id, if is_last { 2 } else { 1 }, format!("{line}\nhost: h\n").as_bytes())
            }
            Wire::Http2(http2) => {
                let (method, path) = match method {
                    "" => ("GET", format!("{path}#")),
                    method => (method, path.to_owned()),
                };
                let most = if prng.chance(1, 8) { 1 + prng.below(20) as u32 } else { 16_384 };
                // A tunnel's block is longer, and servers take only so many pieces.
                let most = if method == "CONNECT" { most.max(4) } else { most };
                let mut line = vec![(":method", method), (":path", &path)];
                if method == "CONNECT" {
                    // The extended form, for WebSocket (RFC 8441).
                    line.extend([(":protocol", "websocket"), (":scheme", "http")]);
                    line.extend([(":authority", "h"), ("sec-websocket-version", "13")]);
                } else {
                    line.extend([(":scheme", "http"), (":authority", "h")]);
                }
                http2.headers(id, is_last, most, &line)
            }
        }
    }

    pub(super) fn content(&self, id: u32, bytes: &[u8], is_last: bool) -> Vec<u8> {
        match self {
            Wire::Toy => frame(id, if is_last { 5 } else { 4 }, bytes),
            Wire::Http2(_) => {
                let mut out = Vec::new();
                encode::data(id, bytes, is_last, &mut out);
                out
            }
        }
    }

    pub(super) fn reset(&self, id: u32) -> Vec<u8> {
        match self {
            Wire::Toy => frame(id, 6, b""),
            Wire::Http2(_) => {
                let mut out = Vec::new();
                encode::reset(id, ErrorCode::CANCEL, &mut out);
                out
            }
        }
    }

    pub(super) fn window(&self, id: u32, more: u32) -> Vec<u8> {
        match self {
            Wire::Toy => frame(id, 7, &more.to_be_bytes()),
            Wire::Http2(_) => {
                let mut out = Vec::new();
                encode::window_update(id, more, &mut out);
                out
            }
        }
    }

    /// A frame that breaks the protocol.
    pub(super) fn breach(&self) -> Vec<u8> {
        match self {
            Wire::Toy => frame(0, 99, b"?"),
            Wire::Http2(_) => vec![0, 0, 0, 4, 0, 0, 0, 0, 1], // SETTINGS of a stream.
        }
    }

    /// Frames that need no more than an answer.
    pub(super) fn noise(&self, prng: &mut Prng) -> Vec<u8> {
        let mut out = Vec::new();
        if let Wire::Http2(_) = self {
            match prng.below(4) {
                0 => encode::ping([1; 8], &mut out),
                1 => encode::settings(&[], &mut out),
                2 => out.extend_from_slice(&[0, 0, 3, 200, 7, 0, 0, 0, 9, 1, 2, 3]),
                _ => {
                    let id = (1 + 2 * prng.below(60) as u32).to_be_bytes();
                    out.extend_from_slice(&[0, 0, 7, 16, 0, 0, 0, 0, 0]);
                    out.extend_from_slice(&id);
                    out.extend_from_slice(&[b'u', b'=', b'0' + prng.below(8) as u8]);
                }
            }
        }
        out
    }

    /// What is owed without having been asked for by the client's code.
    pub(super) fn take_owed(&mut self) -> Vec<u8> {
        match self {
            Wire::Toy => Vec::new(),
            Wire::Http2(http2) => std::mem::take(&mut http2.owed),
        }
    }

    /// Takes the next event from `input`.
    pub(super) fn receive(&mut self, input: &mut Vec<u8>) -> Result<Option<Received>, String> {
        match self {
            Wire::Toy => receive_toy(input),
            Wire::Http2(http2) => {
                if http2.received.is_empty() {
                    http2.read(&std::mem::take(input))?;
                }
                Ok(http2.received.pop_front())
            }
        }
    }
}

fn receive_toy(input: &mut Vec<u8>) -> Result<Option<Received>, String> {
    let Some((header, rest)) = input.split_first_chunk::<7>() else { return Ok(None) };
    let len = usize::from(u16::from_be_bytes([header[5], header[6]]));
    let Some(payload) = rest.get(..len) else { return Ok(None) };
    let id = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
    let (kind, payload) = (header[4], payload.to_vec());
    input.drain(..7 + len);
    let number = || -> Result<u32, String> {
        let bytes = payload.as_slice().try_into();
        bytes.map(u32::from_be_bytes).map_err(|_| "a number of another length".into())
    };
    Ok(Some(match kind {
        3 => {
            let line = payload.split(|&byte| byte == b'\n').next().unwrap_or_default();
            Received::Status(id, line.to_vec())
        }
        4 | 5 => Received::Content(id, payload, kind == 5),
        6 => Received::Reset(id),
        7 => Received::Window(id, number()?),
        8 if id == 0 => Received::Away(number()?),
        _ => return Err(format!("a frame of {kind} for stream {id}")),
    }))
}

impl Http2 {
    /// HEADERS in frames of at most `most` bytes.
    fn headers(&mut self, id: u32, is_last: bool, most: u32, line: &[(&str, &str)]) -> Vec<u8> {
        let (mut out, encoder) = (Vec::new(), &mut self.fields_out);
        encode::headers(id, is_last, most, &mut out, |block| {
            encoder.begin(block);
            for (name, value) in line {
                let indexing = Indexing::usual(name.as_bytes());
                encoder.field(name.as_bytes(), value.as_bytes(), indexing, block);
            }
        });
        out
    }

    fn read(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while let Some(frame) = self.decoder.next(&mut bytes).map_err(|error| error.to_string())? {
            match frame {
                Frame::Headers { stream, fragment, is_whole: true, is_last, .. } => {
                    let mut status = Vec::new();
                    let decoded = self.fields_in.decode(fragment, 1 << 16, &mut |field| {
                        if field.name == b":status" {
                            status = field.value.to_vec();
                        }
                    });
                    decoded.map_err(|error| error.to_string())?;
                    self.received.push_back(Received::Status(stream, status));
                    if is_last {
                        self.received.push_back(Received::Content(stream, Vec::new(), true));
                    }
                }
                Frame::Data { stream, piece, is_last, .. } => {
                    self.received.push_back(Received::Content(stream, piece.to_vec(), is_last));
                }
                Frame::Reset { stream, .. } => self.received.push_back(Received::Reset(stream)),
                Frame::WindowUpdate { stream, increment } => {
                    self.received.push_back(Received::Window(stream, increment));
                }
                Frame::GoAway { last, code: ErrorCode::NO_ERROR, .. } => {
                    self.received.push_back(Received::Away(last));
                }
                Frame::GoAway { code, .. } => self.received.push_back(Received::Error(code)),
                Frame::Settings(settings) => {
                    for setting in settings.iter() {
                        if let Setting::InitialWindowSize(size) = setting {
                            let more = i64::from(size) - i64::from(self.initial_window);
                            self.initial_window = size;
                            self.received.push_back(Received::Windows(more));
                        }
                    }
                    encode::settings_ack(&mut self.owed);
                }
                Frame::Ping(bytes) => encode::ping_ack(bytes, &mut self.owed),
                Frame::SettingsAck | Frame::PingAck(_) => {}
                other => return Err(format!("{other:?} of a server")),
            }
        }
        Ok(())
    }
}
