//! Errors of the Kafka sink and the delivery.

use std::fmt;

/// The kind of an error, for callers to decide by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A setting is invalid. It has to be changed.
    Setting,
    /// The topic is not as expected: missing, or with another number of partitions. The topic or the settings have to
    /// be changed.
    Topic,
    /// Kafka does not answer, or refuses for now. Retrying may help.
    Unavailable,
    /// A disk error, in the journal or the file of dead letters.
    Disk,
}

/// An error: a kind for the program, a sentence for the operator.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    text: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error { kind, text: text.into() }
    }

    /// Its kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// A temporary error.
pub(crate) fn unavailable(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable, text)
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.text)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
