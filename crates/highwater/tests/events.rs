//! An application that has a subscriber of its own: does it get the server's events, with what they are about?

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::IntoFuture;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZero;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use highwater::logging::{self, BURST, LogFormat, PERIOD};
use highwater::metrics::Metrics;
use highwater::openapi::OpenApi;
use highwater::server::Shed;
use highwater::{
    Bytes, Error, Handler, Next, OwnedRequest, Response, Router, Running, Server, ServerConfig,
    StatusCode, WebSocket, blocking, layer, websocket,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// No step takes this long unless something hangs.
const HANG: Duration = Duration::from_secs(20);

/// What was emitted: the process has one subscriber.
static EMITTED: Mutex<Vec<Emitted>> = Mutex::new(Vec::new());

/// The tests here count what the process emits, and have to be alone for that.
static ALONE: Mutex<()> = Mutex::new(());

/// An event as an application sees it.
#[derive(Clone, Debug)]
struct Emitted {
    level: Level,
    target: String,
    /// The message is one of them. Text stands without quotes, numbers in their shortest form.
    fields: BTreeMap<&'static str, String>,
}

impl Emitted {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }
}

impl Visit for Emitted {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

/// The application's subscriber.
struct Collector;

impl Subscriber for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &Event<'_>) {
        let (level, target) = (*event.metadata().level(), event.metadata().target().to_owned());
        let mut emitted = Emitted { level, target, fields: BTreeMap::new() };
        event.record(&mut emitted);
        lock(&EMITTED).push(emitted);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the application's subscriber, and forgets what it has received so far.
fn collect() -> MutexGuard<'static, ()> {
    static SET: Once = Once::new();
    let alone = lock(&ALONE);
    SET.call_once(|| {
        tracing::subscriber::set_global_default(Collector).expect("there is none yet");
    });
    lock(&EMITTED).clear();
    alone
}

/// What was emitted with this message.
fn emitted(message: &str) -> Vec<Emitted> {
    let all = lock(&EMITTED);
    all.iter().filter(|event| event.field("message") == Some(message)).cloned().collect()
}

/// Settings that ask for lines, too.
fn config() -> ServerConfig {
    ServerConfig {
        listen: vec![([127, 0, 0, 1], 0).into()],
        metrics: None,
        workers: NonZero::new(1),
        shed: Some(Shed::Accept),
        log: LogFormat::Text,
        ..ServerConfig::default()
    }
}

fn serve(router: Router) -> Running {
    Server::new(router).config(config()).start().expect("it starts")
}

/// The status of `path`, asked for on a connection of its own.
fn ask(address: SocketAddr, path: &str) -> String {
    ask_as(address, path, "").0
}

/// The status and the id of the answer to the same with these lines of fields.
fn ask_as(address: SocketAddr, path: &str, fields: &str) -> (String, Option<String>) {
    let mut stream = TcpStream::connect_timeout(&address, HANG).expect("it listens");
    stream.set_read_timeout(Some(HANG)).expect("it is open");
    let line = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n");
    write!(stream, "{line}{fields}\r\n").expect("open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is answered");
    let id = answer.lines().find_map(|line| line.strip_prefix("x-request-id: "));
    (answer.split(' ').nth(1).unwrap_or_default().to_owned(), id.map(str::to_owned))
}

/// Purpose: the start of a server comes to the subscriber that the application has set, which settings do not
/// replace.
#[test]
fn the_applications_subscriber_hears_of_the_start() {
    let _alone = collect();
    let running = serve(Router::new().get("/", || "OK"));
    let serving = emitted("serving");
    let [serving] = &serving[..] else { panic!("{serving:?}") };
    assert_eq!(serving.level, Level::INFO);
    assert!(serving.target.starts_with("highwater::"), "{}", serving.target);
    assert_eq!(serving.field("address"), Some(&*running.address().to_string()));
    assert_eq!(serving.field("workers"), Some("1"));
    let transport = serving.field("transport").expect("it is told");
    assert!(["uring", "io_uring", "epoll"].contains(&transport), "{transport}");
    assert_eq!(serving.field("metrics"), None, "there are none");
    assert_eq!(serving.field("docs"), None, "nothing describes it");
    assert_eq!(emitted("admission")[0].field("mechanism"), Some("accept"));
    assert!(!logging::install(LogFormat::Json), "the application's stays");
}

