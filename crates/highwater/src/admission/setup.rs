//! Sets up admission: from the settings and the machine's capabilities to a limit, a gate in the kernel, and
//! each worker's side of them.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use highwater_core::limit::Limit;
use highwater_sys::capability::{self, Capability};
use highwater_sys::{Diversion, ListenQueue, Listener};

use super::backlog::Backlogs;
use super::controller::{
    AcceptShares, Admission, Control, Controller, Entrance, GateShares, Policy, SourceShares,
};
use super::gate::{Bound, Counts, WorkerGate};
use super::kernel::{self, Entry, KernelGate, Refusal};
use super::settings::{AdmissionSettings, GateRefusal, Shed};
use super::signal::Signal;
use super::sources::{AcceptedSources, AllSources};
use super::strain::Strain;
use crate::metrics::Metrics;

impl AdmissionSettings {
    /// The gate in the kernel, if one is wanted and works here, and how excess is then refused, by which
    /// mechanism, and why.
    fn kernel_gate(&self, entries: &[Entry<'_>], limit: u32) -> Result<Chosen, String> {
        match self.shed {
            Some(shed @ (Shed::None | Shed::App | Shed::Accept)) => {
                let reason = "--shed says so".to_owned();
                let mut chosen = Chosen { shed, mechanism: shed.name(), reason, gate: None };
                self.settle_refusal(&mut chosen)?;
                Ok(chosen)
            }
            Some(Shed::Kernel) | None => {
                // A ceiling that cannot follow the limit also counts idle connections.
                let ceiling = self.connection_limit.unwrap_or(self.connections_max);
                let opened = kernel::open(self.gate, entries, ceiling)?;
                let mut gate = opened.gate;
                let follows = gate.as_ref().is_some_and(KernelGate::is_adjustable);
                if let Some(gate) = gate.as_mut().and_then(KernelGate::adjustable) {
                    gate.set_limit(limit).map_err(|error| error.to_string())?;
                }
                let shed = if follows { Shed::Kernel } else { Shed::Accept };
                let mechanism = opened.mechanism.name();
                let mut chosen = Chosen { shed, mechanism, reason: opened.reason, gate };
                self.settle_refusal(&mut chosen)?;
                Ok(chosen)
            }
        }
    }

    /// What gives each source its share of the connections.
    fn share_sources(
        &self,
        shed: Shed,
        gate: Option<&KernelGate>,
        entries: &[Entry<'_>],
    ) -> Sharing {
        let mut sharing = Sharing::default();
        if !self.shares_connections() {
            return sharing;
        }
        if let Some(sources) = gate.and_then(KernelGate::sources) {
            sharing.shares = Some(SourceShares::new(GateShares::new(sources)));
            return sharing;
        }
        // What is set for a socket of another process would stay when this process has ended.
        if shed != Shed::Accept || entries.is_empty() || entries.iter().any(|entry| !entry.is_ours)
        {
            return sharing;
        }
        match Diversion::new(entries.iter().map(|entry| entry.listeners)) {
            Ok(diversion) => {
                sharing.sources = AcceptedSources::of_workers(self.workers);
                sharing.sinks = diversion.sinks().collect();
                let all = AllSources::of(sharing.sources.clone());
                sharing.shares = Some(SourceShares::new(AcceptShares::new(all, diversion)));
            }
            Err(error) => {
                tracing::info!(
                    error = %error,
                    "clients that open a connection for each request have no shares of the listen queue",
                );
            }
        }
        sharing
    }

    /// The way of refusing that the settings fix; `None` if it may change.
    fn refusal(&self) -> Option<Refusal> {
        match self.gate_refusal {
            GateRefusal::Auto => None,
            GateRefusal::Reset => Some(Refusal::Reset),
            GateRefusal::Drop => Some(Refusal::Drop),
        }
    }

    /// Makes the gate refuse as the settings say, or explains why it cannot.
    fn settle_refusal(&self, chosen: &mut Chosen) -> Result<(), String> {
        let Some(how) = self.refusal() else { return Ok(()) };
        let done = match &mut chosen.gate {
            Some(gate) => gate.refuse_by(how).map_err(|error| error.to_string())?,
            None => false,
        };
        if done {
            return Ok(());
        }
        let how = match how {
            Refusal::Reset => "reset",
            Refusal::Drop => "drop",
        };
        Err(format!(
            "--gate-refusal {how}: what refuses connections here is {}, which cannot; use auto, or \
             --shed kernel --gate ebpf",
            chosen.mechanism
        ))
    }
}

/// What gives each source its share of the connections; nothing if that does not matter, or is not possible here.
#[derive(Default)]
struct Sharing {
    shares: Option<SourceShares>,
    /// What each worker counts for that.
    sources: Vec<AcceptedSources>,
    /// Where the attempts are dropped that are kept from the listeners.
    sinks: Vec<ListenQueue>,
}

/// How excess is finally refused, by which mechanism, and why.
struct Chosen {
    shed: Shed,
    mechanism: &'static str,
    reason: String,
    gate: Option<KernelGate>,
}

/// Admission that is set up but not running: before the first connection is accepted.
pub(crate) struct PreparedAdmission {
    admission: Arc<Admission>,
    bound: Arc<Bound>,
    limit: Box<dyn Limit>,
    entrance: Entrance,
    counts: Counts,
    queue_target: Duration,
    policy: Policy,
    /// What each worker counts of where its connections come from; empty if it need not.
    sources: Vec<AcceptedSources>,
    workers: usize,
}

impl PreparedAdmission {
    /// Sets up admission as `settings` say, for the server that listens at `entries`, and logs the result.
    ///
    /// # Errors
    /// The settings contradict each other, or a gate that was asked for by name does not work here: what is
    /// wrong and what to do instead.
    pub(crate) fn new(
        settings: &AdmissionSettings,
        entries: &[Entry<'_>],
    ) -> Result<PreparedAdmission, String> {
        let limit = settings.limit()?;
        let Chosen { shed, mechanism, reason, gate } =
            settings.kernel_gate(entries, limit.limit())?;
        tracing::info!(
            mechanism,
            reason = reason.as_str(),
            limiter = limit.name(),
            limit = limit.limit(),
            refuses = settings.refuses().name(),
            "admission",
        );
        if settings.shed == Some(Shed::Kernel) && gate.is_none() {
            tracing::warn!(
                reason = reason.as_str(),
                instead = "grant CAP_BPF (setcap cap_bpf+ep), or use --shed accept",
                "no gate in the kernel; connections are held back by not accepting them",
            );
        }
        let bound = Bound::new(limit.limit());
        let admission = Admission::new(shed, mechanism, reason, limit.name(), Arc::clone(&bound));
        // The kernel counts drops by a gate's program as overflows, too; the gate itself reports them.
        let drops = gate.as_ref().is_some_and(KernelGate::is_adjustable);
        let Sharing { shares, sources, sinks } =
            settings.share_sources(shed, gate.as_ref(), entries);
        let counted = if drops { &[] } else { entries };
        let listeners = counted.iter().flat_map(|entry| entry.listeners);
        let backlogs = Backlogs::of(listeners.map(Listener::queue).chain(sinks));
        Ok(PreparedAdmission {
            admission: Arc::new(admission),
            bound,
            limit,
            entrance: Entrance { gate, backlogs, refusal: settings.refusal(), shares },
            counts: settings.counts(),
            queue_target: settings.queue_target,
            policy: Policy::new(settings.refuses(), settings.unready_after.map(Strain::new)),
            sources,
            workers: settings.workers,
        })
    }

    /// The side of worker `index`.
    pub(crate) fn worker(&self, index: usize, metrics: &Metrics) -> WorkerGate {
        let occupancy = self.entrance.gate.as_ref().and_then(KernelGate::occupancy);
        let place = (index as u32, self.workers as u32);
        let metrics = metrics.worker(index);
        WorkerGate::new(self.admission.shed, &self.bound, place, metrics, occupancy)
            .counting(self.counts)
            .naming_sources(self.sources.get(index).cloned())
    }

    /// Whether connections are refused in the kernel.
    pub(crate) fn has_kernel_gate(&self) -> bool {
        self.entrance.gate.is_some()
    }

    /// Starts the controller. `wake` makes every worker read the limit.
    ///
    /// # Errors
    /// The system cannot start another thread.
    pub(crate) fn start(
        self,
        metrics: &Metrics,
        wake: Box<dyn Fn() + Send>,
    ) -> io::Result<RunningAdmission> {
        let admission = Arc::clone(&self.admission);
        let has_gate = self.entrance.gate.is_some();
        metrics.gate(admission.mechanism, &admission.reason, admission.limiter);
        let source = Arc::clone(&admission);
        metrics.admission(move || source.scaling());
        let signal = Signal::new(self.queue_target);
        let controller = Controller::new(
            self.admission,
            self.limit,
            self.entrance,
            (self.policy, signal),
            metrics,
            self.workers,
            wake,
        );
        Ok(RunningAdmission { admission, has_gate, _control: Control::start(controller)? })
    }
}

/// Running admission. Ends when dropped.
pub(crate) struct RunningAdmission {
    admission: Arc<Admission>,
    /// There is a gate in the kernel.
    has_gate: bool,
    _control: Control,
}

impl RunningAdmission {
    /// For `/readyz`: whether the server has been overloaded for as long as the settings say.
    pub(crate) fn is_strained(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let admission = Arc::clone(&self.admission);
        move || admission.is_strained()
    }

    /// Drops the capabilities that setting up the gate needed, for the calling thread and those it will
    /// start: for a program that only serves. The server's own threads drop them when they start; only the
    /// controller's thread keeps the one that reads and removes the rules of `nft` and `iptables`.
    pub(crate) fn give_up_rights(&self) {
        if self.has_gate
            && let Err(error) = capability::give_up(&Capability::ALL)
        {
            tracing::warn!(error = %error, "the server keeps capabilities that it does not need");
        }
    }
}

impl fmt::Debug for RunningAdmission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.admission.fmt(f)
    }
}
