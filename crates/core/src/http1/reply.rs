//! One connection, the output half: answers in, bytes out.

use alloc::vec::Vec;
use bytes::Bytes;

use super::encode::{self, FieldEncoder};
use super::state::{Connection, Ending, Input, Reply};
use crate::driver::{Output, Then};
use crate::http::{LengthMismatch, Limits, Payload, Version};
use crate::time::Instant;

/// Shared content up to this size is copied behind its head: below it, a second buffer for the kernel costs
/// more than the copy, and pipelined replies would not fit one send.
const COPY_MAX: usize = 8 * 1024;

/// A shared piece of chunked content is copied below this size. A larger piece is sent without a copy, in its
/// own send: bytes of framing must follow it.
const SHARED_CHUNK_MIN: usize = 64 * 1024;

impl Connection {
    /// Gives the reply that is owed. `fields` writes the header fields except framing, `Date` and
    /// `Connection`. Returns whether content is to follow through [`Connection::push_body`]; not if the
    /// request was a `HEAD`, or the status has no content.
    ///
    /// # Panics
    /// If no reply is owed; if `status` is below 200 and `payload` is not an upgrade; if `payload` is an
    /// upgrade and the request's content is not yet complete.
    #[inline]
    pub fn respond(
        &mut self,
        status: u16,
        date: &[u8; 29],
        limits: &Limits,
        now: Instant,
        fields: impl FnOnce(&mut FieldEncoder<'_>),
        payload: Payload<'_>,
    ) -> bool {
        assert!(self.reply == Reply::Owed, "a reply is owed");
        self.partial = None;
        self.since = now;
        let (length, content) = self.framing(status, &payload);
        let upgrade = matches!(payload, Payload::Upgrade);
        if upgrade {
            // The rest of the content would be read as the other protocol's first bytes.
            assert!(self.is_request_complete(), "an upgrade follows a complete request");
            self.body_paused = false;
        } else if !(content && matches!(payload, Payload::Stream(_))) {
            self.drop_body(limits, now);
        }
        let delimited = !content || !matches!(length, Length::None);
        let persistent = upgrade || (delimited && self.persists(limits));
        self.last = !persistent;
        let out = &mut self.output;
        encode::status_and_date(out, status, date);
        fields(&mut FieldEncoder { out });
        match length {
            Length::Known(length) => encode::content_length(out, length),
            Length::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
            Length::None => {}
        }
        if !persistent {
            out.extend_from_slice(b"connection: close\r\n");
        } else if status == 101 {
            out.extend_from_slice(b"connection: upgrade\r\n");
        } else if self.version == Version::Http10 {
            out.extend_from_slice(b"connection: keep-alive\r\n");
        }
        out.extend_from_slice(b"\r\n");
        self.reply = Reply::None;
        if content {
            match payload {
                Payload::Bytes(bytes) => self.output.extend_from_slice(bytes),
                Payload::Shared(bytes) if bytes.len() <= COPY_MAX => {
                    self.output.extend_from_slice(&bytes);
                }
                Payload::Shared(bytes) => self.tail = bytes,
                Payload::Stream(_) => {
                    self.reply = match length {
                        Length::Known(left) => Reply::Length(left),
                        Length::Chunked => Reply::Chunked,
                        Length::None => Reply::UntilClose,
                    };
                    return true;
                }
                Payload::Upgrade => {
                    self.reply = Reply::Raw;
                    self.input = Input::Raw;
                    return true;
                }
            }
        }
        if self.last {
            self.finish_last();
        }
        false
    }

    /// How the content is delimited, and whether there is any (RFC 9110 §6.4.1, RFC 9112 §6.3).
    #[inline]
    fn framing(&self, status: u16, payload: &Payload<'_>) -> (Length, bool) {
        let length = match payload {
            Payload::Bytes(bytes) => Length::Known(bytes.len() as u64),
            Payload::Shared(bytes) => Length::Known(bytes.len() as u64),
            Payload::Stream(Some(length)) => Length::Known(*length),
            Payload::Stream(None) if self.version == Version::Http11 => Length::Chunked,
            // Only the close delimits this content.
            Payload::Stream(None) => Length::None,
            Payload::Upgrade => return (Length::None, true),
        };
        match status {
            ..200 => {
                panic!("{status} is not a final status: the next reply would be taken for this one")
            }
            204 | 304 => (Length::None, false),
            205 => (Length::Known(0), false),
            _ => (length, !self.head_only),
        }
    }

    /// Whether the current request is a `HEAD`, so that its reply has no content.
    #[inline]
    pub fn is_head(&self) -> bool {
        self.head_only
    }

    /// Whether the content of the current request is complete, so that an upgrade may follow.
    #[inline]
    pub fn is_request_complete(&self) -> bool {
        matches!(self.input, Input::Head)
    }

    /// The handler will not read the rest of a streamed body: it is dropped as it arrives if it is small
    /// enough; else the current reply is the last.
    pub fn drop_body(&mut self, limits: &Limits, now: Instant) {
        self.body_paused = false;
        let Input::Streaming(decoder) = &self.input else {
            return;
        };
        let affordable = decoder.remaining().is_none_or(|left| left <= limits.discard_max);
        // A peer that still waits for its 100 may send the body or not: the next request cannot be found
        // behind it.
        if affordable && !self.continue_owed {
            let mut decoder = decoder.clone();
            decoder.drop_trailers();
            self.input = Input::Discarding(decoder);
            self.body_bytes = 0;
            self.since = now;
            self.progress = now;
        } else {
            self.input = Input::Closed;
            self.last = true;
        }
    }

    /// Whether the connection persists after the current reply (RFC 9112 §9.3).
    #[inline]
    fn persists(&self, limits: &Limits) -> bool {
        let next_findable = match self.input {
            Input::Closed => false,
            // A peer still waiting for its 100 may now send the body or leave it out.
            Input::Streaming(_) => !self.continue_owed,
            _ => true,
        };
        self.persistent && next_findable && !self.draining && self.requests < limits.requests_max
    }

    /// The last reply is encoded. If the peer asked for the close and all its input was used, closing at once
    /// is safe; else unread input may be in flight, and a close would answer it with a reset that could
    /// overtake the reply.
    fn finish_last(&mut self) {
        let clean = matches!(self.input, Input::Head) && !self.persistent;
        self.end(if clean { Ending::Close } else { Ending::Linger });
    }

    /// Sends the interim response if the peer waits for it before it sends its body (RFC 9110 §10.1.1). For a
    /// streamed body: call it when the handler first reads; the body's deadlines count from then. It has no
    /// effect once the reply has begun.
    pub fn send_continue(&mut self, now: Instant) {
        let in_time = match self.input {
            Input::Collecting => true,
            Input::Streaming(_) => self.reply == Reply::Owed,
            _ => false,
        };
        if self.continue_owed && in_time {
            self.continue_owed = false;
            self.begin_body(now);
            self.output.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
    }

    /// Stops or resumes handing out a streamed body. While stopped, its deadlines rest.
    pub fn pause_body(&mut self, paused: bool, now: Instant) {
        if self.body_paused && !paused {
            self.since = now;
            self.progress = now;
            self.body_bytes = 0;
            self.note_movement(now);
        }
        self.body_paused = paused;
    }

    /// How many bytes of content [`Connection::push_body`] would take now before encoded and unsent bytes
    /// exceed their bound.
    pub fn body_room(&self, limits: &Limits) -> usize {
        if !self.tail.is_empty() {
            return 0;
        }
        limits.output_max.saturating_sub(self.output.len() + self.in_flight)
    }

    /// Appends content to a streamed reply, or bytes to an upgraded connection. A piece may exceed
    /// [`Connection::body_room`], but nothing should be pushed while there is none.
    ///
    /// # Errors
    /// The content is longer than the length announced; the connection must be reset.
    pub fn push_body(&mut self, piece: &[u8]) -> Result<(), LengthMismatch> {
        if piece.is_empty() {
            return Ok(()); // An empty chunk would end the body.
        }
        self.copy_tail();
        match &mut self.reply {
            Reply::Length(left) => {
                *left = left.checked_sub(piece.len() as u64).ok_or(LengthMismatch)?;
                self.output.extend_from_slice(piece);
            }
            Reply::Chunked => {
                encode::chunk_size(&mut self.output, piece.len());
                self.output.extend_from_slice(piece);
                self.output.extend_from_slice(b"\r\n");
            }
            Reply::UntilClose | Reply::Raw => self.output.extend_from_slice(piece),
            Reply::None | Reply::Owed => debug_assert!(false, "no streamed reply is under way"),
        }
        Ok(())
    }

    /// Shared content goes last. If more is pushed nevertheless, it must be copied to stay in order.
    fn copy_tail(&mut self) {
        if !self.tail.is_empty() {
            self.output.extend_from_slice(&core::mem::take(&mut self.tail));
        }
        self.close_chunk();
    }

    /// Ends the chunk whose content was shared, if one is open.
    fn close_chunk(&mut self) {
        if core::mem::take(&mut self.chunk_open) {
            self.output.extend_from_slice(b"\r\n");
        }
    }

    /// Like [`Connection::push_body`], but without the copy for large pieces: the bound is higher for a
    /// chunk, which needs bytes behind the shared ones.
    ///
    /// # Errors
    /// As [`Connection::push_body`].
    pub fn push_shared(&mut self, piece: Bytes) -> Result<(), LengthMismatch> {
        if piece.len() <= COPY_MAX || !self.tail.is_empty() {
            return self.push_body(&piece);
        }
        match &mut self.reply {
            Reply::Length(left) => {
                *left = left.checked_sub(piece.len() as u64).ok_or(LengthMismatch)?;
            }
            Reply::UntilClose | Reply::Raw => {}
            Reply::Chunked if piece.len() >= SHARED_CHUNK_MIN => {
                encode::chunk_size(&mut self.output, piece.len());
                self.chunk_open = true;
            }
            _ => return self.push_body(&piece),
        }
        self.tail = piece;
        Ok(())
    }

    /// Ends a streamed reply, or the sending side of an upgraded connection.
    ///
    /// # Errors
    /// The content is shorter than the length announced; the connection must be reset.
    pub fn finish_body(&mut self, limits: &Limits, now: Instant) -> Result<(), LengthMismatch> {
        self.finish_body_with(limits, now, |_| {})
    }

    /// As [`Connection::finish_body`], with the fields that `trailers` writes behind the content. Only
    /// chunked content can be followed by some (RFC 9112 §7.1.2); otherwise they are left out.
    ///
    /// # Errors
    /// As [`Connection::finish_body`].
    pub fn finish_body_with(
        &mut self,
        limits: &Limits,
        now: Instant,
        trailers: impl FnOnce(&mut FieldEncoder<'_>),
    ) -> Result<(), LengthMismatch> {
        match core::mem::replace(&mut self.reply, Reply::None) {
            Reply::Length(0) | Reply::UntilClose => {}
            Reply::Length(_) => return Err(LengthMismatch),
            Reply::Chunked => {
                self.copy_tail();
                self.output.extend_from_slice(b"0\r\n");
                trailers(&mut FieldEncoder { out: &mut self.output });
                self.output.extend_from_slice(b"\r\n");
            }
            Reply::Raw => {
                self.end(Ending::Linger);
                return Ok(());
            }
            Reply::None | Reply::Owed => debug_assert!(false, "no streamed reply is under way"),
        }
        self.since = now;
        self.drop_body(limits, now);
        if self.last {
            self.finish_last();
        }
        Ok(())
    }

    // ---- output

    /// Whether the connection has no buffer to encode into; give it one with
    /// [`Connection::lend_buffer`], or it will allocate its own.
    #[inline]
    pub fn needs_buffer(&self) -> bool {
        self.output.capacity() == 0
    }

    /// Lends an empty buffer; it leaves with [`Connection::take_output`].
    #[inline]
    pub fn lend_buffer(&mut self, buffer: Vec<u8>) {
        debug_assert!(buffer.is_empty() && self.output.is_empty());
        self.output = buffer;
    }

    /// Gives back the lent buffer, if it is empty.
    pub fn reclaim_buffer(&mut self) -> Vec<u8> {
        if self.output.is_empty() { core::mem::take(&mut self.output) } else { Vec::new() }
    }

    /// Takes the output, with the step that follows once it is sent. Call it when no send is in flight;
    /// `None` if there is nothing to do.
    #[inline]
    pub fn take_output(&mut self, now: Instant) -> Option<(Output, Then)> {
        let then = match self.ending {
            Ending::Close if self.reply == Reply::None => Then::Close,
            // The peer has finished meanwhile: no unread input can arrive any more.
            Ending::Linger if self.reply == Reply::None && self.is_eof() => Then::Close,
            Ending::Linger if self.reply == Reply::None => {
                self.ending = Ending::Lingering;
                self.since = now;
                Then::Shutdown
            }
            _ if self.output.is_empty() && self.tail.is_empty() => return None,
            _ => Then::Keep,
        };
        self.writing_since = now;
        let bytes = core::mem::take(&mut self.output);
        let tail = core::mem::take(&mut self.tail);
        self.in_flight = bytes.len() + tail.len();
        self.close_chunk(); // Goes with the next send.
        Some((Output { bytes, tail }, then))
    }

    /// The kernel took part of the output in flight.
    pub fn on_progress(&mut self, now: Instant) {
        self.writing_since = now;
        self.note_movement(now);
    }

    /// The kernel took all of the output in flight. Idleness and a lingering close count from now.
    #[inline]
    pub fn on_sent(&mut self, now: Instant) {
        self.writing_since = Instant::MAX;
        self.note_movement(now);
        self.in_flight = 0;
        if self.ending == Ending::Lingering || self.is_between_requests() {
            self.since = now;
        }
    }

    /// Whether no request has begun since the last was answered.
    fn is_between_requests(&self) -> bool {
        matches!(self.input, Input::Head) && self.reply == Reply::None && !self.head_begun
    }

    /// Answers the current request and no more: every further reply carries `Connection: close`.
    pub fn drain(&mut self, now: Instant) {
        if !self.draining {
            self.draining = true;
            if self.is_between_requests() {
                self.since = now;
            }
        }
    }

    /// Whether a reply is owed whose head is not yet encoded.
    pub fn is_reply_owed(&self) -> bool {
        self.reply == Reply::Owed
    }

    /// Whether a lingering close has begun: its reply is sent, its input dropped.
    pub fn is_lingering(&self) -> bool {
        self.ending == Ending::Lingering
    }
}

enum Length {
    Known(u64),
    Chunked,
    None,
}
