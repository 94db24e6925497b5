//! The drivers against the driver contract, over real loopback sockets: receiving, sending,
//! closing. The contract's promises R2, R3 and R5 are checked on every event of every test.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use common::*;
use highwater_core::driver::{Close, Output, Reading, Then};
use highwater_sys::DriverConfig;

on_each! {
    /// Purpose: a request arrives, its answer leaves, the buffer comes back, twice on a connection.
    fn round_trip<D>() {
        let mut rig = Rig::<D>::new();
        let (mut client, id) = rig.accepted();
        client.write_all(b"first").unwrap();
        rig.until_seen(&Seen::Received(id, b"first".to_vec()));
        rig.send(id, b"one", Then::Keep);
        rig.stream(id);
        rig.until_seen(&Seen::Sent(id));
        let mut answer = [0; 3];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"one");

        client.write_all(b"second").unwrap();
        rig.until_seen(&Seen::Received(id, b"second".to_vec()));
        rig.send(id, b"two", Then::Keep);
        rig.until("second Sent", |rig| rig.count(|seen| *seen == Seen::Sent(id)) == 2);
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"two");

        drop(client);
        rig.until_seen(&Seen::Eof(id));
    }
}

on_each! {
    /// Purpose: what commands have done is reported once, by whatever the worker asks first. (R2, R3)
    fn what_is_done_is_reported_once<D>() {
        let mut rig = Rig::<D>::new();
        for asks in [true, false] {
            let (mut client, id) = rig.accepted();
            rig.stream(id);
            rig.settle();
            let before = rig.log.len();
            rig.asks_first = asks;
            rig.send(id, b"answer", Then::Keep);
            rig.until("Sent", |rig| rig.log[before..].contains(&Seen::Sent(id)));
            rig.driver.close(id, Close::Fin);
            rig.asks_first = asks;
            rig.until("Closed", |rig| rig.log[before..].contains(&Seen::Closed(id)));
            rig.settle();
            assert_eq!(rig.log[before..], [Seen::Sent(id), Seen::Closed(id)]);
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).unwrap();
            assert_eq!(answer, b"answer");
        }
    }
}

on_each! {
    /// Purpose: bytes that come one at a time are all delivered, in order.
    fn one_byte_at_a_time<D>() {
        let mut rig = Rig::<D>::new();
        let (mut client, id) = rig.accepted();
        rig.stream(id);
        let sent = pattern(500);
        for byte in sent.chunks(1) {
            client.write_all(byte).unwrap();
            rig.poll(Duration::from_millis(1));
        }
        rig.until("every byte", |rig| rig.received(id).len() >= sent.len());
        assert_eq!(rig.received(id), sent);
    }
}

on_each! {
    /// Purpose: more than every receive buffer together arrives complete and in order.
    fn large_upload<D>() {
        let mut rig = Rig::<D>::new();
        let (mut client, id) = rig.accepted();
        rig.stream(id);
        let sent = pattern(6 << 20);
        let upload = sent.clone();
        let uploader = thread::spawn(move || client.write_all(&upload).map(|()| client));
        let mut length = 0;
        rig.until("the upload", |rig| {
            length = rig.log.iter().map(|seen| match seen {
                Seen::Received(_, bytes) => bytes.len(),
                _ => 0,
            }).sum();
            length >= sent.len()
        });
        assert!(rig.received(id) == sent);
        drop(uploader.join().unwrap().unwrap());
        rig.until_seen(&Seen::Eof(id));
    }
}

on_each! {
    /// Purpose: a client that finishes sending first still gets its answer, and is then closed.
    fn half_close_is_answered<D>() {
        let mut rig = Rig::<D>::new();
        let (mut client, id) = rig.accepted();
        client.write_all(b"last").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        rig.until("the request", |rig| rig.received(id) == b"last");
        rig.stream(id);
        rig.until_seen(&Seen::Eof(id));
        rig.send(id, b"answer", Then::Close);
        rig.until_seen(&Seen::Closed(id));
        assert!(rig.log.contains(&Seen::Sent(id)));
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"answer");
    }
}

on_each! {
    /// Purpose: 20 MB of own bytes survive short sends.
    fn slow_reader_of_bytes<D>() {
        let output = Output { bytes: pattern(20_000_000), tail: Bytes::new() };
        slow_reader::<D>(output, Then::Keep);
    }
}

