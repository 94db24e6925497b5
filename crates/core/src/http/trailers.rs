//! Which fields of a request's trailer section are passed on?

use super::deadline_field::{REQUEST_DEADLINE, REQUEST_TIMEOUT};

/// Fields that decide about a message before its content is read, and so must not follow it (RFC 9110
/// §6.5.1): framing, routing, conditions and other modifiers, credentials, and how content is to be read.
///
/// They are left out, not refused: that section forbids only sending them, and has recipients ignore them. A
/// refusal would come after the handler has begun, and would protect nothing, since a trailer is never
/// treated as a header field.
const LEFT_OUT: [&[u8]; 29] = [
    b"transfer-encoding",
    b"content-length",
    b"connection",
    b"keep-alive",
    b"proxy-connection",
    b"upgrade",
    b"te",
    b"trailer",
    b"host",
    b"cache-control",
    b"pragma",
    b"expect",
    b"max-forwards",
    b"range",
    b"if-match",
    b"if-none-match",
    b"if-modified-since",
    b"if-unmodified-since",
    b"if-range",
    b"authorization",
    b"proxy-authorization",
    b"cookie",
    b"set-cookie",
    b"content-encoding",
    b"content-type",
    b"content-range",
    b"content-location",
    REQUEST_TIMEOUT,
    REQUEST_DEADLINE,
];

/// Whether a trailer field of this name is left out. The name's case does not matter.
pub(crate) fn is_left_out(name: &[u8]) -> bool {
    LEFT_OUT.iter().any(|other| name.eq_ignore_ascii_case(other))
}
