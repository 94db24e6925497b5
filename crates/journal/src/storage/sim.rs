//! A disk that fails in every way a disk may, as a seed decides.
//!
//! It keeps for each file what programs see (the page cache) and what has reached the medium. A sync that
//! fails brings any of the sectors to the medium and marks *all* of them as clean, as Linux does: the next
//! sync succeeds without them, and only a power cut shows that they are missing. Without a sync of the
//! directory, names that were made or removed may or may not be so after a power cut, in any combination.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use highwater_core::prng::Prng;

use super::{File, Storage};

/// The unit that reaches the medium whole or not at all.
pub const SECTOR: usize = 512;

/// How likely errors are, in percent of operations, and how much room there is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A sync fails. One in four of those says that there is no room.
    pub sync: u64,
    /// A write fails, with a part of it done.
    pub write: u64,
    /// Cutting a file fails.
    pub cut: u64,
    /// Creating, removing, or syncing the directory fails.
    pub names: u64,
    /// The capacity in bytes, over all files.
    pub room: Option<u64>,
    /// There is no descriptor for another file.
    pub no_descriptors: bool,
}

/// A simulated disk. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct Disk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    prng: Prng,
    faults: Faults,
    files: Vec<Contents>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    unsynced_names: Vec<(String, Option<usize>)>,
    /// Operations left before the power is cut.
    power_for: Option<u64>,
    is_down: bool,
    /// The operation under way is the one that the power fails in.
    is_failing: bool,
    syncs: u64,
}

#[derive(Debug, Default)]
struct Contents {
    cache: Vec<u8>,
    medium: Vec<u8>,
    dirty: BTreeSet<usize>,
    /// The shortest the file was cut to since the last sync.
    cut_to: Option<usize>,
}

