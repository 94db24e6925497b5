//! One core, one loop. Each turn has four steps, and they never interleave:
//!
//! ```text
//!   reap    the driver reports what the kernel finished            driver.poll
//!   think   connections parse, handlers run, tasks advance         on_event, run_tasks, expire
//!   flush   each touched connection hands over its output, once    flush
//!   submit  all of it enters the kernel with the next reap         driver.poll
//! ```
//!
//! The same loop runs over io_uring, epoll and the simulator. It reads the clock twice a turn, never
//! waits anywhere but in the driver, and allocates nothing for a request that is answered at once.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use highwater_core::driver::{Accepting, Close, ConnId, Driver, Event, Reading, Then, Wait};
use highwater_core::http_date;
use highwater_core::http1::{Body, Limits, Next, Reject, Scratch};
use highwater_core::route::Params;
use highwater_core::time::{Clock, Instant, UnixSeconds};
use highwater_core::timer::Wheel;

use super::advisor::Advisor;
use super::answer::Pending;
use super::inbox::{Done, Inbox, Token};
use super::orphans::Orphans;
use super::pool::Pool;
use super::respond::{Responder, Rest};
use super::slot::Slot;
use crate::admission::gate::WorkerGate;
use crate::app::{self, App, BodyError, Incoming, Outcome, RequestBody, Target};
use crate::log;
use crate::metrics::WorkerMetrics;

/// Content of a streamed request body that waits for its handler, in bytes; then reading stops.
const FEED_SIZE_MAX: usize = 64 * 1024;

/// How long a `Date` is used before the wall clock is read again. It has seconds; this is enough.
const DATE_AGE_MAX: Duration = Duration::from_millis(50);

/// What a worker is made of besides its driver.
pub(crate) struct WorkerParts {
    /// The application it serves.
    pub(crate) app: App,
    /// The bounds of each connection.
    pub(crate) limits: Limits,
    /// Most connections it holds; beyond it, accepting pauses.
    pub(crate) connections_max: u32,
    /// Where it counts.
    pub(crate) metrics: Arc<WorkerMetrics>,
    /// Its side of the gate.
    pub(crate) gate: WorkerGate,
    /// How long requests may wait for their turn, and the longest deadline a client may ask for.
    pub(crate) queue_target: Duration,
    pub(crate) deadline_max: Duration,
}

/// Serves an application over one driver, on one thread.
pub(crate) struct Worker<D: Driver> {
    pub(super) driver: D,
    pub(super) state: State<D::Clock>,
}

/// Everything but the driver, so that it can change inside the driver's callback.
pub(super) struct State<C> {
    pub(super) app: App,
    pub(super) connections_max: u32,
    pub(super) metrics: Arc<WorkerMetrics>,
    pub(super) clock: C,
    pub(super) now: Instant,
    pub(super) responder: Responder,
    date_of: UnixSeconds,
    /// When to look at the wall clock again.
    date_until: Instant,
    /// Nothing has happened in this turn yet: the clock is to be read.
    stale: bool,
    pub(super) slots: Vec<Slot>,
    touched: Vec<ConnId>,
    scratch: Scratch,
    params: Params,
    /// The index under which requests are counted that no endpoint took.
    pub(super) unmatched: u16,
    pub(super) inbox: Arc<Inbox>,
    pub(super) pool: Pool,
    pub(super) orphans: Orphans,
    pub(super) woken: Vec<Token>,
    pub(super) done: Vec<Done>,
    /// Jobs handed to the pool so far.
    pub(super) jobs: u64,
    pub(super) wheel: Wheel,
    pub(super) advisor: Advisor,
    /// Endpoints answered in this turn, whose durations are recorded when it ends.
    pub(super) answered: Vec<u16>,
    pub(super) accepting: Accepting,
    /// Accepting failed; try again then.
    pub(super) accept_retry: Instant,
    pub(super) connections: u32,
    /// The kernel ran out of descriptors: close what is idle.
    pub(super) evict: bool,
    pub(super) evict_after: Instant,
    /// When the next connection will have been idle for long enough to be closed for others.
    pub(super) evict_due: Instant,
    pub(super) due: Vec<u64>,
    pub(super) draining: bool,
    /// Connections that wait for a future, which may be waiting for the runtime.
    pub(super) awaiting: u32,
    events: u32,
}

