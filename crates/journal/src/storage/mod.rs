//! What does the journal ask of a disk?
//!
//! Files in one directory, and two promises. [`File::sync`]: when it returns `Ok`, what was written to
//! the file before survives a crash; when it returns an error, *nothing* is known about what was written
//! since the last success, and a later success says nothing about it either (Linux marks the pages of a
//! failed write-back as clean: what was in them may be lost while the next `fsync` succeeds).
//! [`Storage::sync_dir`]: files created and removed before it stay so. A file is otherwise only as
//! durable as its name.
//!
//! The implementation is a [`Directory`]; with the feature `sim`, `sim::Disk` breaks everything that
//! is not promised here.

mod directories;
mod directory;
#[cfg(any(test, feature = "sim"))]
pub mod sim;

use std::fmt::Debug;
use std::io;

pub use directories::create_directory;
pub use directory::Directory;

/// A directory of files.
pub trait Storage: Debug + Send + Sync + 'static {
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes a new file. One of that name is an error.
    fn create(&self, name: &str) -> io::Result<Box<dyn File>>;

    /// Opens a file that is there.
    fn open(&self, name: &str) -> io::Result<Box<dyn File>>;

    /// Removes a file. Whoever has it open may go on reading.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes what was created and removed durable.
    fn sync_dir(&self) -> io::Result<()>;

    /// Where this is, for messages.
    fn place(&self) -> String;
}

/// A file.
pub trait File: Debug + Send {
    /// Its length.
    fn bytes(&self) -> io::Result<u64>;

    /// Fills `buffer` from place `at` on, as far as the file goes, and says how far that was.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `bytes` at place `at`. After an error, any part of them may be there.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Cuts the file to `bytes`.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;

    /// Makes what was written, and the length, durable.
    fn sync(&mut self) -> io::Result<()>;
}
