//! Both dialers against the contract of `Dial`, with real servers at the other end.

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use highwater_core::driver::{ConnId, Wait};
use highwater_core::time::Clock;
use highwater_sys::clock::SystemClock;
use highwater_sys::dial::{Arrival, Dial, DialConfig, EpollDialer, Event, Failure, UringDialer};
use highwater_sys::probe;

/// No step of a test takes this long unless something hangs.
const HANG: Duration = Duration::from_secs(20);

/// An event, with its bytes copied.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Connected(ConnId),
    Received(ConnId, Vec<u8>),
    Eof(ConnId),
    Failed(ConnId, Failure),
}

impl Seen {
    fn id(&self) -> ConnId {
        match *self {
            Seen::Connected(id) | Seen::Received(id, _) | Seen::Eof(id) | Seen::Failed(id, _) => id,
        }
    }
}

/// A dialer, a listener, and everything that the dialer has reported.
struct Rig<D> {
    dialer: D,
    listener: TcpListener,
    seen: Vec<Seen>,
}

trait Make: Dial + Sized {
    fn make(config: &DialConfig) -> Self;
}

impl Make for EpollDialer {
    fn make(config: &DialConfig) -> Self {
        EpollDialer::new(config).unwrap()
    }
}

impl Make for UringDialer {
    fn make(config: &DialConfig) -> Self {
        UringDialer::new(config).unwrap()
    }
}

/// Runs the following test on both dialers.
macro_rules! on_both {
    ($(#[$doc:meta])* fn $name:ident<$dialer:ident>() $body:block) => {
        mod $name {
            use super::*;
            $(#[$doc])*
            fn test<$dialer: Make>() $body

            #[test]
            fn uring() {
                match probe().uring {
                    Ok(()) => test::<UringDialer>(),
                    Err(reason) => highwater_skip::skip("io_uring", reason),
                }
            }

            #[test]
            fn epoll() {
                test::<EpollDialer>();
            }
        }
    };
}

impl<D: Make> Rig<D> {
    fn new(messages: &[&[u8]]) -> Rig<D> {
        Rig::with(messages, Vec::new())
    }

    fn with(messages: &[&[u8]], sources: Vec<IpAddr>) -> Rig<D> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // A connection that is established is in the queue; if not, the test is not to hang.
        listener.set_nonblocking(true).unwrap();
        let target = listener.local_addr().unwrap();
        Rig { dialer: dialer(target, messages, sources), listener, seen: Vec::new() }
    }

    fn poll(&mut self) {
        let wait = Wait::Until(SystemClock.now() + Duration::from_millis(50));
        let seen = &mut self.seen;
        let report = &mut |event: Event<'_>| {
            seen.push(match event {
                Event::Connected(id) => Seen::Connected(id),
                Event::Received(id, bytes, _) => {
                    assert!(!bytes.is_empty());
                    Seen::Received(id, bytes.to_vec())
                }
                Event::Eof(id) => Seen::Eof(id),
                Event::Failed(id, failure) => Seen::Failed(id, failure),
            });
        };
        self.dialer.poll(wait, report).unwrap();
    }

    fn until(&mut self, what: &str, done: impl Fn(&[Seen]) -> bool) {
        let began = Instant::now();
        while !done(&self.seen) {
            assert!(began.elapsed() < HANG, "{what}: {:?}", self.seen);
            self.poll();
        }
    }

    /// A connection and the server's end of it.
    fn connect(&mut self) -> (ConnId, TcpStream) {
        let id = self.dialer.connect().unwrap();
        let before = self.seen.len();
        self.until("connected", |seen| seen[before..].contains(&Seen::Connected(id)));
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        (id, stream)
    }

    /// Everything received on `id`, joined.
    fn received(&self, id: ConnId) -> Vec<u8> {
        let of_id = self.seen.iter().filter_map(|seen| match seen {
            Seen::Received(of, bytes) if *of == id => Some(bytes.as_slice()),
            _ => None,
        });
        of_id.collect::<Vec<_>>().concat()
    }
}

fn dialer<D: Make>(target: SocketAddr, messages: &[&[u8]], sources: Vec<IpAddr>) -> D {
    let messages = messages.iter().map(|message| message.to_vec()).collect();
    D::make(&DialConfig { target, sources, messages })
}

