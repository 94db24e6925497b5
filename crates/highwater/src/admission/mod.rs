//! Who gets in when there is more work than can be done?
//!
//! ```text
//!  gate         connections: who is accepted at all      one per worker, bound by one shared limit
//!  kernel/      connections, before they exist           one per server, if we may
//!  queue        requests: which are served, which refused
//!  controller   how many that is                         a thread: samples → core's Limit → the gates
//!  backlog      what the kernel dropped for want of room, while nobody accepted
//!  cost         what refusing costs
//!  signal       how much more is asked than can be done, for those who add machines
//! ```
//!
//! Invariants: with the default settings nothing is refused before work really queues; whatever the
//! machine refuses us, something is left that works, and the log says what and why.

mod backlog;
mod controller;
mod cost;
pub(crate) mod gate;
pub(crate) mod kernel;
pub(crate) mod queue;
mod signal;

use std::net::SocketAddr;
use std::sync::Arc;
use std::{fmt, io};

use highwater_core::limit::{Aimd, Fixed, HillClimb, LIMIT_MAX, Limit, QueueDelay};
use highwater_sys::Listener;
use highwater_sys::capability::{self, Capability};

use self::backlog::Backlogs;
use self::controller::{Control, Controller, Entrance};
use self::gate::{Bound, Counts, WorkerGate};
use self::kernel::{KernelGate, Refusal};
use crate::log;
use crate::metrics::Metrics;

pub(crate) use self::controller::Admission;
pub use self::kernel::{Ceiling, gate_here};
pub use self::signal::Signal;

/// How excess work is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shed {
    /// Not at all. Past its capacity such a server answers nobody in time.
    None,
    /// With a 503 once the request has been parsed. Costs about as much as serving it: for
    /// comparison with servers that do so.
    App,
    /// By not accepting connections beyond the limit, and not starting requests that waited too
    /// long. Needs no privilege.
    Accept,
    /// In the kernel, before there is a connection; and not starting requests that waited too long.
    /// Needs CAP_BPF or CAP_NET_ADMIN.
    Kernel,
}

/// Which mechanism of the kernel refuses connections under [`Shed::Kernel`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GateChoice {
    /// The cheapest that this machine and our privileges allow.
    #[default]
    Auto,
    /// A BPF program at the socket lookup, or do not start.
    Ebpf,
    /// An nftables table of our own, or do not start.
    Nft,
    /// An iptables rule, or do not start.
    Iptables,
}

/// How the gate in the kernel refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GateRefusal {
    /// With resets, and silently while those would cost too much.
    #[default]
    Auto,
    /// With a reset: clients know at once, and come again at once.
    Reset,
    /// Silently: clients find out by their own time limit. The cheapest refusal there is.
    Drop,
}

/// What decides how many connections may have work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limiter {
    /// The operator does, with a number.
    Fixed,
    /// Steps of a hundred along the request rate.
    HillClimb,
    /// Queueing delay: no limit while no queue stands, else what may wait for no longer than the target.
    Gradient,
    /// One more while all is well, a tenth less when it is not.
    Aimd,
}

impl Shed {
    /// As the settings call it.
    pub const fn name(self) -> &'static str {
        match self {
            Shed::None => "none",
            Shed::App => "app",
            Shed::Accept => "accept",
            Shed::Kernel => "kernel",
        }
    }
}

impl Limiter {
    /// As the settings call it.
    pub const fn name(self) -> &'static str {
        match self {
            Limiter::Fixed => "fixed",
            Limiter::HillClimb => "hill-climb",
            Limiter::Gradient => "gradient",
            Limiter::Aimd => "aimd",
        }
    }
}

/// Either the operator knows the limit or an algorithm finds it: refuses neither, and both.
///
/// # Errors
/// What is wrong and, after a semicolon, what to write instead.
pub(crate) fn check_limiter(
    limiter: Option<Limiter>,
    connection_limit: Option<u32>,
) -> Result<(), &'static str> {
    match (limiter, connection_limit) {
        (Some(Limiter::Fixed), None) => Err("does not find a limit; add --connection-limit N"),
        (Some(Limiter::HillClimb | Limiter::Gradient | Limiter::Aimd), Some(_)) => {
            Err("finds the limit itself; leave --connection-limit at auto, or use fixed")
        }
        (Some(Limiter::Fixed) | None, Some(_)) | (_, None) => Ok(()),
    }
}

