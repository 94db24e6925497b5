//! How many connections per second may each source open, while more come than can be served?
//!
//! From the attempts of each source and the capacity follows the rate at which all that is admitted is what can be served
//! (`core::limit::Level`). Each source is held to it, by one of two means:
//!
//! | means | counts | holds back |
//! |---|---|---|
//! | [`GateShares`] | every attempt, in the kernel | exactly, by time |
//! | [`AcceptShares`] | what the workers accept (`core::limit::Thinning`) | a part of the attempts, at random, without a privilege (`sys::Diversion`) |
//!
//! Sources are counted from when a queue is long, and held back while one stands.

use std::time::Duration;

use highwater_core::limit::{Level, Sample, Thinning};
use highwater_sys::bpf::Sources;
use highwater_sys::{Diversion, HELD_MAX, Held};

use crate::admission::backlog::Backlogs;
use crate::admission::queue::REFUSALS_MAX;
use crate::admission::sources::AllSources;
use crate::logging::rate_limited;

/// In a shorter time, how many requests are served is chance.
const SPAN_MIN: Duration = Duration::from_millis(50);

/// Workers that had something to do for less than this share of the time say little about what they can do in all of it.
const BUSY_MIN: f32 = 0.1;

/// How many times the capacity counts while the workers are busy with refusing what came before: they could serve more. Less:
/// they are idle at the onset; more: those who ask for little are refused beside those who ask for the most.
const UNSURE: f32 = 2.0;

/// While sources are held back from a gate that is accepting, it has so many times the limit of places: so the queue, which
/// knows whose a request is, decides about the last ones, and not the listen queue, which drops anybody's. Tried with requests of
/// 1 ms beside ten times the capacity: with 4, those who ask for little lose 1.6 %; with 12, 0.2 %.
const WIDENING: u32 = 12;

/// How many attempts to connect there were.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptCounts {
    /// Of them, those that were accepted, and those that were dropped before, at a listener or because their source had had
    /// its share.
    pub(super) accepted: u64,
    pub(super) dropped: u64,
}

/// Holds sources back.
pub(crate) trait HoldSources: Send {
    /// A queue is long: sources are counted from now on, and none is held back.
    fn begin(&mut self);

    /// Takes in what came in `span`. From now on sources are held so that they bring `capacity` connections per second
    /// together; but none is unless `may_hold`.
    fn look(&mut self, span: Duration, counts: AttemptCounts, capacity: f32, may_hold: bool);

    /// No queue is long any more.
    fn stop(&mut self);

    /// How many connections were refused so far because their source had had its share.
    fn held_back(&mut self) -> u64;

    /// How many connections may be admitted, where the limiter says `limit`.
    fn widen(&self, limit: u32) -> u32;
}

/// By a program in the kernel, which counts the attempts of each source.
#[derive(Debug)]
pub(crate) struct GateShares {
    sources: Sources,
    level: Level,
}

impl GateShares {
    pub(crate) fn new(sources: Sources) -> GateShares {
        GateShares { sources, level: Level::default() }
    }
}

impl HoldSources for GateShares {
    fn begin(&mut self) {
        self.sources.count();
        self.level.begin(self.sources.seen());
    }

    fn look(&mut self, span: Duration, _: AttemptCounts, capacity: f32, may_hold: bool) {
        let gap = self.level.look(span, self.sources.seen(), capacity);
        self.sources.set_gap(gap.filter(|_| may_hold));
    }

    fn stop(&mut self) {
        self.sources.stop();
    }

    fn held_back(&mut self) -> u64 {
        self.sources.refused()
    }

    /// The program gives places beyond the limit to sources below the level.
    fn widen(&self, limit: u32) -> u32 {
        limit
    }
}

/// By a diversion, where the workers know only of the connections that they accept.
#[derive(Debug)]
pub(crate) struct AcceptShares {
    sources: AllSources,
    thinning: Thinning,
    diversion: Diversion,
    /// What was diverted; how much of it at the last look.
    sinks: Backlogs,
    held_back: u64,
    held: Vec<Held>,
}

impl AcceptShares {
    pub(in crate::admission) fn new(sources: AllSources, diversion: Diversion) -> AcceptShares {
        let sinks = Backlogs::of(diversion.sinks());
        let (thinning, held) = Default::default();
        AcceptShares { sources, thinning, diversion, sinks, held_back: 0, held }
    }

