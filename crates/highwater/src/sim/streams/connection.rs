//! One connection of the protocol with streams: frames in, what they mean out, and content that waits for windows.
//!
//! Windows bound content in both directions, on each stream and on the connection. A stream's window for input
//! is what its handler has room for; content that may not be sent is kept here. A stream whose answer was given
//! has no exchange any more, and lasts until its content is sent.
//!
//! Invariants: no content beyond a window is sent; a stream that is gone is never named again.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use highwater_core::http::{Limits, OwnedHead, Reject};
use highwater_core::link::Link;
use highwater_core::time::Instant;

use super::frame::{self, Frame};
use super::state::{Input, Reply, STREAM_WINDOW, State};

/// Streams at once; more are reset.
pub(super) const STREAMS_MAX: usize = 50;

/// The window that a connection has from the start, in both directions.
const WINDOW: u32 = 24 * 1024;

/// The most content of a frame.
const CHUNK: usize = 600;

/// One connection.
#[derive(Debug)]
pub(crate) struct Toy {
    pub(super) streams: BTreeMap<u32, State>,
    /// The last stream that was opened.
    pub(super) opened: u32,
    /// What may still be sent, and what the peer may still send.
    pub(super) window_out: u32,
    pub(super) window_in: u32,
    /// Streams with something that was held back for their handler.
    ready: VecDeque<u32>,
    /// The stream that sent content last: the next one continues.
    pub(super) sent: u32,
    pub(super) is_draining: bool,
    /// Nothing more is sent.
    pub(super) has_ended: bool,
    /// Since when there is no stream.
    pub(super) since: Instant,
}

/// Working memory for one step.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(super) head: Option<OwnedHead>,
    pub(super) held: Vec<u8>,
}

/// What was found in the input.
pub(super) enum Found<'i> {
    Wait,
    Head(u32),
    Collected(u32),
    Body(u32, &'i [u8]),
    Held(u32),
    BodyEnd(u32),
    BodyFailed(u32, Reject),
    Reject(u32, Reject),
    Reset(u32),
}

impl Toy {
    /// A connection accepted at `now`.
    pub(super) fn accepted(now: Instant) -> Self {
        Toy {
            streams: BTreeMap::new(),
            opened: 0,
            window_out: WINDOW,
            window_in: WINDOW,
            ready: VecDeque::new(),
            sent: 0,
            is_draining: false,
            has_ended: false,
            since: now,
        }
    }

    /// Since when it has had no stream, and nothing to send.
    pub(super) fn rests_since(&self, link: &Link) -> Option<Instant> {
        let rests = self.streams.is_empty() && !link.has_unsent() && !link.is_ending();
        rests.then(|| self.since.max(link.sent_at()))
    }

