//! What does the metrics port serve?
//!
//! `/` for people with a browser; `/metrics` for Prometheus; `/scaling`, a flat JSON object of numbers, for
//! autoscalers that query servers directly; `/routes`, the list of the main port's routes; `/livez` and `/readyz` for
//! supervisors and load balancers. They are an application like any other, on a listener and a worker of their own, so
//! that neither overload nor a drain of the main port keeps them from answering.

use std::time::Duration;

use highwater_core::http::Limits;
use highwater_sys::limits as system;
use http::{StatusCode, header};

use crate::app::{Handler, Response, Router, fixed};
use crate::metrics::exposition::CONTENT_TYPE;
use crate::metrics::page::{PAGE, POLICY};
use crate::metrics::{Metrics, Readiness};

/// Most connections to the metrics port, and at most this fraction of the descriptors: connections that stay
/// open here must not take descriptors from the main port. Beyond the limit a new connection is served, and
/// the oldest one is reset: see `worker/eviction.rs`.
const CONNECTIONS_MAX: u64 = 256;
const DESCRIPTOR_SHARE: u64 = 16;
const CONNECTIONS_MIN: u64 = 8;

/// How many connections the metrics port holds.
pub(crate) fn connections_max() -> u32 {
    let descriptors = system::descriptors().map_or(0, |limit| limit.soft);
    (descriptors / DESCRIPTOR_SHARE).clamp(CONNECTIONS_MIN, CONNECTIONS_MAX) as u32
}

/// The bounds of a connection to the metrics port. Its clients send small requests at once and receive small
/// answers; a scraper may use the same connection again a minute later.
pub(crate) fn limits() -> Limits {
    const SHORT: Duration = Duration::from_secs(2);
    Limits {
        uri_max: 1024,
        header_max: 8 * 1024,
        body_max: 0,
        header_timeout: SHORT,
        body_timeout: SHORT,
        body_grace: SHORT,
        idle_timeout: Duration::from_secs(75),
        write_timeout: SHORT,
        linger_timeout: Duration::from_millis(500),
        discard_max: 8 * 1024,
        // A client that pipelines requests gets one page at a time.
        output_max: 1,
        ..Limits::default()
    }
}

/// The application of the metrics port; `routes` is the list of those of the main port.
pub(crate) fn router(metrics: &Metrics, readiness: &Readiness, routes: String) -> Router {
    let (metrics, readiness) = (metrics.clone(), readiness.clone());
    let scaling = metrics.clone();
    Router::new()
        .get("/", fixed(page()))
        .get("/metrics", move || {
            fresh(StatusCode::OK, metrics.page()).with_content_type(CONTENT_TYPE)
        })
        .get(
            "/scaling",
            (move || match scaling.scaling() {
                Some(json) => fresh(StatusCode::OK, json).with_content_type("application/json"),
                None => {
                    fresh(StatusCode::SERVICE_UNAVAILABLE, "nothing is admitted here".to_owned())
                }
            })
            .never_shed(),
        )
        .get("/routes", move || fresh(StatusCode::OK, routes.clone()))
        .get("/livez", || fresh(StatusCode::OK, "ok".to_owned()))
        .get(
            "/readyz",
            (move || match readiness.verdict() {
                Ok(()) => fresh(StatusCode::OK, "ready".to_owned()),
                Err(reason) => fresh(StatusCode::SERVICE_UNAVAILABLE, reason),
            })
            .never_shed(),
        )
}

/// The page for people; encoded once.
fn page() -> Response {
    Response::from(PAGE)
        .with_content_type("text/html; charset=utf-8")
        .with_header(header::CACHE_CONTROL, "no-store")
        .with_header(header::CONTENT_SECURITY_POLICY, POLICY)
        .with_header(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
        .with_header(header::REFERRER_POLICY, "no-referrer")
}

/// An answer that must not be cached.
fn fresh(status: StatusCode, text: String) -> Response {
    Response::from(text).with_status(status).with_header(header::CACHE_CONTROL, "no-store")
}

#[cfg(test)]
mod tests {
    use highwater_core::http1::{Connection, Next, Scratch};
    use highwater_core::link::Link;
    use highwater_core::time::Instant;

    use super::*;
    use crate::app::{App, Outcome, RequestBody, Routed};
    use crate::metrics::Scaling;

    /// Status, media type and content of the answer to `GET path`.
    fn get(app: &App, path: &str) -> (u16, String, String) {
        let text = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
        let (mut input, mut scratch) = (text.as_bytes(), Scratch::default());
        let (limits, mut routed, mut target) = (Limits::default(), Routed::default(), None);
        let mut connection = Connection::new(Instant::ZERO);
        let next = connection.next(
            &mut Link::new(),
            &mut input,
            &mut scratch,
            &limits,
            Instant::ZERO,
            |head| app.plan(*target.insert(app.find(head, &mut routed.params)), &limits),
        );
        let Next::Request(request) = next else { panic!("a request: {next:?}") };
        let Some(content) = request.body.whole() else { panic!("it has no body") };
        let body = RequestBody::Whole(content);
        let (target, disconnected) = (target.expect("it was planned for"), Default::default());
        let request = app.request(target, &request.head, &routed, body, None, &disconnected);
        let Outcome::Ready(mut response) = app.call(&request) else { panic!("nothing here waits") };
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        let media_type = response.header("content-type").map(text).unwrap_or_default();
        let body = response.take_body();
        (response.status().as_u16(), media_type, text(body.as_bytes().unwrap_or_default()))
    }

    /// Purpose: the three answers are those that Prometheus, Kubernetes and balancers expect.
    #[test]
    fn the_port_answers() {
        let (metrics, readiness) = (Metrics::new(), Readiness::new());
        metrics.begin(&["/"], 1);
        let app = router(&metrics, &readiness, "GET  /  inline\n".to_owned());
        let app = app.build().unwrap_or_else(|error| panic!("{error}"));

        let (status, media_type, page) = get(&app, "/metrics");
        assert_eq!((status, &*media_type), (200, "text/plain; version=0.0.4; charset=utf-8"));
        assert!(page.contains("\nhttp_requests_total 0\n"), "{page}");

        let (status, media_type, routes) = get(&app, "/routes");
        assert_eq!((status, &*media_type), (200, "text/plain; charset=utf-8"));
        assert_eq!(routes, "GET  /  inline\n");

        assert_eq!(get(&app, "/scaling").0, 503);
        metrics.admission(Scaling::default);
        let (status, media_type, json) = get(&app, "/scaling");
        assert_eq!((status, &*media_type), (200, "application/json"));
        assert!(json.starts_with("{\"demand_ratio\":0,"), "{json}");

        let plain = "text/plain; charset=utf-8".to_owned();
        assert_eq!(get(&app, "/livez"), (200, plain.clone(), "ok".to_owned()));
        assert_eq!(get(&app, "/readyz"), (200, plain.clone(), "ready".to_owned()));
        readiness.check("store", || Err("still loading".to_owned()));
        let reason = "store: still loading".to_owned();
        assert_eq!(get(&app, "/readyz"), (503, plain.clone(), reason));
        readiness.drain();
        assert_eq!(get(&app, "/readyz"), (503, plain.clone(), "draining".to_owned()));
        assert_eq!(get(&app, "/livez"), (200, plain, "ok".to_owned()));
        assert_eq!(get(&app, "/nothing").0, 404);
    }
}
