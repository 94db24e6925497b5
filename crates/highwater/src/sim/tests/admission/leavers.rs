//! Clients that leave before they are answered, and their requests with them: over connections of their own, and behind
//! proxies that reset the connection or the stream of a client that has left.
#![allow(
    clippy::print_stdout,
    reason = "how many are answered in time says more than that they are enough"
)]

use highwater_core::http2::client::{Config, Connection, Event};
use highwater_core::http2::hpack::Indexing;

use super::*;

/// How long clients wait, in turns of a millisecond: a fifth of the patience that is set, like 200 ms by default.
const GIVE_UP: usize = 100;

/// How long before that an answer must have left the server.
const WAY: usize = 5;

/// Connections of a proxy that speaks HTTP/2.
const SHARED: usize = 8;

/// What stands in front of the server.
#[derive(Clone, Copy, Debug)]
enum Front {
    /// Nothing: each client has a connection.
    Clients,
    /// A proxy whose connections are kept.
    Kept,
    /// A proxy with a few connections of HTTP/2.
    Http2,
}

const FRONTS: [Front; 3] = [Front::Clients, Front::Kept, Front::Http2];

/// A request that is not answered yet: when it was sent and when its client leaves, in turns.
struct Asked {
    at: usize,
    until: usize,
    link: usize,
    stream: u32,
}

struct Crowd {
    stage: Stage,
    front: Front,
    /// Connections that are kept, and carry no request.
    idle: Vec<usize>,
    shared: Vec<(usize, Connection)>,
    turns: usize,
    asked: Vec<Asked>,
    begun: usize,
    in_time: usize,
    refused: usize,
}

impl Crowd {
    fn behind(front: Front) -> Crowd {
        let mut stage = Stage::new();
        let shared = match front {
            Front::Http2 => SHARED,
            _ => 0,
        };
        let shared = (0..shared)
            .map(|_| (connect(&mut stage.worker), Connection::new(Config::default())))
            .collect();
        let (idle, asked) = (Vec::new(), Vec::new());
        Crowd { stage, front, idle, shared, turns: 0, asked, begun: 0, in_time: 0, refused: 0 }
    }

    /// A client asks, and leaves after so many turns.
    fn ask(&mut self, patience: usize) {
        let (at, until) = (self.turns, self.turns + patience);
        let (link, stream) = match self.front {
            Front::Clients => (self.stage.ask_with("/do/n", "Connection: close\r\n"), 0),
            Front::Kept => {
                let link = self.idle.pop().unwrap_or_else(|| connect(&mut self.stage.worker));
                self.stage.network().send(link, b"GET /do/n HTTP/1.1\r\nHost: h\r\n\r\n");
                (link, 0)
            }
            Front::Http2 => {
                self.shared.rotate_left(1);
                let (link, connection) = &mut self.shared[0];
                let fields = [
                    (":method", "GET"),
                    (":scheme", "http"),
                    (":authority", "h"),
                    (":path", "/do/n"),
                ];
                let stream = connection.begin(false, b"", |add| {
                    fields.iter().for_each(|(name, value)| {
                        add(name.as_bytes(), value.as_bytes(), Indexing::Incremental);
                    });
                });
                (*link, stream)
            }
        };
        self.asked.push(Asked { at, until, link, stream });
    }

    /// A millisecond passes, in which the worker does one request; to drop or to refuse others takes it no time.
    fn turn(&mut self) {
        let turns = self.turns;
        for gone in self.asked.extract_if(.., |asked| asked.until <= turns) {
            match self.shared.iter_mut().find(|(link, _)| *link == gone.link) {
                Some((_, connection)) => connection.cancel(gone.stream),
                None => self.stage.worker.driver_mut().network.leave(gone.link),
            }
        }
        for (link, connection) in &mut self.shared {
            self.stage.worker.driver_mut().network.send(*link, connection.output());
            connection.sent();
        }
        self.stage.turn_after(1);
        self.turns += 1;
        let mut begun = self.stage.begun().len();
        while begun == 0 && self.stage.worker.has_backlog() {
            self.stage.turn_after(0);
            begun = self.stage.begun().len();
        }
        self.begun += begun;
        self.take_answers();
    }

