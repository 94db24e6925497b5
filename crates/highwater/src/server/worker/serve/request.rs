//! From received bytes to answers: what a worker does for each request.
//!
//! ```text
//!  bytes ─▶ admit ─▶ parse ─▶ route ─▶ judge ─▶ handle ─▶ encode
//!             │Wait                      │Refuse(reason)
//!             └▶ the queue               └▶ 503
//! ```
//!
//! Allocates nothing for a request that is answered at once, and copies no input that is complete.

use std::panic::resume_unwind;
use std::time::Duration;

use highwater_core::http::{Body, Head, Reject};
use highwater_core::http1::Next;
use highwater_core::time::{Clock, Instant};

use super::super::encode::Rest;
use super::super::exchange::{Exchange, ExchangeId};
use super::super::turn::Turn;
use super::super::{Parsing, Parts};
use super::ExchangeMut;
use crate::admission::queue::{Class, Entry};
use crate::admission::worker::{Arrival, Grant, Verdict};
use crate::app::{
    self, App, BodyError, BodyFeed, Error, Incoming, Outcome, Priority, RequestBody, Response,
    Target, drop_guarded, guarded,
};
use crate::metrics::Rejection;

impl<C: Clock> ExchangeMut<'_, C> {
    /// The fast path borrows the driver's buffer; only incomplete input is copied.
    pub(in super::super) fn receive(&mut self, bytes: &[u8]) {
        self.parts.metrics.bytes_read.add(bytes.len() as u64);
        self.connection.channel.received();
        let now = self.parts.turn.now;
        if self.exchange.is_queued {
            self.exchange.note_more(now);
        }
        let mut carry = self.connection.protocol.take_carry();
        if carry.is_empty() {
            let mut input = bytes;
            self.serve_guarded(&mut input, Arrival::at(now));
            self.connection.protocol.stash(input);
        } else {
            carry.extend_from_slice(bytes);
            self.serve_owned(carry, Arrival::at(now));
        }
        self.touch();
    }

    /// Serves input that could not be served before. Does nothing inside the loop that serves input of this
    /// connection: that loop continues with it.
    pub(in super::super) fn serve_carry(&mut self) {
        self.serve_carry_as(Arrival::at(self.parts.turn.now));
    }

    /// As [`ExchangeMut::serve_carry`], for input that arrived as `arrival` says.
    fn serve_carry_as(&mut self, arrival: Arrival) {
        if self.is_serving {
            return;
        }
        let carry = self.connection.protocol.take_carry();
        self.serve_owned(carry, arrival);
        self.touch();
    }

    fn serve_owned(&mut self, carry: Vec<u8>, arrival: Arrival) {
        let mut input = carry.as_slice();
        self.serve_guarded(&mut input, arrival);
        let rest_len = input.len();
        self.connection.protocol.stash_owned(carry, rest_len);
    }

    /// Serves, and keeps the panic of a handler from ending the worker. Panics are caught here, once for all
    /// requests of a delivery, because catching them per request would move each response once more.
    fn serve_guarded(&mut self, input: &mut &[u8], mut arrival: Arrival) {
        self.is_serving = true;
        while let Err(panic) = guarded(|| self.serve(input, &mut arrival)) {
            let was_dropping = std::mem::take(&mut self.is_dropping);
            if self.connection.protocol.is_reply_owed() {
                let response = self.exchange.fail(self.app, Error::internal(panic));
                self.report_panics();
                self.answer(response);
            } else if was_dropping {
                self.report_panics(); // The answer is encoded and valid.
            } else {
                // Not a panic of the application but a defect of ours, which must not be hidden.
                resume_unwind(Box::new(panic.to_string()));
            }
        }
        self.is_serving = false;
    }

    /// admit → parse → route → judge → handle → encode, for every complete request in `input`.
    fn serve(&mut self, input: &mut &[u8], arrival: &mut Arrival) {
        let app = self.app;
        loop {
            if !self.parts.admission.admits_at_once()
                && let Verdict::Wait = self.admit(input, arrival)
            {
                return;
            }
            let (mut found, mut known) = (None, None);
            let Parsing { scratch, params } = &mut *self.parsing;
            let (now, limits) = (self.parts.turn.now, &self.parts.encoder.limits);
            let next = self.connection.protocol.next(input, scratch, limits, now, |head| {
                let target = app.find(head, params);
                found = Some(target);
                known = app.know(target, head, params, self.connection.peer);
                let is_unwanted = arrival.is_refused() && !app.is_never_shed(target);
                if is_unwanted { app::UNWANTED_BODY } else { app.plan(target, limits) }
            });
            if known.is_some() {
                self.exchange.known = known;
            }
            // Looked at in place, as are verdict and outcome: a copy would wait for the CPU's store buffer.
            let request = match &next {
                Next::Request(request) => request,
                Next::Wait => {
                    let is_more = self.connection.protocol.collected() > self.exchange.charged;
                    if is_more && !self.hold_body() {
                        continue;
                    }
                    return;
                }
                Next::Reject(reject) => {
                    let reject = *reject;
                    self.reject(reject);
                    continue;
                }
                of_body => {
                    if let Some(is_full) = pass_on(of_body, &mut self.exchange.feed) {
                        self.connection.protocol.pause_body(is_full, now);
                    }
                    continue;
                }
            };
            let head = &request.head;
            let target = found.unwrap_or_else(|| app.find(head, params));
            let (index, peer) = (self.connection.exchange, self.connection.peer);
            let disconnected = &self.connection.disconnected;
            self.exchange.begin(target, head, arrival.ready, self.parts.unmatched);
            let verdict = self.parts.judge(app, target, head, arrival);
            let grant = match &verdict {
                Verdict::Serve(grant) => grant,
                Verdict::Refuse(reason) => {
                    let reason = *reason;
                    let body = RequestBody::Whole(&[]);
                    let incoming = Incoming { head, params, body, peer, disconnected };
                    let number = self.parts.admission.next_refusal();
                    let response = app.refuse(target, incoming, number);
                    self.refuse(target, reason, number, response);
                    continue;
                }
                Verdict::Wait => unreachable!("a request that was begun does not wait"),
            };
            let Turn { blocking, clock, statistics, now, .. } = &mut self.parts.turn;
            statistics.started(&self.parts.metrics, arrival.ready, *now);
            let timed = blocking.begin(clock.clock());
            self.exchange.deadline = grant.deadline;
            let body = match request.body {
                Body::Whole(bytes) => RequestBody::Whole(bytes),
                Body::Streamed if !app.reads_stream(target) => RequestBody::Whole(&[]),
                Body::Streamed => self.parts.feed(self.exchange, index),
            };
            let incoming = Incoming { head, params, body, peer, disconnected };
            let mut outcome = app.call(target, incoming);
            app.render(target, head, &mut outcome);
            self.exchange.remember(head, &outcome);
            if let Some(timed) = timed {
                let Turn { blocking, clock, .. } = &mut self.parts.turn;
                blocking.end(timed, clock.clock(), self.exchange.endpoint);
            }
            // By reference: a response is a hundred bytes, and moving it is measurable.
            let rest = self.encode_at_once(&mut outcome);
            if rest.is_none() {
                if let Verdict::Serve(grant) = verdict {
                    self.exchange.permit = grant.permit;
                }
                self.wait_for(outcome);
                continue;
            }
            if matches!(rest, Some(Rest::None)) && self.exchange.known.is_none() {
                self.is_dropping = true; // A panic is caught once for all requests of a delivery, as elsewhere here.
                drop(outcome);
                self.is_dropping = false;
            } else {
                drop_guarded(outcome);
                self.follow(rest.unwrap_or(Rest::None));
            }
        }
    }

    /// Encodes an outcome that already is a response. `None` if the response comes later.
    #[inline(always)]
    fn encode_at_once(&mut self, outcome: &mut Outcome<'_>) -> Option<Rest> {
        let Parts { turn, metrics, encoder, .. } = &mut *self.parts;
        let protocol = &mut self.connection.protocol;
        let before = self.exchange.known.as_ref().map_or(0, |_| protocol.pending());
        let status;
        let rest = match outcome {
            Outcome::Ready(response) => {
                if response.is_special() {
                    super::answer::verify(self.app, self.connection, self.exchange, response);
                }
                status = response.status().as_u16();
                turn.statistics.answered(metrics, self.exchange, status);
                let protocol = &mut self.connection.protocol;
                Some(encoder.response(protocol, turn.now, response))
            }
            Outcome::Fixed(fixed) => {
                turn.statistics.answered(metrics, self.exchange, fixed.status());
                encoder.fixed(protocol, turn.now, fixed);
                status = fixed.status();
                Some(Rest::None)
            }
            Outcome::Later(_) | Outcome::Offload(_) => return None,
        };
        self.note_answer(status, before);
        rest
    }

    /// Whether the next request of `input` may be started now. If not, its connection waits from now on.
    #[cold]
    #[inline(never)]
    fn admit(&mut self, input: &[u8], arrival: &mut Arrival) -> Verdict {
        const SERVE: Verdict = Verdict::Serve(Grant { deadline: Instant::MAX, permit: None });
        let (id, app) = (self.exchange_id(), self.app);
        let Parts { turn, admission, encoder, metrics, clients, .. } = &mut *self.parts;
        let Parsing { scratch, params } = &mut *self.parsing;
        let connection = &mut *self.connection;
        if input.is_empty() || !connection.protocol.awaits_request(&encoder.limits) {
            return SERVE; // It cannot become a request.
        }
        arrival.advance();
        if !connection.is_suspect && admission.has_time(|| turn.clock.now()) {
            return SERVE;
        }
        if self.exchange.is_queued {
            return Verdict::Wait;
        }
        let Some(head) = connection.protocol.peek(input, scratch, &encoder.limits) else {
            return SERVE; // Incomplete input must be read, and invalid input refused.
        };
        let target = app.find(&head, params);
        let class = match app.priority(target, &head) {
            _ if app.is_never_shed(target) => Class::NeverShed,
            Priority::High => Class::High,
            Priority::Normal => Class::Normal,
            Priority::Low => Class::Low,
        };
        if admission.stands() {
            metrics.queue.judged.add(1);
            metrics.queue.passed_on.add(u64::from(is_passed_on(&head)));
        }
        let client = clients.of_request(connection.peer, &head);
        if admission.is_full(class, client.or(connection.client)) {
            arrival.refuse();
            return SERVE;
        }
        let ready = arrival.ready;
        let deadline = deadline(&head, ready, admission.deadline_max(), &turn.clock);
        self.exchange.is_queued = true;
        connection.protocol.hold(true, turn.now);
        admission.enqueue(class, Entry { item: id, ready, deadline, client })
    }

    /// A request that has waited is started, or refused for `refuse`.
    pub(in super::super) fn resume(
        &mut self,
        entry: &Entry<ExchangeId>,
        refuse: Option<Rejection>,
    ) {
        let now = self.parts.turn.now;
        self.exchange.is_queued = false;
        self.connection.protocol.hold(false, now);
        let next_ready = self.exchange.take_next_ready(entry.ready);
        let arrival = self.parts.admission.resume(entry, refuse, next_ready, now);
        self.serve_carry_as(arrival);
    }

    /// Answers a request that is refused for load: with `response` if layers made one for it, else with
    /// refusal number `number`, which is encoded.
    #[cold]
    fn refuse(
        &mut self,
        target: Target,
        reason: Rejection,
        number: u32,
        response: Option<Response>,
    ) {
        if !self.parts.acceptor.has_room() || self.parts.admission.refuse_close() {
            // Connections are the scarce resource, or another one leads to another server.
            self.connection.protocol.drain(self.parts.turn.now);
        }
        match response {
            None => self.refuse_with(target, reason, number),
            Some(response) => {
                let Parts { turn, metrics, .. } = &mut *self.parts;
                let status = response.status().as_u16();
                metrics.rejected(reason);
                turn.statistics.refused(metrics, self.exchange, status, reason.is_for_load());
                self.give(response);
            }
        }
    }

    /// Answers refusal number `number`, in the form of `target`'s scope.
    pub(in super::super) fn refuse_with(&mut self, target: Target, reason: Rejection, number: u32) {
        let Parts { turn, encoder, metrics, .. } = &mut *self.parts;
        let refusal = self.app.refusal(target, number);
        metrics.rejected(reason);
        let is_for_load = reason.is_for_load();
        turn.statistics.refused(metrics, self.exchange, refusal.status(), is_for_load);
        let (before, status) = (self.connection.protocol.pending(), refusal.status());
        encoder.fixed(&mut self.connection.protocol, turn.now, refusal);
        self.note_answer(status, before);
        self.follow(Rest::None);
    }

    /// Answers input that is not a valid request, or came too slowly.
    pub(in super::super) fn reject(&mut self, reject: Reject) {
        self.parts.metrics.reject(reject);
        self.exchange.be_no_request(self.parts.unmatched, self.parts.turn.now);
        self.exchange.deadline = Instant::MAX;
        let response = self.exchange.fail(self.app, self.reject_error(reject));
        self.answer(response);
    }

    /// The error for a peer whose input is refused; names the limit if it is beyond one.
    fn reject_error(&self, reject: Reject) -> Error {
        let limits = &self.parts.encoder.limits;
        let most = match reject {
            Reject::BodyTooLarge => format!("{} bytes", self.connection.protocol.body_max()),
            Reject::UriTooLong => format!("{} bytes", limits.uri_max),
            Reject::HeaderTooLarge => {
                format!("{} bytes and {} fields", limits.header_max, limits.header_count_max)
            }
            _ => return Error::of_reject(reject),
        };
        Error::of_reject(reject).with_message(format!("{}; at most {most}", reject.reason()))
    }
}

