//! What every world does, whatever the protocol: clients act, the worker takes a turn, until nothing is left to do.
//!
//! Seeds mean what they meant only if the order of draws stays as it is.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use highwater_core::driver::Wait;
use highwater_core::prng::Prng;
use highwater_core::protocol::Protocol;
use highwater_core::time::Instant;

use super::network::{Network, SimDriver};
use super::threads::{OtherThreads, Place};
use crate::server::{Inbox, Pool, Worker, WorkerConfig};

/// A run that has not ended after this many turns has failed.
const TURNS_MAX: u32 = 300_000;

/// Turns in a row that may find nothing to do without having waited.
const IDLE_TURNS_MAX: u32 = 20;

/// A worker never waits for longer than this.
pub(super) const PATIENCE_MAX: Duration = Duration::from_secs(1);

/// A simulated client.
pub(super) trait Peer {
    /// Acts once.
    ///
    /// # Errors
    /// What it received is wrong.
    fn act(&mut self, network: &mut Network, prng: &mut Prng) -> Result<(), String>;

    /// When it acts next; never, if it waits for something.
    fn next_at(&self, network: &Network) -> Instant;

    /// Whether it will do nothing more.
    fn is_gone(&self, network: &Network) -> bool;

    /// Shifts its times by `back`, because the world's time went back.
    fn go_back(&mut self, _back: Duration) {}
}

/// A worker, its clients, and the other threads of its process.
pub(super) struct Runner<P: Protocol, C> {
    pub(super) worker: Worker<SimDriver, P>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) pool: Pool,
    pub(super) threads: Arc<OtherThreads>,
    pub(super) prng: Prng,
    pub(super) clients: Vec<C>,
    /// Turns so far.
    pub(super) turns: u32,
    idle_turns: u32,
}

impl<P: Protocol, C: Peer> Runner<P, C> {
    /// A worker that serves as `config` says; its pool takes `pool_max` jobs. `others` decides what other threads do.
    pub(super) fn new(
        mut network: Network,
        config: WorkerConfig,
        pool_max: usize,
        threads: &Arc<OtherThreads>,
        [prng, others]: [Prng; 2],
        clients: Vec<C>,
    ) -> Self {
        let wake_ups = Arc::clone(&threads.wake_ups);
        let inbox = Inbox::new(Box::new(move || wake_ups.driver.store(true, SeqCst)));
        let pool = Pool::deferred(pool_max);
        threads.begin(others, Arc::clone(&inbox), pool.clone());
        network.threads = Some(Arc::clone(threads));
        let worker = Worker::new(SimDriver { network }, config, Arc::clone(&inbox), pool.clone());
        let threads = Arc::clone(threads);
        Runner { worker, inbox, pool, threads, prng, clients, turns: 0, idle_turns: 0 }
    }

    pub(super) fn network(&self) -> &Network {
        &self.worker.driver().network
    }

    pub(super) fn network_mut(&mut self) -> &mut Network {
        &mut self.worker.driver_mut().network
    }

    pub(super) fn is_at_rest(&self) -> bool {
        let network = self.network();
        self.clients.iter().all(|client| client.is_gone(network))
            && self.worker.connections() == 0
            && !self.worker.has_tasks()
            && self.pool.queued() == 0
    }

    /// Some clients act.
    pub(super) fn act(&mut self) -> Result<(), String> {
        let Runner { worker, clients, prng, .. } = self;
        let network = &mut worker.driver_mut().network;
        for _ in 0..1 + prng.below(2 * clients.len() as u64) {
            let at = prng.below(clients.len() as u64) as usize;
            clients[at].act(network, prng).map_err(|what| format!("client {at}: {what}"))?;
        }
        let next = clients.iter().map(|client| client.next_at(network)).min();
        network.client_at = next.unwrap_or(Instant::MAX);
        Ok(())
    }

    /// The worker prepares to wait in its driver, if it may. Returns how long [`Runner::turn`] waits, and whether it could
    /// have waited but has no time to.
    pub(super) fn park_in_driver(&mut self) -> (Wait, bool) {
        let may_wait = self.inbox.park_in_driver();
        let patience = if may_wait { self.plan_wait() } else { Duration::ZERO };
        let wait = match patience {
            Duration::ZERO => Wait::No,
            _ => Wait::Until(self.network().now() + patience),
        };
        self.threads.park(may_wait.then_some(Place::Driver));
        (wait, may_wait && patience.is_zero())
    }

    /// The worker plans its wait. Returns the longest time that it waits.
    pub(super) fn plan_wait(&mut self) -> Duration {
        let spare = self.worker.spare_time();
        self.network_mut().plan(spare);
        spare.unwrap_or(PATIENCE_MAX).min(PATIENCE_MAX)
    }

    /// A turn of the worker; returns the number of events. Checks that the worker counts the lost time as the world does,
    /// and that it leaves nothing unflushed: the next turn may wait.
    pub(super) fn turn(&mut self, wait: Wait) -> Result<u32, String> {
        let Ok(events) = self.worker.turn(wait);
        let (lost, stood) = (self.worker.lost(), self.network().lost);
        if lost != stood {
            return Err(format!("{stood:?} were lost, and the worker counts {lost:?}"));
        }
        if self.worker.has_unflushed() {
            return Err("a turn has ended, and something is left to flush".into());
        }
        let back = self.network_mut().take_back();
        self.clients.iter_mut().for_each(|client| client.go_back(back));
        Ok(events)
    }

    /// Checks that other threads found nothing wrong, and that the worker does not spin. A turn `is_idle` if it waited for
    /// no deadline, and nothing came.
    pub(super) fn look_at_turn(&mut self, is_idle: bool) -> Result<(), String> {
        self.idle_turns = if is_idle { self.idle_turns + 1 } else { 0 };
        if let Some(what) = self.threads.failure() {
            return Err(what);
        }
        match self.idle_turns > IDLE_TURNS_MAX {
            true => Err("the worker spins".into()),
            false => Ok(()),
        }
    }

    /// Counts a turn.
    pub(super) fn end_turn(&mut self) -> Result<(), String> {
        self.turns += 1;
        if self.turns <= TURNS_MAX {
            return Ok(());
        }
        let (tasks, jobs) = (self.worker.has_tasks(), self.pool.queued());
        let connections = self.worker.connections();
        Err(format!(
            "not at rest after {TURNS_MAX} turns: {connections} connections, {jobs} jobs, tasks: {tasks}"
        ))
    }
}
