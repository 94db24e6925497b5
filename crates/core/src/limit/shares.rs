//! Whose request is next in a queue that stands or grows, if each client is to get its share?
//!
//! By start-time fair queueing (P. Goyal, H. Vin, H. Cheng, "Start-time Fair Queuing", SIGCOMM 1996):
//!
//! ```text
//!  start   = max(virtual time, finish of its client)       when its client begins to wait; then: its finish
//!  finish  = start + cost                                  of its client, from then on
//!  next    = the waiting request with the smallest start;  virtual time = its start, at least
//!  virtual time + cost ÷ clients                           when it was served, while so many clients waited
//! ```
//!
//! A client that asks for less than its share is never behind: its requests start at the virtual time, so they are next.
//! One that asks for more has requests ever further behind, and those are refused. A share needs no number: with *n*
//! clients that all ask for more, it is one *n*th of the worker's time, and unused time is divided among the clients that
//! ask for more.
//!
//! A client with several waiting requests has one place, for the first of them; the next one gets a place when that was
//! served. So a client's share does not become smaller because some of its requests were refused.
//!
//! From `fq_codel` (RFC 8290) this takes that sparse clients go first, that the client with the most
//! waiting pays for a full queue, and a fixed number of slots. It differs in two points. The order follows
//! from one number per request, instead of a list of queues with deficits; and a client is charged for the
//! time that its requests took, so that a few expensive requests weigh as much as many cheap ones.
//!
//! Virtual time also advances with the work, as if all waiting clients were served at once (WF²Q+, J. Bennett, H. Zhang,
//! 1997). Otherwise it would stand still while ever new clients come, and those that were served once would wait for
//! all of them.
//!
//! **Memory.** A client whose finish is not after the virtual time needs no slot: a newcomer would
//! get the same start. So slots are needed only for clients that were served in this round or wait. There are
//! [`SLOTS`]; a newcomer that finds no free slot is in the *overflow* group, whose clients have one share together.
//!
//! It never reads a clock and never looks at requests; it does not know what a client is, only a number for
//! each.
//!
//! Invariants: among clients that always wait, the time served differs by no more than the cost of two
//! requests; the table never grows.

use alloc::vec::Vec;

/// How many clients have an account of their own: 16 KiB per worker. Less: crowds of clients share one
/// share sooner; more: memory, and the clients that were served wait for all newcomers of a flood.
/// `many_addresses_keep_nobody_out` notices a wrong value.
pub const SLOTS: usize = 1024;

/// A client's account is in one of so many slots, which are in two cache lines. With fewer, a newcomer is put
/// into the overflow group sooner.
const WAYS: usize = 8;

/// A client's number: never 0, which stands for the overflow group. From a hash that clients cannot foresee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey(core::num::NonZeroU64);

impl ClientKey {
    /// The client whose hash is `hash`.
    pub fn new(hash: u64) -> ClientKey {
        let one = core::num::NonZeroU64::MIN;
        ClientKey(core::num::NonZeroU64::new(hash).unwrap_or(one))
    }
}

/// The place of a waiting request in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Requests are started in the order of this number.
    pub start: u64,
    /// Its client has had more than its share lately: other clients are served first.
    pub is_ahead: bool,
    /// What its client was charged, in nanoseconds.
    cost: u64,
    /// Who was charged; `None` for the overflow group.
    client: Option<ClientKey>,
}

impl Place {
    /// Whether its client has no account of its own.
    pub fn is_overflow(&self) -> bool {
        self.client.is_none()
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    client: u64,
    finish: u64,
}

/// The accounts of a worker's clients.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    /// Empty until the first request.
    slots: Vec<Slot>,
    /// The finish of the overflow group.
    overflow: u64,
    now: u64,
    /// The latest finish of all.
    latest: u64,
}

impl Shares {
    /// A client begins to wait, with a request that will probably take `cost` nanoseconds.
    pub fn enter(&mut self, client: ClientKey, cost: u64) -> Place {
        let now = self.now;
        self.place(Some(client), cost, now)
    }

