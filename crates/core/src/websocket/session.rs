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
//! sends nothing, and reports no message. Bytes and the time are arguments; what it says goes into `out`, behind what the
//! application has sent before.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::{Buf, Bytes, BytesMut};
use core::time::Duration;

use super::close::{CloseCode, Error};
use super::decode::{Decoder, Event};
use super::{Kind, Limits, Role, encode};
use crate::time::Instant;

/// How long a session waits for its peer. [`Duration::MAX`] is for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A peer that has sent nothing for this long is pinged. 30 s: less than what proxies allow a silent connection.
    pub ping_after: Duration,
    /// After a ping, something must come within this time, or the peer counts as lost. 20 s.
    pub pong_within: Duration,
    /// A connection without a message in either direction for this long is closed (1001). No limit.
    pub idle_max: Duration,
    /// After our close frame, the peer's must come within this time. 5 s.
    pub close_within: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            ping_after: Duration::from_secs(30),
            pong_within: Duration::from_secs(20),
            idle_max: Duration::MAX,
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
    /// When bytes came last.
    heard_at: Instant,
    /// When the ping was sent that nothing has followed yet; `MAX` if there is none.
    pinged_at: Instant,
    /// When the last message came, or was found to have been sent.
    active_at: Instant,
    /// A message was sent since `active_at`.
    has_sent: bool,
    /// When our close frame was sent; `MAX` before.
    closing_at: Instant,
    end: Option<End>,
    /// The peer's close frame has come, with this code.
    heard_close: Option<Option<CloseCode>>,
    /// What it says.
    said: Option<Box<(CloseCode, String)>>,
}

