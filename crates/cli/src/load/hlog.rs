//! Latencies over time, as the log that HdrHistogram's tools read (`.hlog`, format 1.3, histograms V2).
//!
//! Each client thread counts into one histogram; when an interval is over, it is kept in its serialized form, a
//! kilobyte or so, and the histogram is cleared. At the end, the intervals of all threads are added up and written.
//! Values are nanoseconds with three digits, as the Java library's own logs have them.

use std::io::Write;
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer, V2Serializer};
use highwater_core::time::Instant;

use super::args::DURATION_MAX;

/// Significant decimal digits of a value.
const DIGITS: u8 = 3;
/// The log's column of maxima is in milliseconds.
const NANOS_PER_MAX: f64 = 1e6;

/// The latencies of one thread, by interval.
pub(crate) struct Intervals {
    from: Instant,
    step: Duration,
    current: Histogram<u64>,
    /// Number of the current interval.
    index: u64,
    /// Intervals that are over, by number, in order within each thread.
    done: Vec<(u64, Vec<u8>)>,
}

impl Intervals {
    pub(crate) fn new(from: Instant, step: Duration) -> Intervals {
        Intervals { from, step, current: empty(), index: 0, done: Vec::new() }
    }

    /// An answer that took `nanos` came at `now`.
    pub(crate) fn record(&mut self, now: Instant, nanos: u64) {
        let index = ((now - self.from).as_nanos() / self.step.as_nanos()) as u64;
        if index != self.index {
            self.end_interval();
            self.index = index;
        }
        self.current.saturating_record(nanos);
    }

    fn end_interval(&mut self) {
        if !self.current.is_empty() {
            let mut bytes = Vec::new();
            V2Serializer::new()
                .serialize(&self.current, &mut bytes)
                .expect("counts of one run fit into the format");
            self.done.push((self.index, bytes));
            self.current.reset();
        }
    }

    /// Adds those of another thread.
    pub(crate) fn merge(&mut self, mut other: Intervals) {
        other.end_interval();
        self.done.append(&mut other.done);
    }

    /// Writes the log. `start` is the time of day when the first interval began; at least `count` intervals
    /// are written, even without answers, so that a stall is visible.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub(crate) fn write(
        mut self,
        start: SystemTime,
        count: u64,
        out: &mut impl Write,
    ) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        self.end_interval();
        self.done.sort_by_key(|(index, _)| *index);
        let last = self.done.last().map_or(0, |(index, _)| index + 1);
        let mut serializer = V2DeflateSerializer::new();
        let mut log = IntervalLogWriterBuilder::new()
            .add_comment("[Histogram log format version 1.3]")
            .add_comment(
                "[Logged with highwater load; values in nanoseconds, maxima in milliseconds]",
            )
            .with_start_time(start)
            .with_base_time(start)
            .with_max_value_divisor(NANOS_PER_MAX)
            .begin_log_with(out, &mut serializer)
            .map_err(|error| failed(&error))?;
        let mut done = self.done.into_iter().peekable();
        for index in 0..last.max(count) {
            let mut sum = empty();
            while let Some((_, bytes)) = done.next_if(|(of, _)| *of == index) {
                let part: Histogram<u64> = Deserializer::new()
                    .deserialize(&mut bytes.as_slice())
                    .expect("it was serialized here");
                sum.add(part).expect("all have the same bounds");
            }
            let at = Duration::from_nanos((self.step.as_nanos() * u128::from(index)) as u64);
            log.write_histogram(&sum, at, self.step, None).map_err(|error| failed(&error))?;
        }
        Ok(())
    }
}

fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, DURATION_MAX.as_nanos() as u64, DIGITS)
        .expect("the bounds and the digits are within what it takes")
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;

    /// Purpose: what was recorded by several threads stands in the log once, in the interval in which it came, read
    /// with HdrHistogram's own reader; intervals without answers are there too.
    #[test]
    fn read_back() {
        let from = Instant::from_nanos(5_000);
        let step = Duration::from_millis(100);
        let mut first = Intervals::new(from, step);
        let mut second = Intervals::new(from, step);
        for count in 1..=100_u64 {
            first.record(from + step * 2, count * 1_000_000);
        }
        first.record(from + step * 4, 7);
        second.record(from, 123_456);
        second.record(from + (step * 3 - Duration::from_nanos(1)), 5_000_000_000);
        first.merge(second);
        let mut log = Vec::new();
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        first.write(start, 7, &mut log).expect("memory takes everything");
        let text = String::from_utf8(log).expect("a log is text");
        assert!(text.starts_with("#[Histogram log format version 1.3]\n"), "{text}");
        assert!(text.contains("#[StartTime: 1700000000.000 "), "{text}");
        let mut seen = Vec::new();
        for entry in IntervalLogIterator::new(text.as_bytes()) {
            let LogEntry::Interval(interval) = entry.expect("a valid line") else { continue };
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(interval.encoded_histogram())
                .expect("base64");
            let found: Histogram<u64> =
                Deserializer::new().deserialize(&mut bytes.as_slice()).expect("a histogram");
            assert_eq!(interval.duration(), step);
            assert_eq!(interval.start_timestamp(), step * seen.len() as u32);
            seen.push((found.len(), found.value_at_quantile(0.5), found.max()));
        }
        assert_eq!(seen.iter().map(|seen| seen.0).collect::<Vec<_>>(), [1, 0, 101, 0, 1, 0, 0]);
        let near = |value: u64, expected: u64| value.abs_diff(expected) <= expected / 1000 + 1;
        assert!(near(seen[0].1, 123_456), "{seen:?}");
        assert!(near(seen[2].1, 51_000_000) && near(seen[2].2, 5_000_000_000), "{seen:?}");
    }
}
