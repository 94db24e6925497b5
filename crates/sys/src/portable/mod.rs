//! The driver over what all systems have: sockets of the standard library, and mio to wait for them, which is also what
//! Tokio does. For development on macOS and Windows; slower than the others on Linux.
//!
//! How it works: as [`epoll`](crate::epoll) does, with less cleverness. Every connection is registered once, for reading
//! and writing, and every event is noted in the slot of its connection before any is acted upon. So events can be collected
//! at any time, also by [`Driver::is_hung_up`]. mio reports edges, and on some systems the next edge comes only after an
//! operation has found nothing to do: so a ready connection remains ready until that happens.
//!
//! Commands act at once but report later (R6): their results go into a list, for
//! [`report_done`](Driver::report_done) or for the next poll, which then does not wait.
//!
//! Invariants: a connection with something to do is in the list of ready ones, or its next command or event puts it
//! there; a closed connection's slot is freed only by reporting it.

mod accept;
mod selector;
mod slots;
mod stream;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use highwater_core::driver::{
    Accepting, Close, ConnId, Driver, Event, ListenerId, Output, Reading, Then, Wait,
};
use highwater_core::http::make_room;
use highwater_core::time::Clock;

use crate::{DriverConfig, External, Listener, Waker, clock::SystemClock};
use accept::Entrances;
use selector::{Selector, Subject};
use slots::{
    BLOCKED, CLOSING, EOF, FAILURE, HANG_UP_TOLD, HUNG_UP, HUNG_UP_NEWS, PROGRESSED, READABLE,
    READY_LISTED, REPORT_LISTED, SENT, Slots, WRITABLE,
};
pub(crate) use stream::Plain;
pub(crate) use stream::Stream;

/// The largest receive, in bytes. All connections share the buffer, so its size costs nothing per
/// connection.
const RECEIVE_SIZE: usize = 64 * 1024;

/// The largest receive that delivers only a little ([`Reading::Brief`]).
const BRIEF_SIZE: usize = 4 * 1024;

/// How many receives a poll makes for one connection before it turns to the others. As for epoll.
const RECEIVES_MAX: usize = 2;

/// How many writes a poll makes for one connection before it turns to the others: a client that reads as fast as it is
/// written to always has room. A guess.
const WRITES_MAX: usize = 4;

/// The portable driver. Belongs to the thread that made it.
pub struct Portable {
    selector: Selector,
    slots: Slots,
    /// Connections with something to do.
    ready: Vec<u32>,
    /// Connections with results of commands to report.
    reports: Vec<u32>,
    /// A wake came, and no poll has reported it.
    woken: bool,
    /// Holds received bytes while the callback borrows them.
    scratch: Box<[u8]>,
    entrances: Entrances,
    waker: Waker,
}

impl Portable {
    /// Accepts from `listeners`, when told to.
    ///
    /// # Errors
    /// Lack of memory or descriptors.
    pub fn new(listeners: Vec<Listener>, config: &DriverConfig) -> io::Result<Self> {
        let selector = Selector::new()?;
        let waker = mio::Waker::new(selector.registry(), Subject::Wake.token())?;
        Ok(Portable {
            entrances: Entrances::new(listeners, config, &selector)?,
            selector,
            slots: Slots::default(),
            ready: Vec::new(),
            reports: Vec::new(),
            woken: false,
            scratch: vec![0; RECEIVE_SIZE].into_boxed_slice(),
            waker: Waker::of_selector(waker),
        })
    }

    /// Waits for events, and notes them. Acts upon none.
    fn collect(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let mut more = self.selector.wait(timeout)?;
        loop {
            for (subject, news) in self.selector.events() {
                match subject {
                    Subject::Wake => self.woken = true,
                    Subject::Listener(id) => self.entrances.note(id),
                    Subject::Connection(index) => {
                        self.slots.at(index).note(news);
                        list_ready(&mut self.slots, &mut self.ready, index);
                    }
                }
            }
            if !more {
                return Ok(());
            }
            more = self.selector.wait(Some(Duration::ZERO))?;
        }
    }

    /// Whether a poll has something to do without any event.
    fn is_busy(&self) -> bool {
        self.woken || !self.reports.is_empty() || !self.ready.is_empty() || self.entrances.is_due()
    }

