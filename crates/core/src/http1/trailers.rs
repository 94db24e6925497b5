//! The trailer section of a request: its fields, as far as they are passed on.

use super::parse::whole_field;
use super::state::Scratch;
use crate::http::{Fields, is_left_out};

/// The fields of a trailer section in `lines`, which are all valid; `None` if none is passed on.
#[cold]
pub(super) fn read<'r>(lines: &[u8], scratch: &'r mut Scratch) -> Option<Fields<'r>> {
    let Scratch { spans, body, .. } = scratch;
    spans.clear();
    body.clear();
    body.extend_from_slice(lines);
    let mut rest = body.as_slice();
    while !rest.is_empty() {
        let line = whole_field(rest).expect("the decoder has checked it byte by byte");
        if !is_left_out(line.name) {
            spans.push(line.span(body.len() - rest.len()));
        }
        rest = line.behind;
    }
    (!spans.is_empty()).then_some(Fields { bytes: body, spans })
}
