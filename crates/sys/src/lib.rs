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
//! * Other systems than Linux have the driver in [`portable`] and what it needs, by the same names. So does Linux with
//!   `--cfg highwater_portable_only`, by which that is checked.
//! * [Trying](probe()) finds out which driver works. No code reads a version number to decide that.
#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::print_stderr)] // The terminal is the application's.

mod address;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
pub mod bpf;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
mod call;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
pub mod capability;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
pub mod clock;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
pub mod cpu;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
pub mod dial;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
mod direct;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
mod diversion;
#[cfg(not(all(target_os = "linux", not(highwater_portable_only))))]
mod elsewhere;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
pub mod epoll;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
mod inet_diag;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
mod inherited;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
pub mod limits;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
mod listen_queue;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
mod listener;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
pub mod netns;
pub mod portable;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
mod probe;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
pub mod process;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
pub mod sealed;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
pub mod signal;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
mod socket;
mod source;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
mod take;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
mod unix;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
pub mod uring;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
mod wake;

use std::io;
#[cfg(unix)]
use std::os::fd::BorrowedFd;

#[cfg(not(all(target_os = "linux", not(highwater_portable_only))))]
pub use elsewhere::{bpf, capability, clock, cpu, limits, sealed, signal};
#[cfg(not(all(target_os = "linux", not(highwater_portable_only))))]
use elsewhere::{diversion, inherited, listen_queue, listener, probe, socket, unix, wake};

pub use address::Address;
pub use diversion::Diversion;
pub use highwater_core::driver::Driver;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
pub use inet_diag::{Connections, InetDiag};
pub use inherited::{Inherited, inherited};
pub use listen_queue::ListenQueue;
pub use listener::{KeepAlive, Listener, bind_remedy};
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
pub use probe::Transport;
pub use probe::{Capabilities, probe};
pub use source::{HELD_MAX, Held, Source};
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
    /// Readable when a [`poll`](Driver::poll) may have something to do. Windows has nothing like it; there, look again
    /// and again.
    #[cfg(unix)]
    fn readiness_fd(&self) -> BorrowedFd<'_>;

    /// Submits all commands, and returns whether it is safe to wait for
    /// [`readiness_fd`](External::readiness_fd) now. If `false`, there is something to poll for.
    fn prepare_wait(&mut self) -> io::Result<bool>;

    /// A handle with which any thread can make [`poll`](Driver::poll) return.
    fn waker(&self) -> Waker;
}
