//! The first seconds of an overload.

use std::time::Duration;

use highwater_core::limit::{Standing, Turn};
use highwater_core::time::Instant;

use super::model::{MS, PATIENCE, S, Service, US, World};
use super::shares::Fair;

/// The share of the peak that the law predicts at `load`, if every refusal is a reset.
fn law(service: Service, load: f64) -> f64 {
    let price = 16_400.0 / service.mean();
    (1.0 - load * price) / (1.0 - price)
}

/// Purpose: a load that begins from nothing, far above the capacity or just above it, costs little until it is
/// recognized, although the clients wait for only a fifth of the configured patience. If the cost of requests is
/// random, some are always late, and the worker is idle now and then.
#[test]
fn the_first_seconds() {
    for leaves in [false, true] {
        first_seconds(leaves);
    }
}

fn first_seconds(leaves: bool) {
    const SEEDS: u64 = 10;
    for service in [Service::Constant(1_000 * US), Service::Exponential(1_000 * US)] {
        for load in [1.2, 2.0, 5.0, 10.0] {
            let is_random = matches!(service, Service::Exponential(_));
            let least = match (is_random, load) {
                (false, 1.2 | 2.0) => 0.99,
                (true, 10.0) => 0.96,
                _ => 0.97,
            };
            let share = |seed| {
                let mut world = World::new(seed, service);
                world.impatient = (1000, 200 * MS);
                world.leaves = leaves;
                world.load(load);
                world.run(5 * S);
                world.total(|tenth| tenth.good) as f64 * service.mean() / 5e9 / law(service, load)
            };
            let mean = (1..=SEEDS).map(share).sum::<f64>() / SEEDS as f64;
            println!(
                "{service:?} at {load}, leaves {leaves}: {mean:.3} of the law over five seconds"
            );
            assert!(mean >= least, "{service:?} at {load}, leaves {leaves}: {mean}");
        }
    }
}

/// Purpose: a crowd that comes within a part of the patience, and then waits for its answers, grows the queue for a while
/// and is no overload: the order of its requests changes, and all are answered within the patience, whether each asks
/// once or again and again.
#[test]
fn a_crowd_that_comes_is_no_growth() {
    for (comes_again, count, spread) in
        [false, true].into_iter().flat_map(|again| crowds().map(move |(n, t)| (again, n, t)))
    {
        let mut world = World::new(1, Service::Constant(MS));
        world.crowd(count, spread, comes_again);
        world.run(3 * S);
        let slowest = world.latencies.iter().max().copied().unwrap_or(0);
        let text = format!("{count} within {spread} ns, again: {comes_again}");
        println!("{text}: {} ms", slowest / MS);
        assert!(slowest <= S, "{text}: {slowest} ns");
        assert_eq!(world.total(|tenth| tenth.refused), 0, "{text}");
    }
}

/// How many clients, and in which time they come.
fn crowds() -> impl Iterator<Item = (u64, u64)> {
    [100, 300, 500, 800].into_iter().flat_map(|n| [50, 200, 400, 600].map(|ms| (n, ms * MS)))
}

/// Purpose: it does not matter for how long the worker slept before an overload: the time until its first event is no part of
/// a turn. The first turn has several requests, and leaves all but one of them waiting.
#[test]
fn a_sleep_before_it_is_no_long_turn() {
    let at = Instant::from_nanos;
    for slept in [0, 300 * MS, 60 * S] {
        let mut standing =
            Standing::new(Duration::from_millis(10), Duration::from_secs(1), Instant::ZERO);
        let came = slept + 2 * S;
        let asleep = Turn { began: at(2 * S - MS), ended: at(2 * S), ..Turn::default() };
        standing.on_turn(&Turn { started: 1, ..asleep });
        let (mut turns, mut reordered) = (0, None);
        while !standing.stands() && turns < 5_000 {
            let began = came + turns * MS;
            let waiting = 8 + turns as u32;
            let (began, ended) = (at(began), at(began + MS));
            standing.on_turn(&Turn { began, ended, waiting, started: 1, ..Turn::default() });
            turns += 1;
            if reordered.is_none() && !standing.overtaken_max().is_zero() {
                reordered = Some(turns);
            }
        }
        println!("after {} ms: reordered {reordered:?}, stands {turns} ms", slept / MS);
        assert!(reordered.is_some_and(|turns| turns < 250), "{slept}: {reordered:?}");
        assert!(turns < 1_100, "{slept}: {turns}");
    }
}

