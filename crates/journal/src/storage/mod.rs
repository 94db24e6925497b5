//! The journal's requirements of a disk.
//!
//! Files in one directory, and two promises. [`File::sync`]: when it returns `Ok`, earlier writes to the file survive a
//! crash; when it returns an error, *nothing* is known about the writes since the last success, and a later success tells
//! nothing about them either (Linux marks the pages of a failed write-back clean: their content may be lost while the next
//! `fsync` succeeds). [`Storage::sync_dir`]: files created and removed before it stay so. A file is otherwise only as
//! durable as its name.
//!
//! The implementation is a [`Directory`]; with the feature `sim`, `sim::Disk` breaks everything not promised here.

mod directories;
mod directory;
mod replace;
#[cfg(any(test, feature = "sim"))]
pub mod sim;

use std::fmt::Debug;
use std::io;

pub use directories::create_directory;
pub use directory::Directory;
pub use replace::replace_file;

/// A directory of files.
pub trait Storage: Debug + Send + Sync + 'static {
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates a new file. An existing one of that name is an error.
    fn create(&self, name: &str) -> io::Result<Box<dyn File>>;

    /// Opens an existing file.
    fn open(&self, name: &str) -> io::Result<Box<dyn File>>;

    /// Removes a file. Open handles can still read it.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes file creations and removals durable.
    fn sync_dir(&self) -> io::Result<()>;

    /// Where this is, for messages.
    fn place(&self) -> String;
}

/// A file.
pub trait File: Debug + Send {
    /// Its length.
    fn bytes(&self) -> io::Result<u64>;

    /// Fills `buffer` from position `at` on, as far as the file goes, and returns the number of bytes.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `bytes` at position `at`. After an error, any part of them may be written.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Truncates the file to `bytes`.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;

    /// Makes written data and the length durable.
    fn sync(&mut self) -> io::Result<()>;
}
