//! Layers that ask who is asking, over real sockets: what is let pass, and how everything else is answered.

use std::time::{Duration, SystemTime};

use highwater::auth::{
    BasicCredentials, BearerToken, Claims, JwtKey, Subject, basic, bearer, issue, jwt, same,
};
use highwater::openapi::{OpenApi, api};
use highwater::server::TransportChoice;
use highwater::testing::Client;
use highwater::{Extension, Method, Router, fixed};
use serde::Deserialize;

use crate::answers::Answer;
use crate::served::{exchange, start};
use crate::transports::on_each_transport;

const SECRET: &str = "a secret of some length, as there should be";

#[derive(Clone)]
struct User(String);

#[derive(Deserialize)]
struct Admin {
    sub: String,
    admin: bool,
}

fn router() -> Router {
    let aladdin = basic("the cave", |user: &str, password: &str| {
        (user == "aladdin" && same(password, "open: sesame")).then(|| User(user.to_owned()))
    });
    let known = bearer(|token: &str| same(token, "w1EWm").then(|| User("a service".into())));
    let named = |Extension(User(name)): Extension<User>| name;
    let signed = Router::new()
        .layer(jwt(JwtKey::hs256(SECRET)))
        .get("/subject", api(|subject: Subject| subject.to_string()))
        .get("/admin", api(|Claims(Admin { sub, admin }): Claims<Admin>| format!("{sub} {admin}")));
    Router::new()
        .openapi(OpenApi::new("x", "1"))
        .nest("/basic", Router::new().layer(aladdin).get("/", api(named).operation_id("a")))
        .nest("/bearer", Router::new().layer(known).get("/", api(named).operation_id("b")))
        .nest("/jwt", signed)
        .get("/read", api(|given: BasicCredentials| format!("{given:?}")).operation_id("c"))
        .get(
            "/token",
            api(|token: BearerToken| format!("{token:?} {}", token.0.len())).operation_id("d"),
        )
        .get("/bare", api(|subject: Subject| subject.to_string()).operation_id("e"))
}

/// Purpose: a fixed answer is behind the layer that covers its router, like a handler; one of another router is not.
#[test]
fn fixed_answers_are_behind_them() {
    let staff = || basic("x", |user: &str, word: &str| same(word, "y").then(|| user.to_owned()));
    let service = || bearer(|token: &str| same(token, "w1EWm").then_some(()));
    let signed = || jwt(JwtKey::hs256(SECRET));
    let within = |router: Router| router.get("/", fixed("within")).get("/f", || "a handler");
    let app = Router::new()
        .get("/health", fixed("ok"))
        .nest("/basic", within(Router::new().layer(staff())))
        .nest("/bearer", within(Router::new().layer(service())))
        .nest("/jwt", within(Router::new().layer(signed())))
        .merge(Router::new().layer(staff()).get("/merged", fixed("within")));
    let client = Client::new(app);
    assert_eq!(client.get("/health").text(), "ok");
    let token = format!("Bearer {}", token("ann", 60));
    for (path, proof) in [
        ("/basic", "Basic YW5uOnk="),
        ("/bearer", "Bearer w1EWm"),
        ("/jwt", &*token),
        ("/merged", "Basic YW5uOnk="),
    ] {
        let refused = client.get(path);
        assert_eq!(refused.status, 401, "{path}");
        assert!(refused.header("www-authenticate").is_some(), "{path}");
        let head = client.request(Method::HEAD, path).send();
        assert_eq!(head.status, 401, "{path}");
        let known = client.request(Method::GET, path).header("authorization", proof).send();
        assert_eq!((known.status.as_u16(), known.text()), (200, "within"), "{path}");
    }
}

fn token(subject: &str, life: u64) -> String {
    issue(SECRET, subject, SystemTime::now(), Duration::from_secs(life))
}

