//! Two ready layers with a memory: answers that are kept, and forms that repeat a token.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use highwater::cookies::Key;
use highwater::header::{CACHE_CONTROL, HeaderValue};
use highwater::layers::{CsrfToken, csrf_tokens, etag, rate_limit, request_id, response_cache};
use highwater::proxies::TrustedProxies;
use highwater::testing::{Client, Response as Answer};
use highwater::{
    BodyStream, Error, Form, FromRequest, Method, PeerAddr, PeerCertificates, Request, Response,
    Router, StatusCode, routing,
};
use serde::Deserialize;
use tokio::sync::oneshot;

const MINUTE: Duration = Duration::from_secs(60);

/// Answers how often it was called, as the query says.
fn counted(
    calls: &Arc<AtomicU32>,
) -> impl Fn(highwater::RawQuery) -> Response + Send + Sync + 'static {
    let calls = Arc::clone(calls);
    move |highwater::RawQuery(query)| {
        let response = Response::from((calls.fetch_add(1, Ordering::Relaxed) + 1).to_string());
        match query.as_deref() {
            Some("private") => response.with_header("cache-control", "private, max-age=9"),
            Some("private-too") => {
                let mut response = response.with_header("cache-control", "max-age=9");
                response.append_header(CACHE_CONTROL, HeaderValue::from_static("private"));
                response
            }
            Some("vary") => response.with_header("vary", "accept"),
            Some("cookie") => response.with_header("set-cookie", "a=b"),
            Some("gone") => response.with_status(StatusCode::GONE),
            Some("large") => response.with_body("x".repeat((1 << 20) + 1)),
            _ => response,
        }
    }
}

fn cached(cache: highwater::layers::ResponseCache) -> (Client, Arc<AtomicU32>) {
    let calls = Arc::new(AtomicU32::new(0));
    let router = Router::new().layer(cache);
    let client = Client::new(router.get("/", counted(&calls)).post("/", counted(&calls)));
    (client, calls)
}

