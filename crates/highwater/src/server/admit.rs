//! Which requests are started, when there are more than a turn has time for.
//!
//! ```text
//!  input ─▶ time left, nobody waiting? ─yes─▶ serve              the fast path: one counter
//!                     │no
//!                     ▼
//!           the rest stays with its connection, and that waits in the queue
//!                     │ next turn, after looking at the kernel again
//!                     ▼
//!           queue.pop ─▶ Start  ─▶ serve
//!                     └▶ Refuse ─▶ hung up? close : 503
//! ```
//!
//! A worker thinks for about a millisecond before it looks at the kernel again, so that who has come,
//! who has gone and how many there are is never older than that. What it had no time for is not lost:
//! pipelined requests stay in order, because it is the connection that waits, with all its input.
//!
//! Never here: how long waiting is all right (`admission::queue`), or how many may come in
//! (`admission::gate`).

use std::time::Duration;

use highwater_core::driver::{Close, ConnId, Driver};
use highwater_core::http1::Head;
use highwater_core::time::{Clock, Instant};

use super::inbox::Token;
use super::respond::Rest;
use super::worker::{State, Worker};
use crate::admission::gate::WorkerGate;
use crate::admission::queue::{Class, Entry, Reason, Verdict};
use crate::app::{App, Permit, Priority, Target};

use crate::metrics::Rejection;

/// How long a worker thinks before it looks at the kernel again. One request may take longer; between
/// two, it looks.
pub(crate) const THINK_MAX: Duration = Duration::from_millis(1);

/// Requests started between two readings of the clock, at most: a reading costs some 25 ns, a sixteenth
/// of which is nothing even to a pipelined request. Before a turn's first reading, only as many as do no
/// harm if requests suddenly take long; what they took says how many may follow.
const UNTIMED_MAX: u32 = 16;
const UNTIMED_FIRST: u32 = 4;

/// Clock readings within `THINK_MAX`, roughly.
const READINGS: u64 = 8;

/// How far a turn has come with its thinking.
#[derive(Debug)]
pub(super) struct Pace {
    think_max: Duration,
    /// Requests that may be started before the clock is read, and how many that were at first.
    left: u32,
    granted: u32,
    /// How many fit between two readings.
    batch: u32,
    read_at: Instant,
    /// When thinking must end.
    until: Instant,
}

impl Pace {
    pub(super) fn new(think_max: Duration) -> Self {
        let (read_at, until) = (Instant::ZERO, Instant::ZERO);
        Pace { think_max, left: 0, granted: 0, batch: UNTIMED_FIRST, read_at, until }
    }

    /// A turn begins. If somebody waits already, nothing is started before the queue's turn.
    #[inline]
    pub(super) fn begin(&mut self, now: Instant, somebody_waits: bool) {
        self.until = now + self.think_max;
        let hold = somebody_waits || self.think_max.is_zero();
        self.grant(now, if hold { 0 } else { self.batch.min(UNTIMED_FIRST) });
    }

    /// Whether nothing more may be started without asking.
    #[inline]
    pub(super) fn is_up(&self) -> bool {
        self.left == 0
    }

