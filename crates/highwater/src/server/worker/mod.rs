//! One core, one loop. Each turn has four steps, and they never interleave:
//!
//! ```text
//!   reap    the driver reports what the kernel finished            driver.poll
//!   think   connections parse, handlers run, tasks advance         on_event, run_tasks, run_queue, expire
//!   flush   each touched connection hands over its output, once    flush
//!           what that has already done is reported                 driver.report_done
//!           the gate and the listeners follow                      settle
//!   submit  all of it enters the kernel with the next reap         driver.poll
//! ```
//!
//! A worker is a driver, its connections, and parts that each own their state:
//!
//! ```text
//!  Worker ─┬─ driver
//!          ├─ app            what is served
//!          ├─ connections    channel, protocol and exchanges of each    connections, channel, exchange
//!          ├─ parsing        working memory for one request
//!          ├─ acceptor       how many connections are let in            accept, eviction
//!          ├─ agenda         what is flushed, what is due               connections, cork
//!          └─ parts ─┬─ turn         what time it is, what was done     turn, served_time, statistics, blocking
//!                    ├─ admission    what is served                     crate::admission::worker
//!                    ├─ tasks        what was woken, the pool           tasks, inbox, handover, detached, runtime
//!                    ├─ encoder      responses into bytes               encode
//!                    └─ body_memory  how much memory bodies use         body_memory, upload
//! ```
//!
//! `events` handles what the driver reports, `flush` gives the driver its commands. Code for one connection
//! gets it and its exchanges as a [`ConnectionMut`](serve::ConnectionMut), code for one exchange that exchange and
//! its stream as an [`ExchangeMut`](serve::ExchangeMut). A part returns what it decides; no decision is passed
//! through a field.
//!
//! A worker is made for one protocol `P` ([`Protocol`]): HTTP/1 in a server, another one in the simulator.
//!
//! The same loop runs over io_uring, epoll and the simulator. It never waits anywhere but in the driver, and
//! allocates nothing for a request that is answered at once.

mod accept;
#[cfg(test)]
mod allocations;
mod blocking;
mod body_memory;
mod channel;
mod connections;
mod cork;
mod detached;
mod encode;
mod events;
mod eviction;
mod exchange;
mod flush;
#[cfg(test)]
mod gated;
mod handover;
mod inbox;
#[cfg(feature = "sim")]
mod inspect;
mod large_body;
mod protocol;
mod readiness;
mod run;
mod runtime;
mod serve;
mod served_time;
mod shares;
mod statistics;
mod sync;
mod tasks;
mod turn;
mod upload;
mod waiting;
mod woken;

use std::rc::Rc;
use std::sync::Arc;

use highwater_core::driver::{Accepting, Close, ConnId, Driver, Wait};
use highwater_core::http::Limits;
use highwater_core::time::{Clock, Instant};

use self::accept::Acceptor;
use self::connections::{Agenda, Connection, Connections};
use self::encode::Encoder;
use self::exchange::Item;
use self::protocol::{Http, Protocol};
use self::tasks::Tasks;
use self::turn::Turn;
use self::waiting::SpareRecords;
use super::config::ServerConfig;
use super::pool::Pool;
use crate::admission::client::Clients;
use crate::admission::gate::WorkerGate;
use crate::admission::per_client::PerClient;
use crate::admission::worker::{Terms, WorkerAdmission};
use crate::app::{App, Routed, WorkerContext};
use crate::body_memory::BodyMemory;
use crate::metrics::{Timeout, WorkerMetrics};
use crate::proxies::TrustedProxies;

pub(in crate::server) use self::accept::BACKLOG;
pub(crate) use self::accept::ListenerTerms;
pub(crate) use self::channel::Sealer;
#[cfg(any(feature = "sim", feature = "tls"))]
pub(crate) use self::channel::{Opened, Seal};
pub(in crate::server) use self::eviction::Eviction;
pub(crate) use self::inbox::Inbox;
pub(crate) use self::run::{Around, context};
pub(in crate::server) use self::run::{Phase, serve as run};

/// The parts of a worker besides its driver.
pub(crate) struct WorkerConfig {
    /// The application it serves.
    pub(crate) app: App,
    /// The bounds of each connection.
    pub(crate) limits: Limits,
    /// Most connections it holds; beyond it, accepting pauses.
    pub(crate) connections_max: u32,
    /// The listeners of its driver.
    pub(crate) listeners: Vec<ListenerTerms>,
    /// Its metrics.
    pub(crate) metrics: Arc<WorkerMetrics>,
    /// Its side of the gate.
    pub(crate) gate: WorkerGate,
    /// How requests are admitted.
    pub(crate) terms: Terms,
    /// The memory for bodies, which it shares with the server's other workers.
    pub(crate) body_memory: BodyMemory,
    /// Which connections are closed when there is no room for another.
    pub(crate) eviction_policy: Eviction,
    /// Who may name the client of a request.
    pub(crate) proxies: TrustedProxies,
    /// How many connections a client may have, counted with the server's other workers; `None` for any number.
    pub(crate) per_client: Option<PerClient>,
}

