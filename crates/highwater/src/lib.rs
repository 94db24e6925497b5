//! How do I serve my application?
#![forbid(unsafe_code)]

pub mod log;
pub mod metrics;
pub mod server;
