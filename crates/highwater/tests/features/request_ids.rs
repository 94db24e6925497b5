//! Ids for all requests: made by the server or taken over from whom it trusts, and the same wherever they are seen.

use std::net::SocketAddr;
use std::time::Duration;

use highwater::layers::request_id;
use highwater::server::TransportChoice;
use highwater::{
    Bytes, Error, Handler, Next, OwnedRequest, Request, RequestId, Response, Router, StatusCode,
    blocking, fixed, layer,
};

use crate::answers::Answer;
use crate::served::{exchange, start};
use crate::transports::on_each_transport;

fn ask(address: SocketAddr, line: &str, fields: &str, content: &str) -> Answer {
    let length = content.len();
    exchange(
        address,
        &format!(
            "{line} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {length}\r\n{fields}\r\n{content}"
        ),
    )
}

async fn pass(request: OwnedRequest, next: Next) -> Response {
    let id = request.id().map(str::to_owned).expect("it has one before any layer");
    let response: Response = next.run(request).await;
    response.with_header("x-seen", &*id)
}

on_each_transport! {
    /// Purpose: whatever answers, the answer has the id that handlers and layers see; ids differ; what untrusted peers send does
    /// not count.
    fn every_answer_has_one(transport) {
        let boom = || -> StatusCode { panic!("on purpose") };
        let never = async || std::future::pending::<&str>().await;
        let router = Router::new()
            .layer(layer::around(pass))
            .layer(request_id())
            .get("/", |RequestId(id): RequestId| id)
            .get("/async", async |RequestId(id): RequestId| id)
            .get("/blocking", blocking(|RequestId(id): RequestId| id))
            .post("/content", |RequestId(id): RequestId, _: Bytes| id)
            .get("/fails", || Err::<(), _>(Error::internal("on purpose")))
            .get("/panics", boom)
            .get("/late", never.timeout(Duration::from_millis(20)))
            .get("/own", || Response::from("x").with_header("x-request-id", "mine"))
            .get("/invalid", || Response::from("x").with_header("content-length", "7"));
        let server = start(router, transport);
        let mut all = Vec::new();
        for (line, status) in [
            ("GET /", 200),
            ("GET /async", 200),
            ("GET /blocking", 200),
            ("POST /content", 200),
            ("GET /fails", 500),
            ("GET /panics", 500),
            ("GET /late", 503),
            ("GET /own", 200),
            ("GET /invalid", 500),
            ("GET /none", 404),
            ("PUT /", 405),
        ] {
            let answer = ask(server.address(), line, "X-Request-Id: sent\r\n", "abc");
            assert_eq!(answer.status, status, "{line}: {}", answer.content);
            let id = answer.field("x-request-id").unwrap_or_else(|| panic!("{line}: no id")).to_owned();
            assert_eq!(id.len(), 16, "{line}: {id}");
            if status == 200 && line != "GET /own" {
                assert_eq!(answer.content, id, "{line}");
            }
            if let Some(seen) = answer.field("x-seen") {
                assert_eq!(seen, id, "{line}");
            }
            all.push(id);
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "each has its own");
    }

    /// Purpose: an id counts if it comes from whom it may come, and is fit for a log; fixed answers have one, too.
    fn who_may_send_one(transport) {
        let router = || Router::new().get("/", |RequestId(id): RequestId| id).get("/fixed", fixed("fixed"));
        let id_of = |layer, fields: &str| {
            let server = start(router().layer(layer), transport);
            let fixed = ask(server.address(), "GET /fixed", fields, "");
            let made = ask(server.address(), "GET /", fields, "");
            assert_eq!(made.field("x-request-id"), Some(&*made.content));
            let is_own = made.content == "r-7";
            assert_eq!(fixed.field("x-request-id") == Some("r-7"), is_own);
            made.content
        };
        let here = || request_id().sent_by("127.0.0.0/8".parse().expect("a network"));
        let sent = "X-Request-Id: r-7\r\n";
        assert_eq!(id_of(here(), sent), "r-7");
        assert_eq!(id_of(request_id().sent_by_anybody(), sent), "r-7");
        assert_eq!(id_of(here(), "").len(), 16);
        assert_eq!(id_of(here(), "X-Request-Id: a b\r\n").len(), 16, "a space would spoil a line");
        assert_eq!(id_of(here(), &format!("X-Request-Id: {}\r\n", "x".repeat(129))).len(), 16);
        let elsewhere = request_id().sent_by("10.0.0.0/8".parse().expect("a network"));
        assert_eq!(id_of(elsewhere, sent).len(), 16, "not from there");
    }
}

/// Purpose: a handler that takes an id that nobody gives is found when the application is built; where a layer of a nested
/// router gives it, the others have none.
#[test]
fn set_up_wrongly() {
    let take = |RequestId(id): RequestId| id;
    let error = Router::new().get("/", take).build().expect_err("nobody gives one").to_string();
    assert!(error.contains("GET /") && error.contains("layers::request_id()"), "{error}");
    let maybe = |id: Option<RequestId>| id.is_some().to_string();
    let inner = Router::new().layer(request_id()).get("/x", maybe);
    let router = Router::new().nest("/in", inner).get("/x", maybe);
    let client = highwater::testing::Client::new(router);
    let answers = ["/in/x", "/x"].map(|path| client.get(path));
    assert_eq!(answers.each_ref().map(|answer| answer.text()), ["true", "false"]);
    assert!(
        answers[0].header("x-request-id").is_some() && answers[1].header("x-request-id").is_none()
    );
}

/// Purpose: requests that wait for their turn, and are refused in it, keep their ids: none is made twice.
#[test]
fn one_id_from_begin_to_end() {
    let logged = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let ends = std::sync::Arc::clone(&logged);
    let end = move |request: &Request<'_>, _: &highwater::layer::Ended| {
        ends.lock().expect("no test panics").push(request.id().map(str::to_owned));
    };
    let router = Router::new()
        .layer(layer::on_end(end))
        .layer(request_id())
        .post("/", async |RequestId(id): RequestId, content: Bytes| {
            format!("{id} {}", content.len())
        });
    let client = highwater::testing::Client::new(router);
    let mut connection = client.connect();
    for piece in ["POST / HTTP/1.1\r\nHost: h\r\nContent-Le", "ngth: 4\r\n\r\nab", "cd"] {
        connection.send(piece);
    }
    let received = String::from_utf8(connection.received().to_vec()).expect("text");
    let logged = logged.lock().expect("no test panics").clone();
    let [Some(id)] = &logged[..] else { panic!("{logged:?}") };
    assert!(received.ends_with(&format!("{id} 4")), "{received}");
    assert!(received.contains(&format!("x-request-id: {id}\r\n")), "{received}");
}
