//! Which version of HTTP does a connection speak?
//!
//! ```text
//!  Versions::Http1 ─────────────────────────────────▶ HTTP/1
//!  Versions::Both ──the first bytes─┬─ anything else ▶ HTTP/1
//!                                   └─ the preface ──▶ HTTP/2      prior knowledge (RFC 9113 §3.3)
//!  Versions::Http2 ─────────────────────────────────▶ HTTP/2
//! ```
//!
//! What is not the protocol that is spoken, that protocol refuses: HTTP/1 answers the preface with 505, HTTP/2 answers what
//! is not its preface with GOAWAY. A connection of HTTP/1 costs one comparison more where it is called; one of HTTP/2 is
//! boxed, so that the others stay small.

use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;

use crate::http::{BodyPlan, FieldWriter, Head, LengthMismatch, Limits, Payload, PreparedFields};
use crate::link::Link;
use crate::protocol::{self, Begun, Expired, Next, Protocol, Report, Step, StreamId, Versions};
use crate::time::Instant;
use crate::{http1, http2};

/// One connection, of either version.
#[derive(Debug)]
pub struct Connection {
    /// The first bytes decide. Until they have come, it counts as HTTP/1.
    is_open: bool,
    of: Of,
}

#[derive(Debug)]
enum Of {
    Http1(http1::Connection),
    Http2(Box<http2::Connection>),
}

/// Working memory that the connections of one worker share, each during one call.
#[derive(Debug, Default)]
pub struct Scratch {
    http1: http1::Scratch,
    http2: http2::server::Scratch,
}

impl Connection {
    /// The first bytes have come. Returns false if more are needed to decide.
    #[cold]
    fn decide(&mut self, link: &Link, input: &[u8], now: Instant) -> bool {
        let begins = http2::PREFACE.starts_with(&input[..input.len().min(http2::PREFACE.len())]);
        if begins && input.len() < http2::PREFACE.len() {
            return link.is_eof() || input.is_empty();
        }
        self.is_open = false;
        if begins {
            self.become_http2(now);
        }
        true
    }

    fn become_http2(&mut self, now: Instant) {
        let mut connection = http2::Connection::new(now);
        if let Of::Http1(before) = &self.of
            && before.is_draining()
        {
            connection.drain_from_start(now);
        }
        self.of = Of::Http2(Box::new(connection));
    }
}

impl Protocol for Connection {
    type Scratch = Scratch;
    type Pending<'a> = Pending<'a>;
    type Stream<'a> = Stream<'a>;

    #[inline]
    fn new(now: Instant, versions: Versions) -> Self {
        let of = match versions {
            Versions::Http2 => Of::Http2(Box::new(http2::Connection::new(now))),
            Versions::Both | Versions::Http1 => Of::Http1(http1::Connection::new(now)),
        };
        Connection { is_open: versions == Versions::Both, of }
    }

