//! The trailer section of a request: its fields, as far as they are passed on.

use super::parse::{Parsed, whole_field};
use super::state::Scratch;
use crate::http::{Fields, is_left_out};

/// The fields of a trailer section in `lines`, which are all valid; `None` if none is passed on.
#[cold]
pub(super) fn read<'r>(lines: &[u8], scratch: &'r mut Scratch) -> Option<Fields<'r>> {
    let Scratch { parsed: Parsed { spans, .. }, body } = scratch;
    spans.clear();
    body.clear();
    body.extend_from_slice(lines);
    let mut at = 0;
    while at < body.len() {
        let line = whole_field(body, at).expect("the decoder has checked it byte by byte");
        if !is_left_out(line.name(body)) {
            spans.push(line.span());
        }
        at = line.end + 2;
    }
    (!spans.is_empty()).then_some(Fields { bytes: body, spans })
}
