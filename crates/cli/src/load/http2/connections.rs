//! The connections of a client, and which stream of theirs carries the request of which place.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use highwater_core::driver::ConnId;
use highwater_core::http2::ErrorCode;
use highwater_core::http2::client::{Config, Connection, Event, Failure};
use highwater_sys::dial::{Arrival, Dial};

use super::super::counts::Outcome;
use super::super::frames::Frames;
use super::super::wire::Happened;
use super::Setup;
use super::places::{Places, State};

/// How a response of HTTP/1.1 begins.
const HTTP_1: &[u8] = b"HTTP/1.";
const WRONG_VERSION: &str = "the server answers in HTTP/1.1; leave out --http2, or name a port that speaks HTTP/2 without TLS";

struct Open {
    h2: Connection,
    is_connected: bool,
    /// Bytes have come.
    has_received: bool,
    /// It is in `unsent`.
    is_queued: bool,
    /// It has ended or broken a rule.
    is_over: bool,
    /// It is in `roomy`.
    is_roomy: bool,
    /// Its places.
    places: Vec<u32>,
    streams: Streams,
    /// Places whose requests wait for a stream.
    waiting: VecDeque<u32>,
}

/// The open streams of a connection, in their order, and the place that each belongs to.
#[derive(Default)]
struct Streams(Vec<(u32, u32)>);

impl Streams {
    /// The index of a stream.
    fn find(&self, stream: u32) -> Option<usize> {
        self.0.binary_search_by_key(&stream, |(id, _)| *id).ok()
    }

    /// The place of a stream.
    fn place(&self, stream: u32) -> Option<u32> {
        self.find(stream).map(|at| self.0[at].1)
    }

    /// Removes a stream that has ended. Returns its place.
    fn remove(&mut self, stream: u32) -> Option<u32> {
        self.find(stream).map(|at| self.0.remove(at).1)
    }
}

/// The state that the events of one delivery of bytes change.
struct Delivery<'a> {
    streams: &'a mut Streams,
    places: &'a mut Places,
    frames: &'a RefCell<Frames>,
    arrival: Arrival,
}

impl Delivery<'_> {
    fn handle(&mut self, event: Event<'_>, on_event: &mut impl FnMut(Happened<'_>)) {
        match event {
            Event::Status(id, status) => {
                if let Some(place) = self.streams.place(id) {
                    on_event(Happened::Status(ConnId(place), status));
                }
            }
            Event::Field(id, name, value) => {
                if let Some(place) = self.streams.place(id) {
                    on_event(Happened::Field(ConnId(place), name, value));
                }
            }
            Event::Content(id, piece) => {
                if let Some(place) = self.streams.place(id) {
                    on_event(Happened::Content(ConnId(place), piece));
                }
            }
            Event::End(id, status) => {
                if let Some(place) = self.streams.remove(id) {
                    self.places.at(place).state = State::Idle;
                    on_event(Happened::End(ConnId(place), status, self.arrival));
                }
            }
            Event::Failed(id, failure) => {
                if let Some(place) = self.streams.remove(id) {
                    self.fail(place, failure);
                }
            }
            Event::GoAway(code, debug) => self.frames.borrow_mut().go_away(code, debug),
            Event::Trailer(..) | Event::Settings => {}
        }
    }

    /// The stream of a place has ended without a whole answer.
    fn fail(&mut self, place: u32, failure: Failure) {
        match failure {
            // It may be sent again, on another connection.
            Failure::Unprocessed(ErrorCode::NO_ERROR) => {
                self.places.at(place).state = State::Waiting;
                return self.places.unassigned.push(place);
            }
            Failure::Reset(code) => self.frames.borrow_mut().reset(code),
            _ => {}
        }
        self.places.lose(place, failure.into());
    }
}

/// All connections of a client, by their index in the dialer.
pub(super) struct Connections {
    list: Vec<Option<Open>>,
    /// Those with room for more places, perhaps.
    roomy: Vec<u32>,
    /// Those with output.
    unsent: Vec<u32>,
    /// Those that may be of no use any more.
    unused: Vec<u32>,
    /// A connection without places is closed, and not kept for others.
    closes: bool,
    config: Config,
    frames: Rc<RefCell<Frames>>,
}

