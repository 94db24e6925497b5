//! Which mechanism of the kernel refuses connections?

use std::io;
use std::net::SocketAddr;

use highwater_core::time::Instant;
use highwater_sys::Listener;

use super::GateChoice;

/// What refuses connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mechanism {
    Ebpf,
    Nft,
    Iptables,
    Accept,
}

impl Mechanism {
    pub(crate) fn name(self) -> &'static str {
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
    #[default]
    Reset,
    Drop,
}

/// What a gate has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) admitted: u64,
    pub(crate) reset: u64,
    pub(crate) dropped: u64,
}

/// The word that a gate's program checks.
#[derive(Clone, Debug)]
pub(crate) struct Occupancy(std::sync::Arc<std::sync::atomic::AtomicI64>);

impl Occupancy {
    pub(crate) fn add(&self, delta: i64) {
        self.0.fetch_add(delta, std::sync::atomic::Ordering::Relaxed);
    }
}

/// A gate in the kernel.
pub(crate) trait KernelGate: Send {
    fn mechanism(&self) -> Mechanism;
    fn set_limit(&mut self, limit: u32) -> io::Result<()>;
    fn is_adjustable(&self) -> bool;
    fn refuse_by(&mut self, how: Refusal) -> io::Result<bool>;
    fn counts(&mut self) -> io::Result<Counts>;
    fn reconcile(&mut self, now: Instant, accepted: u64);
    fn occupancy(&self) -> Option<Occupancy>;
}

pub(crate) struct Opened {
    pub(crate) gate: Option<Box<dyn KernelGate>>,
    pub(crate) mechanism: Mechanism,
    pub(crate) reason: String,
}

pub(crate) fn open(
    _choice: GateChoice,
    _address: SocketAddr,
    _listeners: &[Listener],
    _limit: u32,
) -> Result<Opened, String> {
    Ok(Opened { gate: None, mechanism: Mechanism::Accept, reason: "no gate in the kernel".into() })
}
