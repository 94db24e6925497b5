//! Limits against modelled servers: experiments that give the same numbers every time.
//!
//! `cargo test --profile fast -p highwater-core --test limits -- --nocapture --test-threads 1`
//! prints the tables. They compare goodput by the clients' clocks with the best fixed limit, which
//! a sweep finds in the same model with the same arrivals.
// Millions of steps of arithmetic: Miri would take days, and find nothing of its kind.
#![cfg(not(miri))]
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "the tables are what the experiments are for")]

mod knee;
mod model;
mod properties;

use highwater_core::limit::{Fixed, HillClimb, Limit};

use self::model::{Scene, World, rate};

/// Limits that are swept.
const SWEPT: [u32; 14] = [1, 2, 4, 8, 12, 16, 32, 64, 128, 160, 180, 256, 512, 1024];

/// Loads, as multiples of the capacity; without optimization, only as many as take a minute.
const LOADS: &[f64] =
    if cfg!(debug_assertions) { &[1.2, 5.0] } else { &[0.8, 1.2, 2.0, 5.0, 10.0] };

/// Runs per figure, which is their mean.
const SEEDS: u64 = 3;

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Purpose: throughput does not show that goodput has dropped to zero; a limiter that climbs on
/// throughput stays in that region for ever. That is why `HillClimb` is never a default.
#[test]
fn it_does_not_settle_where_goodput_is_zero() {
    let (scene, load) = (Scene::plain(), 5.0);
    println!("\n{:>10} {:>11} {:>9}", "limit", "throughput", "goodput");
    let mut throughputs = Vec::new();
    let mut show = |name: &str, limit: &mut dyn Limit| {
        let mut world = World::new(scene, limit);
        world.run(60.0, load * scene.capacity());
        let done = rate(&world.tenths, 50.0, 60.0, |tenth| tenth.completed);
        let good = rate(&world.tenths, 50.0, 60.0, |tenth| tenth.good);
        println!("{name:>10} {done:11.0} {good:9.0}");
        throughputs.push(done);
        good
    };
    for limit in [2, 8, 32, 128, 160, 180, 256, 1024] {
        let good = show(&limit.to_string(), &mut Fixed::new(limit));
        // 1.1 ms each, and as much again as refusing the others takes from the core: 1.18 ms.
        assert!(if limit < 165 { good > 840.0 } else { limit < 185 || good == 0.0 }, "{limit}");
    }
    let climbed = show("hill-climb", &mut HillClimb::new(u32::MAX));
    assert_eq!(climbed, 0.0, "it starts at 800, and never has a reason to go down to 160");
    let least = throughputs.iter().copied().fold(f64::INFINITY, f64::min);
    let most = throughputs.iter().copied().fold(0.0, f64::max);
    assert!(least > most * 0.9, "throughput is flat: {least} to {most}");
}
