//! Are conditions judged in the order and by the comparisons of RFC 9110 §13.2?
//!
//! The input is text: lines of fields, `m` for `If-Match`, `n` for `If-None-Match`, `u` for `If-Unmodified-Since`, `s` for
//! `If-Modified-Since`. The verdict must follow from what the fields say, and must not depend on how names are written.
#![no_main]

use highwater_core::http::{Fields, OwnedFields};
use highwater_core::time::UnixSeconds;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/highwater/src/content/precondition.rs"]
#[allow(dead_code, unexpected_cfgs, reason = "the server uses all of it")]
mod precondition;

use precondition::{Validators, Verdict, judge};

const NOW: UnixSeconds = UnixSeconds(1_800_000_000);
const TAG: &str = "\"a\"";

fuzz_target!(|input: &str| {
    let mut fields = OwnedFields::default();
    for line in input.lines() {
        let mut letters = line.chars();
        let name = match letters.next() {
            Some('m') => "if-match",
            Some('n') => "if-none-match",
            Some('u') => "if-unmodified-since",
            Some('s') => "if-modified-since",
            _ => continue,
        };
        fields.set(name, letters.as_str().as_bytes());
    }
    let fields = fields.fields();
    let known = Validators { tag: Some(TAG.as_bytes()), modified: Some(UnixSeconds(1_700_000_000)) };
    for is_read in [false, true] {
        check(fields, is_read, known);
        check(fields, is_read, Validators::default());
    }
});

fn check(fields: Fields<'_>, is_read: bool, validators: Validators<'_>) {
    let verdict = judge(fields, is_read, validators, NOW);
    let has = |name| fields.get(name).is_some();
    // Only what is read can be unchanged, and only a condition can fail or be met.
    assert!(is_read || verdict != Verdict::NotModified);
    let conditions = ["if-match", "if-none-match", "if-unmodified-since", "if-modified-since"];
    assert!(conditions.into_iter().any(has) || verdict == Verdict::Proceed);
    let value = |name| fields.get(name).unwrap_or_default();
    // A star names every state that there is; without a tag nothing else does.
    match value("if-match") {
        b"*" => assert!(verdict != Verdict::Failed || has("if-none-match")),
        _ if has("if-match") && validators.tag.is_none() => assert_eq!(verdict, Verdict::Failed),
        value if value == TAG.as_bytes() && validators.tag.is_some() => {
            assert!(verdict != Verdict::Failed || has("if-none-match"));
        }
        _ => {}
    }
    if !has("if-match") && !has("if-unmodified-since") && matches!(value("if-none-match"), b"*") {
        let expected = if is_read { Verdict::NotModified } else { Verdict::Failed };
        assert_eq!(verdict, expected);
    }
    // `If-None-Match` takes the place of `If-Modified-Since` (section 13.1.3).
    if has("if-none-match") && validators.tag.is_none() && value("if-none-match") != b"*" {
        assert_ne!(verdict, Verdict::NotModified);
    }
}
