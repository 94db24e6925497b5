//! Each route of the program, over real sockets: what its feature promises.
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use highwater_testkit::{Answer, Client, Document, Process, program, schemathesis, typescript};

/// The program, with a folder of files.
struct Everything {
    process: Process,
    _files: tempfile::TempDir,
}

fn start(more: &[&str]) -> Everything {
    let files = tempfile::tempdir().expect("a folder");
    std::fs::write(files.path().join("index.html"), "<p>index").expect("a file");
    std::fs::write(files.path().join("a.txt"), "0123456789").expect("a file");
    std::fs::write(files.path().join("a.txt.gz"), "zipped").expect("a file");
    let mut command = program(env!("CARGO_BIN_EXE_highwater-example-everything"));
    command
        .args(["--listen=127.0.0.1:0", "--metrics=127.0.0.1:0", "--workers=1", "--files"])
        .arg(files.path());
    Everything { process: Process::start(command.args(more)), _files: files }
}

impl Everything {
    fn call(&self, method: &str, target: &str, fields: &str, content: impl AsRef<[u8]>) -> Answer {
        let mut client: Client = self.process.connect();
        client.call(method, target, fields, content)
    }

    fn get(&self, target: &str, fields: &str) -> Answer {
        self.call("GET", target, fields, "")
    }
}

/// The cookies that an answer sets, as they are sent back.
fn cookies(answer: &Answer) -> Vec<String> {
    let set = answer.headers.iter().filter(|(name, _)| name == "set-cookie");
    set.filter_map(|(_, value)| Some(value.split(';').next()?.to_owned())).collect()
}

/// Purpose: content is compressed as the client likes it, tagged, kept, and decoded within a limit.
#[test]
fn contents() {
    let all = start(&[]);
    let plain = all.get("/compressed", "");
    assert_eq!((plain.body.len(), plain.header("content-encoding")), (64 << 10, None));
    plain.json();
    for coding in ["gzip", "br", "zstd"] {
        let answer = all.get("/compressed", &format!("Accept-Encoding: {coding}\r\n"));
        assert_eq!(answer.header("content-encoding"), Some(coding));
        let mut decoded = Vec::new();
        match coding {
            "gzip" => {
                flate2::read::GzDecoder::new(&answer.body[..]).read_to_end(&mut decoded).map(drop)
            }
            "br" => brotli::Decompressor::new(&answer.body[..], 4096)
                .read_to_end(&mut decoded)
                .map(drop),
            _ => zstd::stream::copy_decode(&answer.body[..], &mut decoded),
        }
        .expect("it is compressed");
        assert!(decoded == plain.body, "{coding}");
    }

    let tagged = all.get("/etag", "");
    let tag = tagged.header("etag").expect("it has one").to_owned();
    assert!(!tag.starts_with("W/"), "{tag}");
    assert_eq!(all.get("/etag", &format!("If-None-Match: {tag}\r\n")).status, 304);

    assert_eq!((all.get("/cached", "").text(), all.get("/cached", "").text()), ("1", "1"));
    assert!(all.get("/cached", "").header("age").is_some());
}

/// Purpose: a few bytes that become many are 413, a coding that is not known 415, and what is not what it says 400.
#[test]
fn decompressed() {
    let all = start(&[]);
    let content = "0123456789".repeat(10_000);
    let zeros = vec![0; (1 << 20) + 1];
    let encode = |coding: &str, content: &[u8]| -> Vec<u8> {
        let mut encoded = Vec::new();
        match coding {
            "gzip" => flate2::read::GzEncoder::new(content, Default::default())
                .read_to_end(&mut encoded)
                .map(drop),
            "deflate" => flate2::read::ZlibEncoder::new(content, Default::default())
                .read_to_end(&mut encoded)
                .map(drop),
            "br" => brotli::CompressorWriter::new(&mut encoded, 4096, 5, 22).write_all(content),
            _ => zstd::stream::copy_encode(content, &mut encoded, 3),
        }
        .expect("into memory");
        encoded
    };
    for coding in ["gzip", "deflate", "br", "zstd"] {
        let field = format!("Content-Encoding: {coding}\r\n");
        let ask = |content: &[u8]| all.call("POST", "/decompressed", &field, content);
        assert_eq!(ask(&encode(coding, content.as_bytes())).text(), "100000", "{coding}");
        assert_eq!(ask(&encode(coding, &zeros[1..])).text(), "1048576", "{coding}");
        assert_eq!(ask(&encode(coding, &zeros)).status, 413, "{coding}");
        assert_eq!(ask(b"\xff\xff no such thing").status, 400, "{coding}");
        assert_eq!(ask(&encode(coding, content.as_bytes())[..20]).status, 400, "{coding}, cut");
    }
    assert_eq!(all.call("POST", "/decompressed", "", "abc").text(), "3");
    assert_eq!(all.call("POST", "/decompressed", "Content-Encoding: lzma\r\n", "x").status, 415);
}

