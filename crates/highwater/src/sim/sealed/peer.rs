//! The client's side of the simulator's seal, in the network between a client and the worker.
//!
//! What a client says is sealed on its way to the worker; what the worker sends is opened twice: when it is commanded, for
//! the facts, and when the client reads it. The handshake goes on by itself.

use std::collections::VecDeque;

use highwater_core::prng::Prng;

/// The most plaintext in one record of a client.
const PLAINTEXT_MAX: u64 = 700;

/// How a client breaks the rules of the seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offence {
    /// It speaks its protocol at once.
    NoHello,
    /// It proves another key, or sends nothing behind its hello.
    WrongProof,
    NoProof,
    /// Its n-th record has a wrong checksum, or is not sealed.
    WrongSum(u32),
    Unsealed(u32),
}

/// How far the handshake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Silent,
    /// The client's hello is on its way.
    Greeting,
    /// The client may speak.
    Open,
    /// It has broken the rules, and waits for the alert.
    Broken,
}

/// A record on its way to the worker.
#[derive(Clone, Copy, Debug)]
struct SentRecord {
    /// Bytes of it that were not delivered.
    left: usize,
    plain: u64,
    kind: RecordKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordKind {
    Hello,
    Proof,
    Data,
    Close,
    /// It breaks the rules.
    Broken,
}

/// What a delivery to the worker has completed.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::sim) struct Delivered {
    /// Bytes of plaintext.
    pub(in crate::sim) plain: u64,
    pub(in crate::sim) has_established: bool,
    pub(in crate::sim) has_closed: bool,
}

/// The client's side of one sealed connection.
pub(in crate::sim) struct Peer {
    stage: Stage,
    offence: Option<Offence>,
    greets_at_once: bool,
    closes: bool,
    nonce: u64,
    key: u64,
    written: u32,
    prng: Prng,
    on_its_way: VecDeque<SentRecord>,
    /// The worker has got a part of a record; the whole hello; it has answered it; it has got the proof.
    is_inside: bool,
    was_greeted: bool,
    was_answered: bool,
    is_established: bool,
    /// A record that breaks the rules was delivered.
    was_offended: bool,
    /// What the worker has commanded, and what the client has read.
    commanded: Opener,
    read: Opener,
}

impl Peer {
    pub(in crate::sim) fn draw(prng: &mut Prng) -> Self {
        let offence = match prng.below(40) {
            0 => Some(Offence::NoHello),
            1 => Some(Offence::WrongProof),
            2 => Some(Offence::NoProof),
            3 => Some(Offence::WrongSum(2 + prng.below(6) as u32)),
            4 => Some(Offence::Unsealed(2 + prng.below(6) as u32)),
            _ => None,
        };
        Peer {
            stage: Stage::Silent,
            offence,
            greets_at_once: prng.chance(1, 2),
            closes: prng.chance(3, 4),
            nonce: prng.next_u64(),
            key: 0,
            written: 0,
            prng: Prng::from_seed(prng.next_u64()),
            on_its_way: VecDeque::new(),
            is_inside: false,
            was_greeted: false,
            was_answered: false,
            is_established: false,
            was_offended: false,
            commanded: Opener::default(),
            read: Opener::default(),
        }
    }

    // ---- what the client does

    /// It has connected.
    pub(in crate::sim) fn connect(&mut self, inbound: &mut VecDeque<u8>) {
        if self.greets_at_once {
            self.greet(inbound);
        }
    }

    /// Whether the client may speak.
    pub(in crate::sim) fn may_send(&self) -> bool {
        matches!(self.stage, Stage::Silent | Stage::Open)
    }

    /// Seals the beginning of `bytes`. Returns how much of it.
    pub(in crate::sim) fn send(&mut self, bytes: &[u8], inbound: &mut VecDeque<u8>) -> usize {
        if self.stage == Stage::Silent {
            self.greet(inbound);
        }
        if self.stage != Stage::Open || bytes.is_empty() {
            return 0;
        }
        let take = bytes.len().min(1 + self.prng.below(PLAINTEXT_MAX) as usize);
        match self.offence {
            Some(Offence::WrongSum(number)) if number == self.written => {
                self.put(DATA, &bytes[..take], RecordKind::Broken, inbound);
                if let Some(last) = inbound.back_mut() {
                    *last ^= 1;
                }
                self.stage = Stage::Broken;
                return 0;
            }
            Some(Offence::Unsealed(number)) if number == self.written => {
                self.put_bare(b"GET / HTTP/1.1\r\n", inbound);
                return 0;
            }
            _ => self.put(DATA, &bytes[..take], RecordKind::Data, inbound),
        }
        take
    }

