//! Errors of the journal.

use std::fmt;
use std::io;
use std::sync::Arc;

/// The kind of an error, for callers to decide by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The producer's queue is full: try again when receipts have come back.
    Busy,
    /// A record or a batch is larger than the limit.
    TooLarge,
    /// There is no room, on the disk or within `bytes_max`. The journal recovers when there is.
    Full,
    /// The process, or the system, has no descriptor for another file. The journal recovers when there is one.
    Descriptors,
    /// The disk reported an error. The records may or may not be there after the next opening.
    Disk,
    /// The disk failed twice in a row: nothing is accepted until the journal is reopened.
    Poisoned,
    /// The journal was closed, or its committing thread ended, before the records were durable.
    Closed,
    /// Another process writes to this directory.
    InUse,
    /// A file is of a format version that this program does not know.
    Version,
    /// The limit of producers or consumers is reached.
    TooMany,
    /// An option or a name is invalid.
    Invalid,
}

/// Whether a disk error means that there is no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether there is no descriptor for another file: `EMFILE` and `ENFILE`, whose numbers are those of every Unix.
fn lacks_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24))
}

/// An error: a kind for the program, a sentence for the operator.
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    text: Arc<str>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<Arc<str>>) -> Error {
        Error { kind, text: text.into() }
    }

    /// An error of the disk, doing `what`.
    pub(crate) fn disk(what: impl fmt::Display, error: &io::Error) -> Error {
        let (kind, remedy) = match error.kind() {
            _ if lacks_descriptors(error) => {
                (ErrorKind::Descriptors, "; raise the limit (LimitNOFILE= in systemd, ulimit -n)")
            }
            _ if is_full(error) => (ErrorKind::Full, ""),
            io::ErrorKind::FileTooLarge => {
                (ErrorKind::Disk, "; raise the limit (LimitFSIZE= in systemd, ulimit -f)")
            }
            _ => (ErrorKind::Disk, ""),
        };
        Error::new(kind, format!("{what}: {error}{remedy}"))
    }

    /// Whether it says nothing about the disk: the same may succeed later.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self.kind, ErrorKind::Full | ErrorKind::Descriptors)
    }

    /// Its kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
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
