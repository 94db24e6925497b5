//! What waits in the queue? A request with a copy of its head, and input behind it.

use bytes::Bytes;
use highwater_core::http::{Body, OwnedHead};
use highwater_core::time::Instant;

use super::protocol::Request;
use crate::admission::queue::Class;
use crate::app::{Panic, Routed};

/// An exchange's time in the queue.
pub(super) struct InQueue {
    /// The request, while it waits.
    pub(super) waiting: Option<Box<Waiting>>,
    /// Among which requests it waits.
    pub(super) class: Class,
    /// When the first and the last input came that are not yet counted as ready: while one request waits,
    /// others may come behind it. `MAX` if none has.
    next_ready: Instant,
    last_ready: Instant,
}

impl InQueue {
    /// Nothing waits.
    pub(super) const NOT: InQueue = InQueue {
        waiting: None,
        class: Class::NeverShed,
        next_ready: Instant::MAX,
        last_ready: Instant::MAX,
    };

    /// Input came while the request waited in the queue.
    pub(super) fn note_more(&mut self, now: Instant) {
        self.next_ready = self.next_ready.min(now);
        self.last_ready = now;
    }

    /// The request that waited has its turn; it was ready at `ready`. Returns when the input behind it was
    /// ready: that is known of the first and the last of it only, and what came in between counts as last.
    pub(super) fn take_next_ready(&mut self, ready: Instant) -> Instant {
        if self.next_ready == Instant::MAX {
            return ready;
        }
        let more = self.last_ready > self.next_ready;
        let after = if more { self.last_ready } else { Instant::MAX };
        std::mem::replace(&mut self.next_ready, after)
    }
}

/// A request that waits for its turn: a copy of it, parsed and routed, so that the bytes it came in are free.
pub(super) struct Waiting {
    head: OwnedHead,
    /// Where its path parameters are, and which parts of its head were replaced.
    pub(super) routed: Routed,
    /// The content; `None` if it is streamed, and waits to be read.
    pub(super) body: Option<Bytes>,
    /// The application panicked when it was asked whose the request is.
    pub(super) panic: Option<Panic>,
    /// It found no room in the queue and is refused when its turn comes.
    pub(super) is_displaced: bool,
    /// There was no memory for its content: it is refused when its turn comes.
    pub(super) lacks_memory: bool,
}

/// Records that are kept for the next requests that wait, and the size beyond which one is not kept.
const SPARE_MAX: usize = 64;
const SPARE_SIZE_MAX: usize = 4 * 1024;

/// Records of requests that have waited. During an overload nearly all requests wait, and most of them are refused: without
/// new memory, a refusal costs less.
#[derive(Default)]
pub(super) struct SpareRecords(
    #[expect(clippy::vec_box, reason = "they move as pointers")] Vec<Box<Waiting>>,
);

impl SpareRecords {
    /// A copy of `request`; of its content, too, if `with_body`.
    #[cold]
    pub(super) fn copy(
        &mut self,
        request: &Request<'_>,
        routed: &Routed,
        with_body: bool,
    ) -> Box<Waiting> {
        let body = match request.body {
            Body::Whole(bytes) if with_body => Some(Bytes::copy_from_slice(bytes)),
            Body::Collected(bytes) if with_body => Some(bytes.clone()),
            Body::Whole(_) | Body::Collected(_) => Some(Bytes::new()),
            Body::Streamed => None,
        };
        let routed = routed.clone();
        let Some(mut record) = self.0.pop() else {
            let head = OwnedHead::copy(&request.head);
            let (panic, is_displaced, lacks_memory) = (None, false, false);
            return Box::new(Waiting { head, routed, body, panic, is_displaced, lacks_memory });
        };
        record.head.copy_from(&request.head);
        (record.routed, record.body) = (routed, body);
        (record.is_displaced, record.lacks_memory) = (false, false);
        record
    }

    /// Keeps the record of a request that has waited.
    pub(super) fn keep(&mut self, mut record: Box<Waiting>) {
        if self.0.len() < SPARE_MAX && record.head.allocated() <= SPARE_SIZE_MAX {
            (record.routed.replaced, record.body, record.panic) = (None, None, None);
            self.0.push(record);
        }
    }
}

impl Waiting {
    /// The request.
    pub(super) fn request(&self) -> Request<'_> {
        let body = self.body.as_ref().map_or(Body::Streamed, Body::Collected);
        Request { head: self.head.head(), body }
    }

    /// Bytes of memory it has allocated.
    #[cfg(feature = "sim")]
    pub(super) fn allocated(&self) -> usize {
        size_of::<Self>() + self.head.allocated() + self.body.as_ref().map_or(0, Bytes::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::guarded;
    use highwater_core::http::{FieldWriter, OwnedFields};

    /// Purpose: a record that is used again has nothing of the request that it had before.
    #[test]
    fn records_are_used_again() {
        let named = |target: &str, name| {
            let mut fields = OwnedFields::default();
            fields.push(name, target.as_bytes());
            OwnedHead::new("GET", target, fields).expect("it is valid")
        };
        let (first, second) = (named("/the/first?one", "x-first"), named("/b", "x-b"));
        let mut spare = SpareRecords::default();
        let routed = Routed::default();
        let request = Request { head: first.head(), body: Body::Whole(b"content") };
        let mut record = spare.copy(&request, &routed, true);
        assert_eq!(record.body.as_deref(), Some(&b"content"[..]));
        record.panic = guarded(|| panic!("asked whose it is")).err();
        let at = &raw const *record;
        spare.keep(record);
        let request = Request { head: second.head(), body: Body::Streamed };
        let record = spare.copy(&request, &routed, true);
        assert_eq!(&raw const *record, at, "it is the same memory");
        assert!(record.body.is_none() && record.panic.is_none());
        let head = record.request().head;
        assert_eq!((head.target(), head.path(), head.query()), ("/b", "/b", None));
        assert_eq!(head.headers().iter().collect::<Vec<_>>(), [("x-b", &b"/b"[..])]);
        let another = spare.copy(&request, &routed, true);
        assert_ne!(&raw const *another, at, "that one is taken");
    }

    /// Purpose: what came behind a request that waited is ready when it came: the first of it, then the last.
    #[test]
    fn input_behind_a_waiting_request_keeps_its_time() {
        let at = Instant::from_nanos;
        let mut queue = InQueue::NOT;
        assert_eq!(queue.take_next_ready(at(5)), at(5), "nothing came behind it");
        for now in [10, 20, 30] {
            queue.note_more(at(now));
        }
        assert_eq!(queue.take_next_ready(at(5)), at(10));
        assert_eq!(queue.take_next_ready(at(10)), at(30));
        assert_eq!(queue.take_next_ready(at(30)), at(30));
    }
}
