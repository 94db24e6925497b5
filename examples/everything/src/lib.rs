//! One route for each feature: what it looks like in an application.
//!
//! Each route has its layers to itself: it is a router of its own, which [`router`] merges. An application gives the layers that
//! all its routes need to its outermost router instead.
#![forbid(unsafe_code)]

mod books;
mod content;
mod decoded;
mod identity;
mod live;
mod payments;
mod representation;

use std::path::Path;
use std::time::Duration;

use garde::Validate;
use highwater::cookies::Key;
use highwater::files::StaticFiles;
use highwater::journal::Directory;
use highwater::layers::{compression, csrf_tokens, etag, rate_limit, request_id, response_cache};
use highwater::openapi::{OpenApi, api};
use highwater::proxies::TrustedProxies;
use highwater::{
    Error, Handler, Json, OriginalUri, Query, RequestId, Router, StatusCode, Uri, Valid, blocking,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::identity::ClientAddress;

/// How long `/timeout` may take.
const PATIENCE: Duration = Duration::from_millis(500);

/// All routes. Files come from `files`, and clients behind `proxies` are who these say. The keys of `/payments` are kept in the folder
/// `keys`, or in memory.
pub fn router(files: &Path, proxies: &TrustedProxies, keys: Option<Directory>) -> Router {
    // An application reads it from a file, so that cookies outlive the process.
    let key = Key::generate();
    Router::new()
        .state(key.clone())
        .state(proxies.clone())
        // One that strangers reach names its proxies instead: `.sent_by(proxies)`.
        .layer(request_id().sent_by_anybody())
        .rewrite_prefix("/before", "/")
        .merge(contents(proxies))
        .merge(identity::routes(key))
        .merge(described(keys))
        .merge(live::routes())
        .files("/files", StaticFiles::new(files).precompressed())
        .get("/accept", representation::accept)
        .get("/ndjson", representation::lines)
        .get("/csv", representation::table)
        .post("/csv", representation::imported)
        .get("/redirect", representation::redirect)
        .get("/template", representation::template)
        .get("/timeout", slow)
        .get("/client", |ClientAddress(address): ClientAddress| address.to_string())
        .get("/request-id", |RequestId(id): RequestId| id)
        .get("/rewritten", |uri: Uri, OriginalUri(sent): OriginalUri| format!("{sent} is {uri}"))
        .get("/panic", panics)
}

/// Content that layers change, keep, or refuse.
fn contents(proxies: &TrustedProxies) -> Router {
    let limit = rate_limit(5, Duration::from_secs(10)).trusted_proxies(proxies.clone());
    let decoded = blocking(content::decoded_length).body_max(decoded::DECODED_BYTES_MAX);
    Router::new()
        .merge(Router::new().layer(compression()).get("/compressed", content::large))
        .merge(Router::new().layer(etag()).get("/etag", || "the same each time"))
        .merge(
            Router::new()
                .layer(response_cache(Duration::from_secs(60)))
                .get("/cached", content::counter()),
        )
        .merge(Router::new().layer(limit).get("/limited", || "not too often"))
        .post("/decompressed", decoded)
        .post("/upload", content::upload.body_max(content::UPLOAD_BYTES_MAX))
}

/// Routes whose signatures make `/openapi.json` and `/docs`.
fn described(keys: Option<Directory>) -> Router {
    Router::new()
        .openapi(OpenApi::new("Everything", env!("CARGO_PKG_VERSION")))
        .merge(books::routes())
        .merge(payments::routes(keys))
        .post("/validated", api(validated).summary("Checks all fields at once"))
}

#[derive(Deserialize)]
struct Slow {
    ms: u64,
}

/// Answers after a while, if that is not too long. `Handler::timeout` does the same for a whole handler, with 503.
async fn slow(Query(Slow { ms }): Query<Slow>) -> Result<String, Error> {
    let work = tokio::time::sleep(Duration::from_millis(ms));
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(()) => Ok(format!("after {ms} ms")),
        Err(_) => {
            let message = "what this route waits for takes longer than 500 ms";
            Err(Error::new(StatusCode::GATEWAY_TIMEOUT, "gateway_timeout", message))
        }
    }
}

#[derive(Deserialize, Serialize, JsonSchema, Validate)]
struct Person {
    #[garde(email)]
    email: String,
    #[garde(range(min = 18, max = 150))]
    age: u8,
    #[garde(length(chars, min = 1, max = 50))]
    name: String,
}

fn validated(Valid(Json(person)): Valid<Json<Person>>) -> Json<Person> {
    Json(person)
}

/// Ends this request with 500, and nothing else.
fn panics() -> &'static str {
    panic!("as it was asked for")
}

/// Forms that another site cannot send in its visitor's name.
fn forms(key: Key) -> Router {
    // Without `insecure`, browsers send the cookie over TLS only.
    Router::new()
        .layer(csrf_tokens(key).insecure())
        .get("/form", representation::form)
        .post("/form", representation::sent)
}
