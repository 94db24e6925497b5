//! The batcher's limits and rules.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// The most partitions.
pub const PARTITIONS_MAX: u32 = 65_536;

/// The largest `batch_bytes` and `record_bytes_max`: positions in a batch have 32 bits, with a margin.
const BYTES_MAX: usize = 1 << 30;

/// The limits and rules of a [`Batcher`](crate::Batcher). Each has a default.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Partitions are numbered from 0 to one less than this. 1.
    pub partitions: u32,
    /// Which records share a batch.
    pub layout: Layout,
    /// The most bytes of bodies in a batch; a larger record has a batch to itself. 1 MiB.
    pub batch_bytes: usize,
    /// The most records in a batch. 65 536.
    pub records_max: usize,
    /// The most bytes of a record's body. Beyond it: [`Refused::TooLarge`](crate::Refused::TooLarge). 1 MiB.
    pub record_bytes_max: usize,
    /// The most memory of all batches, in bytes, whether open, waiting for the sink or for its answer, and including
    /// memory kept for reuse. Beyond it: [`Refused::Full`](crate::Refused::Full). 64 MiB.
    pub memory_max: usize,
    /// The most unanswered batches of a lane (a partition, or everything: see [`Layout`]). With [`OnFailure::Keep`] it
    /// must be 1, so that a batch that has to be written again keeps its place. 1.
    pub in_flight_max: usize,
    /// The shortest time between closing one batch of a lane and the next, unless it is full; so a record that comes
    /// after a pause does not wait, and none waits longer than this for others. 0: batches are handed over at the end
    /// of each turn. 5 ms, as in Kafka's producers.
    pub linger: Duration,
    /// The handling of a batch that the sink does not accept or does not confirm.
    pub on_failure: OnFailure,
    /// The waiter of a record gets [`FailureKind::TimedOut`](crate::FailureKind::TimedOut) after this time; the batch
    /// stays in place and may still be written. 5 s.
    pub answer_timeout: Duration,
    /// The pause before the sink is retried after a failure. 50 ms.
    pub retry_after: Duration,
    /// The first record's id; the others follow. It must be random for every batcher, so that ids are unique.
    pub first_id: u128,
}

/// Which records share a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// All records: for sinks that keep all partitions in one place.
    Mixed,
    /// Records of one partition: for sinks that keep partitions apart.
    Partitioned,
}

/// The handling of a batch that the sink does not accept or does not confirm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// It is kept and retried for as long as it takes, before anything else of its lane. For records that were
    /// acknowledged when they were appended. (Batches that the sink will never accept are given up all the same:
    /// [`FailureKind::may_pass`](crate::FailureKind::may_pass).)
    Keep,
    /// It is given up, and its waiters are notified. Only a batch that the sink was too busy for is kept and retried.
    Report,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            partitions: 1,
            layout: Layout::Mixed,
            batch_bytes: 1 << 20,
            records_max: 1 << 16,
            record_bytes_max: 1 << 20,
            memory_max: 64 << 20,
            in_flight_max: 1,
            linger: Duration::from_millis(5),
            on_failure: OnFailure::Keep,
            answer_timeout: Duration::from_secs(5),
            retry_after: Duration::from_millis(50),
            first_id: random_id(),
        }
    }
}

/// An unpredictable id, from the standard library's hasher, which the system seeds.
pub fn random_id() -> u128 {
    let [high, low] = [0_u8, 1].map(|half| u128::from(RandomState::new().hash_one(half)));
    high << 64 | low
}

/// An option that is out of its range: its name, its value and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionsError(String);

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OptionsError {}

impl Options {
    /// How many lanes there are.
    pub(crate) fn lanes(&self) -> usize {
        match self.layout {
            Layout::Mixed => 1,
            Layout::Partitioned => self.partitions as usize,
        }
    }

    /// Says which option is out of its range.
    pub(crate) fn check(&self) -> Result<(), OptionsError> {
        let ranges = [
            ("partitions", self.partitions as usize, 1, PARTITIONS_MAX as usize),
            ("batch_bytes", self.batch_bytes, 1, BYTES_MAX),
            ("records_max", self.records_max, 1, 1 << 24),
            ("record_bytes_max", self.record_bytes_max, 0, BYTES_MAX),
            ("in_flight_max", self.in_flight_max, 1, 1 << 16),
        ];
        for (name, value, min, max) in ranges {
            if !(min..=max).contains(&value) {
                return Err(OptionsError(format!(
                    "{name} is {value}; it may be from {min} to {max}"
                )));
            }
        }
        let needed = self.memory_min();
        if self.memory_max < needed {
            return Err(OptionsError(format!(
                "memory_max is {}; with these batches and partitions it must be {needed} or more",
                self.memory_max
            )));
        }
        if self.on_failure == OnFailure::Keep && self.in_flight_max != 1 {
            return Err(OptionsError(format!(
                "in_flight_max is {}; with OnFailure::Keep it must be 1, so that order is kept",
                self.in_flight_max
            )));
        }
        Ok(())
    }

    /// The least `memory_max` with which an empty batcher accepts every record within `record_bytes_max`.
    fn memory_min(&self) -> usize {
        self.batch_bytes.max(self.record_bytes_max) + 2 * crate::batch::OVERHEAD_MIN
    }

    /// A batch larger than this is not kept for reuse: it held a very large record.
    pub(crate) fn spare_bytes_max(&self) -> usize {
        2 * self.batch_bytes + crate::batch::OVERHEAD_MIN + 4 * self.records_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: an option that is out of its range is refused by its name, its value and the range; one at its end is not.
    #[test]
    fn ranges() {
        type Set = fn(&mut Options, usize);
        let cases: [(&str, Set, usize, usize); 5] = [
            ("partitions", |options, value| options.partitions = value as u32, 1, 65_536),
            ("batch_bytes", |options, value| options.batch_bytes = value, 1, 1 << 30),
            ("records_max", |options, value| options.records_max = value, 1, 1 << 24),
            ("record_bytes_max", |options, value| options.record_bytes_max = value, 0, 1 << 30),
            ("in_flight_max", |options, value| options.in_flight_max = value, 1, 1 << 16),
        ];
        for (name, set, min, max) in cases {
            let message = |value: usize| {
                let mut options = Options {
                    on_failure: OnFailure::Report,
                    memory_max: 1 << 31,
                    ..Options::default()
                };
                set(&mut options, value);
                options.check().err().map(|error| error.to_string())
            };
            assert_eq!([message(min), message(max)], [None, None], "{name}");
            for value in [min.checked_sub(1), Some(max + 1)].into_iter().flatten() {
                let text = message(value).expect("out of range");
                assert_eq!(text, format!("{name} is {value}; it may be from {min} to {max}"));
            }
        }
    }

    /// Purpose: options that contradict each other are refused with what to change.
    #[test]
    fn contradictions() {
        let least = (1 << 20) + 640;
        for (memory_max, is_enough) in [(least - 1, false), (least, true), (least + 1, true)] {
            let checked = Options { memory_max, ..Options::default() }.check();
            assert_eq!(checked.is_ok(), is_enough, "{memory_max}");
            assert!(
                checked.err().is_none_or(|error| error.to_string().contains(&least.to_string()))
            );
        }
        let checked = Options { in_flight_max: 2, ..Options::default() }.check();
        assert!(checked.is_err_and(|error| error.to_string().contains("OnFailure::Keep")));
    }
}
