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

use highwater_core::driver::{ConnId, Driver};
use highwater_core::time::Clock;

use super::worker::{State, Worker};

/// What a worker has of a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Context {
    /// It runs inside one, or inside something that stands for one.
    Running,
    Absent,
    /// Something is to be polled, and there is none.
    Wanted,
}

impl<C: Clock> State<C> {
    /// Whether there is no runtime to poll what this connection waits for. If so, it is polled as soon as
    /// there is one.
    pub(super) fn lacks_runtime(&mut self, id: ConnId) -> bool {
        if self.context == Context::Running {
            return false;
        }
        self.context = Context::Wanted;
        self.inbox.waker(self.slots[id.index()].token(id.index())).wake();
        true
    }
}

impl<D: Driver> Worker<D> {
    /// Says whether a runtime is around this worker from now on.
    pub(crate) fn set_runtime(&mut self, is_running: bool) {
        self.state.context = if is_running { Context::Running } else { Context::Absent };
    }

    /// Whether the worker cannot go on without a runtime.
    pub(crate) fn wants_runtime(&self) -> bool {
        self.state.context == Context::Wanted
    }
}
