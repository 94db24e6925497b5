//! Which connections does a port have, and which of them wait for their server?
//!
//! Asks the kernel as `ss` does (`sock_diag(7)`), for any server of this network namespace. A
//! connection *waits* while it has bytes that its server has not read: its request is queued, in
//! the listener's backlog or at its own socket. The kernel also knows since when. A connection
//! whose client has given up waits like any other: the server does not know, and will do its work.
//!
//! Needs no privilege. Costs about a microsecond per connection of the port, in the calling thread.
//!
//! It never interprets the waiting.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::call::{check, check_size, context};

/// Constants of `linux/sock_diag.h`, `linux/inet_diag.h` and `net/tcp_states.h` that libc lacks.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_INFO: u16 = 2;
const TCP_ESTABLISHED: u8 = 1;
const TCP_SYN_RECV: u8 = 3;
const TCP_FIN_WAIT1: u8 = 4;
const TCP_FIN_WAIT2: u8 = 5;
const TCP_CLOSE_WAIT: u8 = 8;
const TCP_LAST_ACK: u8 = 9;
const TCP_LISTEN: u8 = 10;
const TCP_CLOSING: u8 = 11;

/// The states to ask for.
const STATES: [u8; 8] = [
    TCP_ESTABLISHED,
    TCP_SYN_RECV,
    TCP_FIN_WAIT1,
    TCP_FIN_WAIT2,
    TCP_CLOSE_WAIT,
    TCP_LAST_ACK,
    TCP_LISTEN,
    TCP_CLOSING,
];

/// `idiag_timer` of a socket that has ended and is kept only to recognize late packets.
const TIMER_TIME_WAIT: u8 = 3;

/// Sizes of `nlmsghdr`, `inet_diag_req_v2` and `inet_diag_msg`.
const HEADER: usize = 16;
const REQUEST: usize = 56;
const MESSAGE: usize = 72;

/// Offsets of `tcpi_last_data_sent`, `tcpi_last_data_recv`, `tcpi_bytes_acked` and `tcpi_bytes_received` in `tcp_info`.
const LAST_DATA_SENT: usize = 44;
const LAST_DATA_RECV: usize = 52;
const BYTES_ACKED: usize = 120;
const BYTES_RECEIVED: usize = 128;

/// After this long without a byte in either direction a connection may be idle, in milliseconds.
const IDLE_MS: u32 = 1000;

/// After this long, a connection whose client has never sent a byte is idle, in milliseconds. Less: a burst of clients that
/// are too busy to ask at once counts as idle. More: clients that send nothing hold places for longer. A guess.
const SILENT_MS: u32 = 3000;

/// The resolution of those times, in milliseconds: the kernel's clock ticks at least 100 times a
/// second.
const TICK_MS: u32 = 10;

/// The kernel fills at most 32 KiB at a time.
const BUFFER: usize = 64 << 10;

/// The kernel answers at once; this only prevents a defect from blocking the caller.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The connections of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// Sockets that listen on it.
    pub listeners: u32,
    /// Connections that are not accepted yet; they also count as established.
    pub backlog: u32,
    /// Connections that are open in both directions, accepted or not.
    pub established: u32,
    /// Connections that the client has closed and the server has not.
    pub abandoned: u32,
    /// Handshakes in progress, except those whose answer had to be repeated.
    pub opening: u32,
    /// Connections that the server has closed and that have not ended yet.
    pub closing: u32,
    /// Established connections that are kept alive: nothing has happened for a second, and the server has sent last. A
    /// server that gets a new request within a tick of the kernel's clock after its last answer, and then sends nothing for
    /// a second, looks the same. Connections on which the client has sent nothing at all count after three seconds: before
    /// that, they may belong to a burst of clients that are too busy to send requests at once.
    pub idle: u32,
    /// For each connection with unread bytes: how long ago the last byte arrived, in milliseconds. Connections whose client
    /// has not taken all sent bytes are left out: there the server waits for the client.
    pub waiting_ms: Vec<u32>,
}

impl Connections {
    /// All connections, including those that are opening or closing.
    pub fn count(&self) -> u32 {
        self.opening + self.established + self.abandoned + self.closing
    }
}

/// Looks up the connections of one port.
#[derive(Debug)]
pub struct InetDiag {
    socket: OwnedFd,
    port: u16,
    address: Option<IpAddr>,
    buffer: Box<[u8]>,
    sequence: u32,
}

