//! One connection whose peer has finished sending: how long its answer may make no progress.
//!
//! A FIN means that the peer will send no more. It may wait for its answer (`nc`, scripts), or it may have
//! disconnected (a closed tab): the server cannot tell before it sends. So it still answers, and
//! [`Limits::half_closed_timeout`] bounds how long the answer may make no progress.

use super::state::{Connection, Ending, Reply};
use crate::http::Limits;
use crate::time::Instant;

impl Connection {
    /// The peer has finished sending. Call [`Connection::next`] afterwards: incomplete input stays
    /// incomplete.
    pub fn on_eof(&mut self) {
        self.eof = true;
    }

    /// Whether the peer has finished sending, and all that it sent has been received.
    pub fn is_eof(&self) -> bool {
        self.eof
    }

    /// The peer has finished sending, although earlier bytes may be unread.
    pub fn on_hang_up(&mut self, now: Instant) {
        self.gone_since = self.gone_since.min(now);
        self.hung_up_at = self.hung_up_at.min(now);
    }

    /// Whether the peer has finished sending, as far as is known.
    pub fn has_hung_up(&self) -> bool {
        self.eof || self.gone_since != Instant::MAX
    }

    /// When the peer was first seen to have finished sending; `None` if it may send more.
    pub fn hung_up_at(&self) -> Option<Instant> {
        (self.hung_up_at != Instant::MAX).then_some(self.hung_up_at)
    }

    /// Whether the connection has been handed to another protocol, which has not ended it yet.
    pub fn has_left_http(&self) -> bool {
        self.reply == Reply::Raw
    }

    /// A request or its answer has made progress: a half-closed connection is not a dead one.
    #[inline]
    pub(super) fn note_movement(&mut self, now: Instant) {
        if self.gone_since != Instant::MAX {
            self.gone_since = now;
        }
    }

    /// Abandons the reply in progress, which the peer no longer reads: its encoded part is sent, and the
    /// connection is closed without the reply's end.
    pub fn cut_short(&mut self) {
        self.reply = Reply::None;
        self.last = true;
        self.end(Ending::Linger);
    }

    /// The deadline of an answer to a peer that has finished sending. While bytes are being sent, the write
    /// timeout applies; while the request is queued, the server must continue.
    pub(super) fn half_closed_deadline(&self, limits: &Limits) -> Instant {
        let waits = self.reply != Reply::None
            && self.ending == Ending::No
            && self.writing_since == Instant::MAX
            && !self.is_held();
        match waits && self.gone_since != Instant::MAX {
            true => self.gone_since + limits.half_closed_timeout,
            false => Instant::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Expired, Next, Scratch};
    use super::*;
    use crate::http::{BodyPlan, Head, Payload};
    use core::time::Duration;

    const DATE: &[u8; 29] = b"Thu, 01 Jan 1970 00:00:00 GMT";

    fn asked(limits: &Limits, now: Instant) -> Connection {
        let mut connection = Connection::new(now);
        let mut input: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        let mut scratch = Scratch::default();
        let plan = |_: &Head<'_>| BodyPlan::Whole(0);
        let next = connection.next(&mut input, &mut scratch, limits, now, plan);
        assert!(matches!(next, Next::Request(_)));
        connection
    }

    /// Purpose: a peer that has finished sending gets its answer for as long as the bound says, and any
    /// progress of the answer restarts the bound.
    #[test]
    fn half_closed_is_bounded() {
        let (limits, start) = (Limits::default(), Instant::from_nanos(1));
        let bound = limits.half_closed_timeout;
        let tick = Duration::from_nanos(1);
        let mut connection = asked(&limits, start);
        assert_eq!(connection.deadline(&limits), Instant::MAX, "a handler may take its time");
        connection.on_hang_up(start);
        assert_eq!(connection.on_deadline(start + (bound - tick), &limits), Expired::Early);
        assert_eq!(connection.on_deadline(start + bound, &limits), Expired::HalfClosed);

        let later = start + (bound - tick);
        let more = connection.respond(200, DATE, &limits, later, |_| {}, Payload::Stream(None));
        assert!(more);
        assert!(connection.take_output(later).is_some());
        connection.on_sent(later);
        assert_eq!(connection.on_deadline(start + bound, &limits), Expired::Early);
        assert_eq!(connection.on_deadline(later + bound, &limits), Expired::HalfClosed);
        assert_eq!(connection.hung_up_at(), Some(start), "progress does not move when it hung up");
    }

    /// Purpose: a reply that is cut short is sent as far as it was encoded, and then closed.
    #[test]
    fn cut_short_sends_what_there_is() {
        let (limits, start) = (Limits::default(), Instant::from_nanos(1));
        let mut connection = asked(&limits, start);
        connection.on_eof();
        connection.respond(200, DATE, &limits, start, |_| {}, Payload::Stream(None));
        connection.cut_short();
        let (output, then) = connection.take_output(start).expect("the head");
        assert!(output.bytes.starts_with(b"HTTP/1.1 200"));
        assert_eq!(then, crate::driver::Then::Close);
    }
}
