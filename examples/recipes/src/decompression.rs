//! Requests that clients have compressed: handlers get their content as it was before.

use highwater::{Bytes, Handler, Router};
use tower_http::decompression::RequestDecompressionLayer;

/// Bytes of content, at most, once it is decompressed; beyond it 413.
pub const DECOMPRESSED_BYTES_MAX: u64 = 1 << 20;

/// `POST /records` says how many bytes it has got.
pub fn routes() -> Router {
    Router::new()
        .layer(RequestDecompressionLayer::new())
        .post("/records", count.body_max(DECOMPRESSED_BYTES_MAX))
}

fn count(content: Bytes) -> String {
    content.len().to_string()
}
