//! Every bound of a connection, with its default and what happens beyond it.
//!
//! They apply to any version of the protocol: how large, how long, how often. Only [`Limits::discard_max`] is
//! specific to HTTP/1, which must read content that no handler reads; it is not worth a struct of its own.
//! Further bounds of another version belong to that version.

use core::time::Duration;

/// The bounds of one connection. All are per connection, none is shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest request target in bytes; beyond it 414. `--uri-max`, 8 KiB.
    pub uri_max: usize,
    /// Largest header section in bytes, line ends included, without the request line and the empty
    /// line that ends it; beyond it 431. Also bounds a trailer section. `--header-max`, 16 KiB.
    pub header_max: usize,
    /// Most header fields in a request; beyond it 431. 100.
    pub header_count_max: usize,
    /// Largest request body in bytes where a route sets no bound of its own; beyond it 413.
    /// `--body-max`, 1 MiB.
    pub body_max: u64,
    /// From the first byte of a request head (or from the accept) to its last; then 408, or a silent close if
    /// no byte came. A total, so that one byte per second does not extend it. `--header-timeout`, 10 s.
    pub header_timeout: Duration,
    /// Longest pause between two pieces of a body; then 408. `--body-timeout`, 30 s.
    pub body_timeout: Duration,
    /// Minimum average rate of a body in bytes per second once [`Limits::body_grace`] has passed; below it
    /// 408. Zero disables it. `--body-rate-min`, 240. It bounds the resources that one client can hold; while
    /// other requests need the places held by uploads, the minimum rate rises.
    pub body_rate_min: u32,
    /// How long a body may be slower than its minimum rate. 5 s.
    pub body_grace: Duration,
    /// Longest wait for the next request on an idle connection; then a close. `--idle-timeout`, 60 s.
    pub idle_timeout: Duration,
    /// Longest wait for the kernel to take some of the output; then a reset. `--write-timeout`, 30 s.
    pub write_timeout: Duration,
    /// How long a client that has finished sending (half-closed its connection) may wait for an answer that
    /// makes no progress: no byte of it is sent, and none of the request's body arrives. Then the connection
    /// is reset and the handler dropped: most often the client has disconnected. An event stream ends at once
    /// instead. `--half-closed-timeout`, 5 s.
    pub half_closed_timeout: Duration,
    /// How long a lingering close reads on after the answer that ends the connection. 2 s.
    pub linger_timeout: Duration,
    /// Most bytes of an unread body that are read and dropped to keep a connection usable, or during a
    /// lingering close; beyond it the connection is closed. 256 KiB.
    pub discard_max: u64,
    /// Bytes of encoded answers beyond which no further pipelined request is taken on, and bytes of streamed
    /// content, encoded or in flight, beyond which no further piece is requested. 64 KiB.
    pub output_max: usize,
    /// Requests served on one connection; the last is answered with `Connection: close`.
    /// `--max-requests-per-connection`, unlimited.
    pub requests_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            uri_max: 8 * 1024,
            header_max: 16 * 1024,
            header_count_max: 100,
            body_max: 1024 * 1024,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            body_rate_min: 240,
            body_grace: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(30),
            half_closed_timeout: Duration::from_secs(5),
            linger_timeout: Duration::from_secs(2),
            discard_max: 256 * 1024,
            output_max: 64 * 1024,
            requests_max: u32::MAX,
        }
    }
}