impl InetDiag {
    /// For the local port `port`, at `address` or at every address.
    ///
    /// # Errors
    /// The kernel has no `sock_diag`, or descriptors have run out.
    pub fn open(port: u16, address: Option<IpAddr>) -> io::Result<InetDiag> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        // SAFETY: creates a descriptor; no memory is involved.
        let fd = check(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_SOCK_DIAG) })
            .map_err(|error| context(error, "sock_diag"))?;
        // SAFETY: `fd` is open and nothing else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let timeout = libc::timeval {
            tv_sec: TIMEOUT.as_secs() as libc::time_t,
            tv_usec: TIMEOUT.subsec_micros().into(),
        };
        // SAFETY: `timeout` is valid for reads of the size that is passed.
        check(unsafe {
            libc::setsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_RCVTIMEO,
                (&raw const timeout).cast(),
                size_of::<libc::timeval>() as libc::socklen_t,
            )
        })?;
        let address = address.map(|address| address.to_canonical());
        Ok(InetDiag { socket, port, address, buffer: vec![0; BUFFER].into(), sequence: 0 })
    }

    /// The present connections of the port.
    ///
    /// # Errors
    /// The kernel refused; the next call may succeed.
    pub fn look(&mut self) -> io::Result<Connections> {
        let mut found = Connections::default();
        // A listener for both families has its IPv4 connections among those of IPv6.
        for family in [libc::AF_INET, libc::AF_INET6] {
            self.sequence = self.sequence.wrapping_add(1);
            self.ask(family as u8)?;
            while !self.hear(&mut found)? {}
        }
        Ok(found)
    }

    fn ask(&self, family: u8) -> io::Result<()> {
        let mut request = [0; HEADER + REQUEST];
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
        request[0..4].copy_from_slice(&((HEADER + REQUEST) as u32).to_ne_bytes());
        request[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        request[6..8].copy_from_slice(&flags.to_ne_bytes());
        request[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        let body = &mut request[HEADER..];
        body[0] = family;
        body[1] = libc::IPPROTO_TCP as u8;
        body[2] = 1 << (INET_DIAG_INFO - 1);
        let states = STATES.iter().fold(0_u32, |states, state| states | 1 << state);
        body[4..8].copy_from_slice(&states.to_ne_bytes());
        body[8..10].copy_from_slice(&self.port.to_be_bytes());
        // SAFETY: `request` is valid for reads of its length.
        let sent = unsafe {
            libc::send(self.socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0)
        };
        check_size(sent).map(|_| ())
    }

    /// Reads one datagram of the answer. `true`: that was the last one.
    fn hear(&mut self, found: &mut Connections) -> io::Result<bool> {
        let (fd, buffer) = (self.socket.as_raw_fd(), &mut self.buffer);
        // SAFETY: `buffer` is valid for writes of its length.
        let size = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        let mut rest = &self.buffer[..check_size(size)?];
        while let Some(header) = rest.get(..HEADER) {
            let length = u32_at(header, 0).ok_or_else(garbled)? as usize;
            let message = rest.get(HEADER..length).ok_or_else(garbled)?;
            // Messages begin at multiples of four.
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            if u32_at(header, 8) != Some(self.sequence) {
                continue; // The rest of an earlier answer.
            }
            match i32::from(u16::from_ne_bytes([header[4], header[5]])) {
                libc::NLMSG_DONE => return Ok(true),
                libc::NLMSG_ERROR => {
                    let errno = u32_at(message, 0).ok_or_else(garbled)? as i32;
                    return Err(context(io::Error::from_raw_os_error(-errno), "sock_diag"));
                }
                _ => add(message, self.address, found).ok_or_else(garbled)?,
            }
        }
        Ok(false)
    }
}

fn garbled() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "sock_diag: an answer that ends too soon")
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// Adds one socket: an `inet_diag_msg` and its attributes. `None` if it ends too soon.
fn add(message: &[u8], address: Option<IpAddr>, found: &mut Connections) -> Option<()> {
    let (socket, attributes) = message.split_at_checked(MESSAGE)?;
    let state = socket[1];
    let is_any = |local: IpAddr| state == TCP_LISTEN && local.is_unspecified();
    let local = source(socket)?;
    if address.is_some_and(|address| local != address && !is_any(local)) {
        return Some(());
    }
    let (timer, repetitions) = (socket[2], socket[3]);
    let (unread, unsent) = (u32_at(socket, 56)?, u32_at(socket, 60)?);
    // The end of the client's stream counts as a byte that is never read.
    let (count, end) = match state {
        TCP_LISTEN => {
            found.backlog += unread;
            found.listeners += 1;
            return Some(());
        }
        TCP_SYN_RECV if repetitions > 0 => return Some(()),
        TCP_SYN_RECV => (&mut found.opening, u32::MAX),
        TCP_ESTABLISHED => (&mut found.established, 0),
        TCP_CLOSE_WAIT => (&mut found.abandoned, 1),
        _ if timer == TIMER_TIME_WAIT => return Some(()),
        _ => (&mut found.closing, u32::MAX),
    };
    *count += 1;
    let information = tcp_info(attributes).unwrap_or_default();
    if unread > end && unsent == 0 {
        found.waiting_ms.push(u32_at(information, LAST_DATA_RECV).unwrap_or(0));
    } else if state == TCP_ESTABLISHED
        && unread + unsent == 0
        && is_idle(information).unwrap_or(false)
    {
        found.idle += 1;
    }
    Some(())
}