    #[inline(always)]
    fn advance<'r, 'i: 'r>(
        &'r mut self,
        link: &mut Link,
        input: &mut &'i [u8],
        scratch: &'r mut Scratch,
        limits: &Limits,
        now: Instant,
    ) -> Step<'r, Pending<'r>> {
        if self.is_open && !self.decide(link, input, now) {
            return Step::Next(StreamId::CONNECTION, Next::Wait);
        }
        match &mut self.of {
            Of::Http1(connection) => {
                match connection.advance(link, input, &mut scratch.http1, limits, now) {
                    Step::Head(pending) => Step::Head(Pending::Http1(pending)),
                    Step::Next(stream, next) => Step::Next(stream, next),
                    Step::Reset(stream) => Step::Reset(stream),
                }
            }
            Of::Http2(connection) => {
                match connection.advance(link, input, &mut scratch.http2, limits, now) {
                    Step::Head(pending) => Step::Head(Pending::Http2(pending)),
                    Step::Next(stream, next) => Step::Next(stream, next),
                    Step::Reset(stream) => Step::Reset(stream),
                }
            }
        }
    }

    fn on_deadline(
        &mut self,
        link: &mut Link,
        now: Instant,
        limits: &Limits,
    ) -> (StreamId, Expired) {
        match &mut self.of {
            Of::Http1(connection) => Protocol::on_deadline(connection, link, now, limits),
            Of::Http2(connection) => connection.on_deadline(link, now, limits),
        }
    }

    fn drain(&mut self, link: &mut Link, now: Instant) {
        match &mut self.of {
            Of::Http1(connection) => Protocol::drain(connection, link, now),
            Of::Http2(connection) => connection.drain(link, now),
        }
    }

    #[inline(always)]
    fn flush(&mut self, link: &mut Link, limits: &Limits, now: Instant) {
        if let Of::Http2(connection) = &mut self.of {
            connection.flush(link, limits, now);
        }
    }

    #[inline(always)]
    fn stream<'s>(&'s mut self, link: &'s mut Link, id: StreamId) -> Stream<'s> {
        match &mut self.of {
            Of::Http1(connection) => Stream::Http1(connection.stream(link, id)),
            Of::Http2(connection) => Stream::Http2(connection.stream(link, id)),
        }
    }

    #[inline(always)]
    fn wants_input(&self, link: &Link, limits: &Limits) -> bool {
        match &self.of {
            Of::Http1(connection) => connection.wants_input(link, limits),
            Of::Http2(connection) => connection.wants_input(link, limits),
        }
    }

    #[inline(always)]
    fn is_used_up(&self, link: &Link, input: &[u8]) -> bool {
        matches!(&self.of, Of::Http1(connection) if connection.is_used_up(link, input))
    }

    #[inline(always)]
    fn holds_input(&self) -> bool {
        matches!(&self.of, Of::Http2(connection) if connection.holds_input())
    }

    #[inline(always)]
    fn holds_output(&self, link: &Link, limits: &Limits) -> bool {
        matches!(&self.of, Of::Http2(connection) if connection.holds_output(link, limits))
    }

    fn idle_since(&self, link: &Link) -> Option<Instant> {
        match &self.of {
            Of::Http1(connection) => connection.idle_since(link),
            Of::Http2(connection) => connection.idle_since(link),
        }
    }

    #[inline(always)]
    fn deadline(&self, link: &Link, limits: &Limits) -> Instant {
        match &self.of {
            Of::Http1(connection) => connection.deadline(link, limits),
            Of::Http2(connection) => connection.deadline(link, limits),
        }
    }

    #[inline(always)]
    fn take_report(&mut self) -> Option<Report> {
        match &mut self.of {
            Of::Http1(_) => None,
            Of::Http2(connection) => connection.take_report(),
        }
    }

    fn collecting(&mut self) -> Option<(&mut Vec<u8>, u64)> {
        match &mut self.of {
            Of::Http1(connection) => connection.collecting(),
            Of::Http2(_) => None,
        }
    }

    fn took(&mut self, len: usize, now: Instant) {
        if let Of::Http1(connection) = &mut self.of {
            connection.took(len, now);
        }
    }

    #[inline]
    fn is_bulky(&self) -> bool {
        matches!(&self.of, Of::Http1(connection) if connection.is_bulky())
    }

    fn allocated(&self) -> usize {
        match &self.of {
            Of::Http1(connection) => connection.allocated(),
            Of::Http2(connection) => size_of::<http2::Connection>() + connection.allocated(),
        }
    }
}

/// A request whose head is complete.
#[derive(Debug)]
#[must_use = "a head that was found is lost unless its request is begun"]
pub enum Pending<'a> {
    /// Of HTTP/1.
    Http1(http1::Pending<'a>),
    /// Of HTTP/2.
    Http2(http2::server::Pending<'a>),
}

impl<'a> protocol::Pending<'a> for Pending<'a> {
    #[inline(always)]
    fn stream(&self) -> StreamId {
        match self {
            Pending::Http1(_) => StreamId::CONNECTION,
            Pending::Http2(pending) => protocol::Pending::stream(pending),
        }
    }

    #[inline(always)]
    fn head(&self) -> Head<'a> {
        match self {
            Pending::Http1(pending) => pending.head(),
            Pending::Http2(pending) => protocol::Pending::head(pending),
        }
    }

    #[inline(always)]
    fn write_head(&self, to: &mut Head<'a>) {
        match self {
            Pending::Http1(pending) => protocol::Pending::write_head(pending, to),
            Pending::Http2(pending) => protocol::Pending::write_head(pending, to),
        }
    }

    #[inline(always)]
    fn begin<'i: 'a>(
        self,
        link: &mut Link,
        input: &mut &'i [u8],
        plan: BodyPlan,
        limits: &Limits,
        now: Instant,
    ) -> Begun<'a> {
        match self {
            Pending::Http1(pending) => pending.begin(link, input, plan, limits, now),
            Pending::Http2(pending) => {
                protocol::Pending::begin(pending, link, input, plan, limits, now)
            }
        }
    }
}

/// Writes fields in the form of either version.
#[derive(Debug)]
pub enum FieldSink<'f> {
    /// As lines.
    Http1(http1::FieldEncoder<'f>),
    /// Into a field block.
    Http2(http2::server::FieldBlock<'f>),
}

impl FieldWriter for FieldSink<'_> {
    #[inline(always)]
    fn push(&mut self, name: &str, value: &[u8]) {
        match self {
            FieldSink::Http1(encoder) => encoder.push(name, value),
            FieldSink::Http2(block) => block.push(name, value),
        }
    }

    #[inline(always)]
    fn push_prepared(&mut self, fields: &PreparedFields) {
        match self {
            FieldSink::Http1(encoder) => encoder.push_prepared(fields),
            FieldSink::Http2(block) => block.push_prepared(fields),
        }
    }
}

