//! What is the state of one HTTP/2 connection of a server?

use alloc::collections::VecDeque;
use core::ops::RangeInclusive;
use core::time::Duration;

use super::super::block::Block;
use super::super::encode;
use super::super::error::{Error, ErrorCode};
use super::super::flow::Window;
use super::super::hpack;
use super::super::settings::{FRAME_SIZE_DEFAULT, Setting, WINDOW_DEFAULT, WINDOW_MAX};
use super::calm::Calm;
use super::found::Found;
use super::priority::Priority;
use super::streams::{StreamState, Streams, Unsent};
use super::upload::Kind;
use crate::http::Limits;
use crate::link::Link;
use crate::protocol::{CloseReason, Report};
use crate::time::Instant;

/// How many streams that we have reset are remembered, at least and at most: frames of them may be on their way. It is twice
/// as many as may be open, within these bounds, so that all of them can be reset while all before them still are sent.
const RESET_KEPT: RangeInclusive<usize> = 32..=1024;

/// A peer that has not acknowledged our settings for so long is taken to know them (`SETTINGS_TIMEOUT`, RFC 9113 §6.5.3).
const SETTLE_MAX: Duration = Duration::from_secs(10);

/// `SETTINGS_NO_RFC7540_PRIORITIES` (RFC 9218 §2.1).
const NO_OLD_PRIORITIES: Setting = Setting::Unknown(0x9, 1);

/// What comes next on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The preface, of which this much has come.
    Preface(u8),
    /// SETTINGS, as the first frame.
    Settings,
    /// Any frame.
    Open,
}

/// How far the end is that we have chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Going {
    No,
    /// The peer knows since then that it is to open no further streams; those it opens meanwhile are served.
    Announced(Instant),
    /// No stream beyond this one is served.
    Final(u32),
}

/// The state of one connection, but its decoder of frames.
#[derive(Debug)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) going: Going,
    pub(super) fields_in: hpack::Decoder,
    pub(super) fields_out: hpack::Encoder,
    pub(super) streams: Streams,
    /// An incomplete field block: of which stream, whether its message ends with it, and since when.
    pub(super) block: Block,
    pub(super) block_of: BlockOf,
    /// The last stream that was opened.
    pub(super) opened: u32,
    /// Requests that were begun.
    pub(super) served: u32,
    /// What may be sent, and what the peer may send.
    pub(super) window_out: Window,
    pub(super) window_in: Window,
    /// Bytes of content sent; reset to zero once they have shown that the client reads.
    pub(super) moved: usize,
    /// Bytes handed on since this window was last opened.
    taken: u32,
    /// The peer's settings: the window of a new stream, and the size of a frame.
    pub(super) initial_window: u32,
    pub(super) frame_max: u32,
    /// How long handlers have kept the window of the connection shut.
    pub(super) shut: Shut,
    /// The peer knows our settings, or is taken to know them from then on.
    pub(super) is_settled: bool,
    pub(super) settled_by: Instant,
    /// Streams with something to hand on.
    pub(super) ready: VecDeque<u32>,
    /// How many streams have something unsent, and how much all of them.
    pub(super) waiting: usize,
    pub(super) unsent: usize,
    /// The stream that sent content last, and how much more it may send in its turn.
    pub(super) turn: (u32, usize),
    pub(super) calm: Calm,
    /// The last priority for a stream that was not open yet.
    pub(super) early_priority: Option<(u32, Priority)>,
    /// Streams that we have reset, the oldest first, and how many are kept.
    reset: VecDeque<u32>,
    reset_max: usize,
    /// Since when there is no stream.
    pub(super) since: Instant,
    pub(super) report: Report,
}

/// Whose field block is being received.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockOf {
    pub(super) stream: u32,
    pub(super) is_last: bool,
    pub(super) depends_on_itself: bool,
    /// Since when it is incomplete; `MAX` if none is.
    pub(super) since: Instant,
}

impl State {
    pub(super) fn new(now: Instant) -> Self {
        State {
            phase: Phase::Preface(0),
            going: Going::No,
            fields_in: hpack::Decoder::new(hpack::SIZE_DEFAULT),
            fields_out: hpack::Encoder::new(),
            streams: Streams::default(),
            block: Block::default(),
            block_of: BlockOf {
                stream: 0,
                is_last: false,
                depends_on_itself: false,
                since: Instant::MAX,
            },
            opened: 0,
            served: 0,
            window_out: Window::default(),
            window_in: Window::default(),
            moved: 0,
            taken: 0,
            initial_window: WINDOW_DEFAULT,
            frame_max: FRAME_SIZE_DEFAULT,
            shut: Shut::NEVER,
            is_settled: false,
            settled_by: Instant::MAX,
            ready: VecDeque::new(),
            waiting: 0,
            unsent: 0,
            turn: (0, 0),
            calm: Calm::NEW,
            early_priority: None,
            reset: VecDeque::new(),
            reset_max: *RESET_KEPT.start(),
            since: now,
            report: Report::default(),
        }
    }

