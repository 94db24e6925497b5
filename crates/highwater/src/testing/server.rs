//! What serves a test's requests, and moves its clocks? The worker, its runtime and its pool.
//!
//! The simulated clock is the server's; the runtime's is Tokio's. Both stand still while there is
//! something to do, and move by the same amount when there is not ([`Server::pass`]): Tokio, whose
//! clock is paused, jumps to its next timer or to the server's next deadline, whichever is earlier,
//! and the simulated clock follows.

use std::cell::Cell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::{Arc, Once};
use std::task::Poll;
use std::time::{Duration, Instant as RealInstant};

use highwater_core::driver::{Driver, Wait};
use tokio::runtime::{Builder, Handle, LocalRuntime};
use tokio::time::Instant as TokioInstant;

use crate::app::{Router, WorkerInfo, restart_request_ids};
use crate::server::{self, Inbox, Pool, ServerConfig, Worker, WorkerConfig};
use crate::sim::{Faults, Network, SimDriver, Trace};

/// How long an answer may take: of the simulated time, and of real time.
const SIMULATED_WAIT_MAX: Duration = Duration::from_secs(24 * 3600);
const REAL_WAIT_MAX: Duration = Duration::from_secs(30);

/// The longest jump of both clocks, so that an application with a timer every millisecond cannot keep
/// a test from noticing that it has waited for too long. Guessed; shorter costs a turn more per jump.
const JUMP_MAX: Duration = Duration::from_secs(60);

const OUTSIDE: &str = "nothing that the client knows of brings it about within a day of simulated \
     time; if the handler waits for something outside of the test, such as a database or a thread, \
     start the client with `Setup::real_time`";

const RESTLESS: &str = "a handler is always ready to run and sends nothing, so time does not pass: let it wait for what it \
     needs, or sleep, instead of yielding in a loop";

/// The worker, and everything that moves it.
pub(super) struct Server {
    worker: Worker<SimDriver>,
    inbox: Arc<Inbox>,
    pool: Pool,
    pool_held: bool,
    runtime: Option<LocalRuntime>,
    real_time: bool,
    needs_peer: bool,
}

/// How long an answer has been waited for.
#[derive(Default)]
pub(super) struct Waited {
    simulated: Duration,
    real: Duration,
}

impl Server {
    #[track_caller]
    pub(super) fn start(
        router: Router,
        config: &ServerConfig,
        seed: Option<u64>,
        real_time: bool,
    ) -> Self {
        restart_request_ids(seed.unwrap_or_default());
        // No closures where this may panic: the panic's place is to be the test's own line.
        let app = match router.build() {
            Ok(app) => app,
            Err(error) => panic!("{error}"),
        };
        app.served_within(&config.limits);
        let wants_runtime = app.needs_runtime() || app.keeps_time();
        let runtime = if wants_runtime { Some(runtime(real_time)) } else { None };
        let pool = Pool::deferred(usize::MAX);
        // Simulated time passes while a value waits for something real, so there is no deadline for it.
        let within = (runtime.as_ref(), Duration::MAX);
        let context = match server::context(&app, WorkerInfo::new(0, 1), &pool, within) {
            Ok(context) => context,
            Err(error) => panic!("{error}"),
        };
        let config = WorkerConfig::new(app, config);
        let needs_peer = config.needs_peers();
        let network = Network::new(seed, Faults::default(), Trace::default());
        let inbox = Inbox::new(Box::new(|| {}));
        let mut worker =
            Worker::new(SimDriver { network }, config, Arc::clone(&inbox), pool.clone())
                .with_context(context);
        worker.set_runtime(runtime.is_some());
        Server { worker, inbox, pool, pool_held: false, runtime, real_time, needs_peer }
    }

    pub(super) fn network(&mut self) -> &mut Network {
        &mut self.worker.driver_mut().network
    }

    /// Connections that are accepted from now on come from `address`, which a server looks up only for applications
    /// that ask for it.
    pub(super) fn set_peer(&mut self, address: SocketAddr) {
        self.network().peer = self.needs_peer.then_some(address);
    }

    pub(super) fn connections(&self) -> usize {
        self.worker.connections() as usize
    }

    pub(super) fn drain(&mut self) {
        self.worker.drain();
        self.settle();
    }

    pub(super) fn hold_pool(&mut self, held: bool) {
        self.pool_held = held;
        self.settle();
    }

    /// Takes turns until nothing more happens without time passing.
    pub(super) fn settle(&mut self) {
        self.settle_within(REAL_WAIT_MAX);
    }

    /// The same, where for `most` of real time tasks may be woken and nothing come of it.
    fn settle_within(&mut self, most: Duration) {
        // What a turn without events commands, because a deadline has passed, shows in the next one.
        let mut quiet_turns = 0;
        let mut moved = RealInstant::now();
        while quiet_turns < 2 {
            let has_mail = !self.inbox.park_in_driver();
            let events = self.turn();
            let has_jobs = self.pool.queued() > 0 && !self.pool_held;
            if has_jobs {
                self.pool.run_deferred();
            }
            if events > 0 || has_jobs {
                moved = RealInstant::now();
            }
            assert!(moved.elapsed() < most, "{RESTLESS}");
            let is_idle = events == 0 && !self.worker.has_backlog();
            let quiet = is_idle && !has_mail && !has_jobs && self.inbox.park_in_driver();
            quiet_turns = if quiet { quiet_turns + 1 } else { 0 };
        }
    }

