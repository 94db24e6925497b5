//! From bytes to frames, however the bytes are split.
//!
//! ```text
//!  header (9 bytes) ─┬─ DATA ─────────▶ pieces as they come; padding is dropped
//!                    ├─ known ────────▶ the whole frame: from the input if it is all there, else collected
//!                    └─ unknown ──────▶ reported by its header; the payload is dropped
//! ```
//!
//! What a frame may contain is checked here, and that nothing comes between the parts of a field block. What depends on
//! the state of a stream is not. Memory: one incomplete frame that is not DATA, at most the announced size.

use alloc::vec::Vec;

use super::error::{Error, ErrorCode, Scope};
use super::frame::{Frame, HEADER_LEN, Header, flag, kind};
use super::settings::{FRAME_SIZE_DEFAULT, FRAME_SIZE_MAX, Settings};

const fn protocol(reason: &'static str) -> Error {
    Error::connection(ErrorCode::PROTOCOL_ERROR, reason)
}

const fn size(reason: &'static str) -> Error {
    Error::connection(ErrorCode::FRAME_SIZE_ERROR, reason)
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Of a header.
    Header,
    /// Of a frame that is reported whole.
    Payload(Header),
    /// The length of the padding of a DATA frame.
    PadLength(Header),
    /// Content, then padding, of a DATA frame; `flow` is yet to be reported.
    Data { stream: u32, content: u32, padding: u32, flow: u32, is_last: bool },
    /// Of a frame that is dropped: so many.
    Dropped(u32),
    /// Nothing is read after an error of the connection.
    Failed(Error),
}

/// Separates the frames of one direction of a connection.
///
/// ```
/// use highwater_core::http2::{Decoder, Frame};
///
/// let mut decoder = Decoder::default();
/// let bytes = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
/// let (mut first, mut second) = (&bytes[..12], &bytes[12..]);
/// assert_eq!(decoder.next(&mut first), Ok(None));
/// assert_eq!(decoder.next(&mut second), Ok(Some(Frame::Ping([1, 2, 3, 4, 5, 6, 7, 8]))));
/// ```
#[derive(Clone, Debug)]
pub struct Decoder {
    state: State,
    size_max: u32,
    /// The stream whose field block is incomplete: only CONTINUATION may come.
    open_block: Option<u32>,
    /// The beginning of an incomplete header, and its length.
    header: ([u8; HEADER_LEN], usize),
    /// The beginning of an incomplete payload.
    payload: Vec<u8>,
    /// The payload was reported: it is freed, so that a connection owns no buffer between two frames.
    is_reported: bool,
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder::new(FRAME_SIZE_DEFAULT)
    }
}

impl Decoder {
    /// A decoder for frames of up to `size_max` bytes: what `SETTINGS_MAX_FRAME_SIZE` announced, at first
    /// [`FRAME_SIZE_DEFAULT`].
    pub fn new(size_max: u32) -> Decoder {
        Decoder {
            state: State::Header,
            size_max: size_max.clamp(FRAME_SIZE_DEFAULT, FRAME_SIZE_MAX),
            open_block: None,
            header: ([0; HEADER_LEN], 0),
            payload: Vec::new(),
            is_reported: false,
        }
    }

    /// Bytes of memory it has allocated on the heap: none between two frames.
    pub fn allocated(&self) -> usize {
        self.payload.capacity()
    }

    /// Takes bytes from the beginning of `input` until there is a frame; `None` when more bytes are needed, and
    /// `input` is used up.
    ///
    /// # Errors
    /// A frame that is not allowed. After an error of the connection, every further call returns it again; after one
    /// of a stream, the decoder goes on behind the frame.
    #[inline]
    pub fn next<'a, 'i: 'a>(
        &'a mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Frame<'a>>, Error> {
        if self.is_reported {
            (self.payload, self.is_reported) = (Vec::new(), false);
        }
        loop {
            match self.state {
                State::Header => {
                    let Some(header) = self.take_header(input) else { return Ok(None) };
                    self.state = match self.enter(header) {
                        Ok(state) => state,
                        Err(error) => State::Failed(error),
                    };
                    if matches!(self.state, State::Dropped(_)) {
                        return Ok(Some(Frame::Unknown(header)));
                    }
                }
                State::Payload(header) => {
                    let len = header.len as usize;
                    let payload = match input.split_at_checked(len) {
                        Some((payload, rest)) if self.payload.is_empty() => {
                            *input = rest;
                            payload
                        }
                        _ if !fill(&mut self.payload, len, input) => return Ok(None),
                        _ => {
                            self.is_reported = true;
                            &self.payload
                        }
                    };
                    let decoded = frame(header, payload);
                    self.state = match decoded {
                        Err(error) if error.scope == Scope::Connection => State::Failed(error),
                        _ => State::Header,
                    };
                    return decoded.map(Some);
                }
                State::PadLength(header) => {
                    let Some((&padding, rest)) = input.split_first() else { return Ok(None) };
                    *input = rest;
                    self.state = match (header.len - 1).checked_sub(padding.into()) {
                        Some(content) => data(header, content, padding.into(), 1),
                        None => {
                            State::Failed(protocol("a DATA frame has more padding than payload"))
                        }
                    };
                }
                State::Data { .. } => return Ok(self.take_data(input)),
                State::Dropped(left) => {
                    let taken = (left as usize).min(input.len());
                    *input = &input[taken..];
                    let left = left - taken as u32;
                    self.state = if left == 0 { State::Header } else { State::Dropped(left) };
                    if left > 0 {
                        return Ok(None);
                    }
                }
                State::Failed(error) => return Err(error),
            }
        }
    }

