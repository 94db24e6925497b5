//! The client's side of HTTP/2, sans-I/O: requests on streams, and their answers.
//!
//! ```text
//!  begin ─▶ open ──HEADERS──▶ Status, Field … ──DATA──▶ Content … ──HEADERS──▶ Trailer … ──END_STREAM──▶ End
//!             └──RST_STREAM, GOAWAY, an answer that is not allowed, cancel──▶ Failed
//! ```
//!
//! [`Connection`] takes the bytes that a server sends and reports their meaning for each stream; [`Connection::output`] has
//! the bytes to send. Answers are checked as RFC 9113 §8 requires: their pseudo-fields, names and length. It opens no more
//! streams than the server allows ([`Connection::room`]), and sends no more content than its windows do. A request has its
//! content at once ([`Connection::begin`]), or piece by piece ([`Connection::open`]); the latter is also how a tunnel is
//! opened (RFC 8441), if the server allows it ([`Connection::allows_connect`]).
//!
//! Bounded: a field block by [`Config::fields_max`], a frame by 16 KiB; request content that waits for a window is the
//! caller's to bound. Content that arrives is reported, never kept, so both windows are opened again at once.

mod event;
mod head;
mod request;
mod stream;

use alloc::vec::Vec;

pub use event::{Config, Event, Failure};
use head::Head;
use stream::Stream;

use super::hpack;
use super::settings::{FRAME_SIZE_DEFAULT, WINDOW_DEFAULT, WINDOW_MAX};
use super::{
    Block, Decoder, Error, ErrorCode, Frame, PREFACE, Scope, Setting, Settings, Window, encode,
};

/// The largest stream identifier.
const STREAM_MAX: u32 = WINDOW_MAX;
/// Answers to PING and SETTINGS that may stand in the output: a server that floods us and reads nothing is given up.
const OWED_MAX: u32 = 1000;

/// One connection to a server.
///
/// ```
/// use highwater_core::http2::client::{Config, Connection, Event};
/// use highwater_core::http2::hpack::Indexing;
/// use highwater_core::http2::{encode, hpack};
///
/// let mut client = Connection::new(Config::default());
/// let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "h"), (":path", "/")];
/// let stream = client.begin(false, b"", |add| {
///     fields.iter().for_each(|(name, value)| add(name.as_bytes(), value.as_bytes(), Indexing::Incremental));
/// });
/// assert!(client.output().starts_with(b"PRI * HTTP/2.0"));
///
/// // The server's settings, and its answer.
/// let (mut bytes, mut server) = (Vec::new(), hpack::Encoder::new());
/// encode::settings(&[], &mut bytes);
/// encode::headers(stream, true, 16_384, &mut bytes, |block| {
///     server.field(b":status", b"204", Indexing::Incremental, block);
/// });
/// let mut seen = Vec::new();
/// client.receive(&bytes, &mut |event| seen.push(std::format!("{event:?}"))).unwrap();
/// assert_eq!(seen, ["Settings", "Status(1, 204)", "End(1, 204)"]);
/// ```
#[derive(Clone, Debug)]
pub struct Connection {
    config: Config,
    decoder: Decoder,
    fields_in: hpack::Decoder,
    fields_out: hpack::Encoder,
    output: Vec<u8>,
    /// Answers in the output since it was taken.
    owed: u32,
    /// The open ones, by id.
    streams: Vec<Stream>,
    next_id: u32,
    window: Window,
    /// What has arrived since the connection's window for the server was opened.
    received: u32,
    /// An incomplete field block: its stream, and whether the answer ends with it.
    block: Block,
    block_of: (u32, bool),
    /// What the server allows.
    streams_max: u32,
    initial_window: u32,
    frame_max: u32,
    allows_connect: bool,
    /// Its settings have come.
    is_settled: bool,
    /// GOAWAY has come.
    is_leaving: bool,
}

