//! What an asynchronous layer runs: the layers within it, and the handler.

use std::sync::Arc;

use crate::app::error::Error;
use crate::app::into_response::IntoResponse;
use crate::app::offload::offload;
use crate::app::outcome::Outcome;
use crate::app::request::{Application, OwnedRequest};
use crate::app::response::Response;

/// The inner layers and the handler.
#[derive(Clone, Debug)]
pub struct Next {
    app: Arc<dyn Application>,
    /// The segment of layers that comes next.
    depth: usize,
}

impl Next {
    pub(in crate::app) fn new(app: Arc<dyn Application>, depth: usize) -> Self {
        Next { app, depth }
    }

    /// Runs the inner layers and the handler. Errors, including panics, are returned as rendered responses; see
    /// [`Response::error`].
    pub async fn run(self, mut request: OwnedRequest) -> Response {
        let (app, target) = (&self.app, request.route());
        request.descend(self.depth);
        let (outcome, mut request) = app.pass_on(request);
        if let Some(request) = &mut request {
            request.drop_body(); // It was taken by its handler, or nobody wants it.
        }
        let error = match outcome {
            Outcome::Ready(response) => return response,
            Outcome::Later(future) => match future.await {
                Ok(response) => return response,
                Err(panic) => Error::internal(panic),
            },
            Outcome::Offload(job) => {
                let sent_id = request.as_ref().and_then(|request| request.sent_id()).map(Box::from);
                match offload(job, app.clone(), target, sent_id).await {
                    Ok(response) => return response,
                    Err(error) => error,
                }
            }
            Outcome::Fixed(_) => unreachable!("fixed responses bypass asynchronous layers"),
        };
        let response = error.into_response();
        match request {
            Some(request) => app.respond(&request, response),
            None => app.render(target, response),
        }
    }
}
