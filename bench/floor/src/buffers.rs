//! The provided-buffer ring: memory the kernel picks from when data arrives, so that a waiting
//! connection owns none.
//!
//! Ownership goes round: [`BufferRing::release`] and [`BufferRing::publish`] hand a buffer to the
//! kernel, a completion hands it back by its id. The memory is never freed: the kernel may write to
//! it until its ring is gone, and both programs here keep their ring until they exit.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::io;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use io_uring::Submitter;

/// The buffer group both programs use; each has only one.
pub const GROUP: u16 = 0;
/// Buffers in the ring: a power of two, above the packets one batch can bring. Measured: 64 to 4096
/// make no difference.
const COUNT: u16 = 1024;
/// Bytes a buffer: holds sixteen pipelined requests of 41 bytes, or a full loopback read of the
/// responses to them.
const SIZE: usize = 4096;
/// The kernel wants the ring itself on a page boundary.
const PAGE: usize = 4096;

/// `struct io_uring_buf`. Atomic, because the kernel reads it while we hold references; a relaxed
/// store costs what a plain one does.
#[derive(Debug)]
#[repr(C)]
struct Entry {
    address: AtomicU64,
    len: AtomicU32,
    id: AtomicU16,
    /// In entry 0 only: the index behind the last entry that is the kernel's. Reserved elsewhere.
    tail: AtomicU16,
}

/// One registered ring of `COUNT` buffers.
#[derive(Debug)]
pub struct BufferRing {
    entries: &'static [Entry; COUNT as usize],
    memory: *mut u8,
    /// What [`publish`](BufferRing::publish) shows next.
    tail: u16,
}

impl BufferRing {
    /// Registers a ring full of buffers as group [`GROUP`].
    ///
    /// # Errors
    /// The kernel is older than 5.19, or the group is taken.
    pub fn register(submitter: &Submitter<'_>) -> io::Result<BufferRing> {
        let entries: *const [Entry; COUNT as usize] =
            pages(size_of::<[Entry; COUNT as usize]>()).cast();
        // SAFETY: the memory is large and aligned enough, never freed, and zeroed, which is a valid
        // value of every atomic integer.
        let entries = unsafe { &*entries };
        let ring_address = entries.as_ptr() as u64;
        // SAFETY: the ring has COUNT entries, is page-aligned and never freed.
        unsafe { submitter.register_buf_ring_with_flags(ring_address, COUNT, GROUP, 0) }?;
        let mut ring = BufferRing {
            entries,
            memory: pages(COUNT as usize * SIZE),
            tail: 0,
        };
        (0..COUNT).for_each(|id| ring.release(id));
        ring.publish();
        Ok(ring)
    }

    /// The first `len` bytes of buffer `id`, as a completion reported them.
    ///
    /// # Safety
    /// A completion has handed `id` to the caller, who has not released it since: otherwise the
    /// kernel may be writing.
    ///
    /// # Panics
    /// `id` or `len` is beyond what this ring has, which no completion can report.
    pub unsafe fn bytes(&self, id: u16, len: usize) -> &[u8] {
        assert!(id < COUNT && len <= SIZE);
        // SAFETY: the offset stays inside the allocation, because `id` is below COUNT.
        let start = unsafe { self.memory.add(id as usize * SIZE) };
        // SAFETY: the memory is initialised (zeroed at birth), large enough, and ours by the
        // caller's promise.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// Puts buffer `id` back into the ring. The kernel sees it after
    /// [`publish`](BufferRing::publish).
    pub fn release(&mut self, id: u16) {
        assert!(id < COUNT);
        let entry = &self.entries[(self.tail & (COUNT - 1)) as usize];
        let address = self.memory as u64 + u64::from(id) * SIZE as u64;
        entry.address.store(address, Ordering::Relaxed);
        entry.len.store(SIZE as u32, Ordering::Relaxed);
        entry.id.store(id, Ordering::Relaxed);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the kernel every buffer released so far: once a batch, since the line is shared with
    /// it.
    pub fn publish(&self) {
        self.entries[0].tail.store(self.tail, Ordering::Release);
    }
}

/// Zeroed, page-aligned memory that is never freed.
fn pages(size: usize) -> *mut u8 {
    let layout = Layout::from_size_align(size, PAGE)
        .expect("a page is a power of two and the sizes are constants");
    // SAFETY: the size is not zero: both callers multiply positive constants.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        handle_alloc_error(layout);
    }
    memory
}