on_each_transport! {
    /// Purpose: only who proves it gets through, whatever else is sent; a 401 says what is wanted, in the one field that
    /// clients read it from.
    fn proofs(transport) {
        let running = start(router(), transport);
        let ask = |path: &str, fields: &str| -> Answer {
            exchange(running.address(), &format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n"))
        };
        let good = "Authorization: bAsIc YWxhZGRpbjpvcGVuOiBzZXNhbWU=\r\n";
        assert_eq!(ask("/basic", good).content, "aladdin");
        let twice = format!("{good}{good}");
        for wrong in [
            "",
            "Authorization: Basic\r\n",
            "Authorization: Basic !\r\n",
            "Authorization: Basic YWxhZGRpbg==\r\n",
            "Authorization: Basic YWxhZGRpbjo=\r\n",
            "Authorization: Basic //8=\r\n",
            "Authorization: Bearer w1EWm\r\n",
            &twice,
        ] {
            let answer = ask("/basic", wrong);
            let challenge = answer.field("www-authenticate");
            assert_eq!((answer.status, challenge), (401, Some("Basic realm=\"the cave\", charset=\"UTF-8\"")), "{wrong}");
            assert!(answer.content.contains("\"unauthorized\""), "{}", answer.content);
        }
        assert_eq!(ask("/bearer", "Authorization: Bearer w1EWm\r\n").content, "a service");
        for (wrong, code, challenge) in [
            ("", "unauthorized", "Bearer"),
            (good, "unauthorized", "Bearer"),
            ("Authorization: Bearer w1EW\r\n", "invalid_token", "Bearer error=\"invalid_token\""),
        ] {
            let answer = ask("/bearer", wrong);
            assert_eq!((answer.status, answer.field("www-authenticate")), (401, Some(challenge)), "{wrong}");
            assert!(answer.content.contains(code), "{}", answer.content);
        }

        let with = |token: &str| format!("Authorization: Bearer {token}\r\n");
        assert_eq!(ask("/jwt/subject", &with(&token("ann", 60))).content, "ann");
        let before = SystemTime::now() - Duration::from_secs(120);
        let expired = issue(SECRET, "ann", before, Duration::from_secs(60));
        for (path, token, message) in [
            ("/jwt/subject", expired, "has expired"),
            ("/jwt/subject", token("", 60), "no subject"),
            ("/jwt/subject", "a.b.c".to_owned(), "the token is not valid"),
            ("/jwt/admin", token("ann", 60), "not the expected ones: missing field `admin`"),
        ] {
            let answer = ask(path, &with(&token));
            let challenge = answer.field("www-authenticate");
            assert_eq!((answer.status, challenge), (401, Some("Bearer error=\"invalid_token\"")), "{message}");
            assert!(answer.content.contains("invalid_token") && answer.content.contains(message), "{}", answer.content);
        }
        let missing = ask("/jwt/subject", "");
        assert_eq!((missing.status, missing.field("www-authenticate")), (401, Some("Bearer")));
        assert_eq!(ask("/bare", &with(&token("ann", 60))).status, 500, "nothing has verified it");

        assert_eq!(ask("/read", good).content, "BasicCredentials { user: \"aladdin\", .. }", "no password in a log");
        assert_eq!(ask("/token", &with("secret")).content, "BearerToken 6");
        assert_eq!(ask("/read", "").status, 401);
        assert_eq!(ask("/token", "").status, 401);
    }
}

/// Purpose: who reads the document of an interface learns how to prove who they are, for each operation that asks for it.
#[test]
fn the_document_has_the_schemes() {
    let client = Client::new(router());
    let document: serde_json::Value = client.get("/openapi.json").json();
    let schemes = &document["components"]["securitySchemes"];
    assert_eq!(
        (&schemes["basic"]["scheme"], &schemes["bearer"]["scheme"]),
        (&"basic".into(), &"bearer".into())
    );
    assert_eq!(schemes["token"]["bearerFormat"], "JWT");
    for (path, scheme) in
        [("/basic", "basic"), ("/bearer", "bearer"), ("/jwt/subject", "token"), ("/read", "basic")]
    {
        let operation = &document["paths"][path]["get"];
        assert!(operation["security"][0][scheme].is_array(), "{path}");
        assert!(operation["responses"]["401"]["headers"]["WWW-Authenticate"].is_object(), "{path}");
    }
}

/// Purpose: a realm that would break out of its quotes is a problem of the application, and not of its clients.
#[test]
fn a_realm_is_checked() {
    let layer = basic("a\"b", |_: &str, _: &str| Some(()));
    let error = Router::new().layer(layer).build().expect_err("it has a quote");
    assert!(error.to_string().contains("without quotes"), "{error}");
}
