//! One route, `/variant`, that gives the same answer in different ways: `highwater bench` compares servers, so a
//! comparison within one server is chosen at startup.

use bytes::Bytes;
use highwater::cache::{Cache, CacheLimits};
use highwater::{
    Error, IntoResponse, Json, Next, OwnedRequest, Request, Response, Router, fixed, layer,
};
use serde::Serialize;

use crate::content::{Record, records};

const HELLO: &str = "Hello, World!";

/// How `/variant` makes its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Variant {
    /// `Hello, World!` from a handler.
    Text,
    /// The same from bytes that were encoded at start.
    TextFixed,
    /// `{"message":"Hello, World!"}`, serialized for each request.
    Json,
    /// The same from bytes that were encoded at start.
    JsonFixed,
    /// `Hello, World!` from a handler behind one layer that looks at the request and adds a header to the response.
    #[value(name = "layers-1")]
    Layers1,
    /// Behind five of them.
    #[value(name = "layers-5")]
    Layers5,
    /// `Hello, World!` from a handler behind one asynchronous layer around it, as other frameworks' middleware is.
    #[value(name = "around-1")]
    Around1,
    /// Behind five of them.
    #[value(name = "around-5")]
    Around5,
    /// A list of 100 records, serialized for each request.
    ListBuilt,
    /// The same list from a cache that knows its version.
    ListCached,
}

#[derive(Serialize)]
struct Message {
    message: &'static str,
}

/// Adds `/variant`.
pub fn routes(router: Router, variant: Variant) -> Router {
    let text = || Router::new().get("/variant", || HELLO);
    let route = match variant {
        Variant::Text => text(),
        Variant::TextFixed => Router::new().get("/variant", fixed(HELLO)),
        Variant::Json => Router::new().get("/variant", || Json(Message { message: HELLO })),
        Variant::JsonFixed => {
            Router::new().get("/variant", fixed(Json(Message { message: HELLO })))
        }
        Variant::Layers1 => behind_layers(text(), 1),
        Variant::Layers5 => behind_layers(text(), 5),
        Variant::Around1 => behind_around(text(), 1),
        Variant::Around5 => behind_around(text(), 5),
        Variant::ListBuilt => list_built(),
        Variant::ListCached => list_cached(),
    };
    router.merge(route)
}

/// `count` layers, which do as little as such a layer can. Their parts for requests and for responses are layers of their
/// own here, because each is made of one function.
fn behind_layers(router: Router, count: u32) -> Router {
    (0..count).fold(router, |router, _| {
        router.layer(layer::on_request(refuse_marked)).layer(layer::on_response(mark))
    })
}

fn refuse_marked(request: &Request<'_>) -> Result<(), Error> {
    match request.header("x-refuse") {
        None => Ok(()),
        Some(_) => Err(Error::bad_request("x-refuse is not welcome here; leave it out")),
    }
}

fn mark(_: &Request<'_>, response: &mut Response) {
    response.set_header(highwater::header::VARY, highwater::HeaderValue::from_static("accept"));
}

fn behind_around(router: Router, count: u32) -> Router {
    (0..count).fold(router, |router, _| router.layer(layer::around(pass)))
}

async fn pass(request: OwnedRequest, next: Next) -> Response {
    next.run(request).await
}

fn list_built() -> Router {
    let records = records();
    Router::new().get("/variant", move || Json(&records).into_response())
}

fn list_cached() -> Router {
    let records = records();
    let cache = Cache::<u8>::new(CacheLimits::default());
    let answer = move || {
        // The list never changes, so its version does not either.
        let bytes = cache.get_or_build(&0, 1, || encoded(&records));
        Response::from(bytes).with_content_type("application/json")
    };
    Router::new().get("/variant", answer)
}

fn encoded(records: &[Record]) -> Bytes {
    serde_json::to_vec(records).expect("records have text keys and finite numbers").into()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;
    use highwater::testing::Client;

    use super::*;

    fn answer(variant: Variant) -> String {
        let response = Client::new(routes(Router::new(), variant)).get("/variant");
        assert_eq!(response.status.as_u16(), 200, "{variant:?}");
        response.text().to_owned()
    }

    /// Purpose: all variants that a plan compares give the same answer to the byte; otherwise it would measure the
    /// difference.
    #[test]
    fn variants_answer_the_same() {
        for variant in Variant::value_variants() {
            let expected = match variant {
                Variant::Json | Variant::JsonFixed => "{\"message\":\"Hello, World!\"}".to_owned(),
                Variant::ListBuilt | Variant::ListCached => answer(Variant::ListBuilt),
                _ => HELLO.to_owned(),
            };
            assert_eq!(answer(*variant), expected, "{variant:?}");
        }
        assert!(answer(Variant::ListBuilt).starts_with("[{\"id\":0,\"title\":\"Record 0 of"));
    }

    /// Purpose: layers that are measured are really passed: one refuses what it looks for, one marks the response.
    #[test]
    fn layers_are_there() {
        for (variant, is_behind) in [(Variant::Text, false), (Variant::Layers5, true)] {
            let client = Client::new(routes(Router::new(), variant));
            assert_eq!(client.get("/variant").header("vary").is_some(), is_behind, "{variant:?}");
        }
    }
}
