//! Simulates other threads: they wake tasks, run jobs, and ask the server to drain.
//!
//! Each action has a moment, and may fall anywhere between the steps of the worker: while it sleeps, just
//! before it sleeps, while it works, within the very poll that asks to be woken. A wake-up that comes while
//! the worker is parked must go to the place where it sleeps; that is the one check made here.
//!
//! ```text
//!   asleep in the driver    only the driver's wake-up ends it
//!   asleep in the runtime   its own waker ends it, or the driver's wake-up, whose descriptor it watches
//! ```

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use highwater_core::prng::Prng;
use highwater_core::time::Instant;

use super::network::Network;
use crate::server::{Inbox, Pool};

/// How long a job waits for its thread, at most.
const JOB_DELAY_MAX: Duration = Duration::from_millis(30);

/// Where the worker sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Driver,
    Runtime,
}

/// Wake-ups that the worker has not noticed yet.
#[derive(Debug, Default)]
pub(super) struct WakeUps {
    pub(super) driver: AtomicBool,
    runtime: AtomicBool,
}

impl Wake for WakeUps {
    /// Wakes the worker's own task in its runtime.
    fn wake(self: Arc<Self>) {
        self.runtime.store(true, SeqCst);
    }
}

impl WakeUps {
    fn reach(&self, place: Place) -> bool {
        let driver = self.driver.load(SeqCst);
        driver || (place == Place::Runtime && self.runtime.load(SeqCst))
    }

    /// The worker notices the wake-ups of `place`.
    pub(super) fn notice(&self, place: Place) {
        match place {
            Place::Driver => self.driver.store(false, SeqCst),
            Place::Runtime => self.runtime.store(false, SeqCst),
        }
    }
}

/// A future that waits for another thread.
struct Waiter {
    due: Instant,
    /// The key of the request that it belongs to.
    key: u32,
    waker: Waker,
    woken: bool,
}

/// Something that another thread will do.
enum Act {
    /// Wakes a task that may have ended long before, or has no reason to be woken.
    Wake(Waker),
    RunPool,
    AskForDrain,
}

#[derive(Default)]
struct State {
    now: Instant,
    prng: Option<Prng>,
    waiters: BTreeMap<u64, Waiter>,
    waiters_made: u64,
    acts: Vec<(Instant, Act)>,
    drain_asked: bool,
    /// The worker has parked there, and has not looked since.
    parked_in: Option<Place>,
    failure: Option<String>,
}

/// The other threads.
#[derive(Default)]
pub(super) struct OtherThreads {
    state: Mutex<State>,
    pub(super) wake_ups: Arc<WakeUps>,
    /// Jobs begun by the pool.
    jobs: AtomicUsize,
    reach: Mutex<Option<(Arc<Inbox>, Pool)>>,
}

impl OtherThreads {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics under this lock")
    }

    /// From now on other threads act; `inbox` and `pool` are the parts of the server that they can
    /// reach.
    pub(super) fn begin(&self, prng: Prng, inbox: Arc<Inbox>, pool: Pool) {
        self.lock().prng = Some(prng);
        *self.reach.lock().expect("nothing panics under this lock") = Some((inbox, pool));
    }

    /// A future that is woken after `delay`, and perhaps also before, in between and after its end.
    /// `key` names the request that it belongs to.
    pub(super) fn wait(self: &Arc<Self>, key: u32, delay: Duration) -> Wait {
        Wait { threads: Arc::clone(self), key, delay, at: None }
    }

    /// Whether a future of `key` waits for a wake-up that has not come.
    pub(super) fn keeps_waiting(&self, key: u32) -> bool {
        self.lock().waiters.values().any(|waiter| waiter.key == key && !waiter.woken)
    }

    /// The pool's threads take queued jobs a little later, and one of them may ask for a drain.
    pub(super) fn schedule(&self, queued: usize, drain: bool) {
        let mut state = self.lock();
        let now = state.now;
        if queued > 0 && !state.acts.iter().any(|(_, act)| matches!(act, Act::RunPool)) {
            let at = now + state.draw(JOB_DELAY_MAX);
            state.acts.push((at, Act::RunPool));
        }
        if drain {
            let at = now + state.draw(JOB_DELAY_MAX);
            state.acts.push((at, Act::AskForDrain));
        }
    }

    /// The pool has begun a job; the worker must notice its result.
    pub(super) fn begin_job(&self) {
        self.jobs.fetch_add(1, SeqCst);
    }

    /// Whether a drain was asked for since the last call.
    pub(super) fn take_drain(&self) -> bool {
        std::mem::take(&mut self.lock().drain_asked)
    }

    /// The worker has announced that it is going to sleep, or has looked again.
    pub(super) fn park(&self, place: Option<Place>) {
        self.lock().parked_in = place;
    }

    /// The failed check, if any.
    pub(super) fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// When the next action happens.
    fn next(&self) -> Instant {
        let state = self.lock();
        let waiters = state.waiters.values().filter(|waiter| !waiter.woken).map(|w| w.due);
        let acts = state.acts.iter().map(|(at, _)| *at);
        waiters.chain(acts).min().unwrap_or(Instant::MAX)
    }

    /// Performs all due actions.
    pub(super) fn catch_up(&self, now: Instant) {
        let (woken, acts) = {
            let mut state = self.lock();
            state.now = now;
            let mut woken = Vec::new();
            for waiter in state.waiters.values_mut().filter(|w| !w.woken && w.due <= now) {
                waiter.woken = true;
                woken.push(waiter.waker.clone());
            }
            let acts: Vec<_> = state.acts.extract_if(.., |(at, _)| *at <= now).collect();
            (woken, acts)
        };
        let mut must_wake = !woken.is_empty();
        woken.into_iter().for_each(Waker::wake);
        let reach = self.reach.lock().expect("nothing panics under this lock").clone();
        for (_, act) in acts {
            match (act, &reach) {
                (Act::Wake(waker), _) => waker.wake(),
                (Act::RunPool, Some((_, pool))) => {
                    let before = self.jobs.load(SeqCst);
                    pool.run_deferred();
                    // A job whose result is not awaited need not be begun.
                    must_wake |= self.jobs.load(SeqCst) > before;
                }
                (Act::AskForDrain, Some((inbox, _))) => {
                    must_wake = true;
                    self.lock().drain_asked = true;
                    inbox.nudge();
                }
                (Act::RunPool | Act::AskForDrain, None) => {}
            }
        }
        let mut state = self.lock();
        if let Some(place) = state.parked_in
            && must_wake
            && !self.wake_ups.reach(place)
        {
            let what =
                format!("a wake-up at {now:?} wakes nothing: the worker sleeps in {place:?}");
            state.failure.get_or_insert(what);
        }
    }
}

