//! A client in TypeScript that a tool makes of an interface's document.

use std::path::{Path, PathBuf};
use std::process::Command;

use highwater_skip::skip;

/// What the script exits with where nothing can be installed.
const NO_NPM: i32 = 75;

/// Makes a client of the document at `url`, and compiles and runs `program` of tests/typescript with it. The program gets the server's
/// address and `arguments`.
///
/// # Panics
/// If the client or the program does not compile, or the program fails.
#[track_caller]
pub fn typescript(url: &str, program: &str, arguments: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program: PathBuf = root.join("tests/typescript").join(program);
    let output = Command::new(root.join("scripts/services/typescript.sh"))
        .arg(url)
        .arg(program)
        .args(arguments)
        .output()
        .expect("the script is there");
    if output.status.code() == Some(NO_NPM) {
        return skip("npm", String::from_utf8_lossy(&output.stderr));
    }
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
}
