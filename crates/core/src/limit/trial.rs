//! Would the refused requests fit into the queue if they could wait a little longer?
//!
//! A client that retries at once is counted as refused over and over, although all that it wants is
//! one place in the queue. A few dozen of them can keep a queue standing after an overload has ended:
//! they take every place that becomes free, and their refusals look like demand. The count of
//! refusals cannot tell them from an overload, but their response to longer waits can:
//!
//! ```text
//!          more refusals than chance, over one patience
//!   usual ───────────────────────────────────────▶ trial: requests may wait FACTOR times as long
//!     ▲                                              │
//!     │  about as much excess as usual: it is an     ├─ far less ─▶ a further step
//!     └── overload; the next trial comes later ──────┤
//!                                                    └─ hardly any ─▶ all of them fit
//! ```
//!
//! *Excess* is what is refused, and what makes the queue longer. The excess of an overload does not
//! depend on the length of the queue. Clients that wait in the queue do not retry, so the excess of
//! a crowd vanishes once the queue holds all of it.
//!
//! It never reads a clock, and refuses nothing.

use core::time::Duration;

use super::turn::{CROWD, Turn, is_still};
use crate::time::Instant;

/// A step of a trial lets requests wait this many times as long as before. Twice would leave the
/// refusals of a crowd about as they are; three steps reach the half of any patience that is not
/// already short. `clients_that_retry_at_once_keep_no_queue_standing` notices a wrong value.
pub(super) const FACTOR: u32 = 4;
const STEPS_MAX: u32 = 3;

/// The queue adapts during this part of the patience, and refusals are counted during another:
/// an eighth of a second, in which the gate reports several times.
const SHARE: u32 = 8;

/// Patiences between two trials while refusals stay about as many. If they double or halve, another
/// kind of clients may have come, and the next trial is due.
const REST: u32 = 32;

/// The trials of one standing queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trial {
    /// The steps of the current trial; 0 while there is none.
    steps: u32,
    /// The queue has adapted to the current step.
    is_settled: bool,
    span: Span,
    /// Refusals within the last patience before the trial.
    usual: u64,
    /// Patiences until the next trial.
    rest: u32,
    /// The queue that made it stand has had a patience to be refused.
    has_begun: bool,
}

/// A span of time, how many requests waited at its beginning, and how many were refused and started
/// in it.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    began: Instant,
    waiting: u32,
    refused: u64,
    started: u64,
}

impl Span {
    /// Requests that were neither started nor among those that waited before, if `waiting` wait now.
    fn excess(&self, waiting: u32) -> u64 {
        self.refused + u64::from(waiting.saturating_sub(self.waiting))
    }
}

/// Refusals are fewer than by chance if they are fewer by more than this many standard deviations.
/// `clients_that_retry_at_once_keep_no_queue_standing` and `shares_cost_nothing_where_clients_are_alike` notice a wrong value.
const DEVIATIONS: u64 = 4;

/// Whether `count` is less than `usual`, the mean of a Poisson distribution, by more than chance.
fn is_less(count: u64, usual: u64) -> bool {
    let less = usual.saturating_sub(count);
    less.saturating_pow(2) > usual.saturating_mul(DEVIATIONS * DEVIATIONS)
}

impl Trial {
    /// A queue begins to stand at `now`.
    pub(super) fn from(now: Instant) -> Trial {
        Trial { span: Span { began: now, ..Span::default() }, ..Trial::default() }
    }

    /// How many times as long as usual requests may wait.
    pub(super) fn widening(&self) -> u32 {
        FACTOR.pow(self.steps)
    }

    /// Takes in one turn, in whose queue requests may wait for `patience` at most. Returns whether
    /// all requests would fit.
    pub(super) fn on_turn(&mut self, turn: &Turn, patience: Duration) -> bool {
        self.span.refused += u64::from(turn.refused);
        self.span.started += u64::from(turn.started);
        // A few starts say nothing: a part of a trial goes on until there were more of them, but not
        // for longer than a patience.
        let says_enough = self.steps > 0 && self.span.started >= u64::from(CROWD * FACTOR);
        let length = if says_enough { patience / SHARE } else { patience };
        if turn.ended - self.span.began < length {
            return false;
        }
        let next = Span { began: turn.ended, waiting: turn.waiting, ..Span::default() };
        let span = core::mem::replace(&mut self.span, next);
        if self.steps == 0 {
            self.look_at_usual(&span);
            return false;
        }
        if !core::mem::replace(&mut self.is_settled, true) {
            return false;
        }
        self.is_settled = false;
        let excess = span.excess(turn.waiting);
        // The number that waits varies a little.
        if !is_still(span.refused, span.started) && excess * u64::from(SHARE) <= span.started {
            return true;
        }
        if excess * u64::from(SHARE) * 3 <= self.usual * 2 && self.steps < STEPS_MAX {
            self.steps += 1;
        } else {
            self.steps = 0;
            // Less, though not far less: perhaps a crowd that came when refusals were still those of an overload.
            self.rest = if is_less(excess, self.usual / u64::from(SHARE)) { 1 } else { REST };
        }
        false
    }

    /// A patience without a trial has passed.
    fn look_at_usual(&mut self, span: &Span) {
        if !core::mem::replace(&mut self.has_begun, true) {
            return;
        }
        let has_changed = span.refused > self.usual * 2 || span.refused < self.usual / 2;
        self.rest = if has_changed { 0 } else { self.rest.saturating_sub(1) };
        if self.rest == 0 {
            self.usual = span.refused;
            self.steps = u32::from(is_still(span.refused, span.started));
        }
    }
}
