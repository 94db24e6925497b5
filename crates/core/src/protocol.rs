//! What does a worker ask of the protocol of a connection, whichever it is?
//!
//! A [`Protocol`] turns the bytes of a connection into requests, and their answers into bytes. Each request with
//! its answer takes place on a *stream*, and every step and call about one carries its [`StreamId`]. HTTP/1 has one
//! stream, whose requests follow each other; other protocols have many at a time.
//!
//! ```text
//!  bytes ─▶ advance ─▶ Step ─┬─ Head(pending) ── look at the head ──▶ begin(plan) ─▶ Begun
//!                            ├─ Next(stream, …)    a request, a piece of its content, or nothing: Wait
//!                            └─ Reset(stream)      its peer no longer wants it
//!
//!  stream(id) ─▶ Stream:  respond, push_body, finish_body …          the answer
//!                         allow_body, drop_body, park …              the request's content
//! ```
//!
//! A protocol encodes into its [`Link`], and owns no socket and no clock. What it promises:
//!
//! * P1 A step names a stream whose head was found, or whose head is refused by it, and which is not over
//!   ([`Stream::is_over`]). Only [`Step::Reset`] may name one that is.
//! * P2 After [`Next::Request`] and [`Begun::Request`] one reply is owed on that stream; after a `Reject`, too.
//! * P3 [`Next::Wait`] means that nothing can be done before bytes come, output is taken, or a stream's method is
//!   called. Until then `advance` is called again.
//! * P4 A call about a stream that is over, or was reset, has no effect.
//! * P5 The protocol obeys the peer's limits, such as windows, by itself: it keeps content that may not be sent
//!   yet, and sends it as soon as it may.

use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;

use crate::http::{
    Body, BodyPlan, FieldWriter, Fields, Head, LengthMismatch, Limits, Payload, Reject,
};
use crate::link::Link;
use crate::time::Instant;

/// Names one stream of a connection. An id is used for one request, except [`StreamId::CONNECTION`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

impl StreamId {
    /// The connection as a whole: the only stream of a protocol that has none, for all its requests. A protocol
    /// with streams gives this id to none of them.
    pub const CONNECTION: StreamId = StreamId(0);
}

/// Which versions of HTTP a connection may speak: what its listener allows, or what its channel has negotiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// All: HTTP/2 if the first bytes are its preface (RFC 9113 §3.3, prior knowledge), else HTTP/1.
    #[default]
    Both,
    /// HTTP/1.0 and HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// A request whose handling can begin.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Request line and header fields.
    pub head: Head<'a>,
    /// The content.
    pub body: Body<'a>,
}

/// The next thing to do with a connection. `P` is a request whose head is complete.
#[derive(Debug)]
pub enum Step<'a, P> {
    /// A head is complete: look at it, then begin its request.
    Head(P),
    /// Something of a stream; [`Next::Wait`] is of none.
    Next(StreamId, Next<'a>),
    /// The peer has reset this stream: its answer is no longer wanted, and is not sent.
    Reset(StreamId),
}

