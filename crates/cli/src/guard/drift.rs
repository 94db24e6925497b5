//! Does the gate's count agree with the kernel's list of connections?
//!
//! The gate counts by events, and misses some: it is not told when a connection ends that began before
//! it did, and a predecessor's may end in its time; a handshake that is never finished has taken a place
//! as well. The list knows, but is a moment older or younger than the count, and under load the two
//! never quite agree. So what they have differed by *throughout* the last second, in one direction, is
//! an error, and is corrected; all else is a difference in time.
//!
//! Pure: differences and time in, a correction out.

use std::time::Duration;

use highwater_core::time::Instant;

/// How long a difference must last. A handshake takes no longer, nor does the end of a connection,
/// unless packets are lost.
const PATIENCE: Duration = Duration::from_secs(1);

/// Fewer looks in that time may all have come at the wrong moment.
const LOOKS_MIN: u32 = 3;

/// What the count and the list have differed by lately.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Drift {
    since: Option<Instant>,
    least: i64,
    most: i64,
    looks: u32,
}

impl Drift {
    /// Takes in that at `now` the count was by so much greater than the list; answers what is to be
    /// added to the count.
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
        *self = Drift::default();
        correction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has `difference` observed every tenth of a second, as it is when corrected by what was answered;
    /// returns all corrections.
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

    /// Purpose: under load the two are seen at different moments; that is no error, however large.
    #[test]
    fn differences_in_time_are_none() {
        assert!(run(600, |step| [300, -200, 0, 50][step as usize % 4]).is_empty());
        assert!(run(600, |step| [0, 40][step as usize % 2]).is_empty());
    }
}
