//! How do I tell a browser what happens, as it happens (server-sent events, WHATWG HTML §9.2)?
//!
//! [`Sse`] is a response made of a stream of [`Event`]s, or of a future that sends them. [`LastEventId`] is the id of the
//! last event that a reconnecting client has received.
//!
//! ```
//! use std::time::Duration;
//!
//! use highwater::sse::{Event, LastEventId, Sse};
//! use highwater::testing::Client;
//! use highwater::{Closed, Router};
//!
//! async fn ticks(last: LastEventId) -> Sse {
//!     let next = last.number().map_or(0, |last| last + 1);
//!     Sse::run(move |mut events| async move {
//!         for number in next.. {
//!             events.send(Event::data(format!("tick {number}")).id(number)).await?;
//!             tokio::time::sleep(Duration::from_secs(1)).await;
//!         }
//!         Ok::<(), Closed>(())
//!     })
//! }
//!
//! let client = Client::new(Router::new().get("/ticks", ticks));
//! let mut events = client.events("/ticks");
//! assert_eq!(events.next().unwrap().data, "tick 0");
//! let mut events = client.events_after("/ticks", "41");
//! assert_eq!(events.next().unwrap().data, "tick 42");
//! ```
//!
//! * A client that reads slowly slows its source down: 64 KiB are buffered here, and as many by the connection.
//! * When the client leaves, the stream ends: the source is dropped, and so is the future of [`Sse::run`].
//! * A silent stream sends a comment every 15 seconds, so that proxies keep the connection, and clients that are gone are
//!   noticed ([`Sse::keep_alive`]).
//! * A server that drains ends the stream; browsers reconnect, to another instance if there is one.
//! * `Cache-Control: no-store` and `X-Accel-Buffering: no` are sent, so that no proxy keeps events back.

mod event;
mod stream;

use std::fmt;
use std::time::Duration;

use futures_core::Stream;
use http::{HeaderValue, header};

use self::stream::{Bytes, Converted, Running};
use crate::app::{
    Body, BodySender, BoxError, Closed, Error, Finish, FromRequest, IntoResponse, Request,
    Response, sender,
};

pub use self::event::Event;

/// After which silence a comment is sent, unless the response says otherwise: shorter than what proxies allow, and long
/// enough to cost nothing. A guess.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Bytes of events that wait for a connection that is slow; then a sender waits. As for bodies.
const BUFFER_MAX: usize = 64 * 1024;

/// A response of events: a handler returns it.
///
/// ```
/// use std::pin::Pin;
/// use std::task::{Context, Poll};
///
/// use futures_core::Stream;
/// use highwater::sse::{Event, Sse};
/// use highwater::testing::Client;
/// use highwater::Router;
///
/// /// Any stream of events.
/// struct Countdown(u32);
///
/// impl Stream for Countdown {
///     type Item = Event;
///
///     fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Event>> {
///         self.0 = match self.0.checked_sub(1) {
///             Some(left) => left,
///             None => return Poll::Ready(None),
///         };
///         Poll::Ready(Some(Event::data(self.0.to_string())))
///     }
/// }
///
/// let client = Client::new(Router::new().get("/countdown", || Sse::new(Countdown(2))));
/// assert_eq!(client.get("/countdown").text(), "data: 1\n\ndata: 0\n\n");
/// ```
#[must_use = "return it from a handler"]
pub struct Sse(Bytes);

/// Sends the events of [`Sse::run`].
pub struct EventSender(BodySender);

impl Sse {
    /// The events of `stream`. The response ends with it.
    pub fn new<S>(stream: S) -> Sse
    where
        S: Stream<Item = Event> + Send + 'static,
    {
        Sse(Bytes::new(Converted(Box::pin(stream), |event: Event| Ok(event.to_bytes()))))
    }

    /// The events of `stream`. Its first error cuts the connection, so that the client reconnects.
    pub fn fallible<S, E>(stream: S) -> Sse
    where
        S: Stream<Item = Result<Event, E>> + Send + 'static,
        E: Into<BoxError> + 'static,
    {
        let convert = |event: Result<Event, E>| match event {
            Ok(event) => Ok(event.to_bytes()),
            Err(error) => Err(error.into()),
        };
        Sse(Bytes::new(Converted(Box::pin(stream), convert)))
    }

    /// The events that `source` sends. Its future runs on the worker of the handler that calls this, and need not be `Send`.
    /// It is dropped when the client leaves. When it returns, the response ends; if it returns an error, the connection is
    /// cut, so that the client reconnects. [`Closed`] is not a failure: the client has left.
    ///
    /// # Panics
    /// If there is no runtime, as in a plain `fn`. Make the handler an `async fn`.
    pub fn run<F, Fut>(source: F) -> Sse
    where
        F: FnOnce(EventSender) -> Fut,
        Fut: Future<Output: Finish> + 'static,
    {
        let (sender, stream) = sender(BUFFER_MAX);
        Sse(Bytes::new(Running::begin(source(EventSender(sender)), stream)))
    }

    /// Sends a comment whenever nothing was sent for `silence`: 15 seconds unless this is set; `Duration::MAX` for never.
    pub fn keep_alive(mut self, silence: Duration) -> Sse {
        self.0.set_keep_alive(silence);
        self
    }
}

impl EventSender {
    /// Sends an event; waits while 64 KiB are buffered for a slow client.
    ///
    /// # Errors
    /// The client has gone.
    pub async fn send(&mut self, event: Event) -> Result<(), Closed> {
        self.0.send(event.to_bytes()).await
    }

    /// Waits until the client has gone.
    pub async fn closed(&mut self) {
        self.0.closed().await;
    }
}

impl IntoResponse for Sse {
    fn into_response(self) -> Response {
        let mut response =
            Response::from(Body::from_content(self.0, None)).with_content_type("text/event-stream");
        response.set_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response.with_header("x-accel-buffering", "no")
    }
}

#[cfg(feature = "openapi")]
impl crate::app::openapi::DescribeOutput for Sse {
    fn describe(operation: &mut crate::app::openapi::Operation<'_>) {
        operation.text("text/event-stream");
    }
}

#[cfg(feature = "openapi")]
impl crate::app::openapi::DescribeInput for LastEventId {
    fn describe(operation: &mut crate::app::openapi::Operation<'_>) {
        operation.optional_header("Last-Event-ID", "The last event that the client has got.");
    }
}

impl fmt::Debug for Sse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sse")
    }
}

impl fmt::Debug for EventSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventSender")
    }
}

/// The id of the last event that a client got before it was disconnected (`Last-Event-ID`): an extractor. A client that
/// connects for the first time has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastEventId(pub Option<String>);

impl LastEventId {
    /// The id, if it is a number.
    pub fn number(&self) -> Option<u64> {
        self.0.as_deref()?.parse().ok()
    }
}

impl FromRequest for LastEventId {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let id = request.header("last-event-id").filter(|id| !id.is_empty());
        Ok(LastEventId(id.map(String::from)))
    }
}
