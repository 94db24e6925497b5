//! The waiting requests of one class, in one lane for each client.
//!
//! ```text
//!  lane of a client ─┬─ place     when its first request starts (`core::limit::Shares`)
//!                    └─ entries   in the order of their readiness
//! ```
//!
//! Lanes are found by their places, by the age of their first requests, and by their clients. Clients without an account
//! share one lane. A client with one waiting request does not make the queue long: as long as others have several, none but
//! theirs is too old.
//!
//! Invariants: a lane exists as long as it has entries, or one of them runs; while one runs, the lane has no place in
//! the order, since what its next request may follow is not known yet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use highwater_core::limit::{ClientKey, Place, Shares};
use highwater_core::time::Instant;

use super::{Entry, insert};

#[derive(Debug)]
struct Lane<T> {
    place: Place,
    entries: VecDeque<Entry<T>>,
    /// `None` for the overflow group.
    client: Option<ClientKey>,
    is_running: bool,
}

/// The oldest entry, as far as that says whether it is refused for its age.
#[derive(Clone, Copy, Debug)]
pub(super) struct Oldest {
    pub(super) ready: Instant,
    /// It is known to be the only one of its client.
    pub(super) is_alone: bool,
    /// Its client has had more than its share.
    pub(super) is_ahead: bool,
}

/// Takes an entry from one end.
pub(super) type Pop<T> = fn(&mut VecDeque<Entry<T>>) -> Option<Entry<T>>;

impl<T> Lane<T> {
    /// Whether it has several entries, and when its oldest was ready.
    fn age(&self) -> Option<(bool, u64)> {
        self.entries.front().map(|entry| (self.entries.len() > 1, entry.ready.as_nanos()))
    }
}

#[derive(Debug)]
pub(super) struct Lanes<T> {
    lanes: BTreeMap<u64, Lane<T>>,
    /// The lane of each client; that of the overflow group is under `None`.
    of_client: BTreeMap<Option<ClientKey>, u64>,
    /// Lanes by the start of their places; those of one start in the order in which they came.
    by_start: BTreeSet<(u64, u64)>,
    /// Lanes by the age of their first entries, in nanoseconds: those with one entry, and those with several.
    by_age: [BTreeSet<(u64, u64)>; 2],
    /// Lanes so far.
    numbers: u64,
    len: usize,
}

impl<T> Default for Lanes<T> {
    fn default() -> Self {
        Lanes {
            lanes: BTreeMap::new(),
            of_client: BTreeMap::new(),
            by_start: BTreeSet::new(),
            by_age: Default::default(),
            numbers: 0,
            len: 0,
        }
    }
}

