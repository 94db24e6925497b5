//! Keeps a part of some sources' attempts to connect from the listeners, without any privilege.
//!
//! The listeners of an address are a group (`SO_REUSEPORT`), and a program may choose the socket of the group that gets an
//! attempt. That program may be classic BPF (S. McCanne and V. Jacobson, *The BSD Packet Filter*, 1993), which needs no
//! privilege, whereas a filter of a TCP socket needs `CAP_NET_ADMIN` on newer kernels (6.18.44 is one). So a *sink* joins the
//! group: a listening socket with the shortest queue, from which no connection is accepted. Once its queue is full, the kernel
//! drops and counts the attempts that come there ([`ListenQueue::overflows`](crate::ListenQueue::overflows)). The program sends
//! there a part of the SYNs of the sources that are held back, at random, and everything else to one of the listeners.
//!
//! ```text
//!  SYN of a held source, not in the part that passes ──▶ sink      index n: the last that joined
//!  everything else ─────────────────────────────────────▶ listeners 0 to n-1, at random
//! ```
//!
//! Invariants: there is a program before the sink joins, and the sink leaves before the program does; so without a source
//! that is held back, the sink gets nothing. It leaves as soon as a listener is closed, since indexes change then.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Weak};

use crate::direct;
use crate::listen_queue::ListenQueue;
use crate::socket::{
    bind, listen, reset_on_close, set_nonblocking, set_option, set_socket_option, socket,
};
use crate::{HELD_MAX, Held, Listener, Source};

/// How many connections may wait at a sink: the kernel lets one more in.
const SINK_BACKLOG: u32 = 1;

/// The diversion of a server's listeners. It does not keep them open.
#[derive(Debug)]
pub struct Diversion {
    groups: Vec<Group>,
}

/// The listeners of one address.
#[derive(Debug)]
struct Group {
    listeners: Vec<Weak<OwnedFd>>,
    sink: Arc<OwnedFd>,
    is_open: bool,
}

impl Diversion {
    /// A diversion of `groups` of listeners that holds no source back. All listeners of an address are in one group, in the
    /// order in which they were made.
    ///
    /// # Errors
    /// Listeners of a group share one socket, so that there are fewer sockets than listeners; or the system does not allow a
    /// program or another socket of the group.
    pub fn new<'l>(groups: impl IntoIterator<Item = &'l [Listener]>) -> io::Result<Diversion> {
        let groups = groups.into_iter().map(Group::new).collect::<io::Result<_>>()?;
        Ok(Diversion { groups })
    }

    /// Holds back these sources from now on, at most the first [`HELD_MAX`], and no others.
    ///
    /// # Errors
    /// Whatever the system reports. No source is then held back.
    pub fn hold(&mut self, held: &[Held]) -> io::Result<()> {
        let result = match held {
            [] => Ok(()),
            held => self.groups.iter_mut().try_for_each(|group| group.hold(held)),
        };
        if held.is_empty() || result.is_err() {
            self.groups.iter_mut().for_each(Group::release);
        }
        result
    }

    /// Resets the connections that found room in the sinks' queues: for each call, two per address at most.
    pub fn empty(&mut self) {
        self.groups.iter_mut().filter(|group| group.is_open).for_each(Group::empty);
    }

    /// The queues of the sinks, which count the attempts that were kept from the listeners.
    pub fn sinks(&self) -> impl Iterator<Item = ListenQueue> {
        self.groups.iter().map(|group| ListenQueue::of(&group.sink))
    }
}

impl Group {
    fn new(listeners: &[Listener]) -> io::Result<Group> {
        let first = listeners.first().ok_or_else(|| io::Error::other("there is no listener"))?;
        if listeners.iter().any(Listener::is_shared) {
            return Err(io::Error::other("the workers share a listening socket"));
        }
        let address = first.local_addr()?;
        // Bound now, since ports below 1024 need a privilege that may be gone later.
        let sink = Arc::new(bound(address)?);
        let listeners = listeners.iter().map(Listener::downgrade).collect();
        let mut group = Group { listeners, sink, is_open: false };
        // Tried at once, so that it is known from the start whether it works.
        group.attach(&program(&[], group.listeners.len()))?;
        group.release();
        Ok(group)
    }

    fn hold(&mut self, held: &[Held]) -> io::Result<()> {
        if self.listeners.iter().any(|listener| listener.strong_count() == 0) {
            self.release();
            return Ok(()); // The server ends.
        }
        self.attach(&program(held, self.listeners.len()))?;
        if !self.is_open {
            listen(&self.sink, SINK_BACKLOG)?;
            self.is_open = true;
        }
        Ok(())
    }

