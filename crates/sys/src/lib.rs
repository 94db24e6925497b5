//! How do bytes move on this machine?
//!
//! The only crate of Highwater with `unsafe` code. It provides what an operating system offers a
//! server: sockets, descriptors, cores, signals, clocks, and three [`Driver`]s that a worker cannot tell apart: over
//! io_uring, over epoll, and over what every system has.
//!
//! It never looks inside the bytes it moves, never decides which request is served, and starts no
//! thread.
//!
//! Invariants:
//!
//! * A driver belongs to the thread that made it, and is not `Send`.
//! * Memory that the kernel may still read or write is never freed or moved, not even by dropping a
//!   driver with operations in flight.
//! * [Trying](probe()) finds out which driver works. No code reads a version number to decide that.
#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::print_stderr)] // The terminal is the application's.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "highwater-sys needs Linux: it uses io_uring, epoll and BPF. Build for a Linux target"
);

mod address;
pub mod bpf;
mod call;
pub mod capability;
pub mod clock;
pub mod cpu;
pub mod dial;
pub mod epoll;
mod inet_diag;
mod inherited;
pub mod limits;
mod listen_queue;
mod listener;
pub mod netns;
pub mod portable;
mod probe;
pub mod process;
pub mod signal;
mod socket;
mod unix;
pub mod uring;
mod wake;

use std::io;
use std::os::fd::BorrowedFd;

pub use address::Address;
pub use highwater_core::driver::Driver;
pub use inet_diag::{Connections, InetDiag};
pub use inherited::{Inherited, inherited};
pub use listen_queue::ListenQueue;
pub use listener::{KeepAlive, Listener, bind_remedy};
pub use probe::{Capabilities, Transport, probe};
pub use unix::{SocketFile, bind_unix};
pub use wake::Waker;

/// Settings of a driver of this crate.
#[derive(Clone, Debug)]
pub struct DriverConfig {
    /// Whether `Accepted` carries the peer's address. Costs io_uring one system call per
    /// connection, the others nothing. Default: no.
    pub peer_addresses: bool,
    /// How many connections this driver holds before it stops accepting, as if descriptors had run
    /// out (`AcceptFailed(Descriptors)`). A second line behind the worker's own limit. Connections
    /// that the kernel had already handed over are still reported, so it can be exceeded by a few
    /// dozen. Default: 1 048 576.
    pub connections_max: u32,
    /// Bytes of one receive buffer of the io_uring driver. Default: 4096.
    pub buffer_size: u32,
    /// How many receive buffers the io_uring driver provides to the kernel, shared by all its
    /// connections. A power of two, at most 32 768. Their memory is touched as it is used.
    /// Default: 512.
    pub buffer_count: u16,
    /// Size of io_uring's submission queue. Further submissions wait in a list of the driver and
    /// are submitted as well; a larger queue only costs memory. Default: 1024.
    pub submission_queue: u32,
    /// Size of io_uring's completion queue. The kernel keeps further completions in a slower list
    /// of its own. Default: 8192.
    pub completion_queue: u32,
}

impl Default for DriverConfig {
    fn default() -> Self {
        DriverConfig {
            peer_addresses: false,
            connections_max: 1 << 20,
            buffer_size: 4096,
            buffer_count: 512,
            submission_queue: 1024,
            completion_queue: 8192,
        }
    }
}

/// A driver that other code on its thread, such as an async runtime, can wait for.
///
/// To park: [`poll`](Driver::poll) with a timeout of zero until nothing comes, clear the last
/// readiness seen, call [`prepare_wait`](External::prepare_wait), and only if it returns `true`
/// wait until [`readiness_fd`](External::readiness_fd) is readable. Waiting for a level or for an
/// edge both work; never read from the descriptor.
pub trait External: Driver<Error = io::Error> {
    /// Readable when a [`poll`](Driver::poll) may have something to do.
    fn readiness_fd(&self) -> BorrowedFd<'_>;

    /// Submits all commands, and returns whether it is safe to wait for
    /// [`readiness_fd`](External::readiness_fd) now. If `false`, there is something to poll for.
    fn prepare_wait(&mut self) -> io::Result<bool>;

    /// A handle with which any thread can make [`poll`](Driver::poll) return.
    fn waker(&self) -> Waker;
}
