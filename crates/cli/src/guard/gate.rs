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
use highwater_sys::bpf::{self, PassiveOpens, PortGate, Words};
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

/// Looking may take one part in this many of the time, unless that would be less often than every [`LOOK_MAX`].
const LOOK_SHARE: u32 = 100;

/// For how long after its beginning the guard looks every [`LOOK`], whatever that takes: until it knows how many connections
/// come and go.
const LOOK_OFTEN: Duration = Duration::from_secs(1);

/// For how long the limit holds if the guard does not go on, because it is stopped or gets no processor: after that, the
/// gate is open. Longer: connections are refused because of an old count. Shorter: a guard that is delayed refuses nobody
/// when it matters. A guess.
const VALID: Duration = Duration::from_secs(2);

/// Two reads of a rule's counter that fail within this time are failures in a row, unless one between them succeeds. The
/// counter is read once a second; until then its last count is returned again. So a count that comes this long after a
/// failure was read.
const FAILED_AGAIN: Duration = Duration::from_secs(5);
const READ_AGAIN: Duration = Duration::from_millis(1500);

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
    Ceiling(Ruled),
}

/// A firewall rule, and what it has refused.
struct Ruled {
    gate: Ceiling,
    choice: GateChoice,
    /// By rules that are gone, and by all.
    refused_before: u64,
    refused: u64,
    failures: Failures,
    /// Its counter could not be read twice in a row.
    is_gone: bool,
}

/// When a rule's counter could not be read last, unless it was read since.
#[derive(Debug, Default)]
struct Failures(Option<Instant>);

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
    /// How many connections have begun since: unlike the gate, the kernel does not count stray packets.
    begun: PassiveOpens,
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
        let gate = Gate { kernel, list, mechanism, reason, limit, idle: 0, is_found: false };
        gate.extend_validity(clock::monotonic());
        Ok(gate)
    }

    /// The chosen mechanism, and why.
    pub(crate) fn chosen(&self) -> (&'static str, &str) {
        (self.mechanism, &self.reason)
    }

    /// Where the limit comes from, given what this gate can do.
    pub(crate) fn grant(&mut self, limits: Limits) -> Limits {
        let granted = match (&self.kernel, limits) {
            (Kernel::Ceiling(_), Limits::Found { .. }) => {
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
        if let Some(words) = self.words() {
            words.set_limit(limit.saturating_add(idle));
        }
    }

    /// The counts at `now`.
    pub(crate) fn counted(&mut self, now: Instant) -> Counted {
        self.extend_validity(now);
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
            Kernel::Listed(gate) => {
                let next = self.list.due.saturating_since(now);
                gate.counted(now, open, next, listed)
            }
            Kernel::Ceiling(rule) => Counted { refused: rule.refused(now), ..listed },
        }
    }

    /// The guard goes on, so what it has told the gate is valid.
    fn extend_validity(&self, now: Instant) {
        if let Some(words) = self.words() {
            words.set_valid_until(now + VALID);
        }
    }

    /// The page of the BPF program, if that is what refuses.
    fn words(&self) -> Option<&Words> {
        match &self.kernel {
            Kernel::Nothing | Kernel::Ceiling(_) => None,
            Kernel::Counting(Counting { gate, .. }) | Kernel::Listed(Listed { gate, .. }) => {
                Some(gate.words())
            }
        }
    }

    /// Opens the gate again if it would refuse nothing. Answers whether it did.
    ///
    /// # Errors
    /// The gate cannot be opened again.
    pub(crate) fn open_again_if_broken(&mut self, args: &Args) -> Result<bool, String> {
        match &self.kernel {
            Kernel::Counting(counting) if counting.sees_nothing() => self.leave_wrong_group(args),
            Kernel::Ceiling(rule) if rule.is_gone => self.open_rule_again(args),
            _ => Ok(false),
        }
    }

    /// Opens a firewall rule again that was removed from outside, or whose process was killed.
    fn open_rule_again(&mut self, args: &Args) -> Result<bool, String> {
        // What is left of the old one is removed first.
        let Kernel::Ceiling(rule) = std::mem::replace(&mut self.kernel, Kernel::Nothing) else {
            return Ok(false);
        };
        let (choice, refused) = (rule.choice, rule.refused);
        drop(rule);
        let rule = Ruled::open(choice, args, self.limit, refused)
            .map_err(|error| format!("the gate is gone and cannot be opened again: {error}"))?;
        self.kernel = Kernel::Ceiling(rule);
        Ok(true)
    }

    /// Opens the gate again without the control group, whose processes are not the ones that listen:
    /// no event ever comes.
    fn leave_wrong_group(&mut self, args: &Args) -> Result<bool, String> {
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
            admitted: Some(established),
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
        let (turnover, begun) = (Turnover::default(), PassiveOpens::watch());
        Ok(Listed { gate, turnover, open_at_start, begun, closed: 0 })
    }

    /// `next` is when the list is read again.
    fn counted(&mut self, now: Instant, open: u32, next: Duration, listed: Counted) -> Counted {
        let counts = self.gate.words().counts();
        if listed.waited.is_some() {
            let gone = self.turnover.observe(now, counts.admitted, open, next);
            self.gate.words().set_taken(i64::from(open) - i64::from(gone));
            // Other ports' connections are among those that began, stray packets among those admitted.
            let begun = self.begun.count().unwrap_or(u64::MAX).min(counts.admitted);
            let came = begun + u64::from(self.open_at_start);
            self.closed = came.saturating_sub(open.into()).max(self.closed);
        }
        let (admitted, refused) = (Some(counts.admitted), counts.reset);
        Counted { admitted, refused, completed: Some(self.closed), ..listed }
    }
}

