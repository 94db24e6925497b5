//! The interface between a worker and a kernel: events (`Event`) and commands (`Driver`).
//!
//! A driver moves bytes and tells the time; it never looks inside the bytes. There are four:
//! io_uring, epoll and a portable one in `highwater-sys`, and a seeded simulator in `highwater::sim`. All report
//! completions, so a worker cannot tell them apart.
//!
//! Contract (R = the driver's promise, O = the worker's obligation; the simulator asserts the Os):
//!
//! * R1 `Received` bytes are borrowed for the duration of the callback only, and the worker may change them: a
//!   channel decrypts in place.
//! * R2 Each `send` is answered by exactly one `Sent` or by `Closed`; `Progress` may come before.
//! * R3 `Closed(id)` is the last event to name `id` until it is `Accepted` again, and comes only
//!   when the kernel holds no buffer and no operation of that connection any more.
//! * R4 Ids are small and dense (a slot index): a worker may use them to index a `Vec`.
//! * R5 After `Eof(id)` there is no further `Received(id, …)`, but the connection can be written. After a send
//!   with [`Then::Shutdown`] it is read as before.
//! * R6 Commands (`send`, `read`, `close`, `accept`, …) never call back; their effects are reported by
//!   a later `poll`, or by `report_done`. A command naming a closed id is a bug in the worker.
//! * R7 `poll` waits no longer than requested, and not at all when an event is ready or a `Waker` of this
//!   driver was used. It may return without any event.
//! * R8 After [`Accepting::Few`] no more than that many connections of that listener are accepted, and after
//!   [`Accepting::Paused`] none, except connections that the kernel had already taken from the listen queue
//!   under a larger bound.
//! * R9 Where reading has stopped, by [`Reading::Stop`] or by `Eof`, the end of a connection is
//!   still reported: a reset or a failure by `Closed`, and a FIN behind unread bytes by `HungUp`,
//!   once. (Not before the first [`Driver::read`]: most connections with one request never need
//!   it.)
//! * R10 A driver has as many listeners as it was given, in that order: [`ListenerId`] 0 is the first. Each
//!   accepts on its own; `Accepted` names the one that the connection came in at. `AcceptFailed` ends accepting
//!   at all of them, except where it has ended for good.
//! * R11 [`Driver::take`] keeps the order of bytes: it takes none while earlier ones may still be reported, and what
//!   it takes is not reported. It never takes the end: that is reported as always.
//! * O1 One send in flight per connection: no second `send` before the `Sent` of the first. A driver
//!   answers a second one by resetting the connection: it never touches the bytes of the first.
//! * O2 Commands and questions are given between reports, not from inside the callback.
//! * O3 After `close(id)` no further command names `id`; after a send with [`Then::Close`] only
//!   `close(id)` may, to cut that send off; after one with [`Then::Shutdown`] there is no further send.

use alloc::vec::Vec;
use bytes::Bytes;
use core::net::SocketAddr;

use crate::time::{Clock, Instant};

/// A connection of one driver: a slot index, reused after [`Event::Closed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u32);

impl ConnId {
    /// The id as an index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A listener of one driver: its place among the listeners that the driver was made with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub u16);

impl ListenerId {
    /// The id as an index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The ids of a driver with `count` listeners. Ids beyond the 65 536th do not exist.
    pub fn all(count: usize) -> impl Iterator<Item = ListenerId> + Clone {
        (0..=u16::MAX).take(count).map(ListenerId)
    }
}

/// An event that [`Driver::poll`] or [`Driver::report_done`] reports.
#[derive(Debug)]
pub enum Event<'a> {
    /// A connection was accepted at a listener, with its peer's address if the driver was asked to look it up
    /// and there is one: peers of Unix sockets have none. One delivery of bytes is armed, as if by
    /// [`Reading::Once`].
    Accepted(ConnId, ListenerId, Option<SocketAddr>),
    /// Bytes arrived, borrowed until the callback returns; never empty.
    Received(ConnId, &'a mut [u8]),
    /// The peer has finished sending (FIN). It may still be reading.
    Eof(ConnId),
    /// The peer has finished sending, or is gone. Bytes that it sent earlier may still be unread;
    /// if the worker receives them all, `Eof` follows. Not reported after `Eof`.
    HungUp(ConnId),
    /// The kernel took a part of the send in flight; the rest follows automatically.
    Progress(ConnId),
    /// The kernel took the whole send in flight. The buffer comes back, for reuse.
    Sent(ConnId, Vec<u8>),
    /// The connection is gone: reset by the peer, failed, or closed as commanded.
    Closed(ConnId),
    /// Accepting has stopped at all listeners: the process or the system has run out of something. The worker
    /// calls [`Driver::accept`] for each of them to try again.
    AcceptFailed(AcceptError),
}

/// Why accepting stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptError {
    /// No descriptor left (EMFILE, ENFILE).
    Descriptors,
    /// No kernel memory left (ENOBUFS, ENOMEM).
    Memory,
    /// Anything else, by its error number.
    Other(i32),
}

/// Bytes to send: encoded ones, then optionally one large shared body.
#[derive(Debug, Default)]
pub struct Output {
    /// Sent first. Comes back with [`Event::Sent`].
    pub bytes: Vec<u8>,
    /// Sent after `bytes`, without being copied. May be empty.
    pub tail: Bytes,
}

