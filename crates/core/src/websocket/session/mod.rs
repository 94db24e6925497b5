//! What does a server do on a WebSocket besides the application's messages?
//!
//! ```text
//!          ┌─ close ──▶ Closing ──the peer's close frame──┐
//!   Open ──┤               └──── close_within ────────────┤
//!          ├─ the peer's close frame ──── answer_close ───┼──▶ over: an End
//!          ├─ a frame that is not allowed: a close frame ─┤
//!          └─ no answer to a ping; no more bytes ─────────┘
//! ```
//!
//! It answers pings, pings a peer that is silent, and keeps the rules of the closing handshake: after a close frame it
//! sends nothing, and reports no message. Bytes and the time are arguments; its own frames go into `out`, behind what the
//! application has sent before.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::{Buf, Bytes, BytesMut};
use core::time::Duration;

use super::close::{CloseCode, Error};
use super::compressed::Inflate;
use super::decode::{Decoder, Event};
use super::{Kind, Limits, Role, encode};
use crate::time::Instant;

/// The slowest that a message may come, in bytes per second: as for the body of a request by default.
const MESSAGE_RATE_MIN: u64 = 240;

/// How long a session waits for its peer. [`Duration::MAX`] is for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A peer that has sent nothing for this long is pinged. 30 s: less than what proxies allow a silent connection.
    pub ping_after: Duration,
    /// After a ping, something must come within this time, or the peer counts as lost. 20 s.
    pub pong_within: Duration,
    /// A connection without a message in either direction for this long is closed (1001). No limit.
    pub idle_max: Duration,
    /// A message that has begun must go on within this time, and be complete within it and as long as its bytes take at
    /// 240 B/s; else the connection is closed (1008). 60 s: twice what the body of a request has by default.
    pub message_within: Duration,
    /// After our close frame, the peer's must come within this time. 5 s.
    pub close_within: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            ping_after: Duration::from_secs(30),
            pong_within: Duration::from_secs(20),
            idle_max: Duration::MAX,
            message_within: Duration::from_secs(60),
            close_within: Duration::from_secs(5),
        }
    }
}

/// A message of the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it is.
    pub kind: Kind,
    /// Its content; UTF-8 if it is text.
    pub bytes: Bytes,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With the closing handshake. The code of the peer's close frame, if that had one.
    Closed(Option<CloseCode>),
    /// The peer broke a rule, and was sent this code.
    Failed(CloseCode),
    /// The connection ended without a close frame.
    Lost,
    /// The peer did not answer a ping, or our close frame, in time.
    Unanswered,
}

/// A server's side of one connection, from the end of the handshake on.
#[derive(Debug)]
pub struct Session {
    decoder: Decoder,
    timing: Timing,
    /// When bytes were last received.
    received_at: Instant,
    /// When the ping was sent that nothing has followed yet; `MAX` if there is none.
    pinged_at: Instant,
    unfinished: Unfinished,
    /// When the last message came, or was found to have been sent.
    active_at: Instant,
    /// A message was sent since `active_at`.
    has_sent: bool,
    /// When our close frame was sent; `MAX` before.
    closing_at: Instant,
    end: Option<End>,
    /// Set once the peer's close frame was received: its code, if it has one.
    close_received: Option<Option<CloseCode>>,
    /// The code and the reason of that frame, if it has a code.
    close_frame: Option<Box<(CloseCode, String)>>,
}

/// A message that has begun, and has not come to its end.
#[derive(Clone, Copy, Debug)]
struct Unfinished {
    /// `MAX` if there is none.
    since: Instant,
    /// When bytes of it came last, and how many have come.
    progress: Instant,
    len: usize,
}

impl Unfinished {
    const NONE: Unfinished = Unfinished { since: Instant::MAX, progress: Instant::MAX, len: 0 };

    /// By when more of it must have come.
    fn deadline(&self, within: Duration) -> Instant {
        let earned = Duration::from_millis(self.len as u64 * 1000 / MESSAGE_RATE_MIN);
        (self.progress + within).min(self.since + within + earned)
    }
}

/// What was decoded, if it was not a whole message.
enum Received {
    Nothing,
    Control,
    Message(Kind),
    Close(Option<(CloseCode, String)>),
    Error(Error),
}

