//! Finishes responses that are made after the request's bytes are dropped: those of async and blocking
//! handlers, and of asynchronous layers.

use std::cell::OnceCell;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use highwater_core::http::{Head, OwnedHead};
use highwater_core::route::Params;
use http::Extensions;

use super::disconnected::Disconnected;
use super::dispatch::{Shared, Target};
use super::error::Error;
use super::guard;
use super::into_response::IntoResponse;
use super::request::{Content, Request};
use super::response::Response;
use super::stack::HANDLER;

/// The remaining work for a request once its response is made: the response parts of one segment of layers.
#[derive(Debug)]
pub struct ResponseFinisher {
    app: Arc<Shared>,
    target: Target,
    depth: usize,
    kept: Option<Box<Kept>>,
}

/// The parts of a request that layers will read.
#[derive(Debug)]
pub(super) struct Kept {
    head: OwnedHead,
    params: Params,
    peer: Option<SocketAddr>,
    disconnected: OnceCell<Disconnected>,
    extensions: Extensions,
}

impl Kept {
    /// Those of a request without attached values.
    pub(super) fn of_head(head: &Head<'_>, params: &Params, peer: Option<SocketAddr>) -> Self {
        Kept {
            head: OwnedHead::copy(head),
            params: *params,
            peer,
            disconnected: OnceCell::new(),
            extensions: Extensions::new(),
        }
    }

    fn of(request: &Request<'_>) -> Self {
        Kept {
            head: OwnedHead::copy(request.head),
            params: *request.params,
            peer: request.peer,
            disconnected: request.disconnected.clone(),
            extensions: request.extensions.borrow().clone(),
        }
    }

    /// Calls `f` with the request, without its body.
    pub(super) fn with<R>(
        &self,
        app: &Arc<Shared>,
        target: Target,
        depth: usize,
        f: impl FnOnce(&Request<'_>) -> R,
    ) -> R {
        f(&Request {
            head: &self.head.head(),
            params: &self.params,
            body: Content::Whole(&[]),
            peer: self.peer,
            disconnected: &self.disconnected,
            extensions: self.extensions.clone().into(),
            app,
            target,
            depth,
        })
    }
}

impl ResponseFinisher {
    /// The finisher for `request`. Copies its head only if a layer needs it.
    pub(super) fn of(request: &Request<'_>) -> Self {
        let (app, target, depth) = (request.app.clone(), request.target, request.depth);
        let responds = app.scope(target).stack.responds(depth);
        let kept = responds.then(|| Box::new(Kept::of(request)));
        ResponseFinisher { app, target, depth, kept }
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
        let ResponseFinisher { app, target, depth, kept } = self;
        let response = answer.unwrap_or_else(IntoResponse::into_response);
        let scope = app.scope(target);
        match kept {
            None => scope.render(response),
            Some(kept) => {
                let layers = &scope.stack.segment(depth).responses;
                kept.with(&app, target, depth, |request| {
                    scope.respond(layers, HANDLER, request, response)
                })
            }
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
        let polled = guarded(|| {
            let future = this.future.as_mut().as_pin_mut().expect("it is polled until it is ready");
            future.poll(context).map(IntoResponse::into_response)
        });
        let answer = match polled {
            Ok(Poll::Ready(response)) => Ok(response),
            Ok(Poll::Pending) => return Poll::Pending,
            Err(error) => Err(error),
        };
        // The remaining values are dropped here, where a panic is an error, too.
        let answer = guarded(|| this.future.set(None)).and(answer);
        let finisher = this.finisher.take().expect("it is polled until it is ready");
        Poll::Ready(finisher.finish(answer))
    }
}
