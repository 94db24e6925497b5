//! A server at work: until when, and how does it end?
//!
//! ```text
//!  serving ──asked to stop, or a worker died──▶ draining ──all answered, time is up, or asked again──▶ stopped
//! ```

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use highwater_sys::signal::Signals;
use highwater_sys::{Address, SocketFile};

use super::ends::Ends;
use super::error::ServerError;
use super::hooks::Hooks;
use super::observer::Observer;
use super::pool::Pool;
use super::stop::Stop;
use super::supervisor;
use super::threads::{Watch, Workers};
use super::tls::Reloader;
use super::watchdog::Watchdog;
use crate::admission::{PreparedAdmission, RunningAdmission};
use crate::logging::FlushAtEnd;
use crate::metrics::{Metrics, Readiness, Sampler, WorkerMetrics};

/// After the drain deadline, how long cut connections may take to be reported closed.
const CUT_GRACE: Duration = Duration::from_secs(2);

/// The longest drain after SIGQUIT: time for answers that are almost there.
const SOON: Duration = Duration::from_secs(2);

/// A server at work. Dropping it stops it without a drain.
pub struct Running {
    pub(super) addresses: Vec<Address>,
    /// The files of Unix sockets. Dropping them removes them.
    pub(super) files: Vec<SocketFile>,
    pub(super) drain_timeout: Duration,
    pub(super) workers: Workers,
    pub(super) watch: Arc<Watch>,
    pub(super) observer: Option<Observer>,
    /// Reads certificates again.
    pub(super) reloader: Option<Reloader>,
    /// Of the first address, for the log.
    pub(super) url: Option<String>,
    pub(super) readiness: Readiness,
    pub(super) pool: Pool,
    pub(super) admission: Option<RunningAdmission>,
    pub(super) hooks: Option<Hooks>,
    /// The counters of each worker.
    pub(super) counted: Vec<Arc<WorkerMetrics>>,
    pub(super) has_stopped: bool,
    pub(super) _sampler: Sampler,
    /// Last, since all fields above may log when they are dropped.
    pub(super) _at_end: FlushAtEnd,
}

impl Running {
    /// The first IP address it listens on, with the real port if port 0 was set.
    ///
    /// # Panics
    /// If it listens on Unix sockets only; [`Running::addresses`] has those as well.
    pub fn address(&self) -> SocketAddr {
        let tcp = self.addresses.iter().find_map(Address::tcp);
        tcp.expect("the server listens on Unix sockets only, and so has no IP address")
    }

    /// All addresses that it listens on, with the real ports: first those of inherited sockets, then those of the settings.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Its first address and the others, for the log.
    pub(super) fn listed(&self) -> (String, Option<String>) {
        let mut all = self.addresses.iter().map(Address::to_string);
        let first = all.next().unwrap_or_default();
        let others: Vec<String> = all.collect();
        (first, Some(others.join(" ")).filter(|others| !others.is_empty()))
    }

