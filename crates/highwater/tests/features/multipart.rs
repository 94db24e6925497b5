//! Forms with files over real sockets: parts as they are, limits that hold, and what is no such form.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use highwater::multipart::{Multipart, MultipartLimits};
use highwater::server::TransportChoice;
use highwater::{Error, Handler, Json, Router};
use serde_json::{Value, json};

use crate::answers::{Answer, Answers};
use crate::served::{HANG, start};
use crate::transports::on_each_transport;

const LIMITS: MultipartLimits =
    MultipartLimits { parts_max: 3, part_bytes_max: 1000, total_bytes_max: 2500 };

async fn list(form: Multipart) -> Result<Json<Vec<Value>>, Error> {
    let mut form = form.limits(LIMITS);
    let mut summaries = Vec::new();
    while let Some(part) = form.next_part().await? {
        let (name, file, kind) = (
            part.name().to_owned(),
            part.file_name().map(str::to_owned),
            part.content_type().map(str::to_owned),
        );
        summaries.push(json!([name, file, kind, part.bytes().await?.len()]));
    }
    Ok(Json(summaries))
}

/// Reads no part: all are skipped, and count all the same.
async fn skip(form: Multipart) -> Result<String, Error> {
    let mut form = form.limits(LIMITS);
    let mut parts = 0;
    while form.next_part().await?.is_some() {
        parts += 1;
    }
    Ok(parts.to_string())
}

/// The bytes of a part of a form.
fn part(name: &str, content: &str) -> String {
    format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{content}\r\n")
}

/// What is answered to a form, which is sent in pieces of this many bytes. The server may stop reading it.
fn post(address: SocketAddr, path: &str, kind: &str, content: &[u8], piece: usize) -> Answer {
    let mut stream = TcpStream::connect_timeout(&address, HANG).expect("it listens");
    stream.set_read_timeout(Some(HANG)).expect("it is open");
    let length = content.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("it is open");
    for piece in content.chunks(piece) {
        if stream.write_all(piece).is_err() {
            break;
        }
    }
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes); // A reset may follow the answer.
    Answers::default().next(&mut bytes).expect("the answer is complete")
}

fn router() -> Router {
    Router::new()
        .post("/list", list.body_max(8 << 20))
        .post("/skip", skip.body_max(8 << 20))
        .post("/small", list.body_max(500))
}

const FORM: &str = "multipart/form-data; boundary=b";

on_each_transport! {
    /// Purpose: parts are what the client sent, however the bytes are cut.
    fn parts(transport) {
        let running = start(router(), transport);
        let file = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"../a b.png\"\r\nContent-Type: image/png\r\n\r\n\r\n--\r\n--c\r\n";
        let content = format!("preamble\r\n{}{file}\r\n--b--\r\nepilogue", part("text", "ñandú"));
        let expected = json!([["text", null, null, 7], ["file", "../a b.png", "image/png", 11]]);
        for piece in [1, 2, 7, 1000] {
            let answer = post(running.address(), "/list", FORM, content.as_bytes(), piece);
            assert_eq!((answer.status, &*answer.content), (200, &*expected.to_string()), "{piece}");
        }
        let quoted = "Multipart/Form-Data; charset=utf-8; boundary=\"b\"";
        assert_eq!(post(running.address(), "/skip", quoted, content.as_bytes(), 1000).content, "2");
        assert_eq!(post(running.address(), "/list", FORM, b"--b--\r\n", 1000).content, "[]");
    }
}

