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
//! Before a queue stands, it may be *out of order*, because it grows steadily or clients give up: the newest is started first,
//! as long as the oldest has waited for less than [`Leave::overtaken_max`].
//!
//! Where clients have shares (`core::limit::Shares`), a standing queue is in their order instead, and the rules above hold
//! for the requests of each client. A client that asks for less than its share waits for a few requests of others at most, and is
//! excused if it waits for longer now and then (`core::limit::Lenience`). The requests of those who ask for more are refused
//! once they have waited for longer than the short target: not sooner, because a client that is refused at once asks again at
//! once. If more wait than can be refused in that time, one loses its place: of the lowest class, the newest request of the
//! client that has most of them. It is refused as soon as those that are late have been, and holds nobody up until then
//! ([`Queue::displaced`]). A queue of one client is like one without shares.
//!
//! Requests get their places when the queue is worked on ([`Queue::order`]), not when they arrive: nobody's address is looked
//! up while the queue is short. Once it is long, or out of order, clients take turns, so that the client that sends most is not served
//! most. But nothing is refused, and the oldest is next once it has waited for [`Leave::turns_max`], whichever client sent it. In a queue
//! that is short again, the oldest is next, with a place or without.
//!
//! Never here: a clock, a socket, the content of a request. Time is an argument.
//!
//! Invariants: entries leave only through [`Queue::pop`] and [`Queue::pop_given_up`]; those of a class and client are in the
//! order of their readiness; between two starts, at most [`REFUSALS_MAX`] are refused, so that refusing cannot take the
//! place of serving; a refused request costs its client nothing.

mod accounts;
mod class;
mod lanes;

use std::collections::VecDeque;
use std::time::Duration;

use highwater_core::limit::{CLASSES, ClientKey, Lenience};
use highwater_core::time::Instant;

use self::accounts::{Accounts, Running};
use self::class::{Order, Waiting};
use self::lanes::Oldest;
use crate::metrics::Rejection;

/// Refusals in a row while there is something to start. A guess: a refusal costs a tenth of the
/// cheapest request worth queueing for.
pub(crate) const REFUSALS_MAX: u32 = 16;

/// How many requests lose their places in one call of [`Queue::order`] that were in the queue before it stood: to find each
/// takes a step per client.
const DISPLACED_MAX: usize = 256;

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
    /// How many there are besides the one that is never shed.
    const SHEDDABLE: usize = CLASSES;

    /// Its index among those that may be shed.
    pub(crate) fn index(self) -> Option<usize> {
        (self as usize).checked_sub(Class::High as usize)
    }
}

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
    fn places(&self) -> usize {
        self.starts.saturating_mul(REFUSALS_MAX as usize)
    }
}

/// How requests leave the queue for now. By default they are started in the order they came, and none is refused.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Leave {
    /// Requests that waited too long may be refused.
    pub(crate) may_refuse: bool,
    /// For how long the oldest may have waited if the newest are started first, because clients give up before it is the turn
    /// of their requests. Zero: the oldest are started first.
    pub(crate) overtaken_max: Duration,
    /// For how long the oldest may have waited if clients take turns. Zero: a client that asks more often is served more often.
    pub(crate) turns_max: Duration,
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
    /// How many wait: a turn asks several times.
    len: usize,
    never_shed: VecDeque<Entry<T>>,
    /// The others, most important first.
    classes: [Waiting<T>; Class::SHEDDABLE],
    /// Requests that found no room when they got their places.
    without_room: VecDeque<Entry<T>>,
    /// How many of them lost their places at the last call of [`Queue::order`].
    displaced: usize,
    /// How long a request may wait; `None` for no bound.
    target: Option<Duration>,
    refused_in_a_row: u32,
    /// Whether clients have shares.
    is_fair: bool,
    accounts: Accounts,
    lenience: Lenience,
    /// For how long a request may wait that is excused for its age.
    excused_max: Duration,
}

impl<T> Queue<T> {
    /// An empty queue, which is not a standing one.
    pub(crate) fn new() -> Self {
        Queue {
            len: 0,
            never_shed: VecDeque::new(),
            classes: std::array::from_fn(|_| Waiting::new()),
            without_room: VecDeque::new(),
            displaced: 0,
            target: None,
            refused_in_a_row: 0,
            is_fair: false,
            accounts: Accounts::default(),
            lenience: Lenience::default(),
            excused_max: Duration::MAX,
        }
    }

