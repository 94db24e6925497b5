//! Which settings of the kernel help a server, and which are folklore?
//!
//! The list is what guides to "a million requests per second" recommend. Here each setting is judged by what it does to
//! a server that accepts connections on Linux today.

use serde::Serialize;

use super::{Mend, Read};

/// What the listener asks for; the kernel cuts it to `somaxconn`.
const BACKLOG: u64 = 4096;

/// Packets that a CPU's queue should hold where it has overflowed.
const QUEUE: u64 = 5000;

/// Connections that a firewall should be able to track where its table was nearly full.
const TRACKED: u64 = 1 << 20;

/// What to do about a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// It helps, and is as it should be.
    Fine,
    /// It helps to change it.
    Change,
    /// Changing it does nothing for a server.
    NoHelp,
    /// It is not there, or may not be read.
    Unknown,
}

impl Verdict {
    pub(super) fn name(self) -> &'static str {
        match self {
            Verdict::Fine => "fine",
            Verdict::Change => "CHANGE",
            Verdict::NoHelp => "does not help",
            Verdict::Unknown => "unknown",
        }
    }
}

/// A setting, and what to think of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Sysctl {
    pub(super) name: &'static str,
    pub(super) current: Option<String>,
    /// What it should be; `None` where the default is as good as anything.
    pub(super) advised: Option<String>,
    pub(super) verdict: Verdict,
    pub(super) why: &'static str,
}

impl Sysctl {
    pub(super) fn mend(&self) -> Option<Mend> {
        let advised = self.advised.as_ref().filter(|_| self.verdict == Verdict::Change)?;
        Some(Mend {
            what: format!("{} is {}, and {}", self.name, self.current.as_deref()?, self.why),
            command: format!("sysctl -w {}=\"{advised}\"", self.name),
        })
    }
}

