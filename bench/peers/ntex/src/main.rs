//! ntex peer. Environment: PORT (8080), WORKERS (1).
//! Cargo features: `uring` (its own runtime, neon, on io_uring) or `tokio`.
use ntex::{SharedCfg, util::Bytes, web};
use serde::Serialize;

#[path = "../../common/routes.rs"]
mod routes;

#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Serialize)]
struct Message {
    message: &'static str,
}

async fn plaintext() -> web::HttpResponse {
    web::HttpResponse::Ok()
        .content_type("text/plain")
        .body("Hello, World!")
}

async fn json() -> web::HttpResponse {
    web::HttpResponse::Ok().json(&Message {
        message: "Hello, World!",
    })
}

async fn user(id: web::types::Path<String>) -> web::HttpResponse {
    web::HttpResponse::Ok()
        .content_type("text/plain")
        .body(id.into_inner())
}

async fn event(_body: Bytes) -> web::HttpResponse {
    web::HttpResponse::Accepted().build()
}

async fn other() -> web::HttpResponse {
    web::HttpResponse::NoContent().build()
}

/// The measured routes stand in the middle of the table, because this router tries its resources in
/// order.
fn configure(config: &mut web::ServiceConfig<()>) {
    let (before, after) = routes::EXTRA.split_at(routes::EXTRA.len() / 2);
    for path in before {
        config.route(path, web::get().to(other));
    }
    config
        .route("/plaintext", web::get().to(plaintext))
        .route("/json", web::get().to(json))
        .route("/users/{id}", web::get().to(user))
        .route("/e", web::post().to(event));
    for path in after {
        config.route(path, web::get().to(other));
    }
}

#[ntex::main]
async fn main() -> std::io::Result<()> {
    let port = routes::env_usize("PORT", 8080) as u16;
    web::HttpServer::new(async |_| web::App::new().configure(configure))
        .backlog(4096)
        .workers(routes::env_usize("WORKERS", 1))
        .bind(("127.0.0.1", port), SharedCfg::new("peer"))?
        .run()
        .await
}