/// A stream of a connection of either version.
#[derive(Debug)]
pub enum Stream<'a> {
    /// Of HTTP/1: the connection.
    Http1(http1::Stream<'a>),
    /// Of HTTP/2.
    Http2(http2::server::Stream<'a>),
}

/// Calls a method of the stream that it is.
macro_rules! of {
    ($stream:expr, $name:ident($($argument:expr),*)) => {
        match $stream {
            Stream::Http1(stream) => protocol::Stream::$name(stream, $($argument),*),
            Stream::Http2(stream) => protocol::Stream::$name(stream, $($argument),*),
        }
    };
}

impl protocol::Stream for Stream<'_> {
    type Fields<'f> = FieldSink<'f>;

    #[inline(always)]
    fn link(&self) -> &Link {
        of!(self, link())
    }

    #[inline(always)]
    fn pending(&self) -> usize {
        of!(self, pending())
    }

    #[inline(always)]
    fn lend_buffer(&mut self, buffer: Vec<u8>) {
        of!(self, lend_buffer(buffer));
    }

    fn reclaim_buffer(&mut self) -> Vec<u8> {
        of!(self, reclaim_buffer())
    }

    #[inline(always)]
    fn is_head(&self) -> bool {
        of!(self, is_head())
    }

    #[inline(always)]
    fn is_request_complete(&self) -> bool {
        of!(self, is_request_complete())
    }

    #[inline(always)]
    fn collected(&self) -> usize {
        of!(self, collected())
    }

    fn held(&self) -> usize {
        of!(self, held())
    }

    fn body_max(&self) -> u64 {
        of!(self, body_max())
    }

    fn refuse_body(&mut self) {
        of!(self, refuse_body());
    }

    fn park(&mut self) -> Option<Bytes> {
        of!(self, park())
    }

    fn unpark(&mut self, now: Instant) {
        of!(self, unpark(now));
    }

    fn forget_request(&mut self) {
        of!(self, forget_request());
    }

    fn allow_body(&mut self, room: usize, now: Instant) {
        of!(self, allow_body(room, now));
    }

    fn drop_body(&mut self, limits: &Limits, now: Instant) {
        of!(self, drop_body(limits, now));
    }

    fn send_continue(&mut self, now: Instant) {
        of!(self, send_continue(now));
    }

    fn upload(&self, now: Instant) -> Option<protocol::Upload> {
        of!(self, upload(now))
    }

    fn end_upload(&mut self) {
        of!(self, end_upload());
    }

    #[inline(always)]
    fn is_reply_owed(&self) -> bool {
        of!(self, is_reply_owed())
    }

    #[inline(always)]
    fn respond(
        &mut self,
        status: u16,
        date: &[u8; 29],
        limits: &Limits,
        now: Instant,
        fields: impl FnOnce(&mut FieldSink<'_>),
        payload: Payload<'_>,
    ) -> bool {
        match self {
            Stream::Http1(stream) => {
                let fields = |encoder: &mut http1::FieldEncoder<'_>| {
                    fields(&mut FieldSink::Http1(encoder.reborrow()));
                };
                stream.respond(status, date, limits, now, fields, payload)
            }
            Stream::Http2(stream) => {
                let fields = |block: &mut http2::server::FieldBlock<'_>| {
                    fields(&mut FieldSink::Http2(block.reborrow()));
                };
                stream.respond(status, date, limits, now, fields, payload)
            }
        }
    }

    #[inline(always)]
    fn room(&self, limits: &Limits) -> usize {
        of!(self, room(limits))
    }

    fn push_body(&mut self, piece: &[u8]) -> Result<(), LengthMismatch> {
        of!(self, push_body(piece))
    }

    fn push_shared(&mut self, piece: Bytes) -> Result<(), LengthMismatch> {
        of!(self, push_shared(piece))
    }

    fn finish_body(
        &mut self,
        limits: &Limits,
        now: Instant,
        trailers: impl FnOnce(&mut FieldSink<'_>),
    ) -> Result<(), LengthMismatch> {
        match self {
            Stream::Http1(stream) => stream.finish_body(limits, now, |encoder| {
                trailers(&mut FieldSink::Http1(encoder.reborrow()));
            }),
            Stream::Http2(stream) => stream.finish_body(limits, now, |block| {
                trailers(&mut FieldSink::Http2(block.reborrow()));
            }),
        }
    }

    fn has_left_http(&self) -> bool {
        of!(self, has_left_http())
    }

    fn cut_short(&mut self) {
        of!(self, cut_short());
    }

    fn reset(&mut self) {
        of!(self, reset());
    }

    #[inline(always)]
    fn is_over(&self) -> bool {
        of!(self, is_over())
    }
}
