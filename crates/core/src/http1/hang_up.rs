//! One connection whose peer has finished sending: what still moves, and for how long that is enough.
//!
//! A FIN says that the peer will send no more. It may be waiting for its answer (`nc`, scripts), or it
//! may be gone (a closed tab): nobody can tell before something is sent. So it is still answered, and
//! [`Limits::half_closed_timeout`] bounds how long the answer may stand still.

use super::connection::{Connection, Ending, Reply};
use super::limits::Limits;
use crate::time::Instant;

impl Connection {
    /// The peer has finished sending. Call [`Connection::next`] afterwards: what is incomplete now
    /// stays so.
    pub fn on_eof(&mut self) {
        self.eof = true;
    }

    /// Whether the peer has finished sending, and all that it sent has been received.
    pub fn is_eof(&self) -> bool {
        self.eof
    }

    /// The peer has finished sending, though bytes that it sent before may be unread.
    pub fn on_hang_up(&mut self, now: Instant) {
        self.gone_since = self.gone_since.min(now);
    }

    /// Whether the peer has finished sending, as far as is known.
    pub fn has_hung_up(&self) -> bool {
        self.eof || self.gone_since != Instant::MAX
    }

    /// Whether the connection has been handed to another protocol, which has not ended it yet.
    pub fn has_left_http(&self) -> bool {
        self.reply == Reply::Raw
    }

    /// Something of a request or its answer has moved: a half-closed connection is no dead one.
    #[inline]
    pub(super) fn note_movement(&mut self, now: Instant) {
        if self.gone_since != Instant::MAX {
            self.gone_since = now;
        }
    }

    /// Gives up the reply under way, which nobody wants any more: what is encoded of it is sent, and
    /// the connection closed without the reply's end.
    pub fn cut_short(&mut self) {
        self.reply = Reply::None;
        self.last = true;
        self.end(Ending::Linger);
    }

    /// Until when an answer is worth waiting for to a peer that has finished sending. While bytes are
    /// being sent, the write timeout counts; while the request waits for its turn, it is ours to go on.
    pub(super) fn half_closed_deadline(&self, limits: &Limits) -> Instant {
        let waits = self.reply != Reply::None
            && self.ending == Ending::No
            && self.writing_since == Instant::MAX
            && !self.held;
        match waits && self.gone_since != Instant::MAX {
            true => self.gone_since + limits.half_closed_timeout,
            false => Instant::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BodyPlan, Expired, Head, Next, Payload, Scratch};
    use super::*;
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

    /// Purpose: a peer that has finished sending gets its answer for as long as the bound says, and
    /// anything of the answer that moves begins the bound anew.
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
