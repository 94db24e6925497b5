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

mod aimd;
mod fixed;
mod gradient;
mod hill_climb;
mod queue_delay;
mod standing;

use core::time::Duration;

use crate::time::Instant;

pub use self::aimd::Aimd;
pub use self::fixed::Fixed;
pub use self::gradient::{Aim, Gradient};
pub use self::hill_climb::HillClimb;
pub use self::queue_delay::{QueueDelay, short_target};
pub use self::standing::{Standing, Turn};

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
