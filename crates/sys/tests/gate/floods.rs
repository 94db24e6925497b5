//! The cost of handshakes that never complete: single ones, floods of them, and the cookies with
//! which the kernel answers a flood. The tests expect that clients are not excluded for long, that
//! no more get in than the documented bound, and that nothing remains in the count.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use highwater_core::time::Instant as Moment;
use highwater_sys::bpf::{Counts, PortGate};
use highwater_sys::clock::monotonic;

use super::{
    HANG, accept_all, accept_next, assert_refused, assert_silent, connect, eventually, every,
    gated, gated_behind, in_namespace, in_namespace_with_cgroup,
};

/// Purpose: places of clients that never complete their handshake are free after a second, whether
/// the client's kernel resets the handshake, or no client exists at that address.
#[test]
fn half_handshakes_are_written_off() {
    in_namespace(|| {
        let (listeners, address, mut gate) = gated("127.0.0.1:0", 1, 2);
        let forger = Forger::new(address);
        for (round, source) in [SURPRISED, NOBODY].into_iter().enumerate() {
            forger.send_syn(source, 2001);
            forger.send_syn(source, 2002);
            eventually("both took a place", || gate.words().taken() == 2);
            assert_refused(address);
            let mut now = Moment::ZERO + Duration::from_secs(10 * round as u64);
            for _ in 0..12 {
                gate.reconcile(now, round as u64);
                now += Duration::from_millis(100);
            }
            assert_eq!(gate.words().taken(), 0);
            let _welcome = connect(address).unwrap();
            drop(accept_next(&listeners));
            gate.words().add_taken(-1);
        }
    });
}

/// Purpose: a lost place is found although traffic never pauses, and although more connections
/// arrive between two looks than places were lost. In the end no place is taken, although no
/// correction was made after the load that could have found them, and no further correction is
/// expected.
#[test]
fn a_lost_place_is_found_under_load() {
    in_namespace(|| {
        let (listeners, address, mut gate) = gated("127.0.0.1:0", 2, 8);
        let forger = Forger::new(address);
        for port in 2001..2006 {
            forger.send_syn(NOBODY, port);
        }
        eventually("five places are lost", || gate.words().taken() == 5);
        let over = AtomicBool::new(false);
        let words = gate.words().clone();
        let mut accepted = 0;
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        drop(connect(address));
                    }
                });
            }
            let serve = |accepted: &mut u64| {
                let served = accept_all(&listeners).len();
                words.add_taken(-(served as i64));
                *accepted += served as u64;
            };
            let mut now = Moment::ZERO;
            for _ in 0..200 {
                let before = accepted;
                eventually("there is load", || {
                    serve(&mut accepted);
                    accepted >= before + 20
                });
                gate.reconcile(now, accepted);
                now += Duration::from_millis(100);
            }
            over.store(true, Ordering::Relaxed);
        });
        // On a busy machine the kernel may complete the last handshakes a moment after their clients have
        // gone on.
        eventually("no place is taken", || {
            words.add_taken(-(accept_all(&listeners).len() as i64));
            words.taken() == 0
        });
    });
}

/// Purpose: a flood of SYNs without handshakes, thirty times as many per second as there are places, excludes
/// other clients for two seconds at most, although it overflows the listener's queue of handshakes and the
/// kernel resorts to cookies. It leaves nothing in the count.
#[test]
fn a_flood_of_syns_leaves_room_for_clients() {
    in_namespace(|| {
        set_cookies("1");
        let (listeners, address, mut gate) = gated_behind("127.0.0.1:0", 16, 100);
        let forger = Forger::new(address);
        let (mut now, mut accepted, mut clients) = (Moment::ZERO, 0, Vec::new());
        for wave in 0..40_u16 {
            for syn in 0..300 {
                forger.send_syn(NOBODY, 2000 + wave * 1000 + syn);
            }
            assert!(gate.words().taken() <= 100, "{}", gate.words().taken());
            gate.reconcile(now, accepted);
            now += Duration::from_millis(100);
            if wave >= 20 {
                clients.push(connect(address).expect("there is a place"));
                drop(accept_next(&listeners));
                accepted += 1;
            }
        }
        assert!(cookies_sent() > 0);
        for _ in 0..12 {
            gate.reconcile(now, accepted);
            now += Duration::from_millis(100);
        }
        assert_eq!(gate.words().taken(), 20, "the accepted connections");
    });
}

