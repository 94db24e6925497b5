//! Is the kernel answering SYNs with cookies?
//!
//! When a listener has no room for another handshake, the kernel stores nothing about it. It
//! encodes the state into its answer, a cookie (RFC 4987 §3.6), and the connection exists once the
//! client has sent that back. The packet with the cookie belongs to no connection, like a SYN, and
//! the socket lookup cannot tell them apart: it sees addresses, but no flags. So while the lookup
//! refuses, it would reject clients that have a place.
//!
//! The kernel counts the cookies of a network namespace, for all its listeners together.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::time::Duration;

use highwater_core::time::Instant;

/// For how long after the last cookie was sent a client may still return one.
const CALM: Duration = Duration::from_secs(2);

/// More than the kernel writes: 5 KiB, as of Linux 6.18.
const TEXT_MAX: u64 = 64 << 10;

/// Watches the cookies of one network namespace.
#[derive(Debug)]
pub(super) struct Cookies {
    /// `None` if `/proc` cannot be read; then cookies cannot be noticed.
    counters: Option<File>,
    sent: u64,
    until: Instant,
}

impl Cookies {
    /// Watches the namespace of the calling thread, from now on.
    pub(super) fn watch() -> Cookies {
        let counters = File::open("/proc/thread-self/net/netstat").ok();
        let mut cookies = Cookies { counters, sent: 0, until: Instant::ZERO };
        cookies.sent = cookies.read().unwrap_or(0);
        cookies
    }

    /// Whether cookies were sent recently. Call it a few times per second.
    pub(super) fn are_out(&mut self, now: Instant) -> bool {
        let sent = self.read().unwrap_or(self.sent);
        if sent != self.sent {
            self.sent = sent;
            self.until = now + CALM;
        }
        now < self.until
    }

    fn read(&mut self) -> Option<u64> {
        let counters = self.counters.as_mut()?;
        let mut text = String::new();
        counters.seek(SeekFrom::Start(0)).ok()?;
        counters.take(TEXT_MAX).read_to_string(&mut text).ok()?;
        counter(&text, "TcpExt:", "SyncookiesSent")
    }
}

/// One number of `/proc/net/netstat`: each group is a line of names and a line of numbers, and both
/// begin with the name of the group (proc_pid_net(5)).
fn counter(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let position = names.split(' ').position(|found| found == name)?;
    numbers.split(' ').nth(position)?.parse().ok()
}

#[cfg(test)]
mod tests {
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

    /// Purpose: this kernel has the counter under that name.
    #[test]
    fn the_kernel_counts_cookies() {
        let mut cookies = Cookies::watch();
        assert!(cookies.counters.is_none() || cookies.read().is_some());
    }
}