/// Something else than a message in one piece.
enum Heard {
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
            heard_at: now,
            pinged_at: Instant::MAX,
            active_at: now,
            has_sent: false,
            closing_at: Instant::MAX,
            end: None,
            heard_close: None,
            said: None,
        }
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
        while self.end.is_none() && self.heard_close.is_none() && !input.is_empty() {
            self.heard_at = now;
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
                return message;
            }
        }
        if self.end.is_some() || self.heard_close.is_some() {
            input.clear(); // Nothing follows a close frame.
        }
        None
    }

    fn next_in_pieces(&mut self, input: &mut BytesMut, out: &mut Vec<u8>) -> Option<Message> {
        let is_open = self.is_open();
        let mut rest = &input[..];
        let heard = match self.decoder.next(&mut rest) {
            Ok(None) => Heard::Nothing,
            Ok(Some(Event::Message(kind, _))) => Heard::Message(kind),
            Ok(Some(Event::Ping(payload))) => {
                if is_open {
                    encode::pong(payload, None, out);
                }
                Heard::Control
            }
            Ok(Some(Event::Pong(_))) => Heard::Control,
            Ok(Some(Event::Close(close))) => {
                Heard::Close(close.map(|close| (close.code, String::from(close.reason))))
            }
            Err(error) => Heard::Error(error),
        };
        let used = input.len() - rest.len();
        input.advance(used);
        match heard {
            Heard::Nothing | Heard::Control => None,
            Heard::Message(kind) => {
                let bytes = Bytes::from(self.decoder.take_reported().unwrap_or_default());
                Some(Message { kind, bytes })
            }
            Heard::Close(said) => {
                let code = said.as_ref().map(|(code, _)| *code);
                self.said = said.map(Box::new);
                self.heard_close = Some(code);
                if !is_open {
                    self.end = Some(End::Closed(code));
                }
                None
            }
            Heard::Error(error) => {
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
        self.end.get_or_insert(match self.heard_close {
            Some(code) => End::Closed(code),
            None => End::Lost,
        });
    }

    /// Bytes of the peer may wait that are not read, at the application's wish: its silence does not count until `now`.
    pub fn rest(&mut self, now: Instant) {
        self.heard_at = now;
        self.pinged_at = Instant::MAX;
    }

    /// What the time `now` requires; nothing if it is early.
    pub fn on_deadline(&mut self, now: Instant, out: &mut Vec<u8>) {
        if now < self.deadline() {
            return;
        }
        if self.heard_close.is_some() {
            self.answer_close(out);
        } else if !self.is_open() || now >= self.pinged_at + self.timing.pong_within {
            self.end = Some(End::Unanswered);
        } else if now >= self.active_at + self.timing.idle_max {
            match core::mem::take(&mut self.has_sent) {
                true => self.active_at = now,
                false => {
                    self.close(CloseCode::GOING_AWAY, "nothing was said for too long", now, out)
                }
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
            self.end = self.heard_close.map(End::Closed);
        }
    }

    /// Answers the peer's close frame, if there is one. Until then messages may be sent: those that answer what came before
    /// the close frame. That is done after [`Timing::close_within`] in any case.
    pub fn answer_close(&mut self, out: &mut Vec<u8>) {
        if let Some(code) = self.heard_close
            && self.is_open()
        {
            encode::close(code, "", None, out);
            self.end = Some(End::Closed(code));
        }
    }

    // ---- state

    /// Whether the peer's close frame has come: nothing follows it.
    #[inline]
    pub fn has_heard_close(&self) -> bool {
        self.heard_close.is_some()
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
    pub fn said(&self) -> Option<(CloseCode, &str)> {
        self.said.as_deref().map(|(code, reason)| (*code, reason.as_str()))
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
        if self.heard_close.is_some() {
            return self.heard_at + self.timing.close_within;
        }
        let heard = match self.pinged_at {
            Instant::MAX => self.heard_at + self.timing.ping_after,
            pinged_at => pinged_at + self.timing.pong_within,
        };
        heard.min(self.active_at + self.timing.idle_max)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    const KEY: [u8; 4] = [1, 2, 3, 4];

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn timing() -> Timing {
        Timing {
            ping_after: Duration::from_millis(30),
            pong_within: Duration::from_millis(20),
            idle_max: Duration::from_millis(100),
            close_within: Duration::from_millis(5),
        }
    }

    struct Side {
        session: Session,
        out: Vec<u8>,
    }

    impl Side {
        fn new() -> Side {
            Side { session: Session::new(Limits::default(), timing(), at(0)), out: vec![] }
        }

        /// The messages in `bytes`.
        fn hear(&mut self, bytes: &[u8], now: Instant) -> Vec<Bytes> {
            let (mut input, mut messages) = (BytesMut::from(bytes), vec![]);
            while let Some(message) = self.session.next(&mut input, now, &mut self.out) {
                messages.push(message.bytes);
            }
            assert!(input.is_empty(), "all input is used, or dropped");
            messages
        }

        /// What it has sent since the last call, without the bytes of close frames' reasons.
        fn said(&mut self) -> Vec<u8> {
            core::mem::take(&mut self.out)
        }
    }

    fn framed(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = vec![];
        encode(&mut out);
        out
    }

    /// Purpose: messages in one piece, in fragments with a ping between them, and split anywhere are the same; the ping is
    /// answered with its payload.
    #[test]
    fn messages_and_pings() {
        let bytes = framed(|out| {
            encode::message(Kind::Text, b"whole", Some(KEY), out);
            encode::frame(Kind::Binary, b"frag", true, false, Some(KEY), out);
            encode::ping(b"are you there", Some(KEY), out);
            encode::frame(Kind::Binary, b"ments", false, true, Some(KEY), out);
            encode::message(Kind::Text, b"", Some(KEY), out);
        });
        let pong = framed(|out| encode::pong(b"are you there", None, out));
        for split in 0..=bytes.len() {
            let mut side = Side::new();
            let mut heard = side.hear(&bytes[..split], at(1));
            heard.extend(side.hear(&bytes[split..], at(1)));
            assert_eq!(heard, [&b"whole"[..], b"fragments", b""], "split at {split}");
            assert_eq!(side.said(), pong);
        }
    }

    /// Purpose: a peer that is silent is pinged once; whatever it sends answers, and without an answer it is lost, neither
    /// a moment too early.
    #[test]
    fn silence_is_pinged() {
        let mut side = Side::new();
        assert_eq!(side.session.deadline(), at(30));
        side.session.on_deadline(at(29), &mut side.out);
        assert!(side.said().is_empty());
        side.session.on_deadline(at(30), &mut side.out);
        assert_eq!(side.said(), [0x89, 0]);
        assert_eq!(side.session.deadline(), at(50));
        side.hear(&framed(|out| encode::pong(b"", Some(KEY), out)), at(49));
        side.session.on_deadline(at(50), &mut side.out);
        assert_eq!((side.session.end(), side.session.deadline()), (None, at(79)));
        side.session.on_deadline(at(79), &mut side.out);
        assert_eq!(side.said(), [0x89, 0]);
        side.session.on_deadline(at(98), &mut side.out);
        assert_eq!(side.session.end(), None);
        side.session.on_deadline(at(99), &mut side.out);
        assert_eq!(side.session.end(), Some(End::Unanswered));
        assert!(side.said().is_empty() && side.session.deadline() == Instant::MAX);
    }

    /// Purpose: pongs keep a connection alive, and not in use; messages of either side do.
    #[test]
    fn idleness() {
        let mut side = Side::new();
        let pong = framed(|out| encode::pong(b"", Some(KEY), out));
        for millis in [25, 50, 75, 99] {
            side.hear(&pong, at(millis));
        }
        side.session.sends();
        side.session.on_deadline(at(100), &mut side.out);
        assert!(side.session.is_open(), "it has sent something");
        for millis in [125, 150, 175, 199] {
            side.hear(&pong, at(millis));
        }
        side.session.on_deadline(at(200), &mut side.out);
        assert_eq!(side.said()[2..4], 1001_u16.to_be_bytes());
        assert!(!side.session.is_open() && side.session.deadline() == at(205));
    }

    /// Purpose: the peer's close frame is answered with its code, once; what follows it is dropped.
    #[test]
    fn the_peer_closes() {
        let mut side = Side::new();
        let bytes = framed(|out| {
            encode::close(Some(CloseCode(4001)), "bye", Some(KEY), out);
            encode::message(Kind::Text, b"late", Some(KEY), out);
        });
        assert!(side.hear(&bytes, at(1)).is_empty());
        assert!(side.session.has_heard_close() && side.session.sends() && side.said().is_empty());
        side.session.answer_close(&mut side.out);
        side.session.answer_close(&mut side.out);
        assert_eq!(side.said(), framed(|out| encode::close(Some(CloseCode(4001)), "", None, out)));
        assert_eq!(side.session.said(), Some((CloseCode(4001), "bye")));
        assert_eq!(side.session.end(), Some(End::Closed(Some(CloseCode(4001)))));
        side.session.close(CloseCode::NORMAL, "", at(2), &mut side.out);
        assert!(side.said().is_empty() && !side.session.sends());
    }

    /// Purpose: a peer that has closed gets an answer, however it goes on: ours to something else, one at the next deadline
    /// if the application never looks, none if it is gone.
    #[test]
    fn the_peer_has_closed() {
        let bytes = framed(|out| encode::close(None, "", Some(KEY), out));
        for way in 0..3 {
            let mut side = Side::new();
            side.hear(&bytes, at(1));
            match way {
                0 => side.session.close(CloseCode::POLICY, "no", at(2), &mut side.out),
                1 => side.session.on_deadline(at(6), &mut side.out),
                _ => side.session.lost(),
            }
            assert_eq!(side.session.end(), Some(End::Closed(None)));
            assert_eq!(side.said().first(), if way == 2 { None } else { Some(&0x88) });
        }
    }

    /// Purpose: after our close frame nothing is sent and no message is reported; it ends with the peer's frame, or when
    /// its time is over.
    #[test]
    fn we_close() {
        for is_answered in [true, false] {
            let mut side = Side::new();
            side.session.close(CloseCode::GOING_AWAY, "drain", at(1), &mut side.out);
            side.said();
            assert!(!side.session.sends() && side.session.end().is_none());
            let bytes = framed(|out| {
                encode::message(Kind::Text, b"crossing", Some(KEY), out);
                encode::ping(b"", Some(KEY), out);
                if is_answered {
                    encode::close(Some(CloseCode::GOING_AWAY), "", Some(KEY), out);
                }
            });
            assert!(side.hear(&bytes, at(3)).is_empty());
            side.session.on_deadline(at(5), &mut side.out);
            side.session.on_deadline(at(6), &mut side.out);
            assert!(side.said().is_empty());
            let end = match is_answered {
                true => End::Closed(Some(CloseCode::GOING_AWAY)),
                false => End::Unanswered,
            };
            assert_eq!(side.session.end(), Some(end));
        }
    }

    /// Purpose: a frame that is not allowed ends the session with its code, and so does the end of the connection without
    /// one; the first end counts.
    #[test]
    fn broken_rules_and_lost_peers() {
        let mut side = Side::new();
        assert!(
            side.hear(&framed(|out| encode::message(Kind::Text, b"bare", None, out)), at(1))
                .is_empty()
        );
        assert_eq!(side.said()[2..4], 1002_u16.to_be_bytes());
        assert_eq!(side.session.end(), Some(End::Failed(CloseCode::PROTOCOL)));
        side.session.lost();
        assert_eq!(side.session.end(), Some(End::Failed(CloseCode::PROTOCOL)));
        let mut side = Side::new();
        side.session.lost();
        assert_eq!(side.session.end(), Some(End::Lost));
        let limits = Limits { message_max: 8, frame_max: 4 };
        for (len, code) in [(4, None), (5, Some(CloseCode::TOO_BIG))] {
            let mut session = Session::new(limits, timing(), at(0));
            let bytes = framed(|out| encode::message(Kind::Binary, &[0; 8][..len], Some(KEY), out));
            let message = session.next(&mut BytesMut::from(&bytes[..]), at(1), &mut vec![]);
            assert_eq!((message.is_some(), session.end()), (code.is_none(), code.map(End::Failed)));
        }
    }
}