    #[inline]
    fn take_header(&mut self, input: &mut &[u8]) -> Option<Header> {
        let (bytes, filled) = &mut self.header;
        if *filled == 0
            && let Some((bytes, rest)) = input.split_first_chunk()
        {
            *input = rest;
            return Some(Header::decode(bytes));
        }
        let taken = (HEADER_LEN - *filled).min(input.len());
        let (first, rest) = input.split_at(taken);
        bytes[*filled..*filled + taken].copy_from_slice(first);
        *filled += taken;
        *input = rest;
        if *filled < HEADER_LEN {
            return None;
        }
        *filled = 0;
        Some(Header::decode(bytes))
    }

    /// Judges a frame by its header, and says what comes next.
    #[inline]
    fn enter(&mut self, header: Header) -> Result<State, Error> {
        if header.len > self.size_max {
            return Err(size("a frame exceeds SETTINGS_MAX_FRAME_SIZE"));
        }
        match self.open_block {
            Some(stream) if header.kind != kind::CONTINUATION || header.stream != stream => {
                return Err(protocol("another frame stands between the parts of a field block"));
            }
            None if header.kind == kind::CONTINUATION => {
                return Err(protocol("CONTINUATION follows no incomplete field block"));
            }
            _ => {}
        }
        match header.kind {
            kind::SETTINGS | kind::PING | kind::GOAWAY if header.stream != 0 => {
                return Err(protocol("SETTINGS, PING or GOAWAY names a stream"));
            }
            kind::PRIORITY_UPDATE if header.stream != 0 => {
                return Err(protocol("PRIORITY_UPDATE is not about the connection"));
            }
            kind::SETTINGS..=kind::SETTINGS | kind::PING..=kind::WINDOW_UPDATE => {}
            kind::DATA..=kind::CONTINUATION if header.stream == 0 => {
                return Err(protocol("a frame of a stream names none"));
            }
            _ => {}
        }
        match header.kind {
            kind::DATA if !header.has(flag::PADDED) => return Ok(data(header, header.len, 0, 0)),
            kind::DATA if header.len == 0 => {
                return Err(size("a padded frame has no length of its padding"));
            }
            kind::DATA => return Ok(State::PadLength(header)),
            kind::HEADERS | kind::PUSH_PROMISE | kind::CONTINUATION => {
                self.open_block = (!header.has(flag::END_HEADERS)).then_some(header.stream);
            }
            kind::PRIORITY..=kind::WINDOW_UPDATE | kind::PRIORITY_UPDATE => {}
            _ => return Ok(State::Dropped(header.len)),
        }
        Ok(State::Payload(header))
    }

    /// The next piece of a DATA frame, or its end.
    #[inline]
    fn take_data<'a>(&mut self, input: &mut &'a [u8]) -> Option<Frame<'a>> {
        let State::Data { stream, mut content, mut padding, mut flow, is_last } = self.state else {
            return None;
        };
        let is_padding = content == 0;
        let taken = (content.max(padding) as usize).min(input.len());
        let taken = if is_padding { taken } else { taken.min(content as usize) };
        if taken == 0 && content + padding > 0 {
            return None;
        }
        let (piece, rest) = input.split_at(taken);
        *input = rest;
        flow += taken as u32;
        if is_padding {
            padding -= taken as u32;
        } else {
            content -= taken as u32;
        }
        let is_over = content + padding == 0;
        let reported = !is_padding || is_over;
        let left = if reported { 0 } else { flow };
        self.state = match is_over {
            true => State::Header,
            false => State::Data { stream, content, padding, flow: left, is_last },
        };
        let piece = if is_padding { &[] } else { piece };
        reported.then_some(Frame::Data { stream, piece, flow, is_last: is_last && is_over })
    }
}

fn data(header: Header, content: u32, padding: u32, flow: u32) -> State {
    let is_last = header.has(flag::END_STREAM);
    State::Data { stream: header.stream, content, padding, flow, is_last }
}

/// Moves bytes from `input` until `buffer` has `len` of them. Memory is for bytes that came, not for announced ones.
fn fill(buffer: &mut Vec<u8>, len: usize, input: &mut &[u8]) -> bool {
    let (taken, rest) = input.split_at((len - buffer.len()).min(input.len()));
    buffer.extend_from_slice(taken);
    *input = rest;
    buffer.len() == len
}

