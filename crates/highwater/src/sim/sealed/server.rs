//! The server's side of the simulator's seal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use highwater_core::protocol::Versions;

use crate::metrics::HandshakeFailure;
use crate::server::{Opened, Seal, Sealer};

const HELLO: u8 = 1;
const FINISHED: u8 = 2;
const WELCOME: u8 = 3;
const DATA: u8 = 4;
const ALERT: u8 = 5;
const CLOSE: u8 = 6;

/// Bytes before the payload, and of the checksum behind it.
const HEADER: usize = 3;
const CHECKSUM: usize = 4;

/// The most payload of a record.
const PAYLOAD_MAX: usize = 1500;

/// Seals the connections of a run.
#[derive(Debug, Default)]
pub(in crate::sim) struct ToySealer {
    accepted: AtomicU32,
    begun: Arc<AtomicU32>,
}

impl ToySealer {
    /// How many handshakes were begun since the last call.
    pub(in crate::sim) fn take_begun(&self) -> u32 {
        self.begun.swap(0, Relaxed)
    }
}

impl Sealer for ToySealer {
    fn accept(&self) -> Box<dyn Seal> {
        let number = self.accepted.fetch_add(1, Relaxed);
        Box::new(ToySeal {
            state: State::Hello,
            nonce: u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            key: None,
            read: 0,
            written: 0,
            partial: Vec::new(),
            used: 0,
            own: Vec::new(),
            begun: Arc::clone(&self.begun),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The client's hello has not come.
    Hello,
    /// It has; the server's is not made.
    Greeted,
    /// The client's proof is awaited.
    Hellos,
    Open,
    /// Nothing more is read.
    Deaf,
}

#[derive(Debug)]
struct ToySeal {
    state: State,
    nonce: u64,
    /// By which payload is enciphered, once both nonces are known.
    key: Option<u64>,
    /// Records read, and written.
    read: u32,
    written: u32,
    /// Records that have not come as a whole, with `used` bytes in front of them that were handed out.
    partial: Vec<u8>,
    used: usize,
    own: Vec<u8>,
    begun: Arc<AtomicU32>,
}

/// What a payload says, once its record is checked.
enum Found {
    Nothing,
    Plain,
    Opened(Opened<'static>),
}

impl ToySeal {
    /// The whole length of the record that begins with `bytes`, or of as much as is needed to know it.
    fn record_len(bytes: &[u8]) -> usize {
        match bytes {
            [_, high, low, ..] => {
                HEADER + usize::from(u16::from_be_bytes([*high, *low])) + CHECKSUM
            }
            _ => HEADER,
        }
    }

    /// Moves bytes from `input` until there is a whole record at the front of what is kept. Returns its length.
    fn complete(&mut self, input: &mut &mut [u8]) -> Option<usize> {
        loop {
            let needed = ToySeal::record_len(&self.partial);
            if self.partial.len() >= needed && needed > HEADER {
                return Some(needed);
            }
            let take = (needed.max(HEADER) - self.partial.len()).min(input.len());
            if take == 0 {
                return None;
            }
            let (front, rest) = std::mem::take(input).split_at_mut(take);
            self.partial.extend_from_slice(front);
            *input = rest;
        }
    }

    /// Checks and deciphers the record, in place.
    fn check(&mut self, record: &mut [u8]) -> Found {
        let (front, checksum) = record.split_at_mut(record.len() - CHECKSUM);
        let (kind, number) = (front[0], self.read);
        self.read += 1;
        if sum(number, kind, &front[HEADER..]).to_be_bytes() != checksum {
            return self.fail(HandshakeFailure::Malformed);
        }
        let payload = &mut front[HEADER..];
        if let Some(key) = self.key {
            encipher(key, number, payload);
        }
        match (self.state, kind) {
            (State::Hello, HELLO) if payload.len() == 8 => {
                let theirs = u64::from_be_bytes(payload.try_into().expect("its length is 8"));
                self.key = Some(theirs); // Only a half of it yet.
                self.state = State::Greeted;
                Found::Opened(Opened::Hello)
            }
            (State::Hellos, FINISHED) if *payload == proof(self.key.unwrap_or(0)) => {
                self.state = State::Open;
                self.put_own(WELCOME, b"");
                Found::Opened(Opened::Established)
            }
            (State::Open, DATA) if payload.is_empty() => Found::Nothing,
            (State::Open, DATA) => Found::Plain,
            (State::Open, CLOSE) => {
                self.state = State::Deaf;
                Found::Opened(Opened::Closed)
            }
            (_, ALERT) => self.fail(HandshakeFailure::Alert),
            _ => self.fail(HandshakeFailure::Malformed),
        }
    }

    fn fail(&mut self, failure: HandshakeFailure) -> Found {
        self.state = State::Deaf;
        self.put_own(ALERT, b"?");
        Found::Opened(Opened::Failed(failure))
    }

    fn put_own(&mut self, kind: u8, payload: &[u8]) {
        let mut own = std::mem::take(&mut self.own);
        self.put(kind, payload, &mut own);
        self.own = own;
    }

    fn put(&mut self, kind: u8, payload: &[u8], into: &mut Vec<u8>) {
        into.push(kind);
        into.extend((payload.len() as u16).to_be_bytes());
        let from = into.len();
        into.extend_from_slice(payload);
        if let Some(key) = self.key.filter(|_| kind != HELLO && self.state != State::Greeted) {
            encipher(key, self.written, &mut into[from..]);
        }
        let checksum = sum(self.written, kind, &into[from..]);
        into.extend(checksum.to_be_bytes());
        self.written += 1;
    }
}

impl Seal for ToySeal {
    /// It negotiates none.
    fn versions(&self) -> Versions {
        Versions::Both
    }

    fn open<'s, 'i: 's>(&'s mut self, input: &mut &'i mut [u8]) -> Opened<'s> {
        loop {
            self.partial.drain(..std::mem::take(&mut self.used));
            if self.partial.is_empty() {
                self.partial = Vec::new();
            }
            if self.state == State::Deaf {
                *input = &mut [];
                self.partial = Vec::new();
                return Opened::Wait;
            }
            let kind = self.partial.first().or(input.first());
            if kind.is_some_and(|kind| !(HELLO..=CLOSE).contains(kind))
                && let Found::Opened(opened) = self.fail(HandshakeFailure::Plain)
            {
                return opened;
            }
            let len = ToySeal::record_len(input);
            if self.partial.is_empty() && len > HEADER && input.len() >= len {
                let (record, rest) = std::mem::take(input).split_at_mut(len);
                *input = rest;
                match self.check(record) {
                    Found::Nothing => continue,
                    Found::Plain => return Opened::Plain(&record[HEADER..len - CHECKSUM]),
                    Found::Opened(opened) => return opened,
                }
            }
            let Some(len) = self.complete(input) else { return Opened::Wait };
            let mut partial = std::mem::take(&mut self.partial);
            let found = self.check(&mut partial[..len]);
            self.partial = partial;
            self.used = len;
            match found {
                Found::Nothing => {}
                Found::Plain => return Opened::Plain(&self.partial[HEADER..len - CHECKSUM]),
                Found::Opened(opened) => return opened,
            }
        }
    }

    fn keep(&mut self, input: &[u8]) {
        self.partial.extend_from_slice(input);
    }

    fn begin(&mut self) {
        assert_eq!(self.state, State::Greeted, "a handshake begins once, behind its hello");
        self.begun.fetch_add(1, Relaxed);
        let ours = self.nonce;
        self.put_own(HELLO, &ours.to_be_bytes());
        self.key = self.key.map(|theirs| theirs ^ ours.rotate_left(17));
        self.state = State::Hellos;
    }

    fn seal(&mut self, plain: &[u8], sealed: &mut Vec<u8>) {
        assert!(matches!(self.state, State::Open | State::Deaf), "plaintext before its time");
        for payload in plain.chunks(PAYLOAD_MAX) {
            self.put(DATA, payload, sealed);
        }
    }

    fn take_own(&mut self, sealed: &mut Vec<u8>) {
        sealed.append(&mut self.own);
        self.own = Vec::new();
    }

    fn close(&mut self, sealed: &mut Vec<u8>) {
        self.put(CLOSE, b"", sealed);
    }

    fn allocated(&self) -> usize {
        self.partial.capacity() + self.own.capacity()
    }
}

/// What the client proves the key by.
fn proof(key: u64) -> [u8; 8] {
    key.wrapping_mul(0xff51_afd7_ed55_8ccd).to_be_bytes()
}

fn encipher(key: u64, number: u32, payload: &mut [u8]) {
    let key = key.wrapping_add(u64::from(number)).wrapping_mul(0xc4ce_b9fe_1a85_ec53).to_be_bytes();
    for (byte, at) in payload.iter_mut().zip(0_usize..) {
        *byte ^= key[at % 8] ^ (at / 8) as u8;
    }
}

fn sum(number: u32, kind: u8, payload: &[u8]) -> u32 {
    let start = 0x811c_9dc5 ^ number.wrapping_mul(31) ^ u32::from(kind);
    payload.iter().fold(start, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
