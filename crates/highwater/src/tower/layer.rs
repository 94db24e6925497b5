//! `tower` layers around native routes.
//!
//! A layer wraps a service; here that is [`Inner`], which passes requests on to the route. The layered service is
//! made once on each worker, and cloned for each request: its clones share what the layer lets them share, and all
//! of that stays on one thread.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use highwater_core::http::Reject;
use http_body::Body as HttpBody;
use http_body_util::LengthLimitError;
use send_wrapper::SendWrapper;
use tower_layer::Layer as TowerLayer;
use tower_service::Service;

use super::body::Body;
use super::request::{Asked, content};
use super::response::{to_http, to_native};
use super::service::ready_call;
use crate::app::layer::{self, IntoLayer, Layer};
use crate::app::{
    self, BodyStream, BoxError, Closed, Error, GuardedFuture, IntoResponse, Next, OwnedRequest,
    Response, Resume,
};

/// Content that a layer has changed and no handler has taken yet, in bytes; then the layer waits.
const CHANGED_SIZE_MAX: usize = 64 * 1024;

/// The way of a `tower` layer whose responses have content of type `B`.
#[derive(Debug)]
pub struct ViaTower<B>(B);

/// A `tower` layer around a router's content: its routes, those nested in it, and requests without a route; not
/// [`fixed`](crate::fixed) responses.
///
/// The route is chosen before: a layer may change header fields, extensions and content of a request, but not its
/// route. Errors are already rendered when a layer sees them; an error of the layer itself is a 500.
///
/// # One instance per worker
///
/// [`Layer::layer`](TowerLayer::layer) is called once on each worker's thread, inside its Tokio runtime and before
/// the worker accepts connections; the service it makes is cloned for each request of that worker, and dropped with
/// it. So the service and what its clones share need be neither `Send` nor `Sync`, no lock in it is contended, and
/// **a bound applies per worker**: a `ConcurrencyLimitLayer::new(10)` lets ten requests through on each of four
/// workers. A bound for the whole server must be shared by the layer itself, as `GlobalConcurrencyLimitLayer` does;
/// or use [`concurrency_limit`](crate::Router::concurrency_limit).
#[diagnostic::do_not_recommend]
impl<L, B> IntoLayer<ViaTower<B>> for L
where
    L: TowerLayer<Inner> + Send + Sync + 'static,
    L::Service: Service<http::Request<Body>, Response = http::Response<B>> + Clone + 'static,
    <L::Service as Service<http::Request<Body>>>::Error: Into<BoxError>,
    <L::Service as Service<http::Request<Body>>>::Future: 'static,
    B: HttpBody + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn into_layer(self) -> Layer {
        layer::around_per_worker(move || self.layer(Inner), around)
    }
}

async fn around<S, B>(mut service: S, request: OwnedRequest, next: Next) -> Result<Response, Error>
where
    S: Service<http::Request<Body>, Response = http::Response<B>>,
    S::Error: Into<BoxError>,
    B: HttpBody + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (mut parts, stream, resume) = Resume::take_apart(request)?;
    let asked = Asked::of(&parts);
    let body = content(stream, &parts);
    parts.extensions.insert(Way { next, resume });
    let request = http::Request::from_parts(parts, body);
    let response = ready_call(&mut service, request).await.map_err(Error::internal)?;
    Ok(to_native(response, asked))
}

/// The inner layers and the handler, in the extensions of a request that layers see. A layer may call them twice.
#[derive(Clone)]
struct Way {
    next: Next,
    resume: Resume,
}

/// The service that layers wrap: it passes requests on to the route. It never fails; errors are responses.
#[derive(Clone, Copy, Debug)]
pub struct Inner;

/// The future of an answer by [`Inner`].
///
/// It is `Send`, because many layers require that, although the future inside is not: a request stays on the thread of its
/// worker, and so does this future. If a layer moves it to another thread, it panics there, and the request is answered 500.
pub type InnerFuture =
    Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

impl<B> Service<http::Request<B>> for Inner
where
    B: HttpBody + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = InnerFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> InnerFuture {
        Box::pin(SendWrapper::new(async move {
            let response = go_on(request).await;
            Ok(to_http(response.unwrap_or_else(IntoResponse::into_response)))
        }))
    }
}

