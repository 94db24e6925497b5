//! Are the routes there, as a client sees them over real sockets: HTTP/1.1, HTTP/2 by prior knowledge, and both over TLS?
#![forbid(unsafe_code)]

mod http2;

use std::process::Command;
use std::sync::Arc;

use highwater_testkit::{Answer, Process, get, program, request};
use http2::Http2;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;

/// What is mounted: a data set, static files, and a certificate.
struct Mounts {
    folder: TempDir,
    certificate: CertificateDer<'static>,
}

impl Mounts {
    fn new() -> Mounts {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed([String::from("localhost")]).expect("the name is right");
        let mounts = Mounts { folder, certificate: cert.der().clone() };
        let items: Vec<String> = (0..50).map(item).collect();
        mounts.write("dataset.json", format!("[{}]", items.join(",")).as_bytes());
        mounts.write("server.crt", cert.pem().as_bytes());
        mounts.write("server.key", signing_key.serialize_pem().as_bytes());
        std::fs::create_dir(mounts.folder.path().join("static")).expect("it is new");
        mounts.write("static/app.js", &pattern(204_800));
        mounts.write("static/app.js.br", b"as it was compressed");
        mounts.write("static/logo.svg", b"<svg/>");
        mounts.write("static/vendor.js", &pattern(307_200));
        mounts
    }

