//! Accepting: one multishot operation per listener while there is no bound, otherwise as many single
//! operations as may still be accepted. To change between them, the operations in flight are cancelled.
//!
//! A bound needs single operations: a multishot accept empties the listen queue before it can be
//! told to stop. (The kernel wakes waiters of a listener one by one. A waiter that is cancelled
//! after it was woken leaves its connection in the queue; the next armed accept tries the queue
//! first and finds it.)
//!
//! A shared socket is nonblocking, because another process may accept from it with system calls, and
//! io_uring does not wait for a nonblocking socket to accept from. There a poll is armed, and connections
//! are accepted with system calls when it completes.

use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, RawFd};

use highwater_core::driver::{AcceptError, Accepting, ConnId, Event, ListenerId};
use io_uring::cqueue;

use super::slots::{Operation, RECEIVING, Token, UNIX};
use super::{COMPLETIONS_MAX, Uring};
use crate::socket::accept_failure;
use crate::{DriverConfig, Listener, direct, socket};

/// Single accepts in flight at most at one listener: as many connections are accepted by one poll.
const SINGLES_MAX: u32 = 64;

pub(super) struct Acceptor {
    listeners: Vec<Entrance>,
    peer_addresses: bool,
    connections_max: usize,
}

/// One listener.
struct Entrance {
    /// `None` once closed.
    listener: Option<Listener>,
    is_shared: bool,
    is_unix: bool,
    /// For `Few`: how many are left.
    wanted: Accepting,
    /// Operations in flight, and what they are.
    armed: u32,
    kind: Kind,
    /// They are being cancelled; new ones are armed when all of them have ended.
    cancelling: bool,
    /// `AcceptFailed` was reported; nothing is accepted until the worker asks again.
    stopped: bool,
}

/// The operations at a listener.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Accepts until it is cancelled.
    Stream,
    /// Each accepts one.
    Singles,
    /// Says when a connection waits.
    Poll,
}

impl Acceptor {
    pub(super) fn new(listeners: Vec<Listener>, config: &DriverConfig) -> io::Result<Acceptor> {
        let enter = |listener: Listener| {
            let is_shared = listener.is_shared();
            listener.set_nonblocking(is_shared)?;
            Ok(Entrance {
                is_unix: listener.local_addr().is_err(),
                listener: Some(listener),
                is_shared,
                wanted: Accepting::Paused,
                armed: 0,
                kind: Kind::Stream,
                cancelling: false,
                stopped: false,
            })
        };
        Ok(Acceptor {
            listeners: listeners.into_iter().map(enter).collect::<io::Result<_>>()?,
            peer_addresses: config.peer_addresses,
            connections_max: config.connections_max as usize,
        })
    }

    pub(super) fn is_armed(&self) -> bool {
        self.listeners.iter().any(|entrance| entrance.armed > 0)
    }

    /// A completion while the driver is being dropped.
    pub(super) fn discard(&mut self, entry: &cqueue::Entry) {
        let entrance = &mut self.listeners[Token(entry.user_data()).index() as usize];
        if entry.result() >= 0 && entrance.kind != Kind::Poll {
            direct::close(entry.result());
        }
        entrance.note_completion(entry);
    }
}

impl Entrance {
    /// How many operations should be in flight, and which.
    fn wanted_in_flight(&self) -> (u32, Kind) {
        match self.wanted {
            _ if self.stopped || self.listener.is_none() => (0, self.kind),
            Accepting::Paused | Accepting::Closed | Accepting::Few(0) => (0, self.kind),
            Accepting::On | Accepting::Few(_) if self.is_shared => (1, Kind::Poll),
            Accepting::On => (1, Kind::Stream),
            Accepting::Few(left) => (left.min(SINGLES_MAX), Kind::Singles),
        }
    }

    /// Whether another connection may be accepted.
    fn wants_more(&self) -> bool {
        !self.stopped && !matches!(self.wanted, Accepting::Paused | Accepting::Few(0))
    }

    fn count_one(&mut self) {
        if let Accepting::Few(left) = &mut self.wanted {
            *left = left.saturating_sub(1);
        }
    }

    /// Notes that an operation has ended, unless it will report more.
    fn note_completion(&mut self, entry: &cqueue::Entry) {
        if !cqueue::more(entry.flags()) {
            self.armed -= 1;
            self.cancelling &= self.armed > 0;
        }
    }

    /// It accepts no more, but connections may wait in its queue.
    fn is_to_be_drained(&self) -> bool {
        self.wanted == Accepting::Closed
            && self.listener.is_some()
            && self.armed == 0
            && !self.stopped
    }
}

impl Uring {
    pub(super) fn set_accepting(&mut self, id: ListenerId, accepting: Accepting) {
        let entrance = &mut self.acceptor.listeners[id.index()];
        // `Closed` is final.
        if entrance.wanted != Accepting::Closed {
            entrance.wanted = accepting;
        }
        entrance.stopped = false;
        self.arm_accept(id);
    }

    pub(super) fn set_backlog(&mut self, id: ListenerId, backlog: u32) {
        if let Some(listener) = &mut self.acceptor.listeners[id.index()].listener {
            listener.set_backlog(backlog).expect("it listens already");
        }
    }

