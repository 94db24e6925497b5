//! One connection: its state, and the steps that several of its parts share.
//!
//! ```text
//!           ┌───────────── answered, persistent ──────────────┐
//!           ▼                                                 │
//!         Head ──whole body at hand──────────────▶ (request handed out, reply owed)
//!           │ └─body wanted whole──▶ Collecting ──complete──▶ │
//!           │ └─body wanted as it comes──▶ Streaming ────────▶│──answered early──▶ Discarding ─▶ Head
//!           │                                                 └──upgraded──▶ Raw ──the peer's end──▶ RawEnded
//!           └─refused, or the last answer given──▶ Closed (what still comes is dropped)
//! ```
//!
//! Invariants: at most one reply is owed at a time, so pipelined replies cannot reorder. An idle
//! connection owns no buffer. Memory is allocated for bytes received, never for bytes promised. An upgraded connection
//! ends when both sides have, and the application reads no more.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::body::Decoder;
use super::parse::Parsed;
use crate::http::{Collected, OwnedHead, Reject, Version};
use crate::link::Link;
use crate::protocol::Next;
use crate::time::Instant;

/// Working memory that the connections of one worker share, each during one call.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(super) body: Vec<u8>,
    /// The head that was parsed last.
    pub(super) parsed: Parsed,
}

/// The server's side of one HTTP/1.1 connection.
#[derive(Debug)]
pub struct Connection {
    pub(super) input: Input,
    pub(super) reply: Reply,
    /// The current request lets the connection persist.
    pub(super) persistent: bool,
    /// The reply in progress is the last.
    pub(super) last: bool,
    /// The current request is a `HEAD`: its reply has no content.
    pub(super) head_only: bool,
    pub(super) version: Version,
    /// The peer waits for a 100 before it sends the body.
    pub(super) continue_owed: bool,
    pub(super) body_paused: bool,
    /// The worker holds the current request until its turn.
    pub(super) parked: bool,
    pub(super) draining: bool,
    /// Some bytes of the next head have arrived.
    pub(super) head_begun: bool,
    pub(super) requests: u32,
    /// Length of the incomplete head when it was last parsed.
    pub(super) attempted: u32,
    /// The number of the last request with a large body that was collected; 0 if there was none.
    pub(super) large_at: u32,
    /// A request whose body is, or was last, collected.
    pub(super) partial: Option<Box<Partial>>,
    /// When the current phase began, from which the next deadline counts.
    pub(super) since: Instant,
    /// When body bytes arrived last, and how many have arrived since `since`.
    pub(super) progress: Instant,
    pub(super) body_bytes: u64,
    pub(super) body_max: u64,
}

#[derive(Debug)]
pub(super) enum Input {
    Head,
    Collecting,
    Streaming(Decoder),
    Discarding(Decoder),
    /// Bytes of another protocol, for an application that reads.
    Raw,
    /// All of them were handed on, and the application may not have read them yet.
    RawEnded,
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    None,
    Owed,
    /// Content of known length follows; this much is left.
    Length(u64),
    Chunked,
    /// Delimited by the end of the connection (HTTP/1.0).
    UntilClose,
    Raw,
    /// Our side of another protocol has ended, and the application reads on.
    RawEnded,
}

/// A request whose head is complete, but not its body.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) head: OwnedHead,
    pub(super) body: Collected,
    pub(super) decoder: Decoder,
}

impl Connection {
    /// A connection accepted at `now`.
    pub fn new(now: Instant) -> Self {
        Connection {
            input: Input::Head,
            reply: Reply::None,
            persistent: true,
            last: false,
            head_only: false,
            version: Version::Http11,
            continue_owed: false,
            body_paused: false,
            parked: false,
            draining: false,
            head_begun: false,
            requests: 0,
            attempted: 0,
            large_at: 0,
            partial: None,
            since: now,
            progress: now,
            body_bytes: 0,
            body_max: 0,
        }
    }

    /// Refuses a head: its content is ignored, even if it was a `HEAD`.
    pub(super) fn refuse_head<'r>(&mut self, reject: Reject) -> Next<'r> {
        self.head_only = false;
        self.refuse(reject)
    }

    /// Refuses the input: a last reply is owed.
    pub(super) fn refuse<'r>(&mut self, reject: Reject) -> Next<'r> {
        self.input = Input::Closed;
        self.partial = None;
        self.persistent = false;
        self.continue_owed = false;
        self.body_bytes = 0;
        self.reply = Reply::Owed;
        Next::Reject(reject)
    }

    /// The connection ends after the output: at once if `is_clean`, as no unread input can arrive.
    pub(super) fn end(&mut self, link: &mut Link, is_clean: bool) {
        self.input = Input::Closed;
        link.end(is_clean);
    }

    /// A body's deadlines count from now.
    pub(super) fn begin_body(&mut self, now: Instant) {
        self.since = now;
        self.progress = now;
        self.body_bytes = 0;
    }
}
