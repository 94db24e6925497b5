//! The server's side of HTTP/2, sans-I/O: requests on streams, and answers on the way back (RFC 9113).
//!
//! ```text
//!  Preface ─▶ Settings ─▶ Open ──an error of the connection──▶ GOAWAY, lingering close
//!                           └─drain─▶ Announced ──a round trip, or a moment──▶ Final ──no stream is left──▶ close
//!
//!  a stream      HEADERS ─▶ request, reply owed ─▶ content ─▶ given ──all of it is sent──▶ gone
//!                              RST_STREAM, an error of the stream, an answer that breaks off ──▶ gone
//! ```
//!
//! [`Connection`] is a [`Protocol`](crate::protocol::Protocol). Heads are encoded when they are given, since the order of
//! field blocks matters, and so is short content that the windows allow. Longer content waits, and all streams of a turn
//! share one send: by urgency, and in turns where a client has not asked for another order (RFC 9218).
//!
//! `head` decides whether a request is valid: a malformed one resets its stream (RFC 9113 §8.1.1), a well-formed one that
//! is not served gets an answer. A peer's mistakes about frames end its stream or the connection, by the RFC's codes.
//!
//! Bounded: streams, field blocks, content that waits for handlers (both windows), content that waits for the peer's
//! windows, and the rate of frames that cost work and carry nothing ([`Http2Limits`](crate::http::Http2Limits)). Answers to
//! SETTINGS and PING are bounded with all output: while that is full, nothing is read. An idle connection owns the two
//! tables of fields and little else.
//!
//! Invariants: no content is sent beyond a window; after its end, a stream is named only to reject frames for it; every
//! field block is decoded, even if its stream is reset, because the table belongs to the connection.

mod calm;
mod deadline;
mod fields;
mod found;
mod frames;
mod head;
mod input;
mod output;
mod pending;
mod priority;
mod protocol;
mod state;
mod stream;
mod streams;
mod upload;

pub use fields::FieldBlock;
pub use head::Scratch;
pub use pending::Pending;
pub use stream::Stream;

use super::Decoder;
use crate::time::Instant;
use state::State;

/// The server's side of one HTTP/2 connection.
#[derive(Debug)]
pub struct Connection {
    decoder: Decoder,
    state: State,
}

impl Connection {
    /// A connection accepted at `now`. Its client begins with the preface.
    pub fn new(now: Instant) -> Self {
        Connection { decoder: Decoder::default(), state: State::new(now) }
    }

    /// The server drained before the connection became HTTP/2.
    pub(crate) fn drain_from_start(&mut self, now: Instant) {
        self.state.going = state::Going::Announced(now);
    }
}
