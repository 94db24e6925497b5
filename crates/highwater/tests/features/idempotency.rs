//! Requests that clients repeat: `layers::idempotency`, in process and with its clock in the test's hands.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use highwater::layers::{Idempotency, IdempotencyKey, idempotency};
use highwater::testing::{Client, Response as Answer};
use highwater::{
    Body, BodyStream, Bytes, Extension, Handler, Method, RawQuery, Request, Response, Router,
    StatusCode, layer,
};
use serde_json::Value;

const HOUR: Duration = Duration::from_secs(3600);

/// A service that counts how often it has applied something, and answers as the query says.
struct Service {
    client: Client,
    calls: Arc<AtomicU32>,
}

fn service(once: Idempotency) -> Service {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let apply = move |RawQuery(query): RawQuery, content: Bytes| {
        let count = counted.fetch_add(1, Ordering::Relaxed) + 1;
        let response = Response::from(format!("{count} {}", content.escape_ascii()));
        match query.as_deref() {
            Some("created") => response
                .with_status(StatusCode::CREATED)
                .with_header("location", format!("/{count}"))
                .with_header("x-twice", "a"),
            Some("busy") => response.with_status(StatusCode::SERVICE_UNAVAILABLE),
            Some("failed") => response.with_status(StatusCode::INTERNAL_SERVER_ERROR),
            Some("none") => Response::new(StatusCode::NO_CONTENT),
            Some("stream") => {
                let (mut sender, body) = Body::channel();
                sender.try_send("piece").expect("it has room");
                sender.finish();
                response.with_body(body)
            }
            Some("large") => response.with_body("x".repeat(100_000)),
            Some("panic") => panic!("as it was asked for"),
            _ => response,
        }
    };
    let slow = {
        let counted = Arc::clone(&calls);
        move || {
            let counted = Arc::clone(&counted);
            async move {
                tokio::time::sleep(Duration::from_secs(10)).await;
                (counted.fetch_add(1, Ordering::Relaxed) + 1).to_string()
            }
        }
    };
    let shown = |key: Option<Extension<IdempotencyKey>>| {
        key.map_or(String::from("none"), |Extension(key)| key.as_str().to_owned())
    };
    let router = Router::new()
        .runtime()
        .layer(once)
        .post("/", apply.clone())
        .patch("/", apply.clone())
        .put("/", apply.clone())
        .post("/other", apply.clone())
        .post("/items/{id}", apply)
        .post("/slow", slow.clone())
        .post("/kept-on", slow.detached())
        .post("/key", shown)
        .post("/stream", |_: BodyStream| "never");
    Service { client: Client::new(router), calls }
}

impl Service {
    fn send(&self, method: Method, target: &str, key: &str, content: &str) -> Answer {
        let request = self.client.request(method, target).body(content.to_owned());
        match key {
            "" => request.send(),
            key => request.header("idempotency-key", key).send(),
        }
    }

    fn post(&self, target: &str, key: &str, content: &str) -> Answer {
        self.send(Method::POST, target, key, content)
    }

    fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }
}

/// The status and the code of a refusal, in the shape that the draft has.
fn refusal(answer: &Answer) -> (u16, String) {
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    let problem: Value = answer.json();
    assert_eq!(problem["status"], answer.status.as_u16());
    assert!(problem["title"].as_str().is_some_and(|title| !title.is_empty()));
    assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
    (answer.status.as_u16(), problem["code"].as_str().expect("a code").to_owned())
}

