//! One connection and time: when something must have happened, and what follows if it has not.
//!
//! Deadlines are data. The worker keeps them in a timer wheel and asks again when one fires; a
//! deadline that has moved in the meantime costs nothing.

use core::time::Duration;

use super::connection::{Connection, Ending, Expired, Input, Reply};
use super::error::Reject;
use super::limits::Limits;
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
        // While a reply is on its way, or about to be, only the write timeout may end the connection: closing for
        // the peer's silence would cut off what it has not finished reading.
        let sending =
            self.writing_since != Instant::MAX || !self.output.is_empty() || !self.tail.is_empty();
        match (&self.input, self.ending) {
            (_, Ending::Lingering) if sending => Instant::MAX,
            (_, Ending::Lingering) => self.since + limits.linger_timeout,
            (_, Ending::Close | Ending::Linger) => Instant::MAX,
            // It is ours to go on; the peer has done its part.
            _ if self.held => Instant::MAX,
            (Input::Head, _) if self.reply != Reply::None => Instant::MAX,
            (Input::Head, _) if self.head_begun => self.since + limits.header_timeout,
            (Input::Head | Input::Discarding(_), _) if sending => Instant::MAX,
            (Input::Head, _) if self.draining => self.since + DRAIN_QUIET,
            (Input::Head, _) if self.requests == 0 => self.since + limits.header_timeout,
            (Input::Head, _) => self.since + limits.idle_timeout,
            // The handler has not asked for the body yet; the peer cannot be blamed for its absence.
            (Input::Streaming(_), _) if self.body_paused || self.continue_owed => Instant::MAX,
            (Input::Collecting | Input::Streaming(_) | Input::Discarding(_), _) => {
                (self.progress + limits.body_timeout).min(self.rate_deadline(limits))
            }
            (Input::Raw | Input::Closed, _) => Instant::MAX,
        }
    }

    /// When the bytes received so far will no longer make the least rate.
    fn rate_deadline(&self, limits: &Limits) -> Instant {
        if limits.body_rate_min == 0 {
            return Instant::MAX;
        }
        let nanos = u128::from(self.body_bytes) * 1_000_000_000 / u128::from(limits.body_rate_min);
        let earned = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.since + limits.body_grace + earned
    }

    /// What follows from the time `now`. After [`Expired::Reject`] a reply is owed.
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
            // The reply is under way or given already: no status can tell the peer any more.
            Input::Streaming(_) => Expired::Reset,
            Input::Discarding(_) if self.reply != Reply::None => {
                self.give_up_input();
                Expired::Early
            }
            Input::Head | Input::Discarding(_) | Input::Raw | Input::Closed => Expired::Close,
        }
    }

    /// How the peer gets on with a streamed body that its handler waits for: since when that has been so
    /// without a pause, and how many bytes the route would still take. `None` while it is not the peer who
    /// is waited for.
    pub fn upload(&self) -> Option<(Instant, u64)> {
        let waits = matches!(self.input, Input::Streaming(_))
            && self.reply == Reply::Owed
            && !self.body_paused
            && !self.continue_owed;
        waits.then_some((self.since, self.body_max))
    }

    /// Ends a streamed body as one that came too slowly. The reply is still owed, and will be the last.
    pub fn end_upload(&mut self) {
        debug_assert!(self.upload().is_some(), "the peer is what is waited for");
        self.fail_body(Reject::BodyTimeout);
    }

    /// Whether a lingering close has read all it is willing to.
    pub fn has_lingered_enough(&self, limits: &Limits) -> bool {
        self.ending == Ending::Lingering && self.body_bytes > limits.discard_max
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BodyPlan, Head, Next, Payload, Scratch};
    use super::*;

    /// Purpose: an answer that is ready is sent, though a deadline has passed at the same moment. The
    /// simulator found one lost: its machine stood still while an unwanted body was on its way.
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
