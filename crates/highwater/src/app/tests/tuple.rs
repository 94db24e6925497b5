//! Several extractors as one argument.

use http::Method;

use super::*;

/// What a handler waits for.
struct User(String);

impl FromRequestAsync for User {
    fn from_request_async(
        request: &Request<'_>,
    ) -> impl Future<Output = Result<Self, Error>> + 'static {
        let name = request.header("x-user").map(String::from);
        async move { name.map(User).ok_or_else(|| Error::unauthorized("sign in first")) }
    }

    fn is_present(request: &Request<'_>) -> bool {
        request.header("x-user").is_some()
    }
}

fn ask(app: &App, path: &str, fields: &str) -> Received {
    receive(request(app, &format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")))
}

/// Purpose: a tuple is extracted as its parts are, from left to right: at once or awaited, with their errors, their state and
/// their body.
#[test]
fn parts() {
    let app = build(
        Router::new()
            .state(7_u8)
            .get("/{id}", |(State(n), Path(id)): (State<u8>, Path<u8>)| format!("{n} {id}"))
            .get("/user/{id}", |(Awaited(User(name)), Path(id)): (Awaited<User>, Path<u8>)| {
                format!("{name} {id}")
            })
            .get("/maybe", |user: Option<(State<u8>, Awaited<User>)>| user.is_some().to_string())
            .post("/", |(_, body, _): (Method, String, State<u8>)| body),
    );
    assert_eq!(ask(&app, "/3", "").body, "7 3");
    assert_eq!(ask(&app, "/x", "").status, 400);
    assert_eq!(ask(&app, "/user/3", "X-User: ann\r\n").body, "ann 3");
    assert_eq!(ask(&app, "/user/3", "").status, 401);
    assert_eq!(ask(&app, "/user/x", "").status, 401, "the left one fails first");
    assert_eq!(ask(&app, "/maybe", "X-User: ann\r\n").body, "true");
    assert_eq!(ask(&app, "/maybe", "").body, "false");
    let posted = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(receive(request(&app, posted)).body, "hello");
}

/// Purpose: what a part needs, and what it forbids, is found when the application is built.
#[test]
fn checks() {
    let problems = |router: Router| router.build().expect_err("it is wrong").to_string();
    let missing = problems(Router::new().get("/", |_: (Method, State<u8>)| ()));
    assert!(missing.contains("u8"), "{missing}");
    let twice = problems(Router::new().post("/", |_: (Method, String), _: Vec<u8>| ()));
    assert!(twice.contains("String"), "{twice}");
    let waits = problems(Router::new().get("/", blocking(|_: (Method, Awaited<User>)| ())));
    assert!(waits.contains("User"), "{waits}");
}