/// Purpose: clients are limited by the address that a trusted proxy names, and by their own otherwise.
#[test]
fn clients() {
    let behind = start(&["--trusted-proxies", "127.0.0.0/8"]);
    let forwarded = |address: &str| format!("X-Forwarded-For: {address}\r\n");
    assert_eq!(behind.get("/client", &forwarded("203.0.113.7")).text(), "203.0.113.7");
    for number in 0..5 {
        assert_eq!(behind.get("/limited", &forwarded("203.0.113.7")).status, 200, "{number}");
    }
    let limited = behind.get("/limited", &forwarded("203.0.113.7"));
    assert_eq!(limited.status, 429);
    assert!(limited.header("retry-after").is_some() && limited.header("ratelimit").is_some());
    assert_eq!(behind.get("/limited", &forwarded("203.0.113.8")).status, 200);
    let alone = start(&[]);
    assert_eq!(alone.get("/client", &forwarded("203.0.113.7")).text(), "127.0.0.1");
}

/// Purpose: what takes too long, panics, or is sent on, is answered as it should be, and the program goes on.
#[test]
fn time_and_accidents() {
    let all = start(&[]);
    assert_eq!(all.get("/timeout?ms=1", "").text(), "after 1 ms");
    assert_eq!(all.get("/timeout?ms=60000", "").status, 504);
    assert_eq!(all.get("/panic", "").status, 500);
    let redirect = all.get("/redirect", "");
    assert_eq!(redirect.status, 303);
    assert_eq!(all.get(redirect.header("location").expect("it has one"), "").status, 200);
    let id = all.get("/request-id", "");
    assert_eq!(id.header("x-request-id"), Some(id.text()));
    assert_eq!(all.get("/request-id", "X-Request-Id: r-7\r\n").text(), "r-7");
    assert_ne!(all.get("/request-id", "").text(), id.text());
    assert_eq!(all.get("/before/rewritten?a", "").text(), "/before/rewritten?a is /rewritten?a");
}

/// Purpose: sessions, forms, passwords and tokens let pass who has the proof, and nobody else.
#[test]
fn identity() {
    let all = start(&[]);
    let first = all.get("/session", "");
    assert_eq!(first.text(), "1");
    let cookie = format!("Cookie: {}\r\n", cookies(&first).join("; "));
    assert_eq!(all.get("/session", &cookie).text(), "2");
    let forged = cookie.replace("1\r\n", "9\r\n").replace("session=", "session=x");
    assert_eq!(all.get("/session", &forged).text(), "1");

    let set = cookies(&all.get("/cookies", ""));
    assert_eq!(set.len(), 2);
    assert!(!set.join("").contains("secret"), "{set:?}");
    let sent = all.get("/cookies", &format!("Cookie: {}\r\n", set.join("; "))).json();
    assert_eq!((&sent["signed"], &sent["private"]), (&"read me".into(), &"a secret".into()));

    let page = all.get("/form", "");
    let (_, rest) = page.text().split_once("value=\"").expect("a field");
    let token = rest.split('"').next().expect("its end");
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let cookie = format!("{form}Cookie: {}\r\n", cookies(&page).join("; "));
    let body = format!("csrf_token={token}&text=%3Cb%3E");
    assert!(all.call("POST", "/form", &cookie, &body).text().contains("<p>&lt;b&gt;</p>"));
    assert_eq!(all.call("POST", "/form", &cookie, "text=x").status, 403);
    assert_eq!(all.call("POST", "/form", form, &body).status, 403);

    let basic = |user: &str| format!("Authorization: Basic {}\r\n", STANDARD.encode(user));
    assert_eq!(all.get("/basic", &basic("aladdin:open sesame")).text(), "aladdin");
    for wrong in [basic("aladdin:open"), basic("ali:open sesame"), String::new()] {
        let answer = all.get("/basic", &wrong);
        assert_eq!(answer.status, 401);
        assert!(
            answer
                .header("www-authenticate")
                .is_some_and(|field| field.starts_with("Basic realm="))
        );
    }
    let now = std::time::SystemTime::now();
    let secret = "a secret that is no secret, of 32 bytes or more";
    let token = highwater::auth::issue(secret, "ann", now, Duration::from_secs(60));
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    assert_eq!(all.get("/jwt", &bearer(&token)).json()["sub"], "ann");
    let other = highwater::auth::issue("other", "ann", now, Duration::from_secs(60));
    assert_eq!(all.get("/jwt", &bearer(&other)).status, 401);
    assert_eq!(all.get("/jwt", "").status, 401);
}

