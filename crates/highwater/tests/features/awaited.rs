//! Arguments that handlers wait for, over real sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use highwater::app::Kind;
use highwater::server::TransportChoice;
use highwater::{
    Awaited, Bytes, Error, FromRequestAsync, Handler, Next, OwnedRequest, Path, Request,
    Requirements, Response, Router, blocking, layer,
};

use crate::answers::Answer;
use crate::served::{HANG, exchange, start};
use crate::transports::on_each_transport;

/// How many users were looked up.
type Lookups = Arc<AtomicUsize>;

/// A user, looked up after a while.
#[derive(Debug)]
struct User(String);

impl FromRequestAsync for User {
    fn from_request_async(
        request: &Request<'_>,
    ) -> impl Future<Output = Result<Self, Error>> + 'static {
        let lookups = request.state::<Lookups>().cloned();
        let name = request.header("x-user").map(String::from);
        async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            lookups.ok_or_else(|| Error::internal("no lookups"))?.fetch_add(1, SeqCst);
            match name.as_deref() {
                Some("panic") => panic!("on purpose"),
                Some("nobody") => Err(Error::unauthorized("nobody is no user")),
                Some(name) => Ok(User(name.to_owned())),
                None => Err(Error::unauthorized("sign in first")),
            }
        }
    }

    fn is_present(request: &Request<'_>) -> bool {
        request.header("x-user").is_some()
    }

    fn requires(requirements: &mut Requirements) {
        requirements.state::<Lookups>();
    }
}

/// Content that is read only by an extractor that waits.
struct Digest(usize);

impl FromRequestAsync for Digest {
    const BODY: highwater::BodyUse = highwater::BodyUse::Whole;

    fn from_request_async(
        request: &Request<'_>,
    ) -> impl Future<Output = Result<Self, Error>> + 'static {
        let size = request.body().map_or(0, <[u8]>::len);
        async move {
            tokio::task::yield_now().await;
            Ok(Digest(size))
        }
    }
}

fn ask(address: SocketAddr, path: &str, user: Option<&str>, content: &str) -> Answer {
    let user = user.map_or(String::new(), |user| format!("X-User: {user}\r\n"));
    let length = content.len();
    let fields = format!("Host: h\r\nConnection: close\r\n{user}Content-Length: {length}\r\n");
    exchange(address, &format!("POST {path} HTTP/1.1\r\n{fields}\r\n{content}"))
}

fn greet(Awaited(User(name)): Awaited<User>, Path(word): Path<String>) -> String {
    format!("{word}, {name}")
}

async fn store(Awaited(user): Awaited<User>, content: Bytes) -> Result<String, Error> {
    tokio::task::yield_now().await;
    match content.len() {
        0 => Err(Error::unprocessable("nothing to store")),
        size => Ok(format!("{size} bytes of {}", user.0)),
    }
}

fn maybe(user: Option<Awaited<User>>, Awaited(Digest(size)): Awaited<Digest>) -> String {
    format!("{} {size}", user.map_or_else(|| "stranger".into(), |user| user.0.0))
}

fn fallible(user: Result<Awaited<User>, Error>) -> String {
    user.map_or_else(|error| error.message().to_owned(), |user| user.0.0)
}

fn routes() -> Router {
    Router::new()
        .errors(|error: &Error| format!("<{}>", error.code()))
        .post("/greet/{word}", greet)
        .post("/store", store.timeout(HANG))
        .post("/maybe", maybe)
        .post("/fallible", fallible)
}

on_each_transport! {
    /// Purpose: whatever the form of a handler and the place of the argument, it is called with what was awaited, and
    /// the errors of extractors have the application's shape; layers see the answers.
    fn handlers_get_what_they_wait_for(transport) {
        let lookups = Lookups::default();
        let mark = layer::on_response(|request: &Request<'_>, response: &mut Response| {
            let seen = request.matched_path().unwrap_or("none").parse().expect("a value");
            response.set_header(highwater::header::VIA, seen);
        });
        let layered = Router::new().layer(mark).post("/greet/{word}", greet);
        let router = routes().state(Arc::clone(&lookups)).nest("/layered", layered);
        let server = start(router, transport);
        let answer_to = |path: &str, user: Option<&str>, content: &str| {
            let answer = ask(server.address(), path, user, content);
            (answer.status, answer.content)
        };
        assert_eq!(answer_to("/greet/hello", Some("ann"), ""), (200, "hello, ann".into()));
        assert_eq!(answer_to("/greet/hello", Some("nobody"), ""), (401, "<unauthorized>".into()));
        assert_eq!(answer_to("/store", Some("ann"), "abc"), (200, "3 bytes of ann".into()));
        assert_eq!(answer_to("/store", Some("ann"), ""), (422, "<unprocessable>".into()));
        assert_eq!(answer_to("/store", None, "abc"), (401, "<unauthorized>".into()));
        assert_eq!(answer_to("/maybe", Some("ann"), "abcd"), (200, "ann 4".into()));
        assert_eq!(answer_to("/maybe", Some("nobody"), ""), (401, "<unauthorized>".into()));
        assert_eq!(answer_to("/fallible", Some("nobody"), ""), (200, "nobody is no user".into()));
        assert_eq!(answer_to("/greet/hello", Some("panic"), ""), (500, "<internal>".into()));
        let before = lookups.load(SeqCst);
        assert_eq!(answer_to("/maybe", None, "abc"), (200, "stranger 3".into()));
        assert_eq!(lookups.load(SeqCst), before, "an argument that is absent is not waited for");
        let answer = ask(server.address(), "/layered/greet/hey", Some("bob"), "");
        assert_eq!((answer.content.as_str(), answer.field("via")), ("hey, bob", Some("/layered/greet/{word}")));
    }

    /// Purpose: an asynchronous layer waits for such a value as handlers do, and hands it on.
    fn layers_wait_for_it(transport) {
        let authenticate = async |request: OwnedRequest, next: Next| {
            let Awaited(User(name)) = request.extract_async().await?;
            request.insert(name);
            Ok::<Response, Error>(next.run(request).await)
        };
        let router = Router::new()
            .state(Lookups::default())
            .layer(layer::around(authenticate))
            .post("/me", |highwater::Extension(name): highwater::Extension<String>| name);
        let server = start(router, transport);
        assert_eq!(ask(server.address(), "/me", Some("ann"), "").content, "ann");
        assert_eq!(ask(server.address(), "/me", None, "").status, 401);
    }
}

/// Purpose: a handler that waits for an argument is async, whatever it looks like; and what cannot work is found when
/// the application is built.
#[test]
fn what_is_known_when_it_is_built() {
    let app = routes().state(Lookups::default()).build().expect("it is complete");
    assert!(app.endpoints().iter().all(|endpoint| endpoint.kind() == Kind::Async));
    let problems = |router: Router| router.build().expect_err("it has one").problems().to_vec();
    let found = problems(Router::new().post("/greet/{word}", greet));
    assert!(found[0].contains("takes a state of type"), "{found:?}");
    let found = problems(Router::new().state(Lookups::default()).get("/", blocking(fallible)));
    assert!(found[0].starts_with("GET /: `blocking(…)` cannot wait for its argument"), "{found:?}");
    let found = problems(Router::new().get("/", |_: Awaited<Digest>, _: Bytes| "twice"));
    assert!(found[0].contains("take the body, which is there only once"), "{found:?}");
}
