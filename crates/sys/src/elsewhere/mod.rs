//! What does a system other than Linux offer a server?
//!
//! The same names as on Linux, as far as the portable driver and a server over it need them, without `unsafe`. Functions
//! that only Linux has return an error with the remedy; none pretends to work.

pub mod bpf;
pub mod capability;
pub mod clock;
pub mod cpu;
pub(crate) mod diversion;
pub(crate) mod inherited;
pub mod limits;
pub(crate) mod listen_queue;
pub(crate) mod listener;
pub(crate) mod probe;
pub mod sealed;
pub mod signal;
pub(crate) mod socket;
pub(crate) mod unix;
pub(crate) mod wake;

use std::io;

/// The error of what is not there.
fn needs_linux(what: &str) -> io::Error {
    let build = if cfg!(highwater_portable_only) {
        "this program was built with highwater_portable_only"
    } else {
        std::env::consts::OS
    };
    io::Error::new(io::ErrorKind::Unsupported, format!("{what} needs Linux ({build})"))
}
