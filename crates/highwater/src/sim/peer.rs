//! A client in the simulation: what it says, what it hears, and what it must hear.

use std::collections::VecDeque;

use highwater_core::time::Instant;

use super::oracle::Expected;

/// One client with one connection.
pub(super) struct Peer {
    /// What is left to say.
    script: VecDeque<u8>,
    /// Finish sending after the script; otherwise wait for the server to close.
    half_closes: bool,
    /// What it must hear.
    pub(super) expected: Vec<Expected>,
    /// What it has heard.
    pub(super) heard: Vec<u8>,
    /// On its way to the client.
    pub(super) wire: VecDeque<u8>,
    pub(super) conn: Option<usize>,
    pub(super) resume_at: Instant,
    pub(super) has_reset: bool,
    pub(super) was_reset: bool,
    pub(super) is_refused: bool,
    fin: bool,
    closed: bool,
}

impl Peer {
    pub(super) fn new(script: Vec<u8>, expected: Vec<Expected>, half_closes: bool) -> Self {
        Peer {
            script: script.into(),
            half_closes,
            expected,
            heard: Vec::new(),
            wire: VecDeque::new(),
            conn: None,
            resume_at: Instant::ZERO,
            has_reset: false,
            was_reset: false,
            is_refused: false,
            fin: false,
            closed: false,
        }
    }

    /// Reads at most `most` bytes off the wire.
    pub(super) fn read(&mut self, most: usize) -> bool {
        let take = most.min(self.wire.len());
        self.heard.extend(self.wire.drain(..take));
        take > 0
    }

    /// Sends at most `most` bytes.
    pub(super) fn write(&mut self, most: usize, to: &mut VecDeque<u8>) -> bool {
        let take = most.min(self.script.len());
        to.extend(self.script.drain(..take));
        take > 0
    }

    pub(super) fn has_more_to_send(&self) -> bool {
        !self.script.is_empty()
    }

    /// A client that has heard the server's FIN closes as well once it has said everything.
    pub(super) fn has_finished_sending(&self) -> bool {
        self.script.is_empty() && (self.half_closes || (self.fin && self.wire.is_empty()))
    }

    pub(super) fn on_fin(&mut self) {
        self.fin = true;
    }

    pub(super) fn on_closed(&mut self, reset: bool) {
        self.closed = true;
        self.was_reset = reset;
        if reset {
            self.wire.clear();
        } else {
            let rest = self.wire.len();
            self.read(rest);
        }
    }

    /// Whether the connection is over.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether it has nothing more to do.
    pub(super) fn is_gone(&self) -> bool {
        self.is_refused || self.has_reset || (self.closed && self.wire.is_empty())
    }
}
