//! Where does a setting come from, and what does every message about one look like?

use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;

use clap::Arg;
use clap::builder::ValueParser;

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
pub(super) fn message_about(name: &str, value: &str, source: &Source, remedy: &str) -> String {
    format!("--{name} {value:?} (from {source}): {remedy}")
}

/// Refuses a value that is no text, unless it names a file: a file's name may be any bytes.
///
/// # Errors
/// The setting, its source, and its value unless it `is_secret`.
pub(super) fn refuse_bytes(
    arg: &Arg,
    value: &OsStr,
    (source, is_secret): (&Source, bool),
) -> Result<(), String> {
    let takes = arg.get_value_parser().type_id();
    let is_path =
        takes == ValueParser::path_buf().type_id() || takes == ValueParser::os_string().type_id();
    if is_path || value.to_str().is_some() {
        return Ok(());
    }
    let name = arg.get_long().unwrap_or_default();
    let value = value.to_string_lossy();
    Err(message_about(name, shown(&value, is_secret), source, "not UTF-8; write it as text"))
}

/// A value as messages show it.
pub(super) fn shown(value: &str, is_secret: bool) -> &str {
    match is_secret && !value.is_empty() {
        true => "…",
        false => value,
    }
}

/// What is shown of the value of an unknown setting: nothing that may be meant for a secret.
pub(super) fn shown_if_unknown(value: &str, may_be_secret: bool) -> String {
    if may_be_secret { String::new() } else { format!(" (value {value:?})") }
}
