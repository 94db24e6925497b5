//! What is the limit now, and who is told?
//!
//! One thread per server looks at the workers' counters ten times a second, less often while nothing
//! happens. Each look becomes a [`Sample`] for the [`Limit`]; what that answers goes to the workers
//! and to the gate in the kernel. What was seen and done stands in [`Admission`], for whoever reports
//! it.
//!
//! A tenth of a second is long when ten times as much comes as can be done, and half a second after a
//! pause is longer: a thousand would be let in only to be refused at a higher price. So a worker whose
//! queue begins to stand raises an alarm ([`Bound::raise`]), and a sample is taken at once; and when it
//! stands no longer, so that nobody is kept out for longer than needed.
//!
//! ```text
//!  WorkerMetrics ─┐            ┌─▶ Limit ─▶ u32 ─┬─▶ Bound ─▶ every WorkerGate
//!  KernelGate ────┴─▶ Sample ──┤                 └─▶ KernelGate
//!                              └─▶ Signal ─▶ Admission ─▶ metrics
//! ```
//!
//! Never here: anything a request waits for. Were this thread to stop, the last limit would stay.
//!
//! Invariants: workers are told before the kernel lets more in, and woken if they hold back people
//! for whom there is room now; refusing turns silent only while resets would cost more than
//! [`RESET_SHARE_MAX`], and turns back only after [`CALM`].

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{io, time};

use highwater_core::limit::{Limit, Sample};
use highwater_core::time::Instant;
use highwater_sys::capability::{self, Capability};

use super::backlog::Backlogs;
use super::gate::Bound;
use super::kernel::{Counts, KernelGate, Mechanism, Occupancy, Refusal};
use super::signal::Signal;
use super::{Shed, cost};
use crate::log;
use crate::metrics::{Metrics, Scaling, Signals, Totals};

/// How often the counters are looked at.
const PERIOD: Duration = Duration::from_millis(100);

/// How often while nothing happens. What comes after a pause is noticed this late.
const PERIOD_IDLE: Duration = Duration::from_millis(500);

/// Idle looks in a row before the pace slows down.
const IDLE_LOOKS: u32 = 10;

/// The share of the serving cores that resets may cost before refusing turns silent. Resets are the
/// friendlier refusal, but clients that are told at once come again at once.
const RESET_SHARE_MAX: f64 = 0.025;

/// The share that resets would cost below which they come back, and for how long it must be so. Well
/// below the other, because clients that are not told try less often.
const RESET_SHARE_CALM: f64 = 0.01;
const CALM: Duration = Duration::from_secs(10);

/// The state of admission, for those who report it. Written by the controller alone.
#[derive(Debug)]
pub(crate) struct Admission {
    /// How excess is turned away.
    pub(crate) shed: Shed,
    /// What turns it away: `ebpf`, `nft`, `iptables`, `accept`, `app` or `none`.
    pub(crate) mechanism: &'static str,
    /// Why that, in a sentence.
    pub(crate) reason: String,
    /// What finds the limit.
    pub(crate) limiter: &'static str,
    bound: Arc<Bound>,
    standing: Mutex<Standing>,
}

