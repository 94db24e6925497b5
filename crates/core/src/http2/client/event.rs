//! The settings of a connection, and its events.

use super::super::ErrorCode;

/// Settings of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The window that the server gets for each stream, and for the connection. 1 GiB: it never waits for us.
    pub window: u32,
    /// Bytes of the fields of one answer, compressed or not. 64 KiB, as for HTTP/1.1.
    pub fields_max: usize,
    /// Whether [`Event::Field`] and [`Event::Trailer`] are wanted.
    pub fields: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config { window: 1 << 30, fields_max: 64 * 1024, fields: true }
    }
}

/// Why a stream failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// RST_STREAM, with its code.
    Reset(ErrorCode),
    /// RST_STREAM with `REFUSED_STREAM`: the request was not processed.
    Refused,
    /// GOAWAY with an earlier last stream, and this code: the request was not processed.
    Unprocessed(ErrorCode),
    /// The answer is not allowed.
    Malformed(&'static str),
}

/// An event from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The final answer on a stream begins, with this status.
    Status(u32, u16),
    /// A field of it.
    Field(u32, &'a [u8], &'a [u8]),
    /// A piece of its content.
    Content(u32, &'a [u8]),
    /// A field of its trailers.
    Trailer(u32, &'a [u8], &'a [u8]),
    /// It is complete; its status.
    End(u32, u16),
    /// There will be no answer, or no more of it.
    Failed(u32, Failure),
    /// GOAWAY: no further stream can be begun. Streams that stay open will be answered.
    GoAway(ErrorCode, &'a [u8]),
    /// The server has sent settings, the first or others: [`room`](super::Connection::room) may have changed.
    Settings,
}
