//! Handles what the driver reports, tasks that were woken, and deadlines that are due.

use std::net::SocketAddr;
use std::time::Duration;

use highwater_core::driver::{ConnId, Event, ListenerId};
use highwater_core::time::{Clock, Instant};

use super::eviction;
use super::exchange::ExchangeId;
use super::inbox::{Done, WokenTask};
use super::protocol::Protocol;
use super::runtime::Runtime;
use super::serve::ConnectionMut;
use super::{Parts, WorkerState};

impl<C: Clock, P: Protocol> WorkerState<C, P> {
    /// Connection `id`.
    #[inline]
    pub(super) fn connection(&mut self, id: ConnId) -> ConnectionMut<'_, C, P> {
        let WorkerState { app, connections, parsing, parts, agenda, acceptor, .. } = self;
        ConnectionMut::new((app, parsing), connections, parts, (agenda, acceptor), (id, None))
    }

    /// The exchange that `id` names, if it is not over: its connection, at that exchange.
    pub(super) fn named(&mut self, id: ExchangeId) -> Option<ConnectionMut<'_, C, P>> {
        let WorkerState { app, connections, parsing, parts, agenda, acceptor, .. } = self;
        let at = (connections.lookup(id)?, Some(id.index() as u32));
        Some(ConnectionMut::new((app, parsing), connections, parts, (agenda, acceptor), at))
    }

    /// What the driver has reported.
    pub(super) fn on_event(&mut self, event: Event<'_>) {
        self.freshen();
        self.parts.turn.count_event();
        match event {
            Event::Received(id, bytes) => self.connection(id).receive(bytes),
            Event::Sent(id, buffer) => {
                self.parts.encoder.recycle(buffer);
                self.connection(id).sent();
            }
            Event::Accepted(id, at, peer) => self.accepted(id, at, peer),
            Event::Closed(id) => self.closed(id),
            Event::Progress(id) => {
                let now = self.parts.turn.now;
                self.connections.get_mut(id).link.on_progress(now);
            }
            Event::Eof(id) => self.connection(id).eof(),
            Event::HungUp(id) => self.connection(id).hung_up(),
            Event::AcceptFailed(error) => {
                self.parts.metrics.accept_failed(error);
                eviction::report_failure(error);
                self.acceptor.failed(self.parts.turn.now);
            }
        }
    }

    fn accepted(&mut self, id: ConnId, at: ListenerId, peer: Option<SocketAddr>) {
        let WorkerState { connections, parts, agenda, acceptor, .. } = self;
        let now = parts.turn.now;
        let connection = connections.open(id, (peer, acceptor.versions(at)), now);
        connection.is_suspect = acceptor.is_doubtful(now);
        if let Some(sealer) = acceptor.sealer(at) {
            connection.channel.seal(sealer.accept());
        }
        if acceptor.awaits_preamble(at) {
            connection.await_preamble(&parts.clients, &parts.metrics);
        } else if let Some(of) = &parts.per_client {
            connection.take_place(of, &parts.metrics);
        }
        if acceptor.is_draining() {
            connection.drain(now);
        }
        agenda.touch(id, connection);
        match acceptor.accepted(at) {
            true => parts.admission.gate.accepted(),
            false => parts.metrics.connections_ungated.add(1),
        }
        parts.metrics.connections_at[at.index()].add(1);
        parts.metrics.connections.add(1);
        parts.metrics.connections_active.set(u64::from(acceptor.count()));
    }

    fn closed(&mut self, id: ConnId) {
        let mut at = self.connection(id);
        debug_assert!(at.connection.is_open, "Closed names an open connection");
        at.closed();
        let target = at.exchange().exchange.target;
        self.connections.close(id);
        self.app.report_panics(target, None);
        let WorkerState { acceptor, parts, .. } = self;
        acceptor.closed();
        parts.metrics.connections_active.set(u64::from(acceptor.count()));
    }

    /// Reads the clock, once per turn, when there is something to do.
    #[inline(always)]
    pub(super) fn freshen(&mut self) {
        if self.parts.turn.is_stale() {
            self.begin_turn();
        }
    }

    #[inline(never)]
    fn begin_turn(&mut self) {
        let lost = self.parts.turn.freshen();
        if !lost.is_zero() {
            self.bring_forward(lost);
            self.app.forget_samples();
        }
        let WorkerState { acceptor, parts, .. } = self;
        let Parts { turn, admission, tasks, encoder, .. } = parts;
        tasks.inbox.resume();
        admission.begin_turn(turn.now, acceptor.is_doubtful(turn.now));
        encoder.refresh_date(turn.now, &turn.clock);
    }

    /// All input of the turn is read.
    #[cold]
    pub(super) fn end_input(&mut self) {
        let Parts { admission, turn, .. } = &mut self.parts;
        turn.look();
        admission.end_input(turn.now);
    }

    /// The worker was kept from running for `lost`. Deadlines that clients sent are not extended by it.
    #[cold]
    fn bring_forward(&mut self, lost: Duration) {
        self.parts.admission.bring_forward(lost);
        for id in self.connections.ids() {
            let mut at = self.connection(id);
            if at.connection.is_open {
                at.bring_forward(lost);
            }
        }
    }

    /// Advances what was woken since the last turn, and takes what the pool delivered.
    #[inline]
    pub(super) fn run_tasks(&mut self) {
        if self.parts.tasks.runtime == Runtime::Wanted {
            return; // The next turn is inside a runtime and takes the mail.
        }
        if let Some((woken, done)) = self.parts.tasks.take() {
            self.advance_tasks(woken, done);
        }
    }

    #[inline(never)]
    fn advance_tasks(&mut self, mut woken: Vec<WokenTask>, mut done: Vec<Done>) {
        for done in done.drain(..) {
            self.parts.tasks.detached_jobs -= u32::from(done.is_detached);
            // The connection is gone, so the answer is dropped.
            if let Some(mut at) = self.named(done.exchange) {
                at.job_done(done);
            }
        }
        for task in woken.drain(..) {
            let exchange = task.begin();
            if let Some(mut at) = self.named(exchange) {
                at.advance_task();
            }
            let detached = &mut self.parts.tasks.detached;
            if !detached.is_empty() {
                detached.advance(exchange);
            }
        }
        self.parts.tasks.put_back(woken, done);
    }

    /// Checks every connection whose deadline may have passed.
    #[inline]
    pub(super) fn expire(&mut self) {
        if self.agenda.is_due(self.parts.turn.looked_at) {
            self.expire_due();
        }
    }

    #[inline(never)]
    fn expire_due(&mut self) {
        let now = self.parts.turn.looked_at;
        let due = self.agenda.take_due(now);
        for &token in &due {
            if let Some(id) = self.connections.fired(token, now) {
                self.connection(id).expire();
            }
        }
        self.agenda.put_back(due);
    }

    /// The turn ends: its statistics are recorded, and findings are logged.
    pub(super) fn end_turn(&mut self) {
        let WorkerState { parts, hook_due, .. } = self;
        let Parts { context, tasks, turn, .. } = parts;
        if let Some(context) = context {
            let again = context.end_turn(tasks.turn_waker());
            *hook_due = again.map_or(Instant::MAX, |after| turn.clock.now() + after);
        }
        self.app.report_panics(None, None); // Panics whose request is not known.
        let WorkerState { app, parts, .. } = self;
        let Parts { turn, admission, metrics, .. } = parts;
        let (began, end) = turn.end();
        turn.statistics.settle(metrics, end);
        admission.end_turn((began, end), turn.statistics.take_counts(), metrics);
        metrics.turn(end - began, turn.events());
        app.on_turn(turn.clock.shared(end));
        while let Some(found) = turn.blocking.take_finding() {
            app.report_blocking(found.endpoint, found.longest);
        }
    }
}
