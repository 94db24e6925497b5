//! A queue that grows and does not stand, in which clients have shares.

use std::time::Duration;

use highwater_core::prng::Prng;
use highwater_core::time::Instant;

use super::super::{Class, Entry, Leave, Queue, REFUSALS_MAX};
use super::shares::{ROOM, at, client, entry};
use crate::metrics::Rejection;

/// Half of the patience, in milliseconds.
const OVERTAKEN: u64 = 500;

const CALM: Leave =
    Leave { may_refuse: true, overtaken_max: Duration::ZERO, turns_max: Duration::ZERO };
const GROWS: Leave = Leave { overtaken_max: Duration::from_millis(OVERTAKEN), ..CALM };
const LONG: Leave = Leave { turns_max: Duration::from_millis(OVERTAKEN), ..CALM };

fn queue() -> Queue<u32> {
    Queue::new().with_shares(true, Duration::from_millis(OVERTAKEN))
}

/// Item *n* of each client comes *n* milliseconds after the beginning.
fn push(queue: &mut Queue<u32>, items: impl IntoIterator<Item = u32>) {
    for item in items {
        queue.push(Class::Normal, entry(item, u64::from(item % 1000) * 1000));
    }
}

/// What leaves the queue at `now` milliseconds.
fn take(queue: &mut Queue<u32>, now: u64, leave: Leave) -> Option<(u32, Option<Rejection>)> {
    queue.pop(at(now * 1000), leave).map(|(entry, reason)| (entry.item, reason))
}

/// The next requests that are started, each of which takes a millisecond.
fn started<const N: usize>(queue: &mut Queue<u32>, now: u64, leave: Leave) -> [u32; N] {
    std::array::from_fn(|n| match take(queue, now + n as u64, leave) {
        Some((item, None)) => item,
        other => panic!("{other:?} instead of a start"),
    })
}

/// Purpose: while the queue grows, those who ask for little are next, the newest of each client first, and nothing is
/// refused, however many wait for however long.
#[test]
fn it_is_in_the_order_of_shares() {
    let mut queue = queue();
    push(&mut queue, (0..300).chain([1298, 1299, 2299]));
    queue.order(ROOM, client);
    assert!(!queue.has_unordered() && queue.len() > REFUSALS_MAX as usize * ROOM.starts);
    assert_eq!(started(&mut queue, 300, GROWS), [299, 1299, 2299, 298, 1298, 297, 296]);
    push(&mut queue, [2301]);
    queue.order(ROOM, client);
    assert_eq!(started(&mut queue, 307, GROWS), [2301, 295], "it is behind its share");
    let rest = std::iter::from_fn(|| take(&mut queue, 2000, GROWS));
    assert!(rest.map(|(_, refused)| refused).eq([None; 295]), "all the others are started");
}

/// Purpose: in a long queue clients take turns, the oldest request of each first, and nothing is refused; but as soon as the
/// oldest of all has waited for half of the patience, it is next. Where it is not long any more, age decides alone.
#[test]
fn clients_take_turns_in_a_long_queue() {
    let mut queue = queue();
    push(&mut queue, (0..300).chain([1298, 1299, 2299]));
    queue.order(ROOM, client);
    assert_eq!(started(&mut queue, 300, LONG), [0, 1298, 2299, 1, 1299, 2, 3]);
    push(&mut queue, [1301, 2301, 2302]);
    queue.order(ROOM, client);
    assert_eq!(started(&mut queue, 307, CALM), [4, 5], "in order");
    assert_eq!(started(&mut queue, 309, LONG), [1301, 2301, 2302, 6]);
    let [late] = started(&mut queue, 507, LONG);
    push(&mut queue, [1302]);
    queue.order(ROOM, client);
    assert_eq!([late, started::<1>(&mut queue, 508, LONG)[0]], [7, 8], "they have waited for long");
    let rest = std::iter::from_fn(|| take(&mut queue, 2000, LONG));
    assert!(rest.map(|(_, refused)| refused).eq([None; 292]), "all the others are started");
}

/// Purpose: nobody starves. As soon as the oldest has waited for half of the patience, it is next, whichever client sent it;
/// that is charged to its client, so a client that has asked for little is next after it.
#[test]
fn the_oldest_is_passed_over_for_a_while() {
    let mut queue = queue();
    push(&mut queue, 0..400);
    queue.order(ROOM, client);
    assert_eq!(started(&mut queue, OVERTAKEN - 1, GROWS), [399]);
    assert_eq!(started(&mut queue, OVERTAKEN, GROWS), [0, 1, 2, 3]);
    push(&mut queue, [1490, 1491, 1492]);
    queue.order(ROOM, client);
    assert_eq!(started(&mut queue, OVERTAKEN + 4, GROWS), [4]);
    let next = [(); 3].map(|()| take(&mut queue, OVERTAKEN + 4, GROWS));
    assert_eq!(next, [1492, 1491, 1490].map(|item| Some((item, None))));
}

