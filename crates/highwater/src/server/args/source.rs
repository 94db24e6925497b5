//! Where does a setting come from, and what does every message about one look like?

use std::fmt;
use std::path::PathBuf;

/// Where a value was written.
pub(super) enum Source {
    Flag,
    Variable(String),
    File { path: PathBuf, line: usize },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Flag => f.write_str("a flag"),
            Source::Variable(name) => write!(f, "variable {name}"),
            Source::File { path, line } => write!(f, "{}:{line}", path.display()),
        }
    }
}

/// The form of every message about a value.
pub(super) fn told(name: &str, value: &str, source: &Source, remedy: &str) -> String {
    format!("--{name} {value:?} (from {source}): {remedy}")
}
