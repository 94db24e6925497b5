//! Content in sealed files against the driver contract: whoever sends it, and however, exactly its bytes arrive.
#![cfg(all(target_os = "linux", not(highwater_portable_only)))]

mod common;

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;
use std::thread;

use bytes::Bytes;
use common::*;
use highwater_core::driver::{Accepting, Close, ConnId, Output, Reading, Then};
use highwater_sys::sealed::{SEALED_BYTES_MIN, seal};
use highwater_sys::{DriverConfig, bind_unix};

/// More than the buffers of two sockets hold. Made once, since making it takes a second.
static LARGE: LazyLock<Bytes> = LazyLock::new(|| sealed(20_000_000));

fn sealed(len: usize) -> Bytes {
    seal(&pattern(len)).expect("there are descriptors")
}

fn output(head: usize, tail: Bytes) -> Output {
    Output { bytes: pattern(head), tail }
}

on_each! {
    /// Purpose: a slow reader gets all of a sealed file and of the head before it, and is seen to make progress.
    fn slow_reader_of_a_file<D>() {
        slow_reader::<D>(output(99, LARGE.clone()), Then::Keep);
        slow_reader::<D>(output(0, LARGE.clone()), Then::Keep);
    }
}

on_each! {
    /// Purpose: the same of a part of the file, behind a head that alone fills the socket's buffer.
    fn slow_reader_of_a_part<D>() {
        let part = LARGE.slice(1_654_321..19_654_322);
        slow_reader::<D>(output(10_000_000, part), Then::Keep);
    }
}

on_each! {
    /// Purpose: a close ordered with a sealed file waits for its last byte.
    fn slow_reader_then_close<D>() {
        slow_reader::<D>(output(99, LARGE.clone()), Then::Close);
    }
}

on_each! {
    /// Purpose: one connection gets whole files, parts of any offset, and bytes that stand in no file, in the order in
    /// which they were sent; and goes on being received from.
    fn in_order<D>() {
        let whole = sealed(1 << 20);
        let len = whole.len();
        let tails = [
            whole.clone(),
            whole.slice(1..len),
            whole.slice(4095..4096 + SEALED_BYTES_MIN),
            whole.slice(len - SEALED_BYTES_MIN..),
            whole.slice(len - SEALED_BYTES_MIN + 1..),
            Bytes::from(pattern(200_000)),
            Bytes::new(),
            sealed(SEALED_BYTES_MIN),
            sealed(SEALED_BYTES_MIN - 1),
            whole.slice(123_457..654_321),
            whole,
        ];
        let mut rig = Rig::<D>::new();
        let (mut client, id) = rig.accepted();
        for (round, tail) in tails.into_iter().enumerate() {
            client.write_all(&[round as u8]).unwrap();
            rig.until("a request", |rig| rig.received(id).len() == round + 1);
            let output = output(round * 40, tail);
            let expected = [&output.bytes[..], &output.tail[..]].concat();
            rig.send_output(id, output, Then::Keep);
            rig.driver.read(id, Reading::Once);
            let reader = thread::spawn(move || {
                let mut all = vec![0; expected.len()];
                client.read_exact(&mut all).unwrap();
                (client, all == expected)
            });
            rig.until("Sent", |rig| rig.count(|seen| *seen == Seen::Sent(id)) == round + 1);
            let (back, is_equal) = reader.join().unwrap();
            assert!(is_equal, "round {round}");
            client = back;
        }
        drop(client);
        rig.until_seen(&Seen::Eof(id));
    }
}

on_each! {
    /// Purpose: a file is followed by FIN, and by nothing else, when that was ordered with it.
    fn then_shutdown_and_then_close<D>() {
        for then in [Then::Shutdown, Then::Close] {
            let mut rig = Rig::<D>::new();
            let (mut client, id) = rig.accepted();
            let output = output(99, sealed(3_000_000));
            let expected = [&output.bytes[..], &output.tail[..]].concat();
            rig.send_output(id, output, then);
            let reader = thread::spawn(move || {
                let mut all = Vec::new();
                client.read_to_end(&mut all).map(|_| (all, client))
            });
            rig.until_seen(&Seen::Sent(id));
            if then == Then::Shutdown {
                rig.stream(id);
                let (all, mut client) = reader.join().unwrap().unwrap();
                assert!(all == expected);
                client.write_all(b"more").unwrap();
                rig.until("more", |rig| rig.received(id) == b"more");
                rig.driver.close(id, Close::Fin);
                rig.until_seen(&Seen::Closed(id));
            } else {
                rig.until_seen(&Seen::Closed(id));
                assert!(reader.join().unwrap().unwrap().0 == expected);
            }
            assert_eq!(rig.accepted().1, id, "R4: ids are reused");
        }
    }
}

