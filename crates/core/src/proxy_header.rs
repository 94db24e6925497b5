//! Which client does a proxy say that a connection is from, before the first byte of that client?
//!
//! HAProxy's PROXY protocol, versions 1 (a line of text) and 2 (binary): one header in front of everything else that a
//! connection carries, TLS included. [`parse`] looks at all bytes that have come so far, and keeps nothing. It never reads
//! behind the header.
//!
//! ```text
//!  v1   PROXY TCP4 203.0.113.7 192.0.2.1 56324 443\r\n          at most 107 bytes
//!  v2   12 bytes of signature │ version, command │ family │ length │ addresses, further fields     at most HEADER_MAX
//! ```
//!
//! Only the source's address is taken. Further fields of version 2 are skipped unread; its checksum among them, because TCP has
//! one of its own.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Longest header of version 2, in bytes. Its length field allows 64 KiB; proxies send a few hundred bytes (addresses, names,
/// the identity of a TLS client). A guess, with room.
pub const HEADER_MAX: usize = 4096;

/// Longest header of version 1, in bytes, with its line's end (§2.1).
const LINE_MAX: usize = 107;

/// Begins a header of version 1.
const LINE_START: &[u8] = b"PROXY ";

/// Begins a header of version 2 (§2.2).
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The bytes of version 2 before its addresses.
const FIXED: usize = 16;

/// A complete header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The client's address. `None` if the proxy names none, or has connected on its own behalf, as for health checks: the
    /// connection is then the proxy's own.
    pub source: Option<SocketAddr>,
    /// Its length in bytes; the client's bytes follow.
    pub length: usize,
}

/// Why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// They begin like neither version.
    Start,
    /// It is longer than it may be.
    TooLong,
    /// Its line does not have the form of version 1.
    Line,
    /// Its version or command is not one of version 2.
    Command,
    /// Its family of addresses or its transport is not one that a connection of TCP or a Unix socket can have.
    Family,
    /// It is too short for its addresses.
    Addresses,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Malformed::Start => "the connection does not begin with a PROXY header",
            Malformed::TooLong => "the PROXY header is too long",
            Malformed::Line => "the line of the PROXY header is malformed",
            Malformed::Command => "the PROXY header has an unknown version or command",
            Malformed::Family => "the PROXY header has an unknown family of addresses",
            Malformed::Addresses => "the PROXY header is too short for its addresses",
        })
    }
}

impl core::error::Error for Malformed {}

/// The header that `bytes` begin with; `None` if more of them have to come.
///
/// # Errors
/// They cannot become a header, whatever follows.
///
/// ```
/// use highwater_core::proxy_header::parse;
///
/// let bytes = b"PROXY TCP4 203.0.113.7 192.0.2.1 56324 443\r\nGET / HTTP/1.1\r\n";
/// let header = parse(bytes).unwrap().unwrap();
/// assert_eq!(header.source, Some("203.0.113.7:56324".parse().unwrap()));
/// assert!(bytes[header.length..].starts_with(b"GET"));
/// assert_eq!(parse(&bytes[..20]), Ok(None));
/// assert!(parse(b"GET / HTTP/1.1\r\n").is_err());
/// ```
pub fn parse(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    if begins(bytes, SIGNATURE) {
        return if bytes.len() < FIXED { Ok(None) } else { binary(bytes) };
    }
    match begins(bytes, LINE_START) {
        true if bytes.len() < LINE_START.len() => Ok(None),
        true => line(bytes),
        false => Err(Malformed::Start),
    }
}

/// Whether `bytes` begin with `start`, as far as they go.
fn begins(bytes: &[u8], start: &[u8]) -> bool {
    let length = bytes.len().min(start.len());
    bytes[..length] == start[..length]
}

fn line(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    let seen = &bytes[..bytes.len().min(LINE_MAX)];
    let Some(end) = seen.windows(2).position(|pair| pair == b"\r\n") else {
        return if seen.len() < LINE_MAX { Ok(None) } else { Err(Malformed::TooLong) };
    };
    let text = core::str::from_utf8(&seen[LINE_START.len()..end]).map_err(|_| Malformed::Line)?;
    let source = match text.split_once(' ') {
        Some(("TCP4", rest)) => {
            Some(source_of(rest, |address| Ok(IpAddr::V4(address.parse::<Ipv4Addr>()?)))?)
        }
        Some(("TCP6", rest)) => {
            Some(source_of(rest, |address| Ok(IpAddr::V6(address.parse::<Ipv6Addr>()?)))?)
        }
        // Whatever follows is to be ignored.
        Some(("UNKNOWN", _)) => None,
        None if text == "UNKNOWN" => None,
        _ => return Err(Malformed::Line),
    };
    Ok(Some(Header { source, length: end + 2 }))
}

