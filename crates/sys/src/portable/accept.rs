//! Accepting. The selector says once that connections wait, and again when another one comes after the queue was found
//! empty; so that is noted, and remains true until accepting finds no connection.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use highwater_core::driver::{AcceptError, Accepting, ConnId, Event, ListenerId};

use super::Portable;
use super::selector::{Selector, Subject};
use super::slots::READABLE;
use super::stream::{Acceptor, Stream};
use crate::socket::accept_failure;
use crate::{DriverConfig, Listener};

/// How many connections one poll accepts at one listener. It stays ready for the next.
const ACCEPTS_MAX: usize = 64;

pub(super) struct Entrances {
    all: Vec<Entrance>,
    peer_addresses: bool,
    connections_max: usize,
}

/// One listener.
struct Entrance {
    /// `None` once closed.
    open: Option<(Listener, Acceptor)>,
    /// For `Few`: how many are left.
    wanted: Accepting,
    /// Somebody may wait.
    is_ready: bool,
    /// `AcceptFailed` was reported; nothing is accepted until the worker asks again.
    stopped: bool,
}

impl Entrances {
    pub(super) fn new(
        listeners: Vec<Listener>,
        config: &DriverConfig,
        selector: &Selector,
    ) -> io::Result<Entrances> {
        let enter = |(id, listener): (ListenerId, Listener)| {
            let mut acceptor = Acceptor::new(listener.plain()?)?;
            acceptor.watch(selector.registry(), Subject::Listener(id).token())?;
            let open = Some((listener, acceptor));
            Ok(Entrance { open, wanted: Accepting::Paused, is_ready: true, stopped: false })
        };
        let ids = ListenerId::all(listeners.len());
        Ok(Entrances {
            all: ids.zip(listeners).map(enter).collect::<io::Result<_>>()?,
            peer_addresses: config.peer_addresses,
            connections_max: config.connections_max as usize,
        })
    }

    /// Somebody may wait at listener `id`.
    pub(super) fn note(&mut self, id: ListenerId) {
        self.all[id.index()].is_ready = true;
    }

    /// Whether the next poll tries to accept somewhere.
    pub(super) fn is_due(&self) -> bool {
        self.all.iter().any(Entrance::is_due)
    }

    pub(super) fn set(&mut self, id: ListenerId, accepting: Accepting) {
        let entrance = &mut self.all[id.index()];
        // `Closed` is final.
        if entrance.wanted != Accepting::Closed {
            entrance.wanted = accepting;
        }
        if accepting == Accepting::Closed {
            entrance.is_ready = true; // It closes when nobody is found to wait.
        }
        entrance.stopped = false;
    }

    pub(super) fn set_backlog(&mut self, id: ListenerId, backlog: u32) {
        if let Some((listener, _)) = &mut self.all[id.index()].open {
            listener.set_backlog(backlog).expect("it listens already");
        }
    }

    fn stop(&mut self) {
        self.all.iter_mut().for_each(|entrance| entrance.stopped = true);
    }
}

impl Entrance {
    /// Whether another connection may be accepted.
    fn is_due(&self) -> bool {
        self.open.is_some()
            && self.is_ready
            && !self.stopped
            && !matches!(self.wanted, Accepting::Paused | Accepting::Few(0))
    }

    /// Accepts one connection. `Ok(None)` if nobody waits, or if only the connection being accepted failed.
    fn accept_one(&mut self) -> Result<Option<(Stream, Option<SocketAddr>)>, AcceptError> {
        let Some((listener, acceptor)) = &self.open else { return Ok(None) };
        match acceptor.accept() {
            Ok((stream, peer)) => {
                stream.send_without_delay();
                listener.unfilter_stream(&stream);
                if let Accepting::Few(left) = &mut self.wanted {
                    *left = left.saturating_sub(1);
                }
                Ok(Some((stream, peer)))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.is_ready = false;
                if self.wanted == Accepting::Closed {
                    self.open = None;
                }
                Ok(None)
            }
            Err(error) => accept_failure(error.raw_os_error().unwrap_or(0)).map_or(Ok(None), Err),
        }
    }

    /// After as many as one poll accepts: where another process keeps the socket open, it has the others.
    fn leave_the_rest(&mut self) {
        let is_kept = self.open.as_ref().is_some_and(|(listener, _)| listener.is_kept());
        if self.wanted == Accepting::Closed && is_kept {
            self.open = None;
        }
    }
}

impl Portable {
    /// Accepts where somebody may wait, within bounds.
    pub(super) fn accept_ready(&mut self, on_event: &mut impl FnMut(Event<'_>)) {
        for id in ListenerId::all(self.entrances.all.len()) {
            let mut tries = 0;
            while tries < ACCEPTS_MAX && self.entrances.all[id.index()].is_due() {
                tries += 1;
                match self.entrances.all[id.index()].accept_one() {
                    Ok(Some((stream, peer))) => self.welcome(id, stream, peer, on_event),
                    Ok(None) => {}
                    Err(error) => self.stop_accepting(error, on_event),
                }
            }
            if tries == ACCEPTS_MAX {
                self.entrances.all[id.index()].leave_the_rest();
            }
        }
    }

    /// A new connection. Its request has most likely arrived with it.
    fn welcome(
        &mut self,
        id: ListenerId,
        mut stream: Stream,
        peer: Option<SocketAddr>,
        on_event: &mut impl FnMut(Event<'_>),
    ) {
        let token = Subject::Connection(self.slots.next()).token();
        let watched = stream.watch(self.selector.registry(), token);
        let index = self.slots.insert(stream);
        self.slots.at(index).set(READABLE);
        let peer = peer.filter(|_| self.entrances.peer_addresses);
        on_event(Event::Accepted(ConnId(index), id, peer));
        match watched {
            Ok(()) => self.receive(index, on_event),
            Err(_) => self.fail(index, on_event),
        }
        let is_stopped = self.entrances.all[id.index()].stopped;
        if self.slots.len() >= self.entrances.connections_max && !is_stopped {
            self.stop_accepting(AcceptError::Descriptors, on_event);
        }
    }

    fn stop_accepting(&mut self, error: AcceptError, on_event: &mut impl FnMut(Event<'_>)) {
        self.entrances.stop();
        on_event(Event::AcceptFailed(error));
    }
}
