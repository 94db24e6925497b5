//! The testing client, as its users see it.

use std::time::Duration;

use highwater::testing::{Client, Setup};
use highwater::{
    BodyStream, Bytes, Cookies, Error, Form, Handler, HeaderMap, HeaderValue, Json, Method, Path,
    PeerAddr, Problem, Response, Router, ServerConfig, StatusCode, blocking, layer,
};
use tokio::time::{Instant, interval, sleep, timeout};

fn app() -> Router {
    async fn echo(body: Bytes) -> Bytes {
        body
    }
    async fn slow(Path(ms): Path<u64>) -> &'static str {
        sleep(Duration::from_millis(ms)).await;
        "slept"
    }
    async fn never() {
        std::future::pending().await
    }
    Router::new()
        .get("/hello/{name}", |Path(name): Path<String>| format!("Hello, {name}!"))
        .get("/blocking", blocking(|| "blocked"))
        .post("/echo", echo)
        .get("/sleep/{ms}", slow)
        .get("/never", never.timeout(Duration::from_millis(50)))
        .get("/error", || Err::<(), _>(Error::conflict("twice")))
}

/// Purpose: the title of a problem is the phrase of the status line (RFC 9457 §4.2.1), also where the crate `http` has an older
/// one.
#[test]
fn titles_of_problems() {
    let fail = |Path(status): Path<u16>| {
        StatusCode::from_u16(status)
            .map(|status| Error::new(status, "failed", "it failed"))
            .unwrap()
    };
    let client = Client::new(Router::new().errors(Problem::of).get("/{status}", fail));
    for status in 400..=511 {
        let mut connection = client.connect();
        connection.send(format!("GET /{status} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = String::from_utf8_lossy(connection.received()).into_owned();
        let phrase = answer.lines().next().and_then(|line| line.splitn(3, ' ').nth(2)).unwrap();
        if !phrase.is_empty() {
            assert!(answer.contains(&format!("{{\"title\":\"{phrase}\",")), "{answer}");
        }
    }
}

/// Purpose: a form arrives as it was given, whatever its letters, and may have a type of its own.
#[test]
fn forms() {
    type Pairs = Vec<(String, String)>;
    let client =
        Client::new(Router::new().post("/", |Form(pairs): Form<Pairs>| format!("{pairs:?}")));
    let pairs =
        [("name", "Ann & Bob"), ("a=b", "1+1=2 %41"), ("naïve", "日本"), ("", ""), ("*-._", "~")];
    let owned = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(client.post_form("/", pairs).text(), format!("{owned:?}"));
    let text = client.request(Method::POST, "/").header("content-type", "text/plain");
    assert_eq!(text.form(pairs).send().status, 415);
}

/// Purpose: each kind of handler answers through the client as it does through a socket.
#[test]
fn every_kind_of_handler() {
    let client = Client::new(app());
    assert_eq!(client.get("/hello/world").text(), "Hello, world!");
    assert_eq!(client.get("/blocking").text(), "blocked");
    assert_eq!(client.post("/echo", vec![b'x'; 100_000]).body.len(), 100_000);
    assert_eq!(client.get("/sleep/5").text(), "slept");
    assert_eq!(client.get("/never").status, StatusCode::SERVICE_UNAVAILABLE);
    let error = client.get("/error");
    assert_eq!(
        (error.status.as_u16(), error.header("content-type")),
        (409, Some("application/json"))
    );
    assert_eq!(client.head("/hello/you").header("content-length"), Some("11"));
    assert_eq!(client.get("/missing").status, StatusCode::NOT_FOUND);
    assert_eq!(client.connections(), 0, "each request's connection ends with it");
}

/// Purpose: an hour of simulated time takes no real time, and timeouts expire in it.
#[test]
fn time_is_simulated() {
    let client = Client::new(Router::new().get("/", || "ok"));
    let mut connection = client.connect();
    connection.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(connection.received().ends_with(b"\r\n\r\nok"));
    client.advance(Duration::from_secs(59));
    assert!(!connection.is_closed());
    client.advance(Duration::from_secs(2));
    assert!(connection.is_closed() && !connection.is_reset(), "the idle timeout is a minute");
}

/// Purpose: however a seed cuts the bytes, the application answers the same.
#[test]
fn seeds_cut_bytes() {
    for seed in 0..50 {
        let client = Setup::new(app()).seed(seed).start();
        let body = vec![b'x'; 20_000];
        assert_eq!(client.post("/echo", body.clone()).body, body, "seed {seed}");
    }
}

/// Purpose: settings apply as they do to a server.
#[test]
fn settings() {
    let mut config = ServerConfig::default();
    config.limits.body_max = 10;
    let client = Setup::new(app()).config(config).start();
    assert_eq!(client.post("/echo", "12345678901").status, StatusCode::PAYLOAD_TOO_LARGE);
}

/// Purpose: a test that waits for an event that never comes fails with a message.
#[test]
#[should_panic(expected = "GET /: no answer: it waits for something that nothing will bring about")]
fn an_answer_that_never_comes() {
    let client = Client::new(Router::new().get("/", blocking(|| "OK")));
    client.hold_pool(true);
    client.get("/");
}

/// Purpose: a handler that sleeps costs a test no real time: hours of it would fail after 30 real
/// seconds. What the handler measures is what it asked for, to the millisecond.
#[test]
fn sleeping_takes_no_real_time() {
    async fn three_hours() -> String {
        let began = Instant::now();
        sleep(Duration::from_secs(2 * 3600)).await;
        let limited = timeout(Duration::from_secs(1800), std::future::pending::<()>()).await;
        let mut ticks = interval(Duration::from_secs(180));
        for _ in 0..11 {
            ticks.tick().await;
        }
        format!("{} {}", limited.is_err(), began.elapsed().as_millis())
    }
    let client = Client::new(Router::new().get("/", three_hours));
    assert_eq!(client.get("/").text(), "true 10800000");
}

/// Purpose: the server's deadlines and Tokio's timers expire in the order of their times, whichever
/// clock they are of.
#[test]
fn both_clocks_move_together() {
    async fn slow(Path(ms): Path<u64>) -> &'static str {
        sleep(Duration::from_millis(ms)).await;
        "slept"
    }
    let router = Router::new().get("/sleep/{ms}", slow.timeout(Duration::from_millis(5000)));
    let client = Client::new(router);
    assert_eq!(client.get("/sleep/4999").status, StatusCode::OK);
    // The server's deadlines are never early, and late by the resolution of its timers at most.
    assert_eq!(client.get("/sleep/5020").status, StatusCode::SERVICE_UNAVAILABLE);
}

/// Purpose: `advance` moves Tokio's timers exactly as far as it says, and a task in the background
/// runs meanwhile.
#[test]
fn advancing_moves_timers() {
    let client = Client::new(app());
    let mut connection = client.connect();
    connection.send("GET /sleep/7000 HTTP/1.1\r\nHost: h\r\n\r\n");
    client.advance(Duration::from_millis(6999));
    assert_eq!(connection.received(), b"");
    client.advance(Duration::from_millis(1));
    assert!(connection.received().ends_with(b"slept"));

    async fn spawns() -> &'static str {
        let (answer, receiver) = tokio::sync::oneshot::channel();
        tokio::spawn(async {
            sleep(Duration::from_secs(90)).await;
            let _ = answer.send("told");
        });
        receiver.await.expect("the task answers")
    }
    let client = Client::new(Router::new().get("/", spawns));
    let mut connection = client.connect();
    connection.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    client.advance(Duration::from_secs(89));
    assert_eq!(connection.received(), b"");
    client.advance(Duration::from_secs(1));
    assert!(connection.received().ends_with(b"told"));
}

