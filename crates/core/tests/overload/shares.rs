//! What shares add to a worker's queue and to the gate before it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use highwater_core::limit::{ClientKey, Lenience, Level, Place, Sample, Shares};
use highwater_core::prng::Prng;
use highwater_core::time::Instant;

use super::model::{PATIENCE, Request, World};

/// Buckets of each of the gate's two rows, and how many connections a source may open at once.
const BUCKETS: usize = 1024;
const BURST: u64 = 16;

/// What is added to a worker and the gate before it if clients have shares.
pub(crate) struct Fair {
    shares: Shares,
    /// The requests of each client, oldest first, and the place of the first.
    lanes: BTreeMap<u32, (Place, VecDeque<Request>)>,
    lenience: Lenience,
    level: Level,
    /// The time between two connections of a source at the level; 0 if there is none.
    gap: u64,
    /// When each bucket's last connection would have come at that rate.
    rows: [Vec<u64>; 2],
    counts: Vec<u64>,
    was_standing: bool,
}

/// The request that is next: whose it is, whether it is the newest or the oldest of those, and whether it is the turn of that
/// client.
#[derive(Clone, Copy)]
struct Next {
    client: u32,
    is_newest: bool,
    is_in_turn: bool,
}

/// What became of the request that was next.
pub(crate) enum Step {
    Started {
        is_given_up: bool,
    },
    Refused,
    /// Its client has given up.
    Left,
}

impl Fair {
    pub(crate) fn new() -> Fair {
        Fair {
            shares: Shares::default(),
            lanes: BTreeMap::new(),
            lenience: Lenience::default(),
            level: Level::default(),
            gap: 0,
            rows: [vec![0; BUCKETS], vec![0; BUCKETS]],
            counts: vec![0; BUCKETS],
            was_standing: false,
        }
    }

