//! What the compiler says about handlers that are none. Each message has to say what to write
//! instead; the `.stderr` files are compared word for word.
//!
//! After a deliberate change: `TRYBUILD=overwrite cargo test --test ui`, and read the difference. The
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
    // Kafka's client has a type `Header`, too: see above. The gate has all features on.
    if cfg!(not(feature = "kafka")) {
        return highwater_skip::skip("kafka", "recorded with the feature `kafka`, and it is off");
    }
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
    // With more than one kind of layer the compiler puts it differently; all features are on in the gate.
    if cfg!(feature = "tower") {
        cases.compile_fail("tests/ui/tower/*.rs");
    }
}
