//! Where does a response end? The responses on one connection, as a state machine.
//!
//! ```text
//!          ┌─────────────── 1xx ──────────────┐
//!          ▼                                  │
//!  Between ─▶ Head ─┬───────────────────────▶ ┴ ─▶ End ─▶ Between        no content
//!                   ├─▶ Length ──────────────────▶ End
//!                   ├─▶ Size ─▶ [Extension] ─▶ SizeLf ─▶ Data ─▶ DataCr ─▶ DataLf ─▶ Size
//!                   │     └ size 0 ─▶ … SizeLf ─▶ Trailers ─▶ End
//!                   ├─▶ UntilClose               the connection's end is the response's
//!                   └─▶ Raw                      no HTTP any more
//! ```
//!
//! Bytes are parsed in place; only an incomplete head or trailer section is copied, and the copy is freed
//! when the response has ended. Content is never copied and never kept.

use alloc::vec::Vec;

use super::error::Malformed;
use super::head::{Content, FieldLines, Head, Parsing, Section};
use super::{Asked, Limits};
use crate::http::runs::value_run;

/// Most bytes of one chunk's extensions, which are ignored.
pub(super) const EXTENSION_MAX: u32 = 4096;

/// How many bytes at a time are copied to complete a section: bytes behind it would be copied without need.
const COPY_STEP: usize = 512;

