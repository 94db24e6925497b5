//! Standard output, for commands that print results.

use std::fmt;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Exit status if what was found could not be written, whatever it was.
const NOT_WRITTEN: u8 = 2;

/// Whether something could not be written.
static IS_LOST: AtomicBool = AtomicBool::new(false);

/// Prints a line, as `println!` does, and goes on if it cannot be written: [`code`] says so at the end.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::line(format_args!($($text)*)) };
}
pub(crate) use say;

pub(crate) fn line(text: fmt::Arguments<'_>) {
    print(&format!("{text}\n"));
}

/// Prints `text`, and goes on if it cannot be written: [`code`] says so at the end.
#[expect(clippy::print_stderr, reason = "this is how a command complains")]
pub(crate) fn print(text: &str) {
    let mut out = io::stdout();
    let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) else { return };
    // Whoever reads may have seen enough, as `head` has: that is not a failure. And once is enough: what follows does
    // not fit on the disk either.
    if error.kind() != ErrorKind::BrokenPipe && !IS_LOST.swap(true, Ordering::Relaxed) {
        eprintln!("highwater: standard output: {error}");
    }
}

/// The exit status of a command that ends with `code`.
pub(crate) fn code(code: ExitCode) -> ExitCode {
    if IS_LOST.load(Ordering::Relaxed) { ExitCode::from(NOT_WRITTEN) } else { code }
}
