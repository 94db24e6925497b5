//! A way through a segment's frames, window by window.
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

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// An intact frame, at this place in the segment.
    Frame(u64, Header, &'a [u8]),
    /// Bytes from the first place up to the second hold no intact frame; one follows.
    Hole(u64, u64),
    /// Bytes from the first place up to the end hold no intact frame.
    Tail(u64, u64),
    /// A window of at least so many bytes is needed, from [`Walk::at`] on.
    More(usize),
    /// Everything up to the end is told. There may be more later: a walk goes on from there.
    End,
}

/// Where a walk is.
#[derive(Clone, Debug)]
pub struct Walk {
    salt: u64,
    at: u64,
    bad_since: Option<u64>,
    /// Lower offsets than this are not believed: they only ever rise.
    offset_min: u64,
}

impl Walk {
    /// From place `at` of a segment with `salt`, where no frame has a lower offset than `offset_min`.
    pub fn new(salt: u64, at: u64, offset_min: u64) -> Walk {
        Walk { salt, at, bad_since: None, offset_min }
    }

    /// Where the next window begins, in bytes from the segment's beginning.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Takes a step. `window` holds the segment's bytes from [`at`](Walk::at) on; `last` says that it
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
                // Of a window that is too short, only what was looked at is behind us.
                Parsed::Incomplete(needed, header) if !last => match header {
                    Some(header) if !self.fits(&header) => ALIGN,
                    _ => return Step::More(needed),
                },
                Parsed::BadBody(header) if self.fits(&header) => header.frame_bytes(),
                // A whole header whose body is cut off: nothing else begins within that body.
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

/// How far it is in `rest` to where a frame may begin, at least one step: the rest if nowhere.
fn next_candidate(rest: &[u8]) -> usize {
    let mut at = ALIGN;
    while at + HEADER_BYTES <= rest.len() {
        if rest[at..].starts_with(b"HWF") {
            return at;
        }
        at += ALIGN;
    }
    // What is left could be the beginning of a header: it is kept while more may come.
    at.min(rest.len())
}
