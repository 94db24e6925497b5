//! Is the kernel old? A server tries what works and never asks for the version; this is for operators who wonder why
//! something does not work.

use serde::Serialize;

/// Something that a server uses if the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Feature {
    pub(super) name: &'static str,
    pub(super) since: &'static str,
    /// Whether this kernel's version has it; distributions bring features to older versions.
    pub(super) here: bool,
}

const FEATURES: [(&str, &str); 5] = [
    ("CAP_BPF (the gate without root)", "5.8"),
    ("the gate in the kernel (sk_lookup)", "5.9"),
    ("io_uring's memory outside the limit of locked memory", MEMORY_NOT_LOCKED),
    ("io_uring with multishot receive", "6.0"),
    ("io_uring with deferred task work", "6.1"),
];

/// From this version on, neither io_uring's rings nor the gate's maps count as locked memory.
const MEMORY_NOT_LOCKED: &str = "5.12";

/// Whether the kernel of this release counts them.
pub(super) fn counts_memory(release: &str) -> bool {
    version(release) < version(MEMORY_NOT_LOCKED)
}

pub(super) fn look(release: &str) -> Vec<Feature> {
    let version = version(release);
    let feature = |&(name, since): &(&'static str, &'static str)| Feature {
        name,
        since,
        here: version >= self::version(since),
    };
    FEATURES.iter().map(feature).collect()
}

/// The first two numbers of a release such as `6.18.44-generic`.
fn version(release: &str) -> (u32, u32) {
    let mut numbers =
        release.split(|at: char| !at.is_ascii_digit()).map(|digits| digits.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: versions are compared as numbers: 5.10 is newer than 5.9, and 6.0 than both.
    #[test]
    fn versions_are_numbers() {
        let here = |release: &str| look(release).iter().filter(|feature| feature.here).count();
        assert_eq!(here("6.18.44-fc"), FEATURES.len());
        assert_eq!(here("5.10.0-28-amd64"), 2);
        assert_eq!(here("6.0.0"), 4);
        assert_eq!(here("4.19"), 0);
        assert_eq!(here("strange"), 0);
        let counts = ["5.11.22", "5.12.0", "6.1.0-18-amd64"].map(counts_memory);
        assert_eq!(counts, [true, false, false]);
    }
}
