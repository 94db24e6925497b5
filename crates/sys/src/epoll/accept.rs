//! Accepting: a level-triggered listener, paused by not watching it.

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
    wanted: Accepting,
    watched: bool,
    /// `AcceptFailed` was reported; nothing is accepted until the worker says so.
    stopped: bool,
    /// Watching failed when it was commanded; the next poll says so.
    unwatchable: bool,
    peer_addresses: bool,
    connections_max: usize,
}

impl Acceptor {
    pub(super) fn new(listener: Listener, config: &DriverConfig) -> io::Result<Acceptor> {
        listener.set_nonblocking(true)?;
        Ok(Acceptor {
            listener: Some(listener),
            wanted: Accepting::On,
            watched: false,
            stopped: false,
            unwatchable: false,
            peer_addresses: config.peer_addresses,
            connections_max: config.connections_max as usize,
        })
    }
}

impl Epoll {
    pub(super) fn set_accepting(&mut self, accepting: Accepting) {
        // `Closed` is final.
        if self.acceptor.wanted != Accepting::Closed {
            self.acceptor.wanted = accepting;
        }
        self.acceptor.stopped = false;
        if self.acceptor.wanted != Accepting::On {
            self.unwatch_listener();
        } else if self.watch_listener().is_err() {
            self.acceptor.unwatchable = true;
        }
    }

    /// Reports that epoll had no memory to watch the listener with. Returns whether it had not.
    pub(super) fn report_unwatchable(&mut self, on_event: &mut impl FnMut(Event<'_>)) -> bool {
        let unwatchable = std::mem::take(&mut self.acceptor.unwatchable);
        if unwatchable {
            self.stop_accepting(AcceptError::Memory, on_event);
        }
        unwatchable
    }

    pub(super) fn watch_listener(&mut self) -> io::Result<()> {
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

    /// Accepts what waits, within bounds.
    pub(super) fn accept_ready(&mut self, on_event: &mut impl FnMut(Event<'_>)) {
        for _ in 0..ACCEPTS_MAX {
            if self.acceptor.stopped {
                return;
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
    }

    /// A new connection. Its request has most likely arrived with it: receiving at once saves a
    /// connection with one request from ever being registered.
    fn welcome(
        &mut self,
        fd: OwnedFd,
        peer: Option<SocketAddr>,
        on_event: &mut impl FnMut(Event<'_>),
    ) {
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

    /// Whether the next poll has something to do about accepting that epoll does not tell.
    pub(super) fn has_accepting_to_do(&self) -> bool {
        self.acceptor.unwatchable || self.has_listener_to_drain()
    }

    fn has_listener_to_drain(&self) -> bool {
        let acceptor = &self.acceptor;
        acceptor.wanted == Accepting::Closed && acceptor.listener.is_some() && !acceptor.stopped
    }

    /// Never to accept again: takes what waits in the listen queue, then closes the listener.
    /// Returns whether anything was done.
    pub(super) fn drain_listener(&mut self, on_event: &mut impl FnMut(Event<'_>)) -> bool {
        let drain = self.has_listener_to_drain();
        if drain {
            self.accept_ready(on_event);
        }
        drain
    }
}
