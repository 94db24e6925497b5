//! A request that is about to begin: its target, the one question to admission, and the call of its handler.

use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use highwater_core::http::{Body, BodyPlan, Head, Version};
use highwater_core::limit::ClientKey;
use highwater_core::time::{Clock, Instant};

use super::super::Parts;
use super::super::exchange::{Exchange, ExchangeId, Named, Offered};
use super::super::protocol::Request;
use super::super::turn::Turn;
use crate::admission::queue::Class;
use crate::admission::worker::{Arrival, Verdict};
use crate::app::{
    self, App, Disconnected, Outcome, PeerCertificates, Priority, RequestBody, Response, Routed,
    Target,
};
use crate::metrics::Rejection;

/// Who sent a request, and with which certificates.
pub(super) type Sender<'a> = (Option<SocketAddr>, &'a Option<PeerCertificates>);

/// A request, how it was routed, and who sent it.
pub(super) type Asked<'a> = (&'a Request<'a>, &'a Routed, Option<SocketAddr>);

impl<C: Clock> Parts<C> {
    /// Looks at a head that was found: where its request goes, and how its content is read. `peer` sent it,
    /// which is `client` if that was asked; with `is_suspect`, it may have hung up.
    #[inline(always)]
    pub(super) fn look(
        &mut self,
        app: &App,
        exchange: &mut Exchange,
        head: &Head<'_>,
        routed: &mut Routed,
        (peer, client, is_suspect): (&Option<SocketAddr>, &Option<ClientKey>, bool),
        arrival: &mut Arrival,
    ) -> (Target, BodyPlan) {
        let target = match app.replaces() {
            false => app.find(head, &mut routed.params),
            true => {
                let target = app.locate(head, *peer, routed);
                exchange.replaced.clone_from(&routed.replaced);
                target
            }
        };
        exchange.found = target;
        let mut seen = None;
        let head = routed.view(head, &mut seen);
        if let Some(known) = app.retain(target, head, routed, peer) {
            exchange.known = Some(known);
        }
        if !self.admission.admits_at_once() {
            arrival.refuse = self.refuses(app, target, head, (*peer, *client, is_suspect));
        }
        let plan = match arrival.refuse {
            Some(_) => BodyPlan::Unwanted,
            None => app.plan(target, &self.encoder.limits),
        };
        (target, plan)
    }

    /// Makes the one verdict about a request: it is served, waits, or is refused.
    #[inline(always)]
    pub(super) fn judge(
        &mut self,
        app: &App,
        (target, head): (Target, &Head<'_>),
        arrival: &Arrival,
        is_suspect: bool,
    ) -> Verdict {
        let Parts { turn, admission, .. } = self;
        if !admission.admits_at_once()
            && !arrival.is_decided()
            && (is_suspect || !admission.has_time(|| turn.clock.now()))
        {
            return self.wait(app, (target, head), arrival.ready);
        }
        admission.count();
        let conditions = (head.names_deadline(), app.is_limited(target));
        let until = |ready| deadline(head, ready, admission.deadline_max(), &turn.clock);
        let rules = || app.rules(target, turn.clock.shared(turn.now));
        admission.judge(arrival, turn.now, conditions, rules, until)
    }

    #[cold]
    fn wait(&self, app: &App, (target, head): (Target, &Head<'_>), ready: Instant) -> Verdict {
        let Parts { turn, admission, .. } = self;
        let until = deadline(head, ready, admission.deadline_max(), &turn.clock);
        Verdict::Wait(class(app, target, head), until)
    }

    /// Serves a request, which was ready at `ready` and has a `deadline`: calls its handler.
    #[inline(always)]
    pub(super) fn call<'a>(
        &mut self,
        app: &'a App,
        (exchange, id): (&mut Exchange, ExchangeId),
        (target, head, routed): (Target, &Head<'_>, &Routed),
        (body, (peer, certificates)): (Body<'_>, Sender<'_>),
        (ready, deadline): (Instant, Instant),
    ) -> Outcome<'a> {
        let Turn { blocking, clock, statistics, now, .. } = &mut self.turn;
        statistics.started(&self.metrics, ready, *now);
        let timed = blocking.begin(clock.clock());
        exchange.deadline = deadline;
        let body = match body {
            Body::Whole(bytes) => RequestBody::Whole(bytes),
            Body::Collected(bytes) => RequestBody::Collected(bytes),
            Body::Streamed if !app.reads_stream(target) => RequestBody::Whole(&[]),
            Body::Streamed => self.feed(exchange, id),
        };
        let Exchange { disconnected, named, endpoint, .. } = exchange;
        let noted = IfItPanics { named, head };
        let mut outcome = {
            let asked = app.request(target, head, routed, body, peer, disconnected);
            if let Some(certificates) = certificates {
                attach(certificates, &asked);
            }
            app.call(&asked)
        }; // What layers have attached to the request is dropped while a panic still becomes its answer.
        app.render(target, head, &mut outcome);
        let mut noted = ManuallyDrop::new(noted);
        if matches!(outcome, Outcome::Later(_) | Outcome::Offload(_)) {
            *noted.named = Named::of(head); // It is answered after the request's bytes are dropped.
        }
        if let Some(timed) = timed {
            let Turn { blocking, clock, .. } = &mut self.turn;
            blocking.end(timed, clock.clock(), *endpoint);
        }
        outcome
    }

    /// The number of a refusal, and its answer if layers make one.
    #[cold]
    pub(super) fn refusal(
        &mut self,
        app: &App,
        target: Target,
        (request, routed, peer): Asked<'_>,
        disconnected: &OnceLock<Disconnected>,
    ) -> (u32, Option<Response>) {
        let (head, body) = (&request.head, RequestBody::Whole(&[]));
        let request = app.request(target, head, routed, body, peer, disconnected);
        let number = self.admission.next_refusal();
        (number, app.refuse(&request, number))
    }

    /// Whether a request is refused before its content is read: the turn's time is used up, and no more
    /// requests may wait.
    #[cold]
    fn refuses(
        &mut self,
        app: &App,
        target: Target,
        head: &Head<'_>,
        (peer, client, is_suspect): (Option<SocketAddr>, Option<ClientKey>, bool),
    ) -> Option<Rejection> {
        let Parts { turn, admission, metrics, clients, .. } = self;
        if !is_suspect && admission.has_time(|| turn.clock.now()) {
            return None;
        }
        if admission.stands() {
            metrics.queue.judged.add(1);
            metrics.queue.passed_on.add(u64::from(is_passed_on(head)));
        }
        // The application is not asked before a request waits: it might panic where no answer can be given.
        let client = || match app.names_clients() {
            true => None,
            false => clients.of_request(peer, head).or(client),
        };
        admission.is_full(class(app, target, head), client).then_some(Rejection::QueueFull)
    }

    /// Connects a body that has not arrived in full to its handler.
    fn feed(&mut self, exchange: &mut Exchange, id: ExchangeId) -> RequestBody<'static> {
        let size = self.body_memory.feed_size(&mut exchange.counted.charged);
        let waker = self.tasks.waker(exchange, id);
        let (feed, stream) = app::channel(size, waker);
        exchange.begin_feed(feed);
        RequestBody::Stream(stream)
    }
}