/// Purpose: work on Tokio's blocking pool is waited for, and no timeout expires meanwhile.
#[test]
fn blocking_work_takes_no_simulated_time() {
    async fn works() -> String {
        let work = tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(30)));
        format!("{:?}", timeout(Duration::from_millis(1), work).await.is_ok())
    }
    assert_eq!(Client::new(Router::new().get("/", works)).get("/").text(), "true");
}

/// A handler that waits for a thread, as for a database, with a timeout that the thread meets easily.
async fn outside() -> String {
    let (answer, receiver) = tokio::sync::oneshot::channel();
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(30));
        let _ = answer.send(());
    });
    format!("{}", timeout(Duration::from_secs(20), receiver).await.is_ok())
}

/// Purpose: tests with a database keep their timeouts: in real time they do not expire before the
/// database has answered.
#[test]
fn real_time() {
    let client = Setup::new(Router::new().get("/", outside)).real_time().start();
    assert_eq!(client.get("/").text(), "true");
    // The server's own deadlines can be tested all the same.
    let mut connection = client.connect();
    client.advance(Duration::from_secs(120));
    assert!(connection.received().is_empty() && connection.is_closed());
}

/// Purpose: who waits for a thread without real time learns what to write.
#[test]
#[should_panic(expected = "start the client with `Setup::real_time`")]
fn outside_of_the_test() {
    async fn forever() {
        std::future::pending().await
    }
    Client::new(Router::new().get("/", forever)).get("/");
}

