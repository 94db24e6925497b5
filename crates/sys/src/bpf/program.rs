//! The programs of a gate.
//!
//! Five short ones, each with its listing in the tests.
//!
//! * [`socket_lookup`] runs when a packet arrives for which there is no connection. While the limit
//!   is reached, it reports that no socket listens, and the kernel answers with a reset. Packets of
//!   existing connections do not run it.
//! * [`listener_filter`] runs on a listener of this process, after the lookup, and does the
//!   counting: it sees TCP's flags, so that only a SYN counts as a connection. It admits in one
//!   atomic step, so that two SYNs at once on two cores can never both get the last place. A SYN
//!   that it refuses gets no answer.
//! * [`port_lookup`] is the first of these for a listener of another process, whose connections
//!   [`connection_events`] counts: it takes a place for each handshake that begins, frees it at the
//!   end of the connection, and reports how many were established and have ended. A lookup cannot see
//!   flags, but a handshake begins only with a SYN, so stray packets take no place.
//! * [`counting_lookup`] does both where there are no such events. So each packet without a
//!   connection takes a place, stray ones and returning SYN cookies included, until the gate's owner
//!   compares the count with the kernel's list of connections.
//!
//! The context structures are those of `linux/bpf.h`, whose layout is part of the kernel's ABI.

use std::net::{IpAddr, SocketAddr};

use super::asm::Register::{self, R0, R1, R2, R3, R4, R6};
use super::asm::{Assembler, If, Label, Program, Width};
use super::map::{Mode, offset};

/// `struct bpf_sk_lookup`.
mod lookup {
    pub(super) const FAMILY: i16 = 8;
    pub(super) const PROTOCOL: i16 = 12;
    pub(super) const LOCAL_IP4: i16 = 40;
    pub(super) const LOCAL_IP6: i16 = 44;
    /// In the byte order of this machine, unlike the addresses.
    pub(super) const LOCAL_PORT: i16 = 60;
    /// Results.
    pub(super) const NOBODY: i32 = 0;
    pub(super) const GO_ON: i32 = 1;
}

/// `struct __sk_buff` and, behind its pointer, `struct bpf_sock`.
mod packet {
    pub(super) const SOCKET: i16 = 168;
    pub(super) const SOCKET_STATE: i16 = 72;
    /// In the packet, which for a filter of a TCP socket begins with TCP's header (RFC 9293 §3.1).
    pub(super) const TCP_FLAGS: i32 = 13;
    pub(super) const SYN: i32 = 0x02;
    pub(super) const ACK: i32 = 0x10;
    /// Results: how many bytes to keep.
    pub(super) const NOTHING: i32 = 0;
    pub(super) const EVERYTHING: i32 = i32::MAX;
}

/// `struct bpf_sock_ops`.
mod event {
    pub(super) const WHAT: i16 = 0;
    /// For a change of state: the old and the new state.
    pub(super) const NEW_STATE: i16 = 8;
    pub(super) const FAMILY: i16 = 20;
    pub(super) const LOCAL_IP4: i16 = 28;
    pub(super) const LOCAL_IP6: i16 = 48;
    pub(super) const LOCAL_PORT: i16 = 68;
    /// 0 while a SYN has been received and the handshake is not complete.
    pub(super) const IS_FULL_SOCKET: i16 = 72;
    /// The initial window is requested: when a SYN begins a handshake, whether or not the kernel answers it
    /// with a cookie, and when a client of this machine connects.
    pub(super) const WINDOW: i32 = 2;
    /// A connection to a listener was established.
    pub(super) const ACCEPTED: i32 = 5;
    pub(super) const STATE_CHANGED: i32 = 10;
    /// Asks for events about changes of state.
    pub(super) const TELL_STATES: i32 = 1 << 2;
    /// `bpf_sock_ops_cb_flags_set`.
    pub(super) const SET_FLAGS: i32 = 59;
    /// `bpf_get_netns_cookie`.
    pub(super) const NAMESPACE_COOKIE: i32 = 122;
}

const TCP: i32 = libc::IPPROTO_TCP;
/// States of a TCP socket, as numbered by the kernel.
const TCP_CLOSE: i32 = 7;
const TCP_LISTEN: i32 = 10;