/// What comes next on a connection.
#[derive(Clone, Copy, Debug)]
pub enum Next<'a> {
    /// All input is used up, and more is needed.
    Wait,
    /// An interim response; the final one follows.
    Interim(Head<'a>),
    /// The head of a final response.
    Head(Head<'a>),
    /// A piece of content, without its framing.
    Content(&'a [u8]),
    /// The response is complete; with its trailer fields.
    End(End, FieldLines<'a>),
    /// Bytes of another protocol.
    Raw(&'a [u8]),
}

/// A response that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Its status code.
    pub status: u16,
    /// Whether the connection can carry another request.
    pub keep_alive: bool,
}

/// The meaning of a connection's end for the response being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eof {
    /// No response was in progress, or the connection had left HTTP.
    Clean,
    /// It completes a response that is delimited by the close.
    End(End),
    /// It truncates a response.
    Truncated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Between,
    Head,
    /// Content; this much is missing.
    Length(u64),
    /// Within a chunk's size, after this many digits.
    Size(u64, u8),
    /// Behind a chunk's size, after this many bytes.
    Extension(u64, u32),
    SizeLf(u64),
    /// A chunk; this much is missing.
    Data(u64),
    DataCr,
    DataLf,
    Trailers,
    UntilClose,
    End,
    Raw,
}

/// The position of a complete section.
enum Found<'i> {
    Input(&'i [u8]),
    Carry,
}

/// Reads the responses on one connection.
#[derive(Clone, Debug)]
pub struct Reader {
    limits: Limits,
    state: State,
    head: Parsing,
    trailers: Section,
    interims: u32,
    end: End,
    /// The beginning of an incomplete section, or a section that was assembled here.
    carry: Vec<u8>,
}

impl Default for Reader {
    fn default() -> Self {
        Reader::new(Limits::default())
    }
}

impl Reader {
    /// For a new connection.
    pub fn new(limits: Limits) -> Reader {
        Reader {
            limits,
            state: State::Between,
            head: Parsing::NEW,
            trailers: Section::NEW,
            interims: 0,
            end: End { status: 0, keep_alive: false },
            carry: Vec::new(),
        }
    }

    /// Takes bytes off the front of `input` and returns their meaning; call it until it returns
    /// [`Next::Wait`]. `asked` is the request whose response is read; it is used when the response's head is
    /// complete.
    ///
    /// # Errors
    /// The bytes are not a valid response; the reader must not be used further.
    #[inline]
    pub fn next<'a, 'i: 'a>(
        &'a mut self,
        input: &mut &'i [u8],
        asked: Asked,
    ) -> Result<Next<'a>, Malformed> {
        loop {
            match self.state {
                State::Head => {
                    let Some(found) = self.find_head(input)? else { return Ok(Next::Wait) };
                    let content = self.begin(asked)?;
                    let bytes = match found {
                        Found::Input(bytes) => bytes,
                        Found::Carry => &self.carry,
                    };
                    let head = self.head.head(bytes, content);
                    let is_interim = self.state == State::Between;
                    return Ok(if is_interim { Next::Interim(head) } else { Next::Head(head) });
                }
                State::End => {
                    self.finish();
                    self.release();
                    return Ok(Next::End(self.end, FieldLines::default()));
                }
                _ if input.is_empty() => return Ok(Next::Wait),
                State::Between => self.renew(),
                State::Length(left) => {
                    let (piece, left) = take(input, left);
                    self.state = if left == 0 { State::End } else { State::Length(left) };
                    return Ok(Next::Content(piece));
                }
                State::Data(left) => {
                    let (piece, left) = take(input, left);
                    self.state = if left == 0 { State::DataCr } else { State::Data(left) };
                    return Ok(Next::Content(piece));
                }
                State::UntilClose => return Ok(Next::Content(core::mem::take(input))),
                State::Raw => return Ok(Next::Raw(core::mem::take(input))),
                State::Trailers => {
                    let Some(found) = self.find_trailers(input)? else { return Ok(Next::Wait) };
                    self.finish();
                    let bytes = match found {
                        Found::Input(bytes) => bytes,
                        Found::Carry => &self.carry,
                    };
                    let fields = FieldLines { bytes: &bytes[..bytes.len() - 2] };
                    return Ok(Next::End(self.end, fields));
                }
                _ => self.chunk_framing(input)?,
            }
        }
    }

    /// As [`Reader::next`], for a client that only needs the end of each response: skips everything else.
    /// `None` once all input is used up. A response that leaves HTTP ends with its head.
    ///
    /// # Errors
    /// As [`Reader::next`].
    #[inline]
    pub fn skip(&mut self, input: &mut &[u8], asked: Asked) -> Result<Option<End>, Malformed> {
        loop {
            match self.next(input, asked)? {
                Next::Wait => return Ok(None),
                Next::End(end, _) => return Ok(Some(end)),
                Next::Head(head) if head.content() == Content::Raw => return Ok(Some(self.end)),
                Next::Interim(_) | Next::Head(_) | Next::Content(_) | Next::Raw(_) => {}
            }
        }
    }

    /// The server has closed the connection, or its sending side; all it sent before has been read.
    pub fn on_eof(&mut self) -> Eof {
        match self.state {
            State::Between | State::Raw => Eof::Clean,
            State::UntilClose | State::End => {
                self.finish();
                self.release();
                Eof::End(self.end)
            }
            _ => Eof::Truncated,
        }
    }

    /// Whether no byte of an unfinished response has arrived. Also true behind an interim response.
    pub fn is_between(&self) -> bool {
        self.state == State::Between
    }

    /// Heap memory in bytes: none between responses, except for assembled trailers.
    pub fn carried(&self) -> usize {
        self.carry.capacity()
    }

    /// For a new connection, keeping the limits.
    pub fn reset(&mut self) {
        *self = Reader::new(self.limits);
    }

    /// The first byte of a head has come.
    #[inline]
    fn renew(&mut self) {
        self.release();
        self.head = Parsing::NEW;
        self.state = State::Head;
    }

    /// The copy is no longer borrowed.
    #[inline]
    fn release(&mut self) {
        if self.carry.capacity() > 0 {
            self.carry = Vec::new();
        }
    }

    #[inline]
    fn finish(&mut self) {
        self.interims = 0;
        self.state = State::Between;
    }

    /// Decides what follows the head that is complete.
    #[inline]
    fn begin(&mut self, asked: Asked) -> Result<Content, Malformed> {
        let content = self.head.content(asked)?;
        if self.head.status < 200 && content == Content::None {
            if self.interims == self.limits.interims_max {
                return Err(Malformed::TooManyInterims);
            }
            self.interims += 1;
            self.state = State::Between;
            return Ok(content);
        }
        self.end = End { status: self.head.status, keep_alive: self.head.persists(content) };
        self.state = match content {
            Content::None => State::End,
            Content::Length(length) => State::Length(length),
            Content::Chunked => State::Size(0, 0),
            Content::UntilClose => State::UntilClose,
            Content::Raw => State::Raw,
        };
        Ok(content)
    }

    /// Takes a head off `input`; all of `input`, if the head is cut.
    #[inline]
    fn find_head<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Found<'i>>, Malformed> {
        let Reader { head, limits, carry, .. } = self;
        find(carry, input, |bytes| head.advance(bytes, limits))
    }

    #[inline]
    fn find_trailers<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Found<'i>>, Malformed> {
        let Reader { trailers, limits, carry, .. } = self;
        find(carry, input, |bytes| trailers.advance(bytes, limits, |_, _| Ok(())))
    }

    /// Takes framing between the data of chunks off `input`, which is not empty.
    fn chunk_framing(&mut self, input: &mut &[u8]) -> Result<(), Malformed> {
        if let State::Extension(size, len) = self.state {
            let run = value_run(&input[..input.len().min((EXTENSION_MAX - len) as usize)]);
            *input = &input[run..];
            self.state = State::Extension(size, len + run as u32);
            if input.is_empty() {
                return Ok(());
            }
        }
        let Some((&byte, rest)) = input.split_first() else { return Ok(()) };
        *input = rest;
        self.state = match (self.state, byte) {
            (State::Size(size, digits), _) => chunk_size(size, digits, byte)?,
            (State::Extension(size, _), b'\r') => State::SizeLf(size),
            (State::Extension(..), b'\n') => return Err(Malformed::LineEnd),
            (State::Extension(..), _) => return Err(Malformed::ChunkExtension),
            (State::SizeLf(0), b'\n') => {
                // An assembled head has been handed out.
                self.carry.clear();
                self.trailers = Section::NEW;
                State::Trailers
            }
            (State::SizeLf(size), b'\n') => State::Data(size),
            (State::SizeLf(_), _) => return Err(Malformed::LineEnd),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size(0, 0),
            (State::DataCr | State::DataLf, _) => return Err(Malformed::ChunkEnd),
            (state, _) => unreachable!("{state:?} is not between the data of chunks"),
        };
        Ok(())
    }
}

