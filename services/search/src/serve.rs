//! Starts and stops the search service, and the provider to test it with.
//!
//! The order matters. Signals are caught first, so that one that comes while the rest starts is heard.
//! The store is loaded before the port opens, so that a service that
//! can be reached is ready; this does not depend on the provider. At the end the clients get their
//! answers first; then the poller is stopped, even if it is waiting.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use highwater::ServerArgs;
use highwater::logging::{self, LogFormat};
use highwater::metrics::Metrics;
use highwater::server::{Running, Server, ServerConfig, ServerError, Signals};
use highwater_kit::ending::{Failure, print};
use highwater_kit::urls;
use highwater_kit::waiting::unless_ended;

use crate::args::{EVENTS, ProviderArgs, SearchArgs};
use crate::catalog::{Catalog, EVENTS_MAX};
use crate::http::{self, Search};
use crate::metrics;
use crate::poller::{Poller, Report};
use crate::provider::{self, Behaviour, Provider, generate};

/// What the demonstration's feed is made up from.
const DEMO_SEED: u64 = 1;

/// How long the demonstration waits for its own feed before it prints its URLs regardless.
const DEMO_PATIENCE: Duration = Duration::from_secs(10);

/// Serves searches until a signal stops it.
///
/// # Errors
/// What failed, and what to do about it.
pub fn search(args: &SearchArgs, server: &ServerArgs) -> Result<(), Failure> {
    let signals = Signals::catch()?;
    // The demonstration's feed is not the service: what its server says of its start would be taken for that.
    let feed = args.demo.then(start_demo_feed).transpose()?;
    logging::install(server.log);
    let url = match (&feed, &args.provider_url) {
        (Some(feed), _) => format!("http://{}/", feed.address()),
        (None, Some(url)) => url.clone(),
        (None, None) => return Err(PROVIDER_MISSING.into()),
    };
    let settings = args.poller(&url)?;
    let (store, data) = (args.store.clone(), args.data().to_owned());
    let load =
        move || -> Result<Catalog, Failure> { Ok(Catalog::open(store.open(&data)?, EVENTS_MAX)?) };
    let reloads = !server.tls_cert.is_empty();
    let waits = ("the start", "the store");
    let Some(catalog) = unless_ended(&signals, reloads, waits, load)? else { return Ok(()) };
    let catalog = Arc::new(catalog);
    let search = Arc::new(Search::new(Arc::clone(&catalog)));

    let counted = Metrics::new();
    metrics::of_search(&counted, &catalog, &search)?;
    let (polled, first_poll) = mpsc::sync_channel(1);
    let listener = Box::new(move |report: &Report<'_>| {
        report.log();
        // If the channel is full or closed, that is fine: only the first poll is awaited.
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

/// Serves the test feed until a signal stops it.
///
/// # Errors
/// What failed, and what to do about it.
pub fn provider(args: &ProviderArgs) -> Result<(), Failure> {
    let feed = match &args.file {
        Some(file) => fs::read(file).map(Bytes::from).map_err(|error| {
            Failure::from(format!(
                "cannot read --file {}: {error}; give a feed's path",
                file.display()
            ))
        })?,
        None => generate(args.events as usize, args.seed).into(),
    };
    logging::install(LogFormat::Text);
    let signals = Signals::catch()?;
    let provider = Provider::new(feed, args.behaviour());
    let running = start_provider(provider, args.seed, args.listen)?;
    Ok(running.until_signal(&signals)?)
}

fn start_demo_feed() -> Result<Running, ServerError> {
    let honest = Behaviour { gzip: true, etag: true, ..Behaviour::default() };
    let provider = Provider::new(generate(EVENTS as usize, DEMO_SEED), honest);
    start_provider(provider, DEMO_SEED, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}

fn start_provider(
    provider: Provider,
    seed: u64,
    listen: SocketAddr,
) -> Result<Running, ServerError> {
    let config = ServerConfig {
        listen: vec![listen.into()],
        inherited: false,
        metrics: None,
        workers: NonZeroUsize::new(1),
        log: LogFormat::Off,
        ..Default::default()
    };
    Server::new(provider::router(provider, fastrand::Rng::with_seed(seed))).config(config).start()
}

/// Prints the URLs for a user who tries the service.
fn print_urls(running: &Running, feed: &Running) {
    let search = &running.addresses()[0];
    let [metrics, dashboard] = urls::of_metrics(running);
    let text = format!(
        "\n  \
         search    http://{search}/search?starts_at=2024-06-01&ends_at=2024-06-30\n  \
         docs      http://{search}/docs\n  \
         health    http://{search}/health\n  \
         metrics   {metrics}\n  \
         dashboard {dashboard}\n  \
         feed      http://{}/\n\n  \
         Ctrl-C stops it.\n",
        feed.address()
    );
    print(&text);
}
