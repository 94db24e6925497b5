//! From received bytes to answers: what a worker does for each request.
//!
//! ```text
//!  bytes ─▶ parse ─▶ route ─▶ judge ─▶ handle ─▶ encode
//!                      ▲        │Refuse(reason)
//!                      │        ├▶ 503
//!            its turn  │        │Wait
//!           the queue ─┘        └▶ the queue, with a copy of the head
//! ```
//!
//! Allocates nothing for a request that is answered at once, and copies no input that is complete. A request
//! that waits is parsed and routed once.

use std::panic::resume_unwind;

use highwater_core::http::Reject;
use highwater_core::time::{Clock, Instant};

use super::super::connections::Connection;
use super::super::encode::Rest;
use super::super::exchange::ExchangeId;
use super::super::protocol::{Next, Step};
use super::super::waiting::Waiting;
use super::super::{Parsing, Parts};
use super::ExchangeMut;
use super::begin::IfItPanics;
use crate::admission::queue::{Class, Entry};
use crate::admission::route_limit::Permit;
use crate::admission::worker::{Arrival, Verdict};
use crate::app::{
    BodyError, BodyFeed, Error, Incoming, Outcome, Panic, RequestBody, Response, Target,
    drop_guarded, guarded,
};
use crate::metrics::Rejection;

/// A request that has waited, and whose turn has come.
type Waited = (Box<Waiting>, Arrival);

