//! A batcher, a sink that a seed decides about, and time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future as _;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use highwater_batcher::{
    Answer, Awaiting, Batch, Batcher, Failure, FailureKind, Layout, Moment, OnFailure, Options,
    Outcome, Receipt, Refusal, Refused, Sink, Written,
};
use highwater_core::prng::Prng;

use crate::model::{Model, State};

/// Steps of a run.
const STEPS: u64 = 150;

/// How often what was meant to happen has happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) written: u64,
    pub(crate) failed: u64,
    pub(crate) rejected: u64,
    pub(crate) rewritten: u64,
    pub(crate) full: u64,
    pub(crate) timed_out: u64,
    pub(crate) woken: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, other: &Seen) {
        self.written += other.written;
        self.failed += other.failed;
        self.rejected += other.rejected;
        self.rewritten += other.rewritten;
        self.full += other.full;
        self.timed_out += other.timed_out;
        self.woken += other.woken;
    }
}

/// What the sink and the world share.
struct Shared {
    prng: Prng,
    model: Model,
    seen: Seen,
    keeps: bool,
    retry_after: Duration,
    now: Instant,
    /// When each batch that is to be given again has failed, by its first record.
    failed_at: BTreeMap<usize, Instant>,
    /// The end: nothing waits for its time.
    is_flushing: bool,
    /// Out of a hundred: refusals, failures, and batches that are done at once.
    refuses: u64,
    fails: u64,
    at_once: u64,
    /// Batches that wait for their answer, by the order in which they came. None of them, once all is to end well.
    waiting: BTreeMap<u64, Waiting>,
    given: u64,
}

struct Waiting {
    answer: Answer,
    batch: Arc<Batch>,
    numbers: Vec<usize>,
}

struct Fickle(Rc<RefCell<Shared>>);

impl Shared {
    fn failure(&mut self) -> Failure {
        use FailureKind::{Busy, Closed, Full, Rejected, TimedOut, TooLarge, Unavailable};
        let kinds = [Busy, Full, Unavailable, TimedOut, Closed, TooLarge, Rejected];
        let few = if self.prng.chance(1, 4) { 7 } else { 5 };
        Failure::new(kinds[self.prng.below(few) as usize], "as the seed says")
    }

    /// What a batch's records are after this failure.
    fn state_after(&self, failure: &Failure, is_refusal: bool) -> State {
        let is_busy = is_refusal && failure.kind() == FailureKind::Busy;
        match failure.kind().may_pass() {
            true if self.keeps || is_busy => State::Back,
            true => State::Failed,
            false => State::Rejected,
        }
    }

    fn outcome(&mut self, numbers: &[usize]) -> Outcome {
        if self.prng.chance(self.fails, 100) {
            let failure = self.failure();
            let state = self.state_after(&failure, false);
            numbers.iter().for_each(|number| self.model.answered(*number, state));
            return Err(failure);
        }
        let mut refused = Vec::new();
        for (index, &number) in numbers.iter().enumerate() {
            let is_refused = self.prng.chance(self.fails, 300);
            let state = if is_refused { State::Rejected } else { State::Written };
            self.model.answered(number, state);
            if is_refused {
                let failure = Failure::new(FailureKind::Rejected, "this one never");
                refused.push(Refusal { index: index as u32, failure });
            }
        }
        Ok(Written { refused })
    }
}

