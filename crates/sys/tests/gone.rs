//! The drivers, and peers that disappear: what a driver reports while nothing is read (R9), what a
//! second send does (O1), and what connections inherit to detect peers that disappear without
//! closing.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use common::*;
use highwater_core::driver::{Close, ConnId, Output, Reading, Then};
use highwater_sys::{KeepAlive, Listener};
use socket2::SockRef;

/// A connection on which reading has begun and stopped; 100 KiB are unread if `behind` is set.
fn stopped<D: Subject>(rig: &mut Rig<D>, streamed: bool, behind: bool) -> (TcpStream, ConnId) {
    let (mut client, id) = rig.accepted();
    client.write_all(b"?").unwrap();
    rig.until("the request", |rig| rig.received(id) == b"?");
    if streamed {
        rig.stream(id);
        rig.settle();
    }
    rig.driver.read(id, Reading::Stop);
    rig.settle();
    if behind {
        client.write_all(&[b'!'; 100 * 1024]).unwrap();
        rig.settle();
    }
    (client, id)
}

const WAYS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

on_each! {
    /// Purpose: a reset is reported while reading is stopped, whatever was unread before it.
    fn reset_while_stopped<D>() {
        for (streamed, behind) in WAYS {
            let mut rig = Rig::<D>::new();
            let (client, id) = stopped(&mut rig, streamed, behind);
            SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
            drop(client);
            rig.until_seen(&Seen::Closed(id));
            assert!(rig.count(|seen| matches!(seen, Seen::Received(..))) <= 2);
        }
    }
}

on_each! {
    /// Purpose: a FIN is reported while reading is stopped, once; the bytes before it are not lost,
    /// and a reset after it is also reported.
    fn fin_while_stopped<D>() {
        for (streamed, behind) in WAYS {
            let mut rig = Rig::<D>::new();
            let (client, id) = stopped(&mut rig, streamed, behind);
            client.shutdown(Shutdown::Write).unwrap();
            rig.until_seen(&Seen::HungUp(id));
            rig.settle();
            if behind {
                rig.stream(id);
                rig.until_seen(&Seen::Eof(id));
                assert_eq!(rig.received(id).len(), 1 + 100 * 1024);
            }
            rig.driver.read(id, Reading::Stop);
            rig.settle();
            assert_eq!(rig.count(|seen| *seen == Seen::HungUp(id)), 1);
            assert_eq!(rig.count(|seen| *seen == Seen::Closed(id)), 0);
            SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
            drop(client);
            rig.until_seen(&Seen::Closed(id));
        }
    }
}

on_each! {
    /// Purpose: a watched connection can still be closed in every way, at once and with its last
    /// bytes.
    fn watched_connections_close<D>() {
        for how in [None, Some(Close::Fin), Some(Close::Reset)] {
            let mut rig = Rig::<D>::new();
            let (mut client, id) = stopped(&mut rig, true, false);
            match how {
                None => rig.send(id, b"the last word", Then::Close),
                Some(how) => rig.driver.close(id, how),
            }
            rig.until_seen(&Seen::Closed(id));
            let mut all = Vec::new();
            match (how, client.read_to_end(&mut all)) {
                (Some(Close::Reset), end) => {
                    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
                }
                (None, end) => assert_eq!((end.unwrap(), &all[..]), (13, &b"the last word"[..])),
                (Some(Close::Fin), end) => assert_eq!(end.unwrap(), 0),
            }
            assert_eq!(rig.accepted().1, id, "R4: the slot is free");
        }
    }
}

on_each! {
    /// Purpose: a driver dropped while it watches leaves nothing behind.
    fn dropped_while_watching<D>() {
        let mut rig = Rig::<D>::new();
        let (mut client, _) = stopped(&mut rig, true, true);
        drop(rig);
        assert!(matches!(client.read(&mut [0]), Err(_) | Ok(0)));
    }
}

on_each! {
    /// Purpose: a worker that breaks O1 loses the connection, and nothing else: the peer sees bytes of
    /// the first send and of nothing else, in release builds too.
    fn second_send<D>() {
        for size in [40_000_000, 40_000] {
            let mut rig = Rig::<D>::new();
            let (mut client, id) = rig.accepted();
            let first = pattern(size);
            rig.send(id, &first, Then::Keep);
            let second = Output { bytes: vec![0; 100_000], ..Default::default() };
            rig.driver.send(id, second, Then::Keep);
            rig.until_seen(&Seen::Closed(id));
            let (mut received, mut buffer) = (Vec::new(), vec![0; 1 << 20]);
            while let Ok(count @ 1..) = client.read(&mut buffer) {
                received.extend_from_slice(&buffer[..count]);
            }
            assert!(first.starts_with(&received));
            assert_eq!(rig.accepted().1, id, "R4: the slot is free");
        }
    }
}

on_each! {
    /// Purpose: a command that names a connection which is gone does nothing.
    fn commands_to_the_dead<D>() {
        let mut rig = Rig::<D>::new();
        let (client, id) = rig.accepted();
        rig.driver.close(id, Close::Fin);
        rig.until_seen(&Seen::Closed(id));
        rig.driver.read(id, Reading::Stop);
        rig.driver.read(id, Reading::Stream);
        rig.driver.close(id, Close::Reset);
        rig.driver.send(id, Output::default(), Then::Close);
        rig.settle();
        assert_eq!(rig.count(|seen| *seen == Seen::Closed(id)), 1);
        drop(client);
        let (mut next, again) = rig.accepted();
        assert_eq!(again, id);
        next.write_all(b"?").unwrap();
        rig.until("the request", |rig| rig.received(id) == b"?");
    }
}

/// Purpose: accepted connections inherit keep-alive from their listener, and from one made after it, so
/// that it costs nothing for each of them.
#[test]
fn keep_alive_is_inherited() {
    let mut first = Listener::bind("127.0.0.1:0".parse().unwrap(), 16).unwrap();
    let keep_alive =
        KeepAlive { idle: Duration::from_secs(60), unacknowledged_max: Duration::from_secs(30) };
    first.keep_alive(keep_alive).unwrap();
    let second = first.another().unwrap();
    let addr = first.local_addr().unwrap();
    let silent = Listener::bind("127.0.0.1:0".parse().unwrap(), 16).unwrap();
    assert!(!SockRef::from(&silent).keepalive().unwrap(), "off unless asked for");
    for listener in [first, second] {
        let listener = TcpListener::from(listener.as_fd().try_clone_to_owned().unwrap());
        listener.set_nonblocking(true).unwrap();
        // Both share the address: whichever of them is chosen has it sooner or later.
        let accepted = loop {
            let _client = TcpStream::connect(addr).unwrap();
            if let Ok((accepted, _)) = listener.accept() {
                break accepted;
            }
        };
        let socket = SockRef::from(&accepted);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(60));
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(10));
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 6);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(120)));
    }
}
