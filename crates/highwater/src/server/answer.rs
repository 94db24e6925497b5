//! Everything between a handler that did not answer at once and its response's last byte: futures,
//! pool jobs, streamed content.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use highwater_core::driver::{Close, ConnId};
use highwater_core::http1::{Fields, LengthMismatch};
use highwater_core::time::{Clock, Instant};

use super::inbox::{Done, Token};
use super::respond::Rest;
use super::slot::{Slot, Task};
use super::worker::State;
use crate::app::{
    self, Body, BodyRepr, EndpointInfo, Error, Job, Outcome, Permit, Response, Upgraded,
};

/// A response that is yet to be made.
pub(super) enum Pending {
    Later(ResponseFuture),
    Offload(Job),
}

impl Pending {
    /// What is to come of an outcome that is no response yet. The permit, if the route has a limit, is
    /// kept until it is.
    pub(super) fn of(outcome: Outcome<'_>, permit: Option<Permit>) -> Self {
        let outcome = match permit {
            Some(permit) => permit.hold_for(outcome),
            None => outcome,
        };
        match outcome {
            Outcome::Later(future) => Pending::Later(future),
            Outcome::Offload(job) => Pending::Offload(job),
            Outcome::Fixed(_) | Outcome::Ready(_) => unreachable!("a response is there already"),
        }
    }
}

/// A handler's future. It never leaves its worker, so it need not be `Send`.
pub(super) type ResponseFuture = Pin<Box<dyn Future<Output = Response>>>;

/// Bytes of an upgraded protocol that wait for its future; then reading stops.
const UPGRADED_FEED_SIZE_MAX: usize = 64 * 1024;

impl<C: Clock> State<C> {
    /// Gives the reply that the connection owes. Content that is not there yet follows.
    pub(super) fn answer(&mut self, id: ConnId, response: &mut Response) {
        let State { slots, responder, metrics, now, ledger, .. } = self;
        let slot = &mut slots[id.index()];
        ledger.answered(metrics, slot, response.status().as_u16());
        let rest = responder.response(&mut slot.connection, *now, response);
        self.follow(id, rest);
    }

    /// Sees to what follows a reply's head.
    pub(super) fn follow(&mut self, id: ConnId, rest: Rest) {
        let slot = &mut self.slots[id.index()];
        match rest {
            Rest::None => slot.feed = None,
            Rest::Stream(content) => {
                slot.content = Some(content);
                self.pump(id);
                self.count_waiting(id);
            }
            Rest::Upgrade(upgrade) => {
                let waker = self.waker(id);
                let (feed, incoming) = app::channel(UPGRADED_FEED_SIZE_MAX, waker);
                let (outgoing, content) = Body::channel();
                let slot = &mut self.slots[id.index()];
                slot.feed = Some(feed);
                if let BodyRepr::Stream(content, _) = content.into_repr() {
                    slot.content = Some(content);
                }
                slot.task = Some(Task::Upgraded(upgrade(Upgraded { incoming, outgoing })));
                // Its first poll comes with the next look at the inbox.
                self.inbox.waker(self.slots[id.index()].token(id.index())).wake();
            }
        }
    }

    /// Starts what will make the response. Returns whether input may be looked at further: pieces of
    /// the request's body may be waiting right there.
    pub(super) fn wait_for(&mut self, id: ConnId, pending: Pending) -> bool {
        let answered = match pending {
            Pending::Later(future) => self.begin(id, future),
            Pending::Offload(job) => self.offload(id, job),
        };
        match answered {
            Some(mut response) => {
                self.answer(id, &mut response);
                true
            }
            None => self.slots[id.index()].feed.is_some(),
        }
    }

