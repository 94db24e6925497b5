//! What were the rates over the last second?
//!
//! Pure: running totals in, rates out. Bounded: totals older than a second are dropped, and so is
//! the oldest of more than [`LOOKS_MAX`].

use std::collections::VecDeque;
use std::time::Duration;

use highwater_core::time::Instant;

use super::window::Counted;

/// The span of the rates.
const SPAN: Duration = Duration::from_secs(1);

/// Four times what the guard's turns need.
const LOOKS_MAX: usize = 160;

/// Connections per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    /// `None` if the mechanism cannot tell.
    pub(crate) admitted: Option<f64>,
    pub(crate) refused: f64,
    /// Likewise.
    pub(crate) completed: Option<f64>,
}

/// Keeps a second of totals.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    looks: VecDeque<(Instant, Counted)>,
}

impl Meter {
    /// Takes in the counts until `now`; answers the rates of the last second.
    pub(crate) fn add(&mut self, now: Instant, counted: Counted) -> Rates {
        self.looks.push_back((now, counted));
        let is_old = |look: Option<&(Instant, Counted)>| {
            look.is_some_and(|(at, _)| now.saturating_since(*at) >= SPAN)
        };
        while self.looks.len() > LOOKS_MAX || is_old(self.looks.get(1)) {
            self.looks.pop_front();
        }
        let (began, first) = self.looks.front().copied().unwrap_or((now, counted));
        let seconds = now.saturating_since(began).as_secs_f64();
        if seconds == 0.0 {
            let none = |count: Option<u64>| count.map(|_| 0.0);
            let (admitted, completed) = (none(counted.admitted), none(counted.completed));
            return Rates { admitted, completed, ..Rates::default() };
        }
        let rate = |last: u64, first: u64| last.saturating_sub(first) as f64 / seconds;
        let known =
            |last: Option<u64>, first| last.zip(first).map(|(last, first)| rate(last, first));
        Rates {
            admitted: known(counted.admitted, first.admitted),
            refused: rate(counted.refused, first.refused),
            completed: known(counted.completed, first.completed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a rate covers the last second, however often the totals come, from the first one
    /// on; and frequent totals cost no memory.
    #[test]
    fn rates_are_of_the_last_second() {
        for turn_ms in [1, 25, 100, 400] {
            let (mut meter, mut now) = (Meter::default(), Instant::ZERO);
            let mut counted = Counted::default();
            (counted.admitted, counted.completed) = (Some(0), Some(0));
            assert_eq!(meter.add(now, counted).admitted, Some(0.0));
            let mut rates = Rates::default();
            for (per_ms, turns) in [(50, 3000 / turn_ms), (2, 2000 / turn_ms)] {
                for _ in 0..turns {
                    now += Duration::from_millis(turn_ms);
                    counted.admitted = counted.admitted.map(|before| before + per_ms * turn_ms);
                    counted.completed = counted.completed.map(|before| before + turn_ms);
                    rates = meter.add(now, counted);
                }
                assert_eq!(rates.admitted, Some(1000.0 * per_ms as f64), "every {turn_ms} ms");
                assert_eq!(rates.completed, Some(1000.0));
            }
            assert!(meter.looks.len() <= LOOKS_MAX);
        }
    }
}