    fn hold(&mut self) {
        if let Err(error) = self.diversion.hold(&self.held) {
            self.held.clear();
            self.thinning.release();
            rate_limited!(
                WARN,
                error = %error,
                instead = "clients that keep their connections have shares in any case",
                "clients that ask for more than their share cannot be held back",
            );
        }
    }
}

impl HoldSources for AcceptShares {
    fn begin(&mut self) {
        self.sources.read();
        self.thinning.begin(self.sources.accepted());
    }

    fn look(&mut self, span: Duration, counts: AttemptCounts, capacity: f32, may_hold: bool) {
        let held_back = self.sinks.overflowed();
        let held_back_now = held_back - std::mem::replace(&mut self.held_back, held_back);
        let dropped = if self.thinning.holds() { held_back_now } else { counts.dropped };
        let attempts = counts.accepted + dropped;
        self.sources.read();
        self.diversion.empty();
        self.held.clear();
        let accepted = self.sources.accepted();
        let room = (capacity, HELD_MAX);
        for (bucket, passes) in self.thinning.look(span, accepted, attempts, room) {
            self.held.push(Held { source: self.sources.source(bucket), passes });
        }
        if !may_hold {
            self.held.clear();
            self.thinning.release();
        }
        self.hold();
    }

    fn stop(&mut self) {
        self.held.clear();
        self.hold();
    }

    fn held_back(&mut self) -> u64 {
        self.sinks.overflowed()
    }

    /// One source alone needs no order among sources, and the listen queue refuses it at less cost.
    fn widen(&self, limit: u32) -> u32 {
        let is_ordered = !self.held.is_empty() && !self.thinning.is_alone();
        if is_ordered { limit.saturating_mul(WIDENING) } else { limit }
    }
}

/// Decides when sources are held back.
pub(crate) struct SourceShares {
    means: Box<dyn HoldSources>,
    /// For how long sources have been counted; `None` while they are not.
    counted: Option<Duration>,
    /// What each source may have was known once, since sources are counted.
    is_sure: bool,
    /// A queue stands, and that must soon be looked at again.
    is_urgent: bool,
}

/// What a sample does not say about the attempts to connect in its span.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempts {
    pub(super) counts: AttemptCounts,
    /// How many refusals were by workers.
    pub(super) by_workers: u64,
    /// Nobody is refused before the workers.
    pub(super) is_open: bool,
    /// Sources may be held back.
    pub(super) may_hold: bool,
}

impl SourceShares {
    pub(crate) fn new(means: impl HoldSources + 'static) -> SourceShares {
        let means = Box::new(means);
        SourceShares { means, counted: None, is_sure: false, is_urgent: false }
    }

    /// Takes in a sample. Returns how many connections were refused so far because their source had had its share.
    pub(super) fn on_sample(&mut self, sample: &Sample, attempts: Attempts) -> u64 {
        let stands = sample.standing > 0 && !attempts.is_open;
        let counts = sample.long > 0 && !attempts.is_open;
        match (self.counted, counts) {
            (None, false) => {}
            (None, true) => {
                self.means.begin();
                self.counted = Some(Duration::ZERO);
                self.is_sure = false;
                self.is_urgent = stands;
            }
            (Some(counted), true) => {
                self.counted = Some(counted + sample.span);
                self.look(sample, attempts, stands);
            }
            (Some(_), false) => {
                self.means.stop();
                self.counted = None;
                self.is_urgent = false;
            }
        }
        self.means.held_back()
    }

    /// Sources are counted from before the sample on.
    fn look(&mut self, sample: &Sample, attempts: Attempts, stands: bool) {
        let is_counted = stands && self.counted >= Some(SPAN_MIN);
        // While the workers are busy with refusing what came before, little is known about what they can serve. Later,
        // refusals are part of it: of what chance brings beyond the shares.
        let is_busy_refusing = attempts.by_workers > sample.started || has_backlog(sample);
        self.is_sure |= is_counted && !is_busy_refusing;
        let capacity = capacity(sample) * if self.is_sure { 1.0 } else { UNSURE };
        self.means.look(sample.span, attempts.counts, capacity, is_counted && attempts.may_hold);
        self.is_urgent = stands && !self.is_sure;
    }

