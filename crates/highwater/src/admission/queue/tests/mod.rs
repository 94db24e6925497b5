//! The queue by example, by its bounds, and against its definition.

use highwater_core::prng::Prng;

use super::*;

mod growing;
mod shares;

const REFUSE: Leave =
    Leave { may_refuse: true, overtaken_max: Duration::ZERO, turns_max: Duration::ZERO };

const TARGET: Duration = Duration::from_millis(10);

fn at(millis: u64) -> Instant {
    Instant::from_nanos(1_000_000_000) + Duration::from_millis(millis)
}

fn entry(item: u32, ready: u64) -> Entry<u32> {
    Entry { item, ready: at(ready), deadline: Instant::MAX }
}

fn take(queue: &mut Queue<u32>, now: u64) -> Option<(u32, Option<Rejection>)> {
    queue.pop(at(now), REFUSE).map(|(entry, verdict)| (entry.item, verdict))
}

/// An empty queue that stands.
fn standing() -> Queue<u32> {
    let mut queue = Queue::new();
    queue.set_target(Some(TARGET));
    queue
}

/// Purpose: without a standing queue every request starts in the order it came, however long it waits.
#[test]
fn a_burst_is_served_in_order() {
    let mut queue = Queue::new();
    (0..50).for_each(|n| queue.push(Class::Normal, entry(n, 0)));
    for n in 0..50 {
        assert_eq!(take(&mut queue, 300 * u64::from(n)), Some((n, None)));
    }
    assert_eq!(take(&mut queue, 100), None);
}

/// Purpose: in a standing queue, the oldest are refused and the newest go first; but not while none has waited for
/// longer than the target, as when the gate keeps the queue short.
#[test]
fn newest_first_while_the_oldest_are_late() {
    let mut queue = standing();
    for n in 0..4 {
        queue.push(Class::Normal, entry(n, 5 * u64::from(n)));
    }
    let refused = |n| Some((n, Some(Rejection::QueueDelay)));
    let started = |n| Some((n, None));
    assert_eq!(take(&mut queue, 10), started(0), "in order");
    assert_eq!(take(&mut queue, 16), refused(1));
    assert_eq!(take(&mut queue, 20), started(2), "in order again");
    (4..24).for_each(|n| queue.push(Class::Normal, entry(n, 20)));
    for n in (3..24).take(REFUSALS_MAX as usize) {
        assert_eq!(take(&mut queue, 50), refused(n));
    }
    assert_eq!(take(&mut queue, 50), started(23), "the newest");
}

/// Purpose: while clients give up, their requests leave first, and then the newest is started; health checks go
/// before both, and a deadline of the client's own still counts.
#[test]
fn given_up_requests_leave_first() {
    let mut queue = Queue::new();
    (0..4).for_each(|n| queue.push(Class::Normal, entry(n, u64::from(n))));
    queue.push(Class::High, entry(4, 0));
    queue.push(Class::NeverShed, entry(5, 3));
    let given_up = |queue: &mut Queue<u32>| queue.pop_given_up(|entry| entry.item < 2);
    let newest = |queue: &mut Queue<u32>| {
        let leave = Leave { overtaken_max: Duration::MAX, ..REFUSE };
        queue.pop(at(9), leave).map(|(entry, refuse)| (entry.item, refuse))
    };
    assert_eq!(given_up(&mut queue), None, "a health check waits");
    assert_eq!(newest(&mut queue), Some((5, None)));
    let items = [0, 1].map(|_| given_up(&mut queue).map(|entry| entry.item));
    assert_eq!((items, given_up(&mut queue)), ([Some(0), Some(1)], None));
    queue.push(Class::Normal, Entry { deadline: at(8), ..entry(6, 4) });
    let late = Some((6, Some(Rejection::QueueDeadline)));
    assert_eq!(
        [(); 4].map(|()| newest(&mut queue)),
        [Some((4, None)), late, Some((3, None)), Some((2, None))]
    );
    assert_eq!(newest(&mut queue), None);
}

