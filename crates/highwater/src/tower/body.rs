//! The content of a request as a service receives it, and of a native response as a layer receives it.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use http::HeaderMap;
use http_body::{Frame, SizeHint};

use crate::app::{BodyRepr, BodyStream, BoxError, ByteStream};

/// Content as an [`http_body::Body`].
///
/// A request's content is read from the connection only as it is polled here, beyond a bounded buffer. Its
/// errors are [`BodyError`](crate::BodyError)s: too slow, cut off, malformed. Trailers come as a last frame;
/// see [`BodyStream::take_trailers`](crate::BodyStream::take_trailers) for the fields that they may have.
#[derive(Debug, Default)]
pub struct Body(Repr);

#[derive(Default)]
enum Repr {
    #[default]
    Empty,
    Whole(Bytes),
    /// A request's, and how much of it is left if that is known.
    Request(BodyStream, Option<u64>),
    /// A response's, and how much of it is left if that is known.
    Response(ByteStream, Option<u64>),
    /// Trailers are all that is left.
    Trailers(HeaderMap),
}

impl Body {
    /// No content.
    pub const fn empty() -> Self {
        Body(Repr::Empty)
    }

    /// A request's content, and its length if that is known.
    pub(super) fn of_request(stream: BodyStream, length: Option<u64>) -> Self {
        if length == Some(0) { Body::empty() } else { Body(Repr::Request(stream, length)) }
    }

    /// The stream that this was made of, if nothing was read of it.
    pub(super) fn into_request(self) -> Result<BodyStream, Self> {
        match self.0 {
            Repr::Request(stream, _) => Ok(stream),
            other => Err(Body(other)),
        }
    }

    /// A native response's content. Upgrades have none.
    pub(super) fn of_response(content: BodyRepr) -> Self {
        Body(match content {
            BodyRepr::Empty | BodyRepr::Upgrade(_) => Repr::Empty,
            BodyRepr::Static(bytes) => Repr::Whole(Bytes::from_static(bytes)),
            BodyRepr::Owned(bytes) => Repr::Whole(bytes.into()),
            BodyRepr::Pooled(bytes) => Repr::Whole(Bytes::copy_from_slice(&bytes)),
            BodyRepr::Shared(bytes) => Repr::Whole(bytes),
            BodyRepr::Stream(stream, length) => Repr::Response(stream, length),
        })
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() { Body::empty() } else { Body(Repr::Whole(bytes)) }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let (piece, left) = match &mut self.0 {
            Repr::Empty => return Poll::Ready(None),
            Repr::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = Repr::Empty;
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            Repr::Trailers(trailers) => {
                let trailers = std::mem::take(trailers);
                self.0 = Repr::Empty;
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
            Repr::Request(stream, left) => {
                let piece = ready!(Pin::new(&mut *stream).poll_next(context));
                if piece.is_none() {
                    let trailers = stream.take_trailers();
                    if !trailers.is_empty() {
                        self.0 = Repr::Trailers(trailers);
                        return self.poll_frame(context);
                    }
                }
                (piece.map(|piece| piece.map_err(BoxError::from)), left)
            }
            Repr::Response(stream, left) => {
                let piece = ready!(stream.content().poll_next(context));
                if piece.is_none() {
                    let trailers = stream.content().take_trailers();
                    if !trailers.is_empty() {
                        self.0 = Repr::Trailers(trailers);
                        return self.poll_frame(context);
                    }
                }
                (piece, left)
            }
        };
        match &piece {
            Some(Ok(piece)) => {
                *left = left.map(|left| left.saturating_sub(piece.len() as u64));
            }
            Some(Err(_)) | None => self.0 = Repr::Empty,
        }
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Repr::Empty => true,
            Repr::Whole(_) | Repr::Response(..) | Repr::Trailers(_) => false,
            // A stream of known length may still fail after its last byte.
            Repr::Request(..) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Repr::Empty | Repr::Trailers(_) => SizeHint::with_exact(0),
            Repr::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Repr::Request(_, left) | Repr::Response(_, left) => {
                left.map_or_else(SizeHint::default, SizeHint::with_exact)
            }
        }
    }
}

impl fmt::Debug for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Repr::Empty => f.write_str("Empty"),
            Repr::Whole(bytes) => write!(f, "Whole({} bytes)", bytes.len()),
            Repr::Request(_, left) => write!(f, "Request({left:?})"),
            Repr::Response(_, left) => write!(f, "Response({left:?})"),
            Repr::Trailers(trailers) => write!(f, "Trailers({trailers:?})"),
        }
    }
}
