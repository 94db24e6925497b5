//! Whose a request is, if the application says so.

use std::hash::RandomState;
use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::app::guard::Panic;

/// The hash of the client that `app` names for a request of `path`, whose field `client` is `name`.
fn client(
    app: &App,
    secret: &RandomState,
    (path, name): (&str, &str),
) -> Result<Option<u64>, Panic> {
    let raw = format!("GET {path} HTTP/1.1\r\nHost: h\r\nClient: {name}\r\n\r\n");
    let (mut connection, mut scratch) = (Connection::new(Instant::ZERO), Scratch::default());
    let (mut routed, mut input) = (Routed::default(), raw.as_bytes());
    let limits = Limits::default();
    let plan = |_: &core_http::Head<'_>| BodyPlan::Whole(0);
    let now = Instant::ZERO;
    let next = connection.next(&mut Link::new(), &mut input, &mut scratch, &limits, now, plan);
    let http1::Next::Request(request) = next else { panic!("{next:?}") };
    let target = app.find(&request.head, &mut routed.params);
    let (body, disconnected) = (RequestBody::Whole(&[]), Default::default());
    app.client(&app.request(target, &request.head, &routed, body, None, &disconnected), secret)
}

/// Purpose: equal values are one client, on all routes; `None` is nobody's; the secret decides the hash; and the function
/// sees the route's parameters and state.
#[test]
fn equal_values_are_one_client() {
    let named = |request: &Request<'_>| {
        let tenant = request.param("tenant").ok()??.into_owned();
        Some((tenant, request.header("client")?.len(), *request.state::<u8>()?))
    };
    let inner = Router::new().get("/{tenant}/x", || "").fair_by(|_| Some(7)); // Does not count.
    let app = build(
        Router::new()
            .state(1_u8)
            .fair_by(named)
            .get("/{tenant}", || "")
            .get("/", || "")
            .merge(inner),
    );
    let (secret, other) = (RandomState::new(), RandomState::new());
    let of = |path, name| client(&app, &secret, (path, name)).expect("no panic");
    assert!(app.names_clients() && of("/a", "one").is_some());
    assert_eq!(of("/a", "one"), of("/a/x", "two"));
    assert_ne!(of("/a", "one"), of("/b", "one"));
    assert_ne!(of("/a", "one"), of("/a", "three"));
    assert_eq!((of("/", "one"), of("/nowhere/at/all", "one")), (None, None));
    assert_ne!(of("/a", "one"), client(&app, &other, ("/a", "one")).expect("no panic"));
}

/// Purpose: a panic of the function ends there, and is counted once.
#[test]
fn a_panic_is_caught() {
    let named = |request: &Request<'_>| request.header("client").map(|name| assert_ne!(name, "x"));
    let app = build(Router::new().fair_by(named).get("/", || ""));
    let secret = RandomState::new();
    assert!(client(&app, &secret, ("/", "y")).is_ok_and(|hash| hash.is_some()));
    assert!(client(&app, &secret, ("/", "x")).is_err());
    app.report_panics(None, None);
    assert_eq!(app.panics().load(Relaxed), 1);
}