    /// One turn, inside the runtime if there is one, whose tasks run as well.
    fn turn(&mut self) -> u32 {
        let Server { worker, runtime, .. } = self;
        if worker.wants_runtime() {
            *runtime = Some(self::runtime(self.real_time));
            worker.set_runtime(true);
        }
        let mut turn = || {
            let Ok(events) = worker.turn(Wait::No);
            events
        };
        match runtime {
            None => turn(),
            Some(runtime) => runtime.block_on(async {
                let events = turn();
                tokio::task::yield_now().await;
                events
            }),
        }
    }

    /// Lets `by` of simulated time pass, with everything that is due meanwhile.
    pub(super) fn advance(&mut self, by: Duration) {
        let until = self.network().now() + by;
        loop {
            self.settle();
            let left = until - self.network().now();
            if left.is_zero() {
                return;
            }
            let most = self.worker.spare_time().map_or(left, |due| due.min(left));
            // A deadline that is due now is met by the next turn, a moment later.
            let most = most.max(Duration::from_nanos(1));
            if self.real_time {
                self.worker.driver().clock().advance(most);
            } else {
                self.pass(most.min(JUMP_MAX));
            }
        }
    }

    /// Lets time pass: until a future is woken, or else to the next deadline.
    ///
    /// # Errors
    /// Why no answer is to be expected.
    pub(super) fn wait(&mut self, waited: &mut Waited) -> Result<(), &'static str> {
        let began = RealInstant::now();
        let most = match (self.worker.spare_time(), &self.runtime) {
            (Some(due), _) => due,
            (None, Some(_)) => SIMULATED_WAIT_MAX,
            (None, None) => return Err("it waits for something that nothing will bring about"),
        };
        let most_at_once = match &self.runtime {
            None => SIMULATED_WAIT_MAX,
            Some(_) if self.real_time => REAL_WAIT_MAX,
            Some(_) => JUMP_MAX,
        };
        waited.simulated += self.pass(most.min(most_at_once));
        waited.real += began.elapsed();
        if waited.real >= REAL_WAIT_MAX {
            return Err("it took more than 30 seconds");
        }
        if waited.simulated >= SIMULATED_WAIT_MAX {
            return Err(match &self.runtime {
                Some(_) => OUTSIDE,
                None => "it took more than a day of simulated time",
            });
        }
        Ok(())
    }

    /// Lets time pass on both clocks: at most this long, less if a future of a handler is woken.
    /// Returns how long it was.
    fn pass(&mut self, most: Duration) -> Duration {
        let passed = match &self.runtime {
            None => most,
            Some(runtime) => {
                let inbox = &self.inbox;
                runtime.block_on(async {
                    let began = TokioInstant::now();
                    let woken = poll_fn(|cx| match inbox.park_in_runtime(cx.waker()) {
                        true => Poll::Pending,
                        false => Poll::Ready(()),
                    });
                    // Whether it was woken or the time is up, the next turn finds out.
                    let _ = tokio::time::timeout(most, woken).await;
                    began.elapsed()
                })
            }
        };
        self.worker.driver().clock().advance(passed);
        passed
    }
}

/// A runtime like a worker's, whose clock stands still unless time is to be real.
#[track_caller]
fn runtime(real_time: bool) -> LocalRuntime {
    let mut builder = Builder::new_current_thread();
    let runtime =
        match builder.enable_all().start_paused(!real_time).build_local(Default::default()) {
            Ok(runtime) => runtime,
            Err(error) => panic!("the Tokio runtime cannot be built: {error}"),
        };
    if Handle::try_current().is_ok() && !can_block_on(&runtime) {
        // It could not be dropped here either.
        runtime.shutdown_background();
        panic!(
            "a testing client of an application with `async` handlers has a Tokio runtime of its \
             own, and cannot be used inside another one: write `#[test] fn` instead of \
             `#[tokio::test] async fn`"
        );
    }
    runtime
}

/// Whether `runtime` can run on this thread, which has entered another one. If that one runs here now, it cannot, and
/// only an attempt tells: Tokio answers with a panic, which is not shown, because ours has the remedy.
fn can_block_on(runtime: &LocalRuntime) -> bool {
    thread_local! {
        static IS_ASKING: Cell<bool> = const { Cell::new(false) };
    }
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let shown = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_ASKING.get() {
                shown(panic);
            }
        }));
    });
    IS_ASKING.set(true);
    let answer = catch_unwind(AssertUnwindSafe(|| runtime.block_on(std::future::ready(()))));
    IS_ASKING.set(false);
    answer.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a handler that yields in a loop stops the test with the reason, and does not hang it.
    #[test]
    #[should_panic(expected = "instead of yielding in a loop")]
    fn a_restless_handler_is_named() {
        async fn restless() {
            loop {
                tokio::task::yield_now().await;
            }
        }
        let router = Router::new().get("/", restless);
        let mut server = Server::start(router, &ServerConfig::default(), None, false);
        let network = server.network();
        let link = network.add(1024);
        network.connect(link);
        network.send(link, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        server.settle_within(Duration::from_millis(200));
    }
}
