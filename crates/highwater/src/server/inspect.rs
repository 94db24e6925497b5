//! What the simulator may look at between turns. Nothing that serves uses it.

use highwater_core::driver::{ConnId, Driver};

use super::worker::Worker;

impl<D: Driver> Worker<D> {
    /// The driver, on which the simulated clients act.
    pub(crate) fn driver_mut(&mut self) -> &mut D {
        &mut self.driver
    }

    /// Time is going to pass, as long as it likes, and the worker waits for that.
    #[cfg(test)]
    pub(crate) fn waits_outside(&self) {
        self.state.clock.plan(highwater_core::driver::Wait::Forever);
    }

    /// The time that did not count, as the worker could not work.
    pub(crate) fn lost(&self) -> std::time::Duration {
        self.state.clock.lost()
    }

    /// Bytes of memory that a connection has allocated for itself, without its send in flight.
    pub(crate) fn allocated(&self, id: ConnId) -> usize {
        self.state.slots.get(id.index()).map_or(0, |slot| slot.connection.allocated())
    }

    /// Connections for which something is under way: a task, an answer's or a request's content.
    pub(crate) fn busy(&self) -> usize {
        let busy = |slot: &&super::slot::Slot| {
            slot.task.is_some() || slot.content.is_some() || slot.feed.is_some() || slot.awaits
        };
        self.state.slots.iter().filter(busy).count()
    }
}
