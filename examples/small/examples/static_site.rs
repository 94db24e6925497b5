//! A site of static files, beside an interface: `cargo run -p highwater-example-small --example static_site -- docs`.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use highwater::files::StaticFiles;
use highwater::layers::security_headers;
use highwater::{Router, Server, ServerError};

/// Serves `folder`; addresses that are neither a file nor a route get its `index.html`, whose script knows what to show.
pub fn router(folder: PathBuf) -> Router {
    let files = StaticFiles::new(folder).precompressed().single_page("index.html");
    Router::new().layer(security_headers()).get("/api/version", || "1").files("/", files)
}

fn main() -> Result<(), ServerError> {
    let folder = std::env::args_os().nth(1).unwrap_or_else(|| "public".into());
    Server::new(router(folder.into())).run()
}
