//! The compiler's messages about functions that are not handlers. Each message has to say what to write
//! instead; the `.stderr` files are compared word for word.
//!
//! After a deliberate change: `TRYBUILD=overwrite cargo test -p highwater-ui`, and read the difference. The
//! same after a type was added whose name another already has, here or in a dependency: the compiler
//! then writes both with their paths, and its lists of types look different.

use std::process::Command;

/// The compiler whose words the `.stderr` files hold; others put the same things differently.
const RECORDED_WITH: &str = "rustc 1.95.";

/// Purpose: mistakes in a handler's signature are explained where they were made.
#[test]
fn messages() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().expect("the compiler runs");
    if !version.stdout.starts_with(RECORDED_WITH.as_bytes()) {
        let version = String::from_utf8_lossy(&version.stdout);
        let reason = format!("recorded with {RECORDED_WITH}x, and this is {version}");
        return highwater_skip::skip("rustc", reason);
    }
    let cases = trybuild::TestCases::new();
    cases.compile_fail("cases/*.rs");
    cases.compile_fail("cases/tower/*.rs");
}
