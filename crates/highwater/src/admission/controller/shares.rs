//! How many connections per second may each source open, while more come than can be served?
//!
//! The gate counts the attempts of each source; from that and the capacity `core::limit::Level` finds the rate at which
//! all that is admitted is what can be served. The gate holds each source to it. Until a queue stands, sources are
//! not looked at.

use std::time::Duration;

use highwater_core::limit::{Level, Sample};
use highwater_sys::bpf::Sources;

/// In a shorter time, how many requests are served is chance.
const SPAN_MIN: Duration = Duration::from_millis(50);

/// Workers that had something to do for less than this share of the time say little about what they can do in all of it.
const BUSY_MIN: f32 = 0.1;

/// Sets the rate of each source.
#[derive(Debug)]
pub(crate) struct SourceShares {
    sources: Sources,
    level: Level,
    is_counting: bool,
    /// The gate is shut, and what its sources may have is not known yet.
    is_unsure: bool,
}

impl SourceShares {
    pub(crate) fn new(sources: Sources) -> SourceShares {
        SourceShares { sources, level: Level::default(), is_counting: false, is_unsure: false }
    }

    /// Takes in a sample, in which so many requests and connections were refused `by_workers`. `is_open` says that the gate
    /// refuses nobody. Returns how many connections were refused so far because their source had had its share.
    pub(super) fn on_sample(&mut self, sample: &Sample, by_workers: u64, is_open: bool) -> u64 {
        // While the workers are busy with refusing what came before, nothing is known about what they can serve.
        let is_busy_refusing = by_workers > sample.started;
        let wants = sample.standing > 0 && !is_open;
        match (self.is_counting, wants) {
            (false, false) => {}
            (false, true) => {
                self.sources.count();
                self.level.begin(self.sources.seen());
            }
            (true, true) => {
                let gap = self.level.look(sample.span, self.sources.seen(), capacity(sample));
                self.sources.set_gap(gap.filter(|_| !is_busy_refusing));
            }
            (true, false) => self.sources.stop(),
        }
        self.is_unsure = wants && (!self.is_counting || is_busy_refusing);
        self.is_counting = wants;
        self.sources.refused()
    }

    /// When the next sample is due, if it is not known yet what each source may have: until then the gate refuses those who ask
    /// for the least like those who ask for the most.
    pub(super) fn next_sample(&self) -> Option<Duration> {
        self.is_unsure.then_some(SPAN_MIN)
    }
}

/// How many requests the workers can serve per second: those with a standing queue what the cost of a request allows,
/// the others what they did serve. But at least what those served while they had something to do: the cost is a mean of
/// half a second, in which the first requests of an overload cost several times as much, because of all that came beside
/// them. A gate that believed it would leave the workers idle, and so they would learn of nothing else.
fn capacity(sample: &Sample) -> f32 {
    let served = sample.started as f32 / sample.span.as_secs_f32().max(1e-6);
    if sample.cost.is_zero() {
        return served;
    }
    let others =
        sample.workers.saturating_sub(sample.standing) as f32 / sample.workers.max(1) as f32;
    let standing = sample.standing as f32 / sample.cost.as_secs_f32().max(1e-9);
    let now =
        if sample.span < SPAN_MIN { 0.0 } else { served / (1.0 - sample.empty).max(BUSY_MIN) };
    (standing + served * others).max(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the capacity is what the workers can do, not what a gate that admits too little lets them do.
    #[test]
    fn the_capacity_is_what_can_be_served() {
        let sample = Sample {
            span: Duration::from_millis(100),
            cost: Duration::from_millis(1),
            started: 50,
            workers: 2,
            standing: 2,
            ..Sample::default()
        };
        let near =
            |sample: &Sample, expected: f32| (capacity(sample) / expected - 1.0).abs() < 0.01;
        assert!(near(&sample, 2000.0));
        assert!(
            near(&Sample { standing: 1, ..sample }, 1250.0),
            "one worker, and half of what was served"
        );
        assert!(near(&Sample { cost: Duration::ZERO, ..sample }, 500.0), "the cost is not known");
        let after_a_flood = Sample { cost: Duration::from_millis(8), empty: 0.75, ..sample };
        assert!(
            near(&after_a_flood, 2000.0),
            "a quarter of the time was enough for 500 per second"
        );
        let brief = Sample { span: Duration::from_millis(5), ..after_a_flood };
        assert!(near(&brief, 250.0), "too brief to say");
    }
}