impl Disk {
    /// An empty disk.
    pub fn new(seed: u64) -> Disk {
        Disk(Arc::new(Mutex::new(State {
            prng: Prng::from_seed(seed),
            faults: Faults::default(),
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            unsynced_names: Vec::new(),
            power_for: None,
            is_down: false,
            is_failing: false,
            syncs: 0,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Sets the errors from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    /// The power fails in the middle of an operation, after so many others.
    pub fn cut_power_after(&self, operations: u64) {
        self.lock().power_for = Some(operations);
    }

    /// Whether the power has failed. Every operation gives an error then.
    pub fn is_down(&self) -> bool {
        self.lock().is_down
    }

    /// How many files were synced, with success or not.
    pub fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    /// The power fails now, if it has not, and comes back: what was not synced may be gone.
    pub fn restart(&self) {
        let mut state = self.lock();
        let state = &mut *state;
        for (name, file) in std::mem::take(&mut state.unsynced_names) {
            if state.prng.below(2) == 0 {
                set_name(&mut state.durable_names, name, file);
            }
        }
        for file in &mut state.files {
            file.lose_power(&mut state.prng);
        }
        state.names.clone_from(&state.durable_names);
        (state.is_down, state.power_for) = (false, None);
    }

    /// The process ends and another one begins: what was written stays visible, whether it is durable or
    /// not.
    pub fn kill(&self) {
        let mut state = self.lock();
        (state.is_down, state.power_for) = (false, None);
    }

    /// What programs see of each file.
    pub fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.lock();
        state
            .names
            .iter()
            .map(|(name, file)| (name.clone(), state.files[*file].cache.clone()))
            .collect()
    }

    /// The medium changes a byte (bit rot).
    pub fn rot(&self, name: &str, at: usize, flip: u8) {
        let mut state = self.lock();
        let Some(file) = state.names.get(name).copied() else { return };
        let Contents { cache, medium, .. } = &mut state.files[file];
        for bytes in [cache, medium] {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= flip;
            }
        }
    }
}

fn set_name(names: &mut BTreeMap<String, usize>, name: String, file: Option<usize>) {
    match file {
        Some(file) => names.insert(name, file),
        None => names.remove(&name),
    };
}

fn error(kind: io::ErrorKind) -> io::Error {
    io::Error::new(kind, "simulated")
}

impl State {
    /// An operation begins: the power may fail, or it may give an error.
    fn operation(&mut self, percent: u64) -> io::Result<()> {
        self.is_failing = !self.is_down && self.power_for == Some(0);
        self.is_down |= self.is_failing;
        self.power_for = self.power_for.map(|left| left.saturating_sub(1));
        if self.is_down {
            return Err(error(io::ErrorKind::NotConnected));
        }
        if self.prng.below(100) < percent {
            return Err(error(io::ErrorKind::Other));
        }
        Ok(())
    }

    /// A file is about to be opened.
    fn take_descriptor(&self) -> io::Result<()> {
        const EMFILE: i32 = 24;
        match self.faults.no_descriptors {
            true => Err(io::Error::from_raw_os_error(EMFILE)),
            false => Ok(()),
        }
    }

    fn used(&self) -> usize {
        self.names.values().map(|file| self.files[*file].cache.len()).sum()
    }
}

impl Contents {
    fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        // A gap is zeros, and as dirty as what follows.
        let from = at.min(self.cache.len());
        self.cache.resize(self.cache.len().max(end), 0);
        self.cache[at..end].copy_from_slice(bytes);
        if end > from {
            self.dirty.extend(from / SECTOR..=(end - 1) / SECTOR);
        }
    }

    fn cut(&mut self, bytes: usize) {
        self.cache.truncate(bytes);
        self.cut_to = Some(self.cut_to.map_or(bytes, |other| other.min(bytes)));
        self.dirty.retain(|sector| sector * SECTOR < bytes);
    }

    fn sync(&mut self) {
        // Only what is dirty: what a failed sync has lost stays lost.
        if let Some(bytes) = self.cut_to.take() {
            self.medium.truncate(bytes);
        }
        for sector in std::mem::take(&mut self.dirty) {
            self.bring_to_medium(sector);
        }
        self.medium.resize(self.cache.len(), 0);
    }

    fn bring_to_medium(&mut self, sector: usize) {
        let end = ((sector + 1) * SECTOR).min(self.cache.len());
        let from = (sector * SECTOR).min(end);
        self.medium.resize(self.medium.len().max(end), 0);
        self.medium[from..end].copy_from_slice(&self.cache[from..end]);
    }

    /// Some of what is dirty reaches the medium; none of it is dirty any more.
    fn sync_badly(&mut self, prng: &mut Prng) {
        if let Some(bytes) = self.cut_to.take()
            && prng.below(2) == 0
        {
            self.medium.truncate(bytes);
        }
        let dirty = std::mem::take(&mut self.dirty);
        let count = dirty.len() as u64;
        // None, all, the first ones, or any of them.
        let (kept, any) = match prng.below(4) {
            0 => (0, false),
            1 => (count, false),
            2 => (prng.below(count + 1), false),
            _ => (count, true),
        };
        for (index, sector) in dirty.into_iter().enumerate() {
            if (index as u64) < kept && !(any && prng.below(2) == 0) {
                self.bring_to_medium(sector);
            }
        }
        if prng.below(8) == 0 && self.medium.len() < self.cache.len() {
            self.medium.resize(self.cache.len(), 0);
        }
    }

    fn lose_power(&mut self, prng: &mut Prng) {
        self.sync_badly(prng);
        self.cache.clone_from(&self.medium);
    }
}

impl Storage for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.lock();
        state.operation(0)?;
        Ok(state.names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn File>> {
        let mut state = self.lock();
        let percent = state.faults.names;
        state.operation(percent)?;
        state.take_descriptor()?;
        if state.names.contains_key(name) {
            return Err(error(io::ErrorKind::AlreadyExists));
        }
        let file = state.files.len();
        state.files.push(Contents::default());
        state.names.insert(name.into(), file);
        state.unsynced_names.push((name.into(), Some(file)));
        Ok(Box::new(Open { disk: self.clone(), file }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn File>> {
        let mut state = self.lock();
        state.operation(0)?;
        state.take_descriptor()?;
        let file = state.names.get(name).copied();
        let file = file.ok_or_else(|| error(io::ErrorKind::NotFound))?;
        Ok(Box::new(Open { disk: self.clone(), file }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock();
        let percent = state.faults.names;
        state.operation(percent)?;
        state.names.remove(name).ok_or_else(|| error(io::ErrorKind::NotFound))?;
        state.unsynced_names.push((name.into(), None));
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.lock();
        let percent = state.faults.names;
        state.operation(percent)?;
        let state = &mut *state;
        for (name, file) in std::mem::take(&mut state.unsynced_names) {
            set_name(&mut state.durable_names, name, file);
        }
        Ok(())
    }

    fn place(&self) -> String {
        "simulated".into()
    }
}

/// A file that is open. It goes on when its name is gone.
#[derive(Debug)]
struct Open {
    disk: Disk,
    file: usize,
}

impl File for Open {
    fn bytes(&self) -> io::Result<u64> {
        let mut state = self.disk.lock();
        state.operation(0)?;
        Ok(state.files[self.file].cache.len() as u64)
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.disk.lock();
        state.operation(0)?;
        let cache = &state.files[self.file].cache;
        let rest = cache.get(at as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.lock();
        let percent = state.faults.write;
        let begun = state.operation(percent);
        let state = &mut *state;
        let grows = (at as usize + bytes.len()).saturating_sub(state.files[self.file].cache.len());
        let room = state.faults.room.map(|room| (room as usize).saturating_sub(state.used()));
        let missing = room.map_or(0, |room| grows.saturating_sub(room));
        let done = match &begun {
            Err(_) if state.is_down && !state.is_failing => 0,
            Err(_) => state.prng.below(bytes.len() as u64 + 1) as usize,
            Ok(()) => bytes.len() - missing.min(bytes.len()),
        };
        let done = done.min(bytes.len() - missing.min(bytes.len()));
        state.files[self.file].write(at as usize, &bytes[..done]);
        begun?;
        if missing > 0 { Err(error(io::ErrorKind::StorageFull)) } else { Ok(()) }
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        let percent = state.faults.cut;
        state.operation(percent)?;
        state.files[self.file].cut(bytes as usize);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.lock();
        let percent = state.faults.sync;
        let begun = state.operation(percent);
        let state = &mut *state;
        state.syncs += 1;
        match begun {
            Ok(()) => {
                state.files[self.file].sync();
                Ok(())
            }
            Err(failed) if state.is_down => Err(failed),
            Err(failed) => {
                state.files[self.file].sync_badly(&mut state.prng);
                if state.prng.below(4) == 0 {
                    return Err(error(io::ErrorKind::StorageFull));
                }
                Err(failed)
            }
        }
    }
}
