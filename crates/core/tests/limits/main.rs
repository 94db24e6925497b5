//! Limits against modelled servers: an experiment that can be repeated, number by number.
//!
//! `cargo test --profile fast -p highwater-core --test limits -- --nocapture --test-threads 1` prints the
//! tables.
//! What is compared is goodput by the clients' clocks, against the best fixed limit, found by a sweep
//! in the same model with the same arrivals.
// Millions of steps of arithmetic: Miri would take days, and find nothing of its kind.
#![cfg(not(miri))]
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "the tables are what the experiments are for")]

mod complaints;
mod knee;
mod model;
mod onset;
mod properties;

use std::time::Duration;

use highwater_core::limit::{Aim, Fixed, Gradient, HillClimb, Limit};

use self::model::{MS, Queue, Refuse, Scene, Service, Tenth, World, rate};

/// Limits that are swept.
const SWEPT: [u32; 14] = [1, 2, 4, 8, 12, 16, 32, 64, 128, 160, 180, 256, 512, 1024];

/// Loads, in times of what can be served; without optimization, no more than take a minute.
const LOADS: &[f64] =
    if cfg!(debug_assertions) { &[1.2, 5.0] } else { &[0.8, 1.2, 2.0, 5.0, 10.0] };

/// Runs that a figure is the mean of, and how long they are: where chance decides what requests cost,
/// enough of them that it does not decide which limit is best.
const SEEDS: u64 = 3;
const SEEDS_OF_CHANCE: u64 = if cfg!(debug_assertions) { 3 } else { 8 };
const SECONDS: f64 = 12.0;
const SECONDS_OF_CHANCE: f64 = if cfg!(debug_assertions) { 12.0 } else { 22.0 };

pub(crate) fn gradient(scene: &Scene) -> Gradient {
    let start = if scene.sighted { 16384 } else { 64 };
    let target = Duration::from_millis(10);
    Gradient::new(Aim { target, limit_max: 1 << 20, start, spare: scene.cores as u32 })
}

/// Some seconds under a constant load, in times of what can be served.
pub(crate) fn steady(scene: Scene, limit: &mut dyn Limit, load: f64, seconds: f64) -> Vec<Tenth> {
    let mut world = World::new(scene, limit);
    world.run(seconds, load * scene.capacity());
    world.tenths
}

/// A scene under a load, and from when on it is judged.
#[derive(Clone, Copy)]
struct Trial {
    scene: Scene,
    load: f64,
    from: f64,
}

impl Trial {
    /// Goodput per second, of each seed.
    fn goodputs(&self, limit: impl Fn() -> Box<dyn Limit>) -> Vec<f64> {
        let is_constant = |service| matches!(service, Service::Constant(_));
        let behind = self.scene.backend.is_none_or(|(service, _)| is_constant(service));
        let (seeds, seconds) = match is_constant(self.scene.service) && behind {
            true => (SEEDS, SECONDS),
            false => (SEEDS_OF_CHANCE, SECONDS_OF_CHANCE),
        };
        let of_seed = |seed| {
            let scene = Scene { seed, ..self.scene };
            let tenths = steady(scene, &mut *limit(), self.load, seconds);
            rate(&tenths, self.from, seconds, |tenth| tenth.good)
        };
        (1..=seeds).map(of_seed).collect()
    }

