//! How many frames that cost work and carry no request may a peer send?
//!
//! Each rate is stored as one point in time: when everything so far would be paid for, at the given rate. It is never far
//! ahead of the clock (generic cell rate algorithm), so no timer is needed.

use core::time::Duration;

use super::super::error::{Error, ErrorCode};
use crate::http::Http2Limits;
use crate::time::Instant;

/// A frame with a request or content pays for so many without.
const FRAMES_PAID: u32 = 4;

/// So many seconds' worth of control frames may come at once.
const CONTROL_BURST_SECONDS: u32 = 10;

/// One rate.
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// When all that was done is paid for.
    paid_at: Instant,
}

impl Rate {
    const NEW: Rate = Rate { paid_at: Instant::ZERO };

    fn interval(per_second: u32) -> Duration {
        Duration::from_nanos(1_000_000_000 / u64::from(per_second.max(1)))
    }

    /// Counts one. Returns false if there were more than `per_second` on average, and `burst` at once.
    fn take(&mut self, now: Instant, per_second: u32, burst: u32) -> bool {
        let interval = Rate::interval(per_second);
        self.paid_at = self.paid_at.max(now) + interval;
        self.paid_at <= now + interval * burst.max(1)
    }

    fn pay(&mut self, per_second: u32, times: u32) {
        let paid = Rate::interval(per_second) * times;
        self.paid_at = self.paid_at.checked_sub(paid).unwrap_or(Instant::ZERO);
    }
}

/// The rates of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calm {
    resets: Rate,
    control: Rate,
    /// Frames with content that were sent, and have not paid for others.
    sent: u32,
}

impl Calm {
    pub(super) const NEW: Calm = Calm { resets: Rate::NEW, control: Rate::NEW, sent: 0 };

    /// The peer has reset a stream, or made us reset it, before it was answered.
    ///
    /// # Errors
    /// There were too many: the end of the connection.
    pub(super) fn reset(&mut self, now: Instant, limits: &Http2Limits) -> Result<(), Error> {
        let burst = limits.streams_max.saturating_add(limits.resets_per_second);
        match self.resets.take(now, limits.resets_per_second, burst) {
            true => Ok(()),
            false => Err(calm("too many streams are reset before they are answered")),
        }
    }

    /// A frame came that carries neither a request nor content.
    ///
    /// # Errors
    /// There were too many: the end of the connection.
    pub(super) fn control(&mut self, now: Instant, limits: &Http2Limits) -> Result<(), Error> {
        let rate = limits.control_per_second;
        let sent = core::mem::take(&mut self.sent);
        self.control.pay(rate, sent.saturating_mul(FRAMES_PAID));
        match self.control.take(now, rate, rate.saturating_mul(CONTROL_BURST_SECONDS)) {
            true => Ok(()),
            false => Err(calm("too many frames carry neither a request nor content")),
        }
    }

    /// A piece of content without an end was sent: a client may open its windows again for each, as some do. It pays when
    /// they do, so that it costs one addition.
    #[inline]
    pub(super) fn sent(&mut self) {
        self.sent = self.sent.saturating_add(1);
    }

    /// A frame with a request or enough content came, or was sent and not [cut small](super::state::State::is_cut_small).
    #[inline]
    pub(super) fn work(&mut self, limits: &Http2Limits) {
        if self.control.paid_at != Instant::ZERO {
            self.control.pay(limits.control_per_second, FRAMES_PAID);
        }
    }
}

const fn calm(reason: &'static str) -> Error {
    Error::connection(ErrorCode::ENHANCE_YOUR_CALM, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a burst is allowed to the last, then one more per interval; work pays for control frames.
    #[test]
    fn bursts_and_averages() {
        let limits = Http2Limits { control_per_second: 10, ..Http2Limits::default() };
        let (mut calm, now) = (Calm::NEW, Instant::from_nanos(1_000_000_000));
        for n in 0..100 {
            assert!(calm.control(now, &limits).is_ok(), "{n}");
        }
        assert!(calm.clone().control(now, &limits).is_err());
        assert!(calm.clone().control(now + Duration::from_millis(99), &limits).is_err());
        assert!(calm.clone().control(now + Duration::from_millis(100), &limits).is_ok());
        calm.work(&limits);
        for n in 0..4 {
            assert!(calm.control(now, &limits).is_ok(), "{n}");
        }
        assert!(calm.control(now, &limits).is_err());
        calm.sent();
        for n in 0..3 {
            assert!(calm.control(now, &limits).is_ok(), "{n}, after one too many");
        }
        assert!(calm.control(now, &limits).is_err());
        let limits = Http2Limits { streams_max: 5, resets_per_second: 2, ..limits };
        for n in 0..7 {
            assert!(calm.reset(now, &limits).is_ok(), "{n}");
        }
        let error = calm.reset(now, &limits).expect_err("one too many");
        assert_eq!(error.code, ErrorCode::ENHANCE_YOUR_CALM);
    }
}
