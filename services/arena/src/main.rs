//! Serves the routes of benchmarks and overload tests, and with `--probe` those of conformance
//! suites.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser};
use highwater::server::args::{self, ServerArgs};
use highwater::{Router, Server};
use highwater_arena::dataset::{self, DATASET, Dataset};
use highwater_arena::httparena::{self, FILES};
use highwater_arena::variant::{self, Variant};
use highwater_arena::{answers, bench, load, probe, web};

/// Serves the routes that benchmarks use to compare servers.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:\n  highwater-arena --workers 1 --metrics off\n  highwater-arena --probe --listen 127.0.0.1:9000\n  \
                  highwater-arena --dataset dataset.json --static ./static"
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

    /// Serve /json/{count} from the items of this file; /data/dataset.json if that is there
    #[arg(long, value_name = "FILE", value_parser = dataset::read)]
    dataset: Option<Dataset>,

    /// Serve the files of this folder below /static/; /data/static if that is there
    #[arg(long = "static", value_name = "DIR", value_parser = httparena::folder)]
    files: Option<PathBuf>,

    /// Serve the routes that compare what web APIs use (/web/list, /web/upload, …), with the files of this folder
    #[arg(long, value_name = "DIR", value_parser = httparena::folder)]
    web: Option<PathBuf>,
}

impl Args {
    fn router(&self) -> Router {
        let mut router = Router::new();
        router = bench::routes(router);
        router = load::routes(router);
        router = answers::routes(router);
        router = httparena::routes(router);
        router = if self.probe { probe::routes(router) } else { httparena::echo_route(router) };
        if let Some(variant) = self.variant {
            router = variant::routes(router, variant);
        }
        if let Some(dataset) = &self.dataset {
            router = dataset::routes(router, dataset.clone());
        }
        if let Some(folder) = &self.files {
            router = httparena::files(router, folder);
        }
        if let Some(folder) = &self.web {
            router = web::routes(router, folder);
        }
        router
    }

    /// Fills in what HttpArena mounts.
    fn with_mounts(mut self) -> Result<Self, String> {
        if self.dataset.is_none() && Path::new(DATASET).exists() {
            let mounted = dataset::read(DATASET);
            self.dataset = Some(mounted.map_err(|why| format!("--dataset {DATASET}: {why}"))?);
        }
        if self.files.is_none() && Path::new(FILES).exists() {
            let mounted = httparena::folder(FILES);
            self.files = Some(mounted.map_err(|why| format!("--static {FILES}: {why}"))?);
        }
        Ok(self)
    }
}

fn main() -> ExitCode {
    let args = args::parse::<Args>().with_mounts().unwrap_or_else(|mistake| {
        Args::command().error(ErrorKind::ValueValidation, mistake).exit()
    });
    match Server::new(args.router()).config(args.server.config()).run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("highwater-arena: {error}");
            error.exit_code()
        }
    }
}
