//! The drivers against the driver contract: accepting a given number, a smaller listen queue, and
//! detecting clients that have hung up. Admission under overload depends on these.

mod common;

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use common::*;
use highwater_core::driver::{AcceptError, Accepting, Close, ConnId};
use highwater_core::prng::Prng;
use highwater_sys::{DriverConfig, Listener};

on_each! {
    /// Purpose: exactly as many are accepted as were asked for, however many wait or arrive.
    fn few_is_few<D>() {
        let mut rig = Rig::<D>::new();
        rig.settle();
        rig.driver.accept(FIRST, Accepting::Few(3));
        rig.settle();
        let mut clients: Vec<_> = (0..5).map(|_| rig.connect()).collect();
        rig.until("three", |rig| rig.open() == 3);
        clients.extend((0..5).map(|_| rig.connect()));
        rig.settle();
        assert_eq!(rig.open(), 3);
        for room in [1, 0, 2] {
            let before = rig.open();
            rig.driver.accept(FIRST, Accepting::Few(room));
            rig.until("room is used", |rig| rig.open() == before + room as usize);
            rig.settle();
            assert_eq!(rig.open(), before + room as usize);
        }
        rig.driver.accept(FIRST, Accepting::On);
        rig.until("all", |rig| rig.open() == clients.len());
    }
}

on_each! {
    /// Purpose: nothing is accepted before the driver is told to, and a bound holds from the first
    /// connection.
    fn few_from_the_start<D>() {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), 64).unwrap();
        let addr = listener.local_addr().unwrap();
        let waiting: Vec<_> = (0..5).map(|_| TcpStream::connect(addr).unwrap()).collect();
        let driver = D::start(vec![listener], &DriverConfig::default()).unwrap();
        let mut rig = Rig::of(driver, addr);
        rig.settle();
        assert_eq!(rig.open(), 0);
        rig.driver.accept(FIRST, Accepting::Few(2));
        rig.until("two", |rig| rig.open() == 2);
        rig.settle();
        assert_eq!(rig.open(), 2);
        drop(waiting);
    }
}

on_each! {
    /// Purpose: one more than a driver keeps in flight at once, and one more than a poll accepts.
    fn many_are_a_few<D>() {
        let mut rig = Rig::<D>::new();
        rig.settle();
        rig.driver.accept(FIRST, Accepting::Few(129));
        let clients: Vec<_> = (0..140).map(|_| rig.connect()).collect();
        rig.until("129", |rig| rig.open() == 129);
        rig.settle();
        assert_eq!(rig.open(), 129);
        drop(clients);
    }
}

on_each! {
    /// Purpose: a worker that announces its free room again and again never gets more connections
    /// than that, although the kernel has to cancel earlier accepts.
    fn room_is_never_overshot<D>() {
        const ROOM: usize = 7;
        let mut rig = Rig::<D>::new();
        rig.settle();
        rig.driver.accept(FIRST, Accepting::Few(ROOM as u32));
        let mut prng = Prng::from_seed(7);
        let mut clients: Vec<TcpStream> = Vec::new();
        let mut next_close = 0;
        let mut accepted = 0;
        while accepted < 300 {
            clients.extend((0..prng.below(4)).map(|_| rig.connect()));
            rig.poll(Duration::ZERO);
            let open = rig.open();
            assert!(open <= ROOM, "{open}");
            let ids: Vec<ConnId> = rig.log[next_close..].iter().filter_map(accepted_id).collect();
            accepted += ids.len();
            next_close = rig.log.len();
            for id in ids {
                rig.driver.close(id, Close::Reset);
            }
            match prng.below(4) {
                0 => rig.driver.accept(FIRST, Accepting::Paused),
                _ => rig.driver.accept(FIRST, Accepting::Few((ROOM - open) as u32)),
            }
        }
    }
}

fn accepted_id(seen: &Seen) -> Option<ConnId> {
    match seen {
        Seen::Accepted(id, ..) => Some(*id),
        _ => None,
    }
}