fn read_exactly(stream: &mut TcpStream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

on_both! {
    /// Purpose: bytes pass both ways unchanged, as the message and the length say, and the server's
    /// end is reported once, after its last bytes.
    fn there_and_back<D>() {
        let mut rig = Rig::<D>::new(&[b"first", b"second message"]);
        let (id, mut server) = rig.connect();
        for (message, len, text) in [(1, 6, &b"second"[..]), (0, 5, b"first")] {
            rig.dialer.send(id, message, len);
            rig.poll();
            assert_eq!(read_exactly(&mut server, len), text);
        }
        server.write_all(b"answer").unwrap();
        rig.until("answer", |seen| seen.contains(&Seen::Received(id, b"answer".to_vec())));
        server.write_all(b", end").unwrap();
        drop(server);
        rig.until("end", |seen| seen.contains(&Seen::Eof(id)));
        rig.poll();
        assert_eq!(rig.received(id), b"answer, end");
        assert_eq!(rig.seen.iter().filter(|seen| **seen == Seen::Eof(id)).count(), 1);
        assert_eq!(rig.seen.last(), Some(&Seen::Eof(id)));
        rig.dialer.close(id);
    }
}

on_both! {
    /// Purpose: a port on which no process listens is distinguished from every other failure, for
    /// many connections at once, and the ids are used again.
    fn refused<D>() {
        let target = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut rig = Rig::<D>::new(&[b"?"]);
        rig.dialer = dialer(target, &[b"?"], Vec::new());
        for _ in 0..3 {
            let ids: HashSet<u32> = (0..50).map(|_| rig.dialer.connect().unwrap().0).collect();
            assert_eq!(ids, (0..50).collect());
            rig.seen.clear();
            rig.until("all refused", |seen| seen.len() >= 50);
            let refused = |seen: &Seen| matches!(seen, Seen::Failed(_, Failure::Refused));
            assert!(rig.seen.iter().all(refused), "{:?}", rig.seen);
            assert_eq!(rig.seen.iter().map(|seen| seen.id().0).collect::<HashSet<_>>(), ids);
        }
    }
}

on_both! {
    /// Purpose: a reset is distinguished from a normal end.
    fn reset<D>() {
        let mut rig = Rig::<D>::new(&[b"unread by the server"]);
        let (id, server) = rig.connect();
        rig.dialer.send(id, 0, 20);
        rig.poll();
        let mut first = [0];
        server.peek(&mut first).unwrap();
        drop(server); // With unread input: the kernel resets.
        rig.until("failed", |seen| seen.contains(&Seen::Failed(id, Failure::Reset)));
    }
}

on_both! {
    /// Purpose: a message larger than every socket buffer arrives whole at a server that reads late.
    fn large_messages<D>() {
        let large: Vec<u8> = (0..8_u32 << 20).map(|at| (at / 7) as u8).collect();
        let mut rig = Rig::<D>::new(&[&large]);
        let (id, mut server) = rig.connect();
        rig.dialer.send(id, 0, large.len());
        rig.poll();
        let reader = std::thread::spawn(move || {
            let bytes = read_exactly(&mut server, 8 << 20);
            server.write_all(b"thanks").unwrap();
            (bytes, server)
        });
        rig.until("answered", |seen| seen.contains(&Seen::Received(id, b"thanks".to_vec())));
        assert!(reader.join().unwrap().0 == large);
        // And the connection is as good as before.
        rig.dialer.close(id);
    }
}

on_both! {
    /// Purpose: a message that is made for one send arrives as it was made, whatever is made next for the same
    /// connection and for others; one that no socket's buffer has room for arrives whole, and small ones after it.
    fn written_messages<D>() {
        let mut rig = Rig::<D>::new(&[b"given"]);
        let (one, mut first) = rig.connect();
        let (two, mut second) = rig.connect();
        for round in 0..50_u8 {
            rig.dialer.write(one, |buffer| {
                assert!(buffer.is_empty());
                buffer.extend([round; 30]);
            });
            rig.dialer.write(two, |buffer| buffer.extend([b'a' + round % 26; 7]));
            rig.poll();
            assert_eq!(read_exactly(&mut first, 30), [round; 30]);
            assert_eq!(read_exactly(&mut second, 7), [b'a' + round % 26; 7]);
        }
        let large: Vec<u8> = (0..8_u32 << 20).map(|at| (at / 7) as u8).collect();
        rig.dialer.write(one, |buffer| buffer.extend_from_slice(&large));
        rig.dialer.write(two, |buffer| buffer.extend(b"beside it"));
        rig.poll();
        assert_eq!(read_exactly(&mut second, 9), b"beside it");
        let reader = std::thread::spawn(move || {
            let bytes = read_exactly(&mut first, 8 << 20);
            first.write_all(b"thanks").unwrap();
            (bytes, first)
        });
        rig.until("answered", |seen| seen.contains(&Seen::Received(one, b"thanks".to_vec())));
        let (bytes, mut first) = reader.join().unwrap();
        assert!(bytes == large);
        rig.dialer.write(one, |buffer| buffer.extend(b"small again"));
        rig.poll();
        assert_eq!(read_exactly(&mut first, 11), b"small again");
        rig.dialer.send(one, 0, 5);
        rig.poll();
        assert_eq!(read_exactly(&mut first, 5), b"given");
    }
}

on_both! {
    /// Purpose: a caller can tell when another message may be written. Messages that are written only then arrive
    /// whole and in order, at a server that reads late, and although none of them is answered.
    fn written_in_turns<D>() {
        const PIECE: usize = 1 << 20;
        let mut rig = Rig::<D>::new(&[]);
        let (id, mut server) = rig.connect();
        let (read, may_read) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            may_read.recv().unwrap();
            read_exactly(&mut server, 8 * PIECE)
        });
        let begun = Instant::now();
        let mut waited = 0;
        for round in 0..8_u8 {
            while rig.dialer.is_writing(id) {
                if waited == 1 {
                    read.send(()).unwrap();
                }
                waited += 1;
                assert!(begun.elapsed() < HANG, "the kernel never takes message {round}");
                rig.poll();
            }
            rig.dialer.write(id, |buffer| buffer.resize(PIECE, round));
        }
        // Unless it was done before.
        let _ = read.send(());
        while rig.dialer.is_writing(id) {
            assert!(begun.elapsed() < HANG, "the kernel never takes the last message");
            rig.poll();
        }
        let expected: Vec<u8> = (0..8_u8).flat_map(|round| vec![round; PIECE]).collect();
        assert!(reader.join().unwrap() == expected);
    }
}