/// A connection whose client does not read, with a file under way to it.
fn blocked<D: Subject>(then: Then) -> (Rig<D>, std::net::TcpStream, ConnId) {
    let mut rig = Rig::<D>::new();
    let (client, id) = rig.accepted();
    rig.stream(id);
    rig.send_output(id, output(9, LARGE.clone()), then);
    rig.until_seen(&Seen::Progress(id));
    rig.settle();
    assert!(!rig.log.contains(&Seen::Sent(id)));
    (rig, client, id)
}

on_each! {
    /// Purpose: closing abandons a file under way, and looks to the client as it should.
    fn close_in_the_middle<D>() {
        for (then, how) in [
            (Then::Keep, Close::Fin), (Then::Keep, Close::Reset),
            (Then::Shutdown, Close::Reset), (Then::Close, Close::Fin), (Then::Close, Close::Reset),
        ] {
            let (mut rig, mut client, id) = blocked::<D>(then);
            rig.driver.close(id, how);
            rig.until_seen(&Seen::Closed(id));
            assert!(!rig.log.contains(&Seen::Sent(id)), "{then:?}, {how:?}");
            let mut all = Vec::new();
            let end = client.read_to_end(&mut all);
            match how {
                Close::Fin => {
                    assert!(end.is_ok() && all.len() < LARGE.len(), "{then:?}");
                    let file = &all[9..];
                    assert!(all.starts_with(&pattern(9)) && LARGE.starts_with(file), "{then:?}");
                }
                Close::Reset => assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset),
            }
            assert_eq!(rig.accepted().1, id, "R4: ids are reused");
        }
    }
}

on_each! {
    /// Purpose: closing right after the send, before any poll, ends the connection once.
    fn close_at_once<D>() {
        for (len, how) in [
            (100_000, Close::Fin), (100_000, Close::Reset), (LARGE.len(), Close::Reset),
        ] {
            let mut rig = Rig::<D>::new();
            let (_client, id) = rig.accepted();
            rig.send_output(id, output(9, LARGE.slice(..len)), Then::Keep);
            rig.driver.close(id, how);
            rig.until_seen(&Seen::Closed(id));
            rig.settle();
            assert_eq!(rig.count(|seen| *seen == Seen::Closed(id)), 1);
        }
    }
}

on_each! {
    /// Purpose: a peer's reset ends a file under way with `Closed`, without `Sent`, and without a signal.
    fn reset_in_the_middle<D>() {
        let (mut rig, mut client, id) = blocked::<D>(Then::Keep);
        client.read_exact(&mut [0; 9]).unwrap();
        drop(client); // With unread bytes: a reset.
        rig.until_seen(&Seen::Closed(id));
        assert!(!rig.log.contains(&Seen::Sent(id)));
    }
}

on_each! {
    /// Purpose: a second send while a file is under way resets the connection (O1), so that no answers are mixed up.
    fn second_send<D>() {
        let (mut rig, mut client, id) = blocked::<D>(Then::Keep);
        rig.driver.send(id, output(9, sealed(100_000)), Then::Keep);
        rig.until_seen(&Seen::Closed(id));
        let end = client.read_to_end(&mut Vec::new());
        assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}

on_each! {
    /// Purpose: a driver may go while a file is under way.
    fn dropped_in_the_middle<D>() {
        let (rig, mut client, _) = blocked::<D>(Then::Keep);
        drop(rig);
        let mut all = Vec::new();
        let _ = client.read_to_end(&mut all);
        assert!(all.len() < LARGE.len());
    }
}

on_each! {
    /// Purpose: Unix sockets get the same bytes.
    fn over_a_unix_socket<D>() {
        let name = std::any::type_name::<D>().rsplit("::").next().unwrap();
        let path = std::env::temp_dir().join(format!("highwater-sealed-{}-{name}", std::process::id()));
        let (listener, file) = bind_unix(&path, None, 8).unwrap();
        let mut driver = D::start(vec![listener], &DriverConfig::default()).unwrap();
        driver.accept(FIRST, Accepting::On);
        let mut rig = Rig::of(driver, "127.0.0.1:1".parse().unwrap());
        let mut client = UnixStream::connect(&path).unwrap();
        client.set_read_timeout(Some(HANG)).unwrap();
        let id = ConnId(0);
        rig.until("Accepted", |rig| rig.count(|seen| matches!(seen, Seen::Accepted(..))) == 1);
        let output = output(99, sealed(5_000_000));
        let expected = [&output.bytes[..], &output.tail[..]].concat();
        rig.send_output(id, output, Then::Close);
        rig.until_seen(&Seen::Progress(id));
        let reader = thread::spawn(move || {
            let mut all = Vec::new();
            client.read_to_end(&mut all).map(|_| all)
        });
        rig.until_seen(&Seen::Closed(id));
        assert!(reader.join().unwrap().unwrap() == expected);
        drop(file);
    }
}
