//! One stream: its answer, and the commands of its handler about its request.

use alloc::vec::Vec;
use bytes::Bytes;

use super::super::encode;
use super::super::error::ErrorCode;
use super::super::hpack::Indexing;
use super::fields::FieldBlock;
use super::state::State;
use super::streams::{Reply, StreamState};
use super::upload::{Kind, Upload};
use crate::http::{LengthMismatch, Limits, Payload};
use crate::link::{COPY_MAX, Link};
use crate::protocol;
use crate::time::Instant;

/// A stream, which may be gone.
#[derive(Debug)]
pub struct Stream<'a> {
    pub(super) state: &'a mut State,
    pub(super) link: &'a mut Link,
    pub(super) id: u32,
    /// Where it is, while it is there.
    pub(super) index: Option<usize>,
}

impl Stream<'_> {
    fn get(&self) -> Option<&StreamState> {
        self.index.map(|index| &self.state.streams[index])
    }

    fn get_mut(&mut self) -> Option<&mut StreamState> {
        self.index.map(|index| &mut self.state.streams[index])
    }

    fn content(&self) -> Option<&Upload> {
        self.get()?.upload.as_deref()
    }

    fn content_mut(&mut self) -> Option<&mut Upload> {
        self.get_mut()?.upload.as_deref_mut()
    }

    /// Encodes the head of the answer. With `is_last`, it is all of it.
    fn head(&mut self, status: u16, is_last: bool, fields: impl FnOnce(&mut FieldBlock<'_>)) {
        let State { fields_out, frame_max, .. } = &mut *self.state;
        encode::headers(self.id, is_last, *frame_max, self.link.output(), |out| {
            fields_out.begin(out);
            let mut block = FieldBlock { encoder: Some(fields_out), out };
            block.status(status);
            fields(&mut block);
        });
    }

    /// All of the answer is given; with `has_ended`, its end is encoded.
    fn finish(&mut self, has_ended: bool, now: Instant) {
        if let Some(index) = self.index {
            self.state.finish(self.link, index, has_ended, now);
            self.index = self.state.streams.find(self.id);
        }
    }

    /// Adds content to an answer whose length is counted.
    fn push(&mut self, piece: &[u8], shared: Option<Bytes>) -> Result<(), LengthMismatch> {
        let Some(index) = self.index else { return Ok(()) };
        let reply = &mut self.state.streams[index].reply;
        if let Reply::Content(Some(left)) = reply {
            *left = left.checked_sub(piece.len() as u64).ok_or(LengthMismatch)?;
        }
        if let Some(upload) = self.content_mut() {
            upload.has_sent = true;
        }
        let is_alone = self.state.waiting == 0 && !self.link.is_ending();
        let is_short = shared.is_none();
        if !is_alone || !is_short || !self.state.send_now(self.link, index, piece, false) {
            let content = shared.unwrap_or_else(|| Bytes::copy_from_slice(piece));
            self.state.send_later(index, content);
        } else if !self.state.is_cut_small(index, piece.len()) {
            self.state.calm.sent();
        }
        Ok(())
    }

    /// Sends content that was given at once, as far as the windows allow; the rest follows. Returns whether nothing is left.
    #[inline]
    fn send_content(&mut self, index: usize, payload: Payload<'_>) -> bool {
        let (bytes, shared) = match payload {
            Payload::Bytes(bytes) => (bytes, None),
            Payload::Shared(ref bytes) if bytes.len() <= COPY_MAX => (&bytes[..], None),
            Payload::Shared(bytes) => (&[][..], Some(bytes)),
            Payload::Stream(_) | Payload::Upgrade => unreachable!("its content comes later"),
        };
        if shared.is_none() && self.state.send_now(self.link, index, bytes, true) {
            return true;
        }
        let content = shared.unwrap_or_else(|| Bytes::copy_from_slice(bytes));
        self.state.send_later(index, content);
        false
    }

    /// Answers an extended CONNECT with 200: from then on the stream is a tunnel (RFC 8441 §5). It has no `content-length`
    /// (RFC 9110 §9.3.6). What came before, or the end of the connection's input, is listed to be reported.
    fn open_tunnel(
        &mut self,
        index: usize,
        date: &[u8; 29],
        now: Instant,
        fields: impl FnOnce(&mut FieldBlock<'_>),
    ) -> bool {
        self.link.note_movement(now);
        let stream = &mut self.state.streams[index];
        let asked = stream.upload.as_mut().filter(|upload| matches!(upload.kind, Kind::Asked));
        asked.expect("an upgrade answers a request that asks for one").open();
        stream.is_tunnel = true;
        stream.reply = Reply::Content(None);
        if self.link.is_ending() {
            self.drop_content();
            self.finish(true, now);
            return false;
        }
        self.head(200, false, |block| {
            block.add(b"date", date, Indexing::Incremental);
            fields(block);
        });
        self.state.list(self.id);
        true
    }

    /// Nobody wants the rest of the content.
    fn drop_content(&mut self) {
        let Some(index) = self.index else { return };
        let stream = &mut self.state.streams[index];
        let Some(upload) = &mut stream.upload else { return };
        let held = upload.drop_rest() as u32;
        if upload.has_ended {
            stream.forget_content();
        }
        self.state.give_back(held);
    }
}

impl protocol::Stream for Stream<'_> {
    type Fields<'f> = FieldBlock<'f>;

    fn link(&self) -> &Link {
        self.link
    }

    fn pending(&self) -> usize {
        self.link.pending() + self.state.unsent
    }

    fn lend_buffer(&mut self, buffer: Vec<u8>) {
        self.link.lend_buffer(buffer);
    }

    fn reclaim_buffer(&mut self) -> Vec<u8> {
        self.link.reclaim_buffer()
    }

    fn is_head(&self) -> bool {
        self.get().is_some_and(|stream| stream.is_head)
    }

    fn is_request_complete(&self) -> bool {
        let is_asked = matches!(self.content(), Some(Upload { kind: Kind::Asked, .. }));
        is_asked || self.get().is_some_and(StreamState::is_whole)
    }

    fn collected(&self) -> usize {
        match self.get() {
            Some(stream) if stream.reply == Reply::None => match self.content() {
                Some(Upload { kind: Kind::Collecting(_, body), .. }) => body.allocated(),
                _ => 0,
            },
            _ => 0,
        }
    }

    fn held(&self) -> usize {
        self.content().map_or(0, |upload| upload.held.capacity())
    }

    fn body_max(&self) -> u64 {
        self.content().map_or(0, |upload| upload.max)
    }

    fn refuse_body(&mut self) {
        self.drop_content();
        if let Some(stream) = self.get_mut() {
            stream.reply = Reply::Owed;
        }
    }

    fn park(&mut self) -> Option<Bytes> {
        let stream = self.get_mut()?;
        stream.is_parked = true;
        match stream.upload.as_mut().map(|upload| &mut upload.kind) {
            Some(Kind::Collecting(_, body)) => {
                let body = core::mem::take(body);
                stream.upload = None;
                Some(body.into_bytes())
            }
            _ => None,
        }
    }

    fn unpark(&mut self, now: Instant) {
        let id = self.id;
        if let Some(stream) = self.get_mut() {
            stream.is_parked = false;
            if let Some(upload) = &mut stream.upload {
                upload.restart(now);
                self.state.list(id);
            }
        }
        self.link.note_movement(now);
    }

    fn forget_request(&mut self) {
        if let Some(stream) = self.get_mut()
            && stream.upload.as_ref().is_some_and(|it| matches!(it.kind, Kind::Collecting(..)))
        {
            stream.upload = None;
        }
    }

    fn allow_body(&mut self, room: usize, now: Instant) {
        let id = self.id;
        if let Some(upload) = self.content_mut() {
            if upload.room == 0 && room > 0 {
                upload.restart(now);
            }
            upload.room = room;
            let has_more = room > 0 && upload.held() > 0;
            if has_more {
                self.state.list(id);
                self.link.note_movement(now);
            }
        }
    }

    fn drop_body(&mut self, _limits: &Limits, now: Instant) {
        let is_read = self.get().is_some_and(StreamState::is_read);
        self.drop_content();
        if is_read && self.get().is_some_and(|it| it.reply == Reply::Given) {
            self.finish(true, now); // Our side has ended before.
        }
    }

    fn send_continue(&mut self, now: Instant) {
        let Some(stream) = self.get() else { return };
        let in_time = matches!(stream.reply, Reply::None | Reply::Owed);
        let Some(upload) = self.content_mut() else { return };
        if in_time && core::mem::take(&mut upload.continue_owed) {
            upload.restart(now);
            if !self.link.is_ending() {
                self.head(100, false, |_| {});
            }
        }
    }

    fn upload(&self, now: Instant) -> Option<protocol::Upload> {
        let is_owed = self.is_reply_owed();
        let upload = self.content()?;
        let waits = is_owed
            && matches!(upload.kind, Kind::Streaming)
            && upload.room > 0
            && !upload.continue_owed
            && !upload.has_ended;
        let (since, left) = (upload.since, upload.max);
        waits.then_some(protocol::Upload { since, left, shut_for: self.state.shut.total(now) })
    }

    fn end_upload(&mut self) {
        self.drop_content();
    }

    #[inline]
    fn is_reply_owed(&self) -> bool {
        self.get().is_some_and(|stream| stream.reply == Reply::Owed)
    }

    fn respond(
        &mut self,
        status: u16,
        date: &[u8; 29],
        limits: &Limits,
        now: Instant,
        fields: impl FnOnce(&mut FieldBlock<'_>),
        payload: Payload<'_>,
    ) -> bool {
        self.forget_request();
        let Some(index) = self.index else { return false };
        let stream = &mut self.state.streams[index];
        assert!(stream.reply == Reply::Owed, "a reply is owed");
        if matches!(payload, Payload::Upgrade) {
            return self.open_tunnel(index, date, now, fields);
        }
        assert!(status >= 200, "{status} is not a final status");
        self.link.note_movement(now);
        let has_content = !stream.is_head && !matches!(status, 204 | 205 | 304);
        let length = match &payload {
            _ if matches!(status, 204 | 304) => None,
            _ if status == 205 => Some(0),
            Payload::Bytes(bytes) => Some(bytes.len() as u64),
            Payload::Shared(bytes) => Some(bytes.len() as u64),
            Payload::Stream(length) => *length,
            Payload::Upgrade => unreachable!("see above"),
        };
        let follows = has_content && matches!(payload, Payload::Stream(_));
        let is_last = !follows && (!has_content || length == Some(0));
        if !follows {
            self.drop_content();
        }
        if self.link.is_ending() {
            self.finish(true, now);
            return false;
        }
        let content = length.filter(|_| !follows && !is_last);
        if content.is_some_and(|len| self.state.is_overfull(index, len as usize, limits)) {
            self.state.report.resets_out += 1;
            self.state.reset(self.link, self.id, ErrorCode::ENHANCE_YOUR_CALM, now);
            self.index = None;
            return false;
        }
        self.head(status, is_last, |block| {
            block.add(b"date", date, Indexing::Incremental);
            fields(block);
            if let Some(length) = length {
                block.content_length(length);
            }
        });
        if follows {
            self.state.streams[index].reply = Reply::Content(length);
            return true;
        }
        let has_ended = is_last || self.send_content(index, payload);
        self.finish(has_ended, now);
        false
    }

    fn room(&self, limits: &Limits) -> usize {
        self.state.room(self.link, self.id, limits)
    }

    fn push_body(&mut self, piece: &[u8]) -> Result<(), LengthMismatch> {
        if piece.is_empty() { Ok(()) } else { self.push(piece, None) }
    }

    fn push_shared(&mut self, piece: Bytes) -> Result<(), LengthMismatch> {
        let bytes = piece.clone();
        self.push(&bytes, Some(piece))
    }

    fn finish_body(
        &mut self,
        _limits: &Limits,
        now: Instant,
        trailers: impl FnOnce(&mut FieldBlock<'_>),
    ) -> Result<(), LengthMismatch> {
        let Some(index) = self.index else { return Ok(()) };
        if let Reply::Content(Some(1..)) = self.state.streams[index].reply {
            return Err(LengthMismatch);
        }
        let mut block = Vec::new();
        trailers(&mut FieldBlock { encoder: None, out: &mut block });
        if !block.is_empty() {
            self.state.unsent_of(index).trailers = Some(block);
        }
        if !self.state.streams[index].is_read() {
            self.drop_content();
        }
        self.finish(false, now);
        Ok(())
    }

    fn has_left_http(&self) -> bool {
        self.get().is_some_and(|it| it.is_tunnel && it.reply != Reply::Given)
    }

    fn cut_short(&mut self) {
        let Some(stream) = self.get_mut() else { return };
        stream.is_cut = true;
        self.drop_content();
        let since = self.state.since;
        self.finish(true, since);
    }

    fn reset(&mut self) {
        let Some(stream) = self.get() else { return };
        let code = match () {
            () if stream.is_parked => ErrorCode::REFUSED_STREAM, // It was not processed.
            () if stream.is_tunnel => ErrorCode::CANCEL, // What TCP says by RST (RFC 8441 §5).
            () => ErrorCode::INTERNAL_ERROR,
        };
        let since = self.state.since;
        self.state.reset(self.link, self.id, code, since);
        self.index = None;
    }

    #[inline]
    fn is_over(&self) -> bool {
        let is_over = |it: &StreamState| it.reply == Reply::Given && !it.is_read();
        self.id != 0 && self.get().is_none_or(is_over)
    }
}
