//! The work that is counted: pieces of the core by themselves, and requests through a whole worker.

use std::future;
use std::hint::black_box;
use std::path::Path;

use highwater::testing::Client;
use highwater::{Handler, Router, StatusCode};
use highwater_arena::variant::{self, Variant};
use highwater_arena::{bench, web};
use highwater_core::http::{BodyPlan, FieldWriter, Head, Limits, Payload};
use highwater_core::http1::{Connection, FieldEncoder, Next, Scratch};
use highwater_core::link::Link;
use highwater_core::route::{self, Params};
use highwater_core::time::Instant;

/// Times that a piece of work is done before it is counted: until nothing grows any more.
const WARM_UP: u32 = 200;

/// Requests that are sent in one piece, so that what a turn costs is shared by them and a request's own cost shows. Those
/// that are "alone" pay for their turns.
pub(super) const PIPELINED: u32 = 16;

/// What is done, in this order: a name, how often, and how many requests that is each time.
pub(super) const WORK: [(&str, u32, u32); 16] = [
    ("core/parse-respond", 1000, 1),
    ("core/parse-respond-browser", 1000, 1),
    ("core/route-32", 1000, 1),
    ("worker/plaintext-alone", 500, 1),
    ("worker/plaintext", 100, PIPELINED),
    ("worker/json", 100, PIPELINED),
    ("worker/parameter", 100, PIPELINED),
    ("worker/post", 100, PIPELINED),
    ("worker/fixed", 100, PIPELINED),
    ("worker/not-found", 100, PIPELINED),
    ("worker/refused-503", 100, PIPELINED),
    ("worker/split-head-alone", 500, 1),
    ("web/json-in-out", 100, PIPELINED),
    ("web/five-layers", 100, PIPELINED),
    ("web/one-around", 100, PIPELINED),
    // Some hundred thousand instructions each.
    ("web/gzip-8k-alone", 100, 1),
];

/// What wrk sends, and a browser's first fields.
pub(super) const FIELDS: &str = "Host: 127.0.0.1:8080\r\nUser-Agent: highwater\r\nAccept: */*\r\n";

/// What a browser sends with its first request of a page.
const BROWSER: &str = "Host: www.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Accept-Language: de-DE,de;q=0.9,en;q=0.8\r\n\
    Cache-Control: no-cache\r\n\
    Connection: keep-alive\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\
    Referer: https://www.example.com/start\r\n\
    Sec-Fetch-Dest: document\r\n\
    Sec-Fetch-Mode: navigate\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    sec-ch-ua: \"Chromium\";v=\"130\"\r\n\
    sec-ch-ua-platform: \"Linux\"\r\n";

/// Does all of it. Callgrind writes what it has counted at each [`mark`].
pub(super) fn run() {
    for (name, times, _) in WORK {
        let mut work = work(name);
        (0..WARM_UP).for_each(|_| work());
        mark();
        (0..times).for_each(|_| work());
        mark();
    }
}

/// Callgrind writes what was counted since the last one.
#[inline(never)]
fn mark() {
    black_box(());
}

/// What the core does is counted from entering this to leaving it; what a worker does, in its turn.
#[inline(never)]
fn counted(work: &mut dyn FnMut()) {
    work();
}

