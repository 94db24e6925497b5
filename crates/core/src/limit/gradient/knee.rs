//! Where does more concurrency stop yielding more answers?
//!
//! Behind a handler that waits for something else, or in a server that is not ours, requests queue
//! where nobody measures. What can be seen is that more of them are under way and no more come out.
//!
//! ```text
//!            more under way, no more answers, and slower ones
//!   Rising ──────────────────────────────────────────────────▶ Falling ──────┐ as many answers
//!     ▲ ▲                                                         │  ▲───────┘ with half of it
//!     │ └──────── nobody is kept out ─────────┐                   │ fewer answers, or quick ones
//!     │ more answers                          │                   ▼
//!     └───────────── Trying ◀──────────── Holding ◀───────────────┘
//!                       └──────────────────▶  no more answers: wait twice as long
//! ```
//!
//! A step down that costs answers shows that latency is what it is; it is taken back at once. So no
//! estimate of an ideal latency is needed, and none can be wrong: `Rising` compares with what was
//! seen when fewer were under way, `Falling` with the step before.

use super::super::Sample;

/// How much more must be under way before it is asked what it yields.
const GROWTH_MIN: f64 = 1.5;

/// How much more it is after a while if a queue grows, and if none does.
const GROWTH_SOON: f64 = 1.3;
const GROWTH_NONE: f64 = 1.1;

/// The part of a growth in concurrency that must come out as answers to count as gain. One half
/// would be a queue that takes as much time as the service.
const GAIN_MIN: f64 = 0.3;

/// How many times slower answers must have become, if nothing else is wrong, and if some are late.
/// Below it the mix of requests may just have changed.
const SLOWER: f64 = 3.0;
const SLOWER_AND_LATE: f64 = 1.5;
const LATE: f64 = 0.10;

/// By how many targets more, too: what is small already may well become three times that.
const SLOWER_BY: f64 = 2.0;

/// The share of the answers that halving the concurrency may cost. It would cost half of them if
/// latency were what it is; but refusing more costs something too, a fifth of the cores at ten times
/// their capacity.
const LOSS_MAX: f64 = 0.2;

/// A greater loss is no chance.
const LOSS_CLEAR: f64 = 0.4;

/// No search goes lower than this: with fewer, every pause of the network leaves cores idle.
const FLOOR: f64 = 4.0;

/// Steps down, and up on trial.
const STEP_DOWN: f64 = 0.5;
const STEP_TRIED: f64 = 1.25;

/// How far above the knee the limit stays, so that what varies does not leave the back end idle.
const KNEE_SPARE: f64 = 1.25;

/// Looks that a verdict on a step down, on one that seems to cost something, and on a step up is based
/// on.
const LOOKS_DOWN: u32 = 2;
const LOOKS_SURE: u32 = 6;
const LOOKS_UP: u32 = 10;

/// What is waited for a change to show is the latency, within these bounds.
const SETTLE_MIN: f64 = 0.1;
const SETTLE_MAX: f64 = 5.0;

/// How long a limit that was found is kept before a higher one is tried, at first and at most.
const HOLD_MIN: f64 = 5.0;
const HOLD_MAX: f64 = 60.0;

/// What it costs a core to drop a request from its queue: a 503, on a connection of its own, in
/// seconds (measured).
const DROP_COST: f64 = 94e-6;

/// Busier than this without an answer, cores are stuck with something.
const STUCK_MIN: f32 = 0.5;

/// Taken for the idle part of the time where nobody says.
const IDLE_UNKNOWN: f64 = 0.02;

/// How long a limit that was found is remembered while nobody is kept out by it, in seconds.
const UNFELT_MAX: f64 = 5.0;

/// What a sample says, in numbers that fit together; times in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) seconds: f64,
    pub(super) rate: f64,
    pub(super) in_flight: f64,
    pub(super) in_flight_max: f64,
    /// In the queue, on average and at the least, and out of it.
    pub(super) wait: f64,
    pub(super) wait_min: f64,
    pub(super) service: f64,
    pub(super) late_share: f64,
    pub(super) late_share_answered: f64,
    pub(super) dropped_share: f64,
    /// The part of a core's time that dropping took.
    pub(super) wasted: f64,
    /// The part of the time that the cores had nothing to do; a guess if that is not known.
    pub(super) idle: f64,
    /// Nothing was answered although there was much to do.
    pub(super) is_stuck: bool,
    pub(super) is_felt: bool,
    pub(super) knows_latency: bool,
}

