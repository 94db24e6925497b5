//! Sessions whose data are in a store, so that the server can end them at any time.

use highwater::{Error, Extension, NoContent, Router};
use tower_sessions::cookie::SameSite;
use tower_sessions::cookie::time::Duration;
use tower_sessions::{Expiry, Session, SessionManagerLayer, SessionStore};

/// Counts visits, in any store: `MemoryStore` for one process, those of Redis or Postgres for several.
pub fn routes(store: impl SessionStore + Clone) -> Router {
    let sessions = SessionManagerLayer::new(store)
        .with_expiry(Expiry::OnInactivity(Duration::hours(1)))
        .with_same_site(SameSite::Lax)
        .with_secure(false); // Over TLS leave this out: browsers then send the cookie over TLS only.
    Router::new().layer(sessions).get("/visits", count).post("/sign-out", end)
}

async fn count(Extension(session): Extension<Session>) -> Result<String, Error> {
    let visits = session.get::<u64>("visits").await.map_err(Error::internal)?.unwrap_or(0) + 1;
    session.insert("visits", visits).await.map_err(Error::internal)?;
    Ok(visits.to_string())
}

/// After a sign-in, call `session.cycle_id()`: a new id for the same data, against session fixation.
async fn end(Extension(session): Extension<Session>) -> Result<NoContent, Error> {
    session.flush().await.map_err(Error::internal)?;
    Ok(NoContent)
}
