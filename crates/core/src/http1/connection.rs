//! One connection, the input half: bytes in, requests out. (`request_body.rs`: what follows a head.
//! `reply.rs`: answers in, bytes out. `deadline.rs`: time in, verdicts out.)
//!
//! ```text
//!           ┌───────────── answered, persistent ──────────────┐
//!           ▼                                                 │
//!         Head ──whole body at hand──────────────▶ (request handed out, reply owed)
//!           │ └─body wanted whole──▶ Collecting ──complete──▶ │
//!           │ └─body wanted as it comes──▶ Streaming ────────▶│──answered early──▶ Discarding ─▶ Head
//!           │                                                 └──upgraded──▶ Raw
//!           └─refused, or the last answer given──▶ Closed (what still comes is dropped)
//! ```
//!
//! Invariants: at most one reply is owed at a time, so pipelined replies cannot reorder. An idle
//! connection owns no buffer. Memory is allocated for bytes received, never for bytes promised.

use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;

use super::body::Decoder;
use super::error::Reject;
use super::head::{Head, Method, Span, Version};
use super::limits::Limits;
use super::parse::{self, Framing, Parsed};
use super::request_body::append;
use crate::time::Instant;

/// Below this many bytes an incomplete head is parsed anew with every arrival; above it, only when
/// a line has ended or this much more has come. Keeps a head sent byte by byte from costing the
/// square of its length.
const REPARSE_STEP: usize = 1024;

/// Capacity beyond twice its content that the carry may keep.
const CARRY_SLACK_MAX: usize = 1024;

/// Working memory that the connections of one worker share, each for the time of one call.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(super) spans: Vec<Span>,
    pub(super) body: Vec<u8>,
}

/// A request whose handling can begin.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Request line and header fields.
    pub head: Head<'a>,
    /// The content.
    pub body: Body<'a>,
}

/// A request's content.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// All of it; empty if there is none.
    Whole(&'a [u8]),
    /// It follows as [`Next::Body`].
    Streamed,
}

/// How a route wants the body of a request, decided when its head is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyPlan {
    /// Whole, and of at most so many bytes.
    Whole(u64),
    /// Piece by piece, of at most so many bytes.
    Streamed(u64),
}

