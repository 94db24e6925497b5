//! What the routes of the plan `web` take and answer, the same with each peer. Included with `#[path]`.
#[path = "content.rs"]
mod content;

pub(crate) use content::{Order, Receipt, Record, records};

/// The level of gzip that Highwater has.
pub const GZIP_LEVEL: u32 = 4;
/// Smaller content is left as it is.
pub const COMPRESSED_BYTES_MIN: usize = 1024;
/// Requests of a client in a second, which no benchmark reaches.
pub const REQUESTS: u32 = 1_000_000_000;
/// The largest upload, in bytes. Frameworks differ in their defaults.
pub const UPLOAD_MAX: usize = 1 << 20;

/// An id of a request, as Highwater's are: 64 random bits in hexadecimal digits.
pub fn id() -> String {
    format!("{:016x}", fastrand::u64(..))
}
