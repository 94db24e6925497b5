//! What protects the port, and what does the guard see of its connections?
//!
//! Two things: the kernel's gate, which refuses and counts, and the kernel's list of connections,
//! which tells how many there are and which of them wait to be read (`queue.rs`).
//!
//! Reading the list costs about a microsecond per connection. The guard reads it every [`LOOK`]. If
//! that would take more than one part in [`LOOK_SHARE`] of the time, it reads it less often, but at
//! least every [`LOOK_MAX`].
//!
//! The kernel's gate counts every connection, because it cannot tell which are idle. The list can.
//! So with each look, a limit that was found for connections with work is raised by the number of
//! idle ones.

use std::path::Path;
use std::time::Duration;

use highwater::logging::rate_limited;
use highwater::server::{Ceiling, GateChoice};
use highwater_core::time::Instant;
use highwater_sys::bpf::{self, PortGate};
use highwater_sys::{InetDiag, clock};

use super::args::{Args, Limits};
use super::drift::Drift;
use super::queue;
use super::window::Counted;

/// How often the list of connections is read, at most.
const LOOK: Duration = Duration::from_millis(50);

/// And at least: a look that took long may only have waited for a core.
const LOOK_MAX: Duration = Duration::from_millis(400);

/// Looking may take one part in this many of the time.
const LOOK_SHARE: u32 = 100;

/// The gate of one port.
pub(crate) struct Gate {
    kernel: Kernel,
    list: List,
    mechanism: &'static str,
    reason: String,
    /// The limit in force, for connections that are not idle.
    limit: u32,
    /// How many idle connections are allowed beside them: all of them if the limit is found, none
    /// if the operator gave a number.
    idle: u32,
    is_found: bool,
}

/// The mechanism that refuses.
enum Kernel {
    /// None: a dry run.
    Nothing,
    /// A BPF program that is notified when connections begin and end.
    Counting { gate: PortGate, drift: Drift },
    /// A BPF program; the guard tells it how many connections there are.
    Told { gate: PortGate, closed: u64, open_at_start: u32 },
    /// A firewall rule, whose limit cannot change.
    Ceiling { gate: Ceiling, refused: u64 },
}

impl Gate {
    /// Opens the gate that `args` ask for, or the best one available, with `limit` in force.
    ///
    /// # Errors
    /// The requested gate cannot be opened: why, and what to do about it.
    pub(crate) fn open(args: &Args, limit: u32) -> Result<Gate, String> {
        let mut list = List::open(args)?;
        list.look(clock::monotonic());
        let (kernel, mechanism, reason) = if args.dry_run {
            (Kernel::Nothing, "none", "--dry-run was asked for".to_owned())
        } else {
            open_kernel(args, limit, list.open)?
        };
        Ok(Gate { kernel, list, mechanism, reason, limit, idle: 0, is_found: false })
    }

    /// The chosen mechanism, and why.
    pub(crate) fn chosen(&self) -> (&'static str, &str) {
        (self.mechanism, &self.reason)
    }

    /// Where the limit comes from, given what this gate can do.
    pub(crate) fn grant(&mut self, limits: Limits) -> Limits {
        let granted = match (&self.kernel, limits) {
            (Kernel::Ceiling { .. }, Limits::Found { .. }) => {
                tracing::warn!(
                    mechanism = self.mechanism,
                    limit = self.limit,
                    remedy = "grant CAP_BPF, or name the right --limit",
                    "the limit stays, as this mechanism would lose count",
                );
                Limits::Fixed(self.limit)
            }
            _ => limits,
        };
        self.is_found = matches!(granted, Limits::Found { .. });
        granted
    }

    /// Replaces the limit, from the next connection on.
    pub(crate) fn set_limit(&mut self, limit: u32) {
        let idle = if self.is_found { self.list.idle } else { 0 };
        if (limit, idle) == (self.limit, self.idle) {
            return;
        }
        (self.limit, self.idle) = (limit, idle);
        match &self.kernel {
            Kernel::Nothing | Kernel::Ceiling { .. } => {}
            Kernel::Counting { gate, .. } | Kernel::Told { gate, .. } => {
                gate.words().set_limit(limit.saturating_add(idle))
            }
        }
    }

