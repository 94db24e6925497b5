//! What a layer covers: fixed answers, preflights, refusals, the server's own answers, and the end of an
//! answer.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use highwater_core::http::Reject;
use http::{HeaderName, HeaderValue, StatusCode};

use super::*;
use crate::app::layer::Ended;

const SEEN: HeaderName = HeaderName::from_static("x-seen");

/// Adds its name to the field `x-seen`, alike for every response.
fn stamp(name: &'static str) -> Layer {
    layer::amend(move |response| response.append_header(SEEN, HeaderValue::from_static(name)))
}

/// Adds its name and the request's path to the field `x-seen`.
fn look(name: &'static str) -> Layer {
    layer::on_response(move |request: &Request<'_>, response: &mut Response| {
        let seen = format!("{name}{}", request.path());
        response.append_header(SEEN, HeaderValue::try_from(seen).unwrap());
    })
}

fn seen(received: &Received) -> String {
    let of_name = received.headers.iter().filter(|(name, _)| name == "x-seen");
    of_name.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(" ")
}

/// Has `f` called with a request for `path`, as a worker has it.
fn with_request<R>(app: &App, path: &str, f: impl FnOnce(&Request<'_>) -> R) -> R {
    let raw = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    let (limits, mut routed, mut target) = (Limits::default(), Routed::default(), None);
    let (mut connection, mut scratch) = (Connection::new(Instant::ZERO), Scratch::default());
    let next = connection.next(
        &mut Link::new(),
        &mut raw.as_bytes(),
        &mut scratch,
        &limits,
        Instant::ZERO,
        |head| {
            target = Some(app.find(head, &mut routed.params));
            BodyPlan::Unwanted
        },
    );
    let http1::Next::Request(request) = next else { panic!("the request is not complete") };
    let target = target.expect("every head is planned for");
    let (body, disconnected) = (RequestBody::Whole(&[]), Default::default());
    f(&app.request(target, &request.head, &routed, body, None, &disconnected))
}

/// How request number `n` for `path` is refused.
fn refused(app: &App, path: &str, n: u32) -> Received {
    with_request(app, path, |request| match app.refuse(request, n) {
        Some(response) => receive(response),
        None => receive(resolve(Outcome::Fixed(app.refusal(request.route(), n)))),
    })
}

/// The copy of a request for `path` that a worker keeps for layers.
fn retained(app: &App, path: &str) -> Option<OwnedRequest> {
    with_request(app, path, |request| {
        request.with_head(|head| app.retain(request.route(), head, &Routed::default(), &None))
    })
}

/// Purpose: a fixed answer is seen by layers that cover everything, and by no others. Changes that are the
/// same each time are made when the application is built; else the answer is made for each request.
#[test]
fn fixed_answers() {
    let constant = Router::new()
        .layer(stamp("a").everywhere())
        .layer(stamp("no"))
        .layer(layer::around(async |_, _: Next| StatusCode::IM_A_TEAPOT))
        .layer(stamp("b").everywhere())
        .get("/x", fixed((StatusCode::CREATED, [("x-own", "1")], "content")))
        .get("/empty", fixed(StatusCode::NO_CONTENT));
    let dynamic = Router::new()
        .layer(look("c").everywhere())
        .layer(stamp("d").everywhere())
        .layer(look("no"))
        .get("/x", fixed((StatusCode::CREATED, [("x-own", "1")], "content")));
    let app = build(Router::new().nest("/constant", constant).nest("/dynamic", dynamic));
    let received = get(&app, "/constant/x");
    assert_eq!((received.status, received.body.as_str()), (201, "content"));
    assert_eq!((received.header("x-own"), received.header("x-fixed")), (Some("1"), Some("yes")));
    assert_eq!(seen(&received), "b a");
    assert_eq!(get(&app, "/constant/empty").status, 204);
    let received = get(&app, "/dynamic/x");
    assert_eq!((received.status, received.body.as_str()), (201, "content"));
    assert_eq!((received.header("x-own"), received.header("x-fixed")), (Some("1"), None));
    assert_eq!(seen(&received), "d c/dynamic/x");
    // The content is one for all.
    assert_eq!(get(&app, "/dynamic/x"), received);
}

/// Purpose: a layer that covers everything may answer instead of a fixed answer.
#[test]
fn fixed_answers_can_be_guarded() {
    let close = |request: &Request<'_>| match request.query() {
        Some("open") => ControlFlow::Continue(()),
        _ => ControlFlow::Break((StatusCode::FORBIDDEN, "closed")),
    };
    let app = build(
        Router::new()
            .layer(look("outer").everywhere())
            .layer(layer::on_request(close).everywhere())
            .layer(look("inner").everywhere())
            .get("/x", fixed("content")),
    );
    let received = get(&app, "/x");
    assert_eq!((received.status, received.body.as_str()), (403, "closed"));
    assert_eq!(seen(&received), "outer/x");
    let received = get(&app, "/x?open");
    assert_eq!((received.status, received.body.as_str()), (200, "content"));
    assert_eq!(seen(&received), "inner/x outer/x");
}