/// What [`Connection::next`] found.
#[derive(Debug)]
pub enum Next<'a> {
    /// Nothing to do before more bytes come, the reply owed is given, or output has been taken.
    Wait,
    /// A request; a reply is owed from now on.
    Request(Request<'a>),
    /// The next piece of a streamed body.
    Body(&'a [u8]),
    /// The streamed body is complete.
    BodyEnd,
    /// The streamed body will not be completed. The reply is still owed, and will be the last.
    BodyFailed(Reject),
    /// The input is no valid request. A reply with its status is owed, and will be the last.
    Reject(Reject),
    /// Bytes of the protocol the connection was upgraded to.
    Raw(&'a [u8]),
    /// The peer of an upgraded connection has finished sending.
    RawEnd,
}

/// What becomes of a connection whose deadline has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// The deadline has moved; nothing to do.
    Early,
    /// Close without a word.
    Close,
    /// Reset: the peer takes nothing.
    Reset,
    /// A reply with this refusal's status is owed, and will be the last.
    Reject(Reject),
    /// A streamed body has stalled: its handler is to be told. The reply is still owed.
    BodyFailed(Reject),
    /// Reset: the peer has finished sending, and nothing of its answer has moved for too long.
    HalfClosed,
}

/// What a reply carries.
#[derive(Debug)]
pub enum Payload<'a> {
    /// Bytes to be copied.
    Bytes(&'a [u8]),
    /// Bytes others share; sent without a copy if they are many.
    Shared(Bytes),
    /// Content that follows through [`Connection::push_body`], of this length if it is known.
    Stream(Option<u64>),
    /// None: the connection now belongs to another protocol (status 101).
    Upgrade,
}

/// The server's side of one HTTP/1.1 connection.
#[derive(Debug)]
pub struct Connection {
    pub(super) input: Input,
    pub(super) reply: Reply,
    pub(super) ending: Ending,
    /// The request at hand lets the connection persist.
    pub(super) persistent: bool,
    /// The reply under way is the last.
    pub(super) last: bool,
    /// The request at hand is a `HEAD`: its reply has no content.
    pub(super) head_only: bool,
    pub(super) version: Version,
    /// The peer waits for a 100 before it sends the body.
    pub(super) continue_owed: bool,
    pub(super) body_paused: bool,
    /// A request that has come waits for its turn.
    pub(super) held: bool,
    pub(super) draining: bool,
    /// Some bytes of the next head have come.
    pub(super) head_begun: bool,
    pub(super) eof: bool,
    /// Since when the peer, which has finished sending, has seen nothing of its answer move; `MAX`
    /// while it may still send.
    pub(super) gone_since: Instant,
    pub(super) requests: u32,
    /// Length of the incomplete head when it was last parsed.
    attempted: u32,
    /// Input that could not be used yet: an incomplete head, or pipelined requests.
    pub(super) carry: Vec<u8>,
    /// A request whose body is, or was last, collected.
    pub(super) partial: Option<Box<Partial>>,
    pub(super) output: Vec<u8>,
    pub(super) tail: Bytes,
    /// `tail` is a chunk's content: what follows it begins with the chunk's line end.
    pub(super) chunk_open: bool,
    /// Bytes of output that the kernel has not taken yet.
    pub(super) in_flight: usize,
    /// When the phase began that the next deadline counts from.
    pub(super) since: Instant,
    /// When body bytes came last, and how many have come since `since`.
    pub(super) progress: Instant,
    pub(super) body_bytes: u64,
    pub(super) body_max: u64,
    /// Since when the output in flight has made no progress; `MAX` if none is in flight.
    pub(super) writing_since: Instant,
}

#[derive(Debug)]
pub(super) enum Input {
    Head,
    Collecting,
    Streaming(Decoder),
    Discarding(Decoder),
    Raw,
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    None,
    Owed,
    /// Content of known length follows; so much is left.
    Length(u64),
    Chunked,
    /// Delimited by the end of the connection (HTTP/1.0).
    UntilClose,
    Raw,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    No,
    /// After the output: close.
    Close,
    /// After the output: shut down sending, and read on for a while.
    Linger,
    /// Shut down; reading on.
    Lingering,
}

/// A request whose head is complete and whose body is not.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) head: Vec<u8>,
    pub(super) body: Vec<u8>,
    pub(super) decoder: Decoder,
}

impl Connection {
    /// A connection accepted at `now`.
    pub fn new(now: Instant) -> Self {
        Connection {
            input: Input::Head,
            reply: Reply::None,
            ending: Ending::No,
            persistent: true,
            last: false,
            head_only: false,
            version: Version::Http11,
            continue_owed: false,
            body_paused: false,
            held: false,
            draining: false,
            head_begun: false,
            eof: false,
            gone_since: Instant::MAX,
            requests: 0,
            attempted: 0,
            carry: Vec::new(),
            partial: None,
            output: Vec::new(),
            tail: Bytes::new(),
            chunk_open: false,
            in_flight: 0,
            since: now,
            progress: now,
            body_bytes: 0,
            body_max: 0,
            writing_since: Instant::MAX,
        }
    }

    // ---- inputs

