//! One stream of the protocol with streams: the answer in, and what its handler wants of its request.

use std::time::Duration;

use bytes::Bytes;
use highwater_core::http::{LengthMismatch, Limits, Payload};
use highwater_core::link::Link;
use highwater_core::protocol::{Stream, Upload};
use highwater_core::time::Instant;

use super::connection::Toy;
use super::frame::{self, Lines};
use super::state::{Input, Reply, State};

/// Content of one answer that may wait for its window; beyond it no more is asked for.
const OUT_MAX: usize = 2 * 1024;

/// A stream, which may be gone.
pub(crate) struct ToyStream<'a> {
    pub(super) toy: &'a mut Toy,
    pub(super) link: &'a mut Link,
    pub(super) id: u32,
}

impl ToyStream<'_> {
    fn state(&self) -> Option<&State> {
        self.toy.streams.get(&self.id)
    }

    fn state_mut(&mut self) -> Option<&mut State> {
        self.toy.streams.get_mut(&self.id)
    }

    fn push(&mut self, piece: Bytes) -> Result<(), LengthMismatch> {
        let Some(state) = self.state_mut() else { return Ok(()) };
        if let Reply::Content(Some(left)) = &mut state.reply {
            *left = left.checked_sub(piece.len() as u64).ok_or(LengthMismatch)?;
        }
        if !piece.is_empty() {
            state.out.push_back(piece);
        }
        Ok(())
    }
}

impl Stream for ToyStream<'_> {
    type Fields<'f> = Lines<'f>;

    fn link(&self) -> &Link {
        self.link
    }

    fn lend_buffer(&mut self, buffer: Vec<u8>) {
        self.link.lend_buffer(buffer);
    }

    fn reclaim_buffer(&mut self) -> Vec<u8> {
        self.link.reclaim_buffer()
    }

    fn is_head(&self) -> bool {
        self.state().is_some_and(|state| state.is_head)
    }

    fn is_request_complete(&self) -> bool {
        self.state().is_some_and(State::is_whole)
    }

    fn collected(&self) -> usize {
        match self.state() {
            Some(State { input: Input::Collecting(_, body), reply: Reply::None, .. }) => {
                body.capacity()
            }
            _ => 0,
        }
    }

    fn body_max(&self) -> u64 {
        self.state().map_or(0, |state| state.body_max)
    }

    fn refuse_body(&mut self) {
        if let Some(state) = self.state_mut() {
            state.input = Input::Dropped;
            state.reply = Reply::Owed;
        }
    }

    fn park(&mut self) -> Option<Bytes> {
        let state = self.state_mut()?;
        state.is_parked = true;
        match std::mem::replace(&mut state.input, Input::Whole) {
            Input::Collecting(_, body) => Some(body.into()),
            input => {
                state.input = input;
                None
            }
        }
    }

    fn unpark(&mut self, now: Instant) {
        let id = self.id;
        if let Some(state) = self.state_mut() {
            state.is_parked = false;
            (state.progress, state.since) = (now, now);
            self.toy.is_ready(id);
        }
        self.link.note_movement(now);
    }

    fn forget_request(&mut self) {
        if let Some(state) = self.state_mut()
            && matches!(state.input, Input::Collecting(..))
        {
            state.input = Input::Whole;
        }
    }

    fn allow_body(&mut self, room: usize, now: Instant) {
        let id = self.id;
        if let Some(state) = self.state_mut()
            && matches!(state.input, Input::Streaming)
        {
            if state.is_paused && room > 0 {
                (state.progress, state.since) = (now, now);
            }
            state.is_paused = room == 0;
            self.toy.grant(self.link, id, u32::try_from(room).unwrap_or(u32::MAX / 2));
        }
    }

    fn drop_body(&mut self, _limits: &Limits, _now: Instant) {
        if let Some(state) = self.state_mut()
            && !state.is_whole()
        {
            state.input = Input::Dropped;
        }
    }

    fn upload(&self, _now: Instant) -> Option<Upload> {
        let state = self.state()?;
        let waits = matches!(state.input, Input::Streaming)
            && state.reply == Reply::Owed
            && !state.is_paused
            && !state.ends;
        let (since, left) = (state.since, state.body_max);
        waits.then_some(Upload { since, left, shut_for: Duration::ZERO })
    }

    fn end_upload(&mut self) {
        if let Some(state) = self.state_mut() {
            state.input = Input::Dropped;
        }
    }

    fn is_reply_owed(&self) -> bool {
        self.state().is_some_and(|state| state.reply == Reply::Owed)
    }

    fn respond(
        &mut self,
        status: u16,
        date: &[u8; 29],
        limits: &Limits,
        now: Instant,
        fields: impl FnOnce(&mut Lines<'_>),
        payload: Payload<'_>,
    ) -> bool {
        self.forget_request();
        let Some(State { is_head, .. }) = self.state() else { return false };
        let has_content = !is_head && !matches!(status, 204 | 205 | 304);
        let mut head = format!("{status}\ndate: ").into_bytes();
        head.extend_from_slice(date);
        head.push(b'\n');
        fields(&mut Lines(&mut head));
        if let Some(out) = self.toy.out(self.link) {
            frame::put(out, self.id, frame::HEAD, &head);
        }
        let (reply, content) = match payload {
            Payload::Stream(length) if has_content => (Reply::Content(length), Bytes::new()),
            Payload::Bytes(bytes) if has_content => (Reply::Given, Bytes::copy_from_slice(bytes)),
            Payload::Shared(bytes) if has_content => (Reply::Given, bytes),
            Payload::Upgrade => unreachable!("no request asks for an upgrade"),
            _ => (Reply::Given, Bytes::new()),
        };
        let state = self.state_mut().expect("it was there above");
        assert!(state.reply == Reply::Owed, "a reply is owed");
        state.reply = reply;
        if !content.is_empty() {
            state.out.push_back(content);
        }
        if reply == Reply::Given {
            self.drop_body(limits, now);
        }
        reply != Reply::Given
    }

    fn room(&self, limits: &Limits) -> usize {
        let Some(state) = self.state() else { return 0 };
        let waiting: usize = state.out.iter().map(Bytes::len).sum();
        OUT_MAX.min(limits.output_max).saturating_sub(waiting)
    }

    fn push_body(&mut self, piece: &[u8]) -> Result<(), LengthMismatch> {
        self.push(Bytes::copy_from_slice(piece))
    }

    fn push_shared(&mut self, piece: Bytes) -> Result<(), LengthMismatch> {
        self.push(piece)
    }

    fn finish_body(
        &mut self,
        limits: &Limits,
        now: Instant,
        _trailers: impl FnOnce(&mut Lines<'_>),
    ) -> Result<(), LengthMismatch> {
        let Some(state) = self.state_mut() else { return Ok(()) };
        if let Reply::Content(Some(1..)) = state.reply {
            return Err(LengthMismatch);
        }
        state.reply = Reply::Given;
        self.drop_body(limits, now);
        Ok(())
    }

    fn has_left_http(&self) -> bool {
        false
    }

    fn cut_short(&mut self) {
        if let Some(state) = self.state_mut() {
            state.reply = Reply::Given;
            state.is_cut = true;
        }
    }

    fn reset(&mut self) {
        self.toy.reset(self.link, self.id);
    }

    fn is_over(&self) -> bool {
        self.id != 0 && self.state().is_none_or(|state| state.reply == Reply::Given)
    }
}
