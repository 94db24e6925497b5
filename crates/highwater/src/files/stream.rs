//! Parts of a file as streamed content, read off the worker, a piece at a time.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::{Range, RangeInclusive};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use tokio::task::JoinHandle;

/// How much is read at once. Two pieces per download are in memory: one that is sent, and the next. A client that is slower than
/// the disk gets small pieces, because there may be many of them; one that waits for the disk gets larger ones, since each
/// costs two changes of thread.
const PIECE_BYTES: RangeInclusive<u64> = 64 * 1024..=256 * 1024;

/// A part of the content.
#[derive(Debug)]
pub(super) enum Part {
    Bytes(Bytes),
    /// These bytes of the file.
    File(Range<u64>),
}

impl Part {
    fn len(&self) -> u64 {
        match self {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::File(range) => range.end - range.start,
        }
    }
}

/// The length of all parts together.
pub(super) fn length(parts: &[Part]) -> u64 {
    parts.iter().map(Part::len).sum()
}

/// Parts of a file, one after the other. If the file has become shorter, it ends with an error.
#[derive(Debug)]
pub(super) struct FileStream {
    file: Arc<File>,
    parts: VecDeque<Part>,
    /// The next piece.
    reading: Option<JoinHandle<io::Result<Vec<u8>>>>,
    /// Most bytes of a piece.
    piece_bytes: u64,
    /// The client has waited for the next piece.
    is_awaited: bool,
}

impl FileStream {
    pub(super) fn new(file: File, parts: Vec<Part>) -> Self {
        FileStream {
            file: Arc::new(file),
            parts: parts.into(),
            reading: None,
            piece_bytes: *PIECE_BYTES.start(),
            is_awaited: false,
        }
    }

    /// Begins to read the next piece, if the next part is of the file.
    fn read_ahead(&mut self) {
        let Some(Part::File(range)) = self.parts.front_mut() else { return };
        let (at, end) = (range.start, range.end.min(range.start + self.piece_bytes));
        range.start = end;
        if range.start == range.end {
            self.parts.pop_front();
        }
        let file = Arc::clone(&self.file);
        self.reading = Some(tokio::task::spawn_blocking(move || read(&file, at, end - at)));
    }
}

/// Reads `len` bytes from `at` on. Moves the file's position, so one call at a time.
fn read(mut file: &File, at: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut piece = Vec::with_capacity(len as usize);
    file.seek(SeekFrom::Start(at))?;
    // Unlike `read_exact_at`, it needs no memory that was set to zero before.
    match file.take(len).read_to_end(&mut piece)? as u64 {
        read if read == len => Ok(piece),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

impl Stream for FileStream {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.reading.is_none() {
            match self.parts.pop_front_if(|part| matches!(part, Part::Bytes(_))) {
                Some(Part::Bytes(bytes)) => {
                    self.read_ahead();
                    return Poll::Ready(Some(Ok(bytes)));
                }
                _ => self.read_ahead(),
            }
        }
        let Some(reading) = &mut self.reading else { return Poll::Ready(None) };
        let Poll::Ready(read) = Pin::new(reading).poll(context) else {
            self.is_awaited = true;
            return Poll::Pending;
        };
        self.reading = None;
        self.piece_bytes = match std::mem::take(&mut self.is_awaited) {
            true => (self.piece_bytes * 2).min(*PIECE_BYTES.end()),
            false => *PIECE_BYTES.start(),
        };
        let piece = read.map_err(io::Error::other).flatten();
        if piece.is_ok() {
            self.read_ahead();
        }
        Poll::Ready(Some(piece.map(Bytes::from)))
    }
}
