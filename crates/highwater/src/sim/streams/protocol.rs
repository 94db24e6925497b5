//! The protocol with streams as a [`Protocol`]: what HTTP/2 has, without its encodings.

use std::ops::Bound;

use bytes::Bytes;
use highwater_core::http::{Body, BodyPlan, Head, Limits, Method, OwnedHead, Reject};
use highwater_core::link::{Link, Overdue};
use highwater_core::protocol::{
    self, Begun, Expired, Next, Protocol, Request, Step, StreamId, Versions,
};
use highwater_core::time::Instant;

use super::connection::{Found, Scratch, Toy};
use super::frame;
use super::state::{Input, Reply, State};
use super::stream::ToyStream;

/// A request whose head is complete.
pub(crate) struct Pending<'a> {
    toy: &'a mut Toy,
    scratch: &'a Scratch,
    stream: u32,
}

impl Protocol for Toy {
    type Scratch = Scratch;
    type Pending<'a> = Pending<'a>;
    type Stream<'a> = ToyStream<'a>;

    fn new(now: Instant, _versions: Versions) -> Self {
        Toy::accepted(now)
    }

    fn advance<'r, 'i: 'r>(
        &'r mut self,
        link: &mut Link,
        input: &mut &'i [u8],
        scratch: &'r mut Scratch,
        _limits: &Limits,
        now: Instant,
    ) -> Step<'r, Pending<'r>> {
        let (stream, next) = match self.find(link, input, scratch, now) {
            Found::Wait => (0, Next::Wait),
            Found::Head(stream) => return Step::Head(Pending { toy: self, scratch, stream }),
            Found::Reset(stream) => return Step::Reset(StreamId(stream)),
            Found::Body(stream, bytes) => (stream, Next::Body(bytes)),
            Found::Held(stream) => (stream, Next::Body(&scratch.held)),
            Found::BodyEnd(stream) => (stream, Next::BodyEnd),
            Found::BodyFailed(stream, reject) => (stream, Next::BodyFailed(reject)),
            Found::Reject(stream, reject) => (stream, Next::Reject(reject)),
            Found::Collected(stream) => match &self.streams[&stream].input {
                Input::Collecting(head, body) => {
                    let request = Request { head: head.head(), body: Body::Whole(body) };
                    (stream, Next::Request(request))
                }
                _ => unreachable!("it was collected"),
            },
        };
        Step::Next(StreamId(stream), next)
    }

    fn on_deadline(
        &mut self,
        link: &mut Link,
        now: Instant,
        limits: &Limits,
    ) -> (StreamId, Expired) {
        let of_all = |expired| (StreamId::CONNECTION, expired);
        match link.overdue(now, limits, self.is_awaited()) {
            Some(Overdue::Write) => return of_all(Expired::Reset),
            Some(Overdue::HalfClosed) => return of_all(Expired::HalfClosed),
            Some(Overdue::Linger) => return of_all(Expired::Close),
            None if now >= self.idle_deadline(link, limits) => return of_all(Expired::Close),
            None => {}
        }
        for (&stream, state) in &mut self.streams {
            if now >= state.stall_deadline(limits) {
                return of_all(Expired::Reset);
            }
            if now >= state.body_deadline(limits) {
                let is_collecting = matches!(state.input, Input::Collecting(..));
                state.input = Input::Dropped;
                if is_collecting {
                    state.reply = Reply::Owed;
                    return (StreamId(stream), Expired::Reject(Reject::BodyTimeout));
                }
                return (StreamId(stream), Expired::BodyFailed(Reject::BodyTimeout));
            }
        }
        of_all(Expired::Early)
    }

    fn drain(&mut self, link: &mut Link, _now: Instant) {
        if !std::mem::replace(&mut self.is_draining, true) {
            self.put(link, 0, frame::AWAY, &self.opened.to_be_bytes());
        }
    }

    fn flush(&mut self, link: &mut Link, limits: &Limits, now: Instant) {
        let mut idle = 0;
        while idle < self.streams.len() && !link.is_ending() {
            let room = link.room(limits);
            if room == 0 {
                break;
            }
            let after = (Bound::Excluded(self.sent), Bound::Unbounded);
            let next = self.streams.range(after).next().or_else(|| self.streams.iter().next());
            let Some((&stream, _)) = next else { break };
            self.sent = stream;
            idle = if self.send(link, room, stream, now) { 0 } else { idle + 1 };
        }
        let is_last = self.is_draining || link.is_eof();
        if is_last && self.streams.is_empty() && !self.has_ended && !link.is_ending() {
            self.has_ended = true;
            link.end(false);
        }
    }

    fn stream<'s>(&'s mut self, link: &'s mut Link, id: StreamId) -> ToyStream<'s> {
        ToyStream { toy: self, link, id: id.0 }
    }

    fn wants_input(&self, link: &Link, limits: &Limits) -> bool {
        link.carry().len() < frame::HEADER + frame::PAYLOAD_MAX && !link.is_full(limits)
    }

    fn holds_output(&self, link: &Link, limits: &Limits) -> bool {
        let has_frame = |state: &State| state.has_frame(self.window_out);
        link.room(limits) > 0 && self.streams.values().any(has_frame)
    }

    fn idle_since(&self, link: &Link) -> Option<Instant> {
        self.rests_since(link)
    }

    fn deadline(&self, link: &Link, limits: &Limits) -> Instant {
        let of_stream =
            |state: &State| state.body_deadline(limits).min(state.stall_deadline(limits));
        let streams = self.streams.values().map(of_stream).min().unwrap_or(Instant::MAX);
        let link_deadline = link.deadline(limits, self.is_awaited());
        link_deadline.min(self.idle_deadline(link, limits)).min(streams)
    }

    fn allocated(&self) -> usize {
        let of_state = |state: &State| {
            let out: usize = state.out.iter().map(Bytes::len).sum();
            let collected = match &state.input {
                Input::Collecting(head, body) => head.allocated() + body.capacity(),
                _ => 0,
            };
            size_of::<State>() + out + state.held.capacity() + collected
        };
        self.streams.values().map(of_state).sum()
    }
}

impl<'a> protocol::Pending<'a> for Pending<'a> {
    fn stream(&self) -> StreamId {
        StreamId(self.stream)
    }

    fn head(&self) -> Head<'a> {
        self.scratch.head.as_ref().expect("it was read").head()
    }

    fn begin<'i: 'a>(
        self,
        link: &mut Link,
        _input: &mut &'i [u8],
        plan: BodyPlan,
        _limits: &Limits,
        _now: Instant,
    ) -> Begun<'a> {
        let Pending { toy, scratch, stream } = self;
        let state = toy.streams.get_mut(&stream).expect("it was opened");
        let head = scratch.head.as_ref().expect("it was read").head();
        state.is_head = head.method() == Method::Head;
        link.note_movement(state.progress);
        state.body_max = plan.max();
        let body = match plan {
            _ if state.is_whole() => Body::Whole(&[]),
            BodyPlan::Whole(_) => {
                let head = OwnedHead::copy(&head);
                state.input = Input::Collecting(head, Vec::new());
                return Begun::Collecting;
            }
            BodyPlan::Streamed(_) | BodyPlan::Unwanted => Body::Streamed,
        };
        state.reply = Reply::Owed;
        Begun::Request(body)
    }
}