/// Purpose: the most common mistake with this client has a remedy in its panic.
#[tokio::test]
#[should_panic(expected = "write `#[test] fn` instead of `#[tokio::test] async fn`")]
async fn inside_a_runtime() {
    let _ = Client::new(app());
}

/// Purpose: a test that has entered a runtime, to make a pool in it, may use the client.
#[test]
fn beside_a_runtime() {
    let other = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let _entered = other.enter();
    assert_eq!(Client::new(app()).get("/sleep/5").text(), "slept");
}

/// Purpose: the panic that a test inside a runtime ends with is the only one that it prints.
#[test]
fn inside_a_runtime_one_panic_is_shown() {
    let this = std::env::current_exe().expect("it runs");
    let arguments = ["--exact", "inside_a_runtime", "--nocapture", "--test-threads=1"];
    let output = std::process::Command::new(this).args(arguments).output().expect("it was built");
    let output_text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output_text}");
    assert_eq!(output_text.matches("panicked at").count(), 1, "{output_text}");
    let place = output_text.split("panicked at ").nth(1).unwrap_or_default();
    assert!(
        place.starts_with("crates/highwater/tests/testing_client.rs:"),
        "the test's own line: {output_text}"
    );
    assert!(
        output_text.contains("write `#[test] fn` instead of `#[tokio::test] async fn`"),
        "{output_text}"
    );
}

/// Purpose: who asks for the client's address gets one, which the test decides; nobody else does, as on a server.
#[test]
fn clients_have_an_address() {
    async fn show(PeerAddr(peer): PeerAddr) -> String {
        peer.to_string()
    }
    let client = Client::new(Router::new().get("/", show));
    assert_eq!(client.get("/").text(), "127.0.0.1:49152");
    client.set_peer(([192, 0, 2, 7], 1234).into());
    assert_eq!(client.get("/").text(), "192.0.2.7:1234");
    let setup = Setup::new(Router::new().get("/", show)).peer(([192, 0, 2, 8], 1).into());
    assert_eq!(setup.start().get("/").text(), "192.0.2.8:1");
    let unasked = Router::new().layer(layer::on_request(|request| -> Result<(), Error> {
        match request.peer() {
            Some(_) => Err(Error::conflict("a server would not have looked it up")),
            None => Ok(()),
        }
    }));
    assert_eq!(Client::new(unasked.get("/", || "OK")).get("/").status, StatusCode::OK);
}

