//! Dialing over epoll. It works on every Linux, even where io_uring is refused.
//!
//! How it works: level-triggered, one receive per readiness. A connection is watched for becoming
//! writable until it is established, and again while the socket's buffer is full.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use highwater_core::driver::{ConnId, Wait};
use highwater_core::time::Clock;

use super::selector::{Selector, send_bytes};
use super::slots::Token;
use crate::call::check;
use crate::clock::SystemClock;
use crate::dial::slots::{Slots, Sockets};
use crate::dial::{Arrival, Dial, DialConfig, Event, Failure};
use crate::{direct, socket};

/// The largest receive, in bytes. All connections share the buffer, so its size costs nothing per
/// connection.
const RECEIVE_SIZE: usize = 64 * 1024;

const IN: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP) as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
/// The connection failed. The next receive gets the error.
const FAILURE: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

#[derive(Default)]
struct State {
    connected: bool,
    eof: bool,
    /// Registered with epoll for becoming writable.
    blocked: bool,
    /// The part of a message for which the socket's buffer had no room: message, from, to.
    rest: Option<(Message, usize, usize)>,
    /// A message that was made for one send.
    written: Vec<u8>,
}

/// Where the bytes of a message are.
#[derive(Clone, Copy)]
enum Message {
    /// In the messages that the dialer was given at first, by index.
    Given(usize),
    /// In the connection's own buffer.
    Written,
}

/// Opens connections with plain system calls. Belongs to the thread that made it.
pub struct EpollDialer {
    selector: Selector,
    sockets: Sockets,
    slots: Slots<State>,
    messages: Vec<Vec<u8>>,
    /// Failures that commands found; the next poll reports them.
    failed: Vec<(u32, u32, Failure)>,
    scratch: Box<[u8]>,
}

impl EpollDialer {
    /// A dialer without connections.
    ///
    /// # Errors
    /// Lack of memory or descriptors.
    pub fn new(config: &DialConfig) -> io::Result<EpollDialer> {
        Ok(EpollDialer {
            selector: Selector::new()?,
            sockets: Sockets::new(config),
            slots: Slots::new(32),
            messages: config.messages.clone(),
            failed: Vec::new(),
            scratch: vec![0; RECEIVE_SIZE].into_boxed_slice(),
        })
    }

    fn token(&mut self, index: u32) -> Token {
        Token(u64::from(self.slots.at(index).generation) << 32 | u64::from(index))
    }

    fn start(&mut self, fd: RawFd) -> io::Result<u32> {
        let outcome = socket::connect(fd, self.sockets.target());
        let index = self.slots.insert(fd);
        match outcome {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => {
                let generation = self.slots.at(index).generation;
                self.failed.push((index, generation, Failure::of_error(&error)));
            }
            _ => {
                let token = self.token(index);
                if let Err(error) = self.selector.add(fd, IN | OUT, token) {
                    self.close(ConnId(index));
                    return Err(error);
                }
            }
        }
        Ok(index)
    }

