//! What covers handlers: layers of every kind in their order, renderers, and the net under panics.

use std::sync::{Arc, Mutex};

use http::{HeaderName, HeaderValue, StatusCode, header};

use super::*;

/// Writes down what happens in which order.
#[derive(Clone, Default)]
struct EventLog(Arc<Mutex<Vec<String>>>);

impl EventLog {
    fn write(&self, entry: impl Into<String>) {
        self.0.lock().unwrap().push(entry.into());
    }

    fn take(&self) -> String {
        std::mem::take(&mut *self.0.lock().unwrap()).join(" ")
    }

    /// Covers a router with one layer of each kind, each of which writes its name.
    fn cover(&self, name: &'static str, router: Router) -> Router {
        let (on_request, on_response, around) = (self.clone(), self.clone(), self.clone());
        router
            .layer(layer::on_response(move |_: &Request<'_>, response: &mut Response| {
                on_response.write(format!("{name}-response({})", response.status().as_u16()));
            }))
            .layer(layer::on_request(move |_: &Request<'_>| {
                on_request.write(format!("{name}-request"));
                Ok::<(), Error>(())
            }))
            .layer(layer::around(move |request: OwnedRequest, next: Next| {
                let event_log = around.clone();
                async move {
                    event_log.write(format!("{name}-in"));
                    let response = next.run(request).await;
                    event_log.write(format!("{name}-out({})", response.status().as_u16()));
                    response
                }
            }))
    }
}

/// Purpose: the order of everything, for each kind of handler and for requests without one: one list, outer
/// around inner, in the order given, and the responses in the reverse order.
#[test]
fn order() {
    let event_log = EventLog::default();
    let handlers = |prefix: &'static str| {
        let event_log = event_log.clone();
        let (a, b, c) = (event_log.clone(), event_log.clone(), event_log);
        Router::new()
            .get("/inline", move || a.write(prefix))
            .get("/async", move || {
                let event_log = b.clone();
                async move { event_log.write(prefix) }
            })
            .get("/blocking", blocking(move || c.write(prefix)))
    };
    let app = build(
        event_log
            .cover("outer", handlers("o"))
            .nest("/in", event_log.cover("second", event_log.cover("inner", handlers("i")))),
    );
    for kind in ["inline", "async", "blocking"] {
        assert_eq!(get(&app, &format!("/{kind}")).status, 200);
        assert_eq!(event_log.take(), "outer-request outer-in o outer-out(200) outer-response(200)");
        assert_eq!(get(&app, &format!("/in/{kind}")).status, 200);
        assert_eq!(
            event_log.take(),
            "outer-request outer-in inner-request inner-in second-request second-in i \
             second-out(200) second-response(200) inner-out(200) inner-response(200) \
             outer-out(200) outer-response(200)"
        );
    }
    get(&app, "/nowhere");
    assert_eq!(event_log.take(), "outer-request outer-in outer-out(404) outer-response(404)");
    get(&app, "/in/nowhere");
    assert!(event_log.take().contains("second-in second-out(404)"));
    send(&app, "DELETE", "/in/inline");
    assert!(event_log.take().contains("second-in second-out(405)"));
    send(&app, "OPTIONS", "/in/inline");
    assert!(event_log.take().contains("second-in second-out(204)"));
}

/// Purpose: a layer that answers keeps everything behind it from running; the layers around it see the
/// answer, and it does not.
#[test]
fn a_layer_answers() {
    let event_log = EventLog::default();
    let authorize =
        layer::on_request(|request: &Request<'_>| match request.header("authorization") {
            Some("Bearer x") => Ok(()),
            _ => Err(Error::unauthorized("a token is needed")
                .with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
        });
    let router = event_log.cover("outer", Router::new()).layer(authorize);
    let app = build(event_log.cover("inner", router).get("/", || "secret"));
    let received = get(&app, "/");
    assert_eq!((received.status, received.header("www-authenticate")), (401, Some("Bearer")));
    assert_eq!(received.body, rendered("unauthorized", "a token is needed"));
    assert_eq!(event_log.take(), "outer-request outer-in outer-out(401) outer-response(401)");
    // What does not exist is hidden behind the same refusal.
    assert_eq!(get(&app, "/nowhere").status, 401);
    event_log.take();
    let received =
        receive(request(&app, "GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer x\r\n\r\n"));
    assert_eq!(received.body, "secret");
}

