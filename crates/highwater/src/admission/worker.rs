//! Which requests does a worker serve?
//!
//! Only this module decides that. The worker calls it before it starts a request, and again once the
//! request's head is parsed:
//!
//! ```text
//!  input ─▶ is the turn budget used up, or do others wait? ─▶ Wait      admit_now, enqueue
//!             │no                                               │ next
//!             ▼                                                 ▼
//!  head  ─▶ over the limit? past its deadline? route full? ─▶ Refuse(reason)      judge
//!             │no
//!             ▼
//!           Serve(grant)
//! ```
//!
//! At the end of each turn the worker reports the demand of its connections. From that this module determines
//! whether there is a standing queue (`core::limit::Standing`), shortens the waiting time if so, and updates the
//! gate.
//!
//! Never here: a socket, a connection, the application. Requests are named by an id of type `T`; the rules of
//! a request's route are an argument.

use std::time::Duration;

use highwater_core::limit::{ClientKey, Standing, Turn};
use highwater_core::time::Instant;

use super::budget::TurnBudget;
pub(crate) use super::demand::Demand;
use super::gate::{Load, WorkerGate};
use super::handshakes::Handshakes;
use super::queue::{Capacity, Class, Entry, Leave, Queue};
pub(crate) use super::verdict::{Arrival, Grant, Rules, Verdict};
use crate::metrics::{Rejection, WorkerMetrics};

/// How often the clients with accounts are counted, for a metric: that looks at all accounts.
const ACCOUNTS_INTERVAL: Duration = Duration::from_millis(100);

/// While the queue grows, its part of a turn lasts as long as input took, up to so many times [`TURN_MAX`](super::TURN_MAX).
/// Longer turns would only bring more input at once. Once the queue stands, reading on keeps the waits of those who are
/// refused short. A guess.
const INPUT_TURNS: u32 = 16;

/// The settings of a worker's admission.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// For how long clients wait for an answer.
    pub(crate) patience: Duration,
    /// How long requests may wait in the queue during overload.
    pub(crate) queue_target: Duration,
    /// The longest deadline a client may ask for.
    pub(crate) deadline_max: Duration,
    /// The time of one turn.
    pub(crate) turn_max: Duration,
    /// Whether a request that is refused for load ends its connection.
    pub(crate) refuse_close: bool,
    /// Whether each client gets its share while the queue stands or is out of order.
    pub(crate) is_fair: bool,
}

/// A worker's side of admission. `T` names a request that waits.
#[derive(Debug)]
pub(crate) struct WorkerAdmission<T> {
    pub(crate) gate: WorkerGate,
    queue: Queue<T>,
    budget: TurnBudget,
    /// Requests waited when the turn began; and for how long it then took in more before it could start one of them.
    begins_with_queue: bool,
    input: Duration,
    handshakes: Handshakes,
    standing: Standing,
    /// How many connections and exchanges have each demand.
    load: Load,
    /// It has changed since it was reported.
    load_has_changed: bool,
    terms: Terms,
    /// Requests refused so far.
    refusals: u32,
    /// Requests taken from the queue in this turn that their clients had given up.
    abandoned: u32,
    /// When the clients with accounts are counted again.
    accounts_due: Instant,
}

impl<T> WorkerAdmission<T> {
    pub(crate) fn new(gate: WorkerGate, terms: Terms, now: Instant) -> Self {
        WorkerAdmission {
            gate,
            queue: Queue::new().with_shares(terms.is_fair, terms.patience / 2),
            budget: TurnBudget::new(terms.turn_max),
            begins_with_queue: false,
            input: Duration::ZERO,
            handshakes: Handshakes::new(now),
            standing: Standing::new(terms.queue_target, terms.patience, now),
            load: Load::default(),
            load_has_changed: false,
            terms,
            refusals: 0,
            abandoned: 0,
            accounts_due: now,
        }
    }

    /// The longest deadline a client may ask for.
    pub(crate) fn deadline_max(&self) -> Duration {
        self.terms.deadline_max
    }

    /// A turn begins. With `is_doubtful` each request is checked, since its client may have disconnected.
    #[inline]
    pub(crate) fn begin_turn(&mut self, now: Instant, is_doubtful: bool) {
        self.begins_with_queue = !self.queue.is_empty();
        self.budget.begin(now, is_doubtful || self.begins_with_queue);
    }

    /// Whether requests waited when the turn began: then none was started while input was read, and that is timed.
    #[inline]
    pub(crate) fn times_input(&self) -> bool {
        self.begins_with_queue
    }

