//! Clients whose requests leave the queue with them, where not all have the same patience.

use super::model::{MS, S, Service, US, World};

/// Purpose: some clients that always leave after a moment do not hide that the queue is as long as the others wait: those are
/// answered in time, at any load above the capacity.
#[test]
fn some_leave_sooner() {
    for (share, soon) in
        [(100, 5 * MS), (100, 30 * MS), (300, 30 * MS), (100, 100 * MS), (100, 160 * MS)]
    {
        for load in [1.05, 1.2, 1.5, 2.0, 5.0] {
            // The queue grows although all of the impatient ones leave, until the others do.
            let grows = (200e6 / (load - 1.0)) as u64;
            let load = load / (1.0 - share as f64 / 1000.0);
            let mut world = World::new(1, Service::Constant(1_100 * US));
            (world.impatient, world.patience) = ((share, soon), 200 * MS);
            (world.leaves, world.are_kept) = (true, true);
            world.load(load);
            world.run(grows + 2 * S);
            let good = world.total(|tenth| tenth.good);
            world.run(20 * S);
            let good = (world.total(|tenth| tenth.good) - good) as f64 * 1.1e-3 / 20.0;
            println!(
                "{share} of 1000 leave after {soon} ns, at {load:.2}: {good:.3} of the capacity"
            );
            assert!(good > 0.85, "{share} of 1000 leave after {soon} ns, at {load:.2}: {good}");
        }
    }
}

/// Purpose: clients that always leave after a moment are no reason to refuse others, neither below the capacity nor where
/// everybody waits for a while.
#[test]
fn those_who_always_leave_are_no_overload() {
    for (share, soon) in [(100, 5 * MS), (300, 5 * MS), (100, 30 * MS), (100, 150 * MS)] {
        let mut world = World::new(1, Service::Constant(MS));
        (world.impatient, world.leaves) = ((share, soon), true);
        world.clients(200);
        world.run(60 * S);
        assert!(!world.has_stood(), "{share} of 1000 leave after {soon} ns");
        assert_eq!(world.total(|tenth| tenth.refused), 0, "{share} of 1000 leave after {soon} ns");
        let mut world = World::new(1, Service::Exponential(MS));
        (world.impatient, world.leaves) = ((share, soon), true);
        world.load(0.9);
        world.run(300 * S);
        assert!(!world.has_stood(), "{share} of 1000 at random, {soon} ns");
    }
}
