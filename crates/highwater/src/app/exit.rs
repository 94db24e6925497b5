//! The way out for answers that come after the request's bytes have gone: those of async and
//! blocking handlers, and of middleware.

use std::cell::OnceCell;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use highwater_core::route::Params;
use http::Extensions;

use super::disconnected::Disconnected;
use super::dispatch::{Shared, Target};
use super::error::Error;
use super::guard;
use super::head::{HeadRef, OwnedHead};
use super::request::{Content, Request};
use super::response::{IntoResponse, Response};

/// What is left to do for a request once its response is there.
#[derive(Debug)]
pub(super) struct Exit {
    app: Arc<Shared>,
    target: Target,
    kept: Option<Box<Kept>>,
}

/// What of a request the hooks will want to see.
#[derive(Debug)]
struct Kept {
    head: OwnedHead,
    params: Params,
    peer: Option<SocketAddr>,
    disconnected: OnceCell<Disconnected>,
    extensions: Extensions,
}

impl Exit {
    /// The way out for `request`. Copies its head only if a hook is going to ask for it.
    pub(super) fn of(request: &Request<'_>) -> Self {
        let app = request.app.clone();
        let target = request.target;
        let has_hooks = !request.is_inner && !app.scope(target).after.is_empty();
        let kept = has_hooks.then(|| {
            Box::new(Kept {
                head: OwnedHead::copy(request.head),
                params: *request.params,
                peer: request.peer,
                disconnected: request.disconnected.clone(),
                extensions: request.extensions.borrow().clone(),
            })
        });
        Exit { app, target, kept }
    }

    /// The way out of a middleware that another one surrounds.
    pub(super) fn inner(app: Arc<Shared>, target: Target) -> Self {
        Exit { app, target, kept: None }
    }

    /// Gives an error its shape, then runs the hooks.
    pub(super) fn leave(self, answer: Result<Response, Error>) -> Response {
        let response = answer.unwrap_or_else(IntoResponse::into_response);
        let scope = self.app.scope(self.target);
        let Some(kept) = self.kept else {
            let response = scope.render(response);
            self.app.report_panics(Some(self.target));
            return response;
        };
        let request = Request {
            head: HeadRef::Owned(&kept.head),
            params: &kept.params,
            body: Content::Whole(&[]),
            peer: kept.peer,
            disconnected: &kept.disconnected,
            extensions: kept.extensions.into(),
            app: &self.app,
            target: self.target,
            is_inner: false,
        };
        let response = self.app.finish(scope, response, &request);
        self.app.report_panics(Some(self.target));
        response
    }
}

/// Calls `f`; a panic in it is an error.
pub(super) fn guarded<R>(f: impl FnOnce() -> R) -> Result<R, Error> {
    guard::guarded(f).map_err(Error::internal)
}

/// Awaits `future`; a panic in it is an error.
pub(super) async fn guarded_future<F>(future: F) -> Result<Response, Error>
where
    F: Future<Output: IntoResponse>,
{
    let mut future = pin!(Some(future));
    poll_fn(|context| {
        let polled = guarded(|| {
            let future = future.as_mut().as_pin_mut().expect("it is polled until it is ready");
            future.poll(context).map(IntoResponse::into_response)
        });
        let answer = match polled {
            Ok(Poll::Ready(response)) => Ok(response),
            Ok(Poll::Pending) => return Poll::Pending,
            Err(error) => Err(error),
        };
        // What it still holds is dropped here, where a panic is an error, too.
        Poll::Ready(guarded(|| future.set(None)).and(answer))
    })
    .await
}
