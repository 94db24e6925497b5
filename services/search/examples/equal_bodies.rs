//! The search service beside a plain handler that sends the same bytes: what does an answer cost beyond being sent?
//!
//! ```text
//! cargo run --release -p highwater-search --example equal_bodies -- --workers 1 --metrics off
//!
//! /search?starts_at=…&ends_at=…   the service's own route, over 10 000 made-up events
//!
//! --plain --query 'starts_at=…'   /search is answered with that query's bytes, prepared at start, whatever is asked
//! --poll-ms 1000                  an event changes that often, so the cached answers are built again
//! ```
//!
//! `bench/plans/search.toml` compares both.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::Parser;
use highwater::server::args::{self, ServerArgs};
use highwater::{Response, Router, Server, StatusCode, fixed};
use highwater_search::catalog::{Catalog, EVENTS_MAX};
use highwater_search::event::Event;
use highwater_search::feed::{Feed, Limits};
use highwater_search::http::{Search, router};
use highwater_search::provider::generate;
use highwater_search::query::Range;
use highwater_search::store::{Record, Store, StoreError};
use highwater_search::wire::CONTENT_TYPE;

/// Serves searches, or the same bytes without searching.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    server: ServerArgs,

    /// How many events to make up
    #[arg(long, default_value_t = 10_000)]
    events: usize,

    /// Answer every search with the bytes of `--query`, prepared at start
    #[arg(long)]
    plain: bool,

    /// The query that `--plain` prepares, for example `starts_at=2024-06-01`
    #[arg(long, default_value = "")]
    query: String,

    /// Change an event this often, in milliseconds; 0 for never
    #[arg(long, default_value_t = 0)]
    poll_ms: u64,
}

/// A store that forgets: what is measured never asks it.
struct Forgetful;

impl Store for Forgetful {
    fn load(&mut self) -> Result<Vec<Record>, StoreError> {
        Ok(Vec::new())
    }

    fn apply(&mut self, _: &[Event], _: i64) -> Result<(), StoreError> {
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Args = args::parse();
    let feed = Feed::read(generate(args.events, 1).as_bytes(), &Limits::default());
    let catalog = Arc::new(Catalog::open(Box::new(Forgetful), EVENTS_MAX)?);
    let sample = feed.events.first().cloned().ok_or("--events is 0; make up at least one")?;
    catalog.apply(feed.events, 0)?;
    let router = if args.plain {
        let body = catalog.snapshot().answer(Range::parse(&args.query)?);
        let answer = move || {
            Response::new(StatusCode::OK).with_content_type(CONTENT_TYPE).with_body(body.clone())
        };
        Router::new().get("/search", answer).get("/health", fixed("ok"))
    } else {
        router(Arc::new(Search::new(Arc::clone(&catalog))))
    };
    if args.poll_ms > 0 {
        let every = Duration::from_millis(args.poll_ms);
        thread::spawn(move || change(&catalog, sample, every));
    }
    Ok(Server::new(router).config(&args.server).run()?)
}

/// Changes the title of one event again and again, as a poll that found news does.
fn change(catalog: &Catalog, mut event: Event, every: Duration) {
    let titles = [event.title.clone(), event.title.chars().rev().collect::<String>().into()];
    for title in titles.iter().cycle() {
        thread::sleep(every);
        event.title.clone_from(title);
        catalog.apply(vec![event.clone()], 0).expect("this store takes everything");
    }
}
