//! Serves articles from the Postgres in `DATABASE_URL`. Settings of the server: `HIGHWATER_LISTEN`, …
#![forbid(unsafe_code)]

use std::error::Error;

use highwater::Server;
use tokio::runtime::Builder;

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to postgres://…")?;
    let start = Builder::new_current_thread().enable_all().build()?;
    start.block_on(highwater_example_postgres::prepare(&url))?;
    Server::new(highwater_example_postgres::router(url)).run()?;
    Ok(())
}
