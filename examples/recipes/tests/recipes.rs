//! The recipes of `docs/recipes.md`, each with requests of a client.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::io::Write as _;
use std::num::NonZero;
use std::sync::{Arc, Mutex};

use highwater::cookies::Key;
use highwater::testing::{Client, Response};
use highwater::{
    Error, Form, Json, Method, Query, Redirect, Request, Router, Running, Server, ServerConfig,
    State, StatusCode,
};
use highwater_example_recipes::passwords::{self, HASHES_MAX, PASSWORD_BYTES_MAX, Users};
use highwater_example_recipes::sign_in::Provider;
use highwater_example_recipes::{decompression, sessions, sign_in, templates, traces};
use oauth2::{PkceCodeChallenge, PkceCodeVerifier, url};
use opentelemetry::trace::{SpanKind, Status, TraceId, TracerProvider as _};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use serde::Deserialize;
use serde_json::{Value, json};
use tower_sessions::MemoryStore;
use tracing_subscriber::layer::SubscriberExt as _;

/// The name and the value of the cookie that an answer sets.
fn cookie(answer: &Response) -> String {
    let cookie = answer.header("set-cookie").expect("it sets one");
    cookie.split(';').next().expect("it has a value").to_owned()
}

/// Purpose: a session lasts over requests, its data are not in the cookie, and after its end the cookie is worthless.
#[test]
fn sessions_end_when_the_server_ends_them() {
    let client = Client::new(sessions::routes(MemoryStore::default()));
    let first = client.get("/visits");
    assert_eq!(first.text(), "1");
    let ann = cookie(&first);
    assert_eq!(client.get("/visits").text(), "1", "without the cookie it is another session");
    client.set_header("cookie", &ann);
    assert_eq!((client.get("/visits").text(), client.get("/visits").text()), ("2", "3"));
    assert_eq!(client.post("/sign-out", "").status, 204);
    assert_eq!(client.get("/visits").text(), "1");
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
    encoder.write_all(content).expect("into memory");
    encoder.finish().expect("into memory")
}

/// Purpose: handlers get content as it was, a few bytes that become too many are 413, and an unknown coding is 415.
#[test]
fn requests_are_decompressed_within_a_limit() {
    let client = Client::new(decompression::routes());
    let send = |coding: &str, content: Vec<u8>| {
        let request = client.request(Method::POST, "/records").header("content-encoding", coding);
        request.body(content).send()
    };
    let max = usize::try_from(decompression::DECOMPRESSED_BYTES_MAX).expect("it fits");
    assert_eq!(send("gzip", gzip(&vec![0; max])).text(), max.to_string());
    assert_eq!(send("gzip", gzip(&vec![0; max + 1])).status, 413);
    assert_eq!(send("lzma", b"x".to_vec()).status, 415);
    assert_eq!(client.post("/records", "plain").text(), "5");
}

/// Nobody yet, and the least cost: without optimization a real one takes a second.
fn users() -> Users {
    let cost = argon2::Params::new(argon2::Params::MIN_M_COST, 1, 1, None).expect("it is allowed");
    Users::new(cost).expect("there is randomness")
}

/// Purpose: only the right password signs a user in, an unknown name is refused like a wrong password, a name is taken once,
/// and passwords that are too short or would cost too much are refused.
#[test]
fn a_password_signs_in_whoever_has_signed_up() {
    let client = Client::new(passwords::routes(users()));
    let send = |path: &str, name: &str, password: &str| {
        client.post_json(path, &json!({ "name": name, "password": password }))
    };
    assert_eq!(send("/sign-up", "ann", "open sesame").status, 201);
    assert_eq!(send("/sign-up", "ann", "another one").status, 409);
    assert_eq!(send("/sign-in", "ann", "open sesame").text(), "welcome");
    let wrong = send("/sign-in", "ann", "another one");
    let unknown = send("/sign-in", "bob", "open sesame");
    assert_eq!((wrong.status.as_u16(), unknown.status.as_u16()), (401, 401));
    assert_eq!(wrong.text(), unknown.text(), "nobody learns which names there are");
    assert_eq!(send("/sign-in", "bob", "").status, 401, "not even with the password of nobody");
    let length = |length| send("/sign-up", &format!("name {length}"), &"x".repeat(length)).status;
    let around = [7, 8, PASSWORD_BYTES_MAX, PASSWORD_BYTES_MAX + 1].map(|it| length(it).as_u16());
    assert_eq!(around, [422, 201, 201, 422]);
}

