//! The search service beside a plain handler that sends as many bytes, in one process: what does an
//! answer cost beyond being sent?
//!
//! ```text
//! cargo run --release -p highwater-search --example equal_bodies -- --workers 1 --metrics off
//!
//! /search?starts_at=…&ends_at=…   the service's own route, over 10 000 made-up events
//! /plaintext?n=2000               n bytes that are always the same
//! ```
#![forbid(unsafe_code)]

use std::sync::Arc;

use bytes::Bytes;
use clap::Parser;
use highwater::server::args::{self, ServerArgs};
use highwater::{Error, FromRequest, Request, Server};
use highwater_search::catalog::{Catalog, EVENTS_MAX};
use highwater_search::event::Event;
use highwater_search::feed::{Feed, Limits};
use highwater_search::http::{Search, router};
use highwater_search::provider::generate;
use highwater_search::store::{Record, Store, StoreError};

/// Serves searches and bodies of any size.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    server: ServerArgs,

    /// How many events to make up
    #[arg(long, default_value_t = 10_000)]
    events: usize,
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

/// How many bytes are asked for: `n=`, read as cheaply as can be.
struct Size(usize);

impl FromRequest for Size {
    #[inline]
    fn from_request(request: &Request<'_>) -> Result<Size, Error> {
        let query = request.query().unwrap_or_default();
        let size = query.strip_prefix("n=").and_then(|n| n.parse().ok());
        size.map(Size).ok_or_else(|| Error::bad_request("write /plaintext?n=2000"))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Args = args::parse();
    let feed = Feed::read(generate(args.events, 1).as_bytes(), &Limits::default());
    let catalog = Arc::new(Catalog::open(Box::new(Forgetful), EVENTS_MAX)?);
    catalog.apply(feed.events, 0)?;
    let plain = Bytes::from(vec![b'x'; catalog.snapshot().bytes()]);
    let router = router(Arc::new(Search::new(catalog)))
        .get("/plaintext", move |Size(size): Size| plain.slice(..size.min(plain.len())));
    Ok(Server::new(router).config(&args.server).run()?)
}
