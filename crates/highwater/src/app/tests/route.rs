//! Which answer a method and a path get, and what cannot be built.

use http::Method;

use super::*;

fn named(name: &'static str) -> impl Fn() -> &'static str + Send + Sync + 'static {
    move || name
}

/// Purpose: each method has its own handler; `HEAD` has that of `GET` until it is routed.
#[test]
fn by_method() {
    let app = build(
        Router::new()
            .get("/a", named("get"))
            .post("/a", named("post"))
            .put("/a", named("put"))
            .patch("/a", named("patch"))
            .delete("/a", named("delete"))
            .on(&[Method::TRACE], "/a", named("trace"))
            .on(&[Method::from_bytes(b"PROPFIND").unwrap()], "/a", named("propfind"))
            .get("/b", named("get"))
            .head("/b", named("head"))
            .on(&[Method::GET, Method::PUT], "/c", named("both")),
    );
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND"] {
        assert_eq!(send(&app, method, "/a").body, method.to_lowercase());
    }
    assert_eq!(send(&app, "HEAD", "/a").body, "get");
    assert_eq!(send(&app, "HEAD", "/b").body, "head");
    assert_eq!(
        (get(&app, "/c").body, send(&app, "PUT", "/c").body),
        ("both".into(), "both".into())
    );
}

/// An argument that takes a CONNECT, or is for a service.
struct Takes<const CONNECT: bool, const SERVICE: bool>;

impl<const CONNECT: bool, const SERVICE: bool> FromRequest for Takes<CONNECT, SERVICE> {
    const CONNECT: bool = CONNECT;
    const SERVICE: bool = SERVICE;

    fn from_request(_: &Request<'_>) -> Result<Self, Error> {
        Ok(Takes)
    }
}

/// Purpose: clients may send an extended CONNECT where a handler takes one, through whichever argument, and no service is
/// there that would not.
#[test]
fn who_takes_a_connect() {
    let plain = || Router::new().get("/a", |_: Takes<false, false>| "");
    let takes = |router: Router| build(router).takes_connect();
    assert!(!takes(plain()));
    assert!(takes(plain().get("/b", |_: Takes<true, false>| "")));
    assert!(takes(plain().get("/b", |_: Option<Takes<true, false>>| "")));
    assert!(takes(plain().get("/b", |_: Result<Takes<true, false>, Error>| "")));
    assert!(takes(plain().fallback(|_: Takes<true, false>| "")));
    let service = || plain().any("/c", |_: Takes<false, true>| "");
    assert!(!takes(service()));
    assert!(!takes(service().get("/b", |_: Takes<true, false>| "")));
}

/// Purpose: `any` takes every method that is not routed otherwise, unknown ones included.
#[test]
fn any_method() {
    let app = build(Router::new().any("/", named("any")).get("/", named("get")));
    for method in ["POST", "OPTIONS", "TRACE", "BREW", "get"] {
        assert_eq!(send(&app, method, "/").body, "any", "{method}");
    }
    for method in ["GET", "HEAD"] {
        assert_eq!(send(&app, method, "/").body, "get", "{method}");
    }
}

/// Purpose: a request without a route is answered as RFC 9110 says: 404 (§15.5.5), 405 with `Allow`
/// (§15.5.6), 501 for an unknown method (§15.6.2).
#[test]
fn without_route() {
    let app = build(Router::new().get("/a", named("a")).post("/a", named("a")));
    let nothing = get(&app, "/b");
    assert_eq!(nothing.status, 404);
    assert_eq!(nothing.body, rendered("not_found", "there is nothing at this path"));
    let wrong = send(&app, "DELETE", "/a");
    assert_eq!(wrong.status, 405);
    assert_eq!(wrong.header("allow"), Some("GET, HEAD, POST, OPTIONS"));
    let message = "this path does not allow DELETE; it allows GET, HEAD, POST, OPTIONS";
    assert_eq!(wrong.body, rendered("method_not_allowed", message));
    let unknown = send(&app, "BREW", "/a");
    assert_eq!(unknown.status, 501);
    assert_eq!(unknown.body, rendered("not_implemented", "the method BREW is not known here"));
    // Methods are case-sensitive (RFC 9110 §9.1).
    assert_eq!(send(&app, "get", "/a").status, 501);
    assert_eq!(send(&app, "BREW", "/b").status, 404);
    assert_eq!(send(&app, "TRACE", "/a").status, 405);
    assert_eq!(send(&app, "CONNECT", "h:443").status, 501);
    // Escapes and slashes count: what is matched is what was sent.
    for path in ["/A", "/a/", "//a", "/%61"] {
        assert_eq!(get(&app, path).status, 404, "{path}");
    }
}

