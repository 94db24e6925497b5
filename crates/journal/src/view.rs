//! Looking at a journal without writing to it, whether or not somebody else does.

use std::sync::Arc;

use crate::damage::Report;
use crate::error::Error;
use crate::log::Log;
use crate::look::look;
use crate::reader::Reader;
use crate::segment::parse_name;
use crate::storage::Storage;

/// What a journal held when it was looked at. Nothing is locked or changed.
///
/// While another process writes, the last records seen may not be durable yet.
#[derive(Debug)]
pub struct View {
    storage: Arc<dyn Storage>,
    log: Arc<Log>,
    report: Report,
    /// The newest file and its length: there is nothing new while they are the same.
    newest: Option<(String, u64)>,
}

impl View {
    /// Looks at the journal in `storage`. `scan_bytes_max` as in [`Options`](crate::Options).
    ///
    /// # Errors
    ///
    /// If a file is of a later version, or the disk gives an error.
    pub fn open(storage: impl Storage, scan_bytes_max: u64) -> Result<View, Error> {
        View::of(Arc::new(storage), scan_bytes_max)
    }

    fn of(storage: Arc<dyn Storage>, scan_bytes_max: u64) -> Result<View, Error> {
        // Taken first: what comes in between is new the next time.
        let newest = newest(&*storage)?;
        let found = look(&*storage, scan_bytes_max)?;
        let log = Log::new(found.segments, &found.report);
        Ok(View { storage, log, report: found.report, newest })
    }

    /// What was found.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Reads from the record `offset` on, to the end there was when it was looked at.
    pub fn reader(&self, offset: u64) -> Reader {
        Reader::new(Arc::clone(&self.log), Arc::clone(&self.storage), offset)
    }

    /// Reads from the beginning on: from the first record that retention has left.
    pub fn reader_from_start(&self) -> Reader {
        self.reader(self.log.begins_at())
    }

    /// Looks again, for what has come since; `None` if nothing has.
    ///
    /// # Errors
    ///
    /// As for [`open`](View::open).
    pub fn again(&self) -> Result<Option<View>, Error> {
        if newest(&*self.storage)? == self.newest {
            return Ok(None);
        }
        // Only the newest segment is read: what is before it has not changed.
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
