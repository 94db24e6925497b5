//! Which mechanism of the kernel refuses connections?
//!
//! Found by trying, best first: a version number does not show privileges, seccomp profiles or missing
//! modules. Each failure, with its remedy, becomes part of the reason in the log, `/metrics` and `highwater
//! doctor`.
//!
//! | mechanism  | needs         | changes its limit | refuses by   |
//! |------------|---------------|-------------------|--------------|
//! | [`ebpf`]   | CAP_BPF       | by a store        | reset, drop  |
//! | [`nft`]    | CAP_NET_ADMIN | no                | reset        |
//! | `accept`   | nothing       | by a store        | not at all: connections wait |
//! | [`iptables`] | CAP_NET_ADMIN | no              | reset        |
//!
//! `iptables` is only used when asked for: its rule counts like that of `nft`, but stays if its process
//! cannot clean up.
//!
//! Invariants: a gate acts in the network namespace of the thread that opens it, from before the first
//! connection is accepted; it is removed when it is dropped, and when the process dies.
#![cfg_attr(
    not(all(target_os = "linux", not(highwater_portable_only))),
    allow(dead_code, unreachable_code, reason = "only Linux has these mechanisms")
)]

#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
mod ceiling;
mod ebpf;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
mod firewall;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
mod iptables;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
mod nft;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use highwater_core::time::Instant;
use highwater_sys::Listener;
use highwater_sys::bpf::Sources;

use super::GateChoice;

#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
pub use ceiling::Ceiling;
pub(crate) use ebpf::Occupancy;

/// A mechanism that refuses connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mechanism {
    Ebpf,
    Nft,
    Iptables,
    Accept,
}

impl Mechanism {
    /// Its name in the settings and the metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Mechanism::Ebpf => "ebpf",
            Mechanism::Nft => "nft",
            Mechanism::Iptables => "iptables",
            Mechanism::Accept => "accept",
        }
    }
}

/// How a connection is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The client learns it at once.
    #[default]
    Reset,
    /// The client gets no packet, and tries again after a second.
    Drop,
}

/// The counts of a gate so far. A count that a mechanism does not support is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) admitted: u64,
    pub(crate) reset: u64,
    pub(crate) dropped: u64,
}

/// A rule with a limit that cannot change: a replaced rule loses its count. It counts idle connections, too,
/// and refuses by resets only. Removed when dropped.
pub(crate) trait FixedCeiling: Send {
    fn mechanism(&self) -> Mechanism;

    /// The counts so far, about a second old at most.
    fn counts(&mut self) -> io::Result<Counts>;
}

/// One ceiling per address; each has the whole limit, since they cannot share a count.
struct Ceilings(Vec<Box<dyn FixedCeiling>>);

impl FixedCeiling for Ceilings {
    fn mechanism(&self) -> Mechanism {
        self.0[0].mechanism()
    }

    fn counts(&mut self) -> io::Result<Counts> {
        self.0.iter_mut().try_fold(Counts::default(), |sum, ceiling| {
            let counts = ceiling.counts()?;
            Ok(Counts {
                admitted: sum.admitted + counts.admitted,
                reset: sum.reset + counts.reset,
                dropped: sum.dropped + counts.dropped,
            })
        })
    }
}

/// A gate whose limit and way of refusing can change while it is in force. Removed when dropped.
pub(crate) trait AdjustableGate: Send {
    fn mechanism(&self) -> Mechanism;

    /// The counts so far.
    fn counts(&mut self) -> io::Result<Counts>;

    /// Sets how much work may be in flight.
    fn set_limit(&mut self, limit: u32) -> io::Result<()>;

    /// Refuses differently from now on.
    fn refuse_by(&mut self, how: Refusal) -> io::Result<()>;

    /// Corrects the count of work by handshakes that were admitted and will not complete; `accepted` is how
    /// many connections were accepted so far.
    fn reconcile(&mut self, now: Instant, accepted: u64);

    /// The counter that workers update with their work; `None` if the gate counts on its own.
    fn occupancy(&self) -> Option<Occupancy>;

    /// What the gate knows of where connections come from; `None` if it knows nothing.
    fn sources(&self) -> Option<Sources>;
}

/// What refuses connections in the kernel.
pub(crate) enum KernelGate {
    Fixed(Box<dyn FixedCeiling>),
    Adjustable(Box<dyn AdjustableGate>),
}

impl KernelGate {
    pub(crate) fn mechanism(&self) -> Mechanism {
        match self {
            KernelGate::Fixed(ceiling) => ceiling.mechanism(),
            KernelGate::Adjustable(gate) => gate.mechanism(),
        }
    }

    /// The counts so far, about a second old at most.
    pub(crate) fn counts(&mut self) -> io::Result<Counts> {
        match self {
            KernelGate::Fixed(ceiling) => ceiling.counts(),
            KernelGate::Adjustable(gate) => gate.counts(),
        }
    }

    /// Refuses by `how` from now on. Returns whether it can.
    pub(crate) fn refuse_by(&mut self, how: Refusal) -> io::Result<bool> {
        match self {
            KernelGate::Fixed(_) => Ok(how == Refusal::Reset),
            KernelGate::Adjustable(gate) => gate.refuse_by(how).map(|()| true),
        }
    }

    pub(crate) fn is_adjustable(&self) -> bool {
        matches!(self, KernelGate::Adjustable(_))
    }

