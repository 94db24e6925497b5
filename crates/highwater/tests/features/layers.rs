//! What clients see of the layers that come with Highwater.

use std::ops::ControlFlow;
use std::time::Duration;

use highwater::layer::{self, Layer};
use highwater::layers::{Cors, cors, security_headers};
use highwater::testing::{Client, Response};
use highwater::{Error, Method, Request, Router, StatusCode, fixed};

const SHOP: &str = "https://shop.example";
const ADMIN: &str = "https://admin.example";
const OTHER: &str = "https://other.example";

fn client(cors: Cors) -> Client {
    let router = Router::new()
        .layer(cors)
        .get("/x", || ([("etag", "\"1\"")], "x"))
        .put("/x", || StatusCode::NO_CONTENT)
        .get("/fixed", fixed("x"))
        .get("/error", || StatusCode::CONFLICT)
        .get("/varies", || ([("vary", "accept, Origin")], "x"));
    Client::new(router)
}

fn get(client: &Client, path: &str, origin: &str) -> Response {
    client.request(Method::GET, path).header("origin", origin).send()
}

fn preflight(client: &Client, path: &str, origin: &str, method: &str) -> Response {
    client
        .request(Method::OPTIONS, path)
        .header("origin", origin)
        .header("access-control-request-method", method)
        .header("access-control-request-headers", "authorization,x-own")
        .send()
}

/// The fields of the CORS protocol, and `Vary`.
fn cors_fields(response: &Response) -> Vec<(&str, &str)> {
    let fields = response
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().expect("these tests use ASCII")));
    let mut fields: Vec<_> =
        fields.filter(|(name, _)| name.starts_with("access-control-") || *name == "vary").collect();
    fields.sort_unstable();
    fields
}

/// Purpose: with a list, the requesting origin is named, and `Vary` names the field, also without an origin
/// (Fetch, "CORS protocol and HTTP caches"); on every kind of answer.
#[test]
fn a_list_of_origins() {
    let client = client(cors().origin(SHOP).origin(ADMIN).expose(["etag"]).credentials());
    for path in ["/x", "/fixed", "/error", "/nowhere"] {
        for origin in [SHOP, ADMIN] {
            let expected = [
                ("access-control-allow-credentials", "true"),
                ("access-control-allow-origin", origin),
                ("access-control-expose-headers", "etag"),
                ("vary", "origin"),
            ];
            assert_eq!(cors_fields(&get(&client, path, origin)), expected, "{path}");
        }
        for origin in [OTHER, "null", "https://shop.example.evil", "HTTPS://SHOP.EXAMPLE"] {
            assert_eq!(cors_fields(&get(&client, path, origin)), [("vary", "origin")], "{path}");
        }
        assert_eq!(cors_fields(&client.get(path)), [("vary", "origin")], "{path}");
    }
    let twice = client.request(Method::GET, "/x").header("origin", SHOP).header("origin", ADMIN);
    assert_eq!(cors_fields(&twice.send()), [("vary", "origin")]);
    // What is said already is not said again.
    let vary = get(&client, "/varies", SHOP);
    assert_eq!(vary.headers.get_all("vary").iter().count(), 1);
    assert_eq!(vary.header("access-control-allow-origin"), Some(SHOP));
}

/// Purpose: of two layers the outermost decides, also where it permits less: nothing of what the inner one or a handler permits is
/// left.
#[test]
fn the_outermost_decides() {
    let inner = || cors().origin(OTHER).expose(["etag"]).credentials();
    let own = || ([("access-control-allow-origin", "*")], "own");
    for (outer, origin, expected) in [
        (cors().origin(SHOP).origin(ADMIN), OTHER, &[("vary", "origin")][..]),
        (
            cors().origin(SHOP).origin(ADMIN),
            ADMIN,
            &[("access-control-allow-origin", ADMIN), ("vary", "origin")],
        ),
        (cors().any_origin(), OTHER, &[("access-control-allow-origin", "*")]),
    ] {
        let router = Router::new().get("/x", || "x").get("/own", own).get("/fixed", fixed("x"));
        let client = Client::new(Router::new().layer(outer).nest("", router.layer(inner())));
        for path in ["/x", "/own", "/fixed"] {
            assert_eq!(cors_fields(&get(&client, path, origin)), expected, "{path} from {origin}");
        }
    }
}