    /// Bytes that a client may send on a new stream. No less than it may assume before it knows our settings.
    pub(super) fn stream_window(limits: &Limits) -> u32 {
        limits.http2.window.clamp(WINDOW_DEFAULT, WINDOW_MAX)
    }

    /// The same for the connection.
    pub(super) fn connection_window(limits: &Limits) -> u32 {
        limits.http2.connection_window.clamp(WINDOW_DEFAULT, WINDOW_MAX)
    }

    /// The size of a field list that is accepted: what HTTP/1 accepts as request line and fields.
    pub(super) fn fields_max(limits: &Limits) -> usize {
        limits.header_max + limits.uri_max
    }

    /// The preface is complete: our settings are sent.
    pub(super) fn greet(&mut self, link: &mut Link, limits: &Limits, now: Instant) {
        self.phase = Phase::Settings;
        self.settled_by = now + SETTLE_MAX;
        let streams_max = limits.http2.streams_max as usize;
        self.reset_max = (2 * streams_max).clamp(*RESET_KEPT.start(), *RESET_KEPT.end());
        let settings = [
            Setting::MaxConcurrentStreams(limits.http2.streams_max),
            Setting::InitialWindowSize(State::stream_window(limits)),
            Setting::MaxHeaderListSize(State::fields_max(limits) as u32),
            NO_OLD_PRIORITIES,
            Setting::EnableConnectProtocol(true),
        ];
        // What is not announced is off (RFC 8441 §3).
        let count = settings.len() - usize::from(!limits.http2.extended_connect);
        encode::settings(&settings[..count], link.output());
        let more = State::connection_window(limits) - WINDOW_DEFAULT;
        if more > 0 && self.window_in.give(more) {
            encode::window_update(0, more, link.output());
        }
        if matches!(self.going, Going::Announced(_)) {
            self.announce(link, now);
        }
    }

    /// An error of the connection: it is answered with GOAWAY, and nothing more is read.
    #[cold]
    pub(super) fn fail(&mut self, link: &mut Link, error: Error) {
        if !link.is_ending() {
            let debug = error.reason.as_bytes();
            let last = match self.going {
                Going::Final(last) => last, // It must not rise (RFC 9113 §6.8).
                Going::No | Going::Announced(_) => self.opened,
            };
            encode::go_away(last, error.code, debug, link.output());
            link.end(false);
        }
        self.report
            .close_reason
            .get_or_insert(CloseReason::Error(error.code.name().unwrap_or("unknown")));
        self.forget_all();
    }

    /// Every stream is lost; [`protocol::Stream::is_over`] reports that to the code that works for one.
    ///
    /// [`protocol::Stream::is_over`]: crate::protocol::Stream::is_over
    pub(super) fn forget_all(&mut self) {
        self.streams = Streams::default();
        (self.waiting, self.unsent) = (0, 0);
        self.ready.clear();
    }

    /// Resets a stream with `code`, if it is open. Returns whether it was.
    pub(super) fn reset(
        &mut self,
        link: &mut Link,
        id: u32,
        code: ErrorCode,
        now: Instant,
    ) -> bool {
        let Some(index) = self.streams.find(id) else { return false };
        self.send_reset(link, id, code);
        self.remove(link, index, now);
        true
    }

    pub(super) fn send_reset(&mut self, link: &mut Link, id: u32, code: ErrorCode) {
        if link.is_ending() {
            return;
        }
        encode::reset(id, code, link.output());
        if self.reset.len() == self.reset_max {
            self.reset.pop_front();
        }
        self.reset.push_back(id);
    }

    /// Forgets a stream, and gives back what it held of the connection's window.
    pub(super) fn remove(&mut self, link: &mut Link, index: usize, now: Instant) {
        let mut stream = self.streams.remove(index);
        if let Some(unsent) = stream.unsent.take() {
            self.drop_unsent(&unsent);
        }
        if let Some(upload) = &mut stream.upload {
            let held = upload.drop_rest();
            self.give_back(held as u32);
        }
        self.since = now;
        link.note_answer();
    }

    pub(super) fn drop_unsent(&mut self, unsent: &Unsent) {
        self.waiting -= 1;
        self.unsent -= unsent.len;
    }

    /// Bytes of content are no longer held.
    #[inline]
    pub(super) fn give_back(&mut self, bytes: u32) {
        self.taken += bytes;
    }

