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
use super::{CATCH_UP_MAX, IDLE_TURNS_MAX, PATIENCE_MAX, STOP_EVERY, World};

/// How long the process may stand still.
const STOP_MAX: Duration = Duration::from_secs(5);

/// The smallest step of time between two acts of clients while the process stands still.
const STOP_STEP: Duration = Duration::from_millis(1);

impl World {
    pub(super) fn turn(&mut self) -> Result<(), String> {
        if self.catching_up >= CATCH_UP_MAX {
            self.worker.driver_mut().network.forget_missed(); // It has done what it could.
        }
        self.catching_up = if self.worker.is_catching_up() { self.catching_up + 1 } else { 0 };
        let had_backlog = self.worker.has_backlog();
        let in_runtime =
            self.plan.kinds.has(Kind::Wakes) && (self.worker.has_tasks() || self.prng.chance(1, 4));
        let (events, wasted) = match in_runtime {
            true => self.turn_in_runtime()?,
            false => self.turn_in_driver()?,
        };
        self.shared.turn();
        if !self.plan.kinds.has(Kind::Wakes) && self.prng.chance(1, self.plan.pool_one_in) {
            self.pool.run_deferred();
        }
        // Time that no deadline needed, and in which no message or event came, was wasted.
        let idle = wasted && events == 0 && !had_backlog;
        if had_backlog || self.worker.has_backlog() {
            self.backlogged_at = self.network().turn_at;
        }
        self.idle_turns = if idle { self.idle_turns + 1 } else { 0 };
        let begun = self.sealer.as_ref().map_or(0, |sealer| sealer.take_begun());
        if self.plan.defers && begun > 1 {
            return Err(format!("{begun} handshakes in a turn that has time for one"));
        }
        if let Some(what) = self.shared.threads.failure() {
            return Err(what);
        }
        match self.idle_turns > IDLE_TURNS_MAX {
            true => Err("the worker spins".into()),
            false => Ok(()),
        }
    }

    /// A turn that waits in the driver. Returns how many events there were, and whether it could
    /// have waited but had no time to.
    fn turn_in_driver(&mut self) -> Result<(u32, bool), String> {
        let may_wait = self.inbox.park_in_driver();
        let patience = if may_wait { self.plan_wait() } else { Duration::ZERO };
        let wait = match patience {
            Duration::ZERO => Wait::No,
            _ => Wait::Until(self.network().now() + patience),
        };
        self.shared.threads.park(may_wait.then_some(Place::Driver));
        self.stop()?;
        let events = self.turn_worker(wait)?;
        self.shared.threads.park(None);
        Ok((events, may_wait && patience.is_zero()))
    }

    /// A turn that does not wait; if it found nothing to do, a wait in the runtime.
    fn turn_in_runtime(&mut self) -> Result<(u32, bool), String> {
        self.stop()?;
        let events = self.turn_worker(Wait::No)?;
        if events > 0 || self.worker.has_backlog() {
            return Ok((events, false));
        }
        let patience = self.plan_wait();
        let until = self.network().now() + patience;
        let threads = Arc::clone(&self.shared.threads);
        let waker = Waker::from(Arc::clone(&threads.wake_ups));
        let mut parked = false;
        // The runtime polls once more after every wake-up.
        while self.inbox.park_in_runtime(&waker) {
            parked = true;
            threads.park(Some(Place::Runtime));
            let network = &mut self.worker.driver_mut().network;
            network.sleep(until, Place::Runtime);
            threads.wake_ups.notice(Place::Runtime);
            if network.now() >= until.min(network.client_at) || network.driver_is_woken() {
                break;
            }
        }
        self.inbox.resume();
        threads.park(None);
        Ok((events, parked && patience.is_zero()))
    }

    /// The worker plans its wait. Returns the longest time that it waits.
    fn plan_wait(&mut self) -> Duration {
        let spare = self.worker.spare_time();
        self.worker.driver_mut().network.plan(spare);
        spare.unwrap_or(PATIENCE_MAX).min(PATIENCE_MAX)
    }

    /// A turn of the worker. Checks that the worker counts the lost time as the world does.
    fn turn_worker(&mut self, wait: Wait) -> Result<u32, String> {
        let Ok(events) = self.worker.turn(wait);
        let (lost, stood) = (self.worker.lost(), self.network().lost);
        if lost != stood {
            return Err(format!("{stood:?} were lost, and the worker counts {lost:?}"));
        }
        let back = self.worker.driver_mut().network.take_back();
        self.clients.iter_mut().for_each(|client| client.go_back(back));
        Ok(events)
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
        self.stop_in = (1 + self.prng.below(STOP_EVERY)) * (1 + u64::from(self.turns) / 1000);
        let most = [300, 2000, STOP_MAX.as_millis() as u64][self.prng.below(3) as usize];
        let until = self.network().now() + Duration::from_millis(200 + self.prng.below(most));
        self.network().trace.line(|| format!("the process stops until {until:?}"));
        while self.network().now() < until {
            let network = &mut self.worker.driver_mut().network;
            let next = network.client_at.max(network.now() + STOP_STEP);
            network.pass(next.min(until));
            self.act()?;
        }
        Ok(())
    }
}