/// Purpose: a change that a layer must not make to a fixed answer is found when the application is built.
#[test]
fn fixed_answers_stay_valid() {
    let add = |response: &mut Response| response.set_body("content");
    let router = Router::new().layer(layer::amend(add).everywhere());
    let problems = router.get("/x", fixed(StatusCode::NO_CONTENT)).build().unwrap_err();
    assert_eq!(problems.problems().len(), 1);
    let problem = &problems.problems()[0];
    assert!(problem.starts_with("GET /x: behind its layers, the status 204 has no"), "{problem}");
}

/// Purpose: a layer that fails on prepared answers is a problem of the application: of its fixed answers, and
/// of its refusals, reported once for all routers within.
#[test]
fn prepared_answers_must_succeed() {
    let fail = |_: &mut Response| panic!("at build");
    let covered = || Router::new().layer(layer::amend(fail).everywhere());
    let error = covered().nest("/in", Router::new()).get("/x", fixed("x")).build().unwrap_err();
    let expected = [
        "GET /x: behind its layers, panicked: at build",
        "refusals (503), behind the layers: panicked: at build",
    ];
    assert_eq!(error.problems(), expected);
    let empty = |response: &mut Response| response.set_status(StatusCode::NO_CONTENT);
    let error = Router::new().layer(layer::amend(empty).everywhere()).build().unwrap_err();
    assert_eq!(error.problems().len(), 1);
    assert!(error.problems()[0].contains("the status 204 has no content"), "{error}");
}

/// Purpose: a layer may put an error in place of a response, and it gets the service's shape before the
/// layers around see it.
#[test]
fn a_layer_makes_an_error() {
    let replace = |_: &Request<'_>, response: &mut Response| {
        *response = Error::conflict("too late").into_response();
    };
    let quote = |_: &Request<'_>, response: &mut Response| {
        let body = String::from_utf8_lossy(response.body().as_bytes().unwrap()).into_owned();
        response.set_body(format!("<{body}>"));
    };
    let app = build(
        Router::new()
            .errors(|error: &Error| error.code())
            .layer(layer::on_response(quote))
            .layer(layer::on_response(replace))
            .get("/x", || "x")
            .get("/async", async || "x"),
    );
    for path in ["/x", "/async", "/nowhere"] {
        let received = get(&app, path);
        assert_eq!((received.status, received.body.as_str()), (409, "<conflict>"), "{path}");
    }
}

/// Answers preflights with its name.
fn allow(name: &'static str) -> Layer {
    let preflight = move |request: &Request<'_>| match request.query() {
        Some("pass") => ControlFlow::Continue(()),
        Some("panic") => panic!("preflight"),
        _ => ControlFlow::Break(name),
    };
    Layer::new().preflight(preflight).on_response(
        move |_: &Request<'_>, response: &mut Response| {
            response.append_header(SEEN, HeaderValue::from_static(name));
        },
    )
}

