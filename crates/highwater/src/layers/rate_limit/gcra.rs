//! The generic cell rate algorithm: may this request pass, and when may the next one?
//!
//! A key has one number, the time at which its full allowance is available again (its theoretical arrival time). A request
//! moves it by the interval at which requests may come; it may not be further ahead of now than the burst allows. It is a leaky
//! bucket without a timer. Time is an argument, in nanoseconds since any fixed point.

/// A rate, and how far it may be exceeded at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    /// Nanoseconds from one request to the next in the long run. At least 1.
    pub(super) interval: u64,
    /// How many may come at once after a pause. At least 1.
    pub(super) burst: u64,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) is_allowed: bool,
    /// How many more may come now.
    pub(super) remaining: u64,
    /// Nanoseconds until one more may come; 0 if it may now.
    pub(super) retry_after: u64,
    /// Nanoseconds until everything is forgotten.
    pub(super) reset_after: u64,
    /// The number to keep for the key.
    pub(super) until: u64,
}

impl Rate {
    /// Decides about a request at `now`, of a key whose number is `until`; 0 for a key that is not known.
    pub(super) fn decide(&self, until: u64, now: u64) -> Decision {
        let ahead = until.saturating_sub(now);
        let most = self.interval.saturating_mul(self.burst);
        let is_allowed = ahead.saturating_add(self.interval) <= most;
        let spent = if is_allowed { ahead + self.interval } else { ahead };
        let room = most.saturating_sub(spent);
        Decision {
            is_allowed,
            remaining: room / self.interval,
            retry_after: spent.saturating_add(self.interval).saturating_sub(most),
            reset_after: spent,
            until: now.saturating_add(spent),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Purpose: a burst passes, then one per interval; what is refused costs nothing, and a pause gives the burst back.
    #[test]
    fn five_per_ten_seconds() {
        let rate = Rate { interval: 2, burst: 5 };
        let mut until = 0;
        let mut ask = |now: u64| {
            let decision = rate.decide(until, now);
            until = decision.until;
            (decision.is_allowed, decision.remaining, decision.retry_after, decision.reset_after)
        };
        assert_eq!(ask(100), (true, 4, 0, 2));
        assert_eq!(ask(100), (true, 3, 0, 4));
        assert_eq!(ask(100), (true, 2, 0, 6));
        assert_eq!(ask(100), (true, 1, 0, 8));
        assert_eq!(ask(100), (true, 0, 2, 10));
        assert_eq!(ask(100), (false, 0, 2, 10));
        assert_eq!(ask(101), (false, 0, 1, 9));
        assert_eq!(ask(102), (true, 0, 2, 10));
        assert_eq!(ask(103), (false, 0, 1, 9));
        assert_eq!(ask(200), (true, 4, 0, 2));
    }

    proptest! {
        /// Purpose: in any window of any length no more pass than the burst and the rate allow, by a count of their times.
        #[test]
        fn never_more(interval in 1u64..50, burst in 1u64..20, waits in proptest::collection::vec(0u64..60, 1..200)) {
            let rate = Rate { interval, burst };
            let (mut until, mut now, mut passed) = (0, 1000, Vec::new());
            for wait in waits {
                now += wait;
                let decision = rate.decide(until, now);
                until = decision.until;
                prop_assert!(decision.remaining < burst.max(1) + u64::from(!decision.is_allowed));
                if decision.is_allowed {
                    passed.push(now);
                } else {
                    // When it says so, one may come, and not before.
                    prop_assert!(rate.decide(until, now + decision.retry_after).is_allowed);
                    prop_assert!(!rate.decide(until, now + decision.retry_after - 1).is_allowed);
                }
            }
            for (index, first) in passed.iter().enumerate() {
                for (count, last) in passed[index..].iter().enumerate() {
                    prop_assert!((count as u64) < burst + (last - first) / interval);
                }
            }
        }
    }
}