/// Purpose: that a future has asked a server to stop is logged as a signal is, while it serves and while it starts.
#[test]
fn a_future_that_stops_a_server_is_logged() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let waits = Router::new().on_start("waits", std::future::pending::<Result<(), Error>>);
    for router in [Router::new(), waits] {
        let _alone = collect();
        let server = Server::new(router).config(config());
        let served = server.serve().with_graceful_shutdown(std::future::ready(()));
        runtime.block_on(served.into_future()).expect("it has served");
        let stopping = emitted("stopping");
        assert_eq!((stopping.len(), stopping[0].field("signal")), (1, None));
        assert_eq!(emitted("the drain ends now").len(), 0);
    }
}

/// Purpose: the start of an application that describes itself logs where the description is.
#[test]
fn the_start_tells_where_the_documentation_is() {
    let _alone = collect();
    let api = Router::new().openapi(OpenApi::new("Numbers", "1"));
    let running = serve(Router::new().nest("/api", api));
    let expected = format!("http://{}/api/docs", running.address());
    assert_eq!(emitted("serving")[0].field("docs"), Some(&*expected));
    assert_eq!(ask(running.address(), "/api/docs"), "200");
}

/// Purpose: failures are logged with route and cause, at a bounded rate: the rest is counted elsewhere.
#[test]
fn a_storm_of_panics_is_told_a_few_times() {
    let _alone = collect();
    let boom = || -> StatusCode { panic!("line\nfeeds are kept") };
    let mut running = serve(Router::new().get("/boom/{n}", boom));
    let begun = Instant::now();
    for n in 0..BURST + 2 {
        assert_eq!(ask(running.address(), &format!("/boom/{n}")), "500");
    }
    running.stop().expect("a panic ends a request, and nothing else");
    let logged = emitted("a panic ended a request, and nothing else");
    // On a machine so busy that this takes longer, a second period has begun.
    let periods = if begun.elapsed() < PERIOD { 1 } else { 2 };
    assert!((1..=periods).contains(&logged.len().div_ceil(BURST as usize)), "{logged:#?}");
    assert!(logged.len() >= BURST as usize, "{logged:#?}");
    for event in logged {
        assert_eq!((event.level, event.field("route")), (Level::ERROR, Some("/boom/{n}")));
        assert!(event.target.starts_with("highwater::"), "{}", event.target);
        assert_eq!(event.field("panic"), Some("line\nfeeds are kept"));
        assert_eq!(event.field("suppressed"), None, "none was, before these");
    }
}

/// Purpose: a request that goes well is not an event, and neither is one that the peer got wrong.
#[test]
fn requests_are_no_events() {
    let _alone = collect();
    let mut running = serve(Router::new().get("/", || "OK"));
    let before = lock(&EMITTED).len();
    assert!(before > 0, "the start is told");
    for _ in 0..20 {
        assert_eq!(ask_as(running.address(), "/", ""), ("200".to_owned(), None));
        assert_eq!(ask_as(running.address(), "/nowhere", ""), ("404".to_owned(), None));
    }
    let logged = lock(&EMITTED)[before..].to_vec();
    assert!(logged.is_empty(), "{logged:#?}");
    running.stop().expect("nothing failed");
    let stopped = emitted("stopped");
    assert_eq!(stopped.len(), 1, "it is told once");
    assert_eq!(stopped[0].field("connections_cut"), Some("0"));
}

/// What went wrong below what went wrong.
#[derive(Debug)]
struct Outage(std::io::Error);

impl std::fmt::Display for Outage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the store is down")
    }
}

impl std::error::Error for Outage {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

fn outage() -> Result<&'static str, Error> {
    Err(Error::internal(Outage(std::io::Error::other("no route to host"))))
}

async fn outage_later() -> Result<&'static str, Error> {
    tokio::task::yield_now().await;
    outage()
}

