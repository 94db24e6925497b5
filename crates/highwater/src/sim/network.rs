//! A simulated network, and the simulated kernel at its end.
//!
//! Clients act on a [`Network`] between the worker's turns: they connect, send, finish, leave,
//! read. A [`SimDriver`] is the same network as the worker's driver. In between, a seed decides
//! every split, order, delay and failure; or, for tests of applications, nothing varies at all.
//!
//! It promises what [`Driver`] promises (R1–R9) and asserts the worker's obligations (O1, O3; O2
//! cannot be broken, as the driver is borrowed during its callback). It is as unfriendly as the
//! real drivers may be: bytes and even the end come after [`Reading::Stop`] if they were already
//! received, accepted connections come after [`Accepting::Paused`], a close with unread input
//! destroys what the client has not read, and so does a client that sends to a closed connection.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use highwater_core::driver::{
    AcceptError, Accepting, Close, ConnId, Driver, Event, ListenerId, Output, Reading, Then, Wait,
};
use highwater_core::http::make_room;
use highwater_core::prng::Prng;
use highwater_core::time::{Clock, Instant};

use super::clock::SimClock;
use super::faults::Faults;
use super::link::{INBOUND_MAX, Link, Sending, Stage};
use super::listener::Listener;
use super::sealed::Peer;
use super::threads::{OtherThreads, Place};
use super::trace::{Trace, show};

/// Most bytes one delivery carries.
const DELIVERY_MAX: usize = 4096;

/// Most bytes that were received but not reported when reading is stopped.
pub(crate) const LATE_MAX: u64 = 6000;

/// A worker that looks later than planned by more than this has lost the rest of the time: it did
/// not run, and that time does not count against clients.
pub(crate) const LATENESS_MAX: Duration = Duration::from_millis(100);

/// All connections there are, and the kernel's state.
pub(crate) struct Network {
    clock: SimClock,
    /// The time in which the worker did not run although it should have. [`Network::now`] and all
    /// recorded times leave it out.
    pub(crate) lost: Duration,
    /// When the worker last had nothing left to do, and until when it has planned to wait since;
    /// both by the clock.
    left_at: Instant,
    planned: Instant,
    /// How far [`Network::now`] went back when the loss became known, since the last call of
    /// `take_back`.
    went_back: Duration,
    /// Events reported by one poll, if nothing is random.
    pub(super) events_max: usize,
    /// `None`: nothing varies.
    prng: Option<Prng>,
    faults: Faults,
    pub(crate) trace: Trace,
    links: Vec<Link>,
    /// Where connections come from that are accepted from now on, if the worker learns it.
    pub(crate) peer: Option<SocketAddr>,
    /// Which link has which `ConnId`.
    slots: Vec<Option<usize>>,
    listeners: Vec<Listener>,
    next_accept_fails: bool,
    /// Draws the clients' side of sealed connections: those at every second listener, from the first on.
    pub(super) sealed: Option<Prng>,
    /// Other threads, if there are any.
    pub(super) threads: Option<Arc<OtherThreads>>,
    /// When the next client acts: nothing waits longer.
    pub(crate) client_at: Instant,
    /// When the events of the last poll happened.
    pub(crate) turn_at: Instant,
    /// Events reported by the last poll, and since.
    pub(crate) events: usize,
    /// How many connections were open when the last poll ended: when the worker decided what to close.
    pub(crate) open: usize,
    /// An accept failed in the last poll.
    pub(crate) accept_failed: bool,
    /// Totals, to be compared with the worker's counters.
    pub(crate) accepted: u64,
    pub(crate) delivered: u64,
    pub(crate) commanded: u64,
}

impl Network {
    /// A network in which the seed decides what may vary, or nothing varies without one.
    pub(crate) fn new(seed: Option<u64>, faults: Faults, trace: Trace) -> Self {
        let clock = SimClock::starting_at(Instant::from_nanos(1));
        Network {
            turn_at: clock.now(),
            lost: Duration::ZERO,
            left_at: clock.now(),
            clock,
            planned: Instant::ZERO,
            went_back: Duration::ZERO,
            events_max: 256,
            prng: seed.map(Prng::from_seed),
            faults,
            trace,
            links: Vec::new(),
            peer: None,
            slots: Vec::new(),
            listeners: vec![Listener::new()],
            next_accept_fails: false,
            sealed: None,
            threads: None,
            client_at: Instant::MAX,
            events: 0,
            open: 0,
            accept_failed: false,
            accepted: 0,
            delivered: 0,
            commanded: 0,
        }
    }

