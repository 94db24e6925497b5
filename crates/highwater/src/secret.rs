//! Are two secrets the same? The comparison does not reveal where they differ.

/// Whether two secrets are the same, in a time that depends on the length of `given` only. For checks of passwords and keys:
/// `==` ends at the first difference, and the time that it takes tells where that is.
///
/// ```
/// use highwater::auth::same;
///
/// assert!(same("open sesame", "open sesame"));
/// assert!(!same("open says me", "open sesame"));
/// ```
#[cfg_attr(not(feature = "auth"), allow(unreachable_pub, reason = "`auth` is where it is public"))]
pub fn same(given: impl AsRef<[u8]>, secret: impl AsRef<[u8]>) -> bool {
    let (given, secret) = (given.as_ref(), secret.as_ref());
    let mut difference = u8::from(given.len() != secret.len());
    for (at, byte) in given.iter().enumerate() {
        // Beyond its end the secret is compared with zeros, and the lengths have differed already.
        difference |= byte ^ secret.get(at).copied().unwrap_or(0);
        difference = std::hint::black_box(difference);
    }
    difference == 0
}

#[cfg(test)]
mod tests {
    use super::same;

    /// Purpose: only equal secrets are the same: not what one begins with, nor what zeros would fill.
    #[test]
    fn only_equals_are_the_same() {
        assert!(same("", "") && same("a", "a"));
        for (given, secret) in
            [("", "a"), ("a", ""), ("a", "ab"), ("ab", "a"), ("a\0", "a"), ("b", "a")]
        {
            assert!(!same(given, secret), "{given:?} {secret:?}");
        }
    }
}