    /// Input was read until `now`, for which the worker did not wait.
    #[cold]
    pub(crate) fn end_input(&mut self, now: Instant) {
        self.input = now - self.budget.ended();
        self.standing.on_input(self.input);
    }

    // ---- before a request is started

    /// Whether a request may be started without a further check. Nearly always.
    #[inline]
    pub(crate) fn admits_at_once(&self) -> bool {
        !self.budget.is_used_up()
    }

    /// Whether a request may be started at `now`, as nothing waits and the turn has time left.
    pub(crate) fn has_time(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.queue.is_empty() && self.budget.has_time(now())
    }

    /// Whether a request that comes now is refused at once: there is a standing queue, and it holds as many of its
    /// class and above as can be refused in the time that they may wait.
    pub(crate) fn is_full(&self, class: Class, client: impl FnOnce() -> Option<ClientKey>) -> bool {
        let has_bound = self.standing.stands() && self.gate.sheds();
        has_bound && self.queue.is_full(class, client, self.places())
    }

    /// How many requests can be started within the short target.
    fn places(&self) -> usize {
        let cost = self.standing.cost().unwrap_or_default();
        let places = nanos(self.standing.short_target()) / nanos(cost).max(1);
        usize::try_from(places).unwrap_or(usize::MAX).saturating_add(1)
    }

    /// Whether there is a standing queue.
    pub(crate) fn stands(&self) -> bool {
        self.standing.stands()
    }

    /// For how long clients wait for an answer.
    pub(crate) fn patience(&self) -> Duration {
        self.terms.patience
    }

    /// Whether a request that is refused for load ends its connection.
    pub(crate) fn refuse_close(&self) -> bool {
        self.terms.refuse_close
    }

    /// A request waits from now on.
    pub(crate) fn enqueue(&mut self, class: Class, entry: Entry<T>) {
        self.queue.push(class, entry);
    }

    /// A request is started or refused: it counts against the turn's budget.
    #[inline]
    pub(crate) fn count(&mut self) {
        self.budget.count();
    }

