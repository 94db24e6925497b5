//! Is the kernel answering SYNs with cookies?
//!
//! When a listener has no room for another handshake, the kernel stores nothing about it. It
//! encodes the state into its answer, a cookie (RFC 4987 §3.6), and the connection exists once the
//! client has sent that back. The packet with the cookie belongs to no connection, like a SYN, and
//! the socket lookup cannot tell them apart: it sees addresses, but no flags. So while the lookup
//! refuses, it would reject clients that have a place.
//!
//! The kernel counts the cookies of a network namespace, for all its listeners together.

use std::time::Duration;

use highwater_core::time::Instant;

use super::counters::Counters;

/// For how long after the last cookie was sent a client may still return one.
const CALM: Duration = Duration::from_secs(2);

/// Watches the cookies of one network namespace.
#[derive(Debug)]
pub(super) struct Cookies {
    /// If it cannot be read, cookies cannot be noticed.
    counters: Counters,
    sent: u64,
    until: Instant,
}

impl Cookies {
    /// Watches the namespace of the calling thread, from now on.
    pub(super) fn watch() -> Cookies {
        let counters = Counters::open("netstat");
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
        self.counters.read("TcpExt:", "SyncookiesSent")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: this kernel has the counter under that name.
    #[test]
    fn the_kernel_counts_cookies() {
        let mut cookies = Cookies::watch();
        assert!(!cookies.counters.are_open() || cookies.read().is_some());
    }
}