    fn attach(&self, program: &[libc::sock_filter]) -> io::Result<()> {
        let program = libc::sock_fprog {
            len: program.len() as u16,
            // The kernel copies the program, and does not write to it.
            filter: program.as_ptr().cast_mut(),
        };
        self.with_group(|fd| {
            set_socket_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
        })
    }

    fn release(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.empty();
            // SAFETY: takes no pointers. The socket stays bound, but listens no more; it listened, so this cannot fail.
            unsafe { libc::shutdown(self.sink.as_raw_fd(), libc::SHUT_RD) };
        }
        // Fails if there is none, and then there is nothing to do.
        let _ = self.with_group(|fd| {
            set_socket_option(fd, libc::SOL_SOCKET, libc::SO_DETACH_REUSEPORT_BPF, &0_i32)
        });
    }

    /// Calls `f` with a listener that is open: what is set for one is set for the group.
    fn with_group(&self, f: impl FnOnce(i32) -> io::Result<()>) -> io::Result<()> {
        match self.listeners.iter().find_map(Weak::upgrade) {
            Some(listener) => f(listener.as_raw_fd()),
            None => Ok(()), // Nobody can connect any more.
        }
    }

    fn empty(&mut self) {
        // At most as many as find room; what comes meanwhile waits for the next call.
        for _ in 0..=SINK_BACKLOG {
            let (nobody, flags) = (std::ptr::null_mut(), libc::SOCK_CLOEXEC);
            // SAFETY: nobody's address is asked for.
            let accepted = unsafe {
                direct::accept(self.sink.as_raw_fd(), nobody, std::ptr::null_mut(), flags)
            };
            let Ok(fd) = accepted else { return };
            reset_on_close(fd);
            // SAFETY: the kernel just gave us this descriptor; nothing else owns it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
}

/// A socket of the group of `address` that does not listen yet, and does not wait in `accept`.
fn bound(address: SocketAddr) -> io::Result<OwnedFd> {
    let fd = socket(address)?;
    set_option(&fd, libc::SOL_SOCKET, libc::SO_REUSEPORT)?;
    bind(&fd, address)?;
    set_nonblocking(fd.as_raw_fd(), true)?;
    Ok(fd)
}

/// Positions in a packet: in the header of the network, whose length is a part of it (RFC 791 §3.1) or fixed (RFC 8200 §3;
/// SYNs have no extension headers, and one that has is not held back), and TCP's flags behind it (RFC 9293 §3.1).
const NETWORK: u32 = libc::SKF_NET_OFF as u32;
const SOURCE_IP4: u32 = NETWORK + 12;
const SOURCE_IP6: u32 = NETWORK + 8;
const FLAGS_AFTER_NETWORK: u32 = NETWORK + 13;
const FLAGS_IP6: u32 = NETWORK + 40 + 13;
const SYN: u32 = 0x02;
const ACK: u32 = 0x10;

/// A random number instead of a part of the packet.
const RANDOM: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;

/// The program for a group of so many `listeners`, from top to bottom: to tell IPv6 from IPv4, and SYNs from the rest; then a
/// comparison for each source.
fn program(held: &[Held], listeners: usize) -> Vec<libc::sock_filter> {
    let listeners = listeners as u32;
    let is_syn = [and(SYN | ACK), if_equal_skip(SYN, TO_A_LISTENER)];
    let mut ip4 = vec![load_network_header_len(NETWORK), load_byte_behind(FLAGS_AFTER_NETWORK)];
    ip4.extend(is_syn.into_iter().chain(to_a_listener(listeners)));
    ip4.push(load(SOURCE_IP4));
    let mut ip6 = vec![load_byte(FLAGS_IP6)];
    ip6.extend(is_syn.into_iter().chain(to_a_listener(listeners)));
    ip6.extend([load(SOURCE_IP6), store(0), load(SOURCE_IP6 + 4), store(1)]);
    for &Held { source, passes } in &held[..held.len().min(HELD_MAX)] {
        let divert = divert(passes, listeners);
        match source {
            Source::Ipv4(address) => {
                ip4.push(unless_equal_skip(address, DIVERT));
                ip4.extend(divert);
            }
            Source::Ipv6Network(network) => {
                let (high, low) = ((network >> 32) as u32, network as u32);
                ip6.extend([recall(0), unless_equal_skip(high, 2 + DIVERT)]);
                ip6.extend([recall(1), unless_equal_skip(low, DIVERT)]);
                ip6.extend(divert);
            }
        }
    }
    ip4.extend(to_a_listener(listeners));
    ip6.extend(to_a_listener(listeners));
    let mut all = vec![load_byte(NETWORK), shift_right(4), unless_equal_skip(6, 1)];
    all.push(skip(ip4.len() as u32));
    all.append(&mut ip4);
    all.append(&mut ip6);
    all
}

/// How many instructions [`to_a_listener`] and [`divert`] have.
const TO_A_LISTENER: u8 = 3;
const DIVERT: u8 = 3 + TO_A_LISTENER;

/// Ends the program: one of the listeners gets it.
fn to_a_listener(listeners: u32) -> [libc::sock_filter; TO_A_LISTENER as usize] {
    [load(RANDOM), modulo(listeners), select()]
}

/// Ends the program: one of the listeners gets it with the probability `passes`, else the sink.
fn divert(passes: f32, listeners: u32) -> [libc::sock_filter; DIVERT as usize] {
    let below = (f64::from(passes.clamp(0.0, 1.0)) * f64::from(u32::MAX)).ceil() as u32;
    let [random, modulo, select] = to_a_listener(listeners);
    [load(RANDOM), unless_at_least_skip(below, 1), select_only(listeners), random, modulo, select]
}

// The instructions (`linux/bpf_common.h`, `linux/filter.h`): one register for numbers, another for positions.

fn load(position: u32) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, position, (0, 0))
}

