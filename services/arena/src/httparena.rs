//! The HTTP/1.1 routes of HttpArena that need neither data nor a database.

use std::time::Duration;

use bytes::Bytes;
use highwater::{BodyStream, Error, Path, Query, Response, Router, fixed};
use serde::Deserialize;

#[derive(Deserialize)]
struct Sum {
    a: i64,
    b: i64,
}

/// Adds the routes of HttpArena.
pub fn routes(router: Router) -> Router {
    router
        .get("/baseline11", sum)
        .post("/baseline11", sum_with_body)
        .get("/pipeline", fixed("ok"))
        .get("/delay/{ms}", delay)
        .post("/echo-bytes", echo)
        .post("/upload", upload)
}

fn sum(Query(Sum { a, b }): Query<Sum>) -> String {
    a.wrapping_add(b).to_string()
}

fn sum_with_body(Query(Sum { a, b }): Query<Sum>, body: String) -> Result<String, Error> {
    let number = body.trim();
    let c: i64 = number.parse().map_err(|_| {
        Error::bad_request(format!("the body must be one whole number, not {number:?}"))
    })?;
    Ok(a.wrapping_add(b).wrapping_add(c).to_string())
}

async fn delay(Path(ms): Path<u64>) -> String {
    if ms > 0 {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
    ms.to_string()
}

fn echo(body: Bytes) -> Response {
    Response::from(body).with_content_type("application/octet-stream")
}

/// Counts the bytes that really came.
async fn upload(mut body: BodyStream) -> Result<String, Error> {
    let mut length = 0;
    while let Some(piece) = body.next().await {
        length += piece?.len();
    }
    Ok(length.to_string())
}
