//! A costly report: computed once a minute, and asked for ten times a minute by each client at most.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use highwater::layers::{rate_limit, response_cache};
use highwater::{Router, Server, ServerError, State, blocking};

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Clone, Default)]
struct Computed(Arc<AtomicU64>);

/// The application: what `main` serves, and tests ask.
pub fn router() -> Router {
    let report = Router::new()
        .layer(rate_limit(10, MINUTE)) // first: answers from the cache count, too
        .layer(response_cache(MINUTE).stale_while_revalidate(MINUTE))
        .get("/report", blocking(report));
    Router::new().state(Computed::default()).merge(report).get("/", || "not limited")
}

/// Takes its time, so it runs on the pool.
fn report(State(Computed(times)): State<Computed>) -> String {
    let number = times.fetch_add(1, Ordering::Relaxed) + 1;
    format!("report {number}")
}

fn main() -> Result<(), ServerError> {
    Server::new(router()).run()
}
