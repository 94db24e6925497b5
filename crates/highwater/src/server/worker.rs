//! One core, one loop. Each turn has four steps, and they never interleave:
//!
//! ```text
//!   reap    the driver reports what the kernel finished            driver.poll
//!   think   connections parse, handlers run, tasks advance         on_event, run_tasks, expire
//!   flush   each touched connection hands over its output, once    flush
//!   submit  all of it enters the kernel with the next reap         driver.poll
//! ```
//!
//! The same loop runs over io_uring, epoll and the simulator. It reads the clock twice a turn, never
//! waits anywhere but in the driver, and allocates nothing for a request that is answered at once.

use std::sync::Arc;
use std::time::Duration;

use highwater_core::driver::{Accepting, Close, ConnId, Driver, Event, Reading, Then, Wait};
use highwater_core::http_date;
use highwater_core::http1::{Limits, Scratch};
use highwater_core::limit::{Standing, Turn, short_target};
use highwater_core::route::Params;
use highwater_core::time::{Clock, Instant, UnixSeconds};
use highwater_core::timer::Wheel;

use super::accept::BACKLOG;
use super::admit::{AtHand, Pace};
use super::advisor::Advisor;
use super::bounds::Bounds;
use super::context::Context;
use super::inbox::{Done, Inbox, Token};
use super::ledger::Ledger;
use super::orphans::Orphans;
use super::pool::Pool;
use super::respond::Responder;
use super::served_time::ServedTime;
use super::slot::{Demand, Slot};
use crate::admission::gate::{Load, WorkerGate};
use crate::admission::queue::Queue;
use crate::app::App;
use crate::log;
use crate::metrics::WorkerMetrics;

/// How long a `Date` is used before the wall clock is read again. It has seconds; this is enough.
const DATE_AGE_MAX: Duration = Duration::from_millis(50);

/// Turns for which a worker that has not looked at its connections for long only reads before it judges
/// any deadline, at most: enough for some ten thousand connections with something to say, each turn
/// reporting a few hundred. It ends with the first turn that finds nothing.
const CATCH_UP_TURNS: u32 = 32;

/// What a worker is made of besides its driver.
pub(crate) struct WorkerParts {
    /// The application it serves.
    pub(crate) app: App,
    /// The bounds of each connection.
    pub(crate) limits: Limits,
    /// Most connections it holds; beyond it, accepting pauses.
    pub(crate) connections_max: u32,
    /// Where it counts.
    pub(crate) metrics: Arc<WorkerMetrics>,
    /// Its side of the gate.
    pub(crate) gate: WorkerGate,
    /// For how long clients wait for an answer, and how long requests may wait for their turn while more
    /// comes than can be done.
    pub(crate) patience: Duration,
    pub(crate) queue_target: Duration,
    /// The longest deadline a client may ask for.
    pub(crate) deadline_max: Duration,
    /// How long it thinks before it looks at the kernel again.
    pub(crate) think_max: Duration,
    /// What bounds it besides.
    pub(crate) bounds: Bounds,
}

/// Serves an application over one driver, on one thread.
pub(crate) struct Worker<D: Driver> {
    pub(super) driver: D,
    pub(super) state: State<D::Clock>,
}

