//! The served events: every event ever seen, in order, encoded and ready to copy.
//!
//! A [`Snapshot`] never changes; a poll that changes something makes the next one. All events lie
//! encoded in one buffer, in the order of the answer, inside the envelope of the answer:
//!
//! ```text
//! {"data":{"events":[ {…} , {…} , {…} ]},"error":null}
//!                     ^     ^     ^     ^
//! offsets             0     1     2     3 (= number of events)
//! ```
//!
//! So the answer to "everything" is the buffer itself, an answer without `ends_at` is its head and
//! one copy of its end, and any other answer is one copy per run of neighbours that match.
//!
//! Invariants: ordered by start, then id, without duplicates; `offsets[i + 1]` is one byte past
//! what separates event `i` from what follows it; the version grows only when an answer can differ.

use std::collections::HashMap;
use std::{iter, ops};

use bytes::{Bytes, BytesMut};
use jiff::civil::DateTime;
use uuid::Uuid;

use crate::event::Event;
use crate::query::Range;
use crate::wire::{EVENTS_HEAD, EVENTS_TAIL};

/// All events at one moment. Cheap to share, impossible to change.
#[derive(Debug)]
pub struct Snapshot {
    version: u64,
    rows: Vec<Row>,
    offsets: Vec<usize>,
    page: Bytes,
    positions: HashMap<Uuid, usize>,
}

/// What is compared of an event; the rest of it is only text in the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    start: DateTime,
    id: Uuid,
    end: DateTime,
}

/// What [`Snapshot::apply`] found.
#[derive(Debug)]
pub struct Applied {
    /// The next snapshot; `None` when no answer can differ.
    pub next: Option<Snapshot>,
    /// How many events were not known before.
    pub new: usize,
    /// How many known events are served differently from now on.
    pub changed: usize,
}

impl Snapshot {
    /// The snapshot without events, version 0.
    pub fn empty() -> Snapshot {
        Snapshot::build(0, Vec::new(), |_, _| {})
    }

    /// Counts the changes of what is served, from 0 for the empty snapshot of this process.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// How many events there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many bytes the answer to [`Range::ALL`] has.
    pub fn bytes(&self) -> usize {
        self.page.len()
    }

    /// Whether this event has ever been seen.
    pub fn contains(&self, id: &Uuid) -> bool {
        self.positions.contains_key(id)
    }

    /// The body of the answer: events that start at or after `range.from` and end at or before
    /// `range.to`, by start, then id. No allocation when that is all of them.
    pub fn answer(&self, range: Range) -> Bytes {
        let runs = self.runs(range);
        if runs.len() == 1 && runs[0] == (0..self.len()) {
            return self.page.clone();
        }
        let size: usize =
            runs.iter().map(|run| self.offsets[run.end] - self.offsets[run.start]).sum();
        let mut body = BytesMut::with_capacity(EVENTS_HEAD.len() + size + EVENTS_TAIL.len());
        body.extend_from_slice(EVENTS_HEAD);
        for (i, run) in runs.iter().enumerate() {
            if i > 0 {
                body.extend_from_slice(b",");
            }
            body.extend_from_slice(&self.page[self.offsets[run.start]..self.offsets[run.end] - 1]);
        }
        body.extend_from_slice(EVENTS_TAIL);
        body.freeze()
    }

    /// The maximal runs of neighbours that `range` admits, in order.
    fn runs(&self, range: Range) -> Vec<ops::Range<usize>> {
        let first = range.from.map_or(0, |from| self.rows.partition_point(|row| row.start < from));
        let Some(to) = range.to else {
            let rest = first..self.len();
            return iter::once(rest).filter(|rest| !rest.is_empty()).collect();
        };
        // No event ends before it starts, so those that start after `to` need no look.
        let last = self.rows.partition_point(|row| row.start <= to).max(first);
        let mut runs: Vec<ops::Range<usize>> = Vec::new();
        for (i, row) in self.rows[first..last].iter().enumerate() {
            let i = first + i;
            match runs.last_mut() {
                _ if row.end > to => {}
                Some(run) if run.end == i => run.end = i + 1,
                _ => runs.push(i..i + 1),
            }
        }
        runs
    }

    /// Compares `events` with what is served and, if anything differs, makes the next snapshot.
    ///
    /// Events that `events` does not name stay as they are. Of two with the same id the later wins.
    pub fn apply(&self, events: &[Event]) -> Applied {
        let (mut new, mut changed) = (0, 0);
        let mut updates: HashMap<Uuid, &Event> = HashMap::with_capacity(events.len());
        updates.extend(events.iter().map(|event| (event.id, event)));
        let mut scratch = Vec::new();
        updates.retain(|id, event| {
            let Some(&position) = self.positions.get(id) else {
                new += 1;
                return true;
            };
            scratch.clear();
            event.write_json(&mut scratch);
            let same = self.rows[position] == Row::of(event) && self.fragment(position) == scratch;
            changed += usize::from(!same);
            !same
        });
        let next = (!updates.is_empty()).then(|| self.with(&updates));
        Applied { next, new, changed }
    }

    fn with(&self, updates: &HashMap<Uuid, &Event>) -> Snapshot {
        let kept = self.rows.iter().filter(|row| !updates.contains_key(&row.id)).copied();
        let mut rows: Vec<Row> = kept.chain(updates.values().map(|event| Row::of(event))).collect();
        rows.sort_unstable();
        Snapshot::build(self.version + 1, rows, |id, page| match updates.get(id) {
            Some(event) => event.write_json(page),
            None => page.extend_from_slice(self.fragment(self.positions[id])),
        })
    }

