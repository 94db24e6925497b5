//! A request whose head is complete, and which is not begun yet.

use super::body::{Decoder, Framing};
use super::state::{Connection, Input, Reply, Scratch};
use crate::http::{Body, BodyPlan, Head, Limits, Reject};
use crate::link::Link;
use crate::protocol::{Next, Request};
use crate::time::Instant;

/// A request to be begun: its head says how. Until then, nothing of its content was read, and no
/// 100 (Continue) was sent.
#[derive(Debug)]
#[must_use = "a head that was found is lost unless its request is begun"]
pub struct Pending<'a> {
    pub(super) connection: &'a mut Connection,
    pub(super) scratch: &'a mut Scratch,
    /// The bytes of the head.
    pub(super) head: &'a [u8],
}

impl<'a> Pending<'a> {
    /// The head.
    #[inline]
    pub fn head(&self) -> Head<'_> {
        self.scratch.parsed.head(self.head, &self.scratch.spans)
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
    ) -> Next<'a> {
        let (BodyPlan::Whole(max) | BodyPlan::Streamed(max)) = plan;
        let rest: &'i [u8] = input;
        match (plan, self.scratch.parsed.framing) {
            (_, Framing::Length(length)) if length > max => {
                self.connection.body_max = max;
                self.connection.refuse(Reject::BodyTooLarge)
            }
            (_, Framing::Length(length)) if length <= rest.len() as u64 => {
                let (body, rest) = rest.split_at(length as usize);
                *input = rest;
                self.hand_out(Body::Whole(body))
            }
            (BodyPlan::Whole(_), framing) => self.collect(link, input, (framing, max), limits, now),
            (BodyPlan::Streamed(_), framing) => {
                self.connection.input = Input::Streaming(Decoder::new(framing).keeping_trailers());
                self.connection.body_max = max;
                self.connection.begin_body(now);
                self.hand_out(Body::Streamed)
            }
        }
    }

    #[inline(always)]
    fn hand_out(self, body: Body<'a>) -> Next<'a> {
        let Pending { connection, scratch, head } = self;
        connection.reply = Reply::Owed;
        let scratch: &'a Scratch = scratch;
        Next::Request(Request { head: scratch.parsed.head(head, &scratch.spans), body })
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
    ) -> Next<'a> {
        let Pending { connection, scratch, head } = self;
        let mut decoder = Decoder::new(framing);
        scratch.body.clear();
        if framing == Framing::Chunked {
            match decoder.append(input, &mut scratch.body, max, limits) {
                Err(reject) => return connection.refuse(reject),
                Ok(()) if decoder.is_done() => {
                    connection.reply = Reply::Owed;
                    let Scratch { spans, body, parsed } = scratch;
                    let body = Body::Whole(body.as_slice());
                    return Next::Request(Request { head: parsed.head(head, spans), body });
                }
                Ok(()) => {}
            }
        }
        let view = scratch.parsed.head(head, &scratch.spans);
        connection.collect(link, &view, &scratch.body, decoder, max, now);
        connection.next_of_body(link, input, scratch, limits, now)
    }
}