fn load_byte(position: u32) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, position, (0, 0))
}

/// Loads the length that the low half of the byte there says, in words, into the register for positions.
fn load_network_header_len(position: u32) -> libc::sock_filter {
    instruction(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, position, (0, 0))
}

/// The same as [`load_byte`], so far behind `position` as the register for positions says.
fn load_byte_behind(position: u32) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_IND, position, (0, 0))
}

/// Stores the number in one of sixteen words of memory.
fn store(word: u32) -> libc::sock_filter {
    instruction(libc::BPF_ST, word, (0, 0))
}

fn recall(word: u32) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_MEM, word, (0, 0))
}

fn and(bits: u32) -> libc::sock_filter {
    instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, bits, (0, 0))
}

fn shift_right(by: u32) -> libc::sock_filter {
    instruction(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, by, (0, 0))
}

fn modulo(by: u32) -> libc::sock_filter {
    instruction(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, by, (0, 0))
}

fn skip(instructions: u32) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JA, instructions, (0, 0))
}

fn if_equal_skip(value: u32, instructions: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, (instructions, 0))
}

fn unless_equal_skip(value: u32, instructions: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, (0, instructions))
}

fn unless_at_least_skip(value: u32, instructions: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, value, (0, instructions))
}

/// Ends the program: the socket whose index is the number.
fn select() -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_A, 0, (0, 0))
}

fn select_only(index: u32) -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, index, (0, 0))
}