impl WorkerConfig {
    /// A worker that serves `app` as `config` says, as the only one of its server and without a gate.
    pub(crate) fn new(app: App, config: &ServerConfig) -> Self {
        let metrics = Arc::new(WorkerMetrics::new(app.endpoints().len()));
        let mut limits = config.limits.clone();
        limits.http2.extended_connect = app.takes_connect();
        WorkerConfig {
            app,
            limits,
            connections_max: config.connections_max.unwrap_or(u32::MAX),
            listeners: vec![ListenerTerms::default()],
            metrics,
            gate: WorkerGate::open(),
            terms: config.terms(),
            body_memory: config.body_memory_max.map_or_else(BodyMemory::default, BodyMemory::new),
            eviction_policy: Eviction::Idle,
            proxies: config.trusted_proxies.clone(),
            per_client: config.per_client(),
        }
    }

    /// Whether the worker needs to know who connects.
    pub(crate) fn needs_peers(&self) -> bool {
        self.app.needs_peer() || !self.proxies.is_empty() || self.per_client.is_some()
    }
}

/// Serves an application over one driver, on one thread.
pub(crate) struct Worker<D: Driver, P: Protocol = Http> {
    driver: D,
    state: WorkerState<D::Clock, P>,
}

/// Everything of a worker but its driver, so that it can change while the driver reports.
struct WorkerState<C, P: Protocol> {
    app: App,
    connections: Connections<P>,
    parsing: Parsing<P::Scratch>,
    parts: Parts<C>,
    acceptor: Acceptor,
    agenda: Agenda,
    eviction_policy: Eviction,
    /// When the application's end-of-turn hooks are to be called again.
    hook_due: Instant,
}

/// Working memory for parsing and routing one request, and for those that wait.
#[derive(Default)]
struct Parsing<S> {
    scratch: S,
    routed: Routed,
    spare: SpareRecords,
}

/// The state that the exchanges of a worker share.
struct Parts<C> {
    metrics: Arc<WorkerMetrics>,
    turn: Turn<C>,
    admission: WorkerAdmission<Item>,
    tasks: Tasks,
    encoder: Encoder,
    body_memory: BodyMemory,
    clients: Clients,
    per_client: Option<PerClient>,
    context: Option<Rc<WorkerContext>>,
    /// The index under which requests without a matching endpoint are counted.
    unmatched: u16,
}

impl<D: Driver, P: Protocol> Worker<D, P> {
    /// A worker over `driver`, which accepts from now on. `inbox` must wake that driver; `pool` runs the
    /// blocking handlers.
    pub(crate) fn new(driver: D, config: WorkerConfig, inbox: Arc<Inbox>, pool: Pool) -> Self {
        let state = WorkerState::new(Turn::new(driver.clock()), config, inbox, pool);
        let mut worker = Worker { driver, state };
        worker.flush_accepting();
        worker
    }

    /// Adds the application's state for this worker.
    pub(crate) fn with_context(mut self, context: Option<Rc<WorkerContext>>) -> Self {
        self.state.parts.context = context;
        self
    }

    /// Runs one turn, which waits as `wait` says. Returns the number of events.
    ///
    /// # Errors
    /// The driver itself failed; the worker cannot go on.
    pub(crate) fn turn(&mut self, wait: Wait) -> Result<u32, D::Error> {
        let Worker { driver, state } = self;
        let _entered = state.parts.context.as_ref().map(WorkerContext::enter);
        let wait = state.parts.turn.begin(wait);
        driver.poll(wait, &mut |event| state.on_event(event))?;
        state.freshen();
        if state.parts.admission.times_input() {
            state.end_input();
        }
        if !state.agenda.collecting.is_empty() {
            state.take_bodies(driver);
        }
        state.run_tasks();
        self.run_queue();
        if self.state.parts.turn.may_judge() {
            self.state.expire();
        }
        self.flush();
        self.follow_flush();
        self.settle();
        self.state.end_turn();
        Ok(self.state.parts.turn.events())
    }

    /// How long the worker may wait: until a deadline may be due.
    pub(crate) fn waits(&self) -> Wait {
        let WorkerState { acceptor, agenda, hook_due, parts, .. } = &self.state;
        let Parts { admission, turn, .. } = parts;
        if self.has_backlog() {
            return Wait::No;
        }
        let due = agenda.next().min(acceptor.due(&admission.gate, turn.now)).min(*hook_due);
        let wait = match due {
            Instant::MAX => Wait::Forever,
            due => Wait::Until(due),
        };
        turn.clock.plan(wait); // The worker may wait elsewhere than in the driver.
        wait
    }

