//! From bytes to messages, however the bytes are split.
//!
//! ```text
//!  header (2 to 14 bytes) ─▶ payload ─┬─ of a message: kept until its last frame, unless all of it is there
//!                                     └─ control: reported at once
//! ```
//!
//! [`Decoder::next`] reports a message that came in one piece and without a mask where it stands; all others are copied
//! once, which takes the mask away. [`Decoder::next_message`] owns its input: it takes the mask away in place, and gives out
//! a message that came in one piece as a part of that input. Compressed messages, if they were agreed on, are decompressed
//! while their bytes come: the limits hold for the result, and text is checked behind it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::{Buf, Bytes, BytesMut};

use super::close::{CloseCode, Error};
use super::compressed::{Compressed, Inflate};
use super::utf8::{Utf8, is_utf8};
use super::{CONTROL_MAX, Kind, Limits, Role, encode, mask, opcode};

/// The longest header: two bytes, the length and the mask.
const HEADER_MAX: usize = 14;

/// What has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A whole message; text is UTF-8.
    Message(Kind, &'a [u8]),
    /// To be answered by a PONG with the same payload.
    Ping(&'a [u8]),
    /// The answer to a PING, or a sign of life.
    Pong(&'a [u8]),
    /// To be answered by a close frame, unless one was sent. Nothing comes after it.
    Close(Option<Close<'a>>),
}

/// What a close frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close<'a> {
    /// One that [may be sent](CloseCode::may_be_sent).
    pub code: CloseCode,
    /// For a log.
    pub reason: &'a str,
}

/// A decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    opcode: u8,
    is_last: bool,
    /// It begins a compressed message.
    is_compressed: bool,
    key: Option<[u8; 4]>,
    len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Header,
    /// A payload, this much of which was taken.
    Payload(Frame, usize),
    /// After a close frame: input is dropped.
    Closed,
    Failed(Error),
}

/// Joins and checks what one side of a connection sends.
///
/// ```
/// use highwater_core::websocket::{Decoder, Event, Kind, Limits, Role};
///
/// let mut decoder = Decoder::new(Role::Server, Limits::default());
/// let mut input = &[0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58][..];
/// assert_eq!(decoder.next(&mut input), Ok(Some(Event::Message(Kind::Text, b"Hello"))));
/// assert_eq!(decoder.next(&mut input), Ok(None));
/// ```
#[derive(Debug)]
pub struct Decoder {
    role: Role,
    limits: Limits,
    state: State,
    /// The beginning of an incomplete header.
    header: ([u8; HEADER_MAX], usize),
    /// The kind of the message whose frames are coming.
    message: Option<Kind>,
    /// What has come of it, unmasked.
    bytes: Vec<u8>,
    utf8: Utf8,
    control: Vec<u8>,
    /// The message was reported: its memory is freed.
    is_reported: bool,
    /// If compressed messages were agreed on.
    compressed: Option<Box<Compressed>>,
    /// The message whose frames are coming is compressed, or the one that was reported last was.
    is_compressed: bool,
}

impl Decoder {
    /// A decoder for this side's `role`.
    pub fn new(role: Role, limits: Limits) -> Decoder {
        Decoder {
            role,
            limits,
            state: State::Header,
            header: ([0; HEADER_MAX], 0),
            message: None,
            bytes: Vec::new(),
            utf8: Utf8::default(),
            control: Vec::new(),
            is_reported: false,
            compressed: None,
            is_compressed: false,
        }
    }

    /// Accepts compressed messages (RFC 7692 §6), which `inflate` decompresses: only after both sides have agreed on them.
    #[must_use]
    pub fn with_inflate(mut self, inflate: Box<dyn Inflate>) -> Decoder {
        self.compressed = Some(Box::new(Compressed::new(inflate)));
        self
    }

    /// Whether the message that [`Decoder::next`] has just reported came compressed.
    pub fn was_compressed(&self) -> bool {
        self.is_compressed && self.is_reported
    }

    /// Bytes of memory it has allocated on the heap: none between two messages, but for a control frame's, and for what
    /// decompresses.
    pub fn allocated(&self) -> usize {
        self.bytes.capacity() + self.control.capacity()
    }

    /// Takes bytes from the beginning of `input` until something has come; `None` when more bytes are needed, and
    /// `input` is used up.
    ///
    /// # Errors
    /// A frame that is not allowed. The connection is to be closed with its code; every further call returns it again.
    #[inline]
    pub fn next<'a, 'i: 'a>(
        &'a mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Event<'a>>, Error> {
        if self.is_reported {
            let _ = self.take_reported();
        }
        loop {
            match self.state {
                State::Header => {
                    let begun = match self.take_header(input) {
                        Ok(None) => return Ok(None),
                        Ok(Some(frame)) => self.begin(frame).map(|()| frame),
                        Err(error) => Err(error),
                    };
                    self.state = match begun {
                        Ok(frame) => State::Payload(frame, 0),
                        Err(error) => State::Failed(error),
                    };
                }
                State::Payload(frame, 0)
                    if frame.opcode < opcode::CLOSE && self.is_in_place(frame, input) =>
                {
                    let (payload, rest) = input.split_at(frame.len);
                    *input = rest;
                    let kind = self.message.take().unwrap_or(Kind::Binary);
                    self.state = State::Header;
                    if kind == Kind::Text && !is_utf8(payload) {
                        self.state = State::Failed(NOT_UTF8);
                        return Err(NOT_UTF8);
                    }
                    return Ok(Some(Event::Message(kind, payload)));
                }
                State::Payload(frame, taken) => {
                    let (piece, rest) = input.split_at((frame.len - taken).min(input.len()));
                    *input = rest;
                    let added = match self.is_compressed && frame.opcode < opcode::CLOSE {
                        true => self.decompress(frame, taken, piece),
                        false if self.add(frame, taken, piece) => Ok(()),
                        false => Err(NOT_UTF8),
                    };
                    if let Err(error) = added {
                        self.state = State::Failed(error);
                        return Err(error);
                    }
                    if taken + piece.len() < frame.len {
                        self.state = State::Payload(frame, taken + piece.len());
                        return Ok(None);
                    }
                    self.state = State::Header;
                    match frame.opcode {
                        opcode::CLOSE.. => return self.end_control(frame.opcode).map(Some),
                        _ if !frame.is_last => {}
                        _ => return self.end_message().map(Some),
                    }
                }
                State::Closed => {
                    *input = &[];
                    return Ok(None);
                }
                State::Failed(error) => return Err(error),
            }
        }
    }

    /// A whole message in one frame at the beginning of `input`, unmasked in place. `None`: there is something else, for
    /// [`Decoder::next`]. Nothing is copied and nothing is allocated, but for the first message of a buffer.
    ///
    /// # Errors
    /// As [`Decoder::next`].
    #[inline]
    pub fn next_message(&mut self, input: &mut BytesMut) -> Result<Option<(Kind, Bytes)>, Error> {
        if self.state != State::Header || self.header.1 != 0 || self.message.is_some() {
            return Ok(None);
        }
        let Some(header_len) = input.get(1).map(|second| header_len(*second)) else {
            return Ok(None);
        };
        let Some(header) = input.get(..header_len) else { return Ok(None) };
        let Ok(frame) = decode(header, self.role, false) else { return Ok(None) };
        let kind = match frame.opcode {
            opcode::TEXT => Kind::Text,
            opcode::BINARY => Kind::Binary,
            _ => return Ok(None),
        };
        let is_whole = frame.is_last && input.len() - header_len >= frame.len;
        if !is_whole || self.limits.check(0, frame.len).is_err() {
            return Ok(None);
        }
        input.advance(header_len);
        let mut payload = input.split_to(frame.len);
        if let Some(key) = frame.key {
            mask::apply(key, 0, &mut payload);
        }
        if kind == Kind::Text && !is_utf8(&payload) {
            self.state = State::Failed(NOT_UTF8);
            return Err(NOT_UTF8);
        }
        Ok(Some((kind, payload.freeze())))
    }

    /// Frees the memory of a message that has more to come. Nothing may be decoded after that.
    pub(super) fn drop_message(&mut self) {
        self.bytes = Vec::new();
    }

    /// How many bytes have come of a message that has begun, and has more to come; as they came.
    pub(super) fn unfinished(&self) -> Option<usize> {
        self.message.map(|_| match &self.compressed {
            Some(compressed) if self.is_compressed => compressed.received(),
            _ => self.bytes.len(),
        })
    }

    /// The message that was reported last, if it is kept here because it came in several pieces.
    pub(super) fn take_reported(&mut self) -> Option<Vec<u8>> {
        core::mem::take(&mut self.is_reported).then(|| {
            self.is_compressed = false;
            core::mem::take(&mut self.bytes)
        })
    }

    /// Whether a frame is a whole message that needs no copy.
    #[inline]
    fn is_in_place(&self, frame: Frame, input: &[u8]) -> bool {
        frame.is_last
            && !frame.is_compressed
            && frame.key.is_none()
            && frame.opcode != opcode::CONTINUATION
            && input.len() >= frame.len
    }

    /// The next header, when all of it has come.
    #[inline]
    fn take_header(&mut self, input: &mut &[u8]) -> Result<Option<Frame>, Error> {
        let (bytes, filled) = &mut self.header;
        loop {
            // Its first two bytes say how many it has.
            let needed = match bytes[..*filled] {
                [_, second, ..] => header_len(second),
                _ => 2,
            };
            if *filled == needed {
                *filled = 0;
                return decode(&bytes[..needed], self.role, self.compressed.is_some()).map(Some);
            }
            let (piece, rest) = input.split_at((needed - *filled).min(input.len()));
            if piece.is_empty() {
                return Ok(None);
            }
            bytes[*filled..*filled + piece.len()].copy_from_slice(piece);
            *filled += piece.len();
            *input = rest;
        }
    }

    /// Whether a frame may come now, and is not too large.
    fn begin(&mut self, frame: Frame) -> Result<(), Error> {
        match (frame.opcode, self.message) {
            (opcode::CLOSE.., _) => {
                self.control.clear();
                return Ok(());
            }
            (opcode::CONTINUATION, None) => {
                return Err(Error::protocol("a continuation follows no message"));
            }
            (opcode::TEXT | opcode::BINARY, Some(_)) => {
                return Err(Error::protocol("a message begins within another"));
            }
            (opcode::TEXT, None) => self.message = Some(Kind::Text),
            (opcode::BINARY, None) => self.message = Some(Kind::Binary),
            _ => {}
        }
        match &mut self.compressed {
            Some(compressed) if frame.is_compressed || self.is_compressed => {
                if !core::mem::replace(&mut self.is_compressed, true) {
                    compressed.begin();
                }
                compressed.limits(self.limits).check(compressed.received(), frame.len)
            }
            _ => self.limits.check(self.bytes.len(), frame.len),
        }
    }

    /// Keeps a piece of a payload. False: it is text, and not UTF-8.
    fn add(&mut self, frame: Frame, taken: usize, piece: &[u8]) -> bool {
        let is_control = frame.opcode >= opcode::CLOSE;
        let buffer = if is_control { &mut self.control } else { &mut self.bytes };
        let from = buffer.len();
        match frame.key {
            Some(key) => mask::append(key, taken, piece, buffer),
            None => buffer.extend_from_slice(piece),
        }
        let is_text = !is_control && self.message == Some(Kind::Text);
        !is_text || self.utf8.add(&self.bytes[from..])
    }

    /// Decompresses a piece of a payload.
    fn decompress(&mut self, frame: Frame, taken: usize, piece: &[u8]) -> Result<(), Error> {
        let Some(compressed) = &mut self.compressed else { return Ok(()) };
        let (from, is_end) = (self.bytes.len(), frame.is_last && taken + piece.len() == frame.len);
        let message_max = self.limits.message_max;
        compressed.add(frame.key, taken, piece, &mut self.bytes, message_max)?;
        if is_end {
            compressed.end(&mut self.bytes, message_max)?;
        }
        match self.message == Some(Kind::Text) && !self.utf8.add(&self.bytes[from..]) {
            true => Err(NOT_UTF8),
            false => Ok(()),
        }
    }

    fn end_message(&mut self) -> Result<Event<'_>, Error> {
        let kind = self.message.take().unwrap_or(Kind::Binary);
        if !self.utf8.end() {
            self.state = State::Failed(NOT_UTF8);
            return Err(NOT_UTF8);
        }
        self.is_reported = true;
        Ok(Event::Message(kind, &self.bytes))
    }

    fn end_control(&mut self, opcode: u8) -> Result<Event<'_>, Error> {
        match opcode {
            opcode::PING => Ok(Event::Ping(&self.control)),
            opcode::PONG => Ok(Event::Pong(&self.control)),
            _ => {
                let close = closing(&self.control);
                self.state = match close {
                    Ok(_) => State::Closed,
                    Err(error) => State::Failed(error),
                };
                close.map(Event::Close)
            }
        }
    }
}

