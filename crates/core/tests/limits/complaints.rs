//! What users of other limiters complain of, each as a test.

use std::time::Duration;

use highwater_core::limit::{Aim, Gradient, Limit, Sample};
use highwater_core::time::Instant;

use crate::model::{MS, Scene, Service, World, rate};
use crate::{gradient, steady};

const TENTH: Duration = Duration::from_millis(100);

fn limit_from(start: u32) -> Gradient {
    let target = Duration::from_millis(10);
    Gradient::new(Aim { target, limit_max: 1 << 20, start, spare: 1 })
}

/// A tenth of a second of a server that answers 90 requests of 1 ms, all places taken.
fn full(limit: &Gradient) -> Sample {
    Sample {
        span: TENTH,
        completed: 90,
        good: 90,
        refused: 100,
        in_flight: limit.limit(),
        in_flight_max: limit.limit(),
        latency_mean: Duration::from_millis(1),
        busy: 1.0,
        ..Sample::default()
    }
}

/// Purpose: requests that are dropped from the queue are evidence of a limit that is too high, though
/// those that were served had not waited. ("Gradient2 ignores drops.")
#[test]
fn drops_count() {
    let mut limit = limit_from(1000);
    for _ in 0..20 {
        let sample = Sample { dropped: 30, refused: 130, ..full(&limit) };
        limit.on_sample(Instant::ZERO, &sample);
    }
    assert!(limit.limit() <= 10, "{}", limit.limit());
}

/// Purpose: a limit that is never felt is not raised for ever, however quick and steady all answers
/// are. ("Grows without bound while the delay is stable.")
#[test]
fn no_growth_without_need() {
    let mut limit = limit_from(100);
    for _ in 0..100_000 {
        let sample = Sample { in_flight: 5, in_flight_max: 9, refused: 0, ..full(&limit) };
        limit.on_sample(Instant::ZERO, &sample);
    }
    assert_eq!(limit.limit(), 100);
}

/// Purpose: growth that yields nothing is taken back, even if nobody measures a queue. ("The queue
/// term is always added, whatever the latency does.")
#[test]
fn no_growth_without_yield() {
    let scene = Scene { sighted: false, ..Scene::plain() };
    let mut limit = gradient(&scene);
    steady(scene, &mut limit, 3.0, 12.0);
    assert!(limit.limit() <= 64, "{}", limit.limit());
}

/// Purpose: no probe of the limit's own turns anybody away who could have been served. ("The periodic
/// probe of the least latency itself causes 503s.")
#[test]
fn nobody_is_refused_while_there_is_room() {
    let awaits = Scene {
        service: Service::Constant(0.05 * MS),
        backend: Some((Service::Constant(50.0 * MS), 1 << 20)),
        ..Scene::plain()
    };
    for (scene, load) in [(Scene::plain(), 0.7), (awaits, 0.8)] {
        let mut limit = gradient(&scene);
        let mut world = World::new(scene, &mut limit);
        world.run(300.0, load * scene.capacity());
        assert_eq!(rate(&world.tenths, 0.0, 300.0, |tenth| tenth.refused), 0.0);
    }
}

/// Purpose: ten minutes of overload do not change what counts as quick. ("The least latency climbs
/// under sustained load.")
#[test]
fn sustained_load_does_not_raise_the_limit() {
    let scene = Scene::plain();
    let mut limit = gradient(&scene);
    let mut world = World::new(scene, &mut limit);
    world.run(600.0, 1.5 * scene.capacity());
    let mean = |from, to| rate(&world.tenths, from, to, |tenth| u64::from(tenth.limit)) / 10.0;
    let (early, late) = (mean(10.0, 70.0), mean(540.0, 600.0));
    assert!(late < early * 1.1, "{early} became {late}");
}

/// Purpose: from every start, a limit is found at which requests come in time. ("Never recovers if the
/// floor is too high", or too low.)
#[test]
fn it_recovers_from_any_start() {
    let scene = Scene::plain();
    for start in [1, 2, 10, 200, 5000, 1 << 20] {
        let mut limit = limit_from(start);
        let tenths = steady(scene, &mut limit, 1.5, 12.0);
        let good = rate(&tenths, 4.0, 12.0, |tenth| tenth.good);
        assert!(good > 0.95 * 900.0, "from {start}: {good}");
    }
}

/// Purpose: a thousand clients that connect and then say nothing take up places, and must not take
/// them from those who have something to ask.
#[test]
fn silent_clients_make_the_limit_grow() {
    let mut limit = limit_from(10);
    limit.on_sample(Instant::ZERO, &full(&limit_from(10)));
    for _ in 0..200 {
        let sample = Sample { completed: 0, good: 0, busy: 0.0, ..full(&limit) };
        limit.on_sample(Instant::ZERO, &Sample { latency_mean: Duration::ZERO, ..sample });
    }
    assert!(limit.limit() > 1000, "{}", limit.limit());
}

/// Purpose: handlers that await let thousands in, and the limit is there before they are.
#[test]
fn awaiting_handlers_are_not_held_back() {
    let scene = Scene {
        service: Service::Constant(0.01 * MS),
        backend: Some((Service::Constant(50.0 * MS), 1 << 20)),
        ..Scene::plain()
    };
    let mut limit = gradient(&scene);
    let mut world = World::new(scene, &mut limit);
    for load in [0.2, 0.4, 0.8] {
        world.run(3.0, load * scene.capacity());
    }
    assert_eq!(rate(&world.tenths, 0.0, 9.0, |tenth| tenth.refused), 0.0);
    assert!(limit.limit() >= 4000, "{}", limit.limit());
}