on_each! {
    /// Purpose: a head and 20 MB of shared body survive short sends that end in either part.
    fn slow_reader_of_tail<D>() {
        let output = Output { bytes: pattern(100_000), tail: pattern(20_000_000).into() };
        slow_reader::<D>(output, Then::Keep);
    }
}

on_each! {
    /// Purpose: a close ordered with a large send waits for the last byte.
    fn slow_reader_then_close<D>() {
        let output = Output { bytes: pattern(99), tail: pattern(20_000_000).into() };
        slow_reader::<D>(output, Then::Close);
    }
}

on_each! {
    /// Purpose: the empty tail, the empty head and the empty send are sends like others.
    fn empty_parts<D>() {
        let mut rig = Rig::<D>::new();
        let (mut client, id) = rig.accepted();
        rig.stream(id);
        let sends = [(&b"head"[..], &b""[..]), (b"", b"tail"), (b"both", b"parts")];
        for (round, (bytes, tail)) in sends.into_iter().enumerate() {
            let output = Output { bytes: bytes.to_vec(), tail: Bytes::from_static(tail) };
            rig.send_output(id, output, Then::Keep);
            rig.until("Sent", |rig| rig.count(|seen| *seen == Seen::Sent(id)) == round + 1);
        }
        rig.send(id, b"", Then::Shutdown);
        rig.until("Sent", |rig| rig.count(|seen| *seen == Seen::Sent(id)) == 4);
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"headtailbothparts");
    }
}

/// `Then::Close` with or without a receive armed: all bytes, then FIN, and the slot comes free.
fn then_close<D: Subject>(size: usize, streaming: bool) {
    let mut rig = Rig::<D>::new();
    let (mut client, id) = rig.accepted();
    client.write_all(b"?").unwrap();
    rig.until("the request", |rig| rig.received(id) == b"?");
    if streaming {
        rig.stream(id);
        rig.settle();
    }
    let body = pattern(size);
    rig.send(id, &body, Then::Close);
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        client.read_to_end(&mut all).map(|_| all)
    });
    rig.until_seen(&Seen::Closed(id));
    assert!(rig.log.ends_with(&[Seen::Sent(id), Seen::Closed(id)]));
    assert!(reader.join().unwrap().unwrap() == body);
    assert_eq!(rig.accepted().1, id, "R4: ids are reused");
}

on_each! {
    /// Purpose: the linked send and close, at sizes around where they stop being linked.
    fn then_close_delivers_everything<D>() {
        for size in [0, 1, 120, 64 * 1024, 64 * 1024 + 1, 3_000_000] {
            then_close::<D>(size, false);
        }
    }
}

on_each! {
    /// Purpose: the same while a receive is armed, which must not hold the connection open.
    fn then_close_while_streaming<D>() {
        for size in [0, 1, 120, 64 * 1024, 64 * 1024 + 1, 3_000_000] {
            then_close::<D>(size, true);
        }
    }
}

on_each! {
    /// Purpose: a lingering close: FIN after the answer, while the client's bytes are still read.
    fn then_shutdown_reads_on<D>() {
        let mut rig = Rig::<D>::new();
        let (mut client, id) = rig.accepted();
        rig.stream(id);
        rig.send(id, b"too large", Then::Shutdown);
        let mut answer = Vec::new();
        client.set_nonblocking(true).unwrap();
        rig.until("FIN", |_| match client.read_to_end(&mut answer) {
            Err(error) => error.kind() != ErrorKind::WouldBlock,
            Ok(_) => true,
        });
        assert_eq!(answer, b"too large");
        client.write_all(b"the rest of the body").unwrap();
        rig.until("the rest", |rig| rig.received(id) == b"the rest of the body");
        drop(client);
        rig.until_seen(&Seen::Eof(id));
        rig.driver.close(id, Close::Fin);
        rig.until_seen(&Seen::Closed(id));
    }
}

on_each! {
    /// Purpose: both ways to close look to the client as they should, whatever is in flight.
    fn close_is_fin_or_reset<D>() {
        for (how, streaming) in
            [(Close::Fin, false), (Close::Fin, true), (Close::Reset, false), (Close::Reset, true)]
        {
            let mut rig = Rig::<D>::new();
            let (mut client, id) = rig.accepted();
            if streaming {
                rig.stream(id);
            }
            rig.settle();
            rig.driver.close(id, how);
            rig.until_seen(&Seen::Closed(id));
            let end = client.read(&mut [0]);
            match how {
                Close::Fin => assert_eq!(end.unwrap(), 0),
                Close::Reset => assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset),
            }
        }
    }
}

