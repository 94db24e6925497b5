//! Content out: as the windows allow, and by priority (RFC 9218).

use core::cmp::Reverse;

use bytes::Bytes;

use super::super::encode;
use super::super::error::ErrorCode;
use super::super::frame::{HEADER_LEN, Header, flag, kind};
use super::super::settings::FRAME_SIZE_DEFAULT;
use super::state::State;
use super::streams::{Reply, StreamState, Unsent};
use crate::http::Limits;
use crate::link::Link;
use crate::time::Instant;

/// With less room than this in the output, no content is added: frames would become small.
const ROOM_MIN: usize = 1024;

/// The same where the output is bounded to little.
fn room_min(limits: &Limits) -> usize {
    ROOM_MIN.min(limits.output_max / 2).max(1)
}

/// Content that a stream may have encoded or waiting, so that it is not in memory as a whole.
const UNSENT_MAX: usize = 64 * 1024;

/// Content of one stream before it is the next one's turn. More than most answers: these are sent in the order of their
/// streams, so that a client which reads them in that order never waits for one behind a window that others have filled.
const TURN: usize = 64 * 1024;

/// So many times as much content may wait for the network as for the client's windows, when answers are given: a client that
/// reads, such as a proxy, gets many at once. A guess.
const READ_FACTOR: usize = 16;

impl StreamState {
    /// Whether it has a frame to send, with this window of the connection.
    #[inline]
    fn has_frame(&self, window: u32) -> bool {
        match &self.unsent {
            None => false,
            Some(unsent) if unsent.len == 0 => self.reply == Reply::Given,
            Some(_) => window > 0 && self.window.available() > 0,
        }
    }
}

impl State {
    /// How many bytes of content may be given for a stream now. Some if only the window is closed, and nothing waits:
    /// what waits is sent when the window opens, and then more is asked for.
    pub(super) fn room(&self, link: &Link, id: u32, limits: &Limits) -> usize {
        let (Some(stream), 1..) = (self.streams.get(id), link.room(limits)) else { return 0 };
        match stream.unsent_len() {
            0 => {
                let window = self.window_of(stream) as usize;
                link.room(limits).min(window).clamp(1, UNSENT_MAX)
            }
            waiting => UNSENT_MAX
                .min(stream.window.available() as usize)
                .min(limits.output_max)
                .saturating_sub(waiting),
        }
    }

    /// Whether so much content waits that the whole content of one more answer, of `len` bytes, cannot be kept. Only answers
    /// that take a while come here: while too much waits, no stream is opened.
    pub(super) fn is_overfull(&self, index: usize, len: usize, limits: &Limits) -> bool {
        let stream = &self.streams[index];
        let times = if len > self.window_of(stream) as usize { 1 } else { READ_FACTOR };
        self.unsent > limits.http2.unsent_max.saturating_mul(times) && !self.fits(stream, len)
    }

    /// Whether content can be sent at once, in one frame.
    fn fits(&self, stream: &StreamState, len: usize) -> bool {
        let most = self.frame_max.min(FRAME_SIZE_DEFAULT).min(self.window_of(stream));
        stream.unsent.is_none() && len <= most as usize
    }

    /// The bytes of content that the client's windows allow a stream.
    #[inline]
    fn window_of(&self, stream: &StreamState) -> u32 {
        stream.window.available().min(self.window_out.available())
    }

    /// Encodes content at once, if nothing waits before it and the windows allow all of it. With `is_last`, it ends the
    /// answer.
    pub(super) fn send_now(
        &mut self,
        link: &mut Link,
        index: usize,
        content: &[u8],
        is_last: bool,
    ) -> bool {
        let fits = self.fits(&self.streams[index], content.len());
        if fits {
            let (stream, len) = (&mut self.streams[index], content.len() as u32);
            let is_taken = stream.window.take(len) && self.window_out.take(len);
            debug_assert!(is_taken, "both windows were asked");
            encode::data(stream.id, content, is_last, link.output());
        }
        fits
    }

