//! One connection: both of its ends, the bytes in transit, and the facts about what has happened.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use highwater_core::driver::{Close, ConnId, Output, Reading, Then};
use highwater_core::time::Instant;

use super::sealed::Peer;

/// Bytes that the server's kernel takes from a client before the worker reads any.
pub(super) const INBOUND_MAX: usize = 16 * 1024;

/// The numbers in the addresses of one client, and of all others.
pub(super) const QUIET: u8 = 1;
pub(super) const BUSY: u8 = 2;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its client has not connected yet.
    Unborn,
    /// In the listen queue.
    Queued,
    /// Accepted.
    Open(ConnId),
    /// The server's end is closed.
    Over,
    /// No listener existed.
    Refused,
}

/// A send in flight.
pub(super) struct Sending {
    pub(super) output: Output,
    /// How many bytes of it the kernel has taken.
    pub(super) taken: usize,
    pub(super) then: Then,
}

/// The events on a connection, as seen from outside the worker.
#[derive(Default)]
pub(crate) struct Facts {
    pub(crate) accepted_at: Instant,
    /// Bytes handed to the worker, and when the last of them came.
    pub(crate) delivered: u64,
    pub(crate) delivered_at: Instant,
    /// Bytes handed to the worker after it had shut down its side.
    pub(crate) delivered_after_last: u64,
    pub(crate) eof_at: Option<Instant>,
    /// When the client finished sending.
    pub(crate) finished_at: Option<Instant>,
    /// When an event first informed the worker that the client has finished.
    pub(crate) gone_at: Option<Instant>,
    /// Every byte the worker has handed over to be sent.
    pub(crate) sent: Vec<u8>,
    /// When the kernel last took a part of a send, or was given one.
    pub(crate) progress_at: Instant,
    /// When the last send was complete.
    pub(crate) sent_at: Instant,
    /// The worker's last send, and when it was commanded; when it was complete.
    pub(crate) last: Option<(Then, Instant)>,
    pub(crate) last_sent_at: Option<Instant>,
    /// The worker commanded the close.
    pub(crate) close: Option<(Close, Instant)>,
    /// A send was in flight then.
    pub(crate) close_cut_send: bool,
    /// The worker's last send was the closing message of a sealed connection alone: as if it had closed.
    pub(crate) closing_message_at: Option<Instant>,
}

impl Facts {
    pub(crate) fn has_shut_down(&self) -> bool {
        self.last.is_some()
    }
}

/// A connection.
pub(crate) struct Link {
    pub(crate) stage: Stage,
    /// Where its client is.
    pub(crate) peer: Option<SocketAddr>,
    /// In transit to the worker.
    pub(super) inbound: VecDeque<u8>,
    pub(super) sent_fin: bool,
    /// In transit to the client, which buffers `window` bytes.
    pub(super) wire: VecDeque<u8>,
    window: usize,
    fin: bool,
    /// The server reset the connection; unread bytes are lost.
    pub(crate) was_reset: bool,
    /// The client reset the connection.
    pub(crate) has_left: bool,
    reading: Reading,
    /// How much still arrives although reading has stopped, because the kernel had it already:
    /// bytes, plus one for the end.
    late: usize,
    pub(super) send: Option<Sending>,
    /// What had happened when the process continued after a stop, and the worker does not know yet.
    missed: usize,
    missed_room: bool,
    /// The worker has set how it reads, or has tried to send: from then on the end is reported even
    /// while it does not read.
    pub(super) is_watched: bool,
    /// `Closed` is to be reported.
    pub(super) closing: Option<Close>,
    /// The client's side of a sealed connection. All facts are about what is inside.
    pub(super) sealed: Option<Box<Peer>>,
    /// The worker was told that the client has finished.
    is_deaf: bool,
    pub(crate) facts: Facts,
}

impl Link {
    pub(super) fn new(window: usize) -> Self {
        Link {
            stage: Stage::Unborn,
            peer: None,
            inbound: VecDeque::new(),
            sent_fin: false,
            wire: VecDeque::new(),
            window,
            fin: false,
            was_reset: false,
            has_left: false,
            reading: Reading::Once,
            late: 0,
            send: None,
            missed: 0,
            missed_room: false,
            is_watched: false,
            closing: None,
            facts: Facts::default(),
            sealed: None,
            is_deaf: false,
        }
    }

