//! A dialer whose server is a function, with simulated time, and what a test varies.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use highwater_core::driver::{ConnId, Wait};
use highwater_core::time::Instant;
use highwater_sys::dial::{Arrival, Dial, Event, Failure};

use super::super::super::demand::Demand;
use super::super::super::expect::Expect;
use super::super::super::request::{Choice, Request, Requests};
use super::super::super::schedule::{Arrivals, Schedule};
use super::super::super::series::Span;
use super::super::super::spec::Spec;
use super::super::super::tally::Tally;
use super::super::super::template::{Template, Values};
use super::super::{Client, Plan};

pub(super) const START: Instant = Instant::from_nanos(1_000_000_000);
/// Bytes of the request that never changes.
pub(super) const REQUEST: usize = "GET / HTTP/1.1\r\nHost: h\r\n\r\n".len();
pub(super) const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
pub(super) const BUSY: &[u8] = b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n";
pub(super) const CLOSING: &[u8] =
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";

/// The reaction of a server to a connection attempt or a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Does {
    Say(&'static [u8]),
    End,
    Fail(Failure),
    Nothing,
}

/// A server: when it reacts to what comes at an instant, and how, in order.
pub(super) type Server = Box<dyn FnMut(Instant, What) -> Vec<(Instant, Does)>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Connect,
    Request,
}

#[derive(Clone, Copy)]
pub(super) struct Conn {
    pub(super) open: bool,
    pub(super) connected: bool,
    pub(super) life: u64,
}

/// A dialer whose server is a function, and which holds its caller to the contract.
pub(super) struct Fake {
    pub(super) now: Rc<Cell<Instant>>,
    pub(super) server: Server,
    pub(super) connections: Vec<Conn>,
    /// By instant, then in order: which connection, in which of its lives, and what.
    pub(super) events: BTreeMap<(Instant, u64), (u32, u64, What, Does)>,
    pub(super) count: u64,
    /// Connections that were closed since the last poll: they exist until then.
    pub(super) closing: usize,
    pub(super) most_open: Rc<Cell<usize>>,
    pub(super) client: Machine,
}

/// The client's own machine.
#[derive(Clone, Copy, Default)]
pub(super) struct Machine {
    /// What opening a connection, and closing one, takes of the client's time.
    pub(super) cost: Duration,
    /// Connections that were closed since the last poll count as open.
    pub(super) counts_closing: bool,
    /// When it does not run any more, and for how long.
    pub(super) stall: Option<(Instant, Duration)>,
}

impl Fake {
    fn spend(&self) {
        self.now.set(self.now.get() + self.client.cost);
    }
}

impl Fake {
    fn react(&mut self, index: u32, what: What) {
        let life = self.connections[index as usize].life;
        for (at, does) in (self.server)(self.now.get(), what) {
            self.count += 1;
            self.events.insert((at, self.count), (index, life, what, does));
        }
    }
}

impl Dial for Fake {
    fn connect(&mut self) -> io::Result<ConnId> {
        let free = self.connections.iter().position(|conn| !conn.open);
        let index = free.unwrap_or(self.connections.len());
        self.count += 1;
        let conn = Conn { open: true, connected: false, life: self.count };
        if index == self.connections.len() {
            self.connections.push(conn);
        }
        self.connections[index] = conn;
        let open = self.connections.iter().filter(|conn| conn.open).count();
        let closing = if self.client.counts_closing { self.closing } else { 0 };
        self.most_open.set(self.most_open.get().max(open + closing));
        self.spend();
        self.react(index as u32, What::Connect);
        Ok(ConnId(index as u32))
    }

    fn send(&mut self, id: ConnId, message: usize, len: usize) {
        let conn = self.connections[id.index()];
        assert!(conn.open && conn.connected && message == 0);
        assert!(len > 0 && len.is_multiple_of(REQUEST));
        for _ in 0..len / REQUEST {
            self.react(id.0, What::Request);
        }
    }

    fn write(&mut self, id: ConnId, fill: impl FnOnce(&mut Vec<u8>)) {
        let conn = self.connections[id.index()];
        assert!(conn.open && conn.connected);
        let mut bytes = Vec::new();
        fill(&mut bytes);
        let text = String::from_utf8(bytes).expect("ASCII");
        assert!(text.ends_with("\r\n\r\n"), "{text}");
        for _ in text.matches(" HTTP/1.1\r\n") {
            self.react(id.0, What::Request);
        }
    }