/// Purpose: with one origin, or any, all responses are alike, and no `Vary` is needed.
#[test]
fn one_origin_or_any() {
    for (cors, named) in [(cors().origin(SHOP), SHOP), (cors().any_origin(), "*")] {
        let client = client(cors);
        for path in ["/x", "/fixed", "/error", "/nowhere"] {
            let expected = [("access-control-allow-origin", named)];
            assert_eq!(cors_fields(&get(&client, path, OTHER)), expected, "{path}");
            assert_eq!(cors_fields(&client.get(path)), expected, "{path}");
        }
    }
}

/// Purpose: origins can be chosen by a function, which is never asked about `null`.
#[test]
fn origins_by_a_function() {
    let subdomain = |origin: &str| origin.ends_with(".shop.example");
    let any = |origin: &str| origin == "null" || origin == ADMIN;
    let client = client(cors().origin(SHOP).origin_if(subdomain).origin_if(any));
    for origin in [SHOP, "https://a.shop.example", ADMIN] {
        let response = get(&client, "/x", origin);
        assert_eq!(response.header("access-control-allow-origin"), Some(origin));
    }
    for origin in [OTHER, "null"] {
        assert_eq!(cors_fields(&get(&client, "/x", origin)), [("vary", "origin")]);
    }
}

/// Purpose: a preflight's answer names the methods of its path, and the allowed origin; by default the
/// methods that are routed.
#[test]
fn preflights() {
    let client = client(
        cors()
            .origin(SHOP)
            .origin(ADMIN)
            .headers(["authorization", "content-type"])
            .credentials()
            .max_age(Duration::from_secs(600)),
    );
    for (path, methods) in [
        ("/x", "GET, HEAD, PUT, OPTIONS"),
        ("/fixed", "GET, HEAD, OPTIONS"),
        ("/nowhere", "GET, HEAD, POST, PUT, PATCH, DELETE"),
    ] {
        let response = preflight(&client, path, ADMIN, "PUT");
        assert_eq!((response.status, response.text()), (StatusCode::NO_CONTENT, ""));
        let expected = [
            ("access-control-allow-credentials", "true"),
            ("access-control-allow-headers", "authorization, content-type"),
            ("access-control-allow-methods", methods),
            ("access-control-allow-origin", ADMIN),
            ("access-control-max-age", "600"),
            ("vary", "origin"),
        ];
        assert_eq!(cors_fields(&response), expected, "{path}");
    }
    let refused = preflight(&client, "/x", OTHER, "PUT");
    assert_eq!(refused.status, StatusCode::NO_CONTENT);
    assert_eq!(cors_fields(&refused), [("vary", "origin")]);
    // No browser asks: routing answers.
    let asked = client.options("/x");
    assert_eq!(asked.header("allow"), Some("GET, HEAD, PUT, OPTIONS"));
    assert_eq!(cors_fields(&asked), [("vary", "origin")]);
}

/// Purpose: methods can be set, and fields taken from the request; none is named by `*`, which does not stand
/// for `Authorization`.
#[test]
fn preflights_by_choice() {
    let methods = [Method::PUT, Method::DELETE];
    let client = client(cors().any_origin().methods(methods).any_header());
    let response = preflight(&client, "/x", OTHER, "PATCH");
    let expected = [
        ("access-control-allow-headers", "authorization,x-own"),
        ("access-control-allow-methods", "PUT, DELETE"),
        ("access-control-allow-origin", "*"),
        ("vary", "access-control-request-headers"),
    ];
    assert_eq!(cors_fields(&response), expected);
}

/// Purpose: a layer that asks for credentials does not break preflights, whichever of the two comes first;
/// scripts learn of its refusal if it stands within.
#[test]
fn preflights_need_no_credentials() {
    let authorize = |_: &Request<'_>| Err::<(), _>(Error::unauthorized("a token is needed"));
    let outside = Router::new().layer(layer::on_request(authorize)).layer(cors().origin(SHOP));
    let inside = Router::new().layer(cors().origin(SHOP)).layer(layer::on_request(authorize));
    for (router, named) in [(outside, None), (inside, Some(SHOP))] {
        let client = Client::new(router.get("/x", || "x"));
        let response = preflight(&client, "/x", SHOP, "GET");
        assert_eq!(response.status, 204);
        assert_eq!(response.header("access-control-allow-origin"), Some(SHOP));
        let response = get(&client, "/x", SHOP);
        assert_eq!(response.status, 401);
        assert_eq!(response.header("access-control-allow-origin"), named);
    }
}

