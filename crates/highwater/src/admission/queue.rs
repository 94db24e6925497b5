//! Which request that waits is next, and which has waited for too long?
//!
//! ```text
//!                  the oldest has waited longer than the target, for 100 ms on end
//!       ┌─ calm ──────────────────────────────────────────────────────▶ overloaded ─┐
//!       │  oldest first, nothing refused          newest first, what waited longer  │
//!       │                                         than the target is refused        │
//!       └◀──────────────── nobody has waited longer, for 100 ms on end ◀────────────┘
//! ```
//!
//! A burst that is worked off within 100 ms is no overload: it is served in the order it came. A queue
//! that stands for longer will not go away by waiting (that is CoDel's insight), and in the order it
//! came everybody would be served when it is too late. So the newest go first, whose clients are most
//! likely still there, and the others are told at once.
//!
//! Classes are strict: while a request of a higher class waits, none of a lower class is started, and
//! the lowest class is refused first. `Vital` is never refused and never out of order.
//!
//! Never here: a clock, a socket, what a request is. Time is an argument.
//!
//! Invariants: nothing leaves but by [`Queue::pop`]; within a class entries stand in the order of their
//! readiness; between two starts, at most [`REFUSALS_MAX`] are refused, so that refusing cannot take
//! the place of serving.

use std::collections::VecDeque;
use std::time::Duration;

use highwater_core::time::Instant;

/// How long the oldest must have waited too long before that counts as overload: CoDel's interval.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);

/// Refusals in a row while there is something to start. A guess: a refusal costs a tenth of the
/// cheapest request worth queueing for.
pub(crate) const REFUSALS_MAX: u32 = 16;

/// Room that each class has from the start, so that a turn which merely took too long (the machine
/// paused it) allocates nothing.
const CAPACITY: usize = 32;

/// How important a request is, most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// Served whatever happens: health checks.
    Vital,
    High,
    Normal,
    Low,
}

impl Class {
    const SHEDDABLE: [Class; 3] = [Class::High, Class::Normal, Class::Low];
    const COUNT: usize = 4;
}

/// Something that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<T> {
    pub(crate) item: T,
    /// When it could have been started.
    pub(crate) ready: Instant,
    /// From when on nobody wants it; `MAX` for never.
    pub(crate) deadline: Instant,
}

/// What is to be done with what was taken from the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Start,
    Refuse(Reason),
}

/// Why something is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It has waited longer than the target, and the server is overloaded.
    Delay,
    /// The same, and more important work is waiting, too.
    Priority,
    /// Its own deadline has passed.
    Deadline,
}

/// What waits.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    classes: [VecDeque<Entry<T>>; Class::COUNT],
    target: Duration,
    overloaded: bool,
    /// Since when every look has found the contrary.
    contrary_since: Option<Instant>,
    refused_in_a_row: u32,
}

impl<T> Queue<T> {
    /// An empty queue in which waiting up to `target` is all right.
    pub(crate) fn new(target: Duration) -> Self {
        Queue {
            classes: std::array::from_fn(|_| VecDeque::with_capacity(CAPACITY)),
            target,
            overloaded: false,
            contrary_since: None,
            refused_in_a_row: 0,
        }
    }

    /// Whether nothing waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.classes.iter().all(VecDeque::is_empty)
    }

    /// Whether the newest go first, and the oldest are refused.
    pub(crate) fn is_overloaded(&self) -> bool {
        self.overloaded
    }

    /// How long waiting is all right.
    pub(crate) fn target(&self) -> Duration {
        self.target
    }

    /// Everything that waits has a deadline that is `by` earlier: time has passed that does not count
    /// as waiting.
    pub(crate) fn bring_forward(&mut self, by: Duration) {
        for entry in self.classes.iter_mut().flatten() {
            if entry.deadline != Instant::MAX {
                entry.deadline = entry.deadline.checked_sub(by).unwrap_or(Instant::ZERO);
            }
        }
    }

    /// Adds something to wait, behind what was ready before it.
    pub(crate) fn push(&mut self, class: Class, entry: Entry<T>) {
        if self.is_empty() {
            self.look(entry.ready); // Nobody has waited for anything until now.
        }
        let waiting = &mut self.classes[class as usize];
        // Nearly always at the end; what was started and is to go on was ready earlier.
        let place = match waiting.back() {
            Some(last) if entry.ready < last.ready => {
                waiting.partition_point(|other| other.ready <= entry.ready)
            }
            _ => waiting.len(),
        };
        waiting.insert(place, entry);
    }

    /// Takes what is next, and says what is to be done with it. If not `may_refuse`, everything is
    /// started, oldest first, but for what has a deadline of its own.
    pub(crate) fn pop(&mut self, now: Instant, may_refuse: bool) -> Option<(Entry<T>, Verdict)> {
        self.look(now);
        let sheds = self.overloaded && may_refuse;
        let may_refuse_more = sheds && self.refused_in_a_row < REFUSALS_MAX;
        let vital = self.classes[Class::Vital as usize].pop_front();
        let popped = vital
            .map(|entry| (entry, Verdict::Start))
            .or_else(|| if may_refuse_more { self.pop_overdue(now) } else { None })
            .or_else(|| self.pop_next(now, sheds));
        match popped {
            Some((_, Verdict::Start)) => self.refused_in_a_row = 0,
            Some((_, Verdict::Refuse(_))) => self.refused_in_a_row += 1,
            None => {}
        }
        if self.is_empty() {
            self.look(now);
        }
        popped
    }

    /// What is to be started next, unless it is too late for that.
    fn pop_next(&mut self, now: Instant, newest_first: bool) -> Option<(Entry<T>, Verdict)> {
        let waiting = self.classes.iter_mut().find(|waiting| !waiting.is_empty())?;
        let entry = if newest_first { waiting.pop_back() } else { waiting.pop_front() }?;
        let verdict = match entry.deadline <= now {
            true => Verdict::Refuse(Reason::Deadline),
            false => Verdict::Start,
        };
        Some((entry, verdict))
    }

    /// The oldest that has waited too long, of the lowest class that has any.
    fn pop_overdue(&mut self, now: Instant) -> Option<(Entry<T>, Verdict)> {
        for class in Class::SHEDDABLE.into_iter().rev() {
            let target = self.target;
            let waiting = &mut self.classes[class as usize];
            if let Some(entry) = waiting.pop_front_if(|entry| now - entry.ready > target) {
                let above = &self.classes[Class::High as usize..class as usize];
                let displaced = above.iter().any(|waiting| !waiting.is_empty());
                let reason = match () {
                    () if entry.deadline <= now => Reason::Deadline,
                    () if displaced => Reason::Priority,
                    () => Reason::Delay,
                };
                return Some((entry, Verdict::Refuse(reason)));
            }
        }
        None
    }

    /// Takes note of how long the oldest has waited.
    fn look(&mut self, now: Instant) {
        let fronts = Class::SHEDDABLE.iter().map(|class| self.classes[*class as usize].front());
        let oldest = fronts.flatten().map(|entry| entry.ready).min();
        let is_late = oldest.is_some_and(|ready| now - ready > self.target);
        if is_late == self.overloaded {
            self.contrary_since = None;
        } else if now - *self.contrary_since.get_or_insert(now) >= INTERVAL {
            self.overloaded = is_late;
            self.contrary_since = None;
        }
    }
}

#[cfg(test)]
mod tests;