/// The next thing to do with a stream.
#[derive(Debug)]
pub enum Next<'a> {
    /// Nothing to do before more bytes arrive, the owed reply is given, or output is taken.
    Wait,
    /// A request; a reply is owed from now on.
    Request(Request<'a>),
    /// The next piece of a streamed body.
    Body(&'a [u8]),
    /// The trailer fields of the streamed body, all of which has come; [`Next::BodyEnd`] follows. They are
    /// bounded like header fields, and those that trailers cannot be are left out: framing, routing,
    /// conditions, credentials, and how the content is to be read (RFC 9110 §6.5.1).
    Trailers(Fields<'a>),
    /// The streamed body is complete.
    BodyEnd,
    /// The streamed body will not be completed. The reply is still owed, and will be the last.
    BodyFailed(Reject),
    /// The input is not a valid request. A reply with its status is owed, and will be the last.
    Reject(Reject),
    /// Bytes of the protocol the connection was upgraded to.
    Raw(&'a [u8]),
    /// The peer of an upgraded connection has finished sending.
    RawEnd,
}

/// The result of beginning a request.
#[derive(Debug)]
pub enum Begun<'a> {
    /// It can be handled, with this content; a reply is owed from now on.
    Request(Body<'a>),
    /// Its content is being collected; [`Next::Request`] follows when all of it has come.
    Collecting,
    /// It is not valid. A reply with its status is owed, and will be the last.
    Reject(Reject),
}

/// What to do with a connection or a stream whose deadline has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// The deadline has moved; nothing to do.
    Early,
    /// Close without a reply.
    Close,
    /// Reset: the peer does not read.
    Reset,
    /// A reply with this refusal's status is owed on the stream, and will be its last.
    Reject(Reject),
    /// A streamed body has stalled: its handler gets an error. The reply is still owed.
    BodyFailed(Reject),
    /// Reset: one side has finished sending, and nothing that is waited for has made progress for too long.
    HalfClosed,
    /// The same of a stream. The connection goes on.
    HalfClosedStream,
    /// A stream was reset, whose peer does not read its answer. The connection goes on.
    Stalled,
    /// The connection was idle, or sent no request in time. The protocol has ended it, and has notified the peer.
    Ended,
}

/// Why a protocol has ended a connection with a message of its own, such as GOAWAY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The server drains, or wants no further requests on this connection.
    Drained,
    /// It was idle for too long, or has never sent a request.
    Idle,
    /// Its first bytes are not those of the protocol.
    Foreign,
    /// The peer broke a rule: the name of its error.
    Error(&'static str),
}

/// Events of a protocol with streams, to be counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Streams opened.
    pub streams: u32,
    /// Streams that the peer has reset.
    pub resets_in: u32,
    /// Streams that were reset for the peer's mistakes.
    pub resets_out: u32,
    /// Streams refused as too many.
    pub refused: u32,
    /// The connection was ended.
    pub close_reason: Option<CloseReason>,
}

impl Report {
    /// The counts since the last call.
    #[inline]
    pub fn take(&mut self) -> Option<Report> {
        match self {
            Report { streams: 0, resets_in: 0, resets_out: 0, refused: 0, close_reason: None } => {
                None
            }
            report => Some(core::mem::take(report)),
        }
    }
}

/// The server's side of one connection.
pub trait Protocol: Sized {
    /// Working memory that the connections of one worker share, each during one call.
    type Scratch: Default;
    /// A request whose head is complete.
    type Pending<'a>: Pending<'a>
    where
        Self: 'a;
    /// One stream, with what it needs of its connection.
    type Stream<'a>: Stream
    where
        Self: 'a;

    /// A connection accepted at `now`, or whose channel was established then. It may speak `versions`.
    fn new(now: Instant, versions: Versions) -> Self;

    // ---- inputs

    /// Finds the next thing to do in `input` and takes it off its front.
    fn advance<'r, 'i: 'r>(
        &'r mut self,
        link: &mut Link,
        input: &mut &'i [u8],
        scratch: &'r mut Self::Scratch,
        limits: &Limits,
        now: Instant,
    ) -> Step<'r, Self::Pending<'r>>;

    /// What the time `now` requires, and on which stream.
    fn on_deadline(
        &mut self,
        link: &mut Link,
        now: Instant,
        limits: &Limits,
    ) -> (StreamId, Expired);

    /// Answers the requests that have begun and no more; then the connection ends.
    fn drain(&mut self, link: &mut Link, now: Instant);

    /// The events of a turn are handled: adds what was held back to the link's output, as far as it may be sent.
    #[inline]
    fn flush(&mut self, _link: &mut Link, _limits: &Limits, _now: Instant) {}

    // ---- state

    /// One of its streams.
    fn stream<'s>(&'s mut self, link: &'s mut Link, id: StreamId) -> Self::Stream<'s>;

    /// Whether further input can be used now. While it cannot, reading should stop, so that TCP flow control
    /// holds the peer back.
    fn wants_input(&self, link: &Link, limits: &Limits) -> bool;

    /// Whether something of the input is held back that [`Protocol::advance`] could find now.
    #[inline]
    fn holds_input(&self) -> bool {
        false
    }

    /// Whether all input is used up, and [`Protocol::advance`] would only say so. A protocol that cannot tell
    /// cheaply says `false`.
    #[inline]
    fn is_used_up(&self, _link: &Link, _input: &[u8]) -> bool {
        false
    }

    /// Whether output is held back that [`Protocol::flush`] could add now.
    #[inline]
    fn holds_output(&self, _link: &Link, _limits: &Limits) -> bool {
        false
    }

    /// Since when the connection has been idle, if it is: it waits for a request, has no byte of one, and no
    /// output is waiting or in flight.
    fn idle_since(&self, link: &Link) -> Option<Instant>;

    /// When [`Protocol::on_deadline`] should be called; [`Instant::MAX`] for never.
    fn deadline(&self, link: &Link, limits: &Limits) -> Instant;

    /// What is to be counted since the last call.
    #[inline]
    fn take_report(&mut self) -> Option<Report> {
        None
    }

    // ---- large bodies that are collected: all that comes next is content

    /// A body for which all input is meant: where its next bytes go, and how many it lacks. A worker may put input
    /// there that no call of [`Protocol::advance`] has seen, then says so with [`Protocol::took`].
    #[inline]
    fn collecting(&mut self) -> Option<(&mut Vec<u8>, u64)> {
        None
    }

    /// So many bytes of that body are where they go.
    #[inline]
    fn took(&mut self, _len: usize, _now: Instant) {}

    /// Whether the current request, or else the last one, has a body like that: the next may have one, too.
    #[inline]
    fn is_bulky(&self) -> bool {
        false
    }

    /// Bytes of memory it has allocated on the heap, without its link.
    fn allocated(&self) -> usize;
}