/// Purpose: an answer is given again until its lifetime ends, with its age and its fields, to every request for the same.
#[test]
fn answers_are_kept() {
    let (client, calls) = cached(response_cache(MINUTE));
    let first = client.get("/");
    assert_eq!((first.text(), first.header("age")), ("1", None));
    client.advance(MINUTE - Duration::from_millis(1));
    let again = client.get("/");
    assert_eq!((again.text(), again.header("age")), ("1", Some("59")));
    assert_eq!(again.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(client.request(Method::HEAD, "/").send().header("age"), Some("59"));
    assert_eq!(client.get("/?other").text(), "2", "another query is another answer");
    client.advance(Duration::from_millis(1));
    assert_eq!(client.get("/").text(), "3");
    assert_eq!(calls.load(Ordering::Relaxed), 3);
}

/// Purpose: nobody gets what was made for somebody else, nor an answer that must not be kept.
#[test]
fn what_is_not_for_everybody_is_not_kept() {
    let (client, _) = cached(response_cache(MINUTE));
    for target in ["/?private", "/?private-too", "/?vary", "/?cookie", "/?gone", "/?large"] {
        let (one, two) = (client.get(target), client.get(target));
        assert_eq!(two.header("age"), None, "{target}");
        assert!(one.body != two.body || target == "/?large", "{target}");
    }
    assert_eq!(client.get("/").header("age"), None);
    for (name, value) in [
        ("authorization", "Basic x"),
        ("cookie", "a=b"),
        ("range", "bytes=0-"),
        ("cache-control", "x, No-Cache"),
    ] {
        let asked = client.request(Method::GET, "/").header(name, value).send();
        assert_eq!(asked.header("age"), None, "{name}");
    }
    let fresh = client.request(Method::GET, "/").header("cache-control", "max-age=9");
    assert_eq!(fresh.header("cache-control", "no-cache").send().header("age"), None);
    assert!(client.get("/").header("age").is_some());
    assert_eq!(client.post("/", "").header("age"), None);
}

/// Purpose: an answer that comes from another cache is as old as that says, and the fields that a layer within has set for one request are
/// nobody else's.
#[test]
fn what_answers_bring_with_them() {
    let page = |age: highwater::RawQuery| {
        let age = age.0.unwrap_or_default();
        Response::from("page").with_header("cache-control", "max-age=30").with_header("age", age)
    };
    let router = Router::new().layer(response_cache(MINUTE)).layer(request_id());
    let client = Client::new(router.layer(rate_limit(9, MINUTE)).get("/", page));
    let age = |target| client.get(target).header("age").map(str::to_owned);
    assert_eq!(age("/?20").as_deref(), Some("20"));
    client.advance(Duration::from_secs(9));
    let kept = client.get("/?20");
    assert_eq!((kept.header("age"), kept.header("x-request-id")), (Some("29"), None));
    assert_eq!(kept.header("ratelimit"), None);
    client.advance(Duration::from_secs(1));
    assert_eq!(age("/?20").as_deref(), Some("20"), "it was kept for ten seconds");
    for _ in 0..2 {
        assert!(client.get("/?30").header("x-request-id").is_some(), "it is stale already");
    }
}

/// Purpose: content of a request is a part of what it asks for, which the key does not have: neither is its answer kept, nor does it get
/// one that was.
#[test]
fn requests_with_content_pass_by() {
    let router = Router::new().layer(response_cache(MINUTE)).get("/", |query: String| query);
    let router = router.get("/later", async |mut query: BodyStream| {
        let piece = query.next().await.transpose().expect("it arrives").unwrap_or_default();
        String::from_utf8_lossy(&piece).into_owned()
    });
    let client = Client::new(router);
    for path in ["/", "/later"] {
        let ask = |body: &str| client.request(Method::GET, path).body(body.to_owned()).send();
        assert_eq!(ask("a").text(), "a");
        let other = ask("b");
        assert_eq!((other.text(), other.header("age")), ("b", None), "{path}");
        assert_eq!(client.get(path).text(), "", "{path}");
        assert_eq!(client.get(path).header("age"), Some("0"), "{path}");
        assert_eq!(ask("c").text(), "c", "{path}");
    }
}

/// Purpose: an answer is as old as its request, so a slow one that was begun before replaces neither a newer one nor what was
/// changed meanwhile, and does not count as new.
#[test]
fn slow_answers_are_old() {
    let waiting: Arc<Mutex<Vec<oneshot::Sender<()>>>> = Arc::default();
    let (calls, waits) = (AtomicU32::new(0), Arc::clone(&waiting));
    let page = move || {
        let (call, waits) = (calls.fetch_add(1, Ordering::Relaxed) + 1, Arc::clone(&waits));
        async move {
            if call % 2 == 1 {
                let (sender, receiver) = oneshot::channel();
                waits.lock().expect("unpoisoned").push(sender);
                receiver.await.expect("the test tells it");
            }
            call.to_string()
        }
    };
    let release = || waiting.lock().expect("unpoisoned").pop().expect("it waits").send(());
    let router = Router::new().layer(response_cache(MINUTE)).get("/", page).post("/", || "done");
    let client = Client::new(router);
    let first = client.request(Method::GET, "/").begin();
    client.advance(Duration::from_secs(1));
    assert_eq!(client.get("/").text(), "2");
    release().expect("it listens");
    assert_eq!(first.response().text(), "1");
    assert_eq!(client.get("/").text(), "2", "the newer one stays");

    client.advance(MINUTE);
    let third = client.request(Method::GET, "/").begin();
    client.advance(Duration::from_secs(9));
    release().expect("it listens");
    assert_eq!(third.response().text(), "3");
    assert_eq!(client.get("/").header("age"), Some("9"));

    client.advance(MINUTE);
    assert_eq!(client.get("/").text(), "4");
    client.advance(MINUTE);
    let fifth = client.request(Method::GET, "/").begin();
    client.advance(Duration::from_secs(1));
    assert_eq!(client.post("/", "").text(), "done");
    release().expect("it listens");
    assert_eq!(fifth.response().text(), "5");
    assert_eq!(client.get("/").text(), "6", "the fifth may not know what was changed");
}

/// Purpose: a change that succeeded makes the answer of its target outdated, one that failed does not, and what it did elsewhere
/// neither; a client that wants a fresh answer renews it for all.
#[test]
fn changes_make_answers_outdated() {
    let calls = Arc::new(AtomicU32::new(0));
    let fails = || StatusCode::CONFLICT;
    let router = Router::new().layer(response_cache(MINUTE)).get("/{page}", counted(&calls));
    let router = router.post("/{page}", || highwater::Redirect::to("/a"));
    let client = Client::new(router.delete("/{page}", || "gone").put("/{page}", fails));
    let (a, b) = (client.get("/a").text().to_owned(), client.get("/b").text().to_owned());
    assert_eq!((&*a, &*b), ("1", "2"));
    assert_eq!(client.put("/a", "").status, 409);
    assert_eq!(client.get("/a").text(), "1");
    assert_eq!(client.post("/a", "").status, 303);
    assert_eq!((client.get("/a").text(), client.get("/b").text()), ("3", "2"));
    assert_eq!(client.request(Method::DELETE, "/b").header("cookie", "a=b").send().status, 200);
    assert_eq!(client.get("/b").text(), "4");
    let fresh = client.request(Method::GET, "/b").header("cache-control", "no-cache").send();
    assert_eq!((fresh.text(), client.get("/b").text()), ("5", "5"));
    client.request(Method::GET, "/b").header("cache-control", "no-store").send();
    assert_eq!(client.get("/b").text(), "5");
}

/// Purpose: only a request whose answer can be kept takes the turn to renew one, and a 304 renews it: with its tag for as long as the
/// layer says, with another tag not at all.
#[test]
fn turns_are_taken_by_requests_that_renew() {
    let state = Arc::new(Mutex::new("old"));
    let calls = Arc::new(AtomicU32::new(0));
    let (shown, counted) = (Arc::clone(&state), Arc::clone(&calls));
    let page = move || {
        let call = counted.fetch_add(1, Ordering::Relaxed) + 1;
        let body = *shown.lock().expect("unpoisoned");
        Response::from(body).with_header("x-call", call.to_string())
    };
    let cache = response_cache(MINUTE).stale_while_revalidate(MINUTE);
    let client = Client::new(Router::new().layer(cache).layer(etag()).get("/", page));
    let ask = |name, value: &str| client.request(Method::GET, "/").header(name, value).send();
    let call = |answer: Answer| answer.header("x-call").map(str::to_owned);
    let tag = client.get("/").header("etag").expect("the layer has made one").to_owned();

    client.advance(MINUTE);
    assert_eq!(client.request(Method::HEAD, "/").send().header("x-call"), Some("2"));
    assert_eq!(call(client.get("/")).as_deref(), Some("3"), "nobody renews it yet");
    client.advance(MINUTE);
    assert_eq!(ask("if-none-match", &tag).status, 304);
    let renewed = client.get("/");
    assert_eq!((renewed.header("age"), renewed.header("x-call")), (Some("0"), Some("4")));
    assert_eq!(renewed.text(), "old");

    client.advance(MINUTE);
    let new = Client::new(Router::new().layer(etag()).get("/", || "new"));
    let tag = new.get("/").header("etag").expect("the layer has made one").to_owned();
    *state.lock().expect("unpoisoned") = "new";
    assert_eq!(ask("if-none-match", &tag).status, 304);
    assert_eq!(client.get("/").text(), "new", "the kept one is not what the 304 is about");
}

/// Purpose: what an answer takes besides its content counts, and one that is too large for all there is room for costs no other
/// its place.
#[test]
fn kept_bytes_are_bounded() {
    let calls = Arc::new(AtomicU32::new(0));
    let called = Arc::clone(&calls);
    let page = move |highwater::RawQuery(query): highwater::RawQuery| {
        called.fetch_add(1, Ordering::Relaxed);
        let size = if query.as_deref() == Some("large") { 50_001 } else { 0 };
        Response::from("x".repeat(size)).with_header("x-long", "x".repeat(1000))
    };
    let cache = response_cache(MINUTE).bytes_max(100_000);
    let client = Client::new(Router::new().layer(cache).get("/", page));
    let is_kept = |target: &str| client.get(target).header("age").is_some();
    assert!(!is_kept("/?small"));
    (0..3).for_each(|_| assert!(!is_kept("/?large")));
    assert!(is_kept("/?small"), "it was asked for before the large one");
    (0..200).for_each(|number| assert!(!is_kept(&format!("/?{number}"))));
    let kept = (0..200).rev().filter(|number| is_kept(&format!("/?{number}"))).count();
    assert!((30..100).contains(&kept), "{kept}: each takes more than 1000 bytes");
}

/// Purpose: after its lifetime one request renews an answer, and the others get the old one meanwhile; if nobody has renewed
/// it in time, it is not given any more.
#[test]
fn stale_answers_are_renewed_by_one() {
    let (client, _) = cached(response_cache(MINUTE).stale_while_revalidate(MINUTE));
    assert_eq!(client.get("/").text(), "1");
    client.advance(MINUTE);
    assert_eq!(client.get("/").text(), "2", "the first request after it renews it");
    assert_eq!(client.get("/").header("age"), Some("0"));
    client.advance(3 * MINUTE);
    assert_eq!(client.get("/").text(), "3");
}

/// Purpose: however many targets clients ask for, no more answers are kept than may be; and what is asked for all the time
/// stays.
#[test]
fn kept_answers_are_bounded() {
    let (client, calls) = cached(response_cache(MINUTE).entries_max(20));
    let often = "/?often";
    client.get(often);
    for number in 0..100 {
        client.get(&format!("/?{number}"));
        assert!(client.get(often).header("age").is_some(), "{number}");
    }
    let before = calls.load(Ordering::Relaxed);
    (0..100).for_each(|number| drop(client.get(&format!("/?{number}"))));
    assert!(calls.load(Ordering::Relaxed) - before >= 80, "at most twenty were kept");
    let error =
        Router::new().layer(response_cache(Duration::ZERO)).build().expect_err("it keeps nothing");
    assert!(error.to_string().contains("leave the layer out"), "{error}");
}

/// Purpose: an answer is kept for as long as it says itself, at most for the layer's lifetime; not at all if that is nothing,
/// and not stale where it forbids that. The longest time that can be written is one.
#[test]
fn answers_say_how_long_they_are_fresh() {
    const LAST: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (name, value, fresh, stale) in [
        ("x-other", "-", 60, true),
        ("cache-control", "max-age=600", 60, true),
        ("cache-control", "public, max-age=10", 10, true),
        ("cache-control", "max-age=30, s-maxage=10", 10, false),
        ("cache-control", "must-revalidate", 60, false),
        ("cache-control", "proxy-revalidate, max-age=10", 10, false),
        ("cache-control", "max-age=0", 0, false),
        ("cache-control", "max-age=soon", 0, false),
        ("expires", LAST, 0, false),
        ("expires", "0", 0, false),
    ] {
        let calls = AtomicU32::new(0);
        let page = move || {
            let call = calls.fetch_add(1, Ordering::Relaxed) + 1;
            // The one that is to renew it fails, so that the next one would be given the stale one.
            let status = if call == 2 { 500 } else { 200 };
            let status = StatusCode::from_u16(status).expect("it is one");
            Response::from(call.to_string()).with_header(name, value).with_status(status)
        };
        let cache = response_cache(MINUTE).stale_while_revalidate(Duration::MAX);
        let client = Client::new(Router::new().layer(cache).get("/", page));
        assert_eq!(client.get("/").text(), "1", "{value}");
        if fresh > 0 {
            client.advance(Duration::from_millis(fresh * 1000 - 1));
            assert_eq!(client.get("/").text(), "1", "{value}");
            client.advance(Duration::from_millis(1));
        }
        assert_eq!(client.get("/").status, 500, "{value}");
        assert_eq!(client.get("/").text(), if stale { "1" } else { "3" }, "{value}");
    }
}

/// Purpose: a client that has the kept answer is answered 304, by its tag or its date; conditions that are not for caches reach
/// the handler.
#[test]
fn kept_answers_are_compared_with_what_clients_have() {
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let page = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Response::from("Hello").with_header("last-modified", DATE)
    };
    let cache = response_cache(MINUTE);
    let client = Client::new(Router::new().layer(cache).layer(etag()).get("/", page));
    let tag = client.get("/").header("etag").expect("the layer has made one").to_owned();
    let ask = |name, value: &str| client.request(Method::GET, "/").header(name, value).send();
    for (name, value, status) in [
        ("if-none-match", &*tag, 304),
        ("if-none-match", "\"other\"", 200),
        ("if-modified-since", DATE, 304),
    ] {
        let answer = ask(name, value);
        assert_eq!((answer.status.as_u16(), answer.header("age")), (status, Some("0")), "{value}");
        assert_eq!(answer.header("etag"), Some(&*tag));
    }
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!(ask("if-match", "\"other\"").status, 412);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

/// What applications write to learn of their clients: extractors of their own.
struct ClientAddress(String);

struct IsProven(bool);

impl FromRequest for ClientAddress {
    const PEER: bool = true;

    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let client = request.client(&TrustedProxies::default());
        client.map(|ip| ClientAddress(ip.to_string())).ok_or_else(|| Error::internal("no peer"))
    }
}

