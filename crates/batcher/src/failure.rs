//! Failures of sinks.

use std::fmt;
use std::sync::Arc;

use highwater_journal::ErrorKind;

/// The kind of a failure, for callers to decide by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// The sink's queue is full: it accepts more when it has answered for earlier batches. HTTP: 503.
    Busy,
    /// There is no room, on a disk or within a limit. HTTP: 503.
    Full,
    /// The sink cannot accept anything now: a broker is unreachable, a disk has failed. HTTP: 503.
    Unavailable,
    /// There was no answer within the sink's bound. The records may have been taken. HTTP: 503.
    TimedOut,
    /// A record is larger than the sink will ever accept. HTTP: 413.
    TooLarge,
    /// The sink will never accept this record, for another reason. HTTP: 422.
    Rejected,
    /// The sink has ended. HTTP: 503.
    Closed,
}

impl FailureKind {
    /// Whether the same record may be accepted later.
    pub fn may_pass(self) -> bool {
        !matches!(self, FailureKind::TooLarge | FailureKind::Rejected)
    }
}

/// A failure: a kind for the program, a sentence for the operator.
#[derive(Clone, PartialEq, Eq)]
pub struct Failure {
    kind: FailureKind,
    text: Arc<str>,
}

impl Failure {
    /// A failure of this kind; `text` says what happened and what to do about it.
    pub fn new(kind: FailureKind, text: impl Into<Arc<str>>) -> Failure {
        Failure { kind, text: text.into() }
    }

    /// Its kind.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.text)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

/// Maps a journal's error.
impl From<&highwater_journal::Error> for Failure {
    fn from(error: &highwater_journal::Error) -> Failure {
        let kind = match error.kind() {
            ErrorKind::Busy => FailureKind::Busy,
            ErrorKind::TooLarge => FailureKind::TooLarge,
            ErrorKind::Full => FailureKind::Full,
            ErrorKind::Closed => FailureKind::Closed,
            _ => FailureKind::Unavailable,
        };
        Failure::new(kind, error.to_string())
    }
}
