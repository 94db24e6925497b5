//! How does content in memory reach a socket without a copy?
//!
//! [`seal`] keeps content in a file that exists in memory only (a memfd), and seals it: it can no longer be written to,
//! shrunk or grown. The file is mapped, and the mapping is a `Bytes` like any other. A driver that sends such bytes, or a
//! part of them, finds their file by their address (`find`), and lets the kernel send from there: `sendfile(2)` takes pages
//! where `send(2)` copies bytes. A driver that does not look for the file sends the bytes.
//!
//! The list of these mappings belongs to the process, as addresses do. It changes nothing that a peer receives, so servers
//! in one process stay independent.
//!
//! Invariants: a mapping is listed from before its bytes are handed out until after the last of them is dropped. So bytes
//! that lie in a listed range are that mapping's, and while they are borrowed its file is open.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::{PoisonError, RwLock};

use bytes::Bytes;

use crate::call::{check, check_size};
use crate::limits;

/// Smaller content is sent faster with a copy: sending from a file costs up to four system calls more, about a microsecond,
/// and copying this much about ten. A guess between the two.
pub const SEALED_BYTES_MIN: usize = 64 * 1024;

/// How many files there are at most at any time, in the whole process. Each has a descriptor.
pub const SEALED_FILES_MAX: usize = 256;

/// At most one of this many descriptors that the process may have belongs to such a file: the others are for connections.
pub const DESCRIPTORS_PER_FILE: u64 = 64;

/// The name of these files in `/proc/PID/fd`, behind `/memfd:`.
const NAME: &std::ffi::CStr = c"highwater-content";

/// What is mapped, by its first address.
static FILES: RwLock<BTreeMap<usize, Listed>> = RwLock::new(BTreeMap::new());

#[derive(Clone, Copy)]
struct Listed {
    len: usize,
    file: RawFd,
}

/// The same content, where the kernel can send it without a copy. Its memory is freed with the last of these bytes.
///
/// ```
/// let page = vec![b'x'; 100_000];
/// // Without memory or descriptors, the bytes themselves do as well.
/// let page = highwater_sys::sealed::seal(&page).unwrap_or_else(|_| page.into());
/// assert_eq!(page.len(), 100_000);
/// ```
///
/// # Errors
/// `QuotaExceeded` if there are [`SEALED_FILES_MAX`] such files, or more than one to [`DESCRIPTORS_PER_FILE`] descriptors
/// that the process may have; `FileTooLarge` beyond the largest file that it may write (`RLIMIT_FSIZE`); or whatever
/// `memfd_create(2)`, `write(2)`, `fcntl(2)` and `mmap(2)` report.
pub fn seal(content: &[u8]) -> io::Result<Bytes> {
    if content.is_empty() {
        return Ok(Bytes::new());
    }
    let files_max = files_max()?;
    if FILES.read().unwrap_or_else(PoisonError::into_inner).len() >= files_max {
        return Err(ErrorKind::QuotaExceeded.into());
    }
    let file = sealed_file(content)?;
    let mapping = Mapping::new(file, content.len())?;
    mapping.list(files_max)?;
    Ok(Bytes::from_owner(Owner(mapping)))
}

fn files_max() -> io::Result<usize> {
    let share = limits::descriptors()?.soft / DESCRIPTORS_PER_FILE;
    Ok(usize::try_from(share).unwrap_or(usize::MAX).min(SEALED_FILES_MAX))
}

/// A file in memory with this content, which cannot be changed.
fn sealed_file(content: &[u8]) -> io::Result<File> {
    // Writing beyond the limit would end the process, by SIGXFSZ.
    if limits::file_size()? < content.len() as u64 {
        return Err(ErrorKind::FileTooLarge.into());
    }
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string, which the call only reads.
    let fd = check(unsafe { libc::memfd_create(NAME.as_ptr(), flags) })?;
    // SAFETY: the kernel just gave us this descriptor; nothing else owns it.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.write_all(content)?;
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: takes no pointers.
    check(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) })?;
    Ok(file)
}

/// A sealed file, mapped for reading.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
    file: File,
}

