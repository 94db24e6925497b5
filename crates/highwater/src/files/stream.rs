//! Parts of a file as streamed content, read off the worker, a piece at a time.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use tokio::task::JoinHandle;

/// How much is read at once. Two pieces per download are in memory: one that is sent, and the next.
const PIECE_BYTES_MAX: u64 = 64 * 1024;

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
}

impl FileStream {
    pub(super) fn new(file: File, parts: Vec<Part>) -> Self {
        FileStream { file: Arc::new(file), parts: parts.into(), reading: None }
    }

    /// Begins to read the next piece, if the next part is of the file.
    fn read_ahead(&mut self) {
        let Some(Part::File(range)) = self.parts.front_mut() else { return };
        let (at, end) = (range.start, range.end.min(range.start + PIECE_BYTES_MAX));
        range.start = end;
        if range.start == range.end {
            self.parts.pop_front();
        }
        let file = Arc::clone(&self.file);
        self.reading = Some(tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; (end - at) as usize];
            file.read_exact_at(&mut piece, at).map(|()| piece)
        }));
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
        let read = ready!(Pin::new(reading).poll(context));
        self.reading = None;
        let piece = read.map_err(io::Error::other).flatten();
        if piece.is_ok() {
            self.read_ahead();
        }
        Poll::Ready(Some(piece.map(Bytes::from)))
    }
}