impl Look {
    pub(super) fn at(sample: &Sample, limit: u32) -> Look {
        let seconds = sample.span.as_secs_f64().max(1e-3);
        let completed = sample.completed as f64;
        let rate = completed / seconds;
        let in_flight = f64::from(sample.in_flight);
        let wait = sample.queue_delay_mean.as_secs_f64();
        let knows_latency = !sample.latency_mean.is_zero();
        let latency = match knows_latency {
            true => sample.latency_mean.as_secs_f64(),
            false => in_flight / rate.max(1.0),
        };
        let late = sample.completed.saturating_sub(sample.good) as f64;
        let dropped = sample.dropped as f64;
        Look {
            seconds,
            rate,
            in_flight,
            in_flight_max: f64::from(sample.in_flight_max),
            wait,
            wait_min: sample.queue_delay_min.as_secs_f64(),
            service: (latency - wait).max(0.0),
            // What was dropped waited too long as well.
            late_share: (late + dropped) / (completed + dropped).max(1.0),
            late_share_answered: late / completed.max(1.0),
            wasted: dropped * DROP_COST / seconds,
            dropped_share: dropped / (dropped + completed).max(1.0),
            idle: match f64::from(sample.busy) {
                busy if busy > 0.0 => (1.0 - busy).max(0.0),
                _ => IDLE_UNKNOWN,
            },
            is_stuck: sample.completed == 0 && sample.busy > STUCK_MIN,
            is_felt: sample.is_felt(limit),
            knows_latency,
        }
    }
}

/// What a degree of concurrency yielded.
#[derive(Clone, Copy, Debug, Default)]
struct Yield {
    in_flight: f64,
    rate: f64,
    good_rate: f64,
    latency: f64,
    late_share: f64,
}

