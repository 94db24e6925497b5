//! How a program ends, and what it says.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;

use highwater::logging;

/// Why the service could not start, or had to stop: one sentence with cause and remedy.
///
/// It is no error itself, so that `?` turns any error into it.
#[derive(Debug)]
pub struct Failure(String);

impl<T: Display> From<T> for Failure {
    fn from(cause: T) -> Failure {
        Failure(cause.to_string())
    }
}

/// The exit status of `program`; a failure is written to standard error, after the lines that are logged already.
pub fn exit(program: &str, outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(sentence)) => {
            logging::flush();
            eprintln!("{program}: {sentence}");
            ExitCode::FAILURE
        }
    }
}

/// Writes `text` to standard output, which may be closed: the service runs without it.
pub fn say(text: &str) {
    let mut stdout = io::stdout();
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}
