//! Finishes responses that are made after the request's bytes are dropped: those of async and blocking
//! handlers, and of asynchronous layers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::error::Error;
use super::guard::{self, Panic};
use super::into_response::IntoResponse;
use super::request::{Application, OwnedRequest, Request};
use super::response::Response;
use super::target::Target;

/// The remaining work for a request once its response is made: the response parts of one segment of layers.
#[derive(Debug)]
pub(super) struct ResponseFinisher(Remaining);

#[derive(Debug)]
enum Remaining {
    /// Errors are rendered.
    Render(Arc<dyn Application>, Target),
    /// Layers change the response, and read this.
    Respond(OwnedRequest),
}

impl ResponseFinisher {
    /// The finisher for `request`. Copies its head only if a layer needs it.
    pub(super) fn of(request: &Request<'_>) -> Self {
        let (app, target) = (request.app(), request.route());
        ResponseFinisher(match app.responds(target, request.depth()) {
            true => Remaining::Respond(request.keep()),
            false => Remaining::Render(Arc::clone(app), target),
        })
    }

    /// Awaits `future`, and finishes its response; a panic in it is an error.
    pub(super) fn after<F>(self, future: F) -> Finishing<F>
    where
        F: Future<Output: IntoResponse>,
    {
        Finishing { future: Some(future), finisher: Some(self) }
    }

    /// Gives an error its shape, then runs the response parts of the layers.
    pub(super) fn finish(self, answer: Result<Response, Error>) -> Response {
        let response = answer.unwrap_or_else(IntoResponse::into_response);
        match self.0 {
            Remaining::Render(app, target) => app.render(target, response),
            Remaining::Respond(request) => request.app().respond(&request, response),
        }
    }
}

/// Calls `f`; a panic in it is an error.
pub(super) fn guarded<R>(f: impl FnOnce() -> R) -> Result<R, Error> {
    guard::guarded(f).map_err(Error::internal)
}

pin_project_lite::pin_project! {
    /// A future with the remaining work for its response.
    ///
    /// Written by hand: an async block would reserve room for the future again for each function it is
    /// passed through, and all of it is moved when the whole is boxed.
    pub(super) struct Finishing<F> {
        #[pin]
        future: Option<F>,
        finisher: Option<ResponseFinisher>,
    }
}

impl<F> Future for Finishing<F>
where
    F: Future<Output: IntoResponse>,
{
    type Output = Response;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response> {
        let mut this = self.project();
        let mut answer = None;
        let polled = guard::guarded(|| {
            let future = this.future.as_mut().as_pin_mut().expect("it is polled until it is ready");
            if let Poll::Ready(response) = future.poll(context) {
                answer = Some(response.into_response());
                // The remaining values are dropped here, where a panic is an error, too.
                this.future.set(None);
            }
        });
        let answer = match (polled, answer) {
            (Err(panic), _) => Err(failed(panic, &mut || this.future.set(None))),
            (Ok(()), Some(response)) => Ok(response),
            (Ok(()), None) => return Poll::Pending,
        };
        Poll::Ready(finish(this.finisher, answer))
    }
}

/// Finishes the response of a future that is ready. Compiled once, not for each handler.
fn finish(finisher: &mut Option<ResponseFinisher>, answer: Result<Response, Error>) -> Response {
    finisher.take().expect("it is polled until it is ready").finish(answer)
}

/// The error that a panic is, or one in dropping the remaining values. Compiled once, not for each handler.
#[cold]
fn failed(panic: Panic, end: &mut dyn FnMut()) -> Error {
    let error = Error::internal(panic);
    guarded(end).err().unwrap_or(error)
}
