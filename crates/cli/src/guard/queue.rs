//! How long do requests wait before another server reads them?
//!
//! From outside, a waiting request is a connection with bytes that its server has not read, in the
//! listener's backlog or at its own socket. The kernel knows since when ([`InetDiag`]). Requests
//! that wait at one moment have waited, on average, for half of their whole wait; so twice their
//! median is the delay. This holds for servers that read a request when they begin with it, as
//! event loops, thread pools and processes do. A queue inside a server, after it has read, is not
//! visible here.
//!
//! Pure: observations in, a duration out.
//!
//! [`InetDiag`]: highwater_sys::InetDiag

use std::time::Duration;

use highwater_sys::Connections;

/// Fewer waiting requests are not a queue: every request waits for a moment.
const WAITING_MIN: usize = 4;

/// A longer wait usually means that the server leaves the bytes unread on purpose, as with a
/// throttled upload; unless nearly all connections wait that long.
const WAIT_MAX_MS: u32 = 1000;

/// How long requests wait now.
pub(crate) fn delay(seen: &Connections) -> Duration {
    let mut waiting = seen.waiting_ms.clone();
    let is_majority = waiting.len() * 2 >= (seen.established + seen.abandoned) as usize;
    if !is_majority {
        waiting.retain(|&wait_ms| wait_ms <= WAIT_MAX_MS);
    }
    if waiting.len() < WAITING_MIN {
        return Duration::ZERO;
    }
    let middle = waiting.len() / 2;
    let (_, median, _) = waiting.select_nth_unstable(middle);
    Duration::from_millis(2 * u64::from(*median))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delay_ms(established: u32, waiting_ms: impl IntoIterator<Item = u32>) -> u128 {
        let waiting_ms = waiting_ms.into_iter().collect();
        delay(&Connections { established, waiting_ms, ..Connections::default() }).as_millis()
    }

    /// Purpose: a queue that is served in order, one request a millisecond, is as long as its
    /// delay.
    #[test]
    fn a_queue_has_its_length() {
        for length in [10, 100, 500] {
            let delay = delay_ms(1000, 0..length);
            assert!(delay.abs_diff(u128::from(length)) <= 1, "{length}: {delay}");
        }
    }

    /// Purpose: no queue is reported for a few requests at once, many idle connections, or
    /// throttled uploads. But one is reported for a server that is hopelessly behind.
    #[test]
    fn what_is_no_queue_is_none() {
        assert_eq!(delay_ms(3, [900; 3]), 0);
        assert_eq!(delay_ms(10_000, []), 0);
        assert_eq!(delay_ms(10_000, [60_000; 500]), 0);
        assert_eq!(delay_ms(600, [60_000; 500]), 120_000);
        assert_eq!(delay_ms(10_000, [60_000; 5].into_iter().chain([5; 5])), 10);
    }
}