    /// The address of the metrics port, if there is one.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.observer.as_ref().map(|observer| observer.address)
    }

    /// Whether a worker died: a panic escaped, or its driver failed. The server then drains on its own;
    /// [`Running::stop`] says why.
    pub fn has_failed(&self) -> bool {
        self.watch.has_failed()
    }

    /// Starts the controller of the limit, once all workers run.
    pub(super) fn admit(
        &mut self,
        prepared: PreparedAdmission,
        metrics: &Metrics,
        unready_after: Option<Duration>,
    ) -> Result<(), ServerError> {
        let admission =
            prepared.start(metrics, self.workers.alarm()).map_err(ServerError::Worker)?;
        if let Some(after) = unready_after {
            let is_strained = admission.is_strained();
            let strained = move || format!("more was asked than can be done, for {after:?}");
            let load = move || if is_strained() { Err(strained()) } else { Ok(()) };
            self.readiness.check("load", load);
        }
        self.admission = Some(admission);
        Ok(())
    }

    /// Serves until one of `signals` comes, then drains as [`Server::run`](super::Server::run) does.
    ///
    /// For programs with more to start or stop than the server. Catch the signals first, so that a signal that comes while
    /// the rest starts is not missed:
    ///
    /// ```no_run
    /// use highwater::server::Signals;
    /// use highwater::{Router, Server};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let signals = Signals::catch()?;
    /// let worker = std::thread::spawn(|| { /* something beside the server */ });
    /// Server::new(Router::new().get("/", || "Hello, World!")).start()?.until_signal(&signals)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A worker failed: its driver, or a panic escaped. The server stops on its own then.
    pub fn until_signal(self, signals: &Signals) -> Result<(), ServerError> {
        self.until(Ends { signals: Some(signals), ..Ends::default() })
    }

    /// Serves until one of `ends` asks to stop; a further request may end the drain.
    pub(super) fn until(mut self, ends: Ends<'_>) -> Result<(), ServerError> {
        if let Some(admission) = &self.admission {
            admission.give_up_rights();
        }
        if let Some(stopper) = ends.stopper {
            stopper.wakes(&self.watch.waker);
        }
        supervisor::notify(supervisor::READY);
        let mut watchdog =
            supervisor::patience().map(|patience| Watchdog::new(patience, Instant::now()));
        let ask = self.reloader.as_ref().map(|reloader| || reloader.ask());
        let reload = ask.as_ref().map(|ask| ask as &dyn Fn());
        while !self.watch.has_failed() {
            let ends = Ends { reload, ..ends };
            let spare = watchdog.as_ref().map(|watchdog| watchdog.spare(Instant::now()));
            let Some(stop) = ends.wait(&self.watch.waker, spare, false)? else {
                self.watch_workers(watchdog.as_mut());
                continue;
            };
            self.drain_timeout = match stop {
                Stop::Drain => self.drain_timeout,
                Stop::DrainSoon => self.drain_timeout.min(SOON),
                Stop::Cut => Duration::ZERO,
            };
            break;
        }
        supervisor::notify(supervisor::STOPPING);
        self.end(ends)
    }

    /// Tells the service manager that all workers have turns, if it is time to.
    fn watch_workers(&self, watchdog: Option<&mut Watchdog>) {
        let turns = self.counted.iter().map(|worker| worker.turns());
        let Some(are_alive) = watchdog.and_then(|watchdog| watchdog.look(Instant::now(), turns))
        else {
            return;
        };
        if are_alive {
            supervisor::notify(supervisor::ALIVE);
        }
        self.workers.wake();
    }

    /// Drains and stops.
    ///
    /// # Errors
    /// A worker failed: its driver, or a panic escaped.
    pub fn stop(&mut self) -> Result<(), ServerError> {
        self.end(Ends::default())
    }

    /// Drains, cuts the remaining connections at the deadline or when one of `ends` asks for it, and stops.
    fn end(&mut self, ends: Ends<'_>) -> Result<(), ServerError> {
        let answered_before = self.answered();
        self.readiness.drain();
        // While the workers still accept: a successor replaces only the file of a socket that is dead.
        self.files.clear();
        self.hooks.iter().for_each(Hooks::drain);
        self.workers.drain();
        self.until_ended(self.drain_timeout, ends)?;
        if !self.workers.has_ended() {
            self.workers.cut();
            self.until_cut()?;
        }
        let outcome = self.workers.join();
        self.pool.close();
        // Dropping them runs what the application does last.
        drop(self.hooks.take());
        let observed = match self.observer.take() {
            // Scrapers keep their connections open; the drain does not wait for them.
            Some(mut observer) => observer.workers.end_now(),
            None => Ok(()),
        };
        if !std::mem::replace(&mut self.has_stopped, true) {
            let answered_in_drain = self.answered().saturating_sub(answered_before);
            let cut = self.workers.cut_count();
            let (address, others) = self.listed();
            let others = others.map(tracing::field::display);
            tracing::info!(%address, others, answered_in_drain, connections_cut = cut, "stopped");
        }
        outcome.and(observed).map_err(ServerError::Worker)
    }

    /// How many requests were answered so far.
    fn answered(&self) -> u64 {
        self.counted.iter().map(|worker| worker.requests()).sum()
    }

    /// Whether all workers and the application's tasks have ended.
    fn has_ended(&self) -> bool {
        self.workers.has_ended() && self.hooks.as_ref().is_none_or(Hooks::have_ended)
    }

    /// Waits until all workers and tasks have ended, for at most `timeout`, or until one of `ends` asks to cut.
    fn until_ended(&self, timeout: Duration, ends: Ends<'_>) -> Result<(), ServerError> {
        let begun = Instant::now();
        while !self.has_ended() {
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() || ends.wait(&self.watch.waker, Some(left), true)?.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Waits until the workers have closed what was cut.
    fn until_cut(&self) -> Result<(), ServerError> {
        let begun = Instant::now();
        while !self.workers.has_ended() && begun.elapsed() < CUT_GRACE {
            let left = CUT_GRACE.saturating_sub(begun.elapsed());
            Ends::default().wait(&self.watch.waker, Some(left), true)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.drain_timeout = Duration::ZERO;
        let _ = self.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::app::Router;
    use crate::server::worker::Inbox;
    use crate::server::{Server, ServerConfig};

    /// Purpose: a worker that dies ends the server at once and with an error, although no signal comes, so
    /// that a supervisor restarts it.
    #[test]
    fn a_dead_worker_ends_the_server() {
        let signals = Signals::catch().expect("signals can be caught");
        let config = ServerConfig {
            listen: vec![([127, 0, 0, 1], 0).into()],
            metrics: None,
            shed: Some(crate::server::Shed::None),
            ..ServerConfig::default()
        };
        let server = Server::new(Router::new().get("/", || "OK")).config(config);
        let mut running = server.start().expect("it starts");
        let ends = Ends::default();
        let dies = running.workers.start("highwater-dies".into(), ends, |ready| {
            ready.report(&Inbox::new(Box::new(|| {})));
            thread::sleep(Duration::from_millis(50));
            panic!("on demand")
        });
        dies.expect("it begins");
        let error = running.until_signal(&signals).expect_err("a worker died");
        assert_eq!(error.to_string(), "a worker failed: it panicked: on demand");
    }
}
