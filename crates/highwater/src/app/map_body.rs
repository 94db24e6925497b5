//! Content that a layer changes, piece by piece.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderMap, header};

use super::body::{Body, ByteStream, Content, Repr};
use super::draining::Draining;
use super::error::BoxError;
use super::response::Response;

impl Response {
    /// Wraps the content in a stream: `wrap` receives the content as a stream of pieces, and returns the stream that is
    /// sent instead. Trailers stay, and are sent when the new stream has ended, if it has read the pieces to their end. The
    /// length is no longer known; a `Content-Length` is dropped. Other fields that describe the content
    /// (`Content-Encoding`, `ETag`, …) must be changed by the caller.
    ///
    /// Nothing happens to a response without content, nor to an [upgrade](Response::upgrade).
    ///
    /// ```
    /// use std::pin::Pin;
    /// use std::task::{Context, Poll};
    ///
    /// use futures_core::Stream;
    /// use highwater::{BodyPieces, BoxError, Bytes, Request, Response, Router, layer};
    ///
    /// struct Uppercase(BodyPieces);
    ///
    /// impl Stream for Uppercase {
    ///     type Item = Result<Bytes, BoxError>;
    ///
    ///     fn poll_next(
    ///         mut self: Pin<&mut Self>,
    ///         context: &mut Context<'_>,
    ///     ) -> Poll<Option<Self::Item>> {
    ///         let upper = |piece: Bytes| Bytes::from(piece.to_ascii_uppercase());
    ///         Pin::new(&mut self.0).poll_next(context).map(|next| next.map(|piece| piece.map(upper)))
    ///     }
    /// }
    ///
    /// fn shout(_: &Request<'_>, response: &mut Response) {
    ///     response.map_body(Uppercase);
    /// }
    ///
    /// let app = Router::new().layer(layer::on_response(shout)).get("/", || "hello");
    /// # app.build().unwrap();
    /// ```
    pub fn map_body<F, S, B, E>(&mut self, wrap: F)
    where
        F: FnOnce(BodyPieces) -> S,
        S: Stream<Item = Result<B, E>> + Send + 'static,
        B: Into<Bytes>,
        E: Into<BoxError>,
    {
        if self.body().is_empty() || matches!(self.body().repr(), Repr::Upgrade(_)) {
            return;
        }
        let source = match self.take_body().into_repr() {
            Repr::Stream(stream, _) => Source::Stream(stream),
            Repr::Static(bytes) => Source::Whole(Bytes::from_static(bytes)),
            Repr::Owned(bytes) => Source::Whole(bytes.into()),
            Repr::Pooled(bytes) => Source::Whole(Bytes::copy_from_slice(&bytes)),
            Repr::Shared(bytes) => Source::Whole(bytes),
            Repr::Empty | Repr::Upgrade(_) => Source::Over,
        };
        let (trailers, draining) = (Trailers::default(), Arc::default());
        let pieces = BodyPieces {
            source,
            trailers: trailers.clone(),
            draining: Some(Arc::clone(&draining)),
        };
        let stream = Box::pin(wrap(pieces));
        self.set_body(Body::from_content(Mapped { stream, trailers, draining }, None));
        self.remove_header(&header::CONTENT_LENGTH);
    }
}

/// The content of a response as a stream of pieces; see [`Response::map_body`].
pub struct BodyPieces {
    source: Source,
    trailers: Trailers,
    /// The signal that ends the content, until it is passed on.
    draining: Option<Arc<OnceLock<Draining>>>,
}

enum Source {
    Whole(Bytes),
    Stream(ByteStream),
    Over,
}

/// The trailers of the original content, once they are known.
#[derive(Clone, Default)]
struct Trailers(Arc<Mutex<HeaderMap>>);

impl Trailers {
    fn swap(&self, trailers: HeaderMap) -> HeaderMap {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), trailers)
    }
}

impl Stream for BodyPieces {
    type Item = Result<Bytes, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.tell_draining();
        let next = match &mut self.source {
            Source::Over => return Poll::Ready(None),
            Source::Whole(bytes) => Some(Ok(std::mem::take(bytes))),
            Source::Stream(stream) => ready!(stream.content().poll_next(context)),
        };
        if next.is_none()
            && let Source::Stream(stream) = &mut self.source
        {
            let trailers = stream.content().take_trailers();
            self.trailers.swap(trailers);
        }
        if !matches!((&self.source, &next), (Source::Stream(_), Some(Ok(_)))) {
            self.source = Source::Over;
        }
        Poll::Ready(next)
    }
}

impl BodyPieces {
    /// Content without an end of its own learns what ends it, once that is known.
    fn tell_draining(&mut self) {
        if let Some(draining) = self.draining.take_if(|draining| draining.get().is_some())
            && let (Source::Stream(stream), Some(draining)) = (&mut self.source, draining.get())
        {
            stream.content().ends_with(draining.clone());
        }
    }
}

impl fmt::Debug for BodyPieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyPieces")
    }
}

struct Mapped<S> {
    stream: Pin<Box<S>>,
    trailers: Trailers,
    draining: Arc<OnceLock<Draining>>,
}

impl<S, B, E> Stream for Mapped<S>
where
    S: Stream<Item = Result<B, E>>,
    B: Into<Bytes>,
    E: Into<BoxError>,
{
    type Item = Result<Bytes, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(self.stream.as_mut().poll_next(context));
        Poll::Ready(next.map(|piece| piece.map(Into::into).map_err(Into::into)))
    }
}

impl<S, B, E> Content for Mapped<S>
where
    S: Stream<Item = Result<B, E>> + Send,
    B: Into<Bytes>,
    E: Into<BoxError>,
{
    fn take_trailers(self: Pin<&mut Self>) -> HeaderMap {
        self.trailers.swap(HeaderMap::new())
    }

    fn ends_with(self: Pin<&mut Self>, draining: Draining) {
        let _ = self.draining.set(draining);
    }
}