/// Purpose: a hundred thousand addresses that nobody has are counted in the same few buckets, evenly, take no more places than
/// there are, and leave nothing behind.
#[test]
fn forged_addresses_leave_nothing_behind() {
    in_namespace(|| {
        set_cookies("1");
        let way = ["route", "add", "10.0.0.0/8", "dev", "lo"];
        assert!(Command::new("ip").args(way).status().expect("ip(8)").success());
        let (listeners, address, mut gate) = gated_behind("127.0.0.1:0", 16, 100);
        let (forger, sources) = (Forger::new(address), gate.sources().clone());
        sources.count();
        sources.set_gap(Some(Duration::from_secs(1)));
        let mut now = Moment::ZERO;
        for wave in 0..100_u32 {
            for syn in 0..1000 {
                let [_, b, c, d] = (wave * 1000 + syn).to_be_bytes();
                forger.send_syn([10, b, c, d], 2000 + syn as u16);
            }
            // With credit, four times as many.
            assert!(gate.words().taken() <= 400, "{}", gate.words().taken());
            gate.reconcile(now, 0);
            now += Duration::from_millis(100);
        }
        let seen: Vec<u64> = sources.seen().collect();
        assert_eq!((seen.len(), seen.iter().sum::<u64>()), (1024, 100_000));
        assert!(seen.iter().all(|count| (30..300).contains(count)), "{seen:?}");
        for _ in 0..12 {
            gate.reconcile(now, 0);
            now += Duration::from_millis(100);
        }
        sources.set_gap(None);
        let _client = connect(address).expect("there is a place");
        drop(accept_next(&listeners));
        assert_eq!(gate.words().taken(), 1, "the client that was accepted");
    });
}

/// Purpose: the same before a server that is not ours: a client comes in with its cookie, although handshakes take all places,
/// as long as fewer connections than the limit are established.
#[test]
fn cookies_get_in_to_others() {
    in_namespace_with_cgroup(|cgroup| {
        set_cookies("2");
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let mut gate = PortGate::attach(every(address.port()), Some(&cgroup), 2).unwrap();
        // The first cookie comes back before the gate can know of it.
        let first = (connect(address).unwrap(), server.accept().unwrap());
        gate.reconcile(Moment::ZERO);
        // As handshakes of a flood do.
        gate.words().add_taken(2);
        let mut last = connect(address).unwrap();
        last.write_all(b"request").unwrap();
        let mut accepted = server.accept().unwrap().0;
        accepted.read_exact(&mut [0; 7]).unwrap();
        assert_refused(address);
        drop((first, last, accepted));
        set_cookies("1");
        gate.reconcile(Moment::ZERO + Duration::from_secs(3));
        gate.words().set_limit(0);
        assert_refused(address);
    });
}

/// Purpose: a gate whose owner has stopped admits everything, with a control group and without, and refuses again once the
/// owner goes on.
#[test]
fn a_gate_without_its_owner_is_open() {
    in_namespace_with_cgroup(|cgroup| {
        for cgroup in [Some(cgroup.as_path()), None] {
            let server = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = server.local_addr().unwrap();
            let gate = PortGate::attach(every(address.port()), cgroup, 1).unwrap();
            let held = (connect(address).unwrap(), server.accept().unwrap());
            assert_refused(address);
            gate.words().set_valid_until(monotonic() + HANG);
            assert_refused(address);
            gate.words().set_valid_until(monotonic());
            let more: Vec<_> = (0..5).map(|_| connect(address).unwrap()).collect();
            gate.words().set_valid_until(monotonic() + HANG);
            assert_refused(address);
            assert_eq!(gate.words().counts(), Counts { admitted: 6, reset: 3, dropped: 0 });
            drop((held, more));
        }
    });
}

