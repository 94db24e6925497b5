//! The trailer section of a request: its fields, as far as they are passed on.

use super::parse::field;
use super::state::Scratch;
use crate::http::{Fields, is_left_out};

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
        if !is_left_out(span.name_in(body)) {
            spans.push(span);
        }
        at = next;
    }
    (!spans.is_empty()).then_some(Fields { bytes: body, spans })
}
