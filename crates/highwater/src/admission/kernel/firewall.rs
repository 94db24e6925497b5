//! Shared by the ceilings made of firewall rules: running tools with the process's capabilities, and counts
//! that are read rarely.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use highwater_sys::capability::{self, Capability};

use super::Counts;

/// How old a count may be. Reading one takes milliseconds of the tools' processor time.
const COUNT_AGE: Duration = Duration::from_secs(1);

/// The only directories that are searched for tools: programs there belong to the system. Anyone may set
/// `PATH`, and a program found through it would run with our capabilities.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// Where the tool is.
pub(super) fn path(name: &str) -> io::Result<PathBuf> {
    let candidates = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    let found = candidates.into_iter().find(|path| path.is_file());
    found.ok_or_else(|| missing(name, &io::ErrorKind::NotFound.into()))
}

/// A command that keeps this process's capability to change the network, and gets an empty environment: the
/// loader and the tools obey many variables.
pub(super) fn tool(name: &str) -> io::Result<Command> {
    let mut command = Command::new(path(name)?);
    command.env_clear().env("PATH", FOLDERS.join(":")).env("LC_ALL", "C");
    capability::hand_on(&mut command, Capability::NetAdmin);
    Ok(command)
}

/// Runs a tool to its end and returns its output.
pub(super) fn run(name: &str, arguments: &[&str]) -> io::Result<String> {
    let output = tool(name)?.args(arguments).output().map_err(|error| missing(name, &error))?;
    let Output { status, stdout, stderr } = output;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    Err(refused(name, String::from_utf8_lossy(&stderr).trim()))
}

/// The tool could not be started.
pub(super) fn missing(name: &str, error: &io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::NotFound {
        return io::Error::new(error.kind(), format!("{name} cannot be started: {error}"));
    }
    let package = if name == "nft" { "nftables" } else { "iptables" };
    let text = format!("{name} is not installed: apt-get install {package}");
    io::Error::new(io::ErrorKind::NotFound, text)
}

/// The tool failed.
pub(super) fn refused(name: &str, output: &str) -> io::Error {
    let output = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>();
    let output = output.join(" ");
    if capability::has(Capability::NetAdmin) {
        return io::Error::other(format!("{name} says: {output}"));
    }
    let text = format!(
        "CAP_NET_ADMIN is missing: setcap cap_net_admin+ep on the program, \
         AmbientCapabilities=CAP_NET_ADMIN in systemd, --cap-add NET_ADMIN in a container \
         ({name} says: {output})"
    );
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

/// The address as rules name it, if it is not the wildcard.
pub(super) fn host(address: SocketAddr) -> Option<String> {
    let ip = address.ip().to_canonical();
    (!ip.is_unspecified()).then(|| ip.to_string())
}

/// A count that is read again only when it is old.
#[derive(Debug, Default)]
pub(super) struct Counted {
    read_at: Option<Instant>,
    counts: Counts,
}

impl Counted {
    /// The count, from `read` if the last one is too old. `read` returns how many were refused.
    pub(super) fn or_read(&mut self, read: impl FnOnce() -> io::Result<u64>) -> io::Result<Counts> {
        let now = Instant::now();
        if self.read_at.is_none_or(|time| now - time >= COUNT_AGE) {
            self.read_at = Some(now);
            self.counts.reset = read()?;
        }
        Ok(self.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a tool that runs with our capabilities is the system's own, whatever our `PATH` says, and
    /// gets no environment that someone else may have set.
    #[test]
    fn tools_are_the_systems_own() {
        assert!(path("sh").expect("every system has one").is_absolute());
        let error = path("no-such-tool").expect_err("it does not exist");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        for outside in ["../../tmp/sh", "/tmp"] {
            assert!(path(outside).is_err(), "{outside}");
        }
        let environment = run("env", &[]).expect("it is one of coreutils");
        let mut names: Vec<&str> = environment
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|pair| pair.0)
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["LC_ALL", "PATH"]);
        assert!(std::env::vars().count() > 2, "there was something to be kept from it");
    }
}
