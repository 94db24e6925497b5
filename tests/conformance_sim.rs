//! The conformance cases under simulation: the whole framework, serving the probe application over a
//! simulated network that cuts and delays as seeds decide, says to the byte what the model says.

#[path = "../services/arena/src/probe.rs"]
#[expect(unreachable_pub, reason = "it is another crate's module")]
mod application;

use highwater::Router;
use highwater::testing::{Client, Connection, Setup};
use highwater_core::http::Limits;
use highwater_tests::cases::{self, Case, Step};
use highwater_tests::probe::{Transcript, Worker};

/// Seeds under which each case is played.
const SEEDS: u64 = 20;

/// Cases longer than this are not sent byte by byte.
const SMALL_MAX: usize = 2048;

/// The cases. The model speaks HTTP/1 alone and refuses the preface of HTTP/2, which the framework answers in that protocol.
fn cases() -> Vec<Case> {
    let mut cases = cases::all();
    cases.retain(|case| case.name != "http2-preface");
    cases
}

/// What was heard after each step of `case`, told by the model.
fn model(case: &Case) -> Vec<Transcript> {
    let mut worker = Worker::new(Limits::default());
    let after = case.steps.iter().map(|step| {
        match step {
            Step::Send(bytes) => worker.receive(bytes),
            Step::Eof => worker.eof(),
            Step::Hear(_) => {}
        }
        normal(worker.received().clone())
    });
    after.collect()
}

/// The same from the framework, each send in pieces of at most `most` bytes.
fn play(case: &Case, client: &Client, most: usize) -> Vec<Transcript> {
    let mut connection = client.connect();
    let after = case.steps.iter().map(|step| {
        match step {
            Step::Send(bytes) => bytes.chunks(most).for_each(|piece| connection.send(piece)),
            Step::Eof => connection.finish(),
            Step::Hear(_) => {}
        }
        normal(received(&mut connection))
    });
    after.collect()
}

fn received(connection: &mut Connection<'_>) -> Transcript {
    let bytes = connection.received().to_vec();
    Transcript { bytes, closed: connection.is_closed() }
}

/// Without the interim responses, which depend on how the bytes were cut, and with one date for all.
fn normal(Transcript { bytes, closed }: Transcript) -> Transcript {
    let mut text = bytes.escape_ascii().to_string();
    text = text.replace("HTTP/1.1 100 Continue\\r\\n\\r\\n", "");
    let mut parts = text.split("\\r\\ndate: ");
    let mut bytes = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let date = "Thu, 01 Jan 1970 00:00:00 GMT".len();
        bytes.push_str("\\r\\ndate: …");
        bytes.push_str(part.get(date..).unwrap_or_default());
    }
    Transcript { bytes: bytes.into_bytes(), closed }
}

fn check(case: &Case, client: &Client, most: usize, how: &str) {
    for (step, (wanted, received)) in
        model(case).into_iter().zip(play(case, client, most)).enumerate()
    {
        let show =
            |transcript: &Transcript| String::from_utf8_lossy(&transcript.bytes).into_owned();
        let name = &case.name;
        assert_eq!(show(&received), show(&wanted), "{name}, {how}: after step {step}");
        assert_eq!(received.closed, wanted.closed, "{name}, {how}: closed after step {step}");
    }
}

/// Purpose: each case, sent whole, is answered by the framework as by the model.
#[test]
fn every_case() {
    let client = Client::new(application::routes(Router::new()));
    for case in &cases() {
        check(case, &client, usize::MAX, "whole");
        assert_eq!(
            client.connections(),
            0,
            "{}: its connection is gone with its client",
            case.name
        );
    }
}

/// Purpose: a byte at a time, it is answered the same.
#[test]
fn every_case_byte_by_byte() {
    let client = Client::new(application::routes(Router::new()));
    for case in cases().iter().filter(|case| case.sent().len() <= SMALL_MAX) {
        check(case, &client, 1, "byte by byte");
    }
}

/// Purpose: wherever the network cuts it, and in whatever order things happen, too.
#[test]
fn every_case_under_seeds() {
    let cases = cases();
    for seed in 0..SEEDS {
        let client = Setup::new(application::routes(Router::new())).seed(seed).start();
        for case in &cases {
            check(case, &client, usize::MAX, &format!("seed {seed}"));
        }
    }
}
