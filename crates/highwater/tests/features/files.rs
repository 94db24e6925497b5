//! Static files over real sockets: what is served, in which form and state, and what never is.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};

use highwater::files::{CACHED_FILE_BYTES_MAX, StaticFiles};
use highwater::server::TransportChoice;
use highwater::{Error, Html, Router};
use tempfile::TempDir;

use crate::answers::Answer;
use crate::served::{HANG, exchange, start};
use crate::transports::on_each_transport;

/// A folder with these files. They are a day old, as files are that somebody serves.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    files.iter().for_each(|(name, content)| write(folder.path(), name, content.as_bytes()));
    folder
}

fn write(folder: &Path, name: &str, content: &[u8]) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder");
    fs::write(&path, content).expect("a file");
    let yesterday = SystemTime::now() - Duration::from_secs(86_400);
    let file = fs::File::options().write(true).open(&path).expect("the file");
    file.set_modified(yesterday).expect("the file is ours");
}

fn ask(address: SocketAddr, path: &str, fields: &[&str]) -> Answer {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n");
    exchange(address, &request)
}

/// The bytes of an answer, head and all.
fn raw(address: SocketAddr, request: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect_timeout(&address, HANG).expect("it listens");
    stream.set_read_timeout(Some(HANG)).expect("it is open");
    stream.write_all(request.as_bytes()).expect("it is open");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("it is answered");
    bytes
}

/// Content in which every place looks different.
fn large(size: usize) -> Vec<u8> {
    (0..size).map(|at| (b'a' + (at % 23) as u8) ^ (at / 4099 % 5) as u8).collect()
}