    /// Takes the unused input out, so that what is found in it may be borrowed while the connection
    /// changes. Append what has arrived, offer it to [`Connection::next`], then give back the rest
    /// with [`Connection::stash`] or [`Connection::stash_owned`].
    #[inline]
    pub fn take_carry(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.carry)
    }

    /// Keeps a copy of `rest` until more comes.
    #[inline]
    pub fn stash(&mut self, rest: &[u8]) {
        debug_assert!(self.carry.is_empty(), "the carry was taken before");
        if !rest.is_empty() && self.keep(rest.len()) {
            self.carry.extend_from_slice(rest);
        }
    }

    /// Keeps the last `rest_len` bytes of `carry` until more comes.
    pub fn stash_owned(&mut self, mut carry: Vec<u8>, rest_len: usize) {
        debug_assert!(self.carry.is_empty(), "the carry was taken before");
        if rest_len == 0 || !self.keep(rest_len) {
            return;
        }
        let rest_start = carry.len() - rest_len;
        carry.drain(..rest_start);
        if carry.capacity() > 2 * rest_len + CARRY_SLACK_MAX {
            // A few bytes must not keep the memory that many pipelined requests once needed.
            carry.shrink_to(rest_len);
        }
        self.carry = carry;
    }

    /// Whether unused input is worth keeping. Input behind the last request is not; but it means
    /// that closing at once would reset the connection and destroy the last reply.
    fn keep(&mut self, rest_len: usize) -> bool {
        if !matches!(self.input, Input::Closed) {
            return true;
        }
        self.body_bytes += rest_len as u64;
        if self.ending == Ending::Close {
            self.ending = Ending::Linger;
        }
        false
    }

    /// Finds the next thing to do in `input` and takes it off its front. `plan` is asked once for
    /// every head, unless the head is refused.
    #[inline]
    pub fn next<'r, 'i: 'r>(
        &'r mut self,
        input: &mut &'i [u8],
        scratch: &'r mut Scratch,
        limits: &Limits,
        now: Instant,
        plan: impl FnOnce(&Head<'_>) -> BodyPlan,
    ) -> Next<'r> {
        if matches!(self.input, Input::Discarding(_)) {
            self.discard(input, limits, now);
        }
        if matches!(self.input, Input::Head) {
            return self.next_head(input, scratch, limits, now, plan);
        }
        self.next_of_body(input, scratch, limits, now)
    }

    fn next_head<'r, 'i: 'r>(
        &'r mut self,
        input: &mut &'i [u8],
        scratch: &'r mut Scratch,
        limits: &Limits,
        now: Instant,
        plan: impl FnOnce(&Head<'_>) -> BodyPlan,
    ) -> Next<'r> {
        if self.reply != Reply::None || self.output.len() >= limits.output_max {
            return Next::Wait;
        }
        if !self.tail.is_empty() {
            return Next::Wait;
        }
        let bytes: &'i [u8] = input;
        if bytes.len() <= 2 && matches!(bytes, b"" | b"\r\n") {
            // Nothing, or the empty line that some clients send behind a body: no request has begun.
            if self.eof {
                *input = &[];
                self.end(Ending::Close);
            }
            return Next::Wait;
        }
        if !self.worth_parsing(bytes) {
            return Next::Wait;
        }
        let parsed = match parse::parse(bytes, limits, &mut scratch.spans) {
            Ok(Some(parsed)) => parsed,
            Ok(None) if self.eof => return self.refuse_head(Reject::Truncated),
            Ok(None) => {
                self.wait_for_head(bytes.len(), now);
                return Next::Wait;
            }
            Err(reject) => return self.refuse_head(reject),
        };
        let (head_bytes, rest) = bytes.split_at(parsed.len);
        *input = rest;
        self.begin(&parsed, now);
        let body_plan = plan(&parsed.head(head_bytes, &scratch.spans));
        let (BodyPlan::Whole(max) | BodyPlan::Streamed(max)) = body_plan;
        match (body_plan, parsed.framing) {
            (_, Framing::Length(length)) if length > max => self.refuse(Reject::BodyTooLarge),
            (_, Framing::Length(length)) if length <= rest.len() as u64 => {
                let (body, rest) = rest.split_at(length as usize);
                *input = rest;
                let head = parsed.head(head_bytes, &scratch.spans);
                self.hand_out(head, Body::Whole(body))
            }
            (BodyPlan::Whole(_), Framing::Length(_)) => {
                self.collect(head_bytes, &[], Decoder::new(parsed.framing), max, now);
                self.next_of_body(input, scratch, limits, now)
            }
            (BodyPlan::Whole(_), Framing::Chunked) => {
                let mut decoder = Decoder::new(Framing::Chunked);
                scratch.body.clear();
                let trailer_max = limits.header_max;
                match append(&mut decoder, input, &mut scratch.body, max, trailer_max) {
                    Err(reject) => return self.refuse(reject),
                    Ok(()) if decoder.is_done() => {}
                    Ok(()) => {
                        self.collect(head_bytes, &scratch.body, decoder, max, now);
                        return self.next_of_body(input, scratch, limits, now);
                    }
                }
                let Scratch { spans, body } = scratch;
                let head = parsed.head(head_bytes, spans);
                self.hand_out(head, Body::Whole(body))
            }
            (BodyPlan::Streamed(_), framing) => {
                self.input = Input::Streaming(Decoder::new(framing));
                self.body_max = max;
                self.begin_body(now);
                let head = parsed.head(head_bytes, &scratch.spans);
                self.hand_out(head, Body::Streamed)
            }
        }
    }

    /// An incomplete head is looked at again only when that can tell something new.
    fn worth_parsing(&self, bytes: &[u8]) -> bool {
        let attempted = self.attempted as usize;
        attempted == 0
            || self.eof
            || bytes.len() < REPARSE_STEP
            || bytes.len() >= attempted + REPARSE_STEP
            || bytes[attempted.min(bytes.len())..].contains(&b'\n')
    }

    fn wait_for_head(&mut self, len: usize, now: Instant) {
        self.attempted = len as u32;
        if !self.head_begun {
            self.head_begun = true;
            // The first head counts from the accept: silence then is no different from slowness.
            if self.requests > 0 {
                self.since = now;
            }
        }
    }

    fn begin(&mut self, parsed: &Parsed, now: Instant) {
        self.attempted = 0;
        self.head_begun = false;
        self.requests = self.requests.saturating_add(1);
        self.persistent = !parsed.close;
        self.head_only = parsed.method() == Method::Head;
        self.version = parsed.version;
        self.continue_owed = parsed.expect_continue && parsed.framing != Framing::Length(0);
        self.since = now;
        self.note_movement(now);
    }

    #[inline]
    fn hand_out<'r>(&mut self, head: Head<'r>, body: Body<'r>) -> Next<'r> {
        self.reply = Reply::Owed;
        Next::Request(Request { head, body })
    }

    /// Refuses a head: nothing it said counts, not even that it was a `HEAD`.
    pub(super) fn refuse_head<'r>(&mut self, reject: Reject) -> Next<'r> {
        self.head_only = false;
        self.refuse(reject)
    }

    /// Refuses what was received: a last reply is owed.
    pub(super) fn refuse<'r>(&mut self, reject: Reject) -> Next<'r> {
        self.input = Input::Closed;
        self.partial = None;
        self.persistent = false;
        self.continue_owed = false;
        self.body_bytes = 0;
        self.reply = Reply::Owed;
        Next::Reject(reject)
    }

    pub(super) fn end(&mut self, ending: Ending) {
        self.input = Input::Closed;
        self.body_bytes = 0;
        // Once the peer has finished sending, nothing unread can turn up: no need to linger.
        self.ending = if self.eof { Ending::Close } else { ending };
    }

    // ---- state

    /// Whether further input has a use now. While it has none, reading should stop, so that TCP
    /// pushes back.
    pub fn wants_input(&self, limits: &Limits) -> bool {
        match self.input {
            Input::Streaming(_) | Input::Raw => !self.body_paused,
            // An incomplete head always fits; what is pipelined behind a request owed may not.
            _ => self.carry.len() < limits.uri_max + limits.header_max + REPARSE_STEP,
        }
    }

    /// Whether the connection waits for a request and has nothing of one, nor anything to send or in
    /// flight.
    pub fn is_idle(&self) -> bool {
        matches!(self.input, Input::Head)
            && self.reply == Reply::None
            && !self.head_begun
            && self.carry.is_empty()
            && self.output.is_empty()
            && self.tail.is_empty()
            && self.writing_since == Instant::MAX
    }

    /// Since when the connection has been idle, if it is.
    pub fn idle_since(&self) -> Option<Instant> {
        self.is_idle().then_some(self.since)
    }

    /// Whether something waits to be sent.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty() || !self.tail.is_empty() || self.ending != Ending::No
    }

    /// Whether unused input waits, which [`Connection::next`] may now be able to use.
    pub fn has_carry(&self) -> bool {
        !self.carry.is_empty() || self.eof
    }
}
