//! The drivers, and connections of which one side has ended: behind the end of our side everything is delivered as before,
//! however it is read, over TCP and over Unix sockets.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use common::*;
use highwater_core::driver::{Accepting, Close, ConnId, Output, Reading, Then};
use highwater_sys::{DriverConfig, bind_unix};
use socket2::SockRef;

/// A connection whose client has got the end of our side behind `size` bytes.
fn shut_down<D: Subject>(rig: &mut Rig<D>, size: usize) -> (TcpStream, ConnId) {
    let (mut client, id) = rig.accepted();
    client.write_all(b"?").unwrap();
    rig.until("the request", |rig| rig.received(id) == b"?");
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        (client, all)
    });
    rig.send_output(id, Output { bytes: pattern(size), tail: Bytes::new() }, Then::Shutdown);
    rig.until_seen(&Seen::Sent(id));
    let (client, all) = reader.join().unwrap();
    assert!(all == pattern(size));
    (client, id)
}

on_each! {
    /// Purpose: what a client sends behind the end of our side is delivered, in each way of reading, and then its end; the
    /// connection stays until it is closed.
    fn reading_goes_on<D>() {
        for reading in [Reading::Once, Reading::Brief, Reading::Stream] {
            for size in [0, 5, 3_000_000] {
                let mut rig = Rig::<D>::new();
                let (mut client, id) = shut_down(&mut rig, size);
                let sent = pattern(300_000);
                let upload = sent.clone();
                let uploader = thread::spawn(move || {
                    client.write_all(&upload).unwrap();
                    client.shutdown(Shutdown::Write).unwrap();
                    client
                });
                while !rig.log.contains(&Seen::Eof(id)) {
                    rig.driver.read(id, reading);
                    rig.poll(Duration::from_millis(5));
                }
                let _client = uploader.join().unwrap();
                assert!(rig.received(id)[1..] == sent);
                rig.settle();
                assert_eq!(rig.count(|seen| *seen == Seen::Closed(id)), 0);
                rig.driver.close(id, Close::Fin);
                rig.until_seen(&Seen::Closed(id));
            }
        }
    }
}

on_each! {
    /// Purpose: when both sides have ended while reading is stopped, that is no failure: `HungUp` is reported, once, and the
    /// bytes before the end are delivered later. A reset is still one.
    fn both_ends_while_stopped<D>() {
        for is_reset in [false, true] {
            let mut rig = Rig::<D>::new();
            let (mut client, id) = shut_down(&mut rig, 5);
            rig.driver.read(id, Reading::Stop);
            rig.settle();
            client.write_all(&pattern(50_000)).unwrap();
            if is_reset {
                SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
                drop(client);
                rig.until_seen(&Seen::Closed(id));
                continue;
            }
            client.shutdown(Shutdown::Write).unwrap();
            rig.until_seen(&Seen::HungUp(id));
            rig.settle();
            assert_eq!(rig.count(|seen| *seen == Seen::Closed(id)), 0);
            rig.stream(id);
            rig.until_seen(&Seen::Eof(id));
            assert!(rig.received(id)[1..] == pattern(50_000));
            assert_eq!(rig.count(|seen| *seen == Seen::HungUp(id)), 1);
        }
    }
}

on_each! {
    /// Purpose: the same holds over a Unix socket, in either order of the ends, and whether or not something is sent before
    /// ours. Once, io_uring's receive missed a FIN that came right behind the last bytes.
    fn over_a_unix_socket<D>() {
        for (is_ours_first, last) in [(true, &b"last"[..]), (false, b"last"), (true, b""), (false, b"")] {
            let name = format!("hw-half-close-{:?}-{}", thread::current().id(), std::process::id());
            let path = std::env::temp_dir().join(name);
            let (unix, _file) = bind_unix(&path, None, 64).unwrap();
            let mut driver = D::start(vec![unix], &DriverConfig::default()).unwrap();
            driver.accept(FIRST, Accepting::On);
            let mut rig = Rig::of(driver, ([127, 0, 0, 1], 0).into());
            let mut client = UnixStream::connect(&path).unwrap();
            client.set_read_timeout(Some(HANG)).unwrap();
            let id = ConnId(0);
            rig.until_seen(&Seen::Accepted(id, FIRST, None));
            if is_ours_first {
                rig.send(id, last, Then::Shutdown);
                rig.until_seen(&Seen::Sent(id));
            }
            let uploader = thread::spawn(move || {
                client.write_all(&pattern(100_000)).unwrap();
                client.shutdown(Shutdown::Write).unwrap();
                client
            });
            rig.stream(id);
            rig.until_seen(&Seen::Eof(id));
            assert!(rig.received(id) == pattern(100_000));
            let mut client = uploader.join().unwrap();
            if !is_ours_first {
                rig.send(id, last, Then::Shutdown);
                rig.until_seen(&Seen::Sent(id));
            }
            rig.settle();
            assert_eq!(rig.count(|seen| *seen == Seen::Closed(id)), 0);
            let mut all = Vec::new();
            client.read_to_end(&mut all).unwrap();
            assert_eq!(all, last);
        }
    }
}
