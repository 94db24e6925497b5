//! Complete heads, views of them, and the exact place of each limit.

use super::*;
use alloc::format;
use alloc::string::String;

fn parse(bytes: &[u8], limits: &Limits) -> Result<Option<Parsed>, Reject> {
    let mut parsed = Parsed::default();
    Ok(super::parse(bytes, limits, &mut parsed)?.then_some(parsed))
}

fn verdict(text: &[u8]) -> Result<Option<usize>, Reject> {
    parse(text, &Limits::default()).map(|parsed| parsed.map(|p| p.len))
}

/// Purpose: a head is complete exactly at its last byte, not before and not after.
#[test]
fn complete_at_the_last_byte_only() {
    let text = b"\r\nGET /a?b HTTP/1.1\r\nHost: h:80\r\nX:  y \r\n\r\n";
    for cut in 0..text.len() {
        assert_eq!(verdict(&text[..cut]), Ok(None), "cut at {cut}");
    }
    assert_eq!(verdict(text), Ok(Some(text.len())));
}

/// Purpose: the view shows path, query, and values without the white space around them.
#[test]
fn views() {
    let text = b"GET /a%20b?q=1 HTTP/1.1\r\nhost: h\r\nX:  y z \t\r\nx: 2\r\n\r\n";
    let parsed = parse(text, &Limits::default()).unwrap().unwrap();
    let head = parsed.head(text);
    assert_eq!((head.path(), head.query()), ("/a%20b", Some("q=1")));
    assert_eq!(head.headers().get("x"), Some(&b"y z"[..]));
    assert_eq!(head.headers().get_all("X").count(), 2);
    assert_eq!(head.headers().iter().map(|(name, _)| name).last(), Some("x"));
}

/// Purpose: the four forms of a request target (RFC 9112 §3.2), and targets that fit no method.
#[test]
fn target_forms() {
    let path = |line: &str| {
        let text = format!("{line} HTTP/1.1\r\nHost: h\r\n\r\n");
        let parsed = parse(text.as_bytes(), &Limits::default())?.unwrap();
        let head = parsed.head(text.as_bytes());
        Ok((String::from(head.path()), head.query().map(String::from)))
    };
    let ok = |path: &str, query: Option<&str>| Ok((path.into(), query.map(String::from)));
    assert_eq!(path("GET /"), ok("/", None));
    assert_eq!(path("GET /?"), ok("/", Some("")));
    assert_eq!(path("GET http://h/x?y"), ok("/x", Some("y")));
    assert_eq!(path("GET HTTP://h:1"), ok("/", None));
    assert_eq!(path("GET http://h?y"), ok("/", Some("y")));
    assert_eq!(path("OPTIONS *"), ok("*", None));
    assert_eq!(path("CONNECT h:443"), ok("", None));
    for bad in ["GET *", "GET h:443", "CONNECT /", "GET http://", "GET ftp://h/", "GET http://a@b/"]
    {
        assert_eq!(path(bad), Err(Reject::TargetForm), "{bad}");
    }
}

/// Purpose: each limit is exact: n bytes pass, n + 1 do not.
#[test]
fn limits_are_exact() {
    let limits = Limits { uri_max: 10, header_max: 30, ..Limits::default() };
    let parse = |text: String| parse(text.as_bytes(), &limits).map(|_| ());
    let uri = |n: usize| parse(format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(n - 1)));
    assert_eq!((uri(10), uri(11)), (Ok(()), Err(Reject::UriTooLong)));
    // "Host: h\r\n" has 9 bytes, "X: " and the line end 5.
    let section =
        |n: usize| parse(format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "a".repeat(n - 14)));
    assert_eq!((section(29), section(30)), (Ok(()), Ok(())));
    assert_eq!(section(31), Err(Reject::HeaderTooLarge));
    let count = |n: usize| {
        let text = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "a:\r\n".repeat(n - 1));
        verdict(text.as_bytes()).map(|_| ())
    };
    assert_eq!((count(100), count(101)), (Ok(()), Err(Reject::HeaderTooLarge)));
}

