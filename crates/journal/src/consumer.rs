//! The positions of named consumers.
//!
//! A position is a small file with two slots, in different pages. A new position goes into the slot that
//! does not hold the newest durable one, so a torn write loses nothing. After a failed sync the same slot is written
//! again, because only the other one is known to be good.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use highwater_core::frame::crc32c;

use crate::error::{Error, ErrorKind};
use crate::log::Log;
use crate::queue::Door;
use crate::reader::Reader;
use crate::storage::{File, Storage};

const PREFIX: &str = "consumer-";
const SUFFIX: &str = ".pos";
const MAGIC: [u8; 8] = *b"HWJPOSN1";
const SLOT_BYTES: usize = 32;
/// The second slot is in another page.
const SLOT_AT: [u64; 2] = [0, 4096];

/// The longest name of a consumer.
pub const CONSUMER_NAME_MAX: usize = 64;

/// A named consumer, whose position is stored with the journal.
///
/// After a crash, uncommitted records are read again: at least once, never lost.
#[derive(Debug)]
pub struct Consumer {
    name: String,
    consumers: Arc<Consumers>,
    door: Arc<Door>,
    log: Arc<Log>,
}

impl Consumer {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Every record with a lower offset has been processed.
    pub fn position(&self) -> u64 {
        self.consumers.lock().get(&self.name).map_or(0, |slots| slots.position)
    }

    /// Reads from its position on.
    pub fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.log), Arc::clone(&self.consumers.storage), self.position())
    }

    /// Records durably that every record below `position` has been processed. A position lower than the current one
    /// changes nothing. It syncs a file, and so blocks.
    ///
    /// # Errors
    ///
    /// If the position is not known to be durable. It is then unchanged, and the call may be repeated.
    pub fn commit(&self, position: u64) -> Result<(), Error> {
        {
            let mut all = self.consumers.lock();
            let missing =
                || Error::new(ErrorKind::Closed, format!("consumer {} was forgotten", self.name));
            let slots = all.get_mut(&self.name).ok_or_else(missing)?;
            if position <= slots.position {
                return Ok(());
            }
            slots.write(position).map_err(|error| {
                let place = self.consumers.storage.place();
                Error::disk(format!("{place}/{}", file_name(&self.name)), &error)
            })?;
        }
        // Some segments may be removable now.
        self.door.ring();
        Ok(())
    }
}

/// All named consumers of a journal.
#[derive(Debug)]
pub(crate) struct Consumers {
    storage: Arc<dyn Storage>,
    all: Mutex<BTreeMap<String, Slots>>,
    max: usize,
    /// Retention ignores them.
    ignored: AtomicBool,
}

