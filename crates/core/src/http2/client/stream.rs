//! One request and its answer: the unsent content, and the state of the answer.

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
    /// The request's content is known to its end, and not to be added to.
    is_whole: bool,
    /// END_STREAM is sent.
    is_ended: bool,
    /// Names and values of the trailers that follow the content.
    pub(super) trailers: Vec<(Vec<u8>, Vec<u8>)>,
    /// It was opened by an extended CONNECT.
    pub(super) is_tunnel: bool,
    /// 0: no final answer has begun.
    pub(super) status: u16,
    /// What has not come yet of the length that the answer announces.
    pub(super) missing: Option<u64>,
    /// Its method was HEAD.
    pub(super) is_head: bool,
}

impl Stream {
    pub(super) fn new(id: u32, window: u32, is_head: bool) -> Stream {
        Stream {
            id,
            window: Window::new(window),
            received: 0,
            unsent: Vec::new(),
            sent: 0,
            is_whole: false,
            is_ended: false,
            trailers: Vec::new(),
            is_tunnel: false,
            status: 0,
            missing: None,
            is_head,
        }
    }

    /// All content so far is sent.
    pub(super) fn is_sent(&self) -> bool {
        self.unsent.is_empty()
    }

    /// All of the request is sent, and that it is.
    pub(super) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Content may be added.
    pub(super) fn takes_content(&self) -> bool {
        !self.is_whole
    }

    /// How much content waits for a window.
    pub(super) fn unsent(&self) -> usize {
        self.unsent.len() - self.sent
    }

    /// There will be no more content. END_STREAM was sent with the fields, or stands at the end of the content.
    pub(super) fn finish(&mut self, is_ended: bool) {
        self.is_whole = true;
        self.is_ended = is_ended;
    }

    /// The content is sent, and its end or the trailers are yet to be.
    pub(super) fn owes_end(&self) -> bool {
        self.is_whole && self.unsent.is_empty() && !self.is_ended
    }

    /// Sends the request's content, as far as the windows allow, and keeps the rest. Behind it stands END_STREAM, if it is
    /// the last and no trailers follow.
    pub(super) fn send(
        &mut self,
        content: &[u8],
        window: &mut Window,
        frame_max: u32,
        out: &mut Vec<u8>,
    ) {
        // What waits goes first.
        let rest = if self.unsent.is_empty() {
            self.encode(content, window, frame_max, out)
        } else {
            content
        };
        self.unsent.extend_from_slice(rest);
    }

    /// Sends more of it, after a window has grown.
    pub(super) fn send_rest(&mut self, window: &mut Window, frame_max: u32, out: &mut Vec<u8>) {
        if self.unsent.is_empty() {
            return;
        }
        let unsent = core::mem::take(&mut self.unsent);
        let rest = self.encode(&unsent[self.sent..], window, frame_max, out).len();
        self.sent = 0;
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
            let is_last = rest.is_empty() && self.is_whole && self.trailers.is_empty();
            encode::data(self.id, piece, is_last, out);
            self.is_ended = is_last;
            let fits = self.window.take(piece.len() as u32) && window.take(piece.len() as u32);
            debug_assert!(fits, "it is at most the smaller of both");
            content = rest;
        }
    }
}
