//! One connection, its request bodies: collected, streamed, discarded, or another protocol's bytes.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::body::Decoder;
use super::connection::{Body, Connection, Ending, Input, Next, Partial, Reply, Request, Scratch};
use super::error::Reject;
use super::limits::Limits;
use super::parse;
use crate::time::Instant;

impl Connection {
    /// A body's deadlines count from now.
    pub(super) fn begin_body(&mut self, now: Instant) {
        self.since = now;
        self.progress = now;
        self.body_bytes = 0;
    }

    /// Keeps the head of a request until its body, so far `body`, is complete.
    pub(super) fn collect(
        &mut self,
        head: &[u8],
        body: &[u8],
        decoder: Decoder,
        max: u64,
        now: Instant,
    ) {
        // Copied, lest this connection keep the capacity that another's body gave the scratch.
        let (head, body) = (head.to_vec(), body.to_vec());
        let partial_len = body.len() as u64;
        self.partial = Some(Box::new(Partial { head, body, decoder }));
        self.input = Input::Collecting;
        self.body_max = max;
        self.begin_body(now);
        self.send_continue(now);
        // What came with the head has come all the same.
        self.body_bytes = partial_len;
    }

    /// Bytes of memory that the body has which is being collected; 0 if none is.
    #[inline]
    pub fn collected(&self) -> usize {
        match (&self.input, &self.partial) {
            (Input::Collecting, Some(partial)) => partial.body.capacity(),
            _ => 0,
        }
    }

    /// Whether the body of the request at hand is being collected.
    pub fn is_collecting(&self) -> bool {
        matches!(self.input, Input::Collecting)
    }

    /// Lets go of a collected request that its handler has taken what it wants of.
    pub fn forget_request(&mut self) {
        debug_assert!(!self.is_collecting(), "its handler has not seen it yet");
        self.partial = None;
    }

    /// The body being collected cannot be held: a last reply, which says so, is owed.
    pub fn refuse_body(&mut self) {
        debug_assert!(self.is_collecting(), "only a body that is collected is held");
        self.refuse(Reject::BodyTooLarge);
    }

    /// Bytes of memory the connection has allocated on the heap.
    pub fn allocated(&self) -> usize {
        let partial = self.partial.as_ref().map_or(0, |partial| {
            core::mem::size_of::<Partial>() + partial.head.capacity() + partial.body.capacity()
        });
        self.carry.capacity() + self.output.capacity() + partial
    }

