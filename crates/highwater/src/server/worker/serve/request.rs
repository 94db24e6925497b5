//! From received bytes to answers: the loop over the protocol's next steps.
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

use std::mem::{self, ManuallyDrop};
use std::panic::resume_unwind;

use highwater_core::http::Head;
use highwater_core::time::{Clock, Instant};

use super::super::connections::Connection;
use super::super::cork;
use super::super::encode::Rest;
use super::super::exchange::{Item, Named};
use super::super::protocol::{Begun, Next, Pending, Protocol, Request, Step, Stream, StreamId};
use super::super::waiting::Waiting;
use super::super::{Parsing, Parts};
use super::begin::found_again;
use super::other_input::OtherInput;
use super::{ConnectionMut, ExchangeMut};
use crate::admission::queue::{Class, Entry};
use crate::admission::route_limit::Permit;
use crate::admission::worker::{Arrival, Verdict};
use crate::app::{Error, Outcome, Panic, Response, Target, drop_guarded, guarded};
use crate::metrics::Rejection;

/// A request that has waited, and whose turn has come.
type Waited = (Box<Waiting>, Arrival);

impl<C: Clock, P: Protocol> ConnectionMut<'_, C, P> {
    /// The fast path borrows the driver's buffer; only incomplete input is copied.
    #[inline]
    pub(in super::super) fn receive(&mut self, bytes: &mut [u8]) {
        self.parts.metrics.bytes_read.add(bytes.len() as u64);
        self.connection.channel.received();
        match self.connection.channel.is_plain() {
            true => self.take_in(bytes),
            false => self.receive_prepared(bytes),
        }
    }

    /// Serves bytes of the protocol.
    #[inline(always)]
    pub(super) fn take_in(&mut self, bytes: &[u8]) {
        let now = self.parts.turn.now;
        let (_, _, first) = self.exchanges.get_mut(self.at);
        if first.is_queued() {
            first.queue.note_more(now);
        }
        if self.connection.link.carry().is_empty() {
            let mut input = bytes;
            self.serve_guarded(&mut input, now, None);
            self.connection.link.stash(input);
        } else {
            let mut carry = self.connection.link.take_carry();
            carry.extend_from_slice(bytes);
            self.serve_owned(carry, now, None);
        }
        self.touch();
    }

    /// Serves input that could not be served before.
    pub(in super::super) fn read_on(&mut self) {
        if self.connection.link.has_carry() || self.connection.protocol.holds_input() {
            self.serve_carry();
        }
    }

    /// Serves what could not be served before, as more has come since: input, or content of a body.
    pub(in super::super) fn serve_carry(&mut self) {
        let carry = self.connection.link.take_carry();
        self.serve_owned(carry, self.parts.turn.now, None);
        self.touch();
    }

    /// A request that has waited is started, or refused for `refuse`; then the input behind it is served.
    pub(in super::super) fn resume(&mut self, entry: &Entry<Item>, refuse: Option<Rejection>) {
        let now = self.parts.turn.now;
        let (waiting, next_ready) = self.exchange().unpark(entry.ready);
        let carry = self.connection.link.take_carry();
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
                self.parsing.spare.keep(waiting);
            }
            self.serve(input, ready);
        }) {
            let was_dropping = mem::take(&mut self.is_dropping);
            if !self.exchange().has_panicked(&panic, was_dropping) {
                // Not a panic of the application but a defect of ours, which must not be hidden.
                resume_unwind(Box::new(panic.to_string()));
            }
        }
    }

    /// Serves every complete request in `input`, which could have been started at `ready`.
    fn serve(&mut self, input: &mut &[u8], ready: Instant) {
        while self.serve_next(input, ready) {}
    }

    /// parse → route → judge → handle → encode, for what comes next in `input`. Returns whether more may follow.
    #[inline(always)]
    fn serve_next(&mut self, input: &mut &[u8], ready: Instant) -> bool {
        let (app, conn, now) = (self.app, self.id, self.parts.turn.now);
        let Parsing { scratch, routed, spare } = &mut *self.parsing;
        let Connection {
            link,
            protocol,
            channel,
            streams,
            peer,
            certificates,
            client,
            is_suspect,
            ..
        } = &mut *self.connection;
        let mut arrival = Arrival::at(ready);
        // Made and looked at in place, as are verdict and outcome: a copy would wait for the CPU's store buffer.
        let mut head;
        let (body, target);
        let (id, exchange) = 'request: {
            let limits = &self.parts.encoder.limits;
            let other_input = match protocol.advance(link, input, scratch, limits, now) {
                Step::Head(pending) => {
                    self.at = streams.at(pending.stream(), conn, self.exchanges);
                    let (id, _, exchange) = self.exchanges.get_mut(self.at);
                    head = Head::default();
                    pending.write_head(&mut head);
                    let of = (&*peer, &*client, *is_suspect);
                    let (found, plan) =
                        self.parts.look(app, exchange, &head, routed, of, &mut arrival);
                    let limits = &self.parts.encoder.limits;
                    match pending.begin(link, input, plan, limits, now) {
                        Begun::Request(content) => {
                            (body, target) = (content, Some(found));
                            break 'request (id, exchange);
                        }
                        Begun::Collecting => return true,
                        Begun::Reject(reject) => OtherInput::Reject(reject),
                    }
                }
                Step::Next(stream, next) => {
                    self.at = streams.at(stream, conn, self.exchanges);
                    let (id, _, exchange) = self.exchanges.get_mut(self.at);
                    if let Next::Request(request) = next {
                        (head, body, target) = (request.head, request.body, None);
                        break 'request (id, exchange);
                    }
                    // Streams of HTTP/2 report their own end.
                    let is_cut = channel.is_cut() && !streams.is_divided();
                    OtherInput::of(&next, exchange, |target| app.body_max(target, limits), is_cut)
                }
                Step::Reset(stream) => OtherInput::Reset(stream),
            };
            return self.follow_up(other_input);
        };
        let is_retained = target.is_some();
        let target = target.unwrap_or_else(|| found_again(app, exchange, &head, routed));
        let (routed, mut seen) = (&*routed, None);
        let head = routed.view(&head, &mut seen);
        exchange.begin(target, head, ready, self.parts.unmatched);
        match &mut self.parts.judge(app, (target, head), &arrival, *is_suspect) {
            Verdict::Serve(grant) => {
                let (of, from) = ((target, head, routed), (*peer, &*certificates));
                let times = (ready, grant.deadline);
                let outcome = self.parts.call(app, (exchange, id), of, (body, from), times);
                self.deliver(&mut ManuallyDrop::new(outcome), &mut grant.permit);
                // Most deliveries are one request: nothing is asked once more.
                return !self.is_used_up(input);
            }
            Verdict::Refuse(reason) => {
                let request = &Request { head: *head, body };
                let of = (request, routed, *peer);
                let (number, response) =
                    self.parts.refusal(app, target, of, &exchange.disconnected);
                self.refuse(target, *reason, number, response);
            }
            Verdict::Wait(class, deadline) => {
                let request = Request { head: *head, body };
                let waiting = spare.copy(&request, routed, is_retained);
                self.exchange().park(waiting, *class, (ready, *deadline));
            }
        }
        true
    }

    /// judge → handle → encode, for a request that has waited.
    fn serve_waited(&mut self, waiting: &Waiting, arrival: &Arrival) {
        let app = self.app;
        let peer = self.connection.peer;
        let (id, _, exchange) = self.exchanges.get_mut(self.at);
        let Some(target) = exchange.target else { unreachable!("a request that waits was routed") };
        let request = waiting.request();
        let (head, of) = (&request.head, (&request, &waiting.routed, peer));
        if let Some(panic) = &waiting.panic {
            exchange.named = Named::of(head);
            return self.exchange().fail(panic.clone());
        }
        let mut verdict = match waiting.lacks_memory {
            true => Verdict::Refuse(Rejection::RequestMemory), // Whatever its route: its content is lost.
            false => self.parts.judge(app, (target, head), arrival, false),
        };
        match &mut verdict {
            Verdict::Serve(grant) => {
                let from = (peer, &self.connection.certificates);
                let of = (target, head, &waiting.routed);
                let times = (arrival.ready, grant.deadline);
                let sent = (request.body, from);
                let outcome = self.parts.call(app, (exchange, id), of, sent, times);
                self.deliver(&mut ManuallyDrop::new(outcome), &mut grant.permit);
            }
            Verdict::Refuse(reason) => {
                let (number, response) =
                    self.parts.refusal(app, target, of, &exchange.disconnected);
                self.refuse(target, *reason, number, response);
            }
            Verdict::Wait(..) => unreachable!("its turn has come"),
        }
    }

    /// Does what is left to do once something other than a request has come. Returns whether more may follow.
    #[inline]
    fn follow_up(&mut self, other_input: OtherInput) -> bool {
        match other_input {
            OtherInput::Nothing => return !self.holds_bodies(),
            OtherInput::Reset(stream) => self.reset(stream),
            OtherInput::Reject(reject) => self.exchange().reject(reject),
            OtherInput::Content(Some(room)) => {
                let now = self.parts.turn.now;
                self.exchange().stream.allow_body(room, now);
            }
            OtherInput::Content(None) => {}
        }
        true
    }

    /// The peer has reset `stream`.
    #[cold]
    fn reset(&mut self, stream: StreamId) {
        if let Some(index) = self.connection.streams.find(stream) {
            self.at = index;
            self.close_stream();
        }
    }

    /// Whether no input is left that the protocol could use.
    #[inline(always)]
    fn is_used_up(&self, input: &[u8]) -> bool {
        self.connection.protocol.is_used_up(&self.connection.link, input)
    }

    /// Whether there is room for the bodies that are being collected, and for content that waits for handlers. What has
    /// none is refused.
    #[inline]
    fn holds_bodies(&mut self) -> bool {
        if !self.connection.streams.is_divided() {
            return self.exchange().stream.collected() == 0 || self.hold_body();
        }
        self.holds_all()
    }

    fn holds_all(&mut self) -> bool {
        let (mut n, mut holds) = (0, true);
        while self.turn_to(n) {
            self.exchange().holds_rest();
            holds &= self.exchange().holds_body();
            n += 1;
        }
        holds
    }

    /// Encodes an outcome, or waits for its response. Leaves nothing in it that would have to be dropped; the compiler
    /// would check that.
    #[inline(always)]
    fn deliver(&mut self, outcome: &mut ManuallyDrop<Outcome<'_>>, permit: &mut Option<Permit>) {
        // By reference: a response is a hundred bytes, and moving it is measurable.
        let (rest, is_known) = self.exchange().encode_at_once(outcome);
        let Some(rest) = rest else {
            self.exchange().wait_for(outcome.take(), permit.take());
            return self.tell_if_disconnected();
        };
        if matches!(rest, Rest::None) && !is_known {
            if !outcome.owns_nothing() {
                self.is_dropping = true; // A panic is caught once for all requests of a delivery, as elsewhere here.
                **outcome = Outcome::NOTHING;
                self.is_dropping = false;
            }
            if self.connection.streams.is_divided() {
                self.close_if_over(); // The next stream finds this record free, and in the CPU's cache.
            }
        } else {
            if matches!(rest, Rest::Upgrade(_)) {
                // What goes on behind the answer has its place within the route's limit.
                self.exchange().exchange.permit = permit.take().and_then(Permit::kept);
            }
            drop_guarded(outcome.take());
            self.exchange().follow(rest);
        }
    }

    /// Answers a request that is refused for load, as [`ExchangeMut::refuse`]. If connections are scarce, its own
    /// one is to end.
    #[cold]
    fn refuse(
        &mut self,
        target: Target,
        reason: Rejection,
        number: u32,
        response: Option<Response>,
    ) {
        if !self.acceptor.has_room() || self.parts.admission.refuse_close() {
            // Connections are the scarce resource, or another one leads to another server.
            let Connection { link, protocol, .. } = &mut *self.connection;
            protocol.drain(link, self.parts.turn.now);
        }
        let before = self.connection.link.pending();
        self.exchange().refuse(target, reason, number, response);
        if self.connection.streams.is_divided() {
            self.close_if_over();
            if self.parts.admission.stands() {
                self.cork(before);
            }
        }
    }

    /// A request was refused while a queue stands, others of its connection may follow, and `before` bytes of output came
    /// before the answer, which may wait for theirs.
    fn cork(&mut self, before: usize) {
        let Parts { turn, admission, .. } = &*self.parts;
        let until = turn.now + cork::time_max(admission.patience());
        let Connection { link, cork, .. } = &mut *self.connection;
        if cork.add((before, link.pending()), until) {
            self.agenda.corks.push(self.id, until);
        }
    }
}