    /// The verdict about a request whose head is known. `has_deadline` and `is_limited` say whether its head
    /// names a deadline and its route has a limit; `rules` and `deadline` are called only if the verdict
    /// depends on them.
    #[inline]
    pub(crate) fn judge<'a>(
        &self,
        arrival: &Arrival,
        now: Instant,
        (has_deadline, is_limited): (bool, bool),
        rules: impl FnOnce() -> Rules<'a>,
        deadline: impl FnOnce(Instant) -> Instant,
    ) -> Verdict {
        if !(arrival.refuse.is_some() || self.gate.over() || has_deadline || is_limited) {
            return Verdict::Serve(Grant { deadline: Instant::MAX, permit: None });
        }
        self.judge_closely(arrival, now, rules(), deadline)
    }

    #[cold]
    fn judge_closely(
        &self,
        arrival: &Arrival,
        now: Instant,
        rules: Rules<'_>,
        deadline: impl FnOnce(Instant) -> Instant,
    ) -> Verdict {
        let deadline = arrival.deadline.unwrap_or_else(|| deadline(arrival.ready));
        if !rules.is_never_shed {
            if let Some(reason) = arrival.refuse {
                return Verdict::Refuse(reason);
            }
            if self.gate.over() {
                return Verdict::Refuse(Rejection::RequestApp);
            }
            if deadline <= now {
                return Verdict::Refuse(Rejection::QueueDeadline);
            }
        }
        let permit = match rules.limit {
            None => None,
            Some(limit) => match limit.enter(rules.now) {
                None => return Verdict::Refuse(Rejection::RequestLimit),
                permit => permit,
            },
        };
        Verdict::Serve(Grant { deadline, permit })
    }

    /// The verdict about a handshake that came at `came`: it costs as much as many requests, so the clock is always
    /// read before it. `is_suspect`: its client may have hung up.
    pub(crate) fn judge_handshake(
        &mut self,
        (came, now): (Instant, impl FnOnce() -> Instant),
        is_suspect: bool,
        client: impl FnOnce() -> Option<ClientKey>,
    ) -> Verdict {
        if self.gate.over() {
            return Verdict::Refuse(Rejection::RequestApp);
        }
        if !is_suspect && self.has_time(now) {
            return Verdict::Serve(Grant { deadline: Instant::MAX, permit: None });
        }
        let class = self.handshakes.class(came);
        if self.is_full(class, client) {
            return Verdict::Refuse(Rejection::QueueFull);
        }
        self.handshakes.wait(class);
        Verdict::Wait(class, Instant::MAX)
    }

    /// The costly part of a handshake was done from `began` to `now`.
    pub(crate) fn charge(&mut self, began: Instant, now: Instant) {
        self.handshakes.learn(now - began);
        self.budget.charge(now);
    }

    /// The number of the next refusal, which selects one of the prepared answers.
    pub(crate) fn next_refusal(&mut self) -> u32 {
        self.refusals = self.refusals.wrapping_add(1);
        self.refusals
    }

    // ---- requests that wait

    /// Whether no request waits.
    #[inline]
    pub(crate) fn is_queue_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The queue's part of the turn begins: tasks may have used up the turn budget, and queued requests get a
    /// new one. While the queue grows, they get as much time as input took: else nearly all of it could pass with accepting
    /// and reading (receive livelock: Mogul and Ramakrishnan, 1997).
    pub(crate) fn begin_queue(&mut self, now: Instant) {
        let grows = self.standing.is_long() && !self.standing.stands() && self.gate.sheds();
        let least = match grows && self.begins_with_queue {
            true => self.input.min(self.terms.turn_max * INPUT_TURNS),
            false => Duration::ZERO,
        };
        self.budget.extend(now, least);
    }

    /// Whether there are requests whose clients must be known, as each client has a share: the queue stands, is long, or the
    /// newest overtake. Or more of them have places than a standing queue holds.
    pub(crate) fn needs_order(&self) -> bool {
        let is_shared = self.standing.is_long() || !self.standing.overtaken_max().is_zero();
        is_shared
            && self.gate.sheds()
            && (self.queue.has_unordered() || self.queue.lacks_room(self.capacity()))
    }

    /// Puts those requests in order. `client` says whose a request is, or that there is no time left to find out.
    #[cold]
    pub(crate) fn order(&mut self, client: impl FnMut(&T) -> Option<ClientKey>) {
        self.queue.order(self.capacity(), client);
    }

    /// How much a standing queue holds.
    fn capacity(&self) -> Capacity {
        let cost = nanos(self.standing.cost().unwrap_or_default());
        Capacity { starts: self.places(), cost }
    }

    /// The requests that found no room when the last ones were put in order: they will be refused.
    pub(crate) fn displaced(&self) -> impl Iterator<Item = &T> {
        self.queue.displaced()
    }

    /// Whether the time for waiting requests is used up.
    pub(crate) fn is_turn_over(&mut self, now: Instant) -> bool {
        self.queue.lap(now);
        self.budget.is_over(now)
    }

    /// Takes the next request from the queue, with the reason if it must be refused. `hung_up_at` says of a waiting
    /// request when its client hung up, if it did: while clients give up, theirs leave the queue first.
    pub(crate) fn next(
        &mut self,
        now: Instant,
        hung_up_at: impl Fn(&T) -> Option<Instant>,
    ) -> Option<(Entry<T>, Option<Rejection>)> {
        let sheds = self.gate.sheds();
        let drops = sheds && self.standing.drops_abandoned();
        if drops {
            let short = || self.standing.short_target();
            let is_given_up =
                |entry: &Entry<T>| gave_up(entry.ready, hung_up_at(&entry.item), short);
            if let Some(entry) = self.queue.pop_given_up(is_given_up) {
                return Some((entry, None));
            }
        }
        let class = self.queue.next_class();
        let leave = self.leave();
        let next = self.queue.pop(now, leave);
        if let (Some((entry, None)), Some(class)) = (&next, class) {
            self.standing.on_start(class, now - entry.ready);
        }
        next
    }

    /// How requests leave the queue for now.
    fn leave(&self) -> Leave {
        if !self.gate.sheds() {
            return Leave::default();
        }
        let is_long = self.standing.is_long();
        let turns_max = if is_long { self.terms.patience / 2 } else { Duration::ZERO };
        Leave { may_refuse: true, overtaken_max: self.standing.overtaken_max(), turns_max }
    }

    /// The client of a queued request of `class`, ready at `ready`, has left, and the request leaves the queue with it.
    pub(crate) fn left(&mut self, class: Class, ready: Instant, now: Instant) {
        if gave_up(ready, Some(now), || self.standing.short_target()) {
            self.abandoned += 1;
            if let Some(class) = class.index() {
                self.standing.on_leave(class, now - ready);
            }
        }
    }

    /// Whether a queued request, ready at `ready`, has been given up by its client, which hung up at `hung_up_at`;
    /// counts it.
    pub(crate) fn is_abandoned(&mut self, ready: Instant, hung_up_at: Option<Instant>) -> bool {
        let is_abandoned = gave_up(ready, hung_up_at, || self.standing.short_target());
        self.abandoned += u32::from(is_abandoned);
        is_abandoned
    }

    /// Whether a queued request may be dropped because its client disconnected: it waited for long, or
    /// `is_suspect`, or `is_abandoned` as those before it, and the gate may refuse requests.
    pub(crate) fn may_give_up(
        &self,
        ready: Instant,
        now: Instant,
        (is_suspect, is_abandoned): (bool, bool),
    ) -> bool {
        let is_lost = is_abandoned && self.standing.drops_abandoned();
        self.gate.sheds() && (is_suspect || is_lost || self.queue.is_overdue(ready, now))
    }

    /// A request leaves the queue, to be started or refused: exactly one may start now.
    pub(crate) fn allow_one(&mut self, now: Instant) {
        self.budget.allow_one(now);
    }

    /// The queue's part of the turn is over: no more requests start in this turn.
    pub(crate) fn end_queue(&mut self) {
        self.queue.end();
        self.budget.stop();
    }

    /// Deadlines of clients end `by` earlier: time has passed that does not count as waiting.
    pub(crate) fn bring_forward(&mut self, by: Duration) {
        self.queue.bring_forward(by);
    }

    // ---- what the worker's connections want

    /// The demand of a connection changes from `before` to `after`.
    #[inline]
    pub(crate) fn change(&mut self, before: Demand, after: Demand) {
        self.load.connections.change(before, after);
        self.load_has_changed = true;
    }

    /// The demand of an exchange changes from `before` to `after`.
    #[inline]
    pub(crate) fn change_exchange(&mut self, before: Demand, after: Demand) {
        self.load.exchanges.change(before, after);
        self.load_has_changed = true;
    }

    /// Reports the demand to the gate, once per turn.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if std::mem::take(&mut self.load_has_changed) || self.gate.has_arrivals() {
            self.gate.settle(self.load);
        }
    }

    /// A turn ends, in which `started` requests were started and `refused` were refused for load. Determines
    /// whether there is a standing queue, and acts on it.
    #[inline(always)]
    pub(crate) fn end_turn(
        &mut self,
        (began, ended): (Instant, Instant),
        (started, mut refused): (u32, u32),
        metrics: &WorkerMetrics,
    ) {
        let waiting = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        let (stood, was_long) = (self.standing.stands(), self.standing.is_long());
        if stood {
            refused += self.gate.take_refused();
        }
        let abandoned = std::mem::take(&mut self.abandoned);
        let turn = Turn { began, ended, waiting, started, refused, abandoned };
        let stands = self.standing.on_turn(&turn);
        if stood || stands || self.standing.is_long() != was_long {
            self.follow_queue(ended, stood, stands, metrics);
        }
        metrics.queue.waiting.set(u64::from(waiting));
        self.budget.end(ended);
    }

    /// A standing queue gets the short target. The controller gets that and the cost of a request, and is woken when the
    /// queue becomes long, when a standing queue forms or ends, or when its target changes much.
    #[cold]
    fn follow_queue(&mut self, now: Instant, stood: bool, stands: bool, metrics: &WorkerMetrics) {
        let cost = self.standing.cost().unwrap_or_default();
        let target = self.standing.short_target();
        self.queue.set_target(stands.then_some(target));
        let (target, before) = (nanos(target), metrics.queue.target_nanos.get());
        metrics.queue.target_nanos.set(target);
        if now >= self.accounts_due || stood != stands {
            self.accounts_due = now + ACCOUNTS_INTERVAL;
            let (accounts, overflow) = self.queue.accounts();
            metrics.queue.accounts.set(if stands { accounts as u64 } else { 0 });
            metrics.queue.overflow.set(overflow);
        }
        metrics.queue.stands.set(u64::from(stands));
        let is_long = self.standing.is_long();
        let was_long = metrics.queue.is_long.get() != 0;
        metrics.queue.is_long.set(u64::from(is_long));
        metrics.queue.cost_nanos.set(nanos(cost));
        metrics.queue.empty_nanos.set(nanos(self.standing.empty()));
        if stood != stands {
            if stands {
                self.gate.take_refused(); // Earlier refusals do not delay the end.
            }
            self.gate.alarm();
        } else if stands && (target / 2 > before || before / 2 > target) || is_long && !was_long {
            self.gate.alarm();
        }
    }
}

/// Whether the client of a queued request, ready at `ready`, waited for longer than `short` before it hung up. One that
/// hangs up as soon as it has sent its request (`nc`, scripts) may wait for its answer.
fn gave_up(ready: Instant, hung_up_at: Option<Instant>, short: impl FnOnce() -> Duration) -> bool {
    hung_up_at.is_some_and(|at| at - ready > short())
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
