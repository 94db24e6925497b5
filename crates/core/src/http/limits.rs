//! Every bound of a connection, with its default and what happens beyond it.
//!
//! They apply to any version of the protocol: how large, how long, how often. Only [`Limits::discard_max`] is
//! specific to HTTP/1, which must read content that no handler reads; it is not worth a struct of its own.
//! What only HTTP/2 has to bound is in [`Http2Limits`].

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
    /// From this length on, a body that is collected is received into its own memory: its bytes are copied once less.
    /// Smaller ones are read more simply. 32 KiB.
    pub large_body: u64,
    /// From the first byte of a request head (or from the accept) to its last; then 408, or a silent close if
    /// no byte came. A total, so that one byte per second does not extend it. `--header-timeout`, 10 s.
    pub header_timeout: Duration,
    /// Longest pause between two pieces of a body; then 408. `--body-timeout`, 30 s.
    pub body_timeout: Duration,
    /// Minimum average rate of a body in bytes per second once [`Limits::body_grace`] has passed; below it
    /// 408. Zero disables it. `--body-rate-min`, 240. It bounds the resources that one client can hold; while
    /// other requests need the places held by uploads, the minimum rate rises. A client that opens the windows of
    /// HTTP/2 for an answer more slowly is not reading it: see [`Limits::write_timeout`].
    pub body_rate_min: u32,
    /// How long a body may be slower than its minimum rate. 5 s.
    pub body_grace: Duration,
    /// Longest wait for the next request on an idle connection; then a close. `--idle-timeout`, 60 s.
    pub idle_timeout: Duration,
    /// Longest wait for the kernel to take some of the output, or for a window of HTTP/2 to open for as much as
    /// [`Limits::body_rate_min`] demands in this time; then a reset. `--write-timeout`, 30 s.
    pub write_timeout: Duration,
    /// How long a client that has finished sending (half-closed its connection) may wait for an answer that
    /// makes no progress: no byte of it is sent, and none of the request's body arrives. Then the connection
    /// is reset and the handler dropped: most often the client has disconnected. An event stream ends at once
    /// instead. An upgraded connection, or a tunnel on a stream of HTTP/2, may be as long without any progress once
    /// either side has ended. `--half-closed-timeout`, 5 s.
    pub half_closed_timeout: Duration,
    /// How long a lingering close reads on after the answer that ends the connection. 2 s.
    pub linger_timeout: Duration,
    /// Most bytes of an unread body that are read and dropped to keep a connection usable, or during a
    /// lingering close; beyond it the connection is closed. 256 KiB.
    pub discard_max: u64,
    /// Bytes of encoded answers beyond which no further pipelined request is taken on, and bytes of streamed
    /// content, encoded or in flight, beyond which no further piece is requested. 64 KiB.
    pub output_max: usize,
    /// Requests served on one connection; the last is answered with `Connection: close`. `--max-requests-per-connection`,
    /// unlimited. HTTP/2 announces it by GOAWAY.
    pub requests_max: u32,
    /// The bounds that only HTTP/2 has.
    pub http2: Http2Limits,
}

/// The bounds of one HTTP/2 connection, beside those that it shares with HTTP/1.
///
/// A client that exceeds a rate gets GOAWAY with `ENHANCE_YOUR_CALM`, and its connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http2Limits {
    /// Most streams at a time, as `SETTINGS_MAX_CONCURRENT_STREAMS` says; beyond it `REFUSED_STREAM`, after which the
    /// request can be sent again. 128: RFC 9113 §6.5.2 asks for 100 at least, and pages with
    /// more requests than that are rare.
    pub streams_max: u32,
    /// Bytes of content that a client may send on a stream before its handler takes some. 256 KiB: at a round trip of
    /// 100 ms that is 2.5 MB per second.
    pub window: u32,
    /// The same for all streams of a connection; so much content of its requests can wait in memory for handlers
    /// that do not read. 512 KiB.
    pub connection_window: u32,
    /// Bytes of answers that may wait for the client's windows. Beyond it, new streams are refused, and answers on other
    /// streams reset these with `ENHANCE_YOUR_CALM`; sixteen times as many for answers that the windows allow, and that wait
    /// for the network only. 16 MiB: several pages of pictures.
    pub unsent_max: usize,
    /// Streams that a client may reset, or make us reset by its mistakes, before their answers are sent: the average per
    /// second, with [`Http2Limits::streams_max`] more at once (CVE-2023-44487, CVE-2025-8671). 100.
    pub resets_per_second: u32,
    /// Frames that carry neither a request nor content (SETTINGS, PING, PRIORITY, WINDOW_UPDATE, empty DATA, unknown ones):
    /// the average per second, with ten times as many at once, and four more for each frame that carries either
    /// (CVE-2019-9512, -9515, -9518). 1000.
    pub control_per_second: u32,
    /// Whether clients may open WebSockets on streams (RFC 8441): `SETTINGS_ENABLE_CONNECT_PROTOCOL` is announced. A
    /// server sets it if its application has a route for WebSockets. Otherwise the pseudo-field `:protocol` is malformed,
    /// as in RFC 9113. Off.
    pub extended_connect: bool,
}

impl Default for Http2Limits {
    fn default() -> Self {
        Http2Limits {
            streams_max: 128,
            window: 256 * 1024,
            connection_window: 512 * 1024,
            unsent_max: 16 * 1024 * 1024,
            resets_per_second: 100,
            control_per_second: 1000,
            extended_connect: false,
        }
    }
}

impl Limits {
    /// Whether `moved` bytes of content within the [`Limits::write_timeout`] show that a client reads: at least as many as the
    /// [`Limits::body_rate_min`] demands of a sender.
    pub fn is_progress(&self, moved: usize) -> bool {
        let demanded = u128::from(self.body_rate_min) * self.write_timeout.as_millis() / 1000;
        moved > 0 && moved as u128 >= demanded
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            uri_max: 8 * 1024,
            header_max: 16 * 1024,
            header_count_max: 100,
            body_max: 1024 * 1024,
            large_body: 32 * 1024,
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
            http2: Http2Limits::default(),
        }
    }
}