/// Purpose: a 500 leaves a trace from which its cause can be found, however its handler runs; a health check that says
/// 503, and a method that nobody knows, are no failures.
#[test]
fn failures_are_logged_with_their_cause() {
    let _alone = collect();
    let router = Router::new()
        .get("/inline/{id}", outage)
        .get("/async", outage_later)
        .get("/blocking", blocking(outage))
        .get("/status", || StatusCode::BAD_GATEWAY)
        .get("/plain", || Response::from("sorry").with_status(StatusCode::INTERNAL_SERVER_ERROR))
        .get("/health", (|| StatusCode::SERVICE_UNAVAILABLE).never_shed());
    let mut running = serve(router);
    let id = "X-Request-Id: r-7\r\n";
    let ask = |path: &str, fields: &str| ask_as(running.address(), path, fields);
    assert_eq!(ask("/health", ""), ("503".to_owned(), None));
    let asked =
        [("/inline/1", id), ("/async", id), ("/blocking", ""), ("/status", ""), ("/plain", "")];
    let answers = asked.map(|(path, fields)| ask(path, fields));
    running.stop().expect("a failed request ends nothing else");
    assert_eq!(answers[0].1.as_deref(), Some("r-7"), "the client's own id comes back");
    let cause = "the store is down: no route to host";
    let expected = [
        ("/inline/{id}", "500", cause),
        ("/async", "500", cause),
        ("/blocking", "500", cause),
        ("/status", "502", "Bad Gateway"),
        ("/plain", "500", "-"),
    ];
    let events = emitted("a request failed");
    assert_eq!(events.len(), expected.len(), "{events:#?}");
    for ((event, (status, id)), expected) in events.iter().zip(&answers).zip(expected) {
        assert_eq!((event.level, event.field("method")), (Level::ERROR, Some("GET")));
        let field = |name| event.field(name).unwrap_or("-");
        assert_eq!((field("route"), field("status"), field("cause")), expected);
        assert_eq!((field("status"), event.field("request_id")), (&**status, id.as_deref()));
        assert!(id.as_ref().is_some_and(|id| !id.is_empty()), "{event:#?}");
    }
    assert_ne!(answers[2].1, answers[3].1, "each request has its own");
}

/// Purpose: a panic and an answer that cannot be sent are found in the log by the id that their clients got, wherever
/// the code ran; one that a client has sent is used, if it is fit for a log.
#[test]
fn clients_and_the_log_name_a_failure_alike() {
    let _alone = collect();
    let boom = || -> StatusCode { panic!("boom") };
    async fn boom_later() -> StatusCode {
        panic!("boom")
    }
    async fn pass(request: OwnedRequest, next: Next) -> Response {
        next.run(request).await
    }
    let observed = Router::new()
        .layer(layer::on_response(|_, _| ()))
        .get("/observed", boom)
        .get("/observed/async", boom_later);
    let wrapped = Router::new().layer(layer::around(pass)).get("/wrapped", blocking(boom));
    let router = Router::new()
        .get("/inline", boom)
        .get("/async", boom_later)
        .get("/blocking", blocking(boom))
        .get("/invalid", || Response::from("x").with_header("content-length", "7"))
        .get("/invalid/async", async || Response::from("x").with_header("content-length", "7"))
        .get("/own", || Response::new(StatusCode::BAD_GATEWAY).with_header("x-request-id", "mine"))
        .merge(observed)
        .merge(wrapped);
    let mut running = serve(router);
    let too_long = format!("X-Request-Id: {}\r\n", "x".repeat(129));
    let paths = [
        "/inline",
        "/async",
        "/blocking",
        "/observed",
        "/observed/async",
        "/wrapped",
        "/invalid",
        "/invalid/async",
    ];
    for path in paths {
        for (fields, sent) in
            [("", None), ("X-Request-Id: r-8\r\n", Some("r-8")), (&*too_long, None)]
        {
            lock(&EMITTED).clear();
            let (status, id) = ask_as(running.address(), path, fields);
            let id = id.unwrap_or_else(|| panic!("{path}: no id"));
            assert_eq!(status, "500", "{path}");
            // To keep the client's for an answer that cannot be sent would cost every request.
            let is_own = sent.is_none() || path.starts_with("/invalid");
            assert!(if is_own { id.len() == 16 } else { sent == Some(&*id) }, "{path}: {id}");
            let mut events = lock(&EMITTED).clone();
            events.retain(|event| event.field("request_id").is_some());
            let logged: Vec<_> = events
                .iter()
                .map(|event| (event.field("route"), event.field("request_id")))
                .collect();
            assert_eq!(logged, [(Some(path), Some(&*id))], "{events:#?}");
        }
    }
    assert_eq!(ask_as(running.address(), "/own", ""), ("502".into(), Some("mine".into())));
    assert_eq!(emitted("a request failed")[0].field("request_id"), Some("mine"));
    running.stop().expect("nothing else failed");
}

