//! A kernel that is not there: every split, delay, reset and slow reader is drawn from one seed.
//!
//! It promises what [`Driver`] promises (R1–R7) and asserts what a worker owes (O1–O3). Like a real
//! one, it destroys what a peer has not read yet when a connection is closed with input unread.

use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use highwater_core::driver::{
    AcceptError, Accepting, Close, ConnId, Driver, Event, Output, Reading, Then, Wait,
};
use highwater_core::prng::Prng;
use highwater_core::time::{Clock, Instant, UnixSeconds};

use super::peer::Peer;

/// Most bytes one delivery carries.
const DELIVERY_MAX: u64 = 4096;

/// Bytes that fit between the server and a peer that does not read.
const WIRE_MAX: usize = 16 * 1024;

/// Time as the simulation tells it.
#[derive(Clone, Debug)]
pub(super) struct SimClock(Rc<Cell<Instant>>);

impl Clock for SimClock {
    fn now(&self) -> Instant {
        self.0.get()
    }

    fn unix_time(&self) -> UnixSeconds {
        // 2026-01-01T00:00:00Z, and on.
        UnixSeconds(1_767_225_600 + self.0.get().as_nanos() / 1_000_000_000)
    }
}

/// What may go wrong, each as one chance in so many steps; zero for never.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weather {
    pub(super) reset_one_in: u64,
    pub(super) jump_one_in: u64,
    pub(super) accept_failure_one_in: u64,
}

pub(super) struct SimDriver {
    pub(super) prng: Prng,
    clock: SimClock,
    weather: Weather,
    pub(super) peers: Vec<Peer>,
    conns: Vec<Option<Conn>>,
    accepting: Accepting,
    /// The listener is to be closed once what waits has been accepted.
    pub(super) refused: Vec<usize>,
}

/// One connection, the kernel's side.
struct Conn {
    peer: usize,
    /// Received by the kernel, not yet delivered.
    inbound: VecDeque<u8>,
    eof_delivered: bool,
    reading: Reading,
    send: Option<(Output, usize, Then)>,
    /// The worker has closed it, or it failed: `Closed` is to be reported.
    closing: Option<Close>,
}

impl SimDriver {
    pub(super) fn new(seed: u64, peers: Vec<Peer>, weather: Weather) -> Self {
        SimDriver {
            prng: Prng::from_seed(seed),
            clock: SimClock(Rc::new(Cell::new(Instant::from_nanos(1)))),
            weather,
            peers,
            conns: Vec::new(),
            accepting: Accepting::On,
            refused: Vec::new(),
        }
    }

    fn chance(&mut self, one_in: u64) -> bool {
        one_in > 0 && self.prng.below(one_in) == 0
    }

    fn advance(&mut self, by: Duration) {
        self.clock.0.set(self.clock.now() + by);
    }