impl Limits {
    /// Whether a frame of `len` bytes may follow `before` bytes of its message.
    #[inline]
    fn check(&self, before: usize, len: usize) -> Result<(), Error> {
        let too_big = |reason| Err(Error { code: CloseCode::TOO_BIG, reason });
        match () {
            () if len > self.frame_max => too_big("a frame is larger than its limit"),
            () if before.saturating_add(len) > self.message_max => {
                too_big("a message is larger than its limit")
            }
            () => Ok(()),
        }
    }
}

const NOT_UTF8: Error = Error { code: CloseCode::INVALID, reason: "text is not UTF-8" };

fn closing(payload: &[u8]) -> Result<Option<Close<'_>>, Error> {
    let Some((code, reason)) = payload.split_first_chunk() else {
        return match payload {
            [] => Ok(None),
            _ => Err(Error::protocol("a close frame has one byte")),
        };
    };
    let code = CloseCode(u16::from_be_bytes(*code));
    if !code.may_be_sent() {
        return Err(Error::protocol("a close frame has a code that must not be sent"));
    }
    let reason = core::str::from_utf8(reason).map_err(|_| NOT_UTF8)?;
    Ok(Some(Close { code, reason }))
}

/// Bytes of the header whose second byte is this.
#[inline]
fn header_len(second: u8) -> usize {
    let length = match second & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    2 + length + if second & 0x80 != 0 { 4 } else { 0 }
}