// SAFETY: the memory is never written to, by anyone: the file is sealed, and mapped for reading only. The address is as
// good on each thread.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(file: File, len: usize) -> io::Result<Mapping> {
        let (fd, anywhere) = (file.as_raw_fd(), std::ptr::null_mut());
        // Private, although nobody writes: kernels before 6.7 refuse to share the pages of a file sealed against writing.
        // SAFETY: a new mapping at an address that the kernel chooses replaces none.
        let start = unsafe { libc::mmap(anywhere, len, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("nothing is mapped at 0");
        Ok(Mapping { start, len, file })
    }

    /// Lists the mapping, if there are fewer than `files_max`.
    fn list(&self, files_max: usize) -> io::Result<()> {
        let mut files = FILES.write().unwrap_or_else(PoisonError::into_inner);
        if files.len() >= files_max {
            return Err(ErrorKind::QuotaExceeded.into());
        }
        let listed = Listed { len: self.len, file: self.file.as_raw_fd() };
        files.insert(self.start.as_ptr().addr(), listed);
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping made the range, and nothing borrows from it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A listed mapping, which `Bytes` hands out.
struct Owner(Mapping);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the range is mapped as long as `self` lives. It has the length of the file, which cannot shrink, and
        // content that cannot change.
        unsafe { std::slice::from_raw_parts(self.0.start.as_ptr(), self.0.len) }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Before the range is unmapped and can belong to others.
        let mut files = FILES.write().unwrap_or_else(PoisonError::into_inner);
        files.remove(&self.0.start.as_ptr().addr());
    }
}

/// Where content stands in a sealed file.
pub(crate) struct Place<'a> {
    file: BorrowedFd<'a>,
    offset: usize,
    len: usize,
}

/// The place of `content` in its sealed file, if it has one and sending from there is worth it and safe.
#[inline]
pub(crate) fn find(content: &[u8]) -> Option<Place<'_>> {
    if content.len() < SEALED_BYTES_MIN { None } else { find_listed(content) }
}

fn find_listed(content: &[u8]) -> Option<Place<'_>> {
    let (start, len) = (content.as_ptr().addr(), content.len());
    let files = FILES.read().unwrap_or_else(PoisonError::into_inner);
    let (first, listed) = files.range(..=start).next_back()?;
    let offset = start - first;
    if offset + len > listed.len || broken_pipe_is_fatal() {
        return None;
    }
    // SAFETY: `content` lies in the mapping, which therefore lives as long as `content` is borrowed, and its file with it.
    let file = unsafe { BorrowedFd::borrow_raw(listed.file) };
    Some(Place { file, offset, len })
}

/// Whether writing to a connection that is gone would end the process. Programs in Rust ignore that signal unless they
/// have asked for it; `sendfile` has no flag against it, as `send` has.
fn broken_pipe_is_fatal() -> bool {
    // SAFETY: `sigaction` is integers and pointers, for which all zero bits are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: changes nothing, and `action` is valid for writes.
    let asked = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) };
    asked != 0 || action.sa_sigaction == libc::SIG_DFL
}

impl Place<'_> {
    /// Sends `head`, then the content, as much of them as a nonblocking socket has room for, and says how much that is.
    /// 0, or an error other than `WouldBlock`: it cannot be done so, and the bytes are to be sent.
    pub(crate) fn send(&self, socket: RawFd, head: &[u8]) -> io::Result<usize> {
        let mut taken = 0;
        if !head.is_empty() {
            taken = retried(|| send_more(socket, head))?;
            if taken < head.len() {
                return Ok(taken);
            }
        }
        match retried(|| send_file(socket, self)) {
            Ok(len) => taken += len,
            Err(_) if taken > 0 => {} // The next call meets it again.
            Err(error) => return Err(error),
        }
        Ok(taken)
    }
}

fn retried(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Sends what more follows, so that no packet ends behind it.
fn send_more(socket: RawFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_MORE;
    // SAFETY: the bytes are valid for reads of their length.
    check_size(unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), flags) })
}

fn send_file(socket: RawFd, place: &Place<'_>) -> io::Result<usize> {
    let mut offset = place.offset as libc::off_t;
    // SAFETY: `offset` is valid for reads and writes until the call returns.
    let sent = check_size(unsafe {
        libc::sendfile(socket, place.file.as_raw_fd(), &raw mut offset, place.len)
    });
    #[cfg(test)]
    tests::SENT.set(tests::SENT.get() + sent.as_ref().map_or(0, |len| *len));
    sent
}

#[cfg(test)]
mod tests;