    /// The number of its client's address, if it has one.
    pub(super) fn number(&self) -> Option<u8> {
        match self.peer?.ip() {
            IpAddr::V4(ip) => Some(ip.octets()[3]),
            IpAddr::V6(_) => None,
        }
    }

    pub(crate) fn id(&self) -> ConnId {
        match self.stage {
            Stage::Open(id) => id,
            stage => panic!("a connection that is {stage:?} has no id"),
        }
    }

    /// Whether the worker serves it and nothing has decided its end yet.
    pub(crate) fn is_live(&self) -> bool {
        let is_ending = self.closing.is_some() || self.facts.closing_message_at.is_some();
        matches!(self.stage, Stage::Open(_)) && !is_ending
    }

    pub(crate) fn is_sending(&self) -> bool {
        self.send.is_some()
    }

    /// Whether the client of a sealed connection broke the rules of the seal.
    pub(crate) fn is_broken(&self) -> bool {
        self.sealed.as_ref().is_some_and(|peer| peer.is_broken())
    }

    /// Whether the worker has a part of a sealed record.
    pub(super) fn is_inside_record(&self) -> bool {
        self.sealed.as_ref().is_some_and(|peer| peer.is_inside_record())
    }

    /// Whether it was accepted at some time.
    pub(super) fn was_accepted(&self) -> bool {
        self.facts.accepted_at != Instant::ZERO
    }

    /// Whether its client waits for the worker's part of the handshake, and something of it may still come.
    pub(super) fn is_greeting(&self) -> bool {
        let may_come = !self.sent_fin && !self.fin && self.stage != Stage::Over;
        may_come && self.sealed.as_ref().is_some_and(|peer| peer.is_greeting())
    }

    /// Whether its bytes are sealed.
    pub(super) fn is_sealed(&self) -> bool {
        self.sealed.is_some()
    }

    /// Whether a handshake waits to be admitted.
    pub(super) fn awaits_handshake(&self) -> bool {
        self.sealed.as_ref().is_some_and(|peer| peer.awaits_answer())
    }

    /// Whether the worker has all of the client's part of a handshake; there may be none.
    pub(super) fn is_established(&self) -> bool {
        self.sealed.as_ref().is_none_or(|peer| peer.is_established())
    }

    /// The client sends no more.
    pub(super) fn finish(&mut self, now: Instant) {
        if let Some(peer) = self.sealed.as_mut().filter(|_| !self.sent_fin) {
            peer.finish(&mut self.inbound);
        }
        self.sent_fin = true;
        self.facts.finished_at.get_or_insert(now);
    }

    /// The process continues after a stop: what it finds has happened in the meantime.
    pub(super) fn wake_up(&mut self) {
        self.missed = self.inbound.len();
        self.missed_room = self.send.is_some() && self.wire.len() < self.window;
    }

    /// From now on, what it found then is treated like everything else.
    pub(super) fn forget_missed(&mut self) {
        self.missed = 0;
        self.missed_room = false;
    }

    /// Bytes that came while the process stood still and are not delivered yet.
    pub(crate) fn missed(&self) -> u64 {
        match &self.sealed {
            None => self.missed as u64,
            Some(peer) => peer.plain_within(self.missed),
        }
    }

    /// Whether the client made room while the process stood still, and nothing was sent since.
    pub(crate) fn has_missed_room(&self) -> bool {
        self.missed_room
    }

    /// Whether the client will send no more.
    pub(crate) fn has_hung_up(&self) -> bool {
        self.sent_fin || self.has_left
    }

    /// Bytes of memory that the send in flight holds.
    pub(crate) fn sending_capacity(&self) -> usize {
        self.send.as_ref().map_or(0, |send| send.output.bytes.capacity())
    }

    /// Whether input waits that will not be delivered unless the worker asks for it.
    pub(crate) fn is_held_back(&self) -> bool {
        let has_input = !self.inbound.is_empty() || (self.sent_fin && self.facts.eof_at.is_none());
        has_input && !self.may_deliver()
    }

