//! What handlers read in a request's head and write in that of their answer, over real sockets: preferences, typed
//! fields, cookies.

use std::net::SocketAddr;

use highwater::cookies::{Cookie, CookieJar, Key, PrivateCookies, SameSite, SignedCookies};
use highwater::headers::authorization::{Authorization, Basic};
use highwater::headers::{CacheControl, ContentLength};
use highwater::server::TransportChoice;
use highwater::{Accept, AcceptLanguage, Router, StatusCode, TypedHeader};

use crate::answers::Answer;
use crate::served::{exchange, start};
use crate::transports::on_each_transport;

/// Asks for a path, with these lines of fields.
fn ask(address: SocketAddr, path: &str, fields: &[&str]) -> Answer {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n");
    exchange(address, &request)
}

/// The cookie of an answer, as a client sends it back.
fn cookie(answer: &Answer) -> String {
    let set = answer.field("set-cookie").expect("it sets one");
    format!("Cookie: {}", set.split(';').next().expect("a pair"))
}

on_each_transport! {
    /// Purpose: the answer is in the form that the client likes best, in any number of fields; without a form that it
    /// accepts, the client learns which there are.
    fn preferences(transport) {
        let choose = |accept: Accept| {
            accept.choose(&["application/json", "text/html"]).map(str::to_owned)
        };
        let greet = |languages: AcceptLanguage| languages.best(&["en", "de"]).unwrap_or("none");
        let asked = |accept: Option<Accept>| if accept.is_some() { "asked" } else { "any" };
        let router = Router::new().get("/", choose).get("/greet", greet).get("/asked", asked);
        let server = start(router, transport);
        let content_of = |path: &str, fields: &[&str]| ask(server.address(), path, fields).content;
        assert_eq!(content_of("/", &[]), "application/json");
        assert_eq!(content_of("/", &["Accept: text/html, */*;q=0.1"]), "text/html");
        assert_eq!(content_of("/", &["Accept: image/png", "Accept: text/*;q=0.2"]), "text/html");
        let refused = ask(server.address(), "/", &["Accept: image/png"]);
        assert_eq!(refused.status, 406);
        assert!(refused.content.contains("there are application/json, text/html"));
        assert_eq!(content_of("/greet", &["Accept-Language: de-AT, de;q=0.5"]), "de");
        assert_eq!(content_of("/greet", &["Accept-Language: fr"]), "none");
        assert_eq!([content_of("/asked", &[]), content_of("/asked", &["Accept: x"])], ["any", "asked"]);
    }

    /// Purpose: a field is read and written as its type; one that is missing or malformed is the client's fault, and
    /// named.
    fn typed_fields(transport) {
        let me = |TypedHeader(who): TypedHeader<Authorization<Basic>>| {
            let fresh = CacheControl::new().with_no_store();
            (TypedHeader(fresh), (StatusCode::ACCEPTED, format!("{}:{}", who.username(), who.password())))
        };
        let maybe = |length: Option<TypedHeader<ContentLength>>| {
            length.map_or_else(|| "none".to_owned(), |length| length.0.0.to_string())
        };
        let server = start(Router::new().get("/me", me).get("/maybe", maybe), transport);
        let answer = ask(server.address(), "/me", &["Authorization: Basic YW5uOnNlY3JldA=="]);
        assert_eq!((answer.status, answer.content.as_str()), (202, "ann:secret"));
        assert_eq!(answer.field("cache-control"), Some("no-store"));
        let missing = ask(server.address(), "/me", &[]);
        assert_eq!(missing.status, 400);
        assert!(missing.content.contains("header field `authorization`: missing"));
        let malformed = ask(server.address(), "/me", &["Authorization: Bearer x"]);
        assert!(malformed.status == 400 && malformed.content.contains("invalid_header"));
        assert_eq!(ask(server.address(), "/maybe", &[]).content, "none");
    }

    /// Purpose: what a handler adds to the cookies is set, what it removes is forgotten, and what it leaves is not
    /// repeated; values survive the way to the client and back.
    fn cookies_are_set(transport) {
        let set = |jar: CookieJar| {
            let theme = Cookie::build(("theme", "dark; blue é")).path("/").same_site(SameSite::Lax);
            (jar.set(theme), "set")
        };
        let forget = |jar: CookieJar| (jar.remove(Cookie::build("theme").path("/")), "forgotten");
        let show = |jar: CookieJar| {
            let value = jar.get("theme").map_or("none".into(), |theme| theme.value().to_owned());
            (jar, value)
        };
        let router = Router::new().get("/set", set).get("/forget", forget).get("/", show);
        let server = start(router, transport);
        let answer = ask(server.address(), "/set", &[]);
        let field = answer.field("set-cookie").expect("it is set").to_owned();
        assert_eq!(field, "theme=dark%3B%20blue%20%C3%A9; SameSite=Lax; Path=/");
        let sent = cookie(&answer);
        let shown = ask(server.address(), "/", &["Cookie: other; =; x=1", &sent]);
        assert_eq!((shown.content.as_str(), shown.field("set-cookie")), ("dark; blue é", None));
        let forgotten = ask(server.address(), "/forget", &[&sent]);
        let field = forgotten.field("set-cookie").expect("it is set");
        assert!(field.starts_with("theme=; Path=/; Max-Age=0;"), "{field}");
    }

    /// Purpose: nobody but the server makes or changes a signed or private cookie, and nobody reads a private one.
    fn cookies_are_genuine(transport) {
        let routes = |key: Key| {
            Router::new()
                .state(key)
                .get("/sign", |jar: SignedCookies| (jar.set(("user", "ann")), "signed"))
                .get("/hide", |jar: PrivateCookies| (jar.set(("user", "ann")), "hidden"))
                .get("/signed", |jar: SignedCookies| jar.get("user").map(|user| user.value().to_owned()))
                .get("/signed-admin", |jar: SignedCookies| jar.get("admin").map(|user| user.value().to_owned()))
                .get("/hidden-admin", |jar: PrivateCookies| jar.get("admin").map(|user| user.value().to_owned()))
                .get("/hidden", |jar: PrivateCookies| jar.get("user").map(|user| user.value().to_owned()))
        };
        let server = start(routes(Key::from(&[7; 64])), transport);
        let other_server = start(routes(Key::from(&[8; 64])), transport);
        for (make, read) in [("/sign", "/signed"), ("/hide", "/hidden")] {
            let made = cookie(&ask(server.address(), make, &[]));
            assert_eq!(made.contains("ann"), make == "/sign", "{made}");
            assert_eq!(ask(server.address(), read, &[&made]).content, "ann");
            let mut changed = made.clone();
            let at = changed.len() - 4;
            let other = if changed.as_bytes()[at] == b'A' { "B" } else { "A" };
            changed.replace_range(at..at + 1, other);
            for forged in [changed.as_str(), "Cookie: user=ann", "Cookie: user="] {
                assert_eq!(ask(server.address(), read, &[forged]).status, 404, "{forged}");
            }
            assert_eq!(ask(other_server.address(), read, &[&made]).status, 404, "another key");
            let renamed = made.replace("user=", "admin=");
            let other = format!("{read}-admin");
            assert_eq!(ask(server.address(), &other, &[&renamed]).status, 404, "another name");
        }
    }
}

