//! Was this compiled with a profile? Tells the code by an environment variable, for `highwater_build_info` and
//! `highwater pgo info`.
//!
//! Cargo tells a build script which flags the compiler gets; a program could not find out later. It prints `none`,
//! `instrumented`, or an id of the profile's content: FNV-1a, as `highwater pgo info` computes it.
#![forbid(unsafe_code)]

use std::env;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    println!("cargo::rustc-env=HIGHWATER_PGO={}", pgo(&flags));
}

/// What flags, separated by U+001F, say about profiles. Both `-Cname=value` and `-C name=value` are flags.
fn pgo(flags: &str) -> String {
    let values =
        flags.split('\u{1f}').map(|flag| flag.strip_prefix("-C").unwrap_or(flag).trim_start());
    let mut found = String::from("none");
    // As for the compiler, the last one counts.
    for value in values {
        if value == "profile-generate" || value.starts_with("profile-generate=") {
            found = String::from("instrumented");
        } else if let Some(path) = value.strip_prefix("profile-use=") {
            println!("cargo::rerun-if-changed={path}");
            found = id(Path::new(path));
        }
    }
    found
}

/// 16 hexadecimal digits; `unknown` if the file cannot be read from here.
fn id(path: &Path) -> String {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let Ok(bytes) = std::fs::read(path) else { return String::from("unknown") };
    let hash =
        bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
    format!("{hash:016x}")
}
