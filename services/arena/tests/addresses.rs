//! Errors of the machine are reported at start, once, with the remedy.

use highwater_testkit::{program, refuses_wrong_addresses};

/// Purpose: an address that cannot be listened on ends the program with what to write instead.
#[test]
fn wrong_addresses() {
    refuses_wrong_addresses(|address| {
        let mut command = program(env!("CARGO_BIN_EXE_highwater-arena"));
        command.args(["--metrics=off", "--listen", address]);
        command
    });
}