    /// The counts at `now`.
    pub(crate) fn counted(&mut self, now: Instant) -> Counted {
        let waited = self.list.look(now);
        let (open, is_fresh) = (self.list.open, waited.is_some());
        let (backlog, abandoned) = (self.list.backlog, self.list.abandoned);
        let idle = self.idle;
        let in_flight = Some(open.saturating_sub(idle));
        let listed = Counted { in_flight, waited, backlog, abandoned, idle, ..Counted::default() };
        match &mut self.kernel {
            Kernel::Nothing => listed,
            Kernel::Counting { gate, drift } => {
                if is_fresh {
                    let correction = drift.observe(now, gate.words().taken() - i64::from(open));
                    gate.words().add_taken(correction);
                }
                let (counts, (_, closed)) = (gate.words().counts(), gate.words().lives());
                Counted {
                    admitted: counts.admitted,
                    refused: counts.reset,
                    completed: Some(closed),
                    in_flight: Some(
                        u32::try_from(gate.words().taken()).unwrap_or(0).saturating_sub(idle),
                    ),
                    ..listed
                }
            }
            Kernel::Told { gate, closed, open_at_start } => {
                let counts = gate.words().counts();
                if is_fresh {
                    gate.words().set_taken(open);
                    let came = counts.admitted + u64::from(*open_at_start);
                    *closed = came.saturating_sub(open.into()).max(*closed);
                }
                let (admitted, refused) = (counts.admitted, counts.reset);
                Counted { admitted, refused, completed: Some(*closed), ..listed }
            }
            Kernel::Ceiling { gate, refused } => {
                match gate.refused() {
                    Ok(count) => *refused = count,
                    Err(error) => rate_limited!(WARN, error = %error, "refusals cannot be counted"),
                }
                Counted { refused: *refused, ..listed }
            }
        }
    }
}

/// The gate that `args` ask for, or the best one available: its name, and why it was chosen.
fn open_kernel(
    args: &Args,
    limit: u32,
    open_at_start: u32,
) -> Result<(Kernel, &'static str, String), String> {
    let bpf = || open_bpf(args, limit, open_at_start).map(|(kernel, why)| (kernel, "ebpf", why));
    let ceiling = |choice, name| {
        let gate =
            Ceiling::open(choice, args.guarded(), limit).map_err(|error| error.to_string())?;
        let reason = format!("--mechanism {name} was asked for");
        Ok((Kernel::Ceiling { gate, refused: 0 }, name, reason))
    };
    let cannot = |name| move |why| format!("--mechanism {name} does not work here: {why}");
    match args.mechanism {
        GateChoice::Ebpf => bpf().map_err(cannot("ebpf")),
        GateChoice::Nft => ceiling(GateChoice::Nft, "nft").map_err(cannot("nft")),
        GateChoice::Iptables => {
            ceiling(GateChoice::Iptables, "iptables").map_err(cannot("iptables"))
        }
        GateChoice::Auto => bpf().or_else(|not_bpf| {
            let (kernel, name, _) = ceiling(GateChoice::Nft, "nft").map_err(|not_nft| {
                format!("no gate works here.\n  ebpf: {not_bpf}\n  nft: {not_nft}")
            })?;
            Ok((kernel, name, format!("not ebpf: {not_bpf}")))
        }),
    }
}

/// A BPF program before the port, and the reason for its way of counting.
fn open_bpf(args: &Args, limit: u32, open_at_start: u32) -> Result<(Kernel, String), String> {
    let attach = |cgroup: Option<&Path>| PortGate::attach(args.guarded(), cgroup, limit);
    let cgroup = args.cgroup.clone().or_else(bpf::cgroup_root);
    let why_told = match cgroup {
        None => "no cgroup v2 is mounted".to_owned(),
        Some(cgroup) => match attach(Some(&cgroup)) {
            Ok(gate) => {
                let reason =
                    format!("a BPF program refuses, another in {} counts", cgroup.display());
                // Connections that existed before count like later ones.
                gate.words().set_taken(open_at_start);
                return Ok((Kernel::Counting { gate, drift: Drift::default() }, reason));
            }
            // A group that the operator named must work.
            Err(error) if args.cgroup.is_some() => return Err(error.to_string()),
            Err(error) => error.to_string(),
        },
    };
    let gate = attach(None).map_err(|error| error.to_string())?;
    let reason = format!("a BPF program refuses; connections are listed, not counted: {why_told}");
    Ok((Kernel::Told { gate, closed: 0, open_at_start }, reason))
}

/// The kernel's list of the port's connections.
struct List {
    diag: InetDiag,
    due: Instant,
    /// The number of connections at the last look.
    open: u32,
    backlog: u32,
    abandoned: u32,
    idle: u32,
}

impl List {
    fn open(args: &Args) -> Result<List, String> {
        let diag = InetDiag::open(args.port, args.address)
            .map_err(|error| format!("the kernel does not list connections: {error}"))?;
        Ok(List { diag, due: Instant::ZERO, open: 0, backlog: 0, abandoned: 0, idle: 0 })
    }

    /// Looks if it is time; answers how long requests wait.
    fn look(&mut self, now: Instant) -> Option<Duration> {
        if now < self.due {
            return None;
        }
        let seen = self.diag.look();
        let took = clock::monotonic().saturating_since(now);
        self.due = now + (took * LOOK_SHARE).clamp(LOOK, LOOK_MAX);
        match seen {
            Ok(seen) => {
                self.open = seen.count();
                self.backlog = seen.backlog;
                self.abandoned = seen.abandoned;
                self.idle = seen.idle;
                Some(queue::delay(&seen))
            }
            Err(error) => {
                rate_limited!(WARN, error = %error, "connections cannot be looked at");
                None
            }
        }
    }
}
