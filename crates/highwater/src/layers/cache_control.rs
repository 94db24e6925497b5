//! Which directives a `Cache-Control` has (RFC 9111 §5.2).

/// Whether one of `directives` is in the fields of these values. An argument does not matter: a directive that has one which
/// it should not have is still meant.
pub(super) fn has<'v>(values: impl Iterator<Item = &'v [u8]>, directives: &[&str]) -> bool {
    let mut given = values.flat_map(|value| value.split(|&byte| byte == b',')).map(|one| {
        let name = one.split(|&byte| byte == b'=').next().unwrap_or_default();
        name.trim_ascii()
    });
    given.any(|one| directives.iter().any(|name| one.eq_ignore_ascii_case(name.as_bytes())))
}

/// The argument of `directive`, in seconds. One that is not a number is 0: an answer whose freshness cannot be read is stale
/// (section 4.2.1).
pub(super) fn seconds<'v>(values: impl Iterator<Item = &'v [u8]>, directive: &str) -> Option<u64> {
    let mut given = values.flat_map(|value| value.split(|&byte| byte == b','));
    given.find_map(|one| {
        let (name, argument) = std::str::from_utf8(one).ok()?.split_once('=')?;
        let is_meant = name.trim().eq_ignore_ascii_case(directive);
        let digits = argument.trim().trim_matches('"');
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        // Only a number that is too large cannot be parsed then.
        is_meant.then(|| if is_number { digits.parse().unwrap_or(u64::MAX) } else { 0 })
    })
}

#[cfg(test)]
mod tests {
    use super::{has, seconds};

    /// Purpose: the first argument counts, in any case, quoted or not; what is no number is 0, and a number beyond all is one.
    #[test]
    fn seconds_are_read() {
        let max_age = |value: &str| seconds([value.as_bytes()].into_iter(), "max-age");
        for (value, expected) in [
            ("max-age=60", Some(60)),
            ("public, MAX-AGE = 60", Some(60)),
            ("max-age=\"60\", max-age=9", Some(60)),
            ("max-age=0", Some(0)),
            ("max-age=-1", Some(0)),
            ("max-age=", Some(0)),
            ("max-age=99999999999999999999999", Some(u64::MAX)),
            ("max-age", None),
            ("s-maxage=60", None),
        ] {
            assert_eq!(max_age(value), expected, "{value}");
        }
    }

    /// Purpose: a directive is found in each of several fields, in any case, with or without an argument; a part of a name is
    /// not one.
    #[test]
    fn directives_are_found() {
        let has = |values: &[&str]| {
            has(values.iter().map(|value| value.as_bytes()), &["private", "no-store"])
        };
        for found in [
            &["private"][..],
            &["max-age=60, NO-STORE"],
            &["max-age=60", " no-store "],
            &["private=\"set-cookie, x-user\""],
            &["private =x"],
        ] {
            assert!(has(found), "{found:?}");
        }
        for other in [&[][..], &[""], &["public, max-age=60"], &["privately"], &["x=private"]] {
            assert!(!has(other), "{other:?}");
        }
    }
}
