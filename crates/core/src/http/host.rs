//! The requested server, as `Host` or an authority names it.

use core::net::Ipv6Addr;

use super::runs::host_run;

/// `uri-host [ ":" port ]` (RFC 9110 §7.2), without the comma that RFC 3986 allows in a name: two merged
/// `Host` fields look like that.
pub(crate) fn is_host(value: &[u8]) -> bool {
    if value.first() == Some(&b'[') {
        return is_literal(value);
    }
    let mut len = host_run(value);
    // An encoded byte is rare: the loop costs others one comparison.
    while let [b'%', high, low, rest @ ..] = &value[len..]
        && high.is_ascii_hexdigit()
        && low.is_ascii_hexdigit()
    {
        len += 3 + host_run(rest);
    }
    len > 0 && is_port(&value[len..])
}

/// `"[" IPv6address "]" [ ":" port ]`
#[cold]
fn is_literal(value: &[u8]) -> bool {
    let Some(close) = value.iter().position(|&b| b == b']') else { return false };
    let address = core::str::from_utf8(&value[1..close]);
    address.is_ok_and(|address| address.parse::<Ipv6Addr>().is_ok()) && is_port(&value[close + 1..])
}

/// `[ ":" port ]`: RFC 3986 allows an empty one. It allows numbers beyond 65535, too, but TCP has no such port: the URL standard
/// and nginx refuse them, and a redirect to such a host would lead nowhere.
#[inline]
fn is_port(rest: &[u8]) -> bool {
    match rest {
        [] => true,
        [b':', port @ ..] => {
            let is_in_range = port.len() < 5 || (port.len() == 5 && port <= &b"65535"[..]);
            is_in_range && port.iter().all(u8::is_ascii_digit)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a name is one of RFC 3986 §3.2.2, also in its encoded bytes and in brackets.
    #[test]
    fn hosts() {
        for host in [
            "h",
            "h:",
            "h:65535",
            "a;b",
            "h%41",
            "%41",
            "%41%4a.%ff:80",
            "[::]",
            "[::1]:80",
            "[2001:db8::1]",
            "[1:2:3:4:5:6:7:8]",
            "[1:2:3:4:5:6:7::]",
            "[::ffff:192.0.2.1]",
        ] {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        for host in [
            "",
            ":80",
            "a,b",
            "h:8a",
            "h:123456",
            "%",
            "h%",
            "h%4",
            "h%4:80",
            "h%zz",
            "h%4g",
            "h%%41",
            "h%41%",
            "[]",
            "[:]",
            "[1]",
            "[:::]",
            "[::1",
            "[::1]x",
            "[::1::]",
            "[12345::]",
            "[1:2:3:4:5:6:7:8:9]",
            "[192.0.2.1]",
            "[::192.0.2]",
            "[::256.0.0.1]",
            "[ ::1]",
            "[\u{663}::]",
        ] {
            assert!(!is_host(host.as_bytes()), "{host}");
        }
    }
}
