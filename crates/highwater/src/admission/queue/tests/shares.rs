//! A standing queue in which clients have shares.

use std::time::Duration;

use highwater_core::limit::ClientKey;
use highwater_core::prng::Prng;
use highwater_core::time::Instant;

use super::super::{Capacity, Class, Entry, Leave, Queue, REFUSALS_MAX};
use super::REFUSE;
use crate::metrics::Rejection;

const TARGET: Duration = Duration::from_millis(10);
pub(super) const MS: u64 = 1_000_000;
pub(super) const ROOM: Capacity = Capacity { starts: 1, cost: MS };

pub(super) fn at(micros: u64) -> Instant {
    Instant::from_nanos(1_000_000_000) + Duration::from_micros(micros)
}

pub(super) fn entry(item: u32, ready: u64) -> Entry<u32> {
    Entry { item, ready: at(ready), deadline: Instant::MAX }
}

/// A thousand requests in a row are one client's: request 2500 is the third client's.
pub(super) fn client(item: &u32) -> Option<ClientKey> {
    Some(ClientKey::new(Prng::from_seed(u64::from(item / 1000)).next_u64()))
}

fn queue() -> Queue<u32> {
    let mut queue = Queue::new().with_shares(true, 3 * TARGET);
    queue.set_target(Some(Duration::from_secs(10)));
    queue
}

fn push(queue: &mut Queue<u32>, class: Class, items: impl IntoIterator<Item = u32>) {
    items.into_iter().for_each(|item| queue.push(class, entry(item, 0)));
    queue.order(ROOM, client);
}

fn take(queue: &mut Queue<u32>, now: u64) -> Option<(u32, Option<Rejection>)> {
    queue.pop(at(now), REFUSE).map(|(entry, reason)| (entry.item, reason))
}

/// All that leaves the queue if each request takes a millisecond: what is started, and what is refused.
fn drain(queue: &mut Queue<u32>) -> (Vec<u32>, Vec<u32>) {
    let (mut now, mut started, mut refused) = (0, Vec::new(), Vec::new());
    while let Some((item, reason)) = take(queue, now) {
        match reason {
            Some(_) => refused.push(item),
            None => started.push(item),
        }
        now += if reason.is_none() { 1000 } else { 0 };
    }
    queue.end();
    (started, refused)
}

/// Purpose: a client with many waiting requests is served no more than others, and pays for a full queue with the newest
/// of them.
#[test]
fn the_busiest_pays() {
    let mut queue = queue();
    push(&mut queue, Class::Normal, (0..20).chain([1000, 1001, 2000]));
    assert_eq!(queue.len(), 23);
    let (started, refused) = drain(&mut queue);
    let expected = [0, 1000, 2000, 1, 1001].into_iter().chain(2..13);
    assert_eq!(started, expected.collect::<Vec<_>>());
    assert_eq!(refused, [16, 17, 18, 19, 15, 14, 13]);
    assert!(queue.is_empty());
}

/// Purpose: what came before the queue stood loses its place as soon as it stands, those of the busiest client first, even if
/// nothing comes any more; it is said whose requests that were. The overdue are refused before them, because they have places.
#[test]
fn what_came_before_it_stood_finds_no_room() {
    let mut queue = Queue::new().with_shares(true, 3 * TARGET);
    (0..600).chain(1000..1002).for_each(|item| queue.push(Class::Normal, entry(item, 0)));
    queue.order(ROOM, client);
    assert!(!queue.lacks_room(ROOM), "it has no bound");
    assert_eq!(queue.displaced().count(), 0);
    queue.set_target(Some(TARGET));
    let places = REFUSALS_MAX as usize * ROOM.starts;
    let mut displaced = Vec::new();
    while queue.lacks_room(ROOM) {
        queue.order(ROOM, client);
        let of_this = queue.displaced().copied().collect::<Vec<_>>();
        assert!((1..=256).contains(&of_this.len()), "{}", of_this.len());
        displaced.extend(of_this);
    }
    let kept = places as u32 - 2;
    assert!(displaced.iter().copied().eq((kept..600).rev()), "{displaced:?}");
    assert_eq!(queue.len(), 602);
    let late = TARGET.as_micros() as u64 + 1;
    let refused: Vec<_> = std::iter::from_fn(|| take(&mut queue, late))
        .take_while(|(_, refused)| refused.is_some())
        .collect();
    let overdue = (0..REFUSALS_MAX.min(kept - 1)).map(|n| (n, Some(Rejection::QueueDelay)));
    assert!(refused.starts_with(&overdue.collect::<Vec<_>>()), "{refused:?}");
}

