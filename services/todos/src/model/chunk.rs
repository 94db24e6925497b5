//! Chunks of consecutive encoded todos, of which snapshots consist and which they share.

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;

use super::Row;
use crate::reads::Shown;
use crate::todo::{Key, ROW_BYTES, Todo};

/// The most todos in a chunk. It trades copying (a change copies its chunk) against the number of chunks
/// (every snapshot copies the list of them). A guess.
pub(super) const ROWS_MAX: usize = 128;

/// A chunk of more than one todo has at most this many bytes, so that a change of one todo among long ones
/// copies little.
pub(super) const BYTES_MAX: usize = 64 << 10;

/// Neighbours that are together smaller than this become one.
const ROWS_MIN: usize = ROWS_MAX / 2;

/// Some todos that follow each other, newest first. Never empty.
pub(super) struct Chunk {
    rows: Vec<Entry>,
    /// Their fragments, each with a comma behind it.
    bytes: Bytes,
}

struct Entry {
    key: Key,
    user_id: Arc<str>,
    /// Where its fragment ends, comma included.
    end: u32,
}

impl Chunk {
    /// The newest key.
    pub(super) fn first(&self) -> Key {
        self.rows[0].key
    }

    /// The oldest key.
    pub(super) fn last(&self) -> Key {
        self.rows[self.rows.len() - 1].key
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// About how much memory it takes, with what the index has of its todos.
    pub(super) fn memory(&self) -> usize {
        self.bytes.len() + self.len() * ROW_BYTES
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.rows.iter().map(|row| row.key)
    }

    /// The fragments of the newest `count`, each with a comma behind it.
    pub(super) fn newest(&self, count: usize) -> &[u8] {
        match count.min(self.len()) {
            0 => &[],
            count => &self.bytes[..self.rows[count - 1].end as usize],
        }
    }

    pub(super) fn find(&self, key: Key) -> Option<Shown> {
        let at = self.rows.binary_search_by(|row| key.cmp(&row.key)).ok()?;
        let start = at.checked_sub(1).map_or(0, |before| self.rows[before].end as usize);
        let json = self.bytes.slice(start..self.rows[at].end as usize - 1);
        Some(Shown { json, user_id: Arc::clone(&self.rows[at].user_id) })
    }

    fn fragment(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.rows[before].end as usize);
        &self.bytes[start..self.rows[at].end as usize]
    }
}

/// The next content of one place of a chunk.
enum Piece<'a> {
    Old(&'a Chunk, usize),
    New(&'a Todo),
}

/// Appends to `out` what `old` becomes with `rows`, both newest first.
pub(super) fn merge(old: Option<&Chunk>, rows: &[Row], out: &mut Vec<Arc<Chunk>>) {
    let pieces = pieces(old, rows);
    // The newest chunk gets the remainder: it is the one that grows.
    let mut rest = &pieces[..];
    while !rest.is_empty() {
        let count = match rest.len() % ROWS_MAX {
            0 => ROWS_MAX,
            left_over => left_over,
        };
        let (now, later) = rest.split_at(count);
        build(now, out);
        rest = later;
    }
}

fn pieces<'a>(old: Option<&'a Chunk>, rows: &'a [Row]) -> Vec<Piece<'a>> {
    let old_len = old.map_or(0, Chunk::len);
    let mut pieces = Vec::with_capacity(old_len + rows.len());
    let (mut at, mut rows) = (0, rows.iter().peekable());
    loop {
        let kept = old.filter(|old| at < old.len()).map(|old| (old, old.rows[at].key));
        let order = match (kept, rows.peek()) {
            (None, None) => return pieces,
            (Some(_), None) => Ordering::Greater,
            (None, Some(_)) => Ordering::Less,
            (Some((_, kept)), Some((key, _))) => kept.cmp(key),
        };
        match (order, kept) {
            (Ordering::Greater, Some((old, _))) => {
                pieces.push(Piece::Old(old, at));
                at += 1;
            }
            (Ordering::Equal, Some(_)) => at += 1,
            _ => pieces.extend(rows.next().and_then(|(_, todo)| todo.as_ref()).map(Piece::New)),
        }
    }
}

/// Appends chunks of these, which are not too many for one, but may be too long.
fn build(pieces: &[Piece<'_>], out: &mut Vec<Arc<Chunk>>) {
    let mut rows: Vec<Entry> = Vec::with_capacity(pieces.len());
    let mut bytes = Vec::new();
    for piece in pieces {
        if bytes.len() >= BYTES_MAX {
            let rows = std::mem::take(&mut rows);
            push(Arc::new(Chunk { rows, bytes: std::mem::take(&mut bytes).into() }), out);
        }
        let (key, user_id) = match piece {
            Piece::Old(chunk, at) => {
                bytes.extend_from_slice(chunk.fragment(*at));
                (chunk.rows[*at].key, Arc::clone(&chunk.rows[*at].user_id))
            }
            Piece::New(todo) => {
                todo.write_json(&mut bytes);
                bytes.push(b',');
                (todo.key(), todo.user_id.as_str().into())
            }
        };
        let end = u32::try_from(bytes.len()).expect("a todo is far shorter than a body may be");
        rows.push(Entry { key, user_id, end });
    }
    push(Arc::new(Chunk { rows, bytes: bytes.into() }), out);
}

/// Appends a chunk; together with the one before if both are small.
pub(super) fn push(chunk: Arc<Chunk>, out: &mut Vec<Arc<Chunk>>) {
    let joins = |last: &Arc<Chunk>| {
        last.len() + chunk.len() <= ROWS_MIN && last.bytes.len() + chunk.bytes.len() <= BYTES_MAX
    };
    let Some(last) = out.pop_if(|last| joins(last)) else {
        return out.push(chunk);
    };
    let shift = u32::try_from(last.bytes.len()).expect("a chunk is bounded");
    let moved = |row: &Entry, by| Entry {
        key: row.key,
        user_id: Arc::clone(&row.user_id),
        end: row.end + by,
    };
    let kept = last.rows.iter().map(|row| moved(row, 0));
    let rows = kept.chain(chunk.rows.iter().map(|row| moved(row, shift))).collect();
    out.push(Arc::new(Chunk { rows, bytes: [&last.bytes[..], &chunk.bytes].concat().into() }));
}