/// Purpose: what cannot work is found when the application is built, each mistake reported once, with what to
/// write instead.
#[test]
fn mistakes_are_found() {
    let problems = |layer: Cors| match Router::new().layer(layer).build() {
        Ok(_) => Vec::new(),
        Err(error) => error.problems().to_vec(),
    };
    let origin = |origin: &str| problems(cors().origin(origin));
    let table: &[(Vec<String>, &str)] = &[
        (problems(cors()), "add `.origin(\"https://…\")`"),
        (problems(cors().any_origin().credentials()), "leave out `.credentials()`"),
        (problems(cors().any_origin().origin(SHOP)), "leave out `.any_origin()`, or the others"),
        (problems(cors().origin(SHOP).methods([Method::TRACE])), "TRACE; leave it out"),
        (problems(cors().origin(SHOP).headers(["a, b"])), "one by one, or `.any_header()`"),
        (problems(cors().origin(SHOP).expose(["*"]).headers(["a b"])), "one by one"),
        (origin("*"), "write `.any_origin()`"),
        (origin("null"), "any page can"),
        (origin("shop.example"), "write `https://shop.example`"),
        (origin("https://shop.example/"), "write `https://shop.example`"),
        (origin("https://shop.example/a?b"), "write `https://shop.example`"),
        (origin("https://Shop.example"), "write `https://shop.example`"),
        (origin("https://shop.example:443"), "write `https://shop.example`"),
        (origin("http://shop.example:80"), "write `http://shop.example`"),
        (origin("https://*.shop.example"), "`.origin_if("),
        (origin("https://ünï.example"), "Punycode"),
        (origin("https://"), "write `https://host`"),
        (origin("https://user@shop.example"), "write `https://host`"),
    ];
    for (problems, remedy) in table {
        assert_eq!(problems.len(), 1, "{remedy}: {problems:?}");
        assert!(problems[0].contains(remedy), "{remedy}: {problems:?}");
    }
    for fine in
        ["http://localhost:3000", "http://[::1]:3000", "https://a:80", "capacitor://localhost"]
    {
        assert_eq!(origin(fine), [""; 0], "{fine}");
    }
}

/// Purpose: every answer has the fields, also those that no handler made; one that has its own keeps it.
#[test]
fn security_headers_are_everywhere() {
    let headers = security_headers()
        .content_security_policy("default-src 'none'")
        .strict_transport_security(Duration::from_secs(86_400))
        .set("permissions-policy", "camera=()")
        .without("X-Frame-Options");
    let close = |request: &Request<'_>| match request.path() {
        "/closed" => ControlFlow::Break(StatusCode::FORBIDDEN),
        _ => ControlFlow::Continue(()),
    };
    let router = Router::new()
        .layer(headers)
        .layer(layer::on_request(close))
        .get("/x", || "x")
        .get("/async", async || "x")
        .get("/fixed", fixed("x"))
        .get("/panics", || -> &'static str { panic!("on purpose") })
        .get("/closed", || "x")
        .get("/own", || ([("referrer-policy", "origin")], "x"))
        .post("/x", |_: String| "x");
    let client = Client::new(router);
    let paths = ["/x", "/async", "/fixed", "/panics", "/closed", "/nowhere"];
    let too_large = client
        .request(Method::POST, "/x")
        .header("content-length", "99999999999")
        .header("connection", "close");
    let malformed = client.request(Method::GET, "/x").header("host", "a b");
    let answers = paths.map(|path| client.get(path)).into_iter();
    let others = [client.put("/x", ""), client.options("/x"), malformed.send(), too_large.send()];
    for answer in answers.chain(others) {
        let field = |name| answer.header(name);
        assert_eq!(field("x-content-type-options"), Some("nosniff"), "{answer:?}");
        assert_eq!(field("referrer-policy"), Some("no-referrer"));
        assert_eq!(field("cross-origin-opener-policy"), Some("same-origin"));
        assert_eq!(field("cross-origin-resource-policy"), Some("same-origin"));
        assert_eq!(field("content-security-policy"), Some("default-src 'none'"));
        assert_eq!(field("strict-transport-security"), Some("max-age=86400"));
        assert_eq!(field("permissions-policy"), Some("camera=()"));
        assert_eq!(field("x-frame-options"), None);
    }
    assert_eq!(client.get("/own").header("referrer-policy"), Some("origin"));
}