impl Sink for Fickle {
    fn write(&mut self, batch: &Arc<Batch>) -> Result<Receipt, Failure> {
        let shared = &mut *self.0.borrow_mut();
        let (numbers, is_again) = shared.model.given(batch);
        shared.seen.rewritten += u64::from(is_again);
        let failed_at = shared.failed_at.insert(numbers[0], shared.now);
        if let Some(failed_at) = failed_at.filter(|_| shared.keeps && !shared.is_flushing) {
            assert!(shared.now >= failed_at + shared.retry_after, "the sink gets no rest");
        }
        if shared.prng.chance(shared.refuses, 100) {
            let failure = shared.failure();
            let state = shared.state_after(&failure, true);
            numbers.iter().for_each(|number| shared.model.answered(*number, state));
            return Err(failure);
        }
        if shared.prng.chance(shared.at_once, 100) {
            return Ok(Receipt::ready(shared.outcome(&numbers)));
        }
        let (answer, receipt) = Receipt::pair();
        shared.given += 1;
        let waiting = Waiting { answer, batch: Arc::clone(batch), numbers };
        shared.waiting.insert(shared.given, waiting);
        Ok(receipt)
    }
}

#[derive(Default)]
struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A handler that waits for its record.
struct Handler {
    awaiting: Awaiting,
    number: usize,
    woken: Arc<Count>,
}

pub(crate) struct World {
    seed: u64,
    batcher: Batcher<Fickle>,
    shared: Rc<RefCell<Shared>>,
    prng: Prng,
    options: Options,
    began: Instant,
    now: Instant,
    handlers: Vec<Handler>,
    turn: Arc<Count>,
}

