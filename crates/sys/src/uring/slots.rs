//! The operations in flight for each connection, and how a completion finds its connection.

use std::io;
use std::os::fd::RawFd;

use bytes::Bytes;
use highwater_core::driver::{ListenerId, Output, Reading, Then};

use crate::take::take;

/// The largest send that waits for all its bytes to be taken, in bytes.
///
/// Such a send never reports progress. So it must be so small that a peer that cannot take it
/// within a write timeout may be disconnected.
pub(super) const WHOLE_SEND_MAX: usize = 64 * 1024;

/// The largest single send operation, in bytes; more is sent in several. The field has 32 bits.
const SEND_MAX: usize = 1 << 30;

/// The name of an operation in flight: what it does (8 bits), the generation of the connection it
/// belongs to (24 bits), and that connection's slot (32 bits).
///
/// A slot's generation changes when it is freed, so an operation of an old connection can neither
/// be mistaken for, nor cancel, one of its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token(pub(super) u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Operation {
    Receive = 1,
    Send = 2,
    Close = 3,
    Accept = 4,
    Wake = 5,
    Cancel = 6,
    Alarm = 7,
    Watch = 8,
}

impl Token {
    pub(super) const WAKE: Token = Token::new(Operation::Wake, 0, 0);
    pub(super) const CANCEL: Token = Token::new(Operation::Cancel, 0, 0);
    pub(super) const ALARM: Token = Token::new(Operation::Alarm, 0, 0);

    #[inline]
    const fn new(operation: Operation, generation: u32, index: u32) -> Token {
        Token((operation as u64) << 56 | (generation as u64) << 32 | index as u64)
    }

    /// Accepting at a listener.
    pub(super) const fn accept(listener: ListenerId) -> Token {
        Token::new(Operation::Accept, 0, listener.0 as u32)
    }

    #[inline]
    pub(super) fn operation(self) -> Operation {
        match (self.0 >> 56) as u8 {
            1 => Operation::Receive,
            2 => Operation::Send,
            3 => Operation::Close,
            4 => Operation::Accept,
            5 => Operation::Wake,
            6 => Operation::Cancel,
            7 => Operation::Alarm,
            8 => Operation::Watch,
            other => unreachable!("the kernel returns our own tokens, not {other}"),
        }
    }

    #[inline]
    fn generation(self) -> u32 {
        (self.0 >> 32) as u32 & GENERATION_MASK
    }

    #[inline]
    pub(super) fn index(self) -> u32 {
        self.0 as u32
    }
}

const GENERATION_MASK: u32 = (1 << 24) - 1;

/// A receive is in flight.
pub(super) const RECEIVING: u16 = 1 << 0;
/// ... and is being cancelled.
pub(super) const CANCELLING: u16 = 1 << 1;
/// A send is in flight.
pub(super) const SENDING: u16 = 1 << 2;
/// A close is in flight, on its own or linked behind the send.
pub(super) const CLOSE_QUEUED: u16 = 1 << 3;
/// The peer has finished sending.
pub(super) const EOF: u16 = 1 << 4;
/// The receive found no buffer; it is armed again when some have been given back.
pub(super) const STARVED: u16 = 1 << 5;
/// Nothing more is received: the connection is being closed, perhaps after a last send.
pub(super) const CLOSING: u16 = 1 << 6;
/// Nothing more is sent either: closing was commanded, or the connection failed.
pub(super) const ABANDONED: u16 = 1 << 7;
/// Close with a reset.
pub(super) const RESET: u16 = 1 << 8;
/// A poll for the end of the connection is in flight.
pub(super) const WATCHING: u16 = 1 << 9;
/// ... and is being cancelled.
pub(super) const UNWATCHING: u16 = 1 << 10;
/// The peer has finished sending, though perhaps bytes before that are still unread; reported.
pub(super) const HUNG_UP: u16 = 1 << 11;
/// What is in flight as a send stands for a system call (`sealed.rs`).
pub(super) const DIRECT: u16 = 1 << 12;
/// The last delivery filled its buffer: more may have arrived.
pub(super) const MORE: u16 = 1 << 13;