on_each! {
    /// Purpose: pausing and resuming one at a time, ten thousand times, never gets stuck.
    fn resumes_ten_thousand_times<D>() {
        let mut rig = Rig::<D>::new();
        rig.settle();
        rig.driver.accept(FIRST, Accepting::Few(1));
        let mut waiting: std::collections::VecDeque<_> = (0..8).map(|_| rig.connect()).collect();
        for round in 0..10_000 {
            rig.until("the next", |rig| rig.open() == 1);
            let id = rig.log.iter().rev().find_map(accepted_id).unwrap();
            rig.log.clear();
            rig.driver.close(id, Close::Reset);
            rig.until("closed", |rig| rig.open() == 0);
            // Every way to resume, from every way to pause.
            if round % 3 == 0 {
                rig.driver.accept(FIRST, Accepting::Paused);
            }
            waiting.push_back(rig.connect());
            waiting.pop_front();
            rig.driver.accept(FIRST, Accepting::Few(1));
        }
    }
}

on_each! {
    /// Purpose: `Closed` also works after `Few`: waiting connections are accepted, however few were
    /// wanted.
    fn few_then_closed<D>() {
        let mut rig = Rig::<D>::new();
        rig.settle();
        rig.driver.accept(FIRST, Accepting::Few(1));
        let waiting: Vec<_> = (0..5).map(|_| rig.connect()).collect();
        rig.until("one", |rig| rig.open() == 1);
        rig.driver.accept(FIRST, Accepting::Closed);
        rig.until("all", |rig| rig.open() == 5);
        rig.settle();
        assert!(TcpStream::connect(rig.addr).is_err());
        drop(waiting);
    }
}

on_each! {
    /// Purpose: running out of something is reported once, though several accepts were in flight.
    fn few_and_connections_max<D>() {
        let mut rig = Rig::<D>::with(&DriverConfig { connections_max: 2, ..Default::default() });
        rig.settle();
        rig.driver.accept(FIRST, Accepting::Few(2));
        let clients: Vec<_> = (0..2).map(|_| rig.connect()).collect();
        rig.until_seen(&Seen::AcceptFailed(AcceptError::Descriptors));
        rig.settle();
        assert_eq!(rig.count(|seen| matches!(seen, Seen::AcceptFailed(_))), 1);
        assert_eq!(rig.open(), 2);
        drop(clients);
    }
}

on_each! {
    /// Purpose: a smaller listen queue turns clients away, what was in it stays, and a larger one
    /// takes them again.
    fn backlog_changes<D>() {
        let mut rig = Rig::<D>::new();
        rig.driver.accept(FIRST, Accepting::Paused);
        rig.settle();
        let mut clients: Vec<_> = (0..4).map(|_| rig.connect()).collect();
        rig.driver.backlog(FIRST, 2);
        assert!(is_turned_away(rig.addr), "four wait where two may");
        rig.driver.backlog(FIRST, 64);
        clients.extend((0..4).map(|_| rig.connect()));
        rig.driver.accept(FIRST, Accepting::On);
        rig.until("all", |rig| rig.open() >= 8);
    }
}

/// The kernel drops connections that do not fit into the queue. The only sign is that a handshake
/// over loopback is not complete after 200 ms.
fn is_turned_away(addr: SocketAddr) -> bool {
    let outcome = TcpStream::connect_timeout(&addr, Duration::from_millis(200));
    outcome.is_err_and(|error| error.kind() == ErrorKind::TimedOut)
}

on_each! {
    /// Purpose: clients that have hung up are detected, even behind unread bytes, and others are
    /// not.
    fn hung_up<D>() {
        let mut rig = Rig::<D>::new();
        let (mut talker, talking) = rig.accepted();
        let (mut finisher, finishing) = rig.accepted();
        let (leaver, leaving) = rig.accepted();
        for (client, id) in [(&mut talker, talking), (&mut finisher, finishing)] {
            client.write_all(b"first").unwrap();
            rig.until_seen(&Seen::Received(id, b"first".to_vec()));
            // Nothing asks for more, so this stays in the socket.
            client.write_all(b"second").unwrap();
            assert!(!rig.driver.is_hung_up(id), "{id:?}");
        }
        finisher.shutdown(Shutdown::Write).unwrap();
        drop(leaver);
        // Over loopback these calls return when the other end knows.
        assert!(!rig.driver.is_hung_up(talking));
        assert!(rig.driver.is_hung_up(finishing));
        assert!(rig.driver.is_hung_up(leaving));
        drop(talker);
        assert!(rig.driver.is_hung_up(talking));
    }
}
