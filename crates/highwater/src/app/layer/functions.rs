//! Layers made of a function, one part each.

use std::future::Future;
use std::ops::ControlFlow;

use super::{Ended, Layer, Next};
use crate::app::into_response::IntoResponse;
use crate::app::request::{OwnedRequest, Request};
use crate::app::response::Response;

/// A layer that looks at each request: the function returns `ControlFlow::Continue(())` or
/// `ControlFlow::Break(response)`, or `Ok(())` or `Err(error)`. See [`Layer::on_request`].
///
/// ```
/// use highwater::{Error, Request, Router, layer};
///
/// fn authorize(request: &Request<'_>) -> Result<(), Error> {
///     match request.header("authorization") {
///         Some("Bearer open sesame") => Ok(()),
///         _ => Err(Error::unauthorized("a token is needed")),
///     }
/// }
///
/// let admin = Router::new().layer(layer::on_request(authorize)).get("/stats", || "1 visitor");
/// # admin.build().unwrap();
/// ```
pub fn on_request<F, D>(function: F) -> Layer
where
    F: Fn(&Request<'_>) -> D + Send + Sync + 'static,
    D: Decision + 'static,
{
    Layer::new().on_request(function)
}

/// A layer that changes each response. See [`Layer::on_response`].
///
/// ```
/// use highwater::{Request, Response, Router, layer};
///
/// fn log(request: &Request<'_>, response: &mut Response) {
///     if let Some(cause) = response.error().and_then(|error| error.source()) {
///         eprintln!("{}: {cause}", request.path());
///     }
/// }
///
/// let app = Router::new().layer(layer::on_response(log)).get("/", || "Hello");
/// # app.build().unwrap();
/// ```
pub fn on_response<F>(function: F) -> Layer
where
    F: Fn(&Request<'_>, &mut Response) + Send + Sync + 'static,
{
    Layer::new().on_response(function)
}

/// A layer that changes each response in the same way, whatever the request. See [`Layer::amend`].
///
/// ```
/// use highwater::{Response, Router, fixed, header, layer};
///
/// fn name(response: &mut Response) {
///     response.set_header(header::SERVER, "example".parse().unwrap());
/// }
///
/// let app = Router::new().layer(layer::amend(name).everywhere()).get("/health", fixed("ok"));
/// # app.build().unwrap();
/// ```
pub fn amend<F>(function: F) -> Layer
where
    F: Fn(&mut Response) + Send + Sync + 'static,
{
    Layer::new().amend(function)
}

/// A layer that wraps handlers and may wait. See [`Layer::around`].
///
/// ```
/// use highwater::{OwnedRequest, Next, Response, Router, layer};
///
/// async fn timing(request: OwnedRequest, next: Next) -> Response {
///     let start = std::time::Instant::now();
///     let response = next.run(request).await;
///     response.with_header("server-timing", format!("app;dur={}", start.elapsed().as_millis()))
/// }
///
/// let app = Router::new().layer(layer::around(timing)).get("/", || "Hello");
/// # app.build().unwrap();
/// ```
pub fn around<F, Fut>(function: F) -> Layer
where
    F: Fn(OwnedRequest, Next) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoResponse> + 'static,
{
    Layer::new().around(function)
}

/// A layer that is called when an answer has ended, such as an access log. See [`Layer::on_end`].
///
/// ```
/// use highwater::layer::{self, Ended};
/// use highwater::{Request, Router};
///
/// fn access(request: &Request<'_>, ended: &Ended) {
///     let (method, target) = (request.method(), request.target());
///     println!("{method} {target} {} {} {:?}", ended.status(), ended.bytes(), ended.duration());
/// }
///
/// let app = Router::new().layer(layer::on_end(access)).get("/", || "Hello");
/// # app.build().unwrap();
/// ```
pub fn on_end<F>(function: F) -> Layer
where
    F: Fn(&Request<'_>, &Ended) + Send + Sync + 'static,
{
    Layer::new().on_end(function)
}

/// What the function of [`on_request`] returns.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not decide what happens to a request",
    label = "this neither lets a request continue nor answers it",
    note = "return `Result<(), Error>`, `Result<(), impl IntoResponse>`, or `ControlFlow<response>`: \
            `ControlFlow::Continue(())` goes on, `ControlFlow::Break(response)` answers",
    note = "a function that has to wait is `async fn(OwnedRequest, Next) -> response`, for \
            `layer::around`"
)]
pub trait Decision {
    /// To continue, or an answer.
    fn decide(self) -> ControlFlow<Response>;
}

#[diagnostic::do_not_recommend]
impl<R: IntoResponse> Decision for ControlFlow<R> {
    #[inline]
    fn decide(self) -> ControlFlow<Response> {
        match self {
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
            ControlFlow::Break(response) => ControlFlow::Break(response.into_response()),
        }
    }
}

#[diagnostic::do_not_recommend]
impl<E: IntoResponse> Decision for Result<(), E> {
    #[inline]
    fn decide(self) -> ControlFlow<Response> {
        match self {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error.into_response()),
        }
    }
}
