//! The asynchronous work of a worker: futures that are polled when woken, jobs on the pool, and detached
//! tasks.
//!
//! Never here: the handling of an answer (`serve/answer.rs`). This module only decides which task is
//! polled.

use std::sync::Arc;
use std::task::Waker;

use super::detached::DetachedTasks;
use super::exchange::{Exchange, ExchangeId};
use super::inbox::{Done, Inbox, WokenTask};
use super::runtime::Runtime;
use crate::server::pool::Pool;

/// The tasks of one worker.
pub(super) struct Tasks {
    pub(super) inbox: Arc<Inbox>,
    pub(super) pool: Pool,
    pub(super) detached: DetachedTasks,
    pub(super) runtime: Runtime,
    /// Makes the worker have another turn.
    turn_waker: Waker,
    /// Jobs handed to the pool so far.
    jobs: u64,
    /// Those of detached handlers that are not done: a drain waits for them, also where their clients have left.
    pub(super) detached_jobs: u32,
    /// Exchanges that wait for a future, which may be waiting for the runtime.
    awaiting: u32,
    woken: Vec<WokenTask>,
    done: Vec<Done>,
}

impl Tasks {
    pub(super) fn new(inbox: Arc<Inbox>, pool: Pool) -> Self {
        Tasks {
            turn_waker: inbox.turn_waker(),
            inbox,
            pool,
            detached: DetachedTasks::default(),
            runtime: Runtime::Running,
            jobs: 0,
            detached_jobs: 0,
            awaiting: 0,
            woken: Vec::new(),
            done: Vec::new(),
        }
    }

    /// The number of the next job.
    pub(super) fn next_job(&mut self) -> u64 {
        self.jobs += 1;
        self.jobs
    }

    /// The waker of the tasks of `exchange`, whose id is `id`.
    pub(super) fn waker(&self, exchange: &mut Exchange, id: ExchangeId) -> Waker {
        exchange.waker.get_or_insert_with(|| self.inbox.waker(id)).clone()
    }

    /// Makes the worker have another turn, for any thread.
    pub(super) fn turn_waker(&self) -> &Waker {
        &self.turn_waker
    }

    /// Asks for a runtime. Exchange `id` is polled as soon as there is one.
    pub(super) fn want_runtime(&mut self, id: ExchangeId) {
        self.runtime = Runtime::Wanted;
        self.inbox.waker(id).wake();
    }

    /// One more exchange waits for a future, or one fewer.
    pub(super) fn count_awaiting(&mut self, is_awaiting: bool) {
        self.awaiting = if is_awaiting { self.awaiting + 1 } else { self.awaiting - 1 };
    }

    /// Whether no future of a handler is alive.
    pub(super) fn is_idle(&self) -> bool {
        self.awaiting == 0 && self.detached.is_empty()
    }

    /// Takes the tasks woken and the jobs done since the last turn, if there are any; give the lists back with
    /// [`Tasks::put_back`].
    #[inline]
    pub(super) fn take(&mut self) -> Option<(Vec<WokenTask>, Vec<Done>)> {
        let has_mail = self.inbox.take(&mut self.woken, &mut self.done);
        has_mail.then(|| (std::mem::take(&mut self.woken), std::mem::take(&mut self.done)))
    }

    /// Keeps the empty lists for the next time.
    pub(super) fn put_back(&mut self, woken: Vec<WokenTask>, done: Vec<Done>) {
        self.woken = woken;
        self.done = done;
    }
}
