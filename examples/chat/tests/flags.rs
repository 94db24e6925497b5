//! The program's flags.

use std::process::Command;

/// Purpose: a flag has its effect: one with a wrong value is refused with status 2, and the help lists the settings.
#[test]
fn flags_are_read() {
    let chat = |flag: &[&str]| {
        let program = env!("CARGO_BIN_EXE_highwater-example-chat");
        Command::new(program).args(flag).output().expect("it was built")
    };
    let refused = chat(&["--listen", "127.0.0.1:65536"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let help = chat(&["--help"]);
    assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("--workers"));
}
