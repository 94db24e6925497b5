//! Puts the parts together: the search service, and the provider to test it with.
//!
//! Order matters at both ends. Signals are held back before the first thread starts, so that none
//! of them can be killed by one. The store is loaded before the port opens, so that a service that
//! can be reached is ready; the provider has no part in that. At the end clients get what they are
//! owed first; then the poller is stopped, whatever it is waiting for.

use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use highwater::ServerArgs;
use highwater::log::LogFormat;
use highwater::metrics::Metrics;
use highwater::server::{Running, Server, ServerConfig, ServerError, Signals};

use crate::args::{EVENTS, ProviderArgs, SearchArgs};
use crate::catalog::{Catalog, EVENTS_MAX};
use crate::http::{self, Search};
use crate::metrics;
use crate::poller::{Poller, Report};
use crate::prng::Prng;
use crate::provider::{self, Behaviour, Provider, generate};

/// What the demonstration's feed is made up from.
const DEMO_SEED: u64 = 1;

/// How long the demonstration waits for its own feed before it prints its URLs regardless.
const DEMO_PATIENCE: Duration = Duration::from_secs(10);

/// Serves searches until it is told to stop.
///
/// # Errors
/// What failed, and what to do about it.
pub fn search(args: &SearchArgs, server: &ServerArgs) -> Result<(), Failure> {
    highwater::log::set_format(server.log);
    let signals = Signals::block()?;
    let feed = args.demo.then(|| start_demo_feed(server.log)).transpose()?;
    let url = match (&feed, &args.provider_url) {
        (Some(feed), _) => format!("http://{}/", feed.address()),
        (None, Some(url)) => url.clone(),
        (None, None) => return Err(Failure(PROVIDER_MISSING.into())),
    };
    let settings = args.poller(&url)?;
    let store = args.store.open(args.data())?;
    let catalog = Arc::new(Catalog::open(store, EVENTS_MAX)?);
    let search = Arc::new(Search::new(Arc::clone(&catalog)));

    let counted = Metrics::new();
    metrics::of_search(&counted, &catalog, &search)?;
    let (polled, first_poll) = mpsc::sync_channel(1);
    let listener = Box::new(move |report: &Report<'_>| {
        report.log();
        // Full, or nobody waits: one poll is all that is waited for.
        let _ = polled.try_send(());
    });
    let running = Server::new(http::router(search)).config(server).metrics(&counted).start()?;
    let poller = Poller::start(settings, catalog, listener)?;
    metrics::of_poller(&counted, &poller.stats())?;

    if let Some(feed) = &feed {
        let _ = first_poll.recv_timeout(DEMO_PATIENCE);
        print_urls(&running, feed);
    }
    let outcome = running.until_signal(&signals);
    poller.stop();
    Ok(outcome?)
}

/// What is wrong when there is nothing to poll.
pub const PROVIDER_MISSING: &str = "--provider-url is missing; give the feed's URL, as in \
    --provider-url http://127.0.0.1:8091/ or PROVIDER_URL=http://127.0.0.1:8091/, \
    or use --demo to try the service with a feed of made-up events";

/// Serves the feed to test with until it is told to stop.
///
/// # Errors
/// What failed, and what to do about it.
pub fn provider(args: &ProviderArgs) -> Result<(), Failure> {
    let feed = match &args.file {
        Some(file) => fs::read(file).map(Bytes::from).map_err(|error| {
            Failure(format!("cannot read --file {}: {error}; give a feed's path", file.display()))
        })?,
        None => generate(args.events as usize, args.seed).into(),
    };
    let signals = Signals::block()?;
    let provider = Provider::new(feed, args.behaviour());
    let running = start_provider(provider, args.seed, args.listen, LogFormat::Text)?;
    Ok(running.until_signal(&signals)?)
}

fn start_demo_feed(log: LogFormat) -> Result<Running, ServerError> {
    let honest = Behaviour { gzip: true, etag: true, ..Behaviour::default() };
    let provider = Provider::new(generate(EVENTS as usize, DEMO_SEED), honest);
    start_provider(provider, DEMO_SEED, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), log)
}

fn start_provider(
    provider: Provider,
    seed: u64,
    listen: SocketAddr,
    log: LogFormat,
) -> Result<Running, ServerError> {
    let config = ServerConfig {
        listen,
        log,
        metrics: None,
        workers: NonZeroUsize::new(1),
        ..Default::default()
    };
    Server::new(provider::router(provider, Prng::seeded(seed))).config(config).start()
}

/// Tells whoever tries the service out where everything is.
fn print_urls(running: &Running, feed: &Running) {
    let search = running.address();
    let metrics = match running.metrics_address() {
        Some(address) => format!("http://{address}/metrics"),
        None => "off".to_owned(),
    };
    let text = format!(
        "\n  \
         search    http://{search}/search?starts_at=2024-06-01&ends_at=2024-06-30\n  \
         health    http://{search}/health\n  \
         metrics   {metrics}\n  \
         feed      http://{}/\n\n  \
         Ctrl-C stops it.\n",
        feed.address()
    );
    // Where nobody reads it, nobody misses it.
    let mut stdout = io::stdout();
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}

/// Why the service could not start, or had to stop: one sentence with cause and remedy.
#[derive(Debug)]
pub struct Failure(String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! failures {
    ($($from:ty),+) => {$(
        impl From<$from> for Failure {
            fn from(error: $from) -> Failure {
                Failure(error.to_string())
            }
        }
    )+};
}

failures!(
    String,
    io::Error,
    ServerError,
    crate::store::StoreError,
    highwater::metrics::MetricError
);
