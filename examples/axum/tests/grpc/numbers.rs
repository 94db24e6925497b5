//! A gRPC service of all four kinds, and its client: what `tonic-build` would make of a schema, written by hand, so that no
//! compiler of schemas is needed.
//!
//! ```proto
//! package numbers;
//! message Number { int64 value = 1; bytes padding = 2; }
//! service Numbers {
//!   rpc Square(Number) returns (Number);
//!   rpc Count(Number) returns (stream Number);
//!   rpc Sum(stream Number) returns (Number);
//!   rpc Running(stream Number) returns (stream Number);
//!   rpc Never(Number) returns (Number);
//! }
//! ```

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};

use axum::http;
use futures_util::{Stream, StreamExt as _, stream};
use http_body::Body as HttpBody;
use tonic::body::Body;
use tonic::client;
use tonic::codegen::StdError;
use tonic::server::{Grpc, NamedService};
use tonic::transport::Channel;
use tonic::{Code, IntoStreamingRequest, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

/// Most numbers that [`count`] sends before it fails.
pub(crate) const COUNT_MAX: i64 = 1000;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Number {
    #[prost(int64, tag = "1")]
    pub(crate) value: i64,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) padding: Vec<u8>,
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Number { value, padding: Vec::new() }
    }
}

/// The service, and how many of its calls of `Never` were dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) dropped: Arc<AtomicUsize>,
}

impl NamedService for Numbers {
    const NAME: &'static str = "numbers.Numbers";
}

type Numbered = Pin<Box<dyn Stream<Item = Result<Number, Status>> + Send>>;

/// The square, with what the caller has called itself; nothing below 0.
async fn square(request: Request<Number>) -> Result<Response<Number>, Status> {
    let caller = request.metadata().get("x-caller").cloned();
    let Number { value, padding } = request.into_inner();
    if value < 0 {
        let mut status =
            Status::with_details(Code::InvalidArgument, "no number below 0", b"why"[..].into());
        status.metadata_mut().insert("x-least", "0".parse().expect("it is ASCII"));
        return Err(status);
    }
    let mut response = Response::new(Number { value: value * value, padding });
    if let Some(caller) = caller {
        response.metadata_mut().insert("x-called-by", caller);
    }
    Ok(response)
}

/// All numbers up to the one that is given. Beyond [`COUNT_MAX`] it fails after that many.
async fn count(request: Request<Number>) -> Result<Response<Numbered>, Status> {
    let last = request.into_inner().value;
    let numbers = stream::iter(1..=last).map(|value| match value {
        ..=COUNT_MAX => Ok(Number::from(value)),
        _ => Err(Status::resource_exhausted(format!("at most {COUNT_MAX}"))),
    });
    Ok(Response::new(Box::pin(numbers)))
}

/// The sum of all that come, and of the lengths of what comes with them.
async fn sum(request: Request<Streaming<Number>>) -> Result<Response<Number>, Status> {
    let mut numbers = request.into_inner();
    let mut sum = 0;
    while let Some(number) = numbers.message().await? {
        sum += number.value + number.padding.len() as i64;
    }
    Ok(Response::new(Number::from(sum)))
}

/// For each number the sum so far, before the next is read.
async fn running(request: Request<Streaming<Number>>) -> Result<Response<Numbered>, Status> {
    let sums = request.into_inner().scan(0, |sum, number| {
        let next = number.map(|number| {
            *sum += number.value;
            Number::from(*sum)
        });
        std::future::ready(Some(next))
    });
    Ok(Response::new(Box::pin(sums)))
}

/// Counts when it is dropped.
struct Counts(Arc<AtomicUsize>);

impl Drop for Counts {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl<B> Service<http::Request<B>> for Numbers
where
    B: HttpBody + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let dropped = Arc::clone(&self.dropped);
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::<Number, Number>::default());
            Ok(match request.uri().path() {
                "/numbers.Numbers/Square" => grpc.unary(service_fn(square), request).await,
                "/numbers.Numbers/Count" => grpc.server_streaming(service_fn(count), request).await,
                "/numbers.Numbers/Sum" => grpc.client_streaming(service_fn(sum), request).await,
                "/numbers.Numbers/Running" => grpc.streaming(service_fn(running), request).await,
                "/numbers.Numbers/Never" => {
                    let never = move |_: Request<Number>| {
                        let counts = Counts(Arc::clone(&dropped));
                        async move {
                            let _counts = counts;
                            std::future::pending::<Result<Response<Number>, Status>>().await
                        }
                    };
                    grpc.unary(service_fn(never), request).await
                }
                _ => Status::unimplemented("there is no such method").into_http(),
            })
        })
    }
}

/// A client of the service.
#[derive(Clone, Debug)]
pub(crate) struct NumbersClient(client::Grpc<Channel>);

impl NumbersClient {
    pub(crate) fn new(channel: Channel) -> Self {
        NumbersClient(client::Grpc::new(channel))
    }

    async fn ready(&mut self) {
        self.0.ready().await.expect("the connection is open");
    }

    pub(crate) async fn unary(
        &mut self,
        method: &'static str,
        request: Request<Number>,
    ) -> Result<Response<Number>, Status> {
        self.ready().await;
        self.0.unary(request, path(method), ProstCodec::default()).await
    }

    pub(crate) async fn count(&mut self, last: i64) -> Result<Response<Streaming<Number>>, Status> {
        self.ready().await;
        let request = Request::new(Number::from(last));
        self.0.server_streaming(request, path("Count"), ProstCodec::default()).await
    }

    pub(crate) async fn sum(
        &mut self,
        numbers: impl IntoStreamingRequest<Message = Number>,
    ) -> Result<Response<Number>, Status> {
        self.ready().await;
        let numbers = numbers.into_streaming_request();
        self.0.client_streaming(numbers, path("Sum"), ProstCodec::default()).await
    }

    pub(crate) async fn running(
        &mut self,
        numbers: impl IntoStreamingRequest<Message = Number>,
    ) -> Result<Response<Streaming<Number>>, Status> {
        self.ready().await;
        let numbers = numbers.into_streaming_request();
        self.0.streaming(numbers, path("Running"), ProstCodec::default()).await
    }
}

fn path(method: &str) -> http::uri::PathAndQuery {
    format!("/numbers.Numbers/{method}").parse().expect("it is a path")
}