    /// Whether the last frame of a stream was small because its windows were: a client that opens them by a byte at a time
    /// makes many of them, which must not pay for that (CVE-2019-9511).
    #[inline]
    pub(super) fn is_cut_small(&self, index: usize, len: usize) -> bool {
        len < ROOM_MIN && self.window_of(&self.streams[index]) == 0
    }

    /// Keeps content until the windows and the output have room for it.
    pub(super) fn send_later(&mut self, index: usize, content: Bytes) {
        if content.is_empty() {
            return;
        }
        self.unsent += content.len();
        let unsent = self.unsent_of(index);
        unsent.len += content.len();
        unsent.pieces.push_back(content);
    }

    pub(super) fn unsent_of(&mut self, index: usize) -> &mut Unsent {
        let stream = &mut self.streams[index];
        if stream.unsent.is_none() {
            self.waiting += 1;
        }
        stream.unsent.get_or_insert_default()
    }

    /// All of an answer is given. Ends the stream, as soon as what is unsent is sent.
    pub(super) fn finish(&mut self, link: &mut Link, index: usize, has_ended: bool, now: Instant) {
        let stream = &mut self.streams[index];
        stream.reply = Reply::Given;
        if stream.unsent.is_some() {
            return;
        }
        let (id, is_cut, is_whole) = (stream.id, stream.is_cut, stream.is_whole());
        if !link.is_ending() {
            if let Some(upload) = stream.upload.as_mut().filter(|upload| upload.is_read()) {
                upload.restart(now); // Its handler reads on.
                if !has_ended {
                    encode::data(id, &[], true, link.output());
                }
                return;
            }
            // The end of a tunnel is that of one side (RFC 8441 §5): the peer ends its own.
            let is_closing = stream.is_tunnel && !is_whole && !is_cut && !link.is_eof();
            if let Some(upload) = stream.upload.as_mut().filter(|_| is_closing) {
                upload.close(now);
                if !has_ended {
                    encode::data(id, &[], true, link.output());
                }
                return;
            }
            match () {
                () if is_cut => self.send_reset(link, id, ErrorCode::CANCEL),
                () if !has_ended => encode::data(id, &[], true, link.output()),
                () => {}
            }
            if !is_whole && !is_cut {
                // The rest of its request is not wanted (RFC 9113 §8.1).
                self.send_reset(link, id, ErrorCode::NO_ERROR);
            }
        }
        self.remove(link, index, now);
    }

    /// Whether something waits that could be added to the output now.
    pub(super) fn holds_output(&self, link: &Link, limits: &Limits) -> bool {
        let window = self.window_out.available();
        self.waiting > 0
            && link.room(limits) >= room_min(limits)
            && self.streams.iter().any(|stream| stream.has_frame(window))
    }

    /// Adds what waits to the output, as far as windows and output have room.
    pub(super) fn send_waiting(&mut self, link: &mut Link, limits: &Limits, now: Instant) {
        while self.waiting > 0 && !link.is_ending() {
            let room = link.room(limits);
            let Some(index) = self.next_to_send().filter(|_| room >= room_min(limits)) else {
                break;
            };
            let id = self.streams[index].id;
            if self.turn.0 != id || self.turn.1 == 0 {
                self.turn = (id, TURN);
            }
            self.send_frame(link, index, room.saturating_sub(HEADER_LEN).max(1), limits, now);
        }
        if self.waiting > 0 {
            self.note_stalls(now, limits);
        }
    }

    /// The stream whose turn it is: the most urgent; of several, those that wait for their turn one after the other,
    /// then the others in turns.
    fn next_to_send(&self) -> Option<usize> {
        let window = self.window_out.available();
        let with_frame = self.streams.iter().enumerate().filter(|(_, it)| it.has_frame(window));
        let (turn, left) = self.turn;
        let key = |stream: &StreamState| {
            let place = match stream.id {
                _ if !stream.priority.is_incremental => 0,
                id if id == turn && left > 0 => 1,
                id if id > turn => 2,
                id if id < turn => 3,
                _ => 4,
            };
            (stream.priority.urgency, place, stream.id)
        };
        with_frame.min_by_key(|(_, stream)| key(stream)).map(|(index, _)| index)
    }