    /// Where to write to; `None` once nothing more may be sent.
    pub(super) fn out<'l>(&self, link: &'l mut Link) -> Option<&'l mut Vec<u8>> {
        (!self.has_ended && !link.is_ending()).then(|| link.output())
    }

    pub(super) fn put(&self, link: &mut Link, stream: u32, kind: u8, payload: &[u8]) {
        if let Some(out) = self.out(link) {
            frame::put(out, stream, kind, payload);
        }
    }

    /// Lets the peer send up to `window` bytes on `stream` from now on.
    pub(super) fn grant(&mut self, link: &mut Link, stream: u32, window: u32) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        let more = window.saturating_sub(state.window_in);
        if more > 0 {
            state.window_in += more;
            self.put(link, stream, frame::WINDOW, &more.to_be_bytes());
        }
    }

    /// Resets a stream.
    pub(super) fn reset(&mut self, link: &mut Link, stream: u32) {
        if self.streams.remove(&stream).is_some() {
            self.put(link, stream, frame::RESET, &[]);
        }
    }

    /// Something held back for the handler of `stream` may be taken.
    pub(super) fn is_ready(&mut self, stream: u32) {
        self.ready.push_back(stream);
    }

    pub(super) fn find<'i>(
        &mut self,
        link: &mut Link,
        input: &mut &'i [u8],
        scratch: &mut Scratch,
        now: Instant,
    ) -> Found<'i> {
        loop {
            if self.has_ended || link.is_ending() {
                link.drop_input(input);
                return Found::Wait;
            }
            if let Some(found) = self.find_held(scratch) {
                return found;
            }
            let frame = match frame::take(input) {
                Ok(Some(frame)) => frame,
                Ok(None) if link.is_eof() => return self.find_truncated(),
                Ok(None) => return Found::Wait,
                Err(()) => {
                    link.abort();
                    continue;
                }
            };
            match self.read(link, frame, scratch, now) {
                Some(Found::Wait) => {}
                Some(found) => return found,
                None => link.abort(), // The peer breaks the protocol.
            }
        }
    }

    /// What was held back for a handler.
    fn find_held<'i>(&mut self, scratch: &mut Scratch) -> Option<Found<'i>> {
        while let Some(&stream) = self.ready.front() {
            let state = self.streams.get_mut(&stream).filter(|state| !state.is_parked);
            let is_streaming = |state: &&mut State| matches!(state.input, Input::Streaming);
            if let Some(state) = state.filter(is_streaming) {
                if !state.held.is_empty() {
                    scratch.held = std::mem::take(&mut state.held);
                    return Some(Found::Held(stream));
                }
                if state.ends {
                    state.ends = false;
                    state.input = Input::Whole;
                    self.ready.pop_front();
                    return Some(Found::BodyEnd(stream));
                }
            }
            self.ready.pop_front();
        }
        None
    }

    /// The peer has finished sending: content that is not whole stays so.
    fn find_truncated<'i>(&mut self) -> Found<'i> {
        for (&stream, state) in &mut self.streams {
            match state.input {
                _ if state.is_parked || state.ends => {}
                Input::Collecting(..) => {
                    state.input = Input::Dropped;
                    state.reply = Reply::Owed;
                    return Found::Reject(stream, Reject::Truncated);
                }
                Input::Streaming => {
                    state.input = Input::Dropped;
                    return Found::BodyFailed(stream, Reject::Truncated);
                }
                Input::Whole | Input::Dropped => {}
            }
        }
        Found::Wait
    }

    /// Whether a frame may name `stream`, which is gone: it was opened, or not served because of a GOAWAY.
    fn may_name(&self, stream: u32) -> bool {
        stream <= self.opened || self.is_draining
    }

    /// Handles a frame; `None` if the peer breaks the protocol by it.
    fn read<'i>(
        &mut self,
        link: &mut Link,
        frame: Frame<'i>,
        scratch: &mut Scratch,
        now: Instant,
    ) -> Option<Found<'i>> {
        match frame.kind {
            frame::OPEN | frame::OPEN_LAST => self.open(link, &frame, scratch, now),
            frame::DATA | frame::LAST => self.content(link, &frame, now),
            frame::RESET => {
                let was_there = self.streams.remove(&frame.stream).is_some();
                self.may_name(frame.stream).then_some(if was_there {
                    Found::Reset(frame.stream)
                } else {
                    Found::Wait
                })
            }
            frame::WINDOW => {
                let more = frame.number()?;
                let window = match self.streams.get_mut(&frame.stream) {
                    Some(state) => {
                        state.stalled = Instant::MAX;
                        &mut state.window_out
                    }
                    None if frame.stream == 0 => &mut self.window_out,
                    None => return self.may_name(frame.stream).then_some(Found::Wait),
                };
                *window = window.checked_add(more)?;
                Some(Found::Wait)
            }
            _ => None,
        }
    }

    fn open<'i>(
        &mut self,
        link: &mut Link,
        frame: &Frame<'i>,
        scratch: &mut Scratch,
        now: Instant,
    ) -> Option<Found<'i>> {
        if frame.stream <= self.opened {
            return None;
        }
        if self.is_draining {
            return Some(Found::Wait); // The peer knows that it is not served.
        }
        self.opened = frame.stream;
        if self.streams.len() >= STREAMS_MAX {
            self.put(link, frame.stream, frame::RESET, &[]);
            return Some(Found::Wait);
        }
        let mut state = State::new(now);
        if frame.kind == frame::OPEN {
            state.input = Input::Streaming; // Until its request is begun.
        }
        scratch.head = frame::head(frame.payload);
        let is_valid = scratch.head.is_some();
        if !is_valid {
            state.input = Input::Dropped;
            state.reply = Reply::Owed;
        }
        self.streams.insert(frame.stream, state);
        Some(match is_valid {
            true => Found::Head(frame.stream),
            false => Found::Reject(frame.stream, Reject::RequestLine),
        })
    }

    /// Content has come. Its place in the connection's window is free at once, that in the stream's when its handler
    /// has taken it.
    fn content<'i>(
        &mut self,
        link: &mut Link,
        frame: &Frame<'i>,
        now: Instant,
    ) -> Option<Found<'i>> {
        let (stream, bytes, is_last) = (frame.stream, frame.payload, frame.kind == frame::LAST);
        let len = bytes.len() as u32;
        self.window_in = self.window_in.checked_sub(len)?;
        if self.window_in < WINDOW / 2 {
            let more = WINDOW - self.window_in;
            self.window_in = WINDOW;
            self.put(link, 0, frame::WINDOW, &more.to_be_bytes());
        }
        let Some(state) = self.streams.get_mut(&stream) else {
            return self.may_name(stream).then_some(Found::Wait);
        };
        state.window_in = state.window_in.checked_sub(len)?;
        state.progress = now;
        link.note_movement(now);
        match &mut state.input {
            Input::Collecting(_, body) if (body.len() + bytes.len()) as u64 > state.body_max => {
                state.input = Input::Dropped;
                state.reply = Reply::Owed;
                Some(Found::Reject(stream, Reject::BodyTooLarge))
            }
            Input::Collecting(_, body) => {
                body.extend_from_slice(bytes);
                if is_last {
                    state.reply = Reply::Owed;
                    return Some(Found::Collected(stream));
                }
                self.grant(link, stream, STREAM_WINDOW);
                Some(Found::Wait)
            }
            Input::Streaming if u64::from(len) > state.body_max => {
                state.input = Input::Dropped;
                Some(Found::BodyFailed(stream, Reject::BodyTooLarge))
            }
            Input::Streaming => {
                state.body_max -= u64::from(len);
                state.ends = is_last;
                if state.is_parked {
                    state.held.extend_from_slice(bytes);
                    return Some(Found::Wait);
                }
                if is_last {
                    self.is_ready(stream);
                }
                Some(Found::Body(stream, bytes))
            }
            Input::Whole if is_last || len > 0 => None,
            Input::Whole | Input::Dropped => Some(Found::Wait),
        }
    }

    /// Sends a frame of `stream`. Returns false if it has none, or may not send it.
    pub(super) fn send(&mut self, link: &mut Link, room: usize, stream: u32, now: Instant) -> bool {
        let window = self.window_out;
        let Some(state) = self.streams.get_mut(&stream) else { return false };
        if !state.has_frame(window) {
            if !state.out.is_empty() && state.stalled == Instant::MAX {
                state.stalled = now;
            }
            return false;
        }
        let mut content = Bytes::new();
        if let Some(first) = state.out.front_mut() {
            let most = state.window_out.min(window) as usize;
            content = first.split_to(first.len().min(CHUNK).min(most).min(room));
            if first.is_empty() {
                state.out.pop_front();
            }
            state.window_out -= content.len() as u32;
            self.window_out -= content.len() as u32;
        }
        let is_last = state.out.is_empty() && state.reply == Reply::Given;
        let (is_cut, is_whole) = (state.is_cut, state.is_whole());
        let kind = if is_last && !is_cut { frame::LAST } else { frame::DATA };
        self.put(link, stream, kind, &content);
        if is_last {
            self.streams.remove(&stream);
            if is_cut || !is_whole {
                self.put(link, stream, frame::RESET, &[]); // The rest of its request is not wanted.
            }
            self.since = now;
        }
        true
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.streams.values().any(|state| !state.is_parked)
    }

    pub(super) fn idle_deadline(&self, link: &Link, limits: &Limits) -> Instant {
        match self.rests_since(link) {
            Some(since) if self.opened == 0 => since + limits.header_timeout,
            Some(since) => since + limits.idle_timeout,
            None => Instant::MAX,
        }
    }
}
