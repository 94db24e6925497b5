//! From an outcome to a response: at once, from a future, or from a job on the pool.

use std::sync::Arc;

use highwater_core::time::{Clock, Instant};
use http::StatusCode;

use super::super::Parts;
use super::super::encode::Rest;
use super::super::exchange::{Answered, Exchange, ExchangeId, Named, Task, poll};
use super::super::inbox::{Done, Inbox};
use super::super::protocol::{Protocol, Stream};
use super::ExchangeMut;
use crate::admission::route_limit::Permit;
use crate::app::layer::Ended;
use crate::app::{
    self, Accounts, App, Asked, Body, BodyRepr, EndpointInfo, Error, Guarded, GuardedFuture, Job,
    OnUpgrade, Outcome, Panic, Request, Response, Upgraded, drop_guarded,
};
use crate::server::pool::{Begin, Ticket};

/// The status that is recorded if the client disconnects before its answer. It is not registered; nginx
/// introduced it for access logs.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// Bytes of an upgraded protocol that wait for its future; then reading stops.
const UPGRADED_FEED_SIZE_MAX: usize = 64 * 1024;

/// Reports a job's response when it is dropped, so that a panic outside of the handler is an answer, too.
struct Delivery {
    inbox: Arc<Inbox>,
    exchange: ExchangeId,
    job: u64,
    is_detached: bool,
    is_refused: bool,
    response: Option<Guarded<Result<Response, Panic>>>,
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let Delivery { exchange, job, is_detached, is_refused, .. } = *self;
        let response = self.response.take();
        self.inbox.deliver(Done { exchange, job, is_detached, is_refused, response });
    }
}

