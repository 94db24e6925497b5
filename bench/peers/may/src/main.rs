//! may_minihttp peer. Environment: PORT (8080), WORKERS (1).
//!
//! may_minihttp has no router: matchit matches the paths, as a user of it would have to add. It
//! ignores `Connection: close`, has no time-outs and writes its own status reason: a ceiling for
//! speed, not a whole server.
use std::{io, sync::Arc};

use bytes::BufMut;
use may_minihttp::{HttpServer, HttpService, Request, Response};
use serde::Serialize;

#[path = "../../common/routes.rs"]
mod routes;

#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Clone, Copy)]
enum Route {
    Plaintext,
    Json,
    User,
    Event,
    Other,
}

#[derive(Serialize)]
struct Message {
    message: &'static str,
}

#[derive(Clone)]
struct App(Arc<matchit::Router<Route>>);

impl HttpService for App {
    fn call(&mut self, request: Request, response: &mut Response) -> io::Result<()> {
        let target = request.path();
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        let Ok(found) = self.0.at(path) else {
            response.status_code(404, "Not Found");
            return Ok(());
        };
        match (*found.value, request.method()) {
            (Route::Plaintext, "GET") => {
                response
                    .header("Content-Type: text/plain")
                    .body("Hello, World!");
            }
            (Route::Json, "GET") => {
                response.header("Content-Type: application/json");
                let message = Message {
                    message: "Hello, World!",
                };
                serde_json::to_writer(response.body_mut().writer(), &message)?;
            }
            (Route::User, "GET") => {
                let id = found.params.get("id").unwrap_or("");
                response.header("Content-Type: text/plain");
                response.body_mut().extend_from_slice(id.as_bytes());
            }
            (Route::Event, "POST") => {
                io::copy(&mut request.body(), &mut io::sink())?;
                response.status_code(202, "Accepted");
            }
            (Route::Other, "GET") => {
                response.status_code(204, "No Content");
            }
            _ => {
                response.status_code(405, "Method Not Allowed");
            }
        }
        Ok(())
    }
}

fn router() -> Result<matchit::Router<Route>, matchit::InsertError> {
    let mut router = matchit::Router::new();
    for path in routes::EXTRA {
        router.insert(path, Route::Other)?;
    }
    router.insert("/plaintext", Route::Plaintext)?;
    router.insert("/json", Route::Json)?;
    router.insert("/users/{id}", Route::User)?;
    router.insert("/e", Route::Event)?;
    Ok(router)
}

fn main() -> io::Result<()> {
    may::config().set_workers(routes::env_usize("WORKERS", 1));
    let app = App(Arc::new(router().expect("the fixed table has no conflict")));
    let addr = format!("127.0.0.1:{}", routes::env_usize("PORT", 8080));
    HttpServer(app).start(addr)?.join().ok();
    Ok(())
}
