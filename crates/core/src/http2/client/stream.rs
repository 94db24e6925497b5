//! One request and its answer: what is yet to be sent, and what of the answer has come.

use alloc::vec::Vec;

use super::super::{Window, encode};

/// An open stream.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    /// How much content may be sent on it.
    pub(super) window: Window,
    /// What has arrived since its window for the server was opened.
    pub(super) received: u32,
    /// Content that waits for a window, and how much of it has been sent.
    unsent: Vec<u8>,
    sent: usize,
    /// 0: no final answer has begun.
    pub(super) status: u16,
    /// What has not come yet of the length that the answer announces.
    pub(super) missing: Option<u64>,
    /// Its method was HEAD.
    pub(super) is_head: bool,
}

impl Stream {
    pub(super) fn new(id: u32, window: u32, is_head: bool) -> Stream {
        let (window, unsent) = (Window::new(window), Vec::new());
        Stream { id, window, received: 0, unsent, sent: 0, status: 0, missing: None, is_head }
    }

    /// All of the request is sent.
    pub(super) fn is_sent(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Sends the request's content, as far as the windows allow, and keeps the rest.
    pub(super) fn send(
        &mut self,
        content: &[u8],
        window: &mut Window,
        frame_max: u32,
        out: &mut Vec<u8>,
    ) {
        let rest = self.encode(content, window, frame_max, out);
        self.unsent.extend_from_slice(rest);
    }

    /// Sends more of it, after a window has grown.
    pub(super) fn send_rest(&mut self, window: &mut Window, frame_max: u32, out: &mut Vec<u8>) {
        if self.unsent.is_empty() {
            return;
        }
        let unsent = core::mem::take(&mut self.unsent);
        let rest = self.encode(&unsent[self.sent..], window, frame_max, out).len();
        if rest > 0 {
            self.sent = unsent.len() - rest;
            self.unsent = unsent;
        }
    }

    /// Encodes as much of `content` as the windows allow, and returns the rest.
    fn encode<'a>(
        &mut self,
        mut content: &'a [u8],
        window: &mut Window,
        frame_max: u32,
        out: &mut Vec<u8>,
    ) -> &'a [u8] {
        loop {
            let allowed = self.window.available().min(window.available()).min(frame_max);
            let (piece, rest) = content.split_at(content.len().min(allowed as usize));
            if piece.is_empty() {
                return rest;
            }
            encode::data(self.id, piece, rest.is_empty(), out);
            let fits = self.window.take(piece.len() as u32) && window.take(piece.len() as u32);
            debug_assert!(fits, "it is at most the smaller of both");
            content = rest;
        }
    }
}
