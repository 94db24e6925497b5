//! How much work may be under way at once?
//!
//! A [`Limit`] is given a [`Sample`] of what happened since the last one, and answers with how many
//! connections may have work. It computes a number and nothing else: who enforces it, what it costs
//! to refuse the rest, and where the samples come from are other modules' business.
//!
//! Never here: a clock, a thread, I/O, randomness. The same samples give the same limits, always.
//!
//! Invariants, of every implementation: a limit is at least 1 (at 0 nothing would ever be served
//! again, so nothing could ever be learnt), and never above the bound it was made with.
//!
//! # Which limit is for what
//!
//! | limit | for | by |
//! |---|---|---|
//! | [`Knee`] | a back end behind handlers, a server that is not ours | Little's law, and which of rate and latency follows the concurrency |
//! | [`HillClimb`] | comparison; a server of which only the rate is known | steps along the rate |
//! | [`Aimd`] | comparison | one more while all is well, a tenth less when not |
//! | [`Fixed`] | operators who know the number | nothing |
//!
//! # Every tuned constant
//!
//! What each trades stands beside it. "Specified" and "published" mean that the algorithm is here as
//! others wrote it, for comparison, and is not to be tuned.
//!
//! | limit | constant | value | meaning | origin | what notices |
//! |---|---|---|---|---|---|
//! | `Knee` | `STEP` | 2 | a search halves; an answer may take twice its service time | rule | `it_finds_the_knee`, `a_slower_back_end_is_believed` |
//! | `Knee` | `ANSWERS` | 20 | answers in a window; four times as many while people are kept out | arithmetic | `it_finds_the_knee`, `small_back_ends_are_kept_busy` |
//! | `Knee` | `WEIGHT` | 0.3 | weight of what is new | guess | `it_does_not_oscillate_for_an_hour` |
//! | `Knee` | `FLOOR` | 4 | the lowest limit that is found | guess | `small_back_ends_are_kept_busy` |
//! | `Knee` | `PATIENCE` | 5 s | a limit is given up, a window ends, a doubt begins | rule: `Retry-After` | `a_limit_is_given_up_when_nobody_needs_it` |
//! | `Knee` | `SAME` | 1.1 | two concurrencies are the same | guess | `a_slower_back_end_is_believed` |
//! | `Knee` | `DOUBLED_MAX` | 6 | what was found is asked again every five minutes at most rarely | guess | `what_was_learnt_wrongly_is_unlearnt` |
//! | `Aimd` | `START`, `FLOOR`, `DECREASE`, `INCREASE_PER_SECOND`, `BAD_MAX` | 20, 1, 0.9, 10, 0.05 | see `aimd.rs` | published (Netflix) | its unit tests |
//! | `HillClimb` | `START` to `MEMORY`: ten | see `hill_climb.rs` | the ladder, its period and its thresholds | specified | its unit tests |

mod aimd;
mod fixed;
mod gradient;
mod hill_climb;
mod knee;

use core::time::Duration;

use crate::time::Instant;

pub use self::aimd::Aimd;
pub use self::fixed::Fixed;
pub use self::gradient::{Aim, Gradient};
pub use self::hill_climb::HillClimb;
pub use self::knee::Knee;

/// The largest limit there is: a million connections with work at once.
pub const LIMIT_MAX: u32 = 1 << 20;

/// So few under way are nothing sudden. A guess: a tenth of a second's work of 3 ms each.
const SUDDEN_MIN: u32 = 32;

/// What happened since the last sample, in a whole server: ours, or one that is not.
///
/// Whatever is not known is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// The time that this covers.
    pub span: Duration,
    /// Answers to work that was begun. Refusals are not among them.
    pub completed: u64,
    /// Of those, the ones within their deadline.
    pub good: u64,
    /// Requests and connections turned away, by any layer.
    pub refused: u64,
    /// Of those, the ones that had been let in before and then waited too long.
    pub dropped: u64,
    /// Requests that were begun.
    pub started: u64,
    /// Connections with work: the mean over the span, rounded.
    pub in_flight: u32,
    /// The most of them at once. The limit was felt if this reached it.
    pub in_flight_max: u32,
    /// The least time that a request waited between being ready and being started.
    pub queue_delay_min: Duration,
    /// The mean of that time.
    pub queue_delay_mean: Duration,
    /// From being ready to being answered, the mean over `completed`. If zero, Little's law has to
    /// do: `in_flight` over the rate.
    pub latency_mean: Duration,
    /// How busy the cores were, 0 to 1.
    pub busy: f32,
}

impl Sample {
    /// This sample and `next`, which follows it, as one.
    pub fn and(&self, next: &Sample) -> Sample {
        let all = self.completed + next.completed;
        let by_count = |a: Duration, b: Duration| match all {
            0 => b,
            _ => {
                let sum = a.as_nanos() * u128::from(self.completed)
                    + b.as_nanos() * u128::from(next.completed);
                Duration::from_nanos((sum / u128::from(all)) as u64)
            }
        };
        let span = self.span + next.span;
        let by_time = |a: f64, b: f64| match span.is_zero() {
            true => b,
            false => {
                (a * self.span.as_secs_f64() + b * next.span.as_secs_f64()) / span.as_secs_f64()
            }
        };
        let least = match (self.queue_delay_min, next.queue_delay_min) {
            (least, _) if self.completed > 0 && next.completed == 0 => least,
            (_, least) if self.completed == 0 => least,
            (a, b) => a.min(b),
        };
        Sample {
            span,
            completed: all,
            good: self.good + next.good,
            refused: self.refused + next.refused,
            dropped: self.dropped + next.dropped,
            started: self.started + next.started,
            in_flight: (by_time(self.in_flight.into(), next.in_flight.into()) + 0.5) as u32,
            in_flight_max: self.in_flight_max.max(next.in_flight_max),
            queue_delay_min: least,
            queue_delay_mean: by_count(self.queue_delay_mean, next.queue_delay_mean),
            latency_mean: by_count(self.latency_mean, next.latency_mean),
            busy: by_time(self.busy.into(), next.busy.into()) as f32,
        }
    }

    /// With more than this under way in one of `workers`, what comes is no longer what came in this
    /// sample, and the next one should not be waited for: see [`Limit::on_glance`].
    pub fn sudden(&self, workers: usize) -> u32 {
        let workers = u32::try_from(workers.max(1)).unwrap_or(u32::MAX);
        (self.in_flight_max / workers).saturating_mul(2).saturating_add(SUDDEN_MIN)
    }

    /// Whether `limit` kept anybody out, or nearly did.
    pub fn is_felt(&self, limit: u32) -> bool {
        self.refused > self.dropped || u64::from(self.in_flight_max) * 10 >= u64::from(limit) * 9
    }
}

/// An algorithm that finds how much work may be under way at once.
pub trait Limit: Send {
    /// Takes in a sample, and answers the limit from now on. `now` never goes back; samples come
    /// every tenth of a second or so, later if nothing happens.
    fn on_sample(&mut self, now: Instant, sample: &Sample) -> u32;

    /// Takes in what is known so far of the sample to come, since suddenly far more is under way than
    /// in the last, and answers the limit from now on. It is never raised by this; [`Limit::on_sample`]
    /// will be told all of it again. Whoever cannot decide by so little leaves the limit as it is.
    fn on_glance(&mut self, _so_far: &Sample) -> u32 {
        self.limit()
    }

    /// The limit as the last sample, or glance, left it.
    fn limit(&self) -> u32;

    /// What it is called in settings and metrics.
    fn name(&self) -> &'static str;
}