    /// Arms or cancels accepts until the wanted number is in flight.
    pub(super) fn arm_accept(&mut self, id: ListenerId) {
        let entrance = &mut self.acceptor.listeners[id.index()];
        if entrance.cancelling {
            return; // This runs again when the cancellation has ended.
        }
        let (count, kind) = entrance.wanted_in_flight();
        let token = Token::accept(id);
        if entrance.armed > count || (entrance.armed > 0 && entrance.kind != kind) {
            entrance.cancelling = true;
            return self.ring.cancel_each(token);
        }
        let Some(listener) = &entrance.listener else { return };
        let fd = listener.as_fd().as_raw_fd();
        entrance.kind = kind;
        while entrance.armed < count {
            entrance.armed += 1;
            match kind {
                Kind::Stream => self.ring.accept_stream(fd, token),
                Kind::Singles => self.ring.accept_once(fd, token),
                Kind::Poll => self.ring.await_connection(fd, token),
            }
        }
    }

    pub(super) fn on_accepted(
        &mut self,
        token: Token,
        entry: &cqueue::Entry,
        on_event: &mut impl FnMut(Event<'_>),
    ) {
        let id = ListenerId(token.index() as u16);
        let entrance = &mut self.acceptor.listeners[id.index()];
        entrance.note_completion(entry);
        if entrance.kind == Kind::Poll {
            if entry.result() > 0 {
                self.accept_waiting(id, SINGLES_MAX as usize, on_event);
            }
        } else if entry.result() >= 0 {
            self.welcome(id, entry.result(), on_event);
        } else if let Some(error) = accept_failure(-entry.result())
            && !entrance.stopped
        {
            self.stop_accepting(error, on_event);
        }
        self.arm_accept(id);
    }

    /// A new connection, with its first receive.
    fn welcome(&mut self, id: ListenerId, fd: RawFd, on_event: &mut impl FnMut(Event<'_>)) {
        let entrance = &mut self.acceptor.listeners[id.index()];
        entrance.count_one();
        if let Some(listener) = &entrance.listener {
            listener.unfilter(fd);
        }
        let (stopped, is_unix) = (entrance.stopped, entrance.is_unix);
        let index = self.slots.insert(fd);
        let token = self.slots.token(Operation::Receive, index);
        self.ring.receive_once(fd, token);
        self.slots.at(index).set(RECEIVING | if is_unix { UNIX } else { 0 });
        let peer = if self.acceptor.peer_addresses { socket::peer_addr(fd) } else { None };
        on_event(Event::Accepted(ConnId(index), id, peer));
        if self.slots.len() >= self.acceptor.connections_max && !stopped {
            self.stop_accepting(AcceptError::Descriptors, on_event);
        }
    }

    fn stop_accepting(&mut self, error: AcceptError, on_event: &mut impl FnMut(Event<'_>)) {
        for id in ListenerId::all(self.acceptor.listeners.len()) {
            self.acceptor.listeners[id.index()].stopped = true;
            self.arm_accept(id);
        }
        on_event(Event::AcceptFailed(error));
    }

    pub(super) fn has_listener_to_drain(&self) -> bool {
        self.acceptor.listeners.iter().any(Entrance::is_to_be_drained)
    }

    /// For `Closed`: accepts what waits in the listen queues, then closes the listeners. Returns
    /// whether anything was done.
    pub(super) fn drain_listeners(&mut self, on_event: &mut impl FnMut(Event<'_>)) -> bool {
        let mut has_drained = false;
        for id in ListenerId::all(self.acceptor.listeners.len()) {
            let entrance = &mut self.acceptor.listeners[id.index()];
            if !entrance.is_to_be_drained() {
                continue;
            }
            has_drained = true;
            let listener = entrance.listener.as_ref().expect("it is not closed yet");
            let is_kept = listener.is_kept();
            // Of a socket that is kept the others have the rest.
            let most = if is_kept { SINGLES_MAX as usize } else { COMPLETIONS_MAX };
            if listener.set_nonblocking(true).is_err()
                || self.accept_waiting(id, most, on_event)
                || is_kept
            {
                self.acceptor.listeners[id.index()].listener = None;
            }
        }
        has_drained
    }

    /// Accepts up to `most` connections that wait at a nonblocking listener, with system calls. Returns
    /// whether none waits any more.
    fn accept_waiting(
        &mut self,
        id: ListenerId,
        most: usize,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> bool {
        for _ in 0..most {
            let entrance = &self.acceptor.listeners[id.index()];
            let (true, Some(listener)) = (entrance.wants_more(), &entrance.listener) else {
                return false;
            };
            match listener.accept(libc::SOCK_CLOEXEC) {
                Ok((fd, _)) => self.welcome(id, fd.into_raw_fd(), on_event),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) => {
                    let number = error.raw_os_error().unwrap_or(libc::EINVAL);
                    if let Some(error) = accept_failure(number) {
                        self.stop_accepting(error, on_event);
                    }
                }
            }
        }
        false
    }
}
