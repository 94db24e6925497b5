//! One connection, its request bodies: collected, streamed, discarded, or another protocol's bytes.

use alloc::boxed::Box;
use alloc::vec::Vec;

use bytes::Bytes;

use super::body::Decoder;
use super::state::{Connection, Input, Partial, Reply, Scratch};
use super::trailers;
use crate::http::{Body, Collected, Head, Limits, OwnedHead, Reject};
use crate::link::Link;
use crate::protocol::{Next, Request};
use crate::time::Instant;

impl Connection {
    /// Keeps the head of a request until its body, so far `body`, is complete.
    pub(super) fn collect(
        &mut self,
        link: &mut Link,
        head: &Head<'_>,
        body: &[u8],
        decoder: Decoder,
        max: u64,
        now: Instant,
    ) {
        // Copied, so that this connection does not keep the capacity that another body gave the scratch
        // buffer.
        let (head, body) = (OwnedHead::copy(head), Collected::of(body));
        let partial_len = body.len() as u64;
        self.partial = Some(Box::new(Partial { head, body, decoder }));
        self.input = Input::Collecting;
        self.body_max = max;
        self.begin_body(now);
        self.send_continue(link, now);
        // Bytes that came with the head have already arrived.
        self.body_bytes = partial_len;
    }

    /// Memory of the body that is being collected, in bytes; 0 if none is.
    #[inline]
    pub fn collected(&self) -> usize {
        match (&self.input, &self.partial) {
            (Input::Collecting, Some(partial)) => partial.body.allocated(),
            _ => 0,
        }
    }

    /// Whether the body of the current request is being collected.
    pub fn is_collecting(&self) -> bool {
        matches!(self.input, Input::Collecting)
    }

    /// The large body that is being collected: the memory for its next bytes, and the number of missing bytes.
    pub fn collecting(&mut self) -> Option<(&mut Vec<u8>, u64)> {
        let is_large = self.is_collecting() && self.large_at == self.requests;
        let partial = self.partial.as_deref_mut().filter(|_| is_large)?;
        let lacks = partial.decoder.remaining().filter(|&lacks| lacks > 0)?;
        Some((partial.body.growing(), lacks))
    }

    /// The next `len` bytes of that body have been written to its memory.
    pub fn took(&mut self, len: usize, now: Instant) {
        let partial = self.partial.as_mut().expect("Collecting has a partial request");
        partial.decoder.skip(len as u64);
        self.progress = now;
        self.body_bytes += len as u64;
    }

    /// Whether the current request, or else the last one, has a large body that is collected.
    #[inline]
    pub fn is_bulky(&self) -> bool {
        let reads = matches!(self.input, Input::Head | Input::Collecting);
        reads && self.requests != 0 && self.large_at == self.requests
    }

    /// The caller keeps the current request until its turn: its peer has sent all that is needed, and a body that is not
    /// whole is not read. Returns the body if it was collected.
    pub fn park(&mut self) -> Option<Bytes> {
        debug_assert!(self.reply == Reply::Owed, "a request was handed out");
        self.parked = true;
        self.body_paused = matches!(self.input, Input::Streaming(_));
        self.partial.take().map(|partial| partial.body.into_bytes())
    }

    /// The turn of the parked request has come.
    pub fn unpark(&mut self, link: &mut Link, now: Instant) {
        self.parked = false;
        self.pause_body(link, false, now);
        link.note_movement(now);
    }

    /// Drops a collected request after its handler has read it.
    pub fn forget_request(&mut self) {
        debug_assert!(!self.is_collecting(), "its handler has not seen it yet");
        self.partial = None;
    }

    /// The limit that was exceeded by a body refused as too large.
    pub fn body_max(&self) -> u64 {
        self.body_max
    }

    /// There is no memory for the body being collected: an error reply, the last one, is owed.
    pub fn refuse_body(&mut self) {
        debug_assert!(self.is_collecting(), "only a body that is collected is held");
        self.refuse(Reject::BodyTooLarge);
    }

