//! The state that the simulator and the test client inspect between turns. No serving code uses it.

use std::time::Duration;

use highwater_core::driver::{ConnId, Driver, Wait};
use highwater_core::time::Clock as _;

use super::Worker;
use super::connections::Connection;
use super::protocol::Protocol;

impl<D: Driver, P: Protocol> Worker<D, P> {
    /// The driver.
    pub(crate) fn driver(&self) -> &D {
        &self.driver
    }

    /// The driver, on which the simulated clients act.
    pub(crate) fn driver_mut(&mut self) -> &mut D {
        &mut self.driver
    }

    /// How long the worker may wait from now on; `None` for ever. For callers that let time pass
    /// themselves.
    pub(crate) fn spare_time(&self) -> Option<Duration> {
        match self.waits() {
            Wait::No => Some(Duration::ZERO),
            Wait::Until(due) => Some(due - self.state.parts.turn.clock.now()),
            Wait::Forever => None,
        }
    }

    /// Whether a connection has something to flush.
    pub(crate) fn has_unflushed(&self) -> bool {
        !self.state.agenda.touched.is_empty()
    }

    /// The open connections.
    pub(crate) fn connections(&self) -> u32 {
        self.state.acceptor.count()
    }

    /// Whether any future of a handler is still alive.
    pub(crate) fn has_tasks(&self) -> bool {
        !self.state.parts.tasks.is_idle()
    }

    /// Time is going to pass, and the worker waits for it, however long that is.
    #[cfg(test)]
    pub(crate) fn waits_outside(&self) {
        self.state.parts.turn.clock.plan(Wait::Forever);
    }

    /// The time that did not count because the worker was kept from running.
    pub(crate) fn lost(&self) -> Duration {
        self.state.parts.turn.clock.lost()
    }

    /// Bytes of memory that a connection has allocated for itself, without its send in flight.
    pub(crate) fn allocated(&self, id: ConnId) -> usize {
        self.state.connections.record(id).map_or(0, |(connection, exchanges)| {
            let waiting = exchanges.filter_map(|exchange| exchange.queue.waiting.as_ref());
            let waiting: usize = waiting.map(|waiting| waiting.allocated()).sum();
            let Connection { protocol, link, channel, .. } = connection;
            protocol.allocated() + link.allocated() + channel.allocated() + waiting
        })
    }

    /// Exchanges with work in progress: a task, an answer's or a request's content.
    pub(crate) fn busy(&self) -> usize {
        self.state.connections.exchanges.iter().filter(|exchange| exchange.is_busy()).count()
    }

    /// Whether more requests wait than can be served in time.
    #[cfg(test)]
    pub(crate) fn queue_stands(&self) -> bool {
        self.state.parts.admission.stands()
    }
}