impl<C: Clock> Parts<C> {
    /// Makes the admission verdict about a request that was begun.
    #[inline]
    fn judge(
        &mut self,
        app: &App,
        target: Target,
        head: &Head<'_>,
        arrival: &mut Arrival,
    ) -> Verdict {
        let Parts { turn, admission, .. } = self;
        admission.count();
        let conditions = (head.names_deadline(), app.is_limited(target));
        let deadline_max = admission.deadline_max();
        let until = |ready| deadline(head, ready, deadline_max, &turn.clock);
        admission.judge(arrival, turn.now, conditions, || app.rules(target), until)
    }

    /// Connects a body that has not arrived in full to its handler.
    fn feed(&mut self, exchange: &mut Exchange, index: u32) -> RequestBody<'static> {
        let size = self.body_memory.feed_size(&mut exchange.charged);
        let waker = self.tasks.waker(exchange, exchange.id(index));
        let (feed, stream) = app::channel(size, waker);
        exchange.begin_feed(feed);
        RequestBody::Stream(stream)
    }
}

impl Exchange {
    /// A request was found, which could have been started at `ready`. If no endpoint matches, it is counted
    /// for `unmatched`.
    #[inline]
    fn begin(&mut self, target: Target, head: &Head<'_>, ready: Instant, unmatched: u16) {
        self.target = Some(target);
        self.endpoint = target.endpoint().unwrap_or(unmatched);
        self.started = ready;
        self.offered = offered(head);
    }
}

