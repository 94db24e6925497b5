//! Accepting: level-triggered listeners. To pause one, epoll stops watching it.
//!
//! When accepting resumes, it tries first, and watches the listener only if no connection waits.
//! Under overload there is room for one connection at a time, and this saves two system calls for
//! each.
//!
//! A connection at a shared socket wakes one driver, which therefore has to accept it even without free descriptors: it
//! holds a spare one for that.
//!
//! Invariant: a shared listener is watched only while the spare descriptor is held.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};

use highwater_core::driver::{AcceptError, Accepting, ConnId, Event, ListenerId, Reading};

use super::Epoll;
use super::slots::{EOF, READABLE, Token};
use crate::socket::accept_failure;
use crate::{DriverConfig, Listener};

/// How many connections one poll accepts at one listener. It stays ready for the next.
const ACCEPTS_MAX: usize = 64;

const READY: u32 = libc::EPOLLIN as u32;
/// Where several drivers wait for one socket, a connection wakes only one of them. None is lost: the kernel passes it on where
/// that one is not waiting, and one that was waiting tries to accept before it is told anything else,
/// with the spare descriptor if there is no other.
const READY_FOR_ONE: u32 = READY | libc::EPOLLEXCLUSIVE as u32;

pub(super) struct Acceptor {
    listeners: Vec<Entrance>,
    /// The next poll tries to accept somewhere without an event from epoll.
    untried: bool,
    /// Closed to accept a connection when there is no other descriptor. `None` without a shared listener.
    spare: Option<OwnedFd>,
    peer_addresses: bool,
    connections_max: usize,
}

/// One listener.
struct Entrance {
    id: ListenerId,
    /// `None` once closed.
    listener: Option<Listener>,
    /// For `Few`: how many are left.
    wanted: Accepting,
    watched: bool,
    /// The next poll tries to accept here without an event from epoll.
    untried: bool,
    /// `AcceptFailed` was reported; nothing is accepted until the worker asks again.
    stopped: bool,
}

impl Acceptor {
    pub(super) fn new(
        listeners: Vec<Listener>,
        selector: &super::Selector,
        config: &DriverConfig,
    ) -> io::Result<Acceptor> {
        let is_shared = listeners.iter().any(Listener::is_shared);
        let enter = |(id, listener): (ListenerId, Listener)| {
            listener.set_nonblocking(true)?;
            Ok(Entrance {
                id,
                listener: Some(listener),
                wanted: Accepting::Paused,
                watched: false,
                untried: false,
                stopped: false,
            })
        };
        let ids = ListenerId::all(listeners.len());
        Ok(Acceptor {
            listeners: ids.zip(listeners).map(enter).collect::<io::Result<_>>()?,
            untried: false,
            spare: if is_shared { Some(spare(selector)?) } else { None },
            peer_addresses: config.peer_addresses,
            connections_max: config.connections_max as usize,
        })
    }

    fn note_untried(&mut self) {
        self.untried = self.listeners.iter().any(|entrance| entrance.untried);
    }

    /// Whether the listener may be waited at: if it is shared, only with a spare descriptor.
    fn may_wait(&mut self, id: ListenerId, selector: &super::Selector) -> bool {
        let listener = &self.listeners[id.index()].listener;
        if self.spare.is_none() && listener.as_ref().is_some_and(Listener::is_shared) {
            self.spare = spare(selector).ok();
            return self.spare.is_some();
        }
        true
    }
}

/// A descriptor without a use of its own.
fn spare(selector: &super::Selector) -> io::Result<OwnedFd> {
    selector.as_fd().try_clone_to_owned()
}

impl Entrance {
    /// Whether another connection may be accepted.
    fn wants_more(&self) -> bool {
        !self.stopped && !matches!(self.wanted, Accepting::Paused | Accepting::Few(0))
    }

    fn count_one(&mut self) {
        if let Accepting::Few(left) = &mut self.wanted {
            *left = left.saturating_sub(1);
        }
    }

    fn watch(&mut self, selector: &super::Selector) -> io::Result<()> {
        if let Some(listener) = &self.listener
            && !self.watched
        {
            let flags = if listener.is_shared() { READY_FOR_ONE } else { READY };
            selector.add(listener.as_fd().as_raw_fd(), flags, Token::listener(self.id))?;
            self.watched = true;
        }
        Ok(())
    }

    fn unwatch(&mut self, selector: &super::Selector) {
        if let Some(listener) = &self.listener
            && self.watched
        {
            let removed = selector.remove(listener.as_fd().as_raw_fd());
            removed.expect("it was added, and is open");
            self.watched = false;
        }
    }
}