/// Purpose: where the target is in absolute-form, the host is the target's, not that of `Host` (RFC 9112
/// §3.2.2); in all other forms `Host` is what was received.
#[test]
fn the_host_is_that_of_an_absolute_target() {
    let host = |line: &str| {
        let text = format!("{line} HTTP/1.1\r\nX: y\r\nhOST: received\r\nZ: y\r\n\r\n");
        let parsed = parse(text.as_bytes(), &Limits::default()).unwrap().unwrap();
        let head = parsed.head(text.as_bytes());
        assert_eq!(
            (head.headers().get("x"), head.headers().get("z")),
            (Some(&b"y"[..]), Some(&b"y"[..]))
        );
        String::from_utf8(head.headers().get("host").unwrap().to_vec()).unwrap()
    };
    assert_eq!(host("GET http://other.example:81/a?b"), "other.example:81");
    assert_eq!(host("GET HTTPS://[::1]"), "[::1]");
    assert_eq!(host("GET http://o?q"), "o");
    assert_eq!(host("OPTIONS http://o"), "o");
    assert_eq!(host("GET /http://other/"), "received");
    assert_eq!(host("OPTIONS *"), "received");
    assert_eq!(host("CONNECT other:443"), "received");
}

/// Purpose: an upgrade needs both fields and HTTP/1.1 (RFC 9110 §7.8).
#[test]
fn what_asks_for_an_upgrade() {
    let asks = |version: &str, fields: &str| {
        let text = format!("GET / HTTP/{version}\r\nHost: h\r\n{fields}\r\n");
        let parsed = parse(text.as_bytes(), &Limits::default()).unwrap().unwrap();
        parsed.head(text.as_bytes()).asks_upgrade()
    };
    assert!(asks("1.1", "UPGRADE: echo\r\nConnection: keep-alive, Upgrade\r\n"));
    assert!(asks("1.1", "Connection: upgrade\r\nConnection: x\r\nUpgrade: a, b\r\n"));
    assert!(!asks("1.1", "Upgrade: echo\r\n"));
    assert!(!asks("1.1", "Connection: upgrade\r\n"));
    assert!(!asks("1.1", "Connection: upgrades\r\nUpgrade: echo\r\n"));
    assert!(!asks("1.0", "Connection: upgrade\r\nUpgrade: echo\r\n"));
}

/// Purpose: the requested server is found where the target's form requires (RFC 9112 §3.3).
#[test]
fn which_server_is_asked() {
    let authority = |line: &str, fields: &str| {
        let text = format!("{line}\r\n{fields}\r\n");
        let parsed = parse(text.as_bytes(), &Limits::default()).unwrap().unwrap();
        parsed.head(text.as_bytes()).authority().map(String::from)
    };
    let host = "Host: received:8080\r\n";
    assert_eq!(authority("GET /a HTTP/1.1", host).as_deref(), Some("received:8080"));
    assert_eq!(authority("OPTIONS * HTTP/1.1", host).as_deref(), Some("received:8080"));
    assert_eq!(authority("GET http://other HTTP/1.1", host).as_deref(), Some("other"));
    assert_eq!(authority("CONNECT other:443 HTTP/1.1", host).as_deref(), Some("other:443"));
    assert_eq!(authority("GET /a HTTP/1.0", ""), None);
}

/// Purpose: a field that may name a deadline is noticed whatever its name's case, and no other is.
#[test]
fn deadline_fields_are_noticed() {
    let notices = |field: &str| {
        let text = format!("GET / HTTP/1.1\r\nHost: h\r\n{field}: 1\r\n\r\n");
        let parsed = parse(text.as_bytes(), &Limits::default()).unwrap().unwrap();
        parsed.head(text.as_bytes()).names_deadline()
    };
    for field in ["Request-Timeout", "REQUEST-TIMEOUT", "X-Request-Deadline", "x-request-deadline"]
    {
        assert!(notices(field), "{field}");
    }
    for field in ["Request-Timeouts", "Request_Timeout", "X-Request-Deadlin", "Accept"] {
        assert!(!notices(field), "{field}");
    }
}

/// Purpose: the host of the head before is known to be valid, and says nothing about another one.
#[test]
fn a_known_host_vouches_for_no_other() {
    let mut parsed = Parsed::default();
    let mut is_valid = |host: &str| {
        let text = format!("GET / HTTP/1.1\r\nHost:{host}\r\n\r\n");
        super::parse(text.as_bytes(), &Limits::default(), &mut parsed).is_ok()
    };
    let long = "a".repeat(1000);
    let long_invalid = format!("{long}/");
    for _ in 0..2 {
        for invalid in ["", "a/b", "a:b", "a b", "[::1", &long_invalid] {
            assert!(!is_valid(invalid), "{invalid}");
            assert!(is_valid("a"));
            assert!(!is_valid(invalid), "{invalid}");
        }
        for valid in ["a", "a:80", "[::1]:80", &long] {
            assert!(is_valid(valid) && is_valid(valid), "{valid}");
        }
    }
}
