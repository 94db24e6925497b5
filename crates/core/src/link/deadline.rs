//! By when must something happen on a link? (`mod.rs`: which deadlines there are.)

use super::Link;
use crate::http::Limits;
use crate::time::Instant;

/// Which deadline of a link has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// The peer does not read: reset.
    Write,
    /// One side has finished sending, and nothing that is waited for has made progress for too long: reset.
    HalfClosed,
    /// It has lingered for long enough: close.
    Linger,
}

impl Link {
    /// When [`Link::overdue`] should be asked; [`Instant::MAX`] for never. `is_awaited`: the peer waits for an
    /// answer that is being made, or we wait for what the peer still sends behind our FIN.
    #[inline]
    pub fn deadline(&self, limits: &Limits, is_awaited: bool) -> Instant {
        let write = if self.writing_since == Instant::MAX {
            Instant::MAX
        } else {
            self.writing_since + limits.write_timeout
        };
        write.min(self.half_closed_deadline(limits, is_awaited)).min(self.linger_deadline(limits))
    }

    /// While bytes are being sent, the write timeout applies.
    #[inline]
    fn half_closed_deadline(&self, limits: &Limits, is_awaited: bool) -> Instant {
        let counts = is_awaited
            && self.gone_since != Instant::MAX
            && !self.is_ending()
            && self.writing_since == Instant::MAX;
        if counts { self.gone_since + limits.half_closed_timeout } else { Instant::MAX }
    }

    /// While output is in flight, or ready, only the write timeout may end the connection.
    #[inline]
    fn linger_deadline(&self, limits: &Limits) -> Instant {
        if !self.is_lingering() || self.has_unsent() {
            return Instant::MAX;
        }
        self.lingering_since.max(self.sent_at) + limits.linger_timeout
    }

    /// Which of its deadlines has passed at `now`.
    pub fn overdue(&self, now: Instant, limits: &Limits, is_awaited: bool) -> Option<Overdue> {
        if self.writing_since != Instant::MAX && now >= self.writing_since + limits.write_timeout {
            return Some(Overdue::Write);
        }
        if now >= self.half_closed_deadline(limits, is_awaited) {
            return Some(Overdue::HalfClosed);
        }
        (now >= self.linger_deadline(limits)).then_some(Overdue::Linger)
    }
}
