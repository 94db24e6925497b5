//! From received bytes to answers: what a worker does for each request.
//!
//! ```text
//!  bytes ─▶ may it start? ─▶ parse ─▶ route ─▶ screen ─▶ handle ─▶ encode
//!               │no                              │no
//!               └▶ waits (admit.rs)              └▶ 503
//! ```
//!
//! Allocates nothing for a request that is answered at once, and copies no input that is complete.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::task::Waker;

use highwater_core::driver::{ConnId, Reading};
use highwater_core::http1::{Body, Head, Next, Reject};
use highwater_core::time::{Clock, Instant};

use super::admit::deadline;
use super::answer::{Pending, verify};
use super::inbox::{Inbox, Token};
use super::respond::Rest;
use super::slot::Slot;
use super::worker::State;
use crate::app::{
    self, BodyError, BodyFeed, Incoming, Outcome, RequestBody, Target, drop_guarded, guarded,
};

impl<C: Clock> State<C> {
    /// The fast path borrows the driver's buffer; only what is incomplete is ever copied.
    /// (Where a connection is encrypted, this is where its plaintext will come from.)
    pub(super) fn receive(&mut self, id: ConnId, bytes: &[u8]) {
        self.metrics.bytes_read.add(bytes.len() as u64);
        let slot = &mut self.slots[id.index()];
        if slot.reading == Reading::Once {
            slot.reading = Reading::Stop; // The one delivery that was armed has been made.
        }
        if slot.queued {
            slot.note_more(self.now);
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

    /// Looks again at input that could not be used before. Does nothing while the connection's input is
    /// being served already: whoever does that has it in hand, and goes on with it.
    pub(super) fn serve_carry(&mut self, id: ConnId) {
        if self.serving {
            return;
        }
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
        self.serving = true;
        while let Err(panic) = guarded(|| self.serve(id, input)) {
            let was_dropping = std::mem::take(&mut self.dropping);
            let slot = &self.slots[id.index()];
            if slot.connection.is_reply_owed() {
                let response = self.app.panicked(slot.target, panic);
                self.report_panics(id);
                self.answer(id, response);
            } else if was_dropping {
                self.report_panics(id); // The answer is encoded, and nothing is wrong with it.
            } else {
                // Not the application's: a defect of ours, better seen than hidden.
                resume_unwind(Box::new(panic.to_string()));
            }
        }
        self.serving = false;
    }

    /// parse → route → extract → handle → encode, for every complete request in `input`.
    fn serve(&mut self, id: ConnId, input: &mut &[u8]) {
        loop {
            if self.pace.is_up() && !self.may_start(id, input) {
                return;
            }
            let mut found = None;
            let State {
                app,
                slots,
                scratch,
                params,
                responder,
                now,
                at_hand,
                dropping,
                bounds,
                ..
            } = self;
            let slot = &mut slots[id.index()];
            let token = slot.token(id.index());
            let Slot { connection, feed, waker, peer, disconnected, .. } = slot;
            let next = connection.next(input, scratch, &responder.limits, *now, |head| {
                let target = app.find(head, params);
                found = Some(target);
                if at_hand.is_refused() && !app.is_vital(target) {
                    return app::UNWANTED_BODY;
                }
                app.plan(target, &responder.limits)
            });
            let request = match next {
                Next::Request(request) => request,
                Next::Wait => {
                    if connection.collected() > slot.charged && !self.hold_body(id) {
                        continue;
                    }
                    return;
                }
                Next::Reject(reject) => {
                    self.refuse(id, reject);
                    continue;
                }
                of_body => {
                    if let Some(is_full) = pass_on(of_body, feed) {
                        connection.pause_body(is_full, *now);
                    }
                    continue;
                }
            };
            let target = found.unwrap_or_else(|| app.find(&request.head, params));
            let endpoint = match target {
                Target::Endpoint(endpoint) => endpoint,
                _ => self.unmatched,
            };
            self.pace.count();
            slot.target = Some(target);
            slot.endpoint = endpoint;
            slot.started = at_hand.ready;
            if request.head.asks_upgrade() || slot.offered.is_some() {
                slot.offered = offered(&request.head);
            }
            let until = |ready| deadline(&request.head, ready, self.deadline_max, &self.clock);
            let admitted = match at_hand.admit(app, &self.gate, target, &request.head, *now, until)
            {
                Ok(admitted) => admitted,
                Err(rejection) => {
                    self.turn_away(id, rejection);
                    continue;
                }
            };
            slot.deadline = admitted.deadline;
            self.ledger.started(&self.metrics, at_hand.ready, *now);
            let body = match request.body {
                Body::Whole(bytes) => RequestBody::Whole(bytes),
                // Nobody reads it: the connection drops it as it comes.
                Body::Streamed if !app.reads_stream(target) => RequestBody::Whole(&[]),
                Body::Streamed => {
                    let size = bounds.body_memory.feed_size(&mut slot.charged);
                    slot.kept_up = 0;
                    open_feed(feed, waker, &self.inbox, token, size)
                }
            };
            let incoming =
                Incoming { head: &request.head, params, body, peer: *peer, disconnected };
            let mut outcome =
                self.advisor.watch(self.clock.clock(), endpoint, || app.call(target, incoming));
            // By reference: a response is a hundred bytes, and moving them shows in the figures.
            let rest = match &mut outcome {
                Outcome::Ready(response) => {
                    if response.is_special() {
                        verify(app, slot, response);
                    }
                    self.ledger.answered(&self.metrics, slot, response.status().as_u16());
                    responder.response(&mut slot.connection, *now, response)
                }
                Outcome::Fixed(fixed) => {
                    self.ledger.answered(&self.metrics, slot, fixed.status());
                    responder.fixed(&mut slot.connection, *now, fixed);
                    Rest::None
                }
                Outcome::Later(_) | Outcome::Offload(_) => {
                    let is_limited = admitted.permit.is_some();
                    let wait = Pending::of(outcome, admitted.permit);
                    self.wait_for(id, wait, is_limited);
                    continue;
                }
            };
            if matches!(rest, Rest::None) {
                // Caught around all requests of a delivery, as everything else here.
                *dropping = true;
                drop(outcome);
                *dropping = false;
            } else {
                drop_guarded(outcome);
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
        slot.deadline = Instant::MAX;
        let response = self.app.reject(reject);
        self.answer(id, response);
    }
}

/// The protocols that a request offers to go on with, in one list.
#[cold]
fn offered(head: &Head<'_>) -> Option<Box<[u8]>> {
    let values = head.headers().get_all("upgrade").map(<[u8]>::to_vec);
    head.asks_upgrade().then(|| values.collect::<Vec<_>>().join(&b',').into())
}

/// Passes on what was found of a body: to its feed, if that is still wanted. Returns whether that is full, if
/// it has got a piece.
fn pass_on(found: Next<'_>, feed: &mut Option<BodyFeed>) -> Option<bool> {
    match found {
        Next::Body(piece) | Next::Raw(piece) => {
            let feed = feed.as_ref()?;
            feed.push(piece);
            return Some(!feed.has_room());
        }
        Next::BodyEnd | Next::RawEnd => feed.take()?.finish(),
        Next::BodyFailed(reject) => feed.take()?.fail(BodyError::from(reject)),
        Next::Wait | Next::Request(_) | Next::Reject(_) => {}
    }
    None
}

/// Makes the pieces of a body that are yet to come reach its handler.
fn open_feed(
    feed: &mut Option<BodyFeed>,
    waker: &mut Option<Waker>,
    inbox: &Arc<Inbox>,
    token: Token,
    size: usize,
) -> RequestBody<'static> {
    let waker = waker.get_or_insert_with(|| inbox.waker(token)).clone();
    let (sender, stream) = app::channel(size, waker);
    *feed = Some(sender);
    RequestBody::Stream(stream)
}