/// Purpose: a cookie whose name has a prefix that browsers enforce is taken only from a cookie of exactly that name, and what would
/// come back under another name is not set (RFC 6265bis §5.4).
#[test]
fn names_of_cookies_are_as_they_are_sent() {
    let show = |jar: CookieJar| jar.get("__Host-id").map(|id| id.value().to_owned());
    let set = |highwater::RawQuery(name): highwater::RawQuery| {
        (CookieJar::default().set((name.unwrap_or_default().replace('+', " "), "a b")), "set")
    };
    let client = highwater::testing::Client::new(Router::new().get("/", show).get("/set", set));
    let ask = |sent: &str| {
        client.request(highwater::Method::GET, "/").header("cookie", sent).send().status.as_u16()
    };
    for (sent, status) in [
        ("__Host-id=1", 200),
        ("x=1; \t__Host-id \t=1", 200),
        ("%5F_Host-id=1", 404),
        ("__Host%2Did=1", 404),
        ("__host-id=1", 404),
    ] {
        assert_eq!(ask(sent), status, "{sent}");
    }
    let set = |name: &str| client.get(&format!("/set?{name}"));
    let answer = set("__Host-a|b^c");
    assert_eq!(answer.header("set-cookie"), Some("__Host-a|b^c=a%20b"));
    for name in ["a+b", "", "a=b", "a;b"] {
        assert_eq!(set(name).status, 500, "{name}");
    }
}