    /// The adjustable gate, if it is not a fixed ceiling.
    pub(crate) fn adjustable(&mut self) -> Option<&mut dyn AdjustableGate> {
        match self {
            KernelGate::Fixed(_) => None,
            KernelGate::Adjustable(gate) => Some(&mut **gate),
        }
    }

    /// The counter that workers update with their work, if the gate needs one.
    pub(crate) fn occupancy(&self) -> Option<Occupancy> {
        match self {
            KernelGate::Fixed(_) => None,
            KernelGate::Adjustable(gate) => gate.occupancy(),
        }
    }

    /// What the gate knows of where connections come from.
    pub(crate) fn sources(&self) -> Option<Sources> {
        match self {
            KernelGate::Fixed(_) => None,
            KernelGate::Adjustable(gate) => gate.sources(),
        }
    }
}

/// One of the server's TCP addresses.
pub(crate) struct Entry<'l> {
    pub(crate) address: SocketAddr,
    /// All listeners there.
    pub(crate) listeners: &'l [Listener],
    /// No other process has these sockets.
    pub(crate) is_ours: bool,
}

/// The result of [`open`].
pub(crate) struct Opened {
    /// `None` if there is no gate in the kernel.
    pub(crate) gate: Option<KernelGate>,
    pub(crate) mechanism: Mechanism,
    /// Why this one, and not a better one.
    pub(crate) reason: String,
}

/// Opens the requested gate, or the best one that works, in front of all `entries`.
///
/// There is none in front of sockets of another process: a program that is attached to them would stay, and refuse,
/// when this process has ended.
///
/// # Errors
/// The gate that was asked for by name does not work here: why, and what to change.
pub(crate) fn open(
    choice: GateChoice,
    entries: &[Entry<'_>],
    limit: u32,
) -> Result<Opened, String> {
    #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
    let ceilings = |open: fn(SocketAddr, u32) -> io::Result<Box<dyn FixedCeiling>>| {
        let each = entries.iter().map(|entry| open(entry.address, limit));
        each.collect::<io::Result<Vec<_>>>().map(|all| KernelGate::Fixed(Box::new(Ceilings(all))))
    };
    let try_one = |mechanism: Mechanism| -> io::Result<KernelGate> {
        if entries.is_empty() {
            return Err(io::Error::other("the server listens on no IP address"));
        }
        if let Some(entry) = entries.iter().find(|entry| !entry.is_ours) {
            let address = entry.address;
            return Err(io::Error::other(format!(
                "the socket of {address} is the service manager's"
            )));
        }
        Ok(match mechanism {
            Mechanism::Ebpf => KernelGate::Adjustable(Box::new(ebpf::Ebpf::open(entries, limit)?)),
            #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
            Mechanism::Nft => ceilings(|at, limit| Ok(Box::new(nft::Nft::open(at, limit)?)))?,
            #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
            Mechanism::Iptables => {
                ceilings(|at, limit| Ok(Box::new(iptables::Iptables::open(at, limit)?)))?
            }
            #[cfg(not(all(target_os = "linux", not(highwater_portable_only))))]
            Mechanism::Nft | Mechanism::Iptables => {
                return Err(io::Error::other("its rules are for Linux's firewall"));
            }
            Mechanism::Accept => unreachable!("it is the choice when no gate can be opened"),
        })
    };
    let only = match choice {
        GateChoice::Auto => return Ok(best(&[Mechanism::Ebpf, Mechanism::Nft], try_one)),
        GateChoice::Ebpf => Mechanism::Ebpf,
        GateChoice::Nft => Mechanism::Nft,
        GateChoice::Iptables => Mechanism::Iptables,
    };
    match try_one(only) {
        Ok(gate) => Ok(Opened {
            gate: Some(gate),
            mechanism: only,
            reason: format!("--gate {} was asked for", only.name()),
        }),
        Err(error) => Err(format!(
            "--gate {} does not work here: {error}; or let --gate auto choose",
            only.name()
        )),
    }
}

/// Which gate a server would choose on this machine, and why: opens one in front of a loopback port, and
/// removes it again.
pub fn gate_here() -> (&'static str, String) {
    let tried = Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), 1).and_then(|listener| {
        let address = listener.local_addr()?;
        let entry = Entry { address, listeners: &[listener], is_ours: true };
        open(GateChoice::Auto, &[entry], 1).map_err(io::Error::other)
    });
    match tried {
        Ok(Opened { mechanism, reason, .. }) => (mechanism.name(), reason),
        Err(error) => (Mechanism::Accept.name(), error.to_string()),
    }
}

/// The first of `mechanisms` that opens, or none; with the failures of those before it.
fn best(mechanisms: &[Mechanism], try_one: impl Fn(Mechanism) -> io::Result<KernelGate>) -> Opened {
    let mut against = Vec::new();
    for &mechanism in mechanisms {
        match try_one(mechanism) {
            Ok(gate) => {
                let reason = if against.is_empty() {
                    format!("{} works here", mechanism.name())
                } else {
                    format!("{} works here; {}", mechanism.name(), against.join("; "))
                };
                return Opened { gate: Some(gate), mechanism, reason };
            }
            Err(error) => against.push(format!("not {}: {error}", mechanism.name())),
        }
    }
    Opened { gate: None, mechanism: Mechanism::Accept, reason: against.join("; ") }
}

#[cfg(test)]
mod tests;
