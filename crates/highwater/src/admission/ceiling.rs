//! How is a fixed ceiling put before a port on which somebody else listens?
//!
//! By a rule of the firewall, as for a server of ours (`kernel/nft.rs`, `kernel/iptables.rs`): for
//! tools that guard other servers, where there is no [`PortGate`](highwater_sys::bpf::PortGate) to be
//! had. It counts every connection of the port, idle ones too, and cannot change its limit without
//! losing count.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::GateChoice;
use super::kernel::{self, KernelGate};

/// A rule that refuses connections beyond a fixed number. Gone when dropped.
pub struct PortCeiling(Box<dyn KernelGate>);

impl PortCeiling {
    /// Puts a ceiling of `limit` connections before `port`, on every address of this thread's network
    /// namespace. `choice` is [`GateChoice::Iptables`], or any other for nftables.
    ///
    /// # Errors
    /// What was refused, and what to change. Nothing is left behind.
    pub fn open(choice: GateChoice, port: u16, limit: u32) -> io::Result<PortCeiling> {
        let address = SocketAddr::from((IpAddr::from(Ipv6Addr::UNSPECIFIED), port));
        kernel::ceiling(choice, address, limit).map(PortCeiling)
    }

    /// Connections refused so far, about a second ago.
    ///
    /// # Errors
    /// The tool that knows does not answer.
    pub fn refused(&mut self) -> io::Result<u64> {
        self.0.counts().map(|counts| counts.reset)
    }
}
