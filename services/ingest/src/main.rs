//! `highwater-ingest`: accepts records by HTTP, and loses none.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser};
use highwater::server::args::{self, ServerArgs};
use highwater_ingest::args::IngestArgs;
use highwater_ingest::serve;

const EXAMPLES: &str = "\
Examples:
  highwater-ingest --data /var/lib/ingest
  highwater-ingest --ack memory --sink null --metrics off
  highwater-ingest --sink kafka --kafka-brokers 10.0.0.1:9092,10.0.0.2:9092 --topic events
  curl -d 'a record' http://127.0.0.1:8080/e
  printf 'one\\ntwo\\n' | curl --data-binary @- http://127.0.0.1:8080/batch";

/// Takes records by HTTP and hands them to a journal or to Kafka; 202 means what --ack says.
#[derive(Debug, Parser)]
#[command(name = "highwater-ingest", version, after_help = EXAMPLES)]
struct Cli {
    #[command(flatten)]
    ingest: IngestArgs,
    #[command(flatten)]
    server: ServerArgs,
}

fn main() -> ExitCode {
    let cli: Cli = args::parse_checked(|cli: &Cli| cli.ingest.idle());
    let plan = match cli.ingest.plan(&cli.server) {
        Ok(plan) => plan,
        Err(wrong) => Cli::command().error(ErrorKind::ArgumentConflict, wrong).exit(),
    };
    match serve::ingest(&plan, &cli.server) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            highwater::logging::flush();
            eprintln!("highwater-ingest: {failure}");
            if failure.is_setting() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