on_each! {
    /// Purpose: closing abandons a send that cannot make progress, also one that was to close.
    fn close_abandons_a_blocked_send<D>() {
        for then in [Then::Keep, Then::Close] {
            // The first fills the socket's buffers, so that the second, small one, waits whole.
            let mut rig = Rig::<D>::new();
            let (client, id) = rig.accepted();
            rig.send(id, &pattern(40_000_000), then);
            rig.until_seen(&Seen::Progress(id));
            rig.settle();
            rig.driver.close(id, Close::Reset);
            rig.until_seen(&Seen::Closed(id));
            assert!(!rig.log.contains(&Seen::Sent(id)));
            drop(client);
        }
    }
}

on_each! {
    /// Purpose: a peer's reset ends a blocked send with `Closed`, and without `Sent`.
    fn reset_during_a_send<D>() {
        let mut rig = Rig::<D>::new();
        let (mut client, id) = rig.accepted();
        rig.stream(id);
        rig.send_output(id, Output { bytes: pattern(9), tail: pattern(40_000_000).into() }, Then::Keep);
        rig.until_seen(&Seen::Progress(id));
        // Closing with unread bytes makes Linux send a reset.
        client.read_exact(&mut [0; 9]).unwrap();
        drop(client);
        rig.until_seen(&Seen::Closed(id));
        assert!(!rig.log.contains(&Seen::Sent(id)));
    }
}

on_each! {
    /// Purpose: commands to a connection that failed, but has not been reported yet, are harmless.
    fn commands_race_with_a_reset<D>() {
        for _ in 0..50 {
            let mut rig = Rig::<D>::new();
            let (mut client, id) = rig.accepted();
            client.write_all(b"?").unwrap();
            rig.until("the request", |rig| rig.received(id) == b"?");
            rig.send(id, b"unread", Then::Keep);
            rig.stream(id);
            rig.until_seen(&Seen::Sent(id));
            drop(client);
            rig.send(id, b"into the void", Then::Keep);
            rig.driver.read(id, Reading::Stop);
            rig.driver.read(id, Reading::Stream);
            rig.until("Closed or Sent", |rig| {
                rig.log.contains(&Seen::Closed(id)) || rig.count(|seen| *seen == Seen::Sent(id)) == 2
            });
            rig.until_seen(&Seen::Closed(id));
        }
    }
}

on_each! {
    /// Purpose: `Once` delivers once and no more until asked again, then everything in order.
    fn once_is_once<D>() {
        let mut rig = Rig::<D>::new();
        let (mut client, id) = rig.accepted();
        let mut expected = Vec::new();
        for round in 0..5_u8 {
            client.write_all(&[round]).unwrap();
            expected.push(round);
            rig.until("a byte", |rig| rig.received(id) == expected);
            client.write_all(&[100 + round]).unwrap();
            rig.settle();
            assert_eq!(rig.received(id), expected, "delivered without being asked");
            expected.push(100 + round);
            rig.driver.read(id, Reading::Once);
            rig.until("a byte", |rig| rig.received(id) == expected);
            rig.driver.read(id, Reading::Once);
        }
        drop(client);
        rig.until_seen(&Seen::Eof(id));
    }
}

on_each! {
    /// Purpose: `Once` after `Stream` ends the stream after one delivery.
    fn once_ends_a_stream<D>() {
        let mut rig = Rig::<D>::new();
        let (mut client, id) = rig.accepted();
        rig.stream(id);
        client.write_all(b"a").unwrap();
        rig.until("a", |rig| rig.received(id) == b"a");
        rig.driver.read(id, Reading::Once);
        client.write_all(b"b").unwrap();
        rig.until("b", |rig| rig.received(id) == b"ab");
        rig.settle();
        client.write_all(b"c").unwrap();
        rig.settle();
        assert_eq!(rig.received(id), b"ab");
        rig.stream(id);
        rig.until("c", |rig| rig.received(id) == b"abc");
    }
}