/// Purpose: `OPTIONS` is answered from the routes (RFC 9110 §9.3.7): 204, `Allow`, no content.
#[test]
fn options() {
    let app = build(
        Router::new().get("/a", named("a")).delete("/b", named("b")).options("/c", named("mine")),
    );
    let options = send(&app, "OPTIONS", "/a");
    assert_eq!((options.status, options.body.as_str()), (204, ""));
    assert_eq!(options.headers, [("allow".to_string(), "GET, HEAD, OPTIONS".to_string())]);
    assert_eq!(send(&app, "OPTIONS", "/c").body, "mine");
    assert_eq!(send(&app, "OPTIONS", "/d").status, 404);
    let everything = send(&app, "OPTIONS", "*");
    assert_eq!(everything.status, 204);
    assert_eq!(everything.header("allow"), Some("GET, HEAD, OPTIONS, DELETE"));
}

/// Purpose: prefixes are put before paths and parameters, `/` below a prefix is the prefix.
#[test]
fn nesting() {
    let inner = Router::new()
        .get("/", named("root"))
        .get("/x/{id}", |Path((tenant, id)): Path<(String, u8)>| format!("{tenant} {id}"))
        .nest("/deep", Router::new().get("/y", |path: MatchedPath| path.to_string()));
    let app = build(
        Router::new()
            .nest("/t/{tenant}", inner)
            .merge(Router::new().get("/merged", named("merged")))
            .post("/merged", named("posted")),
    );
    assert_eq!(get(&app, "/t/acme").body, "root");
    assert_eq!(get(&app, "/t/acme/").status, 404);
    assert_eq!(get(&app, "/t/acme/x/7").body, "acme 7");
    assert_eq!(get(&app, "/t/acme/deep/y").body, "/t/{tenant}/deep/y");
    assert_eq!(get(&app, "/merged").body, "merged");
    assert_eq!(send(&app, "POST", "/merged").body, "posted");
}

/// Purpose: endpoints can be listed, with the names and options they were given.
#[test]
fn endpoints() {
    use std::time::Duration;
    async fn later(_: BodyStream) {}
    let second = Duration::from_secs(1);
    let app = build(
        Router::new()
            .get("/a", named("a").name("first"))
            .on(&[Method::PUT, Method::POST], "/b", later.timeout(second).detached())
            .any("/c", blocking(|_: String| ()))
            .get("/d", fixed("").name("fourth")),
    );
    let list: Vec<String> = app
        .endpoints()
        .iter()
        .map(|e| {
            let (methods, pattern, name, kind) = (e.methods(), e.pattern(), e.name(), e.kind());
            let (timeout, body) = (e.timeout(), e.body());
            format!("{methods} {pattern} {name} {kind} {timeout:?} {} {body:?}", e.is_detached())
        })
        .collect();
    assert_eq!(
        list,
        [
            "GET /a first inline None false None",
            "PUT,POST /b /b async Some(1s) true Streamed",
            "* /c /c blocking None false Whole",
            "GET /d fourth fixed None false None",
        ]
    );
}

/// Purpose: a router's timeout is that of its fallback, too, and of the copies of it in nested routers that have none.
#[test]
fn fallbacks_have_timeouts() {
    use std::time::Duration;
    let seconds = Duration::from_secs;
    let nested = || Router::new().get("/x", named("x"));
    let own = nested().fallback(named("own").timeout(seconds(3)));
    let router = Router::new().timeout(seconds(2)).fallback(named("lost"));
    let router = router.nest("/in", nested()).nest("/own", own);
    let app = build(router.nest("/quick", nested().timeout(seconds(1))));
    let timeouts: Vec<_> = app.endpoints().iter().map(|e| (e.pattern(), e.timeout())).collect();
    for (pattern, timeout) in
        [("/{*rest}", 2), ("/in/{*rest}", 2), ("/own/{*rest}", 3), ("/quick/{*rest}", 1)]
    {
        assert!(timeouts.contains(&(pattern, Some(seconds(timeout)))), "{timeouts:?}");
    }
}

/// Purpose: a fallback's own limit is one for all copies of it in nested routers, each of which is within its own group, too.
#[test]
fn copies_of_a_fallback_share_its_limit() {
    let group = Router::new().get("/x", named("x")).concurrency_limit(5);
    let router = Router::new().fallback(named("lost").concurrency_limit(2));
    let app = build(router.nest("/a", Router::new().get("/x", named("x"))).nest("/b", group));
    let limit = |pattern: &str| {
        let mut all = app.endpoints().iter().zip(&app.shared.endpoints);
        let (_, endpoint) = all.find(|(info, _)| info.pattern() == pattern).expect("it is there");
        endpoint.concurrency.clone().expect("it has a limit")
    };
    let now = highwater_core::time::Instant::ZERO;
    let first = limit("/{*rest}").enter(now);
    let second = limit("/b/{*rest}").enter(now);
    assert!(first.is_some() && second.is_some());
    assert_eq!(limit("/b/x").held(), 1, "one of the two is within the group");
    for pattern in ["/{*rest}", "/a/{*rest}", "/b/{*rest}"] {
        assert!(limit(pattern).enter(now).is_none(), "{pattern}");
    }
    drop(first);
    assert!(limit("/a/{*rest}").enter(now).is_some());
}

