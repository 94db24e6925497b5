//! Which client does a request belong to, if each client gets its share of an overloaded server?
//!
//! The application may name it: [`Router::fair_by`]. A worker whose queue stands or grows calls the function once for each
//! waiting request.

use std::hash::{BuildHasher, Hash, RandomState};

use super::application::App;
use super::guard::{Panic, guarded};
use super::request::Request;
use super::router::Router;

impl Router {
    /// Names the client of a request, for the shares of clients in an overloaded server (`--fair`): requests for which
    /// `client` returns equal values belong to one client. Without it, and where it returns `None`, a client is the address
    /// that a connection comes from, or the one that a trusted proxy names.
    ///
    /// While more requests come than can be served, each client gets an equal share of the time, and the unused part of a
    /// share is divided among the other clients. Only then is `client` called, once for each request that waits, on its
    /// worker and before anything else of the application: so it should be quick, and look at the head only (the body
    /// appears empty). Requests in one turn of a worker wait for it together for a millisecond at most, or for one slow
    /// call. If it panics, its request is answered 500, and logged and counted as if its handler had panicked.
    ///
    /// Return a value that a client cannot choose freely, such as the tenant that a token is signed for. If the value comes
    /// from an unchecked field, a client that sends another one with each request has as many shares as it wants.
    ///
    /// The gate in the kernel knows addresses only. Where the application names clients it refuses connections whatever their
    /// address, and shares begin in the queue. Only the outermost router's function counts.
    ///
    /// ```
    /// use highwater::{Request, Router};
    ///
    /// /// Tokens by tenant, as they were issued.
    /// struct Tenants(std::collections::HashMap<String, u32>);
    ///
    /// fn tenant(request: &Request<'_>) -> Option<u32> {
    ///     let Tenants(tenants) = request.state()?;
    ///     tenants.get(request.header("x-api-token")?).copied()
    /// }
    ///
    /// let tenants = Tenants([(String::from("a secret"), 1)].into());
    /// let app = Router::new().state(tenants).fair_by(tenant).get("/", || "Hello");
    /// # app.build().unwrap();
    /// ```
    #[must_use]
    pub fn fair_by<K: Hash>(
        mut self,
        client: impl Fn(&Request<'_>) -> Option<K> + Send + Sync + 'static,
    ) -> Self {
        self.clients = Some(Box::new(move |request, secret| {
            client(request).map(|key| secret.hash_one(("named by the application", key)))
        }));
        self
    }
}

impl App {
    /// Whether the application says whose a request is.
    pub(crate) fn names_clients(&self) -> bool {
        self.shared.clients.is_some()
    }

    /// The hash of the client whose request it is; `None` if the application leaves that to the address.
    ///
    /// # Errors
    /// The application panicked. That is noted on this thread; the caller reports it.
    pub(crate) fn client(
        &self,
        request: &Request<'_>,
        secret: &RandomState,
    ) -> Result<Option<u64>, Panic> {
        let Some(clients) = &self.shared.clients else { return Ok(None) };
        guarded(|| clients(request, secret))
    }
}