on_each! {
    /// Purpose: `Stop` makes TCP push back, and `Stream` then delivers everything in order.
    fn stop_pushes_back<D>() {
        let mut rig = Rig::<D>::new();
        let (mut client, id) = rig.accepted();
        rig.stream(id);
        rig.settle();
        rig.driver.read(id, Reading::Stop);
        rig.settle();
        let sent = pattern(30_000_000);
        let upload = sent.clone();
        let uploader = thread::spawn(move || client.write_all(&upload).map(|()| client));
        rig.settle();
        thread::sleep(Duration::from_millis(100));
        rig.settle();
        assert_eq!(rig.received(id), b"", "stopped");
        assert!(!uploader.is_finished(), "30 MB do not fit into the socket buffers");
        rig.stream(id);
        let mut length = 0;
        let mut seen = 0;
        rig.until("everything", |rig| {
            length += rig.log[seen..].iter().map(|seen| match seen {
                Seen::Received(_, bytes) => bytes.len(),
                _ => 0,
            }).sum::<usize>();
            seen = rig.log.len();
            length >= sent.len()
        });
        assert!(rig.received(id) == sent);
        uploader.join().unwrap().unwrap();
    }
}

on_each! {
    /// Purpose: switching back and forth, faster than the kernel answers, loses nothing.
    fn stop_and_stream_in_quick_succession<D>() {
        let mut rig = Rig::<D>::new();
        let (mut client, id) = rig.accepted();
        let sent = pattern(2_000);
        for (round, byte) in sent.chunks(1).enumerate() {
            client.write_all(byte).unwrap();
            for _ in 0..round % 4 {
                rig.driver.read(id, Reading::Stop);
                rig.driver.read(id, Reading::Stream);
            }
            rig.driver.read(id, if round % 3 == 0 { Reading::Stop } else { Reading::Once });
            rig.poll(Duration::ZERO);
        }
        rig.stream(id);
        rig.until("everything", |rig| rig.received(id).len() >= sent.len());
        assert_eq!(rig.received(id), sent);
    }
}

on_each! {
    /// Purpose: far fewer buffers than busy connections, and tiny ones: nothing is lost.
    fn starving_for_buffers<D>() {
        for buffer_count in [1, 2, 4] {
            let config =
                DriverConfig { buffer_count, buffer_size: 512, ..DriverConfig::default() };
            let mut rig = Rig::<D>::with(&config);
            let mut clients: Vec<_> = (0..50).map(|_| rig.accepted()).collect();
            for (_, id) in &clients {
                rig.stream(*id);
            }
            rig.settle();
            let sent = pattern(5_000);
            for (client, _) in &mut clients {
                client.write_all(&sent).unwrap();
            }
            for (_, id) in &clients {
                rig.until("everything", |rig| rig.received(*id).len() >= sent.len());
                assert!(rig.received(*id) == sent);
            }
        }
    }
}

on_each! {
    /// Purpose: queues far smaller than the number of connections: nothing is lost or confused.
    fn tiny_queues<D>() {
        let config = DriverConfig {
            completion_queue: 16,
            submission_queue: 2,
            ..DriverConfig::default()
        };
        let mut rig = Rig::<D>::with(&config);
        let mut clients: Vec<_> = (0..200).map(|_| rig.connect()).collect();
        rig.until("all accepted", |rig| rig.open() == 200);
        for client in &mut clients {
            client.write_all(b"request").unwrap();
        }
        let received = |seen: &Seen| matches!(seen, Seen::Received(_, bytes) if bytes == b"request");
        rig.until("all requests", |rig| rig.count(received) == 200);
        for (round, then) in [(1, Then::Keep), (2, Then::Close)] {
            for id in (0..200).map(highwater_core::driver::ConnId) {
                rig.stream(id);
                rig.send(id, &id.0.to_be_bytes(), then);
            }
            let sent = |seen: &Seen| matches!(seen, Seen::Sent(_));
            rig.until("all sent", |rig| rig.count(sent) == 200 * round);
        }
        rig.until("all closed", |rig| rig.open() == 0);
        let mut answers = Vec::new();
        for client in &mut clients {
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).unwrap();
            assert_eq!(answer[..4], answer[4..]);
            answers.push(u32::from_be_bytes(answer[..4].try_into().unwrap()));
        }
        answers.sort_unstable();
        assert_eq!(answers, (0..200).collect::<Vec<_>>());
    }
}

