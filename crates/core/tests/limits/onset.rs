//! The first overload of a life, and what must not be taken for one.

use std::time::Duration;

use highwater_core::limit::{Fixed, Limit, Sample};
use highwater_core::time::Instant;

use crate::model::{MS, Queue, Refuse, Scene, Service, World, rate};
use crate::{SWEPT, gradient};

/// The calm before, and how long what follows is looked at, in seconds.
const CALM: f64 = 3.0;
const AFTER: f64 = 4.0;

/// Goodput in the seconds after a calm, by the clients' clocks.
fn after_calm(scene: Scene, load: f64, limit: &mut dyn Limit) -> f64 {
    let mut world = World::new(scene, limit);
    world.run(CALM, 0.3 * scene.capacity());
    world.run(AFTER, load * scene.capacity());
    rate(&world.tenths, CALM, CALM + AFTER, |tenth| tenth.good)
}

/// Purpose: an overload without warning costs no more than three tenths of a second of goodput,
/// whatever came before it is known.
#[test]
fn the_first_overload_is_cheap() {
    let codel = Scene { queue: Queue::Codel(10.0 * MS), ..Scene::plain() };
    let silent = Scene { refuse: Refuse::Drop, ..codel };
    let scenes = [
        ("1.1 ms, resets", codel),
        ("1.1 ms, silent", silent),
        ("0.3 ms, silent", Scene { service: Service::Constant(0.3 * MS), ..silent }),
        ("5 ms, silent", Scene { service: Service::Constant(5.0 * MS), ..silent }),
        ("Pareto 2.1, silent", Scene { service: Service::Pareto(1.1 * MS, 2.1), ..silent }),
        ("1.1 ms, no queue", Scene { queue: Queue::Plain, ..codel }),
        ("four cores", Scene { cores: 4, ..silent }),
    ];
    println!("\nseconds of goodput lost in the first {AFTER} of an overload");
    println!("{:20} {:>4} {:>9} {:>9}", "work", "load", "samples", "glances");
    let mut worst = 0.0_f64;
    for (name, scene) in scenes {
        for load in [2.0, 5.0, 10.0] {
            let fixed = SWEPT.map(|limit| after_calm(scene, load, &mut Fixed::new(limit)));
            let best = fixed.into_iter().fold(0.0, f64::max);
            let lost = |glances| {
                let scene = Scene { glances, ..scene };
                (1.0 - after_calm(scene, load, &mut gradient(&scene)) / best) * AFTER
            };
            let (before, now) = (lost(false), lost(true));
            println!("{name:20} {load:4} {before:9.2} {now:9.2}");
            worst = worst.max(now);
        }
    }
    assert!(worst < 0.3, "{worst} s");
}

/// Purpose: thousands that come at once and only await are no overload, and neither is what the cores
/// have done within a tenth of a second: nobody is refused.
#[test]
fn a_burst_is_no_overload() {
    let codel = Scene { queue: Queue::Codel(10.0 * MS), deadline: 5.0, ..Scene::plain() };
    let brief = Scene { service: Service::Constant(0.02 * MS), ..codel };
    let awaits = |behind: Service| Scene { backend: Some((behind, 1 << 20)), ..brief };
    let fifty = Service::Constant(50.0 * MS);
    let costly =
        Scene { service: Service::Constant(0.05 * MS), queue: Queue::Plain, ..awaits(fifty) };
    let scenes = [
        ("await 50 ms", awaits(fifty), 4000.0),
        ("await 50 ms, cost 0.05 ms", costly, 4000.0),
        ("await 1 s", awaits(Service::Constant(1.0)), 4000.0),
        ("half of them await", awaits(Service::Bimodal(0.1 * MS, 500.0 * MS, 0.5)), 4000.0),
        ("80 ms of work", brief, 4000.0),
    ];
    println!("\n{:28} {:>9} {:>9}", "burst", "refused", "dropped");
    let mut refused_in_all = 0.0;
    for (name, scene, count) in scenes {
        let mut limit = gradient(&scene);
        let mut world = World::new(scene, &mut limit);
        for _ in 0..5 {
            world.run(1.73, 0.02 * scene.capacity());
            world.run(0.010, count / 0.010);
        }
        world.run(2.0, 0.02 * scene.capacity());
        let seconds = (world.tenths.len() / 10) as f64;
        let dropped = rate(&world.tenths, 0.0, seconds, |tenth| tenth.dropped) * seconds;
        let refused = rate(&world.tenths, 0.0, seconds, |tenth| tenth.refused) * seconds - dropped;
        println!("{name:28} {refused:9.0} {dropped:9.0}");
        refused_in_all += refused;
    }
    assert_eq!(refused_in_all, 0.0);
}

/// Purpose: a glance bounds what would wait for two tenths of a second, at the pace at which requests
/// are begun, and not what was begun and awaits; it does nothing where nothing waits, and never raises.
#[test]
fn a_glance_bounds_what_would_wait() {
    let millis = Duration::from_millis;
    let rush = Sample {
        span: millis(20),
        started: 200,
        completed: 200,
        in_flight: 3000,
        in_flight_max: 6000,
        queue_delay_mean: millis(11),
        ..Sample::default()
    };
    let glance = |sample: Sample| gradient(&Scene::plain()).on_glance(&sample);
    assert_eq!(glance(rush), 10_000 / 5, "10 000 a second are begun");
    assert_eq!(glance(Sample { completed: 50, ..rush }), 2000 + 150, "those are elsewhere");
    assert_eq!(glance(Sample { queue_delay_mean: millis(10), ..rush }), 16_384, "a short wait");
    assert_eq!(glance(Sample { started: 19, completed: 19, ..rush }), 16_384, "too few to tell");
    assert_eq!(glance(Sample { started: 200_000, ..rush }), 16_384, "never raised");
    let mut limit = gradient(&Scene::plain());
    limit.on_sample(Instant::ZERO, &Sample { in_flight_max: 500, ..Sample::default() });
    assert_eq!(limit.on_glance(&rush), 2000 + 500, "what was under way before may await, too");
}
