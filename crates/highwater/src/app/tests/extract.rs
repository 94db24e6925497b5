//! The arguments of handlers, and the errors for peers if extraction fails.

use std::collections::BTreeMap;

use http::{HeaderMap, Method, Uri};
use serde::Deserialize;

use super::*;

#[derive(Deserialize, Debug)]
#[serde(rename_all = "lowercase")]
enum Color {
    Red,
    Green,
}

/// Purpose: `Path` takes one value, a tuple, a struct, a map or a list, decoded.
#[test]
fn path_shapes() {
    #[derive(Deserialize)]
    struct Id(u64);
    #[derive(Deserialize, Debug)]
    struct Named {
        b: Option<Color>,
        a: String,
    }
    let app = build(
        Router::new()
            .get("/one/{a}", |Path(a): Path<String>| a)
            .get("/id/{a}", |Path(Id(a)): Path<Id>| a.to_string())
            .get("/two/{a}/{b}", |Path((a, b)): Path<(String, i8)>| format!("{a} {b}"))
            .get("/named/{a}/{b}", |Path(n): Path<Named>| format!("{} {:?}", n.a, n.b))
            .get("/map/{a}/{b}", |Path(m): Path<BTreeMap<String, String>>| format!("{m:?}"))
            .get("/list/{a}/{b}", |Path(l): Path<Vec<u8>>| format!("{l:?}"))
            .get("/rest/{*a}", |Path(a): Path<String>| a)
            .get("/char/{a}", |Path(a): Path<char>| a.to_string()),
    );
    let table = [
        ("/one/caf%C3%A9+%2F", "café+/"),
        ("/id/00042", "42"),
        ("/two/x%20y/-128", "x y -128"),
        ("/named/%22/green", "\" Some(Green)"),
        ("/map/1/2", r#"{"a": "1", "b": "2"}"#),
        ("/list/1/255", "[1, 255]"),
        ("/rest/b/c%2Fd", "b/c/d"),
        ("/char/%2B", "+"),
    ];
    for (path, body) in table {
        assert_eq!(get(&app, path).body, body, "{path}");
    }
}

/// Purpose: a value that does not fit is refused by name, with what was expected.
#[test]
fn path_refusals() {
    let app = build(
        Router::new()
            .get("/u8/{n}", |Path(_): Path<u8>| ())
            .get("/pair/{x}/{flag}", |Path(_): Path<(i64, bool)>| ())
            .get("/color/{c}", |Path(_): Path<Color>| ())
            .get("/text/{t}", |Path(_): Path<String>| ()),
    );
    let table = [
        ("/u8/256", "path parameter `n`: `256` is not an integer from 0 to 255"),
        ("/u8/-1", "path parameter `n`: `-1` is not an integer from 0 to 255"),
        ("/u8/+1", "path parameter `n`: `+1` is not an integer from 0 to 255"),
        ("/u8/%C3%A9", "path parameter `n`: `é` is not an integer from 0 to 255"),
        ("/pair/1.5/true", "path parameter `x`: `1.5` is not an integer of 64 bits"),
        ("/pair/1/yes", "path parameter `flag`: `yes` is not `true` or `false`"),
        ("/color/blue", "path parameter `c`: `blue` is not one of `red`, `green`"),
        (
            "/text/50%",
            "path parameter `t`: in `50%`, the `%` at byte 2 is not followed by two hexadecimal digits",
        ),
        ("/text/%FF", "path parameter `t`: in `%FF`, the decoded bytes are not UTF-8"),
    ];
    for (path, message) in table {
        let got = get(&app, path);
        assert_eq!((got.status, got.body), (400, rendered("invalid_path", message)), "{path}");
    }
}

/// Purpose: if a `Path<T>` that does not fit its pattern was not found at build, it is our fault, and the peer gets
/// no details.
#[test]
fn path_of_the_wrong_shape() {
    #[derive(Deserialize, Debug)]
    struct Other {
        _other: u8,
    }
    let app = build(
        Router::new()
            .get("/one/{a}/{b}", |_: Option<Path<u8>>| ())
            .get("/two/{a}", |_: Option<Path<(u8, u8)>>| ())
            .get("/struct/{a}", |_: Option<Path<Other>>| ()),
    );
    for (path, source) in [
        (
            "/one/1/2",
            "Path<T> does not fit the route `/one/{a}/{b}`: it takes one parameter, and there are 2",
        ),
        (
            "/two/1",
            "Path<T> does not fit the route `/two/{a}`: it takes 2 parameters, and there are 1",
        ),
        ("/struct/1", "Path<T> does not fit the route `/struct/{a}`: `_other` is missing"),
    ] {
        let response = request(&app, &format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"));
        let reported = response.error().expect("it is an error").source().map(ToString::to_string);
        assert_eq!(reported.as_deref(), Some(source));
        let received = receive(response);
        assert_eq!(
            (received.status, received.body),
            (500, rendered("internal", "Internal Server Error"))
        );
    }
}

#[derive(Deserialize, Debug)]
struct Page {
    limit: Option<u32>,
    #[serde(default)]
    tag: Vec<String>,
    q: String,
}

/// Purpose: queries are read as WHATWG URL §5.1 says, repeated parameters as lists.
#[test]
fn query() {
    let app = build(
        Router::new()
            .get("/page", |Query(p): Query<Page>| format!("{:?} {:?} {}", p.limit, p.tag, p.q))
            .get("/pairs", |Query(p): Query<Vec<(String, String)>>| format!("{p:?}"))
            .get("/map", |Query(p): Query<BTreeMap<String, String>>| format!("{p:?}"))
            .get("/maybe", |q: Option<Query<BTreeMap<String, u8>>>| format!("{:?}", q.map(|q| q.0)))
            .get("/raw", |RawQuery(q): RawQuery| format!("{q:?}")),
    );
    let table = [
        ("/page?q=a+b%2B%26&limit=10", "Some(10) [] a b+&"),
        ("/page?tag=x&q=&tag=y&&tag=x&other=1", r#"None ["x", "y", "x"] "#),
        ("/page?q", "None [] "),
        ("/page?%71=%E2%82%AC", "None [] €"),
        ("/pairs?b=1&a=2&b=3", r#"[("b", "1"), ("a", "2"), ("b", "3")]"#),
        ("/map?b=1&a=2", r#"{"a": "2", "b": "1"}"#),
        ("/maybe", "None"),
        ("/maybe?", "None"),
        ("/maybe?a=1", r#"Some({"a": 1})"#),
        ("/raw", "None"),
        ("/raw?", "Some(\"\")"),
        ("/raw?a=%zz", "Some(\"a=%zz\")"),
    ];
    for (target, body) in table {
        assert_eq!(get(&app, target).body, body, "{target}");
    }
}

/// Purpose: a parameter that does not fit is refused by name.
#[test]
fn query_refusals() {
    let app = build(
        Router::new()
            .get("/", |Query(_): Query<Page>| ())
            .get("/maybe", |_: Option<Query<BTreeMap<String, u8>>>| ()),
    );
    let table = [
        ("/", "query: `q` is missing"),
        ("/?q=&limit=ten", "query parameter `limit`: `ten` is not an integer from 0 to 4294967295"),
        ("/?q=&limit=", "query parameter `limit`: `` is not an integer from 0 to 4294967295"),
        ("/?q=1&q=2", "query parameter `q`: it is given more than once"),
        ("/maybe?a=256", "query parameter `a`: `256` is not an integer from 0 to 255"),
        (
            "/?q=%4",
            "query parameter `q`: in `%4`, the `%` at byte 0 is not followed by two hexadecimal digits",
        ),
    ];
    for (target, message) in table {
        let received = get(&app, target);
        assert_eq!(
            (received.status, received.body),
            (400, rendered("invalid_query", message)),
            "{target}"
        );
    }
}

/// Purpose: the bounds of a query: one more pair than fits on the stack, and than is allowed.
#[test]
fn query_bounds() {
    let app =
        build(Router::new().post("/", |Form(l): Form<Vec<(String, u16)>>| l.len().to_string()));
    let form = |count: usize| {
        let pairs: Vec<String> = (0..count).map(|n| format!("a={n}")).collect();
        post(&app, "/", "application/x-www-form-urlencoded", &pairs.join("&"))
    };
    for count in [0, 1, 7, 8, 9, 10, 999, 1000] {
        assert_eq!(form(count).body, count.to_string());
    }
    let message = "form: there are more than 1000 pairs";
    let received = form(1001);
    assert_eq!((received.status, received.body), (422, rendered("invalid_body", message)));
}

#[derive(Deserialize)]
struct NewTodo {
    title: String,
    author: Author,
}

#[derive(Deserialize)]
struct Author {
    age: u8,
}

/// Purpose: JSON is taken under its media types only; errors are reported exactly.
#[test]
fn json() {
    fn create(Json(todo): Json<NewTodo>) -> String {
        format!("{} {}", todo.title, todo.author.age)
    }
    let app = build(Router::new().post("/", create));
    let good = r#"{"title":"écrire","author":{"age":7}}"#;
    for content_type in [
        "application/json",
        "Application/JSON ; charset=utf-8",
        "application/problem+json",
        "application/vnd.x+JSON;v=1",
    ] {
        assert_eq!(post(&app, "/", content_type, good).body, "écrire 7", "{content_type}");
    }
    for content_type in
        ["", "text/plain", "application/jsonp", "application/json2", "+json", "json"]
    {
        assert_eq!(post(&app, "/", content_type, good).status, 415, "{content_type}");
    }
    let table = [
        ("", 400, "invalid_json", "the body is empty; it must be JSON"),
        (
            "{\"title\":\n oops}",
            400,
            "invalid_json",
            "the body is not JSON: expected value at line 2 column 2",
        ),
        (
            "{\"title\":\"a\",\"author\":{\"age\":300}}",
            422,
            "invalid_body",
            "field `author.age`: invalid value: integer `300`, expected u8 at line 1 column 32",
        ),
        ("{\"title\":\"a\"}", 422, "invalid_body", "missing field `author` at line 1 column 13"),
    ];
    for (body, status, code, message) in table {
        let received = post(&app, "/", "application/json", body);
        assert_eq!((received.status, received.body), (status, rendered(code, message)), "{body}");
    }
}

/// Purpose: forms are taken under their media type only, and refused by field.
#[test]
fn form() {
    #[derive(Deserialize)]
    struct Login {
        name: String,
        age: u8,
    }
    let app =
        build(Router::new().post("/", |Form(l): Form<Login>| format!("{} {}", l.name, l.age)));
    let form = "application/x-www-form-urlencoded";
    assert_eq!(post(&app, "/", form, "age=7&name=J%C3%BCrg+X").body, "Jürg X 7");
    assert_eq!(post(&app, "/", &format!("{form}; charset=utf-8"), "age=7&name=").status, 200);
    assert_eq!(post(&app, "/", "text/plain", "age=7&name=").status, 415);
    let received = post(&app, "/", form, "age=old&name=");
    let message = "field `age`: `old` is not an integer from 0 to 255";
    assert_eq!((received.status, received.body), (422, rendered("invalid_body", message)));
    assert_eq!(post(&app, "/", form, "age=7&name=\u{7f}%FF").status, 422);
}

/// Purpose: bodies as bytes, text, stream; each also optional.
#[test]
fn bodies() {
    async fn streamed(mut body: BodyStream) -> Result<String, Error> {
        let mut all = Vec::new();
        while let Some(piece) = body.next().await {
            all.push(String::from_utf8(piece?.to_vec()).map_err(Error::internal)?);
        }
        Ok(all.join("|"))
    }
    let app = build(
        Router::new()
            .post("/bytes", |body: bytes::Bytes| body)
            .post("/vec", |body: Vec<u8>| body)
            .post("/string", |body: String| body)
            .post("/maybe", |body: Option<String>| format!("{body:?}"))
            .post("/why", |body: Result<String, Error>| {
                body.map_err(|e| e.code()).unwrap_or_else(String::from)
            })
            .post("/streamed", streamed),
    );
    for path in ["/bytes", "/vec", "/string", "/streamed", "/why"] {
        assert_eq!(post(&app, path, "x/y", "Grüße").body, "Grüße", "{path}");
        assert_eq!(post(&app, path, "x/y", "").body, "", "{path}");
    }
    assert_eq!(post(&app, "/maybe", "x/y", "").body, "None");
    assert_eq!(post(&app, "/maybe", "x/y", "a").body, "Some(\"a\")");
    let chunked = "POST /streamed HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    let response = request_with(&app, chunked, None, vec!["one", "two"]);
    // What waits is joined, however it was cut on its way.
    assert_eq!(receive(response).body, "onetwo");
}

/// Purpose: bytes that are not text are refused where text is wanted.
#[test]
fn text_is_utf8() {
    let app = build(Router::new().any("/", |_: String| ()));
    let limits = Limits::default();
    let raw = b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\na\xff\xff";
    let (mut connection, mut scratch) = (Connection::new(Instant::ZERO), Scratch::default());
    let mut routed = Routed::default();
    let next = connection.next(
        &mut Link::new(),
        &mut &raw[..],
        &mut scratch,
        &limits,
        Instant::ZERO,
        |head| app.plan(app.find(head, &mut routed.params), &limits),
    );
    let http1::Next::Request(request) = next else { panic!("it is complete") };
    let Some(body) = request.body.whole() else { panic!("it is there") };
    let target = app.find(&request.head, &mut routed.params);
    let body = RequestBody::Whole(body);
    let disconnected = Default::default();
    let request = app.request(target, &request.head, &routed, body, None, &disconnected);
    let received = receive(resolve(call(&app, &request)));
    let message = "the body is not UTF-8 from its byte 1 on";
    assert_eq!((received.status, received.body), (400, rendered("invalid_body", message)));
}

/// Purpose: the parts of a head, and the order of arguments does not matter.
#[test]
fn heads() {
    struct Id(u8);
    impl FromHeader for Id {
        const NAME: &'static str = "X-Id";
        fn from_header(value: &str) -> Result<Self, String> {
            value.parse().map(Id).map_err(|_| "expected a small number".into())
        }
    }
    #[allow(clippy::too_many_arguments, reason = "eight is what a handler may have")]
    fn all(
        uri: Uri,
        Header(Id(id)): Header<Id>,
        method: Method,
        body: String,
        version: http::Version,
        PeerAddr(peer): PeerAddr,
        headers: HeaderMap,
        path: MatchedPath,
    ) -> String {
        let many = headers.get_all("many").iter().count();
        format!("{method} {uri} {version:?} {id} {many} {peer} {body} {path}")
    }
    let app = build(
        Router::new()
            .on(&[Method::POST, Method::from_bytes(b"BREW").unwrap()], "/{all}", all)
            .get("/id", |id: Option<Header<Id>>| id.map_or(0, |Header(Id(id))| id).to_string()),
    );
    let raw = |method: &str, id: &str| {
        format!(
            "{method} /x?y=%20 HTTP/1.0\r\n{id}many: 1\r\nMany: 2\r\nContent-Length: 2\r\n\r\nhi"
        )
    };
    for method in ["POST", "BREW"] {
        let received = receive(request(&app, &raw(method, "x-iD: 7\r\n")));
        assert_eq!(
            received.body,
            format!("{method} /x?y=%20 HTTP/1.0 7 2 192.0.2.7:4711 hi /{{all}}")
        );
    }
    for (field, message) in [
        ("", "header field `X-Id`: missing"),
        ("X-Id: x\r\n", "header field `X-Id`: expected a small number"),
        ("X-Id: \u{fffd}\r\n", "header field `X-Id`: expected a small number"),
    ] {
        let received = receive(request(&app, &raw("POST", field)));
        assert_eq!((received.status, received.body), (400, rendered("invalid_header", message)));
    }
    assert_eq!(get(&app, "/id").body, "0");
    let present = "GET /id HTTP/1.1\r\nHost: h\r\nX-Id: -\r\n\r\n";
    assert_eq!(receive(request(&app, present)).status, 400, "optional is not the same as lenient");
}

/// Purpose: cookies are split as RFC 6265 §5.4 and §4.2.1 write them, and malformed ones are left out.
#[test]
fn cookies() {
    fn list(cookies: Cookies) -> String {
        let pairs: Vec<String> = cookies.iter().map(|(n, v)| format!("{n}={v}")).collect();
        format!("{} first a: {:?}", pairs.join("\n"), cookies.get("a"))
    }
    let app = build(Router::new().get("/", list));
    let with = |fields: &str| {
        receive(request(&app, &format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n"))).body
    };
    assert_eq!(with(""), " first a: None");
    assert_eq!(
        with("Cookie: a=1; b=\"x y\";c=p=q; ; d; =e; A=%41\r\ncookie: a=2\r\n"),
        "a=1\nb=x y\nc=p=q\nA=%41\na=2 first a: Some(\"1\")"
    );
}

/// Purpose: a value that its type refuses (`serde(try_from)`, a visitor of its own) is the peer's fault, and
/// reported by its name, in whichever part of the request it is.
#[test]
fn refused_values_are_the_peers() {
    #[derive(Debug, Deserialize)]
    #[serde(try_from = "u32")]
    struct Even(#[expect(dead_code, reason = "only that it is made counts")] u32);
    impl TryFrom<u32> for Even {
        type Error = &'static str;
        fn try_from(number: u32) -> Result<Self, &'static str> {
            if number.is_multiple_of(2) { Ok(Even(number)) } else { Err("it is odd") }
        }
    }
    struct Small;
    impl<'de> serde::Deserialize<'de> for Small {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Visitor;
            impl serde::de::Visitor<'_> for Visitor {
                type Value = Small;
                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("a number below 5")
                }
                fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Small, E> {
                    let unexpected = serde::de::Unexpected::Unsigned(number);
                    if number < 5 { Ok(Small) } else { Err(E::invalid_value(unexpected, &self)) }
                }
            }
            deserializer.deserialize_u64(Visitor)
        }
    }
    #[derive(Deserialize)]
    struct Named {
        #[expect(dead_code, reason = "only that it is made counts")]
        n: Even,
    }
    #[derive(Deserialize)]
    #[serde(try_from = "(u32, u32)")]
    struct Ordered;
    impl TryFrom<(u32, u32)> for Ordered {
        type Error = &'static str;
        fn try_from((low, high): (u32, u32)) -> Result<Self, &'static str> {
            if low <= high { Ok(Ordered) } else { Err("they are not in order") }
        }
    }
    let app = build(
        Router::new()
            .get("/one/{n}", |_: Path<Even>| "")
            .get("/small/{n}", |_: Path<Small>| "")
            .get("/pair/{m}/{n}", |_: Path<(u32, Even)>| "")
            .get("/named/{n}", |_: Path<Named>| "")
            .get("/ordered/{low}/{high}", |_: Path<Ordered>| "")
            .get("/wrong/{n}", |_: Option<Path<(u32, u32)>>| "")
            .get("/query", |_: Query<Named>| "")
            .post("/form", |_: Form<Named>| ""),
    );
    let fine = ["/one/2", "/small/4", "/pair/1/2", "/named/2", "/ordered/1/2", "/query?n=2"];
    assert!(fine.iter().all(|path| get(&app, path).status == 200));
    let path = |path: &str, message: &str| {
        let got = get(&app, path);
        assert_eq!((got.status, got.body), (400, rendered("invalid_path", message)), "{path}");
    };
    path("/one/3", "path parameter `n`: `3` is not accepted: it is odd");
    path("/pair/1/3", "path parameter `n`: `3` is not accepted: it is odd");
    path("/named/3", "path parameter `n`: `3` is not accepted: it is odd");
    let small = "invalid value: integer `7`, expected a number below 5";
    path("/small/7", &format!("path parameter `n`: `7` is not accepted: {small}"));
    let both = "path parameter `low`: `2`, path parameter `high`: `1`";
    path("/ordered/2/1", &format!("{both} are not accepted: they are not in order"));
    let received = get(&app, "/query?n=3");
    let message = "query parameter `n`: `3` is not accepted: it is odd";
    assert_eq!((received.status, received.body), (400, rendered("invalid_query", message)));
    let received = post(&app, "/form", "application/x-www-form-urlencoded", "n=3");
    let message = "field `n`: `3` is not accepted: it is odd";
    assert_eq!((received.status, received.body), (422, rendered("invalid_body", message)));
    // Another number of parameters is the application's own mistake, and both are named to it.
    let response = request(&app, "GET /wrong/1 HTTP/1.1\r\nHost: h\r\n\r\n");
    let error = response.error().expect("it is one").to_string();
    assert!(error.contains("`/wrong/{n}`") && error.contains("takes 2 parameters"), "{error}");
    assert_eq!(response.status(), 500);
}
