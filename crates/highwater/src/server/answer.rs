//! Everything between a handler that did not answer at once and its response's last byte: futures,
//! pool jobs, streamed content.

use std::sync::Arc;
use std::task::{self, Poll, Waker};

use highwater_core::driver::{Close, ConnId};
use highwater_core::http1::LengthMismatch;
use highwater_core::time::{Clock, Instant};

use super::context::Context;
use super::inbox::{Done, Inbox, Token};
use super::pool::Ticket;
use super::respond::{Rest, push};
use super::slot::{Slot, Task};
use super::worker::State;
use crate::app::{
    self, App, Body, BodyRepr, EndpointInfo, Error, Guarded, GuardedFuture, Job, Outcome, Panic,
    Permit, Response, Upgraded, drop_guarded,
};

/// A response that is yet to be made.
pub(super) enum Pending {
    Later(GuardedFuture<Response>),
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

/// Reports a job's response when it is dropped, so that a panic outside of the handler is an answer, too.
struct Delivery {
    inbox: Arc<Inbox>,
    token: Token,
    job: u64,
    response: Option<Guarded<Result<Response, Panic>>>,
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let Delivery { token, job, .. } = *self;
        self.inbox.deliver(Done { token, job, response: self.response.take() });
    }
}

/// Bytes of an upgraded protocol that wait for its future; then reading stops.
const UPGRADED_FEED_SIZE_MAX: usize = 64 * 1024;

impl<C: Clock> State<C> {
    /// Gives the reply that the connection owes. Content that is not there yet follows.
    pub(super) fn answer(&mut self, id: ConnId, mut response: Response) {
        let State { app, slots, responder, metrics, now, ledger, .. } = self;
        let slot = &mut slots[id.index()];
        if response.is_special() {
            verify(app, slot, &mut response);
        }
        ledger.answered(metrics, slot, response.status().as_u16());
        let rest = responder.response(&mut slot.connection, *now, &mut response);
        drop_guarded(response);
        self.follow(id, rest);
    }

    /// Tells of the panics that were caught while something was done for a connection.
    #[inline]
    pub(super) fn report_panics(&self, id: ConnId) {
        if app::has_panicked() {
            self.app.report_panics(self.slots[id.index()].target);
        }
    }

    /// Sees to what follows a reply's head.
    pub(super) fn follow(&mut self, id: ConnId, rest: Rest) {
        let slot = &mut self.slots[id.index()];
        match rest {
            Rest::None => slot.feed = None,
            Rest::Stream { content, is_events } => {
                slot.content = Some(content);
                slot.is_endless = is_events;
                self.pump(id);
                self.end_unheard(id);
                self.count_waiting(id);
            }
            Rest::Upgrade(upgrade) => {
                let waker = self.waker(id);
                let (feed, incoming) = app::channel(UPGRADED_FEED_SIZE_MAX, waker);
                let (outgoing, content) = Body::channel();
                let slot = &mut self.slots[id.index()];
                slot.feed = Some(feed);
                slot.is_endless = false;
                slot.kept_up = 0;
                if let BodyRepr::Stream(content, _) = content.into_repr() {
                    slot.content = Some(content);
                }
                let upgraded = Upgraded { incoming, outgoing };
                // Called with the first poll, so that all of it runs where a runtime is.
                let future = async move {
                    match upgrade.call(upgraded) {
                        Some(future) => future.await,
                        None => Err(Panic::default()),
                    }
                };
                slot.task = Some(Task::Upgraded(GuardedFuture::new(future)));
                if !self.lacks_runtime(id) {
                    // Its first poll comes with the next look at the inbox.
                    self.inbox.waker(self.slots[id.index()].token(id.index())).wake();
                }
            }
        }
    }

    /// Starts what will make the response; with `is_limited`, it holds a place of its route's limit. Input is
    /// looked at further: pieces of the request's body may be waiting right there, wanted or not.
    pub(super) fn wait_for(&mut self, id: ConnId, pending: Pending, is_limited: bool) {
        self.slots[id.index()].connection.forget_request();
        let answered = match pending {
            Pending::Later(future) => self.begin(id, future),
            Pending::Offload(job) => self.offload(id, job),
        };
        match answered {
            Some(response) => self.answer(id, response),
            None if is_limited => self.watch_upload(id),
            None => {}
        }
    }

    /// Polls a handler's future for the first time. Returns the response if it is there already.
    pub(super) fn begin(
        &mut self,
        id: ConnId,
        mut future: GuardedFuture<Response>,
    ) -> Option<Response> {
        let waker = self.waker(id);
        let slot = &mut self.slots[id.index()];
        match future.poll(&mut task::Context::from_waker(&waker)) {
            Poll::Ready(result) => {
                drop(future);
                Some(self.made(id, result))
            }
            Poll::Pending => {
                slot.task = Some(Task::Answer(future));
                self.arm_task(id);
                self.count_waiting(id);
                None
            }
        }
    }

    /// The answer that a handler has made, if only by panicking.
    fn made(&self, id: ConnId, result: Result<Response, Panic>) -> Response {
        self.report_panics(id);
        let target = self.slots[id.index()].target;
        result.unwrap_or_else(|panic| self.app.panicked(target, panic))
    }