/// While the limit is reached, in [`Mode::Reset`], refuses packets for `address` with a reset.
pub(super) fn socket_lookup(map: i32, address: SocketAddr) -> Program {
    refusing_lookup(map, address, If::NotEqual, Mode::Reset)
}

/// While the limit is reached, refuses packets for `address` with a reset, unless in [`Mode::Off`].
pub(super) fn port_lookup(map: i32, address: SocketAddr) -> Program {
    refusing_lookup(map, address, If::Equal, Mode::Off)
}

/// While the limit is reached, refuses packets for `address` with a reset, unless the mode compares
/// so with `mode`.
fn refusing_lookup(map: i32, address: SocketAddr, unless: If, mode: Mode) -> Program {
    let mut a = Assembler::new();
    let (go_on, refuse) = (a.label(), a.label());
    match_address(&mut a, address, go_on);
    a.map_value(R1, map);
    a.load(Width::U64, R2, R1, offset::MODE);
    a.jump_if(R2, unless, mode as i32, go_on);
    a.load(Width::U64, R2, R1, offset::TAKEN);
    a.load(Width::U64, R3, R1, offset::LIMIT);
    a.jump_if_at_least(R2, R3, refuse);
    a.place(go_on);
    a.exit_with(lookup::GO_ON);
    a.place(refuse);
    count(&mut a, offset::RESET);
    a.exit_with(lookup::NOBODY);
    a.finish()
}

/// Counts connections to the listener it is attached to, and drops those beyond the limit unless in
/// [`Mode::Off`]. In [`Mode::Reset`] it drops only SYNs that came at the same moment as the last
/// admitted one.
pub(super) fn listener_filter(map: i32) -> Program {
    let mut a = Assembler::new();
    let (keep, refuse) = (a.label(), a.label());
    a.copy(R6, R1);
    // Connections that are not accepted yet have inherited the filter, and their packets run it
    // too.
    a.load(Width::U64, R2, R6, packet::SOCKET);
    a.jump_if_null(R2, keep);
    a.load(Width::U32, R2, R2, packet::SOCKET_STATE);
    a.jump_if(R2, If::NotEqual, TCP_LISTEN, keep);
    a.load_packet_byte(packet::TCP_FLAGS);
    a.and(R0, packet::SYN | packet::ACK);
    a.jump_if(R0, If::NotEqual, packet::SYN, keep);
    a.map_value(R1, map);
    admit_or(&mut a, refuse);
    a.place(keep);
    a.exit_with(packet::EVERYTHING);
    a.place(refuse);
    give_back(&mut a);
    count(&mut a, offset::DROPPED);
    a.exit_with(packet::NOTHING);
    a.finish()
}

/// Counts packets for `address`, and refuses with a reset those beyond the limit, unless in
/// [`Mode::Off`].
pub(super) fn counting_lookup(map: i32, address: SocketAddr) -> Program {
    let mut a = Assembler::new();
    let (go_on, refuse) = (a.label(), a.label());
    match_address(&mut a, address, go_on);
    a.map_value(R1, map);
    admit_or(&mut a, refuse);
    a.place(go_on);
    a.exit_with(lookup::GO_ON);
    a.place(refuse);
    give_back(&mut a);
    count(&mut a, offset::RESET);
    a.exit_with(lookup::NOBODY);
    a.finish()
}

