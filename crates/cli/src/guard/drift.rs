//! Does the gate's count agree with the kernel's list of connections?
//!
//! The gate counts events, and misses some: it does not see the end of a connection that began
//! before the gate, and it may see the end of one that an earlier gate counted. The list is right, but
//! a moment older or younger than the count, and under load the two never quite agree. So a difference
//! that lasted *throughout* the last second, in one direction, is an error and is corrected; all other
//! differences are differences in time.
//!
//! Pure: differences and time in, a correction out.

use std::time::Duration;

use highwater_core::time::Instant;

/// How long a difference must last. Without lost packets, neither a handshake nor the end of a
/// connection takes longer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Fewer observations in that time may all have come at a wrong moment.
const LOOKS_MIN: u32 = 3;

/// The recent differences between the count and the list.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Drift {
    since: Option<Instant>,
    least: i64,
    most: i64,
    looks: u32,
    has_added: bool,
}

impl Drift {
    /// Whether the list ever had connections that the count lacked.
    pub(crate) fn has_added(&self) -> bool {
        self.has_added
    }

    /// Takes in that at `now` the count was greater than the list by `difference`; answers the
    /// correction to add to the count.
    pub(crate) fn observe(&mut self, now: Instant, difference: i64) -> i64 {
        let since = *self.since.get_or_insert(now);
        let is_first = self.looks == 0;
        self.least = if is_first { difference } else { self.least.min(difference) };
        self.most = if is_first { difference } else { self.most.max(difference) };
        self.looks += 1;
        if now.saturating_since(since) < PATIENCE || self.looks < LOOKS_MIN {
            return 0;
        }
        let correction = if self.least > 0 { -self.least } else { -self.most.min(0) };
        *self = Drift { has_added: self.has_added || correction > 0, ..Drift::default() };
        correction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Observes `difference`, corrected by the earlier answers, every tenth of a second; returns
    /// all corrections.
    fn run(seconds: u64, mut difference: impl FnMut(u64) -> i64) -> Vec<i64> {
        let (mut drift, mut corrected, mut made) = (Drift::default(), 0, Vec::new());
        for step in 0..seconds * 10 {
            let now = Instant::ZERO + Duration::from_millis(step * 100);
            let correction = drift.observe(now, difference(step) + corrected);
            corrected += correction;
            made.extend((correction != 0).then_some(correction));
        }
        made
    }

    /// Purpose: an error in either direction is corrected once, wholly, and within two seconds.
    #[test]
    fn errors_are_corrected() {
        for error in [1, -1, 500, -500] {
            assert_eq!(run(2, |_| error), [-error]);
            assert_eq!(run(60, |_| error), [-error]);
        }
        // One that appears later, on top of a count that runs ahead now and then.
        assert_eq!(run(10, |step| if step < 50 { 0 } else { 7 + (step % 3) as i64 }), [-7]);
    }

    /// Purpose: under load the two are read at different moments; that difference is not an error,
    /// however large.
    #[test]
    fn differences_in_time_are_none() {
        assert!(run(600, |step| [300, -200, 0, 50][step as usize % 4]).is_empty());
        assert!(run(600, |step| [0, 40][step as usize % 2]).is_empty());
    }
}
