//! A client that calls an interface as its document says, with values that nobody thought of.

use std::path::Path;
use std::process::Command;

use highwater_skip::skip;

/// What the script exits with where nothing can be installed.
const NO_NETWORK: i32 = 75;

/// Calls the interface that the document at `url` describes. Every answer is one that the document has, or the test
/// fails with what was sent and answered.
///
/// # Panics
/// If an answer is not in the document.
#[track_caller]
pub fn schemathesis(url: &str, arguments: &[&str]) {
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/services/schemathesis.sh");
    let output =
        Command::new(script).arg(url).args(arguments).output().expect("the script is there");
    if output.status.code() == Some(NO_NETWORK) {
        return skip("schemathesis", String::from_utf8_lossy(&output.stderr));
    }
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
}