/// Everything but the driver, so that it can change inside the driver's callback.
pub(super) struct State<C> {
    pub(super) app: App,
    pub(super) connections_max: u32,
    pub(super) metrics: Arc<WorkerMetrics>,
    pub(super) clock: ServedTime<C>,
    pub(super) now: Instant,
    /// When the driver was last looked at: whatever had come by then has been reported. Deadlines are
    /// judged by it, so that nobody is blamed for what came while a handler took its time.
    pub(super) looked_at: Instant,
    /// Turns that may still pass before deadlines are judged again, since much may be unread.
    pub(super) catching_up: u32,
    pub(super) responder: Responder,
    date_of: UnixSeconds,
    /// When to look at the wall clock again.
    date_until: Instant,
    /// Nothing has happened in this turn yet: the clock is to be read.
    stale: bool,
    pub(super) slots: Vec<Slot>,
    touched: Vec<ConnId>,
    pub(super) scratch: Scratch,
    /// Requests are being served; whoever does it has their connection's input in hand.
    pub(super) serving: bool,
    pub(super) params: Params,
    /// The index under which requests are counted that no endpoint took.
    pub(super) unmatched: u16,
    pub(super) inbox: Arc<Inbox>,
    pub(super) pool: Pool,
    pub(super) orphans: Orphans,
    pub(super) woken: Vec<Token>,
    pub(super) done: Vec<Done>,
    /// Jobs handed to the pool so far.
    pub(super) jobs: u64,
    pub(super) wheel: Wheel,
    pub(super) advisor: Advisor,
    pub(super) ledger: Ledger,
    pub(super) gate: WorkerGate,
    /// Connections with a request that waits for its turn, and whether they are too many.
    pub(super) queue: Queue<Token>,
    pub(super) standing: Standing,
    patience: Duration,
    queue_target: Duration,
    pub(super) pace: Pace,
    pub(super) at_hand: AtHand,
    pub(super) deadline_max: Duration,
    pub(super) bounds: Bounds,
    /// Requests refused so far.
    pub(super) refusals: u32,
    /// How many connections want what.
    pub(super) load: Load,
    pub(super) accepting: Accepting,
    /// Accepting failed; try again then.
    pub(super) accept_retry: Instant,
    pub(super) connections: u32,
    /// There was no room for another connection at the end of the last turn.
    pub(super) was_full: bool,
    /// How long the listen queue may become.
    pub(super) backlog: u32,
    /// Until then, whoever is accepted may have waited outside for long.
    pub(super) suspect_until: Instant,
    /// The kernel ran out of descriptors: close what is idle.
    pub(super) evict: bool,
    pub(super) evict_after: Instant,
    /// When the next connection will have been idle for long enough to be closed for others.
    pub(super) evict_due: Instant,
    pub(super) due: Vec<u64>,
    pub(super) draining: bool,
    /// An answer that is encoded is being dropped, and with it what its handler left in it.
    pub(super) dropping: bool,
    /// Connections that wait for a future, which may be waiting for the runtime.
    pub(super) awaiting: u32,
    pub(super) context: Context,
    events: u32,
}

impl<D: Driver> Worker<D> {
    /// A worker over `driver`, which accepts from now on. `inbox` must wake that driver; `pool` runs the
    /// blocking handlers.
    pub(crate) fn new(driver: D, parts: WorkerParts, inbox: Arc<Inbox>, pool: Pool) -> Self {
        let clock = ServedTime::new(driver.clock());
        let now = clock.now();
        let unmatched = u16::try_from(parts.app.endpoints().len()).unwrap_or(u16::MAX);
        let state = State {
            app: parts.app,
            connections_max: parts.connections_max.max(1),
            metrics: parts.metrics,
            now,
            looked_at: now,
            catching_up: 0,
            responder: Responder::new(parts.limits, http_date::format(clock.unix_time())),
            date_of: clock.unix_time(),
            date_until: now,
            clock,
            stale: true,
            slots: Vec::new(),
            touched: Vec::new(),
            scratch: Scratch::default(),
            serving: false,
            params: Params::new(),
            unmatched,
            inbox,
            pool,
            orphans: Orphans::default(),
            woken: Vec::new(),
            done: Vec::new(),
            jobs: 0,
            wheel: Wheel::new(now),
            advisor: Advisor::default(),
            ledger: Ledger::default(),
            gate: parts.gate,
            queue: Queue::new(),
            standing: Standing::new(parts.patience, now),
            patience: parts.patience,
            queue_target: parts.queue_target,
            pace: Pace::new(parts.think_max),
            at_hand: AtHand::at_once(now),
            deadline_max: parts.deadline_max,
            bounds: parts.bounds,
            refusals: 0,
            load: Load::default(),
            accepting: Accepting::Paused,
            accept_retry: Instant::MAX,
            connections: 0,
            was_full: false,
            backlog: BACKLOG,
            suspect_until: Instant::ZERO,
            evict: false,
            evict_after: Instant::ZERO,
            evict_due: Instant::MAX,
            due: Vec::new(),
            draining: false,
            dropping: false,
            awaiting: 0,
            context: Context::Running,
            events: 0,
        };
        let mut worker = Worker { driver, state };
        worker.flush_accepting();
        worker
    }

    /// The driver.
    pub(crate) fn driver(&self) -> &D {
        &self.driver
    }

    /// One turn, which waits as told. Returns how many events there were.
    ///
    /// # Errors
    /// The driver itself failed; the worker cannot go on.
    pub(crate) fn turn(&mut self, wait: Wait) -> Result<u32, D::Error> {
        let state = &mut self.state;
        state.stale = true;
        state.events = 0;
        let wait = state.clock.plan(wait);
        self.driver.poll(wait, &mut |event| state.on_event(event))?;
        state.freshen();
        state.run_tasks();
        self.run_queue();
        if self.state.may_judge() {
            self.state.expire();
        }
        self.flush();
        self.state.end_turn();
        Ok(self.state.events)
    }