    /// Polls a handler's future for the first time. Returns the response if it is there already.
    pub(super) fn begin(&mut self, id: ConnId, future: ResponseFuture) -> Option<Response> {
        let waker = self.waker(id);
        let slot = &mut self.slots[id.index()];
        let mut future = future;
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(response) => Some(response),
            Poll::Pending => {
                slot.task = Some(Task::Answer(future));
                self.arm_task(id);
                self.count_waiting(id);
                None
            }
        }
    }

    /// Queues a handler's job on the pool. Returns the refusal if that is full.
    pub(super) fn offload(&mut self, id: ConnId, job: Job) -> Option<Response> {
        let slot = &mut self.slots[id.index()];
        let token = slot.token(id.index());
        let inbox = Arc::clone(&self.inbox);
        let number = self.jobs;
        self.jobs += 1;
        let deliver = move || inbox.deliver(Done { token, job: number, response: job() });
        let submitted = self.pool.submit(Box::new(deliver));
        if submitted.is_err() {
            let error = Error::overloaded("the pool for blocking work is full");
            return Some(self.app.fail(slot.target, error));
        }
        slot.task = Some(Task::Offloaded(number));
        self.arm_task(id);
        None
    }

    /// Keeps count of the connections that wait for a future.
    pub(super) fn count_waiting(&mut self, id: ConnId) {
        let slot = &mut self.slots[id.index()];
        let task = matches!(slot.task, Some(Task::Answer(_) | Task::Upgraded(_)));
        let awaits = task || slot.content.is_some();
        if awaits != slot.awaits {
            slot.awaits = awaits;
            self.awaiting = if awaits { self.awaiting + 1 } else { self.awaiting - 1 };
        }
    }

    fn arm_task(&mut self, id: ConnId) {
        let slot = &mut self.slots[id.index()];
        let endpoint = self.app.endpoints().get(usize::from(slot.endpoint));
        let routed = endpoint.and_then(EndpointInfo::timeout).map(|timeout| self.now + timeout);
        // Nobody waits for an answer any longer than its client does.
        slot.task_deadline = routed.unwrap_or(Instant::MAX).min(slot.deadline);
    }

    pub(super) fn waker(&mut self, id: ConnId) -> Waker {
        let token = self.slots[id.index()].token(id.index());
        let inbox = &self.inbox;
        self.slots[id.index()].waker.get_or_insert_with(|| inbox.waker(token)).clone()
    }

    /// Advances what was woken since the last turn, and takes what the pool delivered.
    pub(super) fn run_tasks(&mut self) {
        let mut woken = std::mem::take(&mut self.woken);
        let mut done = std::mem::take(&mut self.done);
        self.inbox.take(&mut woken, &mut done);
        for Done { token, job, response } in done.drain(..) {
            // Nobody is left to hear the answer of a connection that is gone, or of a request that
            // was answered when its time was up.
            if let Some(id) = self.lookup(token)
                && matches!(self.slots[id.index()].task, Some(Task::Offloaded(awaited)) if awaited == job)
            {
                self.finish_task(id, response);
            }
        }
        for token in woken.drain(..) {
            match self.lookup(token) {
                Some(id) => self.advance(id),
                None => self.orphans.advance(token),
            }
        }
        self.woken = woken;
        self.done = done;
    }

    pub(super) fn lookup(&self, token: Token) -> Option<ConnId> {
        let slot = self.slots.get(token.index())?;
        let current = slot.alive && !slot.closing && slot.token(token.index()) == token;
        current.then_some(ConnId(token.index() as u32))
    }

    fn advance(&mut self, id: ConnId) {
        let waker = self.waker(id);
        match self.slots[id.index()].task.take() {
            Some(Task::Answer(mut future)) => {
                match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(response) => self.finish_task(id, response),
                    Poll::Pending => self.slots[id.index()].task = Some(Task::Answer(future)),
                }
            }
            Some(Task::Upgraded(mut future)) => match poll_caught(&mut future, &waker) {
                Poll::Ready(_) => self.slots[id.index()].feed = None,
                Poll::Pending => self.slots[id.index()].task = Some(Task::Upgraded(future)),
            },
            other => self.slots[id.index()].task = other,
        }
        self.resume_feed(id);
        self.pump(id);
        self.count_waiting(id);
        self.touch(id);
    }

    fn finish_task(&mut self, id: ConnId, mut response: Response) {
        let slot = &mut self.slots[id.index()];
        slot.task = None;
        slot.task_deadline = Instant::MAX;
        if slot.connection.is_reply_owed() {
            self.answer(id, &mut response);
            self.serve_carry(id); // Pipelined requests may be waiting.
        }
    }

    /// The handler may have made room for more of a streamed request body, have asked for the first
    /// of it, or have lost interest.
    fn resume_feed(&mut self, id: ConnId) {
        let State { slots, responder, now, .. } = self;
        let slot = &mut slots[id.index()];
        let Some(feed) = &slot.feed else { return };
        if feed.is_abandoned() {
            slot.feed = None;
            slot.connection.drop_body(&responder.limits, *now);
        } else {
            if feed.wanted() {
                responder.lend(&mut slot.connection);
                slot.connection.send_continue(*now);
            }
            let room = feed.has_room();
            slot.connection.pause_body(!room, *now);
        }
        if self.slots[id.index()].connection.has_carry() {
            self.serve_carry(id);
        }
    }

    /// Encodes streamed content while there is some and the output has room.
    pub(super) fn pump(&mut self, id: ConnId) {
        let waker = self.waker_if_streaming(id);
        let State { slots, responder, now, .. } = self;
        let slot = &mut slots[id.index()];
        let (Some(mut content), Some(waker)) = (slot.content.take(), waker) else { return };
        let connection = &mut slot.connection;
        responder.lend(connection);
        let mut cx = Context::from_waker(&waker);
        while connection.body_room(&responder.limits) > 0 {
            let polled = catch_unwind(AssertUnwindSafe(|| content.as_mut().poll_next(&mut cx)));
            let pushed = match polled {
                Ok(Poll::Pending) => break,
                Ok(Poll::Ready(Some(Ok(piece)))) => connection.push_shared(piece),
                Ok(Poll::Ready(None)) => {
                    slot.feed = None;
                    let trailers = content.as_mut().take_trailers();
                    let write = |fields: &mut Fields<'_>| {
                        for (name, value) in &trailers {
                            fields.push(name.as_str(), value.as_bytes());
                        }
                    };
                    match connection.finish_body_with(&responder.limits, *now, write) {
                        Ok(()) => {
                            // Content of known length ends without a byte.
                            responder.recycle(connection.reclaim_buffer());
                            return self.touch_and_serve(id);
                        }
                        Err(mismatch) => Err(mismatch),
                    }
                }
                Ok(Poll::Ready(Some(Err(_)))) | Err(_) => Err(LengthMismatch),
            };
            if pushed.is_err() {
                // The head said 200 long ago; a reset is the only way left to say it was wrong. What
                // has failed must not be asked again.
                slot.close = Some(Close::Reset);
                return self.touch(id);
            }
        }
        slot.content = Some(content);
        self.touch(id);
    }

    fn touch_and_serve(&mut self, id: ConnId) {
        self.touch(id);
        if self.slots[id.index()].connection.has_carry() {
            self.serve_carry(id);
        }
    }

    fn waker_if_streaming(&mut self, id: ConnId) -> Option<Waker> {
        self.slots[id.index()].content.is_some().then(|| self.waker(id))
    }
}

impl Slot {
    /// Takes the future of a handler that is to go on although its client is gone.
    pub(super) fn take_future(&mut self) -> Option<ResponseFuture> {
        match self.task.take() {
            Some(Task::Answer(future)) => Some(future),
            _ => None,
        }
    }
}

/// The future panicked; it must not be polled again.
pub(super) struct Panicked;

/// Polls `future`, and keeps its panic from taking the worker with it.
pub(super) fn poll_caught<T>(
    future: &mut Pin<Box<dyn Future<Output = T>>>,
    waker: &Waker,
) -> Poll<Result<T, Panicked>> {
    let mut cx = Context::from_waker(waker);
    match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut cx))) {
        Ok(poll) => poll.map(Ok),
        Err(_) => Poll::Ready(Err(Panicked)),
    }
}