/// Purpose: where the kernel answers with cookies, a client that has a place gets in even if it has the last;
/// the next one is refused silently, and by a reset again when there are no cookies.
#[test]
fn cookies_get_in() {
    in_namespace(|| {
        set_cookies("2");
        let (listeners, address, mut gate) = gated("127.0.0.1:0", 1, 1);
        // The first cookie comes back before the gate can know of it.
        drop(connect(address));
        let mut now = Moment::ZERO;
        for _ in 0..12 {
            gate.reconcile(now, 0);
            now += Duration::from_millis(100);
        }
        now += Duration::from_secs(30); // The loss of the first is forgotten.
        for accepted in 0..3 {
            let mut client = connect(address).unwrap();
            client.write_all(b"request").unwrap();
            let mut server = accept_next(&listeners);
            server.set_nonblocking(false).unwrap();
            let mut request = [0; 7];
            server.read_exact(&mut request).unwrap();
            assert_silent(address);
            assert_eq!(gate.words().taken(), 1);
            drop(server);
            gate.words().add_taken(-1);
            gate.reconcile(now, accepted + 1);
            now += Duration::from_millis(100);
        }
        set_cookies("1");
        gate.words().set_limit(0);
        for _ in 0..22 {
            gate.reconcile(now, 3);
            now += Duration::from_millis(100);
        }
        assert_refused(address);
    });
}

/// Purpose: a connection that was written off and arrives after all has one place, although its SYN
/// was sent twice: the count is right with the next look, and returns to zero when it ends.
#[test]
fn a_late_handshake_has_one_place() {
    in_namespace(|| {
        let (listeners, address, mut gate) = gated("127.0.0.1:0", 1, 5);
        let mut nft = Command::new("nft");
        let rules = format!(
            "add table inet lossy; add chain inet lossy out {{ type filter hook output priority 0; }}; \
             add rule inet lossy out tcp sport {} drop",
            address.port()
        );
        if !nft.arg(rules).status().is_ok_and(|status| status.success()) {
            return highwater_skip::skip("nft", "it cannot add a rule here");
        }
        let client = std::thread::spawn(move || TcpStream::connect_timeout(&address, HANG));
        eventually("the first SYN took a place", || gate.words().taken() == 1);
        let mut now = Moment::ZERO;
        for _ in 0..12 {
            gate.reconcile(now, 0);
            now += Duration::from_millis(100);
        }
        assert_eq!(gate.words().taken(), 0, "given up");
        assert!(Command::new("nft").args(["flush", "ruleset"]).status().unwrap().success());
        // A second after the first, its kernel sends the SYN again, or ours the answer to it.
        let _client = client.join().unwrap().unwrap();
        let admitted = gate.words().counts().admitted;
        assert!((1..=2).contains(&admitted), "{admitted}");
        assert!(gate.words().taken() < admitted as i64, "not yet");
        for _ in 0..12 {
            gate.reconcile(now, 0);
            assert!(gate.words().taken() >= 1, "it waits to be accepted");
            now += Duration::from_millis(100);
        }
        assert_eq!(gate.words().taken(), 1);
        drop(accept_next(&listeners));
        gate.reconcile(now, 1);
        assert_eq!(gate.words().taken(), 1);
        gate.words().add_taken(-1);
        assert_eq!(gate.words().taken(), 0);
    });
}

/// Purpose: before a server that is not ours, packets that belong to no connection take no place, whatever
/// their flags; handshakes that are never completed take one for a tenth of a second, and a flood of them
/// excludes clients for no longer than that. Each such packet once took a place for a second or more, so that
/// 20 per second refused most clients.
#[test]
fn strays_take_no_place_before_others() {
    in_namespace_with_cgroup(|cgroup| {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let forger = Forger::new(address);
        let mut gate = PortGate::attach(every(address.port()), Some(&cgroup), 8).unwrap();
        for (flags, from) in [(ACK, 2000), (ACK | FIN, 3000), (RST, 4000), (ACK | PSH, 5000)] {
            for stray in 0..100 {
                forger.send(flags, NOBODY, from + stray);
            }
        }
        // The clients' packets come after them, through the same queue of the loopback device.
        for _ in 0..20 {
            drop((connect(address).expect("strays take no place"), server.accept()));
            eventually("its place is free", || gate.words().taken() == 0);
        }
        assert_eq!(gate.words().counts(), Counts { admitted: 20, reset: 0, dropped: 0 });

        let mut now = Moment::ZERO;
        for wave in 0..20_u16 {
            for syn in 0..100 {
                forger.send(SYN, NOBODY, 10_000 + wave * 100 + syn);
            }
            // Two looks at least that are HANDSHAKE apart, before any client.
            for _ in 0..4 {
                gate.reconcile(now);
                now += Duration::from_millis(25);
            }
            if wave >= 4 {
                drop((connect(address).expect("there is a place"), server.accept()));
            }
        }
        for _ in 0..8 {
            gate.reconcile(now);
            now += Duration::from_millis(25);
        }
        eventually("nothing is left in the count", || gate.words().taken() == 0);
    });
}

