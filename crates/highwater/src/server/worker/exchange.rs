//! An exchange: one request and its answer, and all work in progress for them.
//!
//! Everything that waits, wakes a worker, stands in a queue or is refused names an exchange by its
//! [`ExchangeId`]. HTTP/1.1 answers one request of a connection at a time: such a connection has one record,
//! which its requests use one after the other, so that the waker of its tasks is made once. A protocol with
//! several requests at a time takes a record for each of its streams.

use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use highwater_core::driver::{ConnId, Reading};
use highwater_core::http::{Head, Method};
use highwater_core::protocol;
use highwater_core::time::Instant;

use super::protocol::StreamId;
use super::waiting::InQueue;
use crate::admission::route_limit::Permit;
use crate::admission::worker::Demand;
use crate::app::{
    App, BodyFeed, ByteStream, Disconnected, Error, GuardedFuture, OwnedRequest, Panic, Replaced,
    Response, Target,
};
use crate::server::pool::Ticket;

/// If a handler's feed was empty at the end of this many turns in a row, the handler keeps up with its
/// client: its body is then read as it arrives. Before that, each delivery costs one command.
const KEPT_UP_MIN: u8 = 8;

/// Names one use of an exchange's record: its index in the low half, its generation in the high half. An id
/// never comes back, so a late wake-up cannot reach an exchange of another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ExchangeId(pub(super) u64);

impl ExchangeId {
    pub(super) fn new(index: u32, generation: u32) -> Self {
        ExchangeId(u64::from(generation) << 32 | u64::from(index))
    }

    pub(super) fn index(self) -> usize {
        self.0 as u32 as usize
    }
}

/// What waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// The request of an exchange.
    Exchange(ExchangeId),
    /// The handshake of a connection, named by the exchange that the connection always has.
    Handshake(ExchangeId),
}

impl Item {
    /// The exchange that names it.
    pub(super) fn exchange(self) -> ExchangeId {
        match self {
            Item::Exchange(id) | Item::Handshake(id) => id,
        }
    }
}

/// What an exchange waits for, if its handler did not answer at once.
pub(super) enum Task {
    /// The response, from a future that is polled here.
    Answer(GuardedFuture<Response>),
    /// The response, from the worker's job of this number on the pool. If the ticket is dropped before the
    /// job was begun, it is not begun; without a ticket it runs in any case.
    Offloaded { job: u64, _ticket: Option<Ticket> },
    /// Nothing: the connection speaks another protocol, by this future.
    Upgraded(GuardedFuture<Result<(), Panic>>),
}

/// A request's method; and the id it was sent with, if its handler answers later or has panicked. Without an
/// id once it is answered.
pub(super) struct Named {
    pub(super) method: Method,
    pub(super) sent_id: Option<Arc<[u8]>>,
}

impl Named {
    const NONE: Named = Named { method: Method::Other, sent_id: None };

    /// Those of the request with this head.
    pub(super) fn of(head: &Head<'_>) -> Self {
        Named { method: head.method(), sent_id: head.request_id().map(Arc::from) }
    }
}

/// Progress of an answer whose end is reported to layers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answered {
    /// 0 while there is no answer.
    pub(super) status: u16,
    /// Bytes of it that are encoded.
    pub(super) bytes: u64,
}

/// What an exchange is counted for, until it is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    /// Bytes against the memory for bodies: of a body that is collected, or set aside for one that is streamed.
    pub(super) charged: usize,
    /// The same of streamed content that waits for its handler.
    pub(super) held: usize,
    /// It waits for a future.
    pub(super) is_awaiting: bool,
    /// Its demand on its worker.
    pub(super) demand: Demand,
}

impl Counted {
    const NONE: Counted = Counted { charged: 0, held: 0, is_awaiting: false, demand: Demand::None };
}

/// One request and its answer.
pub(super) struct Exchange {
    // The request.
    /// What it was routed to; `None` before the first request, and for input that was not a valid request.
    pub(super) target: Option<Target>,
    /// What the latest head was routed to. Until its content is complete, that is not yet the request.
    pub(super) found: Target,
    /// What is replaced in that head; mostly nothing.
    pub(super) replaced: Option<Arc<Replaced>>,
    /// For the log, should it fail.
    pub(super) named: Named,
    /// Under which index it is counted.
    pub(super) endpoint: u16,
    /// What it asks to go on with, by `Upgrade` or an extended CONNECT; mostly nothing.
    pub(super) offered: Option<Box<Offered>>,
    /// When it could have been started.
    pub(super) started: Instant,
    /// The client's own deadline for the answer; `MAX` if it sent none.
    pub(super) deadline: Instant,
    /// Its place within its route's limit.
    pub(super) permit: Option<Permit>,
    /// A copy of the request for layers that need it after its bytes are dropped; mostly nothing.
    pub(super) known: Option<OwnedRequest>,
    // Its content.
    /// Where the pieces of a streamed request body go, or what comes on an upgraded connection: until nobody reads it.
    pub(super) feed: Option<BodyFeed>,
    /// At the end of how many turns in a row the feed was empty.
    kept_up: u8,
    /// The state of an upload that holds a place within its route's limit.
    pub(super) upload: Upload,
    // Its answer.
    pub(super) task: Option<Task>,
    /// When the handler must have answered.
    pub(super) task_deadline: Instant,
    /// The content of a streamed answer, as far as it is not encoded yet.
    pub(super) content: Option<ByteStream>,
    /// The content has no end that its client waits for: an event stream, or an upgraded protocol that no
    /// longer reads. It ends with its client.
    pub(super) is_endless: bool,
    /// Progress of the answer, for layers that observe how it ended.
    pub(super) answer: Answered,
    /// What it is counted for.
    pub(super) counted: Counted,
    /// Notifies its handler that the client has gone; made on demand.
    pub(super) disconnected: OnceLock<Disconnected>,
    /// The waker of its tasks; made once per record, if at all.
    pub(super) waker: Option<Waker>,
    /// Its time in the queue.
    pub(super) queue: InQueue,
}

