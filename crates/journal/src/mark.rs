//! An offset that only rises, in a file beside the segments, because the remaining segments do not show it.
//!
//! Where the file is missing or has no intact slot, nothing is known.

use std::io;

use crate::position::{self, Slots};
use crate::storage::Storage;

/// Below this offset, retention has removed everything.
pub(crate) const FLOOR: &str = "retention.pos";

/// The record before this offset was durable. It is raised once in each segment, by the segment's first records, and when the
/// journal is closed: a lower bound, which costs one sync for each segment.
pub(crate) const WRITTEN: &str = "written.pos";

/// The mark in one file.
#[derive(Debug)]
pub(crate) struct Mark {
    name: &'static str,
    slots: Option<Slots>,
}

impl Mark {
    /// The mark stored in `name`; `None` if there is none, or none that is intact.
    pub(crate) fn look(storage: &dyn Storage, name: &str) -> io::Result<Option<u64>> {
        match storage.open(name) {
            Ok(file) => position::read(&*file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the mark in `name`. Where none is stored, it is at `at`.
    pub(crate) fn open(storage: &dyn Storage, name: &'static str, at: u64) -> io::Result<Mark> {
        let mut slots = match storage.open(name) {
            Ok(file) => Slots::load(file)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // On a full disk it is created when it is raised.
                return Ok(Mark { name, slots: Slots::create(storage, name, at).ok() });
            }
            Err(error) => return Err(error),
        };
        if !slots.are_intact() {
            // Where this fails, as on a full disk, it is tried again when it is raised.
            let _ = slots.write(at);
        }
        Ok(Mark { name, slots: Some(slots) })
    }

    /// Whether it has a file.
    pub(crate) fn is_there(&self) -> bool {
        self.slots.is_some()
    }

    /// Raises it to `offset`, durably, unless it is there.
    pub(crate) fn raise(&mut self, storage: &dyn Storage, offset: u64) -> io::Result<()> {
        match &mut self.slots {
            Some(slots) if slots.position() < offset => slots.write(offset),
            Some(_) => Ok(()),
            None => {
                self.slots = Some(Slots::create(storage, self.name, offset)?);
                Ok(())
            }
        }
    }
}
