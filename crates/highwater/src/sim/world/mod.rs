//! One run: its clients, its limits, and turn after turn until nothing is left to do.

mod totals;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use highwater_core::driver::Accepting;
use highwater_core::http::Limits;
use highwater_core::http1;
use highwater_core::prng::Prng;
use highwater_core::time::Instant;
use highwater_core::timer::TICK;

use super::Report;
use super::app::{Shared, app};
use super::client::Client;
use super::faults::Faults;
use super::kinds::{Kind, Kinds};
use super::link::{BUSY, Link, QUIET, Stage};
use super::listener::{LATE_MAX, Listener};
use super::network::Network;
use super::oracle::{self, Ending};
use super::runner::Runner;
use super::script;
use super::sealed::ToySealer;
use super::trace::Trace;
use super::witness::{Around, EVICTION_AGE_MIN, Watch};
use crate::admission::gate::{Bound, WorkerGate};
use crate::admission::{Fair, Shed};
use crate::app::restart_request_ids;
use crate::metrics::WorkerMetrics;
use crate::server::{ListenerTerms, Sealer, ServerConfig, WorkerConfig};

/// How long a connection counts as having work before its first request has come.
const FRESH_MAX: Duration = Duration::from_millis(100);

/// How long accepting may pause although there is room: the worker's back-off after a failure.
const ACCEPT_REST_MAX: Duration = Duration::from_millis(100);

/// The most turns in a row in which a late worker reads before it judges.
const CATCH_UP_MAX: u32 = 31;

/// With no more clients than this, no queue is so long that requests may be refused for waiting.
const CROWD: usize = 16;

/// Turns between two stops of the process, at most.
const STOP_EVERY: u64 = 400;

pub(super) struct World {
    runner: Runner<http1::Connection, Client>,
    metrics: Arc<WorkerMetrics>,
    shared: Arc<Shared>,
    /// Seals connections, if some are sealed.
    sealer: Option<Arc<ToySealer>>,
    watches: Vec<Watch>,
    plan: Plan,
    drained_at: Option<Instant>,
    /// Turns before the next stop.
    stop_in: u64,
    /// Since when a client waits to be accepted although there is room.
    waiting_since: Option<Instant>,
    /// When requests last waited for their turn.
    backlogged_at: Instant,
    /// For how many turns in a row the worker has been catching up after a late look.
    catching_up: u32,
    /// Since when a client waits although closing an idle connection could make room.
    crowded_since: Option<Instant>,
    /// All connections that are allowed were open at some time.
    is_scarce: bool,
}

/// The parameters drawn for the whole run.
#[derive(Debug)]
struct Plan {
    kinds: Kinds,
    limits: Limits,
    connections_max: u32,
    /// How many jobs may wait for the pool.
    pool_max: usize,
    /// The pool runs in one turn of this many.
    pool_one_in: u64,
    /// Drain after this many turns, and cut after this many more.
    drain_at: Option<u32>,
    cut_at: Option<u32>,
    faults: Faults,
    /// The worker has time for one request a turn: the others wait.
    defers: bool,
    shed: Shed,
    /// Connections with work, at most.
    limit: u32,
    patience: Duration,
    queue_target: Duration,
}

