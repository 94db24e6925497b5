//! The whole report, of a machine that is described.

use highwater::machine;

use super::*;

/// Purpose: a machine with nothing to change gets no advice, whatever tools it lacks; each thing to change is in the advice
/// with its command, so that `--check` and a reader agree.
#[test]
fn advice_is_what_is_to_be_mended() {
    let mut machine = machine::look();
    machine.transport = "uring".into();
    (machine.descriptors_soft, machine.somaxconn) = (1 << 20, Some(4096));
    let nothing = |_: &str| None;
    let found = |read: Read<'_>, machine: Machine| Found {
        gate: Gate { mechanism: "ebpf", reason: String::new() },
        limits: limits::look(read),
        sysctls: sysctl::look(read),
        cores: cores::look(read, &[0]),
        kernel: kernel::look("6.18"),
        tools: Vec::new(),
        machine,
    };
    assert_eq!(found(&nothing, machine.clone()).advice(), Vec::<Advice>::new());
    let bad = |path: &str| path.ends_with("tcp_syncookies").then(|| "0\n".to_owned());
    let advice = found(&bad, machine).advice();
    assert_eq!(advice.len(), 1, "{advice:?}");
    assert!(
        advice[0].to_string().contains("sysctl -w net.ipv4.tcp_syncookies=\"1\""),
        "{advice:?}"
    );
}
