//! Does a program say what is wrong with an address to listen on, and what to write instead?

use std::net::TcpListener;
use std::process::Command;

/// What takes the right to listen on ports below 1024 from a program, whoever runs it.
const WITHOUT_RIGHT: [&str; 2] =
    ["--bounding-set=-net_bind_service", "--inh-caps=-net_bind_service"];

/// The first port that needs no right, as the kernel is set.
const FIRST_FREE: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";

/// Asserts that the program ends, and says in one line which address it cannot listen on, why, and what to do:
/// without a port, with a name, below 1024 without the right, and where another process listens. `command` makes the
/// command for an address.
///
/// # Panics
/// If it does not.
pub fn refuses_wrong_addresses(command: impl Fn(&str) -> Command) {
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = other.local_addr().expect("it is bound").to_string();
    for (address, remedy) in [
        ("127.0.0.1", "the port is missing; use 127.0.0.1:8080"),
        ("localhost:8080", "a name is not an address; use 127.0.0.1:8080"),
        ("127.0.0.1:79", "without it, choose a higher port"),
        (&*taken, "another process listens there: stop it, or choose another port"),
    ] {
        if address.ends_with(":79") && !needs_right(79) {
            highwater_skip::skip(
                "privileged_ports",
                format!("{FIRST_FREE} lets anybody listen on port 79"),
            );
            continue;
        }
        let output = without_right(&command(address)).output().expect("the program was built");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            matches!(output.status.code(), Some(1 | 2)),
            "{address}: {}, {stderr}",
            output.status
        );
        let lines = stderr.lines().filter(|line| line.contains(address) && line.contains(remedy));
        assert_eq!(lines.count(), 1, "{address}: no line with {remedy:?} in\n{stderr}");
        assert!(!stderr.contains("Custom {"), "{address}: {stderr}");
    }
}

fn needs_right(port: u16) -> bool {
    let first = std::fs::read_to_string(FIRST_FREE).ok().and_then(|text| text.trim().parse().ok());
    first.is_none_or(|first: u16| port < first)
}

/// The same command, run without the right to listen on ports below 1024. Only root has it to lose.
fn without_right(command: &Command) -> Command {
    let can_lose = Command::new("setpriv").args(WITHOUT_RIGHT).arg("true").output();
    let mut same = Command::new("setpriv");
    if can_lose.is_ok_and(|output| output.status.success()) {
        same.args(WITHOUT_RIGHT);
    }
    same.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => same.env(name, value),
            None => same.env_remove(name),
        };
    }
    same
}
