//! How does this machine open many connections quickly?
//!
//! The client's counterpart of [`Driver`](crate::Driver), for generating load: [`Dial`] over
//! io_uring and over epoll, which a caller cannot tell apart. It is simpler than the server's side:
//! a successful send is not reported, and a close is final at once. Messages that never change are
//! given once and live as long as the dialer, so sending one owns no buffer; a message that is made
//! for one send is written into a buffer of its connection.
//!
//! It never looks inside the bytes, never retries, and reads no clock.
//!
//! Contract (D = the dialer's promise, C = the caller's obligation):
//!
//! * D1 [`Dial::connect`] is answered by exactly one `Connected` or `Failed`, unless the connection
//!   is closed first.
//! * D2 `Failed(id, …)` is the last event to name `id`, and frees it. After [`Dial::close`] no event
//!   names `id` until it is handed out again.
//! * D3 Ids are small and dense: a caller may use them to index a `Vec`.
//! * D4 Bytes in `Received` are borrowed for the callback only, and never empty. After `Eof` there
//!   are none.
//! * C1 Commands are given between polls, not from inside the callback, and name only open ids.
//! * C2 A message is sent only after `Connected`, and none while an earlier one may still be in
//!   transit. The answer to a request proves that the request was sent. A server that answers
//!   before it has read the request can break this: the bytes of two messages may mix then, and
//!   nothing worse happens.

mod arrival;
pub(crate) mod slots;

use std::io;
use std::net::{IpAddr, SocketAddr};

use highwater_core::driver::{ConnId, Wait};

pub use arrival::Arrival;

pub use crate::epoll::dial::EpollDialer;
pub use crate::uring::dial::UringDialer;

/// What happened to a connection.
#[derive(Debug)]
pub enum Event<'a> {
    /// It is established: messages may be sent.
    Connected(ConnId),
    /// Bytes arrived. [`Arrival`] knows when, for a caller that looks at them later.
    Received(ConnId, &'a [u8], Arrival),
    /// The server has finished sending. The caller should close the connection.
    Eof(ConnId),
    /// It could not be established, or it broke. There is nothing left to close.
    Failed(ConnId, Failure),
}

/// Why a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No process listens there, or a gate refused the connection (ECONNREFUSED).
    Refused,
    /// The server reset it (ECONNRESET, EPIPE).
    Reset,
    /// The kernel gave up waiting for the other side (ETIMEDOUT).
    TimedOut,
    /// No local port is left for this target (EADDRNOTAVAIL): more source addresses help.
    Ports,
    /// A dialer over this one could not set up its layer, such as TLS. No dialer of this crate reports it.
    Handshake,
    /// Anything else, by its error number.
    Other(i32),
}

impl Failure {
    pub(crate) fn of(errno: i32) -> Failure {
        match errno {
            libc::ECONNREFUSED => Failure::Refused,
            libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED => Failure::Reset,
            libc::ETIMEDOUT => Failure::TimedOut,
            libc::EADDRNOTAVAIL => Failure::Ports,
            other => Failure::Other(other),
        }
    }

    pub(crate) fn of_error(error: &io::Error) -> Failure {
        Failure::of(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// Settings of a dialer.
#[derive(Clone, Debug)]
pub struct DialConfig {
    /// The target of every connection.
    pub target: SocketAddr,
    /// The local addresses to connect from, in turn; empty lets the kernel choose. Each gives about
    /// 28 000 ports (the sysctl `net.ipv4.ip_local_port_range`).
    pub sources: Vec<IpAddr>,
    /// The messages that can be sent, by index.
    pub messages: Vec<Vec<u8>>,
}

/// Opens connections to one server and moves bytes over them.
pub trait Dial {
    /// Begins a connection.
    ///
    /// # Errors
    /// No descriptor (EMFILE, ENFILE), no memory, or a source address that this machine does not
    /// have.
    fn connect(&mut self) -> io::Result<ConnId>;

    /// Sends the first `len` bytes of message number `message`.
    ///
    /// # Panics
    /// If there is no such message, or it is shorter.
    fn send(&mut self, id: ConnId, message: usize, len: usize);

    /// Sends what `fill` writes into the buffer, which is empty at first.
    fn write(&mut self, id: ConnId, fill: impl FnOnce(&mut Vec<u8>));

    /// Whether the kernel has not yet taken all of the last [`write`](Dial::write), so that another must wait (C2).
    /// It has at the latest when a poll returns after the peer has read enough.
    fn is_writing(&mut self, id: ConnId) -> bool;

    /// Closes, abandoning data in transit.
    fn close(&mut self, id: ConnId);

    /// How many closed connections still exist because the kernel has not ended their operations.
    fn closing(&self) -> usize;

    /// Submits all commands so far, waits for events as long as `wait` allows, and reports them.
    /// Bounded: at most a few hundred events per call.
    ///
    /// # Errors
    /// The ring or the epoll instance failed, not a connection.
    fn poll(&mut self, wait: Wait, on_event: &mut impl FnMut(Event<'_>)) -> io::Result<()>;
}
