//! Bytes of a sealed channel: its handshake is admitted like a request, and the content of its records is served.
//!
//! A handshake costs as much as many requests, and refusing one costs nothing: so it is asked about before its costly part
//! begins, waits in the queue, nearly always behind the requests of established connections, and is refused by a reset. The protocol
//! begins when the handshake begins, and again when it is complete: its deadline for the first request bounds both.

use highwater_core::time::{Clock, Instant};

use super::super::channel::{Opened, Sealed};
use super::super::connections::Connection;
use super::super::exchange::Item;
use super::super::protocol::Protocol;
use super::super::{Parts, turn::Turn};
use super::ConnectionMut;
use crate::admission::queue::Entry;
use crate::admission::worker::Verdict;
use crate::metrics::{HandshakeFailure, Rejection};

impl<C: Clock, P: Protocol> ConnectionMut<'_, C, P> {
    /// Opens received bytes, and serves what they hold.
    #[cold]
    pub(super) fn receive_sealed(&mut self, received: &mut [u8]) {
        let Some(mut sealed) = self.connection.channel.take_seal() else { return };
        match () {
            () if sealed.is_waiting() => sealed.seal.keep(received),
            () if sealed.is_deaf() => self.connection.link.drop_input(&mut &*received),
            () => self.open(&mut sealed, received),
        }
        self.connection.channel.put_seal(sealed);
        self.touch();
    }

    fn open(&mut self, sealed: &mut Sealed, mut input: &mut [u8]) {
        loop {
            match sealed.seal.open(&mut input) {
                Opened::Wait => return,
                Opened::Plain(plain) => self.take_in(plain),
                Opened::Established => self.establish(sealed),
                Opened::Closed => self.end_of_input(),
                Opened::Failed(failure) => return self.fail(sealed, failure),
                Opened::Hello => {
                    if !self.admit(sealed) {
                        return sealed.seal.keep(input);
                    }
                }
            }
        }
    }

    /// Asks whether the handshake may begin; if so, it does. If not, it waits or is refused.
    fn admit(&mut self, sealed: &mut Sealed) -> bool {
        let Parts { admission, turn, .. } = &mut *self.parts;
        let Connection { is_suspect, client, .. } = &*self.connection;
        let now = turn.now;
        let time = (now, || turn.clock.now());
        let verdict = admission.judge_handshake(time, *is_suspect, || *client);
        match verdict {
            Verdict::Serve(_) => {
                self.begin_handshake(sealed, now);
                return true;
            }
            Verdict::Wait(class, deadline) => {
                sealed.wait();
                let (id, _, first) = self.exchanges.get_mut(self.connection.streams.first());
                (first.started, first.queue.class) = (now, class); // Since then it waits.
                let item = Item::Handshake(id);
                self.parts.admission.enqueue(class, Entry { item, ready: now, deadline });
            }
            Verdict::Refuse(reason) => self.refuse_handshake(sealed, reason),
        }
        false
    }

    /// The turn of a handshake in the queue has come: it begins, or is refused for `refuse`.
    pub(in super::super) fn resume_handshake(
        &mut self,
        entry: &Entry<Item>,
        refuse: Option<Rejection>,
    ) {
        let Some(mut sealed) = self.connection.channel.take_seal() else { return };
        if sealed.is_waiting() {
            self.parts.admission.allow_one(self.parts.turn.now);
            match refuse {
                Some(reason) => self.refuse_handshake(&mut sealed, reason),
                None => {
                    self.begin_handshake(&mut sealed, entry.ready);
                    self.open(&mut sealed, &mut []);
                }
            }
        }
        self.connection.channel.put_seal(sealed);
        self.touch();
    }

    /// The costly part of a handshake that could have begun at `ready`.
    fn begin_handshake(&mut self, sealed: &mut Sealed, ready: Instant) {
        let is_draining = self.acceptor.is_draining();
        let Parts { turn, admission, metrics, .. } = &mut *self.parts;
        let Turn { statistics, now, clock, .. } = turn;
        statistics.started(metrics, ready, *now);
        metrics.handshakes.begin();
        admission.count();
        let began = clock.now();
        sealed.begin();
        admission.charge(began, clock.now());
        if !self.connection.link.is_ending() {
            let versions = self.connection.versions;
            self.connection.begin_protocol(*now, versions, is_draining);
            self.connection.link.drop_output(); // The handshake comes first.
        }
    }

    /// The client of a handshake that waits has left.
    #[cold]
    pub(super) fn left_handshake(&mut self) {
        let (.., first) = self.exchanges.get_mut(self.connection.streams.first());
        self.parts.admission.left(first.queue.class, first.started, self.parts.turn.now);
    }

    /// The handshake will not begin: a reset costs the least.
    fn refuse_handshake(&mut self, sealed: &mut Sealed, reason: Rejection) {
        if sealed.give_up() {
            self.parts.metrics.handshakes.fail(HandshakeFailure::Refused);
        }
        sealed.fail(); // It waits no longer: its client has not left.
        self.parts.metrics.rejected(reason);
        self.parts.turn.statistics.refused_handshake();
        self.connection.link.abort();
    }

    /// The handshake is complete, and the protocol begins.
    fn establish(&mut self, sealed: &mut Sealed) {
        let now = self.parts.turn.now;
        self.parts.metrics.handshakes.complete(sealed.seal.completed());
        self.connection.certificates = sealed.seal.certificates();
        let is_draining = self.acceptor.is_draining();
        if sealed.establish() && !self.connection.link.is_ending() {
            self.connection.accepted_at = now; // Its request is most likely on its way.
            self.connection.begin_protocol(now, sealed.seal.versions(), is_draining);
        }
    }

    /// The channel has failed: its peer gets an alert and nothing else, and what it asked for is given up.
    fn fail(&mut self, sealed: &mut Sealed, failure: HandshakeFailure) {
        if sealed.give_up() {
            self.parts.metrics.handshakes.fail(failure);
        }
        sealed.fail();
        let link = &mut self.connection.link;
        link.drop_output();
        link.end(false);
        self.hung_up();
    }
}