/// Purpose: a value that a layer attaches reaches handlers of every kind and the layers around it, asynchronous
/// or not.
#[test]
fn extensions_travel() {
    #[derive(Clone)]
    struct User(&'static str);
    fn show(Extension(user): Extension<User>, path: MatchedPath) -> String {
        format!("{} {path}", user.0)
    }
    let seen = EventLog::default();
    let log = seen.clone();
    let attach = || {
        layer::on_request(|request: &Request<'_>| {
            request.insert(User("ann"));
            Ok::<(), Error>(())
        })
    };
    let routes = |router: Router| {
        router
            .get("/inline/{x}", show)
            .get("/blocking/{x}", blocking(show))
            .get("/async/{x}", async |e: Extension<User>, p: MatchedPath| show(e, p))
            .get("/none", |user: Option<Extension<u8>>| format!("{}", user.is_none()))
    };
    // What is attached reaches the layers within, and on the way out those that saw it attached.
    let check = |app: &App, event_log: &EventLog, expected: &str, logged: &str| {
        for kind in ["inline", "blocking", "async"] {
            let received = get(app, &format!("/{kind}/1"));
            assert_eq!(received.body, format!("{expected} /{kind}/{{x}}"));
            assert_eq!(event_log.take(), format!("GET /{kind}/1 1 h {logged} 192.0.2.7:4711"));
        }
        assert_eq!(get(app, "/none").body, "true");
        event_log.take();
    };
    let look = move |request: &Request<'_>, _: &mut Response| {
        let user = request.extension::<User>().map_or("nobody", |user| user.0);
        let peer = request.peer().expect("it was looked up");
        let param = request.param("x").unwrap().unwrap_or_default();
        let host = request.header("HOST").unwrap();
        let (method, path) = (request.method(), request.path());
        log.write(format!("{method} {path} {param} {host} {user} {peer}"));
    };
    let look = || layer::on_response(look.clone());
    check(&build(routes(Router::new().layer(look()).layer(attach()))), &seen, "ann", "ann");
    let change = async |request: OwnedRequest, next: Next| {
        assert_eq!(request.extension::<User>().map(|user| user.0), Some("ann"));
        request.insert(User("bob"));
        next.run(request).await
    };
    let around = Router::new().layer(look()).layer(attach()).layer(layer::around(change));
    check(&build(routes(around)), &seen, "bob", "ann");
    let within = Router::new().layer(attach()).layer(layer::around(change)).layer(look());
    check(&build(routes(within)), &seen, "bob", "bob");
}

/// Purpose: an asynchronous layer sees the request, changes it, and may answer itself.
#[test]
fn middleware_requests() {
    async fn guard(mut request: OwnedRequest, next: Next) -> Result<Response, Error> {
        if request.query() == Some("stop") {
            return Err(Error::forbidden("stopped"));
        }
        assert_eq!((request.path(), request.target()), ("/x%20y", "/x%20y?go"));
        assert_eq!(request.method(), http::Method::POST);
        assert_eq!(request.matched_path(), Some("/{x}"));
        assert_eq!(request.body(), Some(&b"body"[..]));
        assert_eq!(request.state::<u8>(), Some(&7));
        assert_eq!(request.extract::<Path<String>>()?.0, "x y");
        assert_eq!(request.headers().get_all("x-a").count(), 2);
        let name = HeaderName::from_static("x-a");
        request.set_header(&name, &HeaderValue::from_static("changed"));
        let mut response = next.run(request).await;
        response.append_header(name, HeaderValue::from_static("out"));
        Ok(response)
    }
    fn handler(headers: http::HeaderMap, Path(x): Path<String>, body: String) -> String {
        format!("{:?} {x} {body}", headers.get_all("x-a").iter().collect::<Vec<_>>())
    }
    let app = build(Router::new().state(7_u8).layer(layer::around(guard)).post("/{x}", handler));
    let raw = |query: &str| {
        format!(
            "POST /x%20y?{query} HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nx-a: 2\r\n\
             Content-Length: 4\r\n\r\nbody"
        )
    };
    let received = receive(request(&app, &raw("go")));
    assert_eq!(received.body, r#"["changed"] x y body"#);
    assert_eq!(received.header("x-a"), Some("out"));
    let received = receive(request(&app, &raw("stop")));
    assert_eq!((received.status, received.body), (403, rendered("forbidden", "stopped")));
}

/// Purpose: streamed bodies go through asynchronous layers as streams, with synchronous ones between them.
#[test]
fn middleware_and_streams() {
    async fn length(body: BodyStream) -> Result<String, Error> {
        Ok(body.collect(100).await?.len().to_string())
    }
    let pass = async |request: OwnedRequest, next: Next| {
        assert_eq!(request.body(), None);
        next.run(request).await
    };
    let between = layer::on_request(|request: &Request<'_>| {
        assert_eq!(request.body(), None);
        Ok::<(), Error>(())
    });
    let router = Router::new().layer(layer::around(pass)).layer(between).layer(layer::around(pass));
    let app = build(router.post("/", length));
    let raw = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(receive(request_with(&app, raw, None, vec!["abc", "de"])).body, "5");
}