/// The source among two addresses and two ports, with one space between them.
fn source_of(
    text: &str,
    address: impl Fn(&str) -> Result<IpAddr, core::net::AddrParseError>,
) -> Result<SocketAddr, Malformed> {
    let mut words = text.split(' ');
    let mut next = || words.next().ok_or(Malformed::Line);
    let (source, destination) = (next()?, next()?);
    let (source_port, destination_port) = (next()?, next()?);
    if words.next().is_some() {
        return Err(Malformed::Line);
    }
    address(destination).map_err(|_| Malformed::Line)?;
    port(destination_port)?;
    let source = address(source).map_err(|_| Malformed::Line)?;
    Ok(SocketAddr::new(source, port(source_port)?))
}

/// A decimal without leading zeros or a sign.
fn port(text: &str) -> Result<u16, Malformed> {
    let is_canonical = text == "0" || text.starts_with(|first: char| matches!(first, '1'..='9'));
    text.parse().ok().filter(|_| is_canonical).ok_or(Malformed::Line)
}

/// `bytes` have the signature, and at least its fixed part.
fn binary(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    let (command, family) = (bytes[12], bytes[13]);
    let length = FIXED + usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    let is_local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(Malformed::Command),
    };
    // For LOCAL the family is to be ignored.
    let addresses = match family {
        _ if is_local => 0,
        0x00 => 0,
        0x11 => 12,
        0x21 => 36,
        0x31 => 216,
        _ => return Err(Malformed::Family),
    };
    if length > HEADER_MAX {
        return Err(Malformed::TooLong);
    }
    if length < FIXED + addresses {
        return Err(Malformed::Addresses);
    }
    let Some(content) = bytes.get(FIXED..length) else { return Ok(None) };
    let port = |at: usize| u16::from_be_bytes([content[at], content[at + 1]]);
    let source = match addresses {
        12 => {
            let address: [u8; 4] = content[..4].try_into().expect("four bytes");
            Some(SocketAddr::new(address.into(), port(8)))
        }
        36 => {
            let address: [u8; 16] = content[..16].try_into().expect("sixteen bytes");
            Some(SocketAddr::new(address.into(), port(32)))
        }
        _ => None, // A Unix socket's peer has no address, and neither has one that is not named.
    };
    Ok(Some(Header { source, length }))
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::vec::Vec;

    use super::*;

    /// A header of version 2.
    fn v2(command: u8, family: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).expect("it is short").to_be_bytes();
        [SIGNATURE, &[command, family], &length, content].concat()
    }

    /// Two addresses and two ports, as version 2 has them.
    fn pair(source: &[u8], port: u16) -> Vec<u8> {
        let destination: Vec<u8> = source.iter().map(|byte| !byte).collect();
        [source, &destination, &port.to_be_bytes(), &443_u16.to_be_bytes()].concat()
    }

    fn address(text: &str) -> Option<SocketAddr> {
        Some(text.parse().expect("an address"))
    }

    /// Headers of the specification's kinds, and their sources.
    fn headers() -> Vec<(Vec<u8>, Option<SocketAddr>)> {
        let six = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
        let fields = [&pair(&[203, 0, 113, 7], 1)[..], &[4, 0, 3, 1, 2, 3, 0xee, 0, 1, 9]].concat();
        std::vec![
            (
                b"PROXY TCP4 203.0.113.7 192.0.2.1 56324 443\r\n".to_vec(),
                address("203.0.113.7:56324")
            ),
            (
                b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n".to_vec(),
                address("255.255.255.255:65535")
            ),
            (b"PROXY TCP6 2001:db8::7 ::1 0 1\r\n".to_vec(), address("[2001:db8::7]:0")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN ffff::1 anything at all\r\n".to_vec(), None),
            (v2(0x21, 0x11, &pair(&[203, 0, 113, 7], 56_324)), address("203.0.113.7:56324")),
            (v2(0x21, 0x21, &pair(&six, 80)), address("[2001:db8::7]:80")),
            (v2(0x21, 0x11, &fields), address("203.0.113.7:1")),
            (v2(0x21, 0x31, &[b'a'; 216]), None),
            (v2(0x21, 0x00, b"ignored"), None),
            (v2(0x20, 0x00, b""), None),
            (v2(0x20, 0x11, b"ignored"), None),
            (v2(0x20, 0xff, b""), None),
        ]
    }

    /// Purpose: every kind of header says what its specification has it say, wherever the bytes are cut, and takes nothing that
    /// follows it.
    #[test]
    fn headers_cut_at_every_byte() {
        for (header, source) in headers() {
            let followed = [&header[..], b"\r\nPROXY GET"].concat();
            let shown = header.escape_ascii();
            for cut in 0..followed.len() {
                let wanted =
                    (cut >= header.len()).then_some(Header { source, length: header.len() });
                assert_eq!(parse(&followed[..cut]), Ok(wanted), "{shown} at {cut}");
            }
        }
    }

    /// Purpose: what is no header is refused, as early as that is certain: the peer must not be taken for somebody else.
    #[test]
    fn malformed() {
        let too_long =
            [SIGNATURE, &[0x21, 0x11], &((HEADER_MAX - FIXED + 1) as u16).to_be_bytes()].concat();
        let cases: Vec<(Vec<u8>, Malformed)> = std::vec![
            (b"G".to_vec(), Malformed::Start),
            (b"PROXYTCP4".to_vec(), Malformed::Start),
            (b"proxy TCP4".to_vec(), Malformed::Start),
            (b"\r\n\r\n\0\r\nQUIT\r".to_vec(), Malformed::Start),
            (b"\x16\x03\x01".to_vec(), Malformed::Start),
            (v2(0x11, 0x11, &pair(&[1, 2, 3, 4], 1)), Malformed::Command),
            (v2(0x22, 0x11, &pair(&[1, 2, 3, 4], 1)), Malformed::Command),
            (v2(0x21, 0x12, &pair(&[1, 2, 3, 4], 1)), Malformed::Family),
            (v2(0x21, 0x41, &pair(&[1, 2, 3, 4], 1)), Malformed::Family),
            (v2(0x21, 0x11, &[0; 11]), Malformed::Addresses),
            (v2(0x21, 0x21, &[0; 35]), Malformed::Addresses),
            (v2(0x21, 0x31, &[0; 215]), Malformed::Addresses),
            (too_long, Malformed::TooLong),
        ];
        for (bytes, malformed) in cases {
            assert_eq!(parse(&bytes), Err(malformed), "{}", bytes.escape_ascii());
        }
        for line in [
            "",
            " ",
            "TCP4",
            "TCP4 ",
            "TCP5 1.2.3.4 1.2.3.4 1 2",
            "UNKNOWNS",
            "tcp4 1.2.3.4 1.2.3.4 1 2",
            "TCP4 1.2.3.4 1.2.3.4 1",
            "TCP4 1.2.3.4 1.2.3.4 1 2 3",
            "TCP4 1.2.3.4 1.2.3.4 1 2 ",
            "TCP4  1.2.3.4 1.2.3.4 1 2",
            "TCP4 1.2.3 1.2.3.4 1 2",
            "TCP4 01.2.3.4 1.2.3.4 1 2",
            "TCP4 1.2.3.4 1.2.3.256 1 2",
            "TCP4 ::1 ::1 1 2",
            "TCP6 1.2.3.4 1.2.3.4 1 2",
            "TCP6 [::1] ::1 1 2",
            "TCP4 1.2.3.4 1.2.3.4 65536 2",
            "TCP4 1.2.3.4 1.2.3.4 01 2",
            "TCP4 1.2.3.4 1.2.3.4 +1 2",
            "TCP4 1.2.3.4 1.2.3.4 1 -2",
            "TCP4 1.2.3.4 1.2.3.4 1\t2",
            "TCP4 1.2.3.4 1.2.3.4 1 2\r",
            "TCP4 é",
        ] {
            let bytes = format!("PROXY {line}\r\n");
            assert_eq!(parse(bytes.as_bytes()), Err(Malformed::Line), "{line:?}");
        }
    }

    /// Purpose: both versions have a bound, so that no peer makes the server keep more: one below, at it, one above.
    #[test]
    fn bounds() {
        for (length, wanted) in [
            (LINE_MAX - 1, Ok(true)),
            (LINE_MAX, Ok(true)),
            (LINE_MAX + 1, Err(Malformed::TooLong)),
        ] {
            let line =
                format!("PROXY UNKNOWN {}\r\n", "x".repeat(length - "PROXY UNKNOWN \r\n".len()));
            assert_eq!(parse(line.as_bytes()).map(|header| header.is_some()), wanted, "{length}");
        }
        assert_eq!(parse(&[b"PROXY ", &[b'x'; LINE_MAX - 7][..]].concat()), Ok(None));
        assert_eq!(
            parse(&[b"PROXY ", &[b'x'; LINE_MAX - 6][..]].concat()),
            Err(Malformed::TooLong)
        );
        let room = HEADER_MAX - FIXED;
        for (length, wanted) in
            [(room - 1, Ok(true)), (room, Ok(true)), (room + 1, Err(Malformed::TooLong))]
        {
            let header = v2(0x21, 0x00, &std::vec![0; length]);
            assert_eq!(parse(&header).map(|header| header.is_some()), wanted, "{length}");
        }
    }
}
