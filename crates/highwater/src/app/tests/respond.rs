//! What handlers' results become on the wire.

use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;

use super::*;

fn answer<R: IntoResponse + 'static>(result: impl Fn() -> R + Send + Sync + 'static) -> Received {
    get(&build(Router::new().get("/", result)), "/")
}

/// Purpose: every type that can be returned has the status, type and content the table in
/// `IntoResponse` says.
#[test]
fn table() {
    #[derive(Serialize)]
    struct Point {
        x: i32,
    }
    let text = Some("text/plain; charset=utf-8");
    let binary = Some("application/octet-stream");
    let check = |received: Received, status: u16, content_type: Option<&str>, body: &str| {
        assert_eq!(
            (received.status, received.header("content-type")),
            (status, content_type),
            "{body}"
        );
        assert_eq!(received.body, body);
    };
    check(answer(|| "a"), 200, text, "a");
    check(answer(|| String::from("b")), 200, text, "b");
    check(answer(|| std::borrow::Cow::Borrowed("c")), 200, text, "c");
    check(answer(|| b"d".to_vec()), 200, binary, "d");
    check(answer(|| &b"e"[..]), 200, binary, "e");
    check(answer(|| bytes::Bytes::from("f")), 200, binary, "f");
    check(answer(|| Html("<b>")), 200, Some("text/html; charset=utf-8"), "<b>");
    check(answer(|| Json(Point { x: -1 })), 200, Some("application/json"), r#"{"x":-1}"#);
    check(answer(|| Body::from("g")), 200, None, "g");
    check(answer(|| ()), 200, None, "");
    check(answer(|| StatusCode::NO_CONTENT), 204, None, "");
    check(answer(|| Some("h")), 200, text, "h");
    check(answer(|| (StatusCode::CREATED, "i")), 201, text, "i");
    check(answer(|| Ok::<_, Error>("j")), 200, text, "j");
    let json = Some("application/json");
    check(answer(|| None::<String>), 404, json, &rendered("not_found", "Not Found"));
    let unavailable = rendered("overloaded", "Service Unavailable");
    check(answer(|| StatusCode::SERVICE_UNAVAILABLE), 503, json, &unavailable);
    let conflict = || Err::<String, _>(Error::conflict("taken"));
    check(answer(conflict), 409, json, &rendered("conflict", "taken"));
    // The status meant for success does not hide an error.
    check(
        answer(move || (StatusCode::CREATED, conflict())),
        409,
        json,
        &rendered("conflict", "taken"),
    );
}

/// Purpose: header fields are added to the present ones, and an invalid field is an error, not a break in the
/// framing.
#[test]
fn headers() {
    let received = answer(|| (StatusCode::CREATED, [("Location", "/1"), ("x-a", "b")], "made"));
    assert_eq!((received.status, received.header("location")), (201, Some("/1")));
    assert_eq!(received.header("x-a"), Some("b"));
    let received = answer(|| ([(header::CONTENT_TYPE, "text/csv")], "a,b"));
    assert_eq!(received.headers, [("content-type".to_string(), "text/csv".to_string())]);
    let received = answer(|| {
        let mut headers = HeaderMap::new();
        headers.append(header::SET_COOKIE, HeaderValue::from_static("a=1"));
        headers.append(header::SET_COOKIE, HeaderValue::from_static("b=2"));
        headers.append(header::CONTENT_TYPE, HeaderValue::from_static("text/css"));
        (headers, "x")
    });
    let values: Vec<&str> = received.headers.iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!(values, ["a=1", "b=2", "text/css"]);
    for value in ["a\r\nx: y", "a\nb", "a\0"] {
        assert_eq!(answer(move || ([("x", value)], "body")).status, 500);
        assert_eq!(answer(move || Redirect::to(format!("/{value}"))).status, 500);
    }
    for name in ["", "a b", "a:", "a\r\n"] {
        assert_eq!(answer(move || ([(name, "v")], "body")).status, 500);
    }
}

/// Purpose: a handler cannot set the fields that belong to the connection.
#[test]
fn framing_is_the_servers() {
    let received = answer(|| {
        Response::from("x")
            .with_header("connection", "close")
            .with_header("Keep-Alive", "timeout=5")
            .with_header("proxy-connection", "close")
            .with_header("date", "yesterday")
    });
    assert_eq!(received.headers.len(), 1, "{received:?}");
}

/// Purpose: an answer whose framing fields are false, or whose status or content is not allowed, is not sent;
/// the log says what to write instead.
#[test]
fn what_a_handler_may_not_say() {
    let get = Asked { is_head: false, is_complete: true, upgrade: b"" };
    let head = Asked { is_head: true, ..get };
    let status = |code: u16| Response::new(StatusCode::from_u16(code).expect("three digits"));
    let stream = |length| {
        let (sender, body) = Body::channel();
        drop(sender);
        match length {
            Some(length) => {
                Response::from("").with_body(body).with_header("content-length", length)
            }
            None => Response::from("").with_body(body),
        }
    };
    let upgrade = || Response::upgrade(HeaderValue::from_static("a"), async |_: Upgraded| {});
    let with_length =
        |text: &'static str| Response::from("xyz").with_header("content-length", text);
    let chunked = || Response::from("x").with_header("Transfer-Encoding", "chunked");
    for (mut refused, teaches) in [
        (status(100), "from 200 on"),
        (status(101), "Response::upgrade"),
        (status(199), "from 200 on"),
        (status(204).with_body("x"), "no content"),
        (status(205).with_body("x"), "no content"),
        (status(304).with_body("x"), "no content"),
        (stream(None).with_status(StatusCode::NO_CONTENT), "no content"),
        (with_length("2"), "leave it out"),
        (with_length("4"), "leave it out"),
        (with_length("3, 3"), "leave it out"),
        (with_length("+3"), "leave it out"),
        (with_length(""), "leave it out"),
        (chunked(), "Body::stream"),
        (upgrade().with_status(StatusCode::OK), "as it is"),
        (Response::from("").with_body(upgrade().take_body()), "as it is"),
    ] {
        assert!(refused.is_special(), "{refused:?}");
        let error = refused.verify(&get).expect_err("it must not be sent");
        assert_eq!(error.status().as_u16(), 500);
        assert!(error.to_string().contains(teaches), "{error}");
    }
    for mut sent in [
        status(204),
        status(205),
        status(304),
        status(200),
        status(418),
        with_length("3"),
        stream(Some("5")),
    ] {
        assert!(sent.verify(&get).is_ok(), "{sent:?}");
        assert_eq!(sent.header("content-length"), None, "the connection writes it");
    }
    let mut known = stream(Some("5"));
    known.verify(&get).expect("it is true");
    assert_eq!(known.body().len(), Some(5), "what was said of a stream is kept to");
    assert!(with_length("77").verify(&head).is_ok(), "HEAD may say what GET would have");
    let mut offer = status(426).with_header("upgrade", "a");
    offer.verify(&get).expect("it may be offered");
    assert_eq!(offer.header("connection"), Some(&b"upgrade"[..]));
}

/// Purpose: a connection is handed over only to a protocol that its peer asked for, and only when
/// its request is complete (RFC 9110 §7.8).
#[test]
fn upgrades_are_asked_for() {
    let verify = |protocol: &'static str, upgrade: &[u8], is_complete| {
        let mut response =
            Response::upgrade(HeaderValue::from_static(protocol), async |_: Upgraded| {});
        let asked = Asked { is_head: false, is_complete, upgrade };
        response.verify(&asked).map_err(|error| error.status().as_u16())
    };
    assert_eq!(verify("WebSocket", b"x, websocket", true), Ok(()));
    assert_eq!(verify("a, b", b"b,a", true), Ok(()));
    assert_eq!(verify("websocket", b"", true), Err(426));
    assert_eq!(verify("websocket", b"websocket2", true), Err(426));
    assert_eq!(verify("a, b", b"a", true), Err(426));
    assert_eq!(verify("a", b"a", false), Err(400));
    assert_eq!(verify("", b"", true), Err(500), "it names no protocol, and nobody asks for one");
}