impl Plan {
    fn draw(prng: &mut Prng, kinds: Kinds) -> Self {
        // In half of all runs only clients misbehave.
        let stormy = prng.chance(1, 2);
        let mut pick = |choices: &[u64]| choices[prng.below(choices.len() as u64) as usize];
        let millis = Duration::from_millis;
        let limits = Limits {
            uri_max: pick(&[100, 8192]) as usize,
            header_max: pick(&[200, 16_384]) as usize,
            body_max: pick(&[1000, 1 << 20]),
            large_body: pick(&[1, 200, 32 * 1024]),
            header_timeout: millis(pick(&[1000, 10_000])),
            body_timeout: millis(pick(&[1000, 30_000])),
            body_rate_min: pick(&[0, 1, 240]) as u32,
            body_grace: millis(pick(&[500, 5000])),
            idle_timeout: millis(pick(&[1500, 60_000])),
            write_timeout: millis(pick(&[3000, 30_000])),
            half_closed_timeout: millis(pick(&[500, 5000])),
            linger_timeout: millis(pick(&[200, 2000])),
            discard_max: pick(&[2000, 256 * 1024]),
            output_max: pick(&[1000, 64 * 1024]) as usize,
            requests_max: pick(&[2, 5, u64::from(u32::MAX), u64::from(u32::MAX)]) as u32,
            ..Limits::default()
        };
        let storm = |value: u64| if stormy { value } else { 0 };
        let faults = Faults {
            reset_one_in: storm(pick(&[0, 100, 1000])),
            jump_one_in: storm(pick(&[0, 20, 300])),
            jump_max: Duration::from_secs(pick(&[1, 20, 300])),
            accept_failure_one_in: storm(pick(&[0, 5])),
            turn_micros_max: pick(&[50, 50, 10_000, 200_000]),
        };
        let drain_at = (storm(pick(&[1, 0, 0, 0])) > 0).then(|| pick(&[10, 100, 300, 1000]) as u32);
        let cut_after = pick(&[0, 5, 100, 2000]) as u32;
        Plan {
            kinds,
            limits,
            connections_max: pick(&[1, 2, 4, 100]) as u32,
            pool_max: pick(&[1, 3, 1000]) as usize,
            pool_one_in: pick(&[1, 3, 40]),
            drain_at,
            cut_at: drain_at.map(|at| at + cut_after),
            faults,
            defers: pick(&[0, 1]) > 0,
            shed: [Shed::None, Shed::None, Shed::Accept, Shed::Kernel]
                [pick(&[0, 1, 2, 3]) as usize],
            limit: pick(&[1, 2, 100]) as u32,
            patience: millis(pick(&[10, 50, 1000])),
            queue_target: Duration::from_micros(pick(&[0, 500, 10_000])),
        }
    }
}

/// How many connections `listeners` may accept beyond the room that they divide: one each while there is any, and
/// what is in transit when the part of one shrinks because others have accepted.
fn beyond(listeners: u32) -> u32 {
    if listeners == 1 { 0 } else { listeners - 1 + listeners * LATE_MAX }
}

fn gated(is_gated: bool) -> ListenerTerms {
    ListenerTerms { is_gated, ..ListenerTerms::default() }
}

/// One listener, or three. With `sealer`, every second one is sealed, from the first on.
fn listeners(are_many: bool, sealer: Option<&Arc<ToySealer>>) -> Vec<ListenerTerms> {
    let mut listeners = match are_many {
        true => vec![gated(true), gated(true), gated(false)],
        false => vec![gated(true)],
    };
    if let Some(sealer) = sealer {
        for terms in listeners.iter_mut().step_by(2) {
            terms.sealer = Some(Arc::clone(sealer) as Arc<dyn Sealer>);
        }
    }
    listeners
}

impl World {
    pub(super) fn new(seed: u64, kinds: Kinds, trace: Trace) -> Self {
        restart_request_ids(seed);
        let mut prng = Prng::from_seed(seed);
        // From another sequence, so that additional kinds change nothing else.
        let mut extra = Prng::from_seed(!seed);
        let plan = Plan::draw(&mut prng, kinds.draw(&mut extra, seed));
        trace.line(|| format!("{plan:#?}"));
        let mut network = Network::new(Some(prng.next_u64()), plan.faults, trace);
        let is_fair = plan.kinds.has(Kind::Unequal);
        let crowd = if is_fair || extra.chance(1, 16) { CROWD as u64 + extra.below(30) } else { 0 };
        let clients: Vec<Client> = (0..1 + crowd + prng.below(8))
            .map(|_| {
                let script = script::draw(&mut prng, &plan.limits, plan.kinds);
                Client::draw(&mut prng, &mut network, script)
            })
            .collect();
        for (index, client) in clients.iter().enumerate().filter(|_| is_fair) {
            network.settle(client.link, if index == 0 { QUIET } else { BUSY });
        }
        let shared = Arc::new(Shared::default());
        let app = app(Arc::clone(&shared));
        let metrics = Arc::new(WorkerMetrics::new(app.endpoints().len()));
        let bound = Bound::new(plan.limit);
        let server = ServerConfig {
            limits: plan.limits.clone(),
            patience: plan.patience,
            queue_target: plan.queue_target,
            fair: if is_fair { Fair::Address } else { Fair::Off },
            ..ServerConfig::default()
        };
        let sealer = kinds.seals(seed).then(|| Arc::new(ToySealer::default()));
        network.sealed = sealer.is_some().then(|| Prng::from_seed(seed ^ 0x5ea1));
        let listeners = listeners(plan.kinds.has(Kind::Listeners), sealer.as_ref());
        network.listen(listeners.len());
        let mut config = WorkerConfig {
            connections_max: plan.connections_max,
            listeners,
            gate: WorkerGate::new(plan.shed, &bound, (0, 1), Arc::clone(&metrics), None),
            metrics: Arc::clone(&metrics),
            ..WorkerConfig::new(app, &server)
        };
        if plan.defers {
            config.terms.turn_max = Duration::ZERO;
        }
        let stop_in = 20 + extra.below(STOP_EVERY);
        let watches = clients.iter().map(|client| Watch::new(&client.requests)).collect();
        let prngs = [prng, extra];
        let runner = Runner::new(network, config, plan.pool_max, &shared.threads, prngs, clients);
        World {
            runner,
            metrics,
            shared,
            sealer,
            watches,
            plan,
            drained_at: None,
            stop_in,
            waiting_since: None,
            backlogged_at: Instant::ZERO,
            catching_up: 0,
            crowded_since: None,
            is_scarce: false,
        }
    }

