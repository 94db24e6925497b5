//! Many values, one line of JSON for each, as they are made.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use serde_core::Serialize;

use super::body::{Body, BoxError};
use super::into_response::IntoResponse;
use super::response::Response;

/// About how many bytes are sent at once.
const PIECE: usize = 16 << 10;

/// Values as lines of JSON (`application/x-ndjson`), encoded while they are sent: a long list takes no more memory than one
/// piece of it, and a client can process the first line at once.
///
/// The values are encoded on the worker, some 16 KiB at a time, and only as fast as the client reads. A value that cannot
/// be serialized ends the answer in the middle, which clients notice: its last chunk is missing.
///
/// ```
/// use highwater::testing::Client;
/// use highwater::{NdJson, Router};
/// use serde::Serialize;
///
/// #[derive(Serialize)]
/// struct Square { n: u64, square: u64 }
///
/// let squares = || NdJson((1..=1000).map(|n| Square { n, square: n * n }));
/// let answer = Client::new(Router::new().get("/squares", squares)).get("/squares");
/// assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
/// assert_eq!(answer.text().lines().nth(2), Some(r#"{"n":3,"square":9}"#));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NdJson<I>(pub I);

impl<I> IntoResponse for NdJson<I>
where
    I: IntoIterator<Item: Serialize, IntoIter: Send + Unpin + 'static>,
{
    fn into_response(self) -> Response {
        let lines = Lines { values: Some(self.0.into_iter()) };
        let response = Body::stream(lines).into_response();
        response.with_content_type("application/x-ndjson")
    }
}

struct Lines<I> {
    /// `None` at the end.
    values: Option<I>,
}

impl<I: Iterator<Item: Serialize> + Unpin> Stream for Lines<I> {
    type Item = Result<Bytes, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(values) = &mut self.values else { return Poll::Ready(None) };
        let mut piece = Vec::new();
        while piece.len() < PIECE {
            let Some(value) = values.next() else {
                self.values = None;
                break;
            };
            if let Err(error) = serde_json::to_writer(&mut piece, &value) {
                self.values = None;
                return Poll::Ready(Some(Err(error.into())));
            }
            piece.push(b'\n');
        }
        match piece.is_empty() {
            true => Poll::Ready(None),
            false => Poll::Ready(Some(Ok(piece.into()))),
        }
    }
}
