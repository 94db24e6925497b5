//! One run: its clients, its limits, and turn after turn until nothing is left to do.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use highwater_core::driver::Wait;
use highwater_core::http::Limits;
use highwater_core::prng::Prng;
use highwater_core::time::Instant;

use super::super::faults::Faults;
use super::super::network::{Network, SimDriver};
use super::super::sealed::ToySealer;
use super::super::threads::Place;
use super::super::{Report, Trace};
use super::app::{Shared, app};
use super::client::Client;
use super::connection::Toy;
use crate::app::restart_request_ids;
use crate::metrics::WorkerMetrics;
use crate::server::{Inbox, Pool, ServerConfig, Worker, WorkerConfig};

/// A run that has not ended after this many turns has failed.
const TURNS_MAX: u32 = 200_000;

/// Turns in a row that may find nothing to do without having waited.
const IDLE_TURNS_MAX: u32 = 20;

/// A worker never waits for longer than this.
const PATIENCE_MAX: Duration = Duration::from_secs(1);

/// Requests per client, at most: their keys are apart.
const KEYS: u32 = 1000;

pub(super) struct World {
    worker: Worker<SimDriver, Toy>,
    inbox: Arc<Inbox>,
    pool: Pool,
    prng: Prng,
    metrics: Arc<WorkerMetrics>,
    shared: Arc<Shared>,
    clients: Vec<Client>,
    turns: u32,
    idle_turns: u32,
    drain_at: Option<u32>,
    cut_at: Option<u32>,
}

impl World {
    pub(super) fn new(seed: u64, is_sealed: bool, trace: Trace) -> Self {
        restart_request_ids(seed);
        let mut prng = Prng::from_seed(seed ^ 0x5eed_0f57_2ea3);
        let is_stormy = prng.chance(1, 2);
        let mut pick = |choices: &[u64]| choices[prng.below(choices.len() as u64) as usize];
        let faults = Faults {
            reset_one_in: if is_stormy { pick(&[0, 300]) } else { 0 },
            turn_micros_max: pick(&[50, 2000]),
            ..Faults::default()
        };
        let limits = Limits {
            body_timeout: Duration::from_secs(pick(&[20, 60])),
            output_max: pick(&[1000, 64 * 1024]) as usize,
            write_timeout: Duration::from_secs(300),
            half_closed_timeout: Duration::from_secs(300),
            body_rate_min: 0,
            ..Limits::default()
        };
        let drain_at = is_stormy.then(|| pick(&[0, 0, 200, 600]) as u32).filter(|&at| at > 0);
        let cut_at = drain_at.map(|at| at + pick(&[50, 100_000]) as u32);
        let (defers, pool_max) = (pick(&[0, 1]) > 0, 1000);
        let mut network = Network::new(Some(prng.next_u64()), faults, trace);
        let clients = (0..1 + prng.below(4) as u32)
            .map(|n| Client::draw(&mut prng, &mut network, n * KEYS))
            .collect();
        let shared = Arc::new(Shared::default());
        let app = app(Arc::clone(&shared));
        let config = ServerConfig { limits, ..ServerConfig::default() };
        let mut config = WorkerConfig::new(app, &config);
        if is_sealed {
            network.sealed = Some(Prng::from_seed(seed ^ 0x5ea1));
            config.listeners[0].sealer = Some(Arc::new(ToySealer::default()));
        }
        if defers {
            config.terms.turn_max = Duration::ZERO; // One request a turn: the others wait.
        }
        let metrics = Arc::clone(&config.metrics);
        let wake_ups = Arc::clone(&shared.threads.wake_ups);
        let inbox = Inbox::new(Box::new(move || wake_ups.driver.store(true, SeqCst)));
        let pool = Pool::deferred(pool_max);
        shared.threads.begin(Prng::from_seed(!seed), Arc::clone(&inbox), pool.clone());
        network.threads = Some(Arc::clone(&shared.threads));
        let worker = Worker::new(SimDriver { network }, config, Arc::clone(&inbox), pool.clone());
        World {
            worker,
            inbox,
            pool,
            prng,
            metrics,
            shared,
            clients,
            turns: 0,
            idle_turns: 0,
            drain_at,
            cut_at,
        }
    }