/// When the kernel of this namespace answers with cookies: "1" if it must, "2" always.
fn set_cookies(when: &str) {
    // The path is that of the thread that opens it.
    std::fs::write("/proc/sys/net/ipv4/tcp_syncookies", when).expect("/proc is mounted, as root");
}

/// How many cookies the kernel of this namespace has sent.
fn cookies_sent() -> u64 {
    let counters =
        std::fs::read_to_string("/proc/thread-self/net/netstat").expect("/proc is mounted");
    let mut lines = counters.lines().map(|line| line.split(' '));
    let (mut names, mut numbers) = (lines.next().unwrap(), lines.next().unwrap());
    let position = names.position(|name| name == "SyncookiesSent").unwrap();
    numbers.nth(position).unwrap().parse().unwrap()
}

/// An address whose kernel answers a SYN-ACK that it knows nothing of with a reset.
const SURPRISED: [u8; 4] = [127, 9, 9, 9];
/// An address that no machine has (RFC 5737).
const NOBODY: [u8; 4] = [192, 0, 2, 1];

/// Flags of TCP (RFC 9293 §3.1).
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// Sends segments in the names of others.
struct Forger {
    socket: OwnedFd,
    port: u16,
}

impl Forger {
    /// To `address`, on loopback.
    fn new(address: SocketAddr) -> Forger {
        // Without a way to them the kernel would not answer.
        let way = ["route", "add", "192.0.2.0/24", "dev", "lo"];
        assert!(Command::new("ip").args(way).status().expect("ip(8)").success());
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: the kernel just gave us this descriptor.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        Forger { socket, port: address.port() }
    }

    fn send_syn(&self, source: [u8; 4], from: u16) {
        self.send(SYN, source, from);
    }

    fn send(&self, flags: u8, source: [u8; 4], from: u16) {
        let packet = segment(flags, source, from, self.port);
        let to = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: 0,
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
            sin_zero: [0; 8],
        };
        let (bytes, len) = (packet.as_ptr().cast(), packet.len());
        let (to, to_len) = ((&raw const to).cast(), size_of_val(&to) as libc::socklen_t);
        // SAFETY: packet and address are valid for reads of the lengths given.
        let sent = unsafe { libc::sendto(self.socket.as_raw_fd(), bytes, len, 0, to, to_len) };
        assert_eq!(sent, 40, "{}", io::Error::last_os_error());
    }
}

/// An IPv4 packet (RFC 791) with an empty segment (RFC 9293 §3.1) from `source` to 127.0.0.1.
fn segment(flags: u8, source: [u8; 4], from: u16, port: u16) -> [u8; 40] {
    let mut packet = [0_u8; 40];
    (packet[0], packet[3], packet[8], packet[9]) = (0x45, 40, 64, libc::IPPROTO_TCP as u8);
    packet[12..16].copy_from_slice(&source);
    packet[16..20].copy_from_slice(&[127, 0, 0, 1]);
    packet[20..22].copy_from_slice(&from.to_be_bytes());
    packet[22..24].copy_from_slice(&port.to_be_bytes());
    (packet[27], packet[32], packet[33], packet[34]) = (1, 0x50, flags, 0xff);
    // The pseudo-header is the addresses, the protocol and TCP's length.
    let words =
        packet[12..].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum::<u32>() + libc::IPPROTO_TCP as u32 + 20;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[36..38].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    packet
}
