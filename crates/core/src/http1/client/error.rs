//! Why bytes are not a valid response: always the server's fault.

use core::fmt;

/// The error in a response. The connection cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// The first line is not `HTTP/1.x SP 3DIGIT [SP reason]` (RFC 9112 §4).
    StatusLine,
    /// The major version is not 1 (RFC 9112 §2.3).
    Version,
    /// The status is not a number from 100 to 599 (RFC 9110 §15).
    Status,
    /// A line ends in LF without CR, or a CR stands alone (RFC 9112 §2.2).
    LineEnd,
    /// A field name is empty, is not a token, or is followed by white space (RFC 9112 §5.1).
    FieldName,
    /// A field value contains a control character (RFC 9110 §5.5).
    FieldValue,
    /// A field line begins with white space: obsolete line folding (RFC 9112 §5.2).
    LineFolding,
    /// A head or a trailer section is larger than [`Limits::head_max`](super::Limits::head_max).
    SectionTooLarge,
    /// A section has more fields than [`Limits::fields_max`](super::Limits::fields_max).
    TooManyFields,
    /// `Content-Length` is not a 64-bit number (RFC 9110 §8.6).
    ContentLength,
    /// Two lengths that differ (RFC 9112 §6.3, rule 5).
    ContentLengths,
    /// `Transfer-Encoding` is anything but one `chunked`, the only coding allowed to a client without `TE`,
    /// or came with HTTP/1.0 (RFC 9112 §6.1, §7.4).
    TransferEncoding,
    /// Both `Content-Length` and `Transfer-Encoding`: response splitting looks like this
    /// (RFC 9112 §6.3, rule 3).
    TwoFramings,
    /// A chunk's size is not a 64-bit hexadecimal number (RFC 9112 §7.1).
    ChunkSize,
    /// A chunk extension contains a control character, or is longer than 4 KiB (RFC 9112 §7.1.1).
    ChunkExtension,
    /// A chunk's data is not followed by CR LF (RFC 9112 §7.1).
    ChunkEnd,
    /// 101 to a request that offered no other protocol (RFC 9110 §15.2.2).
    Switch,
    /// More interim responses than [`Limits::interims_max`](super::Limits::interims_max).
    TooManyInterims,
}

impl Malformed {
    /// The error, in words.
    pub const fn reason(self) -> &'static str {
        match self {
            Malformed::StatusLine => "the first line is not an HTTP/1 status line",
            Malformed::Version => "a version that is not HTTP/1",
            Malformed::Status => "a status that is not 100 to 599",
            Malformed::LineEnd => "a line does not end with CR LF",
            Malformed::FieldName => "a field name is not a token directly followed by a colon",
            Malformed::FieldValue => "a field value contains a control character",
            Malformed::LineFolding => "a field line begins with white space",
            Malformed::SectionTooLarge => "a head or trailer section is too large",
            Malformed::TooManyFields => "too many fields",
            Malformed::ContentLength => "Content-Length is not a number",
            Malformed::ContentLengths => "two Content-Lengths that differ",
            Malformed::TransferEncoding => {
                "a Transfer-Encoding that is not one chunked, in HTTP/1.1"
            }
            Malformed::TwoFramings => "both Content-Length and Transfer-Encoding",
            Malformed::ChunkSize => "a chunk size is not a hexadecimal number",
            Malformed::ChunkExtension => "a chunk extension is malformed or too long",
            Malformed::ChunkEnd => "a chunk is longer than its stated size",
            Malformed::Switch => "101 to a request that did not ask for an upgrade",
            Malformed::TooManyInterims => "too many interim responses before a final one",
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl core::error::Error for Malformed {}