/// Purpose: while hashes are computed, or wait for it, the worker answers others; and there are no more hashes at once than
/// their memory allows.
#[test]
fn hashes_delay_nobody_and_are_bounded() {
    let router = passwords::routes(users());
    let client = Client::new(Router::new().merge(router).get("/", || "at once"));
    client.hold_pool(true);
    let content = json!({ "name": "ann", "password": "open sesame" }).to_string();
    let request = format!(
        "POST /sign-in HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{content}",
        content.len()
    );
    let mut under_way: Vec<_> = (0..=HASHES_MAX).map(|_| client.connect()).collect();
    under_way.iter_mut().for_each(|connection| connection.send(&request));
    let mut refused = under_way.pop().expect("one too many");
    assert!(refused.received().starts_with(b"HTTP/1.1 503"));
    assert_eq!(client.get("/").text(), "at once");
    assert!(under_way.iter_mut().all(|connection| connection.received().is_empty()));
    client.hold_pool(false);
    for mut connection in under_way {
        assert!(connection.received().starts_with(b"HTTP/1.1 401"), "nobody has signed up");
    }
}

/// Purpose: a page has its data, its text is escaped, and an empty list has its own sentence.
#[test]
fn templates_escape_what_they_show() {
    let client = Client::new(templates::routes());
    let page = client.get("/todos/ann");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let expected = "<ul>\n  <li>buy &#60;milk&#62; &#38; tea</li>\n  <li>read ✓</li>\n</ul>";
    assert!(page.text().contains(expected), "{}", page.text());
    let nobody = client.get("/todos/%3Cscript%3E");
    assert!(nobody.text().contains("<title>&#60;script&#62;'s todos</title>"), "{}", nobody.text());
    assert!(nobody.text().contains("<li>Nothing to do.</li>"), "{}", nobody.text());
}

/// Purpose: each request is a span of kind server in the client's trace, with the names of OpenTelemetry's conventions.
#[test]
fn requests_are_spans_of_their_clients_traces() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("shop"));
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::with_default(subscriber, || {
        let client = Client::new(traces::routes());
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let answer = client.request(Method::GET, "/orders/7").header("traceparent", parent).send();
        assert_eq!(answer.status, 200);
        assert_eq!(client.get("/orders/8").status, 200);
    });
    provider.force_flush().expect("it is in memory");
    let spans = exporter.get_finished_spans().expect("they are in memory");
    let spans: Vec<_> = spans.iter().filter(|span| span.name == "GET /orders/{id}").collect();
    let [of_client, alone] = &spans[..] else { panic!("{spans:?}") };
    let trace = TraceId::from_hex("0af7651916cd43dd8448eb211c80319c").expect("it is one");
    assert_eq!(of_client.span_context.trace_id(), trace);
    assert_eq!(of_client.parent_span_id.to_string(), "b7ad6b7169203331");
    assert_ne!(alone.span_context.trace_id(), trace);
    for span in spans {
        assert_eq!((&span.span_kind, &span.status), (&SpanKind::Server, &Status::Unset));
        let value = |name: &str| {
            let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == name);
            found.map(|attribute| attribute.value.to_string())
        };
        assert_eq!(value("http.route").as_deref(), Some("/orders/{id}"));
        assert_eq!(value("http.request.method").as_deref(), Some("GET"));
        assert_eq!(value("http.response.status_code").as_deref(), Some("200"));
        assert_eq!(span.events.len(), 1, "the handler's event");
    }
}

/// Serves on a real port: the client of the provider is on the network.
fn start(router: Router) -> Running {
    let config = ServerConfig {
        listen: vec![([127, 0, 0, 1], 0).into()],
        metrics: None,
        workers: NonZero::new(1),
        ..ServerConfig::default()
    };
    Server::new(router).config(config).start().expect("it serves")
}

/// The codes that a provider has given out, each with its challenge.
type Codes = Arc<Mutex<HashMap<String, String>>>;

#[derive(Deserialize)]
struct Authorize {
    redirect_uri: String,
    state: String,
    code_challenge: String,
}

#[derive(Deserialize)]
struct Token {
    code: String,
    code_verifier: String,
}

