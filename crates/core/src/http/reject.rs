//! Why a request was refused before it reached a handler: always the peer's fault.

use core::fmt;

/// A refusal by the protocol engine. The peer gets [`Reject::status`], then the connection closes.
///
/// One list for all versions, because metrics count by it and applications render it. An error of one version only names
/// the section of its specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reject {
    /// A line ended in LF without CR, or a CR stood alone (RFC 9112 §2.2).
    LineEnd,
    /// The request line is not `method SP target SP version` (RFC 9112 §3).
    RequestLine,
    /// The method is not a token, or longer than 32 bytes (RFC 9110 §9.1).
    Method,
    /// The target contains a byte that no URI may contain (RFC 9112 §3.2).
    TargetByte,
    /// The target's form does not fit the method (RFC 9112 §3.2).
    TargetForm,
    /// The version is not `HTTP/` digit `.` digit (RFC 9112 §2.3).
    Version,
    /// The major version is not 1 (RFC 9110 §15.6.6).
    VersionUnsupported,
    /// A field name is empty, is not a token, or is followed by white space (RFC 9112 §5.1).
    FieldName,
    /// A field value contains a control character (RFC 9110 §5.5).
    FieldValue,
    /// A field line begins with white space: obsolete line folding (RFC 9112 §5.2).
    LineFolding,
    /// `Host` is missing, repeated or not `host [":" port]` (RFC 9112 §3.2).
    Host,
    /// `Content-Length` is not one run of digits, or occurs twice (RFC 9112 §6.3).
    ContentLength,
    /// `Transfer-Encoding` is anything but one `chunked`, or came with HTTP/1.0 (RFC 9112 §6.1).
    TransferEncoding,
    /// Both `Content-Length` and `Transfer-Encoding` (RFC 9112 §6.3).
    TwoFramings,
    /// A chunk's size or the line end after its data is malformed (RFC 9112 §7.1).
    ChunkSize,
    /// A chunk extension is malformed, or the extensions are too long (RFC 9112 §7.1.1).
    ChunkExtension,
    /// The peer stopped sending in the middle of a request.
    Truncated,
    /// The head did not arrive within its deadline (RFC 9110 §15.5.9).
    HeaderTimeout,
    /// The body stalled, or arrived below the minimum rate (RFC 9110 §15.5.9).
    BodyTimeout,
    /// The body is larger than the route accepts (RFC 9110 §15.5.14).
    BodyTooLarge,
    /// The request target is longer than the server accepts (RFC 9110 §15.5.15).
    UriTooLong,
    /// An expectation other than `100-continue` (RFC 9110 §10.1.1).
    Expectation,
    /// The header section is too large or has too many fields (RFC 6585 §5).
    HeaderTooLarge,
    /// The body waits for its handler, and there is no memory for it (RFC 9110 §15.6.4).
    BodyMemory,
    /// An extended CONNECT to another protocol than WebSocket (RFC 8441 §4; RFC 9220 §3 recommends the status).
    Protocol,
}

impl Reject {
    /// The status code to answer with.
    pub const fn status(self) -> u16 {
        match self {
            Reject::HeaderTimeout | Reject::BodyTimeout => 408,
            Reject::BodyTooLarge => 413,
            Reject::UriTooLong => 414,
            Reject::Expectation => 417,
            Reject::HeaderTooLarge => 431,
            Reject::Protocol => 501,
            Reject::BodyMemory => 503,
            Reject::VersionUnsupported => 505,
            _ => 400,
        }
    }

    /// A short name for metrics and error bodies.
    pub const fn code(self) -> &'static str {
        match self.status() {
            408 => "request_timeout",
            413 => "body_too_large",
            414 => "uri_too_long",
            417 => "expectation_failed",
            431 => "header_too_large",
            501 => "not_implemented",
            503 => "overloaded",
            505 => "version_not_supported",
            _ => "malformed_request",
        }
    }

    /// The error, in words for the peer.
    pub const fn reason(self) -> &'static str {
        match self {
            Reject::LineEnd => "lines must end in CRLF",
            Reject::RequestLine => "the request line must be: method SP target SP HTTP/1.1",
            Reject::Method => "the method is not a token of at most 32 bytes",
            Reject::TargetByte => "the request target contains a byte that must be percent-encoded",
            Reject::TargetForm => "the form of the request target does not fit the method",
            Reject::Version => "the protocol version is malformed",
            Reject::VersionUnsupported => "only HTTP/1.0 and HTTP/1.1 are supported",
            Reject::FieldName => "a field name is not a token directly followed by a colon",
            Reject::FieldValue => "a field value contains a control character",
            Reject::LineFolding => "a field line begins with white space",
            Reject::Host => "exactly one valid Host field is required",
            Reject::ContentLength => "Content-Length must be one decimal number",
            Reject::TransferEncoding => {
                "the only transfer coding accepted is one chunked, in HTTP/1.1"
            }
            Reject::TwoFramings => "Content-Length and Transfer-Encoding exclude each other",
            Reject::ChunkSize => "a chunk is malformed",
            Reject::ChunkExtension => "a chunk extension is malformed or too long",
            Reject::Truncated => "the request ended before it was complete",
            Reject::HeaderTimeout => "the request head took too long to arrive",
            Reject::BodyTimeout => "the request body arrived too slowly",
            Reject::BodyTooLarge => "the request body is larger than this resource accepts",
            Reject::UriTooLong => "the request target is too long",
            Reject::Expectation => "the only expectation supported is 100-continue",
            Reject::HeaderTooLarge => "the header section is too large or has too many fields",
            Reject::BodyMemory => "the server has no memory for the request body at present",
            Reject::Protocol => "the only protocol that a CONNECT can name here is websocket",
        }
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl core::error::Error for Reject {}
