//! The content of one request, until it is complete and handed on; or the peer's side of a tunnel.
//!
//! ```text
//!  New ─begin─┬─▶ Collecting ─▶ the request, with all of it
//!             ├─▶ Streaming ─▶ pieces, as the handler has room ─▶ trailers ─▶ the end
//!             └─▶ Asked ─200─▶ Tunnel ─▶ bytes, as the handler has room ─▶ the end
//!                                 └─ours has ended, and nobody reads─▶ Closing ─▶ the peer's end, or RST_STREAM after a moment
//!  Dropped: nobody wants the rest
//! ```
//!
//! A tunnel (RFC 8441 §5) has neither a maximum size nor a minimum rate: the protocol inside it has its own deadlines. But
//! once one side has ended, something has to move, as on a half-closed connection. It lasts until both sides have ended and
//! its handler reads no more.
//!
//! Content that may not be handed on yet is held, and keeps its place in both windows. So a stream holds no more than its
//! window, and a connection no more than its own.

use alloc::vec::Vec;
use core::time::Duration;

use super::super::flow::Window;
use crate::http::{Collected, Limits, OwnedFields, OwnedHead};
use crate::time::Instant;

/// What a handler has room for until it says so.
const ROOM_FIRST: usize = 16 * 1024;

/// How content is read.
#[derive(Debug)]
pub(super) enum Kind {
    /// Its request has not begun.
    New,
    /// As a whole.
    Collecting(OwnedHead, Collected),
    /// Piece by piece.
    Streaming,
    /// An extended CONNECT that is not answered: what comes is held.
    Asked,
    /// A tunnel whose handler reads.
    Tunnel,
    /// A tunnel whose handler has been given all that the peer sent.
    TunnelEnded,
    /// A tunnel whose end was sent, and that nobody reads: the peer has a moment to end its side.
    Closing,
    /// Nobody wants it.
    Dropped,
}

/// The content of a request that is, or was, incomplete.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) kind: Kind,
    /// What the peer may send.
    pub(super) window: Window,
    /// Bytes handed on since the window was last opened.
    pub(super) taken: u32,
    /// What is left of the length that was announced.
    pub(super) left: Option<u64>,
    /// How many bytes more its route accepts.
    pub(super) max: u64,
    /// What its handler has room for.
    pub(super) room: usize,
    /// What came and is not handed on, from `held_from` on.
    pub(super) held: Vec<u8>,
    pub(super) held_from: usize,
    pub(super) trailers: Option<OwnedFields>,
    /// All of it has come.
    pub(super) has_ended: bool,
    /// The peer waits for a 100 before it sends the content.
    pub(super) continue_owed: bool,
    /// It is on the list of those with something to hand on.
    pub(super) is_listed: bool,
    /// Since when its handler has waited without a pause, when content came last, and how much has come since.
    pub(super) since: Instant,
    pub(super) progress: Instant,
    pub(super) bytes: u64,
    /// Something was sent in a tunnel since `progress`. When is not known: the bound of one that is half-closed is
    /// exceeded by this much, once.
    pub(super) has_sent: bool,
}

impl Upload {
    pub(super) fn new(window: u32, left: Option<u64>, continue_owed: bool, now: Instant) -> Self {
        Upload {
            kind: Kind::New,
            window: Window::new(window),
            taken: 0,
            left,
            max: 0,
            room: ROOM_FIRST,
            held: Vec::new(),
            held_from: 0,
            trailers: None,
            has_ended: false,
            continue_owed,
            is_listed: false,
            since: now,
            progress: now,
            bytes: 0,
            has_sent: false,
        }
    }

    /// Bytes that are held.
    pub(super) fn held(&self) -> usize {
        self.held.len() - self.held_from
    }

    /// Keeps `piece` until it may be handed on.
    pub(super) fn hold(&mut self, piece: &[u8]) {
        // What was handed on makes room. No byte moves before as many were handed on: it costs less than that.
        if self.held_from >= self.held() {
            self.held.drain(..core::mem::take(&mut self.held_from));
        }
        self.held.extend_from_slice(piece);
    }

