//! The conformance cases over real sockets: the framework, serving the probe application over each
//! driver, must say to the byte what the model says, however the client's bytes are split.
//!
//! Clients are played in batches on one thread. Between two pieces of a batch, another connection
//! asks for something: when its answer has come, the worker has looked at all that was sent before,
//! so that a split is a split for the server too, without any clock.
#![expect(clippy::print_stdout, reason = "the table of what passed is worth reading")]

use std::collections::{BTreeMap, HashSet};
use std::io::{ErrorKind, Read};
use std::time::Duration;

use highwater::server::{Shed, TransportChoice};
use highwater::{Router, Running, Server, ServerConfig};
use highwater_core::http::Limits;
use highwater_testkit::{Client, get};
use highwater_tests::cases::{self, Case, Step};
use highwater_tests::probe::{DATE, Transcript, Worker};

/// Cases up to this length are also split at every byte.
const SPLIT_EVERYWHERE_MAX: usize = 300;

/// Cases up to this length are also sent byte by byte.
const BYTE_BY_BYTE_MAX: usize = 2048;

/// Clients played at a time.
const BATCH: usize = 400;

fn serve(transport: TransportChoice) -> Running {
    let config = ServerConfig {
        // The cases are of HTTP/1; one of them begins as HTTP/2 does.
        listen: vec!["127.0.0.1:0,http1".parse().expect("an address")],
        metrics: None,
        workers: std::num::NonZeroUsize::new(1),
        transport,
        // Hundreds of requests that are begun and not ended look like overload; no case is about that.
        shed: Some(Shed::None),
        // Other clients of a batch may keep one waiting; no case is about time.
        limits: Limits {
            header_timeout: Duration::from_secs(600),
            body_timeout: Duration::from_secs(600),
            body_rate_min: 0,
            idle_timeout: Duration::from_secs(600),
            write_timeout: Duration::from_secs(600),
            half_closed_timeout: Duration::from_secs(600),
            ..Limits::default()
        },
        ..ServerConfig::default()
    };
    let router = highwater_arena::probe::routes(Router::new());
    Server::new(router).config(config).start().expect("the probe application starts")
}

/// How a case is sent: its sends cut in pieces.
struct Play<'c> {
    case: &'c Case,
    /// Pieces and steps in the order they happen.
    moves: Vec<Move>,
    how: String,
}

enum Move {
    /// Sends a piece.
    Send(Vec<u8>),
    Eof,
    /// Waits until the client has heard what the model's client has by now.
    Hear(Transcript),
}

impl<'c> Play<'c> {
    /// `cut` says where a send is cut; `how` says it to people.
    fn new(case: &'c Case, how: String, mut cut: impl FnMut(&[u8]) -> Vec<usize>) -> Self {
        let mut model = Worker::new(Limits::default());
        let mut moves = Vec::new();
        for step in &case.steps {
            match step {
                Step::Send(bytes) => {
                    let mut from = 0;
                    for at in cut(bytes).into_iter().chain([bytes.len()]) {
                        model.receive(&bytes[from..at]);
                        moves.push(Move::Send(bytes[from..at].to_vec()));
                        from = at;
                    }
                }
                Step::Eof => {
                    model.eof();
                    moves.push(Move::Eof);
                }
                Step::Hear(_) => moves.push(Move::Hear(model.received().clone())),
            }
        }
        moves.push(Move::Hear(model.received().clone()));
        Play { case, moves, how }
    }
}

/// All ways in which `case` is played.
fn plays(case: &Case) -> Vec<Play<'_>> {
    let mut plays = vec![Play::new(case, "whole".into(), |_| Vec::new())];
    let len = case.sent().len();
    if len <= BYTE_BY_BYTE_MAX {
        plays.push(Play::new(case, "byte by byte".into(), |bytes| (1..bytes.len()).collect()));
    }
    if len <= SPLIT_EVERYWHERE_MAX {
        for at in 1..len {
            let mut before = 0;
            plays.push(Play::new(case, format!("split at {at}"), |bytes| {
                let here = at.checked_sub(before).filter(|&here| 0 < here && here < bytes.len());
                before += bytes.len();
                here.into_iter().collect()
            }));
        }
    }
    plays
}

/// One client at play.
struct Player<'p> {
    play: &'p Play<'p>,
    client: Client,
    received: Transcript,
    next: usize,
    problem: Option<String>,
}

