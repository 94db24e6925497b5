//! The connections of a dialer, by a dense index, and the local addresses they come from.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{IntoRawFd, RawFd};

use super::DialConfig;
use crate::socket;

/// One connection.
pub(crate) struct Slot<T> {
    /// −1 while the slot is free.
    pub(crate) fd: RawFd,
    /// Changes when the slot is freed, so that events of an old connection are recognized.
    pub(crate) generation: u32,
    pub(crate) state: T,
}

/// All connections.
pub(crate) struct Slots<T> {
    entries: Vec<Slot<T>>,
    /// The slot freed last is first: its memory is most likely still in the cache.
    free: Vec<u32>,
    /// The bits of a generation that fit into an operation's name.
    mask: u32,
}

impl<T: Default> Slots<T> {
    pub(crate) fn new(generation_bits: u32) -> Slots<T> {
        let mask = u32::MAX >> (32 - generation_bits);
        Slots { entries: Vec::new(), free: Vec::new(), mask }
    }

    pub(crate) fn insert(&mut self, fd: RawFd) -> u32 {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.entries[index as usize];
            slot.fd = fd;
            slot.state = T::default();
            return index;
        }
        let index = u32::try_from(self.entries.len()).expect("fewer connections than descriptors");
        self.entries.push(Slot { fd, generation: 0, state: T::default() });
        index
    }

    /// Frees the slot and hands out the descriptor, which is the caller's to close.
    pub(crate) fn remove(&mut self, index: u32) -> RawFd {
        let slot = &mut self.entries[index as usize];
        slot.generation = (slot.generation + 1) & self.mask;
        self.free.push(index);
        std::mem::replace(&mut slot.fd, -1)
    }

    #[inline]
    pub(crate) fn at(&mut self, index: u32) -> &mut Slot<T> {
        &mut self.entries[index as usize]
    }

    /// The connection at `index`, if it is still the one of that generation.
    #[inline]
    pub(crate) fn find(&mut self, index: u32, generation: u32) -> Option<&mut Slot<T>> {
        let slot = self.entries.get_mut(index as usize)?;
        (slot.generation == generation && slot.fd != -1).then_some(slot)
    }

    /// All open connections, by index, with their descriptors.
    pub(crate) fn open(&self) -> impl Iterator<Item = (u32, RawFd)> {
        (0..).zip(self.entries.iter().map(|slot| slot.fd)).filter(|(_, fd)| *fd != -1)
    }
}

/// Makes the sockets to connect with.
pub(crate) struct Sockets {
    target: SocketAddr,
    sources: Vec<IpAddr>,
    next: usize,
}

impl Sockets {
    pub(crate) fn new(config: &DialConfig) -> Sockets {
        Sockets { target: config.target, sources: config.sources.clone(), next: 0 }
    }

    pub(crate) fn target(&self) -> SocketAddr {
        self.target
    }

    /// A socket bound to the next source address, if any are given.
    pub(crate) fn make(&mut self, nonblocking: bool) -> io::Result<RawFd> {
        let source = self.sources.get(self.next).copied();
        self.next = if self.next + 1 < self.sources.len() { self.next + 1 } else { 0 };
        Ok(socket::client(self.target, source, nonblocking)?.into_raw_fd())
    }
}