on_both! {
    /// Purpose: a connection may be closed, and the dialer dropped, with a written message before its submission
    /// and in the middle: no event names it, and the next connection with its id sends its own bytes only.
    fn closed_while_writing<D>() {
        let large = vec![b'x'; 8 << 20];
        let mut rig = Rig::<D>::new(&[b"?"]);
        for round in 0..12 {
            let (id, server) = rig.connect();
            rig.dialer.write(id, |buffer| buffer.extend_from_slice(if round % 3 == 0 { b"small" } else { &large }));
            for _ in 0..round % 3 {
                rig.poll();
            }
            rig.dialer.close(id);
            rig.seen.clear();
            let (next, mut other) = rig.connect();
            assert_eq!(next, id);
            rig.dialer.write(next, |buffer| buffer.extend(b"mine"));
            rig.poll();
            assert_eq!(read_exactly(&mut other, 4), b"mine");
            assert_eq!(rig.seen, [Seen::Connected(next)]);
            rig.dialer.close(next);
            drop(server);
        }
        for polls in 0..3 {
            let (id, mut server) = rig.connect();
            rig.dialer.write(id, |buffer| buffer.extend_from_slice(&large));
            (0..polls).for_each(|_| rig.poll());
            let target = rig.listener.local_addr().unwrap();
            drop(std::mem::replace(&mut rig.dialer, dialer(target, &[b"?"], Vec::new())));
            let end = server.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
            assert!(matches!(end, Ok(_) | Err(ErrorKind::ConnectionReset)), "{end:?}");
        }
    }
}

on_both! {
    /// Purpose: many bytes from the server come in order and whole, more than there are buffers for.
    fn large_answers<D>() {
        let mut rig = Rig::<D>::new(&[b"?"]);
        let (id, mut server) = rig.connect();
        let large: Vec<u8> = (0..16_u32 << 20).map(|at| (at / 5) as u8).collect();
        let expected = large.clone();
        let writer = std::thread::spawn(move || server.write_all(&large));
        rig.until("end", |seen| seen.contains(&Seen::Eof(id)));
        writer.join().unwrap().unwrap();
        assert!(rig.received(id) == expected);
    }
}

on_both! {
    /// Purpose: after a close no event names the connection, whatever was in flight: a connect, a
    /// blocked send, bytes in transit. And the next connection with its id gets only its own
    /// events.
    fn closed_means_silent<D>() {
        let large = vec![b'x'; 8 << 20];
        let mut rig = Rig::<D>::new(&[&large]);
        for round in 0..20 {
            let (id, mut server) = rig.connect();
            match round % 4 {
                0 => rig.dialer.send(id, 0, large.len()),
                1 => {
                    rig.dialer.send(id, 0, large.len());
                    rig.poll();
                }
                2 => server.write_all(b"too late").unwrap(),
                _ => {}
            }
            rig.dialer.close(id);
            if round % 4 == 3 {
                let early = rig.dialer.connect().unwrap();
                rig.dialer.close(early);
            }
            rig.seen.clear();
            let next = rig.dialer.connect().unwrap();
            assert_eq!(next, id);
            rig.until("next", |seen| seen.contains(&Seen::Connected(next)));
            rig.poll();
            assert_eq!(rig.seen, [Seen::Connected(next)]);
            rig.dialer.close(next);
            rig.poll();
            // Both, and the one that was closed early if it came so far: gone for the server too.
            drop(server);
            while let Ok((stream, _)) = rig.listener.accept() {
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(HANG)).unwrap();
                assert_eq!((&stream).read(&mut [0; 16]).unwrap_or(0), 0);
            }
        }
    }
}