impl Session {
    /// A session that begins at `now`.
    pub fn new(limits: Limits, timing: Timing, now: Instant) -> Session {
        Session {
            decoder: Decoder::new(Role::Server, limits),
            timing,
            received_at: now,
            pinged_at: Instant::MAX,
            unfinished: Unfinished::NONE,
            active_at: now,
            has_sent: false,
            closing_at: Instant::MAX,
            end: None,
            close_received: None,
            close_frame: None,
        }
    }

    /// Accepts compressed messages, as [`Decoder::with_inflate`] does.
    #[must_use]
    pub fn with_inflate(mut self, inflate: Box<dyn Inflate>) -> Session {
        self.decoder = self.decoder.with_inflate(inflate);
        self
    }

    // ---- inputs

    /// The next message in `input`, whose beginning is used up; `None` when more bytes are needed, or nothing follows.
    /// `now` is when the bytes came.
    #[inline]
    pub fn next(
        &mut self,
        input: &mut BytesMut,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Option<Message> {
        while self.end.is_none() && self.close_received.is_none() && !input.is_empty() {
            self.received_at = now;
            self.pinged_at = Instant::MAX;
            let message = match self.decoder.next_message(input) {
                Ok(Some((kind, bytes))) => Some(Message { kind, bytes }),
                Ok(None) => self.next_in_pieces(input, out),
                Err(error) => {
                    self.fail(error, out);
                    None
                }
            };
            if message.is_some() && self.is_open() {
                self.active_at = now;
                self.unfinished = Unfinished::NONE;
                return message;
            }
        }
        self.note_unfinished(now);
        if self.end.is_some() || self.close_received.is_some() {
            input.clear(); // Nothing follows a close frame.
        }
        None
    }

    /// All that came is used: what is left in the decoder has more to come.
    fn note_unfinished(&mut self, now: Instant) {
        let Some(len) = self.decoder.unfinished() else {
            self.unfinished = Unfinished::NONE;
            return;
        };
        let Unfinished { since, progress, len: before } = self.unfinished;
        let has_more = since == Instant::MAX || len > before;
        let progress = if has_more { now } else { progress };
        self.unfinished = Unfinished { since: since.min(now), progress, len };
    }

    fn next_in_pieces(&mut self, input: &mut BytesMut, out: &mut Vec<u8>) -> Option<Message> {
        let is_open = self.is_open();
        let mut rest = &input[..];
        let received = match self.decoder.next(&mut rest) {
            Ok(None) => Received::Nothing,
            Ok(Some(Event::Message(kind, _))) => Received::Message(kind),
            Ok(Some(Event::Ping(payload))) => {
                if is_open {
                    encode::pong(payload, None, out);
                }
                Received::Control
            }
            Ok(Some(Event::Pong(_))) => Received::Control,
            Ok(Some(Event::Close(close))) => {
                Received::Close(close.map(|close| (close.code, String::from(close.reason))))
            }
            Err(error) => Received::Error(error),
        };
        let used = input.len() - rest.len();
        input.advance(used);
        match received {
            Received::Nothing | Received::Control => None,
            Received::Message(kind) => {
                let bytes = Bytes::from(self.decoder.take_reported().unwrap_or_default());
                Some(Message { kind, bytes })
            }
            Received::Close(close_frame) => {
                let code = close_frame.as_ref().map(|(code, _)| *code);
                self.close_frame = close_frame.map(Box::new);
                self.close_received = Some(code);
                if !is_open {
                    self.end = Some(End::Closed(code));
                }
                None
            }
            Received::Error(error) => {
                self.fail(error, out);
                None
            }
        }
    }

    fn fail(&mut self, error: Error, out: &mut Vec<u8>) {
        if self.is_open() {
            encode::close(Some(error.code), error.reason, None, out);
        }
        self.end = Some(End::Failed(error.code));
    }

    /// The peer has finished sending, or the connection is gone.
    pub fn lost(&mut self) {
        self.end.get_or_insert(match self.close_received {
            Some(code) => End::Closed(code),
            None => End::Lost,
        });
    }

    /// The application does not want to read, so bytes of the peer may wait unread: its silence until `now` does not
    /// count.
    pub fn rest(&mut self, now: Instant) {
        self.received_at = now;
        self.pinged_at = Instant::MAX;
        if self.unfinished.since != Instant::MAX {
            (self.unfinished.since, self.unfinished.progress) = (now, now);
        }
    }

    /// What the time `now` requires; nothing if it is early.
    pub fn on_deadline(&mut self, now: Instant, out: &mut Vec<u8>) {
        if now < self.deadline() {
            return;
        }
        if self.close_received.is_some() {
            self.answer_close(out);
        } else if !self.is_open() || now >= self.pinged_at + self.timing.pong_within {
            self.end = Some(End::Unanswered);
        } else if now >= self.unfinished.deadline(self.timing.message_within) {
            let reason = "a message was not complete in time";
            self.fail(Error { code: CloseCode::POLICY, reason }, out);
        } else if now >= self.active_at + self.timing.idle_max {
            match core::mem::take(&mut self.has_sent) {
                true => self.active_at = now,
                false => self.close(CloseCode::GOING_AWAY, "no messages for too long", now, out),
            }
        } else if self.pinged_at == Instant::MAX {
            encode::ping(&[], None, out);
            self.pinged_at = now;
        }
    }

    // ---- commands

    /// The application sends a message. False: it must not, since the end has begun.
    #[inline]
    pub fn sends(&mut self) -> bool {
        self.has_sent = true;
        self.is_open()
    }

    /// Begins the closing handshake, unless the end has begun.
    ///
    /// # Panics
    /// If the code is not one that [may be sent](CloseCode::may_be_sent).
    pub fn close(&mut self, code: CloseCode, reason: &str, now: Instant, out: &mut Vec<u8>) {
        if self.is_open() {
            encode::close(Some(code), reason, None, out);
            self.closing_at = now;
            self.end = self.close_received.map(End::Closed);
        }
    }

    /// Ends, with code 1013, because there is no memory for more messages. One that is not complete is dropped.
    pub fn exhaust(&mut self, out: &mut Vec<u8>) {
        self.decoder.drop_message();
        if self.end.is_none() {
            let reason = "the server has no memory left for messages";
            self.fail(Error { code: CloseCode::TRY_AGAIN_LATER, reason }, out);
        }
    }

    /// Answers the peer's close frame, if there is one. Until then messages may be sent: those that answer what came before
    /// the close frame. That is done after [`Timing::close_within`] in any case.
    pub fn answer_close(&mut self, out: &mut Vec<u8>) {
        if let Some(code) = self.close_received
            && self.is_open()
        {
            encode::close(code, "", None, out);
            self.end = Some(End::Closed(code));
        }
    }

    // ---- state

    /// Bytes of memory that hold a message which has more to come.
    #[inline]
    pub fn held(&self) -> usize {
        self.decoder.allocated()
    }

    /// Whether the peer's close frame has come: nothing follows it.
    #[inline]
    pub fn has_received_close(&self) -> bool {
        self.close_received.is_some()
    }

    /// Whether messages may be sent: no close frame of ours was.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.end.is_none() && self.closing_at == Instant::MAX
    }

    /// Whether the peer owes an answer: to a ping, or to a close frame.
    #[inline]
    pub fn is_awaiting(&self) -> bool {
        self.end.is_none() && (self.pinged_at != Instant::MAX || self.closing_at != Instant::MAX)
    }

    /// How it ended, if it is over.
    #[inline]
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// The code and the reason of the peer's close frame, if there was one that has a code.
    pub fn close_frame(&self) -> Option<(CloseCode, &str)> {
        self.close_frame.as_deref().map(|(code, reason)| (*code, reason.as_str()))
    }

    /// When [`Session::on_deadline`] should be called; [`Instant::MAX`] for never.
    #[inline]
    pub fn deadline(&self) -> Instant {
        if self.end.is_some() {
            return Instant::MAX;
        }
        if self.closing_at != Instant::MAX {
            return self.closing_at + self.timing.close_within;
        }
        if self.close_received.is_some() {
            return self.received_at + self.timing.close_within;
        }
        let keepalive = match self.pinged_at {
            Instant::MAX => self.received_at + self.timing.ping_after,
            pinged_at => pinged_at + self.timing.pong_within,
        };
        keepalive
            .min(self.active_at + self.timing.idle_max)
            .min(self.unfinished.deadline(self.timing.message_within))
    }
}