    fn build(version: u64, rows: Vec<Row>, mut write: impl FnMut(&Uuid, &mut Vec<u8>)) -> Snapshot {
        let mut page = EVENTS_HEAD.to_vec();
        let mut offsets = Vec::with_capacity(rows.len() + 1);
        for row in &rows {
            offsets.push(page.len());
            write(&row.id, &mut page);
            page.push(b',');
        }
        offsets.push(page.len());
        if !rows.is_empty() {
            page.pop();
        }
        page.extend_from_slice(EVENTS_TAIL);
        let positions = rows.iter().enumerate().map(|(position, row)| (row.id, position)).collect();
        Snapshot { version, rows, offsets, page: page.into(), positions }
    }

    fn fragment(&self, position: usize) -> &[u8] {
        &self.page[self.offsets[position]..self.offsets[position + 1] - 1]
    }
}

impl Row {
    fn of(event: &Event) -> Row {
        Row { start: event.start, id: event.id, end: event.end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::tests::sample;
    use jiff::ToSpan as _;
    use jiff::civil::datetime;
    use proptest::prelude::*;
    use serde_json::Value;

    const NOON: DateTime = datetime(2024, 6, 30, 12, 0, 0, 0);

    fn at(minutes: i64) -> DateTime {
        NOON.checked_add(minutes.minutes()).expect("within the calendar")
    }

    fn snapshot(events: &[Event]) -> Snapshot {
        Snapshot::empty().apply(events).next.unwrap_or_else(Snapshot::empty)
    }

    fn titles(body: &[u8]) -> Vec<String> {
        let body: Value = serde_json::from_slice(body).expect("an answer is JSON");
        assert!(
            body["error"].is_null() && body.as_object().expect("an object").contains_key("error")
        );
        let events = body["data"]["events"].as_array().expect("a list");
        events.iter().map(|event| event["title"].as_str().expect("a title").to_owned()).collect()
    }

    /// Purpose: an empty store and a range without events answer an empty list, not a missing one.
    #[test]
    fn empty_list() {
        let expected = r#"{"data":{"events":[]},"error":null}"#;
        assert_eq!(Snapshot::empty().answer(Range::ALL), expected);
        let one = snapshot(&[sample("1", NOON, at(60), "one")]);
        assert_eq!(one.answer(Range { from: Some(at(1)), to: None }), expected);
        assert_eq!(one.answer(Range { from: None, to: Some(at(59)) }), expected);
        assert_eq!(one.answer(Range { from: Some(at(60)), to: Some(NOON) }), expected);
    }

    /// Purpose: both bounds are inclusive, the lower on the start and the upper on the end.
    #[test]
    fn bounds_are_inclusive() {
        let one = snapshot(&[sample("1", NOON, at(60), "one")]);
        assert_eq!(titles(&one.answer(Range { from: Some(NOON), to: Some(at(60)) })), ["one"]);
    }

    /// Purpose: the version moves when an answer can differ and rests when it cannot.
    #[test]
    fn version_counts_real_changes() {
        let event = sample("1", NOON, at(60), "one");
        let first = snapshot(std::slice::from_ref(&event));
        assert_eq!((first.version(), first.len()), (1, 1));
        let unserved = Event { sold_out: Some(true), sell_from: Some(NOON), ..event.clone() };
        let again = first.apply(&[event.clone(), unserved]);
        assert!(again.next.is_none() && (again.new, again.changed) == (0, 0));
        let finer =
            Event { end: at(60).checked_add(1.nanosecond()).expect("in range"), ..event.clone() };
        let renamed = Event { title: "uno".into(), ..event };
        for update in [finer, renamed] {
            let applied = first.apply(&[update]);
            assert_eq!((applied.new, applied.changed), (0, 1));
            assert_eq!(applied.next.map(|next| (next.version(), next.len())), Some((2, 1)));
        }
    }

    /// Purpose: the answer to everything shares the page instead of copying it.
    #[test]
    fn everything_is_not_copied() {
        let all = snapshot(&[sample("1", NOON, at(1), "a"), sample("2", at(1), at(2), "b")]);
        let wide = Range { from: Some(NOON), to: Some(at(2)) };
        assert_eq!(all.answer(Range::ALL).as_ptr(), all.answer(wide).as_ptr());
    }

    proptest! {
        /// Purpose: every answer after every history equals that of the plainest model: filter, then sort.
        #[test]
        fn equals_the_model(
            polls in prop::collection::vec(
                prop::collection::vec((0..12u8, 0..40i64, 0..20i64, 0..3u8), 0..12), 0..5),
            from in prop::option::of(-5..50i64),
            to in prop::option::of(-5..70i64),
        ) {
            let (mut served, mut model) = (Snapshot::empty(), HashMap::new());
            for poll in polls {
                let events: Vec<Event> = poll.iter().map(|&(plan, start, length, title)| {
                    sample(&plan.to_string(), at(start), at(start + length), &format!("{plan}/{title}"))
                }).collect();
                served = served.apply(&events).next.unwrap_or(served);
                model.extend(events.into_iter().map(|event| (event.id, event)));
            }
            let range = Range { from: from.map(at), to: to.map(at) };
            let mut expected: Vec<&Event> = model.values()
                .filter(|event| range.from.is_none_or(|from| event.start >= from))
                .filter(|event| range.to.is_none_or(|to| event.end <= to))
                .collect();
            expected.sort_by_key(|event| (event.start, event.id.to_string()));
            let expected: Vec<&str> = expected.iter().map(|event| &*event.title).collect();
            prop_assert_eq!(titles(&served.answer(range)), expected);
            prop_assert_eq!(served.len(), model.len());
        }
    }
}