/// What admission is to be, as the server's settings say.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) shed: Option<Shed>,
    pub(crate) gate: GateChoice,
    pub(crate) gate_refusal: GateRefusal,
    pub(crate) connection_limit: Option<u32>,
    pub(crate) limiter: Option<Limiter>,
    pub(crate) patience: std::time::Duration,
    pub(crate) queue_target: std::time::Duration,
    /// Connections that may be open in all.
    pub(crate) connections_max: u32,
    /// Threads that serve.
    pub(crate) workers: usize,
}

impl Wanted {
    /// The algorithm, with where it starts.
    fn limit(&self) -> Result<Box<dyn Limit>, String> {
        if let Some(limit) = self.connection_limit.filter(|limit| !(1..=LIMIT_MAX).contains(limit))
        {
            return Err(format!(
                "a connection limit of {limit}: out of range; use 1 to {LIMIT_MAX}"
            ));
        }
        check_limiter(self.limiter, self.connection_limit).map_err(|remedy| {
            let limiter = self.limiter.unwrap_or(Limiter::Fixed);
            format!("the limiter {}: {remedy}", limiter.name())
        })?;
        // Not --connections-max: beyond that connections wait, and idle ones are closed for them; a
        // limit that knew of it would have the kernel refuse them.
        let limit_max = LIMIT_MAX;
        Ok(match (self.connection_limit, self.limiter) {
            _ if self.shed == Some(Shed::None) => Box::new(Fixed::new(LIMIT_MAX)),
            (Some(limit), _) => Box::new(Fixed::new(limit)),
            (None, Some(Limiter::HillClimb)) => Box::new(HillClimb::new(limit_max)),
            (None, Some(Limiter::Aimd)) => Box::new(Aimd::new(limit_max, self.queue_target / 2)),
            (None, _) => Box::new(QueueDelay::new(self.queue_target, self.patience, limit_max)),
        })
    }

    /// What counts as load to it.
    fn counts(&self) -> Counts {
        let by_hand = self.connection_limit.is_some();
        match self.limiter {
            Some(Limiter::HillClimb | Limiter::Aimd) => Counts::Work,
            Some(Limiter::Fixed | Limiter::Gradient) | None if by_hand => Counts::Work,
            Some(Limiter::Fixed | Limiter::Gradient) | None => Counts::Time,
        }
    }

