//! The threads that serve one listening address: hiring, waking, stopping.

use std::io;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use highwater_sys::capability::{self, Capability};
use highwater_sys::epoll::Epoll;
use highwater_sys::uring::Uring;
use highwater_sys::{DriverConfig, External, Listener, cpu};

use super::builder::ServerError;
use super::inbox::Inbox;
use super::pool::{Full, Pool};
use super::run::{self, Phase};
use super::transport::Kind;
use super::worker::{Worker, WorkerParts};
use crate::{app, log};

/// After the drain deadline, how long cut connections may take to be reported closed.
const CUT_GRACE: Duration = Duration::from_secs(2);

/// A worker's place: what it needs to begin on its own thread.
pub(super) struct Post {
    pub(super) name: String,
    pub(super) core: Option<usize>,
    pub(super) kind: Kind,
    pub(super) listener: Listener,
    pub(super) pool: Pool,
    /// Whether its thread is to lose the rights that a gate in the kernel needed.
    pub(super) gives_up_rights: bool,
    pub(super) parts: WorkerParts,
}

/// The worker threads of one listening address.
pub(super) struct Crew {
    phase: Arc<Phase>,
    members: Vec<(Arc<Inbox>, JoinHandle<io::Result<()>>)>,
}

impl Crew {
    pub(super) fn new(phase: Arc<Phase>) -> Self {
        Crew { phase, members: Vec::new() }
    }

    /// Starts a worker and waits until it accepts.
    pub(super) fn hire(&mut self, post: Post) -> Result<(), ServerError> {
        let (ready, started) = mpsc::sync_channel(1);
        let phase = Arc::clone(&self.phase);
        let spawned = thread::Builder::new().name(post.name.clone()).spawn(move || {
            if post.gives_up_rights
                && let Err(error) = capability::give_up(&Capability::ALL)
            {
                log::warn!("a worker keeps rights that it does not need", error = %error);
            }
            if let Some(core) = post.core {
                // Pinning is an optimization: a container may forbid it.
                let _ = cpu::pin_thread(core);
            }
            let config =
                DriverConfig { peer_addresses: post.parts.app.needs_peer(), ..Default::default() };
            match post.kind {
                Kind::Uring => {
                    work(Uring::new(post.listener, &config), post.parts, post.pool, &phase, &ready)
                }
                Kind::Epoll => {
                    work(Epoll::new(post.listener, &config), post.parts, post.pool, &phase, &ready)
                }
            }
        });
        let thread = spawned.map_err(ServerError::Worker)?;
        match started.recv() {
            Ok(inbox) => {
                self.members.push((inbox, thread));
                Ok(())
            }
            Err(mpsc::RecvError) => Err(ServerError::Worker(match thread.join() {
                Ok(Err(error)) => error,
                _ => io::Error::other("a worker ended before it began"),
            })),
        }
    }

    fn ring(&self) {
        for (inbox, _) in &self.members {
            inbox.nudge();
        }
    }

    /// What rings everybody, for another thread.
    pub(super) fn alarm(&self) -> Box<dyn Fn() + Send> {
        let inboxes: Vec<Arc<Inbox>> =
            self.members.iter().map(|(inbox, _)| Arc::clone(inbox)).collect();
        Box::new(move || inboxes.iter().for_each(|inbox| inbox.nudge()))
    }

    pub(super) fn has_failed(&self) -> bool {
        self.members.iter().any(|(_, thread)| thread.is_finished())
    }

    /// Drains, then cuts at the deadline.
    pub(super) fn stop(&mut self, timeout: Duration) -> io::Result<()> {
        self.phase.drain();
        self.ring();
        if !self.wait(Instant::now() + timeout) {
            self.phase.cut();
            self.ring();
            self.wait(Instant::now() + CUT_GRACE);
        }
        let mut outcome = Ok(());
        for (_, thread) in self.members.drain(..).filter(|(_, thread)| thread.is_finished()) {
            let ended =
                thread.join().unwrap_or_else(|_| Err(io::Error::other("a worker panicked")));
            outcome = outcome.and(ended);
        }
        outcome
    }

    fn wait(&self, until: Instant) -> bool {
        while !self.members.iter().all(|(_, thread)| thread.is_finished()) {
            if Instant::now() >= until {
                return false;
            }
            thread::sleep(Duration::from_millis(2));
        }
        true
    }
}

/// A worker's life, on its own thread.
pub(super) fn work<D: External>(
    driver: io::Result<D>,
    parts: WorkerParts,
    pool: Pool,
    phase: &Phase,
    ready: &mpsc::SyncSender<Arc<Inbox>>,
) -> io::Result<()> {
    let driver = driver?;
    let waker = driver.waker();
    let inbox = Inbox::new(Box::new(move || waker.wake()));
    let needs_runtime = parts.app.needs_runtime();
    parts.metrics.runs_here();
    let on_pool = pool.clone();
    app::set_pool(Rc::new(move |task| on_pool.submit(task).map_err(|Full(task)| task)));
    let mut worker = Worker::new(driver, parts, Arc::clone(&inbox), pool);
    let begun = ready.send(Arc::clone(&inbox));
    debug_assert!(begun.is_ok(), "the crew waits for this");
    if needs_runtime {
        run::in_tokio(&mut worker, &inbox, phase)
    } else {
        run::in_driver(&mut worker, &inbox, phase)
    }
}