fn refused(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

/// Purpose: a repetition gets the first answer, whole, and its handler does not run; another key, another route and a request
/// without a key are new.
#[test]
fn the_first_answer_again() {
    let service = service(idempotency(HOUR));
    let first = service.post("/?created", "\"k\"", "tea");
    assert_eq!((first.status.as_u16(), first.text()), (201, "1 tea"));
    assert_eq!(first.header("idempotent-replayed"), None);
    for key in ["\"k\"", "k", "\"k\";v=1"] {
        let again = service.post("/?created", key, "tea");
        assert_eq!((again.status, again.text()), (first.status, first.text()), "{key}");
        for name in ["location", "x-twice", "content-type", "content-length"] {
            assert_eq!(again.header(name), first.header(name), "{name}");
        }
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
    }
    assert_eq!(service.post("/?created", "other", "tea").text(), "2 tea");
    assert_eq!(service.post("/other", "k", "tea").text(), "3 tea");
    assert_eq!(service.send(Method::PATCH, "/", "k", "tea").text(), "4 tea");
    assert_eq!(service.post("/", "", "tea").text(), "5 tea");
    assert_eq!(service.post("/", "", "tea").text(), "6 tea");
    assert_eq!(service.calls(), 6);
}

/// Purpose: every answer is kept, with content or without, errors too; but not those that say that nothing was applied.
#[test]
fn errors_are_answers() {
    let service = service(idempotency(HOUR));
    for (index, (target, status)) in
        [("/?failed", 500), ("/?panic", 500), ("/?none", 204)].into_iter().enumerate()
    {
        let key = format!("k{index}");
        for replayed in [None, Some("true")] {
            let answer = service.post(target, &key, "");
            assert_eq!(answer.status.as_u16(), status, "{target}");
            assert_eq!(answer.header("idempotent-replayed"), replayed, "{target}");
        }
    }
    assert_eq!(service.calls(), 3);
    for _ in 0..2 {
        let answer = service.post("/?busy", "busy", "");
        assert_eq!((answer.status.as_u16(), answer.header("idempotent-replayed")), (503, None));
    }
    assert_eq!(service.calls(), 5);
}

/// Purpose: one key for two requests is refused, whatever the difference is.
#[test]
fn a_key_for_something_else() {
    let service = service(idempotency(HOUR));
    service.post("/items/1", "k", "tea");
    let reused = refused(422, "idempotency_key_reused");
    assert_eq!(refusal(&service.post("/items/1", "k", "coffee")), reused);
    assert_eq!(refusal(&service.post("/items/2", "k", "tea")), reused);
    assert_eq!(refusal(&service.post("/items/1?a", "k", "tea")), reused);
    let typed = service.client.request(Method::POST, "/items/1").body("tea");
    let typed = typed.header("content-type", "text/plain").header("idempotency-key", "k").send();
    assert_eq!(refusal(&typed), reused);
    assert_eq!(service.calls(), 1);
}

/// Purpose: while the handler runs, the key is taken, and what differs is told so at once.
#[test]
fn while_it_runs() {
    let service = service(idempotency(HOUR));
    let mut first = service.client.connect();
    first.send("POST /slow HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nIdempotency-Key: k\r\n\r\n");
    service.client.advance(Duration::from_secs(1));
    let again = service.post("/slow", "k", "");
    assert_eq!(refusal(&again), refused(409, "idempotency_under_way"));
    assert_eq!(again.header("retry-after"), Some("1"));
    service.client.advance(Duration::from_secs(10));
    assert!(first.received().ends_with(b"\r\n\r\n1"));
    let after = service.post("/slow", "k", "");
    assert_eq!((after.text(), after.header("idempotent-replayed")), ("1", Some("true")));
}

/// A client that hangs up while the handler at `target` runs.
fn hang_up(service: &Service, target: &str) {
    let mut first = service.client.connect();
    first.send(format!(
        "POST {target} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nIdempotency-Key: k\r\n\r\n"
    ));
    service.client.advance(Duration::from_secs(1));
    drop(first);
    service.client.advance(Duration::from_secs(1));
}

/// Purpose: a handler that was dropped may have applied its request: its key is not given to another one, unless the application says
/// that it can tell. A detached handler ends, and its answer is there.
#[test]
fn the_client_hangs_up() {
    let unknown = refused(409, "idempotency_outcome_unknown");
    let once = service(idempotency(HOUR));
    hang_up(&once, "/slow");
    let answer = once.post("/slow", "k", "");
    assert_eq!((refusal(&answer), answer.header("retry-after")), (unknown, None));
    once.client.advance(HOUR);
    assert_eq!(once.post("/slow", "k", "").text(), "1", "its lifetime is over");

    let again = service(idempotency(HOUR).retry_interrupted());
    hang_up(&again, "/slow");
    assert_eq!(again.post("/slow", "k", "").text(), "1");

    let detached = service(idempotency(HOUR));
    hang_up(&detached, "/kept-on");
    let early = detached.post("/kept-on", "k", "");
    assert_eq!(refusal(&early), refused(409, "idempotency_under_way"));
    detached.client.advance(Duration::from_secs(10));
    let answer = detached.post("/kept-on", "k", "");
    assert_eq!((answer.text(), answer.header("idempotent-replayed")), ("1", Some("true")));
    assert_eq!(detached.calls(), 1);
}

/// Purpose: a key is forgotten after its lifetime, which begins with its answer, and not before.
#[test]
fn lifetime() {
    let service = service(idempotency(HOUR));
    service.post("/", "k", "");
    service.client.advance(HOUR - Duration::from_millis(10));
    assert_eq!(service.post("/", "k", "").header("idempotent-replayed"), Some("true"));
    service.client.advance(Duration::from_millis(10));
    assert_eq!(service.post("/", "k", "").header("idempotent-replayed"), None);
    assert_eq!(service.calls(), 2);
}

/// Purpose: a key that is missing, or none, is refused in the words of the draft, with the way to the manual; methods that may be
/// repeated anyway, and what has no handler, need none.
#[test]
fn missing_and_malformed() {
    let service = service(idempotency(HOUR).required().documented_at("https://shop.example/keys"));
    let missing = service.post("/", "", "");
    assert_eq!(refusal(&missing), refused(400, "idempotency_key_missing"));
    let problem: Value = missing.json();
    assert_eq!(problem["title"], "Idempotency-Key is missing");
    assert_eq!(problem["type"], "https://shop.example/keys");
    let link = "<https://shop.example/keys>; rel=\"describedby\"; type=\"text/html\"";
    assert_eq!(missing.header("link"), Some(link));
    let long = "k".repeat(256);
    for key in ["\"k", "a b", "\"\"", &long] {
        let answer = service.post("/", key, "");
        assert_eq!(refusal(&answer), refused(400, "idempotency_key_invalid"), "{key}");
    }
    assert_eq!(service.calls(), 0);
    assert_eq!(service.send(Method::PUT, "/", "", "").status.as_u16(), 200);
    assert_eq!(service.post("/nowhere", "", "").status.as_u16(), 404);
    assert_eq!(service.send(Method::DELETE, "/", "", "").status.as_u16(), 405);
}

/// Purpose: what is too large to be kept, or has no end that is known, is not applied again either.
#[test]
fn answers_that_are_not_kept() {
    let service = service(idempotency(HOUR));
    for target in ["/?stream", "/?large"] {
        assert_eq!(service.post(target, target, "").status.as_u16(), 200);
        let again = service.post(target, target, "");
        assert_eq!(refusal(&again), refused(409, "idempotency_answer_not_kept"), "{target}");
    }
    assert_eq!(service.calls(), 2);
    let larger = self::service(idempotency(HOUR).answer_bytes_max(101_000));
    larger.post("/?large", "k", "");
    assert_eq!(larger.post("/?large", "k", "").body.len(), 100_000);
}

/// Purpose: a full table refuses new keys and keeps those it has; nobody is forgotten to make room.
#[test]
fn full() {
    let service = service(idempotency(HOUR).keys_max(2));
    for key in ["a", "b"] {
        assert_eq!(service.post("/", key, "").status.as_u16(), 200);
    }
    let refused = service.post("/", "c", "");
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (503, Some("1")));
    assert!(refused.text().contains("idempotency_unavailable"), "{}", refused.text());
    assert_eq!(service.post("/", "a", "").header("idempotent-replayed"), Some("true"));
    assert_eq!(service.post("/", "", "").status.as_u16(), 200, "without a key");
    service.client.advance(HOUR);
    assert_eq!(service.post("/", "c", "").status.as_u16(), 200);
}