impl Player<'_> {
    /// Makes the next move. Returns whether there was one.
    fn advance(&mut self) -> bool {
        let Some(next) = self.play.moves.get(self.next) else { return false };
        self.next += 1;
        match next {
            // The server may have closed already, knowingly: what it said before still counts.
            Move::Send(bytes) => drop(self.client.send(bytes)),
            Move::Eof => self.client.finish(),
            Move::Hear(expected) => self.hear(expected),
        }
        true
    }

    fn hear(&mut self, expected: &Transcript) {
        let wanted = normal(&expected.bytes);
        let mut buffer = [0; 16 * 1024];
        while self.problem.is_none() {
            let got = normal(&self.received.bytes);
            if got.len() >= wanted.len() && (!expected.closed || self.received.closed) {
                break;
            }
            match self.client.stream().read(&mut buffer) {
                Ok(0) if self.received.closed => break,
                Ok(0) => self.received.closed = true,
                Ok(count) => self.received.bytes.extend_from_slice(&buffer[..count]),
                Err(error) => self.problem = Some(format!("{error} after {}", show(&got))),
            }
        }
        let got = normal(&self.received.bytes);
        if self.problem.is_none() && got != wanted {
            self.problem = Some(format!("heard    {}\n  expected {}", show(&got), show(&wanted)));
        }
    }

    /// After all is quiet: nothing more came, and the connection is open or closed as it should be.
    fn end(&mut self, buffer: &mut [u8]) {
        let Some(Move::Hear(expected)) = self.play.moves.last() else { return };
        if self.problem.is_some() || expected.closed {
            return;
        }
        self.client.stream().set_nonblocking(true).expect("an option can be set");
        self.problem = match self.client.stream().read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Ok(0) => Some("closed; expected it to stay open".into()),
            Ok(count) => Some(format!("said more: {}", show(&buffer[..count]))),
            Err(error) => Some(error.to_string()),
        };
    }
}

/// What was heard, without what may differ: dates, and interim responses, which depend on whether
/// the body or the worker was first.
fn normal(received: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(received.len());
    let mut rest = received;
    while let Some((&byte, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(b"HTTP/1.1 100 Continue\r\n\r\n") {
            rest = after;
        } else if rest.starts_with(b"\r\ndate: ") && rest.len() >= 37 {
            out.extend_from_slice(b"\r\ndate: ");
            out.extend_from_slice(DATE);
            rest = &rest[37..];
        } else {
            out.push(byte);
            rest = after;
        }
    }
    out
}

fn show(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(400)].escape_ascii().to_string()
}

/// Plays one batch; returns what went wrong with which play.
fn play<'p>(server: &Running, batch: &'p [Play<'p>]) -> Vec<(&'p Play<'p>, String)> {
    let mut metronome = Client::connect(server.address());
    let mut beat = || {
        metronome.send(get("/")).expect("the server lives");
        assert_eq!(metronome.answer().status, 200);
    };
    let mut players: Vec<Player<'_>> = Vec::with_capacity(batch.len());
    for play in batch {
        let client = Client::connect(server.address());
        let received = Transcript::default();
        players.push(Player { play, client, received, next: 0, problem: None });
    }
    let mut moved = true;
    while moved {
        moved = false;
        for player in &mut players {
            moved |= player.advance();
        }
        beat();
    }
    let mut buffer = [0; 4096];
    let mut problems = Vec::new();
    for mut player in players {
        player.end(&mut buffer);
        problems.extend(player.problem.map(|problem| (player.play, problem)));
        // No TIME_WAIT: there are more connections than ports.
        player.client.reset();
    }
    problems
}

/// Plays every case in every way, and prints how many tests of Http11Probe are among those passed.
fn conform(transport: TransportChoice) {
    let server = serve(transport);
    let cases = cases::all();
    let mut plays: Vec<Play<'_>> = cases.iter().flat_map(plays).collect();
    // A batch takes as long as its longest play.
    plays.sort_by_key(|play| play.moves.len());
    let mut problems = Vec::new();
    for batch in plays.chunks(BATCH) {
        problems.extend(play(&server, batch));
    }
    // A test of Http11Probe passes if every case that asks the same does.
    let mut tests: BTreeMap<&str, bool> = BTreeMap::new();
    for case in &cases {
        let failed = problems.iter().any(|(play, _)| play.case.name == case.name);
        if let Some(test) = &case.probe {
            *tests.entry(test).or_insert(true) &= !failed;
        }
    }
    let mut table: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (test, passed) in tests {
        let category = match test.split('-').next() {
            Some("SMUG") => "smuggling",
            Some("MAL") => "malformed",
            Some("NORM") => "normalization",
            _ => "compliance",
        };
        let row = table.entry(category).or_default();
        row.0 += usize::from(passed);
        row.1 += 1;
    }
    println!("{transport:?}: {} cases, {} connections", cases.len(), plays.len());
    for (category, (passed, all)) in table {
        println!("  {category:<14} {passed:>3} of {all:>3} tests of Http11Probe");
    }
    let mut shown = HashSet::new();
    for (play, problem) in problems.iter().filter(|(play, _)| shown.insert(&play.case.name)) {
        println!("{}, {}:\n  {problem}", play.case.name, play.how);
    }
    assert!(problems.is_empty(), "{} of {} differ from the model", problems.len(), plays.len());
}

/// Purpose: over epoll, the framework says to the byte what the model says, however bytes arrive.
#[test]
fn over_epoll() {
    conform(TransportChoice::Epoll);
}

/// Purpose: the same over what every system has.
#[test]
fn over_portable() {
    conform(TransportChoice::Portable);
}

/// Purpose: the same over io_uring.
#[test]
fn over_uring() {
    if let Err(reason) = highwater_sys::probe().uring {
        return highwater_skip::skip("io_uring", reason);
    }
    conform(TransportChoice::Uring);
}
