//! Encodes responses into connections: what every response needs besides itself, in one place.

use bytes::Bytes;
use highwater_core::http1::{Connection, Fields, LengthMismatch, Limits, Payload};
use highwater_core::time::Instant;

use crate::app::{BodyRepr, ByteStream, FixedResponse, Guarded, OnUpgrade, Response};

/// Send buffers kept for reuse, and the size beyond which one is not kept.
const SPARE_BUFFERS_MAX: usize = 256;
const SPARE_BUFFER_SIZE_MAX: usize = 64 * 1024;

/// Up to this size an owned body is copied behind its head; a larger one is sent as it is.
const COPY_MAX: usize = 8 * 1024;

/// What a new send buffer holds without growing: a head and a small body.
const BUFFER_SIZE: usize = 512;

/// The limits, the `Date` of the second, and the spare send buffers of one worker.
pub(super) struct Responder {
    pub(super) limits: Limits,
    pub(super) date: [u8; 29],
    spare: Vec<Vec<u8>>,
}

/// What a response leaves to be done after its head.
pub(super) enum Rest {
    /// Nothing: it is encoded whole.
    None,
    /// Content is to be encoded as it comes.
    Stream { content: ByteStream, is_events: bool },
    /// The connection now belongs to another protocol.
    Upgrade(OnUpgrade),
}

impl Responder {
    pub(super) fn new(limits: Limits, date: [u8; 29]) -> Self {
        Responder { limits, date, spare: Vec::new() }
    }

    /// Gives the connection a buffer if it has none; it comes back with `recycle`.
    #[inline]
    pub(super) fn lend(&mut self, connection: &mut Connection) {
        if connection.needs_buffer() {
            let spare = self.spare.pop();
            connection.lend_buffer(spare.unwrap_or_else(|| Vec::with_capacity(BUFFER_SIZE)));
        }
    }

    /// Keeps a buffer whose content is sent.
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
    pub(super) fn fixed(&mut self, to: &mut Connection, now: Instant, fixed: &FixedResponse) {
        self.lend(to);
        let fields = |fields: &mut Fields<'_>| fields.push_lines(fixed.fields());
        let payload = Payload::Shared(fixed.body().clone());
        to.respond(fixed.status(), &self.date, &self.limits, now, fields, payload);
    }

    /// Encodes `response`, as far as it is there.
    #[inline]
    pub(super) fn response(
        &mut self,
        to: &mut Connection,
        now: Instant,
        response: &mut Response,
    ) -> Rest {
        self.lend(to);
        let (date, limits) = (&self.date, &self.limits);
        let status = response.status().as_u16();
        let respond = |to: &mut Connection, response: &Response, payload: Payload<'_>| {
            let fields = |fields: &mut Fields<'_>| response.write_fields(fields);
            to.respond(status, date, limits, now, fields, payload)
        };
        // What is copied is copied from where it is; only what others share has to be moved.
        let copied = match response.body().repr() {
            BodyRepr::Empty => Some(&b""[..]),
            BodyRepr::Static(bytes) => Some(*bytes),
            BodyRepr::Pooled(bytes) => Some(&bytes[..]),
            BodyRepr::Owned(bytes) if bytes.len() <= COPY_MAX => Some(&bytes[..]),
            BodyRepr::Shared(bytes) if bytes.len() <= COPY_MAX => Some(&bytes[..]),
            _ => None,
        };
        if let Some(bytes) = copied {
            respond(to, response, Payload::Bytes(bytes));
            return Rest::None;
        }
        match response.take_body().into_repr() {
            BodyRepr::Owned(bytes) => respond(to, response, Payload::Shared(bytes.into())),
            BodyRepr::Shared(bytes) => respond(to, response, Payload::Shared(shareable(bytes))),
            BodyRepr::Stream(stream, length) => {
                let more = respond(to, response, Payload::Stream(length));
                let is_events = is_event_stream(response);
                return if more { Rest::Stream { content: stream, is_events } } else { Rest::None };
            }
            BodyRepr::Upgrade(upgrade) => {
                respond(to, response, Payload::Upgrade);
                return Rest::Upgrade(upgrade);
            }
            BodyRepr::Empty | BodyRepr::Static(_) | BodyRepr::Pooled(_) => {
                unreachable!("these are copied above")
            }
        };
        Rest::None
    }
}

/// Bytes that a driver may drop: their owner may be the application's, and panic.
fn shareable(bytes: Bytes) -> Bytes {
    Bytes::from_owner(Guarded::new(bytes))
}

/// Appends a piece of streamed content.
pub(super) fn push(to: &mut Connection, piece: Guarded<Bytes>) -> Result<(), LengthMismatch> {
    if piece.len() <= COPY_MAX {
        to.push_body(&piece)
    } else {
        to.push_shared(Bytes::from_owner(piece))
    }
}

/// Whether the response is a stream of server-sent events, which has no end that a client waits for.
fn is_event_stream(response: &Response) -> bool {
    const EVENTS: &[u8] = b"text/event-stream";
    let media_type = response.header("content-type").and_then(|value| value.get(..EVENTS.len()));
    media_type.is_some_and(|media_type| media_type.eq_ignore_ascii_case(EVENTS))
}