/// A request to be begun; its head decides how. Until then, none of its content was read.
pub trait Pending<'a> {
    /// On which stream it is.
    fn stream(&self) -> StreamId;

    /// The head. It is made by each call, and outlives the pending request.
    fn head(&self) -> Head<'a>;

    /// Makes the head in its place: one that is returned may be copied on its way.
    #[inline(always)]
    fn write_head(&self, to: &mut Head<'a>) {
        *to = self.head();
    }

    /// Begins the request, and reads its content from the front of `input` as `plan` says.
    fn begin<'i: 'a>(
        self,
        link: &mut Link,
        input: &mut &'i [u8],
        plan: BodyPlan,
        limits: &Limits,
        now: Instant,
    ) -> Begun<'a>;
}

/// The progress of a streamed body that its handler waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upload {
    /// Since when its handler has waited without a pause.
    pub since: Instant,
    /// How many bytes its route still accepts.
    pub left: u64,
    /// For how long its peer could not send on this connection, in all: other handlers did not read.
    pub shut_for: Duration,
}

/// One stream of a connection: the current request, and its answer.
pub trait Stream {
    /// Writes header and trailer fields.
    type Fields<'f>: FieldWriter;

    // ---- the link

    /// The link of its connection.
    fn link(&self) -> &Link;

    /// Bytes of answers that are encoded or kept, and not taken yet, on all streams.
    #[inline]
    fn pending(&self) -> usize {
        self.link().pending()
    }

    /// Lends its link an empty buffer: see [`Link::needs_buffer`].
    fn lend_buffer(&mut self, buffer: Vec<u8>);

    /// Gives back the lent buffer, if it is empty: see [`Link::reclaim_buffer`].
    fn reclaim_buffer(&mut self) -> Vec<u8>;

    // ---- the request

    /// Whether it is a `HEAD`, so that its reply has no content.
    fn is_head(&self) -> bool;

    /// Whether its content is complete, so that an upgrade may follow.
    fn is_request_complete(&self) -> bool;

    /// Memory of the body that is being collected, in bytes; 0 if none is.
    fn collected(&self) -> usize;

    /// Memory of streamed content that waits for its handler, in bytes; 0 if it waits with the peer.
    #[inline]
    fn held(&self) -> usize {
        0
    }

