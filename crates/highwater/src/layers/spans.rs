//! A span around each handler.

use std::future::{Future, poll_fn};
use std::pin::pin;

use tracing::{Span, field, info_span};

use crate::app::{Layer, Next, OwnedRequest, Request, Response};

/// Puts a span of `tracing` around each handler and the layers within this one, so that their events can be distinguished by
/// request: level INFO, target `highwater::request`, name `request`.
///
/// The fields have the names of OpenTelemetry's conventions: `http.request.method`, `url.path`, `http.route`, and, once it is
/// known, `http.response.status_code`; with the layer [`request_id`](super::request_id) also `request_id`. `otel.name` is
/// method and route, `otel.kind` is `server`, and `otel.status_code` is `ERROR` from 500 on; the crate `tracing-opentelemetry`
/// reads these.
///
/// It is an asynchronous part: the handlers that it covers become async, and the request's head is copied. A span is only
/// made if the subscriber wants it. The handler of [`blocking`](crate::blocking) runs on another thread, outside of the
/// span.
///
/// ```
/// use highwater::layers::spans;
/// use highwater::Router;
///
/// async fn greet() -> &'static str {
///     tracing::info!("this event is in the span of its request");
///     "Hello"
/// }
///
/// let app = Router::new().layer(spans()).get("/", greet);
/// # app.build().unwrap();
/// ```
pub fn spans() -> Layer {
    Layer::new().around(async |request: OwnedRequest, next: Next| {
        let span = span(&request);
        let response: Response = within(&span, next.run(request)).await;
        let status = response.status().as_u16();
        span.record("http.response.status_code", status);
        if status >= 500 {
            span.record("otel.status_code", "ERROR");
        }
        response
    })
}

fn span(request: &Request<'_>) -> Span {
    let (method, route) = (request.method(), request.matched_path());
    let span = info_span!(
        target: "highwater::request",
        "request",
        otel.name = field::Empty,
        otel.kind = "server",
        otel.status_code = field::Empty,
        http.request.method = method.as_str(),
        url.path = request.original_path(),
        request_id = field::Empty,
        http.route = field::Empty,
        http.response.status_code = field::Empty,
    );
    if let Some(id) = request.id() {
        span.record("request_id", id);
    }
    if let Some(route) = route {
        span.record("http.route", route);
        span.record("otel.name", field::display(format_args!("{method} {route}")));
    }
    span
}

/// The output of `future`, each poll of which is in the span. What it drops at its end is dropped there, too.
async fn within<F: Future>(span: &Span, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let _entered = span.enter();
        future.as_mut().poll(context)
    })
    .await
}