    /// [`Connection::next`] where no head is expected.
    pub(super) fn next_of_body<'r, 'i: 'r>(
        &'r mut self,
        input: &mut &'i [u8],
        scratch: &'r mut Scratch,
        limits: &Limits,
        now: Instant,
    ) -> Next<'r> {
        match self.input {
            Input::Head | Input::Discarding(_) => Next::Wait,
            Input::Collecting => self.next_collected(input, scratch, limits, now),
            Input::Streaming(_) => self.next_streamed(input, limits, now),
            Input::Raw if self.body_paused => Next::Wait,
            Input::Raw => match core::mem::take(input) {
                [] if self.eof => {
                    self.input = Input::Closed;
                    Next::RawEnd
                }
                [] => Next::Wait,
                bytes => {
                    self.note_movement(now);
                    Next::Raw(bytes)
                }
            },
            Input::Closed => {
                self.body_bytes += input.len() as u64;
                if !input.is_empty() && self.ending == Ending::Close {
                    self.ending = Ending::Linger;
                }
                *input = &[];
                Next::Wait
            }
        }
    }

    fn next_collected<'r>(
        &'r mut self,
        input: &mut &[u8],
        scratch: &'r mut Scratch,
        limits: &Limits,
        now: Instant,
    ) -> Next<'r> {
        let partial = self.partial.as_mut().expect("Collecting has a partial request");
        let had = partial.body.len();
        let Partial { body, decoder, .. } = &mut **partial;
        if let Err(reject) = append(decoder, input, body, self.body_max, limits.header_max) {
            return self.refuse(reject);
        }
        if body.len() > had {
            self.progress = now;
            self.body_bytes += (body.len() - had) as u64;
        }
        if !decoder.is_done() {
            return if self.eof { self.refuse(Reject::Truncated) } else { Next::Wait };
        }
        self.input = Input::Head;
        self.reply = Reply::Owed;
        let partial = self.partial.as_deref().expect("it was there above");
        let parsed = parse::parse(&partial.head, limits, &mut scratch.spans);
        let parsed = parsed.ok().flatten().expect("this head was parsed before");
        let head = parsed.head(&partial.head, &scratch.spans);
        Next::Request(Request { head, body: Body::Whole(&partial.body) })
    }

    fn next_streamed<'i>(
        &mut self,
        input: &mut &'i [u8],
        limits: &Limits,
        now: Instant,
    ) -> Next<'i> {
        let Input::Streaming(decoder) = &mut self.input else {
            return Next::Wait;
        };
        // The end needs no room. Held back, it would wait for input that never comes: all is here.
        if self.body_paused && !decoder.is_done() {
            return Next::Wait;
        }
        let failure = match decoder.next(input, limits.header_max) {
            Ok(Some(piece)) => {
                // Who sends content does not wait for leave to send it.
                self.continue_owed = false;
                self.progress = now;
                if self.gone_since != Instant::MAX {
                    self.gone_since = now; // As `note_movement`: the decoder is borrowed.
                }
                self.body_bytes += piece.len() as u64;
                self.body_max = match self.body_max.checked_sub(piece.len() as u64) {
                    Some(left) => left,
                    None => return self.fail_body(Reject::BodyTooLarge),
                };
                return Next::Body(piece);
            }
            Ok(None) if decoder.is_done() => {
                self.input = Input::Head;
                self.body_paused = false;
                return Next::BodyEnd;
            }
            Ok(None) if !self.eof => return Next::Wait,
            Ok(None) => Reject::Truncated,
            Err(reject) => reject,
        };
        self.fail_body(failure)
    }

    /// A streamed body will not be completed: the reply, owed or under way, is the last.
    pub(super) fn fail_body<'i>(&mut self, reject: Reject) -> Next<'i> {
        self.input = Input::Closed;
        self.persistent = false;
        self.last = true;
        self.continue_owed = false;
        Next::BodyFailed(reject)
    }

    /// Drops what is left of a body nobody wanted, so that the next request can be found behind it.
    pub(super) fn discard(&mut self, input: &mut &[u8], limits: &Limits, now: Instant) {
        let Input::Discarding(decoder) = &mut self.input else {
            return;
        };
        loop {
            match decoder.next(input, limits.header_max) {
                Ok(Some(piece)) => {
                    self.progress = now;
                    self.body_bytes += piece.len() as u64;
                    if self.body_bytes > limits.discard_max {
                        break;
                    }
                }
                Ok(None) if decoder.is_done() => {
                    self.input = Input::Head;
                    self.since = now;
                    return;
                }
                Ok(None) if !self.eof => return,
                Ok(None) | Err(_) => break,
            }
        }
        *input = &[];
        self.give_up_input();
    }

    /// What follows a body that cannot be discarded is lost: the last reply given, or else the one
    /// owed or under way, ends the connection.
    pub(super) fn give_up_input(&mut self) {
        if self.reply == Reply::None {
            self.end(Ending::Linger);
        } else {
            self.input = Input::Closed;
            self.last = true;
        }
    }
}

/// Decodes all that `input` has of a body onto `body`, which must not exceed `max` bytes.
pub(super) fn append(
    decoder: &mut Decoder,
    input: &mut &[u8],
    body: &mut Vec<u8>,
    max: u64,
    trailer_max: usize,
) -> Result<(), Reject> {
    while let Some(piece) = decoder.next(input, trailer_max)? {
        if (body.len() + piece.len()) as u64 > max {
            return Err(Reject::BodyTooLarge);
        }
        body.extend_from_slice(piece);
    }
    Ok(())
}