impl From<&Look> for Yield {
    fn from(look: &Look) -> Yield {
        Yield {
            in_flight: look.in_flight,
            rate: look.rate,
            good_rate: look.rate * (1.0 - look.late_share),
            latency: look.service,
            late_share: look.late_share,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    /// Everybody is let in, as long as that yields something.
    #[default]
    Rising,
    /// Half of `limit`, which is the lowest known to be as good, is on trial, after `steps` like it.
    Falling { limit: f64, steps: u32, before: Yield },
    /// The limit was found.
    Holding { limit: f64, seconds: f64, found: Yield },
    /// A little more than `limit` is on trial.
    Trying { limit: f64, before: Yield },
}

/// The search for the knee.
#[derive(Clone, Debug, Default)]
pub(super) struct Knee {
    phase: Phase,
    /// With less under way, when all was well.
    reference: Option<Yield>,
    /// How long the limit was kept the last time, in seconds.
    hold: f64,
    /// How long the next suspicion is not to be followed, in seconds: the last was wrong.
    doubt: f64,
    /// Until then the last change does not show fully.
    settle: f64,
    sum: Yield,
    looks: u32,
    /// The verdict on this step down is to be based on as many looks as it takes.
    is_sure: bool,
    /// Since when nobody is kept out, in seconds.
    unfelt: f64,
    /// How many were under way when a queue was first suspected, and how long that is to be watched
    /// yet, in seconds.
    suspected: Option<(f64, f64)>,
}

impl Knee {
    /// Starts anew, because the queue that matters is elsewhere. Whether it had been asked since it
    /// last did.
    pub(super) fn forget(&mut self) -> bool {
        let had_begun = self.reference.is_some();
        *self = Knee::default();
        had_begun
    }

    /// The limit after `look`, or `None` if there is no reason to bound anything.
    pub(super) fn step(&mut self, look: &Look, limit: f64, target: f64) -> Option<f64> {
        if let Phase::Rising = self.phase {
            return self.rise(look, limit, target);
        }
        if look.is_felt {
            self.unfelt = 0.0;
        } else {
            // Nobody is kept out, so nothing is on trial; but what was found may be needed again.
            self.unfelt += look.seconds;
            let Phase::Holding { limit, .. } = self.phase else { return self.rise_again(look) };
            return if self.unfelt < UNFELT_MAX { Some(limit) } else { self.rise_again(look) };
        }
        let Some(seen) = self.average(look, limit) else {
            // The way back up may take more than one step.
            let Phase::Holding { limit, .. } = self.phase else { return Some(limit) };
            return Some(limit);
        };
        match self.phase {
            Phase::Rising => None,
            Phase::Falling { limit: last, steps, before } => {
                self.fall(seen, limit, last, steps, before)
            }
            Phase::Holding { limit, seconds, found } => {
                Some(self.keep(seen, limit, seconds, found))
            }
            Phase::Trying { limit: last, before } => Some(self.judge(seen, limit, last, before)),
        }
    }

    fn rise_again(&mut self, look: &Look) -> Option<f64> {
        self.phase = Phase::Rising;
        self.reference = Some(Yield::from(look));
        None
    }

    fn rise(&mut self, look: &Look, limit: f64, target: f64) -> Option<f64> {
        let seen = Yield::from(look);
        let reference = *self.reference.get_or_insert(seen);
        let growth = seen.in_flight / reference.in_flight.max(1.0);
        if growth < 1.0 / GROWTH_MIN {
            self.reference = Some(seen);
            return None;
        }
        self.doubt -= look.seconds;
        let hopeless = look.is_felt && seen.late_share > 0.5 && self.doubt <= 0.0;
        if growth < GROWTH_MIN && !hopeless {
            // Had they yielded anything, it would have shown by then.
            self.settle = reference.latency.clamp(SETTLE_MIN, SETTLE_MAX);
            return None;
        }
        if self.settle > 0.0 && !hopeless {
            self.settle -= look.seconds;
            return look.is_felt.then_some(limit);
        }
        let gain = seen.rate / reference.rate.max(1.0) - 1.0;
        if gain >= GAIN_MIN * (growth - 1.0) && !hopeless {
            self.reference = Some(seen);
            return None;
        }
        let slower = seen.latency / reference.latency.max(1e-6);
        let too_slow = seen.latency > reference.latency + SLOWER_BY * target
            && (look.is_felt
                || slower >= SLOWER
                || seen.late_share > LATE && slower >= SLOWER_AND_LATE);
        if !too_slow && !hopeless || !look.is_felt && !self.keeps_growing(look, seen) {
            return None;
        }
        let reached = limit.min(look.in_flight_max.max(1.0));
        Some(self.halve(reached, 0, seen))
    }

    /// Whether, since it was first suspected, more and more are under way. Where nobody is kept out, a
    /// queue does not stop growing; slower answers with as many under way are merely slower, or come
    /// from requests that had not been answered yet when the others were.
    fn keeps_growing(&mut self, look: &Look, seen: Yield) -> bool {
        let wait = (2.0 * seen.latency).clamp(SETTLE_MIN, SETTLE_MAX);
        let (in_flight, left) = self.suspected.unwrap_or((seen.in_flight, wait));
        let left = left - look.seconds;
        let growth = seen.in_flight / in_flight.max(1.0);
        let is_over = left <= 0.0;
        self.suspected = Some((in_flight, if is_over { wait } else { left }));
        if growth >= GROWTH_MIN || is_over && growth >= GROWTH_SOON {
            self.suspected = None;
            return true;
        }
        if is_over && growth < GROWTH_NONE {
            self.suspected = None;
            self.reference = Some(seen);
        }
        false
    }

    /// Looks averaged, once the last change shows and there are enough of them.
    fn average(&mut self, look: &Look, limit: f64) -> Option<Yield> {
        // Those who came in before must have gone.
        if self.settle > 0.0 || look.in_flight > limit * 1.1 + 1.0 {
            self.settle -= look.seconds;
            return None;
        }
        let seen = Yield::from(look);
        self.sum.in_flight += seen.in_flight;
        self.sum.rate += seen.rate;
        self.sum.good_rate += seen.good_rate;
        self.sum.latency += seen.latency;
        self.sum.late_share += seen.late_share;
        self.looks += 1;
        let wanted = match self.phase {
            Phase::Falling { .. } if self.is_sure => LOOKS_SURE,
            Phase::Falling { .. } => LOOKS_DOWN,
            _ => LOOKS_UP,
        };
        if self.looks < wanted {
            return None;
        }
        let (sum, looks) = (self.sum, f64::from(self.looks));
        (self.sum, self.looks) = (Yield::default(), 0);
        Some(Yield {
            in_flight: sum.in_flight / looks,
            rate: sum.rate / looks,
            good_rate: sum.good_rate / looks,
            latency: sum.latency / looks,
            late_share: sum.late_share / looks,
        })
    }

    fn halve(&mut self, limit: f64, steps: u32, before: Yield) -> f64 {
        self.phase = Phase::Falling { limit, steps, before };
        // How long those take to leave is seen, not guessed.
        self.wait_for(0.0);
        (limit * STEP_DOWN).max(FLOOR)
    }

    fn hold(&mut self, limit: f64, found: Yield) -> f64 {
        self.phase = Phase::Holding { limit, seconds: self.patience(), found };
        self.wait_for(found.latency);
        limit
    }

    /// How long to leave things as they are: twice as long with every vain attempt.
    fn patience(&mut self) -> f64 {
        self.hold = (self.hold * 2.0).clamp(HOLD_MIN, HOLD_MAX);
        self.hold
    }

    fn wait_for(&mut self, latency: f64) {
        self.is_sure = false;
        self.settle = latency.clamp(SETTLE_MIN, SETTLE_MAX);
        (self.sum, self.looks) = (Yield::default(), 0);
    }

    fn fall(
        &mut self,
        seen: Yield,
        limit: f64,
        last: f64,
        steps: u32,
        before: Yield,
    ) -> Option<f64> {
        // Fewer at once are never later; all that can be lost is answers, and those that came too late
        // are no loss.
        let was_late = before.late_share > 0.5 && seen.good_rate >= before.good_rate;
        let as_good = was_late || seen.rate >= before.rate * (1.0 - LOSS_MAX);
        if !as_good && !self.is_sure && seen.rate >= before.rate * (1.0 - LOSS_CLEAR) {
            // It may be chance: `before` is the best of several.
            self.is_sure = true;
            return Some(limit);
        }
        if !as_good && steps == 0 {
            // A false alarm: latency is what it is, and `before` is how it should be.
            self.phase = Phase::Rising;
            self.reference = Some(before);
            self.doubt = self.patience();
            return None;
        }
        if !as_good {
            // Below the knee, answers are in proportion to what is under way, so where it is follows.
            let knee = limit * before.rate / seen.rate.max(1.0) * KNEE_SPARE;
            self.hold = 0.0;
            return Some(self.hold(knee.clamp(limit, last * 2.0), before));
        }
        if limit <= FLOOR {
            self.hold = 0.0;
            return Some(self.hold(last, before));
        }
        // Losses do not add up: each step is held against the best.
        let best = Yield { rate: seen.rate.max(before.rate), ..seen };
        Some(self.halve(limit, steps + 1, best))
    }

    fn keep(&mut self, seen: Yield, limit: f64, seconds: f64, found: Yield) -> f64 {
        let slower = seen.latency / found.latency.max(1e-6);
        if slower >= SLOWER || seen.late_share > found.late_share + LATE && limit > FLOOR {
            return self.halve(limit, 1, seen);
        }
        let left = seconds - f64::from(LOOKS_UP) * 0.1;
        if left > 0.0 {
            self.phase = Phase::Holding { limit, seconds: left, found };
            return limit;
        }
        self.phase = Phase::Trying { limit, before: seen };
        self.wait_for(seen.latency);
        limit * STEP_TRIED
    }

    fn judge(&mut self, seen: Yield, limit: f64, last: f64, before: Yield) -> f64 {
        let gain = seen.good_rate / before.good_rate.max(1.0) - 1.0;
        if gain >= GAIN_MIN * (STEP_TRIED - 1.0) {
            self.hold = 0.0;
            self.phase = Phase::Trying { limit, before: seen };
            self.wait_for(seen.latency);
            return limit * STEP_TRIED;
        }
        self.hold(last, before)
    }
}
