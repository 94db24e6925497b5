//! Encodes responses into connections, and holds what all responses need: the limits, the date, and buffers
//! to write to.

use std::time::Duration;

use bytes::Bytes;
use highwater_core::http::{FieldWriter, LengthMismatch, Limits, Payload};
use highwater_core::http_date;
use highwater_core::time::{Clock, Instant, UnixSeconds};

use super::protocol::Stream;
use crate::app::{BodyRepr, ByteStream, FixedResponse, Guarded, OnUpgrade, Response, StreamFailed};

/// Send buffers kept for reuse, and the size beyond which one is not kept.
const SPARE_BUFFERS_MAX: usize = 256;
const SPARE_BUFFER_SIZE_MAX: usize = 64 * 1024;

/// Up to this size an owned body is copied behind its head; a larger one is sent as it is.
const COPY_MAX: usize = 8 * 1024;

/// What a new send buffer holds without growing: a head and a small body.
const BUFFER_SIZE: usize = 512;

/// How long a `Date` is used before the wall clock is read again. Its resolution is one second.
const DATE_AGE_MAX: Duration = Duration::from_millis(50);

/// The limits, the `Date` of the second, and the spare send buffers of one worker.
pub(super) struct Encoder {
    pub(super) limits: Limits,
    date: [u8; 29],
    date_of: UnixSeconds,
    /// When to read the wall clock again.
    date_until: Instant,
    spare: Vec<Vec<u8>>,
}

/// What follows a response's head.
pub(super) enum Rest {
    /// Nothing: it is encoded whole.
    None,
    /// Content is to be encoded as it comes.
    Stream { content: ByteStream, is_events: bool },
    /// The connection now belongs to another protocol.
    Upgrade(OnUpgrade),
}

impl Encoder {
    pub(super) fn new(limits: Limits, now: Instant, today: UnixSeconds) -> Self {
        let date = http_date::format(today);
        Encoder { limits, date, date_of: today, date_until: now, spare: Vec::new() }
    }

    /// Brings the date up to date.
    #[inline]
    pub(super) fn refresh_date(&mut self, now: Instant, clock: &impl Clock) {
        if now < self.date_until {
            return;
        }
        self.date_until = now + DATE_AGE_MAX;
        let today = clock.unix_time();
        if today != self.date_of {
            self.date_of = today;
            self.date = http_date::format(today);
        }
    }

    /// Gives the stream's link a buffer if it has none; `recycle` takes it back.
    #[inline]
    pub(super) fn lend(&mut self, to: &mut impl Stream) {
        if to.link().needs_buffer() {
            let spare = self.spare.pop();
            to.lend_buffer(spare.unwrap_or_else(|| Vec::with_capacity(BUFFER_SIZE)));
        }
    }

    /// Keeps a buffer whose content was sent.
    #[inline]
    pub(super) fn recycle(&mut self, mut buffer: Vec<u8>) {
        let useful = (1..=SPARE_BUFFER_SIZE_MAX).contains(&buffer.capacity());
        if useful && self.spare.len() < SPARE_BUFFERS_MAX {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Encodes a response that was prepared at start-up.
    #[inline]
    pub(super) fn fixed<S: Stream>(&mut self, to: &mut S, now: Instant, fixed: &FixedResponse) {
        self.lend(to);
        let fields = |fields: &mut S::Fields<'_>| fields.push_prepared(fixed.fields());
        let payload = Payload::Shared(fixed.body().clone());
        to.respond(fixed.status(), &self.date, &self.limits, now, fields, payload);
    }

    /// Encodes `response`, as far as its content is ready.
    #[inline(always)]
    pub(super) fn response(
        &mut self,
        to: &mut impl Stream,
        now: Instant,
        response: &mut Response,
    ) -> Rest {
        // Two functions: most responses leave nothing to do, and returning that through memory is
        // measurable.
        if self.copied(to, now, response) { Rest::None } else { self.moved(to, now, response) }
    }

    /// Encodes `response` if its content is one to be copied; else does nothing, and returns false.
    #[inline(never)]
    pub(super) fn copied(
        &mut self,
        to: &mut impl Stream,
        now: Instant,
        response: &Response,
    ) -> bool {
        // It is copied from its place.
        let bytes = match response.body().repr() {
            BodyRepr::Empty => &b""[..],
            BodyRepr::Static(bytes) => *bytes,
            BodyRepr::Pooled(bytes) => &bytes[..],
            BodyRepr::Owned(bytes) if bytes.len() <= COPY_MAX => &bytes[..],
            BodyRepr::Shared(bytes) if bytes.len() <= COPY_MAX => &bytes[..],
            _ => return false,
        };
        self.head(to, now, response, Payload::Bytes(bytes));
        true
    }

    /// Encodes the head of `response`, with its content if that is ready. Returns whether content follows.
    #[inline(always)]
    fn head<S: Stream>(
        &mut self,
        to: &mut S,
        now: Instant,
        response: &Response,
        payload: Payload<'_>,
    ) -> bool {
        self.lend(to);
        let fields = |fields: &mut S::Fields<'_>| response.write_fields(fields);
        to.respond(response.status().as_u16(), &self.date, &self.limits, now, fields, payload)
    }

    /// Encodes `response`, whose content is moved.
    pub(super) fn moved(
        &mut self,
        to: &mut impl Stream,
        now: Instant,
        response: &mut Response,
    ) -> Rest {
        let mut respond = |response: &Response, payload| self.head(to, now, response, payload);
        match response.take_body().into_repr() {
            BodyRepr::Owned(bytes) => respond(response, Payload::Shared(bytes.into())),
            BodyRepr::Shared(bytes) => respond(response, Payload::Shared(shareable(bytes))),
            BodyRepr::Stream(stream, length) => {
                let more = respond(response, Payload::Stream(length));
                let is_events = is_event_stream(response);
                return if more { Rest::Stream { content: stream, is_events } } else { Rest::None };
            }
            BodyRepr::Upgrade(upgrade) => {
                respond(response, Payload::Upgrade);
                return Rest::Upgrade(upgrade);
            }
            BodyRepr::Empty | BodyRepr::Static(_) | BodyRepr::Pooled(_) => {
                unreachable!("these were copied")
            }
        };
        Rest::None
    }
}

/// Bytes that a driver may drop: their owner may be application code, and panic.
fn shareable(bytes: Bytes) -> Bytes {
    Bytes::from_owner(Guarded::new(bytes))
}

/// Appends a piece of streamed content.
pub(super) fn push(to: &mut impl Stream, piece: Guarded<Bytes>) -> Result<(), LengthMismatch> {
    if piece.len() <= COPY_MAX {
        to.push_body(&piece)
    } else {
        to.push_shared(Bytes::from_owner(piece))
    }
}

/// Ends streamed content that has no further piece, with its trailers.
pub(super) fn finish(
    to: &mut impl Stream,
    content: &mut ByteStream,
    limits: &Limits,
    now: Instant,
) -> Result<(), LengthMismatch> {
    let trailers = content.take_trailers().map_err(|StreamFailed| LengthMismatch)?;
    to.finish_body(limits, now, |fields| {
        for (name, value) in trailers.iter() {
            fields.push(name.as_str(), value.as_bytes());
        }
    })
}

/// Whether the response is a stream of server-sent events, whose end no client waits for.
fn is_event_stream(response: &Response) -> bool {
    const EVENTS: &[u8] = b"text/event-stream";
    let media_type = response.header("content-type").and_then(|value| value.get(..EVENTS.len()));
    media_type.is_some_and(|media_type| media_type.eq_ignore_ascii_case(EVENTS))
}