    /// Whether requests wait in the queue, unread input may wait, or answers wait that need not.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.state.parts.admission.is_queue_empty()
            || self.is_catching_up()
            || self.has_loose_corks()
    }

    /// Whether answers wait for others although no queue stands any more.
    fn has_loose_corks(&self) -> bool {
        let WorkerState { agenda, parts, .. } = &self.state;
        !agenda.corks.is_empty() && !parts.admission.stands()
    }

    /// Whether the worker was kept from running for long, and so reads input before it judges deadlines.
    pub(crate) fn is_catching_up(&self) -> bool {
        self.state.parts.turn.is_catching_up()
    }

    /// Stops accepting, and ends every connection after the answer in progress.
    pub(crate) fn drain(&mut self) {
        let Worker { driver, state } = self;
        if !state.acceptor.drain() {
            return;
        }
        state.parts.admission.gate.drain();
        state.app.drain();
        state.parts.turn.expire();
        state.freshen();
        let WorkerState { acceptor, connections, parts, agenda, .. } = state;
        for id in connections.ids() {
            let connection = connections.get_mut(id);
            if connection.is_open {
                connection.drain(parts.turn.now);
                agenda.touch(id, connection);
            }
        }
        let is_short = acceptor.restore_backlog();
        for listener in acceptor.ids() {
            if is_short {
                driver.backlog(listener, BACKLOG);
            }
            driver.accept(listener, Accepting::Closed);
        }
        self.flush();
        self.arm_sending();
        self.settle();
    }

    /// Whether draining has finished: nothing is left to do.
    pub(crate) fn is_drained(&self) -> bool {
        let WorkerState { acceptor, parts, .. } = &self.state;
        let has_work = !parts.tasks.detached.is_empty()
            || parts.tasks.detached_jobs > 0
            || parts.metrics.sockets.are_leaving();
        acceptor.is_draining() && acceptor.count() == 0 && !has_work
    }

    /// Cuts every connection that is left. Returns how many of them were not answered to the end.
    pub(crate) fn cut(&mut self) -> u64 {
        let alive = self.state.connections.alive();
        let owed = |connection: &Connection<P>| !connection.link.is_lingering();
        let alive: Vec<(ConnId, bool)> = alive.map(|(id, at)| (id, owed(at))).collect();
        for (id, _) in &alive {
            self.state.parts.metrics.timeout(Timeout::Drain);
            self.close(*id, Close::Reset);
        }
        alive.iter().filter(|(_, owed)| *owed).count() as u64
    }

    /// Starts queued requests until the turn budget is used up; at least one.
    fn run_queue(&mut self) {
        let Worker { driver, state } = self;
        if state.parts.admission.is_queue_empty() {
            return;
        }
        if state.parts.admission.needs_order() {
            state.order_queue(driver);
        }
        let mut looked_at = 0;
        state.parts.turn.look();
        state.parts.admission.begin_queue(state.parts.turn.now);
        while !state.parts.admission.is_queue_empty() {
            state.parts.turn.look();
            let now = state.parts.turn.now;
            if state.parts.admission.is_turn_over(now) && looked_at > 0 {
                break;
            }
            let connections = &state.connections;
            let hung_up_at = |waiting: &Item| connections.hung_up_at(waiting.exchange());
            let next = state.parts.admission.next(now, hung_up_at);
            let Some((entry, refuse)) = next else { break };
            let Some(mut at) = state.named(entry.item.exchange()) else { continue }; // It is closed.
            looked_at += 1;
            if at.gives_up(&entry, driver) {
                continue;
            }
            match entry.item {
                Item::Exchange(_) => at.resume(&entry, refuse),
                Item::Handshake(_) => at.resume_handshake(&entry, refuse),
            }
        }
        state.parts.admission.end_queue();
    }
}

impl<C: Clock, P: Protocol> WorkerState<C, P> {
    fn new(turn: Turn<C>, config: WorkerConfig, inbox: Arc<Inbox>, pool: Pool) -> Self {
        let (now, today) = (turn.now, turn.clock.unix_time());
        let unmatched = u16::try_from(config.app.endpoints().len()).unwrap_or(u16::MAX);
        let parts = Parts {
            metrics: config.metrics,
            turn,
            admission: WorkerAdmission::new(config.gate, config.terms, now),
            tasks: Tasks::new(inbox, pool),
            encoder: Encoder::new(config.limits, now, today),
            body_memory: config.body_memory,
            clients: Clients::behind(config.proxies),
            per_client: config.per_client,
            context: None,
            unmatched,
        };
        WorkerState {
            app: config.app,
            connections: Connections::default(),
            parsing: Parsing::default(),
            parts,
            acceptor: Acceptor::new(config.connections_max, config.listeners),
            agenda: Agenda::new(now),
            eviction_policy: config.eviction_policy,
            hook_due: Instant::MAX,
        }
    }
}
