//! Standard output, for commands that say what they found.

use std::fmt;
use std::io::{self, Write as _};

/// Prints a line, as `println!` does. Whoever reads may have seen enough, as `head` has: that is no failure.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::line(format_args!($($text)*)) };
}
pub(crate) use say;

pub(crate) fn line(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{text}");
}