/// Purpose: two clients that choose the same key have nothing in common.
#[test]
fn each_client_has_its_own_keys() {
    #[derive(Clone)]
    struct User(String);

    let known = |request: &Request<'_>| {
        if let Some(name) = request.header("x-user") {
            request.insert(User(name.to_owned()));
        }
        Ok::<(), highwater::Error>(())
    };
    let once = idempotency(HOUR).by(|request| Some(request.extension::<User>()?.0));
    let calls = AtomicU32::new(0);
    let count = move || (calls.fetch_add(1, Ordering::Relaxed) + 1).to_string();
    let router = Router::new().layer(layer::on_request(known)).layer(once).post("/", count);
    let client = Client::new(router);
    for (user, expected) in
        [("ann", "1"), ("bob", "2"), ("ann", "1"), ("", "3"), ("bob", "2"), ("", "3")]
    {
        let request = client.request(Method::POST, "/").header("idempotency-key", "k");
        let request = if user.is_empty() { request } else { request.header("x-user", user) };
        assert_eq!(request.send().text(), expected, "{user}");
    }
    let long = "u".repeat(1025);
    let request = client.request(Method::POST, "/").header("idempotency-key", "k");
    assert_eq!(request.header("x-user", &long).send().status.as_u16(), 500);
}

/// Purpose: a handler sees the key; one whose content cannot be compared gets no request with a key, and others as always.
#[test]
fn handlers() {
    let service = service(idempotency(HOUR));
    assert_eq!(service.post("/key", "\"a b\"", "").text(), "a b");
    assert_eq!(service.post("/key", "", "").text(), "none");
    let refused = service.post("/stream", "k", "x");
    assert_eq!(refused.status.as_u16(), 400, "no client can make it an error of the server");
    assert!(refused.text().contains("\"idempotency_key_unsupported\""), "{}", refused.text());
    assert_eq!(service.post("/stream", "", "x").text(), "never");
}

