//! How long do requests wait before a server that is not ours reads them?
//!
//! From outside, a request that waits is a connection with bytes that its server has not read, in the
//! listener's backlog or at its own socket, and the kernel knows since when ([`InetDiag`]). Those that
//! wait at one moment have waited for half of what they will have, on the whole; so twice their median
//! is the delay. It holds for servers that read when they begin with a request, as event loops, thread
//! pools and processes do; a queue within a server, behind its reading, is not seen here.
//!
//! Pure: what was seen in, a duration out.
//!
//! [`InetDiag`]: highwater_sys::InetDiag

use std::time::Duration;

use highwater_sys::Connections;

/// Fewer waiting at once are no queue: every request waits for a moment.
const WAITING_MIN: usize = 4;

/// Who waits longer is usually not queued but left unread on purpose, as an upload that is held back;
/// unless nearly everybody does.
const WAIT_MAX_MS: u32 = 1000;

/// How long requests wait now.
pub(crate) fn delay(seen: &Connections) -> Duration {
    let mut waiting = seen.waiting_ms.clone();
    let is_everybody = waiting.len() * 2 >= (seen.established + seen.abandoned) as usize;
    if !is_everybody {
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

    /// Purpose: a queue that is served in order, one request a millisecond, is as long as its delay.
    #[test]
    fn a_queue_has_its_length() {
        for length in [10, 100, 500] {
            let delay = delay_ms(1000, 0..length);
            assert!(delay.abs_diff(u128::from(length)) <= 1, "{length}: {delay}");
        }
    }

    /// Purpose: what is no queue refuses nobody: a few at once, many idle connections, uploads that
    /// somebody holds back. But a server that is hopelessly behind is.
    #[test]
    fn what_is_no_queue_is_none() {
        assert_eq!(delay_ms(3, [900; 3]), 0);
        assert_eq!(delay_ms(10_000, []), 0);
        assert_eq!(delay_ms(10_000, [60_000; 500]), 0);
        assert_eq!(delay_ms(600, [60_000; 500]), 120_000);
        assert_eq!(delay_ms(10_000, [60_000; 5].into_iter().chain([5; 5])), 10);
    }
}