on_each_transport! {
    /// Purpose: what is larger than a limit is 413 with its name, at one more than the limit and not at it, whether or not
    /// the handler reads the part.
    fn limits(transport) {
        let running = start(router(), transport);
        let form = |sizes: &[usize]| {
            let parts = sizes.iter().map(|size| part("x", &"x".repeat(*size)));
            parts.collect::<String>() + "--b--\r\n"
        };
        for (sizes, code) in [
            (&[1000, 1000, 500][..], None),
            (&[1001], Some("part_too_large")),
            (&[0, 0, 0], None),
            (&[0, 0, 0, 0], Some("too_many_parts")),
            (&[1000, 1000, 501], Some("form_too_large")),
            (&[6_000_000], Some("part_too_large")),
        ] {
            for path in ["/list", "/skip"] {
                let answer = post(running.address(), path, FORM, form(sizes).as_bytes(), 60_000);
                match code {
                    None => assert_eq!(answer.status, 200, "{sizes:?} {}", answer.content),
                    Some(code) => {
                        assert_eq!(answer.status, 413, "{sizes:?} {}", answer.content);
                        assert!(answer.content.contains(code), "{}", answer.content);
                    }
                }
            }
        }
        let answer = post(running.address(), "/small", FORM, form(&[600]).as_bytes(), 60_000);
        assert_eq!(answer.status, 413, "the route's own limit: {}", answer.content);
        assert!(answer.content.contains("body_too_large"), "{}", answer.content);
    }
}

on_each_transport! {
    /// Purpose: a head or a preamble without an end takes no more memory than a head may, and is 413.
    fn bombs(transport) {
        let running = start(router(), transport);
        let much = "x".repeat(4_000_000);
        let many = "X-A: b\r\n".repeat(500_000);
        for bomb in [
            much.clone(),
            format!("--b\r\n{much}"),
            format!("--b\r\nContent-Disposition: form-data; name=\"{much}"),
            format!("--b\r\n{many}"),
        ] {
            let answer = post(running.address(), "/list", FORM, bomb.as_bytes(), 60_000);
            assert_eq!(answer.status, 413, "{}", answer.content);
            assert!(answer.content.contains("part_head_too_large"), "{}", answer.content);
        }
    }
}

on_each_transport! {
    /// Purpose: what is no form, has no boundary or ends too soon is the client's fault, and says what is wrong.
    fn what_is_no_form(transport) {
        let running = start(router(), transport);
        let good = part("x", "x") + "--b--\r\n";
        let long = format!("multipart/form-data; boundary={}", "b".repeat(71));
        for kind in [
            "application/json", "multipart/mixed; boundary=b", "multipart/form-data", "multipart/form-data; boundary=",
            "multipart/form-data; boundary=\"\"", "multipart/form-data; boundary=\"a\tb\"", &long,
        ] {
            let answer = post(running.address(), "/list", kind, good.as_bytes(), 1000);
            assert_eq!(answer.status, 415, "{kind}: {}", answer.content);
        }
        for content in [
            "", "x", "--b", "--b\r\n", "--b\r\n\r\n", "--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--\r\n",
            "--b\r\nContent-Disposition form-data; name=x\r\n\r\nx\r\n--b--\r\n", &part("x", "x"),
        ] {
            let answer = post(running.address(), "/list", FORM, content.as_bytes(), 1000);
            assert_eq!(answer.status, 400, "{content:?}: {}", answer.content);
            assert!(answer.content.contains("invalid_multipart"), "{content:?}: {}", answer.content);
        }
    }
}

async fn save(form: Multipart, path: std::path::PathBuf) -> Result<String, Error> {
    let mut form =
        form.limits(MultipartLimits { part_bytes_max: 2 << 20, ..MultipartLimits::default() });
    match form.next_part().await? {
        Some(part) => Ok(part.save(path).await?.to_string()),
        None => Ok("nothing".into()),
    }
}

on_each_transport! {
    /// Purpose: a part becomes a file whole, or not at all: never one that is there, nor half of one.
    fn files(transport) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("new");
        let to = path.clone();
        let handler = move |form: Multipart| save(form, to.clone());
        let running = start(Router::new().post("/", handler.body_max(8 << 20)), transport);
        let content: String = (0..1_500_000).map(|at| char::from(b'a' + (at / 1000 % 26) as u8)).collect();
        let form = part("x", &content) + "--b--\r\n";
        let ask = |form: &str| post(running.address(), "/", FORM, form.as_bytes(), 60_000);
        assert_eq!(ask(&form).content, "1500000");
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), content);
        assert_eq!(ask(&form).status, 500, "it is there already");
        assert_eq!(std::fs::read_to_string(&path).expect("it is still there"), content);
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(ask(&form[..form.len() - 20]).status, 400);
        assert_eq!(ask(&part("x", &"x".repeat(3 << 20))).status, 413);
        assert!(!path.exists(), "nothing half is left");
    }
}
