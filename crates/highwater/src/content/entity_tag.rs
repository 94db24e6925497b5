//! Which entity tag does content without a version get? (RFC 9110 §8.8.3)

use std::hash::{DefaultHasher, Hasher};

#[cfg(all(feature = "compression", feature = "tower"))]
use super::coding::Coding;

/// A strong tag of these bytes, with its quotes, the same in every process. It tells content apart that differs by accident; it
/// need not withstand somebody who makes two contents of one tag on purpose, who could only keep a client from seeing his own.
pub(crate) fn of_content(content: &[u8]) -> String {
    let hash = |seed: u8| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(seed);
        hasher.write(content);
        hasher.finish()
    };
    format!("\"{:x}-{:016x}{:016x}\"", content.len(), hash(0), hash(1))
}

/// The tag of the content of `tag` in a coding: another strong one, `"7;gzip"` for `"7"`, since the bytes are others. A weak one is
/// about the meaning, which is the same.
#[cfg(feature = "compression")]
pub(crate) fn coded(tag: &[u8], coding: &str) -> Vec<u8> {
    match tag.strip_suffix(b"\"") {
        Some(opened) if !tag.starts_with(b"W/") => {
            [opened, b";", coding.as_bytes(), b"\""].concat()
        }
        _ => tag.to_vec(),
    }
}

/// Whether `one` is what [`coded`] makes of the strong tag `other`.
#[cfg(feature = "compression")]
pub(crate) fn is_coded(one: &[u8], other: &[u8], coding: &str) -> bool {
    let behind = other.strip_suffix(b"\"").and_then(|opened| one.strip_prefix(opened));
    let named = behind.and_then(|rest| rest.strip_prefix(b";")?.strip_suffix(b"\""));
    named == Some(coding.as_bytes())
}

/// Attached by a compression layer to requests with conditions, whose tags may be those of compressed content.
#[cfg(all(feature = "compression", feature = "tower"))]
#[derive(Clone, Copy)]
pub(crate) struct CodedTags;

/// The tag from which [`coded`] has made `tag`, which may have become weak since, and the coding.
#[cfg(all(feature = "compression", feature = "tower"))]
pub(crate) fn uncoded(tag: &[u8]) -> Option<(Vec<u8>, Coding)> {
    Coding::ALL.into_iter().find_map(|coding| {
        let behind = [b";", coding.name().as_bytes(), b"\""].concat();
        Some(([tag.strip_suffix(&*behind)?, b"\""].concat(), coding))
    })
}

/// A strong tag of a version, with its quotes: the version itself, or, where that has bytes that no tag may have, one made of
/// them.
#[cfg(feature = "json")]
pub(crate) fn of_version(version: &str) -> String {
    let is_allowed = |byte: u8| byte == 0x21 || (0x23..=0x7e).contains(&byte);
    match version.bytes().all(is_allowed) {
        true => format!("\"{version}\""),
        false => of_content(version.as_bytes()),
    }
}

#[cfg(all(test, feature = "json"))]
mod tests {
    use super::*;

    /// Purpose: whatever a version is, its tag can be sent, and two versions have two tags.
    #[test]
    fn versions() {
        assert_eq!(of_version("7"), "\"7\"");
        assert_eq!(of_version(""), "\"\"");
        let odd = ["a b", "a\"b", "a\nb", "ä", "\u{7f}"].map(of_version);
        for (index, tag) in odd.iter().enumerate() {
            assert!(tag.is_ascii() && !tag[1..tag.len() - 1].contains(['"', ' ', '\n']), "{tag}");
            assert!(!odd[..index].contains(tag), "{tag}");
        }
    }
}