impl<D: Driver> Worker<D> {
    /// A worker over `driver`, which already accepts. `inbox` must wake that driver; `pool` runs the
    /// blocking handlers.
    pub(crate) fn new(driver: D, parts: WorkerParts, inbox: Arc<Inbox>, pool: Pool) -> Self {
        let clock = driver.clock();
        let now = clock.now();
        let unmatched = u16::try_from(parts.app.endpoints().len()).unwrap_or(u16::MAX);
        let state = State {
            app: parts.app,
            connections_max: parts.connections_max.max(1),
            metrics: parts.metrics,
            now,
            responder: Responder::new(parts.limits, http_date::format(clock.unix_time())),
            date_of: clock.unix_time(),
            date_until: now,
            clock,
            stale: true,
            slots: Vec::new(),
            touched: Vec::new(),
            scratch: Scratch::default(),
            params: Params::new(),
            unmatched,
            inbox,
            pool,
            orphans: Orphans::default(),
            woken: Vec::new(),
            done: Vec::new(),
            jobs: 0,
            wheel: Wheel::new(now),
            advisor: Advisor::default(),
            answered: Vec::new(),
            accepting: Accepting::On,
            accept_retry: Instant::MAX,
            connections: 0,
            evict: false,
            evict_after: Instant::ZERO,
            evict_due: Instant::MAX,
            due: Vec::new(),
            draining: false,
            awaiting: 0,
            events: 0,
        };
        Worker { driver, state }
    }

    /// The driver.
    pub(crate) fn driver(&self) -> &D {
        &self.driver
    }

    /// One turn, which waits as told. Returns how many events there were.
    ///
    /// # Errors
    /// The driver itself failed; the worker cannot go on.
    pub(crate) fn turn(&mut self, wait: Wait) -> Result<u32, D::Error> {
        let state = &mut self.state;
        state.stale = true;
        state.events = 0;
        self.driver.poll(wait, &mut |event| state.on_event(event))?;
        state.freshen();
        state.run_tasks();
        state.expire();
        self.flush();
        self.state.end_turn();
        Ok(self.state.events)
    }

    /// Until when the worker may wait: until a deadline may be due.
    pub(crate) fn patience(&self) -> Wait {
        let state = &self.state;
        let wheel = state.wheel.next().unwrap_or(Instant::MAX);
        let retry = match state.accepting {
            Accepting::Paused if state.has_room() => state.accept_retry,
            // Somebody may be waiting for room, and somebody idle be about to make some.
            Accepting::Paused => state.evict_due.max(state.evict_after),
            _ => Instant::MAX,
        };
        match wheel.min(retry) {
            Instant::MAX => Wait::Forever,
            due => Wait::Until(due),
        }
    }

    /// How long the worker may wait from now on; `None` for ever. For those who let time pass
    /// themselves.
    pub(crate) fn spare_time(&self) -> Option<Duration> {
        match self.patience() {
            Wait::No => Some(Duration::ZERO),
            Wait::Until(due) => Some(due - self.state.clock.now()),
            Wait::Forever => None,
        }
    }

    /// Gives each touched connection's output to the driver, and says what is wanted from it.
    pub(super) fn flush(&mut self) {
        let mut touched = std::mem::take(&mut self.state.touched);
        for &id in &touched {
            self.flush_one(id);
        }
        touched.clear();
        self.state.touched = touched;
        self.flush_accepting();
    }

    fn flush_one(&mut self, id: ConnId) {
        let slot = &mut self.state.slots[id.index()];
        slot.touched = false;
        if !slot.alive || slot.closing || self.finish(id) {
            return;
        }
        let Worker { driver, state } = self;
        let slot = &mut state.slots[id.index()];
        if !slot.sending
            && !slot.ended
            && let Some((output, then)) = slot.connection.take_output(state.now)
        {
            slot.sending = true;
            slot.ended = then == Then::Close;
            state.metrics.bytes_written.add(output.len() as u64);
            driver.send(id, output, then);
        }
        if slot.ended {
            return state.arm(id); // The peer may stall; nothing else can happen.
        }
        let wanted = match slot.connection.wants_input(&state.responder.limits) {
            true => Reading::Stream,
            false => Reading::Stop,
        };
        // A fresh connection has one delivery armed; until that came there is nothing to say.
        let fresh = slot.reading == Reading::Once;
        if slot.reading != wanted && !fresh && !slot.connection.is_eof() {
            slot.reading = wanted;
            driver.read(id, wanted);
        }
        state.arm(id);
    }

