//! Threads that block, queues that stand, and what is left when jobs panic.

use std::sync::mpsc;

use super::*;

/// A pool with one thread, which waits until the test releases it; and a channel that reports finished
/// jobs.
struct Held {
    pool: Pool,
    release: mpsc::Sender<()>,
    finished: mpsc::Sender<u32>,
    done: mpsc::Receiver<u32>,
}

impl Held {
    fn new(patience: Duration, queue_max: usize) -> Held {
        let pool = Pool::new(1, patience, queue_max);
        let (release, gate) = mpsc::channel::<()>();
        let (started, running) = mpsc::channel();
        let (finished, done) = mpsc::channel();
        let finish = finished.clone();
        pool.submit(Box::new(move || {
            started.send(()).expect("the test waits");
            gate.recv().expect("the test releases it");
            finish.send(0).expect("the test waits");
        }))
        .expect("there is room");
        running.recv().expect("it starts");
        Held { pool, release, finished, done }
    }

    fn submit(&self, number: u32) -> Result<(), Full> {
        let finished = self.finished.clone();
        self.pool.submit(Box::new(move || finished.send(number).expect("the test waits")))
    }
}

/// Purpose: jobs beyond the threads wait, jobs beyond the queue are refused, none is lost.
#[test]
fn bounded() {
    let held = Held::new(Duration::MAX, 2);
    held.submit(1).expect("one below the bound");
    held.submit(2).expect("at the bound");
    assert!(held.submit(3).is_err(), "one above it");
    held.release.send(()).expect("it waits");
    assert_eq!([held.done.recv(), held.done.recv(), held.done.recv()], [Ok(0), Ok(1), Ok(2)]);
    held.pool.close();
}

/// Purpose: a job is refused for how long the oldest job has waited, never for how many jobs wait.
#[test]
fn a_queue_that_stands_refuses() {
    let patient = Held::new(Duration::from_secs(3600), usize::MAX);
    for number in 1..=5000 {
        patient.submit(number).expect("a burst is no overload");
    }
    patient.release.send(()).expect("it waits");
    assert!((0..=5000).all(|number| patient.done.recv() == Ok(number)));
    patient.pool.close();

    let strict = Held::new(Duration::ZERO, usize::MAX);
    strict.submit(1).expect("the queue is empty");
    // Any time at all is longer than its patience.
    while Instant::now() == Instant::now() {}
    assert!(strict.submit(2).is_err());
    strict.release.send(()).expect("it waits");
    assert_eq!([strict.done.recv(), strict.done.recv()], [Ok(0), Ok(1)]);
    strict.submit(3).expect("it goes on again");
    assert_eq!(strict.done.recv(), Ok(3));
    strict.pool.close();
}

/// A panic whose payload panics again when it is dropped.
struct Spiteful;

impl Drop for Spiteful {
    fn drop(&mut self) {
        panic!("on demand, when dropped");
    }
}

/// Waits until `condition` holds of the pool.
fn eventually(pool: &Pool, condition: impl Fn(PoolState) -> bool) {
    let begun = Instant::now();
    while !condition(pool.state()) {
        assert!(begun.elapsed() < Duration::from_secs(300), "{:?}", pool.state());
        thread::sleep(Duration::from_millis(1));
    }
}