/// Purpose: a form with files is counted part by part, and beyond its limits it is 413.
#[test]
fn uploads() {
    let all = start(&[]);
    let form = "Content-Type: multipart/form-data; boundary=b\r\n";
    let part = |name: &str, content: &str| {
        format!(
            "--b\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{name}.txt\"\r\nContent-Type: text/plain\r\n\r\n{content}\r\n"
        )
    };
    let ask = |parts: &[String]| all.call("POST", "/upload", form, parts.concat() + "--b--\r\n");
    let answer = ask(&[part("a", "abc"), part("b", "")]);
    assert_eq!(
        answer.text(),
        r#"[{"name":"a","file_name":"a.txt","content_type":"text/plain","bytes":3},{"name":"b","file_name":"b.txt","content_type":"text/plain","bytes":0}]"#
    );
    assert_eq!(ask(&vec![part("a", ""); 8]).status, 200);
    assert_eq!(ask(&vec![part("a", ""); 9]).status, 413);
    assert_eq!(ask(&[part("a", &"x".repeat(1 << 20))]).status, 200);
    assert_eq!(ask(&[part("a", &"x".repeat((1 << 20) + 1))]).status, 413);
    assert_eq!(all.call("POST", "/upload", "Content-Type: text/plain\r\n", "x").status, 415);
}

/// Purpose: an answer has the form that the client asks for, and whatever it sends is text in a page.
#[test]
fn representations() {
    let all = start(&[]);
    for (accept, kind) in [
        ("application/json", "application/json"),
        ("text/csv", "text/csv; charset=utf-8; header=present"),
        ("text/html,*/*;q=0.5", "text/html; charset=utf-8"),
        ("*/*", "application/json"),
    ] {
        let answer = all.get("/accept", &format!("Accept: {accept}\r\n"));
        assert_eq!(answer.header("content-type"), Some(kind), "{accept}");
    }
    assert!(
        all.get("/accept", "Accept: text/csv\r\n").text().contains("\"Venus, \"\"dry\"\"\",0\r\n")
    );
    assert_eq!(all.get("/accept", "Accept: image/png\r\n").status, 406);
    let lines = all.get("/ndjson?n=10000", "");
    assert_eq!(
        (lines.header("content-type"), lines.text().lines().count()),
        (Some("application/x-ndjson"), 10_000)
    );
    assert_eq!(lines.text().lines().last(), Some("{\"n\":9999}"));
    let table = all.get("/csv?n=10000", "");
    assert_eq!(table.text().split_terminator("\r\n").count(), 10_001);
    assert!(table.text().starts_with("n,note\r\n0,\"'=A0, as somebody wrote it\"\r\n"));
    let rows = "note,n\r\n\"a, b\",7\r\nc,35\r\n";
    let imported = all.call("POST", "/csv", "Content-Type: text/csv\r\n", rows);
    assert_eq!(imported.text(), "42 a, b");
    let wrong = all.call("POST", "/csv", "Content-Type: text/csv\r\n", "n,note\nx,y\n");
    assert!(wrong.status == 422 && wrong.text().contains("line 2, column `n`"), "{}", wrong.text());
    let page = all.get("/template?name=%3Cscript%3E%22%27%26", "");
    assert!(page.text().contains("Hello, &lt;script&gt;&quot;&#39;&amp;!"), "{}", page.text());
}