/// Purpose: time in which a client asked for nothing gives it no credit: it gets its share from then on, and no more.
#[test]
fn nobody_saves_a_share() {
    let mut queue = queue();
    push(&mut queue, Class::Normal, [0]);
    for item in 1..50 {
        push(&mut queue, Class::Normal, [item]);
        assert_eq!(take(&mut queue, u64::from(item) * 1000), Some((item - 1, None)));
        queue.end();
    }
    push(&mut queue, Class::Normal, (50..54).chain(1000..1004));
    let (started, _) = drain(&mut queue);
    let of_the_other = started[..6].iter().filter(|&&item| item >= 1000).count();
    assert!((2..=4).contains(&of_the_other), "{started:?}");
}

/// Purpose: a client is charged for the time that its requests take: one whose requests take nine times as long gets
/// one start while the other gets nine.
#[test]
fn expensive_requests_weigh_more() {
    let (mut queue, mut now, mut started) = (queue(), 0, [0_u32; 2]);
    queue.set_target(Some(TARGET));
    for round in 0..1000 {
        for item in [round % 1000, 1000 + round % 1000] {
            queue.push(Class::Normal, entry(item, now));
        }
        queue.order(ROOM, client);
        let (entry, _) = loop {
            match queue.pop(at(now), REFUSE) {
                Some((_, Some(_))) => {}
                next => break next.expect("some wait always"),
            }
        };
        let is_slow = entry.item >= 1000;
        started[usize::from(is_slow)] += 1;
        now += if is_slow { 2250 } else { 250 };
        queue.lap(at(now));
        queue.end();
    }
    let ratio = f64::from(started[0]) / f64::from(started[1]);
    assert!((8.0..10.0).contains(&ratio), "{started:?}");
}

/// Purpose: of a client that asks for too much, requests that waited for too long are refused, the oldest first, and it
/// still gets its share.
#[test]
fn late_ones_are_refused() {
    let (mut queue, mut now) = (queue(), 0);
    queue.set_target(Some(TARGET));
    let (mut started, mut refused) = ([0_u32; 2], Vec::new());
    for item in 0..500 {
        queue.push(Class::Normal, entry(item, now));
        queue.push(Class::Normal, entry(1000 + item, now));
        queue.order(Capacity { starts: 100, cost: MS }, client);
        now += 500;
        if item % 2 == 0 {
            continue; // Two requests of each come in the time of one.
        }
        while let Some((entry, reason)) = queue.pop(at(now), REFUSE) {
            if reason.is_none() {
                started[usize::from(entry.item >= 1000)] += 1;
                break;
            }
            assert!(at(now) - entry.ready > TARGET);
            refused.push(entry.ready);
        }
        queue.lap(at(now + 1000));
        queue.end();
    }
    assert!(started[0].abs_diff(started[1]) <= 2 && started[0] + started[1] == 250, "{started:?}");
    assert!(refused.len() > 600 && refused.is_sorted());
}

/// Purpose: a client with one request waiting is not refused for its age while another has several, and is excused for a
/// while after that; without such a client it is.
#[test]
fn one_request_is_not_too_many() {
    let mut queue = queue();
    queue.set_target(Some(TARGET));
    push(&mut queue, Class::Normal, [1000, 0, 1, 2]);
    let delay = Some(Rejection::QueueDelay);
    let next = [(); 4].map(|()| take(&mut queue, 11_000));
    assert_eq!(next, [Some((0, delay)), Some((1, delay)), Some((1000, None)), Some((2, None))]);
    push(&mut queue, Class::Normal, [1000]);
    assert_eq!(take(&mut queue, 30_000), Some((1000, None)), "excused");
    push(&mut queue, Class::Normal, [1000]);
    assert_eq!(take(&mut queue, 30_001), Some((1000, delay)), "for too long");
    push(&mut queue, Class::Normal, [1000]);
    assert_eq!(take(&mut queue, 100_000), Some((1000, delay)), "nobody was to blame lately");
}

/// Purpose: classes stay strict: the higher one is served first, the lowest one pays for a full queue, whichever
/// clients ask; and what is never shed is neither ordered nor refused.
#[test]
fn classes_are_strict() {
    let mut queue = queue();
    push(&mut queue, Class::NeverShed, 900..920);
    push(&mut queue, Class::Low, [1000]);
    push(&mut queue, Class::High, 0..16);
    let (started, refused) = drain(&mut queue);
    assert_eq!(started, (900..920).chain(0..16).collect::<Vec<_>>());
    assert_eq!(refused, [1000]);
}

