//! The drivers against the driver contract: several listeners, shared ones, and Unix sockets.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use common::*;
use highwater_core::driver::{AcceptError, Accepting, Close, ConnId, ListenerId, Reading, Then};
use highwater_sys::{Driver, DriverConfig, Listener, SocketFile, bind_unix};

const SECOND: ListenerId = ListenerId(1);

/// A driver with two listeners, which accepts nothing yet.
fn two<D: Subject>(config: &DriverConfig) -> Rig<D> {
    let listeners = [(); 2].map(|()| Listener::bind("127.0.0.1:0".parse().unwrap(), 64).unwrap());
    let addresses = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
    let driver = D::start(listeners.into(), config).unwrap();
    let mut rig = Rig::of(driver, addresses[0]);
    rig.others = vec![addresses[1]];
    rig
}

impl<D: Subject> Rig<D> {
    fn connect_second(&self) -> TcpStream {
        TcpStream::connect(self.others[0]).unwrap()
    }

    fn accepted_at(&self, listener: ListenerId) -> usize {
        self.count(|seen| matches!(seen, Seen::Accepted(_, at, _) if *at == listener))
    }
}

/// A path for a socket, and its directory for the time of a test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let name = format!("hw-listeners-{name}-{:?}", std::thread::current().id());
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn bind(&self, backlog: u32) -> (Listener, SocketFile, PathBuf) {
        let path = self.0.join("s");
        let (listener, file) = bind_unix(&path, None, backlog).unwrap();
        (listener, file, path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

on_each! {
    /// Purpose: a connection names the listener it came in at, and each listener is opened on its own.
    fn each_accepts_on_its_own<D>() {
        let mut rig = two::<D>(&DriverConfig::default());
        let clients = [rig.connect(), rig.connect_second(), rig.connect_second()];
        rig.settle();
        assert_eq!(rig.open(), 0, "neither accepts before it is told to");
        rig.driver.accept(SECOND, Accepting::On);
        rig.until("both at the second", |rig| rig.accepted_at(SECOND) == 2);
        rig.settle();
        assert_eq!(rig.accepted_at(FIRST), 0);
        rig.driver.accept(FIRST, Accepting::On);
        rig.until("the one at the first", |rig| rig.accepted_at(FIRST) == 1);
        rig.driver.accept(SECOND, Accepting::Paused);
        rig.settle();
        let late = [rig.connect_second(), rig.connect()];
        rig.until("the next at the first", |rig| rig.accepted_at(FIRST) == 2);
        rig.settle();
        assert_eq!(rig.accepted_at(SECOND), 2);
        drop((clients, late));
    }
}

on_each! {
    /// Purpose: a bound of one listener is not used up, or raised, at another.
    fn each_has_its_own_bound<D>() {
        let mut rig = two::<D>(&DriverConfig::default());
        rig.driver.accept(FIRST, Accepting::Few(2));
        rig.driver.accept(SECOND, Accepting::Few(1));
        let mut clients: Vec<_> = (0..4).map(|_| rig.connect()).collect();
        clients.extend((0..4).map(|_| rig.connect_second()));
        rig.until("three", |rig| rig.open() == 3);
        rig.settle();
        assert_eq!((rig.accepted_at(FIRST), rig.accepted_at(SECOND)), (2, 1));
        rig.driver.accept(SECOND, Accepting::Few(2));
        rig.until("two more", |rig| rig.open() == 5);
        rig.settle();
        assert_eq!((rig.accepted_at(FIRST), rig.accepted_at(SECOND)), (2, 3));
    }
}

on_each! {
    /// Purpose: a listener is closed without the others, and what waited there is accepted before.
    fn one_is_closed<D>() {
        let mut rig = two::<D>(&DriverConfig::default());
        rig.driver.accept(FIRST, Accepting::On);
        let waiting = [rig.connect_second(), rig.connect_second()];
        rig.driver.accept(SECOND, Accepting::Closed);
        rig.until("what waited", |rig| rig.accepted_at(SECOND) == 2);
        rig.settle();
        assert!(TcpStream::connect(rig.others[0]).is_err(), "it is closed");
        rig.accepted();
        drop(waiting);
    }
}

on_each! {
    /// Purpose: a shortage stops accepting everywhere and is reported once; each listener resumes when told to.
    fn a_shortage_stops_all<D>() {
        let mut rig = two::<D>(&DriverConfig { connections_max: 2, ..Default::default() });
        rig.driver.accept(FIRST, Accepting::On);
        rig.driver.accept(SECOND, Accepting::On);
        let clients = [rig.connect(), rig.connect_second()];
        rig.until_seen(&Seen::AcceptFailed(AcceptError::Descriptors));
        rig.until("both", |rig| rig.open() == 2);
        let waiting = [rig.connect(), rig.connect_second()];
        rig.settle();
        assert_eq!(rig.open(), 2);
        assert_eq!(rig.count(|seen| matches!(seen, Seen::AcceptFailed(_))), 1, "said once");
        for id in [ConnId(0), ConnId(1)] {
            rig.driver.close(id, Close::Fin);
            rig.until_seen(&Seen::Closed(id));
        }
        rig.driver.accept(SECOND, Accepting::Few(1));
        rig.until("one at the second", |rig| rig.accepted_at(SECOND) == 2);
        rig.settle();
        assert_eq!(rig.accepted_at(FIRST), 1, "nobody asked the first");
        drop((clients, waiting));
    }
}

on_each! {
    /// Purpose: connections over a Unix socket behave as those over TCP: bytes both ways, end of input, close; and
    /// their peers have no address.
    fn unix_sockets<D>() {
        let directory = Directory::new("bytes");
        let (unix, _file, path) = directory.bind(64);
        let tcp = Listener::bind("127.0.0.1:0".parse().unwrap(), 64).unwrap();
        let addr = tcp.local_addr().unwrap();
        let config = DriverConfig { peer_addresses: true, ..Default::default() };
        let mut rig = Rig::<D>::of(D::start(vec![tcp, unix], &config).unwrap(), addr);
        rig.driver.accept(SECOND, Accepting::On);
        let mut client = UnixStream::connect(&path).unwrap();
        client.set_read_timeout(Some(HANG)).unwrap();
        let id = ConnId(0);
        rig.until_seen(&Seen::Accepted(id, SECOND, None));
        assert_eq!(rig.driver.peer(id), None);
        rig.driver.read(id, Reading::Stream);
        let sent = pattern(300_000);
        let (mut writer, copy) = (client.try_clone().unwrap(), sent.clone());
        let writing = std::thread::spawn(move || {
            writer.write_all(&copy).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        rig.until_seen(&Seen::Eof(id));
        writing.join().unwrap();
        assert!(rig.received(id) == sent, "all bytes, in order");
        rig.send(id, &sent, Then::Close);
        let reading = std::thread::spawn(move || {
            let mut received = Vec::new();
            client.read_to_end(&mut received).unwrap();
            received
        });
        rig.until_seen(&Seen::Closed(id));
        assert!(reading.join().unwrap() == sent, "the answer");
        // A client that goes is noticed, also while nothing is read.
        let client = UnixStream::connect(&path).unwrap();
        rig.until("the next", |rig| rig.accepted_at(SECOND) == 2);
        rig.driver.read(id, Reading::Stop);
        rig.settle();
        drop(client);
        rig.until_seen(&Seen::HungUp(id));
        assert!(rig.driver.is_hung_up(id));
    }
}

on_each! {
    /// Purpose: workers that share a socket accept each connection once, within their bounds, and what one
    /// may not accept the other does.
    fn shared_sockets_have_bounds<D>() {
        let directory = Directory::new("shared");
        let (first, _file, path) = directory.bind(64);
        let second = first.share().unwrap();
        let addr = "127.0.0.1:1".parse().unwrap();
        let config = DriverConfig::default();
        let start = |listener| Rig::<D>::of(D::start(vec![listener], &config).unwrap(), addr);
        let (mut one, mut other) = (start(first), start(second));
        one.driver.accept(FIRST, Accepting::Few(3));
        let clients: Vec<_> = (0..8).map(|_| UnixStream::connect(&path).unwrap()).collect();
        one.until("three", |one| one.open() == 3);
        one.settle();
        other.settle();
        assert_eq!((one.open(), other.open()), (3, 0));
        other.driver.accept(FIRST, Accepting::On);
        other.until("the others", |other| other.open() == 5);
        one.driver.accept(FIRST, Accepting::Closed);
        one.settle();
        let late = UnixStream::connect(&path).unwrap();
        other.until("one after the first has closed", |other| other.open() == 6);
        drop((clients, late));
    }
}

on_each! {
    /// Purpose: a connection that has woken one driver of a shared socket is accepted by another if the first is told to
    /// accept no more before it looks. Once, io_uring woke only one, and the connection waited for the next.
    fn a_wake_up_is_not_lost_with_its_driver<D>() {
        let addr = "127.0.0.1:1".parse().unwrap();
        let config = DriverConfig::default();
        for pauses_first in [true, false] {
            let directory = Directory::new("woken");
            let (first, _file, path) = directory.bind(64);
            let second = first.share().unwrap();
            let start = |listener| Rig::<D>::of(D::start(vec![listener], &config).unwrap(), addr);
            let mut rigs = [start(first), start(second)];
            for rig in &mut rigs {
                rig.driver.accept(FIRST, Accepting::On);
                rig.settle();
            }
            if !pauses_first {
                rigs.reverse();
            }
            let client = UnixStream::connect(&path).unwrap();
            let [pausing, other] = &mut rigs;
            pausing.driver.accept(FIRST, Accepting::Paused);
            pausing.settle();
            other.until("it accepts", |other| other.open() + pausing.open() == 1);
            drop(client);
        }
    }
}

on_each! {
    /// Purpose: a driver that closes a socket which another process keeps leaves most of a long queue to it, or a drain
    /// under overload would never end; and none of the queue is lost.
    fn a_kept_socket_is_left_to_others<D>() {
        let directory = Directory::new("kept");
        let (mut first, _file, path) = directory.bind(256);
        first.set_kept();
        let others = first.share().unwrap();
        let addr = "127.0.0.1:1".parse().unwrap();
        let config = DriverConfig::default();
        let clients: Vec<_> = (0..200).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let mut rig = Rig::<D>::of(D::start(vec![first], &config).unwrap(), addr);
        rig.driver.accept(FIRST, Accepting::Closed);
        rig.settle();
        assert!((1..=64).contains(&rig.open()), "{}", rig.open());
        let mut successor = Rig::<D>::of(D::start(vec![others], &config).unwrap(), addr);
        successor.driver.accept(FIRST, Accepting::On);
        successor.until("the rest", |successor| successor.open() + rig.open() == clients.len());
    }
}

on_each! {
    /// Purpose: a driver that ends, or closes its listener, leaves a shared socket as it was: the other goes on,
    /// over whichever driver.
    fn a_shared_socket_outlives_a_driver<D>() {
        let directory = Directory::new("outlives");
        let (first, _file, path) = directory.bind(64);
        let second = first.share().unwrap();
        let addr = "127.0.0.1:1".parse().unwrap();
        let config = DriverConfig::default();
        let epoll = highwater_sys::epoll::Epoll::new(vec![second], &config).unwrap();
        let mut epoll = Rig::of(epoll, addr);
        let mut rig = Rig::<D>::of(D::start(vec![first], &config).unwrap(), addr);
        rig.driver.accept(FIRST, Accepting::On);
        rig.settle();
        epoll.driver.accept(FIRST, Accepting::On);
        epoll.settle();
        drop(rig);
        let client = UnixStream::connect(&path).unwrap();
        epoll.until("it accepts", |epoll| epoll.open() == 1);
        // Nobody waits in accept(2): that would keep a worker from its connections.
        epoll.poll(Duration::ZERO);
        drop(client);
    }
}
