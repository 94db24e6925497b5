//! A directory of a file system.
//!
//! One process at a time may write: it holds a lock on the file `LOCK`, which the kernel releases when
//! the process ends, however it ends. Reading needs no lock.
//!
//! A file without a name is not durable: after another program has removed or moved a file, the lock, or the directory,
//! every sync fails. Otherwise writes would succeed, into files that the next opening does not find.

use std::fs;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{File, Storage, create_directory};
use crate::error::{Error, ErrorKind, is_full};

const LOCK: &str = "LOCK";

/// A directory, open for writing or only for reading.
#[derive(Debug)]
pub struct Directory {
    itself: Arc<Located>,
    /// Held until this is dropped. `None`: read-only.
    lock: Option<Arc<Named>>,
}

/// An open directory, and the path that led to it.
#[derive(Debug)]
struct Located {
    path: PathBuf,
    /// For syncing names.
    handle: fs::File,
    identity: (u64, u64),
}

impl Located {
    fn open(path: &Path) -> io::Result<Located> {
        let handle = fs::File::open(path)?;
        let identity = identity(&handle.metadata()?);
        Ok(Located { path: path.into(), handle, identity })
    }

    /// Whether the path still leads here.
    fn check(&self) -> io::Result<()> {
        match identity(&fs::metadata(&self.path)?) == self.identity {
            true => Ok(()),
            false => Err(io::Error::other("the directory was replaced, by another program")),
        }
    }
}

/// Distinguishes a file from every other one of this machine, as long as it is open.
fn identity(about: &fs::Metadata) -> (u64, u64) {
    (about.dev(), about.ino())
}

/// An open file, and whether it has a name.
#[derive(Debug)]
struct Named {
    file: fs::File,
    /// Some file systems count no names. There, a removed file looks like any other.
    counts_names: bool,
}

impl Named {
    fn new(file: fs::File) -> io::Result<Named> {
        let counts_names = file.metadata()?.nlink() > 0;
        Ok(Named { file, counts_names })
    }

    fn check(&self) -> io::Result<()> {
        match self.counts_names && self.file.metadata()?.nlink() == 0 {
            true => Err(io::Error::other("the file was removed, by another program")),
            false => Ok(()),
        }
    }
}

/// A file of a directory.
#[derive(Debug)]
struct Entry {
    named: Named,
    /// Where its name is.
    directory: Arc<Located>,
    /// The directory's lock, if it is open for writing. Without its name, another process may write as well.
    lock: Option<Arc<Named>>,
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
        let lock = Named::new(lock).map_err(failed)?;
        let itself = Arc::new(Located::open(path).map_err(failed)?);
        Ok(Directory { itself, lock: Some(Arc::new(lock)) })
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
        let itself = Arc::new(Located::open(path).map_err(failed)?);
        Ok(Directory { itself, lock: None })
    }

    fn may_change(&self) -> io::Result<()> {
        let refused = || io::Error::new(io::ErrorKind::PermissionDenied, "opened to look at only");
        self.lock.is_some().then_some(()).ok_or_else(refused)
    }

    fn entry(&self, file: fs::File) -> io::Result<Box<dyn File>> {
        let (directory, lock) = (Arc::clone(&self.itself), self.lock.clone());
        Ok(Box::new(Entry { named: Named::new(file)?, directory, lock }))
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.itself.path.join(name)
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
        fs::read_dir(&self.itself.path)?.filter_map(|entry| name(entry).transpose()).collect()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn File>> {
        self.may_change()?;
        self.itself.check()?;
        let path = self.path_of(name);
        self.entry(fs::File::options().read(true).write(true).create_new(true).open(path)?)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn File>> {
        let writes = self.lock.is_some();
        self.entry(fs::File::options().read(true).write(writes).open(self.path_of(name))?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.may_change()?;
        // Another journal's files may have the same names.
        self.itself.check()?;
        fs::remove_file(self.path_of(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.itself.handle.sync_all()
    }

    fn place(&self) -> String {
        self.itself.path.display().to_string()
    }
}

impl File for Entry {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.named.file.metadata()?.len())
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.named.file.read_at(&mut buffer[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.named.file.write_all_at(bytes, at)
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.named.file.set_len(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        // The length is part of what fdatasync makes durable, where it is needed to read the data.
        self.named.file.sync_data()?;
        // After the sync: a process that gets the name or the lock after this finds what was synced.
        self.named.check()?;
        if self.lock.as_ref().is_some_and(|lock| lock.check().is_err()) {
            return Err(io::Error::other("the lock was removed, by another program"));
        }
        match self.directory.check() {
            // Somebody has closed a directory above it: what is in it is still there.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            checked => checked,
        }
    }
}