    pub(super) fn run(mut self) -> Result<Report, String> {
        while !self.runner.is_at_rest() {
            self.follow_plan();
            self.runner.act()?;
            self.turn()?;
            self.look()?;
            self.runner.end_turn()?;
        }
        self.settle()
    }

    /// Whether requests may be refused because they waited too long.
    fn may_refuse(&self) -> bool {
        matches!(self.plan.shed, Shed::Accept | Shed::Kernel) && self.runner.clients.len() > CROWD
    }

    fn is_cutting(&self) -> bool {
        self.drained_at.is_some() && self.plan.cut_at.is_some_and(|at| self.runner.turns >= at)
    }

    fn follow_plan(&mut self) {
        let is_due = self.plan.drain_at == Some(self.runner.turns);
        let is_asked = match self.plan.kinds.has(Kind::Wakes) {
            true => {
                self.shared.threads.schedule(self.runner.pool.queued(), is_due);
                self.shared.threads.take_drain()
            }
            false => is_due,
        };
        if is_asked {
            self.drained_at = Some(self.runner.network().now());
            self.runner.network().trace.line(|| "drain".into());
            self.runner.worker.drain();
            let network = &mut self.runner.worker.driver_mut().network;
            let now = network.now();
            network.look(now);
        }
        if self.is_cutting() {
            self.runner.worker.cut();
        }
    }

    /// Checks every connection, and the listener.
    fn look(&mut self) -> Result<(), String> {
        let network = &self.runner.worker.driver().network;
        let open = |link: &&Link| matches!(link.stage, Stage::Open(_));
        let connections = network.links().iter().filter(open).count() as u32;
        if connections != self.runner.worker.connections() {
            return Err(format!(
                "{connections} connections, {} known",
                self.runner.worker.connections()
            ));
        }
        let is_full = connections >= self.plan.connections_max;
        let was_full = network.open >= self.plan.connections_max as usize;
        self.is_scarce |= was_full;
        let most = self.plan.connections_max + beyond(network.listeners().len() as u32);
        if connections > most && self.drained_at.is_none() {
            return Err(format!(
                "{connections} connections, {} allowed",
                self.plan.connections_max
            ));
        }
        let around = Around {
            limits: &self.plan.limits,
            now: network.turn_at,
            threads: &self.shared.threads,
            drained_at: self.drained_at,
            is_cutting: self.is_cutting(),
            is_short: was_full || network.accept_failed,
            pool_is_bounded: self.plan.pool_max < 1000,
            pool_is_quiet: self.runner.pool.queued() == 0,
            backlogged_at: self.backlogged_at,
            is_catching_up: self.catching_up > 0 || self.runner.worker.is_catching_up(),
            is_worn_out: self.catching_up >= CATCH_UP_MAX,
            drops_hung_up: matches!(self.plan.shed, Shed::Accept | Shed::Kernel),
            defers: self.plan.defers,
            is_fair: self.plan.kinds.has(Kind::Unequal),
            sheds_after: self.may_refuse().then_some(self.plan.queue_target),
        };
        for (at, (client, watch)) in self.runner.clients.iter().zip(&mut self.watches).enumerate() {
            let link = network.link(client.link);
            let allocated = match link.stage {
                Stage::Open(id) => self.runner.worker.allocated(id),
                _ => 0,
            };
            watch
                .look(link, &client.requests, allocated, &around)
                .map_err(|what| format!("client {at}: {what}"))?;
        }
        self.look_at_listener(is_full, self.plan.connections_max.saturating_sub(connections))
    }

