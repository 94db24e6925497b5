//! Accepting: a level-triggered listener. To pause, epoll stops watching it.
//!
//! When accepting resumes, it tries first, and watches the listener only if no connection waits.
//! Under overload there is room for one connection at a time, and this saves two system calls for
//! each.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};

use highwater_core::driver::{AcceptError, Accepting, ConnId, Event, Reading};

use super::Epoll;
use super::slots::{EOF, READABLE, Token};
use crate::socket::accept_failure;
use crate::{DriverConfig, Listener};

/// How many connections one poll accepts. The listener stays ready for the next.
const ACCEPTS_MAX: usize = 64;

pub(super) struct Acceptor {
    /// `None` once closed.
    listener: Option<Listener>,
    /// For `Few`: how many are left.
    wanted: Accepting,
    watched: bool,
    /// The next poll tries to accept without an event from epoll.
    untried: bool,
    /// `AcceptFailed` was reported; nothing is accepted until the worker asks again.
    stopped: bool,
    peer_addresses: bool,
    connections_max: usize,
}

impl Acceptor {
    pub(super) fn new(listener: Listener, config: &DriverConfig) -> io::Result<Acceptor> {
        listener.set_nonblocking(true)?;
        Ok(Acceptor {
            listener: Some(listener),
            wanted: Accepting::Paused,
            watched: false,
            untried: false,
            stopped: false,
            peer_addresses: config.peer_addresses,
            connections_max: config.connections_max as usize,
        })
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
}

impl Epoll {
    pub(super) fn set_accepting(&mut self, accepting: Accepting) {
        // `Closed` is final.
        if self.acceptor.wanted != Accepting::Closed {
            self.acceptor.wanted = accepting;
        }
        self.acceptor.stopped = false;
        if !self.acceptor.wants_more() || self.acceptor.wanted == Accepting::Closed {
            self.unwatch_listener();
        }
        self.acceptor.untried = self.acceptor.wants_more() && !self.acceptor.watched;
    }

    pub(super) fn set_backlog(&mut self, backlog: u32) {
        if let Some(listener) = &mut self.acceptor.listener {
            listener.set_backlog(backlog).expect("it listens already");
        }
    }

    fn watch_listener(&mut self) -> io::Result<()> {
        if let Some(listener) = &self.acceptor.listener
            && !self.acceptor.watched
        {
            let fd = listener.as_fd().as_raw_fd();
            self.selector.add(fd, libc::EPOLLIN as u32, Token::LISTENER)?;
            self.acceptor.watched = true;
        }
        Ok(())
    }

    fn unwatch_listener(&mut self) {
        if let Some(listener) = &self.acceptor.listener
            && self.acceptor.watched
        {
            let removed = self.selector.remove(listener.as_fd().as_raw_fd());
            removed.expect("it was added, and is open");
            self.acceptor.watched = false;
        }
    }

    /// Accepts waiting connections, within bounds. If the listener is not watched, the next poll
    /// tries again; once no connection waits, it is watched.
    pub(super) fn accept_ready(&mut self, on_event: &mut impl FnMut(Event<'_>)) {
        for _ in 0..ACCEPTS_MAX {
            if !self.acceptor.wants_more() {
                return self.unwatch_listener();
            }
            let Some(listener) = &self.acceptor.listener else {
                return;
            };
            match listener.accept(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) {
                Ok((fd, peer)) => {
                    listener.unfilter(fd.as_raw_fd());
                    self.welcome(fd, peer, on_event);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.acceptor.wanted == Accepting::Closed {
                        self.acceptor.listener = None;
                    } else if self.watch_listener().is_err() {
                        self.stop_accepting(AcceptError::Memory, on_event);
                    }
                    return;
                }
                Err(error) => {
                    let number = error.raw_os_error().unwrap_or(libc::EINVAL);
                    if let Some(error) = accept_failure(number) {
                        self.stop_accepting(error, on_event);
                    }
                }
            }
        }
        self.acceptor.untried = self.acceptor.wants_more() && !self.acceptor.watched;
    }

    /// A new connection. Its request has most likely arrived with it. Receiving at once means that
    /// a connection with one request is never registered with epoll.
    fn welcome(
        &mut self,
        fd: OwnedFd,
        peer: Option<SocketAddr>,
        on_event: &mut impl FnMut(Event<'_>),
    ) {
        self.acceptor.count_one();
        let index = self.slots.insert(fd.into_raw_fd());
        self.slots.at(index).set(READABLE);
        let peer = peer.filter(|_| self.acceptor.peer_addresses);
        on_event(Event::Accepted(ConnId(index), peer));
        let token = self.slots.token(index);
        self.receive(index, on_event);
        if let Some(slot) = self.slots.find(token)
            && slot.reading != Reading::Stop
            && !slot.is(READABLE | EOF)
            && self.watch(index, false).is_err()
        {
            self.fail(index, on_event);
        }
        if self.slots.len() >= self.acceptor.connections_max && !self.acceptor.stopped {
            self.stop_accepting(AcceptError::Descriptors, on_event);
        }
    }

    fn stop_accepting(&mut self, error: AcceptError, on_event: &mut impl FnMut(Event<'_>)) {
        self.acceptor.stopped = true;
        self.unwatch_listener();
        on_event(Event::AcceptFailed(error));
    }

    /// Whether the next poll tries to accept without an event from epoll.
    pub(super) fn is_accepting_untried(&self) -> bool {
        self.acceptor.untried
    }

    /// Tries to accept, if that is due. Returns whether it was.
    pub(super) fn accept_untried(&mut self, on_event: &mut impl FnMut(Event<'_>)) -> bool {
        let untried = std::mem::take(&mut self.acceptor.untried);
        if untried {
            self.accept_ready(on_event);
        }
        untried
    }
}
