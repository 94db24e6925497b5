//! Is the condition of a request met? (RFC 9110 §13)

use highwater_core::http::Fields;
use highwater_core::http_date;
use highwater_core::time::UnixSeconds;

#[cfg(feature = "compression")]
use super::coding::{Coding, Weights};
#[cfg(feature = "compression")]
use super::entity_tag::is_coded;
#[cfg(all(feature = "compression", feature = "tower"))]
use super::entity_tag::uncoded;

/// What tells one state of a resource from another.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Validators<'a> {
    /// The entity tag, with its quotes and, if it is weak, its `W/`.
    pub(crate) tag: Option<&'a [u8]>,
    pub(crate) modified: Option<UnixSeconds>,
}

/// The outcome of a request's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Answer as if there were none.
    Proceed,
    /// 304: the client has this state.
    NotModified,
    /// 412: the resource is in another state than the client believes.
    Failed,
}

/// Judges the conditions of a request for a resource that exists, in the order of section 13.2.2. `is_read`: it is a `GET` or
/// `HEAD`. `now` decides the century of old dates.
///
/// The tag of compressed content stands for that of the content itself: the client has seen that state. But it gets a 304 only if
/// it accepts the coding, since a cache may ask for a client that does not.
pub(crate) fn judge(
    fields: Fields<'_>,
    is_read: bool,
    validators: Validators<'_>,
    now: UnixSeconds,
) -> Verdict {
    let date = |name| http_date::parse(fields.get(name)?, now).zip(validators.modified);
    let has = |name| fields.get(name).is_some();
    if has("if-match") {
        let is_same = |one: &[u8], other: &[u8]| {
            is_same_strong(one, other) || is_compressed(one, other, None)
        };
        if !matches(fields, "if-match", validators.tag, is_same) {
            return Verdict::Failed;
        }
    } else if date("if-unmodified-since").is_some_and(|(date, modified)| modified > date) {
        return Verdict::Failed;
    }
    if has("if-none-match") {
        let is_same = |one: &[u8], other: &[u8]| {
            is_same_weak(one, other)
                || is_compressed(opaque(one), opaque(other), is_read.then_some(fields))
        };
        return match matches(fields, "if-none-match", validators.tag, is_same) {
            false => Verdict::Proceed,
            true if is_read => Verdict::NotModified,
            true => Verdict::Failed,
        };
    }
    match is_read && date("if-modified-since").is_some_and(|(date, modified)| modified <= date) {
        true => Verdict::NotModified,
        false => Verdict::Proceed,
    }
}

/// Whether `Range` holds for this state (section 13.1.5): there is no `If-Range`, or it names exactly this state.
#[cfg(feature = "files")]
pub(crate) fn range_holds(
    fields: Fields<'_>,
    validators: Validators<'_>,
    now: UnixSeconds,
) -> bool {
    let Some(condition) = fields.get("if-range") else { return true };
    if condition.starts_with(b"\"") || condition.starts_with(b"W/") {
        return validators.tag.is_some_and(|tag| is_same_strong(condition, tag));
    }
    // A date is a strong validator only if it is at least a second old (section 8.8.2.2).
    let date = http_date::parse(condition, now).zip(validators.modified);
    date.is_some_and(|(date, modified)| date == modified && modified.0 < now.0)
}

/// Whether one of the entity tags in the field `name` is `tag`, or it is `*`.
fn matches(
    fields: Fields<'_>,
    name: &str,
    tag: Option<&[u8]>,
    is_same: impl Fn(&[u8], &[u8]) -> bool,
) -> bool {
    fields.get_all(name).any(|value| {
        value == b"*" || tag.is_some_and(|tag| tags(value).any(|other| is_same(other, tag)))
    })
}

/// The entity tags of a list, up to the first that is malformed.
fn tags(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        while let [b',' | b' ' | b'\t', after @ ..] = rest {
            rest = after;
        }
        let opening = if rest.starts_with(b"W/\"") { 3 } else { 1 };
        if rest.get(opening - 1) != Some(&b'"') {
            return None;
        }
        let length = rest[opening..].iter().position(|byte| *byte == b'"')?;
        let (tag, after) = rest.split_at(opening + length + 1);
        rest = after;
        Some(tag)
    })
}

