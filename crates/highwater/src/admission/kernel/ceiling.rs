//! A fixed ceiling in front of a port of any server.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use super::{FixedCeiling, iptables, nft};
use crate::admission::GateChoice;

/// A firewall rule that refuses connections to a port of any process while there are more than a fixed
/// number. Idle connections count, too. The rule is removed when this is dropped, and when the process dies.
///
/// ```no_run
/// use highwater::server::{Ceiling, GateChoice};
///
/// let mut ceiling = Ceiling::open(GateChoice::Nft, ([0, 0, 0, 0], 80).into(), 500)?;
/// println!("{} refused", ceiling.refused()?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Ceiling(Box<dyn FixedCeiling>);

impl Ceiling {
    /// Refuses connections to `address` beyond `limit`, in this thread's network namespace. An unspecified
    /// address means every address of its family; `[::]` is IPv4's as well. iptables counts each family for itself, so
    /// that each may have `limit` connections there.
    ///
    /// [`GateChoice::Auto`] is [`GateChoice::Nft`].
    ///
    /// # Errors
    /// What is missing, and the remedy. `Unsupported` for [`GateChoice::Ebpf`], which is not a ceiling:
    /// see [`highwater_sys::bpf::PortGate`].
    pub fn open(choice: GateChoice, address: SocketAddr, limit: u32) -> io::Result<Ceiling> {
        let gate: Box<dyn FixedCeiling> = match choice {
            GateChoice::Auto | GateChoice::Nft => Box::new(nft::Nft::open(address, limit)?),
            GateChoice::Iptables => Box::new(iptables::Iptables::open(address, limit)?),
            GateChoice::Ebpf => {
                return Err(io::Error::new(io::ErrorKind::Unsupported, "ebpf is no fixed ceiling"));
            }
        };
        Ok(Ceiling(gate))
    }

    /// `nft` or `iptables`.
    pub fn mechanism(&self) -> &'static str {
        self.0.mechanism().name()
    }

    /// Connection attempts refused so far, about a second old at most.
    ///
    /// # Errors
    /// The tool failed, or the rule was removed from outside.
    pub fn refused(&mut self) -> io::Result<u64> {
        Ok(self.0.counts()?.reset)
    }
}

impl fmt::Debug for Ceiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ceiling").field(&self.mechanism()).finish()
    }
}
