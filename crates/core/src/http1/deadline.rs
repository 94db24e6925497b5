//! The deadlines of one connection: by when something must happen, and what follows if it does not.
//!
//! Deadlines are data. The worker keeps them in a timer wheel and reads the deadline again when one fires; a
//! deadline that moved meanwhile costs nothing.

use core::time::Duration;

use super::state::{Connection, Input, Reply};
use crate::http::{Limits, Reject};
use crate::link::{Link, Overdue};
use crate::protocol::{Expired, Upload};
use crate::time::Instant;

/// How long an idle connection stays readable once draining has begun. A request already on its way
/// is still answered; closing at once would lose it.
const DRAIN_QUIET: Duration = Duration::from_millis(250);

impl Connection {
    /// When [`Connection::on_deadline`] should be called; [`Instant::MAX`] for never.
    #[inline]
    pub fn deadline(&self, link: &Link, limits: &Limits) -> Instant {
        link.deadline(limits, self.is_awaited()).min(self.read_deadline(link, limits))
    }

    /// Whether the peer waits for an answer that is being made. While its request is queued, the server must
    /// continue. Or it is the peer that is waited for: not while the application has no room for what it sends.
    #[inline]
    fn is_awaited(&self) -> bool {
        self.reply != Reply::None && !self.parked && !self.is_held_back()
    }

    /// Whether only the application keeps the peer from sending, behind our end of another protocol.
    fn is_held_back(&self) -> bool {
        self.reply == Reply::RawEnded && matches!(self.input, Input::Raw) && self.body_paused
    }

    fn read_deadline(&self, link: &Link, limits: &Limits) -> Instant {
        match &self.input {
            _ if link.is_ending() => Instant::MAX,
            Input::Head if self.reply != Reply::None => Instant::MAX,
            Input::Head if self.head_begun => self.since + limits.header_timeout,
            // While a reply is in flight, or ready, only the write timeout may end the connection: closing it
            // because the peer is silent would cut off a reply that it is still reading.
            Input::Head | Input::Discarding(_) if link.has_unsent() => Instant::MAX,
            Input::Head if self.draining => self.rested_since(link) + DRAIN_QUIET,
            Input::Head if self.requests == 0 => self.since + limits.header_timeout,
            Input::Head => self.rested_since(link) + limits.idle_timeout,
            // The handler has not asked for the body yet; its absence is not the peer's fault.
            Input::Streaming(_) if self.body_paused || self.continue_owed => Instant::MAX,
            Input::Collecting | Input::Streaming(_) | Input::Discarding(_) => {
                (self.progress + limits.body_timeout).min(self.rate_deadline(limits))
            }
            Input::Raw | Input::RawEnded | Input::Closed => Instant::MAX,
        }
    }

    /// When the bytes received so far fall below the minimum rate.
    fn rate_deadline(&self, limits: &Limits) -> Instant {
        if limits.body_rate_min == 0 {
            return Instant::MAX;
        }
        let nanos = u128::from(self.body_bytes) * 1_000_000_000 / u128::from(limits.body_rate_min);
        let earned = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.since + limits.body_grace + earned
    }

    /// What the time `now` requires. After [`Expired::Reject`] a reply is owed.
    pub fn on_deadline(&mut self, link: &mut Link, now: Instant, limits: &Limits) -> Expired {
        match link.overdue(now, limits, self.is_awaited()) {
            Some(Overdue::Write) => return Expired::Reset,
            Some(Overdue::HalfClosed) => return Expired::HalfClosed,
            Some(Overdue::Linger) => return Expired::Close,
            None if now < self.read_deadline(link, limits) => return Expired::Early,
            None => {}
        }
        match self.input {
            Input::Head if self.head_begun => {
                self.refuse_head(Reject::HeaderTimeout);
                Expired::Reject(Reject::HeaderTimeout)
            }
            Input::Collecting => {
                self.refuse(Reject::BodyTimeout);
                Expired::Reject(Reject::BodyTimeout)
            }
            Input::Streaming(_) if self.reply == Reply::Owed => {
                self.fail_body(Reject::BodyTimeout);
                Expired::BodyFailed(Reject::BodyTimeout)
            }
            // The reply has begun or is complete: no status can be sent any more.
            Input::Streaming(_) => Expired::Reset,
            Input::Discarding(_) if self.reply != Reply::None => {
                self.give_up_input(link);
                Expired::Early
            }
            Input::Head | Input::Discarding(_) | Input::Raw | Input::RawEnded | Input::Closed => {
                Expired::Close
            }
        }
    }

    /// The progress of a streamed body that its handler waits for. `None` while the handler does not wait for the peer.
    pub fn upload(&self) -> Option<Upload> {
        let waits = matches!(self.input, Input::Streaming(_))
            && self.reply == Reply::Owed
            && !self.body_paused
            && !self.continue_owed;
        let (since, left) = (self.since, self.body_max);
        waits.then_some(Upload { since, left, shut_for: Duration::ZERO })
    }

    /// Ends a streamed body that came too slowly. The reply is still owed, and will be the last.
    pub fn end_upload(&mut self) {
        debug_assert!(self.upload().is_some(), "the handler waits for the peer");
        self.fail_body(Reject::BodyTimeout);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Next, Scratch};
    use super::*;
    use crate::http::{BodyPlan, Head, Payload};

    const DATE: &[u8; 29] = b"Thu, 01 Jan 1970 00:00:00 GMT";