    /// A request is started.
    #[inline]
    pub(super) fn count(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// The clock has been read: is there time for more? As many as fit between two readings.
    fn has_time(&mut self, now: Instant) -> bool {
        self.learn(now);
        self.grant(now, if now < self.until { self.batch } else { 0 });
        self.left > 0
    }

    /// The turn is over, and the clock has been read for that.
    #[inline]
    pub(super) fn end(&mut self, now: Instant) {
        self.learn(now);
        self.grant(now, 0);
    }

    /// Exactly one request is started now, whatever the time.
    fn allow_one(&mut self, now: Instant) {
        self.grant(now, 1);
    }

    /// Thinking may take its time once more, from `now` on.
    fn extend(&mut self, now: Instant) {
        self.until = self.until.max(now + self.think_max);
    }

    /// Nothing more is started in this turn.
    fn stop(&mut self) {
        self.granted -= self.left;
        self.left = 0;
    }

    fn grant(&mut self, now: Instant, count: u32) {
        self.read_at = now;
        self.left = count;
        self.granted = count;
    }

    /// Learns from what was started since the last reading how many to start before the next.
    fn learn(&mut self, now: Instant) {
        let started = u64::from(self.granted - self.left);
        if started == 0 {
            return;
        }
        let (took, share) = (nanos(now - self.read_at), nanos(self.think_max) / READINGS);
        let fit = (share * started).checked_div(took).unwrap_or(u64::MAX);
        self.batch = fit.clamp(1, u64::from(UNTIMED_MAX)) as u32;
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The request at hand, as far as it differs from one that is served as soon as it comes.
#[derive(Debug)]
pub(super) struct AtHand {
    /// When it could have been started.
    pub(super) ready: Instant,
    /// When those behind it could have been, were it not for it.
    next_ready: Instant,
    /// Its deadline, if it was looked up when it began to wait.
    deadline: Option<Instant>,
    /// It is not to be served.
    refuse: Option<Rejection>,
}

impl AtHand {
    /// Whatever comes next came at `now`.
    #[inline]
    pub(super) fn at_once(now: Instant) -> Self {
        AtHand { ready: now, next_ready: now, deadline: None, refuse: None }
    }

    /// Whether the next request is to be refused, unless it must not be.
    #[inline]
    pub(super) fn is_refused(&self) -> bool {
        self.refuse.is_some()
    }

    /// Whether the request may be served, which it may unless there is something about it: it is to be
    /// refused, may be one too many, names a deadline, or its route has a limit. `until` tells its
    /// deadline.
    #[inline]
    pub(super) fn admit(
        &mut self,
        app: &App,
        gate: &WorkerGate,
        target: Target,
        head: &Head<'_>,
        now: Instant,
        until: impl FnOnce(Instant) -> Instant,
    ) -> Result<Admitted, Rejection> {
        if !(self.is_refused() || gate.over() || head.names_deadline() || app.is_limited(target)) {
            return Ok(Admitted { deadline: Instant::MAX, permit: None });
        }
        self.screen(app, gate, target, now, until)
    }

    #[cold]
    fn screen(
        &mut self,
        app: &App,
        gate: &WorkerGate,
        target: Target,
        now: Instant,
        until: impl FnOnce(Instant) -> Instant,
    ) -> Result<Admitted, Rejection> {
        let refuse = self.refuse.take();
        let deadline = self.deadline.take().unwrap_or_else(|| until(self.ready));
        if !app.is_vital(target) {
            if let Some(rejection) = refuse {
                return Err(rejection);
            }
            if gate.over() {
                return Err(Rejection::RequestApp);
            }
            if deadline <= now {
                return Err(Rejection::QueueDeadline);
            }
        }
        let permit = match app.is_limited(target) {
            true => Some(app.enter(target, now).ok_or(Rejection::RequestLimit)?),
            false => None,
        };
        Ok(Admitted { deadline, permit })
    }
}

/// What was found about a request that is not like the others.
pub(super) struct Admitted {
    pub(super) deadline: Instant,
    pub(super) permit: Option<Permit>,
}

impl<C: Clock> State<C> {
    /// Whether the next request of `input` may be started now. If not, its connection waits from now on.
    #[cold]
    #[inline(never)]
    pub(super) fn may_start(&mut self, id: ConnId, input: &[u8]) -> bool {
        let State { slots, scratch, responder, queue, pace, clock, app, params, at_hand, .. } =
            self;
        let slot = &mut slots[id.index()];
        if input.is_empty() || !slot.connection.awaits_request(&responder.limits) {
            return true; // No request can come of it.
        }
        at_hand.ready = at_hand.next_ready;
        if queue.is_empty() && !slot.suspect && pace.has_time(clock.now()) {
            return true;
        }
        if slot.queued {
            return false;
        }
        let item = slot.token(id.index());
        let Some(head) = slot.connection.peek(input, scratch, &responder.limits) else {
            return true; // What is incomplete has to be seen, and what is not valid refused.
        };
        let target = app.find(&head, params);
        let class = match app.priority(target, &head) {
            _ if app.is_vital(target) => Class::Vital,
            Priority::High => Class::High,
            Priority::Normal => Class::Normal,
            Priority::Low => Class::Low,
        };
        let ready = at_hand.ready;
        let deadline = deadline(&head, ready, self.deadline_max, clock);
        queue.push(class, Entry { item, ready, deadline });
        slot.queued = true;
        slot.connection.hold(true, self.now);
        false
    }

    /// Answers a request that is not served.
    #[cold]
    pub(super) fn turn_away(&mut self, id: ConnId, rejection: Rejection) {
        let is_full = !self.has_room();
        let State { app, slots, responder, metrics, now, ledger, .. } = self;
        let slot = &mut slots[id.index()];
        if is_full {
            slot.connection.drain(*now); // Connections are what is scarce.
        }
        let target = slot.target.expect("a request was found");
        self.refusals = self.refusals.wrapping_add(1);
        let refusal = app.refusal(target, self.refusals);
        metrics.rejected(rejection);
        ledger.refused(metrics, slot, refusal.status(), rejection.is_for_load());
        responder.fixed(&mut slot.connection, *now, refusal);
        self.follow(id, Rest::None);
    }

    /// A request that has waited is looked at again, to be started or to be refused.
    fn resume(&mut self, id: ConnId, entry: &Entry<Token>, verdict: Verdict) {
        let slot = &mut self.slots[id.index()];
        slot.queued = false;
        slot.connection.hold(false, self.now);
        let next_ready = slot.take_next_ready(entry.ready);
        let refuse = match verdict {
            Verdict::Start => None,
            Verdict::Refuse(Reason::Delay) => Some(Rejection::QueueDelay),
            Verdict::Refuse(Reason::Priority) => Some(Rejection::RequestPriority),
            Verdict::Refuse(Reason::Deadline) => Some(Rejection::QueueDeadline),
        };
        let deadline = Some(entry.deadline);
        self.at_hand = AtHand { ready: entry.ready, next_ready, deadline, refuse };
        self.pace.allow_one(self.now);
        self.serve_carry(id);
    }
}

/// Until when the client wants its answer, by our clock and within our bound.
pub(super) fn deadline(
    head: &Head<'_>,
    ready: Instant,
    max: Duration,
    clock: &impl Clock,
) -> Instant {
    match head.names_deadline().then(|| head.patience(clock.unix_millis())).flatten() {
        Some(patience) => ready + patience.min(max),
        None => Instant::MAX,
    }
}

impl<D: Driver> Worker<D> {
    /// Takes up what waits, until thinking has to end; at least one request.
    pub(super) fn run_queue(&mut self) {
        if self.state.queue.is_empty() {
            return;
        }
        let mut looked_at = 0;
        // Tasks may have taken all the time there was; those who wait have their share.
        self.state.pace.extend(self.state.now);
        while !self.state.queue.is_empty() {
            let Worker { driver, state } = self;
            state.now = state.clock.now();
            if state.now >= state.pace.until && looked_at > 0 {
                break;
            }
            let may_refuse = state.gate.sheds();
            let Some((entry, verdict)) = state.queue.pop(state.now, may_refuse) else { break };
            let Some(id) = state.lookup(entry.item) else { continue }; // It is gone.
            looked_at += 1;
            let overdue = state.queue.is_overdue(entry.ready, state.now);
            let slot = &mut state.slots[id.index()];
            let suspect = std::mem::take(&mut slot.suspect);
            if (suspect || overdue)
                && may_refuse
                && !slot.sending
                && !slot.connection.has_output()
                && (slot.connection.is_eof() || driver.is_hung_up(id))
            {
                // Nobody is there, or somebody who has only finished sending: who can tell? At other
                // times both are served.
                slot.queued = false;
                slot.close = Some(Close::Reset);
                state.metrics.rejected(Rejection::QueueHungUp);
                state.touch(id);
                continue;
            }
            state.resume(id, &entry, verdict);
        }
        let state = &mut self.state;
        state.pace.stop();
        state.at_hand = AtHand::at_once(state.now);
    }

    /// Whether requests wait for their turn, or clients to be read from.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.state.queue.is_empty() || self.is_catching_up()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts requests that take `each` until the turn that began at `now` has no more time. Returns how
    /// many, and how often the clock was read for that.
    fn turn(pace: &mut Pace, now: &mut Instant, each: Duration) -> (u32, u32) {
        let (mut started, mut readings) = (0, 0);
        pace.begin(*now, false);
        loop {
            if pace.is_up() {
                readings += 1;
                if !pace.has_time(*now) {
                    break;
                }
            }
            pace.count();
            started += 1;
            *now += each;
        }
        pace.end(*now);
        (started, readings)
    }

    /// Purpose: thinking ends after its time, give or take one reading of the clock, whatever a request
    /// takes; and cheap requests bear a sixteenth of a reading each.
    #[test]
    fn thinking_is_bounded() {
        for each in [200, 1_000, 10_000, 60_000, 900_000, 5_000_000].map(Duration::from_nanos) {
            let (mut pace, mut now) = (Pace::new(THINK_MAX), Instant::ZERO);
            turn(&mut pace, &mut now, each);
            let begun = now;
            let (started, readings) = turn(&mut pace, &mut now, each);
            let bound = THINK_MAX + (THINK_MAX / READINGS as u32).max(each);
            assert!(now - begun <= bound, "{each:?}: {:?}", now - begun);
            if each <= Duration::from_micros(1) {
                assert!(readings <= 2 + started / UNTIMED_MAX, "{each:?}: {readings} of {started}");
            }
        }
    }

    /// Purpose: when requests take long all of a sudden, the first turn of it is no longer than a few.
    #[test]
    fn a_sudden_change_is_found_out() {
        let (mut pace, mut now) = (Pace::new(THINK_MAX), Instant::ZERO);
        for _ in 0..10 {
            turn(&mut pace, &mut now, Duration::from_nanos(200));
        }
        let slow = Duration::from_millis(2);
        assert_eq!(turn(&mut pace, &mut now, slow).0, UNTIMED_FIRST);
        assert_eq!(turn(&mut pace, &mut now, slow).0, 1);
    }

    /// Purpose: nothing is started before the queue's turn if somebody waits there, and exactly one for
    /// each that is taken from it.
    #[test]
    fn those_who_wait_come_first() {
        let mut pace = Pace::new(THINK_MAX);
        pace.begin(Instant::ZERO, true);
        assert!(pace.is_up());
        pace.allow_one(Instant::ZERO);
        assert!(!pace.is_up());
        pace.count();
        assert!(pace.is_up());
    }
}
