//! Computes the limit and passes it to the workers and the kernel's gate.
//!
//! One thread per server reads the workers' counters ten times a second, less often while idle, and twice as
//! often until it is known what each source may have. Each reading
//! becomes a [`Sample`] for the [`Limit`]; the result goes to the workers and to the gate in the kernel. The
//! state for reports is in [`Admission`].
//!
//! At ten times the capacity a tenth of a second is long, and half a second after a pause is longer: a
//! thousand requests would be admitted only to be refused at a higher cost. So a worker raises an alarm
//! ([`Bound::raise`]) when its queue becomes long and when it stands, and a sample is taken at once. It does the same when
//! the queue no longer stands, so that no connection is refused for longer than needed.
//!
//! ```text
//!  WorkerMetrics ─┐            ┌─▶ Limit ─▶ u32 ─┬─▶ Bound ─▶ every WorkerGate
//!  KernelGate ────┴─▶ Sample ──┤                 └─▶ KernelGate
//!                              └─▶ Signal ─▶ Admission ─▶ metrics
//! ```
//!
//! Never here: anything a request waits for. If this thread stopped, the last limit would stay in force.
//!
//! Invariants: workers get a new limit before the kernel does, and are woken if connections that they hold
//! back now fit; refusals become silent only while resets would cost more than [`RESET_SHARE_MAX`], and
//! become resets again only after [`CALM`], or as soon as clients turn out to be proxies.

mod policy;
mod shares;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{io, time};

use highwater_core::limit::{Limit, Sample};
use highwater_core::time::Instant;
use highwater_sys::capability::{self, Capability};

use self::shares::{AttemptCounts, Attempts};
use super::backlog::Backlogs;
use super::gate::Bound;
use super::kernel::{Counts, KernelGate, Mechanism, Occupancy, Refusal};
use super::signal::Signal;
use super::{Shed, cost};
use crate::logging::rate_limited;
use crate::metrics::{Metrics, Scaling, Signals, Totals};

pub(crate) use self::policy::Policy;
pub(crate) use self::shares::{AcceptShares, GateShares, SourceShares};

/// How often the counters are read.
const PERIOD: Duration = Duration::from_millis(100);

/// How often workers with a standing queue learn what was refused before them: several times in each part of a
/// trial (`core::limit`).
const REPORT: Duration = Duration::from_millis(25);

/// How often while idle. Load after a pause is noticed this late.
const PERIOD_IDLE: Duration = Duration::from_millis(500);

/// Idle readings in a row before the interval grows.
const IDLE_LOOKS: u32 = 10;

/// The share of the serving cores that resets may cost before refusals become silent. Resets serve clients
/// better, but a client that learns of a refusal at once retries at once.
const RESET_SHARE_MAX: f64 = 0.025;

/// Below this estimated share, for this long, resets are used again. It is well below the other share,
/// because clients that get no reset retry less often.
const RESET_SHARE_CALM: f64 = 0.01;
const CALM: Duration = Duration::from_secs(10);

/// The state of admission, for reports. Written by the controller alone.
#[derive(Debug)]
pub(crate) struct Admission {
    /// How excess is turned away.
    pub(crate) shed: Shed,
    /// The mechanism: `ebpf`, `nft`, `iptables`, `accept`, `app` or `none`.
    pub(crate) mechanism: &'static str,
    /// Why this mechanism, in a sentence.
    pub(crate) reason: String,
    /// The algorithm that finds the limit.
    pub(crate) limiter: &'static str,
    bound: Arc<Bound>,
    standing: Mutex<Standing>,
    is_strained: AtomicBool,
}

/// The values that change with each sample.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    /// The last sample.
    pub(crate) sample: Sample,
    /// The counts of the kernel's gate so far.
    pub(crate) counts: Counts,
    /// Attempts to connect that found no room in a listener's backlog, so far.
    pub(crate) overflowed: u64,
    /// CPU time spent on refusing so far: counted refusals times what one costs.
    pub(crate) shed_cpu: Duration,
    /// The share of the serving cores that refusals used in the last sample.
    pub(crate) refusing: f32,
    /// How the kernel refuses now.
    pub(crate) refusal: Refusal,
    /// Whether requests are refused, and no connections.
    pub(crate) refuses_requests: bool,
    /// Connections that the kernel's gate refused because their source had had its share, so far.
    pub(crate) refused_for_share: u64,
    /// The signals for autoscalers.
    pub(crate) signals: Signals,
}