    /// Bytes of memory it has allocated on the heap, without its link.
    pub fn allocated(&self) -> usize {
        let partial = self.partial.as_ref().map_or(0, |partial| {
            core::mem::size_of::<Partial>() + partial.head.allocated() + partial.body.allocated()
        });
        let trailers = match &self.input {
            Input::Streaming(decoder) => decoder.allocated(),
            _ => 0,
        };
        partial + trailers
    }

    /// [`Connection::next`] where no head is expected.
    pub(super) fn next_of_body<'r, 'i: 'r>(
        &'r mut self,
        link: &mut Link,
        input: &mut &'i [u8],
        scratch: &'r mut Scratch,
        limits: &Limits,
        now: Instant,
    ) -> Next<'r> {
        match self.input {
            Input::Head | Input::Discarding(_) => Next::Wait,
            Input::Collecting => self.next_collected(link, input, limits, now),
            Input::Streaming(_) => self.next_streamed(link, input, scratch, limits, now),
            Input::Raw if self.body_paused => Next::Wait,
            Input::Raw => match core::mem::take(input) {
                [] if link.is_eof() => {
                    self.input = Input::RawEnded;
                    link.note_movement(now);
                    Next::RawEnd
                }
                [] => Next::Wait,
                bytes => {
                    link.note_movement(now);
                    Next::Raw(bytes)
                }
            },
            Input::RawEnded | Input::Closed => {
                link.drop_input(input);
                Next::Wait
            }
        }
    }

    pub(super) fn next_collected<'r>(
        &'r mut self,
        link: &mut Link,
        input: &mut &[u8],
        limits: &Limits,
        now: Instant,
    ) -> Next<'r> {
        let partial = self.partial.as_mut().expect("Collecting has a partial request");
        let had = partial.body.len();
        let Partial { body, decoder, .. } = &mut **partial;
        if let Err(reject) = decoder.append(input, body.growing(), self.body_max, limits) {
            return self.refuse(reject);
        }
        if body.len() > had {
            self.progress = now;
            self.body_bytes += (body.len() - had) as u64;
        }
        if !decoder.is_done() {
            return if link.is_eof() { self.refuse(Reject::Truncated) } else { Next::Wait };
        }
        self.input = Input::Head;
        self.reply = Reply::Owed;
        let Partial { head, body, .. } = self.partial.as_deref_mut().expect("it was there above");
        Next::Request(Request { head: head.head(), body: Body::Collected(body.finish()) })
    }

    fn next_streamed<'r, 'i: 'r>(
        &mut self,
        link: &mut Link,
        input: &mut &'i [u8],
        scratch: &'r mut Scratch,
        limits: &Limits,
        now: Instant,
    ) -> Next<'r> {
        let Input::Streaming(decoder) = &mut self.input else {
            return Next::Wait;
        };
        // The end needs no room. If it were held back, it would wait for input that never comes.
        if self.body_paused && !decoder.is_done() {
            return Next::Wait;
        }
        let failure = match decoder.next(input, limits) {
            Ok(Some(piece)) => {
                // A peer that sends content does not wait for the 100.
                self.continue_owed = false;
                self.progress = now;
                link.note_movement(now);
                self.body_bytes += piece.len() as u64;
                self.body_max = match self.body_max.checked_sub(piece.len() as u64) {
                    Some(left) => left,
                    None => return self.fail_body(Reject::BodyTooLarge),
                };
                return Next::Body(piece);
            }
            Ok(None) if decoder.is_done() => {
                if let Some(lines) = decoder.take_trailers()
                    && let Some(fields) = trailers::read(&lines, scratch)
                {
                    return Next::Trailers(fields); // And the end, when asked again.
                }
                self.input = Input::Head;
                self.body_paused = false;
                return Next::BodyEnd;
            }
            Ok(None) if !link.is_eof() => return Next::Wait,
            Ok(None) => Reject::Truncated,
            Err(reject) => reject,
        };
        self.fail_body(failure)
    }

    /// A streamed body will not be completed: the reply, owed or in progress, is the last.
    pub(super) fn fail_body<'i>(&mut self, reject: Reject) -> Next<'i> {
        self.input = Input::Closed;
        self.persistent = false;
        self.last = true;
        self.continue_owed = false;
        Next::BodyFailed(reject)
    }

    /// Drops the rest of an unread body, so that the next request can be found behind it.
    pub(super) fn discard(
        &mut self,
        link: &mut Link,
        input: &mut &[u8],
        limits: &Limits,
        now: Instant,
    ) {
        let Input::Discarding(decoder) = &mut self.input else {
            return;
        };
        loop {
            match decoder.next(input, limits) {
                Ok(Some(piece)) => {
                    self.progress = now;
                    self.body_bytes += piece.len() as u64;
                    if self.body_bytes > limits.discard_max {
                        break;
                    }
                }
                Ok(None) if decoder.is_done() => {
                    self.input = Input::Head;
                    self.since = now;
                    return;
                }
                Ok(None) if !link.is_eof() => return,
                Ok(None) | Err(_) => break,
            }
        }
        *input = &[];
        self.give_up_input(link);
    }

    /// Input behind a body that cannot be discarded is lost: the last reply given, or else the one owed or in
    /// progress, ends the connection.
    pub(super) fn give_up_input(&mut self, link: &mut Link) {
        if self.reply == Reply::None {
            self.end(link, false);
        } else {
            self.input = Input::Closed;
            self.last = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Next, Scratch};
    use super::*;
    use crate::http::BodyPlan;

    /// Purpose: the rest of a large body may come another way: it lacks exactly what is left of it, its deadlines see
    /// progress, and the request is complete with its last byte. Small bodies and chunks come as always.
    #[test]
    fn a_large_body_lacks_what_is_left() {
        let (start, mut scratch) = (Instant::from_nanos(1), Scratch::default());
        let limits = Limits { large_body: 8, ..Limits::default() };
        let (mut link, mut connection) = (Link::new(), Connection::new(start));
        let plan = |_: &Head<'_>| BodyPlan::Whole(1000);
        assert!(!connection.is_bulky(), "there was no request");

        let mut input: &[u8] = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\nabc";
        let next = connection.next(&mut link, &mut input, &mut scratch, &limits, start, plan);
        assert!(matches!(next, Next::Wait), "{next:?}");
        let later = start + limits.body_timeout;
        for piece in [&b"de"[..], b"fgh"] {
            let (body, lacks) = connection.collecting().expect("it is large, and not whole");
            assert_eq!(lacks, 8 - body.len() as u64);
            body.extend_from_slice(piece);
            connection.took(piece.len(), later);
        }
        assert_eq!((connection.progress, connection.body_bytes), (later, 8));
        assert!(connection.collecting().is_none(), "it lacks nothing");
        let next = connection.next(&mut link, &mut (&[][..]), &mut scratch, &limits, later, plan);
        let Next::Request(request) = next else { panic!("it is complete: {next:?}") };
        assert_eq!(request.body.whole(), Some(&b"abcdefgh"[..]));
        connection.reply = Reply::None;
        assert!(connection.is_bulky(), "the next body may be as large");

        for small in ["Content-Length: 7\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n9\r\nabc"]
        {
            let small = [&b"POST / HTTP/1.1\r\nHost: h\r\n"[..], small.as_bytes()].concat();
            let mut connection = Connection::new(start);
            let mut input = small.as_slice();
            let next = connection.next(&mut link, &mut input, &mut scratch, &limits, start, plan);
            assert!(matches!(next, Next::Wait), "{next:?}");
            assert!(connection.is_collecting() && connection.collecting().is_none());
            assert!(!connection.is_bulky());
        }
    }
}