impl FromRequest for IsProven {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        Ok(IsProven(request.extension::<PeerCertificates>().is_some()))
    }
}

/// Purpose: an answer that was made with something of its client's own is not kept, although the layer that sets the cookie
/// is around the cache, and neither is that for a client who has none.
#[test]
fn what_handlers_take_of_one_client_is_not_kept() {
    let calls = AtomicU32::new(0);
    let app = Router::new()
        .layer(csrf_tokens(key()))
        .layer(response_cache(MINUTE))
        .get("/form", |token: CsrfToken| token.field())
        .get("/form-later", async |token: CsrfToken| token.field())
        .get("/peer", |PeerAddr(_)| "your address")
        .get("/maybe", |peer: Option<PeerAddr>| format!("{}", peer.is_some()))
        .get("/client", |ClientAddress(address)| address)
        .get("/proven", |IsProven(is_proven)| is_proven.to_string())
        .get("/same", move || calls.fetch_add(1, Ordering::Relaxed).to_string());
    let client = Client::new(app);
    for target in ["/form", "/form-later"] {
        let (one, two) = (client.get(target), client.get(target));
        assert_ne!(one.text(), two.text(), "{target}: one token for each visitor");
        for page in [&one, &two] {
            assert!(page.header("set-cookie").is_some(), "{target}");
            assert_eq!(page.header("age"), None, "{target}");
        }
    }
    for target in ["/peer", "/maybe", "/proven"] {
        assert_eq!(client.get(target).status, 200);
        assert_eq!(client.get(target).header("age"), None, "{target}");
    }
    for address in ["192.0.2.1", "192.0.2.2"] {
        client.set_peer(SocketAddr::new(address.parse().expect("an address"), 4711));
        let answer = client.get("/client");
        assert_eq!((answer.text(), answer.header("age")), (address, None));
    }
    assert_eq!(client.get("/same").text(), "0");
    assert_eq!(client.get("/same").header("age"), Some("0"));
}