/// Purpose: a refusal under overload has the fields, and scripts may read it.
#[test]
fn refusals_are_covered() {
    let slow = async || std::future::pending::<&str>().await;
    let router = Router::new()
        .layer(security_headers())
        .layer(cors().origin(SHOP))
        .get("/x", highwater::Handler::concurrency_limit(slow, 1));
    let client = Client::new(router);
    let mut first = client.connect();
    first.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(first.received(), b"");
    let refused = get(&client, "/x", SHOP);
    assert_eq!(refused.status, 503);
    assert!(refused.header("retry-after").is_some());
    assert_eq!(refused.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(refused.header("access-control-allow-origin"), Some(SHOP));
}

/// Purpose: mistakes in the fields are found when the application is built, with what to write instead.
#[test]
fn security_headers_are_checked() {
    let headers = security_headers()
        .set("no name", "x")
        .set("x-name", "a\nb")
        .without("x-nothing")
        .strict_transport_security(Duration::from_millis(999));
    let error = Router::new().nest("/in", Router::new().layer(headers)).build().unwrap_err();
    let starts = [
        "/in: security_headers().set(…): ",
        "/in: security_headers().set(\"x-name\", …): ",
        "/in: security_headers().without(\"x-nothing\")",
        "/in: security_headers().strict_transport",
    ];
    assert_eq!(error.problems().len(), starts.len());
    for (problem, start) in error.problems().iter().zip(starts) {
        assert!(problem.starts_with(start), "{problem}");
    }
}

/// Purpose: a type of one's own that becomes a layer is given like any other, and `everywhere` keeps what it is.
#[test]
fn own_layers() {
    struct Teapot;
    impl From<Teapot> for Layer {
        fn from(_: Teapot) -> Layer {
            layer::on_response(|_: &Request<'_>, response: &mut highwater::Response| {
                response.set_status(StatusCode::IM_A_TEAPOT);
            })
        }
    }
    let routes = |router: Router| router.get("/x", || "x").get("/fixed", fixed("x"));
    let client = Client::new(routes(Router::new().layer(Teapot)));
    assert_eq!(
        (client.get("/x").status, client.get("/fixed").status.as_u16()),
        (StatusCode::IM_A_TEAPOT, 200)
    );
    let client = Client::new(routes(Router::new().layer(Layer::from(Teapot).everywhere())));
    assert_eq!(client.get("/fixed").status, 418);
}

/// Purpose: a body that the server has no memory for is refused in the shape of its route's errors, and behind the
/// layers that cover everything there, whether or not they read the request.
#[test]
fn refusals_for_memory_have_the_shape_of_their_route() {
    let inner = Router::new()
        .errors(|error: &Error| format!("<{}>", error.code()))
        .layer(cors().origin(SHOP).origin("https://admin.example"))
        .post("/files", |body: highwater::Bytes| body.len().to_string());
    let plain = Router::new()
        .errors(|error: &Error| format!("[{}]", error.code()))
        .post("/files", |body: highwater::Bytes| body.len().to_string());
    let router = Router::new().nest("/in", inner).nest("/plain", plain);
    let config = highwater::ServerConfig {
        body_memory_max: Some(1000),
        ..highwater::ServerConfig::default()
    };
    let client = highwater::testing::Setup::new(router).config(config).start();
    let received = |path: &str| {
        let mut connection = client.connect();
        let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\nOrigin: {SHOP}\r\n");
        connection.send(format!("{head}Content-Length: 4000\r\n\r\n"));
        connection.send("x".repeat(2000));
        String::from_utf8_lossy(connection.received()).into_owned()
    };
    let inside = received("/in/files");
    assert!(inside.starts_with("HTTP/1.1 503 ") && inside.ends_with("<overloaded>"), "{inside}");
    assert!(inside.contains(&format!("access-control-allow-origin: {SHOP}")), "{inside}");
    let plain = received("/plain/files");
    assert!(plain.starts_with("HTTP/1.1 503 ") && plain.ends_with("[overloaded]"), "{plain}");
}