    /// The gate in the kernel if one is wanted and can be had, with how excess is turned away then,
    /// by what, and why.
    fn kernel_gate(
        &self,
        address: SocketAddr,
        listeners: &[Listener],
        limit: u32,
    ) -> Result<Chosen, String> {
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
                let opened = kernel::open(self.gate, address, listeners, ceiling)?;
                let mut gate = opened.gate;
                let follows = gate.as_ref().is_some_and(|gate| gate.is_adjustable());
                if let Some(gate) = gate.as_mut().filter(|_| follows) {
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

    /// The one way of refusing that the settings name, if they name one; `None` if it may change.
    fn refusal(&self) -> Option<Refusal> {
        match self.gate_refusal {
            GateRefusal::Auto => None,
            GateRefusal::Reset => Some(Refusal::Reset),
            GateRefusal::Drop => Some(Refusal::Drop),
        }
    }

    /// Has the gate refuse as the settings say, or explains why it cannot.
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

/// How excess is turned away in the end, by what, and why.
struct Chosen {
    shed: Shed,
    mechanism: &'static str,
    reason: String,
    gate: Option<Box<dyn KernelGate>>,
}

/// Admission, set up but not yet at work: before the first connection is accepted.
pub(crate) struct Opening {
    admission: Arc<Admission>,
    bound: Arc<Bound>,
    limit: Box<dyn Limit>,
    entrance: Entrance,
    counts: Counts,
    queue_target: std::time::Duration,
    workers: usize,
}

impl Opening {
    /// Sets up what `wanted` says for the server that listens at `address` with `listeners`, and says
    /// so in the log.
    ///
    /// # Errors
    /// The settings contradict each other, or a gate that was asked for by name cannot be had: what
    /// is wrong and what to do instead.
    pub(crate) fn new(
        wanted: &Wanted,
        address: SocketAddr,
        listeners: &[Listener],
    ) -> Result<Opening, String> {
        let limit = wanted.limit()?;
        let Chosen { shed, mechanism, reason, gate } =
            wanted.kernel_gate(address, listeners, limit.limit())?;
        log::info!(
            "admission",
            mechanism = mechanism,
            reason = reason.as_str(),
            limiter = limit.name(),
            limit = limit.limit(),
        );
        if wanted.shed == Some(Shed::Kernel) && gate.is_none() {
            log::warn!(
                "no gate in the kernel; connections are held back by not accepting them",
                reason = reason.as_str(),
                instead = "grant CAP_BPF (setcap cap_bpf+ep), or say --shed accept",
            );
        }
        let bound = Bound::new(limit.limit());
        let admission = Admission::new(shed, mechanism, reason, limit.name(), Arc::clone(&bound));
        // What a gate's program drops counts as an overflow too, and is known from the gate itself.
        let drops = gate.as_ref().is_some_and(|gate| gate.is_adjustable());
        let backlogs = Backlogs::of(if drops { &[] } else { listeners });
        Ok(Opening {
            admission: Arc::new(admission),
            bound,
            limit,
            entrance: Entrance { gate, backlogs, refusal: wanted.refusal() },
            counts: wanted.counts(),
            queue_target: wanted.queue_target,
            workers: wanted.workers,
        })
    }

    /// The side of worker `index`.
    pub(crate) fn worker(&self, index: usize, metrics: &Metrics) -> WorkerGate {
        let occupancy = self.entrance.gate.as_ref().and_then(|gate| gate.occupancy());
        let place = (index as u32, self.workers as u32);
        let metrics = metrics.worker(index);
        WorkerGate::new(self.admission.shed, &self.bound, place, metrics, occupancy)
            .counting(self.counts)
    }

    /// Whether connections are refused in the kernel.
    pub(crate) fn has_kernel_gate(&self) -> bool {
        self.entrance.gate.is_some()
    }

    /// Begins to look at the counters. `wake` makes every worker look at the limit.
    ///
    /// # Errors
    /// The system starts no further thread.
    pub(crate) fn start(self, metrics: &Metrics, wake: Box<dyn Fn() + Send>) -> io::Result<AtWork> {
        let admission = Arc::clone(&self.admission);
        let has_gate = self.entrance.gate.is_some();
        metrics.gate(admission.mechanism, &admission.reason, admission.limiter);
        let told = Arc::clone(&admission);
        metrics.admission(move || told.scaling());
        let signal = Signal::new(self.queue_target);
        let controller = Controller::new(
            self.admission,
            self.limit,
            self.entrance,
            signal,
            metrics,
            self.workers,
            wake,
        );
        Ok(AtWork { admission, has_gate, _control: Control::start(controller)? })
    }
}

/// Admission at work. Ends when dropped.
pub(crate) struct AtWork {
    admission: Arc<Admission>,
    /// There is a gate in the kernel.
    has_gate: bool,
    _control: Control,
}

impl AtWork {
    /// Gives up what it took to set up the gate, for the calling thread and those it will start: for
    /// a program that does nothing but serve. Our own threads have done so when they started; only the
    /// controller's keeps what it takes to read and to remove the rules of `nft` and `iptables`.
    pub(crate) fn give_up_rights(&self) {
        if self.has_gate
            && let Err(error) = capability::give_up(&Capability::ALL)
        {
            log::warn!("the server keeps rights that it does not need", error = %error);
        }
    }
}

impl fmt::Debug for AtWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.admission.fmt(f)
    }
}
