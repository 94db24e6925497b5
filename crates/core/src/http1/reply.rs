//! One connection, the output half: answers in, bytes out.

use alloc::vec::Vec;
use bytes::Bytes;

use super::encode::{self, FieldEncoder};
use super::state::{Connection, Input, Reply};
use crate::http::{LengthMismatch, Limits, Payload, Version};
use crate::link::{COPY_MAX, Link};
use crate::time::Instant;

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
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "a reply's parts, and what it is encoded with")]
    pub fn respond(
        &mut self,
        link: &mut Link,
        status: u16,
        date: &[u8; 29],
        limits: &Limits,
        now: Instant,
        fields: impl FnOnce(&mut FieldEncoder<'_>),
        payload: Payload<'_>,
    ) -> bool {
        assert!(self.reply == Reply::Owed, "a reply is owed");
        if self.partial.is_some() {
            self.partial = None;
        }
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
        self.last = !(upgrade || delimited && self.persists(limits));
        let out = link.output();
        encode::status_and_date(out, status, date);
        fields(&mut FieldEncoder { out });
        self.end_head(out, status, &length);
        self.reply = Reply::None;
        if content {
            match payload {
                Payload::Bytes(bytes) => out.extend_from_slice(bytes),
                Payload::Shared(bytes) if bytes.len() <= COPY_MAX => {
                    out.extend_from_slice(&bytes);
                }
                Payload::Shared(bytes) => link.push_shared(bytes, b""),
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
            self.finish_last(link);
        }
        false
    }

    /// Encodes what a head says of the content's length and of the connection, and its end.
    #[inline(always)]
    fn end_head(&self, out: &mut Vec<u8>, status: u16, length: &Length) {
        match *length {
            Length::Known(length) => encode::content_length(out, length),
            Length::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
            Length::None => {}
        }
        if self.last {
            out.extend_from_slice(b"connection: close\r\n");
        } else if status == 101 {
            out.extend_from_slice(b"connection: upgrade\r\n");
        } else if self.version == Version::Http10 {
            out.extend_from_slice(b"connection: keep-alive\r\n");
        }
        out.extend_from_slice(b"\r\n");
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
    #[inline]
    pub fn drop_body(&mut self, limits: &Limits, now: Instant) {
        self.body_paused = false;
        if matches!(self.input, Input::Streaming(_)) {
            self.drop_streamed(limits, now);
        }
    }

    #[inline(never)]
    fn drop_streamed(&mut self, limits: &Limits, now: Instant) {
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
    fn finish_last(&mut self, link: &mut Link) {
        let clean = matches!(self.input, Input::Head) && !self.persistent;
        self.end(link, clean);
    }

    /// Sends the interim response if the peer waits for it before it sends its body (RFC 9110 §10.1.1). For a
    /// streamed body: call it when the handler first reads; the body's deadlines count from then. It has no
    /// effect once the reply has begun.
    pub fn send_continue(&mut self, link: &mut Link, now: Instant) {
        let in_time = match self.input {
            Input::Collecting => true,
            Input::Streaming(_) => self.reply == Reply::Owed,
            _ => false,
        };
        if self.continue_owed && in_time {
            self.continue_owed = false;
            self.begin_body(now);
            link.output().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
    }

    /// Stops or resumes handing out a streamed body. While stopped, its deadlines rest.
    pub fn pause_body(&mut self, link: &mut Link, paused: bool, now: Instant) {
        if self.body_paused && !paused {
            self.since = now;
            self.progress = now;
            self.body_bytes = 0;
            link.note_movement(now);
        }
        self.body_paused = paused;
    }

    /// Appends content to a streamed reply, or bytes to an upgraded connection. A piece may exceed
    /// [`Link::room`], but nothing should be pushed while there is none.
    ///
    /// # Errors
    /// The content is longer than the length announced; the connection must be reset.
    pub fn push_body(&mut self, link: &mut Link, piece: &[u8]) -> Result<(), LengthMismatch> {
        if piece.is_empty() {
            return Ok(()); // An empty chunk would end the body.
        }
        let out = link.output();
        match &mut self.reply {
            Reply::Length(left) => {
                *left = left.checked_sub(piece.len() as u64).ok_or(LengthMismatch)?;
                out.extend_from_slice(piece);
            }
            Reply::Chunked => {
                encode::chunk_size(out, piece.len());
                out.extend_from_slice(piece);
                out.extend_from_slice(b"\r\n");
            }
            Reply::UntilClose | Reply::Raw => out.extend_from_slice(piece),
            Reply::None | Reply::Owed | Reply::RawEnded => {
                debug_assert!(false, "no streamed reply is under way");
            }
        }
        Ok(())
    }

    /// Like [`Connection::push_body`], but without the copy for large pieces: the bound is higher for a
    /// chunk, which needs bytes behind the shared ones.
    ///
    /// # Errors
    /// As [`Connection::push_body`].
    pub fn push_shared(&mut self, link: &mut Link, piece: Bytes) -> Result<(), LengthMismatch> {
        if piece.len() <= COPY_MAX || link.has_tail() {
            return self.push_body(link, &piece);
        }
        let mut behind: &[u8] = b"";
        match &mut self.reply {
            Reply::Length(left) => {
                *left = left.checked_sub(piece.len() as u64).ok_or(LengthMismatch)?;
            }
            Reply::UntilClose | Reply::Raw => {}
            Reply::Chunked if piece.len() >= SHARED_CHUNK_MIN => {
                encode::chunk_size(link.output(), piece.len());
                behind = b"\r\n";
            }
            _ => return self.push_body(link, &piece),
        }
        link.push_shared(piece, behind);
        Ok(())
    }

    /// Ends a streamed reply, or the sending side of an upgraded connection. The connection itself ends if the
    /// application no longer reads, else with [`Connection::drop_raw`].
    ///
    /// # Errors
    /// The content is shorter than the length announced; the connection must be reset.
    pub fn finish_body(
        &mut self,
        link: &mut Link,
        limits: &Limits,
        now: Instant,
    ) -> Result<(), LengthMismatch> {
        self.finish_body_with(link, limits, now, |_| {})
    }

    /// As [`Connection::finish_body`], with the fields that `trailers` writes behind the content. Only
    /// chunked content can be followed by some (RFC 9112 §7.1.2); otherwise they are left out.
    ///
    /// # Errors
    /// As [`Connection::finish_body`].
    pub fn finish_body_with(
        &mut self,
        link: &mut Link,
        limits: &Limits,
        now: Instant,
        trailers: impl FnOnce(&mut FieldEncoder<'_>),
    ) -> Result<(), LengthMismatch> {
        match core::mem::replace(&mut self.reply, Reply::None) {
            Reply::Length(0) | Reply::UntilClose => {}
            Reply::Length(_) => return Err(LengthMismatch),
            Reply::Chunked => {
                let out = link.output();
                out.extend_from_slice(b"0\r\n");
                trailers(&mut FieldEncoder { out });
                out.extend_from_slice(b"\r\n");
            }
            Reply::Raw => {
                match self.input {
                    Input::Raw | Input::RawEnded => {
                        self.reply = Reply::RawEnded;
                        link.finish();
                    }
                    _ => self.end(link, false),
                }
                return Ok(());
            }
            Reply::None | Reply::Owed | Reply::RawEnded => {
                debug_assert!(false, "no streamed reply is under way");
            }
        }
        self.since = now;
        self.drop_body(limits, now);
        if self.last {
            self.finish_last(link);
        }
        Ok(())
    }

    /// The application reads no more of an upgraded connection: what still comes is dropped, and the connection
    /// ends if our side has.
    pub fn drop_raw(&mut self, link: &mut Link) {
        if !matches!(self.input, Input::Raw | Input::RawEnded) {
            return;
        }
        self.input = Input::Closed;
        if self.reply == Reply::RawEnded {
            self.reply = Reply::None;
            self.end(link, false);
        }
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

    /// Whether it answers the current request and no more.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining
    }

    /// Whether a reply is owed whose head is not yet encoded.
    #[inline]
    pub fn is_reply_owed(&self) -> bool {
        self.reply == Reply::Owed
    }

    /// Whether the connection has been handed to another protocol, which has not ended our side yet.
    pub fn has_left_http(&self) -> bool {
        self.reply == Reply::Raw
    }

    /// Abandons the reply in progress, which the peer no longer reads: its encoded part is sent, and the
    /// connection is closed without the reply's end.
    pub fn cut_short(&mut self, link: &mut Link) {
        self.reply = Reply::None;
        self.last = true;
        self.end(link, false);
    }
}

enum Length {
    Known(u64),
    Chunked,
    None,
}