/// Purpose: settings that cannot work are named when the application is built.
#[test]
fn settings() {
    let cases = [
        (idempotency(Duration::ZERO), "idempotency(0)"),
        (idempotency(HOUR).keys_max(0), "keys_max is 0"),
        (idempotency(HOUR).bytes_max(1023), "bytes_max is 1023"),
        (idempotency(HOUR).documented_at("see \"keys\""), "documented_at"),
    ];
    for (once, expected) in cases {
        let problem = Router::new().layer(once).post("/", || "").build().expect_err(expected);
        assert!(problem.to_string().contains(expected), "{problem}");
    }
}

/// Purpose: the document says which operations take a key, and how they are refused.
#[test]
fn described() {
    use highwater::openapi::{OpenApi, api};

    let router = Router::new()
        .openapi(OpenApi::new("Shop", "1"))
        .layer(idempotency(HOUR).required())
        .post("/orders", api(|content: String| content))
        .put("/orders", api(|content: String| content));
    let document: Value = Client::new(router).get("/openapi.json").json();
    let orders = &document["paths"]["/orders"];
    let parameter = &orders["post"]["parameters"][0];
    assert_eq!(
        (&parameter["name"], &parameter["in"]),
        (&"Idempotency-Key".into(), &"header".into())
    );
    assert_eq!(parameter["required"], true);
    for status in ["400", "409", "422"] {
        let content = &orders["post"]["responses"][status]["content"];
        assert!(content["application/problem+json"].is_object(), "{status}: {document}");
    }
    assert!(orders["post"]["responses"]["503"].is_object());
    assert!(orders["put"]["responses"]["409"].is_null());
    assert!(orders["put"]["parameters"].is_null());
}
