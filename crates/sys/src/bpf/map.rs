//! What do a gate's program and its server share?
//!
//! One page: the value of a BPF array map, mapped into this process. Both sides use only atomic
//! instructions on it, so a new limit is one store, and no count is ever lost.
//!
//! Invariant: `taken` is how much work the gate believes to be in progress. Each addition is taken
//! back: by the program when it refuses, by the server when work ends.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use highwater_core::time::Instant;

use super::call::{self, MapCreate};

/// The page, as the programs see it. Words that different cores write are in cache lines of their
/// own, in pairs, because the hardware fetches pairs.
#[repr(C, align(128))]
struct Page {
    limit: AtomicI64,
    mode: AtomicU64,
    valid_until: AtomicI64,
    taken: Line<AtomicI64>,
    admitted: Line<AtomicU64>,
    reset: Line<AtomicU64>,
    dropped: Line<AtomicU64>,
    established: Line<AtomicU64>,
    closed: Line<AtomicU64>,
}

#[repr(C, align(128))]
struct Line<T>(T);

/// Byte offsets of the words, for the programs.
pub(super) mod offset {
    use super::Page;
    use std::mem::offset_of;

    pub(in super::super) const LIMIT: i16 = offset_of!(Page, limit) as i16;
    pub(in super::super) const MODE: i16 = offset_of!(Page, mode) as i16;
    pub(in super::super) const VALID_UNTIL: i16 = offset_of!(Page, valid_until) as i16;
    pub(in super::super) const TAKEN: i16 = offset_of!(Page, taken) as i16;
    pub(in super::super) const ADMITTED: i16 = offset_of!(Page, admitted) as i16;
    pub(in super::super) const RESET: i16 = offset_of!(Page, reset) as i16;
    pub(in super::super) const DROPPED: i16 = offset_of!(Page, dropped) as i16;
    pub(in super::super) const ESTABLISHED: i16 = offset_of!(Page, established) as i16;
    pub(in super::super) const CLOSED: i16 = offset_of!(Page, closed) as i16;
}

/// What a gate does with a connection beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Mode {
    /// Admits it, but keeps counting.
    Off = 0,
    /// Answers with a reset: the client sees "connection refused" at once.
    Reset = 1,
    /// Sends nothing: the client's kernel tries again after a second.
    Drop = 2,
    /// Before a port of another process, like [`Mode::Reset`], but handshakes in progress do not count: a client whose
    /// handshake took the last place may come in. Connections that began before the gate do not count either.
    ResetBeyondEstablished = 3,
}

/// The gate's counters since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections admitted.
    pub admitted: u64,
    /// Packets to the port that were answered with a reset: refused connections, and now and then a
    /// stray packet of a connection that has ended.
    pub reset: u64,
    /// Connection attempts dropped. A client that tries again counts again.
    pub dropped: u64,
}

/// A gate's page. Cheap to clone; the page lives as long as any clone.
#[derive(Clone)]
pub struct Words(Arc<Mapping<Page>>);

/// A map whose only value is shared with this process.
pub(super) struct Mapping<T> {
    value: NonNull<T>,
    /// The map itself: programs refer to it by this descriptor when they are loaded.
    map: OwnedFd,
}

// SAFETY: the mapping is not tied to a thread, and gives access to shared references only.
unsafe impl<T: Sync> Send for Mapping<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Mapping<T> {}

/// A type that may be mapped: made of atomic integers alone, so that all zero bits are valid, and so is whatever the
/// programs write.
///
/// # Safety
/// The type is that.
pub(super) unsafe trait Atomics {}

// SAFETY: atomics, alone or aligned.
unsafe impl Atomics for Page {}

impl<T: Atomics> Mapping<T> {
    /// A value of zeros.
    pub(super) fn new() -> io::Result<Mapping<T>> {
        let map = call::create_map(&MapCreate::mappable_array(size_of::<T>() as u32))?;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no other memory.
        let value = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<T>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if value == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let value = NonNull::new(value.cast()).expect("the kernel never maps at zero unasked");
        Ok(Mapping { value, map })
    }

    pub(super) fn map(&self) -> &OwnedFd {
        &self.map
    }

    pub(super) fn value(&self) -> &T {
        // SAFETY: mapped until this is dropped, page-aligned, large enough, zeroed at first, and made
        // of integers that both sides access atomically.
        unsafe { self.value.as_ref() }
    }
}

impl Words {
    /// A page with `limit`, in [`Mode::Off`], nothing counted.
    pub(super) fn new(limit: u32) -> io::Result<Words> {
        let words = Words(Arc::new(Mapping::new()?));
        words.set_limit(limit);
        words.page().valid_until.store(i64::MAX, Relaxed);
        Ok(words)
    }

    pub(super) fn map(&self) -> &OwnedFd {
        self.0.map()
    }

    fn page(&self) -> &Page {
        self.0.value()
    }

    /// Sets how much work may be in progress before connections are refused.
    pub fn set_limit(&self, limit: u32) {
        self.page().limit.store(i64::from(limit), Relaxed);
    }

    /// Sets what happens to connections beyond the limit.
    pub fn set_mode(&self, mode: Mode) {
        self.page().mode.store(mode as u64, Relaxed);
    }

    /// Sets until when a [`PortGate`](super::PortGate) refuses, by [`clock::monotonic`](crate::clock::monotonic). After that
    /// it admits everything: an owner that is stopped no longer corrects the count. By default it refuses without end.
    pub fn set_valid_until(&self, until: Instant) {
        self.page().valid_until.store(i64::try_from(until.as_nanos()).unwrap_or(i64::MAX), Relaxed);
    }

    /// Adds work that began without the program (`delta` above 0), or takes off work that ended
    /// (below 0).
    #[inline]
    pub fn add_taken(&self, delta: i64) {
        self.page().taken.0.fetch_add(delta, Relaxed);
    }

    /// Replaces the count of work in progress, when it is known from another source. Below 0, it
    /// leaves room beyond the limit.
    pub fn set_taken(&self, taken: i64) {
        self.page().taken.0.store(taken, Relaxed);
    }

    /// How much work is in progress, as the gate sees it. A connection that is being refused counts
    /// for a moment.
    pub fn taken(&self) -> i64 {
        self.page().taken.0.load(Relaxed)
    }

    /// What the gate has done so far.
    pub fn counts(&self) -> Counts {
        let page = self.page();
        Counts {
            admitted: page.admitted.0.load(Relaxed),
            reset: page.reset.0.load(Relaxed),
            dropped: page.dropped.0.load(Relaxed),
        }
    }

    /// Connections whose handshake completed, and how many of them have ended. Counted by a
    /// [`PortGate`](super::PortGate) that watches a control group; otherwise 0.
    pub fn lives(&self) -> (u64, u64) {
        // The ends first: then there are never more ends than beginnings.
        let closed = self.page().closed.0.load(Relaxed);
        (self.page().established.0.load(Relaxed), closed)
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Words")
            .field("limit", &self.page().limit)
            .field("taken", &self.taken())
            .field("counts", &self.counts())
            .finish()
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this size, and no reference is left.
        unsafe { libc::munmap(self.value.as_ptr().cast(), size_of::<T>()) };
    }
}
