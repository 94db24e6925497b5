//! The drivers against the driver contract: accepting, pausing, and running out of things.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;

use common::*;
use highwater_core::driver::{AcceptError, Accepting, Close, ConnId};
use highwater_sys::{DriverConfig, Listener, limits};

on_each! {
    /// Purpose: the peer's address is looked up when asked for, and only then.
    fn peer_addresses<D>() {
        for peer_addresses in [true, false] {
            let mut rig = Rig::<D>::with(&DriverConfig { peer_addresses, ..Default::default() });
            let client = rig.connect();
            let peer = peer_addresses.then(|| client.local_addr().unwrap());
            rig.until_seen(&Seen::Accepted(ConnId(0), FIRST, peer));
        }
    }
}

on_each! {
    /// Purpose: while paused, connections wait in the listen queue and are accepted afterwards.
    fn paused_then_on<D>() {
        let mut rig = Rig::<D>::new();
        rig.settle();
        rig.driver.accept(FIRST, Accepting::Paused);
        rig.settle();
        let waiting: Vec<_> = (0..10).map(|_| rig.connect()).collect();
        rig.settle();
        assert_eq!(rig.open(), 0);
        rig.driver.accept(FIRST, Accepting::On);
        rig.until("all accepted", |rig| rig.open() == 10);
        drop(waiting);
    }
}

on_each! {
    /// Purpose: pausing and resuming faster than the kernel answers ends up accepting.
    fn paused_and_on_in_quick_succession<D>() {
        let mut rig = Rig::<D>::new();
        let mut waiting = Vec::new();
        for round in 0..50 {
            rig.driver.accept(FIRST, Accepting::Paused);
            waiting.push(rig.connect());
            if round % 3 == 0 {
                rig.poll(std::time::Duration::ZERO);
            }
            rig.driver.accept(FIRST, Accepting::On);
            rig.driver.accept(FIRST, Accepting::On);
        }
        rig.until("all accepted", |rig| rig.open() == 50);
    }
}

on_each! {
    /// Purpose: at the end, what waits is accepted, then the port refuses.
    fn closed_drains_the_queue<D>() {
        let mut rig = Rig::<D>::new();
        rig.driver.accept(FIRST, Accepting::Paused);
        rig.settle();
        let waiting: Vec<_> = (0..10).map(|_| rig.connect()).collect();
        rig.driver.accept(FIRST, Accepting::Closed);
        rig.until("all accepted", |rig| rig.open() == 10);
        rig.settle();
        let refused = TcpStream::connect(rig.addr).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        // Never again means never.
        rig.driver.accept(FIRST, Accepting::On);
        rig.settle();
        assert!(TcpStream::connect(rig.addr).is_err());
        drop(waiting);
    }
}

on_each! {
    /// Purpose: closing straight from accepting, with clients connecting all the while.
    fn closed_while_accepting<D>() {
        let mut rig = Rig::<D>::new();
        let waiting: Vec<_> = (0..10).map(|_| rig.connect()).collect();
        rig.poll(std::time::Duration::ZERO);
        rig.driver.accept(FIRST, Accepting::Closed);
        rig.until("all accepted", |rig| rig.open() == 10);
        rig.settle();
        assert!(TcpStream::connect(rig.addr).is_err());
        drop(waiting);
    }
}

on_each! {
    /// Purpose: the driver's own bound on connections stops accepting, and closing one resumes.
    fn connections_max<D>() {
        let mut rig = Rig::<D>::with(&DriverConfig { connections_max: 3, ..Default::default() });
        let mut clients: Vec<_> = (0..3).map(|_| rig.connect()).collect();
        rig.until_seen(&Seen::AcceptFailed(AcceptError::Descriptors));
        rig.settle();
        assert_eq!(rig.open(), 3);
        clients.push(rig.connect());
        rig.settle();
        assert_eq!(rig.open(), 3, "the fourth waits");
        rig.driver.close(ConnId(1), Close::Fin);
        rig.until_seen(&Seen::Closed(ConnId(1)));
        rig.driver.accept(FIRST, Accepting::On);
        rig.until("the fourth", |rig| rig.open() == 3);
    }
}

on_each! {
    /// Purpose: accepted connections inherit TCP_NODELAY from the listener (no call per connection), and the bound on what the
    /// kernel takes for a client that does not read.
    fn options_are_inherited<D>() {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), 8).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let owned = listener.as_fd().try_clone_to_owned().unwrap();
        let (accepted, _) = std::net::TcpListener::from(owned).accept().unwrap();
        assert!(accepted.nodelay().unwrap());
        accepted.set_nonblocking(true).unwrap();
        let pieces = std::iter::repeat_with(|| (&accepted).write(&[0; 16 * 1024]));
        let taken: usize = pieces.map_while(Result::ok).take(1_000).sum();
        // What the client's kernel takes is on top.
        assert!((100_000..1_500_000).contains(&taken), "{taken}");
        drop(client);
    }
}