/// Counts the connections to `address` in the network namespace with this cookie: the beginning of a
/// handshake takes a place, and the end of the connection frees it.
pub(super) fn connection_events(map: i32, address: SocketAddr, namespace: u64) -> Program {
    let mut a = Assembler::new();
    let (opening, begin, changed, done) = (a.label(), a.label(), a.label(), a.label());
    a.copy(R6, R1);
    a.load(Width::U32, R2, R6, event::LOCAL_PORT);
    a.jump_if(R2, If::NotEqual, i32::from(address.port()), done);
    match_end(&mut a, address.ip().to_canonical(), done);
    // A control group may include several network namespaces, and a program of another gate may
    // have asked for the events of a connection there.
    a.call(event::NAMESPACE_COOKIE);
    a.set_wide(R2, namespace);
    a.jump_if_differs(R0, R2, done);
    a.load(Width::U32, R2, R6, event::WHAT);
    a.jump_if(R2, If::Equal, event::WINDOW, opening);
    a.jump_if(R2, If::Equal, event::ACCEPTED, begin);
    a.jump_if(R2, If::Equal, event::STATE_CHANGED, changed);
    a.jump(done);
    a.place(opening);
    // A client that connects from this port is not a connection to it.
    a.load(Width::U32, R2, R6, event::IS_FULL_SOCKET);
    a.jump_if(R2, If::NotEqual, 0, done);
    a.map_value(R1, map);
    count(&mut a, offset::TAKEN);
    count(&mut a, offset::ADMITTED);
    a.jump(done);
    a.place(begin);
    a.copy(R1, R6);
    a.set(R2, event::TELL_STATES);
    a.call(event::SET_FLAGS);
    // A connection that cannot be watched would never be seen to end.
    a.jump_if(R0, If::NotEqual, 0, done);
    a.map_value(R1, map);
    count(&mut a, offset::ESTABLISHED);
    a.jump(done);
    a.place(changed);
    a.load(Width::U32, R2, R6, event::NEW_STATE);
    a.jump_if(R2, If::NotEqual, TCP_CLOSE, done);
    a.map_value(R1, map);
    give_back(&mut a);
    count(&mut a, offset::CLOSED);
    a.place(done);
    a.exit_with(1);
    a.finish()
}

/// Jumps to `other` unless the packet is TCP and for `address`. The IPv6 wildcard also matches
/// IPv4.
fn match_address(a: &mut Assembler, address: SocketAddr, other: Label) {
    a.load(Width::U32, R2, R1, lookup::PROTOCOL);
    a.jump_if(R2, If::NotEqual, TCP, other);
    a.load(Width::U32, R2, R1, lookup::LOCAL_PORT);
    a.jump_if(R2, If::NotEqual, i32::from(address.port()), other);
    let ip = address.ip().to_canonical();
    if ip.is_unspecified() && ip.is_ipv6() {
        return;
    }
    let family = if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    a.load(Width::U32, R2, R1, lookup::FAMILY);
    a.jump_if(R2, If::NotEqual, family, other);
    if !ip.is_unspecified() {
        match_ip(a, R1, ip, (lookup::LOCAL_IP4, lookup::LOCAL_IP6), other);
    }
}

/// Jumps to `other` unless the connection in R6 is to `ip`. A listener for both families has IPv4
/// connections that are marked as IPv6; their address identifies them.
fn match_end(a: &mut Assembler, ip: IpAddr, other: Label) {
    if ip.is_unspecified() && ip.is_ipv6() {
        return;
    }
    if ip.is_ipv6() {
        a.load(Width::U32, R2, R6, event::FAMILY);
        a.jump_if(R2, If::NotEqual, libc::AF_INET6, other);
    }
    match_ip(a, R6, ip, (event::LOCAL_IP4, event::LOCAL_IP6), other);
}

/// Jumps to `other` unless the context in `context` has `ip` in the address field of its family.
fn match_ip(a: &mut Assembler, context: Register, ip: IpAddr, at: (i16, i16), other: Label) {
    let mut word_is = |position: i16, octets: [u8; 4]| {
        a.load(Width::U32, R2, context, position);
        a.jump_if(R2, If::NotEqual, i32::from_ne_bytes(octets), other);
    };
    match ip {
        IpAddr::V4(ip) => word_is(at.0, ip.octets()),
        IpAddr::V6(ip) => {
            for (position, octets) in (at.1..).step_by(4).zip(ip.octets().chunks(4)) {
                word_is(position, [octets[0], octets[1], octets[2], octets[3]]);
            }
        }
    }
}

/// Takes a place on the page in R1 and continues. If no place was left it jumps to `refuse`, which
/// must give the place back. The addition comes first and decides: of any number of SYNs at once,
/// exactly as many find less than the limit as there were places.
fn admit_or(a: &mut Assembler, refuse: Label) {
    let admit = a.label();
    a.set(R2, 1);
    a.fetch_add(R1, offset::TAKEN, R2);
    a.load(Width::U64, R3, R1, offset::MODE);
    a.jump_if(R3, If::Equal, Mode::Off as i32, admit);
    a.load(Width::U64, R4, R1, offset::LIMIT);
    a.jump_if_at_least(R2, R4, refuse);
    a.place(admit);
    count(a, offset::ADMITTED);
}