async fn go_on<B>(request: http::Request<B>) -> Result<Response, Error>
where
    B: HttpBody + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (mut parts, body) = request.into_parts();
    let Some(Way { next, resume }) = parts.extensions.remove::<Way>() else {
        return Err(Error::internal("a layer has dropped the extensions of its request"));
    };
    let request = match (unchanged(body), resume.whole_max()) {
        // The worker has held it to its limit.
        (Ok(stream), Some(_)) => {
            let whole = collect(Body::of_request(stream, None), u64::MAX).await?;
            resume.with_whole(parts, whole)
        }
        (Err(body), Some(max)) => {
            let whole = collect(body, max).await?;
            resume.with_whole(parts, whole)
        }
        (Ok(stream), None) => resume.with_stream(parts, stream),
        (Err(body), None) => {
            let (sender, stream) = app::sender(CHANGED_SIZE_MAX);
            // A task of the worker's, for the reader may outlive the handler: in the content of its response, or elsewhere.
            // A panic in the layer's content is the request's.
            tokio::task::spawn_local(GuardedFuture::new(pass_on(body, sender)));
            resume.with_stream(parts, stream)
        }
    };
    Ok(next.run(request).await)
}

/// The request's own stream, if no layer has wrapped it.
fn unchanged<B: 'static>(body: B) -> Result<BodyStream, B> {
    let mut place = Some(body);
    let any: &mut dyn std::any::Any = &mut place;
    match any.downcast_mut::<Option<Body>>().and_then(Option::take) {
        Some(body) if HttpBody::is_end_stream(&body) => Ok(BodyStream::whole(Bytes::new())),
        Some(body) => body.into_request().map_err(restore),
        None => Err(place.expect("it was not taken")),
    }
}

/// Gives a [`Body`] its generic type back.
fn restore<B: 'static>(body: Body) -> B {
    let mut place = Some(body);
    let any: &mut dyn std::any::Any = &mut place;
    any.downcast_mut::<Option<B>>().and_then(Option::take).expect("`B` is `Body`")
}

/// All of the content, for a handler that takes it whole.
async fn collect<B>(body: B, max: u64) -> Result<Bytes, Error>
where
    B: HttpBody,
    B::Error: Into<BoxError>,
{
    let mut body = pin!(body);
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        let frame = frame.map_err(|error| unreadable(error.into()))?;
        let Ok(mut data) = frame.into_data() else { continue };
        if (first.len() + whole.len() + data.remaining()) as u64 > max {
            return Err(app::BodyError::too_large(max).into());
        }
        let piece = data.copy_to_bytes(data.remaining());
        if first.is_empty() && whole.is_empty() {
            first = piece;
        } else {
            whole.extend_from_slice(&std::mem::take(&mut first));
            whole.extend_from_slice(&piece);
        }
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

/// A failure of the request's content is the client's, unless a layer says otherwise in a response of its own.
fn unreadable(error: BoxError) -> Error {
    match meaning(&*error) {
        Some(failure) => Error::from(failure),
        None => Error::bad_request("the content of the request cannot be read").with_source(error),
    }
}

/// What an error of content means, if it or one of its causes is the server's own, or the limit that layers use.
fn meaning(error: &(dyn StdError + 'static)) -> Option<app::BodyError> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(failure) = error.downcast_ref::<app::BodyError>() {
            return Some(*failure);
        }
        if error.is::<LengthLimitError>() {
            return Some(Reject::BodyTooLarge.into());
        }
        cause = error.source();
    }
    None
}

/// Passes on content that a layer has changed, until its end or until nobody is left to read it. If it fails, the reader
/// learns why.
async fn pass_on<B>(body: B, mut sender: app::BodySender)
where
    B: HttpBody,
    B::Error: Into<BoxError>,
{
    let mut body = pin!(body);
    loop {
        let next = {
            let mut closed = pin!(sender.closed());
            poll_fn(|context| match closed.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(Err(Closed)),
                Poll::Pending => body.as_mut().poll_frame(context).map(Ok),
            })
            .await
        };
        let frame = match next {
            Err(Closed) => return,
            Ok(None) => return sender.finish(),
            Ok(Some(Err(error))) => {
                let error: BoxError = error.into();
                return sender.fail(meaning(&*error).unwrap_or(app::BodyError::DISCONNECTED));
            }
            Ok(Some(Ok(frame))) => frame,
        };
        match frame.into_data() {
            Ok(mut data) => {
                let piece = data.copy_to_bytes(data.remaining());
                if sender.send(piece).await.is_err() {
                    return;
                }
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    sender.trailers(trailers);
                }
            }
        }
    }
}