impl<C: Clock> ExchangeMut<'_, C> {
    /// The fast path borrows the driver's buffer; only incomplete input is copied.
    pub(in super::super) fn receive(&mut self, bytes: &[u8]) {
        self.parts.metrics.bytes_read.add(bytes.len() as u64);
        self.connection.channel.received();
        let now = self.parts.turn.now;
        if self.exchange.is_queued() {
            self.exchange.queue.note_more(now);
        }
        let mut carry = self.connection.link.take_carry();
        if carry.is_empty() {
            let mut input = bytes;
            self.serve_guarded(&mut input, now, None);
            self.connection.link.stash(input);
        } else {
            carry.extend_from_slice(bytes);
            self.serve_owned(carry, now, None);
        }
        self.touch();
    }

    /// Serves input that could not be served before.
    pub(in super::super) fn read_on(&mut self) {
        if self.connection.link.has_carry() {
            let carry = self.connection.link.take_carry();
            self.serve_owned(carry, self.parts.turn.now, None);
            self.touch();
        }
    }

    /// A request that has waited is started, or refused for `refuse`; then the input behind it is served.
    pub(in super::super) fn resume(
        &mut self,
        entry: &Entry<ExchangeId>,
        refuse: Option<Rejection>,
    ) {
        let now = self.parts.turn.now;
        let next_ready = self.exchange.queue.take_next_ready(entry.ready);
        let Some(waiting) = self.exchange.queue.waiting.take() else {
            unreachable!("an exchange in the queue has a request that waits")
        };
        let Connection { link, protocol, .. } = &mut *self.connection;
        protocol.unpark(link, now);
        let carry = link.take_carry();
        self.parts.admission.allow_one(now);
        self.serve_owned(carry, next_ready, Some((waiting, Arrival::from_queue(entry, refuse))));
        self.touch();
    }

    fn serve_owned(&mut self, carry: Vec<u8>, ready: Instant, waited: Option<Waited>) {
        let mut input = carry.as_slice();
        self.serve_guarded(&mut input, ready, waited);
        let rest_len = input.len();
        self.connection.link.stash_owned(carry, rest_len);
    }

    /// Serves, and keeps the panic of a handler from ending the worker. Panics are caught here, once for all
    /// requests of a delivery, because catching them per request would move each response once more.
    fn serve_guarded(&mut self, input: &mut &[u8], ready: Instant, mut waited: Option<Waited>) {
        while let Err(panic) = guarded(|| {
            if let Some((waiting, arrival)) = waited.take() {
                self.serve_waited(&waiting, &arrival);
            }
            self.serve(input, ready);
        }) {
            let was_dropping = std::mem::take(&mut self.is_dropping);
            if self.connection.protocol.is_reply_owed() {
                self.fail(panic);
            } else if was_dropping {
                self.report_panics(); // The answer is encoded and valid.
            } else {
                // Not a panic of the application but a defect of ours, which must not be hidden.
                resume_unwind(Box::new(panic.to_string()));
            }
        }
    }

    /// The application has panicked: that is the end of the request.
    fn fail(&mut self, panic: Panic) {
        let mut response = self.exchange.fail(self.app, Error::internal(panic));
        self.report_panics();
        self.report_failure(&mut response);
        self.answer(response);
    }

    /// parse → route → judge → handle → encode, for every complete request in `input`, which could have been
    /// started at `ready`.
    fn serve(&mut self, input: &mut &[u8], ready: Instant) {
        let app = self.app;
        loop {
            let Parsing { scratch, params } = &mut *self.parsing;
            let now = self.parts.turn.now;
            let Connection { link, protocol, peer, client, disconnected, is_suspect, .. } =
                &mut *self.connection;
            let mut arrival = Arrival::at(ready);
            let step = protocol.advance(link, input, scratch, &self.parts.encoder.limits, now);
            let mut found = None;
            let next = match step {
                Step::Next(next) => next,
                Step::Head(pending) => {
                    let (head, of) = (pending.head(), (&*peer, &*client, *is_suspect));
                    let (target, plan) =
                        self.parts.look(app, self.exchange, &head, params, of, &mut arrival);
                    let limits = &self.parts.encoder.limits;
                    found = Some(target);
                    pending.begin(link, input, plan, limits, now)
                }
            };
            // Looked at in place, as are verdict and outcome: a copy would wait for the CPU's store buffer.
            let request = match &next {
                Next::Request(request) => request,
                Next::Wait => match self.holds_body() {
                    true => return,
                    false => continue,
                },
                &Next::Reject(reject) => {
                    self.reject(reject);
                    continue;
                }
                of_body => {
                    let exchange = &mut *self.exchange;
                    let limits = &self.parts.encoder.limits;
                    let most = || exchange.target.map(|target| app.body_max(target, limits));
                    if let Some(is_full) = pass_on(of_body, &mut exchange.feed, most) {
                        let Connection { link, protocol, .. } = &mut *self.connection;
                        protocol.pause_body(link, is_full, now);
                    }
                    continue;
                }
            };
            let head = &request.head;
            let target = found.unwrap_or_else(|| app.find(head, params));
            self.exchange.begin(target, head, ready, self.parts.unmatched);
            match &mut self.parts.judge(app, (target, head), &arrival, *is_suspect) {
                Verdict::Serve(grant) => {
                    let (at, times) =
                        ((&mut *self.exchange, self.exchange_id), (ready, grant.deadline));
                    let (body, timed) = self.parts.start(app, at, target, request.body, times);
                    let incoming = Incoming { head, params, body, peer: *peer, disconnected };
                    let noted = IfItPanics { exchange: &mut *self.exchange, head };
                    let mut outcome = app.call(target, incoming);
                    self.parts.called(app, noted, target, &mut outcome, timed);
                    self.deliver(outcome, &mut grant.permit);
                }
                Verdict::Refuse(reason) => {
                    let body = RequestBody::Whole(&[]);
                    let incoming = Incoming { head, params, body, peer: *peer, disconnected };
                    let (number, response) = self.parts.refusal(app, target, incoming);
                    self.refuse(target, *reason, number, response);
                }
                Verdict::Wait(class, deadline) => {
                    let waiting = Waiting::copy(request, params, found.is_some());
                    return self.park(waiting, *class, (ready, *deadline));
                }
            }
        }
    }

    /// judge → handle → encode, for a request that has waited.
    fn serve_waited(&mut self, waiting: &Waiting, arrival: &Arrival) {
        let app = self.app;
        let Connection { peer, disconnected, .. } = &mut *self.connection;
        let Some(target) = self.exchange.target else {
            unreachable!("a request that waits was routed")
        };
        let (request, params, peer) = (waiting.request(), &waiting.params, *peer);
        let head = &request.head;
        if let Some(panic) = &waiting.panic {
            self.exchange.keep_for_log(head);
            return self.fail(panic.clone());
        }
        match &mut self.parts.judge(app, (target, head), arrival, false) {
            Verdict::Serve(grant) => {
                let times = (arrival.ready, grant.deadline);
                let at = (&mut *self.exchange, self.exchange_id);
                let (body, timed) = self.parts.start(app, at, target, request.body, times);
                let incoming = Incoming { head, params, body, peer, disconnected };
                let noted = IfItPanics { exchange: &mut *self.exchange, head };
                let mut outcome = app.call(target, incoming);
                self.parts.called(app, noted, target, &mut outcome, timed);
                self.deliver(outcome, &mut grant.permit);
            }
            Verdict::Refuse(reason) => {
                let body = RequestBody::Whole(&[]);
                let incoming = Incoming { head, params, body, peer, disconnected };
                let (number, response) = self.parts.refusal(app, target, incoming);
                self.refuse(target, *reason, number, response);
            }
            Verdict::Wait(..) => unreachable!("its turn has come"),
        }
    }

    /// The request waits for its turn. The input behind it is kept.
    #[cold]
    fn park(
        &mut self,
        mut waiting: Box<Waiting>,
        class: Class,
        (ready, deadline): (Instant, Instant),
    ) {
        if let Some(collected) = self.connection.protocol.park() {
            waiting.body = Some(collected);
        }
        self.exchange.queue.waiting = Some(waiting);
        let item = self.exchange_id;
        self.parts.admission.enqueue(class, Entry { item, ready, deadline });
    }

    /// Encodes an outcome, or waits for its response.
    #[inline(always)]
    fn deliver(&mut self, mut outcome: Outcome<'_>, permit: &mut Option<Permit>) {
        // By reference: a response is a hundred bytes, and moving it is measurable.
        let rest = self.encode_at_once(&mut outcome);
        if rest.is_none() {
            self.exchange.permit = permit.take();
            return self.wait_for(outcome);
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

    /// Encodes an outcome that already is a response. `None` if the response comes later.
    #[inline(always)]
    fn encode_at_once(&mut self, outcome: &mut Outcome<'_>) -> Option<Rest> {
        let Parts { turn, metrics, encoder, .. } = &mut *self.parts;
        let link = &self.connection.link;
        let before = self.exchange.known.as_ref().map_or(0, |_| link.pending());
        let status;
        match outcome {
            Outcome::Ready(response) => {
                if response.is_special() {
                    super::answer::verify(self.app, self.connection, self.exchange, response);
                }
                status = response.status().as_u16();
                turn.statistics.answered(metrics, self.exchange, status);
                if !encoder.copied(self.connection.wire(), turn.now, response) {
                    let rest = encoder.moved(self.connection.wire(), turn.now, response);
                    self.note_answer(status, before);
                    return Some(rest);
                }
            }
            Outcome::Fixed(fixed) => {
                turn.statistics.answered(metrics, self.exchange, fixed.status());
                encoder.fixed(self.connection.wire(), turn.now, fixed);
                status = fixed.status();
            }
            Outcome::Later(_) | Outcome::Offload(_) => return None,
        }
        self.note_answer(status, before);
        Some(Rest::None)
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
        let (before, status) = (self.connection.link.pending(), refusal.status());
        encoder.fixed(self.connection.wire(), turn.now, refusal);
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

/// Gives a piece of a body to its feed, if the handler still reads it. Returns whether the feed is full, if
/// it got the piece. `most` is how many bytes the body may have.
fn pass_on(
    found: &Next<'_>,
    feed: &mut Option<BodyFeed>,
    most: impl FnOnce() -> Option<u64>,
) -> Option<bool> {
    match *found {
        Next::Body(piece) | Next::Raw(piece) => {
            let feed = feed.as_ref()?;
            feed.push(piece);
            return Some(!feed.has_room());
        }
        Next::Trailers(fields) => feed.as_ref()?.trailers(fields),
        Next::BodyEnd | Next::RawEnd => feed.take()?.finish(),
        Next::BodyFailed(reject) => feed.take()?.fail(match (reject, most()) {
            (Reject::BodyTooLarge, Some(most)) => BodyError::too_large(most),
            _ => BodyError::from(reject),
        }),
        Next::Wait | Next::Request(_) | Next::Reject(_) => {}
    }
    None
}
