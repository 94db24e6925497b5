//! [`Knee`] in front of modelled back ends, which have places and a queue that nothing measures.

use std::time::Duration;

use highwater_core::limit::{Fixed, Knee, LIMIT_MAX, Limit, Sample};
use highwater_core::time::Instant;

use crate::model::{MS, Scene, Service, Tenth, World, rate};
use crate::{LOADS, SEEDS, SWEPT, mean};

const WAIT: Duration = Duration::from_millis(10);

/// The limit of a route.
fn open() -> Knee {
    Knee::new(LIMIT_MAX, LIMIT_MAX, WAIT)
}

/// The limit of a guard.
fn guarded() -> Knee {
    Knee::new(256, 16_384, WAIT)
}

fn back_end(service: Service, places: usize) -> Scene {
    let quick = Service::Constant(0.05 * MS);
    Scene { service: quick, backend: Some((service, places)), deadline: 0.4, ..Scene::plain() }
}

const FIFTY: Service = Service::Constant(50.0 * MS);
const UNEVEN: Service = Service::Bimodal(20.0 * MS, 120.0 * MS, 0.3);

fn good(tenths: &[Tenth], from: f64, to: f64) -> f64 {
    rate(tenths, from, to, |tenth| tenth.good)
}

fn refused(tenths: &[Tenth], from: f64, to: f64) -> f64 {
    rate(tenths, from, to, |tenth| tenth.refused) * (to - from)
}

/// Goodput from six seconds after the onset of an overload that follows a calm, over some seeds.
fn after_onset(scene: Scene, load: f64, limit: &dyn Fn() -> Box<dyn Limit>) -> f64 {
    let of_seed = |seed| {
        let scene = Scene { seed, ..scene };
        let mut limit = limit();
        let mut world = World::new(scene, &mut *limit);
        world.run(3.0, 0.3 * scene.capacity());
        world.run(14.0, load * scene.capacity());
        good(&world.tenths, 9.0, 17.0)
    };
    mean(&(1..=SEEDS).map(of_seed).collect::<Vec<_>>())
}