    fn is_writing(&mut self, _: ConnId) -> bool {
        false
    }

    fn close(&mut self, id: ConnId) {
        assert!(self.connections[id.index()].open, "{id:?} is closed twice");
        self.connections[id.index()].open = false;
        self.closing += 1;
        self.spend();
    }

    fn closing(&self) -> usize {
        0 // Asked after a poll only.
    }

    fn poll(&mut self, wait: Wait, on_event: &mut impl FnMut(Event<'_>)) -> io::Result<()> {
        self.closing = 0;
        if let Some((_, length)) = self.client.stall.take_if(|(at, _)| *at <= self.now.get()) {
            self.now.set(self.now.get() + length);
        }
        let until = match wait {
            Wait::No => self.now.get(),
            Wait::Until(until) => until,
            Wait::Forever => panic!("the client always has something to look up for"),
        };
        let Some((&(at, _), _)) = self.events.first_key_value() else {
            self.now.set(until.max(self.now.get()));
            return Ok(());
        };
        self.now.set(at.min(until).max(self.now.get()));
        while let Some(entry) = self.events.first_entry()
            && entry.key().0 <= self.now.get()
        {
            let ((at, _), (index, life, what, does)) = entry.remove_entry();
            let (id, conn) = (ConnId(index), &mut self.connections[index as usize]);
            if !conn.open || conn.life != life {
                continue;
            }
            match (does, what) {
                (Does::Say(_), What::Connect) => {
                    conn.connected = true;
                    on_event(Event::Connected(id));
                }
                (Does::Say(bytes), What::Request) => {
                    let arrival = Arrival::known(self.now.get() - at);
                    on_event(Event::Received(id, bytes, arrival));
                }
                (Does::End, _) => on_event(Event::Eof(id)),
                (Does::Fail(failure), _) => {
                    conn.open = false;
                    on_event(Event::Failed(id, failure));
                }
                (Does::Nothing, _) => {}
            }
        }
        Ok(())
    }
}

/// What a test varies.
pub(super) struct Case {
    pub(super) plan: Plan,
    pub(super) demand: Demand,
    pub(super) deadline: Option<Duration>,
    pub(super) measured: Duration,
    pub(super) client: Machine,
}

pub(super) fn case(connections: usize, demand: Demand) -> Case {
    let plan = Plan {
        connections,
        pipeline: 1,
        requests_per_connection: u64::MAX,
        give_up: Duration::from_secs(5),
        choice: Choice::InTurn(1, 0),
        requests: Arc::new(requests(&["/"], &Expect::default())),
        values: Values::new(1, 1, 1),
        logs: false,
    };
    let client = Machine::default();
    Case { plan, demand, deadline: None, measured: Duration::from_secs(1), client }
}

pub(super) fn requests(paths: &[&str], expect: &Expect) -> Requests {
    let request = |path: &&str| {
        let spec = Spec {
            place: "--".to_owned(),
            name: (*path).to_owned(),
            weight: 1,
            method: "GET".to_owned(),
            path: Template::parse(path).expect("valid"),
            headers: Vec::new(),
            body: Template::default(),
            expect: expect.clone(),
        };
        Request::new(&spec, "h", false).expect("valid")
    };
    Requests { list: paths.iter().map(request).collect(), is_mix: paths.len() > 1 }
}

pub(super) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn uniform(rate: f64) -> Demand {
    Demand::open(Schedule::new(Arrivals::Uniform, rate, START, 0.0, 0))
}

/// Runs until every measured request has ended; returns the tally, and the most connections at one time.
pub(super) fn run(case: Case, server: Server) -> (Tally, usize) {
    let (now, most_open) = (Rc::new(Cell::new(START)), Rc::new(Cell::new(0)));
    let dialer = Fake {
        now: now.clone(),
        server,
        connections: Vec::new(),
        events: BTreeMap::new(),
        count: 0,
        closing: 0,
        most_open: most_open.clone(),
        client: case.client,
    };
    let to = START + case.measured;
    let span = Span { start: START, from: START, to, step: ms(100), interval: ms(100) };
    let mut client = Client::new(dialer, case.plan, case.demand, span, case.deadline);
    for _ in 0..1_000_000 {
        if client.is_decided(now.get()) {
            return (client.finish(now.get()), most_open.get());
        }
        let turn = client.turn(now.get(), now.get() + ms(100), || now.get());
        turn.expect("the fake never fails");
    }
    panic!("the requests never end: {:?}", client.tally().counts);
}