    /// When the next sample is due, if it is not known yet what each source may have: until then those who ask for the least
    /// are refused like those who ask for the most.
    pub(super) fn next_sample(&self) -> Option<Duration> {
        self.is_urgent.then_some(SPAN_MIN)
    }

    /// How many connections may be admitted, where the limiter says `limit`.
    pub(super) fn widen(&self, limit: u32) -> u32 {
        self.means.widen(limit)
    }
}

/// Whether more wait than a standing queue holds: its excess is refused next.
fn has_backlog(sample: &Sample) -> bool {
    let workers = sample.standing.max(1);
    sample.cost.saturating_mul(sample.queued / workers) > sample.target.saturating_mul(REFUSALS_MAX)
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
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What was asked of it.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Asked {
        Begin,
        Look { may_hold: bool, capacities: u32 },
        Stop,
    }

    #[derive(Clone, Default)]
    struct Means(Arc<Mutex<Vec<Asked>>>);

    impl Means {
        fn ask(&self, asked: Asked) {
            self.0.lock().expect("nobody panics").push(asked);
        }
    }

    impl HoldSources for Means {
        fn begin(&mut self) {
            self.ask(Asked::Begin);
        }

        fn look(&mut self, _: Duration, _: AttemptCounts, capacity: f32, may_hold: bool) {
            self.ask(Asked::Look { may_hold, capacities: (capacity / 1000.0).round() as u32 });
        }

        fn stop(&mut self) {
            self.ask(Asked::Stop);
        }

        fn held_back(&mut self) -> u64 {
            0
        }

        fn widen(&self, limit: u32) -> u32 {
            limit
        }
    }

    /// Purpose: sources are counted from when a queue is long, and held back while one stands: to twice the capacity until its
    /// excess has been refused; then the refusals of what chance brings change nothing. Nobody is held back if nobody may be, and it ends
    /// with the queue, or when connections are not refused any more.
    #[test]
    fn sources_are_held_when_enough_is_known() {
        let means = Means::default();
        let mut shares = SourceShares::new(means.clone());
        let calm = Sample {
            span: Duration::from_millis(100),
            cost: Duration::from_millis(1),
            target: Duration::from_millis(10),
            started: 90,
            workers: 1,
            ..Sample::default()
        };
        let long = Sample { long: 1, queued: 70, ..calm };
        let began = Sample { standing: 1, queued: 1000, ..long };
        let stands = Sample { standing: 1, queued: 12, ..long };
        let counts = AttemptCounts { accepted: 90, dropped: 810 };
        let few = Attempts { counts, by_workers: 10, is_open: false, may_hold: true };
        let many = Attempts { by_workers: 600, ..few };
        let mut asked = |sample: &Sample, attempts| {
            shares.on_sample(sample, attempts);
            let is_urgent = shares.next_sample().is_some();
            (means.0.lock().expect("nobody panics").drain(..).collect::<Vec<_>>(), is_urgent)
        };
        let look = |may_hold, capacities| vec![Asked::Look { may_hold, capacities }];
        assert_eq!(asked(&calm, few), (vec![], false));
        assert_eq!(asked(&long, few), (vec![Asked::Begin], false));
        assert_eq!(asked(&long, few), (look(false, 2), false));
        assert_eq!(asked(&began, few), (look(true, 2), true), "a thousand will be refused");
        assert_eq!(asked(&stands, many), (look(true, 2), true), "they were refused");
        assert_eq!(asked(&stands, few), (look(true, 1), false));
        assert_eq!(asked(&stands, many), (look(true, 1), false));
        assert_eq!(asked(&stands, Attempts { may_hold: false, ..few }), (look(false, 1), false));
        assert_eq!(asked(&stands, Attempts { is_open: true, ..few }), (vec![Asked::Stop], false));
        assert_eq!(asked(&stands, few), (vec![Asked::Begin], true), "it stands already");
        let brief = Sample { span: Duration::from_millis(20), ..stands };
        assert_eq!(asked(&brief, few), (look(false, 2), true), "too brief to know sources");
        assert_eq!(asked(&stands, few), (look(true, 1), false));
        assert_eq!(asked(&calm, few), (vec![Asked::Stop], false));
    }

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
