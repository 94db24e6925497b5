//! Serves one route for each feature.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use highwater::Server;
use highwater::journal::Directory;
use highwater::server::args::{self, ServerArgs};

/// Serves one route for each feature of Highwater, to read and to test.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Example:\n  highwater-example-everything --listen 127.0.0.1:8080 --files docs --trusted-proxies 127.0.0.1"
)]
struct Args {
    #[command(flatten)]
    server: ServerArgs,

    /// The folder that is served below /files/.
    #[arg(long, value_name = "DIR", default_value = ".")]
    files: PathBuf,

    /// The folder that keeps the idempotency keys of /payments. Without it, they last as long as the process.
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args: Args = args::parse();
    let config = args.server.config();
    let keys = match args.keys.map(Directory::open).transpose() {
        Ok(keys) => keys,
        Err(error) => {
            eprintln!("highwater-example-everything: --keys: {error}");
            return ExitCode::from(2);
        }
    };
    let router = highwater_example_everything::router(&args.files, &config.trusted_proxies, keys);
    match Server::new(router).config(config).run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("highwater-example-everything: {error}");
            error.exit_code()
        }
    }
}
