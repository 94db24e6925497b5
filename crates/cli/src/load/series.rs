//! What happened in each piece of a run? Counters over time; no clock.
//!
//! The points of the warm-up are kept apart. One begins where the measured span does, however long the warm-up is.

use std::time::Duration;

use highwater_core::time::Instant;

use super::counts::Counts;

/// The spans a run consists of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// When the first request is sent.
    pub(crate) start: Instant,
    /// The measured span.
    pub(crate) from: Instant,
    pub(crate) to: Instant,
    /// Of one point of the series.
    pub(crate) step: Duration,
    /// Of one interval of the log of latencies.
    pub(crate) interval: Duration,
}

impl Span {
    /// Whether a request that was meant for `intended` is measured.
    pub(crate) fn measures(&self, intended: Instant) -> bool {
        (self.from..self.to).contains(&intended)
    }
}

/// The counters of each point of a run.
pub(crate) struct Series {
    points: Vec<Counts>,
    /// When the run starts, and how long before that the first point begins: less than an interval.
    start: Instant,
    lead: Duration,
    step: Duration,
    /// How many of the first points are of the warm-up.
    warm_up: usize,
}

impl Series {
    pub(crate) fn new(span: Span) -> Series {
        let warm_up = span.from - span.start;
        let per_interval = span.interval.as_nanos() / span.step.as_nanos();
        let interval = span.step * per_interval as u32;
        // Whole intervals, since those are what is reported.
        let intervals = warm_up.as_nanos().div_ceil(interval.as_nanos());
        Series {
            points: Vec::new(),
            start: span.start,
            lead: interval * intervals as u32 - warm_up,
            step: span.step,
            warm_up: (intervals * per_interval) as usize,
        }
    }

    /// The point that `now` falls into.
    #[inline]
    pub(crate) fn at(&mut self, now: Instant) -> &mut Counts {
        let index = ((now - self.start + self.lead).as_nanos() / self.step.as_nanos()) as usize;
        if index >= self.points.len() {
            self.points.resize(index + 1, Counts::default());
        }
        &mut self.points[index]
    }

    /// The points from the beginning of the measured span on.
    pub(crate) fn measured(&self) -> &[Counts] {
        self.points.get(self.warm_up..).unwrap_or_default()
    }

    /// Everything, including the warm-up.
    pub(crate) fn total(&self) -> Counts {
        let mut total = Counts::default();
        self.points.iter().for_each(|point| total.add(point));
        total
    }

    /// Measures the warm-up, too.
    pub(crate) fn measure_all(&mut self) {
        self.warm_up = 0;
    }

    /// Adds what happened to another client in the same span.
    pub(crate) fn merge(&mut self, other: &Series) {
        if self.points.len() < other.points.len() {
            self.points.resize(other.points.len(), Counts::default());
        }
        for (mine, theirs) in self.points.iter_mut().zip(&other.points) {
            mine.add(theirs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Purpose: the series has no points of the warm-up, and begins with the measured span, whether or not the warm-up is a
    /// number of whole points. Once, its sums were larger than the totals by the warm-up.
    #[test]
    fn the_series_is_without_the_warm_up() {
        for (warm_up, step) in [(0, 100), (1000, 100), (300, 1000), (250, 100), (1000, 50)] {
            let start = Instant::from_nanos(1_000_000);
            let from = start + ms(warm_up);
            let interval = ms(step * if step == 50 { 2 } else { 1 });
            let span = Span { start, from, to: from + ms(2000), step: ms(step), interval };
            let mut series = Series::new(span);
            let instants = (0..warm_up + 2000).step_by(10).map(|at| start + ms(at));
            for now in instants {
                series.at(now).sent += 1;
            }
            let measured: Vec<u64> = series.measured().iter().map(|it| it.sent).collect();
            let expected = vec![step / 10; 2000 / step as usize];
            assert_eq!(measured, expected, "warm-up of {warm_up} ms, points of {step} ms");
            assert_eq!(series.total().sent, (warm_up + 2000) / 10);
            series.measure_all();
            let all: u64 = series.measured().iter().map(|it| it.sent).sum();
            assert_eq!(all, (warm_up + 2000) / 10, "a run that has ended in its warm-up");
        }
    }
}
