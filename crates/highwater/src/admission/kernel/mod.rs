//! Which mechanism of the kernel refuses connections?
//!
//! Found out by trying, best first: a version number says nothing about privileges, seccomp profiles
//! or modules that are missing. What was refused, and what to change, becomes part of the reason
//! that the log, `/metrics` and `highwater doctor` give.
//!
//! | mechanism  | needs         | changes its limit | refuses by   |
//! |------------|---------------|-------------------|--------------|
//! | [`ebpf`]   | CAP_BPF       | by a store        | reset, drop  |
//! | [`nft`]    | CAP_NET_ADMIN | no                | reset        |
//! | `accept`   | nothing       | by a store        | not at all: connections wait |
//! | [`iptables`] | CAP_NET_ADMIN | no              | reset        |
//!
//! `iptables` is only used when asked for: its rule counts like that of `nft`, but stays when its
//! owner cannot clean up.
//!
//! Invariants: a gate acts in the network namespace of the thread that opens it, from before the
//! first connection is accepted; it goes when it is dropped, and when the process dies.

mod ceiling;
mod ebpf;
mod iptables;
mod nft;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use highwater_core::time::Instant;
use highwater_sys::Listener;

use super::GateChoice;

pub use ceiling::Ceiling;
pub(crate) use ebpf::Occupancy;

/// What refuses connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mechanism {
    Ebpf,
    Nft,
    Iptables,
    Accept,
}

impl Mechanism {
    /// As the settings and the metrics call it.
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
    /// The client is told at once.
    #[default]
    Reset,
    /// The client hears nothing, and tries again after a second.
    Drop,
}

/// What a gate has done so far. What a mechanism cannot count is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) admitted: u64,
    pub(crate) reset: u64,
    pub(crate) dropped: u64,
}

/// A gate in the kernel. Closed and gone when dropped.
pub(crate) trait KernelGate: Send {
    fn mechanism(&self) -> Mechanism;

    /// How much work may be under way.
    ///
    /// # Errors
    /// `Unsupported` unless the gate [is adjustable](KernelGate::is_adjustable).
    fn set_limit(&mut self, limit: u32) -> io::Result<()>;

    /// Whether the limit can change without losing count. One that cannot is a fixed ceiling, and
    /// counts idle connections too.
    fn is_adjustable(&self) -> bool;

    /// Refuses differently from now on. Answers whether it can.
    fn refuse_by(&mut self, how: Refusal) -> io::Result<bool>;

    /// What was done so far, about a second old at most.
    fn counts(&mut self) -> io::Result<Counts>;

    /// Corrects the count of work by handshakes that were admitted and are not going to be completed;
    /// `accepted` is how many connections came out of accept, so far.
    fn reconcile(&mut self, now: Instant, accepted: u64);

    /// Where workers say how much work they have; `None` if the gate counts by itself.
    fn occupancy(&self) -> Option<Occupancy>;
}

/// What [`open`] came to.
pub(crate) struct Opened {
    /// `None` if nothing in the kernel refuses.
    pub(crate) gate: Option<Box<dyn KernelGate>>,
    pub(crate) mechanism: Mechanism,
    /// Why this one, and not a better one.
    pub(crate) reason: String,
}

/// Opens the gate that was asked for, or the best there is, before the listeners of `address`.
///
/// # Errors
/// The one that was asked for by name cannot be had: why, and what to change.
pub(crate) fn open(
    choice: GateChoice,
    address: SocketAddr,
    listeners: &[Listener],
    limit: u32,
) -> Result<Opened, String> {
    let try_one = |mechanism: Mechanism| -> io::Result<Box<dyn KernelGate>> {
        Ok(match mechanism {
            Mechanism::Ebpf => Box::new(ebpf::Ebpf::open(address, listeners, limit)?),
            Mechanism::Nft => Box::new(nft::Nft::open(address, limit)?),
            Mechanism::Iptables => Box::new(iptables::Iptables::open(address, limit)?),
            Mechanism::Accept => unreachable!("it is what is left when nothing can be opened"),
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
        Err(error) => {
            Err(format!("--gate {} cannot be had: {error}; or let --gate auto choose", only.name()))
        }
    }
}

/// Which gate a server would have here if it were left to choose, and why: one is made before a port
/// of loopback, and removed again.
pub fn gate_here() -> (&'static str, String) {
    let tried = Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), 1).and_then(|listener| {
        let address = listener.local_addr()?;
        open(GateChoice::Auto, address, &[listener], 1).map_err(io::Error::other)
    });
    match tried {
        Ok(Opened { mechanism, reason, .. }) => (mechanism.name(), reason),
        Err(error) => (Mechanism::Accept.name(), error.to_string()),
    }
}

/// The first of `mechanisms` that opens, or none; with what stood against those before it.
fn best(
    mechanisms: &[Mechanism],
    try_one: impl Fn(Mechanism) -> io::Result<Box<dyn KernelGate>>,
) -> Opened {
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
