//! One connection whose next request is queued: a view of its head before it is begun.

use super::parse;
use super::state::{Connection, Input, Reply, Scratch};
use crate::http::{Head, Limits};
use crate::link::Link;
use crate::time::Instant;

impl Connection {
    /// Whether [`Connection::next`] might hand out a request.
    pub fn awaits_request(&self, link: &Link, limits: &Limits) -> bool {
        matches!(self.input, Input::Head | Input::Collecting)
            && self.reply == Reply::None
            && !link.is_full(limits)
    }

    /// The head of the request in `input`, together with earlier input. `None` if it is incomplete or
    /// invalid: then [`Connection::next`] will not hand out a request. Takes nothing and changes nothing.
    pub fn peek<'r>(
        &'r self,
        input: &'r [u8],
        scratch: &'r mut Scratch,
        limits: &Limits,
    ) -> Option<Head<'r>> {
        let bytes = match (&self.input, &self.partial) {
            (Input::Collecting, Some(partial)) => partial.head.as_slice(),
            (Input::Head, _) => input,
            _ => return None,
        };
        let parsed = parse::parse(bytes, limits, &mut scratch.spans).ok().flatten()?;
        let (head, _) = bytes.split_at(parsed.len);
        Some(parsed.head(head, &scratch.spans))
    }

    /// Whether the next request is held back.
    #[inline]
    pub(super) fn is_held(&self) -> bool {
        self.held_since != Instant::MAX
    }

    /// Holds the next request back, or stops holding it. While it is held, the peer's deadlines are
    /// suspended: they are later by the time held, and bytes already received still count.
    pub fn hold(&mut self, link: &mut Link, held: bool, now: Instant) {
        match (self.is_held(), held) {
            (false, true) => self.held_since = now,
            (true, false) => {
                let rested = now - self.held_since;
                self.since = now.min(self.since + rested);
                self.progress = now.min(self.progress + rested);
                self.held_since = Instant::MAX;
                link.note_movement(now);
            }
            (true, true) | (false, false) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::super::Next;
    use super::*;
    use crate::http::BodyPlan;

    /// Purpose: a body's deadlines are suspended while its request is queued, and are not restarted. Once,
    /// each queued piece of a body restarted its minimum rate, so a body in small pieces could take for ever.
    #[test]
    fn a_held_body_keeps_its_deadlines() {
        let limits = Limits { body_rate_min: 100, ..Limits::default() };
        let (mut now, mut scratch) = (Instant::from_nanos(1), Scratch::default());
        let (mut link, mut connection) = (Link::new(), Connection::new(now));
        let plan = |_: &Head<'_>| BodyPlan::Whole(1000);
        let mut give =
            |link: &mut Link, connection: &mut Connection, mut input: &[u8], now: Instant| {
                let next = connection.next(link, &mut input, &mut scratch, &limits, now, plan);
                assert!(matches!(next, Next::Wait), "{next:?}");
            };
        give(
            &mut link,
            &mut connection,
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 900\r\n\r\n",
            now,
        );
        let alone = connection.deadline(&link, &limits);
        let mut held = Duration::ZERO;
        for _ in 0..3 {
            connection.hold(&mut link, true, now);
            assert_eq!(
                connection.deadline(&link, &limits),
                Instant::MAX,
                "the server must continue"
            );
            now += Duration::from_secs(40);
            held += Duration::from_secs(40);
            connection.hold(&mut link, true, now);
            connection.hold(&mut link, false, now);
            connection.hold(&mut link, false, now);
            assert_eq!(connection.deadline(&link, &limits), alone + held);
        }
        // Ten bytes per second instead of a hundred: each piece is queued for a moment.
        let mut received = 0;
        while now < connection.deadline(&link, &limits) {
            give(&mut link, &mut connection, &[b'x'; 10], now);
            received += 10;
            connection.hold(&mut link, true, now);
            now += Duration::from_secs(1);
            held += Duration::from_secs(1);
            connection.hold(&mut link, false, now);
            now += Duration::from_secs(1);
            assert!(received < 900, "it is as slow as that");
        }
        let earned = Duration::from_millis(10 * received);
        assert_eq!(connection.deadline(&link, &limits), alone + held + earned);
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
        let date = b"Thu, 01 Jan 1970 00:00:00 GMT";
        let body = crate::http::Payload::Bytes(b"ok");
        connection.respond(&mut link, 200, date, &limits, start, |_| {}, body);
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