/// Strong comparison (section 8.8.3.2).
fn is_same_strong(one: &[u8], other: &[u8]) -> bool {
    one == other && !one.starts_with(b"W/")
}

fn is_same_weak(one: &[u8], other: &[u8]) -> bool {
    opaque(one) == opaque(other)
}

/// Whether `one` is the tag of the content of `other` as a compression layer sends it, in a coding that is accepted `by` the client.
#[cfg(feature = "compression")]
fn is_compressed(one: &[u8], other: &[u8], by: Option<Fields<'_>>) -> bool {
    let accepts = |coding| by.is_none_or(|fields| Weights::of(fields).of_coding(coding) > 0);
    let made = Coding::ALL.into_iter().find(|coding| is_coded(one, other, coding.name()));
    made.is_some_and(accepts)
}

#[cfg(not(feature = "compression"))]
fn is_compressed(_: &[u8], _: &[u8], _: Option<Fields<'_>>) -> bool {
    false
}

/// A value of the condition `name` of these fields, with the tags of the content itself in place of those of compressed content, where
/// [`judge`] takes one for the other in a read; `None` if it has none.
#[cfg(all(feature = "compression", feature = "tower"))]
pub(crate) fn without_codings(fields: Fields<'_>, name: &str, value: &[u8]) -> Option<Vec<u8>> {
    let weights = (name == "if-none-match").then(|| Weights::of(fields));
    let is_accepted = |coding| weights.is_none_or(|weights| weights.of_coding(coding) > 0);
    let mut is_changed = false;
    let plain = tags(value).map(|tag| match uncoded(tag) {
        Some((plain, coding)) if is_accepted(coding) => {
            is_changed = true;
            plain
        }
        _ => tag.to_vec(),
    });
    let plain: Vec<Vec<u8>> = plain.collect();
    is_changed.then(|| plain.join(&b", "[..]))
}

/// Whether `If-None-Match` names this tag.
#[cfg(feature = "compression")]
pub(crate) fn is_known(fields: Fields<'_>, tag: &[u8]) -> bool {
    let mut values = fields.get_all("if-none-match");
    values.any(|value| tags(value).any(|one| is_same_weak(one, tag)))
}

fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

#[cfg(test)]
mod tests {
    use highwater_core::http::OwnedHead;

    use super::Verdict::*;
    use super::*;

    const OLD: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const NEW: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn head(lines: &[(&str, &str)]) -> OwnedHead {
        let mut head = OwnedHead::new("GET", "/", Default::default()).expect("it is one");
        head.set_fields(lines.iter().map(|(name, value)| (*name, value.as_bytes())));
        head
    }