impl Connection {
    /// A connection whose output begins with the preface, our settings and the connection's window.
    pub fn new(config: Config) -> Connection {
        let window = config.window.clamp(WINDOW_DEFAULT, WINDOW_MAX);
        let mut output = PREFACE.to_vec();
        encode::settings(
            &[Setting::EnablePush(false), Setting::InitialWindowSize(window)],
            &mut output,
        );
        if window > WINDOW_DEFAULT {
            encode::window_update(0, window - WINDOW_DEFAULT, &mut output);
        }
        Connection {
            config: Config { window, ..config },
            decoder: Decoder::default(),
            fields_in: hpack::Decoder::new(hpack::SIZE_DEFAULT),
            fields_out: hpack::Encoder::new(),
            output,
            owed: 0,
            streams: Vec::new(),
            next_id: 1,
            window: Window::default(),
            received: 0,
            block: Block::default(),
            block_of: (0, false),
            streams_max: u32::MAX,
            initial_window: WINDOW_DEFAULT,
            frame_max: FRAME_SIZE_DEFAULT,
            allows_connect: false,
            is_settled: false,
            is_leaving: false,
        }
    }

    /// The bytes to send. After sending them, call [`Connection::sent`].
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// The output has been taken.
    pub fn sent(&mut self) {
        self.output.clear();
        self.owed = 0;
    }

    /// How many streams may be begun now. Before the server's settings have come, any number.
    #[inline]
    pub fn room(&self) -> u32 {
        match self.is_leaving || self.next_id > STREAM_MAX {
            true => 0,
            false => self.streams_max.saturating_sub(self.streams.len() as u32),
        }
    }