/// A consumer's file.
struct Slots {
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

impl Consumers {
    /// Reads all positions. A file without an intact slot was never durable or is damaged: its consumer starts from the
    /// beginning again, and `told` says so.
    pub(crate) fn load(
        storage: Arc<dyn Storage>,
        max: usize,
        told: &mut Vec<String>,
    ) -> io::Result<Consumers> {
        let mut all = BTreeMap::new();
        for file in storage.list()? {
            let Some(name) = file.strip_prefix(PREFIX).and_then(|name| name.strip_suffix(SUFFIX))
            else {
                continue;
            };
            let slots = Slots::load(storage.open(&file)?)?;
            if slots.sequence == 0 {
                told.push(format!(
                    "{file}: no intact position; consumer {name} reads from the beginning again"
                ));
            }
            all.insert(name.to_owned(), slots);
        }
        Ok(Consumers { storage, all: Mutex::new(all), max, ignored: AtomicBool::new(false) })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Slots>> {
        self.all.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// From now on retention also removes unread records, as if there were no consumers.
    pub(crate) fn ignore(&self) {
        self.ignored.store(true, Ordering::Relaxed);
    }

    pub(crate) fn are_ignored(&self) -> bool {
        self.ignored.load(Ordering::Relaxed)
    }

    /// The lowest position of all, if there is a consumer.
    pub(crate) fn lowest(&self) -> Option<u64> {
        self.lock().values().map(|slots| slots.position).min()
    }

    /// The highest position of all.
    pub(crate) fn highest(&self) -> Option<u64> {
        self.lock().values().map(|slots| slots.position).max()
    }

    /// Names and positions.
    pub(crate) fn positions(&self) -> Vec<(String, u64)> {
        self.lock().iter().map(|(name, slots)| (name.clone(), slots.position)).collect()
    }

    /// The consumer `name`, created at position `first` if it does not exist.
    pub(crate) fn consumer(
        self: &Arc<Self>,
        name: &str,
        first: u64,
        log: &Arc<Log>,
        door: &Arc<Door>,
    ) -> Result<Consumer, Error> {
        check_name(name)?;
        let mut all = self.lock();
        if !all.contains_key(name) {
            if all.len() >= self.max {
                let text = format!("there are consumers_max ({}) consumers; forget one", self.max);
                return Err(Error::new(ErrorKind::TooMany, text));
            }
            let file = file_name(name);
            let slots = self.create(&file, first).map_err(|error| {
                let _ = self.storage.remove(&file);
                Error::disk(format!("{}/{file}", self.storage.place()), &error)
            })?;
            all.insert(name.to_owned(), slots);
        }
        Ok(Consumer {
            name: name.to_owned(),
            consumers: Arc::clone(self),
            door: Arc::clone(door),
            log: Arc::clone(log),
        })
    }

    fn create(&self, file: &str, position: u64) -> io::Result<Slots> {
        let mut slots =
            Slots { file: self.storage.create(file)?, position: 0, sequence: 0, failed: 0 };
        // Both slots are allocated now: on a full disk, a commit is what frees room.
        slots.file.write_at(SLOT_AT[0], &[0; SLOT_BYTES])?;
        slots.write(position)?;
        self.storage.sync_dir()?;
        Ok(slots)
    }

    /// Forgets the consumer `name`: no records are kept for it any more.
    pub(crate) fn forget(&self, name: &str) -> Result<(), Error> {
        let mut all = self.lock();
        if all.remove(name).is_none() {
            return Ok(());
        }
        let file = file_name(name);
        let removed = self.storage.remove(&file).and_then(|()| self.storage.sync_dir());
        removed.map_err(|error| Error::disk(format!("{}/{file}", self.storage.place()), &error))
    }
}

fn file_name(name: &str) -> String {
    format!("{PREFIX}{name}{SUFFIX}")
}

fn check_name(name: &str) -> Result<(), Error> {
    let may_be = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_'
    };
    if (1..=CONSUMER_NAME_MAX).contains(&name.len()) && name.bytes().all(may_be) {
        return Ok(());
    }
    let text = format!(
        "{name:?} is not a consumer's name: use 1 to {CONSUMER_NAME_MAX} of the letters a to z, digits, - and _"
    );
    Err(Error::new(ErrorKind::Invalid, text))
}

impl Slots {
    /// Reads a file, and rewrites its newest position in place: what an earlier process wrote may be in the page cache
    /// only.
    fn load(mut file: Box<dyn File>) -> io::Result<Slots> {
        let mut newest = (0, 0);
        for at in SLOT_AT {
            let mut slot = [0; SLOT_BYTES];
            if file.read_at(at, &mut slot)? == SLOT_BYTES {
                newest = newest.max(decode(&slot).unwrap_or_default());
            }
        }
        let (sequence, position) = newest;
        if sequence > 0 {
            file.write_at(SLOT_AT[(sequence % 2) as usize], &encode(sequence, position))?;
            file.sync()?;
        }
        Ok(Slots { file, position, sequence, failed: 0 })
    }

    fn write(&mut self, position: u64) -> io::Result<()> {
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

    fn load(disk: &Disk) -> Consumers {
        Consumers::load(Arc::new(disk.clone()), 1, &mut Vec::new()).expect("the disk works now")
    }

    /// Purpose: a position that was committed survives writes that fail half-way and a power cut right
    /// after: a write never touches the only slot that is known to be good.
    #[test]
    fn failed_writes_keep_the_position() {
        let mut torn = 0;
        for seed in 0..500 {
            let disk = Disk::new(seed);
            let consumers = load(&disk);
            let mut slots = consumers.create(&file_name("c"), 5).expect("the disk works");
            slots.write(6).expect("the disk works");
            disk.set_faults(Faults { write: 100, ..Faults::default() });
            for position in [7, 8, 9] {
                assert!(slots.write(position).is_err());
            }
            disk.set_faults(Faults::default());
            disk.restart();
            let after = load(&disk);
            let position = after.lowest().expect("it is there");
            assert!((6..=9).contains(&position), "seed {seed}: {position}");
            torn += u64::from(position == 6);
        }
        assert!(torn > 100, "no write was ever torn");
    }
}
