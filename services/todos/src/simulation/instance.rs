//! An instance that serves reads: a model that follows the store, and a near cache in front of Redis.
//!
//! Its connection to Redis keeps the order in each direction, as TCP does; a push stands in line with the answers.

use std::collections::VecDeque;

use bytes::Bytes;
use highwater::cache::{Cache, CacheLimits};

use super::oracle::Oracle;
use super::redis::{Found, Redis};
use super::store::Store;
use crate::feed::News;
use crate::model::Model;
use crate::near::judge::{Shown, Verdict, judge, validity};
use crate::reads::{Limit, Read, Reads as _};
use crate::store::history::Follower;
use crate::store::{Loaded, Revision};

/// What it sends to Redis.
enum Sent {
    Advance(Revision),
    Lookup(Flight),
    Fill { limit: u32, epoch: u64, revision: Revision, list: Bytes },
}

/// What Redis sends to it.
enum Got {
    Received(Revision),
    Found(Flight, Found),
    Push,
}

/// A lookup that is under way.
struct Flight {
    limit: u32,
    validity: u64,
    before: Shown,
    /// The state that the store had reported when the reader asked.
    least: usize,
}

pub(crate) struct Instance {
    model: Model,
    follower: Follower,
    /// A feed that has looked, and not read yet.
    has_looked: bool,
    /// The state that the store has reported last.
    reported: usize,
    near: Cache<u32>,
    is_connected: bool,
    generation: u64,
    wanted: Revision,
    received: Option<Revision>,
    /// The store was looked at with what Redis knew.
    is_confirmed: bool,
    sent: VecDeque<Sent>,
    got: VecDeque<Got>,
}

impl Instance {
    /// One that starts: it loads the store before it serves.
    pub(crate) fn start(store: &mut Store, oracle: &Oracle, now_us: i64) -> Instance {
        let mut instance = Instance {
            model: Model::new(Loaded::default()),
            follower: Follower::default(),
            has_looked: false,
            reported: 0,
            near: Cache::new(CacheLimits { answers_max: 64, bytes_max: 1 << 20 }),
            is_connected: false,
            generation: 0,
            wanted: Revision::default(),
            received: None,
            is_confirmed: false,
            sent: VecDeque::new(),
            got: VecDeque::new(),
        };
        instance.look(store);
        instance.follow(store, oracle, now_us);
        instance
    }

    /// The feed looks whether there is anything.
    pub(crate) fn look(&mut self, store: &Store) {
        // What Redis knows is known before the store is looked at.
        self.received.into_iter().for_each(|received| self.follower.was_seen(received));
        self.has_looked = store.is_news(&self.follower);
        self.is_confirmed |= self.received.is_some() && !self.has_looked;
    }

