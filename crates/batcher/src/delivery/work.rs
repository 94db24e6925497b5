//! Sending one record of the journal.

use highwater_journal::Stored;

use super::dead_letters::{DeadLetters, bury, too_large};
use super::session::Session;
use super::suspects::Suspects;
use super::window::{Entry, Window};
use crate::sink::kafka::{Error, Settings, bytes_alone};

/// The state needed to send a record, besides the reader.
pub(super) struct Work<'a> {
    pub(super) settings: &'a Settings,
    pub(super) session: &'a Session,
    pub(super) suspects: &'a mut Suspects,
    pub(super) window: &'a mut Window,
    pub(super) dead_letters: &'a mut DeadLetters,
}

impl Work<'_> {
    /// Sends it, keeps it for later if only suspects are sent, or buries it if the topic takes none of its size.
    pub(super) fn send(self, record: &Stored<'_>) -> Result<(), Error> {
        let partition = record.partition % self.settings.partitions;
        let entry = entry(record, partition);
        // Only suspect records are sent one by one, and, to keep their order, those that share a partition with them.
        if self.session.is_single && !self.suspects.has_partition(partition) {
            self.window.push_deferred(entry);
            return Ok(());
        }
        let Some(number) = self.window.push_read(entry) else {
            self.suspects.remove(entry);
            return Ok(());
        };
        let bytes = bytes_alone(entry.body_bytes);
        let max = self.session.topic.message_bytes_max;
        if bytes <= max {
            return self.session.send(self.settings, record, number);
        }
        let reason = too_large(bytes, max);
        bury(self.dead_letters, self.settings, record, &reason)?;
        self.window.bury(number);
        self.suspects.remove(entry);
        Ok(())
    }
}

/// What the window has of a record.
pub(super) fn entry(record: &Stored<'_>, partition: u32) -> Entry {
    let Stored { offset, time_us, body, .. } = *record;
    Entry { offset, partition, time_us, body_bytes: body.len() }
}
