//! One connection, the input half: bytes in, requests out. (`state.rs`: the state of a connection.
//! `request_body.rs`: request bodies. `reply.rs`: answers in, bytes out. `deadline.rs`: time in, verdicts
//! out.)

use super::body::Framing;
use super::parse::{self, Parsed};
use super::pending::Pending;
use super::state::{Connection, Input, Reply, Scratch};
use crate::http::{BodyPlan, Head, Limits, Method, Reject};
use crate::link::Link;
use crate::protocol::{Begun, Next, Request, Step, StreamId};
use crate::time::Instant;

/// Below this many bytes an incomplete head is parsed again with every arrival; above it, only when a line
/// has ended or this much more has arrived. Keeps a head sent byte by byte from costing the square of its
/// length.
const REPARSE_STEP: usize = 1024;

impl Connection {
    // ---- inputs

    /// Finds the next thing to do in `input` and takes it off its front.
    #[inline(always)]
    pub fn advance<'r, 'i: 'r>(
        &'r mut self,
        link: &mut Link,
        input: &mut &'i [u8],
        scratch: &'r mut Scratch,
        limits: &Limits,
        now: Instant,
    ) -> Step<'r, Pending<'r>> {
        if matches!(self.input, Input::Discarding(_)) {
            self.discard(link, input, limits, now);
        }
        if matches!(self.input, Input::Head) {
            return self.next_head(link, input, scratch, limits, now);
        }
        let next = self.next_of_body(link, input, scratch, limits, now);
        Step::Next(StreamId::CONNECTION, next)
    }

    /// As [`Connection::advance`], where each head alone decides how its body is read: every request is begun
    /// as `plan` says.
    pub fn next<'r, 'i: 'r>(
        &'r mut self,
        link: &mut Link,
        input: &mut &'i [u8],
        scratch: &'r mut Scratch,
        limits: &Limits,
        now: Instant,
        plan: impl FnOnce(&Head<'_>) -> BodyPlan,
    ) -> Next<'r> {
        match self.advance(link, input, scratch, limits, now) {
            Step::Head(pending) => {
                let head = pending.head();
                match pending.begin(link, input, plan(&head), limits, now) {
                    Begun::Request(body) => Next::Request(Request { head, body }),
                    Begun::Collecting => Next::Wait,
                    Begun::Reject(reject) => Next::Reject(reject),
                }
            }
            Step::Next(_, next) => next,
            Step::Reset(_) => unreachable!("HTTP/1 has no streams"),
        }
    }

    #[inline(always)]
    fn next_head<'r, 'i: 'r>(
        &'r mut self,
        link: &mut Link,
        input: &mut &'i [u8],
        scratch: &'r mut Scratch,
        limits: &Limits,
        now: Instant,
    ) -> Step<'r, Pending<'r>> {
        const WAIT: Step<'_, Pending<'_>> = Step::Next(StreamId::CONNECTION, Next::Wait);
        let refused = |next| Step::Next(StreamId::CONNECTION, next);
        if self.reply != Reply::None || link.is_full(limits) {
            return WAIT;
        }
        let bytes: &'i [u8] = input;
        if bytes.len() <= 2 && matches!(bytes, b"" | b"\r\n") {
            // Nothing, or the empty line that some clients send behind a body: no request has begun.
            if link.is_eof() {
                *input = &[];
                self.end(link, true);
            }
            return WAIT;
        }
        if self.attempted != 0 && !self.worth_parsing(bytes, link.is_eof()) {
            return WAIT;
        }
        match parse::parse(bytes, limits, &mut scratch.parsed) {
            Ok(true) => {}
            Ok(false) if link.is_eof() => return refused(self.refuse_head(Reject::Truncated)),
            Ok(false) => {
                self.wait_for_head(bytes.len(), now);
                return WAIT;
            }
            Err(reject) => return refused(self.refuse_head(reject)),
        }
        let (head, rest) = bytes.split_at(scratch.parsed.len);
        *input = rest;
        self.begin(&scratch.parsed, now);
        link.note_movement(now);
        Step::Head(Pending::new(self, scratch, head))
    }

    /// An incomplete head is parsed again only if that can change the result.
    #[cold]
    fn worth_parsing(&self, bytes: &[u8], is_eof: bool) -> bool {
        let attempted = self.attempted as usize;
        is_eof
            || bytes.len() < REPARSE_STEP
            || bytes.len() >= attempted + REPARSE_STEP
            || bytes[attempted.min(bytes.len())..].contains(&b'\n')
    }

    fn wait_for_head(&mut self, len: usize, now: Instant) {
        self.attempted = len as u32;
        if !self.head_begun {
            self.head_begun = true;
            // The first head counts from the accept: a silent client is treated as a slow one.
            if self.requests > 0 {
                self.since = now;
            }
        }
    }

    #[inline(always)]
    fn begin(&mut self, parsed: &Parsed, now: Instant) {
        self.attempted = 0;
        self.head_begun = false;
        self.requests = self.requests.saturating_add(1);
        self.persistent = !parsed.flags.closes(parsed.version);
        self.head_only = parsed.method() == Method::Head;
        self.version = parsed.version;
        self.continue_owed =
            parsed.flags.expects_continue(parsed.version) && parsed.framing() != Framing::Length(0);
        self.since = now;
    }

    // ---- state

    /// Whether further input can be used now. While it cannot, reading should stop, so that TCP flow control
    /// holds the peer back.
    #[inline]
    pub fn wants_input(&self, link: &Link, limits: &Limits) -> bool {
        match self.input {
            Input::Streaming(_) | Input::Raw => !self.body_paused,
            // An incomplete head always fits; requests pipelined behind an unanswered one may not.
            _ => link.carry().len() < limits.uri_max + limits.header_max + REPARSE_STEP,
        }
    }

    /// Whether nothing is left of the input, no body is awaited, and the peer may send more.
    #[inline]
    pub fn is_used_up(&self, link: &Link, input: &[u8]) -> bool {
        input.is_empty() && matches!(self.input, Input::Head) && !link.is_eof()
    }

    /// Whether the connection waits for a request, has no byte of one, and has no output waiting or in
    /// flight. An empty line does not count as part of a request.
    pub fn is_idle(&self, link: &Link) -> bool {
        self.is_between_requests() && matches!(link.carry(), b"" | b"\r\n") && !link.has_unsent()
    }

    /// Since when the connection has been idle, if it is.
    pub fn idle_since(&self, link: &Link) -> Option<Instant> {
        self.is_idle(link).then(|| self.rested_since(link))
    }

    /// Whether no request has begun since the last was answered.
    pub(super) fn is_between_requests(&self) -> bool {
        matches!(self.input, Input::Head) && self.reply == Reply::None && !self.head_begun
    }

    /// Since when it has been between requests: idleness counts from the last byte sent.
    #[inline]
    pub(super) fn rested_since(&self, link: &Link) -> Instant {
        self.since.max(link.sent_at())
    }
}
