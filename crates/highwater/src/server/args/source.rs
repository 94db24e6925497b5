//! Where does a setting come from, and what does every message about one look like?

use std::fmt;
use std::path::PathBuf;

/// Where a value was written.
#[derive(Debug)]
pub(super) enum Source {
    Flag,
    Variable(String),
    File(Place),
    /// The file of a profile, which overrides another one.
    Override {
        profile: Place,
        base: Place,
    },
    /// A file that holds one secret, and the variable that names it.
    SecretFile {
        path: PathBuf,
        variable: String,
    },
}

/// A line of a file.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    /// Counted from 1.
    pub(super) line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path.display(), self.line)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Flag => f.write_str("a flag"),
            Source::Variable(name) => write!(f, "variable {name}"),
            Source::File(place) => place.fmt(f),
            Source::Override { profile, base } => write!(f, "{profile}, which overrides {base}"),
            Source::SecretFile { path, variable } => {
                write!(f, "{}, which variable {variable} names", path.display())
            }
        }
    }
}

/// The form of every message about a value.
pub(super) fn told(name: &str, value: &str, source: &Source, remedy: &str) -> String {
    format!("--{name} {value:?} (from {source}): {remedy}")
}
