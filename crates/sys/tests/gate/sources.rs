//! How the gate before a server's own listeners divides its places among sources.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use highwater_sys::bpf::{Counts, Mode};

use super::{accept_all, assert_refused, assert_silent, connect, gated, in_namespace};

/// Nobody gets another connection within a test.
const LONG: Option<Duration> = Some(Duration::from_secs(1000));

/// Connects from `source`.
fn connect_from(source: &str, address: SocketAddr) -> io::Result<TcpStream> {
    let source: IpAddr = source.parse().expect("an address");
    let (family, local, remote) = match (source, address) {
        (IpAddr::V4(_), _) => {
            (libc::AF_INET, sockaddr(SocketAddr::new(source, 0)), sockaddr(address))
        }
        (IpAddr::V6(_), _) => {
            (libc::AF_INET6, sockaddr(SocketAddr::new(source, 0)), sockaddr(address))
        }
    };
    let check = |result: i32| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) };
    // SAFETY: takes no pointers.
    let fd = check(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel has just given it to us.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the address is as long as the length says.
    check(unsafe { libc::bind(fd, (&raw const local.0).cast(), local.1) })?;
    // SAFETY: as above.
    check(unsafe { libc::connect(fd, (&raw const remote.0).cast(), remote.1) })?;
    Ok(TcpStream::from(owned))
}

