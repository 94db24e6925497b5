//! Which version of the protocol a request came in.

/// A protocol version this server speaks, older ones first. HTTP/1.2 and later minor versions count as 1.1
/// (RFC 9110 §2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the variants are the versions")]
pub enum Version {
    Http10,
    Http11,
    Http2,
}
