//! Which request that waits is next, and which has waited for too long?
//!
//! While the queue does not stand, requests are started in the order they came, and none is refused but
//! those whose own deadline has passed. A queue that stands (`core::limit::Standing` says so) will not go
//! away by waiting, and in the order they came all would be served too late. So as soon as the oldest has
//! waited for longer than the short target it is refused, and the newest is started, whose client is most
//! likely still there.
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
    /// It has waited longer than the short target, and the queue stands.
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
    /// How long a request may wait; `None` for as long as it takes.
    target: Option<Duration>,
    refused_in_a_row: u32,
}

impl<T> Queue<T> {
    /// An empty queue that does not stand.
    pub(crate) fn new() -> Self {
        Queue {
            classes: std::array::from_fn(|_| VecDeque::with_capacity(CAPACITY)),
            target: None,
            refused_in_a_row: 0,
        }
    }

    /// Whether nothing waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.classes.iter().all(VecDeque::is_empty)
    }

    /// How many wait.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.classes.iter().map(VecDeque::len).sum()
    }

    /// From now on a request may wait for no longer than `target`; with `None` for as long as it takes.
    #[inline]
    pub(crate) fn set_target(&mut self, target: Option<Duration>) {
        self.target = target;
    }

    /// Whether a request that was ready at `ready` has waited for too long.
    pub(crate) fn is_overdue(&self, ready: Instant, now: Instant) -> bool {
        self.target.is_some_and(|target| now - ready > target)
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
        let target = self.target.filter(|_| may_refuse);
        let may_refuse_more = self.refused_in_a_row < REFUSALS_MAX;
        let vital = self.classes[Class::Vital as usize].pop_front();
        let popped = vital
            .map(|entry| (entry, Verdict::Start))
            .or_else(|| {
                target.filter(|_| may_refuse_more).and_then(|max| self.pop_overdue(now, max))
            })
            .or_else(|| self.pop_next(now, target));
        match popped {
            Some((_, Verdict::Start)) => self.refused_in_a_row = 0,
            Some((_, Verdict::Refuse(_))) => self.refused_in_a_row += 1,
            None => {}
        }
        popped
    }

    /// What is to be started next, unless it is too late for that.
    fn pop_next(&mut self, now: Instant, target: Option<Duration>) -> Option<(Entry<T>, Verdict)> {
        let waiting = self.classes.iter_mut().find(|waiting| !waiting.is_empty())?;
        // In order, unless those in front have waited in vain: the gate may keep the queue short enough.
        let newest_first = target
            .is_some_and(|target| waiting.front().is_some_and(|entry| now - entry.ready > target));
        let entry = if newest_first { waiting.pop_back() } else { waiting.pop_front() }?;
        let verdict = match entry.deadline <= now {
            true => Verdict::Refuse(Reason::Deadline),
            false => Verdict::Start,
        };
        Some((entry, verdict))
    }

    /// The oldest that has waited too long, of the lowest class that has any.
    fn pop_overdue(&mut self, now: Instant, target: Duration) -> Option<(Entry<T>, Verdict)> {
        for class in Class::SHEDDABLE.into_iter().rev() {
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
}

#[cfg(test)]
mod tests;
