//! A directory of a file system.
//!
//! One process at a time may write: it holds a lock on the file `LOCK`, which the kernel releases when
//! the process ends, however it ends. Reading needs no lock.

use std::fs;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::{File, Storage, create_directory};
use crate::error::{Error, ErrorKind, is_full};

const LOCK: &str = "LOCK";

/// A directory, open for writing or only for reading.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// The directory's handle, for syncing names.
    itself: fs::File,
    /// Held until this is dropped. `None`: read-only.
    lock: Option<fs::File>,
}

impl Directory {
    /// Opens the directory `path` for writing, and creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InUse`] if another process, or another part of this one, has it open to write to.
    pub fn open(path: impl AsRef<Path>) -> Result<Directory, Error> {
        let path = path.as_ref();
        let failed = |error| Error::disk(format!("data directory {}", path.display()), &error);
        create_directory(path).map_err(failed)?;
        let mut lock = fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.join(LOCK))
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(in_use(path, &mut lock)),
            Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
        name_holder(&mut lock).map_err(failed)?;
        let itself = fs::File::open(path).map_err(failed)?;
        Ok(Directory { path: path.into(), itself, lock: Some(lock) })
    }

    /// Opens the directory `path` for reading, whether or not a process writes to it.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn look(path: impl AsRef<Path>) -> Result<Directory, Error> {
        let path = path.as_ref();
        let failed = |error| Error::disk(format!("data directory {}", path.display()), &error);
        if !fs::metadata(path).map_err(failed)?.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        let itself = fs::File::open(path).map_err(failed)?;
        Ok(Directory { path: path.into(), itself, lock: None })
    }

    fn may_change(&self) -> io::Result<()> {
        let refused = || io::Error::new(io::ErrorKind::PermissionDenied, "opened to look at only");
        self.lock.is_some().then_some(()).ok_or_else(refused)
    }
}

/// Writes the holder's process id into the lock, for other processes' error messages.
fn name_holder(lock: &mut fs::File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    // A full disk cannot hold the number; the lock holds without it.
    match write!(lock, "{}", std::process::id()) {
        Err(error) if !is_full(&error) => Err(error),
        _ => Ok(()),
    }
}

fn in_use(path: &Path, lock: &mut fs::File) -> Error {
    let mut holder = String::new();
    let by = match lock.read_to_string(&mut holder) {
        Ok(1..) => format!("process {holder}"),
        _ => "another process".to_owned(),
    };
    let path = path.display();
    Error::new(
        ErrorKind::InUse,
        format!("data directory {path} is in use by {by}; stop it, or give another directory"),
    )
}

impl Storage for Directory {
    fn list(&self) -> io::Result<Vec<String>> {
        let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().into_string().ok());
        fs::read_dir(&self.path)?.filter_map(|entry| name(entry).transpose()).collect()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn File>> {
        self.may_change()?;
        let path = self.path.join(name);
        Ok(Box::new(fs::File::options().read(true).write(true).create_new(true).open(path)?))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn File>> {
        let writes = self.lock.is_some();
        Ok(Box::new(fs::File::options().read(true).write(writes).open(self.path.join(name))?))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.may_change()?;
        fs::remove_file(self.path.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.itself.sync_all()
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

impl File for fs::File {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let place = at + filled as u64;
            match std::os::unix::fs::FileExt::read_at(self, &mut buffer[filled..], place) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        // The length is part of what fdatasync makes durable, where it is needed to read the data.
        self.sync_data()
    }
}
