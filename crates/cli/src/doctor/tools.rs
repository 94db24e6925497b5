//! Which tools that inspect a server work here, and which command installs the others?

use serde::Serialize;

use super::{Mend, Read};
use crate::{pgo, profile};

/// A tool that `highwater` uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Tool {
    pub(super) name: &'static str,
    pub(super) works: bool,
    pub(super) good_for: &'static str,
    pub(super) mend: Option<Mend>,
}

pub(super) fn look(read: Read<'_>) -> Vec<Tool> {
    let perf = match profile::perf_here() {
        Ok(_) => None,
        Err(problem) => Some(Mend { command: perf_command(read, &problem), what: problem }),
    };
    let strace = package("strace", "counting system calls needs it", read);
    let valgrind = package("valgrind", "it is not installed", read);
    let llvm =
        pgo::tools_here().err().map(|what| Mend { what, command: pgo::INSTALL_READER.to_owned() });
    let tool =
        |name, good_for, mend: Option<Mend>| Tool { name, works: mend.is_none(), good_for, mend };
    vec![
        tool(
            "perf",
            "highwater profile: stacks; without it, the places where threads wait are sampled",
            perf,
        ),
        tool("strace", "highwater profile: every system call; without it they are sampled", strace),
        tool("valgrind", "make instructions: what a request costs, without noise", valgrind),
        tool("llvm-profdata", "highwater pgo", llvm),
    ]
}

/// What brings `name` if it is missing.
fn package(name: &str, why: &str, read: Read<'_>) -> Option<Mend> {
    let is_here = profile::is_in_path(name);
    (!is_here).then(|| Mend { what: why.to_owned(), command: install(&distribution(read), name) })
}

/// What to do about a perf that is missing, for this kernel or at all, or that may not look.
fn perf_command(read: Read<'_>, problem: &str) -> String {
    if profile::is_perf_missing(problem) {
        let id = distribution(read);
        return match id.as_str() {
            "ubuntu" => "apt-get install linux-tools-$(uname -r)".to_owned(),
            "debian" => install(&id, "linux-perf"),
            _ => install(&id, "perf"),
        };
    }
    "sysctl -w kernel.perf_event_paranoid=1 (or run it as root; --cap-add PERFMON in a container)"
        .to_owned()
}

/// `ID` of `/etc/os-release`.
fn distribution(read: Read<'_>) -> String {
    let text = read("/etc/os-release").unwrap_or_default();
    let id = text.lines().find_map(|line| line.strip_prefix("ID="));
    id.unwrap_or_default().trim_matches('"').to_owned()
}

fn install(distribution: &str, package: &str) -> String {
    match distribution {
        "fedora" | "rhel" | "centos" | "rocky" | "almalinux" | "amzn" => {
            format!("dnf install {package}")
        }
        "alpine" => format!("apk add {package}"),
        "arch" => format!("pacman -S {package}"),
        "opensuse-leap" | "opensuse-tumbleweed" | "sles" => format!("zypper install {package}"),
        _ => format!("apt-get install {package}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the command that installs something is this distribution's.
    #[test]
    fn commands_are_the_distributions() {
        let on = |text: &'static str| install(&distribution(&|_| Some(text.to_owned())), "strace");
        assert_eq!(on("NAME=x\nID=fedora\n"), "dnf install strace");
        assert_eq!(on("ID=\"rocky\"\n"), "dnf install strace");
        assert_eq!(on("ID=debian\n"), "apt-get install strace");
        assert_eq!(install(&distribution(&|_| None), "strace"), "apt-get install strace");
    }

    /// Purpose: a perf that is there only as a script that looks for this kernel's perf, and finds none, is to be
    /// installed; one that may not look is to be allowed.
    #[test]
    fn a_perf_of_another_kernel_is_to_be_installed() {
        let ubuntu = |_: &str| Some("ID=ubuntu\n".to_owned());
        for problem in ["perf is not installed", "WARNING: perf not found for kernel 6.8.0-45"] {
            assert_eq!(perf_command(&ubuntu, problem), "apt-get install linux-tools-$(uname -r)");
        }
        let debian = |_: &str| Some("ID=debian\n".to_owned());
        let missing = "E: linux-perf-5.10 is not installed.";
        assert_eq!(perf_command(&debian, missing), "apt-get install linux-perf");
        assert!(perf_command(&debian, "perf_event_paranoid setting is 4").contains("sysctl -w"));
    }
}