/// Keeps what the log says about a request whose handler panics: unwinding drops this, and a handler that returns
/// does not, so that it costs nothing then.
pub(super) struct IfItPanics<'e, 'h> {
    pub(super) named: &'e mut Named,
    pub(super) head: &'h Head<'h>,
}

impl Drop for IfItPanics<'_, '_> {
    fn drop(&mut self) {
        *self.named = Named::of(self.head);
    }
}

/// The target of a request whose head was [looked at](Parts::look) before its content was complete.
#[inline]
pub(super) fn found_again(
    app: &App,
    exchange: &mut Exchange,
    head: &Head<'_>,
    routed: &mut Routed,
) -> Target {
    match app.replaces() {
        false => app.find(head, &mut routed.params),
        true => app.locate_again(head, exchange.found, exchange.replaced.take(), routed),
    }
}

impl Exchange {
    /// A request was found, which could have been started at `ready`. If no endpoint matches, it is counted
    /// for `unmatched`.
    #[inline]
    pub(super) fn begin(
        &mut self,
        target: Target,
        head: &Head<'_>,
        ready: Instant,
        unmatched: u16,
    ) {
        debug_assert!(self.feed.is_none(), "the body of the request before is over");
        self.target = Some(target);
        self.endpoint = target.endpoint().unwrap_or(unmatched);
        self.named.method = head.method();
        self.started = ready;
        self.offered = offered(head);
    }
}

/// How important a request is.
fn class(app: &App, target: Target, head: &Head<'_>) -> Class {
    match app.priority(target, head) {
        _ if app.is_never_shed(target) => Class::NeverShed,
        Priority::High => Class::High,
        Priority::Normal => Class::Normal,
        Priority::Low => Class::Low,
    }
}

/// The client's own deadline, by our clock and within our bound.
fn deadline(head: &Head<'_>, ready: Instant, max: Duration, clock: &impl Clock) -> Instant {
    if !head.names_deadline() {
        return Instant::MAX;
    }
    // Behind others of its connection, it may have been ready for a while.
    let since_ready = (clock.now() - ready).as_millis();
    let since_ready = u64::try_from(since_ready).unwrap_or(u64::MAX);
    match head.patience(clock.unix_millis().saturating_sub(since_ready)) {
        Some(patience) => ready + patience.min(max),
        None => Instant::MAX,
    }
}

/// Makes the client's certificates known to handlers and layers.
#[cold]
fn attach(certificates: &PeerCertificates, asked: &app::Request<'_>) {
    asked.insert(certificates.clone());
}

/// Whether a proxy passed the request on, by the fields that proxies add; or by HTTP/1.0, which little else speaks but
/// nginx without `proxy_http_version`.
fn is_passed_on(head: &Head<'_>) -> bool {
    head.version() == Version::Http10
        || ["x-forwarded-for", "forwarded", "via"]
            .iter()
            .any(|name| head.headers().get(name).is_some())
}

/// What a request asks to go on with; of most requests, nothing.
#[inline]
fn offered(head: &Head<'_>) -> Option<Box<Offered>> {
    head.asks_upgrade().then(|| list_offered(head))
}

#[cold]
#[inline(never)]
fn list_offered(head: &Head<'_>) -> Box<Offered> {
    if head.is_extended_connect() {
        // The protocol knows no other (RFC 8441 §5).
        return Box::new(Offered { protocols: b"websocket".to_vec(), has_content: false });
    }
    let fields = head.headers();
    let values: Vec<_> = fields.get_all("upgrade").map(<[u8]>::to_vec).collect();
    let length = fields.get("content-length").unwrap_or_default();
    let has_content =
        fields.get("transfer-encoding").is_some() || length.iter().any(|digit| *digit != b'0');
    Box::new(Offered { protocols: values.join(&b','), has_content })
}
