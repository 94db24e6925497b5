//! Which waiting request is next, and which has waited too long?
//!
//! Without a standing queue (`core::limit::Standing` detects one), requests start in the order they came, and only
//! those whose own deadline has passed are refused. A standing queue does not drain on its own, and in the order
//! they came all requests would be served too late. So once the oldest has waited for longer than the short target
//! it is refused, and the newest is started, whose client is most likely still connected.
//!
//! Classes are strict: while a request of a higher class waits, none of a lower class is started, and
//! the lowest class is refused first. `NeverShed` is never refused and never out of order.
//!
//! Never here: a clock, a socket, the content of a request. Time is an argument.
//!
//! Invariants: entries leave only through [`Queue::pop`]; within a class they are in the order of their
//! readiness; between two starts, at most [`REFUSALS_MAX`] are refused, so that refusing cannot take the
//! place of serving.

use std::collections::VecDeque;
use std::time::Duration;

use highwater_core::time::Instant;

use crate::metrics::Rejection;

/// Refusals in a row while there is something to start. A guess: a refusal costs a tenth of the
/// cheapest request worth queueing for.
pub(crate) const REFUSALS_MAX: u32 = 16;

/// Room of each class from the start, so that a turn that only took too long (the machine paused it)
/// allocates nothing.
const CAPACITY: usize = 32;

/// How important a request is, most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// Always served: health checks.
    NeverShed,
    High,
    Normal,
    Low,
}

impl Class {
    const SHEDDABLE: [Class; 3] = [Class::High, Class::Normal, Class::Low];
    const COUNT: usize = 4;
}

/// A waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<T> {
    pub(crate) item: T,
    /// When it could have been started.
    pub(crate) ready: Instant,
    /// The client's own deadline; `MAX` for none.
    pub(crate) deadline: Instant,
}

/// The waiting requests.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    classes: [VecDeque<Entry<T>>; Class::COUNT],
    /// How long a request may wait; `None` for no bound.
    target: Option<Duration>,
    refused_in_a_row: u32,
}

impl<T> Queue<T> {
    /// An empty queue, which is not a standing one.
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

    /// Whether so many requests of `class` and above wait that they, and one more, cannot all be refused between
    /// `starts` of others. Requests beyond are better refused at once: in a longer queue they would wait for nothing
    /// but their refusal, until their clients give up and connect again.
    pub(crate) fn is_full(&self, class: Class, starts: usize) -> bool {
        let most = starts.saturating_mul(REFUSALS_MAX as usize);
        class != Class::NeverShed
            && self.classes[..=class as usize].iter().map(VecDeque::len).sum::<usize>() >= most
    }

    /// From now on a request may wait for at most `target`; `None` means no bound.
    #[inline]
    pub(crate) fn set_target(&mut self, target: Option<Duration>) {
        self.target = target;
    }

    /// Whether a request that was ready at `ready` has waited for too long.
    pub(crate) fn is_overdue(&self, ready: Instant, now: Instant) -> bool {
        self.target.is_some_and(|target| now - ready > target)
    }

    /// The deadlines of all entries become `by` earlier: time has passed that does not count as waiting.
    pub(crate) fn bring_forward(&mut self, by: Duration) {
        for entry in self.classes.iter_mut().flatten() {
            if entry.deadline != Instant::MAX {
                entry.deadline = entry.deadline.checked_sub(by).unwrap_or(Instant::ZERO);
            }
        }
    }

    /// Adds an entry, behind those that were ready before it.
    pub(crate) fn push(&mut self, class: Class, entry: Entry<T>) {
        let waiting = &mut self.classes[class as usize];
        // Nearly always at the end; a connection that continues after a start was ready earlier.
        let place = match waiting.back() {
            Some(last) if entry.ready < last.ready => {
                waiting.partition_point(|other| other.ready <= entry.ready)
            }
            _ => waiting.len(),
        };
        waiting.insert(place, entry);
    }

    /// Takes the next entry, with the reason if it must be refused. Unless `may_refuse`, every entry is
    /// started, oldest first, except those whose own deadline has passed.
    pub(crate) fn pop(
        &mut self,
        now: Instant,
        may_refuse: bool,
    ) -> Option<(Entry<T>, Option<Rejection>)> {
        let target = self.target.filter(|_| may_refuse);
        let may_refuse_more = self.refused_in_a_row < REFUSALS_MAX;
        let never_shed = self.classes[Class::NeverShed as usize].pop_front();
        let popped = never_shed
            .map(|entry| (entry, None))
            .or_else(|| {
                target.filter(|_| may_refuse_more).and_then(|max| self.pop_overdue(now, max))
            })
            .or_else(|| self.pop_next(now, target));
        match popped {
            Some((_, None)) => self.refused_in_a_row = 0,
            Some((_, Some(_))) => self.refused_in_a_row += 1,
            None => {}
        }
        popped
    }

    /// Takes the oldest entry of a class, if `is_given_up` holds for it and no health check waits.
    pub(crate) fn pop_front_if(
        &mut self,
        is_given_up: impl Fn(&Entry<T>) -> bool,
    ) -> Option<Entry<T>> {
        let [never_shed, sheddable @ ..] = &mut self.classes;
        if !never_shed.is_empty() {
            return None;
        }
        sheddable.iter_mut().find_map(|waiting| waiting.pop_front_if(|entry| is_given_up(entry)))
    }

    /// Takes the newest entry of the most important class, with the reason if its own deadline has passed.
    pub(crate) fn pop_newest(&mut self, now: Instant) -> Option<(Entry<T>, Option<Rejection>)> {
        let [never_shed, sheddable @ ..] = &mut self.classes;
        let newest = || sheddable.iter_mut().find_map(VecDeque::pop_back);
        let entry = never_shed.pop_front().or_else(newest)?;
        let is_late = entry.deadline <= now;
        Some((entry, is_late.then_some(Rejection::QueueDeadline)))
    }

    /// The entry to start next, unless its deadline has passed.
    fn pop_next(
        &mut self,
        now: Instant,
        target: Option<Duration>,
    ) -> Option<(Entry<T>, Option<Rejection>)> {
        let waiting = self.classes.iter_mut().find(|waiting| !waiting.is_empty())?;
        // In order, unless the entries in front have waited too long: the gate may keep the queue short
        // enough.
        let newest_first = target
            .is_some_and(|target| waiting.front().is_some_and(|entry| now - entry.ready > target));
        let entry = if newest_first { waiting.pop_back() } else { waiting.pop_front() }?;
        let is_late = entry.deadline <= now;
        Some((entry, is_late.then_some(Rejection::QueueDeadline)))
    }

    /// The oldest entry that has waited too long, of the lowest class that has one.
    fn pop_overdue(
        &mut self,
        now: Instant,
        target: Duration,
    ) -> Option<(Entry<T>, Option<Rejection>)> {
        for class in Class::SHEDDABLE.into_iter().rev() {
            let waiting = &mut self.classes[class as usize];
            if let Some(entry) = waiting.pop_front_if(|entry| now - entry.ready > target) {
                let above = &self.classes[Class::High as usize..class as usize];
                let displaced = above.iter().any(|waiting| !waiting.is_empty());
                let reason = match () {
                    () if entry.deadline <= now => Rejection::QueueDeadline,
                    () if displaced => Rejection::RequestPriority,
                    () => Rejection::QueueDelay,
                };
                return Some((entry, Some(reason)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
