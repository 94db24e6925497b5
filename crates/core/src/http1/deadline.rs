//! The deadlines of one connection: by when something must happen, and what follows if it does not.
//!
//! Deadlines are data. The worker keeps them in a timer wheel and reads the deadline again when one fires; a
//! deadline that moved meanwhile costs nothing.

use core::time::Duration;

use super::state::{Connection, Ending, Expired, Input, Reply};
use crate::http::{Limits, Reject};
use crate::time::Instant;

/// How long an idle connection stays readable once draining has begun. A request already on its way
/// is still answered; closing at once would lose it.
const DRAIN_QUIET: Duration = Duration::from_millis(250);

impl Connection {
    /// When [`Connection::on_deadline`] should be called; [`Instant::MAX`] for never.
    #[inline]
    pub fn deadline(&self, limits: &Limits) -> Instant {
        let write = if self.writing_since == Instant::MAX {
            Instant::MAX
        } else {
            self.writing_since + limits.write_timeout
        };
        write.min(self.read_deadline(limits)).min(self.half_closed_deadline(limits))
    }

    fn read_deadline(&self, limits: &Limits) -> Instant {
        // While a reply is in flight, or ready, only the write timeout may end the connection: closing it
        // because the peer is silent would cut off a reply that it is still reading.
        let sending =
            self.writing_since != Instant::MAX || !self.output.is_empty() || !self.tail.is_empty();
        match (&self.input, self.ending) {
            (_, Ending::Lingering) if sending => Instant::MAX,
            (_, Ending::Lingering) => self.since + limits.linger_timeout,
            (_, Ending::Close | Ending::Linger) => Instant::MAX,
            // The server must continue; the peer has done its part.
            _ if self.is_held() => Instant::MAX,
            (Input::Head, _) if self.reply != Reply::None => Instant::MAX,
            (Input::Head, _) if self.head_begun => self.since + limits.header_timeout,
            (Input::Head | Input::Discarding(_), _) if sending => Instant::MAX,
            (Input::Head, _) if self.draining => self.since + DRAIN_QUIET,
            (Input::Head, _) if self.requests == 0 => self.since + limits.header_timeout,
            (Input::Head, _) => self.since + limits.idle_timeout,
            // The handler has not asked for the body yet; its absence is not the peer's fault.
            (Input::Streaming(_), _) if self.body_paused || self.continue_owed => Instant::MAX,
            (Input::Collecting | Input::Streaming(_) | Input::Discarding(_), _) => {
                (self.progress + limits.body_timeout).min(self.rate_deadline(limits))
            }
            (Input::Raw | Input::Closed, _) => Instant::MAX,
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
    pub fn on_deadline(&mut self, now: Instant, limits: &Limits) -> Expired {
        if now < self.deadline(limits) {
            return Expired::Early;
        }
        if self.writing_since != Instant::MAX && now >= self.writing_since + limits.write_timeout {
            return Expired::Reset;
        }
        if now >= self.half_closed_deadline(limits) {
            return Expired::HalfClosed;
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
                self.give_up_input();
                Expired::Early
            }
            Input::Head | Input::Discarding(_) | Input::Raw | Input::Closed => Expired::Close,
        }
    }

    /// The progress of a streamed body that its handler waits for: since when it has waited without a pause,
    /// and how many bytes the route still accepts. `None` while the handler does not wait for the peer.
    pub fn upload(&self) -> Option<(Instant, u64)> {
        let waits = matches!(self.input, Input::Streaming(_))
            && self.reply == Reply::Owed
            && !self.body_paused
            && !self.continue_owed;
        waits.then_some((self.since, self.body_max))
    }

    /// Ends a streamed body that came too slowly. The reply is still owed, and will be the last.
    pub fn end_upload(&mut self) {
        debug_assert!(self.upload().is_some(), "the handler waits for the peer");
        self.fail_body(Reject::BodyTimeout);
    }

    /// Whether a lingering close has read as much as it may.
    pub fn has_lingered_enough(&self, limits: &Limits) -> bool {
        self.ending == Ending::Lingering && self.body_bytes > limits.discard_max
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Next, Scratch};
    use super::*;
    use crate::http::{BodyPlan, Head, Payload};

    /// Purpose: an answer that is ready is sent, although a deadline passes at the same moment. The simulator
    /// found one lost: its machine was paused while an unread body was in flight.
    #[test]
    fn a_deadline_does_not_swallow_an_answer() {
        let (limits, start) = (Limits::default(), Instant::from_nanos(1));
        let mut connection = Connection::new(start);
        let mut input: &[u8] = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n";
        let mut scratch = Scratch::default();
        let plan = |_: &Head<'_>| BodyPlan::Streamed(1000);
        let next = connection.next(&mut input, &mut scratch, &limits, start, plan);
        assert!(matches!(next, Next::Request(_)));
        connection.drop_body(&limits, start);
        let late = start + limits.body_timeout + Duration::from_secs(1);
        let date = b"Thu, 01 Jan 1970 00:00:00 GMT";
        connection.respond(200, date, &limits, late, |_| {}, Payload::Bytes(b"ok"));
        assert_eq!(connection.on_deadline(late, &limits), Expired::Early);
        assert!(connection.take_output(late).is_some());
        connection.on_sent(late);
        assert_eq!(connection.on_deadline(late, &limits), Expired::Close);
    }
}
