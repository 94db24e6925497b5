//! WebSocket without I/O (RFC 6455): bytes in, messages out, and back.
//!
//! ```text
//!  bytes ─▶ Decoder ─┬─ Message            whole, its fragments joined and unmasked
//!                    └─ Ping, Pong, Close  also between the fragments of a message
//!  bytes ◀─ encode
//! ```
//!
//! A [`Session`] is a server's side of a connection: a decoder, the answers that the protocol asks for, and deadlines.
//!
//! It begins where the handshake ends; [`accept`] and [`extensions`] are parts of that. Compressed messages (RFC 7692) are
//! refused unless the decoder was given an [`Inflate`]: the core knows no algorithm for them. Both roles are here: a client masks what it sends, and a
//! server refuses what is not masked. Text is checked while it arrives, so that a message is refused at its first wrong
//! byte. Memory is allocated for bytes received, up to [`Limits::message_max`].

mod accept;
mod close;
mod compressed;
mod decode;
pub mod encode;
pub mod extensions;
mod mask;
mod session;
#[cfg(test)]
mod tests;
mod utf8;

pub use accept::{accept, is_key};
pub use close::{CloseCode, Error};
pub use compressed::{Inflate, InflateError};
pub use decode::{Close, Decoder, Event};
pub use mask::apply as mask;
pub use session::{End, Message, Session, Timing};

/// Bytes of a control frame's payload, at most (RFC 6455 §5.5).
pub const CONTROL_MAX: usize = 125;

/// Which side of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It masks what it sends, and refuses frames that are masked.
    Client,
    /// It refuses frames that are not masked.
    Server,
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UTF-8.
    Text,
    /// Any bytes.
    Binary,
}

/// The bounds of what is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a message, in one frame or several; beyond it [`CloseCode::TOO_BIG`]. 1 MiB, as for bodies.
    pub message_max: usize,
    /// Bytes of a frame's payload; beyond it [`CloseCode::TOO_BIG`]. 1 MiB.
    pub frame_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { message_max: 1024 * 1024, frame_max: 1024 * 1024 }
    }
}

/// The four bits that say what a frame is (RFC 6455 §5.2).
mod opcode {
    pub(super) const CONTINUATION: u8 = 0x0;
    pub(super) const TEXT: u8 = 0x1;
    pub(super) const BINARY: u8 = 0x2;
    pub(super) const CLOSE: u8 = 0x8;
    pub(super) const PING: u8 = 0x9;
    pub(super) const PONG: u8 = 0xa;
}
