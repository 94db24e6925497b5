//! Serves the chat: `cargo run -p highwater-example-chat`, then open http://127.0.0.1:8080 in two windows.
#![forbid(unsafe_code)]

use clap::Parser;
use highwater::server::args::{self, ServerArgs};
use highwater::{Server, ServerError};

/// Serves rooms of WebSockets, and an event stream that says who is there.
#[derive(Debug, Parser)]
#[command(version, after_help = "Example:\n  highwater-example-chat --listen 0.0.0.0:8080")]
struct Args {
    #[command(flatten)]
    server: ServerArgs,
}

fn main() -> Result<(), ServerError> {
    let args: Args = args::parse();
    Server::new(highwater_example_chat::router()).config(args.server.config()).run()
}
