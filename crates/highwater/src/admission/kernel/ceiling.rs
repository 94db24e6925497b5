//! What the gates made of firewall rules have in common: tools that are run, and a fixed limit; and
//! such a gate before a port of a server that is not ours.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use highwater_sys::capability::{self, Capability};

use super::{Counts, KernelGate, iptables, nft};
use crate::admission::GateChoice;

/// How old a count may be. Reading one takes milliseconds of the tools' processor time.
const COUNT_AGE: Duration = Duration::from_secs(1);

/// A firewall rule that refuses connections to a port, whoever listens there, while there are more
/// than a fixed number. Idle ones count too. Gone when dropped, and when the process dies.
///
/// ```no_run
/// use highwater::server::{Ceiling, GateChoice};
///
/// let mut ceiling = Ceiling::open(GateChoice::Nft, ([0, 0, 0, 0], 80).into(), 500)?;
/// println!("{} refused", ceiling.refused()?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Ceiling(Box<dyn KernelGate>);

impl Ceiling {
    /// Refuses connections to `address` beyond `limit`, in this thread's network namespace. An
    /// unspecified address is every one of its family (nftables: `[::]` is IPv4's as well).
    ///
    /// [`GateChoice::Auto`] is [`GateChoice::Nft`].
    ///
    /// # Errors
    /// What is missing, and the remedy. `Unsupported` for [`GateChoice::Ebpf`], which is no ceiling:
    /// see [`highwater_sys::bpf::PortGate`].
    pub fn open(choice: GateChoice, address: SocketAddr, limit: u32) -> io::Result<Ceiling> {
        let gate: Box<dyn KernelGate> = match choice {
            GateChoice::Auto | GateChoice::Nft => Box::new(nft::Nft::open(address, limit)?),
            GateChoice::Iptables => Box::new(iptables::Iptables::open(address, limit)?),
            GateChoice::Ebpf => {
                return Err(io::Error::new(io::ErrorKind::Unsupported, "ebpf is no fixed ceiling"));
            }
        };
        Ok(Ceiling(gate))
    }

    /// `nft` or `iptables`.
    pub fn mechanism(&self) -> &'static str {
        self.0.mechanism().name()
    }

    /// Connection attempts refused so far, about a second old at most.
    ///
    /// # Errors
    /// The tool failed, or somebody removed the rule.
    pub fn refused(&mut self) -> io::Result<u64> {
        Ok(self.0.counts()?.reset)
    }
}

impl fmt::Debug for Ceiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ceiling").field(&self.mechanism()).finish()
    }
}

/// Where tools are looked for, and nowhere else: what is found there belongs to the system. A `PATH` may
/// be anybody's, and what it led to would be run with our rights.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// Where the tool is.
pub(super) fn path(name: &str) -> io::Result<PathBuf> {
    let candidates = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    let found = candidates.into_iter().find(|path| path.is_file());
    found.ok_or_else(|| missing(name, &io::ErrorKind::NotFound.into()))
}

/// A command that may change the network as this process may, although it is another program; and that
/// sees nothing of our environment: the loader and the tools themselves would obey much that may stand there.
pub(super) fn tool(name: &str) -> io::Result<Command> {
    let mut command = Command::new(path(name)?);
    command.env_clear().env("PATH", FOLDERS.join(":")).env("LC_ALL", "C");
    capability::hand_on(&mut command, Capability::NetAdmin);
    Ok(command)
}

/// Runs a tool to its end and answers what it prints.
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

/// The tool did not do what it was told.
pub(super) fn refused(name: &str, said: &str) -> io::Error {
    let said = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>();
    let said = said.join(" ");
    if capability::has(Capability::NetAdmin) {
        return io::Error::other(format!("{name} says: {said}"));
    }
    let text = format!(
        "CAP_NET_ADMIN is missing: setcap cap_net_admin+ep on the program, \
         AmbientCapabilities=CAP_NET_ADMIN in systemd, --cap-add NET_ADMIN in a container \
         ({name} says: {said})"
    );
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

/// How a ceiling answers a new limit.
pub(super) fn is_fixed() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "a rule that is replaced forgets whom it counted: this gate's limit is fixed",
    )
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
    /// The count, from `read` if the last one is too old. `read` answers how many were refused.
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

    /// Purpose: a tool that runs with our rights is the system's own, whatever our `PATH` says, and sees
    /// nothing of an environment that somebody else may have chosen.
    #[test]
    fn tools_are_the_systems_own() {
        assert!(path("sh").expect("every system has one").is_absolute());
        let error = path("no-such-tool").expect_err("nobody has one");
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
