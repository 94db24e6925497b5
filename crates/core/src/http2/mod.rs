//! HTTP/2 without I/O (RFC 9113): bytes in, frames and fields out, and back.

pub mod hpack;
