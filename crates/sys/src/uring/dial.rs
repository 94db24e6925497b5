//! Dialing over io_uring: one system call per poll, and one per connection to make its socket.
//!
//! How it works: one multishot receive per connection once it is established, into buffers provided
//! to the kernel; sends that report nothing unless they fail, from messages that are never freed;
//! an alarm that is moved only when something is due earlier.
//!
//! ```text
//!  connect ─▶ CONNECTING ─▶ RECEIVING (Eof: not any more) ─▶ free
//! ```
//!
//! A message that is written for one send is sent without waiting for room (`MSG_DONTWAIT`): once it
//! has been submitted, the kernel has copied it or refused it, and its buffer may be used again, with
//! no completion to say so. The rest for which there was no room, the tail of a large message, is then
//! sent by an operation that reports its end; its buffer is kept apart until then.
//!
//! A closed connection's slot is free at once, although the kernel has not ended its operations
//! yet: none of them uses memory of the slot, and the generation tells their completions apart. The
//! connection itself lives until then, so these are counted.
//!
//! A poll enters the kernel until it has nothing more to report. With one entry per poll, a caller
//! that opens connections faster than an entry reports completions would never see its answers.

use std::collections::HashMap;
use std::io;

use highwater_core::driver::{ConnId, Wait};
use highwater_core::time::Instant;
use io_uring::types::{Fd, Timespec};
use io_uring::{cqueue, opcode, squeue};

use super::buffers::Buffers;
use super::ring::Ring;
use super::slots::Token;
use super::{COMPLETIONS_MAX, Refusal};
use crate::call::context;
use crate::dial::slots::{Slots, Sockets};
use crate::dial::{Arrival, Dial, DialConfig, Event, Failure};
use crate::socket::RawAddr;

/// Size of the submission queue. Further submissions wait in a list of the ring.
const SUBMISSIONS: u32 = 1024;
/// Size of the completion queue. The kernel keeps further completions in a slower list of its own.
const COMPLETIONS: u32 = 16 * 1024;
/// Bytes of one receive buffer, and how many there are, for all connections together.
const BUFFER_SIZE: u32 = 4096;
const BUFFERS: u16 = 512;
/// How often one poll enters the kernel, at most.
const ENTRIES_MAX: usize = 64;

/// The operations in flight for a connection.
#[derive(Default)]
struct State {
    connecting: bool,
    receiving: bool,
    /// A send may still be in flight: nothing has been received since.
    sending: bool,
    /// A message that was written for one send.
    written: Vec<u8>,
    /// When it was, in the dialer's count of submissions; 0: never.
    written_in: u64,
    /// The tail in flight; 0: none.
    tail: u64,
}

/// The end of a message for which the socket had no room at once.
struct Tail {
    index: u32,
    generation: u32,
    /// How much of `bytes` it is.
    len: usize,
    bytes: Vec<u8>,
}

/// The operations of a connection, as the upper 8 bits of an operation's name. Below them are the
/// generation (24 bits) and the slot (32 bits).
const CONNECT: u64 = 101;
const RECEIVE: u64 = 102;
const SEND: u64 = 103;
const CLOSE: u64 = 104;
const WRITE: u64 = 105;
/// With a tail's number below it.
const TAIL: u64 = 106;

const GENERATION_BITS: u32 = 24;

/// Opens connections through a ring. Belongs to the thread that made it.
pub struct UringDialer {
    ring: Ring,
    buffers: Buffers,
    sockets: Sockets,
    /// The target's address, where the kernel reads it.
    address: Box<RawAddr>,
    slots: Slots<State>,
    /// Never freed: a successful send is not reported, so the dialer does not know when the kernel
    /// has read the last byte.
    messages: &'static [Vec<u8>],
    /// Counts the times when everything was submitted, from 1.
    submitted: u64,
    /// Messages of closed connections that are yet to be submitted.
    retired: Vec<Vec<u8>>,
    /// Bytes that the kernel may still read, by number.
    tails: HashMap<u64, Tail>,
    tails_begun: u64,
    /// Receives that found no buffer during this poll, by slot and generation.
    starved: Vec<(u32, u32)>,
    /// Operations that will yet complete: connects, receives, tails, and the alarm.
    in_flight: u64,
    /// Closed connections of which an operation has not completed.
    closing: usize,
    /// When the alarm in flight goes off; `MAX` if none is.
    alarm_at: Instant,
    /// The kernel reads `alarm_at` from here.
    alarm_time: Box<Timespec>,
}