/// A provider where everybody is ann.
fn provider() -> Router {
    fn authorize(State(codes): State<Codes>, Query(query): Query<Authorize>) -> Redirect {
        codes.lock().expect("it is sound").insert("the-code".into(), query.code_challenge);
        Redirect::to(format!("{}?code=the-code&state={}", query.redirect_uri, query.state))
    }
    fn token(State(codes): State<Codes>, Form(form): Form<Token>) -> (StatusCode, Json<Value>) {
        let challenge = codes.lock().expect("it is sound").remove(&form.code);
        let verifier = PkceCodeVerifier::new(form.code_verifier);
        let given = PkceCodeChallenge::from_code_verifier_sha256(&verifier);
        match challenge {
            Some(challenge) if challenge == given.as_str() => {
                let token = json!({ "access_token": "ann's", "token_type": "bearer" });
                (StatusCode::OK, Json(token))
            }
            _ => (StatusCode::BAD_REQUEST, Json(json!({ "error": "invalid_grant" }))),
        }
    }
    fn user_info(request: Authorization) -> Result<Json<Value>, Error> {
        match request.0.as_deref() {
            Some("Bearer ann's") => Ok(Json(json!({ "sub": "ann" }))),
            _ => Err(Error::unauthorized("not that token")),
        }
    }
    Router::new()
        .state(Codes::default())
        .get("/authorize", authorize)
        .post("/token", token)
        .get("/userinfo", user_info)
}

struct Authorization(Option<String>);

impl highwater::FromRequest for Authorization {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        Ok(Authorization(request.header("authorization").map(str::to_owned)))
    }
}

/// A browser that keeps cookies, and follows no redirect by itself.
struct Browser {
    client: highwater_testkit::Client,
    cookies: HashMap<String, String>,
}

impl Browser {
    fn of(server: &Running) -> Browser {
        let client = highwater_testkit::Client::connect(server.address());
        Browser { client, cookies: HashMap::new() }
    }

    fn get(&mut self, target: &str) -> highwater_testkit::Answer {
        let cookies: Vec<String> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let fields = format!("Cookie: {}\r\n", cookies.join("; "));
        let answer = self.client.call("GET", target, &fields, "");
        for (_, value) in answer.headers.iter().filter(|(name, _)| name == "set-cookie") {
            let (name, rest) = value.split_once('=').expect("a cookie has a name");
            let value = rest.split(';').next().unwrap_or_default();
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        answer
    }

    /// The path and query that an answer leads to.
    fn redirect(answer: &highwater_testkit::Answer) -> String {
        assert_eq!(answer.status, 303, "{}", answer.text());
        let location = answer.header("location").expect("it leads somewhere");
        let Ok(url) = url::Url::parse(location) else { return location.to_owned() };
        format!("{}?{}", url.path(), url.query().unwrap_or_default())
    }
}

/// Purpose: a browser that comes back with the code is signed in; without its cookie, with another state, or with a used code
/// it is not, and neither is one whose user has declined. A provider that is down is no fault of its users.
#[test]
fn sign_in_at_a_provider() {
    let identity = start(provider());
    let issuer = format!("http://{}", identity.address());
    let site = Provider::new(&issuer, "http://shop.example/callback").expect("they are URLs");
    let shop = start(sign_in::routes(site, Key::from(&[7; 64])));
    let (mut ann, mut at_provider) = (Browser::of(&shop), Browser::of(&identity));
    assert_eq!(ann.get("/me").status, 401);
    let there = Browser::redirect(&ann.get("/sign-in"));
    assert!(there.starts_with("/authorize?") && there.contains("code_challenge_method=S256"));
    let back = Browser::redirect(&at_provider.get(&there));
    assert!(back.starts_with("/callback?code=the-code&state="), "{back}");

    let mut mallory = Browser::of(&shop);
    assert_eq!(mallory.get(&back).status, 400, "begun by another browser");
    assert_eq!(ann.get("/callback?code=the-code&state=another").status, 403);
    let stranger = back.replace("the-code", "another-code");
    assert_eq!(ann.get(&stranger).status, 401);
    let with = |answer: &str| back.replace("code=the-code", answer);
    assert_eq!(ann.get(&with("error=access_denied")).status, 403);
    assert_eq!(ann.get(&with("error=server_error")).status, 502);
    assert_eq!(ann.get(&with("neither=nor")).status, 400);

    assert_eq!(Browser::redirect(&ann.get(&back)), "/me");
    assert_eq!(ann.get("/me").text(), "ann");
    assert_eq!(ann.get(&back).status, 400, "the cookie of the sign-in is gone");
    assert_eq!(mallory.get("/me").status, 401);

    let back = Browser::redirect(&at_provider.get(&Browser::redirect(&mallory.get("/sign-in"))));
    drop((at_provider, identity));
    assert_eq!(mallory.get(&back).status, 502, "nobody answers");
}