/// One byte of `chunk-size [ chunk-ext ]`.
fn chunk_size(size: u64, digits: u8, byte: u8) -> Result<State, Malformed> {
    match (byte as char).to_digit(16) {
        // Sixteen digits fill 64 bits.
        Some(_) if digits == 16 => Err(Malformed::ChunkSize),
        Some(digit) => Ok(State::Size(size << 4 | u64::from(digit), digits + 1)),
        None if digits == 0 => Err(Malformed::ChunkSize),
        None => match byte {
            b'\r' => Ok(State::SizeLf(size)),
            b'\n' => Err(Malformed::LineEnd),
            // Some pad the size with spaces.
            b';' | b' ' | b'\t' => Ok(State::Extension(size, 0)),
            _ => Err(Malformed::ChunkSize),
        },
    }
}

/// Takes a section off `input`, whose beginning may be in `carry`; `advance` finds its end. If it is
/// incomplete, all of `input` goes into `carry`.
#[inline]
fn find<'i>(
    carry: &mut Vec<u8>,
    input: &mut &'i [u8],
    mut advance: impl FnMut(&[u8]) -> Result<Option<usize>, Malformed>,
) -> Result<Option<Found<'i>>, Malformed> {
    if carry.is_empty() {
        // Mostly it arrives whole and is parsed in place.
        let found = advance(input)?;
        let (section, rest) = input.split_at(found.unwrap_or(input.len()));
        *input = rest;
        if found.is_none() {
            carry.extend_from_slice(section);
        }
        return Ok(found.map(|_| Found::Input(section)));
    }
    while !input.is_empty() {
        let before = carry.len();
        carry.extend_from_slice(&input[..input.len().min(COPY_STEP)]);
        let found = advance(carry)?;
        carry.truncate(found.unwrap_or(carry.len()));
        *input = &input[carry.len() - before..];
        if found.is_some() {
            return Ok(Some(Found::Carry));
        }
    }
    Ok(None)
}

/// Takes up to `wanted` bytes off the front of `input`. Returns them, and how many are still wanted.
#[inline]
fn take<'i>(input: &mut &'i [u8], wanted: u64) -> (&'i [u8], u64) {
    let len = usize::try_from(wanted).unwrap_or(usize::MAX).min(input.len());
    let (taken, rest) = input.split_at(len);
    *input = rest;
    (taken, wanted - len as u64)
}
