//! Read-only views of a journal, whether or not another process writes to it.

use std::sync::Arc;

use crate::damage::Report;
use crate::error::Error;
use crate::log::Log;
use crate::look::look;
use crate::reader::Reader;
use crate::segment::parse_name;
use crate::storage::Storage;

/// The contents of a journal when the view was opened. Nothing is locked or changed.
///
/// While another process writes, the last records seen may not be durable yet.
#[derive(Debug)]
pub struct View {
    storage: Arc<dyn Storage>,
    log: Arc<Log>,
    report: Report,
    /// The newest file and its length: while they are the same, there is nothing new.
    newest: Option<(String, u64)>,
}

impl View {
    /// Opens a view of the journal in `storage`. `scan_bytes_max` is as in [`Options`](crate::Options).
    ///
    /// # Errors
    ///
    /// If a file is of a later version, or the disk gives an error.
    pub fn open(storage: impl Storage, scan_bytes_max: u64) -> Result<View, Error> {
        View::of(Arc::new(storage), scan_bytes_max)
    }

    fn of(storage: Arc<dyn Storage>, scan_bytes_max: u64) -> Result<View, Error> {
        // Taken first: records that arrive in between are new the next time.
        let newest = newest(&*storage)?;
        let found = look(&*storage, scan_bytes_max)?;
        let log = Log::new(found.segments, &found.report);
        Ok(View { storage, log, report: found.report, newest })
    }

    /// The state found.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Reads from the record `offset` on, to the end at the time the view was opened.
    pub fn reader(&self, offset: u64) -> Reader {
        Reader::new(Arc::clone(&self.log), Arc::clone(&self.storage), offset)
    }

    /// Reads from the first record that retention has left.
    pub fn reader_from_start(&self) -> Reader {
        self.reader(self.log.begins_at())
    }

    /// A view of the records that have arrived since; `None` if there are none.
    ///
    /// # Errors
    ///
    /// As for [`open`](View::open).
    pub fn again(&self) -> Result<Option<View>, Error> {
        if newest(&*self.storage)? == self.newest {
            return Ok(None);
        }
        // Only the newest segment is read: earlier ones have not changed.
        View::of(Arc::clone(&self.storage), 0).map(Some)
    }
}

/// The newest segment's file and its length.
fn newest(storage: &dyn Storage) -> Result<Option<(String, u64)>, Error> {
    let failed = |error| Error::disk(storage.place(), &error);
    let names = storage.list().map_err(failed)?;
    let Some(name) = names.into_iter().filter(|name| parse_name(name).is_some()).max() else {
        return Ok(None);
    };
    let bytes = storage.open(&name).and_then(|file| file.bytes()).map_err(failed)?;
    Ok(Some((name, bytes)))
}

/// Reads everything in `storage` and checks every byte, and changes nothing.
///
/// # Errors
///
/// If a file is of a later version, or the disk gives an error.
pub fn verify(storage: &impl Storage) -> Result<Report, Error> {
    Ok(look(storage, u64::MAX)?.report)
}