on_each_transport! {
    /// Purpose: a site is served as a browser needs it: pages for folders, types, lengths, and the router's own 404s.
    fn a_site(transport) {
        let site = folder(&[
            ("index.html", "<h1>home</h1>"),
            ("sub/index.html", "<h1>sub</h1>"),
            ("sub/a b.css", "p {}"),
            ("empty", ""),
            ("bare/x.txt", "x"),
            (".env", "SECRET=1"),
            (".well-known/security.txt", "Contact: x"),
        ]);
        let app = Router::new()
            .errors(|error: &Error| Html(format!("{} at home", error.status().as_u16())))
            .files("/static", StaticFiles::new(site.path()).cache_control("max-age=60"));
        let server = start(app, transport);
        let get = |path: &str| ask(server.address(), path, &[]);
        for _ in 0..2 { // From the disk, then from memory.
            let home = get("/static/");
            assert_eq!((home.status, home.content.as_str()), (200, "<h1>home</h1>"));
            assert_eq!(home.field("content-type"), Some("text/html; charset=utf-8"));
            assert_eq!(home.field("content-length"), Some("13"));
            assert_eq!(home.field("accept-ranges"), Some("bytes"));
            assert_eq!(home.field("cache-control"), Some("max-age=60"));
            assert_eq!(home.field("vary"), None);
            assert!(home.field("etag").is_some_and(|tag| tag.starts_with('"')));
            assert!(home.field("last-modified").is_some_and(|date| date.ends_with(" GMT")));
            assert_eq!(get("/static/sub/").content, "<h1>sub</h1>");
            assert_eq!(get("/static/sub/a%20b.css?v=1").field("content-type"), Some("text/css; charset=utf-8"));
            let empty = get("/static/empty");
            assert_eq!((empty.status, empty.field("content-length")), (200, Some("0")));
            assert_eq!(empty.field("content-type"), Some("application/octet-stream"));
            assert_eq!(get("/static/.well-known/security.txt").status, 200);
        }
        for (path, to) in [
            ("/static", "/static/"), ("/static?q=1", "/static/?q=1"),
            ("/static/sub", "/static/sub/"), ("/static/sub?q", "/static/sub/?q"),
        ] {
            let moved = get(path);
            assert_eq!((moved.status, moved.field("location")), (307, Some(to)), "{path}");
        }
        for path in ["/static/bare", "/static/bare/", "/static/none", "/static/.env", "/static/index.html/"] {
            let none = get(path);
            assert_eq!((none.status, none.content.as_str()), (404, "404 at home"), "{path}");
            assert_eq!(none.field("cache-control"), None);
        }
        let post = exchange(server.address(), "POST /static/x HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\
            Connection: close\r\n\r\n");
        assert_eq!((post.status, post.field("allow")), (405, Some("GET, HEAD, OPTIONS")));
    }

    /// Purpose: nothing outside of the folder is ever served, however the path is spelled, and whatever a link says.
    fn no_way_out(transport) {
        let base = folder(&[("secret", "secret"), ("root/file", "content"), ("root/sub/file", "content")]);
        let root = base.path().join("root");
        symlink("../secret", root.join("link")).expect("a link");
        symlink(base.path().join("secret"), root.join("absolute")).expect("a link");
        symlink("..", root.join("up")).expect("a link");
        symlink("sub/file", root.join("inside")).expect("a link");
        for prefix in ["/static", ""] {
            let mount = if prefix.is_empty() { "/" } else { prefix };
            let server = start(Router::new().files(mount, StaticFiles::new(&root)), transport);
            for path in [
                "/../secret", "/..%2fsecret", "/..%2Fsecret", "/%2e%2e/secret", "/%2E%2E/secret", "/.%2e/secret",
                "/%2e./secret", "/sub/../../secret", "/sub/..%2f..%2fsecret", "//secret", "//etc/passwd", "/sub//file",
                "/./file", "/sub/./file", "/sub/../file", "/..\\secret", "/..%5csecret", "/%5c..%5csecret",
                "/%00", "/file%00", "/file%00.css", "/..%00/secret", "/%c0%ae%c0%ae/secret", "/%c0%ae%c0%ae%c0%afsecret",
                "/%e0%80%ae%e0%80%ae/secret", "/%252e%252e/secret", "/%252e%252e%252fsecret", "/%u002e%u002e/secret",
                "/....//secret", "/..;/secret", "/link", "/absolute", "/up/secret", "/up/root/file", "/file/",
                "/file/../../secret", "/sub%2ffile", "/~/secret", "/proc/self/environ",
            ] {
                let answer = raw(server.address(),
                    &format!("GET {prefix}{path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
                let text = String::from_utf8_lossy(&answer);
                // Some are no request target at all, which the connection refuses.
                assert!(text.starts_with("HTTP/1.1 404 ") || text.starts_with("HTTP/1.1 400 "), "{path}: {text}");
                let is_target = path.bytes().all(|byte| byte != b'\\');
                assert!(!is_target || text.starts_with("HTTP/1.1 404 "), "{path}: {text}");
                assert!(!text.contains("content\r\n") && !text.ends_with("secret"), "{path}");
            }
            for path in ["/file", "/sub/file", "/inside"] {
                assert_eq!(ask(server.address(), &format!("{prefix}{path}"), &[]).content, "content", "{path}");
            }
        }
    }

    /// Purpose: a change on the disk is seen by the next request, in whatever way it was made, and old bytes never have a new
    /// tag.
    fn follows_the_disk(transport) {
        let site = folder(&[("a.txt", "one"), ("b.txt", "b")]);
        let server = start(Router::new().files("/", StaticFiles::new(site.path()).precompressed()), transport);
        let get = |path: &str, coding: &str| ask(server.address(), path, &[&format!("Accept-Encoding: {coding}")]);
        let first = get("/a.txt", "br");
        assert_eq!(get("/a.txt", "br").content, "one");
        fs::write(site.path().join("a.txt"), "two").expect("the file");
        let second = get("/a.txt", "br");
        assert_eq!(second.content, "two");
        assert_ne!(first.field("etag"), second.field("etag"));
        // Put back in time, and of the same size: only the inode's change tells.
        write(site.path(), "a.txt", b"six");
        let third = get("/a.txt", "br");
        assert_eq!(third.content, "six");
        write(site.path(), "a.txt", b"ten");
        assert_ne!(third.field("etag"), get("/a.txt", "br").field("etag"));
        write(site.path(), "new", b"renamed");
        fs::rename(site.path().join("new"), site.path().join("a.txt")).expect("the file");
        assert_eq!(get("/a.txt", "br").content, "renamed");
        for _ in 0..2 {
            assert_eq!(get("/a.txt", "br").field("content-encoding"), None);
        }
        write(site.path(), "a.txt.br", b"compressed");
        for _ in 0..2 {
            assert_eq!(get("/a.txt", "br").content, "compressed");
        }
        fs::remove_file(site.path().join("a.txt.br")).expect("the file");
        assert_eq!(get("/a.txt", "br").content, "renamed");
        fs::remove_file(site.path().join("a.txt")).expect("the file");
        assert_eq!(get("/a.txt", "br").status, 404);
    }

    /// Purpose: builds that are to be the same each time give all files one time: the tag tells what is different all the same, of small
    /// files and of large ones, and a copy of a small one has the same tag.
    fn tags_of_files_with_one_time(transport) {
        let yesterday = SystemTime::now() - Duration::from_secs(86_400);
        let site = folder(&[]);
        let put = |name: &str, content: &[u8]| {
            write(site.path(), "new", content);
            let file = fs::File::options().write(true).open(site.path().join("new")).expect("the file");
            file.set_modified(yesterday).expect("the file is ours");
            fs::rename(site.path().join("new"), site.path().join(name.trim_start_matches('/'))).expect("the file");
        };
        let server = start(Router::new().files("/", StaticFiles::new(site.path())), transport);
        let large_size = CACHED_FILE_BYTES_MAX as usize + 1;
        let tag = |path: &str, content: &[u8]| {
            put(path, content);
            let answer = ask(server.address(), path, &["Range: bytes=0-0"]);
            answer.field("etag").expect("a tag").to_owned()
        };
        for (one, two) in [(vec![b'a'; 3], vec![b'b'; 3]), (vec![b'a'; large_size], vec![b'b'; large_size])] {
            assert_ne!(tag("/f", &one), tag("/f", &two), "{} bytes", one.len());
        }
        assert_eq!(tag("/f", b"same"), tag("/g", b"same"));
    }

    /// Purpose: the root may be a link that a deployment moves on.
    fn follows_a_deployment(transport) {
        let base = folder(&[("1/a", "first"), ("2/a", "second")]);
        let current = base.path().join("current");
        symlink("1", &current).expect("a link");
        let server = start(Router::new().files("/", StaticFiles::new(&current)), transport);
        for _ in 0..2 {
            assert_eq!(ask(server.address(), "/a", &[]).content, "first");
        }
        fs::remove_file(&current).expect("the link");
        symlink("2", &current).expect("a link");
        assert_eq!(ask(server.address(), "/a", &[]).content, "second");
    }

    /// Purpose: a compressed sibling is sent to those who accept it, with its own tag and the type of what it stands for.
    fn precompressed(transport) {
        let site = folder(&[
            ("app.js", "plain"), ("app.js.br", "brotli"), ("app.js.gz", "gzip"), ("app.js.zst", "zstd"),
            ("only.css", "plain"), ("only.css.gz", "gzip"),
        ]);
        let server = start(Router::new().files("/", StaticFiles::new(site.path()).precompressed()), transport);
        let mut tags = Vec::new();
        for (path, accepted, content, coding) in [
            ("/app.js", "gzip, deflate, br, zstd", "brotli", Some("br")),
            ("/app.js", "gzip, zstd", "zstd", Some("zstd")),
            ("/app.js", "gzip;q=0.5, br;q=0.4", "gzip", Some("gzip")),
            ("/app.js", "br;q=0, *;q=0.1", "zstd", Some("zstd")),
            ("/app.js", "identity, br;q=0.5", "plain", None),
            ("/app.js", "deflate", "plain", None),
            ("/app.js", "", "plain", None),
            ("/only.css", "br, gzip;q=0.1", "gzip", Some("gzip")),
            ("/only.css", "br", "plain", None),
        ] {
            for _ in 0..2 {
                let answer = ask(server.address(), path, &[&format!("Accept-Encoding: {accepted}")]);
                assert_eq!((answer.content.as_str(), answer.field("content-encoding")), (content, coding), "{path} {accepted}");
                assert_eq!(answer.field("vary"), Some("accept-encoding"));
                assert!(answer.field("content-type").is_some_and(|of| of.starts_with("text/")));
                tags.push(format!("{path} {coding:?} {}", answer.field("etag").expect("a tag")));
            }
        }
        let (path, tag): (Vec<_>, Vec<_>) = tags.iter().map(|tag| tag.split_once(" \"").expect("a tag")).unzip();
        let distinct = |of: Vec<&str>| of.into_iter().collect::<std::collections::BTreeSet<_>>().len();
        assert_eq!(distinct(tags.iter().map(String::as_str).collect()), distinct(path), "one tag for each form");
        assert_eq!(tag.len(), 18);
        let fresh = ask(server.address(), "/app.js", &["Accept-Encoding: br"]);
        let tag = format!("If-None-Match: {}", fresh.field("etag").expect("a tag"));
        let same = ask(server.address(), "/app.js", &["Accept-Encoding: br", &tag]);
        assert_eq!((same.status, same.field("vary")), (304, Some("accept-encoding")));
        assert_eq!(ask(server.address(), "/app.js", &["Accept-Encoding: gzip", &tag]).status, 200);
        assert_eq!(ask(server.address(), "/app.js.br", &[]).content, "brotli", "by its own name");
        assert_eq!(ask(server.address(), "/app.js.br", &[]).field("content-encoding"), None);
    }

    /// Purpose: parts of files, small and large, are exactly those bytes; a download goes on only in the state it began in.
    fn ranges(transport) {
        let (small, huge) = (large(1000), large(CACHED_FILE_BYTES_MAX as usize + 150_001));
        let site = folder(&[]);
        write(site.path(), "small", &small);
        write(site.path(), "huge", &huge);
        let server = start(Router::new().files("/", StaticFiles::new(site.path())), transport);
        for (path, content) in [("/small", &small), ("/huge", &huge)] {
            let size = content.len();
            let get = |fields: &[&str]| ask(server.address(), path, fields);
            let whole = get(&[]);
            assert!(whole.status == 200 && whole.content.as_bytes() == content.as_slice());
            assert_eq!(whole.field("content-length"), Some(size.to_string().as_str()));
            for (asked, from, to) in [
                ("0-0", 0, 1), ("10-19", 10, 20), ("-1", size - 1, size), ("-99999999", 0, size),
                ("500-", 500, size), ("0-99999999", 0, size), ("5-9, 8-20", 5, 21), ("3-3,4-4", 3, 5),
            ] {
                let part = get(&[&format!("Range: bytes={asked}")]);
                assert_eq!(part.status, 206, "{asked}");
                assert!(part.content.as_bytes() == &content[from..to], "{asked}");
                assert_eq!(part.field("content-range"), Some(format!("bytes {from}-{}/{size}", to - 1).as_str()));
                assert_eq!(part.field("etag"), whole.field("etag"));
            }
            let several = get(&[&format!("Range: bytes=-3,0-4, 9-{}", size - 10)]);
            assert_eq!(several.status, 206);
            let kind = several.field("content-type").expect("a type");
            let boundary = kind.strip_prefix("multipart/byteranges; boundary=").expect("it has parts");
            let mut expected = Vec::new();
            for (from, to) in [(size - 3, size), (0, 5), (9, size - 9)] {
                let before = if expected.is_empty() { "" } else { "\r\n" };
                expected.extend(format!("{before}--{boundary}\r\nContent-Type: application/octet-stream\r\n\
                    Content-Range: bytes {from}-{}/{size}\r\n\r\n", to - 1).into_bytes());
                expected.extend(&content[from..to]);
            }
            expected.extend(format!("\r\n--{boundary}--\r\n").into_bytes());
            assert!(several.content.as_bytes() == expected.as_slice());
            assert_eq!(several.field("content-length"), Some(expected.len().to_string().as_str()));
            let none = get(&["Range: bytes=99999999-"]);
            assert_eq!((none.status, none.field("content-range")), (416, Some(format!("bytes */{size}").as_str())));
            for ignored in ["bytes=9-1", "bytes=x", "lines=1-2", &format!("bytes={}", "0-0,5-5,".repeat(9))] {
                assert_eq!(get(&[&format!("Range: {ignored}")]).status, 200, "{ignored}");
            }
            let (tag, date) = (whole.field("etag").expect("one"), whole.field("last-modified").expect("one"));
            for (condition, status) in [
                (tag, 206), ("\"other\"", 200), (date, 206), ("Sun, 06 Nov 1994 08:49:37 GMT", 200),
            ] {
                assert_eq!(get(&["Range: bytes=0-1", &format!("If-Range: {condition}")]).status, status, "{condition}");
            }
        }
    }

    /// Purpose: HEAD has the fields of GET and no content, whatever `Range` says; conditions are answered with 304 and 412.
    fn heads_and_conditions(transport) {
        let site = folder(&[("a.txt", "0123456789")]);
        write(site.path(), "huge", &large(CACHED_FILE_BYTES_MAX as usize + 1));
        let server = start(Router::new().files("/", StaticFiles::new(site.path())), transport);
        for (path, length) in [("/a.txt", "10"), ("/huge", "1048577")] {
            let head = raw(server.address(),
                &format!("HEAD {path} HTTP/1.1\r\nHost: h\r\nRange: bytes=1-2\r\nConnection: close\r\n\r\n"));
            let head = String::from_utf8(head).expect("text").to_ascii_lowercase();
            assert!(head.starts_with("http/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
            assert!(head.contains(&format!("content-length: {length}\r\n")), "{head}");
            let get = |fields: &[&str]| ask(server.address(), path, fields);
            let whole = get(&[]);
            let (tag, date) = (whole.field("etag").expect("one"), whole.field("last-modified").expect("one"));
            for (fields, status) in [
                (&[format!("If-None-Match: {tag}")][..], 304),
                (&[format!("If-None-Match: \"x\", W/{tag}")], 304),
                (&[String::from("If-None-Match: *")], 304),
                (&[String::from("If-None-Match: \"x\"")], 200),
                (&[format!("If-Modified-Since: {date}")], 304),
                (&[String::from("If-None-Match: \"x\""), format!("If-Modified-Since: {date}")], 200),
                (&[format!("If-Match: {tag}")], 200),
                (&[String::from("If-Match: \"x\"")], 412),
                (&[String::from("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT")], 412),
                (&[format!("If-None-Match: {tag}"), String::from("Range: bytes=0-1")], 304),
            ] {
                let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
                let answer = get(&fields);
                assert_eq!(answer.status, status, "{path} {fields:?}");
                if status == 304 {
                    assert_eq!((answer.field("etag"), answer.content.as_str()), (Some(tag), ""));
                }
            }
        }
    }

    /// Purpose: an application that routes in the browser gets its page for its own addresses, but a missing script a 404.
    fn single_page(transport) {
        let site = folder(&[("index.html", "<app>"), ("app.js", "run()")]);
        let files = StaticFiles::new(site.path()).single_page("index.html");
        let app = Router::new().get("/api/x", || "api").files("/", files);
        let server = start(app, transport);
        for (path, accept, status, content) in [
            ("/", "*/*", 200, "<app>"),
            ("/todos/7", "text/html,*/*;q=0.8", 200, "<app>"),
            ("/todos/7", "*/*", 200, "<app>"),
            ("/todos/7", "application/json", 404, ""),
            ("/v1.2/x.y", "text/html", 200, "<app>"),
            ("/gone.js", "*/*", 404, ""),
            ("/app.js", "*/*", 200, "run()"),
            ("/api/x", "*/*", 200, "api"),
            ("/..%2fetc/passwd", "text/html", 404, ""),
        ] {
            let answer = ask(server.address(), path, &[&format!("Accept: {accept}")]);
            assert_eq!(answer.status, status, "{path} {accept}");
            assert!(status == 404 || answer.content == content, "{path} {accept}");
        }
    }

    /// Purpose: whether a page or 404 answers for a file that is not there depends on `Accept`, as both say; and a cache asks before
    /// it gives that page again, however long it may give files, and the page by its own name.
    fn single_page_in_caches(transport) {
        let site = folder(&[("index.html", "<app>"), ("app.js", "run()")]);
        for (set, page) in [
            (Some("max-age=31536000"), Some("no-cache")),
            (Some("private, No-Store"), Some("private, No-Store")),
            (None, None),
        ] {
            let mut files = StaticFiles::new(site.path()).single_page("index.html");
            if let Some(set) = set {
                files = files.cache_control(set);
            }
            let server = start(Router::new().files("/", files), transport);
            for (path, accept, vary, control) in [
                ("/", "text/html", None, set),
                ("/app.js", "*/*", None, set),
                ("/todos/7", "text/html", Some("accept"), page),
                ("/todos/7", "application/json", Some("accept"), None),
                ("/gone.js", "text/html", Some("accept"), page),
            ] {
                let answer = ask(server.address(), path, &[&format!("Accept: {accept}")]);
                assert_eq!(answer.field("vary"), vary, "{path} {accept}");
                assert_eq!(answer.field("cache-control"), control, "{path} {accept}");
            }
        }
    }
}

/// Purpose: what is set up wrongly is found when the application is built, with the remedy.
#[test]
fn mistakes() {
    let site = folder(&[("file", "")]);
    let built = |prefix: &str, files: StaticFiles| {
        let built = Router::new().files(prefix, files).build();
        built.map(drop).map_err(|error| error.to_string())
    };
    let here = || StaticFiles::new(site.path());
    for (prefix, files, problem) in [
        ("/a/", here(), "files(\"/a/\"): a prefix begins with a slash"),
        ("a", here(), "write `/a`"),
        ("/", StaticFiles::new(site.path().join("none")), "name a folder that is there"),
        ("/", StaticFiles::new(site.path().join("file")), "it is not a folder"),
        ("/", here().single_page("../x"), "it is not the name of a file below the folder"),
        ("/", here().index(Some("a/b")), "it is not the name of a file; write `index.html`"),
        ("/", here().cache_control("a\nb"), "a value is visible ASCII on one line"),
        ("/", here().media_type("x", "plain"), "it is not a media type"),
    ] {
        let error = built(prefix, files).expect_err(problem);
        assert!(error.contains(problem), "{error}");
        assert_eq!(
            error.matches("StaticFiles").count().min(1),
            error.matches("StaticFiles").count(),
            "once: {error}"
        );
    }
    built("/", here().index(None).hidden().cache_bytes_max(0)).expect("it is right");
    let twice =
        Router::new().get("/", || "").files("/", here()).build().expect_err("both answer `/`");
    assert!(twice.to_string().contains("GET /: it is routed twice"));
}