impl<C: Clock, P: Protocol> ExchangeMut<'_, C, P> {
    /// The application has panicked: that is the end of the request.
    #[cold]
    fn fail(&mut self, panic: Panic) {
        let mut response = self.exchange.fail(self.app, Error::internal(panic));
        self.report_panics();
        self.report_failure(&mut response);
        self.answer(response);
    }

    /// Its handler has panicked, or with `was_dropping` what the handler left in its answer. Returns false if that
    /// cannot be.
    #[cold]
    fn has_panicked(&mut self, panic: &Panic, was_dropping: bool) -> bool {
        if self.stream.is_reply_owed() {
            self.fail(panic.clone());
            return true;
        }
        if was_dropping {
            self.report_panics(); // The answer is encoded and valid.
        }
        was_dropping
    }

    /// The request waits for its turn. The input behind it is kept.
    #[cold]
    fn park(
        &mut self,
        mut waiting: Box<Waiting>,
        class: Class,
        (ready, deadline): (Instant, Instant),
    ) {
        if let Some(collected) = self.stream.park() {
            waiting.body = Some(collected);
        }
        (self.exchange.queue.waiting, self.exchange.queue.class) = (Some(waiting), class);
        let item = Item::Exchange(self.id);
        self.parts.admission.enqueue(class, Entry { item, ready, deadline });
    }

    /// Its turn has come, since it was ready at `ready`. Returns the request, and when the input behind it was ready.
    #[cold]
    fn unpark(&mut self, ready: Instant) -> (Box<Waiting>, Instant) {
        let next_ready = self.exchange.queue.take_next_ready(ready);
        let Some(waiting) = self.exchange.queue.waiting.take() else {
            unreachable!("an exchange in the queue has a request that waits")
        };
        self.stream.unpark(self.parts.turn.now);
        (waiting, next_ready)
    }

    /// Encodes an outcome that already is a response; `None` if the response comes later. And whether layers are notified
    /// of its end.
    #[inline(always)]
    fn encode_at_once(&mut self, outcome: &mut Outcome<'_>) -> (Option<Rest>, bool) {
        let Parts { turn, metrics, encoder, .. } = &mut *self.parts;
        let is_known = self.exchange.known.is_some();
        let before = if is_known { self.stream.pending() } else { 0 };
        let status;
        match outcome {
            Outcome::Ready(response) => {
                if response.is_special() {
                    super::answer::verify(self.app, &self.stream, self.exchange, response);
                }
                status = response.status().as_u16();
                turn.statistics.answered(metrics, self.exchange, status);
                if !encoder.copied(&mut self.stream, turn.now, response) {
                    let rest = encoder.moved(&mut self.stream, turn.now, response);
                    self.note_answer(status, before);
                    if matches!(rest, Rest::None) {
                        self.exchange.end_feed();
                    }
                    return (Some(rest), is_known);
                }
            }
            Outcome::Fixed(fixed) => {
                status = fixed.status();
                turn.statistics.answered(metrics, self.exchange, status);
                encoder.fixed(&mut self.stream, turn.now, fixed);
            }
            Outcome::Later(_) | Outcome::Offload(_) => return (None, is_known),
        }
        self.note_answer(status, before);
        self.exchange.end_feed();
        (Some(Rest::None), is_known)
    }
}