on_each! {
    /// Purpose: closing everything at once, far more commands than the queue takes.
    fn mass_close<D>() {
        let config = DriverConfig { submission_queue: 8, ..DriverConfig::default() };
        let mut rig = Rig::<D>::with(&config);
        let clients: Vec<_> = (0..300).map(|_| rig.connect()).collect();
        rig.until("all accepted", |rig| rig.open() == 300);
        for id in (0..300).map(highwater_core::driver::ConnId) {
            rig.stream(id);
            rig.driver.close(id, if id.0 % 2 == 0 { Close::Fin } else { Close::Reset });
        }
        rig.until("all closed", |rig| rig.open() == 0);
        drop(clients);
    }
}

on_each! {
    /// Purpose: thousands of short connections reuse few slots and never hear another's answer.
    fn churn<D>() {
        let mut rig = Rig::<D>::new();
        let addr = rig.addr;
        let clients: Vec<_> = (0..5_u32).map(|thread| thread::spawn(move || {
            for round in 0..1_000 {
                let mut client = std::net::TcpStream::connect(addr).unwrap();
                client.set_read_timeout(Some(HANG)).unwrap();
                let question = (thread << 16 | round).to_be_bytes();
                client.write_all(&question).unwrap();
                if round % 7 == 0 {
                    continue; // Gone without reading the answer.
                }
                let mut answer = Vec::new();
                client.read_to_end(&mut answer).unwrap();
                assert_eq!(answer, question);
            }
        })).collect();
        let mut seen = 0;
        let mut partial = std::collections::HashMap::<_, Vec<u8>>::new();
        rig.until("5000 connections", |rig| {
            for position in std::mem::replace(&mut seen, rig.log.len())..seen {
                // One poll may report the end of a connection and a new one with its id, which a late command would end.
                let (seen, later) = rig.log[position..].split_first().unwrap();
                let seen = seen.clone();
                let is_over = |id| later.contains(&Seen::Closed(id));
                match seen {
                    Seen::Received(id, _) | Seen::Eof(id) if is_over(id) => {
                        partial.remove(&id);
                    }
                    Seen::Received(id, bytes) => {
                        let question = partial.entry(id).or_default();
                        question.extend_from_slice(&bytes);
                        if question.len() == 4 {
                            let answer = partial.remove(&id).unwrap();
                            let then = if answer[3] % 2 == 0 { Then::Close } else { Then::Shutdown };
                            rig.send(id, &answer, then);
                            if then == Then::Shutdown {
                                rig.stream(id);
                            }
                        } else {
                            rig.driver.read(id, Reading::Once);
                        }
                    }
                    Seen::Eof(id) => rig.driver.close(id, Close::Fin),
                    _ => {}
                }
            }
            rig.count(|seen| matches!(seen, Seen::Closed(_))) == 5_000
        });
        for client in clients {
            client.join().unwrap();
        }
        let highest = rig.log.iter().filter_map(|seen| match seen {
            Seen::Accepted(id, ..) => Some(id.0),
            _ => None,
        });
        assert!(highest.max().unwrap() < 64, "R4: ids stay dense");
    }
}

on_each! {
    /// Purpose: a driver dropped in the middle of everything frees its descriptors and survives.
    fn dropped_in_flight<D>() {
        let open = || std::fs::read_dir("/proc/self/fd").unwrap()
            .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
            .filter(|link| !link.to_string_lossy().contains("/proc"))
            .count();
        // Other tests of this process come and go, so only a leak of many would show.
        let tail = Bytes::from(pattern(4_000_000));
        for _ in 0..3 {
            let before = open();
            for _ in 0..20 {
                let mut rig = Rig::<D>::new();
                let mut clients: Vec<_> = (0..10).map(|_| rig.accepted()).collect();
                for (client, id) in &mut clients {
                    client.write_all(b"x").unwrap();
                    rig.stream(*id);
                    let tail = tail.clone();
                    rig.send_output(*id, Output { bytes: pattern(10), tail }, Then::Close);
                }
                rig.poll(Duration::ZERO);
                let _waker = rig.driver.waker();
                drop(rig);
            }
            if open() < before + 100 {
                return;
            }
        }
        panic!("20 dropped drivers left 100 descriptors or more");
    }
}