/// Purpose: turns that are long because much is taken in delay nothing: an overload is known as soon as if the turns were
/// short. One slow request makes a turn as long, and the windows with it.
#[test]
fn much_input_is_no_slow_request() {
    let stands_after = |input: u64, took: u64| {
        let mut standing = Standing::new(Duration::from_millis(10), PATIENCE, Instant::ZERO);
        let (mut now, mut waiting) = (0, 0);
        while !standing.stands() && now < 10 * S {
            let began = Instant::from_nanos(now);
            let input = if now == 0 { 0 } else { input }; // Nothing waits yet.
            now += input + took;
            waiting += (10 * now / MS).saturating_sub(10 * (now - input - took) / MS) as u32 - 1;
            let (ended, input) = (Instant::from_nanos(now), Duration::from_nanos(input));
            standing.on_input(input);
            standing.on_turn(&Turn { began, ended, waiting, started: 1, ..Turn::default() });
        }
        now / MS
    };
    let (short, input, slow) =
        (stands_after(0, MS), stands_after(49 * MS, MS), stands_after(0, 50 * MS));
    println!("stands after {short}, {input} with input, {slow} ms with slow requests");
    assert!(input <= 200 && input <= 2 * short, "{input} and {short}");
    assert!(slow >= 500, "{slow}");
}

/// What clients do that have waited for 200 ms, after which an answer is of no use to them.
#[derive(Clone, Copy, Debug)]
enum Late {
    /// They wait for longer.
    Stay,
    HangUp,
    /// Their requests leave the queue with them.
    Leave,
}

/// Client 0 asks for `times` the capacity, a hundred others for half of it together, all from idle. What those others lose
/// in the first three seconds, and the share of the peak that is served in time.
fn beside_one_that_comes(
    seed: u64,
    service: Service,
    (times, late, are_kept): (f64, Late, bool),
    is_fair: bool,
) -> (f64, f64) {
    let mut world = World::new(seed, service);
    (world.leaves, world.are_kept) = (matches!(late, Late::Leave), are_kept);
    if !matches!(late, Late::Stay) {
        world.impatient = (1000, 200 * MS);
    }
    world.fair = is_fair.then(Fair::new);
    world.load_of((1, 101), 0.5);
    world.load_of((0, 1), times);
    world.run(3 * S);
    let good = world.total(|tenth| tenth.good) as f64 * service.mean() / (3 * S) as f64;
    (world.tallies[1].lost(), good)
}

/// Purpose: a hundred clients that ask for half of the capacity lose little beside one that comes with several times the
/// capacity, also before the queue stands: while it grows, it is in the order of shares, too. In all, about as much is
/// served as without shares. Where connections are refused, most of the loss is the gate's, until it knows its sources.
#[test]
fn a_queue_that_grows_is_divided() {
    const SEEDS: u64 = 8;
    let lates = [Late::Stay, Late::HangUp, Late::Leave];
    let kinds = lates.into_iter().flat_map(|late| [(late, true), (late, false)]);
    for ((late, are_kept), times) in kinds.flat_map(|kind| [(kind, 2.0), (kind, 10.0)]) {
        for service in [Service::Constant(1_000 * US), Service::Exponential(1_000 * US)] {
            let kind = (times, late, are_kept);
            let mean = |is_fair: bool| {
                let run = |seed| beside_one_that_comes(seed, service, kind, is_fair);
                let add = |(a, b): (f64, f64), (c, d): (f64, f64)| (a + c, b + d);
                let (lost, good) = (1..=SEEDS).map(run).fold((0.0, 0.0), add);
                (lost / SEEDS as f64, good / SEEDS as f64)
            };
            let ((lost, good), (without, unfair)) = (mean(true), mean(false));
            let text = format!("{service:?}, {times}, {late:?}, kept: {are_kept}");
            println!(
                "{text}: {lost:.4} lost, {without:.4} without shares; {good:.3} of {unfair:.3} in all"
            );
            let most = if are_kept { 0.015 } else { 0.09 };
            assert!(lost <= most, "{text}: {lost}");
            assert!(good >= unfair - 0.05, "{text}: {good} of {unfair}");
        }
    }
}
