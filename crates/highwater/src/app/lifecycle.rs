//! What does an application do before it serves, beside serving, and after it has served?
//!
//! It is declared here; the server runs it (`server/hooks.rs`).

use std::future::Future;
use std::time::Duration;

use super::draining::Draining;
use super::error::BoxError;
use super::hooks::{Done, HOOK_TIME_MAX, Hook, Step};
use super::router::Router;

impl Router {
    /// Runs `hook` before the server listens, for example for migrations, or to check a service that the application needs. If
    /// it fails, panics, or takes longer than [`HOOK_TIME_MAX`], the server does not start:
    /// [`Server::run`](crate::Server::run) returns the reason, with the hook's name, and no connection was accepted.
    ///
    /// Hooks run one after the other, in the order in which they were added, those of a router before those of nested routers.
    /// They share a Tokio runtime on a thread of its own, which lives as long as the server; an application without hooks has
    /// none. A hook must not block that thread: blocking work belongs in `tokio::task::spawn_blocking`. Tests with
    /// [`testing::Client`](crate::testing) run no hooks.
    ///
    /// ```no_run
    /// use highwater::{Router, Server};
    ///
    /// async fn migrate() -> Result<(), std::io::Error> {
    ///     Ok(()) // Bring the tables up to date.
    /// }
    ///
    /// async fn flush() -> Result<(), std::io::Error> {
    ///     Ok(()) // Send what was collected.
    /// }
    ///
    /// let app = Router::new()
    ///     .get("/", || "Hello")
    ///     .on_start("migrations", migrate)
    ///     .on_stop("statistics", flush);
    /// Server::new(app).run()?;
    /// # Ok::<(), highwater::ServerError>(())
    /// ```
    #[must_use]
    pub fn on_start<F, Fut, E>(self, name: impl Into<String>, hook: F) -> Self
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + 'static,
        E: Into<BoxError>,
    {
        self.on_start_within(HOOK_TIME_MAX, name, hook)
    }

    /// [`Router::on_start`], with a deadline of its own.
    #[must_use]
    pub fn on_start_within<F, Fut, E>(
        self,
        time_max: Duration,
        name: impl Into<String>,
        hook: F,
    ) -> Self
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + 'static,
        E: Into<BoxError>,
    {
        self.hook(name, time_max, Step::Start(run(hook)))
    }

    /// Runs `hook` after the server has drained, when no request is in flight any more, for example to send collected data or
    /// to close connections. If it fails, panics, or takes longer than [`HOOK_TIME_MAX`], that is logged with its name, and the
    /// next hook runs.
    ///
    /// The hook that was added last runs first. If a start hook fails, or the server cannot listen, the stop hooks that
    /// were added before it run as well, so that they can close what earlier start hooks have opened.
    #[must_use]
    pub fn on_stop<F, Fut, E>(self, name: impl Into<String>, hook: F) -> Self
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + 'static,
        E: Into<BoxError>,
    {
        self.on_stop_within(HOOK_TIME_MAX, name, hook)
    }

    /// [`Router::on_stop`], with a deadline of its own.
    #[must_use]
    pub fn on_stop_within<F, Fut, E>(
        self,
        time_max: Duration,
        name: impl Into<String>,
        hook: F,
    ) -> Self
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + 'static,
        E: Into<BoxError>,
    {
        self.hook(name, time_max, Step::Stop(run(hook)))
    }

    /// Runs `task` while the server serves, for example to renew stored data or to send a queue. It begins when all start
    /// hooks have succeeded, and its argument tells it when the drain begins. The drain waits for it as for a request: until
    /// [`ServerConfig::drain_timeout`](crate::ServerConfig::drain_timeout), at which it is dropped; then the stop hooks run. A
    /// task that panics is logged with its name, and the server goes on.
    ///
    /// ```
    /// use std::time::Duration;
    /// use highwater::{Draining, Router};
    ///
    /// async fn renew(draining: Draining) {
    ///     while !draining.has_begun() {
    ///         // …
    ///         let _ = tokio::time::timeout(Duration::from_secs(60), draining.begun()).await;
    ///     }
    /// }
    ///
    /// let app = Router::new().get("/", || "Hello").background("renewal", renew);
    /// # app.build().unwrap();
    /// ```
    #[must_use]
    pub fn background<F, Fut>(self, name: impl Into<String>, task: F) -> Self
    where
        F: FnOnce(Draining) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        self.hook(name, Duration::MAX, Step::Beside(Box::new(|draining| Box::pin(task(draining)))))
    }

    fn hook(mut self, name: impl Into<String>, time_max: Duration, step: Step) -> Self {
        self.hooks.push(Hook { name: name.into(), time_max, step });
        self
    }

    /// Takes the hooks of this router and those in it, in their order.
    pub(crate) fn take_hooks(&mut self) -> Vec<Hook> {
        let mut hooks = std::mem::take(&mut self.hooks);
        for (_, nested) in &mut self.nested {
            hooks.append(&mut nested.take_hooks());
        }
        hooks
    }
}

fn run<F, Fut, E>(hook: F) -> Box<dyn FnOnce() -> Done + Send>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = Result<(), E>> + 'static,
    E: Into<BoxError>,
{
    Box::new(|| Box::pin(async { hook().await.map_err(Into::into) }))
}