/// A pool, and a gate at which its jobs wait until it is dropped.
fn blocked(pool: &Pool, jobs: usize) -> (mpsc::Sender<()>, mpsc::Receiver<Begin>) {
    let (release, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let (finished, done) = mpsc::channel();
    for _ in 0..jobs {
        let (gate, finished) = (Arc::clone(&gate), finished.clone());
        let job: Job = Box::new(move |begin| {
            if begin == Begin::Run {
                // All wait: one inside, the others for the lock.
                let _ = gate.lock().unwrap_or_else(PoisonError::into_inner).recv();
            }
            let _ = finished.send(begin);
        });
        assert!(pool.submit_job(job), "there is room");
    }
    (release, done)
}

/// Purpose: while jobs block and others wait, the pool grows to its bound and no further; when they are
/// done, it shrinks again. It once had 32 threads and no more, of which a few slow calls to a back end
/// were enough to refuse all other requests.
#[test]
fn a_pool_whose_jobs_block_grows_and_shrinks() {
    let (patience, unused_max) = (Duration::from_secs(3600), Duration::from_millis(20));
    let pool = Pool::with_unused_max(100, patience, usize::MAX, unused_max);
    let (release, done) = blocked(&pool, 150);
    // Other tests of this process may use all of the CPU: then the pool waits until they have ended.
    eventually(&pool, |state| state == PoolState { threads: 100, waiting: 50 });
    drop(release);
    assert!((0..150).all(|_| done.recv() == Ok(Begin::Run)));
    eventually(&pool, |state| state.threads <= 1 && state.waiting == 0);
    let (release, done) = blocked(&pool, 3);
    drop(release);
    assert!((0..3).all(|_| done.recv() == Ok(Begin::Run)));
    pool.close();
    eventually(&pool, |state| state.threads == 0);
}

/// Purpose: a thread may use every core, although the worker that starts it is pinned to one. All blocking
/// handlers of a pinned server once shared the core of the worker that had the first of them.
#[test]
fn threads_are_not_pinned() {
    let pool = Pool::new(1, Duration::MAX, usize::MAX);
    let all = cpu::allowed().expect("the kernel tells");
    let (finished, done) = mpsc::channel();
    let (pinned_pool, core) = (pool.clone(), all[0]);
    let worker = thread::spawn(move || {
        cpu::pin_thread(core).expect("it may use it");
        let job = move || finished.send(cpu::allowed()).expect("the test waits");
        pinned_pool.submit(Box::new(job)).expect("there is room");
    });
    worker.join().expect("it does not panic");
    assert_eq!(done.recv().expect("it runs").expect("the kernel tells"), all);
    pool.close();
}

/// Purpose: a job that has waited for longer than the patience is refused although no thread is free, and
/// the pool continues afterwards. On a busy machine a job may wait for that long wherever it is queued: so tasks, which
/// are not refused, occupy the thread and show that it continues.
#[test]
fn what_waited_too_long_is_refused() {
    let held = Held::new(Duration::from_millis(20), usize::MAX);
    let (_never, refused) = blocked(&held.pool, 50);
    assert!((0..50).all(|_| refused.recv() == Ok(Begin::Refuse)));
    held.release.send(()).expect("it waits");
    assert_eq!(held.done.recv(), Ok(0));
    held.submit(1).expect("nothing waits");
    assert_eq!(held.done.recv(), Ok(1));
    held.pool.close();
}

/// Purpose: the oldest is begun first while it can be answered in time, then the newest; a task, which
/// cannot be refused, is never passed over.
#[test]
fn the_newest_are_begun_when_the_oldest_are_late() {
    let (begin, patience) = (Instant::now(), Duration::from_secs(10));
    let at = |seconds| begin + Duration::from_secs(seconds);
    let mut order = Vec::new();
    let mut queue = Queue::default();
    let sent = Arc::new(Mutex::new(Vec::new()));
    for (number, since) in [(1, 0), (2, 0), (3, 3), (4, 3)] {
        let sent = Arc::clone(&sent);
        let note = move || sent.lock().expect("nothing panics").push(number);
        let work = match number {
            3 => Work::Task(Box::new(note)),
            _ => Work::Job(Box::new(move |_| note())),
        };
        queue.push(at(since), work);
    }
    for (now, expired) in [(5, false), (6, false), (10, false), (11, true)] {
        let over = queue.pop_expired(at(now), patience);
        assert_eq!(over.is_some(), expired, "at {now}");
        if let Some(work) = over.or_else(|| queue.pop(at(now), patience)) {
            work.call(Begin::Run);
        }
        order.push(sent.lock().expect("nothing panics").clone());
    }
    assert_eq!(order, [vec![1], vec![1, 4], vec![1, 4, 3], vec![1, 4, 3, 2]]);
    let task = Work::Task(Box::new(|| {}));
    queue.push(at(0), task);
    queue.push(at(20), Work::Job(Box::new(|_| {})));
    assert!(queue.pop_expired(at(30), patience).is_none());
    assert!(matches!(queue.pop(at(30), patience), Some(Work::Task(_))));
}

/// Purpose: a task that waits in front of jobs does not keep them from being refused in time.
#[test]
fn a_task_in_front_delays_no_refusal() {
    let (begin, patience) = (Instant::now(), Duration::from_secs(10));
    let at = |seconds| begin + Duration::from_secs(seconds);
    let mut queue = Queue::default();
    queue.push(at(0), Work::Task(Box::new(|| {})));
    for since in [1, 2, 9] {
        queue.push(at(since), Work::Job(Box::new(|_| {})));
    }
    assert!(queue.pop_expired(at(11), patience).is_none());
    for _ in 0..2 {
        assert!(matches!(queue.pop_expired(at(13), patience), Some(Work::Job(_))));
    }
    assert!(queue.pop_expired(at(13), patience).is_none());
    assert!(matches!(queue.pop(at(13), patience), Some(Work::Task(_))));
    assert!(matches!(queue.pop(at(13), patience), Some(Work::Job(_))));
    assert!(queue.is_empty());
}

/// Purpose: time in which the process was stopped does not count as waiting. After a stop of more than the patience, all jobs
/// that waited were once refused.
#[test]
fn a_stop_is_not_waiting() {
    let (begin, patience) = (Instant::now(), Duration::from_secs(1));
    let at = |millis| begin + Duration::from_millis(millis);
    let mut state = State { looked_at: Some(at(0)), ..State::default() };
    for since in [0, 400] {
        state.queue.push(at(since), Work::Job(Box::new(|_| {})));
    }
    let waited = |state: &State, now| state.queue.waited(at(now)).expect("two wait").as_millis();
    state.excuse(at(110));
    assert_eq!(waited(&state, 110), 110, "a look may be that late");
    state.looked_at = Some(at(500));
    state.excuse(at(60_500));
    assert_eq!(waited(&state, 60_500), 610);
    state.excuse(at(60_510));
    assert_eq!(waited(&state, 60_510), 620, "it goes on");
    assert!(state.queue.pop_expired(at(60_890), patience).is_none());
    assert!(state.queue.pop_expired(at(60_891), patience).is_some());
    assert!(state.queue.pop_expired(at(61_290), patience).is_none());
    assert!(state.queue.pop_expired(at(61_291), patience).is_some());
}

/// Purpose: a job that panics does not cost the pool a thread. It once ended its thread while the pool
/// still counted that thread, so that after a few panics no job ran any more.
#[test]
fn panics_cost_no_thread() {
    let pool = Pool::new(1, Duration::MAX, usize::MAX);
    for _ in 0..3 {
        pool.submit(Box::new(|| panic!("on demand"))).expect("there is room");
        pool.submit(Box::new(|| std::panic::panic_any(Spiteful))).expect("there is room");
    }
    let (finished, done) = mpsc::channel();
    pool.submit(Box::new(move || finished.send(()).expect("the test waits"))).expect("room");
    assert_eq!(done.recv_timeout(Duration::from_secs(20)), Ok(()));
    assert_eq!(pool.shared.lock().threads, 1);
    pool.close();
}

/// Purpose: a job learns that its answer is no longer awaited.
#[test]
fn tickets_tell() {
    let (ticket, wanted) = Ticket::new();
    assert!(wanted.is_wanted());
    drop(ticket);
    assert!(!wanted.is_wanted());
}
