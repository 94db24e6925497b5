//! Receive buffers that the kernel chooses from when bytes arrive, so that an idle connection owns
//! none.
//!
//! The driver shares a ring of buffer descriptions with the kernel: the kernel takes from the head,
//! the driver returns buffers at the tail. A buffer belongs to the kernel from when it is returned
//! until a completion names it, and to the driver from then until it is returned again.
//!
//! A receive may take several buffers at once (a bundle, Linux 6.10). Its completion names the first; the
//! others are those that were returned right after it. Buffers are returned in the order of their use, so
//! nearly always they lie side by side in memory, and their bytes are one slice.

use std::io;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

use super::ring::{BUFFER_GROUP, Ring};

pub(super) struct Buffers {
    /// `count` descriptions; the tail index lies in an unused field of the first.
    ring: Mapping,
    memory: Mapping,
    size: u32,
    /// A power of two.
    count: u16,
    tail: u16,
    /// The buffer that was returned last.
    last: u16,
    /// For each buffer, which one was returned after it. Valid from then until the buffer is returned again.
    following: Box<[u16]>,
}

impl Buffers {
    /// Provides `count` buffers of `size` bytes, all of them to the kernel.
    pub(super) fn new(ring: &Ring, count: u16, size: u32) -> io::Result<Buffers> {
        let count = count.max(1).next_power_of_two();
        let size = size.max(1);
        let entries = Mapping::new(usize::from(count) * size_of::<BufRingEntry>())?;
        let memory = Mapping::new(usize::from(count) * size as usize)?;
        let addr = entries.start.as_ptr() as u64;
        // SAFETY: page-aligned, large enough, and kept until the ring has nothing in flight.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(addr, count, BUFFER_GROUP, 0)?;
        }
        let following = vec![0; usize::from(count)].into_boxed_slice();
        let mut buffers =
            Buffers { ring: entries, memory, size, count, tail: 0, last: 0, following };
        for id in 0..count {
            buffers.give_back(id);
        }
        Ok(buffers)
    }

    /// The bytes of one receive of `len` bytes, whose completion has just named its `first` buffer: all of
    /// them in order, mostly in one piece. Returns their buffers to the kernel. A receive of no bytes may
    /// have taken a buffer, too.
    #[inline]
    pub(super) fn take(&mut self, first: u16, len: usize, mut on_bytes: impl FnMut(&mut [u8])) {
        if len <= self.size as usize {
            if len > 0 {
                on_bytes(self.bytes(first, len));
            }
            return self.give_back(first);
        }
        self.take_bundle(first, len, on_bytes);
    }

    fn take_bundle(&mut self, mut first: u16, mut len: usize, mut on_bytes: impl FnMut(&mut [u8])) {
        let size = self.size as usize;
        while len > 0 {
            let (mut last, mut piece) = (first, size.min(len));
            while piece < len && self.following[usize::from(last)] == last + 1 {
                last += 1;
                piece += size.min(len - piece);
            }
            on_bytes(self.bytes(first, piece));
            len -= piece;
            let next = self.following[usize::from(last)];
            (first..=last).for_each(|id| self.give_back(id));
            first = next;
        }
    }

    /// The first `len` bytes from the start of buffer `id` on, in buffers that a completion has just named.
    #[inline]
    fn bytes(&mut self, id: u16, len: usize) -> &mut [u8] {
        let offset = usize::from(id) * self.size as usize;
        let is_inside = offset + len <= usize::from(self.count) * self.size as usize;
        assert!(is_inside, "the kernel names what we provided");
        // SAFETY: the assertion keeps it inside the mapping.
        let start = unsafe { self.memory.start.add(offset) };
        // SAFETY: the memory is mapped and initialised (to zero, at least), the kernel does not touch it
        // before it is given back, and nothing else borrows it: both take `&mut self`.
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), len) }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether a receive of `len` bytes has filled its buffer, so that more may have arrived.
    #[inline]
    pub(super) fn fills(&self, len: usize) -> bool {
        len >= self.size as usize
    }

    /// Returns buffer `id` to the kernel.
    #[inline]
    fn give_back(&mut self, id: u16) {
        assert!(id < self.count, "the kernel names what we provided");
        self.following[usize::from(self.last)] = id;
        self.last = id;
        let index = usize::from(self.tail & (self.count - 1));
        let offset = usize::from(id) * self.size as usize;
        let ring = self.ring.start.cast::<BufRingEntry>();
        // SAFETY: the mask keeps the index inside the mapping.
        let mut entry = unsafe { ring.add(index) };
        // SAFETY: there are as many entries as buffers, and this buffer is not in the ring, so the
        // kernel has consumed this entry and does not read it before the tail passes it.
        let entry = unsafe { entry.as_mut() };
        entry.set_addr((self.memory.start.as_ptr() as usize + offset) as u64);
        entry.set_len(self.size);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: `ring` is the first entry of a registered buffer ring.
        let tail = unsafe { BufRingEntry::tail(ring.as_ptr()) };
        // SAFETY: aligned and mapped, and only ever accessed atomically: by us here and the kernel.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    /// Gives the memory up for good, because the kernel may still write to it.
    pub(super) fn leak(&mut self) {
        self.ring.len = 0;
        self.memory.len = 0;
    }
}

/// Zeroed anonymous memory, page-aligned; pages cost nothing until they are touched.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    fn new(len: usize) -> io::Result<Mapping> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping wherever the kernel likes touches nothing that exists.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("mmap does not map page zero unasked");
        Ok(Mapping { start, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: mapped by us with this length; the driver drops it only when the kernel is
            // done with it (or sets the length to zero).
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one receive took: the lengths of its pieces, and where in memory each begins, in buffers.
    fn taken(buffers: &mut Buffers, first: u16, len: usize) -> Vec<(usize, usize)> {
        let (memory, size) = (buffers.memory.start.as_ptr() as usize, buffers.size as usize);
        let mut pieces = Vec::new();
        buffers.take(first, len, |bytes| {
            pieces.push(((bytes.as_ptr() as usize - memory) / size, bytes.len()));
        });
        pieces
    }

    /// Purpose: a bundle is found from its first buffer in the order in which buffers were returned, wherever they lie,
    /// and neighbours make one piece.
    #[test]
    fn a_bundle_is_taken_in_order() {
        let ring = match Ring::new(2, 4) {
            Ok(ring) => ring,
            Err(refusal) => return highwater_skip::skip("io_uring", refusal.cause),
        };
        let mut buffers = Buffers::new(&ring, 4, 8).expect("a kernel with io_uring");
        assert_eq!(taken(&mut buffers, 0, 0), []); // 1 2 3 0
        assert_eq!(taken(&mut buffers, 1, 8), [(1, 8)]); // 2 3 0 1
        assert_eq!(taken(&mut buffers, 2, 20), [(2, 16), (0, 4)]); // 1 2 3 0
        // The completion of the later receive (3, 0) comes before that of the earlier (1, 2).
        assert_eq!(taken(&mut buffers, 3, 9), [(3, 8), (0, 1)]); // 1 2 | 3 0
        assert_eq!(taken(&mut buffers, 1, 15), [(1, 15)]); // 3 0 1 2
        assert_eq!(taken(&mut buffers, 3, 32), [(3, 8), (0, 24)]);
    }
}
