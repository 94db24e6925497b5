//! Limits and retention.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use highwater_core::frame::{BODY_BYTES_MAX, HEADER_BYTES};

use crate::error::{Error, ErrorKind};

/// The smallest `segment_bytes`: a header and a few records.
pub const SEGMENT_BYTES_MIN: u64 = 16 << 10;
/// The largest `segment_bytes`: what a mark in a frame's header can say (2^32 times eight bytes, less a
/// group).
pub const SEGMENT_BYTES_MAX: u64 = 16 << 30;

/// The journal's limits. Each has a default; [`Options::default`] is fit for a service that takes
/// requests of some kilobytes.
///
/// Memory is bounded by `producers_max * queue_bytes_max`, and twice the larger of `group_bytes_max` and
/// `batch_bytes_max` for what is being written.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// A segment gets no further group when it would become longer than this. 64 MiB; with retention by size or age, at
    /// most a quarter of `bytes_max`, so that there are segments to remove before the journal is full.
    pub segment_bytes: u64,
    /// The largest batch, with headers. Beyond it: [`ErrorKind::TooLarge`]. 4 MiB.
    pub batch_bytes_max: usize,
    /// The most bytes written before one sync (or one batch, if that is larger). 8 MiB.
    pub group_bytes_max: usize,
    /// The most batches in one producer's queue. Beyond it: [`ErrorKind::Busy`]. 1024.
    pub queue_batches_max: usize,
    /// The most bytes in one producer's queue. Beyond it: [`ErrorKind::Busy`]. 16 MiB.
    pub queue_bytes_max: usize,
    /// The most producers at a time. Beyond it: [`ErrorKind::TooMany`]. 256.
    pub producers_max: usize,
    /// The most named consumers. Beyond it: [`ErrorKind::TooMany`]. 64.
    pub consumers_max: usize,
    /// The most bytes of all segments together. Beyond it: [`ErrorKind::Full`], until retention has made room. `None`:
    /// the whole disk.
    pub bytes_max: Option<u64>,
    /// Opening the journal reads and checks this many bytes of the newest segments; older ones are checked when they
    /// are read, or by [`verify`](crate::verify). 1 GiB.
    pub scan_bytes_max: u64,
    /// Which records are removed, and when.
    pub retention: Retention,
    /// The time, in microseconds since 1970. The system's clock.
    pub clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Called on the committing thread with the error each time that `written.pos` could not be written, for the owner to log.
    /// Records are durable all the same; but if the newest segments are removed later, that may go unnoticed. It is tried
    /// again with the next group. Does nothing.
    pub on_unmarked: Arc<dyn Fn(&Error) + Send + Sync>,
    /// An unpredictable number, one per segment. From the standard library's hasher, which the system seeds.
    pub salt: Arc<dyn Fn() -> u64 + Send + Sync>,
}

/// Which records are removed, and when. A whole segment is removed at a time, the oldest first, never the newest
/// that has records (but see `keep_unread`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Retention {
    /// While all segments together are larger than this, or than `bytes_max` allows, the oldest is removed. `None`: never for
    /// size.
    pub bytes: Option<u64>,
    /// A segment whose newest record is older than this is removed. `None`: never for age.
    ///
    /// The clock measures it: if that is set forward by more than this, everything but the newest segment is removed.
    pub age: Option<Duration>,
    /// Keep records that a named consumer has not read, whatever their size and age. Without a consumer, everything
    /// counts as unread and is kept. With `bytes` as well, and only when there is no room, records that every consumer
    /// has read are removed even from the newest segment.
    pub keep_unread: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes: 64 << 20,
            batch_bytes_max: 4 << 20,
            group_bytes_max: 8 << 20,
            queue_batches_max: 1024,
            queue_bytes_max: 16 << 20,
            producers_max: 256,
            consumers_max: 64,
            bytes_max: None,
            scan_bytes_max: 1 << 30,
            retention: Retention::default(),
            clock: Arc::new(system_clock),
            on_unmarked: Arc::new(|_| ()),
            salt: Arc::new(|| RandomState::new().hash_one(system_clock())),
        }
    }
}

fn system_clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

impl Options {
    /// The `segment_bytes` that counts. Retention removes whole segments, and never the newest: a journal that is full with
    /// one would stay full.
    pub(crate) fn segment_bytes_within(&self) -> u64 {
        let Retention { bytes, age, .. } = self.retention;
        match self.bytes_max {
            Some(max) if bytes.is_some() || age.is_some() => {
                self.segment_bytes.min((max / 4).max(SEGMENT_BYTES_MIN))
            }
            _ => self.segment_bytes,
        }
    }

    /// Says which option is out of its range.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let ranges = [
            ("segment_bytes", self.segment_bytes, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX),
            ("batch_bytes_max", self.batch_bytes_max as u64, HEADER_BYTES as u64, BATCH_BYTES_MAX),
            ("group_bytes_max", self.group_bytes_max as u64, 1, 1 << 30),
            ("queue_batches_max", self.queue_batches_max as u64, 1, 1 << 20),
            ("queue_bytes_max", self.queue_bytes_max as u64, 1, 1 << 40),
            ("producers_max", self.producers_max as u64, 1, 1 << 16),
            ("consumers_max", self.consumers_max as u64, 0, 1 << 16),
        ];
        for (name, value, min, max) in ranges {
            if !(min..=max).contains(&value) {
                let text = format!("{name} is {value}; it may be from {min} to {max}");
                return Err(Error::new(ErrorKind::Invalid, text));
            }
        }
        if self.queue_bytes_max < self.batch_bytes_max {
            let text =
                "queue_bytes_max is below batch_bytes_max: such a batch could never be taken";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        Ok(())
    }
}

/// The largest `batch_bytes_max`: one record of the format's longest body.
const BATCH_BYTES_MAX: u64 = highwater_core::frame::frame_bytes(BODY_BYTES_MAX) as u64;

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("segment_bytes", &self.segment_bytes)
            .field("batch_bytes_max", &self.batch_bytes_max)
            .field("group_bytes_max", &self.group_bytes_max)
            .field("queue_batches_max", &self.queue_batches_max)
            .field("queue_bytes_max", &self.queue_bytes_max)
            .field("producers_max", &self.producers_max)
            .field("consumers_max", &self.consumers_max)
            .field("bytes_max", &self.bytes_max)
            .field("scan_bytes_max", &self.scan_bytes_max)
            .field("retention", &self.retention)
            .finish_non_exhaustive()
    }
}