    /// Does what there is to do for the connections that are ready now.
    fn serve_ready(&mut self, on_event: &mut impl FnMut(Event<'_>)) {
        let count = self.ready.len();
        for position in 0..count {
            let index = self.ready[position];
            // One that is still ready afterwards lists itself again, behind these.
            self.slots.at(index).clear(READY_LISTED);
            if !self.slots.at(index).is_ready() {
                continue;
            }
            self.receive(index, on_event);
            self.look_at_end(index, on_event);
            let slot = self.slots.at(index);
            if !slot.is_closed() && slot.is(BLOCKED) && slot.is(WRITABLE) {
                self.resume_send(index, on_event);
            }
        }
        self.ready.drain(..count);
    }
}

/// Lists a connection that has something to do for the next poll.
fn list_ready(slots: &mut Slots, ready: &mut Vec<u32>, index: u32) {
    let slot = slots.at(index);
    if slot.is_ready() && !slot.is(READY_LISTED) {
        slot.set(READY_LISTED);
        ready.push(index);
    }
}

/// Receiving.
impl Portable {
    /// Receives what has arrived, within bounds, if it is wanted.
    fn receive(&mut self, index: u32, on_event: &mut impl FnMut(Event<'_>)) {
        for _ in 0..RECEIVES_MAX {
            let slot = self.slots.at(index);
            if slot.reading == Reading::Stop || slot.is(CLOSING | EOF) || !slot.is(READABLE) {
                return;
            }
            let Some(stream) = &mut slot.stream else { return };
            let size = if slot.reading == Reading::Brief { BRIEF_SIZE } else { RECEIVE_SIZE };
            match stream.receive(&mut self.scratch[..size]) {
                Ok(0) => {
                    slot.set(EOF);
                    slot.clear(READABLE);
                    return on_event(Event::Eof(ConnId(index)));
                }
                Ok(len) => {
                    if slot.reading.is_once() {
                        slot.reading = Reading::Stop;
                    }
                    on_event(Event::Received(ConnId(index), &mut self.scratch[..len]));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return slot.clear(READABLE);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.fail(index, on_event),
            }
        }
        list_ready(&mut self.slots, &mut self.ready, index);
    }

    /// The peer may have finished sending, or be gone. Receiving may not have reported that: reading has stopped, or
    /// has not yet reached the end (R9).
    fn look_at_end(&mut self, index: u32, on_event: &mut impl FnMut(Event<'_>)) {
        let slot = self.slots.at(index);
        if !slot.is(HUNG_UP_NEWS | FAILURE) {
            return;
        }
        let may_have_failed = slot.is(FAILURE);
        slot.clear(HUNG_UP_NEWS | FAILURE);
        let Some(stream) = &slot.stream else { return };
        if slot.is(CLOSING) {
            return; // Its last send gets the error.
        }
        let unheard = slot.reading == Reading::Stop || slot.is(EOF);
        // Both sides may have finished normally: only an error is the end before `close`.
        if unheard && may_have_failed && stream.has_failed() {
            return self.fail(index, on_event);
        }
        if !slot.is(EOF | HANG_UP_TOLD) {
            slot.set(HANG_UP_TOLD);
            on_event(Event::HungUp(ConnId(index)));
        }
    }
}

/// Sending.
impl Portable {
    /// Writes the rest of the send in flight, within bounds. Returns whether all is written.
    fn write(&mut self, index: u32) -> io::Result<bool> {
        let slot = self.slots.at(index);
        for _ in 0..WRITES_MAX {
            match slot.send_rest() {
                Ok((_, true)) => {
                    slot.clear(BLOCKED | PROGRESSED);
                    return Ok(true);
                }
                Ok(_) => slot.set(BLOCKED | PROGRESSED | WRITABLE),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    slot.set(BLOCKED);
                    slot.clear(WRITABLE);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        list_ready(&mut self.slots, &mut self.ready, index);
        Ok(false)
    }

    /// The socket's buffer may have room again.
    fn resume_send(&mut self, index: u32, on_event: &mut impl FnMut(Event<'_>)) {
        let id = ConnId(index);
        match self.write(index) {
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
                let slot = self.slots.at(index);
                if slot.is(PROGRESSED) {
                    slot.clear(PROGRESSED);
                    on_event(Event::Progress(id));
                }
            }
            Err(_) => self.fail(index, on_event),
        }
    }

    /// The system has taken all bytes. Returns whether that closed the connection.
    fn after_send(&mut self, index: u32) -> bool {
        let slot = self.slots.at(index);
        match (slot.then, &slot.stream) {
            (Then::Shutdown, Some(stream)) => stream.finish_sending(),
            (Then::Close, _) => self.drop_stream(index),
            _ => {}
        }
        self.slots.at(index).is_closed()
    }
}

/// Closing and reporting.
impl Portable {
    /// Closes the socket, which also ends its registration.
    fn drop_stream(&mut self, index: u32) {
        let slot = self.slots.at(index);
        slot.stream = None;
        slot.set(CLOSING);
        slot.clear(BLOCKED);
    }

    /// The connection is found to be gone, during a poll.
    fn fail(&mut self, index: u32, on_event: &mut impl FnMut(Event<'_>)) {
        self.drop_stream(index);
        self.slots.remove(index);
        on_event(Event::Closed(ConnId(index)));
    }

    /// Lists a connection for the next poll to report.
    fn report(&mut self, index: u32) {
        let slot = self.slots.at(index);
        if !slot.is(REPORT_LISTED) {
            slot.set(REPORT_LISTED);
            self.reports.push(index);
        }
    }

    /// Reports what commands did.
    fn report_all(&mut self, on_event: &mut impl FnMut(Event<'_>)) {
        let mut reports = std::mem::take(&mut self.reports);
        for index in reports.drain(..) {
            let id = ConnId(index);
            let slot = self.slots.at(index);
            let (progressed, sent) = (slot.is(PROGRESSED), slot.is(SENT));
            let closed = slot.is_closed();
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
        self.reports = reports; // Nothing listed itself meanwhile: only commands do.
    }
}

impl Driver for Portable {
    type Error = io::Error;
    type Clock = SystemClock;

    fn poll(&mut self, wait: Wait, on_event: &mut impl FnMut(Event<'_>)) -> io::Result<()> {
        let timeout = match wait {
            _ if self.is_busy() => Some(Duration::ZERO),
            Wait::No => Some(Duration::ZERO),
            Wait::Until(time) => Some(time - SystemClock.now()),
            Wait::Forever => None,
        };
        self.report_all(on_event);
        self.collect(timeout)?;
        if std::mem::take(&mut self.woken) {
            self.waker.acknowledge();
        }
        self.accept_ready(on_event);
        self.serve_ready(on_event);
        Ok(())
    }

    fn report_done(&mut self, on_event: &mut impl FnMut(Event<'_>)) {
        self.report_all(on_event);
    }

    fn send(&mut self, id: ConnId, output: Output, then: Then) {
        let slot = self.slots.at(id.0);
        if slot.is_closed() || slot.is(CLOSING) {
            return; // It failed meanwhile: `Closed` follows.
        }
        if slot.is(BLOCKED | SENT) {
            return self.close(id, Close::Reset); // O1: two answers must not be mixed up.
        }
        slot.begin_send(output, then);
        if then == Then::Close {
            slot.set(CLOSING);
        }
        match self.write(id.0) {
            Ok(true) => {
                self.slots.at(id.0).set(SENT);
                self.after_send(id.0);
            }
            // Nothing to report before there is room.
            Ok(false) if !self.slots.at(id.0).is(PROGRESSED) => return,
            Ok(false) => {}
            Err(_) => self.drop_stream(id.0),
        }
        self.report(id.0);
    }

    fn read(&mut self, id: ConnId, reading: Reading) {
        let slot = self.slots.at(id.0);
        if slot.is_closed() || slot.is(CLOSING) {
            return;
        }
        slot.reading = reading;
        list_ready(&mut self.slots, &mut self.ready, id.0);
    }

    fn take(&mut self, id: ConnId, into: &mut Vec<u8>, max: u64) -> usize {
        let slot = self.slots.at(id.0);
        if slot.reading != Reading::Stop || slot.is(CLOSING | EOF) || !slot.is(READABLE) {
            return 0;
        }
        let Some(stream) = &mut slot.stream else { return 0 };
        // Through the scratch: no system's library says how much has arrived, and memory must not grow for more.
        let size = usize::try_from(max).unwrap_or(usize::MAX).min(RECEIVE_SIZE);
        match stream.receive(&mut self.scratch[..size]) {
            Ok(len) => {
                make_room(into, len, Some(max));
                into.extend_from_slice(&self.scratch[..len]);
                return len; // None: the end, which is received once more.
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => slot.clear(READABLE),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => {
                self.drop_stream(id.0);
                self.report(id.0);
            }
        }
        0
    }

    fn close(&mut self, id: ConnId, how: Close) {
        let slot = self.slots.at(id.0);
        let Some(stream) = &slot.stream else {
            return; // Closed already; the next poll reports it.
        };
        if how == Close::Reset {
            stream.reset_on_close();
        }
        slot.clear(SENT);
        self.drop_stream(id.0);
        self.report(id.0);
    }

    fn accept(&mut self, listener: ListenerId, accepting: Accepting) {
        self.entrances.set(listener, accepting);
    }

    fn backlog(&mut self, listener: ListenerId, backlog: u32) {
        self.entrances.set_backlog(listener, backlog);
    }

    fn is_hung_up(&mut self, id: ConnId) -> bool {
        // If the system does not answer, nobody is known to have hung up.
        let _ = self.collect(Some(Duration::ZERO));
        let slot = self.slots.at(id.0);
        slot.is_closed() || slot.is(EOF | HUNG_UP | FAILURE)
    }

    fn peer(&mut self, id: ConnId) -> Option<SocketAddr> {
        self.slots.at(id.0).stream.as_ref()?.peer()
    }

    fn clock(&self) -> SystemClock {
        SystemClock
    }
}

impl External for Portable {
    #[cfg(unix)]
    fn readiness_fd(&self) -> BorrowedFd<'_> {
        self.selector.registry().as_fd()
    }

    fn prepare_wait(&mut self) -> io::Result<bool> {
        // An edge that came before the waiter looked again would not come twice.
        if !self.is_busy() {
            self.collect(Some(Duration::ZERO))?;
        }
        Ok(!self.is_busy())
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }
}