    /// Queues a handler's job on the pool. Returns the refusal if that is full.
    pub(super) fn offload(&mut self, id: ConnId, job: Job) -> Option<Response> {
        let slot = &mut self.slots[id.index()];
        let token = slot.token(id.index());
        let inbox = Arc::clone(&self.inbox);
        let number = self.jobs;
        self.jobs += 1;
        let (app, target) = (self.app.clone(), slot.target);
        let endpoint = self.app.endpoints().get(usize::from(slot.endpoint));
        let detached = endpoint.is_some_and(EndpointInfo::is_detached);
        let (ticket, wanted) = (!detached).then(Ticket::new).unzip();
        let run = move || {
            if wanted.as_ref().is_some_and(|wanted| !wanted.is_wanted()) {
                return;
            }
            let mut delivery = Delivery { inbox, token, job: number, response: None };
            delivery.response = Some(Guarded::new(job.run()));
            app.report_panics(target);
        };
        let submitted = self.pool.submit(Box::new(run));
        if submitted.is_err() {
            let error = Error::overloaded("the pool for blocking work is full");
            return Some(self.app.fail(slot.target, error));
        }
        slot.task = Some(Task::Offloaded { job: number, _ticket: ticket });
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
        if self.context == Context::Wanted {
            return; // The next turn is inside a runtime; the mail waits for it.
        }
        let mut woken = std::mem::take(&mut self.woken);
        let mut done = std::mem::take(&mut self.done);
        self.inbox.take(&mut woken, &mut done);
        for Done { token, job, response } in done.drain(..) {
            // Nobody is left to hear the answer of a connection that is gone, or of a request that
            // was answered when its time was up.
            if let Some(id) = self.lookup(token)
                && matches!(self.slots[id.index()].task, Some(Task::Offloaded { job: awaited, .. }) if awaited == job)
            {
                let response = response.map(Guarded::into_inner);
                let response = response.unwrap_or_else(|| Err(Panic::default()));
                self.finish_task(id, response);
            }
        }
        for token in woken.drain(..) {
            if let Some(id) = self.lookup(token) {
                self.advance(id);
            }
            if !self.orphans.is_empty() {
                self.orphans.advance(token);
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
                match future.poll(&mut task::Context::from_waker(&waker)) {
                    Poll::Ready(result) => {
                        drop(future);
                        self.finish_task(id, result);
                    }
                    Poll::Pending => self.slots[id.index()].task = Some(Task::Answer(future)),
                }
            }
            Some(Task::Upgraded(mut future)) => {
                match future.poll(&mut task::Context::from_waker(&waker)) {
                    Poll::Ready(result) => {
                        let slot = &mut self.slots[id.index()];
                        slot.feed = None;
                        if !matches!(result, Ok(Ok(()))) {
                            slot.close = Some(Close::Reset);
                        }
                    }
                    Poll::Pending => self.slots[id.index()].task = Some(Task::Upgraded(future)),
                }
            }
            other => self.slots[id.index()].task = other,
        }
        self.report_panics(id);
        self.resume_feed(id);
        self.pump(id);
        self.end_unheard(id);
        self.count_waiting(id);
        self.touch(id);
    }

    fn finish_task(&mut self, id: ConnId, result: Result<Response, Panic>) {
        let response = self.made(id, result);
        let slot = &mut self.slots[id.index()];
        slot.task = None;
        slot.task_deadline = Instant::MAX;
        if slot.connection.is_reply_owed() {
            self.answer(id, response);
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
            slot.is_endless |= slot.connection.has_left_http();
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
        if self.slots[id.index()].content.is_some() && self.lacks_runtime(id) {
            return;
        }
        let waker = self.waker_if_streaming(id);
        let State { slots, responder, now, .. } = self;
        let slot = &mut slots[id.index()];
        let (Some(mut content), Some(waker)) = (slot.content.take(), waker) else { return };
        let connection = &mut slot.connection;
        responder.lend(connection);
        let mut cx = task::Context::from_waker(&waker);
        while connection.body_room(&responder.limits) > 0 {
            let pushed = match content.poll_next(&mut cx) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(piece))) => push(connection, piece),
                Poll::Ready(None) => {
                    slot.feed = None;
                    match connection.finish_body(&responder.limits, *now) {
                        Ok(()) => {
                            // Content of known length ends without a byte.
                            responder.recycle(connection.reclaim_buffer());
                            drop(content);
                            self.report_panics(id);
                            return self.touch_and_serve(id);
                        }
                        Err(mismatch) => Err(mismatch),
                    }
                }
                Poll::Ready(Some(Err(_))) => Err(LengthMismatch),
            };
            if pushed.is_err() {
                // The head said 200 long ago; a reset is the only way left to say it was wrong. What
                // has failed must not be asked again.
                slot.close = Some(Close::Reset);
                drop(content);
                self.report_panics(id);
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
    pub(super) fn take_future(&mut self) -> Option<GuardedFuture<Response>> {
        match self.task.take() {
            Some(Task::Answer(future)) => Some(future),
            _ => None,
        }
    }
}

/// Puts an error in place of a response that must not be sent as it is.
#[cold]
pub(super) fn verify(app: &App, slot: &Slot, response: &mut Response) {
    let asked = slot.asked();
    let Err(error) = response.verify(&asked) else {
        return;
    };
    if error.source().is_some() {
        app.report_invalid(slot.target, &error);
    }
    let plain = error.render();
    let mut instead = app.fail(slot.target, error);
    if instead.verify(&asked).is_err() {
        instead = plain; // The renderer's answers are no better.
    }
    drop_guarded(std::mem::replace(response, instead));
}
