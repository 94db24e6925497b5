//! Clients that ask for unequal amounts: does each get its share?

use super::model::{MS, S, Service, Tally, US, World};
use super::shares::Fair;

/// The share of requests that were lost, and the 99th percentile of the latency.
fn result(tally: &Tally) -> (f64, u64) {
    let mut latencies = tally.latencies.clone();
    latencies.sort_unstable();
    let p99 = latencies.get(latencies.len() * 99 / 100).copied().unwrap_or(u64::MAX);
    (tally.lost(), p99)
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