/// What changes from look to look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    /// The last sample.
    pub(crate) sample: Sample,
    /// What the kernel's gate has done so far.
    pub(crate) counts: Counts,
    /// Attempts to connect that found no room in a listener's backlog, so far.
    pub(crate) overflowed: u64,
    /// CPU time spent on refusing so far: counted refusals times what one costs.
    pub(crate) shed_cpu: Duration,
    /// The share of the serving cores that went into refusing, in the last sample.
    pub(crate) refusing: f32,
    /// How the kernel refuses now.
    pub(crate) refusal: Refusal,
    /// What autoscalers are told.
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
        Admission { shed, mechanism, reason, limiter, bound, standing: Mutex::default() }
    }

    /// How many connections may have work.
    pub(crate) fn limit(&self) -> u32 {
        self.bound.limit()
    }

    /// As the last look found it.
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
        }
    }

    fn lock(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What keeps connections out before a worker sees them.
pub(crate) struct Entrance {
    /// What refuses them in the kernel, if anything does.
    pub(crate) gate: Option<Box<dyn KernelGate>>,
    /// Where they wait to be accepted.
    pub(crate) backlogs: Backlogs,
    /// How the gate refuses, if that must not change.
    pub(crate) refusal: Option<Refusal>,
}

/// Turns counters into limits.
pub(crate) struct Controller {
    admission: Arc<Admission>,
    limit: Box<dyn Limit>,
    gate: Option<Box<dyn KernelGate>>,
    backlogs: Backlogs,
    /// Whether the gate is to go on refusing as it does.
    keeps_refusal: bool,
    /// The word that the gate counts in.
    occupancy: Option<Occupancy>,
    signal: Signal,
    metrics: Metrics,
    /// Makes every worker look at the limit.
    wake: Box<dyn Fn() + Send>,
    /// How many cores serve.
    workers: usize,
    before: Totals,
    standing: Standing,
    calm_since: Option<Instant>,
    idle_looks: u32,
}

impl Controller {
    /// A controller whose clock begins now, at [`Instant::ZERO`].
    pub(crate) fn new(
        admission: Arc<Admission>,
        limit: Box<dyn Limit>,
        Entrance { gate, backlogs, refusal }: Entrance,
        signal: Signal,
        metrics: &Metrics,
        workers: usize,
        wake: Box<dyn Fn() + Send>,
    ) -> Self {
        let occupancy = gate.as_ref().and_then(|gate| gate.occupancy());
        Controller {
            admission,
            limit,
            gate,
            backlogs,
            keeps_refusal: refusal.is_some(),
            occupancy,
            signal,
            metrics: metrics.clone(),
            wake,
            workers,
            before: metrics.totals(Instant::ZERO),
            standing: Standing { refusal: refusal.unwrap_or_default(), ..Standing::default() },
            calm_since: None,
            idle_looks: 0,
        }
    }

    /// One look, and what follows from it. Answers when the next one is due.
    pub(crate) fn tick(&mut self, now: Instant) -> Duration {
        // Before the look: an alarm that is raised while looking is heard with the next one.
        self.admission.bound.lower();
        let totals = self.metrics.totals(now);
        let mut sample = totals.since(&self.before);
        if let Some(occupancy) = &self.occupancy {
            // Those that were let in and that no worker has seen yet take up the limit, too.
            let taken = occupancy.taken();
            sample.in_flight = sample.in_flight.max(taken);
            sample.in_flight_max = sample.in_flight_max.max(taken);
        }
        self.on_sample(now, &totals, sample);
        let is_idle = totals.is_idle_since(&self.before) && self.standing.sample.refused == 0;
        self.idle_looks = if is_idle { self.idle_looks.saturating_add(1) } else { 0 };
        self.before = totals;
        if self.idle_looks > IDLE_LOOKS { PERIOD_IDLE } else { PERIOD }
    }

    /// Completes the sample by what the workers do not know, and acts on it.
    fn on_sample(&mut self, now: Instant, totals: &Totals, mut sample: Sample) {
        let counts = self.read_gate(now, totals.connections);
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
        self.account(now, &sample, by_workers, refused);
        self.standing.counts = counts;
        self.standing.sample = sample;
        self.standing.signals = self.signal.on_sample(&sample, self.admission.limit());
        let limit = self.limit.on_sample(now, &sample);
        self.publish(limit, &sample);
        *self.admission.lock() = self.standing.clone();
    }

    /// Asks the kernel's gate what it did, and lets it correct its count by what was accepted.
    fn read_gate(&mut self, now: Instant, accepted: u64) -> Counts {
        let before = self.standing.counts;
        let Some(gate) = &mut self.gate else { return before };
        gate.reconcile(now, accepted);
        let counts = gate.counts();
        counts.unwrap_or_else(|error| {
            tell("cannot read the kernel's gate", &error);
            before
        })
    }

    /// What refusing cost, and whether it should be done more quietly.
    fn account(&mut self, now: Instant, sample: &Sample, by_workers: u64, refused: Counts) {
        let mechanism = self.gate.as_ref().map_or(Mechanism::Accept, |gate| gate.mechanism());
        let cost = cost::of_resets(mechanism, refused.reset)
            + cost::of_drops(refused.dropped)
            + cost::of_answers(by_workers);
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
            Refusal::Reset if reset_share > RESET_SHARE_MAX => Refusal::Drop,
            Refusal::Drop if has_been_calm => Refusal::Reset,
            unchanged => unchanged,
        };
        if wanted == self.standing.refusal || self.keeps_refusal {
            return;
        }
        let Some(gate) = &mut self.gate else { return };
        match gate.refuse_by(wanted) {
            Ok(true) => self.standing.refusal = wanted,
            Ok(false) => {} // It knows only resets.
            Err(error) => tell("cannot change how the kernel's gate refuses", &error),
        }
    }

    /// Tells everybody who enforces the limit.
    fn publish(&mut self, limit: u32, sample: &Sample) {
        let before = self.admission.bound.limit();
        if limit == before {
            return;
        }
        self.admission.bound.set(limit);
        if let Some(gate) = self.gate.as_mut().filter(|gate| gate.is_adjustable())
            && let Err(error) = gate.set_limit(limit)
        {
            tell("cannot set the limit of the kernel's gate", &error);
        }
        // A worker that holds people back may be waiting for nothing but this.
        if limit > before && sample.is_felt(before) {
            (self.wake)();
        }
    }
}

/// Nothing stops for it: whatever the gate last did it goes on doing.
fn tell(what: &'static str, error: &io::Error) {
    log::warn!(
        "the kernel's gate fails",
        what = what,
        error = %error,
        instead = "restart with --shed accept if it stays so",
    );
}

impl Controller {
    /// Gives up, for the calling thread, what it took to set up the gate. The rules of `nft` and `iptables`
    /// need one right as long as they stand, to be read and to be removed.
    fn give_up_rights(&self) {
        let has_rules = self.gate.as_ref().is_some_and(|gate| !gate.is_adjustable());
        let needless = Capability::ALL.into_iter();
        let needless = needless.filter(|&right| !(has_rules && right == Capability::NetAdmin));
        if let Err(error) = capability::give_up(&needless.collect::<Vec<_>>()) {
            log::warn!("the controller keeps rights that it does not need", error = %error);
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
    /// The system starts no further thread.
    pub(crate) fn start(mut controller: Controller) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let origin = time::Instant::now();
        let run = move || {
            controller.admission.bound.hear();
            controller.give_up_rights();
            let mut pause = PERIOD;
            while !stopped.load(Relaxed) {
                thread::park_timeout(pause);
                pause = controller.tick(Instant::ZERO + origin.elapsed());
            }
        };
        let thread = thread::Builder::new().name("highwater-limit".to_owned()).spawn(run)?;
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
