//! Clients that ask for unequal amounts: does each get its share?

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use highwater_core::limit::{ClientKey, Lenience, Level, Place, Sample, Shares};
use highwater_core::prng::Prng;
use highwater_core::time::Instant;

use super::model::{MS, PATIENCE, Request, S, Service, Tally, US, World};

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
    pub(crate) fn order(&mut self, queue: &mut VecDeque<Request>, cost: u64) {
        for request in queue.drain(..) {
            let shares = &mut self.shares;
            let new = || (shares.enter(key(request.client), cost), VecDeque::new());
            self.lanes.entry(request.client).or_insert_with(new).1.push_back(request);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lanes.values().map(|(_, lane)| lane.len()).sum()
    }

    /// The oldest request, if it has waited for longer than `target`: of a client with several, if there is one. Others may be
    /// excused.
    pub(crate) fn pop_overdue(&mut self, now: u64, target: u64) -> Option<Request> {
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
        if lane.len() == 1 {
            self.shares.refused(place);
            self.lanes.remove(&client);
        } else {
            self.lanes.get_mut(&client)?.1.pop_front();
        }
        Some(request)
    }

    /// The request to start next, which will take `time`.
    pub(crate) fn pop_next(&mut self, time: u64, cost: u64) -> Option<Request> {
        let first = self.lanes.iter().min_by_key(|(_, (place, lane))| (place.start, lane[0].sent));
        let client = *first?.0;
        let clients = self.lanes.len();
        let (place, lane) = self.lanes.get_mut(&client)?;
        let request = lane.pop_front()?;
        self.shares.begin(place);
        self.shares.served(place, time, clients);
        *place = self.shares.follow(place, cost);
        if lane.is_empty() {
            self.shares.refused(place);
            self.lanes.remove(&client);
        }
        if self.lanes.is_empty() {
            self.shares.settle();
        }
        Some(request)
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

fn key_hash(client: u32) -> u64 {
    Prng::from_seed(u64::from(client)).next_u64()
}

fn key(client: u32) -> ClientKey {
    ClientKey::new(key_hash(client))
}

/// The share of requests that were lost, and the 99th percentile of the latency.
fn result(tally: &Tally) -> (f64, u64) {
    let asked = tally.refused + tally.latencies.len() as u64;
    let mut latencies = tally.latencies.clone();
    latencies.sort_unstable();
    let p99 = latencies.get(latencies.len() * 99 / 100).copied().unwrap_or(u64::MAX);
    (1.0 - tally.good as f64 / asked.max(1) as f64, p99)
}

/// Client 0 asks for `times` the capacity, a hundred others for `others` of it together. What those others lose, and
/// their p99, once the queue stands; and what was served in all.
fn beside_one(
    seed: u64,
    service: Service,
    (times, others): (f64, f64),
    is_fair: bool,
) -> (f64, u64, f64) {
    let mut world = World::new(seed, service);
    world.fair = is_fair.then(Fair::new);
    world.load_of((1, 101), others);
    if times > 0.0 {
        world.load_of((0, 1), times);
    }
    world.run(12 * S); // At one and a half capacities it takes so long until the queue stands.
    world.tallies = Default::default();
    world.run(20 * S);
    let [one, many] = &world.tallies;
    let good = (one.good + many.good) as f64 * service.mean() / (20 * S) as f64;
    let (lost, p99) = result(many);
    (lost, p99, good)
}

const SERVICES: [Service; 3] =
    [Service::Constant(1_000 * US), Service::Exponential(1_000 * US), Service::Constant(5 * MS)];

/// Purpose: the failure that shares mend. Without them, a hundred clients that ask for half of the capacity lose most
/// of their requests beside one that asks for ten times the capacity.
#[test]
fn without_shares_the_loudest_is_served() {
    for service in SERVICES {
        let (lost, ..) = beside_one(1, service, (10.0, 0.5), false);
        println!("{service:?}: {lost:.3} lost without shares");
        assert!(lost > 0.8, "{service:?}: {lost}");
    }
}

/// Purpose: with shares the hundred lose at most 1 % on average, also if the cost of requests is random or the gate has few
/// places; they are answered within three times their usual time, and the worker is as busy as before.
#[test]
fn each_client_gets_its_share() {
    const SEEDS: u64 = 4;
    for service in SERVICES {
        for times in [1.0, 2.0, 10.0] {
            let (mut all_lost, mut less) = (0.0, 0.0);
            for seed in 1..=SEEDS {
                let (_, quiet, _) = beside_one(seed, service, (0.0, 0.5), true);
                let (_, _, unfair) = beside_one(seed, service, (times, 0.5), false);
                let (lost, p99, good) = beside_one(seed, service, (times, 0.5), true);
                println!(
                    "{service:?}, {times}, seed {seed}: {lost:.4} lost, p99 {} us of {} us, {good:.3} of {unfair:.3}",
                    p99 / US,
                    quiet / US,
                );
                assert!(
                    p99 <= 3 * quiet.max(3 * service.mean() as u64),
                    "{service:?}, {times}: {p99} of {quiet}"
                );
                all_lost += lost / SEEDS as f64;
                less += (unfair - good) / SEEDS as f64;
            }
            assert!(all_lost <= 0.01, "{service:?}, {times}: {all_lost}");
            assert!(less <= 0.02, "{service:?}, {times}: {less}");
        }
    }
}

/// Purpose: where all are alike, shares cost nothing: whether one client asks for too much, a hundred do, or a hundred
/// thousand ask once each, and whether connections are refused or requests, about as much is served as without shares, and
/// about as soon. (What each of so many addresses attempts is known roughly, so some have credit at the gate.)
#[test]
fn shares_cost_nothing_where_clients_are_alike() {
    let kinds = [1, 100, 100_000].map(|clients| [(clients, true), (clients, false)]);
    for (clients, are_kept) in kinds.into_iter().flatten() {
        for load in [1.2, 2.0, 5.0] {
            let run = |is_fair: bool| {
                let mut world = World::new(1, Service::Constant(MS));
                world.are_kept = are_kept;
                world.fair = is_fair.then(Fair::new);
                world.load_of((1, clients + 1), load);
                world.run(12 * S);
                world.tallies = Default::default();
                world.run(20 * S);
                let Tally { good, latencies, .. } = &mut world.tallies[1];
                latencies.sort_unstable();
                let [p50, p99] = [50, 99].map(|part| latencies[latencies.len() * part / 100]);
                (*good as f64 / 20_000.0, p50, p99)
            };
            let ((good, p50, p99), (without, p50_without, _)) = (run(true), run(false));
            println!(
                "{clients} clients, kept: {are_kept}, {load}: {good:.3} of {without:.3}, p50 {} of {} us, p99 {} us",
                p50 / US,
                p50_without / US,
                p99 / US,
            );
            assert!(good >= without - 0.012, "{clients}, {are_kept}, {load}: {good} of {without}");
            assert!(p50 <= p50_without * 3 / 2 + MS, "{clients}, {are_kept}, {load}: {p50}");
        }
    }
}

/// Purpose: an address with many users behind it is one client, and is not punished below its share: beside nineteen
/// others that all ask for a tenth of the capacity, it gets a twentieth at least, and what the others leave.
#[test]
fn a_shared_address_gets_its_share() {
    for (others, least) in [(1.9, 0.85 / 20.0), (0.5, 0.42)] {
        let mut world = World::new(1, Service::Constant(MS));
        world.fair = Some(Fair::new());
        world.load_of((1, 20), others);
        world.load_of((0, 1), 1.0);
        world.run(3 * S);
        world.tallies = Default::default();
        world.run(20 * S);
        let share = world.tallies[0].good as f64 / 20_000.0;
        println!("{others} by others: {share:.3} of the capacity");
        assert!(share >= least, "{share} beside {others}");
    }
}