fn instruction(code: u32, k: u32, (jt, jf): (u8, u8)) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};

    use super::*;
    use crate::capability::{self, Capability};
    use crate::socket::{client, connect};

    /// Two workers' listeners, and their address.
    fn listeners(ip: IpAddr) -> (Vec<Listener>, SocketAddr) {
        let first = Listener::bind(SocketAddr::new(ip, 0), 1024).expect("a free port");
        let address = first.local_addr().expect("it is bound");
        let second = first.another().expect("the same port");
        (vec![first, second], address)
    }

    /// Whether a handshake with `to` completes, from the address `from`. Over loopback it does at once, or not until the SYN
    /// is sent again.
    fn connects(from: IpAddr, to: SocketAddr) -> bool {
        let socket = client(to, Some(from), true).expect("a socket");
        let _ = connect(socket.as_raw_fd(), to);
        TcpStream::from(socket).peer_addr().is_ok()
    }

    fn v4(last: u8) -> IpAddr {
        Ipv4Addr::new(127, 0, 0, last).into()
    }

    fn held(last: u8, passes: f32) -> Held {
        Held { source: Source::Ipv4(u32::from_be_bytes([127, 0, 0, last])), passes }
    }

    /// What the sinks have dropped so far.
    fn drops(diversion: &Diversion) -> usize {
        diversion.sinks().filter_map(|sink| sink.overflows()).sum::<u32>() as usize
    }

    fn waiting(listeners: &[Listener]) -> Vec<u32> {
        let waiting = |listener: &Listener| listener.queue().waiting().expect("it is open");
        listeners.iter().map(waiting).collect()
    }

    /// Purpose: of a source that is held back a part connects, of others everybody, at all listeners; and everybody
    /// again once nobody is held. What is kept out is counted, and no privilege is needed.
    #[test]
    fn a_part_passes() {
        let without_privilege = || {
            capability::give_up(&Capability::ALL).expect("fewer rights");
            let (listeners, address) = listeners(Ipv4Addr::UNSPECIFIED.into());
            let to = SocketAddr::new(v4(1), address.port());
            let mut diversion = Diversion::new([&listeners[..]]).expect("no privilege is needed");
            let count = |last| (0..200).filter(|_| connects(v4(last), to)).count();
            assert_eq!([count(1), count(2)], [200; 2]);
            let others = (10..70).map(|last| held(last, 0.0));
            let some = [held(2, 0.0), held(3, 0.5), held(4, 1.0)];
            diversion.hold(&some.into_iter().chain(others).collect::<Vec<_>>()).expect("as before");
            // Two find room in the sink's queue.
            assert_eq!([count(2), count(1), count(4), count(69)], [2, 200, 200, 0]);
            let passed = count(3);
            assert!((60..140).contains(&passed), "{passed} of 200");
            assert_eq!(drops(&diversion), 198 + 200 + 200 - passed);
            let spread = waiting(&listeners);
            assert!(spread.iter().all(|&count| count > 300), "{spread:?}");
            diversion.empty();
            diversion.hold(&[held(1, 0.0)]).expect("as before");
            assert_eq!([count(1), count(2)], [2, 200]);
            diversion.hold(&[]).expect("as before");
            let before = waiting(&listeners).iter().sum::<u32>();
            assert_eq!(count(1), 200);
            assert_eq!(
                waiting(&listeners).iter().sum::<u32>(),
                before + 200,
                "all reach a listener"
            );
            diversion.hold(&[held(1, 0.0)]).expect("as before");
            assert_eq!(count(1), 2, "a sink can be used again");
            assert_eq!(drops(&diversion), 198 + 200 + 200 - passed + 198 + 198, "it counts on");
        };
        std::thread::spawn(without_privilege).join().expect("it holds");
    }

    /// Purpose: an IPv6 source is its network; IPv4 over a dual-stack listener is told apart from it.
    #[test]
    fn networks_of_ip6_are_sources() {
        if TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).is_err() {
            return; // This machine has no IPv6.
        }
        let (listeners, address) = listeners(Ipv6Addr::UNSPECIFIED.into());
        let [six, four] = [IpAddr::from(Ipv6Addr::LOCALHOST), v4(1)];
        let mut diversion = Diversion::new([&listeners[..]]).expect("it needs nothing");
        let count =
            |ip| (0..9).filter(|_| connects(ip, SocketAddr::new(ip, address.port()))).count();
        let before = [count(six), count(four)];
        assert_eq!(before[1], 9);
        let network = |bits| Held { source: Source::Ipv6Network(bits), passes: 0.0 };
        diversion.hold(&[network(1 << 40), network(7)]).expect("it was attached before");
        assert_eq!([count(six), count(four)], before);
        diversion.hold(&[network(1 << 40), network(0)]).expect("it was attached before");
        assert_eq!([count(six), count(four)], [before[0].min(2), 9]);
    }

    /// Purpose: as soon as a listener is closed, nobody is held back, and what comes reaches those that are left; nothing is
    /// held open.
    #[test]
    fn a_closed_listener_ends_it() {
        let (mut listeners, to) = listeners(v4(1));
        let mut diversion = Diversion::new([&listeners[..]]).expect("it needs nothing");
        diversion.hold(&[held(2, 0.0)]).expect("it was attached before");
        listeners.remove(0);
        diversion.hold(&[held(2, 0.0)]).expect("nothing is left to do");
        assert_eq!((0..50).filter(|_| connects(v4(2), to)).count(), 50);
        drop(listeners);
        assert!(!connects(v4(1), to));
        diversion.hold(&[held(2, 0.0)]).expect("nothing is left to do");
        assert!(!connects(v4(1), to), "the sink must not listen alone");
        // A server that ends must not keep the port from its successor.
        Listener::bind(to, 1).expect("the port is free");
    }

    /// Purpose: jumps lead where they should with the most sources, of both kinds, and no more are compared.
    #[test]
    fn programs_have_a_limit() {
        let mixed = |n: usize| -> Vec<Held> {
            let source = |n| match n % 2 {
                0 => Source::Ipv4(n),
                _ => Source::Ipv6Network(u64::from(n)),
            };
            (0..n as u32).map(|n| Held { source: source(n), passes: 0.25 }).collect()
        };
        let longest = program(&mixed(HELD_MAX), 64);
        assert_eq!(program(&mixed(HELD_MAX + 1), 64).len(), longest.len());
        assert!(longest.len() <= 4096);
        for (at, it) in longest.iter().enumerate() {
            assert!(at + usize::from(it.jt.max(it.jf)) + 1 < longest.len() || it.jt + it.jf == 0);
        }
    }
}
