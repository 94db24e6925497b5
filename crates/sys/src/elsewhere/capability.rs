//! Privileges of Linux. A process has none of them here, so there is nothing to give up.

use std::fmt;
use std::io;

/// A privilege that a gate needs while it is set up, and not later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Change the network: rules, and programs of control groups.
    NetAdmin,
    /// Nearly anything, including all that `Bpf` allows.
    SysAdmin,
    /// Load and attach BPF programs.
    Bpf,
}

impl Capability {
    /// All capabilities that a gate may need.
    pub const ALL: [Capability; 3] = [Capability::NetAdmin, Capability::SysAdmin, Capability::Bpf];

    /// Its name for `setcap(8)`.
    pub const fn name(self) -> &'static str {
        match self {
            Capability::NetAdmin => "CAP_NET_ADMIN",
            Capability::SysAdmin => "CAP_SYS_ADMIN",
            Capability::Bpf => "CAP_BPF",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether this thread has `capability`: no.
pub fn has(_: Capability) -> bool {
    false
}

/// Gives up what the process does not have.
///
/// # Errors
/// None.
pub fn give_up(_: &[Capability]) -> io::Result<()> {
    Ok(())
}