/// Purpose: a queue is full when it holds more than can be refused while as many are started as the target allows.
/// Less important requests take no place from a more important one, and health checks always find one.
#[test]
fn a_queue_is_full() {
    let mut queue = standing();
    let most = 3 * REFUSALS_MAX;
    for n in 0..most {
        assert!(!queue.is_full(Class::Normal, || None, 3), "{n}");
        queue.push(Class::Normal, entry(n, 0));
    }
    let full = [Class::NeverShed, Class::High, Class::Normal, Class::Low];
    let full = full.map(|class| queue.is_full(class, || None, 3));
    assert_eq!(full, [false, false, true, true]);
    assert!(
        !queue.is_full(Class::Low, || None, 4) && !queue.is_full(Class::Low, || None, usize::MAX)
    );
}

/// Purpose: as soon as there is no standing queue, no request is refused.
#[test]
fn it_ends_at_once() {
    let mut queue = standing();
    queue.push(Class::Normal, entry(1, 0));
    queue.push(Class::Normal, entry(2, 0));
    assert_eq!(take(&mut queue, 50), Some((1, Some(Rejection::QueueDelay))));
    queue.set_target(None);
    assert_eq!(take(&mut queue, 50), Some((2, None)));
}

/// Purpose: the target is the longest allowed wait: not refused at it, refused one step beyond it.
#[test]
fn the_target_is_inclusive() {
    for (waited, verdict) in [(9, None), (10, None)] {
        let mut queue = standing();
        queue.push(Class::Normal, entry(1, 0));
        assert_eq!(take(&mut queue, waited), Some((1, verdict)), "{waited}");
    }
    let mut queue = standing();
    queue.push(Class::Normal, entry(1, 0));
    assert_eq!(take(&mut queue, 11), Some((1, Some(Rejection::QueueDelay))));
}

/// Purpose: without permission to refuse, the queue serves all requests in order, however long they waited.
#[test]
fn without_shedding_it_is_a_plain_queue() {
    let mut queue = standing();
    (0..50).for_each(|n| queue.push(Class::Normal, entry(n, 0)));
    for n in 0..50 {
        let leave = Leave { may_refuse: false, ..REFUSE };
        let (entry, verdict) = queue.pop(at(1000 * u64::from(n)), leave).expect("they all wait");
        assert_eq!((entry.item, verdict), (n, None));
    }
}

/// Purpose: a request whose own deadline has passed is never started, overload or not.
#[test]
fn deadlines_hold_without_overload() {
    let mut queue = Queue::new();
    let expiring = Entry { deadline: at(5), ..entry(1, 0) };
    queue.push(Class::Normal, expiring);
    queue.push(Class::Normal, Entry { item: 2, ..expiring });
    assert_eq!(take(&mut queue, 4), Some((1, None)));
    assert_eq!(take(&mut queue, 5), Some((2, Some(Rejection::QueueDeadline))));
}

/// Purpose: higher classes go first and are refused last, and refusals in favour of a higher class have
/// another reason than refusals within a class.
#[test]
fn classes_are_strict() {
    let (mut queue, now) = (standing(), 0);
    for (n, class) in
        [Class::Low, Class::Normal, Class::High, Class::NeverShed].into_iter().enumerate()
    {
        queue.push(class, entry(n as u32, now));
    }
    let refused = |n, reason| Some((n, Some(reason)));
    assert_eq!(take(&mut queue, now + 20), Some((3, None)));
    assert_eq!(take(&mut queue, now + 20), refused(0, Rejection::RequestPriority));
    assert_eq!(take(&mut queue, now + 20), refused(1, Rejection::RequestPriority));
    assert_eq!(take(&mut queue, now + 20), refused(2, Rejection::QueueDelay));
}

/// Purpose: refusals never prevent a start, however many requests must be refused.
#[test]
fn refusals_are_bounded() {
    let (mut queue, now) = (standing(), 0);
    for n in 0..200 {
        queue.push(Class::Normal, entry(n, now));
    }
    let mut in_a_row = 0;
    while let Some((_, verdict)) = take(&mut queue, now + 50) {
        in_a_row = if verdict.is_none() { 0 } else { in_a_row + 1 };
        assert!(in_a_row <= REFUSALS_MAX);
    }
}

/// The queue by its definition: a heap of entries, searched each time.
#[derive(Default)]
struct Model {
    waiting: Vec<(Class, Entry<u32>)>,
    stands: bool,
    refused: u32,
}