fn work(name: &str) -> Box<dyn FnMut()> {
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\n{FIELDS}\r\n");
    let many = |request: String| vec![request.repeat(PIPELINED as usize)];
    let hello = r#"{"message":"Hello, World!"}"#;
    match name {
        "core/parse-respond" => parse_and_respond(&get("/plaintext")),
        "core/parse-respond-browser" => {
            parse_and_respond(&format!("GET /items?page=2 HTTP/1.1\r\n{BROWSER}\r\n"))
        }
        "core/route-32" => route_among_32(),
        "worker/plaintext-alone" => requests(vec![get("/plaintext")], 200, "Hello, World!"),
        "worker/plaintext" => requests(many(get("/plaintext")), 200, "Hello, World!"),
        "worker/json" => requests(many(get("/json")), 200, hello),
        "worker/parameter" => requests(many(get("/users/12345")), 200, "12345"),
        "worker/post" => {
            let head = format!("POST /e HTTP/1.1\r\n{FIELDS}Content-Length: 8\r\n\r\n");
            requests(many(head + r#"{"n":42}"#), 202, "")
        }
        "worker/fixed" => requests(many(get("/json-static")), 200, hello),
        "worker/not-found" => requests(many(get("/no/such/path")), 404, ""),
        "worker/refused-503" => requests(many(get("/full")), 503, ""),
        "worker/split-head-alone" => {
            let whole = get("/plaintext");
            let (first, second) = whole.split_at(30);
            requests(vec![first.to_owned(), second.to_owned()], 200, "Hello, World!")
        }
        "web/json-in-out" => {
            let fields = format!("{FIELDS}Content-Type: application/json\r\nContent-Length: ");
            let size = ORDER.len();
            let request = format!("POST /web/orders HTTP/1.1\r\n{fields}{size}\r\n\r\n{ORDER}");
            exchanges(of_web(), many(request), "HTTP/1.1 200 ", RECEIPT)
        }
        "web/five-layers" => {
            let request =
                format!("GET /web/layers HTTP/1.1\r\n{FIELDS}Origin: https://a.example\r\n\r\n");
            exchanges(of_web(), many(request), "x-content-type-options: nosniff", "Hello, World!")
        }
        "web/one-around" => {
            let router = variant::routes(bench::routes(Router::new()), Variant::Around1);
            exchanges(router, many(get("/variant")), "HTTP/1.1 200 ", "Hello, World!")
        }
        "web/gzip-8k-alone" => {
            let fields = format!("{FIELDS}Accept-Encoding: gzip\r\n");
            let request = format!("GET /web/list HTTP/1.1\r\n{fields}\r\n");
            exchanges(of_web(), vec![request], "content-encoding: gzip", "")
        }
        _ => unreachable!("every name is one of WORK"),
    }
}

/// What the plan `web` sends and gets.
const ORDER: &str = r#"{"customer":"Ada Lovelace","items":[{"sku":"tea-earl-grey","quantity":2,"cents":450},{"sku":"jam-quince","quantity":1,"cents":620},{"sku":"bread-rye","quantity":3,"cents":380}]}"#;
const RECEIPT: &str = r#"{"customer":"Ada Lovelace","skus":["tea-earl-grey","jam-quince","bread-rye"],"total_cents":2660}"#;

/// The routes of the plan `web`. Nobody asks for its files.
fn of_web() -> Router {
    web::routes(bench::routes(Router::new()), Path::new("."))
}

/// A connection as it is without a worker: a request parsed, and the answer's bytes.
fn parse_and_respond(request: &str) -> Box<dyn FnMut()> {
    let request = request.to_owned();
    let (limits, now) = (Limits::default(), Instant::from_nanos(1));
    let (mut link, mut connection) = (Link::new(), Connection::new(now));
    let mut scratch = Scratch::default();
    let mut buffer = Vec::with_capacity(4096);
    let date = b"Sun, 06 Nov 1994 08:49:37 GMT";
    let mut work = move || {
        let mut input = black_box(request.as_bytes());
        let plan = |_: &Head<'_>| BodyPlan::Whole(0);
        let next = connection.next(&mut link, &mut input, &mut scratch, &limits, now, plan);
        assert!(matches!(next, Next::Request(_)));
        buffer.clear();
        link.lend_buffer(std::mem::take(&mut buffer));
        let body = Payload::Bytes(b"Hello, World!");
        let fields = |to: &mut FieldEncoder<'_>| to.push("content-type", b"text/plain");
        connection.respond(&mut link, 200, date, &limits, now, fields, body);
        let (output, _) = link.take_output(now).expect("an answer");
        link.on_sent(now);
        buffer = black_box(output.bytes);
    };
    Box::new(move || counted(&mut work))
}

/// One path with two parameters among 32 routes.
fn route_among_32() -> Box<dyn FnMut()> {
    let mut router = route::Router::new();
    let names = ["users", "posts", "tags", "orders", "products", "categories", "carts", "events"];
    let tails = ["", "/{id}", "/{id}/items", "/{id}/items/{item}"];
    for name in names {
        for tail in tails {
            router.insert(&format!("/{name}{tail}"), ()).expect("patterns differ");
        }
    }
    let mut params = Params::new();
    let mut work = move || {
        let found = router.find(black_box("/orders/12345/items/6"), &mut params);
        assert!(black_box(found).is_some());
    };
    Box::new(move || counted(&mut work))
}

/// Exchanges with the routes that every compared server has.
fn requests(pieces: Vec<String>, status: u16, body: &str) -> Box<dyn FnMut()> {
    let mut router = bench::routes(Router::new());
    if status == 503 {
        // Has the application run a Tokio runtime, as every one with such a handler does.
        let never = || async { future::pending::<StatusCode>().await };
        router = router.get("/full", never.concurrency_limit(1));
    }
    exchanges(router, pieces, &format!("HTTP/1.1 {status} "), body)
}

/// Exchanges with a server in process, one after the other on one connection. A request is sent in as many pieces as
/// `pieces` has. The first answer has the text `has` and ends with `body`; each is seen to be as long as the first.
fn exchanges(router: Router, pieces: Vec<String>, has: &str, body: &str) -> Box<dyn FnMut()> {
    // Both live as long as the program.
    let client: &'static Client = Box::leak(Box::new(Client::new(router)));
    if has == "HTTP/1.1 503 " {
        // Takes the one place, and keeps it.
        let first: &'static mut _ = Box::leak(Box::new(client.connect()));
        first.send(format!("GET /full HTTP/1.1\r\n{FIELDS}\r\n"));
    }
    let mut connection = client.connect();
    pieces.iter().for_each(|piece| connection.send(piece));
    // Compressed content is no text, and longer as one.
    let size = connection.received().len();
    let received = String::from_utf8_lossy(connection.received()).into_owned();
    assert!(received.starts_with("HTTP/1.1 ") && received.contains(has), "{received}");
    assert!(received.ends_with(body), "{received}");
    let mut times = 1;
    Box::new(move || {
        pieces.iter().for_each(|piece| connection.send(piece));
        times += 1;
        // To listen takes turns, too: now and then is enough.
        if times == WARM_UP {
            assert_eq!(connection.received().len(), size * times as usize);
        }
    })
}
