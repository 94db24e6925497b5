//! Which file does a path name? The only way from what a client sends to the name of a file.
//!
//! A path is split at its slashes first, and each piece decoded on its own. A piece that is not the plain name of a file
//! makes the whole path name nothing, so that no spelling of `..` means anything: encoded, doubled, with a backslash or a
//! NUL, or in an overlong form of UTF-8. Links are not judged here but by the kernel (`disk.rs`).

use highwater_core::percent::percent_decode;

/// The name of a file or of a folder, relative to the root. It has no leading slash; a folder's ends with one, or it is
/// empty.
pub(super) type Place = String;

/// The place that a path names, which is given without its leading slash and percent-encoded; `None` if it can name none.
/// Unless they are `shown`, names that begin with a dot are none, but for `.well-known` at the top (RFC 8615).
pub(super) fn place(path: &str, shown: bool) -> Option<Place> {
    let mut place = String::with_capacity(path.len() + 16);
    let mut pieces = path.split('/').enumerate().peekable();
    while let Some((index, piece)) = pieces.next() {
        let is_last = pieces.peek().is_none();
        if piece.is_empty() && is_last {
            break; // A folder, or the root.
        }
        let name = percent_decode(piece).ok()?;
        let is_well_known = index == 0 && !is_last && name == ".well-known";
        if !is_name(&name) || name.starts_with('.') && !shown && !is_well_known {
            return None;
        }
        place.push_str(&name);
        if !is_last {
            place.push('/');
        }
    }
    Some(place)
}

/// Whether it may be the name of a file or a folder.
fn is_name(name: &str) -> bool {
    let is_plain =
        |character: char| character != '/' && character != '\\' && !character.is_control();
    !name.is_empty() && name != "." && name != ".." && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Purpose: what names a file below the root does so in each of its spellings.
    #[test]
    fn names() {
        for (path, named) in [
            ("", ""),
            ("a.css", "a.css"),
            ("a/b/c.js", "a/b/c.js"),
            ("a/", "a/"),
            ("a%20b/%C3%BC.txt", "a b/ü.txt"),
            ("%61.css", "a.css"),
            ("a+b", "a+b"),
            ("a%25b", "a%b"),
            ("a:b", "a:b"),
            ("a..b", "a..b"),
            ("...", "..."),
            (".well-known/security.txt", ".well-known/security.txt"),
        ] {
            assert_eq!(place(path, path == "...").as_deref(), Some(named), "{path}");
        }
    }

    /// Purpose: no spelling leads out of the root, nor to a name that a kernel or a browser would understand differently.
    #[test]
    fn ways_out() {
        for path in [
            "..",
            "../",
            "../x",
            "a/../x",
            "a/..",
            ".",
            "./a",
            "a/./b",
            "/a",       // doubled: `//a`
            "a//b",     // doubled
            "a//",      // doubled
            "%2e%2e/x", // encoded
            "%2E%2e/x",
            ".%2e/x",
            "%2e",
            "..%2fx",
            "a%2fb", // an encoded slash is part of a name, and no name has one
            "a%2F..%2Fx",
            "%252e%252e%2fx",
            "..\\x", // backslash
            "..%5cx",
            "a%5Cb",
            "a%00", // NUL
            "a%00.css",
            "%00",
            "%c0%ae%c0%ae/x", // overlong
            "%e0%80%ae/x",
            "%c0%af",
            "%ff",
            "%", // malformed
            "%2",
            "%zz",
            "a%0ab", // control characters
            "a%7f",
            ".env", // hidden
            ".git/config",
            "a/.htpasswd",
            "%2egit/config",
            "a/.well-known/x",
            ".well-known",
        ] {
            assert_eq!(place(path, false), None, "{path}");
        }
        assert_eq!(place(".env", true).as_deref(), Some(".env"));
        assert_eq!(place("..", true), None);
    }

    proptest! {
        /// Purpose: whatever a client sends, the place is below the root.
        #[test]
        fn below_the_root(path in "([a./\\\\]|%2e|%2f|%5c|%00|%c0|%ae|é){0,12}", shown: bool) {
            if let Some(place) = place(&path, shown) {
                prop_assert!(!place.starts_with('/') && !place.contains("//"));
                prop_assert!(place.split('/').all(|name| name != "." && name != ".."));
                prop_assert!(!place.contains(['\\', '\0']));
            }
        }
    }
}