/// Purpose: an answer that no handler may give cannot be prepared either, and the error says why.
#[test]
fn fixed_responses_have_to_be_valid() {
    for (refused, teaches) in [
        (fixed(StatusCode::CONTINUE), "from 200 on"),
        (fixed((StatusCode::NO_CONTENT, "x")), "no content"),
        (fixed(([("content-length", "7")], "x")), "leave it out"),
        (fixed(([("transfer-encoding", "chunked")], "x")), "Body::stream"),
    ] {
        let error = Router::new().get("/x", refused).build().expect_err("it cannot be sent");
        assert!(error.to_string().contains(teaches), "{error}");
    }
    let app = build(Router::new().get("/x", fixed(([("content-length", "1")], "x"))));
    assert_eq!(get(&app, "/x").header("content-length"), None);
}

/// Purpose: redirects have the status they are named for (RFC 9110 §15.4).
#[test]
fn redirects() {
    for (redirect, status) in [
        (Redirect::to("/x"), 303),
        (Redirect::temporary("/x"), 307),
        (Redirect::permanent("/x"), 308),
    ] {
        let received = answer(move || redirect.clone());
        assert_eq!((received.status, received.header("location")), (status, Some("/x")));
    }
}

/// Purpose: a value that cannot be serialized is a 500, and no half of it is sent.
#[test]
fn unserializable() {
    let received = answer(|| Json(std::collections::BTreeMap::from([((1, 2), 3)])));
    assert_eq!(
        (received.status, received.body),
        (500, rendered("internal", "Internal Server Error"))
    );
}

