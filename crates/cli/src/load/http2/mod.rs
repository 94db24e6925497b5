//! HTTP/2 beneath the requests of `load`: the streams of several connections, each a place for one request.
//!
//! ```text
//!  place: Free ─connect─▶ Dialing ─▶ Idle ─begin─▶ Waiting ─▶ Open(stream) ─▶ Idle
//!                                       └───────────────────────▲ if the connection has room
//! ```
//!
//! A place belongs to a connection, `--streams` of them to each. Its connection may end while it is idle: it finds
//! another one when its next request comes. A request waits for a stream if the server allows fewer than there are
//! places; the wait is in its latency. A connection without a place in use is closed once the server has said GOAWAY.

mod connections;
mod places;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use highwater_core::driver::{ConnId, Wait};
use highwater_sys::dial::{Dial, Event};

use super::counts::Outcome;
use super::frames::Frames;
use super::wire::{Batch, Happened, Wire};
use connections::Connections;
use places::{Places, State};

/// Settings of a client's streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Places of a connection.
    pub(crate) streams: u32,
    /// Fields of answers are to be reported.
    pub(crate) fields: bool,
    /// Connections are closed after some requests.
    pub(crate) closes: bool,
}

/// HTTP/2 over connections of `D`.
pub(crate) struct Http2<D> {
    inner: D,
    setup: Setup,
    places: Places,
    connections: Connections,
    frames: Rc<RefCell<Frames>>,
}

impl<D: Dial> Http2<D> {
    pub(crate) fn new(inner: D, setup: Setup) -> Http2<D> {
        let frames = Rc::new(RefCell::new(Frames::default()));
        let connections = Connections::new(frames.clone(), setup);
        Http2 { inner, setup, places: Places::default(), connections, frames }
    }

    /// Where frames are counted.
    pub(crate) fn frames(&self) -> Rc<RefCell<Frames>> {
        self.frames.clone()
    }

    /// Finds a connection for a place, or opens one.
    fn settle(&mut self, place: u32) -> io::Result<()> {
        let index = match self.connections.with_room(self.setup.streams) {
            Some(index) => index,
            None => {
                let id = self.inner.connect()?;
                self.connections.dialed(id.0);
                id.0
            }
        };
        self.connections.settle(index, place, &mut self.places);
        Ok(())
    }

    /// Begins the request of a place on another connection than its own, which takes none any more.
    fn move_on(&mut self, place: u32) {
        self.connections.leave(place, &mut self.places);
        if let Err(error) = self.settle(place) {
            let errno = error.raw_os_error().unwrap_or(0);
            return self.places.lost.push((place, Outcome::Failed(errno)));
        }
        self.connections.begin(place, &mut self.places);
    }

    /// Closes connections that are of no use any more.
    fn close_unused(&mut self) {
        for index in self.connections.take_unused() {
            self.connections.forget(index, &mut self.places);
            self.inner.close(ConnId(index));
        }
    }
}

impl<D: Dial> Wire for Http2<D> {
    fn connect(&mut self) -> io::Result<ConnId> {
        let place = self.places.take();
        if let Err(error) = self.settle(place) {
            self.places.give_back(place);
            return Err(error);
        }
        Ok(ConnId(place))
    }

    fn begin(&mut self, id: ConnId, batch: Batch<'_>) {
        let place = self.places.at(id.0);
        let Some(message) = &batch.request.http2 else { return };
        message.write(batch.values, &mut place.request);
        place.state = State::Waiting;
        match place.connection.is_some_and(|index| self.connections.is_usable(index)) {
            true => self.connections.begin(id.0, &mut self.places),
            false => self.move_on(id.0),
        }
    }

    fn close(&mut self, id: ConnId) {
        self.connections.leave(id.0, &mut self.places);
        self.places.give_back(id.0);
        self.close_unused();
    }

    fn closing(&self) -> usize {
        self.inner.closing()
    }

    fn poll(&mut self, wait: Wait, on_event: &mut impl FnMut(Happened<'_>)) -> io::Result<()> {
        self.connections.flush(&mut self.inner);
        let Http2 { inner, places, connections, .. } = self;
        let wait = if places.has_news() { Wait::No } else { wait };
        inner.poll(wait, &mut |event| match event {
            Event::Connected(id) => connections.connected(id.0, places),
            Event::Received(id, bytes, arrival) => {
                on_event(Happened::Bytes(bytes.len()));
                connections.received(id.0, bytes, arrival, places, on_event);
            }
            Event::Eof(id) => connections.ended(id.0, Outcome::Truncated, places),
            Event::Failed(id, failure) => {
                connections.ended(id.0, failure.into(), places);
                connections.forget(id.0, places);
            }
        })?;
        for place in std::mem::take(&mut self.places.unassigned) {
            self.move_on(place);
        }
        self.connections.flush(&mut self.inner);
        self.close_unused();
        for place in std::mem::take(&mut self.places.ready) {
            if self.places.at(place).state == State::Dialing {
                self.places.at(place).state = State::Idle;
                on_event(Happened::Io(Event::Connected(ConnId(place))));
            }
        }
        for (place, outcome) in std::mem::take(&mut self.places.lost) {
            on_event(Happened::Broken(ConnId(place), outcome));
        }
        Ok(())
    }
}
