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

use super::asm::Register::{self, R0, R1, R2, R3, R4, R6, R7, R8, R9};
use super::asm::{Assembler, If, Label, Math, Program, Width};
use super::map::{Mode, offset};
use super::sources::{self, BUCKETS};

/// `struct bpf_sk_lookup`.
mod lookup {
    pub(super) const FAMILY: i16 = 8;
    pub(super) const PROTOCOL: i16 = 12;
    pub(super) const REMOTE_IP4: i16 = 16;
    pub(super) const REMOTE_IP6: i16 = 20;
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
    /// Where the header of the network begins (`SKF_NET_OFF`), and what is in it (RFC 791 §3.1, RFC 8200 §3).
    pub(super) const NETWORK: i32 = -0x10_0000;
    pub(super) const VERSION: i32 = NETWORK;
    pub(super) const SOURCE_IP4: i32 = NETWORK + 12;
    pub(super) const SOURCE_IP6: i32 = NETWORK + 8;
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

/// `bpf_ktime_get_ns`: the nanoseconds of `CLOCK_MONOTONIC`.
const TIME: i32 = 5;

/// Odd numbers without pattern, for two steps of mixing (MurmurHash3's finalizer).
const MIX: [u64; 2] = [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53];

const TCP: i32 = libc::IPPROTO_TCP;
/// States of a TCP socket, as numbered by the kernel.
const TCP_CLOSE: i32 = 7;
const TCP_LISTEN: i32 = 10;

/// While the limit is reached, in [`Mode::Reset`], refuses packets for `address` with a reset. While sources are
/// looked at, it counts theirs, and refuses in the same way those that have had their share.
pub(super) fn socket_lookup(map: i32, sources: i32, address: SocketAddr) -> Program {
    let mut a = Assembler::new();
    let (go_on, refuse, plain) = (a.label(), a.label(), a.label());
    let (six, known, over, full) = (a.label(), a.label(), a.label(), a.label());
    a.copy(R6, R1);
    match_address(&mut a, address, go_on);
    a.map_value(R1, sources);
    a.load(Width::U64, R2, R1, sources::offset::GAP);
    a.jump_if(R2, If::Equal, 0, plain);
    a.load(Width::U32, R2, R6, lookup::FAMILY);
    a.jump_if(R2, If::Equal, libc::AF_INET6, six);
    a.load(Width::U32, R2, R6, lookup::REMOTE_IP4);
    a.jump(known);
    a.place(six);
    a.load(Width::U32, R2, R6, lookup::REMOTE_IP6);
    a.load(Width::U32, R3, R6, lookup::REMOTE_IP6 + 4);
    a.shift_left(R2, 32);
    a.math(R2, Math::Or, R3);
    a.place(known);
    find_buckets(&mut a);
    count(&mut a, R7, sources::offset::SEEN);
    a.map_value(R1, map);
    a.load(Width::U64, R3, R1, offset::MODE);
    a.jump_if(R3, If::NotEqual, Mode::Reset as i32, go_on);
    time_ahead(&mut a);
    a.map_value(R1, map);
    a.map_value(R3, sources);
    places_for(&mut a, over);
    a.load(Width::U64, R2, R1, offset::TAKEN);
    a.jump_if_at_least(R2, R4, full);
    a.jump(go_on);
    // The filter, which does this for the others, does not see what is refused here.
    a.place(full);
    move_on(&mut a);
    a.jump(refuse);
    a.place(plain);
    refuse_beyond_limit(&mut a, map, (If::NotEqual, Mode::Reset), (go_on, refuse));
    a.place(go_on);
    a.exit_with(lookup::GO_ON);
    a.place(over);
    count(&mut a, R3, sources::offset::REFUSED);
    a.place(refuse);
    count(&mut a, R1, offset::RESET);
    a.exit_with(lookup::NOBODY);
    a.finish()
}

/// While the limit is reached, refuses packets for `address` with a reset, unless in [`Mode::Off`], or the limit is not valid
/// any more.
pub(super) fn port_lookup(map: i32, address: SocketAddr) -> Program {
    let mut a = Assembler::new();
    let (go_on, refuse, reset) = (a.label(), a.label(), a.label());
    match_address(&mut a, address, go_on);
    refuse_beyond_limit(&mut a, map, (If::Equal, Mode::Off), (go_on, refuse));
    a.place(go_on);
    a.exit_with(lookup::GO_ON);
    a.place(refuse);
    unless_valid(&mut a, go_on);
    a.load(Width::U64, R2, R1, offset::MODE);
    a.jump_if(R2, If::NotEqual, Mode::ResetBeyondEstablished as i32, reset);
    a.load(Width::U64, R2, R1, offset::ESTABLISHED);
    a.load(Width::U64, R3, R1, offset::CLOSED);
    a.math(R2, Math::Subtract, R3);
    a.load(Width::U64, R3, R1, offset::LIMIT);
    a.jump_if_at_least(R2, R3, reset);
    a.jump(go_on);
    a.place(reset);
    count(&mut a, R1, offset::RESET);
    a.exit_with(lookup::NOBODY);
    a.finish()
}

/// Jumps to `expired` if the owner of the page in R1 has not said lately that its limit is valid. Spoils all registers but
/// R1 and those that calls keep.
fn unless_valid(a: &mut Assembler, expired: Label) {
    a.copy(R6, R1);
    a.call(TIME);
    a.copy(R1, R6);
    a.load(Width::U64, R2, R1, offset::VALID_UNTIL);
    a.jump_if_at_least(R0, R2, expired);
}

/// Jumps to `go_on` if the mode compares so with that given, to `refuse` while the limit is reached, and else continues.
/// The page is in R1 then.
fn refuse_beyond_limit(
    a: &mut Assembler,
    map: i32,
    (unless, mode): (If, Mode),
    (go_on, refuse): (Label, Label),
) {
    a.map_value(R1, map);
    a.load(Width::U64, R2, R1, offset::MODE);
    a.jump_if(R2, unless, mode as i32, go_on);
    a.load(Width::U64, R2, R1, offset::TAKEN);
    a.load(Width::U64, R3, R1, offset::LIMIT);
    a.jump_if_at_least(R2, R3, refuse);
}

/// Counts connections to the listener it is attached to, and drops those beyond the limit unless in
/// [`Mode::Off`]. In [`Mode::Reset`] it drops only SYNs that came at the same moment as the last
/// admitted one. While sources are looked at, each attempt counts for its source unless that has had its share.
pub(super) fn listener_filter(map: i32, sources: i32) -> Program {
    let mut a = Assembler::new();
    let (keep, refuse, plain) = (a.label(), a.label(), a.label());
    let (six, known, over) = (a.label(), a.label(), a.label());
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
    a.map_value(R1, sources);
    a.load(Width::U64, R2, R1, sources::offset::GAP);
    a.jump_if(R2, If::Equal, 0, plain);
    a.load_packet_byte(packet::VERSION);
    a.shift_right(R0, 4);
    a.jump_if(R0, If::Equal, 6, six);
    load_address(&mut a, packet::SOURCE_IP4);
    a.copy(R2, R0);
    a.jump(known);
    a.place(six);
    load_address(&mut a, packet::SOURCE_IP6);
    a.copy(R9, R0);
    load_address(&mut a, packet::SOURCE_IP6 + 4);
    a.copy(R2, R9);
    a.shift_left(R2, 32);
    a.math(R2, Math::Or, R0);
    a.place(known);
    a.map_value(R1, sources);
    find_buckets(&mut a);
    time_ahead(&mut a);
    a.map_value(R1, map);
    a.map_value(R3, sources);
    places_for(&mut a, over);
    a.copy(R9, R4);
    move_on(&mut a);
    a.set(R2, 1);
    a.fetch_add(R1, offset::TAKEN, R2);
    a.jump_if_at_least(R2, R9, refuse);
    count(&mut a, R1, offset::ADMITTED);
    a.jump(keep);
    a.place(plain);
    a.map_value(R1, map);
    admit_or(&mut a, refuse);
    a.place(keep);
    a.exit_with(packet::EVERYTHING);
    a.place(over);
    count(&mut a, R3, sources::offset::REFUSED);
    count(&mut a, R1, offset::DROPPED);
    a.exit_with(packet::NOTHING);
    a.place(refuse);
    give_back(&mut a);
    count(&mut a, R1, offset::DROPPED);
    a.exit_with(packet::NOTHING);
    a.finish()
}

/// R0 = 32 bits of an address in the packet, in the order of the network.
fn load_address(a: &mut Assembler, position: i32) {
    a.load_packet_word(position);
    a.swap_to_network_order(R0);
}

/// R7 and R8 = where the buckets of the source in R2 are, less the offsets of what they hold. The page of sources is
/// in R1.
fn find_buckets(a: &mut Assembler) {
    a.load(Width::U64, R3, R1, sources::offset::SECRET);
    a.math(R2, Math::Xor, R3);
    for factor in MIX {
        a.set_wide(R3, factor);
        a.math(R2, Math::Multiply, R3);
        a.copy(R3, R2);
        a.shift_right(R3, 32);
        a.math(R2, Math::Xor, R3);
    }
    let bits = BUCKETS.ilog2() as i32;
    a.copy(R7, R1);
    a.copy(R8, R1);
    // The bits at both ends: as many as there are buckets, and words have eight bytes.
    a.copy(R3, R2);
    a.shift_right(R3, 64 - bits);
    a.shift_left(R3, 3);
    a.math(R7, Math::Add, R3);
    a.shift_left(R2, 64 - bits);
    a.shift_right(R2, 64 - bits);
    a.shift_left(R2, 3);
    a.math(R8, Math::Add, R2);
}

/// R9 = how far the source of the buckets in R7 and R8 is ahead of now, which is in R0 then.
fn time_ahead(a: &mut Assembler) {
    let least = a.label();
    a.call(TIME);
    a.load(Width::U64, R9, R7, sources::offset::ROWS[0]);
    a.load(Width::U64, R2, R8, sources::offset::ROWS[1]);
    a.jump_if_at_least(R2, R9, least);
    a.copy(R9, R2);
    a.place(least);
    a.math(R9, Math::Subtract, R0);
}

/// R4 = how many places there are for a source that is ahead by R9: the limit, or four times the limit with credit. Jumps to
/// `over` if it has had its share, unless in [`Mode::Off`], in which there are places without end. The page is in R1, that
/// of the sources in R3; spoils R2.
fn places_for(a: &mut Assembler, over: Label) {
    let (done, limited) = (a.label(), a.label());
    a.load(Width::U64, R2, R1, offset::MODE);
    a.jump_if(R2, If::NotEqual, Mode::Off as i32, limited);
    a.set(R4, i32::MAX);
    a.jump(done);
    a.place(limited);
    a.load(Width::U64, R2, R3, sources::offset::AHEAD_MAX);
    a.jump_if_at_least(R9, R2, over);
    a.load(Width::U64, R4, R1, offset::LIMIT);
    a.load(Width::U64, R2, R3, sources::offset::CREDIT_MAX);
    a.jump_if_at_least(R9, R2, done);
    a.shift_left(R4, 2);
    a.place(done);
}

/// An attempt came to the buckets in R7 and R8 now (in R0): the next is due a gap later. Two at the same moment may count as
/// one. The page of the sources is in R3; spoils R2 and R4.
fn move_on(a: &mut Assembler) {
    a.load(Width::U64, R4, R3, sources::offset::GAP);
    for (bucket, row) in [(R7, sources::offset::ROWS[0]), (R8, sources::offset::ROWS[1])] {
        let later = a.label();
        a.load(Width::U64, R2, bucket, row);
        a.jump_if_at_least(R2, R0, later);
        a.copy(R2, R0);
        a.place(later);
        a.math(R2, Math::Add, R4);
        a.store(bucket, row, R2);
    }
}

/// Counts packets for `address`, and refuses with a reset those beyond the limit, unless in
/// [`Mode::Off`], or the limit is not valid any more.
pub(super) fn counting_lookup(map: i32, address: SocketAddr) -> Program {
    let mut a = Assembler::new();
    let (go_on, refuse, expired) = (a.label(), a.label(), a.label());
    match_address(&mut a, address, go_on);
    a.map_value(R1, map);
    admit_or(&mut a, refuse);
    a.place(go_on);
    a.exit_with(lookup::GO_ON);
    a.place(refuse);
    unless_valid(&mut a, expired);
    give_back(&mut a);
    count(&mut a, R1, offset::RESET);
    a.exit_with(lookup::NOBODY);
    a.place(expired);
    count(&mut a, R1, offset::ADMITTED);
    a.exit_with(lookup::GO_ON);
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
    count(&mut a, R1, offset::TAKEN);
    count(&mut a, R1, offset::ADMITTED);
    a.jump(done);
    a.place(begin);
    a.copy(R1, R6);
    a.set(R2, event::TELL_STATES);
    a.call(event::SET_FLAGS);
    // A connection that cannot be watched would never be seen to end.
    a.jump_if(R0, If::NotEqual, 0, done);
    a.map_value(R1, map);
    count(&mut a, R1, offset::ESTABLISHED);
    a.jump(done);
    a.place(changed);
    a.load(Width::U32, R2, R6, event::NEW_STATE);
    a.jump_if(R2, If::NotEqual, TCP_CLOSE, done);
    a.map_value(R1, map);
    give_back(&mut a);
    count(&mut a, R1, offset::CLOSED);
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
    count(a, R1, offset::ADMITTED);
}

/// Frees a place on the page in R1.
fn give_back(a: &mut Assembler) {
    a.set(R2, -1);
    a.atomic_add(R1, offset::TAKEN, R2);
}

/// Adds one to a word of the page in `page`.
fn count(a: &mut Assembler, page: Register, word: i16) {
    a.set(R2, 1);
    a.atomic_add(page, word, R2);
}

#[cfg(test)]
mod tests;