impl UringDialer {
    /// A dialer without connections. To be called on the thread that will poll.
    ///
    /// # Errors
    /// What [`probe`](crate::probe()) would have said, or lack of memory or descriptors.
    pub fn new(config: &DialConfig) -> io::Result<UringDialer> {
        let refused = |refusal: Refusal| context(refusal.cause, refusal.step);
        let mut ring = Ring::new(SUBMISSIONS, COMPLETIONS).map_err(refused)?;
        ring.use_bundles(super::trial::bundles_are_bounded());
        let buffers = Buffers::new(&ring, BUFFERS, BUFFER_SIZE)
            .map_err(|cause| context(cause, "registering receive buffers"))?;
        Ok(UringDialer {
            ring,
            buffers,
            sockets: Sockets::new(config),
            address: Box::new(RawAddr::encode(config.target)),
            slots: Slots::new(GENERATION_BITS),
            messages: config.messages.clone().leak(),
            submitted: 1,
            retired: Vec::new(),
            tails: HashMap::new(),
            tails_begun: 0,
            starved: Vec::new(),
            in_flight: 0,
            closing: 0,
            alarm_at: Instant::MAX,
            alarm_time: Box::new(Timespec::new()),
        })
    }

    fn token(&mut self, operation: u64, index: u32) -> Token {
        let generation = u64::from(self.slots.at(index).generation);
        Token(operation << 56 | generation << 32 | u64::from(index))
    }

    fn receive(&mut self, index: u32) {
        let token = self.token(RECEIVE, index);
        let slot = self.slots.at(index);
        slot.state.receiving = true;
        self.ring.receive_stream(slot.fd, token);
        self.in_flight += 1;
    }

    /// Makes sure that something completes at `time`, for [`Dial::poll`]. An alarm that is due
    /// earlier is enough.
    fn set_alarm(&mut self, time: Instant) {
        if time >= self.alarm_at {
            return;
        }
        let nanos = time.as_nanos();
        let (secs, nanos) = (nanos / 1_000_000_000, (nanos % 1_000_000_000) as u32);
        *self.alarm_time = Timespec::new().sec(secs).nsec(nanos);
        let armed = self.alarm_at != Instant::MAX;
        // SAFETY: boxed, and kept until the alarm has completed (`in_flight`).
        unsafe { self.ring.alarm(&raw const *self.alarm_time, armed) };
        self.in_flight += u64::from(!armed);
        self.alarm_at = time;
    }

