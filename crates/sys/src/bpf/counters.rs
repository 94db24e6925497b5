//! What has the kernel counted in a network namespace?
//!
//! Its counters are text files of `/proc` (proc_pid_net(5)), for all sockets of the namespace together.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// More than the kernel writes: 5 KiB, as of Linux 6.18.
const TEXT_MAX: u64 = 64 << 10;

/// A file of counters.
#[derive(Debug)]
pub(super) struct Counters(Option<File>);

impl Counters {
    /// The file `name` for the namespace of the calling thread.
    pub(super) fn open(name: &str) -> Counters {
        Counters(File::open(format!("/proc/thread-self/net/{name}")).ok())
    }

    /// One of them. `None` if `/proc` cannot be read, or the kernel has no such counter.
    pub(super) fn read(&mut self, group: &str, name: &str) -> Option<u64> {
        let file = self.0.as_mut()?;
        let mut text = String::new();
        file.seek(SeekFrom::Start(0)).ok()?;
        file.take(TEXT_MAX).read_to_string(&mut text).ok()?;
        counter(&text, group, name)
    }

    #[cfg(test)]
    pub(super) fn are_open(&self) -> bool {
        self.0.is_some()
    }
}

/// How many handshakes with the listeners of this network namespace have completed. Packets that belong to no connection do
/// not count.
#[derive(Debug)]
pub struct PassiveOpens {
    counters: Counters,
    before: u64,
}

impl PassiveOpens {
    /// Counts from now on, in the namespace of the calling thread.
    pub fn watch() -> PassiveOpens {
        let mut opens = PassiveOpens { counters: Counters::open("snmp"), before: 0 };
        opens.before = opens.count().unwrap_or(0);
        opens
    }

    /// How many there were; `None` if `/proc` cannot be read.
    pub fn count(&mut self) -> Option<u64> {
        let count = self.counters.read("Tcp:", "PassiveOpens")?;
        Some(count.saturating_sub(self.before))
    }
}

/// One number of such a file: each group is a line of names and a line of numbers, and both
/// begin with the name of the group (proc_pid_net(5)).
fn counter(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let position = names.split(' ').position(|found| found == name)?;
    numbers.split(' ').nth(position)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Purpose: the number is found by its name, in its group, and only if both match whole words.
    #[test]
    fn counters_are_found_by_name() {
        let text = "TcpExt: SyncookiesSent SyncookiesRecv Prune\nTcpExt: 17 4 x\n\
                    IpExt: InNoRoutes SyncookiesSent\nIpExt: 1 2\n";
        assert_eq!(counter(text, "TcpExt:", "SyncookiesSent"), Some(17));
        assert_eq!(counter(text, "TcpExt:", "SyncookiesRecv"), Some(4));
        assert_eq!(counter(text, "TcpExt:", "Prune"), None);
        assert_eq!(counter(text, "TcpExt:", "InNoRoutes"), None);
        assert_eq!(counter(text, "MPTcpExt:", "SyncookiesSent"), None);
        assert_eq!(counter("TcpExt: SyncookiesSent", "TcpExt:", "SyncookiesSent"), None);
    }

    /// Purpose: a connection to a listener counts, as soon as its client knows of it. Other tests connect, too.
    #[test]
    fn handshakes_are_counted() {
        let mut opens = PassiveOpens::watch();
        if !opens.counters.are_open() {
            return highwater_skip::skip("procfs", "/proc is not mounted");
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let before = opens.count().expect("the kernel has it");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("room");
        let server = listener.accept().expect("it waits");
        assert!(opens.count().expect("the kernel has it") > before);
        drop((client, server));
    }
}
