//! `highwater load` with mixes, parameters, expectations, logs and charts, against our own server.

use std::collections::HashSet;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

use base64::Engine as _;
use bytes::Bytes;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use highwater::{Router, Running, Server, ServerConfig, StatusCode};
use serde_json::Value;

/// What the server was asked: paths of users, and bodies.
static USERS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static BODIES: Mutex<Vec<Bytes>> = Mutex::new(Vec::new());

fn user(highwater::Path(id): highwater::Path<String>) -> String {
    USERS.lock().expect("no panic").push(id.clone());
    format!("{{\"name\":\"user {id}\"}}")
}

fn accept(body: Bytes) -> StatusCode {
    BODIES.lock().expect("no panic").push(body);
    StatusCode::ACCEPTED
}

fn plain() -> &'static str {
    "Hello, World!"
}

/// Our own server, until the test has ended.
struct Arena(Running);

impl Arena {
    fn start() -> Arena {
        let config = ServerConfig {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
            metrics: None,
            workers: NonZeroUsize::new(1),
            ..ServerConfig::default()
        };
        let router =
            Router::new().get("/users/{id}", user).get("/plain", plain).post("/todos", accept);
        Arena(Server::new(router).config(config).start().expect("loopback has a free port"))
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.0.address())
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let _ = self.0.stop();
    }
}