fn problems(router: Router) -> Vec<String> {
    router.build().expect_err("something is wrong with it").problems().to_vec()
}

/// Purpose: all problems are reported at once, each naming its route and the remedy.
#[test]
fn problems_are_collected() {
    struct Db;
    fn twice(_: String, _: Option<bytes::Bytes>) {}
    fn stateful(_: State<std::sync::Arc<Db>>, _: Option<State<u8>>) {}
    let found = problems(
        Router::new()
            .state(1_u8)
            .state(2_u8)
            .get("a", named("no slash"))
            .get("/b/{x}", named("b"))
            .post("/b/{y}", named("the same paths"))
            .get("/c", named("c"))
            .get("/c", named("again"))
            .any("/d", named("d"))
            .any("/d", named("again"))
            .post("/e", twice)
            .nest("/f", Router::new().get("/g", stateful))
            .nest("h/", Router::new())
            .on(&[], "/i", named("never"))
            .get("/j", fixed(Body::channel().1)),
    );
    let arc_db = std::any::type_name::<std::sync::Arc<Db>>();
    let expected = [
        "two states of type `u8`",
        "GET /c: it is routed twice",
        "every method /d: it is routed twice",
        "POST /e: both `alloc::string::String` and `core::option::Option<bytes::bytes::Bytes>` take \
         the body",
        "/i: it is routed for no method",
        "GET /j: fixed(…) needs content that is there at once",
        &format!("GET /f/g: its handler takes a state of type `{arc_db}`, and there is none"),
        "nest(\"h/\"): a prefix begins with a slash and does not end with one; write `/h`",
        "route `a`: it must begin with a slash",
        "route `/b/{y}`: it matches the same paths as `/b/{x}`",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.contains(expected), "{found:?} should say {expected:?}");
    }
}

/// Purpose: a nested router may use the states of those around it, and replace them for its own.
#[test]
fn states_are_inherited() {
    fn show(State(text): State<&'static str>, State(n): State<u8>) -> String {
        format!("{text} {n}")
    }
    let inner = Router::new().state("inner").get("/x", show);
    let app = build(Router::new().state("outer").state(7_u8).get("/x", show).nest("/in", inner));
    assert_eq!(get(&app, "/x").body, "outer 7");
    assert_eq!(get(&app, "/in/x").body, "inner 7");
}

/// Purpose: below its prefix, the fallback of a nested router comes before an outer route for everything, and after all routes
/// of its own; a nested router without a fallback leaves its paths to the outer route.
#[test]
fn a_nested_fallback_comes_before_an_outer_catch_all() {
    let api = |prefix: &str, own: &str| {
        let api = Router::new().get("/x", || "x").fallback(|| "no api");
        let api = if own.is_empty() { api } else { api.get(own, || "own") };
        build(Router::new().nest(prefix, api).get("/{*rest}", || "rest").get("/y", || "y"))
    };
    let app = api("/api", "");
    for (target, answer) in [
        ("/api/x", "x"),
        ("/api/z", "no api"),
        ("/api/x/", "no api"),
        ("/api/", "no api"),
        ("/api", "no api"),
        ("/apis", "rest"),
        ("/y", "y"),
        ("/z", "rest"),
    ] {
        assert_eq!(get(&app, target).body, answer, "{target}");
    }
    assert_eq!(send(&app, "POST", "/api/z").body, "no api");
    assert_eq!(send(&app, "POST", "/api/x").status, 405);
    assert_eq!(send(&app, "POST", "/z").status, 405);

    assert_eq!(get(&api("/api", "/{*all}"), "/api/z").body, "own");
    assert_eq!(get(&api("/api", "/"), "/api").body, "own");
    let app = api("/{user}/api", "");
    assert_eq!(get(&app, "/ann/api/z").body, "no api");
    assert_eq!(get(&app, "/ann/z").body, "rest");

    let plain = Router::new().get("/x", || "x");
    let app = build(Router::new().nest("/api", plain).get("/{*rest}", || "rest"));
    assert_eq!(get(&app, "/api/z").body, "rest");
}
