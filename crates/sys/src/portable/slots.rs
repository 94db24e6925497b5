//! The pending state of each connection.

use bytes::Bytes;
use highwater_core::driver::{Output, Reading, Then};

use super::selector::News;
use super::stream::Stream;

/// There may be something to receive.
pub(super) const READABLE: u16 = 1 << 0;
/// There may be room to send.
pub(super) const WRITABLE: u16 = 1 << 1;
/// The peer's FIN has arrived, though perhaps bytes before it are still unread.
pub(super) const HUNG_UP: u16 = 1 << 2;
/// ... and that is to be looked at.
pub(super) const HUNG_UP_NEWS: u16 = 1 << 3;
/// The connection may have failed, which is to be looked at.
pub(super) const FAILURE: u16 = 1 << 4;
/// In the list of connections to look at without an event.
pub(super) const READY_LISTED: u16 = 1 << 5;
/// `Eof` was reported.
pub(super) const EOF: u16 = 1 << 6;
/// A send is in flight: the socket's buffer is full.
pub(super) const BLOCKED: u16 = 1 << 7;
/// Nothing more is received: the connection is being closed, perhaps after a last send.
pub(super) const CLOSING: u16 = 1 << 8;
/// In the list of connections with something to report.
pub(super) const REPORT_LISTED: u16 = 1 << 9;
/// `Progress` is to be reported.
pub(super) const PROGRESSED: u16 = 1 << 10;
/// `Sent` is to be reported.
pub(super) const SENT: u16 = 1 << 11;
/// `HungUp` was reported.
pub(super) const HANG_UP_TOLD: u16 = 1 << 12;

/// One connection.
pub(super) struct Slot {
    /// `None` once closed; the slot is freed when that has been reported.
    pub(super) stream: Option<Stream>,
    state: u16,
    pub(super) reading: Reading,
    pub(super) then: Then,
    /// How many bytes of the send in flight the system has taken.
    pub(super) sent: usize,
    output: Output,
}

impl Slot {
    pub(super) fn is(&self, any: u16) -> bool {
        self.state & any != 0
    }

    pub(super) fn set(&mut self, bits: u16) {
        self.state |= bits;
    }

    pub(super) fn clear(&mut self, bits: u16) {
        self.state &= !bits;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.stream.is_none()
    }

    /// Notes what has happened to the socket.
    pub(super) fn note(&mut self, news: News) {
        for (is_so, bits) in [
            (news.is_readable, READABLE),
            (news.is_writable, WRITABLE),
            (news.is_hung_up, HUNG_UP | HUNG_UP_NEWS),
            // A send that waits for room gets the error.
            (news.is_failure, FAILURE | WRITABLE),
        ] {
            self.set(if is_so { bits } else { 0 });
        }
    }

    /// Whether there is something to do for it now.
    pub(super) fn is_ready(&self) -> bool {
        let receives = self.reading != Reading::Stop && !self.is(EOF | CLOSING);
        let sends = self.is(BLOCKED) && self.is(WRITABLE);
        !self.is_closed()
            && (self.is(HUNG_UP_NEWS | FAILURE) || sends || receives && self.is(READABLE))
    }

    pub(super) fn begin_send(&mut self, output: Output, then: Then) {
        self.output = output;
        self.then = then;
        self.sent = 0;
    }

    /// Ends the send in flight. Returns its buffer, emptied.
    pub(super) fn end_send(&mut self) -> Vec<u8> {
        let Output { mut bytes, .. } = std::mem::take(&mut self.output);
        bytes.clear();
        bytes
    }

    /// Sends the rest of the send in flight, or as much of it as there is room for. Returns how much that was, and
    /// whether it is all. `Ok(0)` if there is no room.
    pub(super) fn send_rest(&mut self) -> std::io::Result<(usize, bool)> {
        let Some(stream) = &mut self.stream else { return Ok((0, false)) };
        let rest = rest(&self.output, self.sent);
        let len = rest[0].len() + rest[1].len();
        let taken = if len == 0 { 0 } else { stream.send(rest)? };
        self.sent += taken;
        Ok((taken, taken == len))
    }
}

/// The parts of `output` behind its first `sent` bytes.
fn rest(output: &Output, sent: usize) -> [&[u8]; 2] {
    let first = sent.min(output.bytes.len());
    [&output.bytes[first..], &output.tail[sent - first..]]
}

/// All connections of a driver, by a dense index.
#[derive(Default)]
pub(super) struct Slots {
    entries: Vec<Slot>,
    free: Vec<u32>,
}

impl Slots {
    /// How many connections there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// The next `insert` returns this.
    pub(super) fn next(&self) -> u32 {
        self.free.last().copied().unwrap_or_else(|| {
            u32::try_from(self.entries.len()).expect("fewer connections than descriptors")
        })
    }

    pub(super) fn insert(&mut self, stream: Stream) -> u32 {
        let index = self.next();
        let slot = Slot {
            stream: Some(stream),
            state: 0,
            reading: Reading::Once,
            then: Then::Keep,
            sent: 0,
            output: Output { bytes: Vec::new(), tail: Bytes::new() },
        };
        match self.free.pop() {
            Some(_) => self.entries[index as usize] = slot,
            None => self.entries.push(slot),
        }
        index
    }

    /// Frees the slot of a closed connection. It may still be in the list of ready ones, which is harmless: whoever
    /// works through that list asks the slot what there is to do.
    pub(super) fn remove(&mut self, index: u32) {
        let slot = &mut self.entries[index as usize];
        debug_assert!(slot.is_closed() && !slot.is(REPORT_LISTED));
        slot.end_send();
        self.free.push(index);
    }

    pub(super) fn at(&mut self, index: u32) -> &mut Slot {
        &mut self.entries[index as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: at every offset, the parts left to send are exactly the bytes not yet taken.
    #[test]
    fn rest_of_a_send_in_two_parts() {
        let whole = b"headtail!";
        let output = Output { bytes: b"head".to_vec(), tail: Bytes::from_static(b"tail!") };
        for sent in 0..=whole.len() {
            assert_eq!(rest(&output, sent).concat(), whole[sent..]);
        }
    }
}
