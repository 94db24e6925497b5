//! Shared by the tests of all drivers: a driver with a log of its events, and real clients.
#![allow(dead_code, unreachable_pub, reason = "every test binary uses its part")]

use std::collections::HashSet;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use highwater_core::driver::{
    AcceptError, Accepting, ConnId, Event, ListenerId, Output, Reading, Then, Wait,
};
use highwater_core::time::Clock;
use highwater_sys::epoll::Epoll;
use highwater_sys::portable::Portable;
use highwater_sys::uring::Uring;
use highwater_sys::{DriverConfig, External, Listener, probe};

/// No step of a test takes this long unless something hangs.
pub const HANG: Duration = Duration::from_secs(20);

/// The only listener of most tests.
pub const FIRST: ListenerId = ListenerId(0);

/// A driver the tests run on.
pub trait Subject: External + Sized {
    fn start(listeners: Vec<Listener>, config: &DriverConfig) -> io::Result<Self>;
    /// Whether it works on this machine. If not, says so loudly.
    fn available() -> bool;
}

impl Subject for Uring {
    fn start(listeners: Vec<Listener>, config: &DriverConfig) -> io::Result<Self> {
        Uring::new(listeners, config)
    }

    fn available() -> bool {
        match probe().uring {
            Ok(()) => true,
            Err(reason) => {
                highwater_skip::skip("io_uring", reason);
                false
            }
        }
    }
}

impl Subject for Epoll {
    fn start(listeners: Vec<Listener>, config: &DriverConfig) -> io::Result<Self> {
        Epoll::new(listeners, config)
    }

    fn available() -> bool {
        true
    }
}

impl Subject for Portable {
    fn start(listeners: Vec<Listener>, config: &DriverConfig) -> io::Result<Self> {
        Portable::new(listeners, config)
    }

    fn available() -> bool {
        true
    }
}

/// Runs the following test on each driver.
#[macro_export]
macro_rules! on_each {
    ($(#[$doc:meta])* fn $name:ident<$driver:ident>() $body:block) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $(#[$doc])*
            fn test<$driver: $crate::common::Subject>() $body

            #[test]
            fn uring() {
                use $crate::common::Subject;
                if highwater_sys::uring::Uring::available() {
                    test::<highwater_sys::uring::Uring>();
                }
            }

            #[test]
            fn epoll() {
                test::<highwater_sys::epoll::Epoll>();
            }

            #[test]
            fn portable() {
                test::<highwater_sys::portable::Portable>();
            }
        }
    };
}

/// An event, with its bytes copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Accepted(ConnId, ListenerId, Option<SocketAddr>),
    Received(ConnId, Vec<u8>),
    Eof(ConnId),
    HungUp(ConnId),
    Progress(ConnId),
    Sent(ConnId),
    Closed(ConnId),
    AcceptFailed(AcceptError),
}

impl Seen {
    fn of(event: &Event<'_>) -> Seen {
        match event {
            Event::Accepted(id, at, peer) => Seen::Accepted(*id, *at, *peer),
            Event::Received(id, bytes) => Seen::Received(*id, bytes.to_vec()),
            Event::Eof(id) => Seen::Eof(*id),
            Event::HungUp(id) => Seen::HungUp(*id),
            Event::Progress(id) => Seen::Progress(*id),
            Event::Sent(id, _) => Seen::Sent(*id),
            Event::Closed(id) => Seen::Closed(*id),
            Event::AcceptFailed(error) => Seen::AcceptFailed(*error),
        }
    }
}

/// A driver, and what it has reported. Checks every event against the contract's general promises.
pub struct Rig<D> {
    pub driver: D,
    pub addr: SocketAddr,
    /// Of further listeners.
    pub others: Vec<SocketAddr>,
    pub log: Vec<Seen>,
    open: HashSet<ConnId>,
    ended: HashSet<ConnId>,
    hung_up: HashSet<ConnId>,
    sending: HashSet<ConnId>,
    /// Whether the next poll comes behind `report_done`: every second one does.
    pub asks_first: bool,
}

impl<D: Subject> Rig<D> {
    pub fn new() -> Rig<D> {
        Rig::with(&DriverConfig::default())
    }