    /// The next request of the client whose request at `place` was [served](Shares::served); it waited meanwhile.
    pub fn follow(&mut self, place: &Place, cost: u64) -> Place {
        // It has never ceased to wait: what it is owed is not lost.
        self.place(place.client, cost, 0)
    }

    fn place(&mut self, client: Option<ClientKey>, cost: u64, least: u64) -> Place {
        if self.slots.is_empty() {
            self.slots.resize(SLOTS, Slot::default());
        }
        let slot = client.and_then(|client| Some((client, self.slot_for(client)?)));
        let (client, finish) = match slot {
            Some((client, slot)) => (Some(client), &mut slot.finish),
            None => (None, &mut self.overflow),
        };
        let start = least.max(*finish);
        let end = start.saturating_add(cost);
        *finish = end;
        self.latest = self.latest.max(end);
        Place { start, is_ahead: start > self.now, cost, client }
    }

    /// The request at `place` is next.
    pub fn begin(&mut self, place: &Place) {
        self.now = self.now.max(place.start);
    }

    /// The request at `place` took `actual` nanoseconds, while this many `clients` had requests, including its own client.
    pub fn served(&mut self, place: &Place, actual: u64, clients: usize) {
        self.charge(place, actual);
        self.now = self.now.saturating_add(actual / (clients.max(1) as u64));
    }

    /// The request at `place` was refused: it costs nothing.
    pub fn refused(&mut self, place: &Place) {
        self.charge(place, 0);
    }

    fn charge(&mut self, place: &Place, actual: u64) {
        let finish = match place.client {
            None => Some(&mut self.overflow),
            Some(client) => self.slots.get_mut(set_of(client)).and_then(|set| {
                let mut slots = set.iter_mut();
                slots.find(|slot| slot.client == client.0.get()).map(|slot| &mut slot.finish)
            }),
        };
        if let Some(finish) = finish {
            let end = finish.saturating_sub(place.cost).saturating_add(actual);
            *finish = end;
            self.latest = self.latest.max(end);
        }
    }

    /// Nothing waits any more: there was time for all clients, so none is ahead.
    pub fn settle(&mut self) {
        self.now = self.latest;
    }

    /// How many clients have an account: those that were served lately, or wait.
    pub fn accounts(&self) -> usize {
        self.slots.iter().filter(|slot| slot.finish > self.now).count()
    }

    /// The account of `client`, or one that nobody needs.
    fn slot_for(&mut self, client: ClientKey) -> Option<&mut Slot> {
        let now = self.now;
        let set = self.slots.get_mut(set_of(client))?;
        let own = set.iter().position(|slot| slot.client == client.0.get());
        let free = || set.iter().position(|slot| slot.finish <= now);
        let found = own.or_else(free)?;
        if own.is_none() {
            set[found] = Slot { client: client.0.get(), finish: now };
        }
        Some(&mut set[found])
    }
}

