//! One connection, the input half: bytes in, requests out. (`state.rs`: the state of a connection.
//! `request_body.rs`: request bodies. `reply.rs`: answers in, bytes out. `deadline.rs`: time in, verdicts
//! out.)

use alloc::vec::Vec;

use super::body::{Decoder, Framing};
use super::parse::{self, Parsed};
use super::state::{Connection, Ending, Input, Next, Reply, Request, Scratch};
use crate::http::{Body, BodyPlan, Head, Limits, Method, Reject};
use crate::time::Instant;

/// Below this many bytes an incomplete head is parsed again with every arrival; above it, only when a line
/// has ended or this much more has arrived. Keeps a head sent byte by byte from costing the square of its
/// length.
const REPARSE_STEP: usize = 1024;

/// Spare capacity that the carry may keep, beyond twice its content.
const CARRY_SLACK_MAX: usize = 1024;

impl Connection {
    // ---- inputs

    /// Takes the unused input out, so that requests in it can be borrowed while the connection changes.
    /// Append the received bytes, offer all to [`Connection::next`], then give back the rest with
    /// [`Connection::stash`] or [`Connection::stash_owned`].
    #[inline]
    pub fn take_carry(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.carry)
    }

    /// Keeps a copy of `rest` until more arrives.
    #[inline]
    pub fn stash(&mut self, rest: &[u8]) {
        debug_assert!(self.carry.is_empty(), "the carry was taken before");
        if !rest.is_empty() && self.keep(rest.len()) {
            self.carry.extend_from_slice(rest);
        }
    }

    /// Keeps the last `rest_len` bytes of `carry` until more arrives.
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

    /// Whether unused input is worth keeping. Input behind the last request is not; but because of it,
    /// closing at once would reset the connection and destroy the last reply.
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

    /// Finds the next thing to do in `input` and takes it off its front. `plan` is called once for every head
    /// that is not refused.
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
        // By reference: copying a value whose parts were just written is slow.
        let parsed = parse::parse(bytes, limits, &mut scratch.spans);
        let parsed = match &parsed {
            Ok(Some(parsed)) => parsed,
            Ok(None) if self.eof => return self.refuse_head(Reject::Truncated),
            Ok(None) => {
                self.wait_for_head(bytes.len(), now);
                return Next::Wait;
            }
            Err(reject) => return self.refuse_head(*reject),
        };
        let (head_bytes, rest) = bytes.split_at(parsed.len);
        *input = rest;
        self.begin(parsed, now);
        let body_plan = plan(&parsed.head(head_bytes, &scratch.spans));
        let (BodyPlan::Whole(max) | BodyPlan::Streamed(max)) = body_plan;
        match (body_plan, parsed.framing) {
            (_, Framing::Length(length)) if length > max => {
                self.body_max = max;
                self.refuse(Reject::BodyTooLarge)
            }
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
                match decoder.append(input, &mut scratch.body, max, limits) {
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
                self.input = Input::Streaming(Decoder::new(framing).keeping_trailers());
                self.body_max = max;
                self.begin_body(now);
                let head = parsed.head(head_bytes, &scratch.spans);
                self.hand_out(head, Body::Streamed)
            }
        }
    }

    /// An incomplete head is parsed again only if that can change the result.
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
            // The first head counts from the accept: a silent client is treated as a slow one.
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

    // ---- state

    /// Whether further input can be used now. While it cannot, reading should stop, so that TCP flow control
    /// holds the peer back.
    pub fn wants_input(&self, limits: &Limits) -> bool {
        match self.input {
            Input::Streaming(_) | Input::Raw => !self.body_paused,
            // An incomplete head always fits; requests pipelined behind an unanswered one may not.
            _ => self.carry.len() < limits.uri_max + limits.header_max + REPARSE_STEP,
        }
    }

    /// Whether the connection waits for a request, has no byte of one, and has no output waiting or in
    /// flight. An empty line does not count as part of a request.
    pub fn is_idle(&self) -> bool {
        matches!(self.input, Input::Head)
            && self.reply == Reply::None
            && !self.head_begun
            && matches!(self.carry.as_slice(), b"" | b"\r\n")
            && self.output.is_empty()
            && self.tail.is_empty()
            && self.writing_since == Instant::MAX
    }

    /// Since when the connection has been idle, if it is.
    pub fn idle_since(&self) -> Option<Instant> {
        self.is_idle().then_some(self.since)
    }

    /// Whether output waits to be sent.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty() || !self.tail.is_empty() || self.ending != Ending::No
    }

    /// Bytes of output that wait to be taken.
    #[inline]
    pub fn pending(&self) -> usize {
        self.output.len() + self.tail.len()
    }

    /// Whether unused input waits, which [`Connection::next`] may now be able to use.
    pub fn has_carry(&self) -> bool {
        !self.carry.is_empty() || self.eof
    }
}
