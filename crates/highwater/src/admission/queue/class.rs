//! The waiting requests of one class.
//!
//! ```text
//!  lanes   those that have places in the order of their clients' shares
//!  rest    in the order of their readiness: all of them without shares; else those that came since places were
//!          given last
//! ```
//!
//! While the queue is out of order, the lanes go before the rest. While it is in order, age decides between the two, so that
//! neither starves: lanes may be left when the queue grows or stands no more.

use std::collections::VecDeque;

use highwater_core::limit::ClientKey;

use super::accounts::Accounts;
use super::lanes::{Lanes, Oldest, Pop};
use super::{Entry, insert};

/// Room of each class from the start, so that a turn that only took too long (the machine paused it)
/// allocates nothing.
const CAPACITY: usize = 32;

#[derive(Debug)]
pub(super) struct Waiting<T> {
    pub(super) lanes: Lanes<T>,
    rest: VecDeque<Entry<T>>,
}

/// Which entry is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The oldest of all.
    Oldest,
    /// The oldest of the client whose turn it is.
    Turns,
    /// The newest of that client.
    Newest,
}

/// The entry that was next.
pub(super) struct Next<T> {
    pub(super) entry: Entry<T>,
    /// It is not wanted any more, and not started.
    pub(super) is_void: bool,
    /// Its lane, if it had a place.
    pub(super) lane: Option<u64>,
}

impl<T> Waiting<T> {
    pub(super) fn new() -> Self {
        Waiting { lanes: Lanes::default(), rest: VecDeque::with_capacity(CAPACITY) }
    }

    pub(super) fn len(&self) -> usize {
        self.lanes.len() + self.rest.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there are entries without a place.
    pub(super) fn has_unordered(&self) -> bool {
        !self.rest.is_empty()
    }

    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry<T>> {
        self.lanes.entries_mut().chain(&mut self.rest)
    }

    /// Adds an entry, behind those that were ready before it.
    pub(super) fn push(&mut self, entry: Entry<T>) {
        insert(&mut self.rest, entry);
    }

    /// Gives the oldest entry without a place its place among those of `client`. Returns whether there was one, and its
    /// client is known.
    pub(super) fn order_one(
        &mut self,
        accounts: &mut Accounts,
        client: impl FnOnce(&T) -> Option<ClientKey>,
    ) -> bool {
        let Some(client) = self.rest.front().and_then(|entry| client(&entry.item)) else {
            return false;
        };
        let Some(entry) = self.rest.pop_front() else { return false };
        let Accounts { shares, cost, overflow, .. } = accounts;
        *overflow += u64::from(self.lanes.push(entry, client, (shares, *cost)));
        true
    }

    /// Takes the oldest entry, if it `is_refused`; where clients have shares, the oldest of a client with several, if there
    /// is one.
    pub(super) fn pop_oldest_if(
        &mut self,
        is_refused: &mut impl FnMut(Oldest) -> bool,
        accounts: &mut Accounts,
    ) -> Option<Entry<T>> {
        if self.lanes.len() > 0 {
            return self.lanes.pop_oldest_if(is_refused, &mut accounts.shares);
        }
        self.rest.pop_front_if(|entry| {
            is_refused(Oldest { ready: entry.ready, is_alone: false, is_ahead: false })
        })
    }

    /// Takes the entry that is first in the order, if it `is_given_up`: the oldest, or where the queue `stands`, the first of
    /// the client whose turn it is.
    pub(super) fn pop_first_if(
        &mut self,
        stands: bool,
        is_given_up: impl Fn(&Entry<T>) -> bool,
        accounts: &mut Accounts,
    ) -> Option<Entry<T>> {
        let lane = if stands { self.lanes.first() } else { self.oldest() };
        if !self.entries(lane)?.front().is_some_and(is_given_up) {
            return None;
        }
        match lane {
            None => self.rest.pop_front(),
            Some(lane) => self.lanes.take(lane, VecDeque::pop_front, &mut accounts.shares),
        }
    }

    /// The lane with the oldest entry; `None` if that is among the rest. Of several as old, the one whose turn it is.
    fn oldest(&self) -> Option<u64> {
        let (ready, lane) = self.lanes.oldest()?;
        if self.rest.front().is_some_and(|entry| entry.ready < ready) {
            return None;
        }
        let is_as_old = |lane: &u64| {
            let front = self.lanes.entries(*lane).and_then(VecDeque::front);
            front.is_some_and(|entry| entry.ready == ready)
        };
        Some(self.lanes.first().filter(is_as_old).unwrap_or(lane))
    }

    /// What waits in a lane, or among the rest.
    fn entries(&self, lane: Option<u64>) -> Option<&VecDeque<Entry<T>>> {
        match lane {
            None => Some(&self.rest),
            Some(lane) => self.lanes.entries(lane),
        }
    }

    /// Takes the next entry, in the `order` that follows from the oldest one: of the client whose turn it is, where the queue
    /// `stands`, else of all. One that `is_void` is not started.
    pub(super) fn pop_next(
        &mut self,
        stands: bool,
        order: impl Fn(&Entry<T>) -> Order,
        is_void: impl Fn(&Entry<T>) -> bool,
        accounts: &mut Accounts,
    ) -> Option<Next<T>> {
        let first = self.lanes.first();
        let oldest = if stands { first } else { self.oldest() };
        let order = order(self.entries(oldest)?.front()?);
        let lane = if order == Order::Oldest { oldest } else { first };
        let entries = self.entries(lane)?;
        let (pop, next): (Pop<T>, _) = match order {
            Order::Newest => (VecDeque::pop_back, entries.back()),
            Order::Turns | Order::Oldest => (VecDeque::pop_front, entries.front()),
        };
        let is_void = is_void(next?);
        let shares = &mut accounts.shares;
        let entry = match lane {
            None => pop(&mut self.rest),
            Some(lane) if is_void => self.lanes.take(lane, pop, shares),
            Some(lane) => self.lanes.begin(lane, pop, shares),
        };
        Some(Next { entry: entry?, is_void, lane })
    }
}