    /// The limit that was exceeded by a body refused as too large.
    fn body_max(&self) -> u64;

    /// There is no memory for the body being collected: an error reply, the last one, is owed.
    fn refuse_body(&mut self);

    /// The caller holds the request until its turn: the peer has sent all that is needed, and an incomplete body is
    /// not read. Returns the body if it was collected.
    fn park(&mut self) -> Option<Bytes>;

    /// The turn of the parked request has come.
    fn unpark(&mut self, now: Instant);

    /// Drops a collected request after its handler has read it.
    fn forget_request(&mut self);

    /// Its handler has `room` for this many bytes more of a streamed body. With none, the body is held back;
    /// while it is, its deadlines rest.
    fn allow_body(&mut self, room: usize, now: Instant);

    /// The handler will not read the rest of a streamed body, or any more of an upgraded connection: that ends now if
    /// its sending side has ended, and else together with it.
    fn drop_body(&mut self, limits: &Limits, now: Instant);

    /// The handler reads for the first time: sends the interim response if the peer waits for it before it sends
    /// its body (RFC 9110 §10.1.1).
    #[inline]
    fn send_continue(&mut self, _now: Instant) {}

    /// The progress of a streamed body that its handler waits for at `now`. `None` while the handler does not wait for the
    /// peer.
    fn upload(&self, now: Instant) -> Option<Upload>;

    /// Ends a streamed body that came too slowly, or that there is no memory for. A reply that is owed will be the last.
    fn end_upload(&mut self);

    // ---- the answer

    /// Whether a reply is owed whose head is not yet encoded.
    fn is_reply_owed(&self) -> bool;

    /// Gives the reply that is owed. `fields` writes the header fields except framing, `Date` and
    /// `Connection`. Returns whether content is to follow through [`Stream::push_body`]; not if the
    /// request was a `HEAD`, or the status has no content.
    ///
    /// # Panics
    /// If no reply is owed; if `status` is below 200 and `payload` is not an upgrade; if `payload` is an
    /// upgrade and the request's content is not yet complete.
    fn respond(
        &mut self,
        status: u16,
        date: &[u8; 29],
        limits: &Limits,
        now: Instant,
        fields: impl FnOnce(&mut Self::Fields<'_>),
        payload: Payload<'_>,
    ) -> bool;

    /// How many bytes of content may be added now before encoded and unsent bytes exceed their bound.
    fn room(&self, limits: &Limits) -> usize;

    /// Appends content to a streamed reply, or bytes to an upgraded connection. A piece may exceed
    /// [`Stream::room`], but nothing should be pushed while there is none.
    ///
    /// # Errors
    /// The content is longer than the length announced; the stream must be reset.
    fn push_body(&mut self, piece: &[u8]) -> Result<(), LengthMismatch>;

    /// Like [`Stream::push_body`], but without the copy for large pieces.
    ///
    /// # Errors
    /// As [`Stream::push_body`].
    fn push_shared(&mut self, piece: Bytes) -> Result<(), LengthMismatch>;

    /// Ends a streamed reply, or the sending side of an upgraded connection, with the fields that `trailers`
    /// writes behind the content where the protocol allows some. An upgraded connection is read on until
    /// [`Stream::drop_body`].
    ///
    /// # Errors
    /// The content is shorter than the length announced; the stream must be reset.
    fn finish_body(
        &mut self,
        limits: &Limits,
        now: Instant,
        trailers: impl FnOnce(&mut Self::Fields<'_>),
    ) -> Result<(), LengthMismatch>;

    /// Whether the connection has been handed to another protocol, which has not ended our side yet.
    fn has_left_http(&self) -> bool;

    // ---- the end

    /// Abandons the reply in progress, which the peer no longer reads: its encoded part is sent, without the
    /// reply's end.
    fn cut_short(&mut self);

    /// Resets the stream: the peer learns that its answer will not be completed. Without streams, that is a
    /// reset of the connection.
    fn reset(&mut self);

    /// Whether the stream is over, and needs no further calls. Never true in a protocol without streams.
    fn is_over(&self) -> bool;
}