    fn take_answers(&mut self) {
        let mut answers = Vec::new();
        if self.shared.is_empty() {
            for Asked { link, .. } in &self.asked {
                answers.extend(self.stage.status(*link).map(|status| (*link, 0, status)));
            }
        }
        for (link, connection) in &mut self.shared {
            let received = self.stage.network().read(*link, usize::MAX);
            let mut take = |event: Event<'_>| match event {
                Event::End(stream, status) => answers.push((*link, stream, status)),
                Event::Failed(..) | Event::GoAway(..) => panic!("{event:?}"),
                _ => {}
            };
            connection.receive(&received, &mut take).expect("the server breaks no rule");
        }
        for (link, stream, status) in answers {
            let is_it = |asked: &Asked| (asked.link, asked.stream) == (link, stream);
            let place = self.asked.iter().position(is_it).expect("it was asked for");
            let asked = self.asked.swap_remove(place);
            if matches!(self.front, Front::Kept) {
                self.idle.push(link);
            }
            match status {
                200 => self.in_time += usize::from(self.turns + WAY <= asked.until),
                503 => self.refused += 1,
                _ => panic!("{status} after {} turns", self.turns - asked.at),
            }
        }
    }
}

/// How many ask in a turn, at `percent` of what can be served.
fn arrivals(percent: usize, turn: usize) -> usize {
    (turn + 1) * percent / 100 - turn * percent / 100
}

/// Purpose: above the capacity nearly every request that is begun is answered before its client leaves, long before the
/// patience that is set. In the order of their arrival, all would be begun just when their clients leave.
#[test]
fn clients_that_leave() {
    for front in FRONTS {
        for percent in [110, 120, 200] {
            let mut crowd = Crowd::behind(front);
            for turn in 0..2500 {
                (0..arrivals(percent, turn)).for_each(|_| crowd.ask(GIVE_UP));
                crowd.turn();
            }
            let Crowd { begun, in_time, refused, .. } = crowd;
            println!("{front:?} at {percent} %: {in_time} of {begun} in time, {refused} refused");
            assert!(in_time > 2200, "{front:?} at {percent} %: {in_time} of {begun}");
        }
    }
}

/// Purpose: the same, if one of ten clients always leaves after a moment, and so before its turn.
#[test]
fn some_leave_sooner() {
    for front in FRONTS {
        for soon in [5, 30] {
            for percent in [135, 220] {
                let mut crowd = Crowd::behind(front);
                for turn in 0..2500 {
                    for n in 0..arrivals(percent, turn) {
                        let is_soon = (turn + n) % 10 == 0;
                        crowd.ask(if is_soon { soon } else { GIVE_UP });
                    }
                    crowd.turn();
                }
                let Crowd { begun, in_time, .. } = crowd;
                println!(
                    "{front:?} at {percent} %, some after {soon} ms: {in_time} of {begun} in time"
                );
                assert!(
                    in_time > 2000,
                    "{front:?} at {percent} %, {soon} ms: {in_time} of {begun}"
                );
            }
        }
    }
}

/// Purpose: clients that always leave after a moment are no reason to refuse others, who come in bursts and wait for their
/// turn; and all of those are answered.
#[test]
fn those_who_always_leave_cost_nobody_an_answer() {
    for front in FRONTS {
        for soon in [5, 30] {
            let mut crowd = Crowd::behind(front);
            let mut patient = 0;
            for turn in 0..5000 {
                if turn % 100 == 0 {
                    for n in 0..90 {
                        patient += usize::from(n % 10 != 0);
                        crowd.ask(if n % 10 == 0 { soon } else { 500 });
                    }
                }
                crowd.turn();
            }
            let Crowd { in_time, refused, .. } = crowd;
            assert_eq!(refused, 0, "{front:?}, some leave after {soon} ms");
            assert!(in_time >= patient, "{front:?}, {soon} ms: {in_time} of {patient}");
        }
    }
}
