//! How does a test say that it cannot run on this machine? With one line, which `scripts/test.sh` counts:
//!
//! ```text
//! SKIPPED kernel::tests::nft_is_a_ceiling: needs nft: cannot run nft: No such file or directory
//! ```
//!
//! A test that skips counts as passed, so a machine that lost what the tests need would let everything
//! pass. The script detects what the machine has, and names it in `CI_MUST_RUN`: then a test that skips for
//! lack of it fails. A package of its own, since the tests of each crate need it and it needs none.
#![forbid(unsafe_code)]

use std::fmt::Display;
use std::io::Write as _;

/// Names of capabilities, separated by spaces: a test may not skip for lack of one of them.
pub const MUST_RUN: &str = "CI_MUST_RUN";

/// Says that the calling test, or a part of it, does not run: it needs `need`, and `reason` says what is
/// wrong with that. The test is named after its thread, as libtest does.
///
/// The needs: `io_uring`, `ipv6`, `cgroup2`, `cpus` (two of them), `root` (namespaces and gates in the kernel),
/// `rustc` (the version that messages were recorded with), `git` (a work tree), `llvm-tools` (rustup component),
/// `mdbook` (`make site` installs it), `kafka` (a broker can be had), `privileged_ports` (ports below 1024 need a
/// right), `chromium` (or another browser that `scripts/services/chromium.sh` finds), `schemathesis` (PyPI can be reached), `npm` (with node, and its registry
/// or the packages of tests/typescript), and
/// programs by their names.
///
/// # Panics
/// If `CI_MUST_RUN` names `need`.
pub fn skip(need: &str, reason: impl Display) {
    let thread = std::thread::current();
    let line = line(thread.name().unwrap_or("a test"), need, &reason.to_string());
    let must_run = std::env::var(MUST_RUN).unwrap_or_default();
    assert!(
        !names(&must_run, need),
        "{line}\n{MUST_RUN} says that {need} is here; mend it, or set {MUST_RUN} to what is"
    );
    // Past libtest, which shows only what failing tests print. If it cannot be said, it cannot be helped.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The line itself; a reason of several lines becomes one.
fn line(test: &str, need: &str, reason: &str) -> String {
    let words: Vec<&str> = reason.split_whitespace().collect();
    format!("SKIPPED {test}: needs {need}: {}", words.join(" "))
}

/// Whether `need` is one of the words of `must_run`.
fn names(must_run: &str, need: &str) -> bool {
    must_run.split_whitespace().any(|word| word == need)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the script counts lines, so a skip is one line whatever its reason says.
    #[test]
    fn a_skip_is_one_line() {
        assert_eq!(
            line("a::b", "nft", "no\n\n  such\r\nfile "),
            "SKIPPED a::b: needs nft: no such file"
        );
    }

    /// Purpose: a need that the script found is told from one whose name it only begins with.
    #[test]
    fn needs_are_told_apart() {
        for (must_run, need, is_named) in [
            ("", "nft", false),
            ("root nft", "nft", true),
            ("root\nnft\n", "root", true),
            ("nftables", "nft", false),
            ("nft", "nftables", false),
        ] {
            assert_eq!(names(must_run, need), is_named, "{must_run:?} {need}");
        }
    }
}