/// Purpose: of several cookies with one name the first counts, as browsers send that of the longest path first; but a cookie that
/// is not genuine hides none that is, wherever it stands.
#[test]
fn of_cookies_with_one_name_one_counts() {
    let value = |cookie: Option<Cookie<'static>>| cookie.map(|user| user.value().to_owned());
    let name = |highwater::RawQuery(name): highwater::RawQuery| name.unwrap_or_default();
    let router = Router::new()
        .state(Key::from(&[7; 64]))
        .get("/plain", move |jar: CookieJar| value(jar.get("user")))
        .get("/first", |jar: highwater::Cookies| jar.get("user").map(str::to_owned))
        .get("/signed", move |jar: SignedCookies| value(jar.get("user")))
        .get("/hidden", move |jar: PrivateCookies| value(jar.get("user")))
        .get("/sign", move |query, jar: SignedCookies| (jar.set(("user", name(query))), "set"))
        .get("/hide", move |query, jar: PrivateCookies| (jar.set(("user", name(query))), "set"));
    let client = highwater::testing::Client::new(router);
    let ask = |path: &str, sent: &str| {
        client.request(highwater::Method::GET, path).header("cookie", sent).send().text().to_owned()
    };
    for path in ["/plain", "/first"] {
        assert_eq!(ask(path, "user=ann; x=y; user=bob; user=cid"), "ann");
    }
    for (make, read) in [("/sign", "/signed"), ("/hide", "/hidden")] {
        let made = |name: &str| {
            let answer = client.get(&format!("{make}?{name}"));
            let set = answer.header("set-cookie").expect("it sets one").to_owned();
            set.split(';').next().expect("a pair").to_owned()
        };
        let (ann, bob) = (made("ann"), made("bob"));
        let forged = ann.replace("user=", "user=A");
        for sent in [
            format!("{ann}; {bob}"),
            format!("{ann}; {forged}; user=x"),
            format!("user=x; {forged}; {ann}; {bob}"),
            format!("user=x; {ann}; {forged}; {bob}"),
        ] {
            assert_eq!(ask(read, &sent), "ann", "{sent}");
        }
    }
}

/// Purpose: a key that is missing is found when the application is built, and no secret is shown.
#[test]
fn keys_are_checked_and_hidden() {
    let read = |jar: SignedCookies| format!("{jar:?}");
    let error = Router::new().get("/", read).build().expect_err("there is no key");
    assert!(
        error.problems()[0].contains("takes a state of type `cookie::secure::key::Key`"),
        "{error}"
    );
    let router = Router::new().state(Key::from(&[7; 64])).get("/", read);
    let client = highwater::testing::Setup::new(router).header("cookie", "user=secret").start();
    assert_eq!(client.get("/").text(), "SignedCookies {\"user\"}");
}

/// Purpose: an answer to HEAD says the length that its handler knows, and none where content is sent in its place (RFC 9110 §8.6).
/// Once, it said 0, which caches take for the length of the resource.
#[test]
fn the_length_of_what_head_does_not_send() {
    let known = || highwater::Response::new(StatusCode::OK).with_header("content-length", "1234");
    let malformed =
        || highwater::Response::new(StatusCode::OK).with_header("content-length", "12x");
    let router = Router::new().on(&[highwater::Method::HEAD], "/known", known).on(
        &[highwater::Method::HEAD],
        "/malformed",
        malformed,
    );
    let client = highwater::testing::Client::new(router);
    let ask = |path: &str| client.request(highwater::Method::HEAD, path).send();
    assert_eq!(ask("/known").header("content-length"), Some("1234"));
    assert_eq!(ask("/malformed").header("content-length"), Some("0"));
    assert!(ask("/known").body.is_empty());
    let http2 = client.http2();
    assert_eq!(
        http2.request(highwater::Method::HEAD, "/known").send().header("content-length"),
        Some("1234")
    );
}
