//! What comes, or goes, in pieces.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use http_body_util::{BodyExt, Channel};

/// Content of known length is announced, and still made piece by piece.
const SIZED: usize = 200_000;

pub(crate) async fn length(body: Body) -> Result<String, StatusCode> {
    let mut pieces = body.into_data_stream();
    let mut length = 0;
    while let Some(piece) = pieces.next().await {
        length += piece.map_err(|_| StatusCode::BAD_REQUEST)?.len();
    }
    Ok(length.to_string())
}

pub(crate) async fn echo(body: Body) -> Response {
    Response::new(body)
}

/// Content with a signature behind it, in the trailers.
pub(crate) async fn signed(body: Body) -> Result<String, StatusCode> {
    let content = body.collect().await.map_err(|_| StatusCode::BAD_REQUEST)?;
    let trailers = content.trailers().cloned().unwrap_or_default();
    let signature = trailers.get("x-signature").and_then(|value| value.to_str().ok());
    let signature = signature.unwrap_or("nobody").to_owned();
    Ok(format!("{} bytes, signed by {signature}", content.to_bytes().len()))
}

pub(crate) async fn rows(Path(count): Path<u32>) -> impl IntoResponse {
    let rows = stream::iter(0..count).then(|row| async move {
        if row % 1000 == 0 {
            tokio::task::yield_now().await;
        }
        Ok::<_, Infallible>(format!("{row},row {row}\n"))
    });
    ([(header::CONTENT_TYPE, "text/csv")], Body::from_stream(rows))
}

pub(crate) async fn sized() -> impl IntoResponse {
    let pieces =
        stream::iter(0..SIZED / 1000).map(|_| Ok::<_, Infallible>(Bytes::from(vec![b'x'; 1000])));
    let fields = [
        (header::CONTENT_LENGTH, SIZED.to_string()),
        (header::CONTENT_TYPE, "application/octet-stream".into()),
    ];
    (fields, Body::from_stream(pieces))
}

pub(crate) async fn trailers() -> impl IntoResponse {
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(2);
    tokio::spawn(async move {
        let mut fields = HeaderMap::new();
        fields.insert("x-checksum", HeaderValue::from_static("1234"));
        fields.insert("x-not-announced", HeaderValue::from_static("dropped"));
        let _ = sender.send_data(Bytes::from("content")).await;
        let _ = sender.send_trailers(fields).await;
    });
    ([(header::TRAILER, "x-checksum")], Body::new(body))
}

pub(crate) async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let numbers = stream::iter(0..3).then(|number| async move {
        tokio::time::sleep(Duration::from_millis(5)).await;
        Ok(Event::default().id(number.to_string()).data(format!("number {number}")))
    });
    Sse::new(numbers).keep_alive(KeepAlive::default())
}

pub(crate) async fn endless() -> Body {
    let ticks = stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Some((Ok::<_, Infallible>("tick\n"), ()))
    });
    Body::from_stream(ticks)
}

pub(crate) async fn web_socket(upgrade: WebSocketUpgrade) -> Response {
    upgrade.protocols(["echo"]).on_upgrade(converse)
}

/// Says everything back until the other side closes.
async fn converse(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        let answer = match message {
            Message::Text(text) => Message::Text(format!("you said {text}").into()),
            Message::Binary(bytes) => Message::Binary(bytes),
            // axum answers these by itself.
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) => continue,
        };
        if socket.send(answer).await.is_err() {
            return;
        }
    }
}