    pub fn with(config: &DriverConfig) -> Rig<D> {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), 1024).unwrap();
        let addr = listener.local_addr().unwrap();
        let mut driver = D::start(vec![listener], config).unwrap();
        driver.accept(FIRST, Accepting::On);
        Rig::of(driver, addr)
    }

    /// A rig around `driver`, which listens on `addr`.
    pub fn of(driver: D, addr: SocketAddr) -> Rig<D> {
        Rig {
            driver,
            addr,
            others: Vec::new(),
            log: Vec::new(),
            open: HashSet::new(),
            ended: HashSet::new(),
            hung_up: HashSet::new(),
            sending: HashSet::new(),
            asks_first: false,
        }
    }

    pub fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.addr).unwrap();
        client.set_nodelay(true).unwrap();
        client.set_read_timeout(Some(HANG)).unwrap();
        client.set_write_timeout(Some(HANG)).unwrap();
        client
    }

    /// A client, and its connection.
    pub fn accepted(&mut self) -> (TcpStream, ConnId) {
        let client = self.connect();
        let before = self.log.len();
        let mut id = None;
        self.until("Accepted", |rig| {
            id = rig.log[before..].iter().find_map(|seen| match seen {
                Seen::Accepted(id, ..) => Some(*id),
                _ => None,
            });
            id.is_some()
        });
        (client, id.unwrap())
    }

    /// One poll, waiting up to `timeout`; every second time, the driver first reports what commands have done already.
    pub fn poll(&mut self, timeout: Duration) {
        let Rig { driver, log, open, ended, hung_up, sending, asks_first, .. } = self;
        let on_event = &mut |event: Event<'_>| {
            let seen = Seen::of(&event);
            match &seen {
                Seen::Accepted(id, ..) => assert!(open.insert(*id), "{id:?} accepted twice"),
                Seen::Received(id, bytes) => {
                    assert!(open.contains(id) && !bytes.is_empty(), "{seen:?}");
                    assert!(!ended.contains(id), "R5: {seen:?}");
                }
                Seen::Eof(id) => assert!(open.contains(id) && ended.insert(*id), "R5: {seen:?}"),
                Seen::HungUp(id) => {
                    assert!(open.contains(id) && hung_up.insert(*id), "R9, twice: {seen:?}");
                    assert!(!ended.contains(id), "R9, behind Eof: {seen:?}");
                }
                Seen::Progress(id) => assert!(open.contains(id) && sending.contains(id), "R2"),
                Seen::Sent(id) => assert!(open.contains(id) && sending.remove(id), "R2: {seen:?}"),
                Seen::Closed(id) => {
                    assert!(open.remove(id), "R3: {seen:?}");
                    ended.remove(id);
                    hung_up.remove(id);
                    sending.remove(id);
                }
                Seen::AcceptFailed(_) => {}
            }
            log.push(seen);
        };
        let mut is_done = false;
        if std::mem::replace(asks_first, !*asks_first) {
            driver.report_done(&mut |event| {
                is_done = true;
                on_event(event);
            });
        }
        let wait = match timeout {
            _ if is_done => Wait::No,
            Duration::ZERO => Wait::No,
            _ => Wait::Until(driver.clock().now() + timeout),
        };
        driver.poll(wait, on_event).unwrap();
    }

    /// Polls until `done`; panics with the end of the log if that never happens.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(start.elapsed() < HANG, "no {what}; last seen: {:#?}", self.last_seen());
            self.poll(Duration::from_millis(50));
        }
    }

    /// The end of the log, without all the bytes.
    fn last_seen(&self) -> Vec<String> {
        let tail = &self.log[self.log.len().saturating_sub(20)..];
        let short = |seen: &Seen| format!("{seen:?}").chars().take(100).collect();
        tail.iter().map(short).collect()
    }

    pub fn until_seen(&mut self, what: &Seen) {
        self.until(&format!("{what:?}"), |rig| rig.log.contains(what));
    }

    /// Polls as long as something comes at once, then a little longer.
    pub fn settle(&mut self) {
        let mut quiet = 0;
        while quiet < 3 {
            let before = self.log.len();
            self.poll(Duration::from_millis(20));
            quiet = if self.log.len() == before { quiet + 1 } else { 0 };
        }
    }

    pub fn send(&mut self, id: ConnId, bytes: &[u8], then: Then) {
        self.send_output(id, Output { bytes: bytes.to_vec(), tail: Default::default() }, then);
    }

    pub fn send_output(&mut self, id: ConnId, output: Output, then: Then) {
        assert!(self.sending.insert(id), "O1: the test is wrong");
        self.driver.send(id, output, then);
    }

    pub fn stream(&mut self, id: ConnId) {
        self.driver.read(id, Reading::Stream);
    }

    /// All bytes received from a connection so far.
    pub fn received(&self, id: ConnId) -> Vec<u8> {
        let bytes = self.log.iter().filter_map(|seen| match seen {
            Seen::Received(of, bytes) if *of == id => Some(bytes.as_slice()),
            _ => None,
        });
        bytes.collect::<Vec<_>>().concat()
    }

    pub fn count(&self, matches: impl Fn(&Seen) -> bool) -> usize {
        self.log.iter().filter(|seen| matches(seen)).count()
    }

    pub fn open(&self) -> usize {
        self.open.len()
    }
}

/// `len` bytes in which every offset can be told from its neighbours.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

/// A slow reader of `output`, then FIN: everything arrives, and progress is reported before the reader begins. How often
/// after that depends on who is faster.
pub fn slow_reader<D: Subject>(output: Output, then: Then) {
    let mut rig = Rig::<D>::new();
    let (mut client, id) = rig.accepted();
    let expected = [&output.bytes[..], &output.tail[..]].concat();
    rig.send_output(id, output, then);
    rig.until_seen(&Seen::Progress(id));
    rig.settle();
    assert!(!rig.log.contains(&Seen::Sent(id)), "the client has read nothing yet");
    let reader = thread::spawn(move || {
        let mut all = vec![0; expected.len()];
        client.read_exact(&mut all).unwrap();
        (all == expected, client)
    });
    rig.until_seen(&Seen::Sent(id));
    let (equal, mut client) = reader.join().unwrap();
    assert!(equal);
    if then == Then::Close {
        rig.until_seen(&Seen::Closed(id));
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    } else {
        assert!(rig.log.last() == Some(&Seen::Sent(id)));
    }
}