impl<C: Clock, P: Protocol> ExchangeMut<'_, C, P> {
    /// Gives the stream its reply. Content that is not ready yet follows.
    pub(super) fn answer(&mut self, mut response: Response) {
        let Parts { turn, metrics, .. } = &mut *self.parts;
        if response.is_special() {
            verify(self.app, &self.stream, self.exchange, &mut response);
        }
        self.exchange.named.sent_id = None;
        turn.statistics.answered(metrics, self.exchange, response.status().as_u16());
        self.encode(response);
    }

    /// Encodes a response that is checked and counted.
    fn encode(&mut self, mut response: Response) {
        let Parts { turn, encoder, .. } = &mut *self.parts;
        let (before, status) = (self.stream.pending(), response.status().as_u16());
        let rest = encoder.response(&mut self.stream, turn.now, &mut response);
        drop_guarded(response);
        self.note_answer(status, before);
        self.follow(rest);
    }

    /// Sends a refusal that layers have changed; it is already counted.
    pub(super) fn give(&mut self, mut response: Response) {
        if response.is_special() {
            verify(self.app, &self.stream, self.exchange, &mut response);
        }
        self.encode(response);
    }

    /// Remembers how much of an answer is encoded, for layers that observe its end: before it, `before` bytes
    /// were pending.
    #[inline]
    pub(super) fn note_answer(&mut self, status: u16, before: usize) {
        if self.exchange.known.is_some() {
            let bytes = self.stream.pending().saturating_sub(before) as u64;
            self.exchange.answer = Answered { status, bytes };
        }
    }

    /// The answer has ended: the protocol has all of it, or with `is_complete` false it never gets the
    /// rest. Reports that to the layers that observe it.
    #[inline]
    pub(super) fn ended(&mut self, is_complete: bool) {
        if let Some(known) = self.exchange.known.take() {
            self.tell_end(&known, is_complete);
        }
    }

    #[cold]
    fn tell_end(&mut self, known: &Request<'_>, is_complete: bool) {
        let Answered { status, bytes } = std::mem::take(&mut self.exchange.answer);
        let status = if status == 0 { CLIENT_CLOSED_REQUEST } else { status };
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let duration = self.parts.turn.clock.now() - self.exchange.started;
        self.app.ended(known, &Ended { status, bytes, duration, is_complete });
    }

    /// Starts what follows a reply's head.
    pub(super) fn follow(&mut self, rest: Rest) {
        match rest {
            Rest::None => {
                self.exchange.feed = None;
                self.ended(true);
            }
            Rest::Stream { mut content, is_events } => {
                if is_events {
                    content.content().ends_with(self.app.draining());
                }
                self.exchange.content = Some(content);
                self.exchange.is_endless = is_events;
                self.pump();
            }
            Rest::Upgrade(upgrade) => self.upgrade(upgrade),
        }
    }

    /// The connection speaks another protocol from now on.
    fn upgrade(&mut self, upgrade: OnUpgrade) {
        let id = self.id;
        let waker = self.parts.tasks.waker(self.exchange, id);
        let (feed, incoming) = app::channel(UPGRADED_FEED_SIZE_MAX, waker);
        let (outgoing, content) = Body::channel();
        self.exchange.begin_feed(feed);
        self.exchange.is_endless = false;
        if let BodyRepr::Stream(content, _) = content.into_repr() {
            self.exchange.content = Some(content);
        }
        let accounts = Accounts {
            sockets: Arc::clone(&self.parts.metrics.sockets),
            memory: self.parts.body_memory.clone(),
        };
        let upgraded = Upgraded { incoming, outgoing };
        // Called by the first poll, so that all of it runs inside a runtime.
        let future = async move {
            match upgrade.call(upgraded, accounts) {
                Some(future) => future.await,
                None => Err(Panic::default()),
            }
        };
        self.exchange.task = Some(Task::Upgraded(GuardedFuture::new(future)));
        if !self.lacks_runtime() {
            // Its first poll comes when the inbox is taken next.
            self.parts.tasks.inbox.waker(id).wake();
        }
    }

    /// Starts the future or the job that makes the response, which has this place within its route's limit.
    pub(super) fn wait_for(&mut self, outcome: Outcome<'_>, permit: Option<Permit>) {
        self.exchange.permit = permit;
        match outcome {
            Outcome::Later(future) => self.await_future(future),
            Outcome::Offload(job) => self.await_job(job),
            Outcome::Fixed(_) | Outcome::Ready(_) => unreachable!("a response is encoded at once"),
        }
    }

    /// A future makes the response. It is polled for the first time: the response may be there already.
    ///
    /// The remaining input is handled, too: it may contain pieces of the request's body, needed or not.
    fn await_future(&mut self, mut future: GuardedFuture<Response>) {
        self.stream.forget_request();
        let id = self.id;
        let waker = self.parts.tasks.waker(self.exchange, id);
        match poll(&mut future, &waker) {
            Some(result) => {
                drop(future);
                let response = self.made(result);
                self.answer(response);
            }
            None => {
                self.exchange.task = Some(Task::Answer(future));
                self.limit_task();
                if self.exchange.permit.is_some() {
                    self.watch_upload();
                }
            }
        }
    }

    /// A job on the pool makes the response.
    fn await_job(&mut self, job: Job) {
        self.stream.forget_request();
        let is_limited = self.exchange.permit.is_some();
        match self.submit(job) {
            Ok(task) => {
                self.exchange.task = Some(task);
                self.limit_task();
                if is_limited {
                    self.watch_upload();
                }
            }
            Err(response) => self.answer(response),
        }
    }

    /// Handles the answer of a handler, also if the handler panicked. Its place within its route's limit is
    /// free, unless another protocol goes on.
    fn made(&mut self, result: Result<Response, Panic>) -> Response {
        if let Some(mut permit) = self.exchange.permit.take()
            && let Ok(response) = &result
        {
            permit.answered(response.status());
            if matches!(response.body().repr(), BodyRepr::Upgrade(_)) {
                self.exchange.permit = permit.kept();
            }
        }
        self.report_panics();
        let mut response =
            result.unwrap_or_else(|panic| self.exchange.fail(self.app, Error::internal(panic)));
        self.report_failure(&mut response);
        response
    }

    /// Logs an answer that was made after the request's bytes were dropped, if it is a failure, and gives it the id
    /// that the log has.
    #[inline]
    pub(super) fn report_failure(&self, response: &mut Response) {
        if let Some(target) = self.exchange.target
            && response.status().is_server_error()
        {
            let Named { method, sent_id } = &self.exchange.named;
            self.app.report_failure(target, method.as_str(), sent_id.as_deref(), response);
        }
    }

    /// Queues a handler's job on the pool, with its place within its route's limit.
    ///
    /// # Errors
    /// The response to give instead, if the pool is full.
    fn submit(&mut self, job: Job) -> Result<Task, Response> {
        let exchange = self.id;
        let is_detached = self.endpoint().is_some_and(EndpointInfo::is_detached);
        let (target, sent_id) = (self.exchange.target, self.exchange.named.sent_id.clone());
        let mut permit = self.exchange.permit.take();
        let tasks = &mut self.parts.tasks;
        let (inbox, number) = (Arc::clone(&tasks.inbox), tasks.next_job());
        let (ticket, wanted) = (!is_detached).then(Ticket::new).unzip();
        let reporter = self.app.clone();
        let run = move |begin| {
            if wanted.as_ref().is_some_and(|wanted| !wanted.is_wanted()) {
                return;
            }
            let is_refused = begin == Begin::Refuse;
            let mut delivery =
                Delivery { inbox, exchange, job: number, is_detached, is_refused, response: None };
            if is_refused {
                return;
            }
            let result = job.run();
            if let (Some(permit), Ok(response)) = (&mut permit, &result) {
                permit.answered(response.status());
            }
            drop(permit);
            delivery.response = Some(Guarded::new(result));
            reporter.report_panics(target, sent_id.as_deref());
        };
        if !tasks.pool.submit_job(Box::new(run)) {
            let error = Error::overloaded("the pool for blocking work is full");
            let mut response = self.exchange.fail(self.app, error);
            self.report_failure(&mut response);
            return Err(response);
        }
        tasks.detached_jobs += u32::from(is_detached);
        Ok(Task::Offloaded { job: number, _ticket: ticket })
    }

    /// The description of the exchange's endpoint.
    pub(super) fn endpoint(&self) -> Option<&EndpointInfo> {
        self.app.endpoints().get(usize::from(self.exchange.endpoint))
    }

    /// The handler must answer within its route's timeout, and no later than its client wants it.
    fn limit_task(&mut self) {
        let timeout = self.endpoint().and_then(EndpointInfo::timeout);
        let routed = timeout.map(|timeout| self.parts.turn.now + timeout);
        let deadline = routed.unwrap_or(Instant::MAX);
        self.exchange.task_deadline = deadline.min(self.exchange.deadline);
    }

    /// A job is done. Returns whether it was awaited: its answer is dropped if the request already timed out.
    pub(super) fn finish_job(&mut self, done: Done) -> bool {
        let is_awaited = self.exchange.awaits_job(done.job);
        if is_awaited {
            if done.is_refused {
                let error = Error::overloaded("no thread was free for blocking work in time");
                let response = self.exchange.fail(self.app, error);
                self.finish_task(Ok(response));
            } else {
                let response = done.response.map(Guarded::into_inner);
                self.finish_task(response.unwrap_or_else(|| Err(Panic::default())));
            }
        }
        is_awaited
    }

    /// A task was woken.
    pub(super) fn advance(&mut self) {
        if self.exchange.content.is_some() && self.lacks_runtime() {
            return;
        }
        let id = self.id;
        let waker = self.parts.tasks.waker(self.exchange, id);
        match self.exchange.task.take() {
            Some(Task::Answer(mut future)) => match poll(&mut future, &waker) {
                Some(result) => {
                    drop(future);
                    self.finish_task(result);
                }
                None => self.exchange.task = Some(Task::Answer(future)),
            },
            Some(Task::Upgraded(mut future)) => match poll(&mut future, &waker) {
                Some(result) => {
                    self.drop_feed();
                    self.exchange.permit = None;
                    if !matches!(result, Ok(Ok(()))) {
                        self.stream.reset();
                    }
                }
                None => self.exchange.task = Some(Task::Upgraded(future)),
            },
            other => self.exchange.task = other,
        }
        self.report_panics();
        self.resume_feed();
        self.pump();
    }

    fn finish_task(&mut self, result: Result<Response, Panic>) {
        let response = self.made(result);
        let kept = self.exchange.permit.take();
        self.exchange.end_task();
        self.exchange.permit = kept;
        match self.stream.is_reply_owed() {
            true => self.answer(response),
            false => drop_guarded(response), // What is in it may be the application's.
        }
    }
}

/// Replaces a response that must not be sent by an error.
#[cold]
pub(super) fn verify(
    app: &App,
    stream: &impl Stream,
    exchange: &Exchange,
    response: &mut Response,
) {
    let offered = exchange.offered.as_deref();
    // Content that is not read may have come with the head. That must not decide, since networks cut where they like.
    let is_unread = offered.is_some_and(|offered| offered.has_content)
        && !exchange.target.is_some_and(|target| app.reads_content(target));
    let asked = Asked {
        is_head: stream.is_head(),
        is_complete: stream.is_request_complete() && !is_unread,
        upgrade: offered.map_or(&[], |offered| &offered.protocols),
    };
    let Err(error) = response.verify(&asked) else {
        return;
    };
    let problem = error.source().map(ToString::to_string);
    let plain = error.render();
    let mut instead = exchange.fail(app, error);
    if instead.verify(&asked).is_err() {
        instead = plain; // The renderer's answer cannot be sent either.
    }
    if let Some(problem) = problem {
        app.report_invalid(exchange.target, &problem, &mut instead);
    }
    drop_guarded(std::mem::replace(response, instead));
}
