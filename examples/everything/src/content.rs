//! Content that is large, compressed, kept, or uploaded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use highwater::multipart::{Multipart, MultipartLimits};
use highwater::{Error, Json, Response};
use serde::Serialize;

use crate::decoded::Encoded;

/// The size of the answer of `/compressed`, in bytes.
const LARGE: usize = 64 << 10;

const LIMITS: MultipartLimits =
    MultipartLimits { parts_max: 8, part_bytes_max: 1 << 20, total_bytes_max: 8 << 20 };

/// All bytes of a form: eight parts of 1 MiB, and what stands around them.
pub(crate) const UPLOAD_BYTES_MAX: u64 = 9 << 20;

/// `GET /compressed`: the layer around it does the rest.
pub(crate) fn large() -> Response {
    let mut json = String::from("[");
    while json.len() < LARGE - 100 {
        let n = json.len();
        json.push_str(&format!("{{\"n\":{n},\"square\":{}}},", n * n));
    }
    let rest = LARGE - json.len() - 3;
    json.push_str(&format!("\"{}\"]", "x".repeat(rest)));
    Response::from(json).with_content_type("application/json")
}

/// `GET /cached`: how often it was called.
pub(crate) fn counter() -> impl Fn() -> String + Send + Sync + 'static {
    let calls = Arc::new(AtomicU64::new(0));
    move || (calls.fetch_add(1, Ordering::Relaxed) + 1).to_string()
}

/// `POST /decompressed`, on the pool: the argument is extracted on the worker, and decoded here.
pub(crate) fn decoded_length(encoded: Encoded) -> Result<String, Error> {
    Ok(encoded.decode()?.len().to_string())
}

#[derive(Serialize)]
pub(crate) struct Uploaded {
    name: String,
    file_name: Option<String>,
    content_type: Option<String>,
    bytes: usize,
}

/// `POST /upload`: counts the bytes of each part as they come, and keeps none.
pub(crate) async fn upload(form: Multipart) -> Result<Json<Vec<Uploaded>>, Error> {
    let mut form = form.limits(LIMITS);
    let mut all = Vec::new();
    while let Some(mut part) = form.next_part().await? {
        let mut uploaded = Uploaded {
            name: part.name().to_owned(),
            file_name: part.file_name().map(str::to_owned),
            content_type: part.content_type().map(str::to_owned),
            bytes: 0,
        };
        while let Some(piece) = part.next().await? {
            uploaded.bytes += piece.len();
        }
        all.push(uploaded);
    }
    Ok(Json(all))
}
