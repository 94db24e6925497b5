//! In which order do the requests of different clients start while the queue stands?
//!
//! In the order of their clients' shares (`core::limit::Shares`). Whoever asks for less than its share waits for a few
//! requests of others at most. The requests of those who ask for more wait until they have waited for longer than the
//! short target, and are refused then: not at once, because a client that is refused at once asks again at once.
//! If more wait than can be refused in that time, one is refused at once: of the lowest class, the newest request of
//! the client that has taken and wants most.
//!
//! Requests get their places when the queue is worked on ([`FairQueue::push`]), not when they arrive: nobody's
//! address is looked up before the queue stands.
//!
//! Invariants: entries leave through [`FairQueue::pop`] and [`FairQueue::pop_front_if`] only; a client's requests stay
//! in the order of their readiness; a refused request costs its client nothing.

mod lanes;

use std::collections::VecDeque;
use std::time::Duration;

use highwater_core::limit::{ClientKey, Shares};
use highwater_core::time::Instant;

use self::lanes::Lanes;
use super::{Class, Entry, REFUSALS_MAX};
use crate::metrics::Rejection;

/// The waiting requests of a standing queue.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    shares: Shares,
    /// All but the one that is never shed, most important first.
    classes: [Lanes<T>; Class::SHEDDABLE.len()],
    /// Requests that found no room.
    refused: VecDeque<(Entry<T>, Rejection)>,
    /// The request that was started last: its class and lane, and when.
    running: Option<(usize, u64, Instant)>,
    /// The recent cost of a request, in nanoseconds.
    cost: u64,
    /// Requests of clients without an account, so far.
    strangers: u64,
}

/// A request is charged for at least this part of the usual cost: what its handler does later, in a future, is not seen.
/// A guess.
const LEAST_SHARE: u64 = 4;

/// How much a standing queue holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    /// How many requests can be started within the short target.
    pub(crate) starts: usize,
    /// The recent cost of a request, in nanoseconds.
    pub(crate) cost: u64,
}

impl Capacity {
    /// How many may wait: as many as can be refused between so many starts.
    pub(super) fn places(&self) -> usize {
        self.starts.saturating_mul(REFUSALS_MAX as usize)
    }
}