    /// The same, where clients have shares if `is_fair`. No request waits for longer than `excused_max` because of that.
    pub(crate) fn with_shares(self, is_fair: bool, excused_max: Duration) -> Self {
        Queue { is_fair, excused_max, ..self }
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

    /// Whether there are requests that get places once the queue stands, or is out of order for another reason.
    pub(crate) fn has_unordered(&self) -> bool {
        self.is_fair && self.classes.iter().any(Waiting::has_unordered)
    }

    /// The queue is out of order: requests that came since the last call get their places, and if it stands, too many lose
    /// theirs. `client` says whose a request is, or that there is no time to find out: then it and those behind it get
    /// their places later.
    pub(crate) fn order(
        &mut self,
        room: Capacity,
        mut client: impl FnMut(&T) -> Option<ClientKey>,
    ) {
        self.accounts.cost = room.cost;
        self.displaced = 0;
        for class in 0..self.classes.len() {
            while self.classes[class].order_one(&mut self.accounts, &mut client) {
                if self.target.is_some() {
                    self.make_room(room.places());
                }
            }
        }
        // Before the queue stood, it had no bound.
        let stands = self.target.is_some();
        let mut left = DISPLACED_MAX;
        while stands && left > 0 && self.make_room(room.places()) {
            left -= 1;
        }
    }

    /// Whether the queue stands, and more requests have places than it holds.
    pub(crate) fn lacks_room(&self, room: Capacity) -> bool {
        self.is_fair && self.target.is_some() && self.taken() > room.places()
    }

    /// How many requests have places.
    fn taken(&self) -> usize {
        self.classes.iter().map(|class| class.lanes.len()).sum()
    }

    /// If more than so many `places` are taken, one request loses its own. Returns whether one has.
    fn make_room(&mut self, places: usize) -> bool {
        if self.taken() > places
            && let Some(lowest) = self.classes.iter_mut().rev().find(|class| class.lanes.len() > 0)
            && let Some(entry) = lowest.lanes.pop_most(&mut self.accounts.shares)
        {
            self.without_room.push_back(entry);
            self.displaced += 1;
            return true;
        }
        false
    }

    /// The requests that lost their places at the last call of [`Queue::order`], if no request was taken since.
    pub(crate) fn displaced(&self) -> impl Iterator<Item = &T> {
        let kept = self.without_room.len() - self.displaced;
        self.without_room.range(kept..).map(|entry| &entry.item)
    }

    /// How many clients have an account of their own, and how many requests came from others so far.
    pub(crate) fn accounts(&self) -> (usize, u64) {
        (self.accounts.shares.accounts(), self.accounts.overflow)
    }

    /// The last request that was started has been worked on until `now`.
    pub(crate) fn lap(&mut self, now: Instant) {
        if let Some(lap) = self.accounts.lap(now) {
            self.go_on(lap);
        }
    }

    /// No more requests are started in this turn.
    pub(crate) fn end(&mut self) {
        if let Some(lap) = self.accounts.lap_unknown() {
            self.go_on(lap);
        }
        if self.classes.iter().all(|class| class.lanes.len() == 0) {
            self.accounts.shares.settle();
            if self.target.is_none() {
                self.accounts.close();
            }
        }
    }

    fn go_on(&mut self, (Running { class, lane }, took): (Running, u64)) {
        let Accounts { shares, cost, .. } = &mut self.accounts;
        self.classes[class].lanes.go_on(lane, took, (shares, *cost));
    }

    /// Whether so many requests of `class` and above wait that they, and one more, cannot all be refused between
    /// `starts` of others. Requests beyond are better refused at once: in a longer queue they would wait for nothing
    /// but their refusal, until their clients give up and connect again.
    ///
    /// Where clients have shares, it is full for a `client` only, if no other has more waiting; one that is not known
    /// finds room.
    pub(crate) fn is_full(
        &self,
        class: Class,
        client: impl FnOnce() -> Option<ClientKey>,
        starts: usize,
    ) -> bool {
        let Some(class) = class.index() else { return false };
        let places = Capacity { starts, cost: 0 }.places();
        let (above, below) = self.classes.split_at(class + 1);
        if !self.is_fair {
            return above.iter().map(Waiting::len).sum::<usize>() >= places;
        }
        let lanes = &self.classes[class].lanes;
        above.iter().map(|class| class.lanes.len()).sum::<usize>() >= places
            && below.iter().all(|class| class.lanes.len() == 0)
            && (lanes.len() == 0 || client().is_some_and(|client| lanes.is_longest(client)))
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
        let sheddable = self.classes.iter_mut().flat_map(Waiting::entries_mut);
        for entry in self.never_shed.iter_mut().chain(sheddable).chain(&mut self.without_room) {
            if entry.deadline != Instant::MAX {
                entry.deadline = entry.deadline.checked_sub(by).unwrap_or(Instant::ZERO);
            }
        }
    }

    /// Adds an entry, behind those that were ready before it.
    pub(crate) fn push(&mut self, class: Class, entry: Entry<T>) {
        match class.index() {
            Some(class) => self.classes[class].push(entry),
            None => insert(&mut self.never_shed, entry),
        }
        self.len += 1;
    }

    /// Takes the next entry, with the reason if it must be refused. Unless `leave` allows refusals, every entry is
    /// started, except those whose own deadline has passed.
    pub(crate) fn pop(
        &mut self,
        now: Instant,
        leave: Leave,
    ) -> Option<(Entry<T>, Option<Rejection>)> {
        self.lap(now);
        let target = self.target.filter(|_| leave.may_refuse);
        let never_shed = self.never_shed.pop_front().map(|entry| (entry, None));
        let popped = never_shed
            .or_else(|| self.pop_refused(now, target))
            .or_else(|| self.pop_next(now, target, leave));
        self.len -= usize::from(popped.is_some());
        match popped {
            Some((_, None)) => self.refused_in_a_row = 0,
            Some((_, Some(_))) => self.refused_in_a_row += 1,
            None => {}
        }
        popped
    }

    /// The index of the class whose requests are started next; `None` if nothing waits, or a health check does.
    pub(crate) fn next_class(&self) -> Option<usize> {
        match self.never_shed.is_empty() {
            true => self.classes.iter().position(|class| !class.is_empty()),
            false => None,
        }
    }

    /// Takes the first entry of a class, if `is_given_up` holds for it and no health check waits.
    pub(crate) fn pop_given_up(
        &mut self,
        is_given_up: impl Fn(&Entry<T>) -> bool,
    ) -> Option<Entry<T>> {
        if !self.never_shed.is_empty() {
            return None;
        }
        let Queue { classes, accounts, target, .. } = self;
        let stands = target.is_some();
        let mut classes = classes.iter_mut();
        let entry = classes.find_map(|class| class.pop_first_if(stands, &is_given_up, accounts))?;
        self.len -= 1;
        Some(entry)
    }

    /// The next entry to refuse, unless enough were refused in a row and there is something to start.
    fn pop_refused(
        &mut self,
        now: Instant,
        target: Option<Duration>,
    ) -> Option<(Entry<T>, Option<Rejection>)> {
        if self.refused_in_a_row >= REFUSALS_MAX && self.len > self.without_room.len() {
            return None;
        }
        // The overdue ones first: they have places that others could have.
        self.pop_overdue(now, target).or_else(|| {
            let entry = self.without_room.pop_front()?;
            Some((entry, Some(Rejection::QueueShare)))
        })
    }

    /// The oldest entry that has waited for longer than `target`, of the lowest class that has one.
    fn pop_overdue(
        &mut self,
        now: Instant,
        target: Option<Duration>,
    ) -> Option<(Entry<T>, Option<Rejection>)> {
        let target = target?;
        let Queue { classes, accounts, lenience, excused_max, .. } = self;
        let mut is_refused = |oldest: Oldest| {
            let waited = now - oldest.ready;
            if waited <= target {
                return false;
            }
            if !oldest.is_alone || oldest.is_ahead {
                lenience.blame(now);
            }
            !oldest.is_alone || !lenience.excuses(now, waited, target, *excused_max)
        };
        let (class, entry) = classes.iter_mut().enumerate().rev().find_map(|(index, class)| {
            Some((index, class.pop_oldest_if(&mut is_refused, accounts)?))
        })?;
        let is_displaced = self.classes[..class].iter().any(|class| !class.is_empty());
        let reason = match () {
            () if entry.deadline <= now => Rejection::QueueDeadline,
            () if is_displaced => Rejection::RequestPriority,
            () => Rejection::QueueDelay,
        };
        Some((entry, Some(reason)))
    }

    /// The entry to start next, unless its own deadline has passed. In order, unless the entries in front have waited for
    /// less than `overtaken_max`, or too long: the gate may keep the queue short enough.
    fn pop_next(
        &mut self,
        now: Instant,
        target: Option<Duration>,
        leave: Leave,
    ) -> Option<(Entry<T>, Option<Rejection>)> {
        let class = self.next_class()?;
        let stands = target.is_some();
        let order = |entry: &Entry<T>| {
            let waited = now - entry.ready;
            match () {
                () if waited < leave.overtaken_max => Order::Newest,
                () if target.is_some_and(|target| waited > target) => Order::Newest,
                () if stands || waited < leave.turns_max => Order::Turns,
                () => Order::Oldest,
            }
        };
        let is_void = |entry: &Entry<T>| entry.deadline <= now;
        let class_of_next = &mut self.classes[class];
        let next = class_of_next.pop_next(stands, order, is_void, &mut self.accounts)?;
        if let Some(lane) = next.lane.filter(|_| !next.is_void) {
            self.accounts.begin(Running { class, lane }, now);
        }
        Some((next.entry, next.is_void.then_some(Rejection::QueueDeadline)))
    }
}

/// Adds an entry, behind those that were ready before it.
fn insert<T>(entries: &mut VecDeque<Entry<T>>, entry: Entry<T>) {
    // Nearly always at the end; a connection that continues after a start was ready earlier.
    let place = match entries.back() {
        Some(last) if entry.ready < last.ready => {
            entries.partition_point(|other| other.ready <= entry.ready)
        }
        _ => entries.len(),
    };
    entries.insert(place, entry);
}

#[cfg(test)]
mod tests;
