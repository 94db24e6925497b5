//! The words between a worker and a kernel: what happened (`Event`), what to do next (`Driver`).
//!
//! A driver moves bytes and tells time; it never looks inside the bytes. Three exist: io_uring and
//! epoll in `highwater-sys`, and a seeded simulator in `highwater::sim`. All are shaped like
//! completions, so that a worker cannot tell them apart.
//!
//! Contract (R = the driver's promise, O = the worker's obligation; the simulator asserts the Os):
//!
//! * R1 `Received` bytes are borrowed for the duration of the callback only.
//! * R2 Each `send` is answered by exactly one `Sent` or by `Closed`; `Progress` may come before.
//! * R3 `Closed(id)` is the last event to name `id` until it is `Accepted` again, and comes only
//!   when the kernel holds no buffer and no operation of that connection any more.
//! * R4 Ids are small and dense (a slot index): a worker may use them to index a `Vec`.
//! * R5 After `Eof(id)` there is no further `Received(id, …)`, but the connection can be written.
//! * R6 Commands (`send`, `read`, `close`, `accept`, …) never call back; what they cause is reported by
//!   a later `poll`. A command naming a closed id is a bug in the worker.
//! * R7 `poll` waits no longer than told, and not at all when an event is ready or a `Waker` of this
//!   driver was used. It may return without any event.
//! * R8 After [`Accepting::Few`] no more come than it said, and after [`Accepting::Paused`] none, but
//!   for those that the kernel had already taken from the listen queue under a larger bound.
//! * R9 Where reading has stopped, by [`Reading::Stop`] or by `Eof`, the end of a connection is reported
//!   all the same: a reset or a failure by `Closed`, and a FIN behind bytes that are still unread by
//!   `HungUp`, once. (Not before the first [`Driver::read`]: most connections with one request never
//!   need it.)
//! * O1 One send in flight per connection: no second `send` before the `Sent` of the first. A driver
//!   answers a second one by resetting the connection: it never touches the bytes of the first.
//! * O2 Commands and questions are given between polls, not from inside the callback.
//! * O3 After `close(id)` no further command names `id`; after a send with [`Then::Close`] only
//!   `close(id)` may, to cut that send off.

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

/// What a driver reports from [`Driver::poll`].
#[derive(Debug)]
pub enum Event<'a> {
    /// A connection was accepted, with its peer's address if the driver was asked to look it up.
    /// One delivery of bytes is armed, as if by [`Reading::Once`].
    Accepted(ConnId, Option<SocketAddr>),
    /// Bytes arrived, borrowed until the callback returns; never empty.
    Received(ConnId, &'a [u8]),
    /// The peer has finished sending (FIN). It may still be reading.
    Eof(ConnId),
    /// The peer has finished sending, or is gone, and bytes that it sent before may be unread: `Eof`
    /// follows once they have been received, if they ever are. Not reported after `Eof`.
    HungUp(ConnId),
    /// The kernel took a part of the send in flight; the rest follows by itself.
    Progress(ConnId),
    /// The kernel took the whole send in flight. The buffer comes back, for reuse.
    Sent(ConnId, Vec<u8>),
    /// The connection is gone: reset by the peer, failed, or closed as commanded.
    Closed(ConnId),
    /// Accepting has stopped: the process or the system has run out of something. The worker calls
    /// [`Driver::accept`] to try again.
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

/// Bytes to send: what was encoded, then optionally one large body that others share.
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

/// What follows a send once all its bytes are with the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The connection stays open.
    Keep,
    /// Finish sending (FIN) but go on reading: a lingering close begins.
    Shutdown,
    /// Close. Only right when nothing unread can be waiting: the kernel answers unread input with a
    /// reset, which may destroy what was just sent.
    Close,
}

/// How bytes are wanted from a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Deliver once, then stop. How every connection begins: cheapest if it carries one request.
    Once,
    /// Deliver whatever comes until told otherwise.
    Stream,
    /// Deliver nothing more, so that TCP pushes back; only report the end (R9). What was already
    /// received may still come.
    Stop,
}

/// How to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// As `close(2)`: FIN, or a reset if unread input is waiting.
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

/// Whether connections are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepting {
    /// Yes, as many as come.
    On,
    /// So many more, then none until told otherwise, as if by [`Accepting::Paused`]. What this
    /// counts is every [`Event::Accepted`] after the command, so that whoever knows how much room
    /// there is never gets one too many.
    Few(u32),
    /// Not now: they wait in the listen queue.
    Paused,
    /// Never again: what already waits in the listen queue is still accepted, then the listener is
    /// closed, and later connections are refused by the kernel.
    Closed,
}

/// The kernel as one worker sees it: connections, and clocks.
pub trait Driver {
    /// A failure of the driver itself (not of a connection): the worker cannot go on.
    type Error: core::fmt::Debug + core::fmt::Display;

    /// See [`Driver::clock`].
    type Clock: Clock;

    /// Submits everything commanded so far, waits as long as told for something to happen, and
    /// reports what did. Bounded: at most a few hundred events per call.
    fn poll(&mut self, wait: Wait, on_event: &mut impl FnMut(Event<'_>))
    -> Result<(), Self::Error>;

    /// Sends `output`, which may be empty if `then` is not [`Then::Keep`].
    fn send(&mut self, id: ConnId, output: Output, then: Then);

    /// Says how bytes are wanted from now on. Cheap when nothing changes.
    fn read(&mut self, id: ConnId, reading: Reading);

    /// Closes, abandoning a send in flight. Answered by [`Event::Closed`].
    fn close(&mut self, id: ConnId, how: Close);

    /// Says whether connections are accepted. A new driver accepts none before it is told to.
    fn accept(&mut self, accepting: Accepting);

    /// How many connections may wait to be accepted from now on; the kernel drops further attempts,
    /// so that clients try again a second later. Those that wait already go on waiting.
    fn backlog(&mut self, backlog: u32);

    /// Whether the peer has finished sending or is gone, even if bytes it sent before are still
    /// unread. Asks the kernel: to be asked only about work that may no longer be worth doing.
    fn is_hung_up(&mut self, id: ConnId) -> bool;

    /// The clock by which this driver's time-outs run. In the simulator it is part of the simulation.
    fn clock(&self) -> Self::Clock;
}