    /// A turn ends: the connection's window is opened by the content that is no longer held. Only now, because no output leaves
    /// earlier, and frames of one byte would cost a WINDOW_UPDATE each. It is also known now whether the window is shut.
    pub(super) fn end_turn(&mut self, link: &mut Link, now: Instant) {
        // At half of what is not held: streams whose handlers pause must not keep from the others what these have used.
        let is_half = self.taken >= self.window_in.available();
        if is_half && self.taken > 0 && !link.is_ending() && self.phase == Phase::Open {
            let taken = core::mem::take(&mut self.taken);
            if self.window_in.give(taken) {
                encode::window_update(0, taken, link.output());
            }
        }
        let is_shut = self.is_shut_by_handlers();
        if let Some(since) = self.shut.turn(is_shut, now) {
            let uploads = self.streams.iter_mut().filter_map(|stream| stream.upload.as_mut());
            for upload in uploads.filter(|upload| !matches!(upload.kind, Kind::Closing)) {
                upload.excuse(since, now);
            }
        }
    }

    /// Whether the peer cannot send, since our window for the connection is full of content that handlers do not read. One
    /// that could go on if the peer read its answer does not count: else the peer could shut the window as it likes.
    fn is_shut_by_handlers(&self) -> bool {
        let pauses = |stream: &StreamState| {
            stream.unsent.is_none() && stream.upload.as_ref().is_some_and(|it| it.held() > 0)
        };
        self.window_in.available() == 0 && self.streams.iter().any(pauses)
    }

    /// What to do with a frame for a stream that is not open.
    pub(super) fn on_closed(&self, id: u32) -> Result<Closed, Error> {
        match self.going {
            _ if id.is_multiple_of(2) || id > self.opened => {
                let reason = "a frame names a stream that is idle";
                Err(Error::connection(ErrorCode::PROTOCOL_ERROR, reason))
            }
            Going::Final(last) if id > last => Ok(Closed::ByUs),
            _ if self.reset.contains(&id) => Ok(Closed::ByUs),
            _ => Ok(Closed::ByPeer),
        }
    }

    /// A stream has something to hand on.
    pub(super) fn list(&mut self, id: u32) {
        if let Some(upload) = self.streams.get_mut(id).and_then(|stream| stream.upload.as_mut())
            && !core::mem::replace(&mut upload.is_listed, true)
        {
            self.ready.push_back(id);
        }
    }

    /// An error of a stream, if it is open: it is reset, which is reported to the code that works for it.
    ///
    /// # Errors
    /// There were too many of them.
    pub(super) fn fail_stream<'i>(
        &mut self,
        link: &mut Link,
        (id, code): (u32, ErrorCode),
        limits: &Limits,
        now: Instant,
    ) -> Result<Found<'i>, Error> {
        if id > self.opened {
            // RST_STREAM must not name an idle stream (RFC 9113 §6.4).
            return Err(Error::connection(code, "a frame about an idle stream is wrong"));
        }
        self.report.resets_out += 1;
        self.calm.reset(now, &limits.http2)?;
        if self.reset(link, id, code, now) {
            return Ok(Found::Reset(id));
        }
        self.send_reset(link, id, code);
        Ok(Found::Wait)
    }

    /// Bytes of memory it has allocated on the heap.
    pub(super) fn allocated(&self) -> usize {
        self.fields_in.allocated()
            + self.fields_out.allocated()
            + self.streams.allocated()
            + self.block.allocated()
            + (self.ready.capacity() + self.reset.capacity()) * size_of::<u32>()
    }
}

/// How long handlers have kept the window of a connection shut: its peer cannot be late while it must not send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shut {
    /// Since when they do; `MAX` if they do not.
    since: Instant,
    /// For how long they did before.
    before: Duration,
}

impl Shut {
    const NEVER: Shut = Shut { since: Instant::MAX, before: Duration::ZERO };

    #[inline]
    pub(super) fn is_shut(&self) -> bool {
        self.since != Instant::MAX
    }

    /// For how long it was, in all, at `now`.
    pub(super) fn total(&self, now: Instant) -> Duration {
        self.before + if self.is_shut() { now - self.since } else { Duration::ZERO }
    }

    /// Notes whether the window is shut at the end of a turn. Returns since when it was shut, if it no longer is.
    #[inline]
    fn turn(&mut self, is_shut: bool, now: Instant) -> Option<Instant> {
        if is_shut == self.is_shut() {
            return None;
        }
        self.before = self.total(now);
        let since = core::mem::replace(&mut self.since, if is_shut { now } else { Instant::MAX });
        (!is_shut).then_some(since)
    }
}

/// Who has closed a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// We, so that frames of it may be on their way.
    ByUs,
    /// The peer, or both by ending it.
    ByPeer,
}
