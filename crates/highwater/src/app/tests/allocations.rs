//! How often answering a request allocates: the promise that the plain path does not is kept here.

use serde::{Deserialize, Serialize};

use super::*;
use crate::app::outcome::Outcome;

/// How many allocations `find`, `plan`, `call` and dropping the response make for one request, once
/// the thread is warm. Parsing is not counted; it is the connection's.
fn allocations(app: &App, raw: &str, status: u16) -> u64 {
    let limits = Limits::default();
    let mut scratch = Scratch::default();
    let mut counted = 0;
    for _ in 0..3 {
        let mut connection = Connection::new(Instant::ZERO);
        let mut routed = Routed::default();
        let mut target = None;
        counted = 0;
        let next = connection.next(
            &mut Link::new(),
            &mut raw.as_bytes(),
            &mut scratch,
            &limits,
            Instant::ZERO,
            |head| {
                let mut plan = None;
                let finding = allocation_counter::measure(|| {
                    let found = app.find(head, &mut routed.params);
                    target = Some(found);
                    plan = Some(app.plan(found, &limits));
                });
                counted += finding.count_total;
                plan.expect("it was made above")
            },
        );
        let http1::Next::Request(request) = next else { panic!("the request is not complete") };
        let Some(body) = request.body.whole() else { panic!("the body is there") };
        let target = target.expect("the head was planned for");
        let calling = allocation_counter::measure(|| {
            let (body, disconnected) = (RequestBody::Whole(body), Default::default());
            match app.call(&app.request(target, &request.head, &routed, body, None, &disconnected))
            {
                Outcome::Ready(response) => assert_eq!(response.status().as_u16(), status),
                Outcome::Fixed(response) => assert_eq!(response.status(), status),
                other => assert_eq!(resolve(other).status().as_u16(), status),
            }
        });
        counted += calling.count_total;
    }
    counted
}

fn on_get(app: &App, target: &str) -> u64 {
    allocations(app, &format!("GET {target} HTTP/1.1\r\nHost: h\r\nX-Key: 1\r\n\r\n"), 200)
}

/// Purpose: the plain path allocates nothing, as DESIGN promises.
#[test]
fn none_on_the_plain_path() {
    #[derive(Serialize)]
    struct Message {
        message: &'static str,
        numbers: [u32; 4],
    }
    #[derive(Deserialize)]
    struct Sum {
        a: i64,
        b: i64,
    }
    fn sum(Query(Sum { a, b }): Query<Sum>) -> Json<i64> {
        Json(a + b)
    }
    let app = build(
        Router::new()
            .state(std::sync::Arc::new(7_u32))
            .layer(layer::on_response(|_: &Request<'_>, response: &mut Response| {
                let status = response.status();
                response.set_status(status);
            }))
            .layer(layer::on_request(|request: &Request<'_>| match request.header("x-key") {
                Some("1") => Ok(()),
                _ => Err(Error::unauthorized("no key")),
            }))
            .get("/", || "Hello, World!")
            .get("/fixed", fixed("ok"))
            .get("/json", || Json(Message { message: "Hello, World!", numbers: [1, 2, 3, 4] }))
            .get("/users/{id}/{part}", |Path((id, _part)): Path<(u64, char)>| Json(id))
            .get("/state", |State(n): State<std::sync::Arc<u32>>| Json(*n))
            .get("/sum", sum)
            .post("/length", |_: Option<PeerAddr>| ())
            .post("/json", |Json(n): Json<Vec<()>>| Json(n.len())),
    );
    assert_eq!(on_get(&app, "/"), 0);
    assert_eq!(on_get(&app, "/fixed"), 0);
    assert_eq!(on_get(&app, "/json"), 0);
    assert_eq!(on_get(&app, "/users/42/a"), 0);
    assert_eq!(on_get(&app, "/state"), 0);
    assert_eq!(on_get(&app, "/sum?a=13&b=42"), 0);
    let posted = "POST /json HTTP/1.1\r\nHost: h\r\nX-Key: 1\r\nContent-Type: application/json\r\n\
                  Content-Length: 2\r\n\r\n[]";
    assert_eq!(allocations(&app, posted, 200), 0);
}

/// Purpose: layers that do the same to every response cost a fixed answer nothing, and a request that no
/// layer's part concerns pays for none.
#[test]
fn none_for_constant_layers() {
    use crate::layers::{cors, security_headers};
    let app = build(
        Router::new()
            .layer(security_headers())
            .layer(cors().any_origin())
            .get("/fixed", fixed("ok"))
            .nest(
                "/in",
                Router::new()
                    .layer(layer::on_request(|_: &Request<'_>| -> Result<(), Error> {
                        unreachable!("it does not cover fixed answers")
                    }))
                    .get("/fixed", fixed("ok")),
            ),
    );
    assert_eq!(get(&app, "/fixed").header("x-frame-options"), Some("DENY"));
    assert_eq!(on_get(&app, "/fixed"), 0);
    assert_eq!(on_get(&app, "/in/fixed"), 0);
}

/// Purpose: an async handler costs its future, and nothing else; layers that want to see the request
/// afterwards add a copy of the head.
#[test]
fn one_for_a_future() {
    async fn hello() -> &'static str {
        "Hello"
    }
    let app = build(Router::new().get("/", hello));
    assert_eq!(on_get(&app, "/"), 1);
    let look = layer::on_response(|_: &Request<'_>, _: &mut Response| ());
    let app = build(Router::new().layer(look).get("/", hello));
    // The future, what is kept, and the head's three parts.
    assert_eq!(on_get(&app, "/"), 5);
}
