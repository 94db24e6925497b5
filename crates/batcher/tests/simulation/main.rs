//! The batcher against a sink that refuses, delays and fails, as a seed decides, checked by an independent model.

mod model;
mod world;

use world::World;

/// Seeds of each run, unless `BATCHER_SEEDS` says otherwise.
const SEEDS: u64 = 2000;

/// Purpose: no record is lost, repeated, reordered or falsely confirmed, memory keeps within its bound, and nothing that
/// is due stays where it is, whatever the sink does. A seed that fails is printed, and fails again.
#[test]
fn whatever_the_sink_does() {
    let seeds = std::env::var("BATCHER_SEEDS").ok().and_then(|text| text.parse().ok());
    let mut seen = world::Seen::default();
    for seed in 0..seeds.unwrap_or(SEEDS) {
        let mut world = World::new(seed);
        world.run();
        seen.add(&world.finish());
    }
    // The simulation must have met what it is for.
    let world::Seen { written, failed, rejected, rewritten, full, timed_out, woken } = seen;
    for (what, count) in [
        ("written", written),
        ("failed", failed),
        ("rejected", rejected),
        ("rewritten", rewritten),
        ("refused for memory", full),
        ("timed out", timed_out),
        ("woken", woken),
    ] {
        assert!(count > 100, "{what}: only {count}");
    }
}