    /// Until when the worker may wait: until a deadline may be due.
    pub(crate) fn patience(&self) -> Wait {
        let state = &self.state;
        if self.has_backlog() {
            return Wait::No;
        }
        let wheel = state.wheel.next().unwrap_or(Instant::MAX);
        let wait = match wheel.min(state.accepting_due()) {
            Instant::MAX => Wait::Forever,
            due => Wait::Until(due),
        };
        state.clock.plan(wait); // Whoever asks may wait elsewhere than in the driver.
        wait
    }

    /// Whether more waits than can be done in time.
    #[cfg(test)]
    pub(crate) fn queue_stands(&self) -> bool {
        self.state.standing.stands()
    }

    /// How long the worker may wait from now on; `None` for ever. For those who let time pass
    /// themselves.
    pub(crate) fn spare_time(&self) -> Option<Duration> {
        match self.patience() {
            Wait::No => Some(Duration::ZERO),
            Wait::Until(due) => Some(due - self.state.clock.now()),
            Wait::Forever => None,
        }
    }

    /// Gives each touched connection's output to the driver, and says what is wanted from it.
    pub(super) fn flush(&mut self) {
        let mut touched = std::mem::take(&mut self.state.touched);
        for &id in &touched {
            self.flush_one(id);
        }
        touched.clear();
        self.state.touched = touched;
        self.state.gate.settle(self.state.load);
        self.flush_accepting();
    }

    fn flush_one(&mut self, id: ConnId) {
        self.state.count_work(id);
        if self.state.slots[id.index()].is_overcharged() {
            self.state.release_body(id);
        }
        let slot = &mut self.state.slots[id.index()];
        slot.touched = false;
        if !slot.alive || slot.closing || self.finish(id) {
            return;
        }
        let Worker { driver, state } = self;
        let slot = &mut state.slots[id.index()];
        if !slot.sending
            && !slot.ended
            && let Some((output, then)) = slot.connection.take_output(state.now)
        {
            slot.sending = true;
            slot.ended = then == Then::Close;
            state.metrics.bytes_written.add(output.len() as u64);
            driver.send(id, output, then);
        }
        if slot.ended {
            return state.arm(id); // The peer may stall; nothing else can happen.
        }
        let ends = slot.connection.is_eof();
        let wanted = match slot.connection.wants_input(&state.responder.limits) && !ends {
            true => slot.reading_wanted(),
            false => Reading::Stop,
        };
        // A fresh connection has one delivery armed; until that came there is nothing to say. But where
        // nothing more is read, the driver has to be told once, or a reset would go unnoticed (R9).
        let fresh = slot.reading == Reading::Once;
        if !fresh && (slot.reading != wanted || !slot.is_watched && wanted == Reading::Stop) {
            slot.reading = wanted;
            slot.is_watched = true;
            driver.read(id, wanted);
        }
        state.arm(id);
    }

    /// Closes a connection now. What it still had to say is lost.
    pub(super) fn close(&mut self, id: ConnId, how: Close) {
        let slot = &mut self.state.slots[id.index()];
        if slot.alive && !slot.closing {
            slot.closing = true;
            self.driver.close(id, how);
        }
    }
}

impl Load {
    /// A connection no longer wants `before` but `after`.
    pub(super) fn change(&mut self, before: Demand, after: Demand) {
        for (demand, change) in [(before, u32::MAX), (after, 1)] {
            let count = match demand {
                Demand::None => continue,
                Demand::Time => &mut self.time,
                Demand::Answer => &mut self.answers,
            };
            *count = count.wrapping_add(change); // Adding the greatest number takes one away.
        }
    }
}

impl<C: Clock> State<C> {
    /// Reads the clock between two turns.
    pub(super) fn look_again(&mut self) {
        self.stale = true;
        self.freshen();
    }

    /// Reads the clock, once a turn, when there is something to do.
    fn freshen(&mut self) {
        if self.stale {
            self.stale = false;
            self.inbox.resume();
            let look = self.clock.look();
            self.now = look.now;
            self.looked_at = look.now;
            if look.is_behind {
                self.fell_behind(look.lost);
            }
            // Those who come from a listen queue that stands are looked at one by one.
            let doubt = self.now < self.suspect_until;
            self.pace.begin(self.now, doubt || !self.queue.is_empty());
            self.at_hand = AtHand::at_once(self.now);
            self.ledger.begin(self.now);
            if self.now >= self.date_until {
                self.date_until = self.now + DATE_AGE_MAX;
                let today = self.clock.unix_time();
                if today != self.date_of {
                    self.date_of = today;
                    self.responder.date = http_date::format(today);
                }
            }
        }
    }

