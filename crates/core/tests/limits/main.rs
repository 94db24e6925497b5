//! Limits against modelled servers: an experiment that can be repeated, number by number.
//!
//! `cargo test -p highwater-core --test limits -- --nocapture` prints the tables.
#![forbid(unsafe_code)]

mod model;

use std::time::Duration;

use highwater_core::limit::{Aim, Aimd, Fixed, Gradient, HillClimb, Limit};

use self::model::{MS, Queue, Refuse, Scene, Service, Tenth, World, rate};

const SWEPT: [u32; 18] =
    [1, 2, 4, 6, 8, 10, 12, 16, 24, 32, 64, 128, 160, 180, 256, 512, 1024, 4096];

const SEEDS: u64 = 6;

fn gradient(scene: &Scene) -> Gradient {
    let start = if scene.sighted { 4096 } else { 64 };
    let target = Duration::from_millis(10);
    Gradient::new(Aim { target, limit_max: 1 << 20, start, spare: scene.cores as u32 })
}

/// Goodput from `from` on, under a constant load.
fn steady(scene: Scene, limit: &mut dyn Limit, load: f64, from: f64, to: f64) -> Vec<Tenth> {
    let mut world = World::new(scene, limit);
    world.run(to, load * scene.capacity());
    let _ = from;
    world.tenths
}

/// The best fixed limit, and what it yields.
fn best(scene: Scene, load: f64) -> (u32, f64) {
    let goodput = |limit: u32| {
        let of_seed = |seed| {
            let tenths = steady(Scene { seed, ..scene }, &mut Fixed::new(limit), load, 2.0, 12.0);
            rate(&tenths, 2.0, 12.0, |tenth| tenth.good)
        };
        (limit, (1..=SEEDS).map(of_seed).sum::<f64>() / SEEDS as f64)
    };
    SWEPT.into_iter().map(goodput).max_by(|a, b| a.1.total_cmp(&b.1)).expect("some were swept")
}

#[test]
fn explore() {
    let plain = Scene::plain();
    let scenes = [
        ("constant", plain),
        ("constant, drop", Scene { refuse: Refuse::Drop, ..plain }),
        ("constant, codel", Scene { queue: Queue::Codel(10.0 * MS), ..plain }),
        ("bimodal", Scene { service: Service::Bimodal(0.5 * MS, 20.0 * MS, 0.05), ..plain }),
        ("pareto 1.5", Scene { service: Service::Pareto(1.1 * MS, 1.5), ..plain }),
        ("pareto 2.1", Scene { service: Service::Pareto(1.1 * MS, 2.1), ..plain }),
        ("4 cores", Scene { cores: 4, ..plain }),
        ("retries", Scene { tries: 5, ..plain }),
        ("20 ms deadline", Scene { deadline: 20.0 * MS, ..plain }),
        ("6 ms deadline", Scene { deadline: 6.0 * MS, ..plain }),
        (
            "io",
            Scene {
                service: Service::Constant(0.1 * MS),
                backend: Some((Service::Constant(50.0 * MS), 1 << 20)),
                ..plain
            },
        ),
        (
            "io codel",
            Scene {
                service: Service::Constant(0.1 * MS),
                queue: Queue::Codel(10.0 * MS),
                backend: Some((Service::Constant(50.0 * MS), 1 << 20)),
                ..plain
            },
        ),
        (
            "knee 64",
            Scene {
                service: Service::Constant(0.1 * MS),
                backend: Some((Service::Constant(50.0 * MS), 64)),
                ..plain
            },
        ),
        (
            "knee 64 pareto",
            Scene {
                service: Service::Constant(0.1 * MS),
                backend: Some((Service::Pareto(50.0 * MS, 2.1), 64)),
                ..plain
            },
        ),
        (
            "knee 64 blind",
            Scene {
                service: Service::Constant(0.1 * MS),
                sighted: false,
                backend: Some((Service::Constant(50.0 * MS), 64)),
                ..plain
            },
        ),
        ("blind", Scene { sighted: false, ..plain }),
    ];
    println!(
        "{:18} {:>5} {:>6} {:>9} {:>9} {:>7} {:>7} {:>7}",
        "scene", "load", "best L", "goodput", "gradient", "ratio", "limit", "0-2s"
    );
    for (name, scene) in scenes {
        for load in [0.8, 1.2, 2.0, 5.0, 10.0] {
            if name.starts_with("io") && load > 2.0 {
                continue;
            }
            let (limit, goodput) = best(scene, load);
            let mut own = gradient(&scene);
            let (mut found, mut early) = (0.0, 0.0);
            for seed in 1..=SEEDS {
                own = gradient(&scene);
                let tenths = steady(Scene { seed, ..scene }, &mut own, load, 2.0, 12.0);
                found += rate(&tenths, 2.0, 12.0, |tenth| tenth.good) / SEEDS as f64;
                early += rate(&tenths, 0.0, 2.0, |tenth| tenth.good) / SEEDS as f64;
            }
            println!(
                "{name:18} {load:5} {limit:6} {goodput:9.0} {found:9.0} {:7.3} {:7} {early:7.0}",
                found / goodput,
                own.limit(),
            );
        }
    }
    let _ = (Aimd::new(1, Duration::ZERO), HillClimb::new(1));
}

#[test]
fn trace() {
    let plain = Scene::plain();
    let (scene, load) = match std::env::var("CASE").as_deref() {
        Ok("knee") => (
            Scene {
                service: Service::Constant(0.1 * MS),
                backend: Some((Service::Constant(50.0 * MS), 64)),
                ..plain
            },
            5.0,
        ),
        Ok("kneeblind") => (
            Scene {
                service: Service::Constant(0.1 * MS),
                sighted: false,
                backend: Some((Service::Constant(50.0 * MS), 64)),
                ..plain
            },
            10.0,
        ),
        Ok("retries") => (Scene { tries: 5, ..plain }, 10.0),
        Ok("io2") => (
            Scene {
                service: Service::Constant(0.1 * MS),
                backend: Some((Service::Constant(50.0 * MS), 1 << 20)),
                ..plain
            },
            2.0,
        ),
        Ok("iocodel") => (
            Scene {
                service: Service::Constant(0.1 * MS),
                queue: Queue::Codel(10.0 * MS),
                backend: Some((Service::Constant(50.0 * MS), 1 << 20)),
                ..plain
            },
            1.2,
        ),
        Ok("codel") => (Scene { queue: Queue::Codel(10.0 * MS), ..plain }, 10.0),
        _ => (Scene { deadline: 6.0 * MS, ..plain }, 10.0),
    };
    let mut own = gradient(&scene);
    let tenths = steady(scene, &mut own, load, 0.0, 12.0);
    for (i, t) in tenths.iter().enumerate().take(60) {
        println!(
            "{:4.1} limit {:6} good {:4} done {:4} refused {:5}",
            i as f64 / 10.0,
            t.limit,
            t.good,
            t.completed,
            t.refused
        );
    }
}
