//! The service's HTTP interface: two routes, one shape for all errors, and the document of both.
//!
//! `GET /search` is answered on the worker that received it, from one snapshot:
//!
//! ```text
//!  query ──Range::parse──▶ Range ──┐
//!                                  ├─▶ cache ──hit──▶ bytes, encoded once, shared by all requests
//!  catalog ──snapshot──▶ version ──┘     └──miss──▶ snapshot.answer(range), one builds, the others wait
//! ```
//!
//! Invariants: an answer is at least as new as the snapshot that was current when its request was
//! read; neither the provider nor the store is touched; a hit allocates nothing, and a large answer
//! is never copied.

use std::sync::Arc;

use bytes::Bytes;
use highwater::cache::{Cache, CacheLimits, CacheStats};
use highwater::openapi::api;
use highwater::{
    Body, Error, FromRequest, Handler, Json, Request, Response, Router, StatusCode, fixed,
};

use crate::catalog::Catalog;
use crate::openapi::{Found, openapi};
use crate::query::Range;
use crate::wire::{CONTENT_TYPE, ErrorCode, HEALTHY};

/// How many encoded answers are cached, and how many bytes; the least used go first. At 10 000
/// events of 200 bytes that is every event a hundred times over.
const CACHE_LIMITS: CacheLimits = CacheLimits { answers_max: 4096, bytes_max: 256 << 20 };

/// Answers searches in a catalog.
pub struct Search {
    catalog: Arc<Catalog>,
    answers: Cache<Range>,
}

impl Search {
    /// Answers from what `catalog` shows.
    pub fn new(catalog: Arc<Catalog>) -> Search {
        Search { catalog, answers: Cache::new(CACHE_LIMITS) }
    }

    /// The body of the answer for `range`, from what the catalog shows now.
    #[inline]
    pub fn answer(&self, range: Range) -> Bytes {
        let snapshot = self.catalog.snapshot();
        self.answers.get_or_build(&range, snapshot.version(), || snapshot.answer(range))
    }

    /// How the cache of answers is doing.
    pub fn cache(&self) -> CacheStats {
        self.answers.stats()
    }
}

/// The service's routes.
pub fn router(search: Arc<Search>) -> Router {
    let answer = move |Asked(range): Asked| json(search.answer(range));
    Router::new()
        .openapi(openapi())
        .get(
            "/search",
            api(answer)
                .operation_id("search")
                .summary("The events between two dates")
                .returns::<Json<Found>>()
                .name("search"),
        )
        .get("/health", fixed(json(HEALTHY)).name("health"))
        .errors(error)
}

/// The range that a request asks for. Refused if a parameter cannot be read.
pub(crate) struct Asked(Range);

impl FromRequest for Asked {
    #[inline]
    fn from_request(request: &Request<'_>) -> Result<Asked, Error> {
        match Range::parse(request.query().unwrap_or_default()) {
            Ok(range) => Ok(Asked(range)),
            Err(invalid) => {
                let code = ErrorCode::InvalidParameter.name();
                Err(Error::new(StatusCode::BAD_REQUEST, code, invalid.to_string()))
            }
        }
    }
}

/// Every error in the contract's shape: of the service, the router, and the protocol engine.
fn error(error: &Error) -> Response {
    let code = ErrorCode::of(error);
    json(code.body(error.message())).with_status(error.status())
}

#[inline]
fn json(body: impl Into<Body>) -> Response {
    Response::new(StatusCode::OK).with_content_type(CONTENT_TYPE).with_body(body)
}