    /// The driver has not been looked at for long. The deadlines that clients have named go on.
    #[cold]
    fn fell_behind(&mut self, lost: Duration) {
        if self.catching_up == 0 {
            self.catching_up = CATCH_UP_TURNS;
        }
        if lost.is_zero() {
            return;
        }
        self.queue.bring_forward(lost);
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            if slot.alive && slot.deadline != Instant::MAX {
                slot.deadline = slot.deadline.checked_sub(lost).unwrap_or(Instant::ZERO);
                if slot.task_deadline != Instant::MAX {
                    slot.task_deadline = slot.task_deadline.min(slot.deadline);
                }
                self.arm(ConnId(index as u32));
            }
        }
    }

    /// Whether deadlines may be judged in this turn: not while there may be unread what would meet them.
    fn may_judge(&mut self) -> bool {
        let just_began = self.catching_up == CATCH_UP_TURNS;
        if self.catching_up > 1 && (just_began || self.events > 0) {
            self.catching_up -= 1;
            return false;
        }
        self.catching_up = 0;
        true
    }

    fn end_turn(&mut self) {
        self.app.report_panics(None); // Those that no request was known of.
        let end = self.clock.now();
        self.clock.leave(end);
        let began = self.ledger.began();
        let spent = end - began;
        self.ledger.settle(&self.metrics, end);
        self.watch_queue(began, end);
        self.pace.end(end);
        self.metrics.turn(spent, self.events);
        self.advisor.end_turn(spent);
        if let Some(advice) = self.advisor.take_advice() {
            let endpoint = self.app.endpoints().get(usize::from(advice.endpoint));
            log::warn!(
                "a handler blocks its worker, and every other connection of it",
                route = endpoint.map_or("not_found", |endpoint| endpoint.pattern()),
                took_us = u64::try_from(advice.longest.as_micros()).unwrap_or(u64::MAX),
                instead = "wrap it in blocking(…), or make it an async fn that awaits",
            );
        }
    }

    /// Looks whether what waits is too much, and has the queue and the limit act on it.
    #[inline]
    fn watch_queue(&mut self, began: Instant, ended: Instant) {
        let (started, mut refused) = self.ledger.take_counts();
        let waiting = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        let stood = self.standing.stands();
        if stood {
            refused += self.gate.take_refused();
        }
        let stands = self.standing.on_turn(&Turn { began, ended, waiting, started, refused });
        if stood || stands {
            self.follow_queue(stood, stands);
        }
        self.metrics.queue.waiting.set(u64::from(waiting));
    }

    #[cold]
    fn follow_queue(&mut self, stood: bool, stands: bool) {
        let cost = self.standing.cost().unwrap_or_default();
        let target = stands.then(|| short_target(self.queue_target, self.patience, cost));
        self.queue.set_target(target);
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let told = &self.metrics.queue;
        told.stands.set(u64::from(stands));
        told.cost_nanos.set(nanos(cost));
        told.empty_nanos.set(nanos(self.standing.empty()));
        if stood != stands {
            if stands {
                self.gate.take_refused(); // What was refused before is not held against the end.
            }
            self.gate.alarm();
        }
    }

    /// Keeps count of what the connections want.
    #[inline]
    fn count_work(&mut self, id: ConnId) {
        let slot = &mut self.slots[id.index()];
        let demand = slot.demand(self.now);
        if demand != slot.demand {
            self.load.change(slot.demand, demand);
            slot.demand = demand;
        }
    }

    #[inline]
    pub(super) fn touch(&mut self, id: ConnId) {
        let slot = &mut self.slots[id.index()];
        if !slot.touched {
            slot.touched = true;
            self.touched.push(id);
        }
    }

    fn on_event(&mut self, event: Event<'_>) {
        self.freshen();
        self.events += 1;
        match event {
            Event::Received(id, bytes) => self.receive(id, bytes),
            Event::Sent(id, buffer) => self.sent(id, buffer),
            Event::Accepted(id, peer) => self.accepted(id, peer),
            Event::Progress(id) => {
                let now = self.now;
                self.slots[id.index()].connection.on_progress(now);
            }
            Event::Eof(id) => {
                self.slots[id.index()].connection.on_eof();
                self.hung_up(id);
                self.serve_carry(id);
            }
            Event::HungUp(id) => self.hung_up(id),
            Event::Closed(id) => self.closed(id),
            Event::AcceptFailed(error) => self.accept_failed(error),
        }
    }
}
