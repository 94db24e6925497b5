//! Walks through a segment's frames, window by window.
//!
//! ```text
//!            intact frame                    bad header or body
//!         ┌──────────────┐               ┌────────────────────────┐
//!         │              ▼               │                        ▼
//!         └────────── in order ──────────┘                 looking for a frame
//!                        ▲                                  │            │
//!                        └── an intact frame: Step::Hole ───┘            │
//!                        └── the end: Step::Tail ────────────────────────┘
//! ```

use super::{ALIGN, HEADER_BYTES, Header, Parsed, parse};

/// The result of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// An intact frame, at this place in the segment.
    Frame(u64, Header, &'a [u8]),
    /// Bytes from the first place up to the second hold no intact frame; one follows.
    Hole(u64, u64),
    /// Bytes from the first place up to the end hold no intact frame.
    Tail(u64, u64),
    /// A window of at least this many bytes is needed, beginning at [`Walk::at`].
    More(usize),
    /// Everything up to the end has been reported. The walk continues if more is written later.
    End,
}

/// The state of a walk.
#[derive(Clone, Debug)]
pub struct Walk {
    salt: u64,
    at: u64,
    bad_since: Option<u64>,
    /// Frames with lower offsets are rejected: offsets only rise.
    offset_min: u64,
}

impl Walk {
    /// A walk from position `at` of a segment with `salt` and no offset below `offset_min`.
    pub fn new(salt: u64, at: u64, offset_min: u64) -> Walk {
        Walk { salt, at, bad_since: None, offset_min }
    }

    /// Where the next window begins, in bytes from the segment's beginning.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Goes on at `at`, which is behind bytes that cannot be read.
    pub fn go_to(&mut self, at: u64) {
        self.at = at;
    }

    /// Takes a step. `window` holds the segment's bytes from [`at`](Walk::at) on; with `last`, it
    /// holds all of them.
    pub fn next<'a>(&mut self, window: &'a [u8], last: bool) -> Step<'a> {
        let mut used = 0;
        loop {
            let rest = window.get(used..).unwrap_or_default();
            if rest.is_empty() && last {
                return self.end();
            }
            let skipped = match parse(rest, self.salt) {
                Parsed::Frame(header, body) if self.fits(&header) => {
                    return self.frame(header, body);
                }
                // Of a window that is too short, skip only the bytes examined.
                Parsed::Incomplete(needed, header) if !last => match header {
                    Some(header) if !self.fits(&header) => ALIGN,
                    _ => return Step::More(needed),
                },
                Parsed::BadBody(header) if self.fits(&header) => header.frame_bytes(),
                // A complete header with a truncated body: no other frame begins within that body.
                Parsed::Incomplete(_, Some(header)) if self.fits(&header) => rest.len(),
                _ => next_candidate(rest),
            };
            self.bad_since.get_or_insert(self.at);
            self.at += skipped as u64;
            used += skipped;
        }
    }

    fn fits(&self, header: &Header) -> bool {
        header.offset >= self.offset_min && header.mark <= self.at
    }

    fn frame<'a>(&mut self, header: Header, body: &'a [u8]) -> Step<'a> {
        if let Some(since) = self.bad_since.take() {
            return Step::Hole(since, self.at);
        }
        let at = self.at;
        self.at += header.frame_bytes() as u64;
        self.offset_min = match header.kind {
            super::Kind::Record => header.offset.saturating_add(1),
            super::Kind::Seal => header.offset,
        };
        Step::Frame(at, header, body)
    }

    fn end<'a>(&mut self) -> Step<'a> {
        self.bad_since.take().map_or(Step::End, |since| Step::Tail(since, self.at))
    }
}

/// Distance to the next possible start of a frame in `rest`, at least one step; all of `rest` if
/// none.
fn next_candidate(rest: &[u8]) -> usize {
    let mut at = ALIGN;
    while at + HEADER_BYTES <= rest.len() {
        if rest[at..].starts_with(b"HWF") {
            return at;
        }
        at += ALIGN;
    }
    // The last bytes may begin a header: keep them while more may follow.
    at.min(rest.len())
}