/// Purpose: a preflight comes to the layer that answers it whatever precedes that (a layer that asks for
/// credentials, one that waits), whether or not there is a route; the layers around see the answer.
#[test]
fn preflights() {
    let app = build(
        Router::new()
            .layer(look("outer"))
            .layer(layer::on_request(|_: &Request<'_>| Err::<(), _>(StatusCode::UNAUTHORIZED)))
            .layer(layer::around(async |_, _: Next| StatusCode::IM_A_TEAPOT))
            .layer(allow("allowed"))
            .layer(look("inner"))
            .get("/x", || "x")
            .get("/fixed", fixed("x"))
            .any("/any", fixed("x")),
    );
    let preflight = |target: &str| {
        let fields = "Host: h\r\nAccess-Control-Request-Method: PUT\r\n";
        receive(request(&app, &format!("OPTIONS {target} HTTP/1.1\r\n{fields}\r\n")))
    };
    for path in ["/x", "/fixed", "/any", "/nowhere"] {
        let received = preflight(path);
        assert_eq!((received.status, received.body.as_str()), (200, "allowed"), "{path}");
        assert_eq!(seen(&received), format!("outer{path}"));
    }
    assert_eq!(preflight("*").body, "allowed");
    let received = preflight("/x?panic");
    assert_eq!((received.status, seen(&received)), (500, String::from("outer/x")));
    // What is not a preflight, or is let pass, goes the usual way.
    assert_eq!(send(&app, "OPTIONS", "/x").status, 401);
    assert_eq!(preflight("/x?pass").status, 401);
}

/// Purpose: a request tells the methods of its path, wherever it goes.
#[test]
fn allowed_methods() {
    let inspect = |request: &Request<'_>| {
        let methods = request.allowed_methods().unwrap_or("none").to_string();
        ControlFlow::<String>::Break(methods)
    };
    let app =
        build(Router::new().layer(layer::on_request(inspect)).get("/x", || "x").post("/x", || "x"));
    for method in ["GET", "OPTIONS", "DELETE"] {
        assert_eq!(send(&app, method, "/x").body, "GET, HEAD, POST, OPTIONS", "{method}");
    }
    assert_eq!(get(&app, "/nowhere").body, "none");
}

/// Purpose: refusals are changed by the layers that cover everything: once, if that is the same each time,
/// else for each; and their shape is the application's.
#[test]
fn refusals() {
    let constant = Router::new()
        .errors(|error: &Error| error.code())
        .layer(stamp("a").everywhere())
        .layer(look("no"))
        .get("/x", || "x");
    let close = |_: &Request<'_>| Err::<(), _>(StatusCode::FORBIDDEN);
    let log = Arc::new(Mutex::new(Vec::new()));
    let codes = log.clone();
    let note = move |_: &Request<'_>, response: &mut Response| {
        codes.lock().unwrap().push(response.error().map(Error::code));
    };
    let dynamic = Router::new()
        .layer(stamp("a").everywhere())
        .layer(layer::on_request(close).everywhere())
        .layer(look("b").everywhere())
        .layer(layer::on_response(note).everywhere())
        .get("/x", || "x");
    let app = build(Router::new().nest("/constant", constant).nest("/dynamic", dynamic));
    let mut waits = Vec::new();
    for n in 0..4 {
        let received = refused(&app, "/constant/x", n);
        assert_eq!((received.status, received.body.as_str()), (503, "overloaded"));
        assert_eq!((received.header("x-fixed"), seen(&received)), (Some("yes"), "a".into()));
        waits.push(received.header("retry-after").unwrap().to_string());
        let received = refused(&app, "/dynamic/x", n);
        assert_eq!((received.status, received.header("x-fixed")), (503, None));
        assert_eq!(received.header("content-type"), Some("application/json"));
        assert_eq!(received.header("retry-after"), waits.last().map(String::as_str));
        assert_eq!(seen(&received), "b/dynamic/x a");
    }
    waits.dedup();
    assert_eq!(waits.len(), 4);
    assert_eq!(*log.lock().unwrap(), [Some("overloaded"); 4]);
    assert_eq!(seen(&refused(&app, "/elsewhere", 0)), "");
}

/// Purpose: the server's own answers are covered by the layers that do not look at requests; and, where the
/// worker has kept the head, by the others, too.
#[test]
fn answers_of_the_server() {
    let app = build(
        Router::new()
            .layer(stamp("root").everywhere())
            .nest(
                "/in",
                Router::new()
                    .layer(look("a").everywhere())
                    .layer(stamp("b").everywhere())
                    .layer(look("no"))
                    .get("/inline", || "x")
                    .get("/async/{n}", async || "x"),
            )
            .get("/async", async || "x"),
    );
    let retained = |path: &str| retained(&app, path);
    let kept = retained("/in/async/7").expect("a layer wants to see its request");
    let received = receive(app.fail(Some(kept.route()), Error::timed_out()));
    assert_eq!((received.status, seen(&received)), (503, "b root".into()));
    let received = receive(app.fail_request(&kept, Error::timed_out()));
    assert_eq!((received.status, seen(&received)), (503, "b a/in/async/7 root".into()));
    let received = receive(app.fail_request(&kept, Error::of_reject(Reject::BodyTooLarge)));
    assert_eq!((received.status, seen(&received)), (413, "b a/in/async/7 root".into()));
    // What is answered at once, or covered by no layer that looks, need not be kept.
    assert!(retained("/in/inline").is_none());
    assert!(retained("/async").is_none());
    assert!(retained("/in/nowhere").is_none());
    // No valid request: only what the outermost router does alike to all.
    assert_eq!(seen(&receive(request(&app, "GET / HTTP/1.1\r\n\r\n"))), "root");
}