fn options(prng: &mut Prng) -> Options {
    let mut options = Options::default();
    options.partitions = prng.range(1..5) as u32;
    options.layout = if prng.chance(1, 2) { Layout::Mixed } else { Layout::Partitioned };
    options.batch_bytes = prng.range(1..300) as usize;
    options.records_max = prng.range(1..20) as usize;
    options.record_bytes_max = prng.range(0..400) as usize;
    let least = options.batch_bytes.max(options.record_bytes_max) + 2 * (64 * 4 + 4 * 24);
    options.memory_max = least + prng.below(8000) as usize;
    options.linger = Duration::from_millis(prng.below(10));
    options.answer_timeout = Duration::from_millis(prng.range(5..60));
    options.retry_after = Duration::from_millis(prng.range(1..10));
    options.on_failure = if prng.chance(1, 2) { OnFailure::Keep } else { OnFailure::Report };
    let is_kept = options.on_failure == OnFailure::Keep;
    options.in_flight_max = if is_kept { 1 } else { prng.range(1..4) as usize };
    // Ids go round at the end of their numbers.
    options.first_id = u128::MAX - u128::from(prng.below(100));
    options
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let mut prng = Prng::from_seed(seed);
        let options = options(&mut prng);
        let began = Instant::now();
        let shared = Shared {
            prng: Prng::from_seed(seed ^ u64::MAX),
            model: Model::default(),
            seen: Seen::default(),
            keeps: options.on_failure == OnFailure::Keep,
            retry_after: options.retry_after,
            now: began,
            failed_at: BTreeMap::new(),
            is_flushing: false,
            refuses: prng.below(40),
            fails: prng.below(40),
            at_once: prng.below(100),
            waiting: BTreeMap::new(),
            given: 0,
        };
        let shared = Rc::new(RefCell::new(shared));
        let sink = Fickle(Rc::clone(&shared));
        let batcher = Batcher::new(sink, options.clone()).expect("options in their ranges");
        let turn = Arc::default();
        World {
            seed,
            batcher,
            shared,
            prng,
            options,
            began,
            now: began,
            handlers: Vec::new(),
            turn,
        }
    }

    pub(crate) fn run(&mut self) {
        for _ in 0..STEPS {
            match self.prng.below(10) {
                0..5 => self.append(),
                5..7 => self.answer(),
                7 => self.pass(),
                8 => self.append_together(),
                _ => self.forget(),
            }
            if self.prng.chance(1, 2) {
                self.end_turn();
            }
            self.check();
        }
    }

    fn moment(&self) -> Moment {
        Moment { now: self.now, unix_us: (self.now - self.began).as_micros() as u64 }
    }

    fn body(&mut self) -> Vec<u8> {
        let bytes = self.prng.below(self.options.record_bytes_max as u64 + 20) as usize;
        let bytes = if self.prng.chance(2, 3) { bytes % 24 } else { bytes };
        (0..bytes).map(|_| self.prng.next_u64() as u8).collect()
    }

    fn append(&mut self) {
        let partition = self.prng.below(self.options.partitions.into()) as u32;
        let body = self.body();
        self.append_to(partition, &body, false);
    }

    /// Appends a record, to wait for or not. It may be too large, but not find no room if that `is_sure`.
    fn append_to(&mut self, partition: u32, body: &[u8], is_sure: bool) {
        let moment = self.moment();
        let waits = self.prng.chance(1, 2);
        let appended = if waits {
            let appended = self.batcher.append_awaiting(partition, moment, body);
            appended.map(|(id, awaiting)| (id, Some(awaiting)))
        } else {
            self.batcher.append(partition, moment, body).map(|id| (id, None))
        };
        let is_too_large = body.len() > self.options.record_bytes_max;
        match appended {
            Err(Refused::TooLarge) => assert!(is_too_large),
            Err(Refused::Full) => {
                assert!(!is_sure && !is_too_large, "there was room");
                self.shared.borrow_mut().seen.full += 1;
            }
            Ok((id, awaiting)) => {
                assert!(!is_too_large);
                let model = &mut self.shared.borrow_mut().model;
                let number = model.appended(partition, moment.unix_us, id, body);
                self.handlers.extend(awaiting.map(|awaiting| Handler {
                    awaiting,
                    number,
                    woken: Arc::default(),
                }));
            }
        }
    }

    /// Records that are taken all, or not at all.
    fn append_together(&mut self) {
        let partition = self.prng.below(self.options.partitions.into()) as u32;
        let count = self.prng.below(30) as usize;
        let mut bodies: Vec<Vec<u8>> = (0..count).map(|_| self.body()).collect();
        bodies.retain(|body| body.len() <= self.options.record_bytes_max);
        let bytes = bodies.iter().map(Vec::len).sum();
        if self.batcher.has_room(partition, self.now, bodies.len(), bytes) {
            bodies.iter().for_each(|body| self.append_to(partition, body, true));
        }
    }

    /// The sink answers for a batch: for any, but for one lane in order.
    fn answer(&mut self) {
        let shared = &mut *self.shared.borrow_mut();
        let Some((_, Waiting { answer, batch, numbers })) = shared.waiting.pop_first() else {
            return;
        };
        drop(batch);
        if shared.prng.chance(1, 30) {
            let failure = Failure::new(FailureKind::Closed, "");
            let state = shared.state_after(&failure, false);
            numbers.iter().for_each(|number| shared.model.answered(*number, state));
            drop(answer);
        } else {
            answer.resolve(shared.outcome(&numbers));
        }
    }

    fn pass(&mut self) {
        let more = Duration::from_micros(self.prng.below(12_000));
        self.set_now(self.now + more);
    }

    fn set_now(&mut self, now: Instant) {
        self.now = now;
        self.shared.borrow_mut().now = now;
    }

    /// A client goes away.
    fn forget(&mut self) {
        if !self.handlers.is_empty() && self.prng.chance(1, 4) {
            let which = self.prng.below(self.handlers.len() as u64) as usize;
            self.handlers.swap_remove(which);
        }
    }

    fn end_turn(&mut self) {
        let waker = Waker::from(Arc::clone(&self.turn));
        let due = self.batcher.on_turn_end(self.now, &waker);
        assert_eq!(due, self.batcher.deadline());
        assert!(due.is_none_or(|due| due > self.now), "it would have turns without an end");
        // What nothing stands in the way of has gone after `linger`.
        let shared = self.shared.borrow();
        if shared.waiting.is_empty() && shared.model.count(State::Back) == 0 {
            let since = self
                .now
                .checked_sub(self.options.linger)
                .map_or(0, |since| since.saturating_duration_since(self.began).as_micros() as u64);
            let late = shared.model.inside_since().filter(|time_us| *time_us < since);
            assert_eq!(late, None, "seed {}: the sink is free", self.seed);
        }
        drop(shared);
        self.look_at_handlers();
    }

    /// Each handler is polled, as if it had been woken, and its answer compared with the answer of the sink.
    fn look_at_handlers(&mut self) {
        let shared = Rc::clone(&self.shared);
        let shared = &mut *shared.borrow_mut();
        self.handlers.retain_mut(|Handler { awaiting, number, woken }| {
            let before = woken.0.load(Ordering::Relaxed);
            let waker = Waker::from(Arc::clone(woken));
            let polled = Pin::new(awaiting).poll(&mut Context::from_waker(&waker));
            let state = shared.model.state(*number);
            let Poll::Ready(outcome) = polled else {
                assert_eq!(before, 0, "woken for nothing");
                return true;
            };
            shared.seen.woken += before;
            let kind = outcome.err().map(|failure| failure.kind());
            match (kind, state) {
                (None, State::Written) | (Some(FailureKind::TimedOut), _) => {}
                (Some(kind), State::Failed) => assert!(kind.may_pass()),
                (Some(kind), State::Rejected) => assert!(!kind.may_pass()),
                unexpected => panic!("seed {}: {unexpected:?}", self.seed),
            }
            shared.seen.timed_out += u64::from(kind == Some(FailureKind::TimedOut));
            false
        });
    }

    /// What holds at any time.
    fn check(&self) {
        let shared = self.shared.borrow();
        let (memory, counts) = (self.batcher.memory(), self.batcher.counts());
        assert!(memory <= self.options.memory_max, "seed {}: {memory} bytes", self.seed);
        // Those whose answer the batcher has not taken yet are still in its memory.
        assert!(shared.model.unanswered_bytes() <= memory, "seed {}", self.seed);
        assert_eq!(counts.appended, shared.model.records());
        assert!(counts.written <= shared.model.count(State::Written));
        let ended = counts.written + counts.failed + counts.rejected;
        assert!(ended <= counts.appended);
    }

    /// The sink becomes reliable: everything must come to its end.
    pub(crate) fn finish(mut self) -> Seen {
        {
            let mut shared = self.shared.borrow_mut();
            (shared.refuses, shared.fails, shared.at_once) = (0, 0, 50);
        }
        for step in 0.. {
            assert!(step < 10_000, "seed {}: it does not end", self.seed);
            if self.prng.chance(1, 2) {
                self.answer();
            }
            if self.prng.chance(1, 4) {
                self.shared.borrow_mut().is_flushing = true;
                self.batcher.flush(self.now);
                self.shared.borrow_mut().is_flushing = false;
            } else {
                self.end_turn();
            }
            if self.batcher.is_idle() {
                break;
            }
            // As a worker would: no turn before something happens.
            let due = self.batcher.deadline();
            self.set_now(due.unwrap_or(self.now).max(self.now));
            assert!(due.is_some() || !self.shared.borrow().waiting.is_empty(), "stuck");
        }
        self.check();
        self.look_at_handlers();
        assert!(self.handlers.is_empty(), "seed {}: somebody waits for ever", self.seed);
        let counts = self.batcher.counts();
        {
            let shared = self.shared.borrow();
            let of = |state| shared.model.count(state);
            let states = [State::Written, State::Failed, State::Rejected].map(of);
            assert_eq!([counts.written, counts.failed, counts.rejected], states);
            assert_eq!(counts.appended, states.iter().sum::<u64>());
        }
        // Whatever was there before, the largest record is taken now.
        let largest = vec![0; self.options.record_bytes_max];
        self.append_to(0, &largest, true);
        let mut seen = self.shared.borrow().seen;
        (seen.written, seen.failed, seen.rejected) =
            (counts.written, counts.failed, counts.rejected);
        seen
    }
}
