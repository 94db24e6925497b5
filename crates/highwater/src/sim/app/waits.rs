//! Handlers, streams and upgraded connections that wait for other threads, for short or for ever.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Poll, ready};
use std::time::Duration;

use http::HeaderValue;

use super::super::elsewhere::Wait;
use super::{Books, Ledger, ROUTE_TIMEOUT, big, piece, stream_of};
use crate::app::{Body, BodyStream, Error, Handler, Path, Response, Router, State};

/// In paths: what the request is called elsewhere, and a number.
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

impl Ledger {
    fn pause(&self, key: u32, millis: u64) -> Wait {
        self.elsewhere.wait(key, Duration::from_millis(millis))
    }
}

async fn wait(Path((key, millis)): Named, State(ledger): Books) -> String {
    let _guest = ledger.enter();
    ledger.pause(key, millis).await;
    format!("waited {millis}")
}

/// Has to come to its end, whether the client is there or not.
async fn wait_detached(Path((key, millis)): Named, State(ledger): Books) -> &'static str {
    let _guest = ledger.enter();
    ledger.detached_begun.fetch_add(1, Relaxed);
    ledger.pause(key, millis).await;
    ledger.pause(key, millis / 2).await;
    ledger.detached_done.fetch_add(1, Relaxed);
    "detached"
}

/// So many pieces, each of which has to be waited for.
fn ticks(Path((key, count)): Named, State(ledger): Books) -> Body {
    Body::stream(tick(ledger, key, 3, count))
}

/// Pieces without an end, the first at once.
fn events(Path((key, millis)): Named, State(ledger): Books) -> Response {
    Response::from(Body::stream(tick(ledger, key, millis, u64::MAX)))
        .with_content_type("text/event-stream")
}

fn tick(
    ledger: Arc<Ledger>,
    key: u32,
    millis: u64,
    count: u64,
) -> impl futures_core::Stream<Item = Result<bytes::Bytes, std::convert::Infallible>> + Send {
    let guest = ledger.enter();
    let (mut next, mut pause) = (0, None::<Pin<Box<Wait>>>);
    stream_of(move |cx| {
        let _guest = &guest;
        if let Some(wait) = &mut pause {
            ready!(wait.as_mut().poll(cx));
        }
        if next == count {
            return Poll::Ready(None);
        }
        next += 1;
        pause = Some(Box::pin(ledger.pause(key, millis)));
        Poll::Ready(Some(piece(next - 1)))
    })
}

/// Another protocol, in which both sides speak when they like: what comes is dropped, and every so often
/// something is said, until the client finishes.
fn talk(Path((key, millis)): Named, State(ledger): Books) -> Response {
    Response::upgrade(HeaderValue::from_static("talk"), move |mut upgraded| async move {
        let _guest = ledger.enter();
        let mut pause = Box::pin(ledger.pause(key, millis));
        loop {
            let mut comes = std::pin::pin!(upgraded.incoming.next());
            let speaks = std::future::poll_fn(|cx| match comes.as_mut().poll(cx) {
                Poll::Ready(Some(Ok(_))) => Poll::Ready(Some(false)),
                Poll::Ready(_) => Poll::Ready(None),
                Poll::Pending => pause.as_mut().poll(cx).map(|()| Some(true)),
            });
            match speaks.await {
                Some(false) => {}
                Some(true) => {
                    pause = Box::pin(ledger.pause(key, millis));
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
    State(ledger): Books,
) -> Result<String, Error> {
    let _guest = ledger.enter();
    let mut length = 0;
    while let Some(piece) = body.next().await {
        length += piece?.len();
        ledger.pause(key, millis).await;
    }
    Ok(length.to_string())
}