/// Purpose: files come whole, in part, compressed before, and with a page for the folder.
#[test]
fn files() {
    let all = start(&[]);
    assert_eq!(all.get("/files/", "").text(), "<p>index");
    let part = all.get("/files/a.txt", "Range: bytes=2-4\r\n");
    assert_eq!((part.status, part.text()), (206, "234"));
    let parts = all.get("/files/a.txt", "Range: bytes=0-1,8-\r\n");
    let kind = parts.header("content-type").expect("it has one").to_owned();
    assert!(parts.status == 206 && kind.starts_with("multipart/byteranges; boundary="), "{kind}");
    assert!(parts.text().contains("\r\n\r\n01\r\n") && parts.text().contains("\r\n\r\n89\r\n"));
    let whole = all.get("/files/a.txt", "");
    for (condition, validator) in
        [("If-None-Match", "etag"), ("If-Modified-Since", "last-modified")]
    {
        let value = whole.header(validator).expect(validator);
        let again = all.get("/files/a.txt", &format!("{condition}: {value}\r\n"));
        assert_eq!((again.status, again.text()), (304, ""), "{condition}");
    }
    assert_eq!(all.get("/files/a.txt", "Accept-Encoding: gzip\r\n").text(), "zipped");
    assert_eq!(all.get("/files/../Cargo.toml", "").status, 404);
}

/// Purpose: all wrong fields are named at once.
#[test]
fn validation() {
    let all = start(&[]);
    let json = "Content-Type: application/json\r\n";
    let good = r#"{"email":"ann@example.org","age":18,"name":"Ann"}"#;
    assert_eq!(
        all.call("POST", "/validated", json, good).text(),
        r#"{"email":"ann@example.org","age":18,"name":"Ann"}"#
    );
    let wrong = all.call("POST", "/validated", json, r#"{"email":"ann","age":7,"name":""}"#);
    assert_eq!(wrong.status, 422);
    let details = wrong.json()["error"]["details"].clone();
    let fields: Vec<&str> = details
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["field"].as_str())
        .collect();
    assert_eq!(fields, ["age", "email", "name"]);
}