/// A folder of this test, gone when it ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder =
            std::env::temp_dir().join(format!("highwater-load-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        Folder(folder)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, content).expect("the temporary folder can be written");
        path.into_os_string().into_string().expect("the temporary folder is text")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn highwater(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_highwater"))
        .arg("load")
        .args(arguments)
        .output()
        .expect("the binary under test was built")
}

/// The JSON of a short run, all of whose answers are as they should be.
fn load(arguments: &[&str]) -> Value {
    load_ending(0, arguments)
}

/// The JSON of a short run with this exit status.
fn load_ending(status: i32, arguments: &[&str]) -> Value {
    let fixed = ["--json", "--warmup", "0s", "--duration", "300ms", "--connections", "8"];
    let output = highwater(&[&fixed[..], arguments].concat());
    let problem = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{problem}");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

fn count(json: &Value, field: &str) -> u64 {
    json[field].as_u64().unwrap_or_else(|| panic!("{field} in {json}"))
}

/// The mix that the guide shows, which must work as it is shown.
fn mix_of_the_guide() -> String {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/load.md");
    let guide = std::fs::read_to_string(guide).expect("the guide is there");
    let (_, rest) = guide.split_once("```toml\n").expect("the guide shows a mix");
    rest.split_once("```").expect("the block has an end").0.to_owned()
}

/// Purpose: the guide's mix sends each request with its parameters in the shares of its weights, over both
/// transports, pipelined and by several threads; every answer is what it expects; and its rows add up to the whole.
#[test]
fn mix() {
    let (arena, folder) = (Arena::start(), Folder::new("mix"));
    let photo: Vec<u8> = (0..=255).cycle().take(3000).collect();
    folder.file("photo.jpg", &photo);
    let mix = folder.file("mix.toml", mix_of_the_guide());
    let url = arena.url("");
    for extra in [
        &["--transport", "epoll"][..],
        &["--threads", "2", "--pipeline", "4"],
        &["--rate", "2000", "--arrivals", "poisson"],
        &["--close"],
    ] {
        let json = load(&[&[url.as_str(), "--mix", &mix][..], extra].concat());
        let rows = json["requests"].as_array().expect("a row for each request");
        let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
        assert_eq!(names, ["read", "create", "POST /todos?photo"], "{json}");
        for field in ["sent", "ok", "non_2xx", "bad_responses", "refused", "timeouts", "errors"] {
            let sum: u64 = rows.iter().map(|row| count(row, field)).sum();
            assert_eq!(sum, count(&json, field), "{field} of {json}");
        }
        assert!(count(&json, "ok") > 0, "{json}");
        assert_eq!(count(&json, "ok"), count(&json, "sent"), "{json}");
        assert_eq!(count(&json, "bad_responses"), 0, "{json}");
        assert!(rows[0]["p50_us"].as_f64() > Some(0.0), "{json}");
    }
    let ids: HashSet<u64> = {
        let users = USERS.lock().expect("no panic");
        users.iter().filter_map(|id| id.parse().ok()).collect()
    };
    assert!(ids.len() > 20 && ids.iter().all(|id| (1..=1000).contains(id)), "{ids:?}");
    let bodies = BODIES.lock().expect("no panic");
    assert!(bodies.iter().any(|body| *body == photo));
    // Another test sends bodies that are no JSON.
    let todos: Vec<&Bytes> = bodies.iter().filter(|body| body.starts_with(b"{")).collect();
    let mut titles = HashSet::new();
    for todo in &todos {
        let todo: Value = serde_json::from_slice(todo).expect("a body of the mix is JSON");
        assert!(["low", "high"].contains(&todo["priority"].as_str().expect("text")), "{todo}");
        titles.insert(todo["title"].to_string());
    }
    assert!(!todos.is_empty());
    // Runs repeat each other, as the seed is the same; within one, each is its own.
    assert!(titles.len() * 8 > todos.len(), "{} of {}", titles.len(), todos.len());
}

/// Purpose: parameters in a URL, a header and a body of the command line are replaced, `$${` and `@@` escape, files
/// are sent as they are; and one seed sends the same requests again.
#[test]
fn parameters_of_the_command_line() {
    let (arena, folder) = (Arena::start(), Folder::new("parameters"));
    let headers = folder.file("headers", "X-A: 1\n\nContent-Type: application/json\n");
    let body = folder.file("body", "${uuid} as it is");
    let url = arena.url("/todos?n=${seq}");
    let of = |text: &str| {
        BODIES
            .lock()
            .expect("no panic")
            .iter()
            .filter(|body| body.starts_with(text.as_bytes()))
            .count()
    };
    let from_file = format!("@{body}");
    for (given, heard) in [
        ("command ${pick:one,two} $${seq}", "command "),
        ("@@command", "@command"),
        (from_file.as_str(), "${uuid} as it is"),
    ] {
        let header = format!("@{headers}");
        let json =
            load(&[&url, "-X", "POST", "-H", &header, "--body", given, "--expect-status", "202"]);
        assert_eq!(count(&json, "ok"), count(&json, "sent"), "{json}");
        assert_eq!(count(&json, "bad_responses"), 0, "{json}");
        assert!(of(heard) as u64 >= count(&json, "ok"), "{heard}: {json}");
    }
    for body in BODIES.lock().expect("no panic").iter().filter(|body| body.starts_with(b"command"))
    {
        assert!(
            [&b"command one ${seq}"[..], b"command two ${seq}"].contains(&&body[..]),
            "{body:?}"
        );
    }
}

/// Purpose: answers that are not what was expected are counted and the first reasons told, in JSON and in text; they
/// are no goodput, and nothing else changes.
#[test]
fn unexpected_answers() {
    let arena = Arena::start();
    let url = arena.url("/plain");
    for (arguments, reason) in [
        (&["--expect-status", "204"][..], "status 200, expected 204"),
        (&["--expect-body", "Hello, World"], "body differs from byte 12 on"),
        (&["--expect-contains", "Moon"], "no \"Moon\" in a body of 13 bytes"),
        (&["--expect-header", "Content-Type: text/html"], "expected \"text/html\""),
    ] {
        let json = load_ending(4, &[&[url.as_str()][..], arguments].concat());
        assert_eq!(count(&json, "bad_responses"), count(&json, "sent"), "{json}");
        assert_eq!((count(&json, "ok"), count(&json, "good")), (count(&json, "sent"), 0), "{json}");
        let reasons = json["bad_response_reasons"].as_array().expect("a list");
        assert_eq!(reasons.len(), 1, "each reason once: {json}");
        assert!(reasons[0].as_str().expect("text").contains(reason), "{json}");
    }
    let fine = ["--expect-contains", "World", "--expect-header", "content-length: 13"];
    let json = load(&[&[url.as_str(), "--pipeline", "5"][..], &fine].concat());
    assert_eq!(count(&json, "bad_responses"), 0, "{json}");
    assert_eq!(count(&json, "good"), count(&json, "sent"), "{json}");
    let shown = [&url, "--warmup", "0s", "--duration", "100ms", "--expect-status", "404"];
    let output = highwater(&shown);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("\n  unexpected  ") && text.contains("  unexpected: http"), "{text}");
}

/// Purpose: the log of latencies is read by HdrHistogram's own reader, and holds exactly the answers that the report
/// counts, with the same quantiles within the precision of both.
#[test]
fn log_of_latencies() {
    let (arena, folder) = (Arena::start(), Folder::new("hlog"));
    let path = folder.file("run.hlog", "");
    let url = arena.url("/plain");
    let json =
        load(&[&url, "--rate", "2000", "--threads", "2", "--series", "50ms", "--hlog", &path]);
    let text = std::fs::read_to_string(&path).expect("it was written");
    let mut all = Histogram::<u64>::new(3).expect("three digits");
    let mut lines = 0;
    for entry in IntervalLogIterator::new(text.as_bytes()) {
        let LogEntry::Interval(interval) = entry.expect("a valid line") else { continue };
        let bytes = base64::engine::general_purpose::STANDARD.decode(interval.encoded_histogram());
        let histogram: Histogram<u64> =
            Deserializer::new().deserialize(&mut bytes.expect("base64").as_slice()).expect("V2");
        all.add(histogram).expect("it grows");
        lines += 1;
    }
    assert!(lines >= 6, "{text}");
    assert_eq!(all.len(), count(&json, "ok"), "{json}");
    for (field, quantile) in [("p50_us", 0.5), ("p99_us", 0.99)] {
        let (theirs, ours) = (all.value_at_quantile(quantile) as f64 / 1e3, json[field].as_f64());
        let ours = ours.expect("a number");
        assert!((theirs - ours).abs() <= ours * 0.02 + 0.2, "{field}: {theirs} and {ours}");
    }
}

/// Purpose: charts are drawn when asked for; not otherwise where no terminal is, and never in JSON.
#[test]
fn charts() {
    let arena = Arena::start();
    let url = arena.url("/plain");
    let short = [&url, "--warmup", "0s", "--duration", "300ms", "--series", "50ms"];
    let text = |extra: &[&str]| {
        let output = highwater(&[&short[..], extra].concat());
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let drawn = text(&["--chart"]);
    assert!(drawn.contains("2xx per second, 50.0 ms per column") && drawn.contains("█"), "{drawn}");
    assert!(drawn.contains("latency by percentile") && drawn.contains("p99.9 │"), "{drawn}");
    assert!(!text(&[]).contains("│"));
    assert!(!text(&["--json"]).contains("│"));
}

/// Purpose: each mistake in a mix or a new flag exits with 2, before anything is sent, and names file, request,
/// setting, value and remedy.
#[test]
fn wrong_mixes() {
    let folder = Folder::new("wrong");
    let url = "http://127.0.0.1:1";
    for (mix, messages) in [
        ("", &["0 requests; write 1 to 256"][..]),
        ("[[request]", &["mix.toml: TOML parse error at line 1"]),
        ("[[request]]\npath = \"/\"\nwieght = 2", &["line 3", "wieght", "weight"]),
        ("name = 1", &["unknown field `name`"]),
        ("[[request]]\nweight = 1", &["missing field `path`"]),
        (
            "[[request]]\npath = \"/\"\nweight = 0",
            &["request \"GET /\": weight 0 is not 1 to 1000000"],
        ),
        ("[[request]]\npath = \"/\"\nweight = -3", &["weight -3 is not 1 to 1000000"]),
        ("[[request]]\npath = \"/\"\nweight = 1000001", &["weight 1000001 is not"]),
        ("[[request]]\npath = \"users\"", &["path \"users\" is not a path; write /PATH"]),
        ("[[request]]\npath = \"/a b\"", &["path: byte 0x20", "percent-encoded"]),
        (
            "[[request]]\npath = \"/${rnd}\"",
            &["path: ${rnd}: is not a parameter; write ${random:1-1000}"],
        ),
        (
            "[[request]]\nname=\"a\"\npath=\"/\"\n[[request]]\nname=\"a\"\npath=\"/\"",
            &["its own `name`"],
        ),
        ("[[request]]\npath = \"/\"\nmethod = \"G T\"", &["method \"G T\" is not a method"]),
        (
            "[[request]]\npath = \"/\"\nheaders = {\"a b\" = \"c\"}",
            &["header \"a b: c\" is not a header"],
        ),
        (
            "[[request]]\npath = \"/\"\nbody = \"a\"\nbody_file = \"b\"",
            &["body and body_file; write one"],
        ),
        ("[[request]]\npath = \"/\"\nbody_file = \"none\"", &["body_file ", "/none: No such file"]),
        (
            "[[request]]\npath = \"/\"\nexpect = {status = 99}",
            &["expect.status 99 is not a status"],
        ),
        ("[[request]]\npath = \"/\"\nexpect = {body = \"a\", contains = \"b\"}", &["write one"]),
        ("[[request]]\npath = \"/\"\nexpect = {contains = \"\"}", &["expect.contains is empty"]),
    ] {
        let file = folder.file("mix.toml", mix);
        refused(&[url, "--mix", &file], messages);
    }
    let good = folder.file("mix.toml", "[[request]]\npath = \"/\"");
    for (arguments, messages) in [
        (&["--mix", "/no/such/mix"][..], &["--mix /no/such/mix: No such file", "name a file"][..]),
        (&["--mix", &good, "--body", "a"], &["cannot be used with"]),
        (&["--mix", &good, "-X", "GET"], &["cannot be used with"]),
        (&["--mix", &good, "--expect-status", "200"], &["cannot be used with"]),
        (&["--mix", &good, "http://127.0.0.1:1"], &["the mix has the paths; give one URL"]),
        (&["--body", "${uid}"], &["--body: ${uid}: is not a parameter"]),
        (&["--body", "@/no/such"], &["--body /no/such: No such file"]),
        (&["-H", "@/no/such"], &["--header /no/such: No such file"]),
        (&["-H", "A: ${random:2-1}"], &["--header: ${random:2-1}: the lower number stands first"]),
        (&["--expect-status", "600"], &["--expect-status 600 is not a status; write 200 to 599"]),
        (&["--expect-contains", ""], &["--expect-contains is empty"]),
        (&["--expect-header", "a"], &["--expect-header \"a\" is not a header"]),
        (&["--hlog", "/no/such/folder/x"], &["--hlog /no/such/folder/x", "can be written"]),
        (&["--chart", "--json"], &["cannot be used with"]),
    ] {
        refused(&[&[url][..], arguments].concat(), messages);
    }
}

fn refused(arguments: &[&str], expected: &[&str]) {
    let output = highwater(arguments);
    let problem = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {problem}");
    for part in expected {
        assert!(problem.contains(part), "{arguments:?}: {part:?} in {problem}");
    }
}

/// Purpose: a server that is not there is named, with what to do, and nothing else is blamed.
#[test]
fn nobody_listens() {
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let url = format!("http://{}/", closed.expect("loopback has a free port"));
    let output = highwater(&[&url, "--warmup", "0s", "--duration", "100ms"]);
    let problem = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{problem}");
    assert!(problem.contains(&url) && problem.contains("start the server"), "{problem}");
}
