//! Which ports can a server come back to?

use std::net::TcpListener;

/// The first of `count` ports in a row for a server that is started again on them: free now, and outside the range from
/// which the kernel takes those of clients, which would get in between.
///
/// # Panics
/// If a thousand places have none.
pub fn lasting_ports(count: u16) -> u16 {
    let ports = std::iter::repeat_with(|| fastrand::u16(10_000..32_000 - count));
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let mut ports = ports.take(1000);
    ports.find(|first| (*first..first + count).all(is_free)).expect("some of twenty thousand")
}