/// Purpose: a socket that other code made listens, and other listeners can be made beside it: each
/// connection reaches one of them.
#[test]
fn adopted_listeners_are_joined() {
    let theirs = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = theirs.local_addr().unwrap();
    let before = TcpStream::connect(addr).unwrap();
    let first = Listener::adopt(theirs).unwrap();
    let second = first.another().unwrap();
    assert_eq!(second.local_addr().unwrap(), addr);
    let clients: Vec<_> = (0..64).map(|_| TcpStream::connect(addr).unwrap()).collect();
    let waiting = |listener: &Listener| listener.queue().waiting().unwrap();
    assert_eq!(waiting(&first) + waiting(&second), 65);
    assert!(waiting(&first) > 1 && waiting(&second) > 0, "the kernel spreads them");
    drop((before, clients));
}

on_each! {
    /// Purpose: drivers that share one socket accept each connection once, however many they are.
    fn shared_listeners<D>() {
        let theirs = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let first = Listener::adopt(theirs).unwrap();
        let addr = first.local_addr().unwrap();
        let second = first.share().unwrap();
        let config = DriverConfig::default();
        let start = |listener| {
            let mut driver = D::start(vec![listener], &config).unwrap();
            driver.accept(FIRST, Accepting::On);
            Rig::<D>::of(driver, addr)
        };
        let (mut one, mut other) = (start(first), start(second));
        let clients: Vec<_> = (0..32).map(|_| one.connect()).collect();
        one.until("all are accepted", |one| {
            other.settle();
            one.open() + other.open() == 32
        });
        one.settle();
        other.settle();
        assert_eq!(one.open() + other.open(), 32);
        drop(clients);
    }
}

/// Purpose: several listeners share a port chosen by the kernel; a stranger does not get in.
#[test]
fn another_listener_shares_the_port() {
    let first = Listener::bind("127.0.0.1:0".parse().unwrap(), 8).unwrap();
    let addr = first.local_addr().unwrap();
    let second = first.another().unwrap();
    let third = second.another().unwrap();
    assert_eq!(second.local_addr().unwrap(), addr);
    assert_eq!(third.local_addr().unwrap(), addr);

    let taken = Listener::bind(addr, 8).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    assert!(taken.to_string().starts_with(&format!("cannot listen on {addr}: ")), "{taken}");
    drop((first, second, third));
    Listener::bind(addr, 8).expect("the port is free again");
}

/// Purpose: IPv6 listens, its wildcard takes IPv4 too, and an absent address is explained.
#[test]
fn ipv6_and_absent_addresses() {
    if let Ok(listener) = Listener::bind("[::]:0".parse().unwrap(), 8) {
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect(("::1", port)).unwrap();
        TcpStream::connect(("127.0.0.1", port)).unwrap();
    } else {
        highwater_skip::skip("ipv6", "no socket can be had");
    }
    let absent = Listener::bind("192.0.2.1:80".parse().unwrap(), 8).unwrap_err();
    assert!(absent.to_string().contains("no such address"), "{absent}");
}

/// Purpose: when descriptors run out, accepting stops with a reason, and resumes on command after
/// one was closed. In a process of its own, because the limit is one of the process.
#[test]
fn out_of_descriptors() {
    const CHILD: &str = "HIGHWATER_TEST_OUT_OF_DESCRIPTORS";
    match std::env::var(CHILD).as_deref() {
        Ok("uring") => run_out_of_descriptors::<highwater_sys::uring::Uring>(),
        Ok("portable") => run_out_of_descriptors::<highwater_sys::portable::Portable>(),
        Ok(_) => run_out_of_descriptors::<highwater_sys::epoll::Epoll>(),
        Err(_) => {
            for driver in ["uring", "epoll", "portable"] {
                if driver == "uring" && !highwater_sys::uring::Uring::available() {
                    continue;
                }
                let child = std::process::Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "out_of_descriptors", "--nocapture"])
                    .env(CHILD, driver)
                    .status();
                assert!(child.unwrap().success(), "{driver}");
            }
        }
    }
}

fn run_out_of_descriptors<D: Subject>() {
    let mut rig = Rig::<D>::new();
    let mut clients: Vec<_> = (0..20).map(|_| rig.connect()).collect();
    rig.until("all accepted", |rig| rig.open() == 20);
    clients.extend((0..5).map(|_| {
        rig.driver.accept(FIRST, Accepting::Paused);
        rig.settle();
        rig.connect()
    }));
    // Two more than are open now.
    let next = std::fs::File::open("/proc/self/stat").unwrap();
    let next = std::os::fd::AsRawFd::as_raw_fd(&next) as u64;
    let before = limits::descriptors().unwrap().soft;
    limits::set_descriptors_soft(next + 2).unwrap();
    rig.driver.accept(FIRST, Accepting::On);
    rig.until_seen(&Seen::AcceptFailed(AcceptError::Descriptors));
    rig.settle();
    let stuck = rig.open();
    assert!((20..25).contains(&stuck), "{stuck}");
    assert_eq!(rig.count(|seen| matches!(seen, Seen::AcceptFailed(_))), 1, "said once");

    rig.driver.close(ConnId(0), Close::Fin);
    rig.until_seen(&Seen::Closed(ConnId(0)));
    rig.settle();
    assert_eq!(rig.open(), stuck - 1, "not before it is told to");
    rig.driver.accept(FIRST, Accepting::On);
    rig.until("one more", |rig| rig.open() == stuck);
    limits::set_descriptors_soft(before).unwrap();
    rig.driver.accept(FIRST, Accepting::On);
    rig.until("the rest", |rig| rig.open() == 24);
    assert_eq!(clients[0].read(&mut [0]).unwrap(), 0);
}