/// Purpose: a blocking handler behind an asynchronous layer goes to the pool of the worker that polls it; a full
/// pool is a 503, and a job that is dropped does not hang its request.
#[test]
fn middleware_and_the_pool() {
    use crate::app::{Submit, WorkerInfo};
    let app = build(
        Router::new()
            .layer(layer::around(async |request, next: Next| next.run(request).await))
            .layer(layer::on_response(|_: &Request<'_>, response: &mut Response| {
                let status = response.status().as_u16();
                response.set_header(HeaderName::from_static("x-seen"), status.into());
            }))
            .get("/", blocking(|| std::thread::current().name().unwrap_or_default().to_string())),
    );
    let get_with = |submit: Submit| {
        let context =
            block_on(app.worker_context(WorkerInfo::new(0, 1), std::time::Duration::MAX, submit));
        let context = context.expect("there is nothing to make").expect("a future awaits the pool");
        let _entered = context.enter();
        let received = get(&app, "/");
        (received.status, received.header("x-seen").map(String::from), received.body)
    };
    let on_a_thread = std::rc::Rc::new(|task: Box<dyn FnOnce() + Send>| {
        let pool = std::thread::Builder::new().name("pool".into());
        pool.spawn(task).expect("a thread starts").join().expect("jobs do not panic");
        Ok(())
    });
    assert_eq!(get_with(on_a_thread), (200, Some(String::from("200")), String::from("pool")));
    let full = rendered("overloaded", "too much is waiting already");
    assert_eq!(get_with(std::rc::Rc::new(Err)), (503, Some(String::from("503")), full));
    let dropped = rendered("overloaded", "the server is shutting down");
    let dropping = std::rc::Rc::new(|task| {
        drop(task);
        Ok(())
    });
    assert_eq!(get_with(dropping), (503, Some(String::from("503")), dropped));
}

