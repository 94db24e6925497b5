//! A request whose head is complete, and which is not begun yet.

use alloc::vec::Vec;

use super::body::{Decoder, Framing};
use super::parse::Parsed;
use super::state::{Connection, Input, Reply, Scratch};
use crate::http::{Body, BodyPlan, Head, Limits, Reject};
use crate::link::Link;
use crate::protocol::{Begun, Next};
use crate::time::Instant;

/// A request to be begun: its head says how. Until then, nothing of its content was read, and no
/// 100 (Continue) was sent.
#[derive(Debug)]
#[must_use = "a head that was found is lost unless its request is begun"]
pub struct Pending<'a> {
    connection: &'a mut Connection,
    /// The bytes of the head, and what was found in them.
    bytes: &'a [u8],
    parsed: &'a Parsed,
    /// Room for content that has come with the head.
    body: &'a mut Vec<u8>,
}

impl<'a> Pending<'a> {
    /// The request whose head was parsed into `scratch`, from `bytes`.
    #[inline(always)]
    pub(super) fn new(
        connection: &'a mut Connection,
        scratch: &'a mut Scratch,
        bytes: &'a [u8],
    ) -> Self {
        let Scratch { body, parsed } = scratch;
        Pending { connection, bytes, parsed, body }
    }

    /// The head.
    #[inline(always)]
    pub fn head(&self) -> Head<'a> {
        self.parsed.head(self.bytes)
    }

    /// Begins the request, and reads its content from the front of `input` as `plan` says.
    #[inline(always)]
    pub fn begin<'i: 'a>(
        self,
        link: &mut Link,
        input: &mut &'i [u8],
        plan: BodyPlan,
        limits: &Limits,
        now: Instant,
    ) -> Begun<'a> {
        let max = plan.max();
        let rest: &'i [u8] = input;
        match (plan, self.parsed.framing()) {
            (_, Framing::Length(length)) if length > max => {
                self.connection.body_max = max;
                self.connection.refuse(Reject::BodyTooLarge);
                Begun::Reject(Reject::BodyTooLarge)
            }
            (_, Framing::Length(length)) if length <= rest.len() as u64 => {
                let (body, rest) = rest.split_at(length as usize);
                *input = rest;
                self.hand_out(Body::Whole(body))
            }
            (BodyPlan::Whole(_), framing) => self.collect(link, input, (framing, max), limits, now),
            (BodyPlan::Streamed(_) | BodyPlan::Unwanted, framing) => {
                self.connection.input = Input::Streaming(Decoder::new(framing).keeping_trailers());
                self.connection.body_max = max;
                self.connection.begin_body(now);
                self.hand_out(Body::Streamed)
            }
        }
    }

    #[inline(always)]
    fn hand_out(self, body: Body<'a>) -> Begun<'a> {
        self.connection.reply = Reply::Owed;
        Begun::Request(body)
    }

    /// The content is wanted whole, and has not come whole unless it is in chunks.
    #[cold]
    fn collect<'i: 'a>(
        self,
        link: &mut Link,
        input: &mut &'i [u8],
        (framing, max): (Framing, u64),
        limits: &Limits,
        now: Instant,
    ) -> Begun<'a> {
        let head = self.head();
        let Pending { connection, body, .. } = self;
        let mut decoder = Decoder::new(framing);
        body.clear();
        if framing == Framing::Chunked {
            match decoder.append(input, body, max, limits) {
                Err(reject) => {
                    connection.refuse(reject);
                    return Begun::Reject(reject);
                }
                Ok(()) if decoder.is_done() => {
                    connection.reply = Reply::Owed;
                    return Begun::Request(Body::Whole(body));
                }
                Ok(()) => {}
            }
        }
        if matches!(framing, Framing::Length(length) if length >= limits.large_body) {
            connection.large_at = connection.requests;
        }
        connection.collect(link, &head, body, decoder, max, now);
        match connection.next_collected(link, input, limits, now) {
            Next::Reject(reject) => Begun::Reject(reject),
            _ => Begun::Collecting,
        }
    }
}