impl<T> Lanes<T> {
    /// How many entries wait.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry<T>> {
        self.lanes.values_mut().flat_map(|lane| &mut lane.entries)
    }

    /// Whether no client has more entries waiting than `client`.
    pub(super) fn is_longest(&self, client: ClientKey) -> bool {
        let lane = self.of_client.get(&Some(client)).and_then(|lane| self.lanes.get(lane));
        let longest = self.lanes.values().map(|lane| lane.entries.len()).max();
        lane.is_some_and(|lane| Some(lane.entries.len()) == longest)
    }

    /// Adds an entry of `client`; requests cost so much. Returns whether the client has no account.
    pub(super) fn push(
        &mut self,
        entry: Entry<T>,
        client: ClientKey,
        (shares, cost): (&mut Shares, u64),
    ) -> bool {
        self.len += 1;
        let mut number = self.of_client.get(&Some(client)).copied();
        let mut place = None;
        if number.is_none() {
            let found = shares.enter(client, cost);
            place = Some(found);
            if found.is_overflow() {
                number = self.of_client.get(&None).copied();
            }
        }
        let Some(number) = number else {
            let place = place.expect("a client without a lane gets a place");
            self.open(place, client, entry);
            return place.is_overflow();
        };
        if let Some(place) = &place {
            shares.refused(place); // The overflow group waits in one lane, which has its place.
        }
        let lane = self.lanes.get_mut(&number).expect("lanes of clients exist");
        let before = lane.age();
        insert(&mut lane.entries, entry);
        self.update_age(number, before);
        place.is_some()
    }

    fn open(&mut self, place: Place, client: ClientKey, entry: Entry<T>) {
        let number = self.numbers;
        self.numbers += 1;
        let client = (!place.is_overflow()).then_some(client);
        self.of_client.insert(client, number);
        self.by_start.insert((place.start, number));
        self.by_age[0].insert((entry.ready.as_nanos(), number));
        let entries = VecDeque::from([entry]);
        self.lanes.insert(number, Lane { place, entries, client, is_running: false });
    }

    /// Takes the newest entry of a client that has most of them.
    pub(super) fn pop_most(&mut self, shares: &mut Shares) -> Option<Entry<T>> {
        let (&number, _) = self.lanes.iter().max_by_key(|(_, lane)| lane.entries.len())?;
        self.take(number, VecDeque::pop_back, shares)
    }

    /// Takes the oldest entry, if it `is_refused`: of a client with several, if there is one.
    pub(super) fn pop_oldest_if(
        &mut self,
        is_refused: &mut impl FnMut(Oldest) -> bool,
        shares: &mut Shares,
    ) -> Option<Entry<T>> {
        let [one, several] = &self.by_age;
        let (is_alone, &(ready, number)) = match several.first() {
            Some(oldest) => (false, oldest),
            None => (true, one.first()?),
        };
        let is_ahead = self.lanes.get(&number)?.place.is_ahead;
        let ready = Instant::from_nanos(ready);
        if !is_refused(Oldest { ready, is_alone, is_ahead }) {
            return None;
        }
        self.take(number, VecDeque::pop_front, shares)
    }

    /// The lane whose turn it is.
    pub(super) fn first(&self) -> Option<u64> {
        self.by_start.first().map(|&(_, number)| number)
    }

    /// When the oldest entry was ready, and its lane.
    pub(super) fn oldest(&self) -> Option<(Instant, u64)> {
        if self.len == 0 {
            return None;
        }
        let (ready, number) = *self.by_age.iter().filter_map(BTreeSet::first).min()?;
        Some((Instant::from_nanos(ready), number))
    }

    /// What waits in a lane.
    pub(super) fn entries(&self, number: u64) -> Option<&VecDeque<Entry<T>>> {
        self.lanes.get(&number).map(|lane| &lane.entries)
    }

    /// Takes an entry out of a lane, to be started. The lane waits for [`Lanes::go_on`].
    pub(super) fn begin(
        &mut self,
        number: u64,
        pop: Pop<T>,
        shares: &mut Shares,
    ) -> Option<Entry<T>> {
        let lane = self.lanes.get_mut(&number)?;
        let before = lane.age();
        let entry = pop(&mut lane.entries)?;
        lane.is_running = true;
        // Out of turn, for its age: the time of those who had less goes on from where it was, so that nothing is forgiven.
        if self.by_start.first() == Some(&(lane.place.start, number)) {
            shares.begin(&lane.place);
        }
        self.by_start.remove(&(lane.place.start, number));
        self.len -= 1;
        self.update_age(number, before);
        Some(entry)
    }

    /// The entry that began last took `took` nanoseconds; the next of its lane may begin.
    pub(super) fn go_on(&mut self, number: u64, took: u64, (shares, cost): (&mut Shares, u64)) {
        let clients = self.lanes.len();
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        lane.is_running = false;
        shares.served(&lane.place, took, clients);
        if lane.entries.is_empty() {
            self.close(number);
            return;
        }
        lane.place = shares.follow(&lane.place, cost);
        self.by_start.insert((lane.place.start, number));
    }

    /// Takes an entry out of a lane that is not to be started: its client is not charged for it.
    pub(super) fn take(
        &mut self,
        number: u64,
        pop: Pop<T>,
        shares: &mut Shares,
    ) -> Option<Entry<T>> {
        let lane = self.lanes.get_mut(&number)?;
        let before = lane.age();
        let entry = pop(&mut lane.entries)?;
        self.len -= 1;
        let (is_over, place) = (lane.entries.is_empty() && !lane.is_running, lane.place);
        self.update_age(number, before);
        if is_over {
            shares.refused(&place);
            self.by_start.remove(&(place.start, number));
            self.close(number);
        }
        Some(entry)
    }

    /// A lane's oldest entry, or their number, may have changed.
    fn update_age(&mut self, number: u64, before: Option<(bool, u64)>) {
        let now = self.lanes.get(&number).and_then(Lane::age);
        if now == before {
            return;
        }
        if let Some((has_several, ready)) = before {
            self.by_age[usize::from(has_several)].remove(&(ready, number));
        }
        if let Some((has_several, ready)) = now {
            self.by_age[usize::from(has_several)].insert((ready, number));
        }
    }

    fn close(&mut self, number: u64) {
        if let Some(lane) = self.lanes.remove(&number) {
            self.of_client.remove(&lane.client);
        }
    }
}
