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
//! Where clients have shares, a standing queue is in their order instead (`fair.rs`).
//!
//! Never here: a clock, a socket, the content of a request. Time is an argument.
//!
//! Invariants: entries leave only through [`Queue::pop`]; within a class they are in the order of their
//! readiness; between two starts, at most [`REFUSALS_MAX`] are refused, so that refusing cannot take the
//! place of serving.

mod fair;

use std::collections::VecDeque;
use std::time::Duration;

use highwater_core::limit::ClientKey;
use highwater_core::time::Instant;

use self::fair::FairQueue;
use crate::metrics::Rejection;

pub(crate) use self::fair::Capacity;

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
    /// Its client, if the request says that; else its connection does.
    pub(crate) client: Option<ClientKey>,
}

/// The waiting requests.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    /// How many wait: a turn asks several times.
    len: usize,
    classes: [VecDeque<Entry<T>>; Class::COUNT],
    /// How long a request may wait; `None` for no bound.
    target: Option<Duration>,
    refused_in_a_row: u32,
    /// Whether clients have shares.
    is_fair: bool,
    /// The requests that have places; `None` while the queue does not stand.
    fair: Option<Box<FairQueue<T>>>,
    /// Requests of clients without an account, in standing queues that have ended.
    strangers: u64,
}

impl<T> Queue<T> {
    /// An empty queue, which is not a standing one.
    pub(crate) fn new() -> Self {
        Queue {
            len: 0,
            classes: std::array::from_fn(|_| VecDeque::with_capacity(CAPACITY)),
            target: None,
            refused_in_a_row: 0,
            is_fair: false,
            fair: None,
            strangers: 0,
        }
    }

    /// The same, where clients have shares if `is_fair`.
    pub(crate) fn with_shares(self, is_fair: bool) -> Self {
        Queue { is_fair, ..self }
    }

    /// Whether nothing waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many wait.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether there are requests that get places once the queue stands.
    pub(crate) fn has_unordered(&self) -> bool {
        let [_, sheddable @ ..] = &self.classes;
        self.is_fair && sheddable.iter().any(|waiting| !waiting.is_empty())
    }

    /// The queue stands: requests that came since the last call get their places. `client` says whose a request is,
    /// unless the request said so.
    pub(crate) fn order(&mut self, room: Capacity, mut client: impl FnMut(&T) -> ClientKey) {
        let fair = self.fair.get_or_insert_with(|| Box::new(FairQueue::new()));
        for class in Class::SHEDDABLE {
            for entry in self.classes[class as usize].drain(..) {
                let client = entry.client.unwrap_or_else(|| client(&entry.item));
                fair.push(class, entry, client, room);
            }
        }
    }

    /// How many clients have an account of their own, and how many requests came from others so far.
    pub(crate) fn accounts(&self) -> (usize, u64) {
        let (accounts, strangers) = self.fair.as_ref().map_or((0, 0), |fair| fair.accounts());
        (accounts, self.strangers + strangers)
    }

    /// The last request that was started has been worked on until `now`.
    pub(crate) fn lap(&mut self, now: Instant) {
        if let Some(fair) = &mut self.fair {
            fair.lap(now);
        }
    }

    /// No more requests are started in this turn.
    pub(crate) fn end(&mut self) {
        let Some(fair) = &mut self.fair else { return };
        fair.end();
        if self.target.is_none() && fair.is_empty() {
            self.strangers += fair.accounts().1;
            self.fair = None;
        }
    }

    /// Whether so many requests of `class` and above wait that they, and one more, cannot all be refused between
    /// `starts` of others. Requests beyond are better refused at once: in a longer queue they would wait for nothing
    /// but their refusal, until their clients give up and connect again.
    ///
    /// Where clients have shares, it is full for a `client` only, if that has had its share; one that is not known
    /// finds room.
    pub(crate) fn is_full(&self, class: Class, client: Option<ClientKey>, starts: usize) -> bool {
        if self.is_fair {
            let places = Capacity { starts, cost: 0 }.places();
            let fair = self.fair.as_ref();
            return client
                .zip(fair)
                .is_some_and(|(client, fair)| fair.is_full(class, client, places));
        }
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
        let ordered = self.fair.iter_mut().flat_map(|fair| fair.entries_mut());
        for entry in self.classes.iter_mut().flatten().chain(ordered) {
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
        self.len += 1;
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
            .or_else(|| self.fair.as_mut()?.pop(now, target, may_refuse_more))
            .or_else(|| {
                target.filter(|_| may_refuse_more).and_then(|max| self.pop_overdue(now, max))
            })
            .or_else(|| self.pop_next(now, target));
        self.len -= usize::from(popped.is_some());
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
        let mut fair = self.fair.as_mut();
        let ordered = fair.as_mut().and_then(|fair| fair.pop_front_if(&is_given_up));
        let popped = ordered.or_else(|| {
            sheddable
                .iter_mut()
                .find_map(|waiting| waiting.pop_front_if(|entry| is_given_up(entry)))
        });
        self.len -= usize::from(popped.is_some());
        popped
    }

    /// Takes the newest entry of the most important class, with the reason if its own deadline has passed.
    pub(crate) fn pop_newest(&mut self, now: Instant) -> Option<(Entry<T>, Option<Rejection>)> {
        let [never_shed, sheddable @ ..] = &mut self.classes;
        if let Some(fair) =
            self.fair.as_mut().filter(|fair| never_shed.is_empty() && !fair.is_empty())
        {
            let popped = fair.pop(now, None, true);
            self.len -= usize::from(popped.is_some());
            return popped;
        }
        let newest = || sheddable.iter_mut().find_map(VecDeque::pop_back);
        let entry = never_shed.pop_front().or_else(newest)?;
        self.len -= 1;
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
