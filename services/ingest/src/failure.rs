//! Why the gateway could not start, or had to stop.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use highwater::batcher::OptionsError;
use highwater::batcher::sink::kafka;
use highwater::metrics::MetricError;
use highwater::{ServerError, journal};

/// What to do about a journal that failed while it served.
pub const JOURNAL_REMEDY: &str =
    "Repair the disk, or put the directory back, and start the gateway again";

/// One sentence with cause and remedy, and whose fault it is.
#[derive(Debug)]
pub struct Failure {
    text: String,
    is_setting: bool,
}

impl Failure {
    /// A setting that has to be given or changed.
    pub(crate) fn setting(text: String) -> Failure {
        Failure { text, is_setting: true }
    }

    /// Records that were acknowledged in memory, and that neither the disk nor Kafka accepted before the end.
    pub(crate) fn lost(records: u64, drain_timeout: Duration) -> Failure {
        let text = format!(
            "{records} records that were acknowledged in memory (--ack memory) are lost: within --drain-timeout \
             {drain_timeout:?} there was no room on the disk for them, and Kafka did not take them. Give the disk more \
             room or the stop more time, or use --ack disk, which acknowledges only what is on the disk"
        );
        Failure { text, is_setting: false }
    }

    /// The data directory cannot be opened.
    pub(crate) fn directory(error: &journal::Error) -> Failure {
        let remedy = match error.kind() {
            // It says what to do.
            journal::ErrorKind::InUse => "",
            journal::ErrorKind::Full => "; make room there, or give another directory",
            _ => "; give --data a directory that this user can write",
        };
        Failure { text: format!("--data: {error}{remedy}"), is_setting: false }
    }

    /// The journal in `data` failed while it served. `lost`: records that were acknowledged in memory.
    pub(crate) fn journal(error: &journal::Error, data: &Path, lost: u64) -> Failure {
        let data = data.display();
        let mut text = format!(
            "the journal in {data} failed: {error}. It accepts nothing until it is opened again. {JOURNAL_REMEDY}"
        );
        if lost > 0 {
            text += &format!(
                ". {lost} records that were acknowledged in memory (--ack memory) are lost; --ack disk acknowledges only \
                 what is on the disk"
            );
        }
        Failure { text, is_setting: false }
    }

    /// Whether a setting has to be changed: exit status 2.
    pub fn is_setting(&self) -> bool {
        self.is_setting
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

impl From<kafka::Error> for Failure {
    fn from(error: kafka::Error) -> Failure {
        let is_setting =
            matches!(error.kind(), kafka::ErrorKind::Setting | kafka::ErrorKind::Topic);
        Failure { text: error.to_string(), is_setting }
    }
}

/// A data directory that cannot be used at the start: the message names it, and the setting is said here.
impl From<journal::Error> for Failure {
    fn from(error: journal::Error) -> Failure {
        Failure { text: format!("--data: {error}"), is_setting: false }
    }
}

macro_rules! failures {
    ($($from:ty),+) => {$(
        impl From<$from> for Failure {
            fn from(error: $from) -> Failure {
                Failure { text: error.to_string(), is_setting: false }
            }
        }
    )+};
}

failures!(io::Error, OptionsError, MetricError);

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Failure {
        Failure { text: error.to_string(), is_setting: error.is_setting() }
    }
}
