//! Routes whose answers take long to send: `/sse` because its events come one by one, `/bytes` and `/big` because they are
//! large, `/ws` because its client decides how long it lasts.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use highwater::sse::Event;
use highwater::websocket::Deflate;
use highwater::{Closed, Error, Query, Response, Router, Sse, WebSocket, websocket};
use serde::Deserialize;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// Most events of one stream; beyond it 400.
const EVENTS_MAX: u64 = 1_000_000;
/// Longest pause between two events; beyond it 400.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Most bytes of one message on `/ws`; beyond it the client is closed with 1009.
const MESSAGE_MAX: usize = 16 * 1024 * 1024;
/// Most bytes of one answer; beyond it 400.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes of `/big`.
const BIG: usize = 1024 * 1024;

#[derive(Deserialize)]
struct Stretch {
    /// How many events.
    n: u64,
    /// Milliseconds before each.
    ms: u64,
}

#[derive(Deserialize)]
struct Size {
    /// Bytes.
    n: usize,
}

/// Adds `/sse`, `/bytes`, `/big` and `/ws`; below `/ws/`, the echo compresses messages, with a context and without.
pub fn routes(router: Router) -> Router {
    // There is nothing to protect, and conformance suites send up to 16 MiB.
    let echo = || websocket(echo).any_origin().message_max(MESSAGE_MAX).frame_max(MESSAGE_MAX);
    let deflate = Deflate::new().bytes_min(1);
    let kept = deflate.clone().server_context_takeover().client_context_takeover();
    // Each byte says where it is, so that a client sees what was lost or came twice.
    let big: Bytes = (0..BIG).map(|place| (place % 251) as u8).collect::<Vec<u8>>().into();
    let big = move || octets(big.clone());
    router
        .get("/sse", events)
        .get("/bytes", bytes)
        .get("/big", big)
        .get("/ws", echo())
        .get("/ws/deflate", echo().deflate(deflate))
        .get("/ws/deflate/kept", echo().deflate(kept))
}

/// Sends every message back.
async fn echo(mut socket: WebSocket) -> Result<(), Closed> {
    while let Some(message) = socket.recv().await {
        socket.send(message).await?;
    }
    Ok(())
}

/// An event stream: `n` events, one every `ms` milliseconds, numbered from 0.
async fn events(Query(Stretch { n, ms }): Query<Stretch>) -> Result<Sse, Error> {
    let pause = Duration::from_millis(ms);
    if n > EVENTS_MAX {
        return Err(Error::bad_request(format!("n is more than {EVENTS_MAX}; ask for less")));
    }
    if pause > PAUSE_MAX {
        return Err(Error::bad_request("ms is more than a minute; ask for less"));
    }
    Ok(Sse::new(Events { next: 0, count: n, pauses: pauses(pause) }))
}

/// None if no pause is asked for.
fn pauses(pause: Duration) -> Option<Interval> {
    let mut pauses = (!pause.is_zero()).then(|| interval_at(Instant::now() + pause, pause))?;
    // A client that has read slowly does not get the missed events all at once.
    pauses.set_missed_tick_behavior(MissedTickBehavior::Delay);
    Some(pauses)
}

/// The events that are still to be sent.
struct Events {
    next: u64,
    count: u64,
    pauses: Option<Interval>,
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if self.next == self.count {
            return Poll::Ready(None);
        }
        if let Some(pauses) = &mut self.pauses {
            ready!(pauses.poll_tick(cx));
        }
        let event = Event::data(self.next.to_string());
        self.next += 1;
        Poll::Ready(Some(event))
    }
}

/// A download: `n` bytes of memory of its own, as an application would have made them.
fn bytes(Query(Size { n }): Query<Size>) -> Result<Response, Error> {
    if n > BYTES_MAX {
        return Err(Error::bad_request(format!("n is more than {BYTES_MAX}; ask for less")));
    }
    Ok(octets(vec![0_u8; n].into()))
}

fn octets(bytes: Bytes) -> Response {
    Response::from(bytes).with_content_type("application/octet-stream")
}

#[cfg(test)]
mod tests {
    use highwater::testing::{Client, Response};
    use highwater::websocket::Message;

    use super::*;

    fn get(target: &str) -> Response {
        Client::new(routes(Router::new())).get(target)
    }

    /// Purpose: a stream has the events that were asked for, numbered, with pauses and without.
    #[test]
    fn events_are_numbered() {
        for target in ["/sse?n=3&ms=0", "/sse?n=3&ms=1"] {
            let response = get(target);
            assert_eq!(
                (response.status.as_u16(), response.text()),
                (200, "data: 0\n\ndata: 1\n\ndata: 2\n\n")
            );
            assert_eq!(response.header("content-type"), Some("text/event-stream"));
        }
        assert_eq!(get("/sse?n=0&ms=60000").text(), "");
    }

    /// Purpose: messages come back as they were, text as text and bytes as bytes; a client that does not ask for a WebSocket
    /// is told to, which is what HttpArena probes.
    #[test]
    fn echoes() {
        let client = Client::new(routes(Router::new()));
        let mut socket = client.websocket("/ws");
        for message in [Message::from("hello"), Message::from(vec![0_u8; 100_000])] {
            socket.send(message.clone());
            assert_eq!(socket.recv(), Some(message));
        }
        assert_eq!(client.get("/ws").status.as_u16(), 426);
    }

    /// Purpose: a download has the size that was asked for.
    #[test]
    fn bytes_are_counted() {
        for size in [0, 1, 100_000] {
            assert_eq!(get(&format!("/bytes?n={size}")).body.len(), size);
        }
        let big = get("/big");
        assert_eq!(
            (big.body.len(), big.header("content-type")),
            (1 << 20, Some("application/octet-stream"))
        );
        assert!(big.body.iter().enumerate().all(|(place, byte)| usize::from(*byte) == place % 251));
    }

    /// Purpose: what is asked for has bounds, and beyond them a 400.
    #[test]
    fn bounds() {
        let at = |target: String| get(&target).status.as_u16();
        assert_eq!(at(format!("/bytes?n={BYTES_MAX}")), 200);
        assert_eq!(at(format!("/bytes?n={}", BYTES_MAX + 1)), 400);
        assert_eq!(at(format!("/sse?n={}&ms=0", EVENTS_MAX + 1)), 400);
        assert_eq!(at("/sse?n=0&ms=60001".to_owned()), 400);
    }
}