    /// The limit that was best over all seeds, in hindsight, and what it yielded.
    fn best(&self) -> (u32, Vec<f64>) {
        let yields = |limit| (limit, self.goodputs(|| Box::new(Fixed::new(limit))));
        let all = SWEPT.into_iter().map(yields);
        all.max_by(|a, b| mean(&a.1).total_cmp(&mean(&b.1))).expect("some were swept")
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The standard error of `found`'s ratio to `best`, which had the same seeds.
fn error(found: &[f64], best: &[f64]) -> f64 {
    let ratios: Vec<f64> = found.iter().zip(best).map(|(found, best)| found / best).collect();
    let off = ratios.iter().map(|ratio| (ratio - mean(&ratios)).powi(2)).sum::<f64>();
    let count = ratios.len() as f64;
    (off / (count - 1.0) / count).sqrt()
}

/// Purpose: two seconds after a start, whatever the load and the kind of work, the limit yields what
/// the best fixed one does, less 5 %; behind a back end that queues where nobody sees it, six seconds
/// after the start.
#[test]
fn it_finds_the_best_limit() {
    let plain = Scene::plain();
    let quick = Scene { service: Service::Constant(0.1 * MS), ..plain };
    let database = |slots| Scene { backend: Some((Service::Constant(50.0 * MS), slots)), ..quick };
    let uneven = Service::Bimodal(20.0 * MS, 120.0 * MS, 0.3);
    let codel = Queue::Codel(10.0 * MS);
    let bimodal = Scene { service: Service::Bimodal(0.5 * MS, 20.0 * MS, 0.05), ..plain };
    let pareto = |shape| Scene { service: Service::Pareto(1.1 * MS, shape), ..plain };
    let scenes = [
        ("constant", plain, 2.0),
        ("constant, silent drop", Scene { refuse: Refuse::Drop, ..plain }, 2.0),
        ("constant, queue drops", Scene { queue: codel, ..plain }, 2.0),
        ("four cores", Scene { cores: 4, ..plain }, 2.0),
        ("20 ms deadline", Scene { deadline: 20.0 * MS, ..plain }, 2.0),
        ("clients try 5 times", Scene { tries: 5, ..plain }, 2.0),
        ("bimodal 0.5/20 ms", bimodal, 2.0),
        ("bimodal, queue drops", Scene { queue: codel, ..bimodal }, 2.0),
        ("Pareto 2.1", pareto(2.1), 2.0),
        ("Pareto 1.5", pareto(1.5), 2.0),
        ("Pareto 1.5, queue drops", Scene { queue: codel, ..pareto(1.5) }, 2.0),
        ("awaits 50 ms", database(1 << 20), 2.0),
        ("awaits, queue drops", Scene { queue: codel, ..database(1 << 20) }, 2.0),
        ("back end of 64", database(64), 6.0),
        ("uneven back end of 64", Scene { backend: Some((uneven, 64)), ..quick }, 6.0),
        ("back end of 64, blind", Scene { sighted: false, ..database(64) }, 6.0),
        ("constant, blind", Scene { sighted: false, ..plain }, 6.0),
    ];
    println!(
        "\n{:24} {:>4} {:>7} {:>9} {:>9} {:>6} {:>7}",
        "work", "load", "best", "yields", "found", "ratio", "± error"
    );
    let mut missed = Vec::new();
    for (name, scene, from) in scenes {
        for &load in LOADS {
            let trial = Trial { scene, load, from };
            let (limit, best) = trial.best();
            let found = trial.goodputs(|| Box::new(gradient(&scene)));
            let (yields, error) = (mean(&best), error(&found, &best));
            if yields == 0.0 {
                println!("{name:24} {load:4}: no limit helps, refusing takes more than there is");
                continue;
            }
            let found = mean(&found);
            let ratio = found / yields;
            let mark = if ratio < 0.95 { " <" } else { "" };
            println!(
                "{name:24} {load:4} {limit:7} {yields:9.0} {found:9.0} {ratio:6.3} {error:7.3}{mark}"
            );
            if ratio < 0.95 {
                missed.push((name, load, ratio));
            }
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

/// Purpose: throughput hides the cliff that goodput falls off; a limiter that climbs on throughput
/// stands behind it for ever, and this one in front.
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
    for start in [1, 64, 1024, 1 << 20] {
        let target = Duration::from_millis(10);
        let aim = Aim { target, limit_max: 1 << 20, start, spare: 1 };
        assert!(show(&format!("from {start}"), &mut Gradient::new(aim)) > 840.0);
    }
    let least = throughputs.iter().copied().fold(f64::INFINITY, f64::min);
    let most = throughputs.iter().copied().fold(0.0, f64::max);
    assert!(least > most * 0.9, "throughput is flat: {least} to {most}");
}

/// Purpose: one second after the load has risen tenfold, and after the capacity has halved, goodput is
/// within 5 % of what the best fixed limit yields.
#[test]
fn it_follows_a_step_within_a_second() {
    println!("\n{:24} {:>9} {:>9}", "step", "best", "found");
    for (name, queue) in [("queue", Queue::Codel(10.0 * MS)), ("no queue of its own", Queue::Plain)]
    {
        let scene = Scene { queue, ..Scene::plain() };
        let after = |limit: &mut dyn Limit| {
            let mut world = World::new(scene, limit);
            world.run(10.0, 2.0 * scene.capacity());
            world.run(5.0, 0.5 * scene.capacity());
            world.run(10.0, 5.0 * scene.capacity());
            let risen = rate(&world.tenths, 16.0, 25.0, |tenth| tenth.good);
            world.slow_down(2.0);
            world.run(10.0, 2.5 * scene.capacity());
            (risen, rate(&world.tenths, 26.0, 35.0, |tenth| tenth.good))
        };
        let fixed = SWEPT.map(|limit| after(&mut Fixed::new(limit)));
        let best = |of: fn(&(f64, f64)) -> f64| fixed.iter().map(of).fold(0.0, f64::max);
        let (risen, halved) = after(&mut gradient(&scene));
        for (step, found, best) in
            [("tenfold", risen, best(|both| both.0)), ("half as fast", halved, best(|both| both.1))]
        {
            println!("{:24} {best:9.0} {found:9.0}", format!("{step}, {name}"));
            assert!(found >= best * 0.95, "{step}, {name}: {found} of {best}");
        }
    }
}

/// Purpose: an hour of the same overload looks the same from beginning to end.
#[test]
fn it_does_not_oscillate_for_an_hour() {
    let scene = Scene::plain();
    let mut limit = gradient(&scene);
    let mut world = World::new(scene, &mut limit);
    world.run(3600.0, 2.0 * scene.capacity());
    let seconds: Vec<f64> = (5..3600)
        .map(|s| rate(&world.tenths, f64::from(s), f64::from(s + 1), |t| t.good))
        .collect();
    let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
    let worst = seconds.iter().map(|second| (second / mean - 1.0).abs()).fold(0.0, f64::max);
    let limits = world.tenths[50..].chunks(10).map(|second| {
        second.iter().map(|tenth| f64::from(tenth.limit)).sum::<f64>() / second.len() as f64
    });
    let limits: Vec<f64> = limits.collect();
    let mean_limit = limits.iter().sum::<f64>() / limits.len() as f64;
    let swing = limits.iter().map(|limit| (limit / mean_limit - 1.0).abs()).fold(0.0, f64::max);
    println!(
        "\nan hour: goodput {mean:.0}/s, worst second off by {:.1} %; limit {mean_limit:.1}, off by {:.1} %",
        worst * 100.0,
        swing * 100.0
    );
    assert!(worst < 0.10, "goodput of a second was off by {worst}");
    assert!(swing < 0.10, "the limit of a second was off by {swing}");
}