    /// The client finishes: with the closing message, or without.
    pub(in crate::sim) fn finish(&mut self, inbound: &mut VecDeque<u8>) {
        if self.closes && self.stage == Stage::Open {
            self.put(CLOSE, b"", RecordKind::Close, inbound);
        }
    }

    /// The plaintext in `bytes`, which the client reads.
    pub(in crate::sim) fn read(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.read.feed(bytes, self.key)
    }

    /// The worker's part of the handshake has come, as far as it is in `wire`: the client goes on with it.
    pub(in crate::sim) fn receive(&mut self, wire: &mut VecDeque<u8>, inbound: &mut VecDeque<u8>) {
        if self.stage != Stage::Greeting || wire.front() != Some(&HELLO) || wire.len() < 15 {
            return;
        }
        let hello: Vec<u8> = wire.drain(..15).collect();
        self.read.skip(&hello);
        match self.offence {
            Some(Offence::NoProof) => self.stage = Stage::Broken,
            Some(Offence::WrongProof) => {
                self.put(FINISHED, b"not this", RecordKind::Broken, inbound);
                self.stage = Stage::Broken;
            }
            _ => {
                let proof = self.key.wrapping_mul(0xff51_afd7_ed55_8ccd).to_be_bytes();
                self.put(FINISHED, &proof, RecordKind::Proof, inbound);
                self.stage = Stage::Open;
            }
        }
    }

    fn greet(&mut self, inbound: &mut VecDeque<u8>) {
        if self.offence == Some(Offence::NoHello) {
            return self.put_bare(b"GET / HTTP/1.1\r\n", inbound);
        }
        self.stage = Stage::Greeting;
        self.put(HELLO, &self.nonce.to_be_bytes(), RecordKind::Hello, inbound);
    }

    /// Bytes that are no record: with the first, the rules are broken.
    fn put_bare(&mut self, bytes: &[u8], inbound: &mut VecDeque<u8>) {
        inbound.extend(bytes);
        for left in [1, bytes.len() - 1] {
            self.on_its_way.push_back(SentRecord { left, plain: 0, kind: RecordKind::Broken });
        }
        self.stage = Stage::Broken;
    }

    fn put(
        &mut self,
        kind: u8,
        payload: &[u8],
        record_kind: RecordKind,
        inbound: &mut VecDeque<u8>,
    ) {
        let mut record = vec![kind];
        record.extend((payload.len() as u16).to_be_bytes());
        record.extend_from_slice(payload);
        if kind != HELLO {
            encipher(self.key, self.written, &mut record[3..]);
        }
        let sum = sum(self.written, kind, &record[3..]);
        record.extend(sum.to_be_bytes());
        self.written += 1;
        let plain = if record_kind == RecordKind::Data { payload.len() as u64 } else { 0 };
        self.on_its_way.push_back(SentRecord { left: record.len(), plain, kind: record_kind });
        inbound.extend(record);
    }

    // ---- what the worker gets and commands

    /// The next `len` bytes were delivered to the worker.
    pub(in crate::sim) fn deliver(&mut self, mut len: usize) -> Delivered {
        let mut delivered = Delivered::default();
        while let Some(record) = self.on_its_way.front_mut().filter(|_| len > 0) {
            let take = record.left.min(len);
            record.left -= take;
            len -= take;
            self.is_inside = record.left > 0;
            if record.left > 0 {
                break;
            }
            delivered.plain += record.plain;
            match record.kind {
                RecordKind::Hello => self.was_greeted = true,
                RecordKind::Proof => {
                    self.is_established = true;
                    delivered.has_established = true;
                }
                RecordKind::Close => delivered.has_closed = true,
                RecordKind::Broken => self.was_offended = true,
                RecordKind::Data => {}
            }
            self.on_its_way.pop_front();
        }
        delivered
    }

    /// The plaintext of whole records within the first `len` bytes that are not delivered.
    pub(in crate::sim) fn plain_within(&self, mut len: usize) -> u64 {
        let whole =
            self.on_its_way.iter().take_while(|record| match len.checked_sub(record.left) {
                Some(rest) => {
                    len = rest;
                    true
                }
                None => false,
            });
        whole.map(|record| record.plain).sum()
    }

