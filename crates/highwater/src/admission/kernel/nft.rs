//! A ceiling made of an nftables rule.
//!
//! The rule counts connections with conntrack and resets those beyond the ceiling. Its table is owned by the
//! `nft` process that made it and is removed with it (`flags owner`). That process ends when its input pipe
//! closes: when this process ends, however it ends.
//!
//! ```text
//!  us ──stdin──▶ nft -i ──netlink, open as long as it runs──▶ table inet highwater_PID_ADDRESS
//!     ◀─output──
//! ```

use std::io::{self, BufRead, BufReader, PipeReader, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use highwater_sys::capability::{self, Capability};

use super::firewall::{self, Counted};
use super::{Counts, FixedCeiling, Mechanism};

/// How long `nft` may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs before the usual chains of firewalls, whose priority is 0, so that a refusal costs as little as
/// possible.
const PRIORITY: i32 = -10;

#[derive(Debug)]
pub(super) struct Nft {
    nft: Child,
    /// What `nft` prints, line by line.
    lines: Receiver<String>,
    table: String,
    counted: Counted,
}

impl Nft {
    pub(super) fn open(address: SocketAddr, limit: u32) -> io::Result<Nft> {
        let (output, input) = io::pipe()?;
        let nft = firewall::tool("nft")?
            .arg("-i")
            .stdin(Stdio::piped())
            .stdout(input.try_clone()?)
            .stderr(input)
            // This process handles a Ctrl-C at the terminal: the gate stays during the drain.
            .process_group(0)
            .spawn()
            .map_err(|error| firewall::missing("nft", &error))?;
        // A name has letters, digits and underscores.
        let place = address.to_string().replace(|it: char| !it.is_ascii_alphanumeric(), "_");
        let table = format!("highwater_{}_{place}", std::process::id());
        let mut gate = Nft { nft, lines: follow(output)?, table, counted: Counted::default() };
        gate.send_commands(&rules(&gate.table, address, limit))?;
        gate.refused()?;
        Ok(gate)
    }

    fn send_commands(&mut self, commands: &str) -> io::Result<()> {
        let stdin = self.nft.stdin.as_mut().expect("it is piped, and never taken");
        // It may have ended already, with a message that says why.
        match stdin.write_all(commands.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    }

    /// How many connections the rule has refused. Also fails if an earlier command failed.
    fn refused(&mut self) -> io::Result<u64> {
        let ask = format!("list counter inet {} refused\n", self.table);
        self.send_commands(&ask)?;
        let mut reply = String::new();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            if let Some(packets) = packets(&line) {
                return Ok(packets);
            }
            reply.push_str(&line);
            reply.push('\n');
            if line.contains("Error") {
                return Err(firewall::refused("nft", &reply));
            }
        }
        Err(firewall::refused("nft", &format!("{reply}no answer in {PATIENCE:?}")))
    }
}

/// The commands that make the table, one per line.
fn rules(table: &str, address: SocketAddr, limit: u32) -> String {
    let to = match firewall::host(address) {
        Some(host) if host.contains(':') => format!("ip6 daddr {host} "),
        Some(host) => format!("ip daddr {host} "),
        None if address.is_ipv4() => "meta nfproto ipv4 ".to_owned(),
        None => String::new(),
    };
    let port = address.port();
    format!(
        "add table inet {table} {{ flags owner; }}\n\
         add counter inet {table} refused\n\
         add chain inet {table} input \
         {{ type filter hook input priority {PRIORITY}; policy accept; }}\n\
         add rule inet {table} input {to}tcp dport {port} ct state new ct count over {limit} \
         counter name refused reject with tcp reset\n"
    )
}

/// A counter as `nft` prints it: `packets 12 bytes 720`.
fn packets(line: &str) -> Option<u64> {
    line.trim().strip_prefix("packets ")?.split(' ').next()?.parse().ok()
}

/// Reads lines on a thread of its own, since reading a pipe cannot be bounded in time. The thread
/// ends with `nft`.
fn follow(output: PipeReader) -> io::Result<Receiver<String>> {
    let (sender, lines) = mpsc::channel();
    let read = move || {
        // It reads a pipe. If dropping capabilities fails, the workers log that.
        let _ = capability::give_up(&Capability::ALL);
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    };
    crate::thread::start("highwater-nft", Box::new(read))?;
    Ok(lines)
}

impl FixedCeiling for Nft {
    fn mechanism(&self) -> Mechanism {
        Mechanism::Nft
    }

    fn counts(&mut self) -> io::Result<Counts> {
        let mut counted = std::mem::take(&mut self.counted);
        let counts = counted.or_read(|| {
            // The rest of an answer that failed, or came too late.
            while self.lines.try_recv().is_ok() {}
            self.refused()
        });
        self.counted = counted;
        counts
    }
}

impl Drop for Nft {
    fn drop(&mut self) {
        drop(self.nft.stdin.take());
        // It ends on its own at the end of its input; killing it makes sure.
        let _ = self.nft.kill();
        let _ = self.nft.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the rule matches the listening address, unless that is a wildcard.
    #[test]
    fn rules_match_the_address() {
        let rule = |address: &str| {
            let rules = rules("t", address.parse().unwrap(), 7);
            rules.lines().last().unwrap().to_owned()
        };
        let rest = "tcp dport 80 ct state new ct count over 7 counter name refused reject with \
                    tcp reset";
        for (address, to) in [
            ("0.0.0.0:80", "meta nfproto ipv4 "),
            ("[::]:80", ""),
            ("192.0.2.1:80", "ip daddr 192.0.2.1 "),
            ("[2001:db8::1]:80", "ip6 daddr 2001:db8::1 "),
        ] {
            assert_eq!(rule(address), format!("add rule inet t input {to}{rest}"));
        }
    }

    /// Purpose: a counter is read from the output of nft, and no other line is read as one.
    #[test]
    fn counters_are_read() {
        assert_eq!(packets("\t\tpackets 12 bytes 720"), Some(12));
        for line in ["table inet t {", "packets", "packets many", "Error: packets 1"] {
            assert_eq!(packets(line), None, "{line}");
        }
    }
}
