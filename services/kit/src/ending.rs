//! The end of a program: its exit status and its message.

use std::any::Any;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;

use highwater::{ServerError, logging};

/// Why the service could not start, or had to stop: one sentence with cause and remedy.
///
/// It is no error itself, so that `?` turns any error into it.
#[derive(Debug)]
pub struct Failure {
    sentence: String,
    is_setting: bool,
}

impl<T: Display + 'static> From<T> for Failure {
    fn from(cause: T) -> Failure {
        let is_setting = (&cause as &dyn Any).downcast_ref().is_some_and(ServerError::is_setting);
        Failure { sentence: cause.to_string(), is_setting }
    }
}

/// The exit status of `program`: 2 if a setting has to be changed, 1 for every other failure. Writes to standard error what
/// is logged already, then the failure.
pub fn exit(program: &str, outcome: Result<(), Failure>) -> ExitCode {
    // A signal may have ended the start: no server has written the lines then.
    logging::flush();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { sentence, is_setting }) => {
            eprintln!("{program}: {sentence}");
            if is_setting { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// Writes `text` to standard output, which may be closed: the service runs without it.
pub fn print(text: &str) {
    let mut stdout = io::stdout();
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}