    /// The plaintext of a send that the worker commands, and whether it has answered the hello with it. `is_last`:
    /// nothing is to follow.
    ///
    /// # Panics
    /// The worker has broken the rules of the seal.
    pub(in crate::sim) fn command(&mut self, bytes: &[u8], is_last: bool) -> (Vec<u8>, bool) {
        assert!(
            bytes.is_empty() || !self.commanded.has_ended(),
            "sealed: something follows the closing message"
        );
        let was_offended = self.was_offended;
        let before = self.commanded.records;
        if let Some(hello) = self.commanded.next_hello(bytes) {
            self.key = self.nonce ^ hello.rotate_left(17);
        }
        let plain = self.commanded.feed(bytes, self.key);
        assert!(self.commanded.partial.is_empty(), "sealed: a record is sent in part");
        assert!(plain.is_empty() || !was_offended, "sealed: content behind a broken record");
        assert!(plain.is_empty() || self.is_established, "sealed: content before the handshake");
        if is_last {
            assert!(self.commanded.has_ended(), "sealed: an end without the closing message");
        }
        let answers = self.commanded.greeted && !self.was_answered;
        self.was_answered |= answers;
        debug_assert!(bytes.is_empty() || self.commanded.records > before);
        (plain, answers)
    }

    /// The worker closes without a reset.
    ///
    /// # Panics
    /// It has not said so.
    pub(in crate::sim) fn close(&self) {
        assert!(self.commanded.has_ended(), "sealed: a close without the closing message");
    }

    // ---- what the checks ask

    /// Whether the client broke the rules of the seal.
    pub(in crate::sim) fn is_broken(&self) -> bool {
        self.stage == Stage::Broken
    }

    /// Whether the worker has got a part of a record.
    pub(in crate::sim) fn is_inside_record(&self) -> bool {
        self.is_inside
    }

    /// Whether the worker's hello is awaited.
    pub(in crate::sim) fn is_greeting(&self) -> bool {
        self.stage == Stage::Greeting
    }

    /// Whether the handshake waits to be admitted.
    pub(in crate::sim) fn awaits_answer(&self) -> bool {
        self.was_greeted && !self.was_answered
    }

    /// Whether the worker has got all of the client's handshake.
    pub(in crate::sim) fn is_established(&self) -> bool {
        self.is_established
    }
}

const HELLO: u8 = 1;
const FINISHED: u8 = 2;
const WELCOME: u8 = 3;
const DATA: u8 = 4;
const ALERT: u8 = 5;
const CLOSE: u8 = 6;

/// Reads the worker's records.
#[derive(Default)]
struct Opener {
    partial: Vec<u8>,
    records: u32,
    greeted: bool,
    last: Option<u8>,
}

impl Opener {
    fn has_ended(&self) -> bool {
        matches!(self.last, Some(ALERT | CLOSE))
    }

    /// The nonce, if the hello comes next.
    fn next_hello(&self, bytes: &[u8]) -> Option<u64> {
        let is_first = self.records == 0 && self.partial.is_empty();
        let nonce = bytes.get(3..11).filter(|_| is_first && bytes[0] == HELLO)?;
        Some(u64::from_be_bytes(nonce.try_into().ok()?))
    }

    /// The hello was read by the handshake.
    fn skip(&mut self, hello: &[u8]) {
        assert_eq!(hello.len(), 15);
        self.records += 1;
    }

    /// The plaintext of the records that `bytes` complete.
    fn feed(&mut self, bytes: &[u8], key: u64) -> Vec<u8> {
        self.partial.extend_from_slice(bytes);
        let (mut plain, mut at) = (Vec::new(), 0);
        while let Some((&[kind, high, low], rest)) = self.partial[at..].split_first_chunk() {
            let len = usize::from(u16::from_be_bytes([high, low]));
            let Some((payload, sum_of)) = rest.get(..len + 4).map(|rest| rest.split_at(len)) else {
                break;
            };
            let known = [HELLO, WELCOME, DATA, ALERT, CLOSE].contains(&kind);
            assert!(known, "sealed: a record of kind {kind}");
            let right = sum(self.records, kind, payload).to_be_bytes();
            assert_eq!(sum_of, right, "sealed: record {} has a wrong checksum", self.records);
            assert!(!self.has_ended(), "sealed: a record behind the closing message");
            if kind == DATA {
                let mut payload = payload.to_vec();
                encipher(key, self.records, &mut payload);
                plain.extend(payload);
            }
            assert!(kind == DATA || kind == HELLO || len < 2, "sealed: {kind} has {len} bytes");
            self.greeted |= kind == HELLO;
            self.last = Some(kind);
            self.records += 1;
            at += 7 + len;
        }
        self.partial.drain(..at);
        plain
    }
}

fn encipher(key: u64, number: u32, payload: &mut [u8]) {
    let key = key.wrapping_add(u64::from(number)).wrapping_mul(0xc4ce_b9fe_1a85_ec53).to_be_bytes();
    for (at, byte) in payload.iter_mut().enumerate() {
        *byte ^= key[at % 8] ^ (at / 8) as u8;
    }
}

fn sum(number: u32, kind: u8, payload: &[u8]) -> u32 {
    let mut hash = 0x811c_9dc5 ^ number.wrapping_mul(31) ^ u32::from(kind);
    for byte in payload {
        hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    }
    hash
}
