//! When is a queue standing, and how many requests may wait then? Tested against a modelled worker.
//!
//! There are two requirements. *No request is refused that could have been answered within the
//! client's patience*: bursts, page loads and random variation are not overload. *Refusals are early
//! and cheap*: a real overload is seen within a fraction of the patience.
//!
//! `cargo test --profile fast -p highwater-core --test overload -- --nocapture` prints the tables.
#![cfg(not(miri))] // Millions of steps of arithmetic.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "the tables are what the experiments are for")]

mod classes;
mod crowd;
mod leavers;
mod model;
mod onset;
mod shares;
mod unequal;

use self::model::{MS, S, Service, US, World};

const PLAIN: Service = Service::Constant(1_100 * US);

/// How long an overload may go on before the queue stands, in seconds.
fn seen_after(seed: u64, service: Service, load: f64) -> Option<f64> {
    let mut world = World::new(seed, service);
    world.load(0.5);
    world.run(3 * S);
    world.load(load);
    for tenth in 1..=600 {
        world.run(S / 20);
        if world.standing.stands() {
            return Some(f64::from(tenth) / 20.0);
        }
    }
    None
}

/// Purpose: at ten times the capacity, an overload is seen before clients with a deadline of 200 ms
/// get answers too late; smaller overloads are seen soon after the queue exceeds the patience.
#[test]
fn an_overload_is_seen_in_time() {
    for (load, most) in [(10.0, 0.4), (5.0, 0.5), (2.0, 3.0), (1.5, 7.0), (1.2, 12.0)] {
        for seed in 1..=10 {
            for service in
                [PLAIN, Service::Exponential(300 * US), Service::Bimodal(MS, 20 * MS, 50)]
            {
                let after = seen_after(seed, service, load);
                let is_in_time = after.is_some_and(|seconds| seconds <= most);
                assert!(is_in_time, "{service:?} at {load}, seed {seed}: {after:?} > {most}");
            }
        }
    }
}

/// Purpose: requests that arrive at once are served in order, however many they are, and none is
/// refused; the same holds for repeated bursts, and for bursts that a slow client spreads a little.
#[test]
fn a_page_is_no_overload() {
    for count in [6, 10, 30, 50, 100, 300] {
        for cost in [MS / 2, 2 * MS, 5 * MS, 10 * MS, 20 * MS, 50 * MS, 100 * MS, 300 * MS] {
            for spread in [0, 20 * MS, 60 * MS] {
                let mut world = World::new(1, Service::Constant(cost));
                for _ in 0..4 {
                    world.burst(count, spread);
                    world.settle();
                    world.run(S / 5);
                }
                let refused = world.total(|tenth| tenth.refused);
                assert!(
                    refused == 0 && !world.has_stood(),
                    "{count} of {cost} ns within {spread}: {refused} refused"
                );
            }
        }
    }
}

/// Purpose: browsers that load pages over a few connections each, one request after the other, are no
/// overload either, even if each request takes the worker 300 ms.
#[test]
fn a_few_clients_are_no_overload() {
    for (clients, cost) in [(6, 300 * MS), (12, 300 * MS), (20, 20 * MS), (60, 5 * MS), (500, MS)] {
        let mut world = World::new(1, Service::Constant(cost));
        world.clients(clients);
        world.run(60 * S);
        assert!(!world.has_stood(), "{clients} clients, {cost} ns");
    }
}

/// Purpose: just above the capacity, clients that give up long before the configured patience get answers in
/// time again soon after the queue has become too long for them, at any load.
#[test]
fn clients_that_give_up_are_seen() {
    for load in [1.03, 1.05, 1.1, 1.2, 1.4, 2.0] {
        for patience in [100 * MS, 200 * MS, 500 * MS] {
            let mut world = World::new(1, PLAIN);
            world.impatient = (1000, patience);
            world.load(0.5);
            world.run(3 * S);
            world.load(load);
            // The queue reaches their patience, and then a second or two go by.
            let grows = (patience as f64 / (load - 1.0)) as u64;
            world.run(grows + 2 * S);
            let good = world.total(|tenth| tenth.good);
            world.run(20 * S);
            let share = (world.total(|tenth| tenth.good) - good) as f64 * 1.1e-3 / 20.0;
            println!("{load} times the capacity, {patience} ns: {share:.3} of the capacity");
            assert!(share > 0.9, "{load}, {patience} ns: {share}");
        }
    }
}

