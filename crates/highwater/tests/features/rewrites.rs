//! Rewrites before routing: which route answers, and who sees which path, over real sockets.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use highwater::layers::request_id;
use highwater::metrics::Metrics;
use highwater::openapi::{OpenApi, api};
use highwater::server::TransportChoice;
use highwater::testing::Client;
use highwater::{
    Bytes, MatchedPath, Method, Next, OriginalUri, OwnedRequest, Path, Query, Request, RequestId,
    Response, Rewriting, Router, TrailingSlash, Uri, layer,
};

use crate::answers::Answer;
use crate::served::{self, HANG, exchange, start};
use crate::transports::on_each_transport;

fn ask(address: SocketAddr, method: &str, target: &str) -> Answer {
    ask_at(address, method, target, "h")
}

fn ask_at(address: SocketAddr, method: &str, target: &str, host: &str) -> Answer {
    let request =
        format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    exchange(address, &request)
}

/// What a handler sees of a request.
fn seen(uri: Uri, OriginalUri(sent): OriginalUri, route: MatchedPath, method: Method) -> String {
    format!("{method} {uri} {route} {sent}")
}

on_each_transport! {
    /// Purpose: a prefix is replaced before the route is found, at whole segments and as it is encoded; what was sent
    /// stays known; parameters are those of the new path.
    fn prefixes(transport) {
        let router = Router::new()
            .rewrite_prefix("/v1", "/api")
            .rewrite_prefix("/api", "/v1") // Not back again: a path is rewritten once.
            .rewrite_prefix("/strip/this", "/")
            .get("/api", seen)
            .get("/api/{id}", seen)
            .get("/api/{id}/parts/{part}", |Path((id, part)): Path<(String, u8)>| format!("{id} {part}"))
            .get("/v1/{id}", seen)
            .get("/", seen);
        let server = start(router, transport);
        let content_of = |target: &str| ask(server.address(), "GET", target).content;
        assert_eq!(content_of("/v1"), "GET /api /api /v1");
        assert_eq!(content_of("/v1/7?a=/v1"), "GET /api/7?a=/v1 /api/{id} /v1/7?a=/v1");
        assert_eq!(content_of("/api/7"), "GET /v1/7 /v1/{id} /api/7");
        assert_eq!(content_of("/v1/a%2Fb/parts/9"), "a/b 9");
        assert_eq!(content_of("/strip/this?q"), "GET /?q / /strip/this?q");
        assert_eq!(content_of("/strip/this/"), "GET / / /strip/this/");
        assert_eq!(content_of("http://h/v1/7"), "GET /api/7 /api/{id} http://h/v1/7");
        for (method, target, status) in [
            ("GET", "/v12", 404),
            ("GET", "/v1/", 404),
            ("GET", "/%76%31/7", 404),
            ("GET", "/strip/this/that", 404),
            ("PUT", "/v1/7", 405),
            ("OPTIONS", "/v1/7", 204),
            ("OPTIONS", "*", 204),
            ("CONNECT", "h:1", 501),
        ] {
            assert_eq!(ask(server.address(), method, target).status, status, "{method} {target}");
        }
    }

    /// Purpose: a function sees method, path, query, host and fields, and is asked once for each request, whether its
    /// content comes at once or not; what is not a path is answered 400, a panic 500, and neither is the end of anything.
    fn functions(transport) {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let rule = move |asked: &Rewriting<'_>| {
            counted.fetch_add(1, SeqCst);
            match (asked.method(), asked.path(), asked.query(), asked.host()?) {
                (_, "/bad", Some(query), _) => Some(query.replace("%20", " ")),
                (_, "/panics", ..) => panic!("on purpose"),
                (_, "/long", ..) => Some(format!("/{}", "x".repeat(1 << 20))),
                ("POST", "/", ..) => Some("/posted?from=rule".to_owned()),
                (_, path, _, "shop.example") => Some(format!("/shop{path}")),
                _ => asked.header("x-to").map(str::to_owned),
            }
        };
        let router = Router::new()
            .rewrite(rule)
            .rewrite_prefix("/bad", "/never")
            .get("/", seen)
            .get("/shop/{*rest}", seen)
            .post("/posted", |uri: Uri, content: Bytes| format!("{uri} {}", content.len()));
        let server = start(router, transport);
        let answer_to = |target: &str, host: &str| ask_at(server.address(), "GET", target, host);
        assert_eq!(answer_to("/", "h").content, "GET / / /");
        assert_eq!(answer_to("/a?b", "shop.example").content, "GET /shop/a?b /shop/{*rest} /a?b");
        for bad in ["/bad?", "/bad?*", "/bad?a", "/bad?/a%20b", "/bad?/a\\b", "/long"] {
            let answer = answer_to(bad, "h");
            assert_eq!(answer.status, 400, "{bad}: {}", answer.content);
            assert!(answer.content.contains("invalid_path"), "{bad}: {}", answer.content);
        }
        let failed = answer_to("/panics", "h");
        assert_eq!(failed.status, 500);
        assert_eq!(failed.field("x-request-id").map(str::len), Some(16), "it can be found in the log");
        assert_eq!(answer_to("/", "h").status, 200, "the worker goes on");

        let before = calls.load(SeqCst);
        let mut stream = TcpStream::connect(server.address()).expect("it listens");
        stream.set_read_timeout(Some(HANG)).expect("it is open");
        let head = "POST /?old HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 6\r\n\r\nabc";
        std::io::Write::write_all(&mut stream, head.as_bytes()).expect("it is open");
        std::thread::yield_now();
        std::io::Write::write_all(&mut stream, b"def").expect("it is open");
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).expect("it is answered");
        assert!(answer.ends_with("/posted?from=rule 6"), "{answer}");
        assert_eq!(calls.load(SeqCst), before + 1, "one request, one call");
    }

    /// Purpose: a path that lacks only a slash is sent to one that leads there; where rewrites give no such path, it is
    /// answered at once: no client is sent in a circle, or to a path that it cannot know.
    fn slashes_at_the_end(transport) {
        let rules = |asked: &Rewriting<'_>| asked.path().starts_with("/to/").then(|| String::from("/a/"));
        let routes = || {
            Router::new()
                .rewrite_prefix("/old", "/new")
                .rewrite(rules)
                .get("/a", seen)
                .get("/new", seen)
                .get("/new/{id}", seen)
        };
        let server = start(routes().trailing_slash(TrailingSlash::Redirect), transport);
        for (from, to) in [("/old/?x", "/old?x"), ("/old/7/", "/old/7"), ("/new/", "/new")] {
            let answer = ask(server.address(), "GET", from);
            assert_eq!((answer.status, answer.field("location")), (308, Some(to)), "{from}");
        }
        for from in ["/to/a", "/to/a/"] {
            assert_eq!(ask(server.address(), "GET", from).content, format!("GET /a/ /a {from}"));
        }
        let server = start(routes().trailing_slash(TrailingSlash::Ignore), transport);
        assert_eq!(ask(server.address(), "GET", "/old/7/").content, "GET /new/7/ /new/{id} /old/7/");
        let server = start(routes(), transport);
        assert_eq!(ask(server.address(), "GET", "/old/7/").status, 404);
    }
}