impl<T> FairQueue<T> {
    pub(super) fn new() -> Self {
        FairQueue {
            shares: Shares::default(),
            classes: std::array::from_fn(|_| Lanes::default()),
            refused: VecDeque::new(),
            running: None,
            cost: 0,
            strangers: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.refused.is_empty() && self.classes.iter().all(|class| class.len() == 0)
    }

    /// How many clients have an account, and how many requests came from clients without one so far.
    pub(super) fn accounts(&self) -> (usize, u64) {
        (self.shares.accounts(), self.strangers)
    }

    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry<T>> {
        let refused = self.refused.iter_mut().map(|(entry, _)| entry);
        self.classes.iter_mut().flat_map(Lanes::entries_mut).chain(refused)
    }

    /// Whether a request of `client` that came now would be refused at once, where `places` may wait.
    pub(super) fn is_full(&self, class: Class, client: ClientKey, places: usize) -> bool {
        let Some(class) = index(class) else { return false };
        self.waiting() >= places
            && self.classes[class + 1..].iter().all(|class| class.len() == 0)
            && (self.classes[class].len() == 0 || self.classes[class].is_longest(client))
    }

    /// Adds a request of `client`. If there are more than fit, one of them is refused.
    pub(super) fn push(
        &mut self,
        class: Class,
        entry: Entry<T>,
        client: ClientKey,
        room: Capacity,
    ) {
        let Some(class) = index(class) else {
            unreachable!("requests that are never shed need no share");
        };
        self.cost = room.cost;
        let is_stranger = self.classes[class].push(entry, client, (&mut self.shares, room.cost));
        self.strangers += u64::from(is_stranger);
        if self.waiting() > room.places()
            && let Some(lowest) = self.classes.iter_mut().rev().find(|class| class.len() > 0)
            && let Some(entry) = lowest.pop_most(&mut self.shares)
        {
            self.refused.push_back((entry, Rejection::QueueShare));
        }
    }

    /// Takes the next entry, with the reason if it must be refused: because it found no room, because it waited for
    /// longer than `target`, or because its own deadline has passed. The first two only if `may_refuse_more`, or if
    /// nothing else waits.
    pub(super) fn pop(
        &mut self,
        now: Instant,
        target: Option<Duration>,
        may_refuse_more: bool,
    ) -> Option<(Entry<T>, Option<Rejection>)> {
        self.lap(now);
        if (may_refuse_more || self.waiting() == 0)
            && let Some((entry, reason)) = self.refused.pop_front()
        {
            return Some((entry, Some(reason)));
        }
        if may_refuse_more
            && let Some(target) = target
            && let Some(refused) = self.pop_overdue(now, target)
        {
            return Some(refused);
        }
        self.pop_next(now)
    }

    /// The oldest request that has waited for longer than `target`, of the lowest class that has one.
    fn pop_overdue(
        &mut self,
        now: Instant,
        target: Duration,
    ) -> Option<(Entry<T>, Option<Rejection>)> {
        let is_overdue = |ready: Instant| now - ready > target;
        let shares = &mut self.shares;
        let (above, entry) = (0..self.classes.len()).rev().find_map(|class| {
            Some((class, self.classes[class].pop_oldest_if(is_overdue, shares)?))
        })?;
        let is_displaced = self.classes[..above].iter().any(|class| class.len() > 0);
        let reason = match () {
            () if entry.deadline <= now => Rejection::QueueDeadline,
            () if is_displaced => Rejection::RequestPriority,
            () => Rejection::QueueDelay,
        };
        Some((entry, Some(reason)))
    }

    /// The request to start next, unless its own deadline has passed.
    fn pop_next(&mut self, now: Instant) -> Option<(Entry<T>, Option<Rejection>)> {
        let class = self.classes.iter().position(|class| class.len() > 0)?;
        let lanes = &mut self.classes[class];
        if let Some(late) = lanes.pop_first_if(|entry| entry.deadline <= now, &mut self.shares) {
            return Some((late, Some(Rejection::QueueDeadline)));
        }
        let (lane, entry) = lanes.begin_first(&mut self.shares)?;
        self.running = Some((class, lane, now));
        Some((entry, None))
    }

    /// Takes the first entry of a class, if `is_given_up` holds for it.
    pub(super) fn pop_front_if(
        &mut self,
        is_given_up: impl Fn(&Entry<T>) -> bool,
    ) -> Option<Entry<T>> {
        let shares = &mut self.shares;
        self.classes.iter_mut().find_map(|class| class.pop_first_if(&is_given_up, shares))
    }

    /// The request that was started last has been worked on until `now`: its client is charged for that time.
    pub(super) fn lap(&mut self, now: Instant) {
        if let Some((class, lane, since)) = self.running.take() {
            let took = u64::try_from((now - since).as_nanos()).unwrap_or(u64::MAX);
            let took = took.max(self.cost / LEAST_SHARE);
            self.classes[class].go_on(lane, took, (&mut self.shares, self.cost));
        }
    }

    /// The queue's part of the turn is over. What the last request took is not known, if [`FairQueue::lap`] was
    /// not called; its client is charged for the usual cost.
    pub(super) fn end(&mut self) {
        if let Some((class, lane, _)) = self.running.take() {
            self.classes[class].go_on(lane, self.cost, (&mut self.shares, self.cost));
        }
        if self.is_empty() {
            self.shares.settle();
        }
    }

    fn waiting(&self) -> usize {
        self.classes.iter().map(Lanes::len).sum()
    }
}

/// The index of a class among those that may be shed.
fn index(class: Class) -> Option<usize> {
    (class as usize).checked_sub(Class::High as usize)
}

#[cfg(test)]
mod tests;