/// Frees a place on the page in R1.
fn give_back(a: &mut Assembler) {
    a.set(R2, -1);
    a.atomic_add(R1, offset::TAKEN, R2);
}

/// Adds one to a word of the page in R1.
fn count(a: &mut Assembler, word: i16) {
    a.set(R2, 1);
    a.atomic_add(R1, word, R2);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the instructions that the kernel gets are those that a reader has checked against
    /// `linux/bpf.h`, with an address and without.
    #[test]
    fn the_lookup_reads_so() {
        let program = socket_lookup(7, "127.0.0.1:8080".parse().unwrap());
        let address = i32::from_ne_bytes([127, 0, 0, 1]);
        assert_eq!(
            program.to_string(),
            format!(
                "  0: r2 = *(u32 *)(r1 +12)
  1: if w2 != 0x6 goto 15
  2: r2 = *(u32 *)(r1 +60)
  3: if w2 != 0x1f90 goto 15
  4: r2 = *(u32 *)(r1 +8)
  5: if w2 != 0x2 goto 15
  6: r2 = *(u32 *)(r1 +40)
  7: if w2 != {address:#x} goto 15
  8: r1 = map_value(fd 7)
 10: r2 = *(u64 *)(r1 +8)
 11: if w2 != 0x1 goto 15
 12: r2 = *(u64 *)(r1 +128)
 13: r3 = *(u64 *)(r1 +0)
 14: if r2 s>= r3 goto 17
 15: r0 = 1
 16: exit
 17: r2 = 1
 18: lock *(u64 *)(r1 +384) += r2
 19: r0 = 0
 20: exit
"
            )
        );
    }

    /// Purpose: the lookup before a listener of another process differs in the one comparison that says
    /// when it refuses nothing.
    #[test]
    fn the_port_lookup_reads_so() {
        let address = "127.0.0.1:8080".parse().unwrap();
        let (ours, others) = (socket_lookup(7, address), port_lookup(7, address));
        let expected = ours.to_string().replace("11: if w2 != 0x1 goto", "11: if w2 == 0x0 goto");
        assert_eq!(others.to_string(), expected);
        assert_ne!(others.to_string(), ours.to_string());
    }

    /// Purpose: an address that needs fewer conditions makes a shorter program; IPv6 needs all four
    /// words of its address.
    #[test]
    fn the_lookup_matches_the_address() {
        let conditions = |address: &str| {
            let listing = socket_lookup(7, address.parse().unwrap()).to_string();
            listing
                .lines()
                .filter(|line| line.contains("(r1 +4") || line.contains("(r1 +5"))
                .count()
        };
        assert_eq!(conditions("0.0.0.0:8080"), 0);
        assert_eq!(conditions("192.0.2.1:8080"), 1);
        assert_eq!(conditions("[::]:8080"), 0);
        assert_eq!(conditions("[2001:db8::1]:8080"), 4);
        let family = |address: &str| {
            let listing = socket_lookup(7, address.parse().unwrap()).to_string();
            listing.contains("(r1 +8)\n  5: if w2 != 0x2 goto")
        };
        assert!(family("0.0.0.0:1") && !family("[::]:1") && !family("[::1]:1"));
    }

    /// Purpose: a connection's end is matched by the same address as its beginning: by the one word
    /// of IPv4, whatever family the kernel reports, or by the four words of IPv6 and the family.
    #[test]
    fn the_events_match_the_address() {
        let conditions = |address: &str, positions: &[i16]| {
            let listing = connection_events(7, address.parse().unwrap(), 1).to_string();
            let reads = |position| listing.contains(&format!("r2 = *(u32 *)(r6 +{position})"));
            positions.iter().filter(|&position| reads(position)).count()
        };
        let (v4, v6) = ([28], [20, 48, 52, 56, 60]);
        assert_eq!(conditions("[::]:80", &v4) + conditions("[::]:80", &v6), 0);
        assert_eq!((conditions("192.0.2.1:80", &v4), conditions("192.0.2.1:80", &v6)), (1, 0));
        assert_eq!((conditions("[::1]:80", &v4), conditions("[::1]:80", &v6)), (0, 5));
    }

    /// Purpose: as for the lookup. The addition comes before the comparison, and is taken back after it.
    #[test]
    fn the_filter_reads_so() {
        assert_eq!(
            listener_filter(7).to_string(),
            "  0: r6 = r1
  1: r2 = *(u64 *)(r6 +168)
  2: if r2 == 0 goto 18
  3: r2 = *(u32 *)(r2 +72)
  4: if w2 != 0xa goto 18
  5: r0 = *(u8 *)skb[13]
  6: r0 &= 18
  7: if w0 != 0x2 goto 18
  8: r1 = map_value(fd 7)
 10: r2 = 1
 11: r2 = atomic64_fetch_add((u64 *)(r1 +128), r2)
 12: r3 = *(u64 *)(r1 +8)
 13: if w3 == 0x0 goto 16
 14: r4 = *(u64 *)(r1 +0)
 15: if r2 s>= r4 goto 20
 16: r2 = 1
 17: lock *(u64 *)(r1 +256) += r2
 18: r0 = 2147483647
 19: exit
 20: r2 = -1
 21: lock *(u64 *)(r1 +128) += r2
 22: r2 = 1
 23: lock *(u64 *)(r1 +512) += r2
 24: r0 = 0
 25: exit
"
        );
    }

    /// Purpose: as for the lookup.
    #[test]
    fn the_counting_lookup_reads_so() {
        assert_eq!(
            counting_lookup(7, "[::]:8080".parse().unwrap()).to_string(),
            "  0: r2 = *(u32 *)(r1 +12)
  1: if w2 != 0x6 goto 14
  2: r2 = *(u32 *)(r1 +60)
  3: if w2 != 0x1f90 goto 14
  4: r1 = map_value(fd 7)
  6: r2 = 1
  7: r2 = atomic64_fetch_add((u64 *)(r1 +128), r2)
  8: r3 = *(u64 *)(r1 +8)
  9: if w3 == 0x0 goto 12
 10: r4 = *(u64 *)(r1 +0)
 11: if r2 s>= r4 goto 16
 12: r2 = 1
 13: lock *(u64 *)(r1 +256) += r2
 14: r0 = 1
 15: exit
 16: r2 = -1
 17: lock *(u64 *)(r1 +128) += r2
 18: r2 = 1
 19: lock *(u64 *)(r1 +384) += r2
 20: r0 = 0
 21: exit
"
        );
    }

    /// Purpose: as for the lookup.
    #[test]
    fn the_events_read_so() {
        assert_eq!(
            connection_events(7, "[::]:8080".parse().unwrap(), 0x1_0000_0002).to_string(),
            "  0: r6 = r1
  1: r2 = *(u32 *)(r6 +68)
  2: if w2 != 0x1f90 goto 38
  3: call 122
  4: r2 = 0x100000002
  6: if r0 != r2 goto 38
  7: r2 = *(u32 *)(r6 +0)
  8: if w2 == 0x2 goto 12
  9: if w2 == 0x5 goto 21
 10: if w2 == 0xa goto 30
 11: goto 38
 12: r2 = *(u32 *)(r6 +72)
 13: if w2 != 0x0 goto 38
 14: r1 = map_value(fd 7)
 16: r2 = 1
 17: lock *(u64 *)(r1 +128) += r2
 18: r2 = 1
 19: lock *(u64 *)(r1 +256) += r2
 20: goto 38
 21: r1 = r6
 22: r2 = 4
 23: call 59
 24: if w0 != 0x0 goto 38
 25: r1 = map_value(fd 7)
 27: r2 = 1
 28: lock *(u64 *)(r1 +640) += r2
 29: goto 38
 30: r2 = *(u32 *)(r6 +8)
 31: if w2 != 0x7 goto 38
 32: r1 = map_value(fd 7)
 34: r2 = -1
 35: lock *(u64 *)(r1 +128) += r2
 36: r2 = 1
 37: lock *(u64 *)(r1 +768) += r2
 38: r0 = 1
 39: exit
"
        );
    }
}