impl Admission {
    pub(crate) fn new(
        shed: Shed,
        mechanism: &'static str,
        reason: String,
        limiter: &'static str,
        bound: Arc<Bound>,
    ) -> Self {
        let (standing, is_strained) = (Mutex::default(), AtomicBool::new(false));
        Admission { shed, mechanism, reason, limiter, bound, standing, is_strained }
    }

    /// How many connections may have work.
    pub(crate) fn limit(&self) -> u32 {
        self.bound.limit()
    }

    /// Whether the server has been overloaded for as long as the settings say.
    pub(crate) fn is_strained(&self) -> bool {
        self.is_strained.load(Relaxed)
    }

    /// The values of the last sample.
    #[cfg(test)]
    pub(crate) fn standing(&self) -> Standing {
        self.lock().clone()
    }

    /// The same for the metrics page.
    pub(crate) fn scaling(&self) -> Scaling {
        let standing = self.lock();
        Scaling {
            signals: standing.signals,
            limit: self.limit(),
            in_flight: standing.sample.in_flight,
            reset: standing.counts.reset,
            dropped: standing.counts.dropped,
            overflowed: standing.overflowed,
            shed_cpu_seconds: standing.shed_cpu.as_secs_f64(),
            refuses_requests: standing.refuses_requests,
            refused_for_share: standing.refused_for_share,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The mechanisms that keep connections out before a worker sees them.
pub(crate) struct Entrance {
    /// The gate in the kernel, if there is one.
    pub(crate) gate: Option<KernelGate>,
    /// Where they wait to be accepted.
    pub(crate) backlogs: Backlogs,
    /// How the gate refuses, if that must not change.
    pub(crate) refusal: Option<Refusal>,
    /// How many connections each source may open; `None` if that does not matter.
    pub(crate) shares: Option<SourceShares>,
}

/// Turns counters into limits.
pub(crate) struct Controller {
    admission: Arc<Admission>,
    limit: Box<dyn Limit>,
    gate: Option<KernelGate>,
    backlogs: Backlogs,
    shares: Option<SourceShares>,
    /// Whether the gate must keep its way of refusing.
    keeps_refusal: bool,
    /// The counter of the gate.
    occupancy: Option<Occupancy>,
    signal: Signal,
    policy: Policy,
    metrics: Metrics,
    /// Makes every worker read the limit.
    wake: Box<dyn Fn() + Send>,
    /// How many cores serve.
    workers: usize,
    before: Totals,
    standing: Standing,
    calm_since: Option<Instant>,
    idle_looks: u32,
    /// When the next sample is due.
    due: Instant,
}

impl Controller {
    /// A controller whose clock begins now, at [`Instant::ZERO`].
    pub(crate) fn new(
        admission: Arc<Admission>,
        limit: Box<dyn Limit>,
        Entrance { gate, backlogs, refusal, shares }: Entrance,
        (policy, signal): (Policy, Signal),
        metrics: &Metrics,
        workers: usize,
        wake: Box<dyn Fn() + Send>,
    ) -> Self {
        let occupancy = gate.as_ref().and_then(KernelGate::occupancy);
        Controller {
            admission,
            limit,
            gate,
            backlogs,
            shares,
            keeps_refusal: refusal.is_some(),
            occupancy,
            signal,
            policy,
            metrics: metrics.clone(),
            wake,
            workers,
            before: metrics.totals(Instant::ZERO),
            standing: Standing { refusal: refusal.unwrap_or_default(), ..Standing::default() },
            calm_since: None,
            idle_looks: 0,
            due: Instant::ZERO,
        }
    }

    /// Takes a sample and acts on it, if one is due or a worker has raised the alarm; else only reports what was
    /// refused. Returns when to call it again.
    pub(crate) fn tick(&mut self, now: Instant) -> Duration {
        // Before the counters are read: an alarm that is raised meanwhile causes the next sample.
        let is_raised = self.admission.bound.lower();
        if now < self.due && !is_raised {
            self.report();
        } else {
            self.due = now + self.take_sample(now);
        }
        let pause = self.due - now;
        if self.standing.sample.standing > 0 { pause.min(REPORT) } else { pause }
    }

    /// Reports to the workers what was refused before them.
    fn report(&mut self) {
        let refused = match &mut self.gate {
            None => Ok(Counts::default()),
            Some(gate) => gate.counts(),
        };
        if let Ok(counts) = refused {
            let overflowed = self.backlogs.overflowed();
            self.admission.bound.set_refused(counts.reset + counts.dropped + overflowed);
        } // Else the next sample logs the error.
    }

    /// Returns how long until the next sample.
    fn take_sample(&mut self, now: Instant) -> Duration {
        let totals = self.metrics.totals(now);
        let mut sample = totals.since(&self.before);
        if let Some(occupancy) = &self.occupancy {
            // Admitted connections that no worker has seen yet count against the limit, too.
            let taken = occupancy.taken();
            sample.in_flight = sample.in_flight.max(taken);
            sample.in_flight_max = sample.in_flight_max.max(taken);
            sample.asleep = sample.asleep.max(taken.saturating_sub(sample.queued));
        }
        self.on_sample(now, &totals, sample);
        let is_idle = totals.is_idle_since(&self.before) && self.standing.sample.refused == 0;
        self.idle_looks = if is_idle { self.idle_looks.saturating_add(1) } else { 0 };
        self.before = totals;
        let period = if self.idle_looks > IDLE_LOOKS { PERIOD_IDLE } else { PERIOD };
        self.shares.as_ref().and_then(SourceShares::next_sample).unwrap_or(period)
    }

    /// Completes the sample with what the workers do not know, and acts on it.
    fn on_sample(&mut self, now: Instant, totals: &Totals, mut sample: Sample) {
        let counts = self.read_gate(now, totals.connections_gated);
        let refused = Counts {
            admitted: 0,
            reset: counts.reset.saturating_sub(self.standing.counts.reset),
            dropped: counts.dropped.saturating_sub(self.standing.counts.dropped),
        };
        let by_workers = sample.refused;
        let overflowed = self.backlogs.overflowed() - self.standing.overflowed;
        self.standing.overflowed += overflowed;
        self.standing.shed_cpu += cost::of_overflows(overflowed);
        sample.refused += refused.reset + refused.dropped + overflowed;
        let before_workers = counts.reset + counts.dropped + self.standing.overflowed;
        self.admission.bound.set_refused(before_workers);
        let is_strained = self.policy.on_sample(now, &sample, totals.arrivals_since(&self.before));
        self.admission.is_strained.store(is_strained, Relaxed);
        self.standing.refuses_requests = self.policy.refuses_requests();
        self.account(now, &sample, by_workers, refused);
        self.standing.counts = counts;
        self.standing.sample = sample;
        self.standing.signals = self.signal.on_sample(&sample, self.admission.limit());
        let limit = self.limit.on_sample(now, &sample);
        let limit = self.share(&sample, totals, (by_workers, overflowed), limit);
        self.publish(self.policy.limit(limit), &sample);
        *self.admission.lock() = self.standing.clone();
    }

    /// Gives each source its share. Returns how many connections may be admitted, where the limiter says `limit`.
    fn share(
        &mut self,
        sample: &Sample,
        totals: &Totals,
        (by_workers, overflowed): (u64, u64),
        limit: u32,
    ) -> u32 {
        let Some(shares) = &mut self.shares else { return limit };
        let attempts = Attempts {
            counts: AttemptCounts {
                accepted: totals.connections_gated - self.before.connections_gated,
                dropped: overflowed,
            },
            by_workers,
            is_open: self.policy.refuses_requests() || self.admission.bound.is_draining(),
            // What is held back without a gate gets no answer.
            may_hold: self.gate.is_some() || self.policy.may_be_silent(),
        };
        self.standing.refused_for_share = shares.on_sample(sample, attempts);
        shares.widen(limit)
    }

    /// Reads the counts of the kernel's gate, and lets it correct its count by the accepted connections.
    fn read_gate(&mut self, now: Instant, accepted: u64) -> Counts {
        let before = self.standing.counts;
        let Some(gate) = &mut self.gate else { return before };
        if let Some(gate) = gate.adjustable() {
            gate.reconcile(now, accepted);
        }
        let counts = gate.counts();
        counts.unwrap_or_else(|error| {
            log_failure("cannot read the kernel's gate", &error);
            before
        })
    }

    /// Computes the cost of refusals, and whether they should be silent.
    fn account(&mut self, now: Instant, sample: &Sample, by_workers: u64, refused: Counts) {
        let mechanism = self.gate.as_ref().map_or(Mechanism::Accept, KernelGate::mechanism);
        let cost = cost::of_resets(mechanism, refused.reset)
            + cost::of_drops(refused.dropped)
            + cost::of_answers(by_workers, self.policy.are_kept());
        self.standing.shed_cpu += cost;
        let available = sample.span.as_secs_f64() * self.workers as f64;
        let share = |cost: Duration| cost.as_secs_f64() / available.max(1e-9);
        self.standing.refusing = share(cost).min(1.0) as f32;
        let as_resets = cost::of_resets(mechanism, refused.reset + refused.dropped);
        self.escalate(now, share(as_resets));
    }

    fn escalate(&mut self, now: Instant, reset_share: f64) {
        let is_calm = reset_share <= RESET_SHARE_CALM;
        self.calm_since = is_calm.then(|| self.calm_since.unwrap_or(now));
        let has_been_calm = self.calm_since.is_some_and(|since| now - since >= CALM);
        let wanted = match self.standing.refusal {
            Refusal::Reset if reset_share > RESET_SHARE_MAX && self.policy.may_be_silent() => {
                Refusal::Drop
            }
            Refusal::Drop if has_been_calm || !self.policy.may_be_silent() => Refusal::Reset,
            unchanged => unchanged,
        };
        if wanted == self.standing.refusal || self.keeps_refusal {
            return;
        }
        let Some(gate) = &mut self.gate else { return };
        match gate.refuse_by(wanted) {
            Ok(true) => self.standing.refusal = wanted,
            Ok(false) => {} // It can only reset.
            Err(error) => log_failure("cannot change how the kernel's gate refuses", &error),
        }
    }

    /// Passes the limit to the workers and the kernel's gate.
    fn publish(&mut self, limit: u32, sample: &Sample) {
        let before = self.admission.bound.limit();
        if limit == before {
            return;
        }
        self.admission.bound.set(limit);
        if let Some(gate) = self.gate.as_mut().and_then(KernelGate::adjustable)
            && let Err(error) = gate.set_limit(limit)
        {
            log_failure("cannot set the limit of the kernel's gate", &error);
        }
        // A worker that holds connections back may wait for this only.
        if limit > before && sample.is_felt(before) {
            (self.wake)();
        }
    }
}

/// The server goes on: the gate continues with its last settings.
fn log_failure(what: &'static str, error: &io::Error) {
    rate_limited!(
        WARN,
        what,
        error = %error,
        instead = "restart with --shed accept if this persists",
        "the kernel's gate fails",
    );
}

impl Controller {
    /// Drops, for the calling thread, the capabilities that setting up the gate needed. The rules of `nft`
    /// and `iptables` need one capability as long as they exist, to be read and removed.
    fn give_up_rights(&self) {
        let has_rules = self.gate.as_ref().is_some_and(|gate| !gate.is_adjustable());
        let needless = Capability::ALL.into_iter();
        let needless = needless.filter(|&right| !(has_rules && right == Capability::NetAdmin));
        if let Err(error) = capability::give_up(&needless.collect::<Vec<_>>()) {
            tracing::warn!(error = %error, "the controller keeps capabilities that it does not need");
        }
    }
}

/// The controller's thread. Dropping it ends the thread, and with it the kernel's gate.
#[derive(Debug)]
pub(crate) struct Control {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system cannot start another thread.
    pub(crate) fn start(mut controller: Controller) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let origin = time::Instant::now();
        let run = move || {
            controller.admission.bound.listen();
            controller.give_up_rights();
            let mut pause = PERIOD;
            while !stopped.load(Relaxed) {
                thread::park_timeout(pause);
                pause = controller.tick(Instant::ZERO + origin.elapsed());
            }
        };
        let thread = crate::thread::start("highwater-limit", Box::new(run))?;
        Ok(Control { stop, thread: Some(thread) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
