//! The same service as it was before it moved: for comparison, on the address in `LISTEN`.
#![forbid(unsafe_code)]

use std::net::SocketAddr;

use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:8080".into());
    let listener = TcpListener::bind(address).await?;
    let app = highwater_example_axum::app().into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await
}
