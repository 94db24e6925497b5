//! Applications that differ from the one of `strained.rs` in what they need: no runtime at the start, or a start that
//! does not end.

use std::future::pending;
use std::time::Duration;

use clap::ValueEnum;
use highwater::http::HeaderValue;
use highwater::{Body, PerWorker, Response, Router, StatusCode};

use crate::echo;

/// Which application is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scene {
    /// All of the misbehaving handlers.
    #[default]
    All,
    /// No handler is `async`: a worker's runtime begins with its first stream.
    Sync,
    /// A start hook does not end.
    Hook,
    /// A worker's value is never made.
    Worker,
}

impl Scene {
    pub(crate) fn routes(self) -> Router {
        let router = Router::new().get("/", || "OK");
        let opens = |router: Router| {
            router.on_stop("closes", || async {
                eprintln!("closed what was opened");
                Ok::<(), String>(())
            })
        };
        match self {
            Scene::All => crate::routes(),
            Scene::Sync => router
                .get("/streamed", streamed)
                .get("/upgrade", || Response::upgrade(HeaderValue::from_static("echo"), echo)),
            Scene::Hook => {
                let long = Duration::from_secs(600);
                opens(router).on_start_within(long, "slow", pending::<Result<(), String>>)
            }
            Scene::Worker => {
                let never = PerWorker::with_future(|_| pending::<Result<(), String>>());
                opens(router).per_worker(never)
            }
        }
    }
}

/// Content that comes from another thread.
fn streamed() -> Response {
    let (mut sender, body) = Body::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let sent = runtime.map(|runtime| runtime.block_on(sender.send("streamed")));
        if matches!(sent, Ok(Ok(()))) {
            sender.finish();
        }
    });
    Response::new(StatusCode::OK).with_body(body)
}
