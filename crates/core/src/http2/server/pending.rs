//! A request whose head is complete, and which is not begun yet.

use super::head::Scratch;
use super::state::State;
use super::stream::Stream;
use super::streams::Reply;
use super::upload::Kind;
use crate::http::{Body, BodyPlan, Collected, Head, Limits, Method, OwnedHead, Reject};
use crate::link::Link;
use crate::protocol::{self, Begun, StreamId};
use crate::time::Instant;

/// A request to be begun: its head says how.
#[derive(Debug)]
#[must_use = "a head that was found is lost unless its request is begun"]
pub struct Pending<'a> {
    pub(super) state: &'a mut State,
    pub(super) scratch: &'a Scratch,
    pub(super) id: u32,
}

impl<'a> protocol::Pending<'a> for Pending<'a> {
    fn stream(&self) -> StreamId {
        StreamId(self.id)
    }

    fn head(&self) -> Head<'a> {
        self.scratch.head()
    }

    fn begin<'i: 'a>(
        self,
        link: &mut Link,
        _input: &mut &'i [u8],
        plan: BodyPlan,
        limits: &Limits,
        now: Instant,
    ) -> Begun<'a> {
        let Pending { state, scratch, id } = self;
        link.note_movement(now);
        if state.served >= limits.requests_max {
            state.drain(link, now);
        }
        let Some(stream) = state.streams.get_mut(id) else { return Begun::Collecting };
        let body = match &mut stream.upload {
            None => Body::Whole(&[]),
            Some(upload) if scratch.is_tunnel() => {
                upload.ask();
                Body::Whole(&[])
            }
            Some(upload) => {
                let head = scratch.head();
                // A request that is not to have content is complete with its end, which usually comes with it.
                let (is_collected, max) = match plan {
                    BodyPlan::Whole(max) => (true, max),
                    BodyPlan::Unwanted
                        if upload.left.is_none() && needs_no_content(head.method()) =>
                    {
                        (true, limits.body_max)
                    }
                    BodyPlan::Streamed(_) | BodyPlan::Unwanted => (false, plan.max()),
                };
                upload.max = max;
                if upload.left.is_some_and(|length| length > upload.max) {
                    upload.kind = Kind::Dropped;
                    stream.reply = Reply::Owed;
                    return Begun::Reject(Reject::BodyTooLarge);
                }
                if is_collected {
                    upload.kind = Kind::Collecting(OwnedHead::copy(&head), Collected::default());
                    let index = state.streams.find(id);
                    protocol::Stream::send_continue(&mut Stream { state, link, id, index }, now);
                    return Begun::Collecting;
                }
                upload.kind = Kind::Streaming;
                Body::Streamed
            }
        };
        stream.reply = Reply::Owed;
        Begun::Request(body)
    }
}

/// Whether content of a request with this method has no meaning (RFC 9110 §9.3.1, §9.3.2, §9.3.7, §9.3.8).
fn needs_no_content(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head | Method::Options | Method::Trace)
}