/// RFC 6455 §5.2. `may_be_compressed`: RSV1 is allowed where RFC 7692 §6 has it.
#[inline]
fn decode(header: &[u8], role: Role, may_be_compressed: bool) -> Result<Frame, Error> {
    let [first, second, rest @ ..] = header else {
        return Err(Error::protocol("a header has two bytes"));
    };
    let is_compressed = first & 0x70 != 0;
    if is_compressed {
        check_reserved(*first, may_be_compressed)?;
    }
    let (opcode, is_last) = (first & 0x0f, first & 0x80 != 0);
    if matches!(opcode, 0x3..=0x7 | 0xb..) {
        return Err(Error::protocol("an opcode is reserved"));
    }
    let is_masked = second & 0x80 != 0;
    match role {
        Role::Server if !is_masked => {
            return Err(Error::protocol("a client's frame is not masked"));
        }
        Role::Client if is_masked => return Err(Error::protocol("a server's frame is masked")),
        _ => {}
    }
    let (length, key) = rest.split_at(rest.len() - if is_masked { 4 } else { 0 });
    let length = length.iter().fold(0_u64, |length, byte| length << 8 | u64::from(*byte));
    let (len, least) = match second & 0x7f {
        126 => (length, 126),
        127 => (length, 0x1_0000),
        short => (short.into(), 0),
    };
    if len < least || len > i64::MAX as u64 {
        return Err(Error::protocol(
            "a length is not in its shortest form, or has its highest bit set",
        ));
    }
    if opcode >= opcode::CLOSE && (!is_last || len > CONTROL_MAX as u64) {
        return Err(Error::protocol("a control frame is fragmented, or has more than 125 bytes"));
    }
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    Ok(Frame { opcode, is_last, is_compressed, key: key.first_chunk().copied(), len })
}

/// Whether the reserved bits, of which one is set, are those of the beginning of a compressed message.
#[cold]
fn check_reserved(first: u8, may_be_compressed: bool) -> Result<(), Error> {
    Err(Error::protocol(match (first & 0x70, first & 0x0f) {
        (encode::COMPRESSED, opcode::TEXT | opcode::BINARY) if may_be_compressed => return Ok(()),
        (encode::COMPRESSED, _) if may_be_compressed => {
            "a frame that does not begin a message is marked as compressed"
        }
        _ => "a reserved bit is set, although no extension was agreed on",
    }))
}
