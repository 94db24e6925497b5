//! The driver over epoll. It works on every Linux, even where io_uring is refused.
//!
//! How it works: edge-triggered. One receive per readiness; it is repeated only while the buffer
//! comes back full, because a short receive means that the socket is empty and the next edge says
//! when it no longer is. A new connection is received from at once, and registered only if it needs
//! that. A send is a system call made when it is commanded; it waits for an edge only when the
//! socket's buffer is full.
//!
//! Commands act at once but report later (R6): their results go into a list, for
//! [`report_done`](Driver::report_done) or for the next poll, which then does not wait.
//!
//! Invariants: a connection that is `READABLE` and wanted is either in the list of ready ones or
//! registered with an edge to come; a closed connection's slot is freed only by reporting it.

mod accept;
pub(crate) mod dial;
mod selector;
mod slots;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use highwater_core::driver::{
    Accepting, Close, ConnId, Driver, Event, ListenerId, Output, Reading, Then, Wait,
};
use highwater_core::time::Clock;

use crate::{DriverConfig, External, Listener, Waker, clock::SystemClock, direct, socket};
use accept::Acceptor;
use selector::Selector;
use slots::{
    BLOCKED, CLOSING, EOF, HANG_UP_TOLD, HUNG_UP, PROGRESSED, READABLE, READY_LISTED, REGISTERED,
    REPORT_LISTED, SENT, Slot, Slots, Token, WATCHING_OUT,
};

/// The largest receive, in bytes. All connections share the buffer, so its size costs nothing per
/// connection.
const RECEIVE_SIZE: usize = 64 * 1024;

/// How many receives a poll makes for one connection before it turns to the others, and before the
/// worker can say that it wants no more. A client that sends faster than it is served costs this
/// many times [`RECEIVE_SIZE`] in memory. Measured over loopback: a body of 800 MB that is only
/// counted costs 0.17 s of CPU with 16 (1 MiB), 0.22 s with 2; 100 000 pipelined requests cost 1.8
/// and 0.6 MiB.
const RECEIVES_MAX: usize = 2;

/// The largest receive that delivers only a little ([`Reading::Brief`]).
const BRIEF_SIZE: usize = 4 * 1024;

const IN: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
const HANG_UP: u32 = libc::EPOLLRDHUP as u32;
/// The connection failed. The next receive, or a pending send, gets the error.
const FAILURE: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
const READ: u32 = libc::EPOLLIN as u32 | HANG_UP | FAILURE;

/// The epoll driver. Belongs to the thread that made it.
pub struct Epoll {
    selector: Selector,
    slots: Slots,
    /// Connections to receive from without waiting for an edge.
    ready: Vec<Token>,
    /// Connections with results of commands to report.
    reports: Vec<u32>,
    /// Holds received bytes while the callback borrows them.
    scratch: Box<[u8]>,
    acceptor: Acceptor,
    waker: Waker,
}

impl Epoll {
    /// Accepts from `listeners`, when told to.
    ///
    /// # Errors
    /// Lack of memory or descriptors.
    pub fn new(listeners: Vec<Listener>, config: &DriverConfig) -> io::Result<Self> {
        let selector = Selector::new()?;
        let waker = Waker::eventfd()?;
        // Never read, so it stays readable; but edge-triggered, so only a new wake causes an event.
        selector.add(waker.raw_fd(), libc::EPOLLIN as u32 | libc::EPOLLET as u32, Token::WAKE)?;
        let acceptor = Acceptor::new(listeners, &selector, config)?;
        Ok(Epoll {
            selector,
            slots: Slots::new(),
            ready: Vec::new(),
            reports: Vec::new(),
            scratch: vec![0; RECEIVE_SIZE].into_boxed_slice(),
            acceptor,
            waker,
        })
    }
}

