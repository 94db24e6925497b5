//! The records from an offset on, in order; at the end, those to come.
//!
//! A reader returns only durable records. Unreadable ones are reported in their place, once, and never skipped
//! silently.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::damage::{Damage, DamageKind};
use crate::error::Error;
use crate::frames::{Frames, Next, is_record};
use crate::log::{Beyond, Goal, Log};
use crate::segment::Segment;
use crate::storage::Storage;

/// Reads records in order.
#[derive(Debug)]
pub struct Reader {
    log: Arc<Log>,
    storage: Arc<dyn Storage>,
    next_offset: u64,
    open: Option<Open>,
    /// The last segment that was read to its end.
    done: Option<u64>,
}

#[derive(Debug)]
struct Open {
    segment: Segment,
    frames: Frames,
    /// The invalid bytes before the next frame.
    hole: Option<(u64, u64)>,
}

/// What comes next.
#[derive(Debug)]
pub enum Item<'a> {
    /// A record.
    Record(Stored<'a>),
    /// Records may be missing here.
    Skipped(Damage),
    /// There are no more yet.
    End,
}

/// A record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored<'a> {
    /// Its number in the journal.
    pub offset: u64,
    /// Its partition.
    pub partition: u32,
    /// When it was accepted, in microseconds since 1970.
    pub time_us: u64,
    /// Its identity.
    pub id: u128,
    /// Its content.
    pub body: &'a [u8],
}

/// A step, without what it borrows.
enum Found {
    /// A record is next.
    Record,
    Skipped(Damage),
    /// The end of the known part is reached.
    Limit,
}

impl Reader {
    pub(crate) fn new(log: Arc<Log>, storage: Arc<dyn Storage>, next_offset: u64) -> Reader {
        Reader { log, storage, next_offset, open: None, done: None }
    }

    /// The lowest offset that the next record may have: at [`Item::End`], the journal's.
    pub fn next_offset(&self) -> u64 {
        self.next_offset
    }

