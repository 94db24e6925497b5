//! The named consumers, and their positions.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::error::{Error, ErrorKind};
use crate::log::Log;
use crate::position::Slots;
use crate::queue::Shared;
use crate::reader::Reader;
use crate::storage::Storage;

const PREFIX: &str = "consumer-";
const SUFFIX: &str = ".pos";

/// The longest name of a consumer.
pub const CONSUMER_NAME_MAX: usize = 64;

/// A named consumer, whose position is stored with the journal.
///
/// After a crash, uncommitted records are read again: at least once, never lost.
#[derive(Debug)]
pub struct Consumer {
    name: String,
    consumers: Arc<Consumers>,
    shared: Arc<Shared>,
    log: Arc<Log>,
}

impl Consumer {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Every record with a lower offset has been processed.
    pub fn position(&self) -> u64 {
        self.consumers.lock().get(&self.name).map_or(0, Slots::position)
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
            if position <= slots.position() {
                return Ok(());
            }
            slots.write(position).map_err(|error| {
                let place = self.consumers.storage.place();
                Error::disk(format!("{place}/{}", file_name(&self.name)), &error)
            })?;
        }
        // Some segments may be removable now.
        self.shared.wake();
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

impl Consumers {
    /// Reads all positions. A file without an intact slot was never durable or is damaged: its consumer starts from the
    /// beginning again, and `lost` says so.
    pub(crate) fn load(
        storage: Arc<dyn Storage>,
        max: usize,
        lost: &mut Vec<String>,
    ) -> io::Result<Consumers> {
        let mut all = BTreeMap::new();
        for file in storage.list()? {
            let Some(name) = file.strip_prefix(PREFIX).and_then(|name| name.strip_suffix(SUFFIX))
            else {
                continue;
            };
            let slots = Slots::load(storage.open(&file)?)?;
            if !slots.are_intact() {
                lost.push(format!(
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
        self.lock().values().map(Slots::position).min()
    }

    /// The highest position of all.
    pub(crate) fn highest(&self) -> Option<u64> {
        self.lock().values().map(Slots::position).max()
    }

    /// Names and positions.
    pub(crate) fn positions(&self) -> Vec<(String, u64)> {
        self.lock().iter().map(|(name, slots)| (name.clone(), slots.position())).collect()
    }

    /// The consumer `name`, created at position `first` if it does not exist.
    pub(crate) fn consumer(
        self: &Arc<Self>,
        name: &str,
        first: u64,
        log: &Arc<Log>,
        shared: &Arc<Shared>,
    ) -> Result<Consumer, Error> {
        check_name(name)?;
        let mut all = self.lock();
        if !all.contains_key(name) {
            if all.len() >= self.max {
                let text = format!("there are consumers_max ({}) consumers; forget one", self.max);
                return Err(Error::new(ErrorKind::TooMany, text));
            }
            let file = file_name(name);
            let slots = Slots::create(&*self.storage, &file, first)
                .map_err(|error| Error::disk(format!("{}/{file}", self.storage.place()), &error))?;
            all.insert(name.to_owned(), slots);
        }
        Ok(Consumer {
            name: name.to_owned(),
            consumers: Arc::clone(self),
            shared: Arc::clone(shared),
            log: Arc::clone(log),
        })
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