    #[inline]
    fn complete(&mut self, entry: &cqueue::Entry, on_event: &mut impl FnMut(Event<'_>)) {
        let name = entry.user_data();
        let (index, generation) = (name as u32, (name >> 32) as u32 & ((1 << GENERATION_BITS) - 1));
        match name >> 56 {
            RECEIVE => self.on_received(index, generation, entry, on_event),
            CONNECT => self.on_connected(index, generation, entry.result(), on_event),
            // Reported only if it failed or was cut short, which is the same here.
            SEND => {
                let errno = if entry.result() < 0 { -entry.result() } else { libc::EPIPE };
                if self.slots.find(index, generation).is_some() {
                    self.fail(index, Failure::of(errno), on_event);
                }
            }
            WRITE if self.slots.find(index, generation).is_some() => {
                self.on_cut(index, entry.result(), on_event);
            }
            TAIL => self.on_tail(name & (u64::MAX >> 8), entry.result(), on_event),
            _ if name == Token::ALARM.0 => {
                self.alarm_at = Instant::MAX;
                self.in_flight -= 1;
            }
            // A cancellation that came too late, or a close: their results do not matter.
            _ => {}
        }
    }

    fn on_connected(
        &mut self,
        index: u32,
        generation: u32,
        result: i32,
        on_event: &mut impl FnMut(Event<'_>),
    ) {
        self.in_flight -= 1;
        let Some(slot) = self.slots.find(index, generation) else {
            self.closing -= 1;
            return;
        };
        slot.state.connecting = false;
        if result < 0 {
            return self.fail(index, Failure::of(-result), on_event);
        }
        self.receive(index);
        on_event(Event::Connected(ConnId(index)));
    }

    #[inline]
    fn on_received(
        &mut self,
        index: u32,
        generation: u32,
        entry: &cqueue::Entry,
        on_event: &mut impl FnMut(Event<'_>),
    ) {
        let more = cqueue::more(entry.flags());
        self.in_flight -= u64::from(!more);
        let mut buffer = cqueue::buffer_select(entry.flags());
        if let Some(slot) = self.slots.find(index, generation) {
            slot.state.receiving = more;
            match (entry.result(), buffer) {
                (len @ 1.., Some(first)) => {
                    slot.state.sending = false;
                    let arrival = Arrival::at(slot.fd);
                    let on_bytes = |bytes: &mut [u8]| {
                        on_event(Event::Received(ConnId(index), bytes, arrival));
                    };
                    self.buffers.take(first, len as usize, on_bytes);
                    buffer = None;
                    if !more {
                        self.receive(index);
                    }
                }
                (0.., _) => on_event(Event::Eof(ConnId(index))),
                (error, _) => match -error {
                    libc::ENOBUFS | libc::EINTR | libc::EAGAIN => {
                        self.starved.push((index, generation));
                    }
                    errno => self.fail(index, Failure::of(errno), on_event),
                },
            }
        } else {
            self.closing -= usize::from(!more);
        }
        if let Some(buffer) = buffer {
            self.buffers.take(buffer, entry.result().max(0) as usize, |_| ());
        }
    }

    /// Handles completions, up to `room` of them, and says how many.
    fn complete_ready(&mut self, room: usize, on_event: &mut impl FnMut(Event<'_>)) -> usize {
        let ready = self.ring.ready().min(room);
        for _ in 0..ready {
            let Some(entry) = self.ring.next() else { break };
            self.complete(&entry, on_event);
        }
        ready
    }

    fn enter(&mut self, wait: bool) -> io::Result<()> {
        self.ring.enter(wait)?;
        if !self.ring.has_submissions() {
            self.submitted += 1;
            self.retired.clear();
        }
        Ok(())
    }

    /// A written message was not taken whole: `result` bytes of it were, or it failed.
    fn on_cut(&mut self, index: u32, result: i32, on_event: &mut impl FnMut(Event<'_>)) {
        let taken = match result {
            0.. => result as usize,
            error if matches!(-error, libc::EAGAIN | libc::EINTR) => 0,
            error => return self.fail(index, Failure::of(-error), on_event),
        };
        let slot = self.slots.at(index);
        let generation = slot.generation;
        let bytes = match slot.state.written_in == self.submitted {
            false => std::mem::take(&mut slot.state.written),
            // Not everything could be submitted, perhaps not this either: it stays where it is.
            true => slot.state.written.clone(),
        };
        let Some(rest) = bytes.get(taken..) else {
            // Another message was written meanwhile, against C2.
            return self.fail(index, Failure::Other(libc::EPROTO), on_event);
        };
        self.tails_begun += 1;
        slot.state.tail = self.tails_begun;
        let token = Token(TAIL << 56 | self.tails_begun);
        let len = u32::try_from(rest.len()).expect("messages are shorter than 4 GiB");
        // SAFETY: the bytes are kept in `tails` until this has completed.
        unsafe { self.ring.send(slot.fd, rest.as_ptr(), len, true, token) };
        let tail = Tail { index, generation, len: rest.len(), bytes };
        self.tails.insert(self.tails_begun, tail);
        self.in_flight += 1;
    }

    fn on_tail(&mut self, number: u64, result: i32, on_event: &mut impl FnMut(Event<'_>)) {
        self.in_flight -= 1;
        let Some(tail) = self.tails.remove(&number) else { return };
        let Some(slot) = self.slots.find(tail.index, tail.generation) else { return };
        slot.state.tail = 0;
        if slot.state.written.capacity() == 0 {
            slot.state.written = tail.bytes;
        }
        if usize::try_from(result) != Ok(tail.len) {
            let errno = if result < 0 { -result } else { libc::EPIPE };
            self.fail(tail.index, Failure::of(errno), on_event);
        }
    }

    /// Takes the connection's written message away if the kernel is yet to read it.
    fn retire(&mut self, index: u32) {
        let state = &mut self.slots.at(index).state;
        if state.written_in == self.submitted {
            self.retired.push(std::mem::take(&mut state.written));
        }
    }

    fn fail(&mut self, index: u32, failure: Failure, on_event: &mut impl FnMut(Event<'_>)) {
        self.close(ConnId(index));
        on_event(Event::Failed(ConnId(index), failure));
    }

    /// Arms the receives that found no buffer: by now this poll has returned some.
    fn feed_starved(&mut self) {
        let mut starved = std::mem::take(&mut self.starved);
        for (index, generation) in starved.drain(..) {
            if self.slots.find(index, generation).is_some() {
                self.receive(index);
            }
        }
        self.starved = starved;
    }
}

impl Dial for UringDialer {
    fn connect(&mut self) -> io::Result<ConnId> {
        let index = self.slots.insert(self.sockets.make(false)?);
        let token = self.token(CONNECT, index);
        let slot = self.slots.at(index);
        slot.state.connecting = true;
        let connect = opcode::Connect::new(Fd(slot.fd), self.address.as_ptr(), self.address.len());
        // SAFETY: the address is boxed, and kept until the connect has completed (`in_flight`).
        unsafe { self.ring.push(&connect.build().user_data(token.0)) };
        self.in_flight += 1;
        Ok(ConnId(index))
    }

    #[inline]
    fn send(&mut self, id: ConnId, message: usize, len: usize) {
        let bytes = &self.messages[message][..len];
        let token = self.token(SEND, id.0);
        let slot = self.slots.at(id.0);
        slot.state.sending = true;
        // Messages fit into memory; the field has 32 bits.
        let len = u32::try_from(bytes.len()).expect("messages are shorter than 4 GiB");
        let send = opcode::Send::new(Fd(slot.fd), bytes.as_ptr(), len)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(token.0);
        // SAFETY: messages are never freed.
        unsafe { self.ring.push(&send) }
    }

    #[inline]
    fn write(&mut self, id: ConnId, fill: impl FnOnce(&mut Vec<u8>)) {
        self.retire(id.0);
        let token = self.token(WRITE, id.0);
        let slot = self.slots.at(id.0);
        slot.state.written.clear();
        fill(&mut slot.state.written);
        slot.state.written_in = self.submitted;
        let bytes = &slot.state.written;
        let len = u32::try_from(bytes.len()).expect("messages are shorter than 4 GiB");
        // Not taken whole counts as failed, so that it is reported, only with MSG_WAITALL.
        let send = opcode::Send::new(Fd(slot.fd), bytes.as_ptr(), len)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL | libc::MSG_DONTWAIT)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(token.0);
        // SAFETY: the kernel is done with it when it has been submitted, since it is not to wait;
        // until then the buffer is neither freed nor written to (`retire`).
        unsafe { self.ring.push(&send) }
    }

    fn is_writing(&mut self, id: ConnId) -> bool {
        let submitted = self.submitted;
        let state = &self.slots.at(id.0).state;
        state.tail != 0 || state.written_in == submitted
    }

    fn close(&mut self, id: ConnId) {
        self.retire(id.0);
        let tokens = [CONNECT, SEND, RECEIVE, CLOSE].map(|operation| self.token(operation, id.0));
        let state = &self.slots.at(id.0).state;
        let tail = state.tail;
        self.closing += usize::from(state.connecting || state.receiving);
        let pending = [state.connecting, state.sending, state.receiving];
        for (token, pending) in tokens.into_iter().zip(pending) {
            if pending {
                self.ring.cancel(token);
            }
        }
        if tail != 0 {
            self.ring.cancel(Token(TAIL << 56 | tail));
        }
        let close = opcode::Close::new(Fd(self.slots.remove(id.0)))
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(tokens[3].0);
        // SAFETY: points to nothing.
        unsafe { self.ring.push(&close) }
    }

    fn closing(&self) -> usize {
        self.closing
    }

    fn poll(&mut self, wait: Wait, on_event: &mut impl FnMut(Event<'_>)) -> io::Result<()> {
        if let Wait::Until(time) = wait {
            self.set_alarm(time);
        }
        self.enter(wait != Wait::No)?;
        let mut room = COMPLETIONS_MAX;
        for _ in 0..ENTRIES_MAX {
            room -= self.complete_ready(room, on_event);
            if room == 0 || !self.ring.has_work() {
                break;
            }
            self.enter(false)?;
        }
        if !self.starved.is_empty() {
            self.feed_starved();
        }
        Ok(())
    }
}

impl Drop for UringDialer {
    /// Cancels what is in flight and waits for it, so that no memory is freed under the kernel.
    fn drop(&mut self) {
        // Each by name: see `Ring::cancel_all`.
        let open: Vec<_> = self.slots.open().collect();
        open.into_iter().for_each(|(index, _)| self.close(ConnId(index)));
        if self.alarm_at != Instant::MAX {
            self.ring.cancel(Token::ALARM);
        }
        let mut attempts = 0;
        while self.in_flight > 0 && self.ring.end_more(&mut attempts) {
            while let Some(entry) = self.ring.next() {
                let ours = matches!(entry.user_data() >> 56, CONNECT | RECEIVE | TAIL)
                    || entry.user_data() == Token::ALARM.0;
                self.in_flight -= u64::from(ours && !cqueue::more(entry.flags()));
            }
        }
        // Closes are submitted with everything else.
        let _ = self.ring.flush();
        if self.in_flight > 0 {
            self.buffers.leak();
            std::mem::forget(std::mem::take(&mut self.tails));
            let address = Box::new(RawAddr::encode(self.sockets.target()));
            std::mem::forget(std::mem::replace(&mut self.address, address));
            std::mem::forget(std::mem::replace(&mut self.alarm_time, Box::new(Timespec::new())));
        }
    }
}