    /// Closes a connection now. What it still had to say is lost.
    pub(super) fn close(&mut self, id: ConnId, how: Close) {
        let slot = &mut self.state.slots[id.index()];
        if slot.alive && !slot.closing {
            slot.closing = true;
            self.driver.close(id, how);
        }
    }
}

impl<C: Clock> State<C> {
    /// Reads the clock, once a turn, when there is something to do.
    fn freshen(&mut self) {
        if self.stale {
            self.stale = false;
            self.now = self.clock.now();
            if self.now >= self.date_until {
                self.date_until = self.now + DATE_AGE_MAX;
                let today = self.clock.unix_time();
                if today != self.date_of {
                    self.date_of = today;
                    self.responder.date = http_date::format(today);
                }
            }
        }
    }

    fn end_turn(&mut self) {
        let end = self.clock.now();
        let spent = end - self.now;
        if !self.answered.is_empty() {
            let nanos = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
            self.metrics.durations(&self.answered, nanos);
            self.answered.clear();
        }
        self.metrics.turn(spent, self.events);
        self.advisor.end_turn(spent);
        if let Some(advice) = self.advisor.take_advice() {
            let endpoint = self.app.endpoints().get(usize::from(advice.endpoint));
            log::warn!(
                "a handler blocks its worker, and every other connection of it",
                route = endpoint.map_or("not_found", |endpoint| endpoint.pattern()),
                took_us = u64::try_from(advice.longest.as_micros()).unwrap_or(u64::MAX),
                instead = "wrap it in blocking(…), or make it an async fn that awaits",
            );
        }
    }

    #[inline]
    pub(super) fn touch(&mut self, id: ConnId) {
        let slot = &mut self.slots[id.index()];
        if !slot.touched {
            slot.touched = true;
            self.touched.push(id);
        }
    }

    fn on_event(&mut self, event: Event<'_>) {
        self.freshen();
        self.events += 1;
        match event {
            Event::Received(id, bytes) => self.receive(id, bytes),
            Event::Sent(id, buffer) => self.sent(id, buffer),
            Event::Accepted(id, peer) => self.accepted(id, peer),
            Event::Progress(id) => {
                let now = self.now;
                self.slots[id.index()].connection.on_progress(now);
            }
            Event::Eof(id) => {
                self.slots[id.index()].connection.on_eof();
                self.serve_carry(id);
            }
            Event::Closed(id) => self.closed(id),
            Event::AcceptFailed(error) => self.accept_failed(error),
        }
    }

    /// The fast path borrows the driver's buffer; only what is incomplete is ever copied.
    /// (Where a connection is encrypted, this is where its plaintext will come from.)
    fn receive(&mut self, id: ConnId, bytes: &[u8]) {
        self.metrics.bytes_read.add(bytes.len() as u64);
        let slot = &mut self.slots[id.index()];
        if slot.reading == Reading::Once {
            slot.reading = Reading::Stop; // The one delivery that was armed has been made.
        }
        let mut carry = slot.connection.take_carry();
        if carry.is_empty() {
            let mut input = bytes;
            self.serve_caught(id, &mut input);
            self.slots[id.index()].connection.stash(input);
        } else {
            carry.extend_from_slice(bytes);
            self.serve_owned(id, carry);
        }
        self.touch(id);
    }

    /// Looks again at input that could not be used before.
    pub(super) fn serve_carry(&mut self, id: ConnId) {
        let carry = self.slots[id.index()].connection.take_carry();
        self.serve_owned(id, carry);
        self.touch(id);
    }

    fn serve_owned(&mut self, id: ConnId, carry: Vec<u8>) {
        let mut input = carry.as_slice();
        self.serve_caught(id, &mut input);
        let rest_len = input.len();
        self.slots[id.index()].connection.stash_owned(carry, rest_len);
    }