    fn fail(&mut self, index: u32, failure: Failure, on_event: &mut impl FnMut(Event<'_>)) {
        self.close(ConnId(index));
        on_event(Event::Failed(ConnId(index), failure));
    }

    fn on_ready(&mut self, token: Token, flags: u32, on_event: &mut impl FnMut(Event<'_>)) {
        let index = token.index();
        let Some(slot) = self.slots.find(index, (token.0 >> 32) as u32) else {
            return;
        };
        if !slot.state.connected {
            return self.on_connected(index, on_event);
        }
        if flags & (OUT | FAILURE) != 0
            && slot.state.rest.is_some()
            && let Err(error) = self.send_rest(index)
        {
            return self.fail(index, Failure::of_error(&error), on_event);
        }
        if flags & (IN | FAILURE) != 0 {
            self.receive(index, on_event);
        }
    }

    fn on_connected(&mut self, index: u32, on_event: &mut impl FnMut(Event<'_>)) {
        let fd = self.slots.at(index).fd;
        match socket::take_error(fd) {
            0 => {}
            errno => return self.fail(index, Failure::of(errno), on_event),
        }
        self.slots.at(index).state.connected = true;
        let token = self.token(index);
        match self.selector.modify(fd, IN, token) {
            Ok(()) => on_event(Event::Connected(ConnId(index))),
            Err(error) => self.fail(index, Failure::of_error(&error), on_event),
        }
    }

    fn receive(&mut self, index: u32, on_event: &mut impl FnMut(Event<'_>)) {
        let slot = self.slots.at(index);
        match direct::receive(slot.fd, &mut self.scratch) {
            Ok(0) if slot.state.eof => {}
            Ok(0) => {
                slot.state.eof = true;
                on_event(Event::Eof(ConnId(index)));
            }
            Ok(len) => {
                let arrival = Arrival::at(slot.fd);
                on_event(Event::Received(ConnId(index), &self.scratch[..len], arrival));
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => self.fail(index, Failure::of_error(&error), on_event),
        }
    }

    /// Begins to send; a failure is reported by the next poll.
    fn begin_send(&mut self, index: u32) {
        if let Err(error) = self.send_rest(index) {
            let generation = self.slots.at(index).generation;
            self.failed.push((index, generation, Failure::of_error(&error)));
        }
    }

    /// Sends as much as there is room for, and registers for the rest.
    fn send_rest(&mut self, index: u32) -> io::Result<()> {
        let token = self.token(index);
        let slot = self.slots.at(index);
        let Some((message, from, to)) = slot.state.rest else { return Ok(()) };
        let bytes = match message {
            Message::Given(number) => &self.messages[number],
            Message::Written => &slot.state.written,
        };
        let taken = match send_bytes(slot.fd, [&bytes[from..to], &[]]) {
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                0
            }
            other => other?,
        };
        let blocked = from + taken < to;
        slot.state.rest = blocked.then_some((message, from + taken, to));
        if slot.state.blocked == blocked {
            return Ok(());
        }
        slot.state.blocked = blocked;
        self.selector.modify(slot.fd, if blocked { IN | OUT } else { IN }, token)
    }

    fn report_failed(&mut self, on_event: &mut impl FnMut(Event<'_>)) -> bool {
        let failed = std::mem::take(&mut self.failed);
        for &(index, generation, failure) in &failed {
            if self.slots.find(index, generation).is_some() {
                self.fail(index, failure, on_event);
            }
        }
        !failed.is_empty()
    }
}

impl Dial for EpollDialer {
    fn connect(&mut self) -> io::Result<ConnId> {
        let fd = self.sockets.make(true)?;
        self.start(fd).map(ConnId)
    }

    fn send(&mut self, id: ConnId, message: usize, len: usize) {
        assert!(len <= self.messages[message].len(), "a message has no more bytes than it has");
        self.slots.at(id.0).state.rest = Some((Message::Given(message), 0, len));
        self.begin_send(id.0);
    }

    fn write(&mut self, id: ConnId, fill: impl FnOnce(&mut Vec<u8>)) {
        let state = &mut self.slots.at(id.0).state;
        state.written.clear();
        fill(&mut state.written);
        state.rest = Some((Message::Written, 0, state.written.len()));
        self.begin_send(id.0);
    }

    fn is_writing(&mut self, id: ConnId) -> bool {
        self.slots.at(id.0).state.rest.is_some()
    }

    fn close(&mut self, id: ConnId) {
        direct::close(self.slots.remove(id.0));
    }

    fn closing(&self) -> usize {
        0 // A close is over when the system call returns.
    }

    fn poll(&mut self, wait: Wait, on_event: &mut impl FnMut(Event<'_>)) -> io::Result<()> {
        let reported = self.report_failed(on_event);
        let timeout = match wait {
            _ if reported => Some(Duration::ZERO),
            Wait::No => Some(Duration::ZERO),
            Wait::Until(time) => Some(time - SystemClock.now()),
            Wait::Forever => None,
        };
        if let Some(timeout) = timeout.filter(|timeout| !timeout.is_zero()) {
            wait_precisely(self.selector.as_fd(), timeout)?;
        }
        for position in 0..self.selector.wait(timeout.map(|_| 0))? {
            let (token, flags) = self.selector.event(position);
            self.on_ready(token, flags, on_event);
        }
        Ok(())
    }
}

/// Waits until `epoll` has an event, with microsecond precision: epoll itself counts milliseconds.
fn wait_precisely(epoll: BorrowedFd<'_>, timeout: Duration) -> io::Result<()> {
    let mut poll = libc::pollfd { fd: epoll.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: one entry and the time, which both live until the call returns; a null mask is allowed.
    match check(unsafe { libc::ppoll(&mut poll, 1, &time, std::ptr::null()) }) {
        Err(error) if error.kind() != ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

impl Drop for EpollDialer {
    fn drop(&mut self) {
        self.slots.open().for_each(|(_, fd)| direct::close(fd));
    }
}
