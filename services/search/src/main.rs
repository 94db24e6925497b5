//! `highwater-search`: serves searches, or the feed to test them with.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, Subcommand};
use highwater::server::args::{self, Idle, ServerArgs};
use highwater_kit::ending::exit;
use highwater_search::args::{ProviderArgs, SearchArgs};
use highwater_search::serve;

const EXAMPLES: &str = "\
Examples:
  highwater-search --demo
  highwater-search --provider-url https://provider.example/events.xml --data /var/lib/search
  highwater-search provider --delay 2s --fail-rate 0.2
  curl 'http://127.0.0.1:8080/search?starts_at=2024-06-01&ends_at=2024-06-30T21:00:00Z'";

/// Answers which events of a polled feed fall into a range of dates.
#[derive(Debug, Parser)]
#[command(
    name = "highwater-search",
    version,
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    search: SearchArgs,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a test feed, correctly or with the misbehaviour you choose
    Provider(ProviderArgs),
}

impl Cli {
    /// The settings that have no effect beside the others.
    fn idle(&self) -> Vec<Idle> {
        if self.command.is_some() { Vec::new() } else { self.search.idle() }
    }
}

fn main() -> ExitCode {
    let cli: Cli = args::parse_checked(Cli::idle);
    let outcome = match &cli.command {
        Some(Command::Provider(args)) => serve::provider(args),
        None => {
            if cli.search.provider_url.is_none() && !cli.search.demo {
                let missing = ErrorKind::MissingRequiredArgument;
                Cli::command().error(missing, serve::PROVIDER_MISSING).exit();
            }
            serve::search(&cli.search, &cli.server)
        }
    };
    exit("highwater-search", outcome)
}