    /// The requests in `queue` get into the lanes of their clients.
    fn order(&mut self, queue: &mut VecDeque<Request>, cost: u64) {
        for request in queue.drain(..) {
            let shares = &mut self.shares;
            let new = || (shares.enter(key(request.client), cost), VecDeque::new());
            self.lanes.entry(request.client).or_insert_with(new).1.push_back(request);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lanes.values().map(|(_, lane)| lane.len()).sum()
    }

    /// The requests for which `is_there` does not hold leave their lanes.
    pub(crate) fn take_leavers(&mut self, is_there: impl Fn(&Request) -> bool) -> Vec<Request> {
        let mut gone = Vec::new();
        for (_, lane) in self.lanes.values_mut() {
            gone.extend(lane.iter().filter(|request| !is_there(request)));
            lane.retain(&is_there);
        }
        let shares = &mut self.shares;
        self.lanes.retain(|_, (place, lane)| {
            if lane.is_empty() {
                shares.refused(place);
            }
            !lane.is_empty()
        });
        gone
    }

    /// The oldest request, if it has waited for longer than `target`: of a client with several, if there is one. Others may be
    /// excused.
    fn pop_overdue(&mut self, now: u64, target: u64) -> Option<Request> {
        let has_many = self.lanes.values().any(|(_, lane)| lane.len() > 1);
        let lanes = self.lanes.iter().filter(|(_, (_, lane))| !has_many || lane.len() > 1);
        let oldest = lanes.min_by_key(|(_, (_, lane))| lane[0].sent)?;
        let (&client, (place, lane)) = oldest;
        let request = lane[0];
        if now - request.sent <= target {
            return None;
        }
        let at = Instant::from_nanos(now);
        if has_many || place.is_ahead {
            self.lenience.blame(at);
        }
        let [waited, target] = [now - request.sent, target].map(Duration::from_nanos);
        if !has_many && self.lenience.excuses(at, waited, target, PATIENCE / 2) {
            return None;
        }
        self.take(Next { client, is_newest: false, is_in_turn: false })
    }

    /// The oldest request: when it was sent, and whose it is.
    fn oldest(&self) -> Option<(u64, u32)> {
        self.lanes.iter().map(|(&client, (_, lane))| (lane[0].sent, client)).min()
    }

    /// The client whose turn it is.
    fn first(&self) -> Option<u32> {
        let first = self.lanes.iter().min_by_key(|(_, (place, lane))| (place.start, lane[0].sent));
        first.map(|(&client, _)| client)
    }

    fn get(&self, next: Next) -> Option<&Request> {
        let (_, lane) = self.lanes.get(&next.client)?;
        if next.is_newest { lane.back() } else { lane.front() }
    }

    /// Takes a request that is not started: its client is not charged for it.
    fn take(&mut self, next: Next) -> Option<Request> {
        let (place, lane) = self.lanes.get_mut(&next.client)?;
        let request = if next.is_newest { lane.pop_back() } else { lane.pop_front() };
        if lane.is_empty() {
            self.shares.refused(place);
            self.lanes.remove(&next.client);
        }
        request
    }

    /// Takes a request that is started, and takes `time`.
    fn start(&mut self, next: Next, time: u64, cost: u64) -> Option<Request> {
        let clients = self.lanes.len();
        let (place, _) = self.lanes.get_mut(&next.client)?;
        if next.is_in_turn {
            self.shares.begin(place);
        }
        self.shares.served(place, time, clients);
        *place = self.shares.follow(place, cost);
        let request = self.take(next);
        if self.lanes.is_empty() {
            self.shares.settle();
        }
        request
    }

    /// Whether the gate admits the connection of `request`, as `held` of `limit` places are taken.
    pub(crate) fn admits(
        &mut self,
        request: &Request,
        now: u64,
        (held, limit): (u64, u64),
    ) -> bool {
        let hash = key_hash(request.client);
        let buckets = [hash as usize % BUCKETS, (hash >> 32) as usize % BUCKETS];
        self.counts[buckets[0]] += 1;
        let ahead = self.rows.iter().zip(buckets).map(|(row, bucket)| row[bucket]);
        let ahead = ahead.min().unwrap_or(0).saturating_sub(now);
        if self.gap > 0 && ahead > BURST * self.gap {
            return false;
        }
        let has_credit = self.gap > 0 && ahead <= BURST / 2 * self.gap;
        let admits = held < if has_credit { 4 * limit } else { limit };
        for (row, bucket) in self.rows.iter_mut().zip(buckets) {
            row[bucket] = row[bucket].max(now) + self.gap;
        }
        admits
    }

    /// Computes the level, as the controller does.
    pub(crate) fn on_sample(&mut self, sample: &Sample) {
        let stands = sample.standing > 0;
        let counts = self.counts.iter().copied();
        if stands && self.was_standing {
            let capacity = 1.0 / sample.cost.as_secs_f32();
            let gap = self.level.look(sample.span, counts, capacity);
            self.gap = gap.map_or(0, |gap| gap.as_nanos() as u64);
        } else if stands {
            self.level.begin(counts);
            self.rows.iter_mut().for_each(|row| row.fill(0));
        } else {
            self.gap = 0;
        }
        self.was_standing = stands;
    }
}

impl World {
    /// The next request where clients have shares, and some have places: or the queue is out of order, and all get one.
    pub(crate) fn step_by_shares(&mut self, target: u64, may_refuse: bool) -> Step {
        let stands = self.standing.stands();
        let overtaken = self.standing.overtaken_max().as_nanos() as u64;
        let cost = self.standing.cost().unwrap_or_default().as_nanos() as u64;
        let fair = self.fair.as_mut().expect("clients have shares");
        let is_long = self.standing.is_long();
        if is_long || overtaken > 0 {
            fair.order(&mut self.queue, cost);
        }
        if stands
            && may_refuse
            && let Some(request) = fair.pop_overdue(self.now, target)
        {
            self.refuse(request, self.answer_cost());
            return Step::Refused;
        }
        let now = self.now;
        let is_given_up = |request: &Request| now - request.sent > request.patience;
        let drops = self.standing.drops_abandoned();
        let oldest = fair.oldest();
        let first = fair.first().expect("some have places");
        let rest = self.queue.front().map(|request| request.sent);
        let (sent, oldest) = oldest.expect("some have places");
        let oldest = Next { client: oldest, is_newest: false, is_in_turn: false };
        if rest.is_some_and(|rest| rest < sent) {
            let request = self.queue.pop_front().expect("there is one");
            self.standing.on_start(0, Duration::from_nanos(now - request.sent));
            self.serve(request);
            return Step::Started { is_given_up: is_given_up(&request) };
        }
        let next = if stands {
            let is_newest = now - fair.lanes[&first].1[0].sent > target;
            Next { client: first, is_newest, is_in_turn: true }
        } else if drops && fair.get(oldest).is_some_and(is_given_up) {
            oldest
        } else if now - sent < overtaken {
            Next { client: first, is_newest: true, is_in_turn: true }
        } else if is_long && now - sent < PATIENCE.as_nanos() as u64 / 2 {
            Next { client: first, is_newest: false, is_in_turn: true }
        } else {
            oldest
        };
        if drops && fair.get(next).is_some_and(is_given_up) {
            let request = fair.take(next).expect("there is one");
            self.leave(request);
            return Step::Left;
        }
        let time = self.service.draw(&mut self.prng);
        let request = fair.start(next, time, cost).expect("there is one");
        self.standing.on_start(0, Duration::from_nanos(now - request.sent));
        self.serve_for(request, time);
        Step::Started { is_given_up: is_given_up(&request) }
    }
}

fn key_hash(client: u32) -> u64 {
    Prng::from_seed(u64::from(client)).next_u64()
}

fn key(client: u32) -> ClientKey {
    ClientKey::new(key_hash(client))
}