    fn write(&self, name: &str, content: &[u8]) {
        std::fs::write(self.folder.path().join(name), content).expect("it is writable");
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Starts the program with all of it. `options` are the listener's.
    fn start(&self, options: &str, more: &[&str]) -> Process {
        let listen = format!("127.0.0.1:0{options}");
        let (dataset, files) = (self.path("dataset.json"), self.path("static"));
        let mut command = arena(&["--listen", &listen, "--dataset", &dataset, "--static", &files]);
        Process::start(command.args(more))
    }

    fn start_tls(&self) -> Process {
        let (certificate, key) = (self.path("server.crt"), self.path("server.key"));
        self.start(",tls", &["--tls-cert", &certificate, "--tls-key", &key])
    }

    /// How a client connects that trusts the certificate.
    fn client(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("it is a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has ciphers for all versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    }
}

fn arena(args: &[&str]) -> Command {
    let mut command = program(env!("CARGO_BIN_EXE_highwater-arena"));
    command.args(["--metrics=off", "--workers=2"]).args(args);
    command
}

fn item(id: usize) -> String {
    format!(
        r#"{{"id":{id},"name":"Item {id}","category":"tools","price":{},"quantity":3,"active":true,"tags":["a","b"],"rating":{{"score":42,"count":7}}}}"#,
        10 + id
    )
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place % 251) as u8).collect()
}

/// What `/json/{count}?m=3` answers.
fn items(count: usize) -> String {
    let total = |id: usize| (10 + id) * 3 * 3;
    let with_total = |id| {
        format!(r#"{},"total":{}}}"#, item(id).trim_end_matches('}').to_owned() + "}", total(id))
    };
    let items: Vec<String> = (0..count).map(with_total).collect();
    format!(r#"{{"items":[{}],"count":{count}}}"#, items.join(","))
}

/// One request of the contract, and its answer.
struct Case {
    method: &'static str,
    target: &'static str,
    body: Vec<u8>,
    status: u16,
    media_type: &'static str,
    answer: Vec<u8>,
}

fn case(
    call: (&'static str, &'static str),
    body: Vec<u8>,
    media_type: &'static str,
    answer: impl Into<Vec<u8>>,
) -> Case {
    let (method, target) = call;
    Case { method, target, body, status: 200, media_type, answer: answer.into() }
}

/// What every protocol has to answer alike.
fn cases() -> Vec<Case> {
    const TEXT: &str = "text/plain; charset=utf-8";
    const OCTETS: &str = "application/octet-stream";
    let none = Vec::new;
    vec![
        case(("GET", "/baseline11?a=13&b=42"), none(), TEXT, "55"),
        case(("POST", "/baseline11?a=13&b=42"), b"20".to_vec(), TEXT, "75"),
        case(("GET", "/baseline2?a=1&b=2"), none(), TEXT, "3"),
        case(("POST", "/baseline2?a=1&b=2"), b"-5".to_vec(), TEXT, "-2"),
        case(("GET", "/pipeline"), none(), TEXT, "ok"),
        case(("GET", "/delay/1"), none(), TEXT, "1"),
        case(("GET", "/json/12?m=3"), none(), "application/json", items(12)),
        case(("GET", "/big"), none(), OCTETS, pattern(1 << 20)),
        case(("POST", "/echo"), none(), OCTETS, none()),
        case(("POST", "/echo"), pattern(100_000), OCTETS, pattern(100_000)),
        case(("POST", "/upload"), pattern(3 << 20), TEXT, (3 << 20).to_string()),
        case(("GET", "/static/app.js"), none(), "text/javascript; charset=utf-8", pattern(204_800)),
        case(
            ("GET", "/static/vendor.js"),
            none(),
            "text/javascript; charset=utf-8",
            pattern(307_200),
        ),
        case(("GET", "/static/logo.svg"), none(), "image/svg+xml", "<svg/>"),
        case(
            ("GET", "/sse?n=3&ms=1"),
            none(),
            "text/event-stream",
            "data: 0\n\ndata: 1\n\ndata: 2\n\n",
        ),
    ]
}

fn check(case: &Case, answer: &Answer) {
    let shown = format!("{} {}", case.method, case.target);
    assert_eq!(answer.status, case.status, "{shown}");
    assert_eq!(answer.header("content-type"), Some(case.media_type), "{shown}");
    assert_eq!(answer.header("content-encoding"), None, "{shown}: nobody asked for a coding");
    assert!(answer.body == case.answer, "{shown}: {} bytes", answer.body.len());
}

/// Purpose: each route answers as the contract says, and the connection lasts.
#[test]
fn over_http1() {
    let mounts = Mounts::new();
    let server = mounts.start("", &[]);
    let mut client = server.connect();
    for case in cases() {
        check(&case, &client.call(case.method, case.target, "", &case.body));
    }
    let chunked = "POST /baseline11?a=13&b=42 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n20\r\n0\r\n\r\n";
    assert_eq!(client.ask(chunked).text(), "75");
    assert_eq!(client.get("/static/nonexistent.txt").status, 404);
    assert_eq!(client.get("/ws").status, 426);
}

/// Purpose: the same over HTTP/2, by prior knowledge and agreed over TLS.
#[test]
fn over_http2() {
    let mounts = Mounts::new();
    let (plain, secured) = (mounts.start("", &[]), mounts.start_tls());
    for (server, tls) in [(&plain, None), (&secured, Some(mounts.client()))] {
        http2::with_client(server.address, tls, async |client: Http2| {
            for case in cases() {
                check(&case, &client.call(case.method, case.target, &[], &case.body).await);
            }
        });
    }
}

/// Purpose: content is compressed for those who accept it: made afresh, and from a file beside the one that was asked for.
#[test]
fn codings() {
    let mounts = Mounts::new();
    let server = mounts.start("", &[]);
    let mut client = server.connect();
    let accepts = "Accept-Encoding: br;q=1, gzip;q=0.8\r\n";
    let answer = client.call("GET", "/json/40?m=3", accepts, b"");
    assert_eq!(answer.header("content-encoding"), Some("br"));
    let mut decoded = Vec::new();
    brotli::BrotliDecompress(&mut answer.body.as_slice(), &mut decoded).expect("it is brotli");
    assert_eq!(String::from_utf8(decoded).expect("text"), items(40));
    let answer = client.call("GET", "/static/app.js", accepts, b"");
    assert_eq!(
        (answer.header("content-encoding"), answer.text()),
        (Some("br"), "as it was compressed")
    );
    http2::with_client(server.address, None, async |client: Http2| {
        let answer = client.call("GET", "/json/40?m=3", &[("accept-encoding", "gzip")], b"").await;
        assert_eq!(answer.header("content-encoding"), Some("gzip"));
    });
}

/// Purpose: `/ws` sends messages back as they came: text as text, bytes as bytes.
#[test]
fn echoes_of_websockets() {
    let mounts = Mounts::new();
    let server = mounts.start("", &[]);
    let mut client = server.connect();
    let fields = "Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let upgraded = client.ask(request("GET", "/ws", fields, ""));
    assert_eq!(upgraded.status, 101);
    for opcode in [1, 2] {
        // A whole message, masked with zeros, and as it comes back (RFC 6455 §5.2).
        let message = [&[0x80 | opcode, 0x85, 0, 0, 0, 0], &b"hello"[..]].concat();
        client.send(message).expect("it is open");
        let wanted = [&[0x80 | opcode, 5], &b"hello"[..]].concat();
        let seen = client.received().len();
        while client.received().len() < seen + wanted.len() {
            assert!(client.read_more().expect("it is open"), "it has closed");
        }
        assert_eq!(client.received()[seen..], wanted);
    }
}

/// Purpose: among the routes of conformance suites, `/echo` is theirs, and every other route is what it was.
#[test]
fn probes_keep_their_echo() {
    let mounts = Mounts::new();
    let server = mounts.start("", &["--probe"]);
    let echoed = server.ask("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(echoed.text(), "Host: a\nContent-Length: 2\n");
    assert_eq!(server.get("/baseline2?a=1&b=2").text(), "3");
}

/// Purpose: without data and files the program serves everything else.
#[test]
fn without_mounts() {
    let server = Process::start(&mut arena(&["--listen=127.0.0.1:0"]));
    for (target, mount) in [("/json/1", "/data/dataset.json"), ("/static/app.js", "/data/static")] {
        if !std::path::Path::new(mount).exists() {
            assert_eq!(server.ask(get(target)).status, 404, "{target}");
        }
    }
    assert_eq!(server.get("/json").status, 200);
}

/// Purpose: a wrong setting ends the program with status 2, and the message names it, its value, and what to write instead.
#[test]
fn wrong_settings() {
    let mounts = Mounts::new();
    let (dataset, crt) = (mounts.path("dataset.json"), mounts.path("server.crt"));
    let cases: [(&[&str], &[&str]); 6] = [
        (
            &["--dataset=/no/such.json"],
            &["--dataset", "/no/such.json", "No such file", "JSON array"],
        ),
        (&["--dataset", &crt], &["--dataset", &crt, "line 1", "JSON array"]),
        (&["--static=/no/such"], &["--static", "/no/such", "No such file", "use a folder"]),
        (&["--static", &dataset], &["--static", &dataset, "not a folder", "use one"]),
        (&["--variant=none"], &["--variant", "none", "text-fixed"]),
        (&["--datasets=a"], &["--datasets", "--dataset"]),
    ];
    for (args, words) in cases {
        let output = arena(args).arg("--listen=127.0.0.1:0").output().expect("it starts");
        let text = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        for word in words {
            assert!(text.contains(word), "{args:?}: no {word:?} in {text}");
        }
    }
}

/// Purpose: settings that the server cannot start with end the program with status 2, as wrong flags do; what the machine
/// refuses ends it with 1.
#[test]
fn settings_that_cannot_be_served() {
    let status = |args: &[&str]| {
        let output = arena(args).output().expect("the binary under test was built");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let missing = "/nowhere/certificate.pem";
    let (code, output) = status(&["--listen=127.0.0.1:0,tls"]);
    assert!(code == Some(2) && output.contains("set tls-cert and tls-key"), "{code:?} {output}");
    let files = ["--tls-cert", missing, "--tls-key", missing];
    let (code, output) = status(&[&["--listen=127.0.0.1:0,tls"], &files[..]].concat());
    assert!(code == Some(2) && output.contains(missing), "{code:?} {output}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound").to_string();
    let (code, output) = status(&["--listen", &address]);
    assert!(code == Some(1) && output.contains(&address), "{code:?} {output}");
}