    /// Whether something has arrived that the client has not read.
    pub(crate) fn has_unread(&self) -> bool {
        !self.wire.is_empty()
    }

    /// Whether the server's kernel takes more bytes from the client.
    pub(crate) fn has_room(&self) -> bool {
        let may_send = self.sealed.as_ref().is_none_or(|peer| peer.may_send());
        may_send && self.inbound.len() < INBOUND_MAX
    }

    /// Whether the client has received everything, including the end.
    pub(crate) fn has_ended(&self) -> bool {
        self.wire.is_empty() && (self.fin || self.stage == Stage::Over)
    }

    pub(super) fn accept(&mut self, id: ConnId, now: Instant) {
        self.stage = Stage::Open(id);
        self.facts.accepted_at = now;
        self.facts.sent_at = now;
        if self.has_left {
            self.closing = Some(Close::Reset);
        }
    }

    /// Whether the worker can be informed now that the connection has ended.
    pub(super) fn is_end_seen(&self) -> bool {
        let ours = self.is_settled() || self.facts.has_shut_down();
        self.closing.is_some() && (ours || self.is_watched || self.reading != Reading::Stop)
    }

    /// Whether the worker has given its last command.
    pub(super) fn is_settled(&self) -> bool {
        let Facts { close, closing_message_at, last, .. } = &self.facts;
        close.is_some() || closing_message_at.is_some() || matches!(last, Some((Then::Close, _)))
    }

    pub(super) fn read(&mut self, reading: Reading, late: usize) {
        self.reading = reading;
        self.late = late.min(self.inbound.len() + usize::from(self.sent_fin));
    }

    pub(super) fn close(&mut self, how: Close, now: Instant) {
        if let Some(peer) =
            self.sealed.as_ref().filter(|_| how == Close::Fin && self.closing.is_none())
        {
            peer.close();
        }
        if self.closing.is_none() {
            self.facts.close_cut_send = self.send.is_some();
        }
        self.facts.close = Some((how, now));
        self.closing.get_or_insert(how);
    }

    fn may_deliver(&self) -> bool {
        let open = !self.is_settled() && !self.is_deaf;
        open && (self.reading != Reading::Stop || self.late > 0)
    }

    /// Whether the worker must be informed now that the client has finished, because it does not
    /// read the earlier bytes. Once.
    pub(super) fn hangs_up(&mut self, now: Instant) -> bool {
        let hangs_up = self.sent_fin
            && self.reading == Reading::Stop
            && self.is_watched
            && self.facts.gone_at.is_none()
            && !self.is_settled();
        if hangs_up {
            self.facts.gone_at = Some(now);
        }
        hangs_up
    }

    /// The next delivery to the worker: bytes, or none for the end.
    pub(super) fn take_delivery(&mut self, most: usize, now: Instant) -> Option<Vec<u8>> {
        if !self.may_deliver() {
            return None;
        }
        if self.inbound.is_empty() {
            if !self.sent_fin {
                return None;
            }
            self.late = self.late.saturating_sub(1);
            self.is_deaf = true;
            self.facts.eof_at.get_or_insert(now);
            self.facts.gone_at.get_or_insert(now);
            return Some(Vec::new());
        }
        let most = match self.reading {
            Reading::Stop => most.min(self.late),
            _ => most,
        };
        let bytes: Vec<u8> = self.inbound.drain(..most.min(self.inbound.len())).collect();
        self.missed = self.missed.saturating_sub(bytes.len());
        match self.reading {
            Reading::Once | Reading::Brief => self.read(Reading::Stop, 0),
            Reading::Stop => self.late -= bytes.len(),
            Reading::Stream => {}
        }
        let plain = match &mut self.sealed {
            None => bytes.len() as u64,
            Some(peer) => {
                let delivered = peer.deliver(bytes.len());
                if delivered.has_established {
                    self.begin_protocol(now);
                }
                if delivered.has_closed {
                    self.facts.eof_at.get_or_insert(now);
                    self.facts.gone_at.get_or_insert(now);
                }
                delivered.plain
            }
        };
        self.note_delivered(plain, now);
        Some(bytes)
    }

    /// Whether the worker may take bytes: none are reported before them.
    pub(super) fn may_take(&self) -> bool {
        let is_open = !self.is_settled() && !self.is_deaf && self.closing.is_none();
        is_open && self.reading == Reading::Stop && self.late == 0
    }