/// Purpose: the five routes of a resource, its pages, and two clients that do not overwrite each other's changes; the document
/// describes them as they are.
#[test]
fn books() {
    let all = start(&[]);
    let json = "Content-Type: application/json\r\n";
    let book = |number: usize| format!(r#"{{"title":"Book {number}","author":"Ann"}}"#);
    for number in 1..=25 {
        let created = all.call("POST", "/books", json, book(number));
        assert_eq!(created.status, 201, "{}", created.text());
        assert_eq!(created.header("location"), Some(&*format!("/books/{number}")));
        assert!(created.header("etag").is_some());
    }
    let page = all.get("/books?page=2&per_page=10", "").json();
    assert_eq!((&page["total"], &page["items"][0]["id"]), (&25.into(), &11.into()));
    assert_eq!(
        all.get("/books?page=4&per_page=10", "").json()["items"].as_array().map(Vec::len),
        Some(0)
    );
    assert_eq!(all.get("/books", "").json()["items"].as_array().map(Vec::len), Some(20));
    assert_eq!(all.get("/books?per_page=101", "").status, 422);
    assert_eq!(all.get("/books?page=0", "").status, 422);

    let one = all.get("/books/7", "");
    let tag = one.header("etag").expect("it has one").to_owned();
    assert_eq!(all.get("/books/7", &format!("If-None-Match: {tag}\r\n")).status, 304);
    let matching = format!("{json}If-Match: {tag}\r\n");
    let changed = all.call("PUT", "/books/7", &matching, r#"{"title":"New","author":"Bob"}"#);
    assert_eq!((changed.status, &changed.json()["title"]), (200, &"New".into()));
    assert_eq!(
        all.call("PUT", "/books/7", &matching, book(7)).status,
        412,
        "somebody else was faster"
    );
    assert_eq!(all.call("DELETE", "/books/7", &matching, "").status, 412);
    let tag = changed.header("etag").expect("it has one");
    assert_eq!(all.call("DELETE", "/books/7", &format!("If-Match: {tag}\r\n"), "").status, 204);
    assert_eq!(all.get("/books/7", "").status, 404);
    assert_eq!(all.call("PATCH", "/books/8", json, book(8)).status, 405);
    let page = all.get("/books?page=2&per_page=10", "");
    assert!(page.header("link").is_some_and(|link| link.contains("rel=\"next\"")));
    let tag = page.header("etag").expect("it has one");
    let again = format!("If-None-Match: {tag}\r\n");
    assert_eq!(all.get("/books?page=2&per_page=10", &again).status, 304);
    assert_eq!(all.call("PUT", "/books/7", json, book(7)).status, 404);
    assert_eq!(all.call("POST", "/books", json, r#"{"title":"","author":"x"}"#).status, 422);

    let document = Document::new(all.get("/openapi.json", "").text());
    assert_eq!(document.problems(), Vec::<String>::new());
    assert_eq!(document.calls().len(), 7);
    for call in document.calls() {
        let (kind, content) = call.content.clone().unwrap_or_default();
        let fields =
            if kind.is_empty() { String::new() } else { format!("Content-Type: {kind}\r\n") };
        let answer = all.call(&call.method, &call.target, &fields, content);
        document
            .check(&call, answer.status, answer.header("content-type"), &answer.body)
            .expect("as it says");
    }
}

/// Purpose: a payment that is sent twice is made once, though the server was killed in between; and its key is needed.
#[test]
fn payments() {
    let keys = tempfile::tempdir().expect("a folder");
    let keys = format!("--keys={}", keys.path().join("keys").display());
    let payment = r#"{"to":"Ann","cents":1050}"#;
    let pay = |all: &Everything, key: &str| {
        let fields = format!("Content-Type: application/json\r\n{key}");
        all.call("POST", "/payments", &fields, payment)
    };
    let mut all = start(&[&keys]);
    let first = pay(&all, "Idempotency-Key: \"k\"\r\n");
    assert_eq!((first.status, &first.json()["cents"]), (201, &1050.into()));
    all.process.kill();
    let all = start(&[&keys]);
    let again = pay(&all, "Idempotency-Key: \"k\"\r\n");
    assert_eq!((again.status, again.text()), (201, first.text()));
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    let missing = pay(&all, "");
    assert_eq!(missing.header("content-type"), Some("application/problem+json"));
    assert_eq!((missing.status, &missing.json()["code"]), (400, &"idempotency_key_missing".into()));
}

/// Purpose: events come numbered, and go on where a client was; a client that asks for no WebSocket is told how, and one that does
/// gets it.
#[test]
fn what_lasts() {
    let all = start(&[]);
    for (field, first) in [("", "1"), ("Last-Event-ID: 41\r\n", "42")] {
        let mut stream = std::net::TcpStream::connect(all.process.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("it is open");
        write!(stream, "GET /events HTTP/1.1\r\nHost: h\r\n{field}\r\n").expect("it is open");
        let mut received = String::new();
        let mut piece = [0; 1024];
        while !received.contains("\n\n") || !received.contains(&format!("data: {first}\n")) {
            let length = stream.read(&mut piece).expect("it goes on");
            assert!(length > 0, "{received}");
            received.push_str(&String::from_utf8_lossy(&piece[..length]));
        }
        assert!(
            received.to_ascii_lowercase().contains("content-type: text/event-stream"),
            "{received}"
        );
        assert!(received.contains(&format!("id: {first}\n")), "{received}");
    }
    assert_eq!(all.get("/ws", "").status, 426);
    let mut stream = std::net::TcpStream::connect(all.process.address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("it is open");
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    write!(stream, "GET /ws HTTP/1.1\r\nHost: h\r\n{upgrade}\r\n\r\n").expect("it is open");
    // "hi", masked with zeros.
    stream.write_all(&[0x81, 0x82, 0, 0, 0, 0, b'h', b'i']).expect("it is open");
    let mut received = Vec::new();
    let mut piece = [0; 1024];
    while !received.ends_with(&[0x81, 2, b'h', b'i']) {
        let length = stream.read(&mut piece).expect("it goes on");
        assert!(length > 0, "{}", String::from_utf8_lossy(&received));
        received.extend_from_slice(&piece[..length]);
    }
    assert!(received.starts_with(b"HTTP/1.1 101"));
}

/// Purpose: what the document says is what the routes do, for whatever a client may send.
#[test]
fn the_document_is_true_for_values_that_nobody_thought_of() {
    let all = start(&[]);
    schemathesis(&format!("http://{}/openapi.json", all.process.address), &[]);
}

/// Purpose: a client that a tool makes of the document compiles, strictly, and does with the server what its types say.
#[test]
fn a_client_in_typescript() {
    let all = start(&[]);
    typescript(&format!("http://{}/openapi.json", all.process.address), "everything.ts", &[]);
}
