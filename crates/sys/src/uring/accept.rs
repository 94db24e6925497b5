//! Accepting: one multishot operation while there is no bound, otherwise as many single operations
//! as may still be accepted. To change between them, the operations in flight are cancelled.
//!
//! A bound needs single operations: a multishot accept empties the listen queue before it can be
//! told to stop. (The kernel wakes waiters of a listener one by one. A waiter that is cancelled
//! after it was woken leaves its connection in the queue; the next armed accept tries the queue
//! first and finds it.)

use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, RawFd};

use highwater_core::driver::{AcceptError, Accepting, ConnId, Event};
use io_uring::cqueue;

use super::slots::{Operation, RECEIVING, Token};
use super::{COMPLETIONS_MAX, Uring};
use crate::socket::accept_failure;
use crate::{DriverConfig, Listener, socket};

/// Single accepts in flight at most: as many connections are accepted by one poll.
const SINGLES_MAX: u32 = 64;

pub(super) struct Acceptor {
    /// `None` once closed.
    listener: Option<Listener>,
    /// For `Few`: how many are left.
    wanted: Accepting,
    /// Operations in flight, and whether they are the multishot one.
    armed: u32,
    is_stream: bool,
    /// They are being cancelled; new ones are armed when all of them have ended.
    cancelling: bool,
    /// `AcceptFailed` was reported; nothing is accepted until the worker asks again.
    stopped: bool,
    peer_addresses: bool,
    connections_max: usize,
}

impl Acceptor {
    pub(super) fn new(listener: Listener, config: &DriverConfig) -> io::Result<Acceptor> {
        // io_uring does the waiting, and it does not wait for a nonblocking socket.
        listener.set_nonblocking(false)?;
        Ok(Acceptor {
            listener: Some(listener),
            wanted: Accepting::Paused,
            armed: 0,
            is_stream: false,
            cancelling: false,
            stopped: false,
            peer_addresses: config.peer_addresses,
            connections_max: config.connections_max as usize,
        })
    }

    pub(super) fn is_armed(&self) -> bool {
        self.armed > 0
    }

    /// How many operations should be in flight, and whether it is the multishot one.
    fn wanted_in_flight(&self) -> (u32, bool) {
        match self.wanted {
            _ if self.stopped || self.listener.is_none() => (0, false),
            Accepting::On => (1, true),
            Accepting::Few(left) => (left.min(SINGLES_MAX), false),
            Accepting::Paused | Accepting::Closed => (0, false),
        }
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

    /// A completion while the driver is being dropped.
    pub(super) fn discard(&mut self, entry: &cqueue::Entry) {
        if entry.result() >= 0 {
            socket::close(entry.result());
        }
        self.note_completion(entry);
    }
}

impl Uring {
    pub(super) fn set_accepting(&mut self, accepting: Accepting) {
        // `Closed` is final.
        if self.acceptor.wanted != Accepting::Closed {
            self.acceptor.wanted = accepting;
        }
        self.acceptor.stopped = false;
        self.arm_accept();
    }

    pub(super) fn set_backlog(&mut self, backlog: u32) {
        if let Some(listener) = &mut self.acceptor.listener {
            listener.set_backlog(backlog).expect("it listens already");
        }
    }

    /// Arms or cancels accepts until the wanted number is in flight.
    pub(super) fn arm_accept(&mut self) {
        let acceptor = &mut self.acceptor;
        if acceptor.cancelling {
            return; // This runs again when the cancellation has ended.
        }
        let (count, is_stream) = acceptor.wanted_in_flight();
        if acceptor.armed > count || (acceptor.armed > 0 && acceptor.is_stream != is_stream) {
            acceptor.cancelling = true;
            return self.ring.cancel_each(Token::ACCEPT);
        }
        let Some(listener) = &acceptor.listener else { return };
        let fd = listener.as_fd().as_raw_fd();
        acceptor.is_stream = is_stream;
        while acceptor.armed < count {
            acceptor.armed += 1;
            match is_stream {
                true => self.ring.accept_stream(fd, Token::ACCEPT),
                false => self.ring.accept_once(fd, Token::ACCEPT),
            }
        }
    }

    pub(super) fn on_accepted(
        &mut self,
        entry: &cqueue::Entry,
        on_event: &mut impl FnMut(Event<'_>),
    ) {
        self.acceptor.note_completion(entry);
        if entry.result() >= 0 {
            self.welcome(entry.result(), on_event);
        } else if let Some(error) = accept_failure(-entry.result())
            && !self.acceptor.stopped
        {
            self.stop_accepting(error, on_event);
        }
        self.arm_accept();
    }

    /// A new connection, with its first receive.
    fn welcome(&mut self, fd: RawFd, on_event: &mut impl FnMut(Event<'_>)) {
        self.acceptor.count_one();
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
        self.arm_accept();
        on_event(Event::AcceptFailed(error));
    }

    pub(super) fn has_listener_to_drain(&self) -> bool {
        let acceptor = &self.acceptor;
        acceptor.wanted == Accepting::Closed
            && acceptor.listener.is_some()
            && acceptor.armed == 0
            && !acceptor.stopped
    }

    /// For `Closed`: accepts what waits in the listen queue, then closes the listener. Returns
    /// whether anything was done.
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