/// The client's own deadline, by our clock and within our bound.
fn deadline(head: &Head<'_>, ready: Instant, max: Duration, clock: &impl Clock) -> Instant {
    match head.names_deadline().then(|| head.patience(clock.unix_millis())).flatten() {
        Some(patience) => ready + patience.min(max),
        None => Instant::MAX,
    }
}

/// Whether a proxy passed the request on, by the fields that proxies add.
fn is_passed_on(head: &Head<'_>) -> bool {
    ["x-forwarded-for", "forwarded", "via"].iter().any(|name| head.headers().get(name).is_some())
}

/// Gives a piece of a body to its feed, if the handler still reads it. Returns whether the feed is full, if
/// it got the piece.
fn pass_on(found: &Next<'_>, feed: &mut Option<BodyFeed>) -> Option<bool> {
    match *found {
        Next::Body(piece) | Next::Raw(piece) => {
            let feed = feed.as_ref()?;
            feed.push(piece);
            return Some(!feed.has_room());
        }
        Next::Trailers(fields) => feed.as_ref()?.trailers(fields),
        Next::BodyEnd | Next::RawEnd => feed.take()?.finish(),
        Next::BodyFailed(reject) => feed.take()?.fail(BodyError::from(reject)),
        Next::Wait | Next::Request(_) | Next::Reject(_) => {}
    }
    None
}

/// The protocols that a request offers to go on with, in one list.
#[inline]
fn offered(head: &Head<'_>) -> Option<Box<[u8]>> {
    if !head.asks_upgrade() {
        return None;
    }
    let values = head.headers().get_all("upgrade").map(<[u8]>::to_vec);
    Some(values.collect::<Vec<_>>().join(&b',').into())
}