    pub(super) fn run(mut self) -> Result<Report, String> {
        while !self.is_at_rest() {
            if self.drain_at == Some(self.turns) {
                self.worker.drain();
            }
            if self.cut_at == Some(self.turns) {
                self.worker.cut();
            }
            self.act()?;
            self.turn()?;
            self.look()?;
            self.turns += 1;
            if self.turns > TURNS_MAX {
                return Err(format!("not at rest after {TURNS_MAX} turns"));
            }
        }
        self.settle()
    }

    fn network(&self) -> &Network {
        &self.worker.driver().network
    }

    fn is_at_rest(&self) -> bool {
        let network = self.network();
        self.clients.iter().all(|client| client.is_gone(network))
            && self.worker.connections() == 0
            && !self.worker.has_tasks()
            && self.pool.queued() == 0
    }

    fn act(&mut self) -> Result<(), String> {
        let World { worker, clients, prng, shared, pool, .. } = self;
        shared.threads.schedule(pool.queued(), false);
        let network = &mut worker.driver_mut().network;
        for _ in 0..1 + prng.below(2 * clients.len() as u64) {
            let at = prng.below(clients.len() as u64) as usize;
            clients[at].act(network, prng).map_err(|what| format!("client {at}: {what}"))?;
        }
        let next = clients.iter().map(|client| client.next_at(network)).min();
        network.client_at = next.unwrap_or(Instant::MAX);
        Ok(())
    }

    fn turn(&mut self) -> Result<(), String> {
        let had_backlog = self.worker.has_backlog();
        let may_wait = self.inbox.park_in_driver();
        let spare = if may_wait { self.worker.spare_time() } else { Some(Duration::ZERO) };
        let patience = spare.unwrap_or(PATIENCE_MAX).min(PATIENCE_MAX);
        let wait = match patience {
            Duration::ZERO => Wait::No,
            _ => Wait::Until(self.network().now() + patience),
        };
        self.shared.threads.park(may_wait.then_some(Place::Driver));
        let Ok(events) = self.worker.turn(wait);
        self.shared.threads.park(None);
        let is_idle = may_wait && patience.is_zero() && events == 0 && !had_backlog;
        self.idle_turns = if is_idle { self.idle_turns + 1 } else { 0 };
        if self.idle_turns > IDLE_TURNS_MAX {
            return Err("the worker spins".into());
        }
        self.shared.threads.failure().map_or(Ok(()), Err)
    }

    /// Checks what handlers have noted.
    fn look(&self) -> Result<(), String> {
        let (network, notes) = (self.network(), self.shared.notes());
        if let Some(what) = &notes.failure {
            return Err(what.clone());
        }
        for &key in &notes.told {
            let has_gone = self.clients.iter().find_map(|client| client.has_gone(network, key));
            if has_gone != Some(true) {
                return Err(format!("{key} was told that its client has gone, and it has not"));
            }
        }
        Ok(())
    }

    /// The run has ended: checks what is left, and the totals.
    fn settle(self) -> Result<Report, String> {
        if self.worker.busy() > 0 {
            return Err("an exchange of a connection that is gone is busy".into());
        }
        if self.shared.alive() > 0 {
            return Err(format!("{} futures or streams are left behind", self.shared.alive()));
        }
        let (network, notes) = (self.network(), self.shared.notes());
        if notes.waiting != notes.told {
            return Err("a handler was not told that its client has gone".into());
        }
        let metrics = &self.metrics;
        if metrics.in_flight.get() != 0 || metrics.connections_active.get() != 0 {
            return Err("requests or connections are counted that are gone".into());
        }
        if metrics.bytes_read.get() != network.delivered {
            return Err("bytes read are counted wrongly".into());
        }
        let mut report = Report { turns: self.turns, ..Report::default() };
        let is_cut = self.cut_at.is_some_and(|at| at <= self.turns);
        let begun = |key| notes.begun.get(&key).copied().unwrap_or(0);
        for (at, client) in self.clients.iter().enumerate() {
            let answers = client.settle(network, is_cut, begun);
            report.answers += answers.map_err(|what| format!("client {at}: {what}"))?;
            report.clients += 1;
            report.resets += usize::from(client.is_excused(network));
            report.fingerprint = report.fingerprint.rotate_left(7) ^ client.hash;
        }
        Ok(report)
    }
}
