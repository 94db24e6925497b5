//! A ceiling made of an iptables rule: for comparisons, and for machines without nftables.
//!
//! Such a rule has no owner and stays until it is removed. A watcher removes it: a shell that waits for the
//! end of a pipe from this process, and then deletes the rule, however the process ended. If the watcher was
//! killed, too, the next gate finds the rule by its comment, which names its process, and deletes it.

use std::io;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

use super::firewall::{self, Counted};
use super::{Counts, FixedCeiling, Mechanism};

/// The prefix of the comment of each of our rules. Spaces would be quoted in listings.
const TAG: &str = "highwater-gate/";

/// Waits for the end of its input, then runs its arguments. It ignores a Ctrl-C.
const WATCH: &str = "trap '' INT TERM HUP; read -r _; exec \"$@\"";

#[derive(Debug)]
pub(super) struct Iptables {
    tool: &'static str,
    tag: String,
    watcher: Child,
    counted: Counted,
}

impl Iptables {
    pub(super) fn open(address: SocketAddr, limit: u32) -> io::Result<Iptables> {
        let tool = if address.ip().to_canonical().is_ipv4() { "iptables" } else { "ip6tables" };
        remove_stale(tool)?;
        let tag = format!("{TAG}{}", Owner::current()?);
        let rule = rule(address, limit, &tag);
        // The watcher first: no rule may exist without one.
        let watcher = firewall::tool("sh")?
            .args(["-c", WATCH, "sh"])
            .arg(firewall::path(tool)?)
            .args(["-w", "5", "-D", "INPUT"])
            .args(&rule)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| firewall::missing("sh", &error))?;
        let gate = Iptables { tool, tag, watcher, counted: Counted::default() };
        let mut insert = vec!["-w", "5", "-I", "INPUT"];
        insert.extend(rule.iter().map(String::as_str));
        firewall::run(tool, &insert)?;
        Ok(gate)
    }
}

/// The match and the target of the rule. A listener on the IPv6 wildcard takes IPv4, too, which this rule
/// does not match: each of the two tools handles one family.
fn rule(address: SocketAddr, limit: u32, tag: &str) -> Vec<String> {
    let mut rule: Vec<String> = Vec::new();
    let mut push = |words: &str| rule.extend(words.split(' ').map(str::to_owned));
    push("-p tcp");
    if let Some(host) = firewall::host(address) {
        push(&format!("-d {host}"));
    }
    push(&format!("--dport {} --syn", address.port()));
    // A mask of nothing: all clients together.
    push(&format!("-m connlimit --connlimit-above {limit} --connlimit-mask 0"));
    push(&format!("-m comment --comment {tag}"));
    push("-j REJECT --reject-with tcp-reset");
    rule
}

/// Deletes rules whose processes are dead.
fn remove_stale(tool: &str) -> io::Result<()> {
    let rules = firewall::run(tool, &["-w", "5", "-S", "INPUT"])?;
    for rule in rules.lines() {
        let Some(rest) = rule.strip_prefix("-A INPUT ") else { continue };
        let tag = rest.split(' ').find_map(|word| word.trim_matches('"').strip_prefix(TAG));
        if tag.and_then(Owner::parse).is_some_and(|owner| owner.is_dead()) {
            let mut delete = vec!["-w", "5", "-D", "INPUT"];
            delete.extend(rest.split(' ').map(|word| word.trim_matches('"')));
            // Another process that starts may have been faster.
            let _ = firewall::run(tool, &delete);
        }
    }
    Ok(())
}

/// The process of a rule. Process ids are reused, so its start time is included, and they are valid only
/// within a PID namespace, so that is included, too.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    namespace: String,
    process: u32,
    started: u64,
}

impl Owner {
    fn current() -> io::Result<Owner> {
        let process = std::process::id();
        let started = started(process).ok_or_else(|| io::Error::other("/proc is not mounted"))?;
        Ok(Owner { namespace: namespace()?, process, started })
    }

    fn parse(text: &str) -> Option<Owner> {
        let mut parts = text.split('/');
        let namespace = parts.next()?.to_owned();
        let process = parts.next()?.parse().ok()?;
        let started = parts.next()?.parse().ok()?;
        Some(Owner { namespace, process, started })
    }

    /// Whether it is certainly dead: nothing is known about processes in other namespaces.
    fn is_dead(&self) -> bool {
        let known = namespace().is_ok_and(|namespace| namespace == self.namespace);
        known && started(self.process) != Some(self.started)
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.namespace, self.process, self.started)
    }
}

/// The id of this process's PID namespace: `pid:[4026531836]`.
fn namespace() -> io::Result<String> {
    let link = std::fs::read_link("/proc/self/ns/pid")?;
    Ok(link.to_string_lossy().chars().filter(char::is_ascii_digit).collect())
}

/// When a process started, in the kernel's ticks since boot (proc_pid_stat(5), field 22); `None` if
/// there is no such process.
fn started(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name in parentheses that may hold spaces and parentheses.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(19)?.parse().ok()
}

impl FixedCeiling for Iptables {
    fn mechanism(&self) -> Mechanism {
        Mechanism::Iptables
    }

    fn counts(&mut self) -> io::Result<Counts> {
        let (tool, tag) = (self.tool, &self.tag);
        self.counted.or_read(|| {
            let rules = firewall::run(tool, &["-w", "5", "-nvxL", "INPUT"])?;
            let ours = rules.lines().find(|rule| rule.contains(tag.as_str()));
            let packets = ours.and_then(|rule| rule.split_whitespace().next()?.parse().ok());
            packets.ok_or_else(|| {
                io::Error::other("our iptables rule is gone: it was removed from outside")
            })
        })
    }
}

impl Drop for Iptables {
    fn drop(&mut self) {
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a rule names address, port, ceiling and owner, in words that iptables prints back.
    #[test]
    fn a_rule_in_words() {
        let words =
            |address: &str| rule(address.parse().unwrap(), 9, "highwater-gate/1/2/3").join(" ");
        let rest = "--dport 80 --syn -m connlimit --connlimit-above 9 --connlimit-mask 0 -m comment \
                    --comment highwater-gate/1/2/3 -j REJECT --reject-with tcp-reset";
        assert_eq!(words("0.0.0.0:80"), format!("-p tcp {rest}"));
        assert_eq!(words("192.0.2.1:80"), format!("-p tcp -d 192.0.2.1 {rest}"));
    }

    /// Purpose: only a process that is certainly gone counts as dead: not this process, and none in another
    /// namespace; but a process whose id is reused by another.
    #[test]
    fn owners_are_told_apart() {
        let own = Owner::current().unwrap();
        assert_eq!(Owner::parse(&own.to_string()), Some(own.clone()));
        assert!(!own.is_dead());
        assert!(Owner { started: own.started + 1, ..own.clone() }.is_dead());
        assert!(!Owner { namespace: "1".into(), started: 0, ..own }.is_dead());
        assert_eq!(Owner::parse("not/an/owner"), None);
    }
}
