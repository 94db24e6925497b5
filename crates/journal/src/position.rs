//! A position: an offset that survives a crash while it is moved on.
//!
//! A position is a small file with two slots, in different pages. A new position goes into the slot that
//! does not hold the newest durable one, so a torn write loses nothing. After a failed sync the same slot is written
//! again, because only the other one is known to be good.

use std::fmt;
use std::io;

use highwater_core::frame::crc32c;

use crate::storage::{File, Storage};

const MAGIC: [u8; 8] = *b"HWJPOSN1";
const SLOT_BYTES: usize = 32;
/// The second slot is in another page.
const SLOT_AT: [u64; 2] = [0, 4096];

/// A position's file.
pub(crate) struct Slots {
    file: Box<dyn File>,
    position: u64,
    /// The number of the newest durable write, which stands in slot `sequence % 2`.
    sequence: u64,
    /// How many writes have failed since: each attempt has a higher number.
    failed: u64,
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "position {}", self.position)
    }
}

impl Slots {
    /// Creates the file `name` for `position`. If that fails, there is no such file.
    pub(crate) fn create(storage: &dyn Storage, name: &str, position: u64) -> io::Result<Slots> {
        let make = || {
            let file = storage.create(name)?;
            let mut slots = Slots { file, position: 0, sequence: 0, failed: 0 };
            // Both slots are allocated now: on a full disk, a commit is what frees room.
            slots.file.write_at(SLOT_AT[0], &[0; SLOT_BYTES])?;
            slots.write(position)?;
            storage.sync_dir()?;
            Ok(slots)
        };
        make().inspect_err(|_| {
            let _ = storage.remove(name);
        })
    }

    /// Reads a file, and rewrites its newest position in place: what an earlier process wrote may be in the page cache
    /// only.
    pub(crate) fn load(mut file: Box<dyn File>) -> io::Result<Slots> {
        let (sequence, position) = newest(&*file)?;
        if sequence > 0 {
            file.write_at(SLOT_AT[(sequence % 2) as usize], &encode(sequence, position))?;
            file.sync()?;
        } else {
            // A crash may have interrupted its creation. On a disk that is full by now, it gets no room.
            let allocate = |at| file.write_at(at, &[0; SLOT_BYTES]);
            let _ = SLOT_AT.into_iter().try_for_each(allocate);
        }
        Ok(Slots { file, position, sequence, failed: 0 })
    }

    /// Whether a position was ever durable here, and still is.
    pub(crate) fn are_intact(&self) -> bool {
        self.sequence > 0
    }

    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Moves it, durably. After an error it is where it was, and the call may be repeated.
    pub(crate) fn write(&mut self, position: u64) -> io::Result<()> {
        // An even distance to a failed write, so that the slot stays the same.
        let sequence = self.sequence + 1 + 2 * self.failed;
        self.failed += 1;
        let at = SLOT_AT[(sequence % 2) as usize];
        self.file.write_at(at, &encode(sequence, position))?;
        self.file.sync()?;
        self.sequence = sequence;
        self.failed = 0;
        self.position = position;
        Ok(())
    }
}

/// The position in a file that another process may be writing to; `None` if none in it is intact.
pub(crate) fn read(file: &dyn File) -> io::Result<Option<u64>> {
    let (sequence, position) = newest(file)?;
    Ok((sequence > 0).then_some(position))
}

/// The number of the newest intact slot, and its position; 0 if there is none.
fn newest(file: &dyn File) -> io::Result<(u64, u64)> {
    let mut newest = (0, 0);
    for at in SLOT_AT {
        let mut slot = [0; SLOT_BYTES];
        if file.read_at(at, &mut slot)? == SLOT_BYTES {
            newest = newest.max(decode(&slot).unwrap_or_default());
        }
    }
    Ok(newest)
}

fn encode(sequence: u64, position: u64) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[..8].copy_from_slice(&MAGIC);
    slot[16..24].copy_from_slice(&sequence.to_le_bytes());
    slot[24..].copy_from_slice(&position.to_le_bytes());
    let crc = crc32c(&slot);
    slot[8..12].copy_from_slice(&crc.to_le_bytes());
    slot
}

/// A slot's number and position.
fn decode(slot: &[u8; SLOT_BYTES]) -> Option<(u64, u64)> {
    let field = |at: usize| {
        let bytes = slot[at..].first_chunk::<8>();
        bytes.map(|bytes| u64::from_le_bytes(*bytes))
    };
    let decoded = (field(16)?, field(24)?);
    (encode(decoded.0, decoded.1) == *slot).then_some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::sim::{Disk, Faults};

    /// Purpose: a position that was committed survives writes that fail half-way and a power cut right
    /// after: a write never touches the only slot that is known to be good.
    #[test]
    fn failed_writes_keep_the_position() {
        let mut torn = 0;
        for seed in 0..500 {
            let disk = Disk::new(seed);
            let mut slots = Slots::create(&disk, "c", 5).expect("the disk works");
            slots.write(6).expect("the disk works");
            disk.set_faults(Faults { write: 100, ..Faults::default() });
            for position in [7, 8, 9] {
                assert!(slots.write(position).is_err());
            }
            disk.set_faults(Faults::default());
            disk.restart();
            let file = disk.open("c").expect("it is there");
            let position = Slots::load(file).expect("the disk works now").position();
            assert!((6..=9).contains(&position), "seed {seed}: {position}");
            torn += u64::from(position == 6);
        }
        assert!(torn > 100, "no write was ever torn");
    }
}