    fn send_frame(
        &mut self,
        link: &mut Link,
        index: usize,
        room: usize,
        limits: &Limits,
        now: Instant,
    ) {
        let stream = &mut self.streams[index];
        let most = stream.window.available().min(self.window_out.available());
        let most = most.min(self.frame_max).min(FRAME_SIZE_DEFAULT) as usize;
        let Some(unsent) = &mut stream.unsent else { return };
        let is_given = stream.reply == Reply::Given;
        let ends_with_content = is_given && unsent.trailers.is_none() && !stream.is_cut;
        let mut has_ended = false;
        if unsent.len > 0 {
            let len = unsent.len.min(most).min(room);
            has_ended = ends_with_content && len == unsent.len;
            let flags = if has_ended { flag::END_STREAM } else { 0 };
            let header = Header { len: len as u32, kind: kind::DATA, flags, stream: stream.id };
            let out = link.output();
            out.extend_from_slice(&header.encode());
            unsent.take(len, |piece| out.extend_from_slice(piece));
            self.unsent -= len;
            self.turn.1 = self.turn.1.saturating_sub(len);
            let is_taken = stream.window.take(len as u32) && self.window_out.take(len as u32);
            debug_assert!(is_taken, "both windows were asked");
            stream.moved += len;
            self.moved += len;
            if has_ended || !self.is_cut_small(index, len) {
                self.calm.work(&limits.http2);
            }
        }
        let stream = &mut self.streams[index];
        let Some(unsent) = stream.unsent.as_mut().filter(|unsent| unsent.len == 0) else { return };
        if let Some(trailers) = unsent.trailers.take() {
            let fields_out = &mut self.fields_out;
            encode::headers(stream.id, true, self.frame_max, link.output(), |block| {
                fields_out.begin(block);
                block.extend_from_slice(&trailers);
            });
            has_ended = true;
        }
        stream.unsent = None;
        if let Some(upload) = &mut stream.upload {
            upload.has_sent = true;
        }
        self.waiting -= 1;
        if is_given {
            self.finish(link, index, has_ended, now);
        }
    }

    /// Content that waits for a window only has waited since now at least. Windows that open by a byte now and then are no
    /// progress; and where the connection's window is the one that is closed, what any stream sends is progress of all.
    fn note_stalls(&mut self, now: Instant, limits: &Limits) {
        let window = self.window_out.available();
        let of_connection = limits.is_progress(self.moved);
        if of_connection {
            self.moved = 0;
        }
        for stream in self.streams.iter_mut() {
            let waits = stream.unsent_len() > 0 && !stream.has_frame(window);
            let has_moved = limits.is_progress(stream.moved)
                || (of_connection && stream.window.available() > 0);
            if !waits || has_moved || stream.stalled == Instant::MAX {
                stream.stalled = if waits { now } else { Instant::MAX };
                stream.moved = 0;
            }
        }
    }

    /// Resets a stream whose content has waited for a window since before `now` for too long, the oldest.
    pub(super) fn reset_stalled(&mut self, link: &mut Link, now: Instant, limits: &Limits) -> bool {
        let overdue = self.streams.iter().filter(|it| now >= it.stall_deadline(limits));
        let Some(id) = overdue.max_by_key(|it| Reverse(it.stalled)).map(|it| it.id) else {
            return false;
        };
        self.reset(link, id, ErrorCode::CANCEL, now)
    }
}

impl Unsent {
    /// Takes `len` bytes off its front.
    fn take(&mut self, mut len: usize, mut each: impl FnMut(&[u8])) {
        self.len -= len;
        while len > 0
            && let Some(first) = self.pieces.front_mut()
        {
            let piece = first.split_to(first.len().min(len));
            each(&piece);
            len -= piece.len();
            if first.is_empty() {
                self.pieces.pop_front();
            }
        }
    }
}