/// A connection over a Unix socket. Receives take one delivery each: since Linux 6.17, one that stays armed misses a FIN
/// that has come before the last bytes were taken, and so never completes.
pub(super) const UNIX: u16 = 1 << 14;

/// While any of these is in flight, the slot is not freed.
pub(super) const IN_FLIGHT: u16 = RECEIVING | SENDING | CLOSE_QUEUED | WATCHING;

/// One connection. Kept to one cache line.
pub(super) struct Slot {
    /// −1 once closed.
    pub(super) fd: RawFd,
    generation: u32,
    state: u16,
    pub(super) reading: Reading,
    pub(super) then: Then,
    /// How many bytes of the send in flight the kernel has taken.
    pub(super) sent: usize,
    /// The bytes being sent: the kernel reads them until the send's completion is reaped.
    pub(super) bytes: Vec<u8>,
    /// Only for connections that ever sent a shared body.
    message: Option<Box<Message>>,
}

/// A send in two parts, in the kernel's format. Boxed, because the kernel gets its address while
/// slots may move.
struct Message {
    tail: Bytes,
    header: libc::msghdr,
    parts: [libc::iovec; 2],
}

/// What to submit for a send in flight.
pub(super) enum Rest {
    /// These bytes; and whether the send completes only when all are taken.
    Plain { bytes: *const u8, len: u32, all: bool },
    /// Both parts, described by this header.
    Parts(*const libc::msghdr),
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

    /// Takes what has arrived behind the last delivery, if there is something: see `Driver::take`. While a receive is in
    /// flight there may be earlier bytes.
    ///
    /// # Errors
    /// The connection has failed.
    pub(super) fn take(&mut self, into: &mut Vec<u8>, max: u64) -> io::Result<usize> {
        if !self.is(MORE) || self.is(RECEIVING | CLOSING | EOF) || self.reading != Reading::Stop {
            return Ok(0);
        }
        let taken = take(self.fd, into, max)?;
        if taken.is_all {
            self.clear(MORE);
        }
        Ok(taken.len)
    }

    #[inline]
    pub(super) fn begin_send(&mut self, output: Output, then: Then) {
        self.bytes = output.bytes;
        self.then = then;
        self.sent = 0;
        if !output.tail.is_empty() {
            self.message.get_or_insert_with(|| Box::new(Message::new())).tail = output.tail;
        }
    }

    /// Ends the send in flight. Returns its buffer, emptied.
    #[inline]
    pub(super) fn end_send(&mut self) -> Vec<u8> {
        if let Some(message) = &mut self.message {
            message.tail = Bytes::new();
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        bytes
    }

    #[inline]
    fn tail_len(&self) -> usize {
        self.message.as_ref().map_or(0, |message| message.tail.len())
    }

    /// Whether the kernel has taken the whole send.
    #[inline]
    pub(super) fn is_sent(&self) -> bool {
        self.sent == self.bytes.len() + self.tail_len()
    }

    /// The unsent rest in its two parts, if there is a shared body.
    #[inline]
    pub(super) fn shared_rest(&self) -> Option<[&[u8]; 2]> {
        let tail = &self.message.as_ref()?.tail;
        let first = self.sent.min(self.bytes.len());
        Some([&self.bytes[first..], &tail[self.sent - first..]])
    }

    /// The unsent rest. Valid until `end_send`.
    #[inline]
    pub(super) fn rest(&mut self) -> Rest {
        match &mut self.message {
            Some(message) if !message.tail.is_empty() => {
                Rest::Parts(message.rest(&self.bytes, self.sent))
            }
            _ => {
                let rest = &self.bytes[self.sent..];
                let len = rest.len().min(SEND_MAX) as u32;
                Rest::Plain { bytes: rest.as_ptr(), len, all: rest.len() <= WHOLE_SEND_MAX }
            }
        }
    }
}

impl Message {
    fn new() -> Message {
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Message {
            tail: Bytes::new(),
            // SAFETY: `msghdr` is integers and pointers, for which all zero bits are valid.
            header: unsafe { std::mem::zeroed() },
            parts: [empty; 2],
        }
    }