/// Purpose: when the queue stands no more, what has places is served in their order, before what came later, and
/// nothing is refused.
#[test]
fn it_ends_in_order() {
    let mut queue = queue();
    push(&mut queue, Class::Normal, (0..4).chain([1000]));
    queue.set_target(None);
    queue.push(Class::Normal, entry(2000, 0));
    assert_eq!(drain(&mut queue), (vec![0, 1000, 1, 2, 3, 2000], vec![]));
    let mut queue = self::queue();
    push(&mut queue, Class::Normal, 0..2);
    queue.push(Class::Normal, entry(2, 0));
    let leave = Leave { overtaken_max: Duration::MAX, ..REFUSE };
    let newest = std::iter::from_fn(|| Some(queue.pop(at(0), leave)?.0.item));
    assert_eq!(newest.collect::<Vec<_>>(), [1, 0, 2], "those with places first");
}

/// Purpose: a full queue refuses a client at once exactly if its request would be refused when it is ordered.
#[test]
fn it_is_full_for_those_who_had_their_share() {
    let mut queue = queue();
    let full = |queue: &Queue<u32>, item: u32| queue.is_full(Class::Normal, || client(&item), 1);
    push(&mut queue, Class::Normal, 0..15);
    assert!(!full(&queue, 0), "there is room");
    push(&mut queue, Class::Normal, 15..16);
    assert!(full(&queue, 0) && !full(&queue, 1000));
    assert!(!queue.is_full(Class::Normal, || None, 1), "who asks is not known");
    let of = |class| queue.is_full(class, || client(&0), 1);
    assert_eq!([Class::NeverShed, Class::High, Class::Low].map(of), [false, false, true]);
}

/// Purpose: when there is no time to find out whose requests are, those that are known go first, the others behind them in
/// the order in which they came, and they get their places later.
#[test]
fn unknown_clients_wait() {
    let mut queue = queue();
    (0..4).for_each(|item| queue.push(Class::Normal, entry(item, 0)));
    queue.push(Class::Normal, entry(1000, 0));
    let mut asked = 0;
    queue.order(ROOM, |item| {
        asked += 1;
        client(item).filter(|_| asked <= 2)
    });
    assert!(asked == 3 && queue.has_unordered());
    let started = [(); 3].map(|()| take(&mut queue, 0));
    assert_eq!(started, [Some((0, None)), Some((1, None)), Some((2, None))]);
    queue.order(ROOM, client);
    assert_eq!(drain(&mut queue).0, [3, 1000]);
}

/// Purpose: refusals never keep a request from being started for long, however many found no room.
#[test]
fn refusals_are_bounded() {
    let mut queue = queue();
    push(&mut queue, Class::Normal, (0..100).chain(1000..1100));
    let (mut in_a_row, mut started) = (0, 0);
    while let Some((_, reason)) = take(&mut queue, 0) {
        in_a_row = if reason.is_some() { in_a_row + 1 } else { 0 };
        started += u32::from(reason.is_none());
        assert!(in_a_row <= REFUSALS_MAX || started == 16, "{in_a_row} after {started}");
    }
    assert_eq!(started, 16);
}

/// Purpose: for any sequence every entry leaves exactly once, late ones and given-up ones too, and a client that has one
/// request at a time is never refused for its share.
#[test]
fn nothing_is_lost() {
    for seed in 0..200 {
        let mut prng = Prng::from_seed(seed);
        let (mut queue, mut now, mut came, mut left) = (queue(), 0, 0_u32, 0_u32);
        let mut has_one = false;
        queue.set_target(Some(TARGET));
        for _ in 0..300 {
            now += prng.below(2000);
            if prng.below(50) == 0 {
                queue.set_target(prng.chance(1, 2).then_some(TARGET));
            }
            for _ in 0..prng.below(12) {
                let class = [Class::High, Class::Normal, Class::Low][prng.below(3) as usize];
                let deadline =
                    if prng.chance(1, 9) { at(now + prng.below(5000)) } else { Instant::MAX };
                let item = 1000 * (1 + prng.below(3) as u32);
                queue.push(class, Entry { item, ready: at(now), deadline });
                came += 1;
            }
            if !has_one {
                queue.push(Class::High, entry(0, now));
                (came, has_one) = (came + 1, true);
            }
            if prng.chance(3, 4) {
                queue.order(ROOM, |item| client(item).filter(|_| prng.chance(7, 8)));
            }
            for _ in 0..prng.below(8) {
                let popped = match prng.below(9) {
                    0 => queue.pop_given_up(|entry| entry.item > 0).map(|entry| (entry, None)),
                    _ => queue.pop(at(now), REFUSE),
                };
                let Some((entry, reason)) = popped else { continue };
                left += 1;
                if entry.item == 0 {
                    has_one = false;
                    assert_ne!(reason, Some(Rejection::QueueShare), "seed {seed} at {now}");
                }
            }
            queue.end();
        }
        while queue.pop(at(now), REFUSE).is_some() {
            left += 1;
        }
        assert_eq!(came, left, "seed {seed}");
        assert_eq!(queue.len(), 0);
    }
}