    /// Serves, and keeps the panic of a handler from taking the worker with it. The boundary is here,
    /// around all requests of a delivery, because crossing it costs each response a move.
    fn serve_caught(&mut self, id: ConnId, input: &mut &[u8]) {
        while let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.serve(id, input))) {
            let slot = &mut self.slots[id.index()];
            if !slot.connection.is_reply_owed() {
                resume_unwind(panic); // Not a handler's: a defect of ours, better seen than hidden.
            }
            let mut response = self.app.panicked(slot.target, panic);
            self.answer(id, &mut response);
        }
    }

    /// parse → route → extract → handle → encode, for every complete request in `input`.
    fn serve(&mut self, id: ConnId, input: &mut &[u8]) {
        loop {
            let mut found = None;
            let State { app, slots, scratch, params, responder, now, .. } = self;
            let slot = &mut slots[id.index()];
            let token = slot.token(id.index());
            let Slot { connection, feed, waker, peer, .. } = slot;
            let next = connection.next(input, scratch, &responder.limits, *now, |head| {
                let target = app.find(head, params);
                found = Some(target);
                app.plan(target, &responder.limits)
            });
            let request = match next {
                Next::Request(request) => request,
                Next::Wait => return,
                Next::Body(piece) | Next::Raw(piece) => {
                    if let Some(feed) = feed {
                        feed.push(Bytes::copy_from_slice(piece));
                        connection.pause_body(!feed.has_room(), *now);
                    }
                    continue;
                }
                Next::BodyEnd | Next::RawEnd => {
                    if let Some(feed) = feed.take() {
                        feed.finish();
                    }
                    continue;
                }
                Next::BodyFailed(reject) => {
                    if let Some(feed) = feed.take() {
                        feed.fail(BodyError::from(reject));
                    }
                    continue;
                }
                Next::Reject(reject) => {
                    self.refuse(id, reject);
                    continue;
                }
            };
            let target = found.unwrap_or_else(|| app.find(&request.head, params));
            let endpoint = match target {
                Target::Endpoint(endpoint) => endpoint,
                _ => self.unmatched,
            };
            let body = match request.body {
                Body::Whole(bytes) => RequestBody::Whole(bytes),
                // Nobody reads it: the connection drops it as it comes.
                Body::Streamed if !app.reads_stream(target) => RequestBody::Whole(&[]),
                Body::Streamed => {
                    let waker = waker.get_or_insert_with(|| self.inbox.waker(token)).clone();
                    let (sender, stream) = app::channel(FEED_SIZE_MAX, waker);
                    *feed = Some(sender);
                    RequestBody::Stream(stream)
                }
            };
            slot.target = Some(target);
            slot.endpoint = endpoint;
            slot.started = *now;
            let incoming = Incoming { head: &request.head, params, body, peer: *peer };
            let mut outcome =
                self.advisor.watch(&self.clock, endpoint, || app.call(target, incoming));
            // By reference: a response is a hundred bytes, and moving them shows in the figures.
            let rest = match &mut outcome {
                Outcome::Ready(response) => {
                    self.metrics.request(endpoint, response.status().as_u16());
                    responder.response(&mut slot.connection, *now, response)
                }
                Outcome::Fixed(fixed) => {
                    self.metrics.request(endpoint, fixed.status());
                    responder.fixed(&mut slot.connection, *now, fixed);
                    Rest::None
                }
                Outcome::Later(_) | Outcome::Offload(_) => {
                    let wait = match outcome {
                        Outcome::Later(future) => Pending::Later(future),
                        Outcome::Offload(job) => Pending::Offload(job),
                        _ => unreachable!("matched above"),
                    };
                    if self.wait_for(id, wait) {
                        continue;
                    }
                    return;
                }
            };
            self.answered.push(endpoint);
            if !matches!(rest, Rest::None) {
                drop(outcome);
                self.follow(id, rest);
            }
        }
    }

    /// Answers input that is no valid request, or came too slowly.
    pub(super) fn refuse(&mut self, id: ConnId, reject: Reject) {
        self.metrics.reject(reject);
        let slot = &mut self.slots[id.index()];
        slot.target = None;
        slot.endpoint = self.unmatched;
        slot.started = self.now;
        let mut response = self.app.reject(reject);
        self.answer(id, &mut response);
    }
}
