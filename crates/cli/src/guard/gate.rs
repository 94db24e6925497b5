//! What protects the port, and what does the guard see of its connections?
//!
//! Two things: the kernel's gate, which refuses and counts, and the kernel's list of connections,
//! which shows how many there are and which of them wait to be read (`queue.rs`).
//!
//! Reading the list costs about a microsecond per connection. The guard reads it every [`LOOK`]. If
//! that would take more than one part in [`LOOK_SHARE`] of the time, it reads it less often, but at
//! least every [`LOOK_MAX`].
//!
//! The kernel's gate counts every connection, because it cannot tell which are idle. The list can.
//! So with each look, a limit that was found for connections with work is raised by the number of
//! idle ones.
//!
//! Invariant: only established connections count as in flight. A handshake may never complete, and a
//! packet may belong to no connection: neither moves the limit, and neither holds a place for long.

use std::path::Path;
use std::time::Duration;

use highwater::logging::rate_limited;
use highwater::server::{Ceiling, GateChoice};
use highwater_core::time::Instant;
use highwater_sys::bpf::{self, PortGate};
use highwater_sys::{Connections, InetDiag, clock};

use super::args::{Args, Limits};
use super::drift::Drift;
use super::queue;
use super::turnover::Turnover;
use super::window::Counted;

/// How often the list of connections is read, at most: with every turn of the guard.
const LOOK: Duration = super::TURN;

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
    Counting(Counting),
    /// A BPF program, to which the guard reports how many connections there are.
    Listed(Listed),
    /// A firewall rule, whose limit cannot change.
    Ceiling { gate: Ceiling, refused: u64 },
}

/// A BPF program, another that counts, and what the second cannot see.
struct Counting {
    gate: PortGate,
    drift: Drift,
    /// Connections that began before the gate, as far as they have not ended, and other corrections.
    unseen: i64,
}

/// A BPF program that sees only packets without a connection.
struct Listed {
    gate: PortGate,
    turnover: Turnover,
    open_at_start: u32,
    closed: u64,
}

impl Gate {
    /// Opens the gate that `args` ask for, or the best one available, with `limit` in force.
    ///
    /// # Errors
    /// The requested gate cannot be opened: why, and what to do about it.
    pub(crate) fn open(args: &Args, limit: u32) -> Result<Gate, String> {
        let mut list = List::of(args)?;
        list.look(clock::monotonic());
        let (mut kernel, mechanism, reason) = if args.dry_run {
            (Kernel::Nothing, "none", "--dry-run was asked for".to_owned())
        } else {
            open_kernel(args, limit, list.open())?
        };
        if let Kernel::Counting(counting) = &mut kernel {
            list.due = Instant::ZERO;
            list.look(clock::monotonic());
            counting.begin(list.open());
        }
        // The first turn looks again, so that the first line knows how long requests wait.
        list.due = Instant::ZERO;
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
        let idle = if self.is_found { self.list.seen.idle } else { 0 };
        if (limit, idle) == (self.limit, self.idle) {
            return;
        }
        (self.limit, self.idle) = (limit, idle);
        match &self.kernel {
            Kernel::Nothing | Kernel::Ceiling { .. } => {}
            Kernel::Counting(Counting { gate, .. }) | Kernel::Listed(Listed { gate, .. }) => {
                gate.words().set_limit(limit.saturating_add(idle))
            }
        }
    }

    /// The counts at `now`.
    pub(crate) fn counted(&mut self, now: Instant) -> Counted {
        let waited = self.list.look(now);
        let (open, idle) = (self.list.open(), self.idle);
        let Connections { listeners, backlog, abandoned, .. } = self.list.seen;
        let in_flight = Some(open.saturating_sub(idle));
        let listed = Counted {
            in_flight,
            waited,
            backlog,
            abandoned,
            idle,
            listeners,
            ..Counted::default()
        };
        match &mut self.kernel {
            Kernel::Nothing => listed,
            Kernel::Counting(counting) => counting.counted(now, open, listed),
            Kernel::Listed(gate) => gate.counted(now, open, listed),
            Kernel::Ceiling { gate, refused } => {
                match gate.refused() {
                    Ok(count) => *refused = count,
                    Err(error) => rate_limited!(WARN, error = %error, "refusals cannot be counted"),
                }
                Counted { refused: *refused, ..listed }
            }
        }
    }

