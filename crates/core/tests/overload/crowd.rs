//! Clients that try again at once when they are refused.

use super::model::{MS, S, Service, World};

/// Purpose: after a short overload, clients that retry a millisecond after each refusal do not keep the queue
/// standing: together they fit into the patience, and the others are served as before, two seconds later. Both where
/// connections are refused and where requests are.
#[test]
fn clients_that_retry_at_once_keep_no_queue_standing() {
    for (crowd, overload) in [(10, 2.0), (20, 2.0), (30, 2.0), (30, 10.0)] {
        for (seed, are_kept) in (1..=8).flat_map(|seed| [(seed, false), (seed, true)]) {
            let mut world = World::new(seed, Service::Constant(MS));
            (world.back_off, world.are_kept) = (MS, are_kept);
            world.load(overload);
            world.run(2 * S);
            assert!(world.standing.stands(), "{overload}");
            world.clients(crowd);
            world.load(0.1);
            world.run(2 * S);
            let before = world.total(|tenth| tenth.good_once);
            world.run(5 * S);
            let served = world.total(|tenth| tenth.good_once) - before;
            println!(
                "{crowd} that retry, after {overload} times the capacity, kept: {are_kept}, seed {seed}: {served} of 500"
            );
            assert!(served >= 430, "{crowd} clients after {overload}, seed {seed}: {served}");
        }
    }
}

/// Purpose: where it is an overload and no crowd, the trials cost next to nothing, and answers stay quick.
#[test]
fn trials_cost_an_overload_nothing() {
    for load in [2.0, 5.0, 10.0] {
        for are_kept in [false, true] {
            let mut world = World::new(1, Service::Constant(MS));
            world.are_kept = are_kept;
            world.load(load);
            world.run(20 * S);
            let good: u64 = world.tenths[10..].iter().map(|tenth| tenth.good).sum();
            let share = good as f64 / 19_000.0;
            let served = world.latencies.len();
            let mut late = world.latencies[served / 10..].to_vec();
            late.sort_unstable();
            let [p50, p99] = [50, 99].map(|percent| late[late.len() * percent / 100] as f64 / 1e6);
            println!(
                "{load} times the capacity, kept: {are_kept}: {share:.3}, p50 {p50:.1} ms, p99 {p99:.1} ms"
            );
            let cost = if are_kept { 0.014 } else { 0.0164 };
            let law = (1.0 - load * cost) / (1.0 - cost);
            assert!(share > law - 0.03, "{load}, {are_kept}: {share} of {law}");
            assert!(p99 <= 50.0 && p50 <= 15.0, "{load}, {are_kept}: {p50}, {p99} ms");
        }
    }
}
