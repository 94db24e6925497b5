//! A ceiling made of iptables rules: for comparisons, and for machines without nftables.
//!
//! iptables has a tool for each family, with rules of its own. A listener on the wildcard of IPv6 takes IPv4, too, so a gate
//! there is a rule in each of the two. Each counts its own family's connections: together they admit up to twice the limit.
//!
//! Such a rule has no owner and stays until it is removed. A watcher removes it: a shell that waits for the
//! end of a pipe from this process, and then deletes the rule, however the process ended. If the watcher was
//! killed, too, as when a container ends, or could not get the lock of the rules, the next gate finds the rule by its
//! comment, and deletes it. A socket that has the comment as its abstract name tells whether the owner lives: it ends with
//! the process, and like the rules it belongs to the network namespace, so that processes of other containers see it.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as Name, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

use super::firewall::{self, Counted};
use super::{Counts, FixedCeiling, Mechanism};

/// The prefix of the comment of each of our rules. Spaces would be quoted in listings.
const TAG: &str = "highwater-gate/";

/// Waits for the end of its input, then runs its arguments. It ignores a Ctrl-C.
const WATCH: &str = "trap '' INT TERM HUP; read -r _; exec \"$@\"";

/// The tools, for IPv4 and for IPv6.
const V4: &str = "iptables";
const V6: &str = "ip6tables";

#[derive(Debug)]
pub(super) struct Iptables {
    /// One for each family that the address takes.
    rules: Vec<Rule>,
    counted: Counted,
}

impl Iptables {
    pub(super) fn open(address: SocketAddr, limit: u32) -> io::Result<Iptables> {
        let mut rules = Vec::new();
        for tool in tools(address) {
            match Rule::insert(tool, address, limit) {
                Ok(rule) => rules.push(rule),
                // Half a gate is none; but where nobody can connect by IPv6, nothing is missing.
                Err(_) if *tool == V6 && !rules.is_empty() && !has_ipv6() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Iptables { rules, counted: Counted::default() })
    }
}

/// The tools whose rules cover an address.
fn tools(address: SocketAddr) -> &'static [&'static str] {
    match address.ip().to_canonical() {
        IpAddr::V4(_) => &[V4],
        IpAddr::V6(ip) if ip.is_unspecified() => &[V4, V6],
        IpAddr::V6(_) => &[V6],
    }
}

/// Whether any interface of this network namespace has an IPv6 address; the list is missing if the kernel has no IPv6.
fn has_ipv6() -> bool {
    fs::read("/proc/net/if_inet6").is_ok_and(|list| !list.is_empty())
}

/// A rule of one family, and what removes it.
#[derive(Debug)]
struct Rule {
    tool: &'static str,
    tag: String,
    watcher: Child,
    /// Bound as long as the owner lives.
    _alive: UnixDatagram,
}

impl Rule {
    fn insert(tool: &'static str, address: SocketAddr, limit: u32) -> io::Result<Rule> {
        remove_stale(tool)?;
        // With the address, so that the rules of a server's other addresses have other tags.
        let tag = format!("{TAG}{}/{address}", Owner::current()?);
        let alive = claim(tool, &tag)?;
        let words = words(address, limit, &tag);
        // The watcher first: no rule may exist without one.
        let watcher = firewall::tool("sh")?
            .args(["-c", WATCH, "sh"])
            .arg(firewall::path(tool)?)
            .args(["-w", "5", "-D", "INPUT"])
            .args(&words)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| firewall::missing("sh", &error))?;
        let rule = Rule { tool, tag, watcher, _alive: alive };
        let mut insert = vec!["-w", "5", "-I", "INPUT"];
        insert.extend(words.iter().map(String::as_str));
        firewall::run(tool, &insert)?;
        Ok(rule)
    }

    /// How many connections it has refused.
    fn refused(&self) -> io::Result<u64> {
        let rules = firewall::run(self.tool, &["-w", "5", "-nvxL", "INPUT"])?;
        // To its end: the tag of port 8080 begins like that of port 80.
        let tag = format!("{} ", self.tag);
        let ours = rules.lines().find(|rule| rule.contains(&tag));
        let packets = ours.and_then(|rule| rule.split_whitespace().next()?.parse().ok());
        packets.ok_or_else(|| {
            let tool = self.tool;
            io::Error::other(format!("our {tool} rule is gone: it was removed from outside"))
        })
    }
}

impl Drop for Rule {
    fn drop(&mut self) {
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
    }
}

/// The match and the target of a rule.
fn words(address: SocketAddr, limit: u32, tag: &str) -> Vec<String> {
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
        let mut words = rest.split(' ').map(|word| word.trim_matches('"'));
        if words.find(|word| word.starts_with(TAG)).is_some_and(|tag| claim(tool, tag).is_ok()) {
            let mut delete = vec!["-w", "5", "-D", "INPUT"];
            delete.extend(rest.split(' ').map(|word| word.trim_matches('"')));
            // Another process that starts may have been faster.
            let _ = firewall::run(tool, &delete);
        }
    }
    Ok(())
}

/// Binds the name of a rule, which fails while its owner lives.
fn claim(tool: &str, tag: &str) -> io::Result<UnixDatagram> {
    UnixDatagram::bind_addr(&Name::from_abstract_name(format!("{tool}/{tag}"))?)
}

/// The process of a rule. Process ids are reused, so its start time is included, and they are valid only
/// within a PID namespace, so that is included, too.
#[derive(Debug)]
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
        let rules = &self.rules;
        self.counted.or_read(|| rules.iter().try_fold(0, |sum, rule| Ok(sum + rule.refused()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a rule names address, port, ceiling and owner, in words that iptables prints back.
    #[test]
    fn a_rule_in_words() {
        let words = |address: &str| {
            super::words(address.parse().unwrap(), 9, "highwater-gate/1/2/3").join(" ")
        };
        let rest = "--dport 80 --syn -m connlimit --connlimit-above 9 --connlimit-mask 0 -m comment \
                    --comment highwater-gate/1/2/3 -j REJECT --reject-with tcp-reset";
        assert_eq!(words("0.0.0.0:80"), format!("-p tcp {rest}"));
        assert_eq!(words("192.0.2.1:80"), format!("-p tcp -d 192.0.2.1 {rest}"));
        assert_eq!(words("[2001:db8::1]:80"), format!("-p tcp -d 2001:db8::1 {rest}"));
    }

    /// Purpose: each family that an address takes has a rule: both at IPv6's wildcard, whose listeners take IPv4, too.
    #[test]
    fn families_have_their_tools() {
        for (address, tools) in [
            ("0.0.0.0:80", &[V4][..]),
            ("192.0.2.1:80", &[V4]),
            ("[::ffff:192.0.2.1]:80", &[V4]),
            ("[2001:db8::1]:80", &[V6]),
            ("[::]:80", &[V4, V6]),
        ] {
            assert_eq!(super::tools(address.parse().unwrap()), tools, "{address}");
        }
    }

    /// Purpose: a rule is known to have an owner as long as that holds its name, for each family, with the longest address.
    #[test]
    fn names_are_held() {
        let tag = format!(
            "{TAG}{}/[2001:db8:1111:2222:3333:4444:5555:6666]:65535",
            Owner::current().unwrap()
        );
        let held = claim(V6, &tag).unwrap();
        claim(V6, &tag).unwrap_err();
        drop(claim(V4, &tag).unwrap());
        drop(held);
        drop(claim(V6, &tag).unwrap());
    }
}
