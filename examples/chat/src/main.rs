//! Serves the chat: `cargo run -p highwater-example-chat`, then open http://127.0.0.1:8080 in two windows.
#![forbid(unsafe_code)]

use highwater::{Server, ServerError};

fn main() -> Result<(), ServerError> {
    Server::new(highwater_example_chat::router()).run()
}