    /// The time, without the time in which the machine stood still.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now().checked_sub(self.lost).unwrap_or(Instant::ZERO)
    }

    /// The worker plans to wait for this long from now on, or for ever: in its driver or in its
    /// runtime.
    pub(super) fn plan(&mut self, wait: Option<Duration>) {
        self.planned = wait.map_or(Instant::MAX, |wait| self.clock.now() + wait);
    }

    /// The worker looks: lateness is lost time. What clients did until `before` while it did not
    /// run has happened now.
    pub(super) fn look(&mut self, before: Instant) {
        let until = self.left_at.max(std::mem::take(&mut self.planned));
        let at = self.clock.now();
        self.left_at = at;
        let lost = (at - until).saturating_sub(LATENESS_MAX);
        if lost.is_zero() {
            return;
        }
        self.lost += lost;
        self.links.iter_mut().for_each(Link::wake_up);
        let now = self.now();
        self.trace.line(|| format!("{now:?} {lost:?} are lost"));
        let back = before - now;
        self.went_back += back;
        if self.client_at != Instant::MAX {
            self.client_at = self.client_at.checked_sub(back).unwrap_or(Instant::ZERO);
        }
        for link in &mut self.links {
            link.facts.finished_at = link.facts.finished_at.map(|at| at.min(now));
        }
    }

    /// Bytes that came while the worker did not run need no longer be read first.
    pub(super) fn forget_missed(&mut self) {
        self.links.iter_mut().for_each(Link::forget_missed);
    }

    /// How far time went back since the last call: clients that stored a time need it.
    pub(super) fn take_back(&mut self) -> Duration {
        std::mem::take(&mut self.went_back)
    }

    pub(crate) fn links(&self) -> &[Link] {
        &self.links
    }

    pub(crate) fn link(&self, link: usize) -> &Link {
        &self.links[link]
    }

    /// Lets the worker listen in `count` places instead of one; clients of the n-th link connect to the n-th of
    /// them, and then to the first again.
    pub(crate) fn listen(&mut self, count: usize) {
        self.listeners = (0..count).map(|_| Listener::new()).collect();
    }

    pub(crate) fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    /// How many more may be accepted before the worker can stop that.
    pub(crate) fn welcome(&self) -> u32 {
        self.listeners.iter().map(Listener::welcome).sum()
    }

    /// The next accept fails, even one that was on its way when accepting paused.
    #[cfg(test)]
    pub(super) fn late_accept_fails(&mut self) {
        self.next_accept_fails = true;
        self.listeners[0].late = 1;
    }

    // ---- what clients do

    /// A place for a connection whose client buffers `window` bytes.
    pub(crate) fn add(&mut self, window: usize) -> usize {
        self.links.push(Link::new(window));
        self.links.len() - 1
    }

    /// Connects: into the listen queue, or refused if there is no listener any more.
    pub(crate) fn connect(&mut self, link: usize) {
        let at = link % self.listeners.len();
        if self.listeners[at].accepting == Accepting::Closed {
            self.links[link].stage = Stage::Refused;
        } else {
            self.links[link].stage = Stage::Queued;
            if let Some(prng) = self.sealed.as_mut().filter(|_| at.is_multiple_of(2)) {
                let mut peer = Peer::draw(prng);
                peer.connect(&mut self.links[link].inbound);
                self.links[link].sealed = Some(Box::new(peer));
            }
            self.listeners[at].backlog.push_back(link);
        }
        self.note(link, || "connects".into());
    }

    /// Puts the client of `link` at an address of its own number.
    pub(crate) fn settle(&mut self, link: usize, number: u8) {
        self.links[link].peer = Some(([192, 0, 2, number], 4711).into());
    }

    /// Sends the beginning of `bytes`; returns how much of it was taken.
    pub(crate) fn send(&mut self, at: usize, bytes: &[u8]) -> usize {
        let link = &mut self.links[at];
        let take = match link.stage {
            Stage::Queued | Stage::Open(_) if !link.sent_fin => {
                let room = INBOUND_MAX.saturating_sub(link.inbound.len());
                let take = bytes.len().min(if self.prng.is_some() { room } else { usize::MAX });
                match &mut link.sealed {
                    Some(peer) => peer.send(&bytes[..take], &mut link.inbound),
                    None => {
                        link.inbound.extend(&bytes[..take]);
                        take
                    }
                }
            }
            // The connection is closed: the kernel answers with a reset, which overtakes unread
            // bytes.
            Stage::Over if !bytes.is_empty() => {
                link.reset();
                bytes.len()
            }
            _ => 0,
        };
        if take > 0 {
            self.note(at, || format!("says {}", show(&bytes[..take])));
        }
        take
    }

    /// Finishes sending.
    pub(crate) fn finish(&mut self, link: usize) {
        let now = self.now();
        self.links[link].finish(now);
        self.note(link, || "finishes".into());
    }

    /// Resets the connection.
    pub(crate) fn leave(&mut self, at: usize) {
        let link = &mut self.links[at];
        link.has_left = true;
        link.inbound.clear();
        link.wire.clear();
        match link.stage {
            Stage::Open(_) => {
                link.closing.get_or_insert(Close::Reset);
            }
            Stage::Queued => {}
            _ => link.stage = Stage::Over,
        }
        self.note(at, || "resets".into());
    }

    /// Reads at most `most` bytes of what has arrived.
    pub(crate) fn read(&mut self, link: usize, most: usize) -> Vec<u8> {
        if self.links[link].is_greeting() {
            return Vec::new(); // What comes is for the handshake.
        }
        let wire = &mut self.links[link].wire;
        let take = most.min(wire.len());
        let bytes: Vec<u8> = wire.drain(..take).collect();
        let bytes = self.links[link].open(bytes);
        if !bytes.is_empty() {
            self.note(link, || format!("hears {}", show(&bytes)));
        }
        bytes
    }

    // ---- what the kernel does

    fn note(&self, link: usize, what: impl FnOnce() -> String) {
        self.trace.line(|| format!("{:?} client {link} {}", self.now(), what()));
    }

    /// Time passes until `then`, if that is in the future.
    pub(super) fn pass(&mut self, then: Instant) {
        self.clock.advance(then - self.now());
    }

    fn chance(&mut self, one_in: u64) -> bool {
        one_in > 0 && self.prng.as_mut().is_some_and(|prng| prng.below(one_in) == 0)
    }

    pub(crate) fn breaks(&mut self) -> bool {
        self.chance(self.faults.reset_one_in)
    }

    /// A number up to `most`, at least one; `most` itself if nothing varies.
    fn draw(&mut self, most: usize) -> usize {
        match &mut self.prng {
            Some(prng) => 1 + prng.below(most as u64) as usize,
            None => most,
        }
    }

    /// Performs one of the possible actions. Returns whether there was any.
    fn step(&mut self, on_event: &mut impl FnMut(Event<'_>)) -> bool {
        let acts = self.slots.len() + self.listeners.len();
        let start = self.draw(acts) - 1;
        (0..acts).any(|n| {
            let act = (start + n) % acts;
            match self.slots.get(act) {
                None => self.accept_one(act - self.slots.len(), on_event),
                Some(&slot) => slot.is_some_and(|link| self.act(link, on_event)),
            }
        })
    }

    fn accept_one(&mut self, at: usize, on_event: &mut impl FnMut(Event<'_>)) -> bool {
        if !self.listeners[at].may_accept() {
            return false;
        }
        self.events += 1;
        let fails = std::mem::take(&mut self.next_accept_fails);
        if fails || self.chance(self.faults.accept_failure_one_in) {
            self.listeners.iter_mut().for_each(|listener| listener.has_stopped = true);
            self.accept_failed = true;
            self.trace.line(|| format!("{:?} accepting fails", self.now()));
            on_event(Event::AcceptFailed(AcceptError::Descriptors));
            return true;
        }
        let link = self.listeners[at].accept();
        let from = ListenerId(at as u16);
        let id = self.accept_link(link, from);
        on_event(Event::Accepted(id, from, self.peer));
        true
    }

    fn accept_link(&mut self, at: usize, from: ListenerId) -> ConnId {
        self.accepted += 1;
        let index = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if index == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[index] = Some(at);
        let id = ConnId(index as u32);
        let now = self.now();
        self.links[at].accept(id, now);
        self.note(at, || format!("is accepted at {} as {}", from.0, id.0));
        id
    }

    /// Delivers, takes a part of a send, or finishes a close.
    fn act(&mut self, at: usize, on_event: &mut impl FnMut(Event<'_>)) -> bool {
        if self.links[at].closing.is_some() {
            let is_seen = self.links[at].is_end_seen();
            if is_seen {
                self.finish_close(at, on_event);
            }
            return is_seen;
        }
        let now = self.now();
        if self.links[at].hangs_up(now) {
            let id = self.links[at].id();
            self.events += 1;
            self.note(at, || "→ hung up".into());
            on_event(Event::HungUp(id));
            return true;
        }
        let sends_first = self.draw(2) == 1;
        (sends_first && self.transmit(at, on_event))
            || self.deliver(at, on_event)
            || self.transmit(at, on_event)
    }

    fn finish_close(&mut self, at: usize, on_event: &mut impl FnMut(Event<'_>)) {
        let link = &mut self.links[at];
        let id = link.end();
        self.slots[id.index()] = None;
        self.events += 1;
        self.note(at, || "is reported closed".into());
        on_event(Event::Closed(id));
    }

    fn deliver(&mut self, at: usize, on_event: &mut impl FnMut(Event<'_>)) -> bool {
        let drawn = self.draw(DELIVERY_MAX);
        let now = self.now();
        let Some(mut bytes) = self.links[at].take_delivery(drawn, now) else { return false };
        let id = self.links[at].id();
        self.events += 1;
        if bytes.is_empty() {
            self.note(at, || "→ end".into());
            on_event(Event::Eof(id));
        } else {
            self.delivered += bytes.len() as u64;
            self.note(at, || format!("→ {}", show(&bytes)));
            on_event(Event::Received(id, &mut bytes));
        }
        true
    }

    fn transmit(&mut self, at: usize, on_event: &mut impl FnMut(Event<'_>)) -> bool {
        let most = if self.prng.is_some() { self.draw(3000) } else { usize::MAX };
        let now = self.now();
        let link = &mut self.links[at];
        if !link.take_output(most, now) {
            return false;
        }
        let id = link.id();
        self.events += 1;
        match self.links[at].end_send(now) {
            None => {
                self.note(at, || "← progress".into());
                on_event(Event::Progress(id));
            }
            Some(buffer) => {
                self.note(at, || "← sent".into());
                on_event(Event::Sent(id, buffer));
            }
        }
        true
    }

    /// Does what commands have asked for, as far as it can be done at once. Some kernels report it then, others only in a
    /// poll. If nothing varies, input that has arrived is reported before, as by a poll: a client that has sent too
    /// much reads why.
    fn finish_commands(&mut self, on_event: &mut impl FnMut(Event<'_>)) {
        let varies = self.prng.is_some();
        if varies && self.draw(2) == 1 {
            return;
        }
        for slot in 0..self.slots.len() {
            match self.slots[slot] {
                Some(at) if !varies && !self.links[at].inbound.is_empty() => {}
                Some(at) if self.links[at].closing.is_none() => {
                    self.transmit(at, on_event);
                }
                Some(at) if self.links[at].is_end_seen() => self.finish_close(at, on_event),
                Some(_) | None => {}
            }
        }
    }

    fn open(&mut self, id: ConnId) -> &mut Link {
        let link = self.slots.get(id.index()).copied().flatten();
        let link = link.unwrap_or_else(|| panic!("O3: {id:?} is closed"));
        let link = &mut self.links[link];
        assert!(link.facts.close.is_none(), "O3: a command after the close of {id:?}");
        link
    }

    /// A connection to which commands may still be given.
    fn unended(&mut self, id: ConnId) -> &mut Link {
        let link = self.open(id);
        assert!(!link.is_settled(), "O3: a command after the last send to {id:?}");
        link
    }
}

/// A [`Network`] as the worker sees it.
pub(crate) struct SimDriver {
    pub(crate) network: Network,
}

// Not inlined, and events are reported through a pointer: `tests/instructions` counts what a worker does, without what
// is done here.
impl Driver for SimDriver {
    type Error = Infallible;
    type Clock = SimClock;

    #[inline(never)]
    fn poll(&mut self, wait: Wait, on_event: &mut impl FnMut(Event<'_>)) -> Result<(), Infallible> {
        let mut on_event: &mut dyn FnMut(Event<'_>) = std::hint::black_box(on_event);
        let on_event = &mut on_event;
        let network = &mut self.network;
        network.events = 0;
        network.accept_failed = false;
        match wait {
            Wait::No => {}
            Wait::Until(due) => network.planned = due,
            Wait::Forever => network.planned = Instant::MAX,
        }
        if network.prng.is_some() {
            let mut passes = Duration::from_micros(
                network.draw(network.faults.turn_micros_max.max(1) as usize) as u64,
            );
            if network.chance(network.faults.jump_one_in) {
                let jump = network.faults.jump_max * network.draw(1000) as u32 / 1000;
                network.trace.line(|| format!("the machine stands still for {jump:?}"));
                passes += jump;
            }
            // Clients stand still with the machine, but not with the process.
            let before = network.now();
            network.clock.advance(passes);
            network.look(before);
        }
        network.turn_at = network.now();
        let woken = network.look_at_threads();
        let steps = if network.prng.is_some() { network.draw(8) } else { network.events_max };
        for _ in 0..steps {
            if !network.step(on_event) {
                break;
            }
        }
        if network.events == 0 && !woken {
            // Nothing can happen before a client acts or the worker's wait ends: time passes.
            let now = network.now();
            let wait = match wait {
                Wait::No => Duration::ZERO,
                Wait::Until(due) => due - network.clock.now(),
                Wait::Forever => Duration::from_secs(1),
            };
            network.sleep(now + wait, Place::Driver);
            network.turn_at = network.now();
        }
        network.notice();
        network.left_at = network.clock.now();
        network.open = network.slots.iter().flatten().count();
        Ok(())
    }

    #[inline(never)]
    fn report_done(&mut self, on_event: &mut impl FnMut(Event<'_>)) {
        let mut on_event: &mut dyn FnMut(Event<'_>) = std::hint::black_box(on_event);
        self.network.finish_commands(&mut on_event);
    }

    #[inline(never)]
    fn send(&mut self, id: ConnId, output: Output, then: Then) {
        let network = &mut self.network;
        let now = network.now();
        network.commanded += output.len() as u64;
        let link = network.unended(id);
        link.is_watched = true;
        assert!(link.send.is_none(), "O1: {id:?} has a send in flight");
        assert!(!link.facts.has_shut_down(), "a send after the shutdown of {id:?}");
        assert!(!output.is_empty() || then != Then::Keep, "nothing to send to {id:?}");
        if link.closing.is_some() {
            return; // It failed meanwhile.
        }
        let from = link.facts.sent.len();
        link.note_command(&output, then, now);
        link.send = Some(Sending { output, taken: 0, then });
        let at = network.slots[id.index()].expect("it is open");
        network.note(at, || {
            format!("⇐ send {} then {then:?}", show(&network.links[at].facts.sent[from..]))
        });
    }

    #[inline(never)]
    fn read(&mut self, id: ConnId, reading: Reading) {
        let late = match &mut self.network.prng {
            Some(prng) if reading == Reading::Stop => prng.below(2) * prng.below(LATE_MAX),
            _ => 0,
        };
        let link = self.network.unended(id);
        link.is_watched = true;
        link.read(reading, late as usize);
        let at = self.network.slots[id.index()].expect("it is open");
        self.network.note(at, || format!("⇐ read {reading:?}"));
    }

    #[inline(never)]
    fn take(&mut self, id: ConnId, into: &mut Vec<u8>, max: u64) -> usize {
        let network = &mut self.network;
        // A kernel may know of some bytes, or of none.
        let most = if network.chance(4) { 0 } else { network.draw(2 * DELIVERY_MAX) };
        let (most, now) = (most.min(usize::try_from(max).unwrap_or(usize::MAX)), network.now());
        let link = network.unended(id);
        assert!(!link.is_sealed(), "what is sealed is not content");
        if !link.may_take() {
            return 0;
        }
        let bytes: Vec<u8> = link.take(most, now).collect();
        make_room(into, bytes.len(), Some(max));
        into.extend_from_slice(&bytes);
        network.delivered += bytes.len() as u64;
        let at = network.slots[id.index()].expect("it is open");
        network.note(at, || format!("⇒ taken {}", show(&bytes)));
        bytes.len()
    }

    #[inline(never)]
    fn close(&mut self, id: ConnId, how: Close) {
        let now = self.network.now();
        self.network.open(id).close(how, now);
        let at = self.network.slots[id.index()].expect("it is open");
        self.network.note(at, || format!("⇐ close {how:?}"));
    }

    #[inline(never)]
    fn accept(&mut self, listener: ListenerId, accepting: Accepting) {
        let Network { clock, trace, listeners, prng, .. } = &mut self.network;
        trace.line(|| format!("{:?} ⇐ accept {} {accepting:?}", clock.now(), listener.0));
        listeners[listener.index()].set(accepting, prng.as_mut());
    }

    #[inline(never)]
    fn backlog(&mut self, listener: ListenerId, backlog: u32) {
        // A dropped client tries again, so it cannot be distinguished from one that waits.
        self.network.listeners[listener.index()].backlog_max = backlog;
        self.network.trace.line(|| format!("⇐ backlog {} {backlog}", listener.0));
    }

    fn is_hung_up(&mut self, id: ConnId) -> bool {
        let link = self.network.open(id);
        link.has_hung_up()
    }

    fn peer(&mut self, id: ConnId) -> Option<SocketAddr> {
        self.network.open(id).peer
    }

    fn clock(&self) -> SimClock {
        self.network.clock.clone()
    }
}
