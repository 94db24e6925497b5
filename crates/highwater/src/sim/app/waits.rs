//! Handlers, streams and upgraded connections that wait for other threads, for a short time or for
//! ever.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Poll, ready};
use std::time::Duration;

use http::HeaderValue;

use super::super::threads::Wait;
use super::{ROUTE_TIMEOUT, Shared, SharedState, big, piece, stream_of};
use crate::app::{Body, BodyStream, Error, Handler, Path, Response, Router, State};

/// In paths: the key of the request for other threads, and a number.
type Named = Path<(u32, u64)>;

pub(super) fn router() -> Router {
    Router::new()
        .get("/wait/{key}/{millis}", wait)
        .get("/wait-bounded/{key}/{millis}", wait.timeout(ROUTE_TIMEOUT))
        .get("/wait-detached/{key}/{millis}", wait_detached.detached())
        .get("/ticks/{key}/{n}", ticks)
        .get("/events/{key}/{millis}", events)
        .get("/talk/{key}/{millis}", talk.never_shed())
        .post("/digest/{key}/{millis}", digest)
}

impl Shared {
    fn pause(&self, key: u32, millis: u64) -> Wait {
        self.threads.wait(key, Duration::from_millis(millis))
    }
}

async fn wait(Path((key, millis)): Named, State(shared): SharedState) -> String {
    let _alive = shared.enter();
    shared.pause(key, millis).await;
    format!("waited {millis}")
}

/// Must run to its end, whether the client is connected or not.
async fn wait_detached(Path((key, millis)): Named, State(shared): SharedState) -> &'static str {
    let _alive = shared.enter();
    shared.detached_begun.fetch_add(1, Relaxed);
    shared.pause(key, millis).await;
    shared.pause(key, millis / 2).await;
    shared.detached_done.fetch_add(1, Relaxed);
    "detached"
}

/// `count` pieces, each of which has to be waited for.
fn ticks(Path((key, count)): Named, State(shared): SharedState) -> Body {
    Body::stream(tick(shared, key, 3, count))
}

/// An endless stream of pieces, the first at once.
fn events(Path((key, millis)): Named, State(shared): SharedState) -> Response {
    Response::from(Body::stream(tick(shared, key, millis, u64::MAX)))
        .with_content_type("text/event-stream")
}

fn tick(
    shared: Arc<Shared>,
    key: u32,
    millis: u64,
    count: u64,
) -> impl futures_core::Stream<Item = Result<bytes::Bytes, std::convert::Infallible>> + Send {
    let alive = shared.enter();
    let (mut next, mut pause) = (0, None::<Pin<Box<Wait>>>);
    stream_of(move |cx| {
        let _alive = &alive;
        if let Some(wait) = &mut pause {
            ready!(wait.as_mut().poll(cx));
        }
        if next == count {
            return Poll::Ready(None);
        }
        next += 1;
        pause = Some(Box::pin(shared.pause(key, millis)));
        Poll::Ready(Some(piece(next - 1)))
    })
}

/// Another protocol, in which both sides send when they like: received bytes are dropped, and
/// something is sent at intervals, until the client finishes.
fn talk(Path((key, millis)): Named, State(shared): SharedState) -> Response {
    Response::upgrade(HeaderValue::from_static("talk"), move |mut upgraded| async move {
        let _alive = shared.enter();
        let mut pause = Box::pin(shared.pause(key, millis));
        loop {
            let mut comes = std::pin::pin!(upgraded.incoming.next());
            let sends = std::future::poll_fn(|cx| match comes.as_mut().poll(cx) {
                Poll::Ready(Some(Ok(_))) => Poll::Ready(Some(false)),
                Poll::Ready(_) => Poll::Ready(None),
                Poll::Pending => pause.as_mut().poll(cx).map(|()| Some(true)),
            });
            match sends.await {
                Some(false) => {}
                Some(true) => {
                    pause = Box::pin(shared.pause(key, millis));
                    if upgraded.outgoing.send(big(30)).await.is_err() {
                        return;
                    }
                }
                None => break,
            }
        }
        upgraded.outgoing.finish();
    })
}

/// Waits after every piece.
async fn digest(
    Path((key, millis)): Named,
    mut body: BodyStream,
    State(shared): SharedState,
) -> Result<String, Error> {
    let _alive = shared.enter();
    let mut length = 0;
    while let Some(piece) = body.next().await {
        length += piece?.len();
        shared.pause(key, millis).await;
    }
    Ok(length.to_string())
}
