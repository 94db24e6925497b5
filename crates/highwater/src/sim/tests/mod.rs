//! Tests of the simulation itself, and seeds that once failed.

use std::sync::Arc;
use std::time::Duration;

use highwater_core::driver::{Accepting, Driver, Wait};

mod admission;

use super::*;
use crate::admission::gate::WorkerGate;
use crate::app::{App, Router, fixed};
use crate::metrics::WorkerMetrics;
use crate::server::{Inbox, Pool, ServerConfig, Worker, WorkerConfig};

fn pass(seed: u64) -> Report {
    match run(seed) {
        Ok(report) => report,
        Err(failure) => panic!("{failure}"),
    }
}

/// Purpose: the worker keeps every promise under a few seeds. `make test` also runs `highwater sim`, which begins with the same
/// seeds and has a hundred; `make sim` runs 10 000.
#[test]
fn seeds() {
    for seed in 0..3 {
        pass(seed);
    }
}

/// Purpose: a seed replays exactly, or a failure could not be examined twice; also with the kinds
/// of behaviour that the server is known to fail.
#[test]
fn deterministic() {
    let all = Kind::all().fold(Kinds::NONE, Kinds::with);
    for seed in [3, 77, 1234] {
        for kinds in [Kinds::NONE, Kinds::proven(), all] {
            assert_eq!(run_with(seed, kinds), run_with(seed, kinds));
        }
    }
}

// Failures of accepting that the simulator found and that a client of `highwater::testing` cannot
// reproduce. The others are in tests/found_by_simulation.rs.

/// A worker with room for `connections_max` connections, and a network in which nothing varies.
fn worker(connections_max: u32) -> Worker<SimDriver> {
    worker_of(
        Router::new().get("/", fixed("ok")).build().expect("it has one route"),
        connections_max,
    )
}

fn worker_of(app: App, connections_max: u32) -> Worker<SimDriver> {
    let config =
        WorkerConfig { connections_max, ..WorkerConfig::new(app, &ServerConfig::default()) };
    let network = Network::new(None, Faults::default(), Trace::default());
    let inbox = Inbox::new(Box::new(|| {}));
    Worker::new(SimDriver { network }, config, inbox, Pool::deferred(0))
}

fn connect(worker: &mut Worker<SimDriver>) -> usize {
    let network = &mut worker.driver_mut().network;
    let link = network.add(1000);
    network.connect(link);
    link
}

fn turn(worker: &mut Worker<SimDriver>) {
    let Ok(_) = worker.turn(Wait::No);
}

/// Time passes while the worker only waits.
fn wait_outside(worker: &Worker<SimDriver>, by: Duration) {
    worker.waits_outside();
    worker.driver().clock().advance(by);
}

/// Purpose: a full worker does not wait for the moment to try accepting again. After that moment it
/// turned without pause, for as long as it was full.
#[test]
fn a_full_worker_does_not_spin() {
    let mut worker = worker(1);
    connect(&mut worker);
    turn(&mut worker);
    worker.driver_mut().network.late_accept_fails();
    connect(&mut worker);
    turn(&mut worker);
    wait_outside(&worker, Duration::from_millis(200));
    turn(&mut worker);
    // It waits until the present connection may be closed for the other.
    assert!(worker.spare_time().is_some_and(|patience| patience > Duration::from_millis(500)));
}

/// Purpose: after a stop of the process, no connection is closed to make room before its client's
/// bytes were read. A request was lost to a reset.
#[test]
fn room_is_made_after_reading() {
    let mut worker = worker(1);
    let link = connect(&mut worker);
    turn(&mut worker);
    connect(&mut worker);
    wait_outside(&worker, Duration::from_millis(950));
    turn(&mut worker);
    worker.driver_mut().network.send(link, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    // It is not read in the first turn, because other events came before.
    worker.driver_mut().network.events_max = 0;
    worker.driver().clock().advance(Duration::from_secs(3));
    turn(&mut worker);
    worker.driver_mut().network.events_max = usize::MAX;
    turn(&mut worker);
    assert_eq!(worker.driver().network.link(link).facts.close, None);
    assert!(!worker.driver().network.link(link).facts.sent.is_empty(), "it is answered");
}

/// Purpose: connections in the listen queue when a drain begins are accepted even if that fails at
/// first. The worker reopened the listener instead, or left the queue to be reset.
#[test]
fn a_drain_survives_a_failed_accept() {
    let mut worker = worker(10);
    let link = connect(&mut worker);
    worker.drain();
    worker.driver_mut().network.late_accept_fails();
    turn(&mut worker);
    assert_eq!(worker.driver().network.link(link).stage, Stage::Queued);
    worker.driver().clock().advance(worker.spare_time().expect("it will try again"));
    turn(&mut worker);
    turn(&mut worker);
    assert!(matches!(worker.driver().network.link(link).stage, Stage::Open(_)));
    assert_eq!(worker.driver().network.listeners()[0].accepting(), Accepting::Closed);
}

/// Purpose: an idle connection is closed for others only while there is need. A request to make
/// room from a time when the worker was full closed one when there was room again.
#[test]
fn room_is_made_only_while_there_is_need() {
    let mut worker = worker(2);
    let idle = connect(&mut worker);
    let leaving = connect(&mut worker);
    turn(&mut worker);
    worker.driver_mut().network.late_accept_fails();
    connect(&mut worker);
    turn(&mut worker);
    wait_outside(&worker, Duration::from_secs(2));
    worker.driver_mut().network.leave(leaving);
    turn(&mut worker);
    assert_eq!(worker.driver().network.link(idle).facts.close, None);
}

/// Purpose: a connection returns its buffer when it becomes idle, also if the content ended without
/// a byte to send. It kept half a kilobyte for as long as it was idle.
#[test]
fn an_idle_connection_keeps_no_buffer() {
    for pieces in 0..8 {
        let mut worker = worker_of(app::app(Arc::default()), 1);
        let link = connect(&mut worker);
        let request = format!("GET /exact/{pieces} HTTP/1.1\r\nHost: h\r\n\r\n");
        worker.driver_mut().network.send(link, request.as_bytes());
        for _ in 0..40 {
            turn(&mut worker);
        }
        let link = worker.driver().network.link(link);
        assert!(pieces == 0 || link.facts.sent.ends_with(app::piece(pieces - 1).as_bytes()));
        assert_eq!(worker.allocated(link.id()), 0, "after {pieces} pieces");
    }
}

/// Purpose: an answer that breaks off is reset, even if the connection's idle timeout has passed in
/// the same turn. The timeout turned the reset into an orderly end, as if the content had been
/// complete.
#[test]
fn a_broken_answer_stays_broken() {
    let mut worker = worker_of(app::app(Arc::default()), 1);
    let link = connect(&mut worker);
    let network = &mut worker.driver_mut().network;
    network.send(link, b"GET /broken/1 HTTP/1.1\r\nHost: h\r\n\r\n");
    for _ in 0..20 {
        turn(&mut worker);
        wait_outside(&worker, Duration::from_secs(70));
    }
    assert!(worker.driver().network.link(link).was_reset);
}