/// Purpose: a client whose body is too large learns how large it may be, also where the handler reads it as it comes.
#[test]
fn a_streamed_body_that_is_too_large_names_the_limit() {
    async fn count(mut body: BodyStream) -> Result<String, Error> {
        let mut bytes = 0;
        while let Some(piece) = body.next().await {
            bytes += piece?.len();
        }
        Ok(bytes.to_string())
    }
    async fn collect(body: BodyStream) -> Result<String, Error> {
        Ok(body.collect(1000).await?.len().to_string())
    }
    let router = Router::new().post("/", count.body_max(3000)).post("/collect", collect);
    let client = Client::new(router);
    let chunked = |path: &str, bytes: usize| {
        let body = format!("{bytes:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(bytes));
        client.request(Method::POST, path).header("transfer-encoding", "chunked").body(body).send()
    };
    assert_eq!(chunked("/", 3000).text(), "3000");
    let refused = chunked("/", 3001);
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(refused.text().contains("; at most 3000 bytes"), "{}", refused.text());
    let refused = chunked("/collect", 1001);
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(refused.text().contains("; at most 1000 bytes"), "{}", refused.text());
}

/// Purpose: JSON is sent as JSON, for each method with content.
#[test]
fn json_is_sent_as_json() {
    async fn double(Json(number): Json<u64>) -> Json<u64> {
        Json(2 * number)
    }
    let router = Router::new().post("/", double).put("/", double).patch("/", double);
    let client = Client::new(router);
    assert_eq!(client.post_json("/", &21).json::<u64>(), 42);
    assert_eq!(client.put_json("/", &4).json::<u64>(), 8);
    assert_eq!(client.patch_json("/", &5).json::<u64>(), 10);
    assert_eq!(client.post("/", "21").status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(client.patch("/", "21").status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    // A type that was set is the only one.
    let types = |headers: HeaderMap| {
        let types = headers.get_all("content-type").iter();
        types.map(|value| value.to_str().unwrap_or("?")).collect::<Vec<_>>().join(" and ")
    };
    let client = Client::new(Router::new().patch("/", types));
    let request = || client.request(Method::PATCH, "/");
    let set = "application/merge-patch+json";
    assert_eq!(request().header("content-type", set).json(&21).send().text(), set);
    assert_eq!(request().json(&21).send().text(), "application/json");
}

/// Purpose: a field's value need not be text (RFC 9110 §5.5): the test gets its bytes, in both versions of HTTP.
#[test]
fn values_of_any_bytes() {
    let latin =
        || HeaderValue::from_bytes(b"attachment; filename=\"caf\xe9\"").expect("it is allowed");
    let handler = move || Response::from("x").with_header("content-disposition", latin());
    let client = Client::new(Router::new().get("/", handler));
    for answer in [client.get("/"), client.http2().get("/")] {
        assert_eq!(answer.headers.get("content-disposition"), Some(&latin()));
        assert_eq!(answer.header("content-disposition"), None, "it is not text");
    }
}

/// Purpose: what every request carries is said once, replaced after a login, and left out where a
/// request says otherwise.
#[test]
fn headers_of_every_request() {
    fn shows(headers: HeaderMap) -> String {
        let of = |name| headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("?"));
        let all: Vec<&str> = of("x-tenant").chain(of("authorization")).collect();
        all.join(",")
    }
    let router = Router::new().get("/", shows);
    let client = Setup::new(router).header("x-tenant", "a").header("X-Tenant", "b").start();
    assert_eq!(client.get("/").text(), "a,b");
    client.set_header("authorization", "one");
    client.set_header("Authorization", "two");
    assert_eq!(client.get("/").text(), "a,b,two");
    let request = client.request(highwater::Method::GET, "/").header("authorization", "three");
    assert_eq!(request.send().text(), "a,b,three");
    assert_eq!(client.get("/").text(), "a,b,two");
}

/// Purpose: a client that keeps cookies stays signed in from answer to answer and is out after the cookie's removal; its own
/// `Cookie` field goes before, and a client that was not told to keep any keeps none.
#[test]
fn cookies_are_kept_if_asked_for() {
    let enter = || ([("set-cookie", "user=ann; Path=/; HttpOnly")], "in");
    let leave = || ([("set-cookie", "user=; Path=/; Max-Age=0")], "out");
    let me = |cookies: Cookies| cookies.get("user").unwrap_or("nobody").to_owned();
    let router = || Router::new().post("/enter", enter).post("/leave", leave).get("/me", me);

    let forgetful = Client::new(router());
    forgetful.post("/enter", "");
    assert_eq!(forgetful.get("/me").text(), "nobody");

    let client = Client::new(router());
    client.keep_cookies();
    assert_eq!(client.get("/me").text(), "nobody");
    client.post("/enter", "");
    assert_eq!(client.get("/me").text(), "ann");
    let own = client.request(Method::GET, "/me").header("cookie", "user=bob").send();
    assert_eq!(own.text(), "bob");
    client.keep_cookies();
    assert_eq!(client.get("/me").text(), "ann", "to say it again forgets nothing");
    client.post("/leave", "");
    assert_eq!(client.get("/me").text(), "nobody");
}