    fn validators(tag: &str) -> Validators<'_> {
        let modified = http_date::parse(SAME.as_bytes(), UnixSeconds(800_000_000));
        Validators { tag: Some(tag.as_bytes()), modified }
    }

    /// Purpose: the order and the comparisons of RFC 9110 §13.2.2, each line of it.
    #[test]
    fn order() {
        for (lines, read, write) in [
            (&[][..], Proceed, Proceed),
            (&[("if-match", "\"a\"")], Proceed, Proceed),
            (&[("if-match", "*")], Proceed, Proceed),
            (&[("if-match", "\"b\", \"a\"")], Proceed, Proceed),
            (&[("if-match", "\"b\"")], Failed, Failed),
            (&[("if-match", "W/\"a\"")], Failed, Failed), // strong comparison
            (&[("if-match", "a")], Failed, Failed),
            (&[("if-match", "\"a;gzip\"")], Proceed, Proceed), // the state is the same
            (&[("if-match", "\"a;br\", \"b\"")], Proceed, Proceed),
            (&[("if-match", "W/\"a;gzip\"")], Failed, Failed),
            (&[("if-match", "\"b;gzip\"")], Failed, Failed),
            (&[("if-match", "\"a;lzw\"")], Failed, Failed),
            (&[("if-match", "\"a;gzip;gzip\"")], Failed, Failed),
            (&[("if-none-match", "\"a;gzip\"")], Proceed, Failed), // it does not accept gzip
            (&[("if-none-match", "\"a;br\""), ("accept-encoding", "gzip")], Proceed, Failed),
            (&[("if-none-match", "\"a;gzip\""), ("accept-encoding", "gzip")], NotModified, Failed),
            (
                &[("if-none-match", "W/\"a;gzip\""), ("accept-encoding", "gzip")],
                NotModified,
                Failed,
            ),
            (&[("if-match", "\"a\""), ("if-unmodified-since", OLD)], Proceed, Proceed),
            (&[("if-unmodified-since", OLD)], Failed, Failed),
            (&[("if-unmodified-since", SAME)], Proceed, Proceed),
            (&[("if-unmodified-since", "yesterday")], Proceed, Proceed),
            (&[("if-none-match", "\"a\"")], NotModified, Failed),
            (&[("if-none-match", "W/\"a\"")], NotModified, Failed), // weak comparison
            (&[("if-none-match", "\"b\"")], Proceed, Proceed),
            (&[("if-none-match", "\"b\""), ("if-none-match", "\"x\" ,\"a\"")], NotModified, Failed),
            (&[("if-none-match", "*")], NotModified, Failed),
            (&[("if-none-match", "\"b\""), ("if-modified-since", NEW)], Proceed, Proceed),
            (&[("if-modified-since", OLD)], Proceed, Proceed),
            (&[("if-modified-since", SAME)], NotModified, Proceed),
            (&[("if-modified-since", NEW)], NotModified, Proceed),
            (&[("if-modified-since", "0")], Proceed, Proceed),
            (&[("if-match", "\"a\""), ("if-none-match", "\"a\"")], NotModified, Failed),
            (&[("if-none-match", "\"a,b\"")], Proceed, Proceed), // one tag with a comma in it
        ] {
            let now = UnixSeconds(800_000_000);
            let judged =
                |is_read| judge(head(lines).head().headers(), is_read, validators("\"a\""), now);
            assert_eq!([judged(true), judged(false)], [read, write], "{lines:?}");
        }
    }

    /// Purpose: a resource without validators is in no state that a client could have.
    #[test]
    fn nothing_to_compare() {
        for (line, verdict) in [
            (("if-match", "\"a\""), Failed),
            (("if-match", "*"), Proceed),
            (("if-none-match", "\"a\""), Proceed),
            (("if-modified-since", NEW), Proceed),
        ] {
            let judged = judge(
                head(&[line]).head().headers(),
                true,
                Validators::default(),
                UnixSeconds(800_000_000),
            );
            assert_eq!(judged, verdict, "{line:?}");
        }
    }

    /// Purpose: a download goes on only in exactly the state in which it began.
    #[cfg(feature = "files")]
    #[test]
    fn ranges_of_one_state() {
        let (later, same) = (UnixSeconds(800_000_000), UnixSeconds(784_111_777));
        for (line, tag, now, holds) in [
            (("x", "y"), "\"a\"", later, true),
            (("if-range", "\"a\""), "\"a\"", later, true),
            (("if-range", "\"b\""), "\"a\"", later, false),
            (("if-range", "W/\"a\""), "W/\"a\"", later, false),
            (("if-range", SAME), "\"a\"", later, true),
            (("if-range", NEW), "\"a\"", later, false),
            (("if-range", OLD), "\"a\"", later, false),
            (("if-range", SAME), "\"a\"", same, false), // the same second may hold two states
            (("if-range", "tomorrow"), "\"a\"", later, false),
        ] {
            let held = range_holds(head(&[line]).head().headers(), validators(tag), now);
            assert_eq!(held, holds, "{line:?}");
        }
    }
}