#[derive(Deserialize)]
struct Transfer {
    to: String,
}

fn key() -> Key {
    Key::from(&[7; 64])
}

fn bank(key: Key) -> Client {
    let layer = highwater::layer::on_request(|_: &Request<'_>| Ok::<(), highwater::Error>(()));
    Client::new(
        Router::new()
            .layer(layer)
            .layer(csrf_tokens(key))
            .get("/", || "no form")
            .get("/form", |token: CsrfToken| token.value().to_owned())
            .post("/form", |Form(Transfer { to })| to)
            .post("/sign-out", || "bye")
            .route("/any", routing::any(async || "any")),
    )
}

fn send(client: &Client, cookie: Option<&str>, body: &str, header: Option<&str>) -> Answer {
    let mut request = client
        .request(Method::POST, "/form")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(body.to_owned());
    if let Some(cookie) = cookie {
        request = request.header("cookie", cookie);
    }
    if let Some(header) = header {
        request = request.header("x-csrf-token", header);
    }
    request.send()
}

/// Purpose: a form passes with the token of a page and the cookie that came with it, in the field or in the header, and with
/// nothing less: not with a token alone, a cookie alone, another one's token, or a cookie that this server has not signed.
#[test]
fn forms_repeat_a_token() {
    let client = bank(key());
    assert_eq!(client.get("/").header("set-cookie"), None, "a page without a form sets no cookie");
    let page = client.get("/form");
    let token = page.text().to_owned();
    let field = page.header("set-cookie").expect("it is new");
    for part in ["; HttpOnly", "; SameSite=Lax", "; Secure", "; Path=/"] {
        assert!(field.contains(part), "{field}");
    }
    assert!(field.starts_with("__Host-csrf="), "no other host may set it: {field}");
    assert_eq!(page.header("vary"), Some("cookie"));
    let cookie = field.split(';').next().expect("the pair").to_owned();
    let again = client.request(Method::GET, "/form").header("cookie", &cookie).send();
    assert_eq!(
        (again.text(), again.header("set-cookie")),
        (&*token, None),
        "one token for all pages"
    );

    let body = format!("to=ann&csrf_token={token}");
    assert_eq!(send(&client, Some(&cookie), &body, None).text(), "ann");
    assert_eq!(send(&client, Some(&cookie), "to=ann", Some(&token)).text(), "ann");
    for (path, text) in [("/sign-out", "bye"), ("/any", "any")] {
        let ask = |body: &str| {
            let request = client.request(Method::POST, path).header("cookie", &cookie);
            let kind = "application/x-www-form-urlencoded; charset=utf-8";
            request.header("content-type", kind).body(body.to_owned()).send()
        };
        assert_eq!(ask(&body).text(), text, "the handler takes no content, the layer does");
        assert_eq!(ask("csrf_token=x").status, 403);
    }
    // Browsers may send the content behind the head, in a packet of its own.
    let mut connection = client.connect();
    connection.send(format!(
        "POST /sign-out HTTP/1.1\r\nHost: h\r\nCookie: {cookie}\r\nContent-Length: {}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\n\r\n",
        body.len()
    ));
    connection.send(&body);
    let received = String::from_utf8_lossy(connection.received()).into_owned();
    assert!(received.ends_with("\r\n\r\nbye"), "{received}");
    // A cookie that somebody else has set in front of it hides nothing.
    for planted in ["x", "", &*format!("{}{token}", "A".repeat(44))] {
        let cookies = format!("__Host-csrf={planted}; {cookie}");
        assert_eq!(send(&client, Some(&cookies), &body, None).text(), "ann", "{planted}");
        let again = client.request(Method::GET, "/form").header("cookie", &cookies).send();
        assert_eq!((again.text(), again.header("set-cookie")), (&*token, None), "{planted}");
    }
    let other = client.get("/form");
    assert_ne!(other.text(), token);
    let foreign = bank(Key::from(&[8; 64])).get("/form");
    let forged =
        foreign.header("set-cookie").and_then(|field| field.split(';').next()).expect("it is new");
    let unsigned = format!("__Host-csrf={token}");
    for (cookie, body, header) in [
        (None, &*body, None),
        (None, &body, Some(&*token)),
        (Some(&*cookie), "to=ann", None),
        (Some(&cookie), "to=ann&csrf_token=", None),
        (Some(&cookie), &format!("to=ann&csrf_token={}", other.text()), None),
        (Some(&cookie), &body, Some("")),
        (Some(forged), &format!("to=ann&csrf_token={}", foreign.text()), None),
        (Some(&unsigned), &body, None),
    ] {
        let answer = send(&client, cookie, body, header);
        assert_eq!(answer.status, 403, "{cookie:?} {body} {header:?}");
        assert!(answer.text().contains("\"csrf_token\""), "{}", answer.text());
    }
    let insecure = Client::new(
        Router::new()
            .layer(csrf_tokens(key()).insecure())
            .get("/", |token: CsrfToken| token.field()),
    );
    let page = insecure.get("/");
    assert!(page.text().starts_with("<input type=\"hidden\" name=\"csrf_token\" value=\""));
    let field = page.header("set-cookie").expect("it is new");
    assert!(field.starts_with("csrf=") && !field.contains("Secure"), "{field}");
}

/// Purpose: a token that was made for one session is not valid in another one.
#[test]
fn tokens_are_bound_to_sessions() {
    let session = |request: &Request<'_>| request.header("x-session").map(str::to_owned);
    let client = Client::new(
        Router::new()
            .layer(csrf_tokens(key()).by(session))
            .get("/form", |token: CsrfToken| token.value().to_owned())
            .post("/form", || "sent"),
    );
    let page = client.request(Method::GET, "/form").header("x-session", "ann").send();
    let field = page.header("set-cookie").expect("it is new");
    let cookie = field.split(';').next().expect("the pair");
    for (session, status) in [(Some("ann"), 200), (Some("bob"), 403), (Some(""), 403), (None, 403)]
    {
        let mut request = client.request(Method::POST, "/form").header("cookie", cookie);
        request = request.header("x-csrf-token", page.text());
        if let Some(session) = session {
            request = request.header("x-session", session);
        }
        assert_eq!(request.send().status, status, "{session:?}");
    }
}
