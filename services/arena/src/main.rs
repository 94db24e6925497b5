//! Serves the routes of benchmarks and overload tests, and with `--probe` those of conformance
//! suites.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use highwater::server::args::{self, ServerArgs};
use highwater::{Router, Server};
use highwater_arena::variant::{self, Variant};
use highwater_arena::{answers, bench, httparena, load, probe};

/// Serves the routes that benchmarks use to compare servers.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:\n  highwater-arena --workers 1 --metrics off\n  highwater-arena --probe --listen 127.0.0.1:9000"
)]
struct Args {
    #[command(flatten)]
    server: ServerArgs,

    /// Serve the routes of conformance suites (/, /echo, /cookie) as well.
    #[arg(long)]
    probe: bool,

    /// Serve /variant: an answer made in one way of several that a benchmark compares.
    #[arg(long, value_name = "NAME")]
    variant: Option<Variant>,
}

fn main() -> ExitCode {
    let args: Args = args::parse();
    let mut router = Router::new();
    router = bench::routes(router);
    router = load::routes(router);
    router = answers::routes(router);
    router = httparena::routes(router);
    if args.probe {
        router = probe::routes(router);
    }
    if let Some(variant) = args.variant {
        router = variant::routes(router, variant);
    }
    match Server::new(router).config(args.server.config()).run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("highwater-arena: {error}");
            if error.is_setting() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
