//! How many connections per second may each source open, while more come than can be served?
//!
//! The gate counts the attempts of each source; from that and the capacity `core::limit::Level` finds the rate at which
//! all that is admitted is what can be served. The gate holds each source to it. Until a queue stands, sources are
//! not looked at.

use highwater_core::limit::{Level, Sample};
use highwater_sys::bpf::Sources;

/// Sets the rate of each source.
#[derive(Debug)]
pub(crate) struct SourceShares {
    sources: Sources,
    level: Level,
    is_counting: bool,
}

impl SourceShares {
    pub(crate) fn new(sources: Sources) -> SourceShares {
        SourceShares { sources, level: Level::default(), is_counting: false }
    }

    /// Takes in a sample. `is_open` says that the gate refuses nobody. Returns how many connections were refused so far
    /// because their source had had its share.
    pub(super) fn on_sample(&mut self, sample: &Sample, is_open: bool) -> u64 {
        let wants = sample.standing > 0 && !is_open;
        match (self.is_counting, wants) {
            (false, false) => {}
            (false, true) => {
                self.sources.count();
                self.level.begin(self.sources.seen());
            }
            (true, true) => {
                let gap = self.level.look(sample.span, self.sources.seen(), capacity(sample));
                self.sources.set_gap(gap);
            }
            (true, false) => self.sources.stop(),
        }
        self.is_counting = wants;
        self.sources.refused()
    }
}

/// How many requests the workers can serve per second: those with a standing queue what the cost of a request allows,
/// the others what they did serve.
fn capacity(sample: &Sample) -> f32 {
    let served = sample.started as f32 / sample.span.as_secs_f32().max(1e-6);
    let others =
        sample.workers.saturating_sub(sample.standing) as f32 / sample.workers.max(1) as f32;
    let standing = sample.standing as f32 / sample.cost.as_secs_f32().max(1e-9);
    if sample.cost.is_zero() { served } else { standing + served * others }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
    }
}