impl Ruled {
    /// A rule after others that have refused so many.
    fn open(
        choice: GateChoice,
        args: &Args,
        limit: u32,
        refused_before: u64,
    ) -> Result<Ruled, String> {
        let gate =
            Ceiling::open(choice, args.guarded(), limit).map_err(|error| error.to_string())?;
        let refused = refused_before;
        let failures = Failures::default();
        Ok(Ruled { gate, choice, refused_before, refused, failures, is_gone: false })
    }

    /// How many connections were refused. Notices if the rule is gone.
    fn refused(&mut self, now: Instant) -> u64 {
        match self.gate.refused() {
            Ok(count) => {
                self.refused = self.refused_before + count;
                self.failures.counted(now);
            }
            Err(error) => {
                rate_limited!(WARN, error = %error, "refusals cannot be counted");
                self.is_gone = self.failures.failed(now);
            }
        }
        self.refused
    }
}

impl Failures {
    /// There is a count.
    fn counted(&mut self, now: Instant) {
        self.0 = self.0.filter(|&at| now.saturating_since(at) < READ_AGAIN);
    }

    /// The counter cannot be read. Returns whether that is so for the second time in a row.
    fn failed(&mut self, now: Instant) -> bool {
        let before = self.0.replace(now);
        before.is_some_and(|at| now.saturating_since(at) < FAILED_AGAIN)
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
        let rule = Ruled::open(choice, args, limit, 0)?;
        let reason = format!("--mechanism {name} was asked for");
        Ok((Kernel::Ceiling(rule), name, reason))
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
    began: Option<Instant>,
    due: Instant,
    /// What was there at the last look.
    seen: Connections,
}

impl List {
    fn of(args: &Args) -> Result<List, String> {
        let diag = InetDiag::open(args.port, args.address)
            .map_err(|error| format!("the kernel does not list connections: {error}"))?;
        Ok(List { diag, began: None, due: Instant::ZERO, seen: Connections::default() })
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
        let began = *self.began.get_or_insert(now);
        let is_early = now.saturating_since(began) < LOOK_OFTEN;
        self.due = now + if is_early { LOOK } else { (took * LOOK_SHARE).clamp(LOOK, LOOK_MAX) };
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a rule is taken for gone when its counter cannot be read twice in a row. A tool that failed every other time,
    /// as when others hold the lock of the rules, once cost the rule, and with it its count of connections.
    #[test]
    fn failures_in_a_row() {
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let mut failures = Failures::default();
        assert!(!failures.failed(at(0)));
        for millis in (25..2000).step_by(25) {
            failures.counted(at(millis)); // Before a second has passed, that is an old count.
        }
        assert!(!failures.failed(at(2000)), "it was read at 1000");
        (2025..3000).step_by(25).for_each(|millis| failures.counted(at(millis)));
        assert!(failures.failed(at(3000)));
        assert!(!failures.failed(at(8000)), "long ago");
    }
}
