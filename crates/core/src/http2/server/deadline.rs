//! The deadlines of one connection. They are data: see `http1::deadline`.

use core::mem;
use core::time::Duration;

use super::super::error::{Error, ErrorCode};
use super::state::{Going, Phase, State};
use super::streams::Reply;
use super::upload::Kind;
use crate::http::{Limits, Reject};
use crate::link::{Link, Overdue};
use crate::protocol::{CloseReason, Expired, StreamId};
use crate::time::Instant;

/// How long new streams are still accepted after GOAWAY: a request that is already on its way is answered, as in
/// HTTP/1. The answer to our PING ends this time earlier: then the peer has received the GOAWAY.
const DRAIN_QUIET: Duration = Duration::from_millis(250);

impl State {
    /// Whether the peer waits for an answer that is being made.
    pub(super) fn is_awaited(&self) -> bool {
        self.streams.iter().any(|stream| !stream.is_parked)
    }

    /// Since when it waits for a request, has no byte of one, and no output is waiting or in flight.
    pub(super) fn idle_since(&self, link: &Link) -> Option<Instant> {
        let is_idle = self.streams.is_empty()
            && self.block_of.since == Instant::MAX
            && matches!(self.phase, Phase::Open | Phase::Preface(0))
            && !link.has_unsent()
            && !link.is_ending();
        is_idle.then(|| self.rested_since(link))
    }

    /// Since when there is no stream, and no answer of which a byte is unsent. What the server only acknowledges, such as a
    /// PING, does not count, or it would keep the connection for ever.
    fn rested_since(&self, link: &Link) -> Instant {
        self.since.max(link.answered_at())
    }

    /// By when the next request must have come.
    fn request_deadline(&self, link: &Link, limits: &Limits) -> Instant {
        match () {
            () if !self.streams.is_empty() || link.has_unsent_answer() => Instant::MAX,
            () if self.served == 0 => self.since + limits.header_timeout,
            () => self.rested_since(link) + limits.idle_timeout,
        }
    }

    /// By when a field block that has begun must be complete.
    fn block_deadline(&self, limits: &Limits) -> Instant {
        match self.block_of.since {
            Instant::MAX => Instant::MAX,
            since => since + limits.header_timeout,
        }
    }

    fn drain_deadline(&self) -> Instant {
        match self.going {
            Going::Announced(since) => since + DRAIN_QUIET,
            Going::No | Going::Final(_) => Instant::MAX,
        }
    }

    pub(super) fn deadline(&self, link: &Link, limits: &Limits) -> Instant {
        let of_link = link.deadline(limits, self.is_awaited());
        if link.is_ending() {
            return of_link;
        }
        let is_shut = self.shut.is_shut();
        let of_streams = self.streams.iter().map(|stream| stream.deadline(limits, is_shut)).min();
        of_link
            .min(self.request_deadline(link, limits))
            .min(self.block_deadline(limits))
            .min(self.drain_deadline())
            .min(of_streams.unwrap_or(Instant::MAX))
    }

    pub(super) fn on_deadline(
        &mut self,
        link: &mut Link,
        now: Instant,
        limits: &Limits,
    ) -> (StreamId, Expired) {
        let of_all = |expired| (StreamId::CONNECTION, expired);
        match link.overdue(now, limits, self.is_awaited()) {
            Some(Overdue::Write) => return of_all(Expired::Reset),
            Some(Overdue::HalfClosed) => return of_all(Expired::HalfClosed),
            Some(Overdue::Linger) => return of_all(Expired::Close),
            None if link.is_ending() => return of_all(Expired::Early),
            None => {}
        }
        if now >= self.drain_deadline() {
            self.finalize(link);
        }
        if now >= self.block_deadline(limits) {
            let reason = "a field block was not complete in time";
            self.fail(link, Error::connection(ErrorCode::ENHANCE_YOUR_CALM, reason));
            return of_all(Expired::Ended);
        }
        if now >= self.request_deadline(link, limits) {
            self.leave(link, CloseReason::Idle);
            return of_all(Expired::Ended);
        }
        if self.reset_stalled(link, now, limits) {
            return of_all(Expired::Stalled);
        }
        self.expire_body(link, now, limits).unwrap_or(of_all(Expired::Early))
    }

    /// Ends a tunnel in which nothing has moved since one side ended. If both sides have ended, only its handler still holds
    /// it, and the peer gets no reset.
    fn end_tunnel(&mut self, link: &mut Link, id: u32, now: Instant) {
        let Some(index) = self.streams.find(id) else { return };
        let stream = &self.streams[index];
        match stream.is_whole() && stream.reply == Reply::Given {
            true => self.remove(link, index, now),
            false => {
                self.reset(link, id, ErrorCode::CANCEL, now);
            }
        }
    }

    /// Ends the upload that is too slow, or the tunnel that one side has ended and in which nothing moves.
    fn expire_body(
        &mut self,
        link: &mut Link,
        now: Instant,
        limits: &Limits,
    ) -> Option<(StreamId, Expired)> {
        let is_shut = self.shut.is_shut();
        let stream = self.streams.iter_mut().find(|it| now >= it.body_deadline(limits, is_shut))?;
        let (id, upload) = (stream.id, stream.upload.as_mut()?);
        if matches!(upload.kind, Kind::Closing) {
            self.reset(link, id, ErrorCode::NO_ERROR, now);
            return None;
        }
        if stream.is_tunnel && mem::take(&mut upload.has_sent) {
            upload.restart(now);
            return None;
        }
        if stream.is_tunnel {
            self.end_tunnel(link, id, now);
            return Some((StreamId(id), Expired::HalfClosedStream));
        }
        let is_collecting = matches!(upload.kind, Kind::Collecting(..));
        let held = upload.drop_rest() as u32;
        let timeout = Reject::BodyTimeout;
        let expired = match stream.reply {
            Reply::None if is_collecting => {
                stream.reply = Reply::Owed;
                Expired::Reject(timeout)
            }
            _ => Expired::BodyFailed(timeout),
        };
        self.handed_on(link, id, held);
        Some((StreamId(id), expired))
    }
}