impl Output {
    /// How many bytes there are to send.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() + self.tail.len()
    }

    /// Whether there is nothing to send.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.tail.is_empty()
    }
}

/// What to do after a send, once the kernel has taken all its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The connection stays open.
    Keep,
    /// Finish sending (FIN) but go on reading: the connection is half-closed, or a lingering close begins.
    Shutdown,
    /// Close. Only right when nothing unread can be waiting: the kernel answers unread input with a
    /// reset, which may destroy what was just sent.
    Close,
}

/// How a worker wants to receive bytes from a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Deliver once, then stop. Every connection starts with this: it is cheapest for a single
    /// request.
    Once,
    /// Deliver once, but only a few KiB, then stop: the rest of the arrived bytes is for [`Driver::take`]. A delivery that
    /// was in progress before may have more.
    Brief,
    /// Deliver all bytes that arrive, until the next command.
    Stream,
    /// Deliver nothing more, so that TCP pushes back; report only the end (R9). Bytes that were
    /// already received may still be delivered.
    Stop,
}

impl Reading {
    /// Whether it ends with the next delivery.
    #[inline]
    pub const fn is_once(self) -> bool {
        matches!(self, Reading::Once | Reading::Brief)
    }
}

/// How to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// Like `close(2)`: FIN, or a reset if unread input is waiting.
    Fin,
    /// Reset at once; leaves no TIME_WAIT.
    Reset,
}

/// How long a [`Driver::poll`] may wait. An instant, not a duration: the worker knows its deadlines
/// without reading a clock, and a driver need not read one either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until then, by the driver's clock; not at all if that has passed.
    Until(Instant),
    /// Until something happens.
    Forever,
}

/// Whether connections are accepted at a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepting {
    /// Yes, as many as come.
    On,
    /// This many more, then none, as if by [`Accepting::Paused`]. Every [`Event::Accepted`] after the command
    /// counts, so a worker that knows its free room never gets one connection too many.
    Few(u32),
    /// Not now: connections wait in the listen queue.
    Paused,
    /// Never again. Connections already in the listen queue are still accepted; then the listener
    /// is closed, and the kernel refuses later ones. Where another process keeps the socket open, only a few
    /// dozen of them are accepted: that process has the others.
    Closed,
}

/// The kernel as one worker sees it: connections, and clocks.
pub trait Driver {
    /// A failure of the driver itself, not of a connection. The worker cannot continue.
    type Error: core::fmt::Debug + core::fmt::Display;

    /// See [`Driver::clock`].
    type Clock: Clock;

    /// Submits all commands so far, waits for events as long as `wait` allows, and reports them. Bounded: at
    /// most a few hundred events per call.
    fn poll(&mut self, wait: Wait, on_event: &mut impl FnMut(Event<'_>))
    -> Result<(), Self::Error>;

    /// Reports what the commands so far have already done, without asking the kernel: sends that it took at once,
    /// connections that are closed. What is not reported here, the next poll reports. A driver that learns the result
    /// of every command from the kernel reports nothing.
    #[inline]
    fn report_done(&mut self, on_event: &mut impl FnMut(Event<'_>)) {
        let _ = on_event;
    }

    /// Sends `output`, which may be empty if `then` is not [`Then::Keep`].
    fn send(&mut self, id: ConnId, output: Output, then: Then);

    /// Sets how bytes are delivered from now on. Cheap when nothing changes.
    fn read(&mut self, id: ConnId, reading: Reading);

    /// Takes bytes that have arrived to the end of `into`, `max` of them at most, and returns how many. The driver
    /// copies them nowhere else, and `into` grows as [`make_room`](crate::http::make_room) says: for bytes that are
    /// here, whatever `max` promises.
    ///
    /// It may take fewer than have arrived, and none: what is left is delivered as [`Driver::read`] says. Ask between
    /// a delivery after which reading has stopped and the next `read`; else it takes none (R11).
    fn take(&mut self, id: ConnId, into: &mut Vec<u8>, max: u64) -> usize;

    /// Closes, abandoning a send in flight. Answered by [`Event::Closed`].
    fn close(&mut self, id: ConnId, how: Close);

    /// Sets whether connections are accepted at `listener`. A new driver accepts none before this is called.
    fn accept(&mut self, listener: ListenerId, accepting: Accepting);

    /// Sets how many connections may wait at `listener` to be accepted. The kernel drops further attempts over
    /// TCP, so that clients try again a second later, and refuses them over a Unix socket. Connections that
    /// already wait stay.
    fn backlog(&mut self, listener: ListenerId, backlog: u32);

    /// Whether the peer has finished sending or is gone, even if bytes it sent earlier are still
    /// unread. This asks the kernel: use it only for work that may no longer be worth doing.
    fn is_hung_up(&mut self, id: ConnId) -> bool;

    /// The peer's address, if there is one. This asks the kernel, unless [`Event::Accepted`] reported it.
    fn peer(&mut self, id: ConnId) -> Option<SocketAddr>;

    /// The clock that this driver's timeouts use. In the simulator it is part of the simulation.
    fn clock(&self) -> Self::Clock;
}