    /// Purpose: an answer that is ready is sent, although a deadline passes at the same moment. The simulator
    /// found one lost: its machine was paused while an unread body was in flight.
    #[test]
    fn a_deadline_does_not_swallow_an_answer() {
        let (limits, start) = (Limits::default(), Instant::from_nanos(1));
        let (mut link, mut connection) = (Link::new(), Connection::new(start));
        let mut input: &[u8] = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n";
        let mut scratch = Scratch::default();
        let plan = |_: &Head<'_>| BodyPlan::Streamed(1000);
        let next = connection.next(&mut link, &mut input, &mut scratch, &limits, start, plan);
        assert!(matches!(next, Next::Request(_)));
        connection.drop_body(&limits, start);
        let late = start + limits.body_timeout + Duration::from_secs(1);
        connection.respond(&mut link, 200, DATE, &limits, late, |_| {}, Payload::Bytes(b"ok"));
        assert_eq!(connection.on_deadline(&mut link, late, &limits), Expired::Early);
        assert!(link.take_output(late).is_some());
        link.on_sent(late);
        assert_eq!(connection.on_deadline(&mut link, late, &limits), Expired::Close);
    }

    fn asked(limits: &Limits, now: Instant) -> (Link, Connection) {
        let (mut link, mut connection) = (Link::new(), Connection::new(now));
        let mut input: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        let mut scratch = Scratch::default();
        let plan = |_: &Head<'_>| BodyPlan::Whole(0);
        let next = connection.next(&mut link, &mut input, &mut scratch, limits, now, plan);
        assert!(matches!(next, Next::Request(_)));
        (link, connection)
    }

    /// Purpose: a peer that has finished sending gets its answer for as long as the bound says, and any
    /// progress of the answer restarts the bound.
    #[test]
    fn half_closed_is_bounded() {
        let (limits, start) = (Limits::default(), Instant::from_nanos(1));
        let bound = limits.half_closed_timeout;
        let tick = Duration::from_nanos(1);
        let (mut link, mut connection) = asked(&limits, start);
        assert_eq!(
            connection.deadline(&link, &limits),
            Instant::MAX,
            "a handler may take its time"
        );
        link.on_hang_up(start);
        assert_eq!(
            connection.on_deadline(&mut link, start + (bound - tick), &limits),
            Expired::Early
        );
        assert_eq!(connection.on_deadline(&mut link, start + bound, &limits), Expired::HalfClosed);

        let later = start + (bound - tick);
        let more =
            connection.respond(&mut link, 200, DATE, &limits, later, |_| {}, Payload::Stream(None));
        assert!(more);
        assert!(link.take_output(later).is_some());
        link.on_sent(later);
        assert_eq!(connection.on_deadline(&mut link, start + bound, &limits), Expired::Early);
        assert_eq!(connection.on_deadline(&mut link, later + bound, &limits), Expired::HalfClosed);
        assert_eq!(link.hung_up_at(), Some(start), "progress does not move when it hung up");
    }

    /// Purpose: a reply that is cut short is sent as far as it was encoded, and then closed.
    #[test]
    fn cut_short_sends_what_there_is() {
        let (limits, start) = (Limits::default(), Instant::from_nanos(1));
        let (mut link, mut connection) = asked(&limits, start);
        link.on_eof();
        connection.respond(&mut link, 200, DATE, &limits, start, |_| {}, Payload::Stream(None));
        connection.cut_short(&mut link);
        let (output, then) = link.take_output(start).expect("the head");
        assert!(output.bytes.starts_with(b"HTTP/1.1 200"));
        assert_eq!(then, crate::driver::Then::Close);
    }

    /// Purpose: an empty line after a body, which some clients send, does not make a connection busy: it has
    /// been idle since its answer was sent, and more such lines do not shorten that time. Once, idle
    /// connections with one such line each could not be closed to make room, and kept all other clients out.
    #[test]
    fn an_empty_line_is_idle() {
        let (limits, start) = (Limits::default(), Instant::from_nanos(1));
        let (mut link, mut scratch) = (Link::new(), Scratch::default());
        let mut connection = Connection::new(start);
        let input: &[u8] = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi\r\n";
        let plan = |_: &Head<'_>| BodyPlan::Whole(1000);
        let mut rest = input;
        let next = connection.next(&mut link, &mut rest, &mut scratch, &limits, start, plan);
        assert!(matches!(next, Next::Request(_)), "{next:?}");
        link.stash(rest);
        let body = crate::http::Payload::Bytes(b"ok");
        connection.respond(&mut link, 200, DATE, &limits, start, |_| {}, body);
        assert!(link.take_output(start).is_some());
        assert!(!connection.is_idle(&link), "its answer is on its way");
        link.on_sent(start);
        let carry = link.take_carry();
        let mut rest = carry.as_slice();
        let next = connection.next(&mut link, &mut rest, &mut scratch, &limits, start, plan);
        assert!(matches!(next, Next::Wait), "{next:?}");
        let rest_len = rest.len();
        link.stash_owned(carry, rest_len);
        assert_eq!(connection.idle_since(&link), Some(start));
        // The beginning of a request after it is not an empty line.
        let mut carry = link.take_carry();
        carry.extend_from_slice(b"G");
        let later = start + Duration::from_secs(1);
        let mut rest = carry.as_slice();
        let next = connection.next(&mut link, &mut rest, &mut scratch, &limits, later, plan);
        assert!(matches!(next, Next::Wait), "{next:?}");
        let rest_len = rest.len();
        link.stash_owned(carry, rest_len);
        assert_eq!(connection.idle_since(&link), None);
    }
}