    /// Whether the connection takes no further streams, ever.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving || self.next_id > STREAM_MAX
    }

    /// The streams that are open.
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// Whether the server's settings allow extended CONNECT; false before they have come.
    pub fn allows_connect(&self) -> bool {
        self.allows_connect
    }

    /// The most streams that the server allows at a time.
    pub fn streams_max(&self) -> u32 {
        self.streams_max
    }

    /// Takes everything that has arrived.
    ///
    /// # Errors
    /// The server broke a rule that ends the connection; GOAWAY is in the output, and all streams are lost.
    pub fn receive(
        &mut self,
        mut input: &[u8],
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Error> {
        // Taken out and put back, since its frames borrow it.
        let mut decoder = core::mem::take(&mut self.decoder);
        let result = loop {
            let handled = match decoder.next(&mut input) {
                Ok(None) => break Ok(()),
                Ok(Some(frame)) => self.on_frame(frame, on_event),
                Err(error) => Err(error),
            };
            match handled.map_err(|error| (error.scope, error)) {
                Ok(()) => {}
                Err((Scope::Stream(id), error)) => self.fail(id, error, on_event),
                Err((Scope::Connection, error)) => break Err(error),
            }
        };
        self.decoder = decoder;
        result.inspect_err(|error| {
            encode::go_away(0, error.code, error.reason.as_bytes(), &mut self.output);
        })
    }

    fn on_frame(
        &mut self,
        frame: Frame<'_>,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Error> {
        if !self.is_settled && !matches!(frame, Frame::Settings(_)) {
            let reason = "the server's first frame is not SETTINGS";
            return Err(Error::connection(ErrorCode::PROTOCOL_ERROR, reason));
        }
        match frame {
            Frame::Data { stream, piece, flow, is_last } => {
                self.on_data(stream, piece, flow, is_last, on_event)
            }
            Frame::Headers { stream, fragment, is_whole, is_last, .. } => {
                self.may_exist(stream)?;
                self.block_of = (stream, is_last);
                match is_whole {
                    true => self.on_block(fragment, on_event),
                    false => self.block.add(fragment, self.config.fields_max),
                }
            }
            Frame::Continuation { fragment, is_whole, .. } => {
                self.block.add(fragment, self.config.fields_max)?;
                if is_whole {
                    let block = self.block.take();
                    self.on_block(&block, on_event)?;
                }
                Ok(())
            }
            Frame::Reset { stream, code } => self.on_reset(stream, code, on_event),
            Frame::Settings(settings) => {
                self.is_settled = true;
                self.on_settings(settings)?;
                encode::settings_ack(&mut self.output);
                on_event(Event::Settings);
                self.owe()
            }
            Frame::Ping(bytes) => {
                encode::ping_ack(bytes, &mut self.output);
                self.owe()
            }
            Frame::GoAway { last, code, debug } => {
                on_event(Event::GoAway(code, debug));
                self.leave(last, code, on_event);
                Ok(())
            }
            Frame::WindowUpdate { stream, increment } => self.on_window(stream, increment),
            Frame::PushPromise { .. } => {
                let reason = "the server pushes, although we do not allow it";
                Err(Error::connection(ErrorCode::PROTOCOL_ERROR, reason))
            }
            Frame::SettingsAck
            | Frame::PingAck(_)
            | Frame::Priority { .. }
            | Frame::PriorityUpdate { .. }
            | Frame::Unknown(_) => Ok(()),
        }
    }

    fn on_reset(
        &mut self,
        id: u32,
        code: ErrorCode,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Error> {
        self.may_exist(id)?;
        if let Ok(index) = self.find(id) {
            self.streams.remove(index);
            let failure = match code {
                ErrorCode::REFUSED_STREAM => Failure::Refused,
                code => Failure::Reset(code),
            };
            on_event(Event::Failed(id, failure));
        }
        Ok(())
    }

    /// The server takes no further streams, and has processed none behind `last`.
    fn leave(&mut self, last: u32, code: ErrorCode, on_event: &mut impl FnMut(Event<'_>)) {
        self.is_leaving = true;
        let kept = self.streams.partition_point(|stream| stream.id <= last);
        for stream in self.streams.drain(kept..) {
            on_event(Event::Failed(stream.id, Failure::Unprocessed(code)));
        }
    }

    /// Refuses a stream that we never opened.
    fn may_exist(&self, id: u32) -> Result<(), Error> {
        match id % 2 == 1 && id < self.next_id {
            true => Ok(()),
            false => Err(Error::connection(
                ErrorCode::PROTOCOL_ERROR,
                "the server uses a stream that is not open",
            )),
        }
    }

    #[inline]
    fn find(&self, id: u32) -> Result<usize, usize> {
        self.streams.binary_search_by_key(&id, |stream| stream.id)
    }

    /// One more answer stands in the output.
    fn owe(&mut self) -> Result<(), Error> {
        self.owed += 1;
        match self.owed > OWED_MAX {
            true => {
                Err(Error::connection(ErrorCode::ENHANCE_YOUR_CALM, "the server pings without end"))
            }
            false => Ok(()),
        }
    }

    fn on_settings(&mut self, settings: Settings<'_>) -> Result<(), Error> {
        for setting in settings.iter() {
            match setting {
                Setting::HeaderTableSize(size) => self.fields_out.set_limit(size as usize),
                Setting::MaxConcurrentStreams(max) => self.streams_max = max,
                Setting::MaxFrameSize(size) => self.frame_max = size,
                Setting::EnableConnectProtocol(is_allowed) => self.allows_connect = is_allowed,
                Setting::InitialWindowSize(size) => {
                    let old = core::mem::replace(&mut self.initial_window, size);
                    if !self.streams.iter_mut().all(|stream| stream.window.resize(old, size)) {
                        return Err(Error::connection(
                            ErrorCode::FLOW_CONTROL_ERROR,
                            "a window exceeds 2^31-1",
                        ));
                    }
                    self.send_all();
                }
                Setting::EnablePush(true) => {
                    let reason = "a server must not announce SETTINGS_ENABLE_PUSH";
                    return Err(Error::connection(ErrorCode::PROTOCOL_ERROR, reason));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn on_window(&mut self, id: u32, increment: u32) -> Result<(), Error> {
        const TOO_LARGE: &str = "a window exceeds 2^31-1";
        if id == 0 {
            if !self.window.give(increment) {
                return Err(Error::connection(ErrorCode::FLOW_CONTROL_ERROR, TOO_LARGE));
            }
            self.send_all();
            return Ok(());
        }
        self.may_exist(id)?;
        if let Ok(index) = self.find(id) {
            if !self.streams[index].window.give(increment) {
                return Err(Error::stream(id, ErrorCode::FLOW_CONTROL_ERROR, TOO_LARGE));
            }
            self.send_rest(index);
        }
        Ok(())
    }

    #[inline]
    fn on_data(
        &mut self,
        id: u32,
        piece: &[u8],
        flow: u32,
        is_last: bool,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Error> {
        self.may_exist(id)?;
        self.received += flow;
        if self.received >= self.config.window / 2 {
            encode::window_update(0, core::mem::take(&mut self.received), &mut self.output);
        }
        // On a stream that was given up, content may still be on its way.
        let Ok(index) = self.find(id) else { return Ok(()) };
        let stream = &mut self.streams[index];
        let wrong = |reason| Err(Error::stream(id, ErrorCode::PROTOCOL_ERROR, reason));
        if stream.status == 0 {
            return wrong("content stands before the fields of its answer");
        }
        if let Some(missing) = &mut stream.missing {
            match missing.checked_sub(piece.len() as u64) {
                Some(left) => *missing = left,
                None => return wrong("more content than content-length says"),
            }
        }
        stream.received += flow;
        if stream.received >= self.config.window / 2 && !is_last {
            encode::window_update(id, core::mem::take(&mut stream.received), &mut self.output);
        }
        if !piece.is_empty() {
            on_event(Event::Content(id, piece));
        }
        if is_last { self.end(index, on_event) } else { Ok(()) }
    }

    /// The server has finished sending on a stream.
    #[inline]
    fn end(&mut self, index: usize, on_event: &mut impl FnMut(Event<'_>)) -> Result<(), Error> {
        let stream = &self.streams[index];
        let id = stream.id;
        if stream.missing.is_some_and(|missing| missing > 0) {
            let reason = "less content than content-length says";
            return Err(Error::stream(id, ErrorCode::PROTOCOL_ERROR, reason));
        }
        let stream = self.streams.remove(index);
        match stream.is_tunnel && stream.is_sent() {
            _ if stream.is_ended() => {}
            // Both directions of a tunnel end as those of a TCP connection do (RFC 8441 §4).
            true => encode::data(id, &[], true, &mut self.output),
            // It has answered before it had the whole request, and wants no more of it (RFC 9113 §8.1).
            false => encode::reset(id, ErrorCode::CANCEL, &mut self.output),
        }
        on_event(Event::End(id, stream.status));
        Ok(())
    }

    /// A whole field block: an interim answer, the beginning of the final one, or its trailers.
    fn on_block(
        &mut self,
        block: &[u8],
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Error> {
        let (id, is_last) = self.block_of;
        let found = self.find(id).ok();
        let is_trailers = found.is_some_and(|index| self.streams[index].status != 0);
        let mut head = Head {
            id,
            wants_fields: found.is_some() && self.config.fields,
            is_trailers,
            ..Head::default()
        };
        // Decoded in any case: the table of fields belongs to the connection.
        let done = self
            .fields_in
            .decode(block, self.config.fields_max, &mut |field| head.take(field, on_event))?;
        let Some(index) = found else { return Ok(()) };
        let wrong = |reason| Err(Error::stream(id, ErrorCode::PROTOCOL_ERROR, reason));
        if let Some(reason) = head.wrong {
            return wrong(reason);
        }
        if done.is_too_large {
            return wrong("the fields of an answer are larger than their limit");
        }
        let stream = &mut self.streams[index];
        match head.status {
            _ if is_trailers && !is_last => return wrong("trailers do not end their answer"),
            _ if is_trailers => return self.end(index, on_event),
            0 => return wrong("an answer has no :status"),
            100..200 if is_last => return wrong("an interim answer ends its stream"),
            100..200 => return Ok(()),
            status => stream.status = status,
        }
        if !head.wants_fields {
            on_event(Event::Status(id, head.status));
        }
        // What follows an accepted CONNECT is the other protocol (RFC 9113 §8.5).
        let has_length = !(stream.is_tunnel && matches!(head.status, 200..300));
        let has_content = has_length && !stream.is_head && !matches!(head.status, 204 | 304);
        stream.missing = head.length.filter(|_| has_content);
        if is_last { self.end(index, on_event) } else { Ok(()) }
    }

    /// An error of a stream: it is reset, and reported.
    fn fail(&mut self, id: u32, error: Error, on_event: &mut impl FnMut(Event<'_>)) {
        if let Ok(index) = self.find(id) {
            self.streams.remove(index);
            encode::reset(id, error.code, &mut self.output);
            on_event(Event::Failed(id, Failure::Malformed(error.reason)));
        }
    }
}

#[cfg(test)]
mod tests;