    /// The next piece of what is held, which is as good as handed on.
    pub(super) fn take_held(&mut self) -> core::ops::Range<usize> {
        let from = self.held_from;
        let len = self.held().min(self.room);
        self.room -= len;
        self.held_from += len;
        from..from + len
    }

    /// Frees what was handed on.
    pub(super) fn free_held(&mut self) {
        if self.held_from == self.held.len() {
            (self.held, self.held_from) = (Vec::new(), 0);
        }
    }

    /// The peer could not send from `since` to `until`: its deadlines are extended by that time.
    pub(super) fn excuse(&mut self, since: Instant, until: Instant) {
        self.since += until - self.since.max(since);
        self.progress += until - self.progress.max(since);
    }

    /// Its deadlines count from now.
    pub(super) fn restart(&mut self, now: Instant) {
        (self.since, self.progress, self.bytes) = (now, now, 0);
        self.has_sent = false;
    }

    /// An extended CONNECT begins: what comes is held until it is answered.
    pub(super) fn ask(&mut self) {
        (self.kind, self.room, self.continue_owed) = (Kind::Asked, 0, false);
    }

    /// The extended CONNECT is answered: a tunnel is open.
    pub(super) fn open(&mut self) {
        (self.kind, self.room) = (Kind::Tunnel, ROOM_FIRST);
    }

    /// Our side of the tunnel has ended, and nobody reads the peer's.
    pub(super) fn close(&mut self, now: Instant) {
        (self.kind, self.since) = (Kind::Closing, now);
    }

    /// Nobody wants the rest. Returns how much was held.
    pub(super) fn drop_rest(&mut self) -> usize {
        let held = self.held();
        (self.held, self.held_from) = (Vec::new(), 0);
        self.kind = Kind::Dropped;
        self.trailers = None;
        held
    }

    /// Whether the peer is to send content that is waited for.
    fn awaits_peer(&self) -> bool {
        match self.kind {
            _ if self.has_ended || self.continue_owed => false,
            Kind::Collecting(..) => true,
            Kind::Streaming => self.room > 0 && self.held() == 0,
            Kind::Asked | Kind::Tunnel | Kind::TunnelEnded => false,
            Kind::Closing | Kind::New | Kind::Dropped => false,
        }
    }

    /// Whether it is a tunnel that its handler may read.
    #[inline]
    pub(super) fn is_read(&self) -> bool {
        matches!(self.kind, Kind::Tunnel | Kind::TunnelEnded)
    }

    /// By when something must have moved in a tunnel, of which our side `has_ended`, or the peer's. Not while its handler
    /// keeps the peer from sending, or while other handlers do, with `is_shut`.
    pub(super) fn tunnel_deadline(
        &self,
        has_ended: bool,
        limits: &Limits,
        is_shut: bool,
    ) -> Instant {
        let is_half_closed = match self.has_ended {
            true => true,
            false => has_ended && !is_shut && self.room > 0 && self.held() == 0,
        };
        if is_half_closed { self.progress + limits.half_closed_timeout } else { Instant::MAX }
    }

    /// By when more must have come. With `is_shut`, the peer cannot send.
    pub(super) fn deadline(&self, limits: &Limits, is_shut: bool) -> Instant {
        if matches!(self.kind, Kind::Closing) {
            return self.since + limits.linger_timeout;
        }
        if is_shut || !self.awaits_peer() {
            return Instant::MAX;
        }
        let stalled = self.progress + limits.body_timeout;
        if limits.body_rate_min == 0 {
            return stalled;
        }
        let nanos = u128::from(self.bytes) * 1_000_000_000 / u128::from(limits.body_rate_min);
        let earned = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        stalled.min(self.since + limits.body_grace + earned)
    }

    /// Bytes of memory it has allocated on the heap.
    pub(super) fn allocated(&self) -> usize {
        let collected = match &self.kind {
            Kind::Collecting(head, body) => head.allocated() + body.allocated(),
            _ => 0,
        };
        let trailers = self.trailers.as_ref().map_or(0, OwnedFields::allocated);
        size_of::<Upload>() + collected + trailers + self.held.capacity()
    }
}
