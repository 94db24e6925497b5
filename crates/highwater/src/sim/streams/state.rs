//! The state of one stream.
//!
//! ```text
//!          ┌─ collecting ─┐
//!  OPEN ───┤              ├─▶ request, reply owed ─▶ content ─▶ given ──out is empty──▶ gone
//!          └─ streaming ──┘                                        RESET in, or reset() ──▶ gone
//! ```

use std::collections::VecDeque;

use bytes::Bytes;
use highwater_core::http::{Limits, OwnedHead};
use highwater_core::time::Instant;

/// The window that a stream has from the start, in both directions.
pub(super) const STREAM_WINDOW: u32 = 4 * 1024;

/// One stream.
#[derive(Debug)]
pub(super) struct State {
    pub(super) input: Input,
    pub(super) is_head: bool,
    pub(super) is_parked: bool,
    /// Its handler has no room, or has not asked.
    pub(super) is_paused: bool,
    /// Content that came while it was parked, and whether its end is to be reported.
    pub(super) held: Vec<u8>,
    pub(super) ends: bool,
    pub(super) window_in: u32,
    /// When content came last, and since when the handler has waited for it.
    pub(super) progress: Instant,
    pub(super) since: Instant,
    pub(super) body_max: u64,
    pub(super) reply: Reply,
    pub(super) out: VecDeque<Bytes>,
    pub(super) window_out: u32,
    /// The answer breaks off behind `out`.
    pub(super) is_cut: bool,
    /// Since when content waits for its window.
    pub(super) stalled: Instant,
}

#[derive(Debug)]
pub(super) enum Input {
    Collecting(OwnedHead, Vec<u8>),
    Streaming,
    /// All of it came.
    Whole,
    /// The rest is not wanted.
    Dropped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    None,
    Owed,
    /// Content follows; this much is left, if that is known.
    Content(Option<u64>),
    Given,
}

impl State {
    pub(super) fn new(now: Instant) -> Self {
        State {
            input: Input::Whole,
            is_head: false,
            is_parked: false,
            is_paused: false,
            held: Vec::new(),
            ends: false,
            window_in: STREAM_WINDOW,
            progress: now,
            since: now,
            body_max: 0,
            reply: Reply::None,
            out: VecDeque::new(),
            window_out: STREAM_WINDOW,
            is_cut: false,
            stalled: Instant::MAX,
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        matches!(self.input, Input::Whole)
    }

    /// Whether its peer has to send content that is waited for.
    fn awaits_peer(&self) -> bool {
        let is_open = matches!(self.input, Input::Collecting(..) | Input::Streaming);
        is_open && !self.ends && !self.is_parked && !self.is_paused && self.reply != Reply::Given
    }

    pub(super) fn body_deadline(&self, limits: &Limits) -> Instant {
        if self.awaits_peer() { self.progress + limits.body_timeout } else { Instant::MAX }
    }

    pub(super) fn stall_deadline(&self, limits: &Limits) -> Instant {
        if self.stalled == Instant::MAX {
            Instant::MAX
        } else {
            self.stalled + limits.write_timeout
        }
    }

    /// Whether it has a frame to send, as far as its window is concerned.
    pub(super) fn has_frame(&self, window: u32) -> bool {
        let has_content = !self.out.is_empty();
        has_content && self.window_out.min(window) > 0 || !has_content && self.reply == Reply::Given
    }
}