/// The slots in which the account of `client` may be.
fn set_of(client: ClientKey) -> core::ops::Range<usize> {
    let begin = client.0.get() as usize % (SLOTS / WAYS) * WAYS;
    begin..begin + WAYS
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::prng::Prng;

    fn client(number: u64) -> ClientKey {
        ClientKey::new(Prng::from_seed(number).next_u64())
    }

    /// The requests of each client, and the place of the first.
    #[derive(Default)]
    struct Queue {
        shares: Shares,
        waiting: BTreeMap<u64, (Place, u64)>,
    }

    impl Queue {
        /// Requests of `number` come.
        fn push(&mut self, number: u64, count: u64) {
            let shares = &mut self.shares;
            let new = || (shares.enter(client(number), COST), 0);
            self.waiting.entry(number).or_insert_with(new).1 += count;
        }

        /// Serves the next request; the one of client *n* takes `costs(n)`. Returns whose it was.
        fn serve(&mut self, cost: impl Fn(u64) -> u64) -> u64 {
            let first =
                self.waiting.iter().min_by_key(|(number, (place, _))| (place.start, **number));
            let (&number, &(place, count)) = first.expect("some wait");
            self.shares.begin(&place);
            self.shares.served(&place, cost(number), self.waiting.len());
            if count == 1 {
                self.waiting.remove(&number);
            } else {
                let place = self.shares.follow(&place, COST);
                self.waiting.insert(number, (place, count - 1));
            }
            number
        }
    }

    const COST: u64 = 1000;

    /// Purpose: clients that always wait are served for equal times, although their requests cost differently and
    /// nobody knows the costs before.
    #[test]
    fn time_is_divided_evenly() {
        for seed in 0..50 {
            let mut prng = Prng::from_seed(seed);
            let clients = 2 + prng.below(20);
            let costs: Vec<u64> = (0..clients).map(|_| 1 + prng.below(4 * COST)).collect();
            let (mut queue, mut served) = (Queue::default(), std::vec![0; clients as usize]);
            (0..clients).for_each(|number| queue.push(number, u64::MAX));
            for _ in 0..5_000 {
                let number = queue.serve(|number| costs[number as usize]) as usize;
                served[number] += costs[number];
            }
            let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
            assert!(most - least <= 2 * 4 * COST, "seed {seed}: {served:?}");
        }
    }

    /// Purpose: a client that asks for less than its share is next, however many requests another one has waiting.
    #[test]
    fn who_asks_for_little_is_next() {
        let mut queue = Queue::default();
        for round in 0..1000 {
            queue.push(1, 10);
            queue.push(2, 1);
            let next = [(); 3].map(|()| queue.serve(|_| COST));
            assert!(next.contains(&2), "round {round}: {next:?}");
        }
    }

    /// Purpose: what some do not want is divided among the others: three ask for a tenth each, two for everything.
    #[test]
    fn the_rest_is_divided() {
        let (mut queue, mut served) = (Queue::default(), [0_u32; 5]);
        for step in 0..10_000_u64 {
            if step % 10 < 3 {
                queue.push(step % 10, 1);
            }
            queue.push(3, 3);
            queue.push(4, 9);
            served[queue.serve(|_| COST) as usize] += 1;
        }
        assert!(served[..3].iter().all(|&count| count >= 990), "{served:?}");
        assert!(served[3].abs_diff(served[4]) <= 40, "{served:?}");
    }

    /// Purpose: refused requests cost their client nothing: after a thousand refusals its next request begins where
    /// the first would have.
    #[test]
    fn refusals_are_free() {
        let mut shares = Shares::default();
        let starts: Vec<u64> = (0..1000)
            .map(|_| {
                let place = shares.enter(client(7), COST);
                shares.refused(&place);
                place.start
            })
            .collect();
        assert!(starts.iter().all(|&start| start == 0));
        assert_eq!(shares.accounts(), 0);
    }

    /// Purpose: after a time in which nothing waited nobody is ahead.
    #[test]
    fn a_pause_makes_all_equal() {
        let mut shares = Shares::default();
        for _ in 0..100 {
            shares.enter(client(1), COST);
        }
        assert_eq!(shares.accounts(), 1);
        shares.settle();
        assert_eq!(shares.accounts(), 0);
        assert_eq!(shares.enter(client(1), COST).start, shares.enter(client(2), COST).start);
    }

    /// Purpose: a hundred thousand addresses, each new, need no more memory than the table, and keep nobody out: a
    /// client beside them is served whenever it asks, which is now and then.
    #[test]
    fn many_addresses_keep_nobody_out() {
        let (mut queue, mut own) = (Queue::default(), 0);
        (1..17).for_each(|number| queue.push(number, 1));
        for step in 0..100_000_u64 {
            queue.push(100 + step, 1);
            if step % 50 == 0 {
                queue.push(0, 1);
                queue.serve(|_| COST);
            }
            own += u64::from(queue.serve(|_| COST) == 0);
        }
        assert_eq!(queue.shares.slots.len(), SLOTS);
        assert!(queue.shares.accounts() <= SLOTS);
        assert!(own >= 100_000 / 50 - 20, "{own}");
    }
}
