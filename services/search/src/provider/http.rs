//! Serves a [`Provider`] at any path, over the framework that the search service itself runs on.
//!
//! The framework does not let a handler lie about framing, so an answer whose length is not the one
//! it declares is sent as a stream that breaks its promise: the connection is reset at that point, as with a provider
//! that dies in mid-answer.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::vec;

use bytes::Bytes;
use fastrand::Rng;
use futures_core::Stream;
use highwater::{Body, Error, FromRequest, Response, Router, StatusCode};

use super::{Answer, Provider, Request};

/// The provider's one route. `rng` decides which answers misbehave; every request is logged.
pub fn router(provider: Provider, rng: Rng) -> Router {
    let provider = Arc::new((provider, Mutex::new(rng)));
    let answer = move |asked: Asked| {
        let provider = Arc::clone(&provider);
        async move { respond(&provider, asked).await }
    };
    Router::new().get("/", answer.clone()).get("/{*path}", answer)
}

async fn respond((provider, rng): &(Provider, Mutex<Rng>), asked: Asked) -> Response {
    let request = Request {
        if_none_match: asked.if_none_match.as_deref(),
        accept_encoding: asked.accept_encoding.as_deref(),
    };
    let answer = {
        let mut rng = rng.lock().unwrap_or_else(PoisonError::into_inner);
        provider.answer(request, &mut rng)
    };
    tracing::info!(
        status = answer.status,
        bytes = answer.body.len(),
        declared = answer.declared_length,
        delay_ms = u64::try_from(answer.delay.as_millis()).unwrap_or(u64::MAX),
        "the feed was asked for",
    );
    tokio::time::sleep(answer.delay).await;
    response(answer)
}

fn response(answer: Answer) -> Response {
    let Answer { status, headers, body, declared_length, .. } = answer;
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = match declared_length == body.len() {
        true => Body::from(body),
        false => Body::stream_of_length(declared_length as u64, Pieces::of(body, declared_length)),
    };
    let response = Response::new(status).with_body(body);
    headers.into_iter().fold(response, |response, (name, value)| response.with_header(name, value))
}

/// What the answer depends on.
struct Asked {
    if_none_match: Option<String>,
    accept_encoding: Option<String>,
}

impl FromRequest for Asked {
    fn from_request(request: &highwater::Request<'_>) -> Result<Asked, Error> {
        let header = |name| request.header(name).map(str::to_owned);
        Ok(Asked {
            if_none_match: header("if-none-match"),
            accept_encoding: header("accept-encoding"),
        })
    }
}

/// A body that is not as long as was declared: what was, as far as it is there, and then the rest.
struct Pieces(vec::IntoIter<Bytes>);

impl Pieces {
    fn of(mut body: Bytes, declared_length: usize) -> Pieces {
        let rest = body.split_off(declared_length.min(body.len()));
        let pieces = [body, rest].into_iter().filter(|piece| !piece.is_empty());
        Pieces(pieces.collect::<Vec<_>>().into_iter())
    }
}

impl Stream for Pieces {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.next().map(Ok))
    }
}
