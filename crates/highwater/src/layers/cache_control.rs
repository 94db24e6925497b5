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

#[cfg(test)]
mod tests {
    use super::has;

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