/// What a whole payload means. What its header alone decides was checked before.
#[inline]
fn frame(header: Header, payload: &[u8]) -> Result<Frame<'_>, Error> {
    let stream = header.stream;
    let number = |bytes: &[u8; 4]| u32::from_be_bytes(*bytes);
    Ok(match header.kind {
        kind::HEADERS => return headers(header, payload),
        kind::PUSH_PROMISE => return push_promise(header, payload),
        kind::CONTINUATION => Frame::Continuation {
            stream,
            fragment: payload,
            is_whole: header.has(flag::END_HEADERS),
        },
        kind::PRIORITY => match payload.as_array() {
            Some([a, b, c, d, _]) if u32::from_be_bytes([a & 0x7f, *b, *c, *d]) == stream => {
                let reason = "a stream depends on itself";
                return Err(Error::stream(stream, ErrorCode::PROTOCOL_ERROR, reason));
            }
            Some::<&[u8; 5]>(_) => Frame::Priority { stream },
            None => {
                let reason = "a PRIORITY frame does not have five bytes";
                return Err(Error::stream(stream, ErrorCode::FRAME_SIZE_ERROR, reason));
            }
        },
        kind::PRIORITY_UPDATE => {
            let short = size("a PRIORITY_UPDATE frame names no stream");
            let (stream, value) = payload.split_first_chunk().ok_or(short)?;
            Frame::PriorityUpdate { stream: number(stream) & !(1 << 31), value }
        }
        kind::RST_STREAM => {
            let code = payload.as_array().map(number);
            let code = code.ok_or(size("a RST_STREAM frame does not have four bytes"))?;
            Frame::Reset { stream, code: ErrorCode(code) }
        }
        kind::SETTINGS if header.has(flag::ACK) => match payload.len() {
            0 => Frame::SettingsAck,
            _ => return Err(size("an acknowledgement of SETTINGS has a payload")),
        },
        kind::SETTINGS if !payload.len().is_multiple_of(6) => {
            return Err(size("the length of SETTINGS is not a multiple of six"));
        }
        kind::SETTINGS => Frame::Settings(Settings::new(payload)?),
        kind::PING => {
            let bytes =
                *payload.as_array().ok_or(size("a PING frame does not have eight bytes"))?;
            if header.has(flag::ACK) { Frame::PingAck(bytes) } else { Frame::Ping(bytes) }
        }
        kind::GOAWAY => {
            let short = size("a GOAWAY frame has less than eight bytes");
            let (last, rest) = payload.split_first_chunk().ok_or(short)?;
            let (code, debug) = rest.split_first_chunk().ok_or(short)?;
            Frame::GoAway { last: number(last) & !(1 << 31), code: ErrorCode(number(code)), debug }
        }
        kind::WINDOW_UPDATE => {
            let short = size("a WINDOW_UPDATE frame does not have four bytes");
            match (number(payload.as_array().ok_or(short)?) & !(1 << 31), stream) {
                (0, 0) => return Err(protocol("the connection's window grows by nothing")),
                (0, _) => {
                    let reason = "a stream's window grows by nothing";
                    return Err(Error::stream(stream, ErrorCode::PROTOCOL_ERROR, reason));
                }
                (increment, _) => Frame::WindowUpdate { stream, increment },
            }
        }
        _ => Frame::Unknown(header),
    })
}

fn headers(header: Header, payload: &[u8]) -> Result<Frame<'_>, Error> {
    let mut fragment = unpadded(header, payload)?;
    let mut depends_on = None;
    if header.has(flag::PRIORITY) {
        let short = size("a HEADERS frame is too short for its priority");
        let ([a, b, c, d, _], rest) = fragment.split_first_chunk::<5>().ok_or(short)?;
        depends_on = Some(u32::from_be_bytes([a & 0x7f, *b, *c, *d]));
        fragment = rest;
    }
    Ok(Frame::Headers {
        stream: header.stream,
        fragment,
        is_whole: header.has(flag::END_HEADERS),
        is_last: header.has(flag::END_STREAM),
        depends_on,
    })
}

fn push_promise(header: Header, payload: &[u8]) -> Result<Frame<'_>, Error> {
    let short = size("a PUSH_PROMISE frame names no stream");
    let (promised, fragment) = unpadded(header, payload)?.split_first_chunk().ok_or(short)?;
    Ok(Frame::PushPromise {
        stream: header.stream,
        promised: u32::from_be_bytes(*promised) & !(1 << 31),
        fragment,
        is_whole: header.has(flag::END_HEADERS),
    })
}

/// The payload of HEADERS or PUSH_PROMISE without padding.
fn unpadded(header: Header, payload: &[u8]) -> Result<&[u8], Error> {
    if !header.has(flag::PADDED) {
        return Ok(payload);
    }
    let short = size("a padded frame has no length of its padding");
    let (&padding, rest) = payload.split_first().ok_or(short)?;
    let end = rest.len().checked_sub(padding.into());
    let end = end.ok_or(protocol("a frame has more padding than payload"))?;
    Ok(&rest[..end])
}