/// Purpose: a few clients that give up early, among many that wait, are not an overload: no other request is
/// refused.
#[test]
fn a_few_impatient_clients_are_no_overload() {
    for share in [20, 100, 300] {
        let mut world = World::new(1, Service::Constant(MS));
        world.impatient = (share, 30 * MS);
        world.clients(100);
        world.run(30 * S);
        assert!(!world.has_stood(), "{share} of 1000");
        assert_eq!(world.total(|tenth| tenth.refused), 0, "{share} of 1000");
    }
}

/// Purpose: the same where the requests of clients that give up leave the queue with them, as behind a proxy that resets
/// their connections: nothing in the queue tells that it is too long.
#[test]
fn clients_that_leave_are_seen() {
    for load in [1.05, 1.1, 1.2, 1.4, 2.0, 5.0] {
        for patience in [100 * MS, 200 * MS, 500 * MS] {
            for service in [PLAIN, Service::Exponential(1_100 * US)] {
                let mut world = World::new(1, service);
                world.impatient = (1000, patience);
                world.leaves = true;
                world.are_kept = true;
                world.load(0.5);
                world.run(3 * S);
                world.load(load);
                let grows = (patience as f64 / (load - 1.0)) as u64;
                world.run(grows + 2 * S);
                let good = world.total(|tenth| tenth.good);
                world.run(20 * S);
                let share = (world.total(|tenth| tenth.good) - good) as f64 * 1.1e-3 / 20.0;
                println!("{service:?} at {load}, {patience} ns: {share:.3} of the capacity");
                assert!(share > 0.85, "{service:?} at {load}, {patience} ns: {share}");
            }
        }
    }
}

/// Purpose: and a few of them among many that wait are not an overload, whether their patience is shorter than the
/// queue or longer than most of it.
#[test]
fn a_few_clients_that_leave_are_no_overload() {
    for share in [20, 100, 300] {
        for patience in [30 * MS, 60 * MS] {
            let mut world = World::new(1, Service::Constant(MS));
            world.impatient = (share, patience);
            world.leaves = true;
            world.clients(100);
            world.run(30 * S);
            assert!(!world.has_stood(), "{share} of 1000, {patience} ns");
        }
        let mut world = World::new(1, Service::Exponential(MS));
        world.impatient = (share, 30 * MS);
        world.leaves = true;
        world.load(0.9);
        world.run(300 * S);
        assert!(!world.has_stood(), "{share} of 1000 at random");
    }
}

/// Purpose: a burst whose clients have all disconnected does not cause later clients to be refused.
#[test]
fn a_burst_that_was_given_up_is_dropped() {
    let mut world = World::new(1, Service::Constant(5 * MS));
    world.impatient = (1000, 300 * MS);
    world.burst(400, 0);
    world.run(S / 2);
    world.impatient = (0, 0);
    world.burst(20, 50 * MS);
    world.settle();
    assert_eq!(world.total(|tenth| tenth.refused), 0);
    assert!(!world.has_stood());
    assert!(world.total(|tenth| tenth.dropped) > 200, "most were not worked for");
}

/// Purpose: clients that each wait for their answer before they ask again are an overload when they
/// are so many that none is answered within its patience.
#[test]
fn a_closed_loop_stands() {
    for (clients, cost) in [(2000, 1_100 * US), (100, 50 * MS)] {
        let mut world = World::new(1, Service::Constant(cost));
        world.clients(clients);
        world.run(9 * S);
        assert!(world.standing.stands(), "{clients} clients, {cost} ns");
    }
}

