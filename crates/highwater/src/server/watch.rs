//! How much do a worker's connections want from it, and is that more than it can do?
//!
//! At the end of each turn the worker counts what its connections want, and looks whether its queue stands
//! (`core::limit::Standing`). If so, the queue gets the short target, the limit is told what a request costs,
//! and whoever computes it is woken; and the same when the queue stands no longer.

use std::time::Duration;

use highwater_core::driver::ConnId;
use highwater_core::limit::{Turn, short_target};
use highwater_core::time::{Clock, Instant};

use super::slot::Demand;
use super::worker::State;
use crate::admission::gate::Load;

impl Load {
    /// A connection no longer wants `before` but `after`.
    pub(super) fn change(&mut self, before: Demand, after: Demand) {
        for (demand, change) in [(before, u32::MAX), (after, 1)] {
            let count = match demand {
                Demand::None => continue,
                Demand::Time => &mut self.time,
                Demand::Answer => &mut self.answers,
            };
            *count = count.wrapping_add(change); // Adding the greatest number takes one away.
        }
    }
}

impl<C: Clock> State<C> {
    /// Looks whether what waits is too much, and has the queue and the limit act on it.
    #[inline]
    pub(super) fn watch_queue(&mut self, began: Instant, ended: Instant) {
        let (started, mut refused) = self.ledger.take_counts();
        let waiting = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        let stood = self.standing.stands();
        if stood {
            refused += self.gate.take_refused();
        }
        let stands = self.standing.on_turn(&Turn { began, ended, waiting, started, refused });
        if stood || stands {
            self.follow_queue(stood, stands);
        }
        self.metrics.queue.waiting.set(u64::from(waiting));
    }

    #[cold]
    fn follow_queue(&mut self, stood: bool, stands: bool) {
        let cost = self.standing.cost().unwrap_or_default();
        let target = stands.then(|| short_target(self.queue_target, self.patience, cost));
        self.queue.set_target(target);
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let told = &self.metrics.queue;
        told.stands.set(u64::from(stands));
        told.cost_nanos.set(nanos(cost));
        told.empty_nanos.set(nanos(self.standing.empty()));
        if stood != stands {
            if stands {
                self.gate.take_refused(); // What was refused before is not held against the end.
            }
            self.gate.alarm();
        }
    }

    /// Keeps count of what the connections want.
    #[inline]
    pub(super) fn count_work(&mut self, id: ConnId) {
        let slot = &mut self.slots[id.index()];
        let demand = slot.demand(self.now);
        if demand != slot.demand {
            self.load.change(slot.demand, demand);
            slot.demand = demand;
        }
    }
}
