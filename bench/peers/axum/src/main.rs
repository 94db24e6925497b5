//! axum peer, on hyper's servers. Environment: PORT (8080), WORKERS (1); HTTP2=1 for both versions of HTTP on that port;
//! TLS_PORT, TLS_CERT and TLS_KEY for TLS (tokio-rustls, ring), with HTTP/2 if the client knows it. Built with the feature `web`,
//! it takes WEB for the routes of `web.rs`, which need a clock and the client's address: the other binary pays for none of it.
//!
//! One current-thread Tokio runtime a worker, each with its own SO_REUSEPORT listener: the layout
//! that costs axum least, and measurably less than the multi-threaded `axum::serve`.
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::{
    Extension, Json, Router,
    body::Bytes,
    extract::{ConnectInfo, Path, WebSocketUpgrade, ws::WebSocket},
    http::StatusCode,
    middleware::AddExtension,
    response::Response,
    routing::{get, post},
};
use hyper::server::conn::{http1, http2};
use hyper::{Request, body::Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::{server::conn::auto, service::TowerToHyperService};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde::Serialize;
use socket2::{Domain, Socket, Type};
use tokio_rustls::TlsAcceptor;
use tower::{Layer, Service};

#[path = "../../common/routes.rs"]
mod routes;
#[cfg(feature = "web")]
mod web;

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

async fn echo(upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(async |mut socket: WebSocket| {
        while let Some(Ok(message)) = socket.recv().await {
            if socket.send(message).await.is_err() {
                return;
            }
        }
    })
}

async fn other() -> StatusCode {
    StatusCode::NO_CONTENT
}

fn app() -> Router {
    let app = Router::new()
        .route("/plaintext", get(plaintext))
        .route("/json", get(json))
        .route("/users/{id}", get(user))
        .route("/e", post(event))
        .route("/ws", get(echo));
    #[cfg(feature = "web")]
    let app = web::routes(app);
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

/// `make` has the service of each connection.
async fn serve<S>(
    addr: SocketAddr,
    both_versions: bool,
    make: impl Fn(SocketAddr) -> S,
) -> std::io::Result<()>
where
    S: Service<Request<Incoming>, Response = Response, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    let listener = listen(addr)?;
    let mut http = http1::Builder::new();
    http.pipeline_flush(true);
    let mut auto = auto::Builder::new(TokioExecutor::new());
    auto.http1().pipeline_flush(true);
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (stream, service) = (TokioIo::new(stream), TowerToHyperService::new(make(peer)));
        if both_versions {
            let auto = auto.clone();
            tokio::spawn(async move { auto.serve_connection_with_upgrades(stream, service).await });
        } else {
            tokio::spawn(http.serve_connection(stream, service).with_upgrades());
        }
    }
}

async fn serve_tls(addr: SocketAddr, acceptor: TlsAcceptor) -> std::io::Result<()> {
    let service = TowerToHyperService::new(app());
    let listener = listen(addr)?;
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (acceptor, service) = (acceptor.clone(), service.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let stream = TokioIo::new(stream);
            let _ = match is_http2 {
                true => {
                    http2::Builder::new(TokioExecutor::new())
                        .serve_connection(stream, service)
                        .await
                }
                false => {
                    http1::Builder::new()
                        .pipeline_flush(true)
                        .serve_connection(stream, service)
                        .with_upgrades()
                        .await
                }
            };
        });
    }
}

/// TLS 1.2 and 1.3, with tickets, from the files that the environment names.
fn tls() -> Option<(SocketAddr, TlsAcceptor)> {
    let port = std::env::var("TLS_PORT").ok()?.parse().expect("TLS_PORT is a port");
    let file = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is missing"));
    let chain = CertificateDer::pem_file_iter(file("TLS_CERT"))
        .expect("TLS_CERT can be read")
        .collect::<Result<Vec<_>, _>>()
        .expect("TLS_CERT is PEM");
    let key = PrivateKeyDer::from_pem_file(file("TLS_KEY")).expect("TLS_KEY is PEM");
    let mut config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("the key is the certificate's");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.ticketer = rustls::crypto::ring::Ticketer::new().expect("there is randomness");
    Some((SocketAddr::from(([127, 0, 0, 1], port)), TlsAcceptor::from(Arc::new(config))))
}

fn worker(addr: SocketAddr, tls: Option<(SocketAddr, TlsAcceptor)>) -> std::io::Result<()> {
    let both_versions = std::env::var_os("HTTP2").is_some();
    let is_web = cfg!(feature = "web") && std::env::var_os("WEB").is_some();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_io();
    if is_web {
        runtime.enable_time();
    }
    runtime.build()?.block_on(async move {
        if let Some((addr, acceptor)) = tls {
            tokio::spawn(serve_tls(addr, acceptor));
        }
        let app = app();
        if is_web {
            let known = |peer: SocketAddr| Extension(ConnectInfo(peer)).layer(app.clone());
            return serve::<AddExtension<Router, _>>(addr, both_versions, known).await;
        }
        serve(addr, both_versions, |_| app.clone()).await
    })
}

fn main() -> std::io::Result<()> {
    let addr = SocketAddr::from(([127, 0, 0, 1], routes::env_usize("PORT", 8080) as u16));
    let tls = tls();
    let workers: Vec<_> = (0..routes::env_usize("WORKERS", 1))
        .map(|_| {
            let tls = tls.clone();
            std::thread::spawn(move || worker(addr, tls))
        })
        .collect();
    for worker in workers {
        worker
            .join()
            .expect("a worker's panic aborts the process")?;
    }
    Ok(())
}
