//! Which fields of a request's trailer section are passed on?

use super::parse::field;
use super::state::Scratch;
use crate::http::{Fields, REQUEST_DEADLINE, REQUEST_TIMEOUT};

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

/// The fields of a trailer section in `lines`, which are all valid; `None` if none is passed on.
#[cold]
pub(super) fn read<'r>(lines: &[u8], scratch: &'r mut Scratch) -> Option<Fields<'r>> {
    let Scratch { spans, body, .. } = scratch;
    spans.clear();
    body.clear();
    body.extend_from_slice(lines);
    let mut at = 0;
    while at < body.len() {
        let line = field(body, at, usize::MAX).ok().flatten();
        let (span, next) = line.expect("the decoder has checked it byte by byte");
        if !LEFT_OUT.iter().any(|name| span.name_in(body).eq_ignore_ascii_case(name)) {
            spans.push(span);
        }
        at = next;
    }
    (!spans.is_empty()).then_some(Fields { bytes: body, spans })
}
