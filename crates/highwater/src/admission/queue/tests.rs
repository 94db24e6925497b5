//! The queue by example, by its bounds, and against its definition.

use highwater_core::prng::Prng;

use super::*;

const TARGET: Duration = Duration::from_millis(10);

fn at(millis: u64) -> Instant {
    Instant::from_nanos(1_000_000_000) + Duration::from_millis(millis)
}

fn entry(item: u32, ready: u64) -> Entry<u32> {
    Entry { item, ready: at(ready), deadline: Instant::MAX }
}

fn take(queue: &mut Queue<u32>, now: u64) -> Option<(u32, Verdict)> {
    queue.pop(at(now), true).map(|(entry, verdict)| (entry.item, verdict))
}

/// A queue that has been standing for longer than the interval and has just become empty, and when.
fn overloaded() -> (Queue<u32>, u64) {
    let mut queue = Queue::new(TARGET);
    (0..100).for_each(|n| queue.push(Class::Normal, entry(n, u64::from(n))));
    let mut now = 20;
    while !queue.is_overloaded() {
        take(&mut queue, now).expect("there is more than is taken");
        now += 10;
    }
    assert_eq!(now, 20 + 100 + 10, "overload is noticed after the interval");
    while take(&mut queue, now).is_some() {}
    (queue, now)
}

/// Purpose: a burst is served in the order it came, however long it waits, if it is gone in time.
#[test]
fn a_burst_is_no_overload() {
    let mut queue = Queue::new(TARGET);
    (0..50).for_each(|n| queue.push(Class::Normal, entry(n, 0)));
    for n in 0..50 {
        assert_eq!(take(&mut queue, 2 * u64::from(n)), Some((n, Verdict::Start)));
    }
    assert_eq!(take(&mut queue, 100), None);
}

/// Purpose: once a queue stands, the newest go first and the oldest are told, until it is empty.
#[test]
fn newest_first_while_overloaded() {
    let (mut queue, now) = overloaded();
    for n in 0..4 {
        queue.push(Class::Normal, entry(n, now + 5 * u64::from(n)));
    }
    let now = now + 16;
    let refused = |n| Some((n, Verdict::Refuse(Reason::Delay)));
    let started = |n| Some((n, Verdict::Start));
    assert_eq!(take(&mut queue, now), refused(0));
    assert_eq!(take(&mut queue, now), refused(1));
    assert_eq!(take(&mut queue, now), started(3));
    assert_eq!(take(&mut queue, now), started(2));
    assert_eq!(take(&mut queue, now), None);
}

/// Purpose: overload is over when nobody has waited too long for the interval, not the first time that
/// nobody waits: between two bursts the crowd has not gone home.
#[test]
fn overload_ends_after_the_interval() {
    let (mut queue, empty_since) = overloaded();
    for now in [empty_since + 50, empty_since + 99] {
        queue.push(Class::Normal, entry(1, now));
        assert!(queue.is_overloaded());
        assert_eq!(take(&mut queue, now + 1), Some((1, Verdict::Start)));
    }
    queue.push(Class::Normal, entry(2, empty_since + 150));
    assert!(!queue.is_overloaded());
    // One that has to be refused begins the interval anew.
    let (mut queue, empty_since) = overloaded();
    queue.push(Class::Normal, entry(1, empty_since + 60));
    assert_eq!(take(&mut queue, empty_since + 80), Some((1, Verdict::Refuse(Reason::Delay))));
    queue.push(Class::Normal, entry(2, empty_since + 179));
    assert!(queue.is_overloaded());
    take(&mut queue, empty_since + 180);
    queue.push(Class::Normal, entry(3, empty_since + 181));
    assert!(!queue.is_overloaded());
}

/// Purpose: the target is what may be waited: not refused at it, refused one step beyond it.
#[test]
fn the_target_is_inclusive() {
    for (waited, verdict) in [(9, Verdict::Start), (10, Verdict::Start)] {
        let (mut queue, now) = overloaded();
        queue.push(Class::Normal, entry(1, now));
        assert_eq!(take(&mut queue, now + waited), Some((1, verdict)), "{waited}");
    }
    let (mut queue, now) = overloaded();
    queue.push(Class::Normal, entry(1, now));
    assert_eq!(take(&mut queue, now + 11), Some((1, Verdict::Refuse(Reason::Delay))));
}

/// Purpose: who may not refuse serves everybody in order, whatever they waited.
#[test]
fn without_shedding_it_is_a_plain_queue() {
    let mut queue = Queue::new(TARGET);
    (0..50).for_each(|n| queue.push(Class::Normal, entry(n, 0)));
    for n in 0..50 {
        let (entry, verdict) = queue.pop(at(1000 * u64::from(n)), false).expect("they all wait");
        assert_eq!((entry.item, verdict), (n, Verdict::Start));
    }
}

/// Purpose: a request whose own deadline has passed is never started, overload or not.
#[test]
fn deadlines_hold_without_overload() {
    let mut queue = Queue::new(TARGET);
    let expiring = Entry { deadline: at(5), ..entry(1, 0) };
    queue.push(Class::Normal, expiring);
    queue.push(Class::Normal, Entry { item: 2, ..expiring });
    assert_eq!(take(&mut queue, 4), Some((1, Verdict::Start)));
    assert_eq!(take(&mut queue, 5), Some((2, Verdict::Refuse(Reason::Deadline))));
}