on_both! {
    /// Purpose: connections come from the given addresses in turn.
    fn sources_in_turn<D>() {
        let sources: Vec<IpAddr> = (2..5).map(|last| Ipv4Addr::new(127, 0, 0, last).into()).collect();
        let mut rig = Rig::<D>::with(&[b"?"], sources.clone());
        let peers: Vec<IpAddr> =
            (0..6).map(|_| rig.connect().1.peer_addr().unwrap().ip()).collect();
        assert_eq!(peers, [sources.clone(), sources].concat());
    }
}

on_both! {
    /// Purpose: a source address that this machine lacks is the caller's error, at once.
    fn foreign_source<D>() {
        let mut rig = Rig::<D>::with(&[b"?"], vec![Ipv4Addr::new(192, 0, 2, 1).into()]);
        assert!(rig.dialer.connect().is_err());
    }
}

on_both! {
    /// Purpose: a poll waits, and neither returns at once again and again nor sleeps for good.
    fn waits_as_told<D>() {
        let mut rig = Rig::<D>::new(&[b"?"]);
        for micros in [0, 300, 20_000] {
            let until = SystemClock.now() + Duration::from_micros(micros);
            let mut polls = 0;
            while SystemClock.now() < until {
                rig.dialer.poll(Wait::Until(until), &mut |event| panic!("{event:?}")).unwrap();
                polls += 1;
            }
            assert!(polls <= 3, "{polls} polls in {micros} us");
        }
    }
}

on_both! {
    /// Purpose: dropping a dialer with many operations in flight ends its connections.
    fn dropped<D>() {
        let large = vec![b'x'; 8 << 20];
        let mut rig = Rig::<D>::new(&[&large]);
        let (sending, first) = rig.connect();
        rig.dialer.send(sending, 0, large.len());
        let (_, second) = rig.connect();
        rig.dialer.connect().unwrap();
        // More than the kernel ends in one call.
        let mut servers: Vec<_> = (0..100).map(|_| rig.connect().1).collect();
        drop(rig.dialer);
        servers.extend([first, second]);
        for mut server in servers {
            let mut rest = Vec::new();
            // An end or a reset; what it must not do is wait for more.
            let end = server.read_to_end(&mut rest).map_err(|error| error.kind());
            assert!(matches!(end, Ok(_) | Err(ErrorKind::ConnectionReset)), "{end:?}");
        }
    }
}

on_both! {
    /// Purpose: a caller that could not look for a while learns when an answer came, so that the
    /// server is not charged for the wait. Real time is the subject.
    fn arrival<D>() {
        const AWAY: Duration = Duration::from_millis(200);
        /// The kernel's tick, twice.
        const TICKS: Duration = Duration::from_millis(20);
        let mut rig = Rig::<D>::new(&[b"?"]);
        let (id, mut server) = rig.connect();
        let began = Instant::now();
        server.write_all(b"answer").unwrap();
        let written = Instant::now();
        std::thread::sleep(AWAY);
        let (mut ago, mut away) = (None, Duration::ZERO);
        while ago.is_none() && began.elapsed() < HANG {
            let wait = Wait::Until(SystemClock.now() + Duration::from_millis(50));
            let on_event = &mut |event: Event<'_>| {
                if let Event::Received(of, _, arrival) = event {
                    assert_eq!(of, id);
                    away = written.elapsed();
                    ago = arrival.ago();
                }
            };
            rig.dialer.poll(wait, on_event).unwrap();
        }
        let ago = ago.expect("this kernel has TCP_INFO");
        assert!(ago + TICKS >= away && ago <= began.elapsed() + TICKS, "{ago:?} of {away:?}");
        assert_eq!(Arrival::known(AWAY).ago(), Some(AWAY));
    }
}

on_both! {
    /// Purpose: a closed connection counts until the kernel has let go of it, and no longer: a load
    /// generator that gives up many has no more of them than it may.
    fn closing<D>() {
        const COUNT: usize = 100;
        let mut rig = Rig::<D>::new(&[b"?"]);
        let pairs: Vec<(ConnId, TcpStream)> = (0..COUNT).map(|_| rig.connect()).collect();
        assert_eq!(rig.dialer.closing(), 0);
        for (id, _) in &pairs {
            rig.dialer.close(*id);
        }
        assert!(rig.dialer.closing() <= COUNT);
        let began = Instant::now();
        while rig.dialer.closing() > 0 {
            assert!(began.elapsed() < HANG, "{} live on", rig.dialer.closing());
            rig.poll();
        }
        // A close may only be submitted by then.
        rig.poll();
        for (_, mut server) in pairs {
            assert_eq!(server.read(&mut [0]).unwrap_or(0), 0);
        }
    }
}
