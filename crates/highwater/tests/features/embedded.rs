//! Files that are a part of the program: they answer as those of a folder do.

use highwater::files::StaticFiles;
use highwater::testing::{Client, Response};
use highwater::{Method, Router};
use rust_embed::RustEmbed;

#[derive(RustEmbed)]
#[folder = "tests/assets"]
struct Assets;

fn client(change: fn(StaticFiles) -> StaticFiles, files: StaticFiles) -> Client {
    Client::new(Router::new().files("/", change(files)).get("/route", || "a route"))
}

fn embedded(change: fn(StaticFiles) -> StaticFiles) -> Client {
    client(change, StaticFiles::embedded::<Assets>())
}

fn on_disk(change: fn(StaticFiles) -> StaticFiles) -> Client {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/assets");
    client(change, StaticFiles::new(folder))
}

fn ask(client: &Client, method: &Method, target: &str, fields: &[(&str, &str)]) -> Response {
    let request = client.request(method.clone(), target);
    fields.iter().fold(request, |request, (name, value)| request.header(name, value)).send()
}

/// What an answer says but for its tag and its date, which a boundary of parts is not a part of.
fn parts(answer: &Response) -> (u16, Vec<Option<String>>, String) {
    let names = [
        "content-length",
        "content-encoding",
        "content-range",
        "vary",
        "location",
        "cache-control",
    ];
    let fields = names.iter().map(|name| answer.header(name).map(str::to_owned));
    let kind = answer.header("content-type").unwrap_or_default();
    let (kind, boundary) = kind.split_once("boundary=").unwrap_or((kind, "no boundary"));
    let fields = fields.chain([Some(kind.to_owned())]).collect();
    (answer.status.as_u16(), fields, answer.text().replace(boundary, "BOUNDARY"))
}

/// Purpose: whatever is asked, a folder in the program and the same folder on the disk give the same answer.
#[test]
fn the_same_as_on_the_disk() {
    let changes: [fn(StaticFiles) -> StaticFiles; 4] = [
        |files| files,
        |files| files.precompressed().cache_control("max-age=60"),
        |files| files.single_page("index.html").index(None),
        |files| files.hidden().media_type("js", "text/x-js"),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let (embedded, on_disk) = (embedded(change), on_disk(change));
        for target in [
            "/",
            "/index.html",
            "/app.js",
            "/app%2ejs",
            "/sub",
            "/sub/",
            "/sub/?a=b",
            "/sub/index.html",
            "/gone.js",
            "/gone",
            "/gone/",
            "/../Cargo.toml",
            "/%2e%2e/assets/app.js",
            "//app.js",
            "/sub/../app.js",
            "/sub%2findex.html",
            "/app.js/",
            "/.hidden",
            "/route",
        ] {
            for fields in [
                &[][..],
                &[("accept-encoding", "gzip, br")],
                &[("accept-encoding", "identity;q=0, gzip")],
                &[("accept", "text/html")],
                &[("range", "bytes=2-5")],
                &[("range", "bytes=0-1, 4-5")],
                &[("range", "bytes=-3")],
                &[("range", "bytes=1000-")],
                &[("if-none-match", "*")],
                &[("if-match", "\"other\"")],
                &[("if-modified-since", "Fri, 01 Jan 2100 00:00:00 GMT")],
                &[("if-unmodified-since", "Thu, 01 Jan 1970 00:00:01 GMT")],
            ] {
                for method in [Method::GET, Method::HEAD, Method::POST] {
                    let ask = |client| parts(&ask(client, &method, target, fields));
                    let shown = format!("{number}: {method} {target} {fields:?}");
                    assert_eq!(ask(&embedded), ask(&on_disk), "{shown}");
                }
            }
        }
    }
}

/// Purpose: tags are of the content, strong, and another one for a compressed sibling; both validators save the content.
#[test]
fn validators() {
    let client = embedded(StaticFiles::precompressed);
    let whole = client.get("/app.js");
    let tag = whole.header("etag").expect("it has one").to_owned();
    assert!(tag.len() == 34 && tag.starts_with('"') && tag.ends_with('"'), "{tag}");
    let date = whole.header("last-modified").expect("it has one").to_owned();
    let zipped = ask(&client, &Method::GET, "/app.js", &[("accept-encoding", "gzip")]);
    assert_eq!(zipped.header("content-encoding"), Some("gzip"));
    assert_ne!(zipped.header("etag"), Some(&*tag));
    for field in [("if-none-match", &*tag), ("if-modified-since", &*date)] {
        let again = ask(&client, &Method::GET, "/app.js", &[field]);
        assert_eq!(
            (again.status.as_u16(), again.text(), again.header("etag")),
            (304, "", Some(&*tag))
        );
    }
    let range = [("range", "bytes=0-1"), ("if-range", &*tag)];
    assert_eq!(ask(&client, &Method::GET, "/app.js", &range).status, 206);
    let range = [("range", "bytes=0-1"), ("if-range", "\"other\"")];
    assert_eq!(ask(&client, &Method::GET, "/app.js", &range).status, 200);
}