/// Purpose: streamed content arrives, from any producer, and keeps its announced length.
#[test]
fn streams() {
    async fn pushed() -> Body {
        let (mut sender, body) = Body::channel();
        sender.send("one ").await.expect("it is read");
        sender.try_send(vec![b'2']).expect("there is room");
        sender.finish();
        body
    }
    assert_eq!(get(&build(Router::new().get("/", pushed)), "/").body, "one 2");
    async fn piped(body: BodyStream) -> Body {
        Body::stream_of_length(3, body)
    }
    let app = build(Router::new().post("/", piped));
    let raw = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";
    let response = request(&app, raw);
    assert_eq!(response.body().len(), Some(3));
    assert_eq!(receive(response).body, "abc");
}

/// Purpose: an upgrade is a 101 that names the protocol, and carries its continuation.
#[test]
fn upgrades() {
    async fn chat() -> Response {
        Response::upgrade(HeaderValue::from_static("chat"), async |mut upgraded: Upgraded| {
            while let Some(Ok(piece)) = upgraded.incoming.next().await {
                let _ = upgraded.outgoing.send(piece).await;
            }
        })
    }
    let mut response =
        request(&build(Router::new().get("/", chat)), "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(response.header("upgrade"), Some(&b"chat"[..]));
    let Repr::Upgrade(continuation) = response.take_body().into_repr() else {
        panic!("it is an upgrade");
    };
    let (feed, incoming) = channel(10, std::task::Waker::noop().clone());
    feed.push(b"hi");
    feed.finish();
    let (outgoing, echoed) = Body::channel();
    let future =
        continuation.call(Upgraded { incoming, outgoing }, Default::default()).expect("no panic");
    block_on(future).expect("no panic");
    let Repr::Stream(mut echoed, None) = echoed.into_repr() else { panic!("it is a stream") };
    let first = block_on(std::future::poll_fn(|cx| echoed.poll_next(cx)));
    assert_eq!(&first.expect("a piece").expect("no failure")[..], b"hi");
}

/// Purpose: fixed responses keep everything but the `Date`, and no layer gets to see them unless it covers
/// everything.
#[test]
fn fixed_responses() {
    let app = build(
        Router::new()
            .layer(layer::on_request(|_: &Request<'_>| Err::<(), _>(StatusCode::FORBIDDEN)))
            .layer(layer::on_response(|_: &Request<'_>, response: &mut Response| {
                response.set_status(StatusCode::IM_A_TEAPOT)
            }))
            .layer(layer::around(async |_, _: Next| StatusCode::IM_A_TEAPOT))
            .get("/text", fixed("ok"))
            .get("/json", fixed((StatusCode::CREATED, [("x-a", "b")], Json([1, 2]))))
            .get("/error", fixed(Error::not_found("never here"))),
    );
    let received = get(&app, "/text");
    assert_eq!((received.status, received.body.as_str()), (200, "ok"));
    assert_eq!(received.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(received.header("x-fixed"), Some("yes"));
    let received = get(&app, "/json");
    assert_eq!((received.status, received.body.as_str()), (201, "[1,2]"));
    assert_eq!((received.header("x-a"), received.header("x-fixed")), (Some("b"), Some("yes")));
    let received = get(&app, "/error");
    assert_eq!((received.status, received.body), (404, rendered("not_found", "never here")));
}

/// Purpose: a response is passed around by value all the time.
#[test]
fn responses_are_small_and_can_cross_threads() {
    fn is_send<T: Send>() {}
    is_send::<Response>();
    is_send::<Error>();
    is_send::<App>();
    assert!(size_of::<Response>() <= 128, "{}", size_of::<Response>());
    assert_eq!(size_of::<Error>(), size_of::<usize>());
    assert!(size_of::<Target>() <= 4, "{}", size_of::<Target>());
}

/// Purpose: an application's own error type needs a message for the peer, and nothing else: handlers of every kind may
/// return it, and it has the shape that the router gives to errors.
#[test]
fn errors_of_the_application() {
    struct Sold(u32);
    impl crate::app::IntoError for Sold {
        fn into_error(self) -> Error {
            Error::conflict(format!("{} was sold", self.0))
        }
    }
    let router = Router::new()
        .get("/inline", || Err::<Json<u8>, _>(Sold(1)))
        .get("/async", async || Err::<Json<u8>, _>(Sold(2)))
        .get("/blocking", crate::app::blocking(|| Err::<Json<u8>, _>(Sold(3))))
        .get("/fine", || Ok::<_, Sold>(Json(4)))
        .errors(|error: &Error| error.message().to_owned());
    let app = build(router);
    for (path, status, body) in [
        ("/inline", 409, "1 was sold"),
        ("/async", 409, "2 was sold"),
        ("/blocking", 409, "3 was sold"),
        ("/fine", 200, "4"),
    ] {
        let received = get(&app, path);
        assert_eq!((received.status, &*received.body), (status, body), "{path}");
    }
}
