//! HTTP/2 as a [`Protocol`].

use super::super::encode;
use super::super::error::ErrorCode;
use super::super::settings::WINDOW_MAX;
use super::Connection;
use super::found::Found;
use super::head::Scratch;
use super::pending::Pending;
use super::state::{Going, Phase, State};
use super::stream::Stream;
use super::upload::Kind;
use crate::http::{Body, Limits};
use crate::link::Link;
use crate::protocol::{
    CloseReason, Expired, Next, Protocol, Report, Request, Step, StreamId, Versions,
};
use crate::time::Instant;

/// The PING that asks whether the peer has read that it is to open no more streams.
pub(super) const DRAIN_PING: [u8; 8] = *b"draining";

impl State {
    /// Tells the peer to open no more streams. Those on their way are still served (RFC 9113 §6.8).
    pub(super) fn drain(&mut self, link: &mut Link, now: Instant) {
        if self.going != Going::No {
            return;
        }
        self.going = Going::Announced(now);
        if !matches!(self.phase, Phase::Preface(_)) {
            self.announce(link, now);
        }
    }

    pub(super) fn announce(&mut self, link: &mut Link, now: Instant) {
        self.going = Going::Announced(now);
        if !link.is_ending() {
            encode::go_away(WINDOW_MAX, ErrorCode::NO_ERROR, b"", link.output());
            encode::ping(DRAIN_PING, link.output());
        }
    }

    /// No stream beyond those that are open is served.
    pub(super) fn finalize(&mut self, link: &mut Link) {
        self.going = Going::Final(self.opened);
        self.report.close_reason.get_or_insert(CloseReason::Drained);
        if link.is_ending() {
            return;
        }
        match self.phase {
            Phase::Preface(_) => link.end(false),
            _ => encode::go_away(self.opened, ErrorCode::NO_ERROR, b"", link.output()),
        }
    }

    /// Ends the connection, on which there is no stream.
    pub(super) fn leave(&mut self, link: &mut Link, close_reason: CloseReason) {
        if !matches!(self.phase, Phase::Preface(_)) && !matches!(self.going, Going::Final(_)) {
            encode::go_away(self.opened, ErrorCode::NO_ERROR, b"", link.output());
        }
        self.report.close_reason.get_or_insert(close_reason);
        link.end(false);
    }
}

impl Protocol for Connection {
    type Scratch = Scratch;
    type Pending<'a> = Pending<'a>;
    type Stream<'a> = Stream<'a>;

    fn new(now: Instant, _versions: Versions) -> Self {
        Connection::new(now)
    }

    fn advance<'r, 'i: 'r>(
        &'r mut self,
        link: &mut Link,
        input: &mut &'i [u8],
        scratch: &'r mut Scratch,
        limits: &Limits,
        now: Instant,
    ) -> Step<'r, Pending<'r>> {
        let (id, next) = match self.find(link, input, scratch, limits, now) {
            Found::Wait => return Step::Next(StreamId::CONNECTION, Next::Wait),
            Found::Head(id) => return Step::Head(Pending { state: &mut self.state, scratch, id }),
            Found::Reset(id) => return Step::Reset(StreamId(id)),
            Found::Body(id, piece) => (id, Next::Body(piece)),
            Found::Trailers(id) => (id, Next::Trailers(scratch.trailers.fields())),
            Found::BodyEnd(id) => (id, Next::BodyEnd),
            Found::Raw(id, bytes) => (id, Next::Raw(bytes)),
            Found::RawEnd(id) => (id, Next::RawEnd),
            Found::BodyFailed(id, reject) => (id, Next::BodyFailed(reject)),
            Found::Reject(id, reject) => (id, Next::Reject(reject)),
            Found::Held(id) => (id, self.held(id)),
            Found::Collected(id) => (id, self.collected(id)),
        };
        Step::Next(StreamId(id), next)
    }

    fn on_deadline(
        &mut self,
        link: &mut Link,
        now: Instant,
        limits: &Limits,
    ) -> (StreamId, Expired) {
        self.state.on_deadline(link, now, limits)
    }

    fn drain(&mut self, link: &mut Link, now: Instant) {
        self.state.drain(link, now);
    }

    fn flush(&mut self, link: &mut Link, limits: &Limits, now: Instant) {
        let state = &mut self.state;
        state.send_waiting(link, limits, now);
        state.end_turn(link, now);
        // Requests may wait behind a full output.
        let has_all = link.is_eof() && link.carry().is_empty();
        let is_last = matches!(state.going, Going::Final(_)) || has_all;
        if is_last && state.streams.is_empty() && !link.is_ending() {
            link.end(false);
        }
    }

    #[inline]
    fn stream<'s>(&'s mut self, link: &'s mut Link, id: StreamId) -> Stream<'s> {
        let index = self.state.streams.find(id.0);
        Stream { state: &mut self.state, link, id: id.0, index }
    }

    fn wants_input(&self, link: &Link, limits: &Limits) -> bool {
        !link.is_full(limits)
    }

    fn holds_input(&self) -> bool {
        self.state.holds_input()
    }

    fn holds_output(&self, link: &Link, limits: &Limits) -> bool {
        self.state.holds_output(link, limits)
    }

    fn idle_since(&self, link: &Link) -> Option<Instant> {
        self.state.idle_since(link)
    }

    fn deadline(&self, link: &Link, limits: &Limits) -> Instant {
        self.state.deadline(link, limits)
    }

    fn take_report(&mut self) -> Option<Report> {
        self.state.report.take()
    }

    fn allocated(&self) -> usize {
        self.decoder.allocated() + self.state.allocated()
    }
}

impl Connection {
    /// The next piece of what is held for a stream.
    fn held(&mut self, id: u32) -> Next<'_> {
        let stream = self.state.streams.get_mut(id);
        match stream.and_then(|stream| stream.upload.as_mut()) {
            Some(upload) => {
                let piece = upload.take_held();
                let bytes = &upload.held[piece];
                if matches!(upload.kind, Kind::Tunnel) {
                    Next::Raw(bytes)
                } else {
                    Next::Body(bytes)
                }
            }
            None => Next::Wait,
        }
    }

    /// The request whose content is collected.
    fn collected(&mut self, id: u32) -> Next<'_> {
        let stream = self.state.streams.get_mut(id);
        match stream.and_then(|stream| stream.upload.as_mut()).map(|upload| &mut upload.kind) {
            Some(Kind::Collecting(head, body)) => {
                Next::Request(Request { head: head.head(), body: Body::Collected(body.finish()) })
            }
            _ => unreachable!("it was collected"),
        }
    }
}
