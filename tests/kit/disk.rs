//! How does a disk get full?

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::Command;

/// A small separate file system, where root may mount one. Dropping it unmounts it.
#[derive(Debug)]
pub struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// With this many bytes, in `mount`'s notation.
    ///
    /// # Errors
    /// None can be made, and why.
    ///
    /// # Panics
    /// If there can be no temporary folder.
    pub fn new(size: &str) -> Result<SmallDisk, String> {
        let place = tempfile::tempdir().expect("a temporary folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(place.path());
        match mount.output() {
            Ok(output) if output.status.success() => Ok(SmallDisk(place)),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // If that fails, it ends with the namespace or the machine.
        let _ = Command::new("umount").arg("-l").arg(self.path()).output();
    }
}

/// A file to which nothing can be written, since its disk is full: for a program's standard output.
///
/// # Panics
/// If the system has no `/dev/full`.
pub fn full_disk() -> File {
    OpenOptions::new().write(true).open("/dev/full").expect("this is Linux")
}
