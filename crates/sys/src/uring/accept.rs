//! Accepting: one multishot operation, paused by cancelling it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, RawFd};

use highwater_core::driver::{AcceptError, Accepting, ConnId, Event};
use io_uring::cqueue;

use super::slots::{Operation, RECEIVING, Token};
use super::{COMPLETIONS_MAX, Uring};
use crate::socket::accept_failure;
use crate::{DriverConfig, Listener, socket};

pub(super) struct Acceptor {
    /// `None` once closed.
    listener: Option<Listener>,
    wanted: Accepting,
    armed: bool,
    cancelling: bool,
    /// `AcceptFailed` was reported; nothing is accepted until the worker says so.
    stopped: bool,
    peer_addresses: bool,
    connections_max: usize,
}

impl Acceptor {
    pub(super) fn new(listener: Listener, config: &DriverConfig) -> io::Result<Acceptor> {
        // io_uring does the waiting, and would not wait for a nonblocking socket.
        listener.set_nonblocking(false)?;
        Ok(Acceptor {
            listener: Some(listener),
            wanted: Accepting::On,
            armed: false,
            cancelling: false,
            stopped: false,
            peer_addresses: config.peer_addresses,
            connections_max: config.connections_max as usize,
        })
    }

    pub(super) fn is_armed(&self) -> bool {
        self.armed
    }

    /// A completion while the driver is being dropped.
    pub(super) fn discard(&mut self, entry: &cqueue::Entry) {
        if entry.result() >= 0 {
            socket::close(entry.result());
        }
        if !cqueue::more(entry.flags()) {
            self.armed = false;
        }
    }
}

impl Uring {
    pub(super) fn set_accepting(&mut self, accepting: Accepting) {
        // `Closed` is final.
        if self.acceptor.wanted != Accepting::Closed {
            self.acceptor.wanted = accepting;
        }
        self.acceptor.stopped = false;
        if self.acceptor.wanted == Accepting::On {
            self.arm_accept();
        } else {
            self.cancel_accept();
        }
    }

    pub(super) fn arm_accept(&mut self) {
        let acceptor = &mut self.acceptor;
        if acceptor.armed || acceptor.stopped || acceptor.wanted != Accepting::On {
            return;
        }
        if let Some(listener) = &acceptor.listener {
            self.ring.accept(listener.as_fd().as_raw_fd(), Token::ACCEPT);
            acceptor.armed = true;
        }
    }

    fn cancel_accept(&mut self) {
        if self.acceptor.armed && !self.acceptor.cancelling {
            self.acceptor.cancelling = true;
            self.ring.cancel(Token::ACCEPT);
        }
    }

    pub(super) fn on_accepted(
        &mut self,
        entry: &cqueue::Entry,
        on_event: &mut impl FnMut(Event<'_>),
    ) {
        if !cqueue::more(entry.flags()) {
            self.acceptor.armed = false;
            self.acceptor.cancelling = false;
        }
        if entry.result() >= 0 {
            self.welcome(entry.result(), on_event);
        } else if let Some(error) = accept_failure(-entry.result()) {
            self.stop_accepting(error, on_event);
        }
        self.arm_accept();
    }

    /// A new connection, with its first receive.
    fn welcome(&mut self, fd: RawFd, on_event: &mut impl FnMut(Event<'_>)) {
        if let Some(listener) = &self.acceptor.listener {
            listener.unfilter(fd);
        }
        let index = self.slots.insert(fd);
        let token = self.slots.token(Operation::Receive, index);
        self.ring.receive_once(fd, token);
        self.slots.at(index).set(RECEIVING);
        let peer = if self.acceptor.peer_addresses { socket::peer_addr(fd) } else { None };
        on_event(Event::Accepted(ConnId(index), peer));
        if self.slots.len() >= self.acceptor.connections_max && !self.acceptor.stopped {
            self.stop_accepting(AcceptError::Descriptors, on_event);
        }
    }

    fn stop_accepting(&mut self, error: AcceptError, on_event: &mut impl FnMut(Event<'_>)) {
        self.acceptor.stopped = true;
        self.cancel_accept();
        on_event(Event::AcceptFailed(error));
    }

    pub(super) fn has_listener_to_drain(&self) -> bool {
        let acceptor = &self.acceptor;
        acceptor.wanted == Accepting::Closed
            && acceptor.listener.is_some()
            && !acceptor.armed
            && !acceptor.stopped
    }

    /// Never to accept again: takes what waits in the listen queue, then closes the listener.
    /// Returns whether anything was done.
    pub(super) fn drain_listener(&mut self, on_event: &mut impl FnMut(Event<'_>)) -> bool {
        if !self.has_listener_to_drain() {
            return false;
        }
        for _ in 0..COMPLETIONS_MAX {
            if self.acceptor.stopped {
                return true;
            }
            let Some(listener) = &self.acceptor.listener else {
                return true;
            };
            let accepted =
                listener.set_nonblocking(true).and_then(|()| listener.accept(libc::SOCK_CLOEXEC));
            match accepted {
                Ok((fd, _)) => self.welcome(fd.into_raw_fd(), on_event),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.acceptor.listener = None;
                }
                Err(error) => {
                    let number = error.raw_os_error().unwrap_or(libc::EINVAL);
                    if let Some(error) = accept_failure(number) {
                        self.stop_accepting(error, on_event);
                    }
                }
            }
        }
        true
    }
}