    /// Opens the gate again without the control group if its processes are not the ones that listen:
    /// then no event ever comes, and the gate would refuse nothing. Answers whether it did.
    ///
    /// # Errors
    /// The gate cannot be opened without the control group either.
    pub(crate) fn leave_wrong_group(&mut self, args: &Args) -> Result<bool, String> {
        let Kernel::Counting(counting) = &self.kernel else { return Ok(false) };
        if !counting.sees_nothing() {
            return Ok(false);
        }
        let why = "the processes that listen are not in the control group";
        let limit = self.limit.saturating_add(self.idle);
        let gate = Listed::attach(args, limit, self.list.open())?;
        (self.kernel, self.reason) = (Kernel::Listed(gate), listed_because(why));
        Ok(true)
    }
}

impl Counting {
    /// Takes in how many connections there are just after the gate was opened. Those without an event
    /// began before it, and count like later ones.
    fn begin(&mut self, open: u32) {
        let (established, closed) = self.gate.words().lives();
        self.unseen = i64::from(open) - (established - closed) as i64;
        self.gate.words().add_taken(self.unseen);
    }

    fn counted(&mut self, now: Instant, listed_open: u32, listed: Counted) -> Counted {
        self.gate.reconcile(now);
        let words = self.gate.words();
        let ((established, closed), counts) = (words.lives(), words.counts());
        let mut open = self.unseen + established as i64 - closed as i64;
        if listed.waited.is_some() {
            let correction = self.drift.observe(now, open - i64::from(listed_open));
            words.add_taken(correction);
            self.unseen += correction;
            open += correction;
        }
        let open = u32::try_from(open).unwrap_or(0);
        Counted {
            admitted: established,
            refused: counts.reset,
            completed: Some(closed),
            in_flight: Some(open.saturating_sub(listed.idle)),
            ..listed
        }
    }

    /// Whether connections came, but no event.
    fn sees_nothing(&self) -> bool {
        self.unseen > 0 && self.drift.has_added() && self.gate.words().lives().0 == 0
    }
}

impl Listed {
    fn attach(args: &Args, limit: u32, open_at_start: u32) -> Result<Listed, String> {
        let gate =
            PortGate::attach(args.guarded(), None, limit).map_err(|error| error.to_string())?;
        Ok(Listed { gate, turnover: Turnover::default(), open_at_start, closed: 0 })
    }

    fn counted(&mut self, now: Instant, open: u32, listed: Counted) -> Counted {
        let counts = self.gate.words().counts();
        if listed.waited.is_some() {
            let gone = self.turnover.observe(now, counts.admitted, open);
            self.gate.words().set_taken(i64::from(open) - i64::from(gone));
            let came = counts.admitted + u64::from(self.open_at_start);
            self.closed = came.saturating_sub(open.into()).max(self.closed);
        }
        let (admitted, refused) = (counts.admitted, counts.reset);
        Counted { admitted, refused, completed: Some(self.closed), ..listed }
    }
}

/// Why a gate counts by the list of connections.
fn listed_because(why: &str) -> String {
    format!("a BPF program refuses; connections are listed, not counted: {why}")
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
    let attach = |cgroup: &Path| PortGate::attach(args.guarded(), Some(cgroup), limit);
    let cgroup = args.cgroup.clone().or_else(bpf::cgroup_root);
    let why_told = match cgroup {
        None => "no cgroup v2 is mounted".to_owned(),
        Some(cgroup) => match attach(&cgroup) {
            Ok(gate) => {
                let reason =
                    format!("a BPF program refuses, another in {} counts", cgroup.display());
                let counting = Counting { gate, drift: Drift::default(), unseen: 0 };
                return Ok((Kernel::Counting(counting), reason));
            }
            // A group that the operator named must work.
            Err(error) if args.cgroup.is_some() => return Err(error.to_string()),
            Err(error) => error.to_string(),
        },
    };
    let gate = Listed::attach(args, limit, open_at_start)?;
    Ok((Kernel::Listed(gate), listed_because(&why_told)))
}

/// The kernel's list of the port's connections.
struct List {
    diag: InetDiag,
    due: Instant,
    /// What was there at the last look.
    seen: Connections,
}

impl List {
    fn of(args: &Args) -> Result<List, String> {
        let diag = InetDiag::open(args.port, args.address)
            .map_err(|error| format!("the kernel does not list connections: {error}"))?;
        Ok(List { diag, due: Instant::ZERO, seen: Connections::default() })
    }

    /// Connections at the last look, without handshakes in progress: those may never complete.
    fn open(&self) -> u32 {
        self.seen.count() - self.seen.opening
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
                let waited = queue::delay(&seen);
                self.seen = seen;
                Some(waited)
            }
            Err(error) => {
                rate_limited!(WARN, error = %error, "connections cannot be looked at");
                None
            }
        }
    }
}