/// The protocols that a request asks to go on with.
#[derive(Debug)]
pub(super) struct Offered {
    /// In a list.
    pub(super) protocols: Vec<u8>,
    /// It has content, which ends before they begin.
    pub(super) has_content: bool,
}

impl Exchange {
    fn new() -> Self {
        Exchange {
            target: None,
            found: Target::NotFound(0),
            replaced: None,
            named: Named::NONE,
            endpoint: 0,
            offered: None,
            started: Instant::ZERO,
            deadline: Instant::MAX,
            permit: None,
            known: None,
            answer: Answered::default(),
            feed: None,
            kept_up: 0,
            upload: Upload::NONE,
            task: None,
            task_deadline: Instant::MAX,
            content: None,
            is_endless: false,
            counted: Counted::NONE,
            disconnected: OnceLock::new(),
            waker: None,
            queue: InQueue::NOT,
        }
    }

    /// Whether its request waits in the queue.
    #[inline]
    pub(super) fn is_queued(&self) -> bool {
        self.queue.waiting.is_some()
    }

    /// Whether its request waits for the worker's time, and will get some.
    #[inline]
    pub(super) fn wants_time(&self) -> bool {
        self.queue.waiting.as_ref().is_some_and(|waiting| !waiting.is_displaced)
    }

    /// A body begins to be fed to the handler.
    pub(super) fn begin_feed(&mut self, feed: BodyFeed) {
        self.feed = Some(feed);
        self.kept_up = 0;
    }

    /// The request is answered: if its body outlives its handler, it ends here, and does not get what the next request brings.
    #[inline]
    pub(super) fn end_feed(&mut self) {
        if self.feed.is_some() {
            self.feed = None;
        }
    }

    /// How to read input that is needed. A feed must not get much more than its handler takes, so a body is
    /// read one delivery at a time until its handler has shown that it keeps up.
    #[inline]
    pub(super) fn reading_wanted(&mut self) -> Reading {
        let Some(feed) = &self.feed else { return Reading::Stream };
        self.kept_up = if feed.is_drained() { self.kept_up.saturating_add(1) } else { 0 };
        if self.kept_up >= KEPT_UP_MIN { Reading::Stream } else { Reading::Once }
    }

    /// So many bytes of streamed content are encoded. They count for layers that observe how the answer ends; without one,
    /// nothing would set the count back before the next answer.
    #[inline]
    pub(super) fn note_content(&mut self, bytes: usize) {
        if self.known.is_some() {
            self.answer.bytes += bytes as u64;
        }
    }

    /// Takes the future of a detached handler, which runs on without its client.
    pub(super) fn take_future(&mut self) -> Option<GuardedFuture<Response>> {
        match self.task.take() {
            Some(Task::Answer(future)) => Some(future),
            other => {
                self.task = other;
                None
            }
        }
    }

    /// The task is over: it has answered, or its answer is no longer wanted.
    pub(super) fn end_task(&mut self) {
        self.task = None;
        self.permit = None;
        self.task_deadline = Instant::MAX;
    }

    /// The input is not a valid request; it is counted as a request for `endpoint`.
    pub(super) fn be_no_request(&mut self, endpoint: u16, now: Instant) {
        self.target = None;
        self.named.method = Method::Other;
        self.endpoint = endpoint;
        self.started = now;
    }

    /// An error of the server's own about the request, in the shape of the application's errors.
    pub(super) fn fail(&self, app: &App, error: Error) -> Response {
        match &self.known {
            Some(known) => app.fail_request(known, error),
            None => app.fail(self.target, error),
        }
    }

    /// Whether it waits for a future.
    #[inline]
    pub(super) fn awaits_future(&self) -> bool {
        matches!(self.task, Some(Task::Answer(_) | Task::Upgraded(_)))
    }