    /// Waiting clients are accepted if there is room, and soon if room can be made; and no more may
    /// be accepted than there is `room` for.
    fn look_at_listener(&mut self, is_full: bool, room: u32) -> Result<(), String> {
        let network = &self.runner.worker.driver().network;
        let now = network.turn_at;
        let welcome = network.welcome();
        let beyond = if room > 0 { network.listeners().len() as u32 - 1 } else { 0 };
        if welcome > room.saturating_add(beyond) && self.drained_at.is_none() {
            return Err(format!("{welcome} more may be accepted, and there is room for {room}"));
        }
        let is_shut = self.plan.shed == Shed::Accept && self.busy() >= self.plan.limit as usize;
        let listeners = network.listeners();
        let waits = |listener: &Listener| listener.waiting() > 0;
        let is_open = self.drained_at.is_none() && listeners.iter().any(waits);
        // The last of several has no gate.
        let ungated = if listeners.len() > 1 { listeners.last() } else { None };
        let behind_gate = &listeners[..listeners.len() - usize::from(ungated.is_some())];
        let rests_at =
            |listener: &Listener| waits(listener) && listener.accepting() == Accepting::Paused;
        let rests = is_open
            && !is_full
            && (!is_shut && behind_gate.iter().any(rests_at) || ungated.is_some_and(rests_at));
        let since = if rests { Some(*self.waiting_since.get_or_insert(now)) } else { None };
        self.waiting_since = since;
        if since.is_some_and(|since| now - since > ACCEPT_REST_MAX + TICK) {
            return Err("there is room, but no connection is accepted".into());
        }
        // Room is made one connection at a time, and no faster than accepting is tried again.
        let is_closing = |link: &Link| matches!(link.stage, Stage::Open(_)) && !link.is_live();
        let is_old = |(client, watch): (&Client, &Watch)| {
            let link = network.link(client.link);
            let idle = link.is_live().then(|| watch.idle_since(link, &client.requests)).flatten();
            idle.is_some_and(|since| now - since >= EVICTION_AGE_MIN)
        };
        let crowded = is_open
            && is_full
            && !network.links().iter().any(is_closing)
            && self.runner.clients.iter().zip(&self.watches).any(is_old);
        // Connections that look idle are read first.
        let crowded = crowded && self.catching_up == 0 && !self.runner.worker.is_catching_up();
        let since = if crowded { Some(*self.crowded_since.get_or_insert(now)) } else { None };
        self.crowded_since = since;
        match since.is_some_and(|since| now - since > ACCEPT_REST_MAX + TICK) {
            true => Err("a client waits, and an idle connection keeps its place".into()),
            false => Ok(()),
        }
    }

    /// Connections that may have work, as seen from outside.
    fn busy(&self) -> usize {
        let network = self.runner.network();
        let may_work = |(client, watch): &(&Client, &Watch)| {
            let link = network.link(client.link);
            let is_open = matches!(link.stage, Stage::Open(_));
            let is_fresh = network.turn_at <= link.facts.accepted_at + FRESH_MAX + TICK;
            is_open && (is_fresh || watch.idle_since(link, &client.requests).is_none())
        };
        self.runner.clients.iter().zip(&self.watches).filter(may_work).count()
    }

    /// The run has ended: checks the totals.
    fn settle(mut self) -> Result<Report, String> {
        if self.runner.worker.busy() > 0 {
            return Err("an operation is still in flight for a connection that is gone".into());
        }
        if self.shared.alive() > 0 {
            return Err(format!("{} futures or streams are left behind", self.shared.alive()));
        }
        self.check_totals()?;
        let network = &self.runner.worker.driver().network;
        let sheds = self.may_refuse();
        let mut report = Report { turns: self.runner.turns, ..Report::default() };
        for (at, (client, watch)) in self.runner.clients.iter_mut().zip(&self.watches).enumerate() {
            let link = network.link(client.link);
            let was_drained = self.drained_at.is_some();
            let ending = Ending {
                link,
                excuse: watch.excuse,
                was_drained,
                sheds,
                is_scarce: self.is_scarce,
            };
            oracle::check(client, &ending)
                .and_then(|()| oracle::check_once(client, |key| self.shared.begun(key)))
                .map_err(|what| format!("client {at}: {what}"))?;
            report.clients += 1;
            report.answers += client.reader.answers().len();
            report.resets += usize::from(link.has_left);
            report.expiries += usize::from(watch.excuse.is_some());
            report.fingerprint = report.fingerprint.rotate_left(7) ^ client.hash;
        }
        Ok(report)
    }
}
