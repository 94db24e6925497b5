//! axum peer, on hyper's HTTP/1 server. Environment: PORT (8080), WORKERS (1).
//!
//! One current-thread Tokio runtime a worker, each with its own SO_REUSEPORT listener: the layout
//! that costs axum least, and measurably less than the multi-threaded `axum::serve`.
use std::net::SocketAddr;

use axum::{
    Json, Router,
    body::Bytes,
    extract::Path,
    http::StatusCode,
    routing::{get, post},
};
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use serde::Serialize;
use socket2::{Domain, Socket, Type};

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

async fn user(Path(id): Path<String>) -> String {
    id
}

async fn event(_body: Bytes) -> StatusCode {
    StatusCode::ACCEPTED
}

async fn other() -> StatusCode {
    StatusCode::NO_CONTENT
}

fn app() -> Router {
    let app = Router::new()
        .route("/plaintext", get(plaintext))
        .route("/json", get(json))
        .route("/users/{id}", get(user))
        .route("/e", post(event));
    routes::EXTRA
        .iter()
        .fold(app, |app, path| app.route(path, get(other)))
}

fn listen(addr: SocketAddr) -> std::io::Result<tokio::net::TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(4096)?;
    tokio::net::TcpListener::from_std(socket.into())
}

async fn serve(addr: SocketAddr) -> std::io::Result<()> {
    let service = TowerToHyperService::new(app());
    let listener = listen(addr)?;
    let mut http = http1::Builder::new();
    http.pipeline_flush(true);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let _ = stream.set_nodelay(true);
        tokio::spawn(http.serve_connection(TokioIo::new(stream), service.clone()));
    }
}

fn worker(addr: SocketAddr) -> std::io::Result<()> {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?
        .block_on(serve(addr))
}

fn main() -> std::io::Result<()> {
    let addr = SocketAddr::from(([127, 0, 0, 1], routes::env_usize("PORT", 8080) as u16));
    let workers: Vec<_> = (0..routes::env_usize("WORKERS", 1))
        .map(|_| std::thread::spawn(move || worker(addr)))
        .collect();
    for worker in workers {
        worker
            .join()
            .expect("a worker's panic aborts the process")?;
    }
    Ok(())
}
