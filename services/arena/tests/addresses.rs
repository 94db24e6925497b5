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

/// Purpose: settings that the server cannot start with end the program with status 2, as wrong flags do; what the machine
/// refuses ends it with 1.
#[test]
fn wrong_settings_end_with_status_2() {
    let status = |args: &[&str]| {
        let output = program(env!("CARGO_BIN_EXE_highwater-arena"))
            .args(["--metrics=off"])
            .args(args)
            .output()
            .expect("the binary under test was built");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let missing = "/nowhere/certificate.pem";
    let (code, said) = status(&["--listen=127.0.0.1:0,tls"]);
    assert!(code == Some(2) && said.contains("set tls-cert and tls-key"), "{code:?} {said}");
    let files = ["--tls-cert", missing, "--tls-key", missing];
    let (code, said) = status(&[&["--listen=127.0.0.1:0,tls"], &files[..]].concat());
    assert!(code == Some(2) && said.contains(missing), "{code:?} {said}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound").to_string();
    let (code, said) = status(&["--listen", &address]);
    assert!(code == Some(1) && said.contains(&address), "{code:?} {said}");
}