/// Whether a connection is idle, given that nothing is unread or in transit.
fn is_idle(information: &[u8]) -> Option<bool> {
    let (sent_ms, received_ms) =
        (u32_at(information, LAST_DATA_SENT)?, u32_at(information, LAST_DATA_RECV)?);
    let acked = u64_at(information, BYTES_ACKED)?;
    let quiet_ms = sent_ms.min(received_ms);
    let is_silent = quiet_ms >= SILENT_MS && u64_at(information, BYTES_RECEIVED)? == 0;
    // What the client's first packet acknowledges may count as a byte.
    let is_owed = acked <= 1 || sent_ms > received_ms.saturating_add(TICK_MS);
    Some(is_silent || quiet_ms >= IDLE_MS && !is_owed)
}

/// The local address of a socket.
fn source(socket: &[u8]) -> Option<IpAddr> {
    let bytes: [u8; 16] = socket.get(8..24)?.try_into().ok()?;
    if i32::from(socket[0]) == libc::AF_INET6 {
        return Some(IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical());
    }
    let [a, b, c, d, ..] = bytes;
    Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

/// The `tcp_info` among the attributes.
fn tcp_info(mut attributes: &[u8]) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(attributes.get(0..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(attributes.get(2..4)?.try_into().ok()?);
        let value = attributes.get(4..length)?;
        if kind == INET_DIAG_INFO {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use super::*;

    /// Looks until `condition` holds; loopback delivers at once, but not in this thread.
    fn await_look(diag: &mut InetDiag, condition: impl Fn(&Connections) -> bool) -> Connections {
        loop {
            let seen = diag.look().expect("sock_diag needs no privilege");
            if condition(&seen) {
                return seen;
            }
            std::thread::yield_now();
        }
    }

    fn check_at(listen: IpAddr, connect: IpAddr) {
        let listener = TcpListener::bind((listen, 0)).expect("loopback");
        let port = listener.local_addr().expect("bound").port();
        let target = SocketAddr::from((connect, port));
        let mut diag = InetDiag::open(port, None).expect("no privilege is needed");
        let idle = Connections { listeners: 1, ..Connections::default() };
        assert_eq!(diag.look().expect("fine"), idle);

        let mut first = TcpStream::connect(target).expect("the backlog has room");
        let second = TcpStream::connect(target).expect("the backlog has room");
        let seen = await_look(&mut diag, |seen| seen.backlog == 2);
        assert_eq!((seen.established, seen.waiting_ms.len()), (2, 0), "nothing was sent yet");

        first.write_all(b"GET").expect("it is open");
        let seen = await_look(&mut diag, |seen| !seen.waiting_ms.is_empty());
        assert_eq!((seen.backlog, seen.established, seen.waiting_ms.len()), (2, 2, 1));
        let earlier = seen.waiting_ms[0];
        await_look(&mut diag, |seen| seen.waiting_ms[0] > earlier);

        let (mut served, _) = listener.accept().expect("it waits");
        served.read_exact(&mut [0; 3]).expect("it was sent");
        let seen = await_look(&mut diag, |seen| seen.backlog == 1);
        assert_eq!((seen.established, seen.waiting_ms.len()), (2, 0), "read, so not waiting");
        drop(second);
        let seen = await_look(&mut diag, |seen| seen.established == 1);
        assert_eq!((seen.abandoned, seen.waiting_ms.len()), (1, 0), "it left without a request");
        first.write_all(b"GET").expect("it is open");
        drop(first);
        let seen = await_look(&mut diag, |seen| seen.established == 0);
        assert_eq!((seen.abandoned, seen.waiting_ms.len()), (2, 1), "its request still waits");
        drop(served);
        await_look(&mut diag, |seen| seen.abandoned == 1);

        let elsewhere = IpAddr::from([127, 9, 9, 9]);
        let mut elsewhere = InetDiag::open(port, Some(elsewhere)).expect("fine");
        let seen = elsewhere.look().expect("fine");
        assert_eq!(seen.listeners, u32::from(listen.is_unspecified()));
    }

    /// A `tcp_info` with these times, in milliseconds ago, and bytes.
    fn information(sent_ms: u32, received_ms: u32, acked: u64, received: u64) -> Vec<u8> {
        let mut bytes = vec![0; 232];
        bytes[LAST_DATA_SENT..][..4].copy_from_slice(&sent_ms.to_ne_bytes());
        bytes[LAST_DATA_RECV..][..4].copy_from_slice(&received_ms.to_ne_bytes());
        bytes[BYTES_ACKED..][..8].copy_from_slice(&acked.to_ne_bytes());
        bytes[BYTES_RECEIVED..][..8].copy_from_slice(&received.to_ne_bytes());
        bytes
    }

    /// Purpose: a connection is idle if it has been answered, and only after a second, or if its client has sent nothing
    /// for three. It is not idle while it waits for an answer, however long, nor if it was never answered.
    #[test]
    fn idle_is_who_is_owed_nothing() {
        for (sent_ms, received_ms, acked, received, idle) in [
            (5000, 5000, 0, 9, false),     // never answered
            (5000, 5000, 1, 9, false),     // nor this one
            (5000, 5000, 200, 9, true),    // answered within a tick
            (5000, 5010, 200, 9, true),    // answered a little later
            (1000, 60_000, 200, 9, true),  // answered after long
            (999, 60_000, 200, 9, false),  // just now
            (5000, 4000, 200, 9, false),   // asked again a second after the last answer
            (60_000, 1000, 200, 9, false), // asked again a second ago
            (5000, 5000, 0, 0, true),      // never asked
            (3000, 3000, 1, 0, true),      // nor this one
            (2999, 2999, 1, 0, false),     // it may ask yet
            (1000, 2000, 200, 0, true),    // greeted by the server
        ] {
            let information = information(sent_ms, received_ms, acked, received);
            assert_eq!(is_idle(&information), Some(idle), "{sent_ms} {received_ms} {acked}");
        }
        assert_eq!(is_idle(&[0; 100]), None, "a kernel that tells less");
    }

    /// Purpose: the kernel's report about real connections, of which one was answered, one never
    /// sent a request, and one waits for its answer.
    #[test]
    fn real_connections_become_idle() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        let mut diag = InetDiag::open(address.port(), None).expect("no privilege is needed");
        let mut pairs: Vec<_> = (0..3)
            .map(|_| {
                let client = TcpStream::connect(address).expect("the backlog has room");
                (client, listener.accept().expect("it waits").0)
            })
            .collect();
        for (client, server) in &mut pairs[..2] {
            client.write_all(b"GET").expect("it is open");
            server.read_exact(&mut [0; 3]).expect("it was sent");
        }
        pairs[0].1.write_all(b"200").expect("it is open");
        pairs[0].0.read_exact(&mut [0; 3]).expect("it was sent");
        // If this thread was kept from looking for long, the third is idle by now, too; the second never is.
        let seen = await_look(&mut diag, |seen| seen.idle >= 1);
        assert!(seen.idle <= 2, "{seen:?}");
        pairs[1].1.write_all(b"200").expect("it is open");
        // The third has sent nothing for three seconds by the time that all of these are idle.
        await_look(&mut diag, |seen| seen.idle == 3);
        pairs[0].0.write_all(b"GET").expect("it is open");
        await_look(&mut diag, |seen| seen.idle == 2);
    }

    /// Purpose: a client that does not take a large answer, but sends, is not one that its server keeps waiting.
    #[test]
    fn who_does_not_read_does_not_wait() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        let mut diag = InetDiag::open(address.port(), None).expect("no privilege is needed");
        let mut client = TcpStream::connect(address).expect("the backlog has room");
        let (mut server, _) = listener.accept().expect("it waits");
        server.set_nonblocking(true).expect("a socket");
        // Until nothing more is taken, for a while, because loopback delivers in another thread.
        for _ in 0..20 {
            while server.write(&[0; 1 << 16]).is_ok() {}
            std::thread::sleep(Duration::from_millis(1));
        }
        client.write_all(b"GET").expect("there is room in this direction");
        std::thread::sleep(Duration::from_millis(20));
        let seen = diag.look().expect("fine");
        assert_eq!((seen.established, seen.waiting_ms.len(), seen.idle), (1, 0, 0));
        server.read_exact(&mut [0; 3]).expect("it was sent");
    }

    /// Purpose: for each family, and for IPv4 at a listener for both: bytes that wait in the
    /// backlog or unread are seen, with their age, and no longer once they were read.
    #[test]
    fn waiting_connections_are_seen() {
        let (v4, v6) = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        check_at(v4.into(), v4.into());
        check_at(v6.into(), v6.into());
        check_at(Ipv6Addr::UNSPECIFIED.into(), v4.into());
    }
}