    /// Whether the answer of job `number` is awaited.
    pub(super) fn awaits_job(&self, number: u64) -> bool {
        matches!(self.task, Some(Task::Offloaded { job, .. }) if job == number)
    }

    /// Whether work is in progress: a task, an answer's or a request's content.
    #[cfg(feature = "sim")]
    pub(super) fn is_busy(&self) -> bool {
        self.task.is_some()
            || self.content.is_some()
            || self.feed.is_some()
            || self.counted.is_awaiting
    }

    /// When its next deadline is due.
    #[inline]
    pub(super) fn due(&self) -> Instant {
        self.task_deadline.min(self.upload.due)
    }

    /// The deadline that the client named ends `by` earlier.
    pub(super) fn bring_forward(&mut self, by: Duration) {
        self.deadline = self.deadline.checked_sub(by).unwrap_or(Instant::ZERO);
        if self.task_deadline != Instant::MAX {
            self.task_deadline = self.task_deadline.min(self.deadline);
        }
    }
}

/// The state of an upload when it was last judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Upload {
    /// When to judge it next; `MAX` for never.
    pub(super) due: Instant,
    /// When it was last judged, and what its protocol reported then; `None` if the handler was not waiting for its client.
    pub(super) seen: Option<(Instant, protocol::Upload)>,
}

impl Upload {
    /// No upload to judge.
    pub(super) const NONE: Upload = Upload { due: Instant::MAX, seen: None };
}

/// One use of a record after the other.
struct Record {
    /// The connection and the stream that it is used by.
    connection: ConnId,
    stream: StreamId,
    generation: u32,
    exchange: Exchange,
}

/// The records of a worker's exchanges.
#[derive(Default)]
pub(super) struct Exchanges {
    records: Vec<Record>,
    free: Vec<u32>,
}

impl Exchanges {
    /// Takes a record for `stream` of `connection`, and returns its index.
    #[inline]
    pub(super) fn open(&mut self, connection: ConnId, stream: StreamId) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            let exchange = Exchange::new();
            self.records.push(Record { connection, stream, generation: 0, exchange });
            (self.records.len() - 1) as u32
        });
        let record = &mut self.records[index as usize];
        (record.connection, record.stream) = (connection, stream);
        index
    }

    /// The record at `index` is used by `stream` of its connection.
    pub(super) fn rename(&mut self, index: u32, stream: StreamId) {
        self.records[index as usize].stream = stream;
    }

    /// Gives a record back. Its remaining content is dropped, and its id becomes invalid.
    pub(super) fn close(&mut self, index: u32) {
        self.renew(index);
        self.free.push(index);
    }

    /// Ends one use of a record, which its connection keeps. Its remaining content is dropped, and its id
    /// becomes invalid.
    pub(super) fn renew(&mut self, index: u32) {
        let record = &mut self.records[index as usize];
        record.generation = record.generation.wrapping_add(1);
        record.stream = StreamId::CONNECTION;
        record.exchange = Exchange::new();
    }

    /// The exchange at `index`, its id, and its stream.
    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> (ExchangeId, StreamId, &mut Exchange) {
        let Record { generation, stream, exchange, .. } = &mut self.records[index as usize];
        (ExchangeId::new(index, *generation), *stream, exchange)
    }

    /// The exchange at `index`.
    #[cfg(feature = "sim")]
    pub(super) fn get(&self, index: u32) -> &Exchange {
        &self.records[index as usize].exchange
    }

    /// The connection of the exchange `id`, if that is not over.
    pub(super) fn lookup(&self, id: ExchangeId) -> Option<ConnId> {
        let record = self.records.get(id.index())?;
        let current = ExchangeId::new(id.index() as u32, record.generation);
        (current == id).then_some(record.connection)
    }

    /// The records, in use or not.
    #[cfg(feature = "sim")]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Exchange> {
        self.records.iter().map(|record| &record.exchange)
    }
}

/// Polls a task's future with `waker`; `None` while it is not ready.
pub(super) fn poll<T>(future: &mut GuardedFuture<T>, waker: &Waker) -> Option<Result<T, Panic>> {
    match future.poll(&mut std::task::Context::from_waker(waker)) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: an id names one use of a record: it finds nothing once that is over, nor when the record is
    /// used again.
    #[test]
    fn an_id_never_comes_back() {
        let mut exchanges = Exchanges::default();
        let first = exchanges.open(ConnId(7), StreamId::CONNECTION);
        let id = exchanges.get_mut(first).0;
        assert_eq!(exchanges.lookup(id), Some(ConnId(7)));
        exchanges.close(first);
        assert_eq!(exchanges.lookup(id), None);
        let again = exchanges.open(ConnId(8), StreamId::CONNECTION);
        assert_eq!((again, exchanges.lookup(id)), (first, None));
        assert_eq!(
            {
                let id = exchanges.get_mut(again).0;
                exchanges.lookup(id)
            },
            Some(ConnId(8))
        );
        assert_eq!(exchanges.lookup(ExchangeId::new(99, 0)), None, "no such record");
    }
}
