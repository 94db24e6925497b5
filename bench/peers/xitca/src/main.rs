//! xitca-web peer on its epoll runtime, which measured faster here than its io_uring one.
//! Environment: PORT (8080), WORKERS (1).
use serde::Serialize;
use xitca_web::{
    App,
    error::Error,
    handler::{handler_service, json::Json, params::LazyParams},
    http::StatusCode,
    route::{get, post},
};

#[path = "../../common/routes.rs"]
mod routes;

#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Serialize)]
struct Message {
    message: &'static str,
}

async fn plaintext() -> &'static str {
    "Hello, World!"
}

async fn json() -> Json<Message> {
    Json(Message {
        message: "Hello, World!",
    })
}

async fn user(params: LazyParams<'_, &str>) -> Result<String, Error> {
    Ok(params.deserialize()?.to_owned())
}

async fn event(_body: Vec<u8>) -> StatusCode {
    StatusCode::ACCEPTED
}

async fn other() -> StatusCode {
    StatusCode::NO_CONTENT
}

fn main() -> std::io::Result<()> {
    let port = routes::env_usize("PORT", 8080) as u16;
    let mut app = App::new()
        .at("/plaintext", get(handler_service(plaintext)))
        .at("/json", get(handler_service(json)))
        .at("/users/{id}", get(handler_service(user)))
        .at("/e", post(handler_service(event)));
    for path in routes::EXTRA {
        app = app.at(path, get(handler_service(other)));
    }
    app.serve()
        .worker_threads(routes::env_usize("WORKERS", 1))
        .backlog(4096)
        .bind(("127.0.0.1", port))?
        .run()
        .wait()
}
