//! One run: its clients, its limits, and turn after turn until nothing is left to do.

use std::sync::Arc;
use std::time::Duration;

use highwater_core::http::{Http2Limits, Limits};
use highwater_core::prng::Prng;
use highwater_core::protocol::Protocol;

use super::super::faults::Faults;
use super::super::network::Network;
use super::super::runner::Runner;
use super::super::sealed::ToySealer;
use super::super::{Report, Trace};
use super::app::{Shared, app};
use super::client::Client;
use super::wire::Wire;
use crate::app::restart_request_ids;
use crate::metrics::WorkerMetrics;
use crate::server::{ServerConfig, WorkerConfig};

/// Requests per client, at most: their keys are apart.
const KEYS: u32 = 1000;

pub(super) struct World<P: Protocol> {
    runner: Runner<P, Client>,
    metrics: Arc<WorkerMetrics>,
    shared: Arc<Shared>,
    drain_at: Option<u32>,
    cut_at: Option<u32>,
}

impl<P: Protocol> World<P> {
    /// A run of `seed` whose clients speak by what `wire` makes.
    pub(super) fn new(seed: u64, is_sealed: bool, wire: impl Fn() -> Wire, trace: Trace) -> Self {
        restart_request_ids(seed);
        let mut prng = Prng::from_seed(seed ^ 0x5eed_0f57_2ea3);
        let is_stormy = prng.chance(1, 2);
        let mut pick = |choices: &[u64]| choices[prng.below(choices.len() as u64) as usize];
        let faults = Faults {
            reset_one_in: if is_stormy { pick(&[0, 300]) } else { 0 },
            turn_micros_max: pick(&[50, 2000]),
            ..Faults::default()
        };
        let http2 = Http2Limits {
            connection_window: pick(&[0, 512 * 1024]) as u32,
            ..Http2Limits::default()
        };
        let limits = Limits {
            http2,
            body_timeout: Duration::from_secs(pick(&[20, 60])),
            output_max: pick(&[1000, 64 * 1024]) as usize,
            write_timeout: Duration::from_secs(300),
            half_closed_timeout: Duration::from_secs(300),
            body_rate_min: 0,
            ..Limits::default()
        };
        let drain_at = is_stormy.then(|| pick(&[0, 0, 200, 600]) as u32).filter(|&at| at > 0);
        let cut_at = drain_at.map(|at| at + pick(&[50, 100_000]) as u32);
        let defers = pick(&[0, 1]) > 0;
        let mut network = Network::new(Some(prng.next_u64()), faults, trace);
        let clients = (0..1 + prng.below(4) as u32)
            .map(|n| Client::draw(&mut prng, &mut network, n * KEYS, wire()))
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
        let prngs = [prng, Prng::from_seed(!seed)];
        let runner = Runner::new(network, config, 1000, &shared.threads, prngs, clients);
        World { runner, metrics, shared, drain_at, cut_at }
    }

    pub(super) fn run(mut self) -> Result<Report, String> {
        while !self.runner.is_at_rest() {
            if self.drain_at == Some(self.runner.turns) {
                self.runner.worker.drain();
            }
            if self.cut_at == Some(self.runner.turns) {
                self.runner.worker.cut();
            }
            self.shared.threads.schedule(self.runner.pool.queued(), false);
            self.runner.act()?;
            self.turn()?;
            self.look()?;
            self.runner.end_turn()?;
        }
        self.settle()
    }

    fn turn(&mut self) -> Result<(), String> {
        let had_backlog = self.runner.worker.has_backlog();
        let (wait, has_no_time) = self.runner.park_in_driver();
        let events = self.runner.turn(wait)?;
        self.shared.threads.park(None);
        self.runner.look_at_turn(has_no_time && events == 0 && !had_backlog)
    }

    /// Checks what handlers have noted.
    fn look(&self) -> Result<(), String> {
        let (network, notes) = (self.runner.network(), self.shared.notes());
        if let Some(what) = &notes.failure {
            return Err(what.clone());
        }
        for &key in &notes.notified {
            let has_gone =
                self.runner.clients.iter().find_map(|client| client.has_gone(network, key));
            if has_gone != Some(true) {
                return Err(format!("{key} was told that its client has gone, and it has not"));
            }
        }
        Ok(())
    }

    /// The run has ended: checks what is left, and the totals.
    fn settle(self) -> Result<Report, String> {
        if self.runner.worker.busy() > 0 {
            return Err("an exchange of a connection that is gone is busy".into());
        }
        if self.shared.alive() > 0 {
            return Err(format!("{} futures or streams are left behind", self.shared.alive()));
        }
        let (network, notes) = (self.runner.network(), self.shared.notes());
        if notes.waiting != notes.notified {
            return Err("a handler was not told that its client has gone".into());
        }
        let metrics = &self.metrics;
        if metrics.in_flight.get() != 0 || metrics.connections_active.get() != 0 {
            return Err("requests or connections are counted that are gone".into());
        }
        if metrics.bytes_read.get() != network.delivered {
            return Err("bytes read are counted wrongly".into());
        }
        let mut report = Report { turns: self.runner.turns, ..Report::default() };
        let is_cut = self.cut_at.is_some_and(|at| at <= self.runner.turns);
        let begun = |key| notes.begun.get(&key).copied().unwrap_or(0);
        for (at, client) in self.runner.clients.iter().enumerate() {
            let answers = client.settle(network, is_cut, begun);
            report.answers += answers.map_err(|what| format!("client {at}: {what}"))?;
            report.clients += 1;
            report.resets += usize::from(client.is_excused(network));
            report.fingerprint = report.fingerprint.rotate_left(7) ^ client.hash;
        }
        Ok(report)
    }
}
