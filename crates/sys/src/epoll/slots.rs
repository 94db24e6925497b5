//! The pending state of each connection, and how an epoll event finds its connection.

use std::io;
use std::os::fd::RawFd;

use bytes::Bytes;
use highwater_core::driver::{ListenerId, Output, Reading, Then};

use crate::take::take;

/// The name that epoll returns with an event: the generation of the connection (32 bits) and its
/// slot (32 bits). So an event of an old connection is not mistaken for one of its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token(pub(super) u64);

impl Token {
    // No slot has the indices of these: there are fewer descriptors.
    /// The first listener; the others follow.
    const LISTENERS: Token = Token(u64::MAX - u16::MAX as u64);
    pub(super) const WAKE: Token = Token(Token::LISTENERS.0 - 1);

    pub(super) fn listener(id: ListenerId) -> Token {
        Token(Token::LISTENERS.0 + u64::from(id.0))
    }

    /// The listener that it names, if it names one.
    #[inline]
    pub(super) fn as_listener(self) -> Option<ListenerId> {
        self.0.checked_sub(Token::LISTENERS.0).map(|place| ListenerId(place as u16))
    }

    #[inline]
    pub(super) fn index(self) -> u32 {
        self.0 as u32
    }
}

/// The descriptor is registered with epoll.
pub(super) const REGISTERED: u16 = 1 << 0;
/// ... also for becoming writable.
pub(super) const WATCHING_OUT: u16 = 1 << 1;
/// There may be something to receive.
pub(super) const READABLE: u16 = 1 << 2;
/// The peer's FIN has arrived, though perhaps bytes before it are still unread.
pub(super) const HUNG_UP: u16 = 1 << 3;
/// In the list of connections to receive from without an event from epoll.
pub(super) const READY_LISTED: u16 = 1 << 4;
/// `Eof` was reported.
pub(super) const EOF: u16 = 1 << 5;
/// A send is in flight: the socket's buffer is full.
pub(super) const BLOCKED: u16 = 1 << 6;
/// Nothing more is received: the connection is being closed, perhaps after a last send.
pub(super) const CLOSING: u16 = 1 << 7;
/// In the list of connections with something to report.
pub(super) const REPORT_LISTED: u16 = 1 << 8;
/// `Progress` is to be reported.
pub(super) const PROGRESSED: u16 = 1 << 9;
/// `Sent` is to be reported.
pub(super) const SENT: u16 = 1 << 10;
/// `HungUp` was reported.
pub(super) const HANG_UP_TOLD: u16 = 1 << 11;

/// One connection. Kept to one cache line.
pub(super) struct Slot {
    /// −1 once closed; the slot is freed when that has been reported.
    pub(super) fd: RawFd,
    generation: u32,
    state: u16,
    pub(super) reading: Reading,
    pub(super) then: Then,
    /// How many bytes of the send in flight the kernel has taken.
    pub(super) sent: usize,
    pub(super) bytes: Vec<u8>,
    /// Only for connections that ever sent a shared body.
    tail: Option<Box<Bytes>>,
}

impl Slot {
    #[inline]
    pub(super) fn is(&self, any: u16) -> bool {
        self.state & any != 0
    }

    #[inline]
    pub(super) fn set(&mut self, bits: u16) {
        self.state |= bits;
    }

    #[inline]
    pub(super) fn clear(&mut self, bits: u16) {
        self.state &= !bits;
    }

    /// Takes what has arrived, if there may be something: see `Driver::take`.
    ///
    /// # Errors
    /// The connection has failed.
    pub(super) fn take(&mut self, into: &mut Vec<u8>, max: u64) -> io::Result<usize> {
        let is_open = self.fd != -1 && !self.is(CLOSING | EOF);
        if !is_open || !self.is(READABLE) || self.reading != Reading::Stop {
            return Ok(0);
        }
        let taken = take(self.fd, into, max)?;
        // What comes later has an edge to come. A FIN behind these bytes has had its own.
        if taken.len > 0 && taken.is_all && !self.is(HUNG_UP) {
            self.clear(READABLE);
        }
        Ok(taken.len)
    }

