//! `highwater-todos`: serves todos.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, Subcommand};
use highwater::server::args::{self, Idle, ServerArgs};
use highwater_kit::ending::{Failure, exit};
use highwater_todos::args::{
    RepartitionArgs, SECRET_MISSING, SeedArgs, TodosArgs, TokenArgs, WorkerArgs,
};
use highwater_todos::{data, serve, worker};

const EXAMPLES: &str = "\
Examples:
  export JWT_SECRET=$(openssl rand -hex 32)
  highwater-todos --data /var/lib/todos
  highwater-todos seed --count 10000 --data /var/lib/todos
  curl 'http://127.0.0.1:8080/todos?limit=10'
  curl http://127.0.0.1:8080/todos -d '{\"title\":\"Tea\"}' \\
    -H \"Authorization: Bearer $(highwater-todos token)\"";

/// Serves todos: lists from memory, writes acknowledged once they are durable.
#[derive(Debug, Parser)]
#[command(
    name = "highwater-todos",
    version,
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print URLs, and commands with a token, once it serves; without JWT_SECRET, keep one in --data
    #[arg(long)]
    demo: bool,
    #[command(flatten)]
    todos: TodosArgs,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Apply the writes that are queued in Kafka, beside other workers; serve nothing
    Worker(WorkerArgs),
    /// Fill the store with todos to try the service with
    Seed(SeedArgs),
    /// Use all partitions of the topic in Kafka, after some were added; stop all instances first
    Repartition(RepartitionArgs),
    /// Print a token
    Token(TokenArgs),
}

impl Cli {
    /// The settings that have no effect beside the others.
    fn idle(&self) -> Vec<Idle> {
        match &self.command {
            Some(Command::Worker(args)) => args.idle(),
            Some(Command::Seed(args)) => args.idle(),
            Some(Command::Repartition(args)) => args.idle(),
            Some(Command::Token(_)) => Vec::new(),
            None => self.todos.idle(),
        }
    }
}

fn main() -> ExitCode {
    let cli: Cli = args::parse_checked(Cli::idle);
    let outcome = match &cli.command {
        Some(Command::Worker(args)) => worker::run(args),
        Some(Command::Seed(args)) => serve::seed(args),
        Some(Command::Repartition(args)) => serve::repartition(args),
        Some(Command::Token(args)) => {
            serve::token(args, &secret(args.jwt_secret.as_deref()));
            Ok(())
        }
        None => {
            let given = cli.todos.jwt_secret.as_deref();
            let secret = match (given, cli.demo) {
                (None, true) => data::demo_secret(&cli.todos.engine.data),
                (given, _) => Ok(secret(given)),
            };
            secret
                .map_err(Failure::from)
                .and_then(|secret| serve::todos(&cli.todos, &secret, &cli.server, cli.demo))
        }
    };
    exit("highwater-todos", outcome)
}

/// The secret; ends the program with status 2 if there is none.
fn secret(given: Option<&str>) -> String {
    match given {
        Some(secret) => secret.to_owned(),
        None => Cli::command().error(ErrorKind::MissingRequiredArgument, SECRET_MISSING).exit(),
    }
}