/// Purpose: a route that fails all the time does not hide the only failure of another one.
#[test]
fn a_noisy_route_hides_no_quiet_one() {
    let _alone = collect();
    let router = Router::new().get("/noisy", outage).get("/quiet", outage);
    let mut running = serve(router);
    for _ in 0..4 * BURST {
        assert_eq!(ask(running.address(), "/noisy"), "500");
    }
    assert_eq!(ask(running.address(), "/quiet"), "500");
    running.stop().expect("a failed request ends nothing else");
    let of = |route: &str| {
        let is_of = |event: &&Emitted| event.field("route") == Some(route);
        emitted("a request failed").iter().filter(is_of).count()
    };
    assert_eq!(of("/quiet"), 1);
    assert!(of("/noisy") < 4 * BURST as usize, "and the noisy one is limited");
}

/// What is said on a connection of its own until the server ends it, or has sent this.
fn say(address: SocketAddr, bytes: &[u8], until: &[u8]) {
    let mut stream = TcpStream::connect_timeout(&address, HANG).expect("it listens");
    stream.set_read_timeout(Some(HANG)).expect("it is open");
    stream.write_all(bytes).expect("it is read");
    let (mut answer, mut piece) = (Vec::new(), [0; 512]);
    while !answer.windows(until.len()).any(|part| part == until) {
        let read = stream.read(&mut piece).expect("it is answered");
        assert_ne!(read, 0, "{}", answer.escape_ascii());
        answer.extend_from_slice(&piece[..read]);
    }
}

/// Purpose: if the memory for what clients send is used up, an operator sees it, whoever was refused: a request's body or a
/// WebSocket's message. Once, a WebSocket's end was counted among the faults of clients, and nothing was logged.
#[test]
fn memory_that_is_used_up_is_logged_and_counted() {
    const MESSAGE: &str = "the memory for what clients send is used up: bodies are refused, and WebSockets are closed";
    const SIZE: usize = 200_000;
    let _alone = collect();
    let silent = async |mut socket: WebSocket| while socket.recv().await.is_some() {};
    let router = Router::new().post("/", |_: Bytes| "OK").get("/ws", websocket(silent));
    let (metrics, config) =
        (Metrics::new(), ServerConfig { body_memory_max: Some(100_000), ..config() });
    let mut running =
        Server::new(router).config(config).metrics(&metrics).start().expect("it starts");
    let count = |sample: &str| {
        let page = metrics.page();
        let found = page.lines().find_map(|line| line.strip_prefix(sample));
        found.expect("it is listed").trim().to_owned()
    };
    let body = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {SIZE}\r\n\r\n");
    say(running.address(), &[body.as_bytes(), &[b'x'; SIZE - 1]].concat(), b" 503 ");
    let handshake = "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    // Binary and masked, and more follows.
    let frame = [&[0x02, 0xff][..], &(SIZE as u64).to_be_bytes(), &[0; 4], &[b'x'; SIZE]].concat();
    say(running.address(), &[handshake.as_bytes(), &frame].concat(), &1013_u16.to_be_bytes());
    let events = emitted(MESSAGE);
    assert_eq!(events.len(), 2, "{events:#?}");
    for event in events {
        assert_eq!((event.level, event.field("bytes")), (Level::WARN, Some("100000")));
        assert!(event.field("instead").is_some_and(|text| text.contains("body-memory-max")));
    }
    assert_eq!(count("http_rejections_total{layer=\"request\",reason=\"memory\"} "), "1");
    running.stop().expect("nothing failed");
    assert_eq!(count("http_websocket_closes_total{reason=\"memory\"} "), "1");
    assert_eq!(count("http_websocket_closes_total{reason=\"refused\"} "), "0");
}

/// Purpose: each route that blocks its worker is named once, however many others do: a limit that all of them shared
/// hid the sixth, on the day on which somebody looked for it.
#[test]
fn every_blocking_route_is_named() {
    const MESSAGE: &str = "a handler blocks its worker, and every other connection of it";
    let _alone = collect();
    let routes: Vec<String> = (0..8).map(|number| format!("/blocks/{number}")).collect();
    let block = || std::thread::sleep(Duration::from_millis(3));
    let router = routes.iter().fold(Router::new(), |router, path| router.get(path, block));
    let mut server = serve(router);
    // The first call of all makes the worker suspicious; three that are timed convict a route.
    ask(server.address(), &routes[0]);
    for path in &routes {
        for _ in 0..3 {
            assert_eq!(ask(server.address(), path), "200");
        }
    }
    server.stop().expect("it drains");
    let mut named: Vec<String> = emitted(MESSAGE)
        .iter()
        .map(|event| event.field("route").expect("it names a route").to_owned())
        .collect();
    named.sort_unstable();
    assert_eq!(named, routes);
}