/// Purpose: a layer that observes how answers end is called, with the known parts of the request, for fixed
/// answers and refusals as well; a panic in it does no harm.
#[test]
fn ends() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let entries = log.clone();
    let note = move |request: &Request<'_>, ended: &Ended| {
        let (method, route) = (request.method(), request.matched_path().map(String::from));
        entries.lock().unwrap().push((method, route, request.path().to_string(), *ended));
    };
    let app = build(
        Router::new().get("/elsewhere", || "x").nest(
            "/in",
            Router::new()
                .layer(layer::on_end(note))
                .layer(layer::on_end(|_: &Request<'_>, _: &Ended| panic!("end")))
                .get("/x/{n}", || "x")
                .get("/fixed", fixed("x")),
        ),
    );
    let ended = Ended {
        status: StatusCode::OK,
        bytes: 99,
        duration: Duration::from_millis(5),
        is_complete: false,
    };
    for (path, route) in
        [("/in/x/7", Some("/in/x/{n}")), ("/in/fixed", Some("/in/fixed")), ("/in/nowhere", None)]
    {
        app.ended(&retained(&app, path).expect("a layer wants to see it"), &ended);
        let (method, matched, asked, how) = log.lock().unwrap().pop().expect("it was logged");
        assert_eq!((method, matched.as_deref()), (http::Method::GET, route));
        assert_eq!((asked.as_str(), how), (path, ended));
        assert_eq!((how.status(), how.bytes()), (StatusCode::OK, 99));
        assert_eq!((how.duration().as_millis(), how.is_complete()), (5, false));
    }
    assert!(retained(&app, "/elsewhere").is_none());
    assert_eq!(app.panics().load(std::sync::atomic::Ordering::Relaxed), 3);
}

/// Purpose: a layer is one value with as many parts as it was given; each of them is called, and nothing else.
#[test]
fn parts() {
    let log: Arc<Mutex<Vec<&'static str>>> = Arc::default();
    let note = |part: &'static str| {
        let log = Arc::clone(&log);
        move || log.lock().unwrap().push(part)
    };
    let request = |layer: Layer| {
        let note = note("request");
        layer.on_request(move |_: &Request<'_>| {
            note();
            Ok::<(), Error>(())
        })
    };
    let around = |layer: Layer| {
        let (enter, leave) = (Arc::new(note("in")), Arc::new(note("out")));
        layer.around(move |request: OwnedRequest, next: Next| {
            let (enter, leave) = (Arc::clone(&enter), Arc::clone(&leave));
            async move {
                enter();
                let response = next.run(request).await;
                leave();
                response
            }
        })
    };
    let amend = |layer: Layer| {
        let note = note("amend");
        layer.amend(move |_: &mut Response| note())
    };
    let response = |layer: Layer| {
        let note = note("response");
        layer.on_response(move |_: &Request<'_>, _: &mut Response| note())
    };
    for (layer, expected) in [
        // In whatever order they were given.
        (
            response(amend(around(request(Layer::new())))),
            &["request", "in", "out", "amend", "response"][..],
        ),
        (request(amend(Layer::new())), &["request", "amend"]),
        (around(Layer::new()), &["in", "out"]),
        (Layer::new(), &[]),
    ] {
        log.lock().unwrap().clear();
        let app = build(Router::new().layer(layer).get("/", || "x"));
        assert_eq!(get(&app, "/").body, "x");
        assert_eq!(*log.lock().unwrap(), expected);
    }
}

/// Purpose: an invalid layer is a problem of the application, reported once, with what to write instead.
#[test]
fn problems() {
    let around = layer::around(async |request, next: Next| next.run(request).await);
    let covered = Router::new().layer(around.everywhere()).nest("/y", Router::new());
    let error = Router::new().nest("/x", covered).build().unwrap_err();
    assert_eq!(error.problems().len(), 1);
    let problem = &error.problems()[0];
    assert!(problem.starts_with("/x: a layer with an asynchronous part cannot"), "{problem}");
    // A part that was given twice would be called once.
    let twice = layer::amend(|_: &mut Response| {}).amend(|_: &mut Response| {});
    let error = Router::new().layer(twice.problem("own")).build().unwrap_err();
    let [problem, own] = error.problems() else { panic!("{error}") };
    assert!(problem.starts_with("/: a layer has two functions for `amend`"), "{problem}");
    assert_eq!(own, "/: own");
}
