//! # What should happen?
//!
//! The deterministic half of Highwater: bytes and time in, decisions out. It has no sockets, no
//! clock, no threads and no `unsafe`; `no_std` makes the first three a compile-time fact.
//! Everything that waits takes the time as an argument, so a test never sleeps.
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::print_stderr)] // The terminal is the application's.

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod driver;
#[cfg(feature = "frame")]
pub mod frame;
#[cfg(feature = "histogram")]
pub mod histogram;
pub mod http;
pub mod http1;
pub mod http2;
pub mod http_date;
pub mod limit;
pub mod link;
pub mod percent;
pub mod prng;
pub mod protocol;
pub mod proxy_header;
pub mod route;
pub mod time;
pub mod timer;
pub mod versions;
pub mod websocket;
