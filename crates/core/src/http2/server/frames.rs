//! What does each frame mean for the connection and its streams?

use alloc::boxed::Box;
use core::mem;

use super::super::Frame;
use super::super::encode;
use super::super::error::{Error, ErrorCode};
use super::super::settings::{Setting, Settings};
use super::found::Found;
use super::head::{Decoded, Scratch};
use super::priority::Priority;
use super::protocol::DRAIN_PING;
use super::state::{BlockOf, Closed, Going, Phase, State};
use super::streams::{Reply, StreamState};
use super::upload::{Kind, Upload};
use crate::http::{Limits, Method, Reject, make_room};
use crate::link::Link;
use crate::time::Instant;

type Result<T> = core::result::Result<T, Error>;

/// A piece of content of at least this many bytes allows further control frames; a smaller one only if a request ends with it.
const PAYING_MIN: usize = 1024;

const WINDOW_TOO_LARGE: &str = "a window exceeds 2^31-1";

const fn protocol(reason: &'static str) -> Error {
    Error::connection(ErrorCode::PROTOCOL_ERROR, reason)
}

impl State {
    /// Any frame but DATA.
    pub(super) fn on_frame<'i>(
        &mut self,
        link: &mut Link,
        frame: Frame<'_>,
        scratch: &mut Scratch,
        limits: &Limits,
        now: Instant,
    ) -> Result<Found<'i>> {
        if self.phase == Phase::Settings && !matches!(frame, Frame::Settings(_)) {
            return Err(protocol("the first frame is not SETTINGS"));
        }
        match frame {
            Frame::Headers { stream, fragment, is_whole, is_last, depends_on } => {
                if stream.is_multiple_of(2) {
                    return Err(protocol("a client opens a stream with an even number"));
                }
                let depends_on_itself = depends_on == Some(stream);
                let since = if is_whole { Instant::MAX } else { now };
                self.block_of = BlockOf { stream, is_last, depends_on_itself, since };
                if is_whole {
                    return self.on_block(link, fragment, scratch, limits, now);
                }
                self.block.add(fragment, State::block_max(limits))?;
            }
            Frame::Continuation { fragment, is_whole, .. } => {
                self.block.add(fragment, State::block_max(limits))?;
                if is_whole {
                    self.block_of.since = Instant::MAX;
                    let block = self.block.take();
                    return self.on_block(link, &block, scratch, limits, now);
                }
            }
            Frame::Reset { stream, .. } => return self.on_reset(link, stream, limits, now),
            other => {
                self.calm.control(now, &limits.http2)?;
                self.on_control(link, other, now)?;
            }
        }
        Ok(Found::Wait)
    }

    /// The largest field block, as it is sent. Twice what its fields may take, so that most of those that exceed it are
    /// answered with 431 and do not end the connection.
    fn block_max(limits: &Limits) -> usize {
        2 * State::fields_max(limits)
    }

    /// A frame that neither opens nor ends a stream.
    fn on_control(&mut self, link: &mut Link, frame: Frame<'_>, now: Instant) -> Result<()> {
        match frame {
            Frame::Settings(settings) => {
                self.phase = Phase::Open;
                self.on_settings(&settings)?;
                encode::settings_ack(link.output());
            }
            Frame::SettingsAck => self.is_settled = true,
            Frame::Ping(bytes) => encode::ping_ack(bytes, link.output()),
            Frame::PingAck(DRAIN_PING) if matches!(self.going, Going::Announced(_)) => {
                self.finalize(link);
            }
            Frame::WindowUpdate { stream, increment } => {
                link.note_movement(now);
                self.on_window(stream, increment)?;
            }
            // Nothing is pushed here (RFC 9218 §7.1).
            Frame::PriorityUpdate { stream, .. } if stream.is_multiple_of(2) => {
                return Err(protocol("a priority is for no stream of a request"));
            }
            Frame::PriorityUpdate { stream, value } => {
                let priority = Priority::parse(value);
                match self.streams.get_mut(stream) {
                    Some(stream) => stream.priority = priority,
                    None if stream > self.opened => self.early_priority = Some((stream, priority)),
                    None => {}
                }
            }
            Frame::PushPromise { .. } => return Err(protocol("a client pushes")),
            // A client that leaves opens no more streams, and closes the connection when it has its answers.
            _ => {}
        }
        Ok(())
    }

    fn on_settings(&mut self, settings: &Settings<'_>) -> Result<()> {
        let mut window = self.initial_window;
        for setting in settings.iter() {
            match setting {
                Setting::HeaderTableSize(size) => self.fields_out.set_limit(size as usize),
                Setting::MaxFrameSize(size) => self.frame_max = size,
                Setting::InitialWindowSize(size) => window = size,
                _ => {}
            }
        }
        // Once, for the last of them: a frame has room for thousands, and there may be as many streams.
        let old = mem::replace(&mut self.initial_window, window);
        if old == window || self.streams.iter_mut().all(|stream| stream.window.resize(old, window))
        {
            return Ok(());
        }
        Err(Error::connection(ErrorCode::FLOW_CONTROL_ERROR, WINDOW_TOO_LARGE))
    }

    fn on_window(&mut self, id: u32, increment: u32) -> Result<()> {
        if id == 0 {
            return match self.window_out.give(increment) {
                true => Ok(()),
                false => Err(Error::connection(ErrorCode::FLOW_CONTROL_ERROR, WINDOW_TOO_LARGE)),
            };
        }
        match self.streams.get_mut(id) {
            Some(stream) => match stream.window.give(increment) {
                true => Ok(()),
                false => Err(Error::stream(id, ErrorCode::FLOW_CONTROL_ERROR, WINDOW_TOO_LARGE)),
            },
            None => self.on_closed(id).map(|_| ()),
        }
    }

    fn on_reset<'i>(
        &mut self,
        link: &mut Link,
        id: u32,
        limits: &Limits,
        now: Instant,
    ) -> Result<Found<'i>> {
        self.report.resets_in += 1;
        let Some(index) = self.streams.find(id) else {
            self.on_closed(id)?;
            self.calm.control(now, &limits.http2)?;
            return Ok(Found::Wait);
        };
        // An answer that the client's windows hold back has cost as much as one that is not given yet.
        let stream = &self.streams[index];
        if stream.reply != Reply::Given || stream.unsent.is_some() {
            self.calm.reset(now, &limits.http2)?;
        }
        self.remove(link, index, now);
        Ok(Found::Reset(id))
    }

    /// A whole field block: a head, or trailers.
    fn on_block<'i>(
        &mut self,
        link: &mut Link,
        block: &[u8],
        scratch: &mut Scratch,
        limits: &Limits,
        now: Instant,
    ) -> Result<Found<'i>> {
        let BlockOf { stream: id, is_last, depends_on_itself, .. } = self.block_of;
        let open = self.streams.find(id);
        scratch.begin(limits, open.is_some());
        let done =
            self.fields_in.decode(block, State::fields_max(limits), &mut |f| scratch.take(f))?;
        self.fields_in.trim();
        let decoded = scratch.finish(limits, done.is_too_large);
        if let Some(index) = open {
            return self.on_trailers(index, is_last, decoded, scratch);
        }
        if id <= self.opened {
            return match self.on_closed(id)? {
                Closed::ByUs => {
                    self.calm.control(now, &limits.http2)?; // Trailers, once for each stream.
                    Ok(Found::Wait)
                }
                Closed::ByPeer => {
                    let reason = "HEADERS on a stream that is closed";
                    Err(Error::connection(ErrorCode::STREAM_CLOSED, reason))
                }
            };
        }
        self.opened = id;
        if matches!(self.going, Going::Final(_)) {
            return Ok(Found::Wait); // The peer knows that it is not served.
        }
        let has_place = self.streams.len() < limits.http2.streams_max as usize;
        if !has_place || self.unsent > limits.http2.unsent_max {
            return self.refuse_stream(link, id, has_place, limits, now);
        }
        let wrong = |reason| Err(Error::stream(id, ErrorCode::PROTOCOL_ERROR, reason));
        let head = match decoded {
            Ok(_) if depends_on_itself => return wrong("a stream depends on itself"),
            Ok(head) if is_last && head.is_tunnel => {
                return wrong("a tunnel has ended before it began");
            }
            Ok(head) if is_last && head.content_length.is_some_and(|length| length > 0) => {
                return wrong("less content than content-length says");
            }
            Ok(head) => head,
            Err(reason) => return wrong(reason),
        };
        Ok(self.open(id, head, is_last, limits, now))
    }

    /// The stream is not served, and its request can be sent again. It `has_place` if only what waits for the client's
    /// windows is too much.
    fn refuse_stream<'i>(
        &mut self,
        link: &mut Link,
        id: u32,
        has_place: bool,
        limits: &Limits,
        now: Instant,
    ) -> Result<Found<'i>> {
        self.report.refused += 1;
        if has_place {
            self.calm.control(now, &limits.http2)?; // No setting says so: it cannot know.
        } else if self.is_settled || now >= self.settled_by {
            self.calm.reset(now, &limits.http2)?; // Before, it could not know.
        }
        self.send_reset(link, id, ErrorCode::REFUSED_STREAM);
        Ok(Found::Wait)
    }

    /// A request begins.
    fn open<'i>(
        &mut self,
        id: u32,
        head: Decoded,
        is_last: bool,
        limits: &Limits,
        now: Instant,
    ) -> Found<'i> {
        self.served = self.served.saturating_add(1);
        self.report.streams += 1;
        self.calm.work(&limits.http2);
        let early = self.early_priority.take_if(|(stream, _)| *stream <= id);
        let early = early.filter(|(stream, _)| *stream == id).map(|(_, priority)| priority);
        let priority = early.or(head.priority).unwrap_or(Priority::UNKNOWN);
        let mut stream = StreamState::new(id, self.initial_window, priority);
        stream.is_head = head.method == Method::Head;
        if !is_last {
            let window = State::stream_window(limits);
            let upload = Upload::new(window, head.content_length, head.expects_continue, now);
            stream.upload = Some(Box::new(upload));
        }
        let refused = head.refused;
        if refused.is_some() {
            stream.reply = Reply::Owed;
            if let Some(upload) = &mut stream.upload {
                upload.kind = Kind::Dropped;
            }
        }
        self.streams.open(stream);
        match refused {
            None => Found::Head(id),
            Some(reject) => Found::Reject(id, reject),
        }
    }

    /// The fields behind a request's content.
    fn on_trailers<'i>(
        &mut self,
        index: usize,
        is_last: bool,
        decoded: core::result::Result<Decoded, &'static str>,
        scratch: &Scratch,
    ) -> Result<Found<'i>> {
        let stream = &mut self.streams[index];
        let id = stream.id;
        let wrong = |code, reason| Err(Error::stream(id, code, reason));
        let Some(upload) = stream.upload.as_mut().filter(|upload| !upload.has_ended) else {
            return wrong(ErrorCode::STREAM_CLOSED, "HEADERS behind the end of a request");
        };
        if !is_last {
            return wrong(ErrorCode::PROTOCOL_ERROR, "trailers do not end their request");
        }
        if upload.is_read() || matches!(upload.kind, Kind::Asked | Kind::Closing) {
            // Only DATA and frames about the stream are allowed there (RFC 9113 §8.5).
            return wrong(ErrorCode::PROTOCOL_ERROR, "HEADERS in a tunnel");
        }
        match decoded {
            Err(reason) => return wrong(ErrorCode::PROTOCOL_ERROR, reason),
            Ok(Decoded { refused: Some(_), .. }) => {
                return wrong(ErrorCode::ENHANCE_YOUR_CALM, "trailers are larger than allowed");
            }
            Ok(_) => {}
        }
        if matches!(upload.kind, Kind::Streaming) {
            upload.trailers = scratch.trailers();
        }
        self.end_content(index)
    }

    /// DATA, or a piece of it: stream, content, bytes of the windows, and whether the request ends with it.
    pub(super) fn on_data<'i>(
        &mut self,
        link: &mut Link,
        (id, piece, flow, is_last): (u32, &'i [u8], u32, bool),
        limits: &Limits,
        now: Instant,
    ) -> Result<Found<'i>> {
        const FLOW: ErrorCode = ErrorCode::FLOW_CONTROL_ERROR;
        if self.phase == Phase::Settings {
            return Err(protocol("the first frame is not SETTINGS"));
        }
        if !self.window_in.take(flow) {
            return Err(Error::connection(
                FLOW,
                "more content than the connection's window allows",
            ));
        }
        match piece.len() {
            _ if is_last => self.calm.work(&limits.http2),
            0 => self.calm.control(now, &limits.http2)?,
            // Content that comes byte by byte must not allow other frames.
            1..PAYING_MIN => {}
            _ => self.calm.work(&limits.http2),
        }
        let Some(index) = self.streams.find(id) else {
            self.give_back(flow);
            return match self.on_closed(id)? {
                Closed::ByUs => Ok(Found::Wait),
                Closed::ByPeer => {
                    Err(Error::stream(id, ErrorCode::STREAM_CLOSED, "DATA on a closed stream"))
                }
            };
        };
        let stream = &mut self.streams[index];
        let wrong = |code, reason| Err(Error::stream(id, code, reason));
        let Some(upload) = stream.upload.as_mut().filter(|upload| !upload.has_ended) else {
            self.give_back(flow);
            return wrong(ErrorCode::STREAM_CLOSED, "DATA behind the end of a request");
        };
        let is_within = upload.window.take(flow);
        let is_short = match &mut upload.left {
            None => true,
            Some(left) => left.checked_sub(piece.len() as u64).map(|rest| *left = rest).is_some(),
        };
        if !is_within || !is_short {
            self.give_back(flow);
            return match is_within {
                true => wrong(ErrorCode::PROTOCOL_ERROR, "more content than content-length says"),
                false => wrong(FLOW, "more content than the stream's window allows"),
            };
        }
        upload.progress = now;
        upload.bytes += piece.len() as u64;
        upload.continue_owed = false; // A peer that sends content does not wait for the 100.
        link.note_movement(now);
        self.on_content(link, index, (piece, flow, is_last), now)
    }

    /// Content within its bounds: it is kept, handed on, or dropped.
    fn on_content<'i>(
        &mut self,
        link: &mut Link,
        index: usize,
        (piece, flow, is_last): (&'i [u8], u32, bool),
        now: Instant,
    ) -> Result<Found<'i>> {
        let stream = &mut self.streams[index];
        let (id, is_parked) = (stream.id, stream.is_parked);
        let Some(upload) = &mut stream.upload else { return Ok(Found::Wait) };
        let len = piece.len() as u64;
        let mut found = Found::Wait;
        let mut handed_on = flow;
        match &mut upload.kind {
            Kind::Collecting(_, body) if body.len() as u64 + len > upload.max => {
                upload.drop_rest();
                stream.reply = Reply::Owed;
                found = Found::Reject(id, Reject::BodyTooLarge);
            }
            Kind::Collecting(_, body) => {
                let to_come = upload.left.map(|left| left + len);
                make_room(body.growing(), piece.len(), to_come);
                body.growing().extend_from_slice(piece);
            }
            Kind::Streaming if len > upload.max => {
                handed_on += upload.drop_rest() as u32;
                found = Found::BodyFailed(id, Reject::BodyTooLarge);
            }
            kind @ (Kind::Streaming | Kind::Asked | Kind::Tunnel) => {
                let is_content = matches!(kind, Kind::Streaming);
                if is_content {
                    upload.max -= len;
                }
                if is_parked || upload.room == 0 || upload.held() > 0 {
                    upload.hold(piece);
                    handed_on -= len as u32;
                } else if len > 0 {
                    upload.room = upload.room.saturating_sub(piece.len());
                    found = if is_content { Found::Body(id, piece) } else { Found::Raw(id, piece) };
                }
            }
            Kind::TunnelEnded | Kind::New | Kind::Closing | Kind::Dropped => {}
        }
        let is_over = is_last && matches!(upload.kind, Kind::Closing);
        self.handed_on(link, id, handed_on);
        if is_over {
            self.remove(link, index, now);
        } else if is_last {
            let ended = self.end_content(index)?;
            if let Found::Wait = found {
                found = ended;
            }
        }
        Ok(found)
    }

    /// Content was handed on, or is not wanted: the peer may send as much more.
    pub(super) fn handed_on(&mut self, link: &mut Link, id: u32, bytes: u32) {
        self.give_back(bytes);
        let Some(upload) = self.streams.get_mut(id).and_then(|stream| stream.upload.as_mut())
        else {
            return;
        };
        upload.taken += bytes;
        // What nobody wants needs no room.
        let is_wanted = !upload.has_ended && !matches!(upload.kind, Kind::Dropped | Kind::Closing);
        let half = (upload.window.available() + upload.taken + upload.held() as u32) / 2;
        if is_wanted && upload.taken >= half && !link.is_ending() {
            let taken = mem::take(&mut upload.taken);
            if upload.window.give(taken) {
                encode::window_update(id, taken, link.output());
            }
        }
    }

    /// All of a request's content has come.
    fn end_content<'i>(&mut self, index: usize) -> Result<Found<'i>> {
        let stream = &mut self.streams[index];
        let id = stream.id;
        let Some(upload) = &mut stream.upload else { return Ok(Found::Wait) };
        if upload.left.is_some_and(|left| left > 0) && !matches!(upload.kind, Kind::Dropped) {
            let reason = "less content than content-length says";
            return Err(Error::stream(id, ErrorCode::PROTOCOL_ERROR, reason));
        }
        upload.has_ended = true;
        match upload.kind {
            Kind::Collecting(..) => {
                stream.reply = Reply::Owed;
                return Ok(Found::Collected(id));
            }
            Kind::Streaming | Kind::Tunnel => self.list(id),
            Kind::Asked | Kind::TunnelEnded => {} // The tunnel gets it once it is open.
            Kind::New | Kind::Closing | Kind::Dropped => stream.forget_content(),
        }
        Ok(Found::Wait)
    }
}