/// An address as the kernel reads it, and its length.
fn sockaddr(address: SocketAddr) -> (libc::sockaddr_in6, libc::socklen_t) {
    // SAFETY: plain integers, for which all zero bits are valid.
    let mut raw: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    match address {
        SocketAddr::V4(address) => {
            raw.sin6_family = libc::AF_INET as libc::sa_family_t;
            raw.sin6_port = address.port().to_be();
            // The address stands where that of IPv6 has its flow label.
            raw.sin6_flowinfo = u32::from_ne_bytes(address.ip().octets());
            (raw, size_of::<libc::sockaddr_in>() as libc::socklen_t)
        }
        SocketAddr::V6(address) => {
            raw.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            raw.sin6_port = address.port().to_be();
            raw.sin6_addr.s6_addr = address.ip().octets();
            (raw, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
        }
    }
}

#[track_caller]
fn assert_refused_from(source: &str, address: SocketAddr) {
    let error = connect_from(source, address).expect_err("it has had its share");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");
}

/// Purpose: a source that has had its share is refused, by a reset or silently, and others are not; without a level
/// nobody is, and attempts are counted.
#[test]
fn each_source_has_its_share() {
    in_namespace(|| {
        let (_listeners, address, gate) = gated("127.0.0.1:0", 2, 1000);
        let (mut clients, sources) = (Vec::new(), gate.sources());
        sources.count();
        clients
            .extend((0..40).map(|_| connect_from("127.0.0.2", address).expect("no level is set")));
        assert_eq!(sources.seen().sum::<u64>(), 40);
        assert_eq!(sources.seen().max(), Some(40), "they are one source");

        sources.set_gap(LONG);
        clients.extend((0..16).map(|_| connect_from("127.0.0.2", address).expect("a burst")));
        assert_refused_from("127.0.0.2", address);
        clients.push(connect_from("127.0.0.3", address).expect("another source"));
        assert_eq!((sources.refused(), gate.words().counts().reset), (1, 1));

        gate.words().set_mode(Mode::Drop);
        clients.extend((0..15).map(|_| connect_from("127.0.0.3", address).expect("a burst")));
        clients.extend((0..16).map(|_| connect(address).expect("a burst")));
        assert_silent(address);
        assert!(sources.refused() >= 2);
        assert_eq!(gate.words().taken(), clients.len() as i64, "what is refused takes no place");

        gate.words().set_mode(Mode::Reset);
        sources.set_gap(None);
        clients.push(connect_from("127.0.0.2", address).expect("no level is set"));
        sources.stop();
        let seen = sources.seen().sum::<u64>();
        clients.push(connect_from("127.0.0.2", address).expect("sources are not looked at"));
        assert_eq!(sources.seen().sum::<u64>(), seen);
    });
}

/// Purpose: where a source that is ahead finds no place, one far below the level finds one, up to four times the limit and
/// no further.
#[test]
fn a_quiet_source_finds_a_place() {
    in_namespace(|| {
        let (listeners, address, gate) = gated("127.0.0.1:0", 1, 9);
        gate.sources().count();
        gate.sources().set_gap(LONG);
        let mut clients: Vec<_> =
            (0..9).map(|_| connect_from("127.0.0.2", address).expect("there is room")).collect();
        assert_refused_from("127.0.0.2", address);
        for (source, count) in
            [("127.0.0.3", 8), ("127.0.0.4", 8), ("127.0.0.5", 8), ("127.0.0.6", 3)]
        {
            let connect = |_| connect_from(source, address).expect("it has credit");
            clients.extend((0..count).map(connect));
        }
        assert_refused(address);
        assert_refused_from("127.0.0.6", address);
        assert_eq!(accept_all(&listeners).len(), 36);
        assert_eq!(gate.words().counts(), Counts { admitted: 36, reset: 3, dropped: 0 });
        assert_eq!(gate.sources().refused(), 0, "it was for the limit");
    });
}

/// Purpose: attempts that find no place count: a source that keeps trying is not a quiet one.
#[test]
fn a_busy_source_does_not_look_quiet() {
    in_namespace(|| {
        let (_listeners, address, gate) = gated("127.0.0.1:0", 1, 1);
        gate.sources().count();
        gate.sources().set_gap(LONG);
        let connect = |_| connect_from("127.0.0.2", address).expect("it has credit");
        let mut clients: Vec<_> = (0..4).map(connect).collect();
        (0..4).for_each(|_| assert_refused_from("127.0.0.2", address));
        gate.words().set_limit(2);
        assert_refused_from("127.0.0.2", address);
        clients.push(connect_from("127.0.0.3", address).expect("it has credit"));
        assert_eq!(gate.sources().refused(), 0, "it was for the limit");
    });
}

/// Purpose: a level is a rate: at one connection per 20 ms a source gets about fifty per second, however often it tries.
#[test]
fn a_level_is_a_rate() {
    in_namespace(|| {
        let (listeners, address, gate) = gated("127.0.0.1:0", 1, 100_000);
        gate.sources().count();
        gate.sources().set_gap(Some(Duration::from_millis(20)));
        let began = std::time::Instant::now();
        let mut admitted = 0_u32;
        while began.elapsed() < Duration::from_secs(1) {
            admitted += u32::from(connect_from("127.0.0.2", address).is_ok());
            accept_all(&listeners);
        }
        // What is due by now, and the burst; the machine may have stopped between the two readings.
        let due = began.elapsed().as_millis() as u32 / 20 + 17;
        assert!((50..=due).contains(&admitted), "{admitted} of {due}");
    });
}

/// Purpose: an IPv6 network of 64 bits is one source; the next one is another; and IPv4 is told apart from both on the
/// same listener.
#[test]
fn a_network_is_a_source() {
    in_namespace(|| {
        for address in ["2001:db8:0:1::1", "2001:db8:0:1::2", "2001:db8:0:2::1"] {
            let add = ["addr", "add", &format!("{address}/128"), "dev", "lo", "nodad"];
            assert!(Command::new("ip").args(add).status().expect("ip(8)").success());
        }
        let (_listeners, address, gate) = gated("[::]:0", 1, 1000);
        let six: SocketAddr = ("::1".parse::<IpAddr>().expect("an address"), address.port()).into();
        let four: SocketAddr = ([127, 0, 0, 1], address.port()).into();
        for mode in [Mode::Reset, Mode::Drop] {
            gate.words().set_mode(mode);
            gate.sources().count();
            gate.sources().set_gap(LONG);
            let _all: Vec<_> = (0..16)
                .map(|n| {
                    connect_from(["2001:db8:0:1::1", "2001:db8:0:1::2"][n % 2], six)
                        .expect("a burst")
                })
                .collect();
            if mode == Mode::Reset {
                assert_refused_from("2001:db8:0:1::1", six);
                assert_refused_from("2001:db8:0:1::2", six);
            }
            let _other = connect_from("2001:db8:0:2::1", six).expect("another network");
            let _four = connect_from("127.0.0.2", four).expect("another source");
            assert!(gate.sources().seen().filter(|&count| count > 0).count() >= 2);
        }
    });
}
