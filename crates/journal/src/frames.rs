//! The frames of one file, read window by window.
//!
//! A page that the disk cannot read counts as zeros, so that the frames after it are still found: the checksums reveal
//! the loss, and `unreadable` says why.

use std::io;

use highwater_core::frame::{FRAMES_AT, HEADER_BYTES, Header, Kind, Step, Walk};

use crate::storage::File;

/// Bytes per read.
const WINDOW_BYTES: usize = 256 << 10;

/// The unit of retries when a window cannot be read.
const PAGE: u64 = 4096;

/// A cursor over a file's frames.
#[derive(Debug)]
pub(crate) struct Frames {
    file: Box<dyn File>,
    walk: Walk,
    /// The file is read up to here.
    limit: u64,
    window: Vec<u8>,
    window_at: u64,
    unreadable: Option<(u64, io::ErrorKind)>,
    /// The file is shorter than its limit was, and was read to its end.
    is_short: bool,
    /// The frame that was given last: its header, and where its body begins in the window.
    current: Option<(Header, usize)>,
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Next<'a> {
    /// An intact frame, at this place.
    Frame(u64, Header, &'a [u8]),
    /// Nothing is intact in this range; a frame follows.
    Hole(u64, u64),
    /// Nothing is intact from here to the limit.
    Tail(u64, u64),
    /// The limit is reached.
    End,
}

impl Frames {
    /// From position `at` up to `limit` of a file with `salt`, where no frame has an offset below `offset_min`.
    pub(crate) fn new(
        file: Box<dyn File>,
        salt: u64,
        at: u64,
        limit: u64,
        offset_min: u64,
    ) -> Frames {
        let walk = Walk::new(salt, at.max(FRAMES_AT as u64), offset_min);
        Frames {
            file,
            walk,
            limit,
            window: Vec::new(),
            window_at: 0,
            unreadable: None,
            is_short: false,
            current: None,
        }
    }

    pub(crate) fn at(&self) -> u64 {
        self.walk.at()
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// The file has grown.
    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// If the file was found to be shorter than it should be, skips the missing bytes up to `end`, and returns where they begin
    /// and end.
    pub(crate) fn pass_missing(&mut self, end: u64) -> Option<(u64, u64)> {
        let missing = std::mem::take(&mut self.is_short).then_some((self.walk.at(), end))?;
        self.walk.go_to(end);
        self.limit = end;
        Some(missing)
    }

    /// The current position, to return to.
    pub(crate) fn place(&self) -> Walk {
        self.walk.clone()
    }

    pub(crate) fn go_back(&mut self, place: Walk) {
        self.walk = place;
    }

    /// The first position that the disk could not read, and its error.
    pub(crate) fn unreadable(&self) -> Option<(u64, io::ErrorKind)> {
        self.unreadable
    }

    pub(crate) fn next(&mut self) -> io::Result<Next<'_>> {
        let mut needed = HEADER_BYTES;
        loop {
            let last = self.fill(needed)?;
            let from = (self.walk.at() - self.window_at) as usize;
            let (at, header) = match self.walk.next(&self.window[from..], last) {
                Step::Frame(at, header, _) => (at, header),
                Step::Hole(from, to) => return Ok(Next::Hole(from, to)),
                Step::Tail(from, to) => return Ok(Next::Tail(from, to)),
                Step::End => return Ok(Next::End),
                Step::More(bytes) => {
                    needed = bytes;
                    continue;
                }
            };
            let body = (at - self.window_at) as usize + HEADER_BYTES;
            self.current = Some((header, body));
            return Ok(Next::Frame(at, header, &self.window[body..][..header.body_bytes as usize]));
        }
    }

    /// The frame that was given last, if nothing was read since.
    pub(crate) fn current(&self) -> Option<(Header, &[u8])> {
        let (header, body) = self.current?;
        Some((header, &self.window[body..][..header.body_bytes as usize]))
    }

    /// Ensures that the window begins at or before the current position and holds `needed` bytes from there, or all up
    /// to the limit. True if it holds `needed`.
    fn fill(&mut self, needed: usize) -> io::Result<bool> {
        let (at, end) = (self.walk.at(), self.window_at + self.window.len() as u64);
        let left = self.limit.saturating_sub(at);
        let has = if (self.window_at..=end).contains(&at) { end - at } else { 0 };
        if has < left.min(needed as u64) || has > left {
            let bytes = left.min(WINDOW_BYTES.max(needed) as u64) as usize;
            self.current = None;
            self.window.clear();
            self.window.resize(bytes, 0);
            self.window_at = at;
            let filled = self.read(at)?;
            self.window.truncate(filled);
            // The file is shorter than expected: the missing bytes cannot be read.
            if filled < bytes {
                self.limit = at + filled as u64;
                self.is_short = true;
            }
        } else if has == 0 {
            // Nothing is left; the window may be anywhere.
            self.current = None;
            self.window.clear();
            self.window_at = at;
        }
        Ok(self.window_at + self.window.len() as u64 >= self.limit)
    }

    /// Fills the window from place `at` on, page by page where the disk gives errors.
    fn read(&mut self, at: u64) -> io::Result<usize> {
        match self.file.read_at(at, &mut self.window) {
            Err(error) if is_of_the_medium(&error) => {
                self.unreadable.get_or_insert((at, error.kind()));
            }
            other => return other,
        }
        let mut filled = 0;
        while filled < self.window.len() {
            let place = at + filled as u64;
            let page = (PAGE - place % PAGE) as usize;
            let end = (filled + page).min(self.window.len());
            match self.file.read_at(place, &mut self.window[filled..end]) {
                Ok(count) if count < end - filled => return Ok(filled + count),
                Ok(_) => {}
                Err(error) if is_of_the_medium(&error) => self.window[filled..end].fill(0),
                Err(error) => return Err(error),
            }
            filled = end;
        }
        Ok(filled)
    }
}

/// Whether an error is the disk's (EIO), and another place may be readable.
fn is_of_the_medium(error: &io::Error) -> bool {
    const EIO: i32 = 5;
    error.raw_os_error() == Some(EIO)
}

/// Whether a frame is a record.
pub(crate) fn is_record(header: &Header) -> bool {
    header.kind == Kind::Record
}