    #[inline]
    pub(super) fn begin_send(&mut self, output: Output, then: Then) {
        self.bytes = output.bytes;
        self.then = then;
        self.sent = 0;
        if !output.tail.is_empty() {
            **self.tail.get_or_insert_default() = output.tail;
        }
    }

    /// Ends the send in flight. Returns its buffer, emptied.
    #[inline]
    pub(super) fn end_send(&mut self) -> Vec<u8> {
        if let Some(tail) = &mut self.tail {
            **tail = Bytes::new();
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        bytes
    }

    /// The rest of the send in flight, in its two parts.
    #[inline]
    pub(super) fn rest(&self) -> [&[u8]; 2] {
        let first = self.sent.min(self.bytes.len());
        let tail = self.tail.as_ref().map_or(&[][..], |tail| &tail[self.sent - first..]);
        [&self.bytes[first..], tail]
    }
}

/// All connections of a driver, by a dense index.
pub(super) struct Slots {
    entries: Vec<Slot>,
    /// The slot freed last is first: its memory is most likely still in the cache.
    free: Vec<u32>,
}

impl Slots {
    pub(super) fn new() -> Slots {
        Slots { entries: Vec::new(), free: Vec::new() }
    }

    /// How many connections there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, fd: RawFd) -> u32 {
        if let Some(index) = self.free.pop() {
            self.entries[index as usize].fd = fd;
            return index;
        }
        let index = u32::try_from(self.entries.len()).expect("fewer connections than descriptors");
        self.entries.push(Slot {
            fd,
            generation: 0,
            state: 0,
            reading: Reading::Once,
            then: Then::Keep,
            sent: 0,
            bytes: Vec::new(),
            tail: None,
        });
        index
    }

    /// Frees the slot of a closed connection.
    pub(super) fn remove(&mut self, index: u32) {
        let slot = &mut self.entries[index as usize];
        debug_assert!(slot.fd == -1 && !slot.is(REPORT_LISTED));
        slot.generation = slot.generation.wrapping_add(1);
        slot.state = 0;
        slot.reading = Reading::Once;
        slot.bytes = Vec::new();
        slot.tail = None;
        self.free.push(index);
    }

    #[inline]
    pub(super) fn at(&mut self, index: u32) -> &mut Slot {
        &mut self.entries[index as usize]
    }

    #[inline]
    pub(super) fn token(&self, index: u32) -> Token {
        Token(u64::from(self.entries[index as usize].generation) << 32 | u64::from(index))
    }

    /// The connection that registered `token`, unless it is gone.
    #[inline]
    pub(super) fn find(&mut self, token: Token) -> Option<&mut Slot> {
        let slot = self.entries.get_mut(token.index() as usize)?;
        (u64::from(slot.generation) == token.0 >> 32).then_some(slot)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.entries.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a slot stays within one cache line, which is what it costs per event.
    #[test]
    fn slot_size() {
        assert!(size_of::<Slot>() <= 64, "{}", size_of::<Slot>());
    }

    /// Purpose: readiness of an old connection does not find the one that got its slot.
    #[test]
    fn generations_tell_connections_apart() {
        let mut slots = Slots::new();
        let index = slots.insert(7);
        let old = slots.token(index);
        slots.at(index).fd = -1;
        slots.remove(index);
        assert_eq!(slots.insert(8), index);
        assert!(slots.find(old).is_none());
        assert_eq!(slots.find(slots.token(index)).map(|slot| slot.fd), Some(8));
    }

    /// Purpose: at every offset, the parts left to send are exactly the bytes not yet taken.
    #[test]
    fn rest_of_a_send_in_two_parts() {
        let whole = b"headtail!";
        let mut slots = Slots::new();
        let index = slots.insert(7);
        let slot = slots.at(index);
        let output = Output { bytes: b"head".to_vec(), tail: Bytes::from_static(b"tail!") };
        slot.begin_send(output, Then::Keep);
        for sent in 0..=whole.len() {
            slot.sent = sent;
            assert_eq!(slot.rest().concat(), whole[sent..]);
        }
    }
}