/// Purpose: hours at 70 % of the capacity, with random arrivals and some requests a thousand times
/// as slow as others, cause queues now and then, even of seconds, but no refusal.
#[test]
fn chance_is_no_overload() {
    let services = [
        Service::Pareto(1_100 * US, 1.5),
        Service::Pareto(300 * US, 2.1),
        Service::Bimodal(MS, 300 * MS, 500),
        Service::Exponential(20 * MS),
        Service::Constant(1_100 * US),
    ];
    let (hours, seconds) = if cfg!(debug_assertions) { (2, 900) } else { (8, 3600) };
    for service in services {
        for seed in 1..=hours {
            let mut world = World::new(seed, service);
            world.load(0.7);
            world.run(seconds * S);
            let refused = world.total(|tenth| tenth.refused);
            let longest = world.latencies.iter().max().map_or(0, |nanos| nanos / MS);
            println!("{service:?}, seed {seed}: {refused} refused, the longest took {longest} ms");
            assert_eq!(refused, 0, "{service:?}, seed {seed}");
        }
    }
}

/// Purpose: when the load is gone, or back below the capacity, nothing is refused any more.
#[test]
fn it_ends_with_the_load() {
    for (load, most) in [(0.0, 0.4), (0.3, 0.5), (0.7, 2.0), (0.9, 5.0)] {
        for seed in 1..=10 {
            let mut world = World::new(seed, PLAIN);
            world.load(10.0);
            world.run(3 * S);
            assert!(world.standing.stands());
            world.load(load);
            let mut took = 0.0;
            while world.standing.stands() && took < 60.0 {
                world.run(S / 20);
                took += 0.05;
            }
            assert!(took <= most, "{load}, seed {seed}: {took} s");
        }
    }
    // And fifty that come half a second later are not an overload.
    let mut world = World::new(1, PLAIN);
    world.load(10.0);
    world.run(3 * S);
    world.load(0.0);
    world.run(S / 2);
    let before = world.total(|tenth| tenth.refused);
    world.burst(50, 0);
    world.settle();
    assert_eq!(world.total(|tenth| tenth.refused), before);
}

/// Purpose: in a standing overload the goodput is the capacity less the cost of refusing, and an
/// answer comes soon; at the onset little is lost.
#[test]
fn the_overload_table() {
    println!(
        "{:28} {:>5} {:>8} {:>8} {:>8} {:>8}",
        "work", "load", "goodput", "law", "p99 ms", "lost s"
    );
    for service in [PLAIN, Service::Exponential(1_100 * US), Service::Constant(5 * MS)] {
        for load in [1.2, 2.0, 5.0, 10.0] {
            let mut world = World::new(1, service);
            let peak = 1e9 / service.mean();
            let price = 16_400.0 / service.mean();
            let law = (1.0 - load * price) / (1.0 - price);
            world.load(load);
            world.run(20 * S);
            let good = |tenths: &[model::Tenth]| tenths.iter().map(|tenth| tenth.good).sum::<u64>();
            let goodput = good(&world.tenths[120..]) as f64 / 8.0 / peak;
            let lost = (2.0 * law - good(&world.tenths[..20]) as f64 / peak).max(0.0);
            let served = world.latencies.len();
            let mut late: Vec<u64> = world.latencies[served / 2..].to_vec();
            late.sort_unstable();
            let p99 = late[late.len() * 99 / 100] as f64 / 1e6;
            println!(
                "{:28} {load:5} {goodput:8.3} {law:8.3} {p99:8.1} {lost:8.2}",
                format!("{service:?}")
            );
            if load >= 2.0 {
                assert!(goodput > law - 0.03, "{service:?} at {load}: {goodput} of {law}");
                assert!(p99 <= 50.0, "{service:?} at {load}: p99 {p99} ms");
            }
            if load == 10.0 && service.mean() < 2e6 {
                assert!(lost <= 0.2, "{service:?}: {lost} s lost at the onset");
            }
        }
    }
}

/// Purpose: a thousand clients that connect and send nothing must not take the places of clients that send
/// requests.
#[test]
fn silent_clients_hold_no_places() {
    let mut world = World::new(1, PLAIN);
    world.load(2.0);
    world.run(5 * S);
    world.silent = 1000;
    world.run(5 * S);
    let served: u64 = world.tenths[80..].iter().map(|tenth| tenth.served).sum();
    assert!(served as f64 > 0.9 * 909.0 * 2.0, "{served} in two seconds");
}
