//! Routing as clients see it, over real sockets: which handler a method and a path reach, what answers where there is
//! no route, and when a handler that takes too long is given up.

use std::net::SocketAddr;
use std::time::Duration;

use highwater::routing::{any, get, on};
use highwater::server::TransportChoice;
use highwater::{
    Error, Handler, MatchedPath, Method, Path, Request, Router, TrailingSlash, Uri, fixed, layer,
};

use crate::answers::Answer;
use crate::served::{HANG, exchange, start};
use crate::transports::on_each_transport;

fn ask(address: SocketAddr, method: &str, target: &str) -> Answer {
    let request = format!("{method} {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    exchange(address, &request)
}

on_each_transport! {
    /// Purpose: `route` gives each method of a path its handler, and does not keep calls for the same path from adding
    /// others; what none of them takes is answered 405 with all of them.
    fn methods_of_one_path(transport) {
        let query = Method::from_bytes(b"QUERY").expect("it is a token");
        let router = Router::new()
            .route("/todos", get(|| "all").post(|| "created"))
            .delete("/todos", || "none left")
            .route("/todos/{id}", get(|Path(id): Path<u8>| id.to_string()).put(fixed("replaced")))
            .route("/rest", any(|| "any").get(|| "get"))
            .route("/search", on(&[query, Method::POST], async || "found"));
        let server = start(router, transport);
        let content_of = |method: &str, path: &str| ask(server.address(), method, path).content;
        assert_eq!([content_of("GET", "/todos"), content_of("POST", "/todos")], ["all", "created"]);
        assert_eq!([content_of("DELETE", "/todos"), content_of("GET", "/todos/7")], ["none left", "7"]);
        assert_eq!([content_of("PUT", "/todos/7"), content_of("GET", "/rest")], ["replaced", "get"]);
        assert_eq!([content_of("PATCH", "/rest"), content_of("BREW", "/rest")], ["any", "any"]);
        assert_eq!([content_of("QUERY", "/search"), content_of("POST", "/search")], ["found", "found"]);
        let wrong = ask(server.address(), "PATCH", "/todos");
        let allowed = "GET, HEAD, POST, DELETE, OPTIONS";
        assert_eq!((wrong.status, wrong.field("allow")), (405, Some(allowed)));
    }

    /// Purpose: a fallback answers what has no route, whatever the method, and within the layers of the router that
    /// the path is below; a path with routes keeps its 405, and a fallback may be of any kind.
    fn fallbacks(transport) {
        let mark = layer::on_response(|_: &Request<'_>, response: &mut highwater::Response| {
            response.set_header(highwater::header::VIA, "1.1 inner".parse().expect("a value"));
        });
        let lost = async |uri: Uri, path: MatchedPath| {
            Error::not_found(format!("nothing at {} ({path})", uri.path()))
        };
        let own = Router::new().get("/x", || "x").fallback(fixed("own"));
        let router = Router::new()
            .get("/a", || "a")
            .nest("/inherits", Router::new().layer(mark).get("/x", || "x"))
            .nest("/own", own)
            .fallback(lost);
        let server = start(router, transport);
        let answer_to = |method: &str, path: &str| ask(server.address(), method, path);
        for method in ["GET", "POST", "BREW"] {
            let answer = answer_to(method, "/nowhere/at%20all?x");
            assert_eq!(answer.status, 404);
            assert!(answer.content.contains("nothing at /nowhere/at%20all (/{*rest})"), "{method}");
        }
        let below = answer_to("GET", "/inherits/y");
        assert_eq!((below.status, below.field("via")), (404, Some("1.1 inner")));
        assert!(below.content.contains("nothing at /inherits/y (/inherits/{*rest})"));
        for path in ["/own", "/own/", "/own/deep/down"] {
            assert_eq!((answer_to("PUT", path).content.as_str(), answer_to("GET", path).status), ("own", 200));
        }
        assert_eq!((answer_to("POST", "/a").status, answer_to("POST", "/own/x").status), (405, 405));
        assert_eq!((answer_to("OPTIONS", "*").status, answer_to("CONNECT", "h:1").status), (204, 501));
    }

    /// Purpose: a slash at the end is another path, a redirect that keeps method and query, or no difference, as the
    /// application says; never a redirect to another server.
    fn slashes_at_the_end(transport) {
        let routes = || {
            Router::new()
                .get("/", || "root")
                .get("/a", || "a")
                .route("/b/{id}/", get(|Path(id): Path<String>| id))
                .get("/files/{*rest}", |Path(rest): Path<String>| rest)
        };
        let strict = start(routes(), transport);
        assert_eq!(ask(strict.address(), "GET", "/a/").status, 404);

        let server = start(routes().trailing_slash(TrailingSlash::Redirect), transport);
        for (method, from, to) in [
            ("GET", "/a/?x=/1/", "/a?x=/1/"),
            ("POST", "/a/", "/a"),
            ("GET", "/b/7", "/b/7/"),
            ("GET", "http://other/b/7?y", "/b/7/?y"),
        ] {
            let answer = ask(server.address(), method, from);
            assert_eq!((answer.status, answer.field("location")), (308, Some(to)), "{from}");
        }
        for (path, status) in [("/", 200), ("/c/", 404), ("//h/", 404), ("/a//", 404), ("/files/", 404)]
        {
            assert_eq!(ask(server.address(), "GET", path).status, status, "{path}");
        }
        assert_eq!(ask(server.address(), "GET", "/files/x/").content, "x/");

        let server = start(routes().trailing_slash(TrailingSlash::Ignore), transport);
        let content_of = |path: &str| ask(server.address(), "GET", path).content;
        assert_eq!([content_of("/a/"), content_of("/b/seven"), content_of("/b/seven/")], ["a", "seven", "seven"]);
        assert_eq!(ask(server.address(), "POST", "/a/").status, 405);
    }

    /// Purpose: a parameter may be a part of a segment, and its value is only that part, decoded.
    fn text_beside_parameters(transport) {
        let router = Router::new()
            .get("/files/{name}.json", |Path(name): Path<String>| format!("json {name}"))
            .get("/files/{name}", |Path(name): Path<String>| name)
            .get("/v{version}/files/{id}:archive", |Path((version, id)): Path<(u8, u32)>| {
                format!("{version} {id}")
            });
        let server = start(router, transport);
        let content_of = |path: &str| ask(server.address(), "GET", path).content;
        assert_eq!([content_of("/files/a%20b.json"), content_of("/files/a.jsons")], ["json a b", "a.jsons"]);
        assert_eq!(content_of("/v2/files/77:archive"), "2 77");
        for (path, status) in [("/v2/files/77", 404), ("/v/files/7:archive", 404), ("/vx/files/7:archive", 400)] {
            assert_eq!(ask(server.address(), "GET", path).status, status, "{path}");
        }
    }

    /// Purpose: a router's timeout holds for its handlers and those nested in it, unless they have one of their own.
    fn timeouts_of_all_routes(transport) {
        let never = async || std::future::pending::<&str>().await;
        let soon = async || {
            tokio::time::sleep(Duration::from_millis(300)).await;
            "done"
        };
        let nested = Router::new().timeout(HANG * 10).get("/soon", soon).get(
            "/never",
            never.timeout(Duration::from_millis(20)),
        );
        let router = Router::new()
            .timeout(Duration::from_millis(20))
            .get("/never", never)
            .get("/soon", soon.timeout(HANG * 10))
            .nest("/in", nested)
            .nest("/inherits", Router::new().get("/never", never));
        let server = start(router, transport);
        let answer_to = |path: &str| ask(server.address(), "GET", path);
        for path in ["/never", "/in/never", "/inherits/never"] {
            assert_eq!(answer_to(path).status, 503, "{path}");
        }
        for path in ["/soon", "/in/soon"] {
            assert_eq!(answer_to(path).content, "done", "{path}");
        }
    }
}

/// Purpose: mistakes in routing are found when the application is built, with what to write instead.
#[test]
fn problems() {
    let routed = || "x";
    let problems = |router: Router| router.build().expect_err("it has one").problems().to_vec();
    for (router, start) in [
        (Router::new().route("/a", get(routed).get(routed)), "GET /a: it is routed twice"),
        (Router::new().timeout(Duration::ZERO).get("/a", routed), "/: timeout(0) would refuse"),
        (Router::new().get("/a", routed.timeout(Duration::ZERO)), "GET /a: timeout(0) would"),
        (
            Router::new().nest("/in", Router::new().trailing_slash(TrailingSlash::Ignore)),
            "nest(\"/in\"): `trailing_slash` is for the whole application",
        ),
        (Router::new().merge(Router::new().fallback(routed)), "merge: there is one fallback below"),
        (
            Router::new().fallback(|Path(x): Path<String>| x),
            "fallback of /: a path without a route has no parameters",
        ),
    ] {
        let found = problems(router);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(start), "{found:?}");
    }
}
