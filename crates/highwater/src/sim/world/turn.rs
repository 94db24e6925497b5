//! A turn of the worker: where it sleeps, and when it does not run at all.
//!
//! It follows `server/run.rs`: a worker with futures sleeps in its runtime. Any other worker may
//! sleep in its driver, but need not: tasks of the application may exist that the worker does not
//! know.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use highwater_core::driver::Wait;

use super::super::kinds::Kind;
use super::super::threads::Place;
use super::{CATCH_UP_MAX, STOP_EVERY, World};

/// How long the process may stand still.
const STOP_MAX: Duration = Duration::from_secs(5);

/// The smallest step of time between two acts of clients while the process stands still.
const STOP_STEP: Duration = Duration::from_millis(1);

impl World {
    pub(super) fn turn(&mut self) -> Result<(), String> {
        if self.catching_up >= CATCH_UP_MAX {
            self.runner.network_mut().forget_missed(); // It has done what it could.
        }
        self.catching_up =
            if self.runner.worker.is_catching_up() { self.catching_up + 1 } else { 0 };
        let had_backlog = self.runner.worker.has_backlog();
        let in_runtime = self.plan.kinds.has(Kind::Wakes)
            && (self.runner.worker.has_tasks() || self.runner.prng.chance(1, 4));
        let (events, wasted) = match in_runtime {
            true => self.turn_in_runtime()?,
            false => self.turn_in_driver()?,
        };
        self.shared.turn();
        if !self.plan.kinds.has(Kind::Wakes) && self.runner.prng.chance(1, self.plan.pool_one_in) {
            self.runner.pool.run_deferred();
        }
        if had_backlog || self.runner.worker.has_backlog() {
            self.backlogged_at = self.runner.network().turn_at;
        }
        // Time that no deadline needed, and in which no message or event came, was wasted.
        let begun = self.sealer.as_ref().map_or(0, |sealer| sealer.take_begun());
        if self.plan.defers && begun > 1 {
            return Err(format!("{begun} handshakes in a turn that has time for one"));
        }
        self.runner.look_at_turn(wasted && events == 0 && !had_backlog)
    }

    /// A turn that waits in the driver. Returns how many events there were, and whether it could
    /// have waited but had no time to.
    fn turn_in_driver(&mut self) -> Result<(u32, bool), String> {
        let (wait, has_no_time) = self.runner.park_in_driver();
        self.stop()?;
        let events = self.runner.turn(wait)?;
        self.shared.threads.park(None);
        Ok((events, has_no_time))
    }

    /// A turn that does not wait; if it found nothing to do, a wait in the runtime.
    fn turn_in_runtime(&mut self) -> Result<(u32, bool), String> {
        self.stop()?;
        let events = self.runner.turn(Wait::No)?;
        if events > 0 || self.runner.worker.has_backlog() {
            return Ok((events, false));
        }
        let patience = self.runner.plan_wait();
        let until = self.runner.network().now() + patience;
        let threads = Arc::clone(&self.shared.threads);
        let waker = Waker::from(Arc::clone(&threads.wake_ups));
        let mut parked = false;
        // The runtime polls once more after every wake-up.
        while self.runner.inbox.park_in_runtime(&waker) {
            parked = true;
            threads.park(Some(Place::Runtime));
            let network = self.runner.network_mut();
            network.sleep(until, Place::Runtime);
            threads.wake_ups.notice(Place::Runtime);
            if network.now() >= until.min(network.client_at) || network.driver_is_woken() {
                break;
            }
        }
        self.runner.inbox.resume();
        threads.park(None);
        Ok((events, parked && patience.is_zero()))
    }

    /// If it is time for a stop, the process stands still while the clients continue.
    fn stop(&mut self) -> Result<(), String> {
        if !self.plan.kinds.has(Kind::Stops) {
            return Ok(());
        }
        self.stop_in -= 1;
        if self.stop_in > 0 {
            return Ok(());
        }
        // Later ones are rarer, so that a long run does not consist of stops.
        self.stop_in =
            (1 + self.runner.prng.below(STOP_EVERY)) * (1 + u64::from(self.runner.turns) / 1000);
        let most = [300, 2000, STOP_MAX.as_millis() as u64][self.runner.prng.below(3) as usize];
        let until =
            self.runner.network().now() + Duration::from_millis(200 + self.runner.prng.below(most));
        self.runner.network().trace.line(|| format!("the process stops until {until:?}"));
        while self.runner.network().now() < until {
            let network = self.runner.network_mut();
            let next = network.client_at.max(network.now() + STOP_STEP);
            network.pass(next.min(until));
            self.runner.act()?;
        }
        Ok(())
    }
}
