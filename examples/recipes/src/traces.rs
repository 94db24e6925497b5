//! Traces in OpenTelemetry: a span for each request, below the span of the client that made it.

use highwater::layers::spans;
use highwater::{Layer, Next, OwnedRequest, Response, Router};
use opentelemetry::Context;
use opentelemetry::context::FutureExt;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry_sdk::propagation::TraceContextPropagator;

/// The fields of a request, as a propagator reads them.
struct Fields<'r>(&'r OwnedRequest);

impl Extractor for Fields<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.header(key)
    }

    fn keys(&self) -> Vec<&str> {
        self.0.headers().iter().map(|(name, _)| name).collect()
    }
}

/// Makes the trace that a client names in `traceparent` (W3C Trace Context) the current one.
pub fn parents() -> Layer {
    Layer::new().around(async |request: OwnedRequest, next: Next| {
        let parent: Context = TraceContextPropagator::new().extract(&Fields(&request));
        let response: Response = next.run(request).with_context(parent).await;
        response
    })
}

/// The parent first, so that the span finds it.
pub fn routes() -> Router {
    Router::new().layer(parents()).layer(spans()).get("/orders/{id}", order)
}

async fn order() -> &'static str {
    tracing::info!("looked up");
    "a kettle"
}
