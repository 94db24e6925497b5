//! The requested server, as `Host` or an authority names it.

use super::runs::host_run;

/// `uri-host [ ":" port ]` (RFC 9110 §7.2), without the comma that RFC 3986 allows in a name: two merged
/// `Host` fields look like that.
pub(crate) fn is_host(value: &[u8]) -> bool {
    if value.first() == Some(&b'[') {
        return is_literal(value);
    }
    let len = host_run(value);
    len > 0 && is_port(&value[len..])
}

/// `"[" IPv6address "]" [ ":" port ]`, by its characters.
#[cold]
fn is_literal(value: &[u8]) -> bool {
    let Some(close) = value.iter().position(|&b| b == b']') else { return false };
    let mut inner = value[1..close].iter();
    close > 1
        && inner.all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.'))
        && is_port(&value[close + 1..])
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