    fn rest(&mut self, bytes: &[u8], sent: usize) -> *const libc::msghdr {
        let part = |part: &[u8]| libc::iovec {
            iov_base: part.as_ptr().cast_mut().cast(),
            iov_len: part.len(),
        };
        let first = sent.min(bytes.len());
        self.parts = [part(&bytes[first..]), part(&self.tail[sent - first..])];
        // The kernel accepts an empty part, but need not look at it.
        let skip = usize::from(first == bytes.len());
        self.header.msg_iov = self.parts[skip..].as_mut_ptr();
        self.header.msg_iovlen = self.parts.len() - skip;
        &raw const self.header
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
            message: None,
        });
        index
    }

    /// Frees a slot whose descriptor is closed and which has nothing in flight.
    pub(super) fn remove(&mut self, index: u32) {
        let slot = &mut self.entries[index as usize];
        debug_assert!(slot.fd == -1 && !slot.is(IN_FLIGHT));
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        slot.state = 0;
        slot.reading = Reading::Once;
        slot.bytes = Vec::new();
        slot.message = None;
        self.free.push(index);
    }

    #[inline]
    pub(super) fn at(&mut self, index: u32) -> &mut Slot {
        &mut self.entries[index as usize]
    }

    /// The connection that started the operation called `token`, unless it is gone.
    #[inline]
    pub(super) fn find(&mut self, token: Token) -> Option<&mut Slot> {
        let slot = self.entries.get_mut(token.index() as usize)?;
        (slot.generation == token.generation()).then_some(slot)
    }

    /// The name of an operation of the connection at `index`.
    #[inline]
    pub(super) fn token(&self, operation: Operation, index: u32) -> Token {
        Token::new(operation, self.entries[index as usize].generation, index)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.entries.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a slot stays within one cache line, which is what it costs per completion.
    #[test]
    fn slot_size() {
        assert!(size_of::<Slot>() <= 64, "{}", size_of::<Slot>());
    }

    /// Purpose: an operation of an old connection does not find the one that got its slot.
    #[test]
    fn generations_tell_connections_apart() {
        let mut slots = Slots::new();
        let index = slots.insert(7);
        let old = slots.token(Operation::Receive, index);
        assert_eq!((old.operation(), old.index()), (Operation::Receive, index));
        slots.at(index).fd = -1;
        slots.remove(index);
        assert_eq!(slots.insert(8), index);
        assert!(slots.find(old).is_none());
        let new = slots.token(Operation::Receive, index);
        assert_eq!(slots.find(new).map(|slot| slot.fd), Some(8));
    }

    /// Purpose: the generation wraps within its 24 bits without touching the operation.
    #[test]
    fn generation_wraps() {
        let token = Token::new(Operation::Send, GENERATION_MASK, u32::MAX);
        assert_eq!(token.operation(), Operation::Send);
        assert_eq!((token.generation(), token.index()), (GENERATION_MASK, u32::MAX));
    }

    /// Purpose: at every offset, the parts left to send are exactly the bytes not yet taken.
    #[test]
    fn rest_of_a_send_in_two_parts() {
        let whole = b"headtail!";
        for sent in 0..whole.len() {
            let mut slots = Slots::new();
            let index = slots.insert(7);
            let slot = slots.at(index);
            let output = Output { bytes: b"head".to_vec(), tail: Bytes::from_static(b"tail!") };
            slot.begin_send(output, Then::Keep);
            slot.sent = sent;
            let Rest::Parts(header) = slot.rest() else { panic!("a tail needs two parts") };
            // SAFETY: the header points into the slot, which lives.
            let header = unsafe { &*header };
            // SAFETY: so do its parts.
            let parts = unsafe { std::slice::from_raw_parts(header.msg_iov, header.msg_iovlen) };
            let mut left = Vec::<u8>::new();
            for part in parts {
                // SAFETY: and what they point to.
                let bytes =
                    unsafe { std::slice::from_raw_parts(part.iov_base.cast(), part.iov_len) };
                left.extend_from_slice(bytes);
            }
            assert_eq!(left, whole[sent..]);
        }
    }
}
