//! `tower` layers around native routes.
//!
//! A layer wraps a service; here that is [`Inner`], which passes requests on to the route. The layered service is
//! made once on each worker, and cloned for each request: its clones share what the layer lets them share, and all
//! of that stays on one thread.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use http_body::Body as HttpBody;
use send_wrapper::SendWrapper;
use tower_layer::Layer as TowerLayer;
use tower_service::Service;

use super::body::Body;
use super::request::{Asked, content};
use super::response::{to_http, to_native};
use super::service::ready_call;
use crate::app::layer::{self, IntoLayer, Layer};
use crate::app::{
    self, BodyStream, BoxError, Error, IntoResponse, Next, OwnedRequest, Response, Resume,
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
/// It is `Send`, as many layers want it, though what it runs is not: a request stays on the thread of its worker, and so does
/// this. If a layer moves it to another thread all the same, it panics there, and the request is answered 500.
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
    if let Some(max) = resume.whole_max() {
        let whole = collect(body, max).await?;
        return Ok(next.run(resume.with_whole(parts, whole)).await);
    }
    match unchanged(body) {
        Ok(stream) => Ok(next.run(resume.with_stream(parts, stream)).await),
        Err(body) => {
            let (sender, stream) = app::sender(CHANGED_SIZE_MAX);
            let answer = next.run(resume.with_stream(parts, stream));
            Ok(beside(answer, pass_on(body, sender)).await)
        }
    }
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
            return Err(Error::of_status(http::StatusCode::PAYLOAD_TOO_LARGE));
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

/// A failure of the request's content is the client's; if a layer has wrapped the error, it is the source.
fn unreadable(error: BoxError) -> Error {
    match error.downcast::<app::BodyError>() {
        Ok(failure) => Error::from(*failure),
        Err(error) => {
            Error::bad_request("the content of the request cannot be read").with_source(error)
        }
    }
}

/// Passes on content that a layer has changed. If it fails, the reader learns that it is incomplete.
async fn pass_on<B>(body: B, mut sender: app::BodySender)
where
    B: HttpBody,
    B::Error: Into<BoxError>,
{
    let mut body = pin!(body);
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        let Ok(frame) = frame else { return };
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
    sender.finish();
}

/// The output of `answer`; `work` is polled alongside until then.
async fn beside<T>(answer: impl Future<Output = T>, work: impl Future<Output = ()>) -> T {
    let (mut answer, mut work) = (pin!(answer), pin!(work));
    let mut is_done = false;
    poll_fn(|context| {
        is_done = is_done || work.as_mut().poll(context).is_ready();
        answer.as_mut().poll(context)
    })
    .await
}