    /// One thing that can happen now, happens. Returns whether there was any.
    fn step(&mut self, on_event: &mut impl FnMut(Event<'_>)) -> bool {
        let acts = self.peers.len() + self.conns.len();
        if acts == 0 {
            return false;
        }
        let start = self.prng.below(acts as u64) as usize;
        (0..acts).any(|n| {
            let act = (start + n) % acts;
            match act.checked_sub(self.peers.len()) {
                None => self.act_of_peer(act, on_event),
                Some(index) => self.act_of_kernel(index, on_event),
            }
        })
    }

    /// A peer connects, sends, reads, or finishes sending.
    fn act_of_peer(&mut self, at: usize, on_event: &mut impl FnMut(Event<'_>)) -> bool {
        let now = self.clock.now();
        let peer = &mut self.peers[at];
        if peer.resume_at > now || peer.is_gone() {
            return false;
        }
        if peer.is_closed() {
            return peer.read(WIRE_MAX);
        }
        let Some(conn) = peer.conn else { return self.connect(at, on_event) };
        if self.chance(self.weather.reset_one_in) {
            self.reset_by_peer(conn);
            return true;
        }
        let pause = Duration::from_micros(self.prng.below(3000));
        let take = 1 + self.prng.below(300) as usize;
        let read_first = self.prng.chance(1, 2);
        let peer = &mut self.peers[at];
        peer.resume_at = now + pause;
        if read_first && peer.read(take) {
            return true;
        }
        let Some(Some(open)) = self.conns.get_mut(conn) else { return peer.read(take) };
        if open.inbound.len() < WIRE_MAX && peer.write(take, &mut open.inbound) {
            return true;
        }
        peer.read(take)
    }

    fn connect(&mut self, at: usize, on_event: &mut impl FnMut(Event<'_>)) -> bool {
        match self.accepting {
            Accepting::On => {}
            Accepting::Paused => return false,
            Accepting::Closed => {
                self.refused.push(at);
                self.peers[at].is_refused = true;
                return true;
            }
        }
        if self.chance(self.weather.accept_failure_one_in) {
            self.accepting = Accepting::Paused;
            on_event(Event::AcceptFailed(AcceptError::Descriptors));
            return true;
        }
        let index = self.conns.iter().position(Option::is_none).unwrap_or(self.conns.len());
        if index == self.conns.len() {
            self.conns.push(None);
        }
        self.conns[index] = Some(Conn {
            peer: at,
            inbound: VecDeque::new(),
            eof_delivered: false,
            reading: Reading::Once,
            send: None,
            closing: None,
        });
        self.peers[at].conn = Some(index);
        on_event(Event::Accepted(ConnId(index as u32), None));
        true
    }

    fn reset_by_peer(&mut self, index: usize) {
        if let Some(conn) = &mut self.conns[index] {
            let peer = &mut self.peers[conn.peer];
            peer.has_reset = true;
            peer.conn = None;
            conn.closing = Some(Close::Reset);
            conn.inbound.clear();
        }
    }

    /// The kernel delivers, takes a part of a send, or finishes a close.
    fn act_of_kernel(&mut self, index: usize, on_event: &mut impl FnMut(Event<'_>)) -> bool {
        let Some(conn) = &mut self.conns[index] else { return false };
        let id = ConnId(index as u32);
        if conn.closing.is_some() {
            self.finish_close(index);
            on_event(Event::Closed(id));
            return true;
        }
        let sends_first = self.prng.chance(1, 2);
        (sends_first && self.transmit(index, on_event))
            || self.deliver(index, on_event)
            || self.transmit(index, on_event)
    }

    fn finish_close(&mut self, index: usize) {
        let conn = self.conns[index].take().expect("only live connections close");
        let peer = &mut self.peers[conn.peer];
        if peer.conn == Some(index) {
            peer.conn = None;
            // Unread input, or an abandoned send: the peer gets a reset, which also destroys what
            // it has not read. A peer that still has something to send would provoke one as well.
            let reset = conn.closing == Some(Close::Reset)
                || conn.send.is_some()
                || !conn.inbound.is_empty()
                || peer.has_more_to_send();
            peer.on_closed(reset);
        }
    }

    fn deliver(&mut self, index: usize, on_event: &mut impl FnMut(Event<'_>)) -> bool {
        let most = 1 + self.prng.below(DELIVERY_MAX) as usize;
        let Some(conn) = &mut self.conns[index] else { return false };
        let id = ConnId(index as u32);
        if conn.reading == Reading::Stop || conn.eof_delivered {
            return false;
        }
        if conn.inbound.is_empty() {
            if !self.peers[conn.peer].has_finished_sending() {
                return false;
            }
            conn.eof_delivered = true;
            on_event(Event::Eof(id));
            return true;
        }
        if conn.reading == Reading::Once {
            conn.reading = Reading::Stop;
        }
        let bytes: Vec<u8> = conn.inbound.drain(..most.min(conn.inbound.len())).collect();
        on_event(Event::Received(id, &bytes));
        true
    }

    fn transmit(&mut self, index: usize, on_event: &mut impl FnMut(Event<'_>)) -> bool {
        let most = 1 + self.prng.below(3000) as usize;
        let Some(conn) = &mut self.conns[index] else { return false };
        let id = ConnId(index as u32);
        let Some((output, sent, then)) = &mut conn.send else { return false };
        let peer = &mut self.peers[conn.peer];
        let left = output.len() - *sent;
        let take = left.min(most).min(WIRE_MAX.saturating_sub(peer.wire.len()));
        if take == 0 && left > 0 {
            return false; // The peer does not read.
        }
        for at in *sent..*sent + take {
            let byte = match at.checked_sub(output.bytes.len()) {
                None => output.bytes[at],
                Some(in_tail) => output.tail[in_tail],
            };
            peer.wire.push_back(byte);
        }
        *sent += take;
        if *sent < output.len() {
            on_event(Event::Progress(id));
            return true;
        }
        let then = *then;
        let (output, ..) = conn.send.take().expect("matched above");
        match then {
            Then::Keep => {}
            Then::Shutdown => peer.on_fin(),
            Then::Close => conn.closing = Some(Close::Fin),
        }
        on_event(Event::Sent(id, output.bytes));
        true
    }

    /// When something can happen that cannot happen now.
    fn next_resume(&self) -> Option<Instant> {
        let now = self.clock.now();
        self.peers
            .iter()
            .filter(|peer| !peer.is_gone())
            .map(|peer| peer.resume_at)
            .filter(|&at| at > now)
            .min()
    }

    /// Whether no connection is left and no peer has anything to do.
    pub(super) fn is_quiet(&self) -> bool {
        self.conns.iter().all(Option::is_none) && self.peers.iter().all(Peer::is_gone)
    }

    fn open(&mut self, id: ConnId) -> &mut Conn {
        self.conns[id.index()].as_mut().unwrap_or_else(|| panic!("O3: {id:?} is closed"))
    }
}

impl Driver for SimDriver {
    type Error = Infallible;
    type Clock = SimClock;

    fn poll(&mut self, wait: Wait, on_event: &mut impl FnMut(Event<'_>)) -> Result<(), Infallible> {
        if self.chance(self.weather.jump_one_in) {
            let jump = Duration::from_millis(self.prng.below(20_000));
            self.advance(jump);
        }
        let mut any = false;
        for _ in 0..1 + self.prng.below(8) {
            any |= self.step(on_event);
        }
        if !any {
            let now = self.clock.now();
            let wait = match wait {
                Wait::No => Duration::ZERO,
                Wait::Until(due) => due - now,
                Wait::Forever => Duration::from_secs(1),
            };
            let resume = self.next_resume().map_or(wait, |at| at - now);
            self.advance(wait.min(resume));
        }
        let passes = Duration::from_micros(self.prng.below(50));
        self.advance(passes);
        Ok(())
    }

    fn send(&mut self, id: ConnId, output: Output, then: Then) {
        let conn = self.open(id);
        if conn.closing.is_some() {
            return; // It failed meanwhile.
        }
        assert!(conn.send.is_none(), "O1: {id:?} has a send in flight");
        assert!(!output.is_empty() || then != Then::Keep, "nothing to send to {id:?}");
        conn.send = Some((output, 0, then));
    }

    fn read(&mut self, id: ConnId, reading: Reading) {
        self.open(id).reading = reading;
    }

    fn close(&mut self, id: ConnId, how: Close) {
        let conn = self.open(id);
        conn.closing.get_or_insert(how);
    }

    fn accept(&mut self, accepting: Accepting) {
        assert!(self.accepting != Accepting::Closed, "the listener is closed");
        self.accepting = accepting;
    }

    fn clock(&self) -> SimClock {
        self.clock.clone()
    }
}
