//! What is wrong between us and Kafka, and whose it is.

use std::fmt;

/// What kind of trouble it is: what a caller decides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A setting is not what it may be. It has to be changed.
    Setting,
    /// The topic is not as it is expected to be: missing, or with another number of partitions. Somebody has to change
    /// the topic or the settings.
    Topic,
    /// Kafka does not answer, or refuses for now. It may pass.
    Unavailable,
    /// The disk gave an error, to the journal or to the file of dead letters.
    Disk,
}

/// What is wrong: a kind for the program, a sentence for the operator.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    text: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error { kind, text: text.into() }
    }

    /// What kind it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// Trouble that may pass.
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
