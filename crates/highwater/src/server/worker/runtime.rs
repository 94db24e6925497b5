//! Do an application's futures and streams have a Tokio runtime around them?
//!
//! An application gets a runtime when one of its handlers is `async`, when it has middleware, when a handler
//! reads its body as a stream, and when it asks for one ([`Router::runtime`](crate::Router::runtime)).
//! One that has none gets it with its first streamed answer or upgraded connection: these run on the
//! worker, and may need timers and sockets.
//!
//! ```text
//!   Absent ── content to stream, a connection handed over ──▶ Wanted ── run.rs builds it ──▶ Running
//!     ▲                                                         │
//!     └──────────── one turn ─────────── Refused ◀──────────────┘ the system has no descriptors for it
//! ```
//!
//! While it is `Wanted`, nothing of the application is polled; the worker's next turn is inside it. Clients can bring
//! about that there are no descriptors: a worker without a runtime goes on. While it is `Refused`, the exchanges that
//! need one are reset, which may free descriptors; the next stream asks again.

use highwater_core::driver::Driver;

use super::Worker;
use super::protocol::Protocol;

/// Whether a worker has a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runtime {
    /// It runs inside one, or inside a substitute for one.
    Running,
    Absent,
    /// A future or stream must be polled, and there is no runtime.
    Wanted,
    /// There cannot be one in this turn.
    Refused,
}

impl<D: Driver, P: Protocol> Worker<D, P> {
    /// Says whether a runtime is around this worker from now on.
    pub(crate) fn set_runtime(&mut self, is_running: bool) {
        self.state.parts.tasks.runtime =
            if is_running { Runtime::Running } else { Runtime::Absent };
    }

    /// Whether an exchange waits for a runtime.
    pub(crate) fn wants_runtime(&self) -> bool {
        self.state.parts.tasks.runtime == Runtime::Wanted
    }

    /// Says that the next turn cannot have a runtime: the exchanges that wait for one are reset in it.
    pub(super) fn refuse_runtime(&mut self) {
        self.state.parts.tasks.runtime = Runtime::Refused;
    }
}