/// Purpose: one renderer gives every error its shape, from any source, and the error's own fields are kept.
#[test]
fn renderer() {
    fn shape(error: &Error) -> Html<String> {
        Html(format!("<{} {}>", error.code(), error.message()))
    }
    let app = build(
        Router::new()
            .errors(shape)
            .get("/own", || Err::<(), _>(Error::conflict("mine")))
            .get("/status", || StatusCode::GONE)
            .get("/async", async || None::<()>)
            .get("/blocking", blocking(|| Err::<(), _>(Error::unprocessable("no"))))
            .get("/{n}", |Path(_): Path<u8>| ()),
    );
    let table = [
        ("GET", "/own", 409, "<conflict mine>"),
        ("GET", "/status", 410, "<gone Gone>"),
        ("GET", "/async", 404, "<not_found Not Found>"),
        ("GET", "/blocking", 422, "<unprocessable no>"),
        (
            "GET",
            "/999",
            400,
            "<invalid_path path parameter `n`: `999` is not an integer from 0 to 255>",
        ),
        ("GET", "/a/b", 404, "<not_found there is nothing at this path>"),
        ("BREW", "/own", 501, "<not_implemented the method BREW is not known here>"),
    ];
    for (method, path, status, body) in table {
        let received = send(&app, method, path);
        assert_eq!((received.status, received.body.as_str()), (status, body));
        assert_eq!(received.header("content-type"), Some("text/html; charset=utf-8"));
    }
    let received = send(&app, "PUT", "/own");
    assert_eq!((received.status, received.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
    let received = receive(request(&app, "GET / HTTP/1.1\r\n\r\n"));
    let refused = "<malformed_request exactly one valid Host field is required>";
    assert_eq!((received.status, received.body.as_str()), (400, refused));
    let response = request(&app, "GET /own HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(response.error().map(Error::code), Some("conflict"));
}

/// Purpose: the innermost renderer renders; layers further out see the result.
#[test]
fn renderers_nest() {
    let event_log = EventLog::default();
    let inner = Router::new().errors(|_: &Error| "inner").get("/x", || StatusCode::BAD_GATEWAY);
    let app = build(
        event_log
            .cover("outer", Router::new())
            .errors(|e: &Error| (StatusCode::IM_A_TEAPOT, format!("outer {}", e.code())))
            .get("/x", || StatusCode::BAD_GATEWAY)
            .nest("/in", inner)
            .nest("/plain", Router::new().get("/x", || StatusCode::BAD_GATEWAY)),
    );
    // A renderer may choose another status.
    assert_eq!((get(&app, "/x").status, get(&app, "/x").body.as_str()), (418, "outer bad_gateway"));
    assert_eq!(get(&app, "/plain/x").body, "outer bad_gateway");
    event_log.take();
    let received = get(&app, "/in/x");
    assert_eq!((received.status, received.body.as_str()), (502, "inner"));
    assert!(event_log.take().contains("outer-out(502)"));
    assert_eq!(get(&app, "/in/y").body, "inner");
}

/// Purpose: a panic anywhere is a 500 in the service's shape; the peer learns nothing, the layers see its
/// message, and the application continues.
#[test]
fn panics() {
    struct Bad;
    impl FromRequest for Bad {
        fn from_request(_: &Request<'_>) -> Result<Self, Error> {
            panic!("extractor")
        }
    }
    fn boom(text: &str) -> &'static str {
        panic!("{text}")
    }
    let event_log = EventLog::default();
    let log = event_log.clone();
    let covered = Router::new()
        .layer(layer::around(async |request: OwnedRequest, next: Next| {
            if request.path() == "/m/self" {
                boom("middleware");
            }
            next.run(request).await
        }))
        .get("/self", || ())
        .get("/below", || boom("below"));
    let app = build(
        Router::new()
            .layer(layer::on_response(move |_: &Request<'_>, response: &mut Response| {
                let source = response.error().and_then(Error::source).map(ToString::to_string);
                log.write(source.unwrap_or_default());
            }))
            .layer(layer::on_request(|request: &Request<'_>| {
                if request.path() == "/before" {
                    boom("before");
                }
                Ok::<(), Error>(())
            }))
            .get("/inline", || boom("inline"))
            .get("/async", async || boom("async"))
            .get("/blocking", blocking(|| boom("blocking")))
            .get("/extractor", |_: Bad| ())
            .get("/fine", || "fine")
            .nest("/m", covered),
    );
    let answers: Vec<(String, Received, String)> =
        ["/inline", "/async", "/blocking", "/extractor", "/before", "/m/self", "/m/below"]
            .map(|path| {
                let text = path.rsplit('/').next().unwrap_or_default();
                let text = if text == "self" { "middleware" } else { text };
                (format!("panicked: {text}"), get(&app, path), event_log.take())
            })
            .into();
    for (expected, received, logged) in answers {
        assert_eq!(received.status, 500, "{expected}");
        assert_eq!(received.body, rendered("internal", "Internal Server Error"));
        assert_eq!(logged, expected);
    }
    assert_eq!(get(&app, "/fine").body, "fine");
}

/// Purpose: renderers and the outermost layers can fail too, and even then there is a response, which the layers
/// around see.
#[test]
fn panics_on_the_way_out() {
    let broken_renderer: fn(&Error) -> Response = |_| panic!("renderer");
    let event_log = EventLog::default();
    let app = build(
        Router::new().errors(broken_renderer).nest(
            "/after",
            event_log
                .cover("outer", Router::new())
                .errors(|e: &Error| e.code())
                .layer(layer::on_response(|_: &Request<'_>, _: &mut Response| panic!("layer")))
                .get("/x", || "x"),
        ),
    );
    let (rendering, response) = (get(&app, "/nowhere"), get(&app, "/after/x"));
    let nothing = rendered("not_found", "there is nothing at this path");
    assert_eq!((rendering.status, rendering.body), (404, nothing));
    assert_eq!((response.status, response.body.as_str()), (500, "internal"));
    assert_eq!(event_log.take(), "outer-request outer-in outer-out(500) outer-response(500)");
}