    /// The feed reads what it has found. Answers what kind of news it was.
    pub(crate) fn follow(
        &mut self,
        store: &mut Store,
        oracle: &Oracle,
        now_us: i64,
    ) -> Option<&'static str> {
        if !self.has_looked {
            return None;
        }
        let Some((news, now)) = store.news(&self.follower) else {
            // It looks again.
            store.diverge(&self.follower, now_us);
            return Some("restore noticed");
        };
        self.has_looked = false;
        self.is_confirmed |= self.received.is_some();
        let was_everything = matches!(news, News::Everything(_));
        self.follower.note_reported(now, was_everything);
        self.reported = oracle.state();
        match news {
            News::Nothing => {}
            News::Changes(changes) => {
                if !changes.todos.is_empty() {
                    self.wanted = self.wanted.max(changes.revision);
                }
                self.model.apply(changes);
            }
            News::Everything(loaded) => {
                self.wanted = self.wanted.max(loaded.revision);
                self.model.replace(loaded);
            }
        }
        Some(if was_everything { "everything" } else { "changes" })
    }

    /// The state that the store has reported last.
    pub(crate) fn reported(&self) -> usize {
        self.reported
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Connects to Redis: it is tracked first, then it is used.
    pub(crate) fn connect(&mut self) {
        self.is_connected = true;
        self.generation += 1;
        self.sent.push_back(Sent::Advance(self.wanted));
    }

    /// The connection breaks; what was under way is gone. Answers whether that was a push.
    pub(crate) fn disconnect(&mut self, oracle: &Oracle) -> bool {
        self.is_connected = false;
        self.generation += 1;
        let was_push = self.got.iter().any(|got| matches!(got, Got::Push));
        let mut flights = Vec::new();
        for got in self.got.drain(..) {
            if let Got::Found(flight, _) = got {
                flights.push(flight);
            }
        }
        for sent in self.sent.drain(..) {
            if let Sent::Lookup(flight) = sent {
                flights.push(flight);
            }
        }
        for flight in flights {
            oracle.check_list(&self.of_model(flight.limit), flight.limit as usize, flight.least);
        }
        was_push
    }

    /// Each heartbeat announces the wanted revision.
    pub(crate) fn beat(&mut self) {
        if self.is_connected {
            self.sent.push_back(Sent::Advance(self.wanted));
        }
    }

    /// Redis handles what was sent first. The first value: whether a change is to be pushed to everybody; the second:
    /// what happened.
    pub(crate) fn reaches(&mut self, redis: &mut Redis) -> (bool, Option<&'static str>) {
        match self.sent.pop_front() {
            None => (false, None),
            Some(Sent::Advance(revision)) => {
                let (received, is_news) = redis.advance(revision);
                self.got.push_back(Got::Received(received));
                (is_news, None)
            }
            Some(Sent::Lookup(flight)) => {
                let found = redis.lookup(flight.limit);
                self.got.push_back(Got::Found(flight, found));
                (false, None)
            }
            Some(Sent::Fill { limit, epoch, revision, list }) => {
                let (is_taken, is_news) = redis.fill(limit, epoch, revision, list);
                (is_news, is_taken.then_some("filled"))
            }
        }
    }

    /// Redis pushes a change.
    pub(crate) fn pushed(&mut self) {
        if self.is_connected {
            self.got.push_back(Got::Push);
        }
    }

    /// It reads what Redis sent first. Answers what happened.
    pub(crate) fn receives(&mut self, oracle: &Oracle) -> Option<&'static str> {
        match self.got.pop_front()? {
            Got::Received(revision) => {
                self.received = Some(revision);
                None
            }
            Got::Push => {
                self.generation += 1;
                Some("pushed")
            }
            Got::Found(flight, found) => Some(self.lands(&flight, found, oracle)),
        }
    }

    fn lands(&mut self, flight: &Flight, found: Found, oracle: &Oracle) -> &'static str {
        let Flight { limit, validity, before, least } = *flight;
        let number = self.model.snapshot().number();
        let verdict = judge(found.revision, found.list.is_some(), before, number);
        let (list, keep) = match (verdict, found.list) {
            (Verdict::Theirs, Some(list)) => (list, true),
            (Verdict::Theirs, None) => panic!("there is no list of theirs"),
            (Verdict::Ours { fill, keep }, _) => {
                let list = self.of_model(limit);
                if fill {
                    let (epoch, revision) = (found.epoch, before.revision);
                    self.sent.push_back(Sent::Fill { limit, epoch, revision, list: list.clone() });
                }
                (list, keep)
            }
        };
        oracle.check_list(&list, limit as usize, least);
        if keep {
            self.near.get_or_build(&limit, validity, || list);
        }
        if verdict == Verdict::Theirs { "theirs" } else { "ours" }
    }

    /// A reader asks for a list. Answers what happened.
    pub(crate) fn read(&mut self, limit: u32, oracle: &Oracle) -> Option<&'static str> {
        let snapshot = self.model.snapshot();
        let validity = validity(self.generation, snapshot.number());
        if let Some(list) = self.near.find(&limit, validity) {
            oracle.check_list(&list, limit as usize, self.reported);
            return Some("hit");
        }
        if !self.is_connected || !self.is_confirmed {
            oracle.check_list(&self.of_model(limit), limit as usize, self.reported);
            return None;
        }
        let before = Shown { revision: snapshot.revision(), number: snapshot.number() };
        let flight = Flight { limit, validity, before, least: self.reported };
        self.sent.push_back(Sent::Lookup(flight));
        None
    }

    /// What the model shows, as a reader without Redis gets it.
    fn of_model(&self, limit: u32) -> Bytes {
        match self.model.list(Limit::of(limit.into())) {
            Read::Ready(list) => list,
            Read::Later(_) => panic!("everything is in memory"),
        }
    }
}
