//! The routes every compared server has, among as many others as a small service has.

use bytes::Bytes;
use highwater::{Json, Path, Router, StatusCode, fixed};
use serde::Serialize;

#[derive(Serialize)]
struct Message {
    message: &'static str,
}

const HELLO: &str = "Hello, World!";

/// Adds the routes that every compared server has.
pub fn routes(router: Router) -> Router {
    let router = router
        .get("/plaintext", plaintext)
        .get("/plaintext-handler", plaintext)
        .get("/json", json)
        .get("/json-serialize", json)
        .get("/json-static", fixed(Json(Message { message: HELLO })))
        .get("/users/{id}", user)
        .post("/e", accept);
    OTHERS.iter().fold(router, |router, path| router.get(path, || StatusCode::NO_CONTENT))
}

fn plaintext() -> &'static str {
    HELLO
}

fn json() -> Json<Message> {
    Json(Message { message: HELLO })
}

fn user(Path(id): Path<String>) -> String {
    id
}

/// Takes any body, and does nothing with it.
fn accept(body: Bytes) -> StatusCode {
    drop(body);
    StatusCode::ACCEPTED
}

/// Routes that no client requests: a router with only seven routes would prove nothing.
const OTHERS: [&str; 30] = [
    "/users",
    "/users/{id}/posts",
    "/users/{id}/posts/{post}",
    "/users/{id}/followers",
    "/users/{id}/settings",
    "/posts",
    "/posts/{id}",
    "/posts/{id}/comments",
    "/posts/{id}/comments/{comment}",
    "/tags",
    "/tags/{tag}",
    "/tags/{tag}/posts",
    "/search",
    "/search/users",
    "/search/posts",
    "/orders",
    "/orders/{id}",
    "/orders/{id}/items",
    "/orders/{id}/items/{item}",
    "/products",
    "/products/{id}",
    "/products/{id}/reviews",
    "/categories",
    "/categories/{category}",
    "/categories/{category}/products",
    "/admin/stats",
    "/admin/users",
    "/admin/users/{id}",
    "/login",
    "/logout",
];