/// Purpose: layers of every kind, errors and the fallback see what handlers see, and metrics count by the route.
#[test]
fn everything_within_sees_the_new_path() {
    #[derive(serde::Deserialize)]
    struct Named {
        n: u8,
    }
    let metrics = Metrics::new();
    let around = async |request: OwnedRequest, next: Next| {
        let seen = format!("{} {}", request.path(), request.original_target());
        let response: Response = next.run(request).await;
        response.with_header("x-around", &*seen)
    };
    let after = |request: &Request<'_>, response: &mut Response| {
        let seen = format!("{} {}", request.path(), request.original_path());
        response.set_header("x-after".parse().expect("a name"), seen.parse().expect("a value"));
    };
    let router = Router::new()
        .rewrite_prefix("/v1", "/api")
        .layer(layer::on_response(after))
        .layer(layer::around(around))
        .get("/api/{id}", async |Path(id): Path<u8>, Query(Named { n }): Query<Named>| {
            format!("{id} {n}")
        })
        .fallback(|uri: Uri| format!("nothing at {uri}"));
    let config = served::config(TransportChoice::Epoll);
    let server = highwater::Server::new(router).config(config).metrics(&metrics);
    let mut server = server.start().expect("it starts");
    let found = ask(server.address(), "GET", "/v1/7?n=8");
    assert_eq!(found.content, "7 8");
    assert_eq!(found.field("x-around"), Some("/api/7 /v1/7?n=8"));
    assert_eq!(found.field("x-after"), Some("/api/7 /v1/7"));
    assert_eq!(ask(server.address(), "GET", "/v1/7/8").content, "nothing at /api/7/8");
    server.stop().expect("nothing failed"); // A turn's answers are counted when it ends.
    let page = metrics.page();
    for counted in ["{endpoint=\"/api/{id}\"} 1", "{endpoint=\"/{*rest}\"} 1"] {
        assert!(page.contains(&format!("http_requests_by_endpoint{counted}")), "{counted}: {page}");
    }
}

/// Purpose: a document describes routes, and a rewrite is not one.
#[test]
fn documents_stay() {
    let router = || {
        Router::new().openapi(OpenApi::new("Numbers", "1")).layer(request_id()).get(
            "/api/{id}",
            api(|Path(id): Path<u8>, _: OriginalUri, _: RequestId| id.to_string()),
        )
    };
    let document = |router: Router| Client::new(router).get("/openapi.json").text().to_owned();
    let plain = document(router());
    assert!(plain.contains("/api/{id}"));
    assert_eq!(document(router().rewrite_prefix("/v1", "/api").rewrite(|_| None)), plain);
}

/// Purpose: rules that cannot work are found when the application is built.
#[test]
fn problems() {
    let problems = |router: Router| router.build().expect_err("it has one").problems().to_vec();
    for (router, start) in [
        (
            Router::new().rewrite_prefix("v1", "/api"),
            "rewrite_prefix(\"v1\", \"/api\"): a prefix begins with a slash",
        ),
        (
            Router::new().rewrite_prefix("/a", "/b c"),
            "rewrite_prefix(\"/a\", \"/b c\"): `/b c` is not the beginning",
        ),
        (
            Router::new().rewrite_prefix("/a", "/b").rewrite_prefix("/a/b", "/c"),
            "rewrite_prefix(\"/a/b\", \"/c\"): the rule for \"/a\" before it",
        ),
        (
            Router::new().nest("/in", Router::new().rewrite_prefix("/a", "/b")),
            "nest(\"/in\"): a rewrite (\"/a\" → \"/b\") comes before any route",
        ),
    ] {
        let found = problems(router);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(start), "{found:?}");
    }
}