impl Epoll {
    pub(super) fn set_accepting(&mut self, id: ListenerId, accepting: Accepting) {
        let Epoll { acceptor, selector, .. } = self;
        let entrance = &mut acceptor.listeners[id.index()];
        // `Closed` is final.
        if entrance.wanted != Accepting::Closed {
            entrance.wanted = accepting;
        }
        entrance.stopped = false;
        if !entrance.wants_more() || entrance.wanted == Accepting::Closed {
            entrance.unwatch(selector);
        }
        entrance.untried = entrance.wants_more() && !entrance.watched;
        acceptor.note_untried();
    }

    pub(super) fn set_backlog(&mut self, id: ListenerId, backlog: u32) {
        if let Some(listener) = &mut self.acceptor.listeners[id.index()].listener {
            listener.set_backlog(backlog).expect("it listens already");
        }
    }

    /// Accepts connections that wait at a listener, within bounds. If the listener is not watched, the
    /// next poll tries again; once no connection waits, it is watched.
    pub(super) fn accept_ready(&mut self, id: ListenerId, on_event: &mut impl FnMut(Event<'_>)) {
        for _ in 0..ACCEPTS_MAX {
            let Epoll { acceptor, selector, .. } = self;
            let entrance = &mut acceptor.listeners[id.index()];
            if !entrance.wants_more() {
                return entrance.unwatch(selector);
            }
            let Some(listener) = &entrance.listener else {
                return;
            };
            match listener.accept(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) {
                Ok((fd, peer)) => {
                    listener.unfilter(fd.as_raw_fd());
                    self.welcome(id, fd, peer, on_event);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if entrance.wanted == Accepting::Closed {
                        entrance.listener = None;
                    } else if !acceptor.may_wait(id, selector) {
                        self.stop_accepting(AcceptError::Descriptors, on_event);
                    } else if acceptor.listeners[id.index()].watch(selector).is_err() {
                        self.stop_accepting(AcceptError::Memory, on_event);
                    }
                    return;
                }
                Err(error) => {
                    let number = error.raw_os_error().unwrap_or(libc::EINVAL);
                    match accept_failure(number) {
                        // The next round accepts the connection, of which no other driver may know.
                        Some(AcceptError::Descriptors) if acceptor.spare.take().is_some() => {}
                        Some(error) => self.stop_accepting(error, on_event),
                        None => {}
                    }
                }
            }
        }
        let Epoll { acceptor, selector, .. } = self;
        if !acceptor.may_wait(id, selector) {
            return self.stop_accepting(AcceptError::Descriptors, on_event);
        }
        let entrance = &mut self.acceptor.listeners[id.index()];
        if entrance.wanted == Accepting::Closed
            && entrance.listener.as_ref().is_some_and(Listener::is_kept)
        {
            entrance.listener = None; // The others have the rest.
        }
        entrance.untried = entrance.wants_more() && !entrance.watched;
        self.acceptor.note_untried();
    }

    /// A new connection. Its request has most likely arrived with it. Receiving at once means that
    /// a connection with one request is never registered with epoll.
    fn welcome(
        &mut self,
        id: ListenerId,
        fd: OwnedFd,
        peer: Option<SocketAddr>,
        on_event: &mut impl FnMut(Event<'_>),
    ) {
        self.acceptor.listeners[id.index()].count_one();
        let index = self.slots.insert(fd.into_raw_fd());
        self.slots.at(index).set(READABLE);
        let peer = peer.filter(|_| self.acceptor.peer_addresses);
        on_event(Event::Accepted(ConnId(index), id, peer));
        let token = self.slots.token(index);
        self.receive(index, on_event);
        if let Some(slot) = self.slots.find(token)
            && slot.reading != Reading::Stop
            && !slot.is(READABLE | EOF)
            && self.watch(index, false).is_err()
        {
            self.fail(index, on_event);
        }
        if self.slots.len() >= self.acceptor.connections_max
            && !self.acceptor.listeners[id.index()].stopped
        {
            self.stop_accepting(AcceptError::Descriptors, on_event);
        }
    }

    fn stop_accepting(&mut self, error: AcceptError, on_event: &mut impl FnMut(Event<'_>)) {
        let Epoll { acceptor, selector, .. } = self;
        for entrance in &mut acceptor.listeners {
            entrance.stopped = true;
            entrance.unwatch(selector);
        }
        on_event(Event::AcceptFailed(error));
    }

    /// Whether the next poll tries to accept without an event from epoll.
    pub(super) fn is_accepting_untried(&self) -> bool {
        self.acceptor.untried
    }

    /// Tries to accept where that is due. Returns whether it was.
    pub(super) fn accept_untried(&mut self, on_event: &mut impl FnMut(Event<'_>)) -> bool {
        if !std::mem::take(&mut self.acceptor.untried) {
            return false;
        }
        for id in ListenerId::all(self.acceptor.listeners.len()) {
            if std::mem::take(&mut self.acceptor.listeners[id.index()].untried) {
                self.accept_ready(id, on_event);
            }
        }
        true
    }
}