/// Judges the value of a setting; the reader is for what else it depends on. `Some(true)`: it should be changed;
/// `Some(false)`: it is fine; `None`: it does not matter.
type Judge = fn(value: &str, read: Read<'_>) -> Option<bool>;

struct Known {
    name: &'static str,
    advised: Option<&'static str>,
    judge: Judge,
    why: &'static str,
}

fn number(value: &str) -> Option<u64> {
    value.trim().parse().ok()
}

fn setting(read: Read<'_>, name: &str) -> Option<u64> {
    number(&read(&path(name))?)
}

fn path(name: &str) -> String {
    format!("/proc/sys/{}", name.replace('.', "/"))
}

/// Packets that were dropped because a CPU's queue was full: the second column.
fn queue_drops(softnet: &str) -> u64 {
    let dropped = softnet.lines().filter_map(|line| line.split_whitespace().nth(1));
    dropped.filter_map(|hex| u64::from_str_radix(hex, 16).ok()).sum()
}

const KNOWN: [Known; 11] = [
    Known {
        name: "net.core.somaxconn",
        // `Machine::advice` says so too, with the same number: one remedy, given once.
        advised: Some("4096"),
        judge: |value, _| Some(number(value)? < BACKLOG),
        why: "bounds the listen queue; Highwater asks for 4096, and a burst beyond it waits a second for its next SYN. \
              65535, the usual advice, adds nothing: so long a queue is a second of waiting",
    },
    Known {
        name: "net.ipv4.tcp_syncookies",
        advised: Some("1"),
        judge: |value, _| Some(number(value)? == 0),
        why: "with 0, a full queue of half-open connections drops SYNs; with 1 the kernel accepts without keeping them",
    },
    Known {
        name: "net.ipv4.tcp_max_syn_backlog",
        advised: Some("4096"),
        judge: |value, read| match setting(read, "net.ipv4.tcp_syncookies") {
            Some(0) => Some(number(value)? < BACKLOG),
            _ => None,
        },
        why: "counts only without SYN cookies; the listen queue's length bounds half-open connections otherwise",
    },
    Known {
        name: "net.core.netdev_max_backlog",
        advised: Some("5000"),
        // The counter is as old as the machine's start: an operator who has set it already is not asked again.
        judge: |value, read| {
            let drops = queue_drops(&read("/proc/net/softnet_stat")?);
            Some(drops > 0 && number(value)? < QUEUE)
        },
        why: "helps only if a CPU's queue of received packets overflows, which the second column of \
              /proc/net/softnet_stat counts",
    },
    Known {
        name: "net.ipv4.tcp_tw_reuse",
        advised: None,
        judge: |_, _| None,
        why: "is for connections this machine opens; one that it accepted takes no port, and TIME_WAIT costs it nothing",
    },
    Known {
        name: "net.ipv4.ip_local_port_range",
        advised: None,
        judge: |_, _| None,
        why: "is for connections this machine opens: a load generator or a proxy towards one address. \"1024 65535\", the \
              usual advice, takes ports that services listen on; \"16384 65535\" is safer",
    },
    Known {
        name: "net.ipv4.tcp_fastopen",
        advised: None,
        judge: |_, _| None,
        why: "works only for listeners that ask for it; Highwater does not, since data in a SYN may be served twice",
    },
    Known {
        name: "net.ipv4.tcp_abort_on_overflow",
        advised: Some("0"),
        judge: |value, _| Some(number(value)? != 0),
        why: "with 1, clients of a full listen queue may be reset instead of trying again; Highwater's gate does that on \
              purpose, and better",
    },
    Known {
        name: "net.ipv4.tcp_slow_start_after_idle",
        advised: None,
        judge: |_, _| None,
        why: "0 helps answers of many segments on connections that were idle, over long distances; elsewhere nothing",
    },
    Known {
        name: "net.netfilter.nf_conntrack_max",
        advised: Some("1048576"),
        judge: |value, read| {
            let tracked = setting(read, "net.netfilter.nf_conntrack_count")?;
            let max = number(value)?;
            Some(max < TRACKED && tracked.saturating_mul(10) > max.saturating_mul(8))
        },
        why: "with a firewall that tracks connections, a full table drops new ones without a word: four fifths \
              full is too much",
    },
    Known {
        name: "kernel.io_uring_disabled",
        advised: Some("0"),
        judge: |value, _| Some(number(value)? != 0),
        why: "refuses io_uring to some or all processes, and a request costs about a fifth more without it",
    },
];

pub(super) fn look(read: Read<'_>) -> Vec<Sysctl> {
    let look = |known: &Known| {
        let current = read(&path(known.name))
            .map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
        let verdict = match current.as_deref().map(|value| (known.judge)(value, read)) {
            None => Verdict::Unknown,
            Some(None) => Verdict::NoHelp,
            Some(Some(true)) => Verdict::Change,
            Some(Some(false)) => Verdict::Fine,
        };
        let advised = known.advised.map(str::to_owned);
        Sysctl { name: known.name, current, advised, verdict, why: known.why }
    };
    KNOWN.iter().map(look).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn with(files: &[(&str, &str)]) -> Vec<Sysctl> {
        let files: BTreeMap<String, String> = files
            .iter()
            .map(|(name, text)| {
                let path = if name.starts_with('/') { (*name).to_owned() } else { path(name) };
                (path, (*text).to_owned())
            })
            .collect();
        look(&|path| files.get(path).cloned())
    }

    fn verdict(all: &[Sysctl], name: &str) -> Verdict {
        all.iter().find(|sysctl| sysctl.name == name).expect("it is in the list").verdict
    }

    /// Purpose: settings that help a server are advised, with the command; folklore is called so and never advised.
    #[test]
    fn folklore_is_not_advised() {
        let found = with(&[
            ("net.core.somaxconn", "128\n"),
            ("net.ipv4.tcp_syncookies", "1\n"),
            ("net.ipv4.tcp_max_syn_backlog", "128\n"),
            ("net.ipv4.tcp_tw_reuse", "0\n"),
            ("net.ipv4.ip_local_port_range", "32768\t60999\n"),
            ("net.core.netdev_max_backlog", "1000\n"),
            ("/proc/net/softnet_stat", "0000c69b 00000000 00000002\n0000be98 00000000 00000001\n"),
        ]);
        assert_eq!(verdict(&found, "net.core.somaxconn"), Verdict::Change);
        assert_eq!(verdict(&found, "net.ipv4.tcp_syncookies"), Verdict::Fine);
        for folklore in [
            "net.ipv4.tcp_max_syn_backlog",
            "net.ipv4.tcp_tw_reuse",
            "net.ipv4.ip_local_port_range",
        ] {
            assert_eq!(verdict(&found, folklore), Verdict::NoHelp, "{folklore}");
        }
        assert_eq!(verdict(&found, "net.core.netdev_max_backlog"), Verdict::Fine);
        assert_eq!(verdict(&found, "net.netfilter.nf_conntrack_max"), Verdict::Unknown);
        let mends: Vec<Mend> = found.iter().filter_map(Sysctl::mend).collect();
        assert_eq!(mends.len(), 1, "{mends:?}");
        assert_eq!(mends[0].command, "sysctl -w net.core.somaxconn=\"4096\"");
        let range = found
            .iter()
            .find(|sysctl| sysctl.name == "net.ipv4.ip_local_port_range")
            .expect("listed");
        assert_eq!(range.current.as_deref(), Some("32768 60999"));
    }

    /// Purpose: what depends on something else is judged with it: SYN cookies, packets dropped, connections tracked.
    #[test]
    fn settings_are_judged_by_what_happens() {
        let found = with(&[
            ("net.ipv4.tcp_syncookies", "0\n"),
            ("net.ipv4.tcp_max_syn_backlog", "128\n"),
            ("net.core.netdev_max_backlog", "1000\n"),
            ("/proc/net/softnet_stat", "0000c69b 0000000a 00000002\n"),
            ("net.netfilter.nf_conntrack_max", "1000\n"),
            ("net.netfilter.nf_conntrack_count", "801\n"),
        ]);
        for name in [
            "net.ipv4.tcp_syncookies",
            "net.ipv4.tcp_max_syn_backlog",
            "net.core.netdev_max_backlog",
            "net.netfilter.nf_conntrack_max",
        ] {
            assert_eq!(verdict(&found, name), Verdict::Change, "{name}");
        }
    }
}
