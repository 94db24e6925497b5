//! Commands for the driver at the end of a turn: output, how to read, how many to accept, what to close.

use highwater_core::driver::{Close, ConnId, Driver, Reading, Then};
use highwater_core::time::Instant;

use super::connections::{Agenda, Connection};
use super::eviction::{self, Eviction};
use super::protocol::Protocol;
use super::{Parts, Worker, WorkerState};
use crate::metrics::Rejection;

impl<D: Driver, P: Protocol> Worker<D, P> {
    /// Gives each touched connection's output to the driver, and commands how to read.
    #[inline]
    pub(super) fn flush(&mut self) {
        if !self.state.agenda.corks.is_empty() {
            self.uncork();
        }
        if !self.state.agenda.touched.is_empty() {
            self.flush_touched();
        }
    }

    /// Reports the demand to the gate, and commands how many connections to accept. Once per turn, when it is known which
    /// connections have ended in it.
    #[inline]
    pub(super) fn settle(&mut self) {
        self.state.parts.admission.settle();
        self.flush_accepting();
    }

    /// Handles what the flush has already done: most answers are with the kernel by then. That would otherwise take a
    /// turn of its own, a twelfth of what a lone request costs over epoll.
    ///
    /// Only once: what is sent in consequence is reported in the next turn. One client that reads as fast as it is written
    /// to must not keep the others waiting.
    #[inline]
    pub(super) fn follow_flush(&mut self) {
        let Worker { driver, state } = self;
        let before = state.parts.turn.events();
        driver.report_done(&mut |event| {
            if state.parts.turn.events() == before {
                // A handler may have taken long: what is sent now gets its whole time.
                state.parts.turn.look();
            }
            state.on_event(event);
        });
        if self.state.parts.turn.events() != before {
            self.flush();
        }
        self.arm_sending();
    }

    /// Arms the connections whose output the kernel has not taken at once. Most others are idle by now, and were armed for that:
    /// arming each for its write, too, would cost a lone request 70 instructions.
    #[inline]
    pub(super) fn arm_sending(&mut self) {
        for position in 0..self.state.agenda.sending.len() {
            let id = self.state.agenda.sending[position];
            let Connection { is_open, channel, .. } = self.state.connections.get_mut(id);
            if *is_open && channel.is_sending() {
                self.state.connection(id).arm();
            }
        }
        self.state.agenda.sending.clear();
    }

    /// Flushes the connections whose answers have waited for others for long enough; all if no queue stands.
    #[cold]
    fn uncork(&mut self) {
        let WorkerState { connections, agenda, parts, .. } = &mut self.state;
        let until = match parts.admission.stands() {
            true => parts.turn.now,
            false => Instant::MAX,
        };
        while let Some(id) = agenda.corks.pop(until) {
            let connection = connections.get_mut(id);
            if connection.is_open {
                agenda.touch(id, connection);
            }
        }
    }

    fn flush_touched(&mut self) {
        let mut touched = std::mem::take(&mut self.state.agenda.touched);
        for &id in &touched {
            self.flush_one(id);
        }
        touched.clear();
        self.state.agenda.touched = touched;
    }

    fn flush_one(&mut self, id: ConnId) {
        let Worker { driver, state } = self;
        let mut at = state.connection(id);
        Agenda::untouch(at.connection);
        if !at.connection.is_open {
            return; // It was reported closed in this turn.
        }
        at.settle();
        if !at.connection.is_alive() {
            return;
        }
        if let Some(how) = at.ends() {
            return self.close(id, how);
        }
        let (now, Connection { link, protocol, .. }) = (at.parts.turn.now, &mut *at.connection);
        protocol.flush(link, &at.parts.encoder.limits, now);
        if let Some(report) = protocol.take_report() {
            at.parts.metrics.streams.count(&report);
        }
        let is_corked = at.is_corked();
        let Connection { link, channel, .. } = &mut *at.connection;
        if !is_corked
            && let Some((output, then)) = channel.take_output(link, &at.parts.encoder.limits, now)
        {
            channel.sends(then);
            at.parts.metrics.bytes_written.add(output.len() as u64);
            driver.send(id, output, then);
        }
        if !at.connection.channel.has_ended() {
            let Connection { link, protocol, channel, .. } = &*at.connection;
            let wants = protocol.wants_input(link, &at.parts.encoder.limits)
                && !link.is_eof()
                && !channel.is_waiting();
            let wanted = if wants { at.reading_wanted() } else { Reading::Stop };
            let Connection { channel, protocol, .. } = &mut *at.connection;
            if let Some(reading) = channel.read(wanted, || protocol.is_bulky()) {
                driver.read(id, reading);
            }
        }
        match at.connection.channel.is_sending() {
            true => at.agenda.sending.push(id),
            false => at.arm(),
        }
    }

    /// Commands the driver how many connections to accept, if that has changed.
    pub(super) fn flush_accepting(&mut self) {
        let Some(plan) = self.state.acceptor.plan() else { return };
        if plan.make_room {
            self.make_room();
        }
        let (driver, WorkerState { acceptor, parts, eviction_policy, .. }) =
            (&mut self.driver, &mut self.state);
        let Parts { admission, turn, metrics, .. } = parts;
        acceptor.fit_backlog(&admission.gate, turn.now, |at, backlog| driver.backlog(at, backlog));
        if plan.became_full {
            metrics.rejected(Rejection::AcceptConnectionsMax);
            if *eviction_policy == Eviction::Idle {
                eviction::report_full(acceptor.count());
            }
        }
        acceptor.decide(&admission.gate, turn.now, |at, accepting| driver.accept(at, accepting));
    }

    /// Closes connections to make room for others.
    fn make_room(&mut self) {
        let WorkerState { acceptor, connections, parts, eviction_policy, .. } = &mut self.state;
        let turn = &parts.turn;
        let policy = *eviction_policy;
        let closed = match policy {
            Eviction::Oldest => eviction::oldest(connections, acceptor.count()),
            // A connection that seems idle may have sent something that is not read yet.
            Eviction::Idle if turn.is_catching_up() || !acceptor.may_evict(turn.now) => return,
            Eviction::Idle => {
                let (idle, next_due) = eviction::idle(connections, acceptor.count(), turn.now);
                acceptor.evict_due = next_due;
                idle
            }
        };
        for id in closed {
            self.close(id, eviction::how(policy));
        }
    }

    /// Closes a connection now, a sealed one behind its closing message. Output that was not sent is lost.
    pub(super) fn close(&mut self, id: ConnId, how: Close) {
        let now = self.state.parts.turn.now;
        let Connection { channel, link, is_open, .. } = self.state.connections.get_mut(id);
        if !*is_open {
            return;
        }
        if how == Close::Fin
            && let Some(closing_message) = channel.take_closing_message(link, now)
        {
            self.state.parts.metrics.bytes_written.add(closing_message.len() as u64);
            self.driver.send(id, closing_message, Then::Close);
            self.state.connection(id).arm();
        } else if channel.close() {
            self.driver.close(id, how);
        }
    }
}