/// Purpose: the important go first and are refused last, and who is refused in their favour is told
/// apart from who is refused for the crowd of his equals.
#[test]
fn classes_are_strict() {
    let (mut queue, now) = overloaded();
    for (n, class) in [Class::Low, Class::Normal, Class::High, Class::Vital].into_iter().enumerate()
    {
        queue.push(class, entry(n as u32, now));
    }
    let refused = |n, reason| Some((n, Verdict::Refuse(reason)));
    assert_eq!(take(&mut queue, now + 20), Some((3, Verdict::Start)));
    assert_eq!(take(&mut queue, now + 20), refused(0, Reason::Priority));
    assert_eq!(take(&mut queue, now + 20), refused(1, Reason::Priority));
    assert_eq!(take(&mut queue, now + 20), refused(2, Reason::Delay));
}

/// Purpose: refusing never takes the place of serving, however many there are to be refused.
#[test]
fn refusals_are_bounded() {
    let (mut queue, now) = overloaded();
    for n in 0..200 {
        queue.push(Class::Normal, entry(n, now));
    }
    let mut in_a_row = 0;
    while let Some((_, verdict)) = take(&mut queue, now + 50) {
        in_a_row = if verdict == Verdict::Start { 0 } else { in_a_row + 1 };
        assert!(in_a_row <= REFUSALS_MAX);
    }
}

/// The queue by its definition: a heap of entries, searched each time, and the history of the
/// oldest one's age.
#[derive(Default)]
struct Model {
    waiting: Vec<(Class, Entry<u32>)>,
    /// Whenever somebody looked: was somebody too old?
    looks: Vec<(u64, bool)>,
    overloaded: bool,
    refused: u32,
}

impl Model {
    fn pop(&mut self, now: u64, may_refuse: bool) -> Option<(u32, Verdict)> {
        self.look(now);
        let popped = self.take(now, may_refuse);
        if self.waiting.is_empty() {
            self.look(now);
        }
        popped
    }

    /// The state is the contrary of what it was, once all looks for 100 ms said so.
    fn look(&mut self, now: u64) {
        let too_old = |(class, entry): &(Class, Entry<u32>)| {
            *class != Class::Vital && at(now) - entry.ready > TARGET
        };
        self.looks.push((now, self.waiting.iter().any(too_old)));
        let contrary = |(_, found): &&(u64, bool)| *found != self.overloaded;
        let first = self.looks.iter().rev().take_while(contrary).last();
        if first.is_some_and(|(since, _)| now >= since + 100) {
            self.overloaded = !self.overloaded;
        }
    }

    fn take(&mut self, now: u64, may_refuse: bool) -> Option<(u32, Verdict)> {
        let age = |entry: &Entry<u32>| at(now) - entry.ready;
        let sheddable = |class: &Class| *class != Class::Vital;
        let sheds = self.overloaded && may_refuse;
        let overdue = |(class, entry): &&(Class, Entry<u32>)| {
            sheds && self.refused < REFUSALS_MAX && sheddable(class) && age(entry) > TARGET
        };
        let vital = self.waiting.iter().any(|(class, _)| !sheddable(class));
        let overdue = |waiting: &&(Class, Entry<u32>)| !vital && overdue(waiting);
        // The lowest class, and of it the oldest; items are numbered in the order of their coming.
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
                let newest = sheds && class != Class::Vital;
                let (_, entry) =
                    if newest { equals.max_by_key(order) } else { equals.min_by_key(order) }?;
                (false, class, entry.item, entry.deadline)
            };
        self.waiting.retain(|(_, entry)| entry.item != item);
        let above = self.waiting.iter().any(|(other, _)| sheddable(other) && *other < class);
        let expired = deadline <= at(now) && sheddable(&class);
        let verdict = match (refuse, expired) {
            (_, true) => Verdict::Refuse(Reason::Deadline),
            (true, _) if above => Verdict::Refuse(Reason::Priority),
            (true, _) => Verdict::Refuse(Reason::Delay),
            (false, _) => Verdict::Start,
        };
        self.refused = match verdict {
            Verdict::Start => 0,
            Verdict::Refuse(_) => self.refused + 1,
        };
        Some((item, verdict))
    }
}

/// Purpose: under any load, in any order of comings and takings, the queue does what its definition
/// says, and everybody leaves it exactly once.
#[test]
fn agrees_with_its_definition() {
    for seed in 0..100 {
        let mut prng = Prng::from_seed(seed);
        let (mut queue, mut model) = (Queue::new(TARGET), Model::default());
        let (mut now, mut came, mut left) = (0, 0, 0);
        let load = 1 + prng.below(4);
        let may_refuse = prng.below(5) > 0;
        for _ in 0..400 {
            now += prng.below(3);
            for _ in 0..prng.below(load + 1) {
                let class = [Class::Vital, Class::High, Class::Normal, Class::Normal, Class::Low]
                    [prng.below(5) as usize];
                let late = if prng.below(10) == 0 { prng.below(5).min(now) } else { 0 };
                let deadline = match prng.below(4) {
                    0 => at(now + prng.below(40)),
                    _ => Instant::MAX,
                };
                let entry = Entry { item: came, ready: at(now - late), deadline };
                if model.waiting.is_empty() {
                    model.look(now - late);
                }
                model.waiting.push((class, entry));
                queue.push(class, entry);
                came += 1;
            }
            for _ in 0..prng.below(3) {
                let popped = queue.pop(at(now), may_refuse);
                let popped = popped.map(|(entry, verdict)| (entry.item, verdict));
                assert_eq!(popped, model.pop(now, may_refuse), "seed {seed} at {now}");
                left += u32::from(popped.is_some());
                assert_eq!(queue.is_overloaded(), model.overloaded, "seed {seed} at {now}");
            }
        }
        while queue.pop(at(now), may_refuse).is_some() {
            left += 1;
        }
        assert_eq!(came, left, "seed {seed}");
    }
}
