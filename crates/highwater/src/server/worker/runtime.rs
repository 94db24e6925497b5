//! Do an application's futures and streams have a Tokio runtime around them?
//!
//! An application gets a runtime when one of its handlers is `async`, when it has middleware, when a handler
//! reads its body as a stream, and when it asks for one ([`Router::runtime`](crate::Router::runtime)).
//! One that has none gets it with its first streamed answer or upgraded connection: these run on the
//! worker, and may need timers and sockets.
//!
//! ```text
//!   Absent ── content to stream, a connection handed over ──▶ Wanted ── run.rs builds it ──▶ Running
//! ```
//!
//! While it is `Wanted`, nothing of the application is polled; the worker's next turn is inside it.

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
}

impl<D: Driver, P: Protocol> Worker<D, P> {
    /// Says whether a runtime is around this worker from now on.
    pub(crate) fn set_runtime(&mut self, is_running: bool) {
        self.state.parts.tasks.runtime =
            if is_running { Runtime::Running } else { Runtime::Absent };
    }

    /// Whether the worker cannot go on without a runtime.
    pub(crate) fn wants_runtime(&self) -> bool {
        self.state.parts.tasks.runtime == Runtime::Wanted
    }
}
