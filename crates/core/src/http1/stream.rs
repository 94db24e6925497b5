//! HTTP/1 as a [`Protocol`]: its one stream is the connection.

use alloc::vec::Vec;
use bytes::Bytes;

use super::encode::FieldEncoder;
use super::pending::Pending;
use super::state::{Connection, Scratch};
use crate::http::{BodyPlan, Head, LengthMismatch, Limits, Payload};
use crate::link::Link;
use crate::protocol::{self, Begun, Expired, Protocol, Step, StreamId, Versions};
use crate::time::Instant;

impl Protocol for Connection {
    type Scratch = Scratch;
    type Pending<'a> = Pending<'a>;
    type Stream<'a> = Stream<'a>;

    fn new(now: Instant, _versions: Versions) -> Self {
        Connection::new(now)
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
        Connection::advance(self, link, input, scratch, limits, now)
    }

    fn on_deadline(
        &mut self,
        link: &mut Link,
        now: Instant,
        limits: &Limits,
    ) -> (StreamId, Expired) {
        (StreamId::CONNECTION, Connection::on_deadline(self, link, now, limits))
    }

    fn drain(&mut self, _link: &mut Link, now: Instant) {
        Connection::drain(self, now);
    }

    #[inline(always)]
    fn stream<'s>(&'s mut self, link: &'s mut Link, _id: StreamId) -> Stream<'s> {
        Stream { connection: self, link }
    }

    #[inline(always)]
    fn wants_input(&self, link: &Link, limits: &Limits) -> bool {
        Connection::wants_input(self, link, limits)
    }

    #[inline(always)]
    fn is_used_up(&self, link: &Link, input: &[u8]) -> bool {
        Connection::is_used_up(self, link, input)
    }

    fn idle_since(&self, link: &Link) -> Option<Instant> {
        Connection::idle_since(self, link)
    }

    #[inline(always)]
    fn deadline(&self, link: &Link, limits: &Limits) -> Instant {
        Connection::deadline(self, link, limits)
    }

    fn collecting(&mut self) -> Option<(&mut Vec<u8>, u64)> {
        Connection::collecting(self)
    }

    fn took(&mut self, len: usize, now: Instant) {
        Connection::took(self, len, now);
    }

    #[inline]
    fn is_bulky(&self) -> bool {
        Connection::is_bulky(self)
    }

    fn allocated(&self) -> usize {
        Connection::allocated(self)
    }
}

impl<'a> protocol::Pending<'a> for Pending<'a> {
    #[inline(always)]
    fn stream(&self) -> StreamId {
        StreamId::CONNECTION
    }

    #[inline(always)]
    fn head(&self) -> Head<'a> {
        Pending::head(self)
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
        Pending::begin(self, link, input, plan, limits, now)
    }
}

/// The one stream of a connection, over its link.
#[derive(Debug)]
pub struct Stream<'a> {
    connection: &'a mut Connection,
    link: &'a mut Link,
}

impl protocol::Stream for Stream<'_> {
    type Fields<'f> = FieldEncoder<'f>;

    #[inline(always)]
    fn link(&self) -> &Link {
        self.link
    }

    #[inline(always)]
    fn lend_buffer(&mut self, buffer: Vec<u8>) {
        self.link.lend_buffer(buffer);
    }

    fn reclaim_buffer(&mut self) -> Vec<u8> {
        self.link.reclaim_buffer()
    }

    #[inline]
    fn is_head(&self) -> bool {
        self.connection.is_head()
    }

    #[inline]
    fn is_request_complete(&self) -> bool {
        self.connection.is_request_complete()
    }

    #[inline]
    fn collected(&self) -> usize {
        self.connection.collected()
    }

    fn body_max(&self) -> u64 {
        self.connection.body_max()
    }

    fn refuse_body(&mut self) {
        self.connection.refuse_body();
    }

    fn park(&mut self) -> Option<Bytes> {
        self.connection.park()
    }

    fn unpark(&mut self, now: Instant) {
        self.connection.unpark(self.link, now);
    }

    fn forget_request(&mut self) {
        self.connection.forget_request();
    }

    fn allow_body(&mut self, room: usize, now: Instant) {
        self.connection.pause_body(self.link, room == 0, now);
    }

    fn drop_body(&mut self, limits: &Limits, now: Instant) {
        self.connection.drop_body(limits, now);
        self.connection.drop_raw(self.link);
    }

    fn send_continue(&mut self, now: Instant) {
        self.connection.send_continue(self.link, now);
    }

    fn upload(&self, _now: Instant) -> Option<protocol::Upload> {
        self.connection.upload()
    }

    fn end_upload(&mut self) {
        self.connection.end_upload();
    }

    #[inline(always)]
    fn is_reply_owed(&self) -> bool {
        self.connection.is_reply_owed()
    }

    #[inline(always)]
    fn respond(
        &mut self,
        status: u16,
        date: &[u8; 29],
        limits: &Limits,
        now: Instant,
        fields: impl FnOnce(&mut FieldEncoder<'_>),
        payload: Payload<'_>,
    ) -> bool {
        self.connection.respond(self.link, status, date, limits, now, fields, payload)
    }

    #[inline]
    fn room(&self, limits: &Limits) -> usize {
        self.link.room(limits)
    }

    fn push_body(&mut self, piece: &[u8]) -> Result<(), LengthMismatch> {
        self.connection.push_body(self.link, piece)
    }

    fn push_shared(&mut self, piece: Bytes) -> Result<(), LengthMismatch> {
        self.connection.push_shared(self.link, piece)
    }

    fn finish_body(
        &mut self,
        limits: &Limits,
        now: Instant,
        trailers: impl FnOnce(&mut FieldEncoder<'_>),
    ) -> Result<(), LengthMismatch> {
        self.connection.finish_body_with(self.link, limits, now, trailers)
    }

    fn has_left_http(&self) -> bool {
        self.connection.has_left_http()
    }

    fn cut_short(&mut self) {
        self.connection.cut_short(self.link);
    }

    fn reset(&mut self) {
        self.link.abort();
    }

    #[inline(always)]
    fn is_over(&self) -> bool {
        false
    }
}