/// Receiving.
impl Epoll {
    /// Handles an epoll event of a connection.
    #[inline]
    fn on_ready(&mut self, token: Token, flags: u32, on_event: &mut impl FnMut(Event<'_>)) {
        let Some(slot) = self.slots.find(token) else {
            return;
        };
        if slot.fd == -1 {
            return;
        }
        if flags & (HANG_UP | FAILURE) != 0 {
            slot.set(HUNG_UP);
        }
        if flags & READ != 0 {
            slot.set(READABLE);
            self.receive(token.index(), on_event);
        }
        if flags & (HANG_UP | FAILURE) != 0 {
            self.on_hang_up(token.index(), flags, on_event);
        }
        let slot = self.slots.at(token.index());
        if flags & (OUT | FAILURE) != 0 && slot.is(BLOCKED) {
            self.resume_send(token.index(), on_event);
        }
    }

    /// The peer has finished sending or is gone. Receiving may not have reported that: reading has
    /// stopped, or has not yet reached the end (R9).
    #[cold]
    fn on_hang_up(&mut self, index: u32, flags: u32, on_event: &mut impl FnMut(Event<'_>)) {
        let slot = self.slots.at(index);
        if slot.fd == -1 || slot.is(CLOSING) {
            return;
        }
        let unheard = slot.reading == Reading::Stop || slot.is(EOF);
        // Both sides may have finished normally: only an error is the end before `close`.
        if unheard && flags & FAILURE != 0 && socket::take_error(slot.fd) != 0 {
            return self.fail(index, on_event);
        }
        if !slot.is(EOF | HANG_UP_TOLD) {
            slot.set(HANG_UP_TOLD);
            on_event(Event::HungUp(ConnId(index)));
        }
    }

    /// Receives what has arrived, within bounds, if it is wanted.
    #[inline]
    fn receive(&mut self, index: u32, on_event: &mut impl FnMut(Event<'_>)) {
        for _ in 0..RECEIVES_MAX {
            let slot = self.slots.at(index);
            if slot.reading == Reading::Stop || slot.is(CLOSING | EOF) {
                return;
            }
            let size = if slot.reading == Reading::Brief { BRIEF_SIZE } else { RECEIVE_SIZE };
            match direct::receive(slot.fd, &mut self.scratch[..size]) {
                Ok(0) => {
                    slot.set(EOF);
                    slot.clear(READABLE);
                    return on_event(Event::Eof(ConnId(index)));
                }
                Ok(len) => {
                    if slot.reading.is_once() {
                        slot.reading = Reading::Stop;
                    }
                    // A short receive has emptied the socket, unless there is a FIN behind it.
                    let emptied = len < size && !slot.is(HUNG_UP);
                    if emptied {
                        slot.clear(READABLE);
                    }
                    on_event(Event::Received(ConnId(index), &mut self.scratch[..len]));
                    if emptied {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return slot.clear(READABLE);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.fail(index, on_event),
            }
        }
        self.list_ready(index);
    }

    fn list_ready(&mut self, index: u32) {
        let token = self.slots.token(index);
        let slot = self.slots.at(index);
        if slot.is(READABLE) && !slot.is(READY_LISTED) && slot.reading != Reading::Stop {
            slot.set(READY_LISTED);
            self.ready.push(token);
        }
    }

    fn receive_ready(&mut self, on_event: &mut impl FnMut(Event<'_>)) {
        let count = self.ready.len();
        for position in 0..count {
            let token = self.ready[position];
            let Some(slot) = self.slots.find(token) else {
                continue;
            };
            // One that is still ready afterwards lists itself again, behind these.
            slot.clear(READY_LISTED);
            if slot.is(READABLE) && slot.fd != -1 {
                self.receive(token.index(), on_event);
            }
        }
        self.ready.drain(..count);
    }

    /// Registers the connection with epoll; with `out`, also for becoming writable.
    fn watch(&mut self, index: u32, out: bool) -> io::Result<()> {
        let token = self.slots.token(index);
        let slot = self.slots.at(index);
        let wanted = REGISTERED | if out { WATCHING_OUT } else { 0 };
        let flags = if out { IN | OUT } else { IN };
        if !slot.is(REGISTERED) {
            self.selector.add(slot.fd, flags, token)?;
        } else if out && !slot.is(WATCHING_OUT) {
            self.selector.modify(slot.fd, flags, token)?;
        }
        slot.set(wanted);
        Ok(())
    }
}

/// Sending.
impl Epoll {
    /// The socket's buffer has room again.
    fn resume_send(&mut self, index: u32, on_event: &mut impl FnMut(Event<'_>)) {
        let id = ConnId(index);
        match write(self.slots.at(index)) {
            Ok(true) => {
                let bytes = self.slots.at(index).end_send();
                let closed = self.after_send(index);
                on_event(Event::Sent(id, bytes));
                if closed {
                    self.slots.remove(index);
                    on_event(Event::Closed(id));
                }
            }
            Ok(false) => {
                // It is watched, as it was blocked before.
                let slot = self.slots.at(index);
                if slot.is(PROGRESSED) {
                    slot.clear(PROGRESSED);
                    on_event(Event::Progress(id));
                }
            }
            Err(_) => self.fail(index, on_event),
        }
    }

    /// The kernel has taken all bytes. Returns whether that closed the connection.
    #[inline]
    fn after_send(&mut self, index: u32) -> bool {
        let slot = self.slots.at(index);
        match slot.then {
            Then::Keep => {}
            Then::Shutdown => socket::finish_sending(slot.fd),
            Then::Close => self.drop_fd(index),
        }
        self.slots.at(index).fd == -1
    }
}

/// Closing and reporting.
impl Epoll {
    /// Closes the descriptor, which also takes it out of epoll.
    fn drop_fd(&mut self, index: u32) {
        let slot = self.slots.at(index);
        direct::close(slot.fd);
        slot.fd = -1;
        slot.set(CLOSING);
        slot.clear(BLOCKED);
    }

    /// The connection is found to be gone, during a poll.
    fn fail(&mut self, index: u32, on_event: &mut impl FnMut(Event<'_>)) {
        self.drop_fd(index);
        self.slots.remove(index);
        on_event(Event::Closed(ConnId(index)));
    }

    /// Lists a connection for the next poll to report.
    #[inline]
    fn report(&mut self, index: u32) {
        let slot = self.slots.at(index);
        if !slot.is(REPORT_LISTED) {
            slot.set(REPORT_LISTED);
            self.reports.push(index);
        }
    }

    /// Reports what commands did. Returns whether there was anything.
    #[inline]
    fn report_all(&mut self, on_event: &mut impl FnMut(Event<'_>)) -> bool {
        if self.reports.is_empty() {
            return false;
        }
        // Nothing lists itself meanwhile: only commands do.
        for position in 0..self.reports.len() {
            let index = self.reports[position];
            let id = ConnId(index);
            let slot = self.slots.at(index);
            let (progressed, sent, closed) = (slot.is(PROGRESSED), slot.is(SENT), slot.fd == -1);
            slot.clear(REPORT_LISTED | PROGRESSED | SENT);
            if progressed && !closed {
                on_event(Event::Progress(id));
            }
            if sent {
                on_event(Event::Sent(id, self.slots.at(index).end_send()));
            }
            if closed {
                self.slots.remove(index);
                on_event(Event::Closed(id));
            }
        }
        self.reports.clear();
        true
    }
}

/// Writes the rest of the send in flight, as far as the socket's buffer has room. Returns whether all is written; if not, the
/// connection is to be watched.
#[inline]
fn write(slot: &mut Slot) -> io::Result<bool> {
    let before = slot.sent;
    let is_whole = loop {
        let rest = slot.rest();
        let len = rest[0].len() + rest[1].len();
        match selector::send(slot.fd, rest) {
            Ok(taken) => {
                slot.sent += taken.len;
                if taken.len == len || taken.is_full {
                    break taken.len == len;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break false,
            Err(error) => return Err(error),
        }
    };
    match is_whole {
        true => slot.clear(BLOCKED | PROGRESSED),
        false => slot.set(BLOCKED | if slot.sent > before { PROGRESSED } else { 0 }),
    }
    Ok(is_whole)
}

impl Driver for Epoll {
    type Error = io::Error;
    type Clock = SystemClock;

    fn poll(&mut self, wait: Wait, on_event: &mut impl FnMut(Event<'_>)) -> io::Result<()> {
        let reported = self.report_all(on_event);
        let tried = self.accept_untried(on_event);
        let busy = reported || tried || !self.ready.is_empty();
        let timeout = match wait {
            Wait::No => Some(0),
            _ if busy => Some(0),
            Wait::Until(time) => Some(time.nanos_since(SystemClock.now())),
            Wait::Forever => None,
        };
        let count = self.selector.wait(timeout)?;
        for position in 0..count {
            let (token, flags) = self.selector.event(position);
            match token {
                Token::WAKE => self.waker.acknowledge(),
                _ => match token.as_listener() {
                    Some(listener) => self.accept_ready(listener, on_event),
                    None => self.on_ready(token, flags, on_event),
                },
            }
        }
        if !self.ready.is_empty() {
            self.receive_ready(on_event);
        }
        Ok(())
    }

    #[inline]
    fn report_done(&mut self, on_event: &mut impl FnMut(Event<'_>)) {
        self.report_all(on_event);
    }

    fn send(&mut self, id: ConnId, output: Output, then: Then) {
        let slot = self.slots.at(id.0);
        if slot.fd == -1 || slot.is(CLOSING) {
            return; // It failed meanwhile: `Closed` follows.
        }
        if slot.is(BLOCKED | SENT) {
            return self.close(id, Close::Reset); // O1: two answers must not be mixed up.
        }
        slot.begin_send(output, then);
        if then == Then::Close {
            slot.set(CLOSING);
        }
        match write(slot) {
            Ok(true) => {
                slot.set(SENT);
                self.after_send(id.0);
            }
            Ok(false) if self.watch(id.0, true).is_err() => self.drop_fd(id.0),
            // Nothing to report before there is room.
            Ok(false) if !self.slots.at(id.0).is(PROGRESSED) => return,
            Ok(false) => {}
            Err(_) => self.drop_fd(id.0),
        }
        self.report(id.0);
    }

    fn read(&mut self, id: ConnId, reading: Reading) {
        let slot = self.slots.at(id.0);
        if slot.fd == -1 || slot.is(CLOSING) {
            return;
        }
        slot.reading = reading;
        // Even when reading stops: the end must be reported (R9).
        if !slot.is(REGISTERED) && self.watch(id.0, false).is_err() {
            self.drop_fd(id.0);
            return self.report(id.0);
        }
        self.list_ready(id.0);
    }

    fn take(&mut self, id: ConnId, into: &mut Vec<u8>, max: u64) -> usize {
        self.slots.at(id.0).take(into, max).unwrap_or_else(|_| {
            self.drop_fd(id.0);
            self.report(id.0);
            0
        })
    }

    fn close(&mut self, id: ConnId, how: Close) {
        let slot = self.slots.at(id.0);
        if slot.fd == -1 {
            return; // Closed already; the next poll reports it.
        }
        if how == Close::Reset {
            socket::reset_on_close(slot.fd);
        }
        slot.clear(SENT);
        self.drop_fd(id.0);
        self.report(id.0);
    }

    fn accept(&mut self, listener: ListenerId, accepting: Accepting) {
        self.set_accepting(listener, accepting);
    }

    fn backlog(&mut self, listener: ListenerId, backlog: u32) {
        self.set_backlog(listener, backlog);
    }

    fn is_hung_up(&mut self, id: ConnId) -> bool {
        let slot = self.slots.at(id.0);
        slot.is(EOF | HUNG_UP) || slot.fd == -1 || socket::is_hung_up(slot.fd)
    }

    fn peer(&mut self, id: ConnId) -> Option<SocketAddr> {
        let fd = self.slots.at(id.0).fd;
        if fd == -1 { None } else { socket::peer_addr(fd) }
    }

    fn clock(&self) -> SystemClock {
        SystemClock
    }
}

impl External for Epoll {
    fn readiness_fd(&self) -> BorrowedFd<'_> {
        self.selector.as_fd()
    }

    fn prepare_wait(&mut self) -> io::Result<bool> {
        let idle = self.reports.is_empty() && self.ready.is_empty();
        // An edge that came before the waiter looked again would not come twice.
        Ok(idle && !self.is_accepting_untried() && !self.selector.has_events()?)
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        for slot in self.slots.iter().filter(|slot| slot.fd != -1) {
            direct::close(slot.fd);
        }
    }
}
