//! What the kernel gets, as listings.

use super::*;

/// Purpose: the instructions that the kernel gets are those that a reader has checked against
/// `linux/bpf.h`, with an address and without.
#[test]
fn the_lookup_reads_so() {
    let program = socket_lookup(7, 8, "127.0.0.1:8080".parse().unwrap());
    let address = i32::from_ne_bytes([127, 0, 0, 1]);
    let expected = include_str!("socket_lookup.txt").replace("ADDRESS", &format!("{address:#x}"));
    assert_eq!(program.to_string(), expected);
}

/// Purpose: as for the lookup. The one before a listener of another process knows no sources.
#[test]
fn the_port_lookup_reads_so() {
    let program = port_lookup(7, "127.0.0.1:8080".parse().unwrap());
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
 11: if w2 == 0x0 goto 15
 12: r2 = *(u64 *)(r1 +128)
 13: r3 = *(u64 *)(r1 +0)
 14: if r2 s>= r3 goto 17
 15: r0 = 1
 16: exit
 17: r6 = r1
 18: call 5
 19: r1 = r6
 20: r2 = *(u64 *)(r1 +16)
 21: if r0 s>= r2 goto 15
 22: r2 = *(u64 *)(r1 +8)
 23: if w2 != 0x3 goto 30
 24: r2 = *(u64 *)(r1 +640)
 25: r3 = *(u64 *)(r1 +768)
 26: r2 -= r3
 27: r3 = *(u64 *)(r1 +0)
 28: if r2 s>= r3 goto 30
 29: goto 15
 30: r2 = 1
 31: lock *(u64 *)(r1 +384) += r2
 32: r0 = 0
 33: exit
"
        )
    );
}

/// Purpose: an address that needs fewer conditions makes a shorter program; IPv6 needs all four
/// words of its address.
#[test]
fn the_lookup_matches_the_address() {
    let conditions = |address: &str| {
        let listing = socket_lookup(7, 8, address.parse().unwrap()).to_string();
        listing.lines().filter(|line| line.contains("(r1 +4") || line.contains("(r1 +5")).count()
    };
    assert_eq!(conditions("0.0.0.0:8080"), 0);
    assert_eq!(conditions("192.0.2.1:8080"), 1);
    assert_eq!(conditions("[::]:8080"), 0);
    assert_eq!(conditions("[2001:db8::1]:8080"), 4);
    let family = |address: &str| {
        let listing = socket_lookup(7, 8, address.parse().unwrap()).to_string();
        listing.contains("(r1 +8)\n  6: if w2 != 0x2 goto")
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
    assert_eq!(listener_filter(7, 8).to_string(), include_str!("listener_filter.txt"));
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
 16: r6 = r1
 17: call 5
 18: r1 = r6
 19: r2 = *(u64 *)(r1 +16)
 20: if r0 s>= r2 goto 27
 21: r2 = -1
 22: lock *(u64 *)(r1 +128) += r2
 23: r2 = 1
 24: lock *(u64 *)(r1 +384) += r2
 25: r0 = 0
 26: exit
 27: r2 = 1
 28: lock *(u64 *)(r1 +256) += r2
 29: r0 = 1
 30: exit
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
