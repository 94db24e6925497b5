//! A batch: the records appended together.

use highwater_core::frame::{self, BODY_BYTES_MAX};

/// A record to append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Which partition it belongs to. The journal stores it; all partitions share one order.
    pub partition: u32,
    /// When it was accepted, in microseconds since 1970.
    pub time_us: u64,
    /// Its identity: distinguishes a repetition from a second record.
    pub id: u128,
    /// Its content.
    pub body: &'a [u8],
}

/// Records that are appended with one receipt. They are framed here, on the thread that fills the batch.
///
/// The receipt covers all of them; a crash before it may keep some and lose others.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    frames: Vec<u8>,
    records: u64,
    newest_us: u64,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// An empty batch with memory for this many bytes of frames.
    pub fn with_capacity(bytes: usize) -> Batch {
        Batch { frames: Vec::with_capacity(bytes), ..Batch::default() }
    }

    /// Adds a record at the end.
    ///
    /// # Panics
    ///
    /// If its body is longer than the format's [`BODY_BYTES_MAX`], 64 MiB.
    pub fn push(&mut self, record: Record<'_>) {
        assert!(record.body.len() <= BODY_BYTES_MAX, "a body has at most {BODY_BYTES_MAX} bytes");
        let Record { partition, time_us, id, body } = record;
        frame::push(&mut self.frames, partition, time_us, id, body);
        self.records += 1;
        self.newest_us = self.newest_us.max(time_us);
    }

    /// How many records there are.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// How many bytes of a segment they take.
    pub fn bytes(&self) -> usize {
        self.frames.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Assigns offsets to the records.
    pub(crate) fn stamp(&mut self, salt: u64, offset: u64, mark: u64) {
        frame::stamp(&mut self.frames, salt, offset, mark);
    }

    /// The newest record's time.
    pub(crate) fn newest_us(&self) -> u64 {
        self.newest_us
    }

    /// How long each record's frame is.
    pub(crate) fn frame_lengths(&self) -> impl Iterator<Item = usize> {
        let mut rest = &self.frames[..];
        std::iter::from_fn(move || {
            let bytes = frame::stamped_bytes(rest)?;
            rest = rest.get(bytes..)?;
            Some(bytes)
        })
    }

    pub(crate) fn frames(&self) -> &[u8] {
        &self.frames
    }
}
