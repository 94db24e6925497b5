//! Is a page of ours complete in itself, and does its content security policy fit it?

use sha2::{Digest, Sha256};

/// Checks that `policy` names the style and the script of `page` by their hashes: browsers would run neither otherwise.
pub(crate) fn assert_policy_fits(policy: &str, page: &str) {
    for kind in ["style", "script"] {
        let hash = base64(&Sha256::digest(content(page, kind)));
        let expected = format!("{kind}-src 'sha256-{hash}';");
        assert!(policy.contains(&expected), "write into POLICY: {expected}");
    }
}

/// Checks that `page` is small, loads nothing, and has no script that could turn text into markup.
pub(crate) fn assert_self_contained(page: &str, size_max: usize) {
    assert!(page.len() < size_max, "{} bytes", page.len());
    for forbidden in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "src=",
        "@import",
    ] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    // The name of a format is not an address that is loaded.
    let addresses = page.matches("://").count();
    assert_eq!(addresses, page.matches("http://www.w3.org/2000/svg").count());
}

/// The text of the first element of a kind, which is what a browser hashes.
fn content<'p>(page: &'p str, kind: &str) -> &'p str {
    let (_, rest) = page.split_once(&format!("<{kind}>")).expect("it opens");
    rest.split_once(&format!("</{kind}>")).expect("it closes").0
}

/// Base64 (RFC 4648 §4).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = bytes.chunks(3).flat_map(|three| {
        let word =
            (0..3).fold(0, |word, at| word << 8 | usize::from(three.get(at).copied().unwrap_or(0)));
        (0..4).map(move |at| match at <= three.len() {
            true => char::from(DIGITS[word >> (18 - 6 * at) & 63]),
            false => '=',
        })
    });
    digits.collect()
}

/// Purpose: the hashes that pages are checked by are right.
#[test]
fn base64_is_that_of_rfc_4648() {
    assert_eq!(base64(b"M"), "TQ==");
    assert_eq!(base64(b"Many"), "TWFueQ==");
}