impl State {
    /// A time up to `most`.
    fn draw(&mut self, most: Duration) -> Duration {
        let prng = self.prng.as_mut();
        Duration::from_nanos(prng.map_or(0, |prng| prng.below(most.as_nanos() as u64 + 1)))
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.prng.as_mut().is_some_and(|prng| prng.chance(1, one_in))
    }

    /// Uses `waker` soon, for no reason.
    fn wake_later(&mut self, waker: Waker, within: Duration) {
        let at = self.now + self.draw(within);
        self.acts.push((at, Act::Wake(waker)));
    }
}

impl Network {
    /// Other threads act while the worker looks at its kernel. Returns whether they have woken the driver.
    pub(super) fn look_at_threads(&mut self) -> bool {
        let Some(threads) = &self.threads else { return false };
        threads.catch_up(self.now());
        threads.wake_ups.reach(Place::Driver)
    }

    /// Whether the driver was woken and the worker has not noticed that yet.
    pub(super) fn driver_is_woken(&self) -> bool {
        self.threads.as_ref().is_some_and(|threads| threads.wake_ups.reach(Place::Driver))
    }

    /// The worker has noticed the driver's wake-up.
    pub(super) fn notice(&mut self) {
        if let Some(threads) = &self.threads {
            threads.wake_ups.notice(Place::Driver);
        }
    }

    /// Time passes until then, or until a client acts, or until another thread wakes the worker where it
    /// sleeps.
    pub(super) fn sleep(&mut self, until: Instant, place: Place) {
        let until = until.min(self.client_at);
        let Some(threads) = self.threads.clone() else {
            return self.pass(until);
        };
        loop {
            threads.catch_up(self.now());
            if threads.wake_ups.reach(place) || self.now() >= until {
                return;
            }
            self.pass(threads.next().min(until));
        }
    }
}

/// See [`OtherThreads::wait`].
pub(super) struct Wait {
    threads: Arc<OtherThreads>,
    key: u32,
    delay: Duration,
    at: Option<u64>,
}

impl Future for Wait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let threads = Arc::clone(&self.threads);
        let mut state = threads.lock();
        let Some(at) = self.at else {
            let at = state.waiters_made;
            state.waiters_made += 1;
            self.at = Some(at);
            let (due, waker) = (state.now + self.delay, cx.waker().clone());
            if state.chance(4) {
                state.wake_later(waker.clone(), self.delay);
            }
            // The other thread may be so quick that it wakes this future before it has returned
            // `Pending`.
            let woken = state.chance(8);
            state.waiters.insert(at, Waiter { due, key: self.key, waker, woken });
            drop(state);
            if woken {
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        };
        match state.waiters.get_mut(&at) {
            Some(waiter) if !waiter.woken => {
                waiter.waker.clone_from(cx.waker());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }
}

impl Drop for Wait {
    /// The thread that was to wake it may still do so.
    fn drop(&mut self) {
        let Some(at) = self.at else { return };
        let Ok(mut state) = self.threads.state.lock() else { return };
        if let Some(Waiter { waker, woken, .. }) = state.waiters.remove(&at)
            && (!woken || state.chance(4))
            && state.chance(2)
        {
            state.wake_later(waker, Duration::from_millis(100));
        }
    }
}