impl Connections {
    pub(super) fn new(frames: Rc<RefCell<Frames>>, setup: Setup) -> Connections {
        let config = Config { fields: setup.fields, ..Config::default() };
        let closes = setup.closes;
        let (roomy, unsent, unused) = (Vec::new(), Vec::new(), Vec::new());
        Connections { list: Vec::new(), roomy, unsent, unused, closes, config, frames }
    }

    fn at(&mut self, index: u32) -> Option<&mut Open> {
        self.list.get_mut(index as usize)?.as_mut()
    }

    /// A connection is being made.
    pub(super) fn dialed(&mut self, index: u32) {
        if self.list.len() <= index as usize {
            self.list.resize_with(index as usize + 1, || None);
        }
        self.list[index as usize] = Some(Open {
            h2: Connection::new(self.config),
            is_connected: false,
            has_received: false,
            is_queued: false,
            is_over: false,
            is_roomy: true,
            places: Vec::new(),
            streams: Streams::default(),
            waiting: VecDeque::new(),
        });
        self.roomy.push(index);
    }

    /// A connection that has fewer places than `streams`.
    pub(super) fn with_room(&mut self, streams: u32) -> Option<u32> {
        while let Some(&index) = self.roomy.last() {
            if let Some(open) = self.at(index) {
                if (open.places.len() as u32) < streams && !open.is_over && !open.h2.is_leaving() {
                    return Some(index);
                }
                open.is_roomy = false;
            }
            self.roomy.pop();
        }
        None
    }

    /// Whether requests can be begun on it, now or later.
    pub(super) fn is_usable(&mut self, index: u32) -> bool {
        self.at(index).is_some_and(|open| !open.is_over && !open.h2.is_leaving())
    }

    /// Gives a place to a connection.
    pub(super) fn settle(&mut self, index: u32, place: u32, places: &mut Places) {
        let Some(open) = self.at(index) else { return };
        open.places.push(place);
        let taken = places.at(place);
        taken.connection = Some(index);
        if open.is_connected && taken.state == State::Dialing {
            places.ready.push(place);
        }
    }

    /// Takes a place away from its connection; its stream is cancelled.
    pub(super) fn leave(&mut self, place: u32, places: &mut Places) {
        let taken = places.at(place);
        let Some(index) = taken.connection.take() else { return };
        let state = taken.state;
        let Some(open) = self.at(index) else { return };
        open.places.retain(|other| *other != place);
        open.waiting.retain(|waiting| *waiting != place);
        if let State::Open(stream) = state {
            open.h2.cancel(stream);
            open.streams.remove(stream);
            self.queue(index);
        }
        self.unused.push(index);
        if let Some(open) = self.at(index)
            && !std::mem::replace(&mut open.is_roomy, true)
        {
            self.roomy.push(index);
        }
    }

    /// Begins the request of a place, as soon as its connection has a stream for it.
    pub(super) fn begin(&mut self, place: u32, places: &mut Places) {
        let Some(index) = places.at(place).connection else { return };
        if let Some(open) = self.at(index) {
            open.waiting.push_back(place);
            self.begin_waiting(index, places);
        }
    }

    fn begin_waiting(&mut self, index: u32, places: &mut Places) {
        let Some(open) = self.at(index) else { return };
        while open.is_connected
            && open.h2.room() > 0
            && let Some(index) = open.waiting.pop_front()
        {
            let place = places.at(index);
            let request = &place.request;
            let stream = open.h2.begin(request.is_head, &request.body, |add| request.each(add));
            place.state = State::Open(stream);
            open.streams.0.push((stream, index));
        }
        self.queue(index);
    }

    fn queue(&mut self, index: u32) {
        let Some(open) = self.at(index) else { return };
        if open.is_connected
            && !open.h2.output().is_empty()
            && !std::mem::replace(&mut open.is_queued, true)
        {
            self.unsent.push(index);
        }
    }

