//! Places of a limit: slow clients hold a share of a route's capacity only while no other client
//! wants it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use highwater_testkit::{Client, Process};

use crate::{Transport, on_each_transport};

on_each_transport!(
    slow_uploads_give_way,
    slow_uploads_are_served_while_there_is_room,
    collected_bodies_hold_no_place,
);

/// As many uploads as `/place` has room for.
const PLACES: usize = 8;

/// Begins an upload of `length` bytes.
fn begin(server: &Process, length: usize) -> Client {
    let mut client = server.connect();
    let head = format!("POST /place HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n");
    client.send(head.as_bytes()).expect("open");
    client
}

/// Sends `rate` bytes per second to each of `clients`, as long as `go_on`. As many on a busy machine, in larger pieces.
fn trickle(clients: &mut [Client], rate: usize, go_on: &AtomicBool) {
    let (begun, mut sent) = (Instant::now(), 0);
    while go_on.load(Relaxed) {
        let due = rate / 10 + (begun.elapsed().as_secs_f64() * rate as f64) as usize;
        for client in &mut *clients {
            // Some may have been sent away.
            let _ = client.send(vec![b'x'; due - sent]);
        }
        sent = due;
        thread::sleep(Duration::from_millis(100));
    }
}

/// Asks for a place with a body that comes at once; answers the status.
fn ask(server: &Process) -> u16 {
    let mut client = begin(server, 5);
    client.send(b"hello").expect("open");
    client.answer().status
}

/// Purpose: eight uploads just above the minimum rate hold all eight places of a route while no
/// other client wants one. A client that does gets one within seconds, and a fast upload keeps its
/// own.
fn slow_uploads_give_way(transport: Transport) {
    const PATIENCE: Duration = Duration::from_secs(15);
    const FAST: usize = 64 * 1024;
    let server = transport.serve(&[]);
    let (slow_go_on, fast_goes_on) = (AtomicBool::new(true), AtomicBool::new(true));
    let mut slow: Vec<Client> = (1..PLACES).map(|_| begin(&server, 1_000_000)).collect();
    let mut fast = [begin(&server, 100_000_000)];
    let waited = thread::scope(|scope| {
        scope.spawn(|| trickle(&mut slow, 300, &slow_go_on));
        scope.spawn(|| trickle(&mut fast, FAST, &fast_goes_on));
        thread::sleep(Duration::from_secs(1)); // They are at it.
        let begun = Instant::now();
        let mut status = ask(&server);
        assert_eq!(status, 503, "no place is left");
        while status == 503 && begun.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(100));
            status = ask(&server);
        }
        let waited = begun.elapsed();
        slow_go_on.store(false, Relaxed);
        fast_goes_on.store(false, Relaxed);
        assert_eq!(status, 200, "no place within {waited:?}");
        waited
    });
    let mut given_way = 0;
    for client in &mut slow {
        client.set_patience(Duration::from_millis(50));
        given_way += usize::from(
            client.try_answer().is_ok_and(|answer| answer.is_some_and(|r| r.status == 408)),
        );
    }
    println!("{transport:?}: a place after {waited:?}, {given_way} slow uploads gave way");
    assert!(given_way > 0, "who gives way is told why");
    let [fast] = &mut fast;
    // As much as was not sent so far, and a little more.
    fast.set_patience(Duration::from_millis(50));
    assert!(fast.try_answer().is_err(), "the fast upload keeps its place");
}

/// Purpose: while no other client wants a place, uploads just above the minimum rate are served to
/// their end, even if they hold all places.
fn slow_uploads_are_served_while_there_is_room(transport: Transport) {
    const SECONDS: usize = 8;
    let server = transport.serve(&[]);
    let mut clients: Vec<Client> = (0..PLACES).map(|_| begin(&server, 300 * SECONDS)).collect();
    let begun = Instant::now();
    for second in 1..=SECONDS {
        for client in &mut clients {
            client.send([b'x'; 300]).expect("it is read");
        }
        // Not a second more each: what a busy machine adds would add up.
        thread::sleep(Duration::from_secs(second as u64).saturating_sub(begun.elapsed()));
    }
    for client in &mut clients {
        let answer = client.answer();
        assert_eq!((answer.status, answer.text()), (200, &*(300 * SECONDS).to_string()));
    }
}

/// Purpose: a body that is collected holds no place while it arrives.
fn collected_bodies_hold_no_place(transport: Transport) {
    let server = transport.serve(&[]);
    let post = |length: usize| {
        let head =
            format!("POST /place-whole HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n");
        let mut client = server.connect();
        client.send(head.as_bytes()).expect("open");
        client.send(b"hello").expect("open");
        client
    };
    let _waiting: Vec<Client> = (0..5).map(|_| post(100_000)).collect();
    assert_eq!(post(5).answer().text(), "5");
}
