//! What may go wrong with the machine and its network, and when the process did not run.

use std::time::Duration;

use highwater_core::time::Instant;

/// What may go wrong, each as one chance in so many; zero for never.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    /// A client's connection breaks, per act of a client.
    pub(crate) reset_one_in: u64,
    /// How long a turn of the worker takes at most, in microseconds; one if zero.
    pub(crate) turn_micros_max: u64,
    /// The machine stands still for up to `jump_max`, per poll.
    pub(crate) jump_one_in: u64,
    /// The longest standstill.
    pub(crate) jump_max: Duration,
    /// The kernel runs out of something, per accepted connection.
    pub(crate) accept_failure_one_in: u64,
}

/// When the process did not run, though time passed: it was stopped, or its machine was.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    /// Whether they are judged: else nothing is remembered.
    pub(super) count: bool,
    past: Vec<(Instant, Instant)>,
}

/// Stops shorter than this are slow turns, as every server has them.
const STOP_MIN: Duration = Duration::from_millis(200);

impl Stops {
    /// The process did not run from `from` to `until`. Returns whether that counts.
    pub(super) fn note(&mut self, from: Instant, until: Instant) -> bool {
        let counts = self.count && until - from >= STOP_MIN;
        if counts {
            self.past.push((from, until));
        }
        counts
    }

    /// How much of the time from `since` to `now` it stood still.
    pub(crate) fn within(&self, since: Instant, now: Instant) -> Duration {
        let late = self.past.iter().rev().take_while(|(_, until)| *until > since);
        late.map(|(from, until)| (*until).min(now) - (*from).max(since)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: of several stops, what falls into a span is added up.
    #[test]
    fn within() {
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let mut stops = Stops { count: true, ..Stops::default() };
        stops.note(at(1), at(3));
        stops.note(at(5), at(6));
        stops.note(at(9), at(9) + STOP_MIN / 2);
        assert_eq!(stops.within(at(0), at(10)), Duration::from_secs(3));
        assert_eq!(stops.within(at(2), at(5)), Duration::from_secs(1));
        assert_eq!(stops.within(at(6), at(9)), Duration::ZERO);
        assert_eq!(stops.past.len(), 2);
    }
}