impl Model {
    fn pop(&mut self, now: u64, may_refuse: bool) -> Option<(u32, Option<Rejection>)> {
        let age = |entry: &Entry<u32>| at(now) - entry.ready;
        let sheddable = |class: &Class| *class != Class::NeverShed;
        let sheds = self.stands && may_refuse;
        let overdue = |(class, entry): &&(Class, Entry<u32>)| {
            sheds && self.refused < REFUSALS_MAX && sheddable(class) && age(entry) > TARGET
        };
        let never_shed = self.waiting.iter().any(|(class, _)| !sheddable(class));
        let overdue = |waiting: &&(Class, Entry<u32>)| !never_shed && overdue(waiting);
        // The lowest class, and its oldest entry; items are numbered in the order of arrival.
        let key = |(class, entry): &&(Class, Entry<u32>)| {
            (std::cmp::Reverse(*class), entry.ready, entry.item)
        };
        let (refuse, class, item, deadline) =
            if let Some((class, entry)) = self.waiting.iter().filter(overdue).min_by_key(key) {
                (true, *class, entry.item, entry.deadline)
            } else {
                let class = self.waiting.iter().map(|(class, _)| *class).min()?;
                let equals = self.waiting.iter().filter(|(other, _)| *other == class);
                let order = |(_, entry): &&(Class, Entry<u32>)| (entry.ready, entry.item);
                let oldest = equals.clone().min_by_key(order)?;
                let newest = sheds && class != Class::NeverShed && age(&oldest.1) > TARGET;
                let (_, entry) = if newest { equals.max_by_key(order)? } else { oldest };
                (false, class, entry.item, entry.deadline)
            };
        self.waiting.retain(|(_, entry)| entry.item != item);
        let above = self.waiting.iter().any(|(other, _)| sheddable(other) && *other < class);
        let expired = deadline <= at(now) && sheddable(&class);
        let verdict = match (refuse, expired) {
            (_, true) => Some(Rejection::QueueDeadline),
            (true, _) if above => Some(Rejection::RequestPriority),
            (true, _) => Some(Rejection::QueueDelay),
            (false, _) => None,
        };
        self.refused = match verdict {
            None => 0,
            Some(_) => self.refused + 1,
        };
        Some((item, verdict))
    }
}

/// Purpose: for any sequence of pushes and pops the queue behaves like its definition, and every entry leaves it
/// exactly once; also where clients have shares, as long as there is only one, which is not excused.
#[test]
fn agrees_with_its_definition() {
    for seed in 0..200 {
        let mut prng = Prng::from_seed(seed);
        let is_fair = seed % 2 == 1;
        let (mut queue, mut model) =
            (Queue::new().with_shares(is_fair, Duration::ZERO), Model::default());
        let (mut now, mut came, mut left) = (0, 0, 0);
        let load = 1 + prng.below(4);
        let may_refuse = prng.below(5) > 0;
        for _ in 0..400 {
            now += prng.below(3);
            if prng.below(40) == 0 {
                model.stands = !model.stands;
                queue.set_target(model.stands.then_some(TARGET));
            }
            for _ in 0..prng.below(load + 1) {
                let class =
                    [Class::NeverShed, Class::High, Class::Normal, Class::Normal, Class::Low]
                        [prng.below(5) as usize];
                let late = if prng.below(10) == 0 { prng.below(5).min(now) } else { 0 };
                let deadline = match prng.below(4) {
                    0 => at(now + prng.below(40)),
                    _ => Instant::MAX,
                };
                let entry = Entry { item: came, ready: at(now - late), deadline };
                model.waiting.push((class, entry));
                queue.push(class, entry);
                came += 1;
            }
            if queue.has_unordered() {
                queue.order(Capacity { starts: 1000, cost: 1 }, |_| Some(ClientKey::new(1)));
            }
            let leave = Leave { may_refuse, ..Leave::default() };
            for _ in 0..prng.below(3) {
                let popped = queue.pop(at(now), leave);
                let popped = popped.map(|(entry, verdict)| (entry.item, verdict));
                assert_eq!(popped, model.pop(now, may_refuse), "seed {seed} at {now}");
                left += u32::from(popped.is_some());
            }
        }
        while queue.pop(at(now), Leave { may_refuse, ..Leave::default() }).is_some() {
            left += 1;
        }
        assert_eq!(came, left, "seed {seed}");
    }
}
