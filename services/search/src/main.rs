//! `highwater-search`: polls the provider and remembers what it says, until it is told to end.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use highwater_search::args::SearchArgs;
use highwater_search::catalog::{Catalog, EVENTS_MAX};
use highwater_search::poller::Poller;

/// Polls a feed of events and remembers every one that was ever online.
#[derive(Debug, Parser)]
#[command(name = "highwater-search", version)]
struct Cli {
    #[command(flatten)]
    search: SearchArgs,
}

fn main() -> ExitCode {
    match run(&Cli::parse().search) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("highwater-search: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &SearchArgs) -> Result<(), String> {
    let url =
        args.provider_url.as_deref().ok_or("give --provider-url or PROVIDER_URL the feed's URL")?;
    let store = args.store.open(&args.data).map_err(|e| e.to_string())?;
    let catalog = Catalog::open(store, EVENTS_MAX).map_err(|e| e.to_string())?;
    let log = Arc::new(|line: &str| eprintln!("{line}"));
    let settings = args.poller(url)?;
    let _poller = Poller::start(settings, Arc::new(catalog), log).map_err(|e| e.to_string())?;
    // Every batch is durable before it is acknowledged, so ending at any moment loses nothing.
    loop {
        std::thread::park();
    }
}
