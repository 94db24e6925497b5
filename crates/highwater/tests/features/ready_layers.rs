//! The ready-made layers that look at requests and answers: tags, limits, logs, spans, and values that are checked.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use garde::Validate;
use highwater::layers::{TAGGED_BYTES_MAX, access_log, csrf, etag, rate_limit, spans};
use highwater::server::TransportChoice;
use highwater::testing::Client;
use highwater::{Form, Json, Preconditions, Query, Response, Router, StatusCode, Valid, fixed};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::answers::Answer;
use crate::served::{exchange, start};
use crate::transports::on_each_transport;

fn ask(address: SocketAddr, line: &str, fields: &[&str], content: &str) -> Answer {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let length = content.len();
    exchange(
        address,
        &format!(
            "{line} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {length}\r\n{fields}\r\n{content}"
        ),
    )
}

on_each_transport! {
    /// Purpose: content that a client has is not sent again; what has another state, method or status is.
    fn tags(transport) {
        let dated = || Response::from("dated").with_header("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT");
        let app = Router::new()
            .layer(etag())
            .get("/", || "Hello")
            .get("/own", || Response::from("mine").with_header("etag", "\"7\"").with_header("cache-control", "no-cache"))
            .get("/dated", dated)
            .get("/accepted", || (StatusCode::ACCEPTED, "later"))
            .post("/", || "Hello");
        let server = start(app, transport);
        let get = |path: &str, fields: &[&str]| ask(server.address(), &format!("GET {path}"), fields, "");
        let hello = get("/", &[]);
        let tag = hello.field("etag").expect("a tag").to_owned();
        assert!(tag.starts_with('"') && tag.len() > 30, "{tag}");
        assert_eq!(get("/", &[]).field("etag"), Some(tag.as_str()), "the same content, the same tag");
        assert_ne!(get("/dated", &[]).field("etag"), Some(tag.as_str()));
        let same = get("/", &[&format!("If-None-Match: W/{tag}")]);
        assert_eq!((same.status, same.content.as_str()), (304, ""));
        assert_eq!((same.field("etag"), same.field("content-type")), (Some(tag.as_str()), None));
        let own = get("/own", &["If-None-Match: \"7\""]);
        assert_eq!((own.status, own.field("cache-control")), (304, Some("no-cache")));
        assert_eq!(get("/own", &["If-None-Match: \"8\""]).content, "mine");
        assert_eq!(get("/own", &["If-Match: \"8\""]).status, 412);
        assert_eq!(get("/dated", &["If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT"]).status, 304);
        assert_eq!(get("/dated", &["If-Modified-Since: Sun, 06 Nov 1994 08:49:36 GMT"]).status, 200);
        let accepted = get("/accepted", &["If-None-Match: *"]);
        assert_eq!((accepted.status, accepted.field("etag")), (202, None));
        let post = ask(server.address(), "POST /", &["If-None-Match: *"], "");
        assert_eq!((post.status, post.field("etag")), (200, None));
    }

    /// Purpose: two who change the same thing do not overwrite each other's changes.
    fn states(transport) {
        let put = |conditions: Preconditions| conditions.check(Some("\"7\"")).map(|()| conditions.is_conditional().to_string());
        let create = |conditions: Preconditions| conditions.check(None).map(|()| "created");
        let server = start(Router::new().put("/", put).put("/new", create), transport);
        let put = |path: &str, field: &str| ask(server.address(), &format!("PUT {path}"), &[field], "");
        for (path, field, status) in [
            ("/", "If-Match: \"7\"", 200), ("/", "If-Match: *", 200), ("/", "If-Match: \"6\", \"7\"", 200),
            ("/", "If-Match: \"6\"", 412), ("/", "If-Match: W/\"7\"", 412), ("/", "If-None-Match: *", 412),
            ("/", "X: y", 200), ("/new", "If-None-Match: *", 200), ("/new", "If-Match: *", 412),
        ] {
            assert_eq!(put(path, field).status, status, "{path} {field}");
        }
        assert_eq!([put("/", "X: y").content, put("/", "If-Match: *").content], ["false", "true"]);
    }

    /// Purpose: a client gets its requests and no more, and learns how many are left and when to come again.
    fn limits(transport) {
        let hour = Duration::from_secs(3600);
        let app = Router::new()
            .nest("/address", Router::new().layer(rate_limit(3, hour).name("hourly")).get("/", || "served"))
            .nest("/key", Router::new()
                .layer(rate_limit(1, hour).by(|request| request.header("x-key").map(str::to_owned)))
                .get("/", || "served"));
        let server = start(app, transport);
        let get = |path: &str, fields: &[&str]| ask(server.address(), &format!("GET {path}"), fields, "");
        for left in ["\"hourly\";r=2;t=1200", "\"hourly\";r=1;t=2400", "\"hourly\";r=0;t=3600"] {
            // The address that an untrusted peer claims counts for nothing.
            let served = get("/address", &["X-Forwarded-For: 192.0.2.1"]);
            assert_eq!((served.status, served.field("ratelimit-policy")), (200, Some("\"hourly\";q=3;w=3600")));
            let (limit_state, seconds) = served.field("ratelimit").and_then(|s| s.rsplit_once('=')).expect("its state");
            let (expected, most) = left.rsplit_once('=').expect("a time");
            let (seconds, most): (u64, u64) = (seconds.parse().expect("a number"), most.parse().expect("a number"));
            assert!(limit_state == expected && seconds <= most && seconds > most - 600, "{limit_state} {seconds}");
        }
        let refused = get("/address", &[]);
        assert_eq!(refused.status, 429);
        assert!(refused.content.contains("\"code\":\"rate_limited\""), "{}", refused.content);
        let after: u64 = refused.field("retry-after").and_then(|s| s.parse().ok()).expect("seconds");
        assert!((600..=1200).contains(&after));
        assert!(refused.field("ratelimit").is_some_and(|state| state.starts_with("\"hourly\";r=0;t=")));
        let status = |key: &str| get("/key", &[&format!("X-Key: {key}")]).status;
        assert_eq!([status("a"), status("b"), status("a"), status("b")], [200, 200, 429, 429]);
        assert_eq!([get("/key", &[]).status, get("/key", &[]).status], [200, 200], "nobody's requests");
    }

    /// Purpose: a page of another site cannot act in the name of its visitor; this site, trusted ones and programs can.
    fn requests_of_other_sites(transport) {
        let layer = csrf().trust("https://shop.example");
        let server = start(Router::new().layer(layer).get("/", || "read").post("/", || "done"), transport);
        let ask = |method: &str, fields: &[&str]| ask(server.address(), &format!("{method} /"), fields, "").status;
        for (fields, status) in [
            (&[][..], 200),
            (&["Sec-Fetch-Site: same-origin"], 200),
            (&["Sec-Fetch-Site: none"], 200),
            (&["Sec-Fetch-Site: same-site"], 403),
            (&["Sec-Fetch-Site: cross-site"], 403),
            (&["Sec-Fetch-Site: "], 403),
            (&["Sec-Fetch-Site: cross-site", "Origin: https://shop.example"], 200),
            (&["Sec-Fetch-Site: cross-site", "Origin: https://shop.example.org"], 403),
            (&["Sec-Fetch-Site: same-origin", "Origin: https://evil.example"], 200), // A proxy has another name.
            (&["Origin: https://h"], 200),
            (&["Origin: http://H"], 200),
            (&["Origin: https://h:8443"], 403),
            (&["Origin: https://evil.example"], 403),
            (&["Origin: https://evilh"], 403),
            (&["Origin: null"], 403),
            (&["Origin: h"], 403),
        ] {
            assert_eq!(ask("POST", fields), status, "{fields:?}");
            assert_eq!(ask("GET", fields), 200, "{fields:?}");
        }
    }

    /// Purpose: all wrong fields are named at once, and what is no value at all as before.
    fn valid_values(transport) {
        #[derive(serde::Deserialize, Validate)]
        struct NewUser {
            #[garde(length(min = 1, max = 10))]
            name: String,
            #[garde(email)]
            email: String,
            #[garde(range(min = 18))]
            age: u8,
            #[garde(dive)]
            #[serde(default)]
            pets: Vec<Pet>,
        }

        #[derive(serde::Deserialize, Validate)]
        struct Pet {
            #[garde(length(min = 1))]
            name: String,
        }

        fn name(user: &NewUser) -> String {
            format!("{} {} {}", user.name, user.email, user.pets.iter().map(|pet| &*pet.name).collect::<String>())
        }

        let app = Router::new()
            .post("/json", |Valid(Json(user)): Valid<Json<NewUser>>| name(&user))
            .post("/form", |Valid(Form(user)): Valid<Form<NewUser>>| name(&user))
            .get("/query", |Valid(Query(user)): Valid<Query<NewUser>>| name(&user));
        let server = start(app, transport);
        let post = |path: &str, of: &str, content: &str| {
            ask(server.address(), &format!("POST {path}"), &[&format!("Content-Type: {of}")], content)
        };
        let json = |content: &str| post("/json", "application/json", content);
        let right = json(r#"{"name":"Ann","email":"ann@example.org","age":18,"pets":[{"name":"Rex"}]}"#);
        assert_eq!((right.status, right.content.as_str()), (200, "Ann ann@example.org Rex"));
        let wrong = json(r#"{"name":"","email":"ann","age":17,"pets":[{"name":"Rex"},{"name":""}]}"#);
        assert_eq!(wrong.status, 422);
        let error: serde_json::Value = serde_json::from_str(&wrong.content).expect("JSON");
        assert_eq!(error["error"]["code"], "validation_failed");
        let details = error["error"]["details"].as_array().expect("a list");
        let fields: Vec<_> = details.iter().map(|one| one["field"].as_str().expect("a name")).collect();
        assert_eq!(fields, ["age", "email", "name", "pets[1].name"]);
        assert!(details.iter().all(|one| one["message"].as_str().is_some_and(|text| !text.is_empty())));
        assert_eq!(json("{").status, 400);
        assert_eq!(post("/json", "text/plain", "{}").status, 415);
        assert!(json(r#"{"name":1}"#).content.contains("invalid_body"));
        let form = post("/form", "application/x-www-form-urlencoded", "name=x&email=x&age=17");
        assert!(form.status == 422 && form.content.contains("age, email"), "{}", form.content);
        let query = ask(server.address(), "GET /query?name=Ann&email=a@b.org&age=3", &[], "");
        assert!(query.status == 422 && query.content.contains("\"field\":\"age\""), "{}", query.content);
        let many = format!(r#"{{"name":"a","email":"a@b.org","age":20,"pets":[{}]}}"#, vec![r#"{"name":""}"#; 500].join(","));
        assert_eq!(json(&many).content.matches("\"field\"").count(), 100, "the answer is bounded");
    }
}

/// Purpose: to tag content takes a worker's time, so that of large content is bounded: it gets none, but keeps its handler's.
#[test]
fn large_content_is_not_tagged() {
    let router = Router::new()
        .layer(etag())
        .get("/at-most", || vec![b'x'; TAGGED_BYTES_MAX])
        .get("/more", || vec![b'x'; TAGGED_BYTES_MAX + 1])
        .get("/own", || ([("etag", "\"1\"")], vec![b'x'; TAGGED_BYTES_MAX + 1]));
    let client = Client::new(router);
    assert!(client.get("/at-most").header("etag").is_some());
    assert_eq!(client.get("/more").header("etag"), None);
    let known =
        client.request(highwater::Method::GET, "/own").header("if-none-match", "\"1\"").send();
    assert_eq!((known.status.as_u16(), known.header("etag")), (304, Some("\"1\"")));
}

/// Purpose: after a pause a client may come again, when it was told; the clock of tests is the one that counts.
#[test]
fn limits_pass() {
    let limit = rate_limit(2, Duration::from_secs(10));
    let app = Router::new().layer(limit).get("/", || "served");
    let client = Client::new(app);
    let status = || client.get("/").status.as_u16();
    assert_eq!([status(), status(), status()], [200, 200, 429]);
    assert_eq!(client.get("/").header("retry-after"), Some("5"));
    client.advance(Duration::from_millis(4900));
    assert_eq!(status(), 429);
    client.advance(Duration::from_millis(200));
    assert_eq!([status(), status()], [200, 429]);
    client.advance(Duration::from_secs(60));
    client.set_peer(([198, 51, 100, 7], 4711).into());
    assert_eq!([status(), status(), status()], [200, 200, 429]);
    client.set_peer(([198, 51, 100, 8], 4711).into());
    assert_eq!(status(), 200, "another client");
}

/// Purpose: each of two limits says its own state once, even if both are set up alike.
#[test]
fn limits_speak_for_themselves() {
    let limit = |key| rate_limit(5, Duration::from_secs(10)).by(move |_| Some(key));
    let app = Router::new().layer(limit(1)).layer(limit(2)).get("/", || "served");
    let answer = Client::new(app).get("/");
    let values = |wanted: &str| answer.headers.iter().filter(|(name, _)| *name == wanted).count();
    assert_eq!((values("ratelimit"), values("ratelimit-policy")), (2, 2));
}

/// Purpose: a limit that lets nothing pass is a mistake, and so is trust in everybody.
#[test]
fn set_up_wrongly() {
    for origin in ["null", "https://*.example", "shop.example", "https://shop.example/"] {
        let error =
            Router::new().layer(csrf().trust(origin)).build().expect_err(origin).to_string();
        assert!(error.contains(&format!("csrf().trust(\"{origin}\")")), "{error}");
    }
    let hour = Duration::from_secs(3600);
    for (limit, problem) in [
        (rate_limit(0, hour), "lets no request pass"),
        (rate_limit(1, Duration::ZERO), "lets no request pass"),
        (rate_limit(1, hour).name("a\"b"), "without quotes"),
        (rate_limit(1, hour).keys_max(0), "counts nobody"),
    ] {
        let error = Router::new().layer(limit).build().expect_err(problem).to_string();
        assert!(error.contains(problem), "{error}");
    }
}

/// Keeps what is said, as text.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<String>>>);

impl Sink {
    fn record_values(&self, what: &str, write: impl FnOnce(&mut dyn Visit)) {
        let mut text = Text(what.to_owned());
        write(&mut text);
        self.0.lock().expect("no test panics").push(text.0);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no test panics"))
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }
}

impl Subscriber for Sink {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        matches!(metadata.target(), "highwater::access" | "highwater::request" | "ready_layers")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.record_values("span", |text| span.record(text));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        self.record_values("record", |text| values.record(text));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.record_values("event", |text| event.record(text));
    }

    fn enter(&self, _: &Id) {
        self.record_values("enter", |_| {});
    }

    fn exit(&self, _: &Id) {
        self.record_values("exit", |_| {});
    }
}

/// Purpose: every answer is logged once, without its query, those of the server's own making included.
#[test]
fn access() {
    let sink = Sink::default();
    let _guard = tracing::subscriber::set_default(sink.clone());
    let log = access_log().skip(|request| request.path() == "/health");
    let app = Router::new()
        .layer(log)
        .get("/users/{id}", || "Hello")
        .get("/fixed", fixed("fixed"))
        .get("/health", || "well");
    let client = Client::new(app);
    client.set_header("user-agent", "test \"1\"");
    for path in ["/users/7?token=secret", "/fixed", "/none", "/health"] {
        client.get(path);
    }
    let lines = sink.take();
    assert_eq!(lines.len(), 3, "{lines:#?}");
    for part in [
        "method=\"GET\"",
        "path=\"/users/7\"",
        "route=\"/users/{id}\"",
        "status=200",
        "complete=true",
        "peer=127.0.0.1:",
        "agent=\"test \\\"1\\\"\"",
    ] {
        assert!(lines[0].contains(part), "{part} in {}", lines[0]);
    }
    assert!(!lines[0].contains("secret"));
    assert!(lines[1].contains("path=\"/fixed\"") && lines[2].contains("status=404"));
    let client = Client::new(Router::new().layer(access_log().with_query()).get("/", || ""));
    client.get("/?a=1");
    assert!(sink.take()[0].contains("path=\"/?a=1\""));
}

/// Purpose: the events of a handler are in the span of its request, which tells its route and its status.
#[test]
fn spans_around_handlers() {
    async fn handler() -> StatusCode {
        tracing::info!("first");
        tokio::task::yield_now().await;
        tracing::info!("second");
        StatusCode::INTERNAL_SERVER_ERROR
    }
    let sink = Sink::default();
    let _guard = tracing::subscriber::set_default(sink.clone());
    let client = Client::new(Router::new().layer(spans()).get("/users/{id}", handler));
    client.get("/users/7");
    let lines = sink.take();
    assert!(
        lines[0].starts_with("span") && lines[0].contains("http.request.method=\"GET\""),
        "{lines:#?}"
    );
    assert!(lines.iter().any(|line| line.contains("http.route=\"/users/{id}\"")));
    assert!(lines.iter().any(|line| line.contains("otel.name=GET /users/{id}")));
    assert!(lines.iter().any(|line| line.contains("http.response.status_code=500")));
    assert!(lines.iter().any(|line| line.contains("otel.status_code=\"ERROR\"")));
    let mut depth = 0;
    for line in &lines {
        match line.as_str() {
            "enter" => depth += 1,
            "exit" => depth -= 1,
            line if line.contains("first") || line.contains("second") => {
                assert_eq!(depth, 1, "{lines:#?}")
            }
            _ => {}
        }
    }
    assert_eq!((depth, lines.iter().filter(|line| *line == "enter").count() >= 2), (0, true));
}
