//! How many connections has each source opened, and may it open another?
//!
//! A *source* is an IPv4 address, or the first 64 bits of an IPv6 address. While a level is set, the programs hold each
//! source to one connection per `gap`, with a few more at once ([`BURST`]): the generic cell rate algorithm (ITU-T I.371),
//! which needs one time per source. A source below the level has *credit*: it may take up to four times the limit of places,
//! so that it finds one although others use up the limit. An attempt that finds no place also counts: otherwise a busy source
//! would look quiet because it is refused, and its connections would be refused by the workers, which costs more.
//!
//! Sources share [`BUCKETS`] times in each of two rows, by a hash with a secret. A source is held back only if both of its
//! buckets say so: a source that shares one bucket with a busy source still has another. Nothing needs to be given back, so
//! forged addresses leave nothing behind, and the memory is fixed.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::map::{Atomics, Mapping};

/// Buckets in each row: 24 KiB of memory. With a hundred busy sources, one quiet source in a hundred shares both of
/// its buckets with some of them.
pub(super) const BUCKETS: usize = 1024;

/// How many connections a source may open at once, and with how many of them it still has credit. Less: a page over
/// several connections is refused; more: a busy source takes more places at once. Guesses: two browsers, and one.
const BURST: i64 = 16;
const CREDIT: i64 = 8;

#[repr(C, align(128))]
struct Page {
    /// Nanoseconds between two connections of a source; 0 while sources are not looked at.
    gap: AtomicI64,
    /// How far a source may be ahead of now, and how far with credit.
    ahead_max: AtomicI64,
    credit_max: AtomicI64,
    secret: AtomicU64,
    /// The longest gap since the times were forgotten.
    gap_max: AtomicI64,
    refused: Line,
    seen: [AtomicU64; BUCKETS],
    /// When the last attempt of a bucket would have come, had each kept the gap.
    rows: [[AtomicI64; BUCKETS]; 2],
}

#[repr(C, align(128))]
struct Line(AtomicU64);

// SAFETY: atomics, alone, aligned or in arrays.
unsafe impl Atomics for Page {}

/// Byte offsets, for the programs.
pub(super) mod offset {
    use super::Page;
    use std::mem::offset_of;

    pub(in super::super) const GAP: i16 = offset_of!(Page, gap) as i16;
    pub(in super::super) const AHEAD_MAX: i16 = offset_of!(Page, ahead_max) as i16;
    pub(in super::super) const CREDIT_MAX: i16 = offset_of!(Page, credit_max) as i16;
    pub(in super::super) const SECRET: i16 = offset_of!(Page, secret) as i16;
    pub(in super::super) const REFUSED: i16 = offset_of!(Page, refused) as i16;
    pub(in super::super) const SEEN: i16 = offset_of!(Page, seen) as i16;
    pub(in super::super) const ROWS: [i16; 2] = [
        offset_of!(Page, rows) as i16,
        (offset_of!(Page, rows) + size_of::<[u64; super::BUCKETS]>()) as i16,
    ];
}

const _: () = assert!(size_of::<Page>() <= i16::MAX as usize, "offsets are of 16 bits");

/// The sources of a gate. Cheap to clone.
#[derive(Clone)]
pub struct Sources(Arc<Mapping<Page>>);

impl Sources {
    pub(super) fn new() -> io::Result<Sources> {
        Ok(Sources(Arc::new(Mapping::new()?)))
    }

    pub(super) fn map(&self) -> &OwnedFd {
        self.0.map()
    }

    /// Begins to count the attempts of each source, and holds none back. Which sources share a bucket changes.
    pub fn count(&self) {
        let page = self.0.value();
        page.secret.store(RandomState::new().hash_one(0_u8), Relaxed);
        self.forget();
        page.ahead_max.store(i64::MAX, Relaxed);
        page.credit_max.store(i64::MIN, Relaxed);
        page.gap.store(1, Relaxed);
    }

    /// Holds each source to one connection per `gap`; `None` holds none back, but counts on.
    pub fn set_gap(&self, gap: Option<Duration>) {
        let page = self.0.value();
        let gap = gap.map(|gap| i64::try_from(gap.as_nanos()).unwrap_or(i64::MAX / BURST).max(1));
        if let Some(gap) = gap {
            // A longer gap of earlier would count against a source for long, also after a time without one.
            if gap < page.gap_max.load(Relaxed) / 2 {
                self.forget();
            }
            page.gap_max.fetch_max(gap, Relaxed);
        }
        let (ahead, credit) = gap.map_or((i64::MAX, i64::MIN), |gap| {
            // The last of a burst finds the source ahead by all but one of them.
            (gap.saturating_mul(BURST - 1), gap.saturating_mul(CREDIT - 1))
        });
        page.gap.store(gap.unwrap_or(1), Relaxed);
        page.ahead_max.store(ahead, Relaxed);
        page.credit_max.store(credit, Relaxed);
    }

    /// Stops counting sources.
    pub fn stop(&self) {
        self.0.value().gap.store(0, Relaxed);
    }

    /// The attempts of each bucket so far.
    pub fn seen(&self) -> impl Iterator<Item = u64> {
        self.0.value().seen.iter().map(|count| count.load(Relaxed))
    }

    /// How many attempts were refused because their source had had its share.
    pub fn refused(&self) -> u64 {
        self.0.value().refused.0.load(Relaxed)
    }

    fn forget(&self) {
        let page = self.0.value();
        page.rows.iter().flatten().for_each(|time| time.store(0, Relaxed));
        page.gap_max.store(0, Relaxed);
    }
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let page = self.0.value();
        f.debug_struct("Sources").field("gap", &page.gap).field("refused", &self.refused()).finish()
    }
}

#[cfg(test)]
mod tests {
    use highwater_skip::skip;

    use super::*;

    /// Purpose: what a source did while the gap was long does not count against it when the gap is much shorter, also if
    /// none was held back in between.
    #[test]
    fn long_gaps_are_forgotten() {
        let Ok(sources) = Sources::new() else { return skip("root", "no BPF map can be made") };
        let ahead = &sources.0.value().rows[0][7];
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (gaps, is_kept) in [
            (&[seconds(10), seconds(1)][..], false),
            (&[seconds(10), None, seconds(1)], false),
            (&[seconds(10), seconds(6), None, seconds(4)], false),
            (&[seconds(10), None, seconds(9)], true),
            (&[seconds(1), None, seconds(10)], true),
        ] {
            sources.count();
            sources.set_gap(gaps[0]);
            ahead.store(150, Relaxed);
            gaps[1..].iter().for_each(|gap| sources.set_gap(*gap));
            assert_eq!(ahead.load(Relaxed) == 150, is_kept, "{gaps:?}");
        }
    }
}
