//! actix-web peer. Environment: PORT (8080), WORKERS (1); WEB for the routes of `api.rs`.
use actix_web::{App, HttpResponse, HttpServer, http::header::ContentType, web};
use serde::Serialize;

mod api;
#[path = "../../common/routes.rs"]
mod routes;

#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Serialize)]
struct Message {
    message: &'static str,
}

async fn plaintext() -> HttpResponse {
    HttpResponse::Ok()
        .content_type(ContentType::plaintext())
        .body("Hello, World!")
}

async fn json() -> HttpResponse {
    HttpResponse::Ok().json(Message {
        message: "Hello, World!",
    })
}

async fn user(id: web::Path<String>) -> HttpResponse {
    HttpResponse::Ok()
        .content_type(ContentType::plaintext())
        .body(id.into_inner())
}

async fn event(_body: web::Bytes) -> HttpResponse {
    HttpResponse::Accepted().finish()
}

async fn other() -> HttpResponse {
    HttpResponse::NoContent().finish()
}

/// The measured routes stand in the middle of the table, because this router tries its resources in
/// order.
fn configure(config: &mut web::ServiceConfig, web: Option<&api::Web>) {
    let (before, after) = routes::EXTRA.split_at(routes::EXTRA.len() / 2);
    for path in before {
        config.route(path, web::get().to(other));
    }
    config
        .route("/plaintext", web::get().to(plaintext))
        .route("/json", web::get().to(json))
        .route("/users/{id}", web::get().to(user))
        .route("/e", web::post().to(event));
    if let Some(web) = web {
        web.configure(config);
    }
    for path in after {
        config.route(path, web::get().to(other));
    }
}

fn main() -> std::io::Result<()> {
    let port = routes::env_usize("PORT", 8080) as u16;
    let workers = routes::env_usize("WORKERS", 1);
    actix_web::rt::System::new().block_on(async move {
        let web = api::Web::from_env();
        HttpServer::new(move || App::new().configure(|config| configure(config, web.as_ref())))
            .workers(workers)
            .backlog(4096)
            .bind(("127.0.0.1", port))?
            .run()
            .await
    })
}