    /// The worker takes at most `most` bytes.
    pub(super) fn take(&mut self, most: usize, now: Instant) -> impl Iterator<Item = u8> {
        let len = most.min(self.inbound.len());
        self.missed = self.missed.saturating_sub(len);
        self.note_delivered(len as u64, now);
        self.inbound.drain(..len)
    }

    fn note_delivered(&mut self, plain: u64, now: Instant) {
        self.facts.delivered += plain;
        if plain > 0 {
            self.facts.delivered_at = now;
        }
        if self.facts.has_shut_down() {
            self.facts.delivered_after_last += plain;
        }
    }

    /// The deadlines of the first request count from now.
    fn begin_protocol(&mut self, now: Instant) {
        self.facts.accepted_at = now;
        self.facts.sent_at = self.facts.sent_at.max(now);
    }

    /// The worker commands to send `output`: what is in it for the client, and whether it is only a closing message.
    pub(super) fn note_command(&mut self, output: &Output, then: Then, now: Instant) {
        let mut is_closing_message = false;
        match &mut self.sealed {
            None => {
                self.facts.sent.extend_from_slice(&output.bytes);
                self.facts.sent.extend_from_slice(&output.tail);
            }
            Some(peer) => {
                assert!(output.tail.is_empty(), "sealed: something is shared with the kernel");
                let (plain, answers) = peer.command(&output.bytes, then != Then::Keep);
                self.facts.sent.extend_from_slice(&plain);
                is_closing_message = plain.is_empty() && then == Then::Close;
                if answers {
                    self.begin_protocol(now);
                }
            }
        }
        match is_closing_message {
            true => self.facts.closing_message_at = Some(now),
            false => self.facts.last = (then != Then::Keep).then_some((then, now)),
        }
        self.facts.progress_at = now;
    }

    /// Puts at most `most` bytes of the send in flight on the network. Returns whether that did
    /// anything.
    pub(super) fn take_output(&mut self, most: usize, now: Instant) -> bool {
        let Some(Sending { output, taken, .. }) = &mut self.send else { return false };
        let left = output.len() - *taken;
        let take = left.min(most).min(self.window.saturating_sub(self.wire.len()));
        if take == 0 && left > 0 {
            return false; // The client does not read.
        }
        let all = output.bytes.iter().chain(output.tail.iter());
        self.wire.extend(all.skip(*taken).take(take));
        if let Some(peer) = self.sealed.as_mut().filter(|_| !self.sent_fin) {
            peer.receive(&mut self.wire, &mut self.inbound);
        }
        *taken += take;
        self.missed_room = false;
        self.facts.progress_at = now;
        true
    }

    /// The buffer of the send in flight, if that is complete.
    pub(super) fn end_send(&mut self, now: Instant) -> Option<Vec<u8>> {
        let complete = |send: &mut Sending| send.taken == send.output.len();
        let Sending { output, then, .. } = self.send.take_if(complete)?;
        // The closing message is not part of an answer: a connection that was idle before it still is.
        if self.facts.closing_message_at.is_none() {
            self.facts.sent_at = now;
        }
        match then {
            Then::Keep => {}
            Then::Shutdown => self.fin = true,
            Then::Close => self.closing = Some(Close::Fin),
        }
        if then != Then::Keep {
            self.facts.last_sent_at = Some(now);
        }
        Some(output.bytes)
    }

    /// What the client reads of `bytes`.
    pub(super) fn open(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        match &mut self.sealed {
            None => bytes,
            Some(peer) => peer.read(&bytes),
        }
    }

    /// Closes the server's end.
    pub(super) fn end(&mut self) -> ConnId {
        let id = self.id();
        self.stage = Stage::Over;
        self.fin = true;
        if !self.has_left && (self.closing == Some(Close::Reset) || !self.inbound.is_empty()) {
            self.reset();
        }
        id
    }

    /// A reset reaches the client, and destroys what it has not read.
    pub(super) fn reset(&mut self) {
        self.was_reset = true;
        self.wire.clear();
        self.inbound.clear();
        self.missed = 0;
    }
}
