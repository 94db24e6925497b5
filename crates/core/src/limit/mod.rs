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
//! | [`QueueDelay`], told by [`Standing`] | this server's own cores: the default | arithmetic: how many may wait follows from what a request costs |
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
//! | `Standing` | `WINDOW_SHARE` | 1/32 | part of the patience that a window lasts | derived from CoDel's 100 ms | `an_overload_is_seen_in_time`, `chance_is_no_overload` |
//! | `Standing`, `short_target` | `REQUESTS` | 4 | a window lasts so many of its longest turn, the short target so many requests | guess | `chance_is_no_overload` |
//! | `Standing` | `CROWD` | 16 | so few waiting are no overload | guess: two browsers | `a_page_is_no_overload` |
//! | `Standing` | `WINDOWS` | 5 | windows of growth in a row that make a queue stand | rule | `chance_is_no_overload` |
//! | `Standing` | `INFLOW_PERCENT` | 150 | what comes in, of what goes out, in a window of growth | rule | `an_overload_is_seen_in_time` |
//! | `Standing` | `STAND` | 4 | patiences in a row beyond the patience that make a queue stand | rule | `a_closed_loop_stands`, `a_page_is_no_overload` |
//! | `Standing` | `EMPTY_PERCENT` | 50 | so much time without a queue ends it at once | guess | `it_ends_with_the_load` |
//! | `QueueDelay` | `AIM_PERCENT` | 75 | the part of the target that the limit aims at | measured in the model | `the_overload_table` |
//! | `QueueDelay` | `EMPTY_MAX` | 0.05 | with so little waiting, places are held by the silent | guess | `silent_clients_hold_no_places` |
//! | `Knee` | `STEP` | 2 | a search halves; an answer may take twice its service time | rule | `it_finds_the_knee`, `a_slower_back_end_is_believed` |
//! | `Knee` | `ANSWERS` | 20 | answers in a window; four times as many while people are kept out, eight to end a search | arithmetic | `it_finds_the_knee`, `it_does_not_oscillate_for_an_hour` |
//! | `Knee` | `WEIGHT` | 0.3 | weight of what is new | guess | `it_does_not_oscillate_for_an_hour` |
//! | `Knee` | `FLOOR` | 4 | the lowest limit that is found | guess | `small_back_ends_are_kept_busy` |
//! | `Knee` | `PATIENCE` | 5 s | a limit is given up, a window ends, a doubt begins | rule: `Retry-After` | `a_limit_is_given_up_when_nobody_needs_it` |
//! | `Knee` | `SAME` | 1.1 | two concurrencies are the same | guess | `a_slower_back_end_is_believed` |
//! | `Knee` | `BELIEVED` | 2 | what was found is asked again after `PATIENCE` doubled so often, while half is refused | guess | `what_was_learnt_wrongly_is_unlearnt`, `asking_again_refuses_nobody_who_had_room` |
//! | `Knee` | `DOUBLED_MAX` | 6 | and every five minutes at most rarely | guess | `it_does_not_oscillate_for_an_hour` |
//! | `Aimd` | `START`, `FLOOR`, `DECREASE`, `INCREASE_PER_SECOND`, `BAD_MAX` | 20, 1, 0.9, 10, 0.05 | see `aimd.rs` | published (Netflix) | its unit tests |
//! | `HillClimb` | `START` to `MEMORY`: ten | see `hill_climb.rs` | the ladder, its period and its thresholds | specified | its unit tests |

mod aimd;
mod fixed;
mod hill_climb;
mod knee;
mod queue_delay;
mod standing;

use core::time::Duration;

use crate::time::Instant;

pub use self::aimd::Aimd;
pub use self::fixed::Fixed;
pub use self::hill_climb::HillClimb;
pub use self::knee::Knee;
pub use self::queue_delay::{QueueDelay, short_target};
pub use self::standing::{Standing, Turn};

/// The largest limit there is: a million connections with work at once.
pub const LIMIT_MAX: u32 = 1 << 20;

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
    /// Workers.
    pub workers: u32,
    /// Workers whose queue stands.
    pub standing: u32,
    /// What a request costs a worker, the mean over those whose queue stands, or over all if none does.
    pub cost: Duration,
    /// Requests that wait for their turn now.
    pub queued: u32,
    /// The part of the time in which none did, 0 to 1: the mean over the workers whose queue stands.
    pub empty: f32,
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
            workers: next.workers,
            standing: next.standing,
            cost: next.cost,
            queued: next.queued,
            empty: by_time(self.empty.into(), next.empty.into()) as f32,
            in_flight: (by_time(self.in_flight.into(), next.in_flight.into()) + 0.5) as u32,
            in_flight_max: self.in_flight_max.max(next.in_flight_max),
            queue_delay_min: least,
            queue_delay_mean: by_count(self.queue_delay_mean, next.queue_delay_mean),
            latency_mean: by_count(self.latency_mean, next.latency_mean),
            busy: by_time(self.busy.into(), next.busy.into()) as f32,
        }
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

    /// The limit as the last sample left it.
    fn limit(&self) -> u32;

    /// What it is called in settings and metrics.
    fn name(&self) -> &'static str;
}