/// Purpose: the same for requests whose clients are not known yet: they are behind those with places, until they have
/// waited for so long.
#[test]
fn unknown_clients_wait_for_a_while() {
    let mut queue = queue();
    push(&mut queue, 1..10);
    queue.order(ROOM, client);
    push(&mut queue, [1000]);
    assert_eq!(started(&mut queue, OVERTAKEN - 2, GROWS), [9, 8, 1000, 1, 2]);
}

/// Purpose: when the queue grows no more, the oldest is next, whether it has a place or came later. With the last place
/// the accounts are closed.
#[test]
fn calm_again_it_is_in_order() {
    let mut queue = queue();
    push(&mut queue, (0..5).chain([1003]));
    queue.order(ROOM, client);
    assert_eq!(started(&mut queue, 10, GROWS), [4, 1003]);
    push(&mut queue, [2001, 1006, 5, 3007]);
    assert!(queue.has_unordered());
    assert_eq!(started(&mut queue, 12, CALM), [0, 1, 2001, 2]);
    queue.end();
    assert_eq!(queue.accounts().0, 1, "a client that has had more than others");
    assert_eq!(started(&mut queue, 16, CALM), [3, 5, 1006]);
    queue.end();
    assert_eq!((queue.accounts().0, queue.len()), (0, 1));
    push(&mut queue, [8]);
    queue.order(ROOM, client);
    assert_eq!(started(&mut queue, 20, GROWS), [3007, 8], "it grows again");
}

/// Purpose: when the queue stands at last, the places are what they were: a client that has asked for much is still behind, and
/// now its oldest are refused.
#[test]
fn it_stands_with_the_same_places() {
    let mut queue = queue();
    push(&mut queue, 0..40);
    queue.order(ROOM, client);
    assert_eq!(started(&mut queue, 40, GROWS), [39, 38, 37]);
    queue.set_target(Some(Duration::from_millis(20)));
    push(&mut queue, [1042]);
    queue.order(ROOM, client);
    assert_eq!(queue.len(), 38);
    let next: Vec<_> = std::iter::from_fn(|| take(&mut queue, 43, CALM)).take(20).collect();
    let (refused, started): (Vec<_>, Vec<_>) =
        next.iter().partition(|(_, reason)| reason.is_some());
    assert!(refused.contains(&(0, Some(Rejection::QueueDelay))), "{refused:?}");
    assert_eq!(started[0], (1042, None), "{next:?}");
}

/// Purpose: the oldest leaves first if its client has given up, even if another client is next: else abandoned requests would be started for
/// their age.
#[test]
fn given_up_requests_leave_first() {
    let mut queue = queue();
    push(&mut queue, (0..20).chain([1018]));
    queue.order(ROOM, client);
    assert_eq!(started(&mut queue, 20, GROWS), [19]);
    queue.lap(at(21_000));
    let gone = std::iter::from_fn(|| queue.pop_given_up(|entry| entry.item < 10));
    assert!(gone.map(|entry| entry.item).eq(0..10));
    assert_eq!(started(&mut queue, 21, GROWS), [1018, 18]);
}

/// Purpose: for any sequence of growth and calm no request is refused, each leaves once, and one that is the oldest and has
/// waited for half of the patience, or is the oldest of a calm queue, is next.
#[test]
fn nobody_starves() {
    for seed in 0..200 {
        let mut prng = Prng::from_seed(seed);
        let (mut queue, mut now, mut leave) = (queue(), 0, CALM);
        let mut waiting: Vec<(Instant, u32)> = Vec::new();
        for step in 0..600 {
            now += prng.below(40_000);
            if prng.below(50) == 0 {
                leave = if prng.chance(2, 3) { GROWS } else { CALM };
            }
            for _ in 0..prng.below(4) {
                let item = 1000 * prng.below(4) as u32 + step;
                waiting.push((at(now), item));
                let entry = Entry { item, ready: at(now), deadline: Instant::MAX };
                queue.push(Class::Normal, entry);
            }
            if leave.overtaken_max > Duration::ZERO {
                queue.order(ROOM, |item| client(item).filter(|_| prng.chance(7, 8)));
            }
            for _ in 0..prng.below(4) {
                let oldest = waiting.iter().map(|(ready, _)| *ready).min();
                let popped = queue.pop(at(now), leave);
                assert_eq!(popped.is_some(), oldest.is_some(), "seed {seed} at {now}");
                let (Some((entry, reason)), Some(oldest)) = (popped, oldest) else { break };
                assert_eq!(reason, None, "seed {seed} at {now}");
                if at(now) - oldest >= leave.overtaken_max {
                    assert_eq!(entry.ready, oldest, "seed {seed} at {now}");
                }
                let place = waiting.iter().position(|other| *other == (entry.ready, entry.item));
                waiting.swap_remove(place.expect("it waited"));
                now += 500;
            }
            queue.end();
        }
        assert_eq!(queue.len(), waiting.len(), "seed {seed}");
    }
}
