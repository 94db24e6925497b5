//! What stands in front of the port, and what does it see?
//!
//! Two things: the kernel's gate, which refuses and counts, and the kernel's list of connections,
//! which tells how many there are and which of them wait to be read (`queue.rs`).
//!
//! Looking at the list costs about a microsecond per connection. It is done as often as every
//! [`LOOK`], and never for more than one part in [`LOOK_SHARE`] of the time.

use std::time::Duration;

use highwater::log;
use highwater_core::time::Instant;
use highwater_sys::{InetDiag, clock};

use super::args::{Args, Limits};
use super::queue;
use super::window::Counted;

/// How often the list of connections is looked at, at most.
const LOOK: Duration = Duration::from_millis(50);

/// Of how much time looking may take one.
const LOOK_SHARE: u32 = 100;

/// The gate of one port.
pub(crate) struct Gate {
    list: List,
}

impl Gate {
    /// Opens the gate that `args` ask for, or the best there is, with `limit` in force.
    ///
    /// # Errors
    /// What was asked for cannot be had: why, and what to do about it.
    pub(crate) fn open(args: &Args, limit: u32) -> Result<Gate, String> {
        let list = List::open(args)?;
        Ok(Gate { list })
    }

    /// What was chosen, and why.
    pub(crate) fn chosen(&self) -> (&'static str, &str) {
        ("none", "dry run")
    }

    /// How the limit is to be come by, given what this gate is capable of.
    pub(crate) fn grant(&self, limits: Limits) -> Limits {
        limits
    }

    pub(crate) fn set_limit(&mut self, limit: u32) {}

    /// What there is to be known at `now`.
    pub(crate) fn counted(&mut self, now: Instant) -> Counted {
        let mut counted = Counted::default();
        counted.waited = self.list.look(now);
        counted.in_flight = Some(self.list.established);
        counted
    }
}

/// The kernel's list of the port's connections.
struct List {
    diag: InetDiag,
    due: Instant,
    /// Connections when it was last looked at.
    established: u32,
}

impl List {
    fn open(args: &Args) -> Result<List, String> {
        let diag = InetDiag::open(args.port, args.address)
            .map_err(|error| format!("the kernel does not list connections: {error}"))?;
        Ok(List { diag, due: Instant::ZERO, established: 0 })
    }

    /// Looks if it is time; answers how long requests wait.
    fn look(&mut self, now: Instant) -> Option<Duration> {
        if now < self.due {
            return None;
        }
        let seen = self.diag.look();
        let took = clock::monotonic().saturating_since(now);
        self.due = now + LOOK.max(took * LOOK_SHARE);
        match seen {
            Ok(seen) => {
                self.established = seen.established;
                Some(queue::delay(&seen))
            }
            Err(error) => {
                log::warn!("connections cannot be looked at", error = %error);
                None
            }
        }
    }
}