    /// Sends the output of the connections on which nothing is in transit.
    pub(super) fn flush(&mut self, inner: &mut impl Dial) {
        let mut unsent = std::mem::take(&mut self.unsent);
        unsent.retain(|index| {
            let Some(open) = self.at(*index) else { return false };
            if inner.is_writing(ConnId(*index)) {
                return true;
            }
            open.is_queued = false;
            if !open.h2.output().is_empty() {
                inner.write(ConnId(*index), |buffer| buffer.extend_from_slice(open.h2.output()));
                open.h2.sent();
            }
            false
        });
        self.unsent.append(&mut unsent);
    }

    /// A connection is established.
    pub(super) fn connected(&mut self, index: u32, places: &mut Places) {
        let Some(open) = self.at(index) else { return };
        open.is_connected = true;
        for place in &open.places {
            if places.at(*place).state == State::Dialing {
                places.ready.push(*place);
            }
        }
        self.begin_waiting(index, places);
    }

    /// Bytes have come on a connection.
    pub(super) fn received(
        &mut self,
        index: u32,
        bytes: &[u8],
        arrival: Arrival,
        places: &mut Places,
        on_event: &mut impl FnMut(Happened<'_>),
    ) {
        let frames = self.frames.clone();
        let Some(open) = self.at(index) else { return };
        if !std::mem::replace(&mut open.has_received, true) && bytes.starts_with(HTTP_1) {
            return self.ended(index, Outcome::Malformed(WRONG_VERSION), places);
        }
        let Open { h2, streams, .. } = open;
        let mut delivery = Delivery { streams, places, frames: &frames, arrival };
        let result = h2.receive(bytes, &mut |event| delivery.handle(event, on_event));
        if h2.streams_max() < u32::MAX {
            frames.borrow_mut().note_streams_max(h2.streams_max());
        }
        match result {
            Ok(()) if open.h2.is_leaving() => self.leaving(index, places),
            Ok(()) => self.begin_waiting(index, places),
            Err(error) => self.ended(index, Outcome::Malformed(error.reason), places),
        }
        self.queue(index);
    }

    /// After GOAWAY: requests that have no stream yet find another connection.
    fn leaving(&mut self, index: u32, places: &mut Places) {
        let Some(open) = self.at(index) else { return };
        places.unassigned.extend(open.waiting.drain(..));
        self.unused.push(index);
    }

    /// A connection is of no use any more, and all its requests have failed.
    pub(super) fn ended(&mut self, index: u32, outcome: Outcome, places: &mut Places) {
        let Some(open) = self.at(index) else { return };
        open.is_over = true;
        open.streams.0.clear();
        open.waiting.clear();
        for place in &open.places {
            places.lose(*place, outcome);
        }
        self.unused.push(index);
    }

    /// Connections that are to be closed.
    pub(super) fn take_unused(&mut self) -> Vec<u32> {
        let (closes, mut unused) = (self.closes, std::mem::take(&mut self.unused));
        unused.sort_unstable();
        unused.dedup();
        unused.retain(|index| {
            let open = self.at(*index);
            open.is_some_and(|open| {
                let is_idle = open.streams.0.is_empty() && open.waiting.is_empty();
                let gives_up = closes || !open.is_connected;
                open.is_over
                    || (gives_up && open.places.is_empty())
                    || (open.h2.is_leaving() && is_idle)
            })
        });
        unused
    }

    /// A connection is being closed; places that it still has are without one.
    pub(super) fn forget(&mut self, index: u32, places: &mut Places) {
        let open = self.list.get_mut(index as usize).and_then(Option::take);
        for place in open.into_iter().flat_map(|open| open.places) {
            places.at(place).connection = None;
        }
    }
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Outcome {
        match failure {
            Failure::Reset(_) => Outcome::StreamReset,
            Failure::Refused | Failure::Unprocessed(_) => Outcome::StreamRefused,
            Failure::Malformed(reason) => Outcome::Malformed(reason),
        }
    }
}