    /// The next record, or the loss in its place. It reads files, and so may block.
    ///
    /// # Errors
    ///
    /// If the disk gives an error. The next call tries again.
    // Not `Iterator::next`: the item borrows from the reader.
    #[expect(clippy::should_implement_trait, reason = "a record borrows from its reader")]
    pub fn next(&mut self) -> Result<Item<'_>, Error> {
        loop {
            let Some(open) = &mut self.open else {
                match self.go_on()? {
                    Some(damage) => return Ok(Item::Skipped(damage)),
                    None if self.open.is_some() => continue,
                    None => return Ok(Item::End),
                }
            };
            let found = open.find(self.next_offset).map_err(|error| {
                let place = format!("{}/{}", self.storage.place(), open.segment.name);
                Error::disk(place, &error)
            })?;
            match found {
                Found::Record => return Ok(self.record()),
                Found::Skipped(damage) => {
                    self.next_offset = self.next_offset.max(damage.next_offset);
                    return Ok(Item::Skipped(damage));
                }
                Found::Limit => {
                    if let Some(damage) = self.at_limit() {
                        return Ok(Item::Skipped(damage));
                    }
                    if self.is_at_end() {
                        return Ok(Item::End);
                    }
                }
            }
        }
    }

    /// Takes the record that [`Open::find`] has found.
    fn record(&mut self) -> Item<'_> {
        let open = self.open.as_ref().expect("a record was found in it");
        let (header, body) = open.frames.current().expect("it was found just now");
        self.next_offset = header.offset + 1;
        Item::Record(Stored {
            offset: header.offset,
            partition: header.partition,
            time_us: header.time_us,
            id: header.id,
            body,
        })
    }

    /// Opens the next segment, if there is one; or reports the loss before it.
    fn go_on(&mut self) -> Result<Option<Damage>, Error> {
        loop {
            let (segment, at, lowest) = match self.log.find(self.next_offset, self.done) {
                Goal::Segment(segment, at, lowest) => (segment, at, lowest),
                Goal::Skip(damage) => {
                    self.next_offset = damage.next_offset;
                    return Ok(Some(damage));
                }
                Goal::End(next_offset) => {
                    self.next_offset = self.next_offset.max(next_offset);
                    return Ok(None);
                }
            };
            let file = match self.storage.open(&segment.name) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    // Retention was faster, unless something else removed it.
                    if !self.log.has(segment.sequence) {
                        continue;
                    }
                    self.done = Some(segment.sequence);
                    let mut damage = segment.damage(DamageKind::Missing, 0, segment.end);
                    damage.first_offset = self.next_offset.max(segment.base_offset);
                    self.next_offset = self.next_offset.max(damage.next_offset);
                    return Ok(Some(damage));
                }
                Err(error) => {
                    let what = format!("{}/{}", self.storage.place(), segment.name);
                    return Err(Error::disk(what, &error));
                }
            };
            let frames = Frames::new(file, segment.salt, at, segment.end, lowest);
            self.open = Some(Open { segment: *segment, frames, hole: None });
            return Ok(None);
        }
    }

    /// At the end of what was known of a segment: is there more of it, or another one?
    fn at_limit(&mut self) -> Option<Damage> {
        let open = self.open.as_mut()?;
        let sequence = open.segment.sequence;
        let (goal, is_newest) =
            match self.log.beyond(self.next_offset, sequence, open.frames.limit()) {
                Beyond::More(end) => {
                    // Somebody has truncated the file.
                    if let Some((from, to)) = open.frames.pass_missing(end) {
                        open.add_hole(from, to);
                    }
                    open.frames.set_limit(end);
                    return None;
                }
                Beyond::Goal(goal, is_newest) => (goal, is_newest),
            };
        let hole = open.hole.take().map(|hole| (hole, open.segment.clone()));
        if !is_newest {
            self.done = Some(sequence);
            self.open = None;
        }
        let Some(((at, end), segment)) = hole else {
            // A loss after the last segment has no following segment to be reported with.
            let Goal::Skip(lost) = goal else { return None };
            self.next_offset = lost.next_offset;
            return Some(lost);
        };
        // The damage reaches to the end; the next record says where offsets continue.
        let next_offset = match goal {
            Goal::Segment(next, ..) => next.base_offset,
            Goal::Skip(lost) => lost.first_offset,
            Goal::End(next_offset) => next_offset,
        };
        let first_offset = self.next_offset;
        if next_offset <= first_offset {
            // All of it is before the requested offset.
            return None;
        }
        self.next_offset = next_offset;
        let (kind, file, bytes) = (segment.kind_of_damage(at), segment.name, end - at);
        Some(Damage { kind, file, at, bytes, first_offset, next_offset })
    }

    /// Whether everything is read. If so, it goes on where the journal does: offsets may be left out at the end, such as
    /// those of a tail that a crash has torn, and without this it would wait for them.
    fn is_at_end(&mut self) -> bool {
        let Some(open) = self.open.as_ref().filter(|open| open.is_at_limit()) else { return false };
        let end = self.log.end_for(self.next_offset, open.segment.sequence, open.frames.limit());
        self.next_offset = self.next_offset.max(end.unwrap_or(0));
        end.is_some()
    }

    /// Ready when there may be more than [`Item::End`].
    pub async fn more(&self) {
        poll_fn(|context| self.poll_more(context)).await;
    }

    /// [`more`](Reader::more), for callers that poll.
    pub fn poll_more(&self, context: &mut Context<'_>) -> Poll<()> {
        self.log.poll_more(self.next_offset, context)
    }

    /// Blocks until there may be more than [`Item::End`]. False if `timeout` has passed first.
    pub fn wait_more(&self, timeout: Duration) -> bool {
        self.log.wait_more(self.next_offset, timeout)
    }
}

impl Open {
    fn is_at_limit(&self) -> bool {
        self.frames.at() >= self.frames.limit()
    }

    /// Adds bytes to the invalid ones before the next frame.
    fn add_hole(&mut self, from: u64, to: u64) {
        self.hole = Some((self.hole.map_or(from, |(from, _)| from), to));
    }

    /// Finds the next record with `offset` or a later one; damage before it comes first.
    fn find(&mut self, offset: u64) -> io::Result<Found> {
        loop {
            let place = self.frames.place();
            match self.frames.next()? {
                Next::Frame(_, header, _) => {
                    let next_offset = header.offset;
                    let record = is_record(&header);
                    if let Some((at, end)) = self.hole.take()
                        && next_offset > offset
                    {
                        self.frames.go_back(place);
                        let (file, bytes) = (self.segment.name.clone(), end - at);
                        let (kind, first_offset) = (self.segment.kind_of_damage(at), offset);
                        return Ok(Found::Skipped(Damage {
                            kind,
                            file,
                            at,
                            bytes,
                            first_offset,
                            next_offset,
                        }));
                    }
                    if record && next_offset >= offset {
                        return Ok(Found::Record);
                    }
                }
                Next::Hole(from, to) | Next::Tail(from, to) => self.add_hole(from, to),
                Next::End => return Ok(Found::Limit),
            }
        }
    }
}