/// Purpose: six seconds after the onset of an overload, whatever the back end, the knee yields at
/// least 95 % of the best fixed limit.
#[test]
fn it_finds_the_knee() {
    let scenes = [
        ("64 places", back_end(FIFTY, 64)),
        ("64 places, uneven", back_end(UNEVEN, 64)),
        ("64 places, Pareto 2.1", back_end(Service::Pareto(30.0 * MS, 2.1), 64)),
        ("64 places, Pareto 1.5", back_end(Service::Pareto(30.0 * MS, 1.5), 64)),
        ("64 places, blind", Scene { sighted: false, ..back_end(FIFTY, 64) }),
        ("64 places, clients try 5 times", Scene { tries: 5, ..back_end(FIFTY, 64) }),
        ("16 places", back_end(FIFTY, 16)),
        ("16 places, uneven", back_end(UNEVEN, 16)),
        ("400 places, 100 ms", Scene { cores: 4, ..back_end(Service::Constant(0.1), 400) }),
    ];
    println!(
        "\n{:32} {:>4} {:>5} {:>7} {:>7} {:>7}",
        "back end", "load", "best", "yields", "open", "guard"
    );
    let mut missed = Vec::new();
    for (name, scene) in scenes {
        for &load in LOADS {
            let fixed = SWEPT
                .map(|limit| (after_onset(scene, load, &|| Box::new(Fixed::new(limit))), limit));
            let (best, limit) = fixed.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).expect("some");
            let found = after_onset(scene, load, &|| Box::new(open())) / best;
            let guard = after_onset(scene, load, &|| Box::new(guarded())) / best;
            println!("{name:32} {load:4} {limit:5} {best:7.0} {found:7.3} {guard:7.3}");
            if found.min(guard) < 0.95 {
                missed.push((name, load, found, guard));
            }
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

/// Purpose: a back end with few places is kept busy, and requests do not wait for it for long.
#[test]
fn small_back_ends_are_kept_busy() {
    for places in [1, 2, 4, 8] {
        let scene = back_end(FIFTY, places);
        for mut limit in [open(), guarded()] {
            let mut world = World::new(scene, &mut limit);
            world.run(3.0, 0.5 * scene.capacity());
            world.run(60.0, 5.0 * scene.capacity());
            let found = good(&world.tenths, 43.0, 63.0);
            println!("{places} places: {found} of {}, limit {}", scene.capacity(), limit.limit());
            assert!(found > 0.93 * scene.capacity(), "{places}: {found} of {}", scene.capacity());
            assert!(limit.limit() <= 4 * places as u32, "{places}: {}", limit.limit());
        }
    }
}

/// Purpose: the limit reaches the knee from every start, in an overload that was there before.
#[test]
fn it_recovers_from_any_start() {
    let scene = back_end(FIFTY, 64);
    for start in [1, 2, 10, 100, 1000, LIMIT_MAX] {
        let mut limit = Knee::new(start, LIMIT_MAX, WAIT);
        let mut world = World::new(scene, &mut limit);
        world.run(20.0, 3.0 * scene.capacity());
        let found = good(&world.tenths, 10.0, 20.0);
        println!("from {start}: {found}, limit {}", limit.limit());
        assert!(found > 0.93 * scene.capacity(), "from {start}: {found}, limit {}", limit.limit());
        assert!(limit.limit() <= 256, "from {start}: {}", limit.limit());
    }
}

/// Purpose: a back end that becomes slower for its own reasons is not starved; one that becomes
/// quicker again is used again; and the latency stays bounded.
#[test]
fn a_slower_back_end_is_believed() {
    for load in [0.8, 3.0] {
        for factor in [2.0, 3.0, 0.5] {
            let scene = Scene { deadline: 2.0, ..back_end(FIFTY, 64) };
            let mut limit = open();
            let mut world = World::new(scene, &mut limit);
            let whole = scene.capacity();
            world.run(5.0, 0.3 * whole);
            world.run(10.0, load * whole);
            world.slow_down(factor);
            world.run(15.0, load * whole);
            let slow = good(&world.tenths, 20.0, 30.0);
            world.slow_down(1.0);
            world.run(15.0, load * whole);
            let again = good(&world.tenths, 38.0, 45.0);
            let (offered, can) = (load * whole, whole / factor);
            println!(
                "load {load} slower {factor}: {slow:.0} then {again:.0}, limit {}",
                limit.limit()
            );
            assert!(slow > 0.92 * offered.min(can), "load {load}, {factor} times: {slow} of {can}");
            assert!(
                again > 0.92 * offered.min(whole),
                "load {load}, {factor} times: {again} after"
            );
        }
    }
}

/// Purpose: no request is refused while there is room: not in a burst, not while answers take
/// longer for a while, not in five minutes.
#[test]
fn nothing_is_refused_while_there_is_room() {
    let scenes = [
        (back_end(FIFTY, 1 << 20), 0.2),
        (back_end(FIFTY, 64), 0.7),
        (back_end(UNEVEN, 64), 0.6),
        (back_end(Service::Constant(0.5), 1 << 20), 0.2),
    ];
    for (scene, load) in scenes {
        let mut limit = open();
        let mut world = World::new(scene, &mut limit);
        world.run(5.0, 0.02 * scene.capacity());
        world.run(300.0, load * scene.capacity());
        assert_eq!(refused(&world.tenths, 0.0, 305.0), 0.0, "{scene:?}");
    }
}

/// Purpose: a guard that sees only counts refuses nothing when more requests come whose answers take longer than a
/// window: the answers of a window are those of the earlier, smaller load.
#[test]
fn long_answers_to_more_requests_are_no_queue() {
    for (seconds, before, after) in [(60.0, 0.2, 3.0), (20.0, 0.5, 10.0)] {
        for sighted in [false, true] {
            let scene = Scene { sighted, ..back_end(Service::Constant(seconds), 1 << 20) };
            let mut limit = guarded();
            let mut world = World::new(scene, &mut limit);
            world.run(600.0, before);
            world.run(1200.0, after);
            let count = refused(&world.tenths, 0.0, 1800.0);
            assert_eq!(count, 0.0, "{seconds} s, sighted {sighted}, limit {}", limit.limit());
        }
    }
}

/// Purpose: two thousand requests that arrive at once and wait for half a second are admitted by a
/// route's limit, and soon by a guard's.
#[test]
fn a_rush_that_awaits_is_let_in() {
    let scene = Scene { deadline: 5.0, ..back_end(Service::Constant(0.5), 1 << 20) };
    for (name, mut limit) in [("open", open()), ("guard", guarded())] {
        let mut world = World::new(scene, &mut limit);
        world.run(5.0, 40.0);
        world.run(20.0, 4000.0);
        let count = refused(&world.tenths, 0.0, 25.0);
        println!("rush, {name}: {count} of {} refused, limit {}", 20.0 * 4000.0, limit.limit());
        assert!(count <= if name == "open" { 0.0 } else { 9_500.0 }, "{name}: {count}");
        let last = limit.limit();
        assert!(last >= 2000, "{name}: {last}");
    }
}

/// Purpose: an hour of the same overload looks the same from beginning to end.
#[test]
fn it_does_not_oscillate_for_an_hour() {
    for (name, service) in [("constant", FIFTY), ("uneven", UNEVEN)] {
        let scene = back_end(service, 64);
        let mut limit = open();
        let mut world = World::new(scene, &mut limit);
        let length = if cfg!(debug_assertions) { 600 } else { 3600 };
        world.run(10.0, 0.3 * scene.capacity());
        world.run(f64::from(length), 3.0 * scene.capacity());
        let tens = (3..length / 10).map(|s| {
            let seconds = f64::from(s * 10);
            let limits =
                rate(&world.tenths, seconds, seconds + 10.0, |tenth| u64::from(tenth.limit));
            (good(&world.tenths, seconds, seconds + 10.0), limits / 10.0)
        });
        let (goods, limits): (Vec<f64>, Vec<f64>) = tens.unzip();
        let swing = |values: &[f64]| {
            let mean = mean(values);
            values.iter().map(|value| (value / mean - 1.0).abs()).fold(0.0, f64::max)
        };
        println!(
            "an hour, {name}: good {:.0} off by {:.3}, limit {:.0} off by {:.3}",
            mean(&goods),
            swing(&goods),
            mean(&limits),
            swing(&limits)
        );
        assert!(swing(&goods) < 0.10 && swing(&limits) < 0.10, "{name}");
    }
}

/// Purpose: a service time that is far too long, because no other was ever seen, does not keep the
/// limit too high for ever.
#[test]
fn what_was_learnt_wrongly_is_unlearnt() {
    let scene = back_end(FIFTY, 64);
    let mut limit = guarded();
    let mut world = World::new(scene, &mut limit);
    world.slow_down(6.0);
    world.run(5.0, 0.1 * scene.capacity());
    world.run(5.0, 3.0 * scene.capacity());
    world.slow_down(1.0);
    world.run(60.0, 3.0 * scene.capacity());
    let found = good(&world.tenths, 40.0, 70.0);
    println!("unlearnt: {found} of {}, limit {}", scene.capacity(), limit.limit());
    assert!(found > 0.93 * scene.capacity(), "{found}, limit {}", limit.limit());
}

/// Purpose: measuring the service time again refuses no request while the back end can serve all of
/// them, with the limit that an earlier burst has left: no more than a fixed limit of that size
/// would refuse.
#[test]
fn measuring_again_refuses_nothing_that_had_room() {
    let seconds = if cfg!(debug_assertions) { 120.0 } else { 600.0 };
    for service in [FIFTY, UNEVEN] {
        for load in [0.9, 1.0] {
            let scene = back_end(service, 64);
            let refused_after = |limit: &mut dyn Limit| {
                let mut world = World::new(scene, limit);
                world.run(3.0, 0.3 * scene.capacity());
                world.run(10.0, 3.0 * scene.capacity());
                world.run(seconds, load * scene.capacity());
                refused(&world.tenths, 16.0, 13.0 + seconds)
            };
            let found = refused_after(&mut guarded());
            let fixed = refused_after(&mut Fixed::new(128));
            println!("load {load}: {found} refused, with a fixed limit {fixed}");
            let came = load * scene.capacity() * seconds;
            assert!(found <= fixed + 0.001 * came, "load {load}: {found}, fixed {fixed}");
        }
    }
}

/// Purpose: the limit follows a back end whose number of places changes.
#[test]
fn capacity_is_followed() {
    // A step of the places, as the model has none of its own: samples by arithmetic.
    let mut limit = guarded();
    let mut now = Instant::ZERO;
    let mut run = |limit: &mut Knee, places: f64, offered: f64, seconds: u32| {
        for _ in 0..seconds * 10 {
            now += Duration::from_millis(100);
            let at_once = f64::from(limit.limit()).min(offered * 0.05);
            let answered = (at_once / 0.05).min(places / 0.05).min(offered);
            let felt = answered < offered;
            let in_flight = if felt { limit.limit() } else { (answered * 0.05) as u32 };
            let sample = Sample {
                span: Duration::from_millis(100),
                completed: (answered / 10.0) as u64,
                good: (answered / 10.0) as u64,
                refused: if felt { 100 } else { 0 },
                in_flight,
                in_flight_max: in_flight,
                latency_mean: Duration::from_secs_f64(f64::from(in_flight) / answered),
                ..Sample::default()
            };
            limit.on_sample(now, &sample);
        }
        limit.limit()
    };
    run(&mut limit, 64.0, 500.0, 10);
    for (places, within) in
        [(64.0, 110..=150), (32.0, 50..=75), (128.0, 220..=300), (64.0, 110..=150)]
    {
        let found = run(&mut limit, places, 20_000.0, 15);
        assert!(within.contains(&found), "{places} places: {found}");
    }
}

/// Purpose: when nothing has been refused for a while, the limit is dropped; and it is found again.
#[test]
fn a_limit_is_dropped_when_it_is_not_needed() {
    let scene = back_end(FIFTY, 64);
    let mut limit = open();
    let mut world = World::new(scene, &mut limit);
    world.run(5.0, 0.3 * scene.capacity());
    world.run(10.0, 5.0 * scene.capacity());
    world.run(4.0, 0.3 * scene.capacity());
    let at = |tenths: &[Tenth], second: usize| tenths[second * 10 - 1].limit;
    assert!((64..=256).contains(&at(&world.tenths, 15)), "{}", at(&world.tenths, 15));
    assert!(at(&world.tenths, 18) <= 256, "remembered: {}", at(&world.tenths, 18));
    world.run(8.0, 0.3 * scene.capacity());
    assert_eq!(at(&world.tenths, 27), LIMIT_MAX, "given up");
    world.run(10.0, 5.0 * scene.capacity());
    assert!((64..=256).contains(&at(&world.tenths, 37)), "{}", at(&world.tenths, 37));
}
