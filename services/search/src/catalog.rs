//! Joins the store and the served snapshot: durable first, published second.
//!
//! Writers (the poller) call [`Catalog::apply`]; readers call [`Catalog::snapshot`], which neither
//! locks nor waits, whatever a writer, the store or the provider is doing.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Guard};
use uuid::Uuid;

use crate::event::Event;
use crate::index::Snapshot;
use crate::store::{Record, Store, StoreError};

/// How many events are remembered before new ones are refused, unless told otherwise. A provider
/// that invents identifiers can fill memory and disk up to here and no further: with the titles the
/// feed's limits allow, about 1.5 GB; with ordinary ones, about 250 MB.
pub const EVENTS_MAX: usize = 1_000_000;

/// How far the clocks of instances may differ, in seconds, so that they learn of each other's events.
///
/// So each poll reads what was seen in the last hour again. That costs no more than the poll itself: every poll marks all events
/// that are online as seen, so what it reads is about one feed, of which it has just written every row.
const CLOCKS_DIFFER_MAX: i64 = 3600;

/// Every event ever seen online.
pub struct Catalog {
    store: Mutex<Kept>,
    current: ArcSwap<Snapshot>,
    events_max: usize,
    refused: AtomicU64,
}

struct Kept {
    store: Box<dyn Store>,
    /// Everything that was last seen before this is in the snapshot, unless a clock was ahead.
    known_until: i64,
    /// What this instance's last poll has applied: it is served as the provider has it.
    own: HashSet<Uuid>,
}

/// What one batch changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Events seen for the first time.
    pub new: usize,
    /// Known events that are served differently from now on.
    pub changed: usize,
    /// New events beyond the limit, which were neither stored nor served.
    pub refused: usize,
}

impl Catalog {
    /// Loads what the store remembers and publishes it.
    pub fn open(mut store: Box<dyn Store>, events_max: usize) -> Result<Catalog, StoreError> {
        let records = store.load()?;
        let known_until = known_until(&records, i64::MIN);
        let events: Vec<Event> = records.into_iter().map(|record| record.event).collect();
        let empty = Snapshot::empty();
        let current = ArcSwap::from_pointee(empty.apply(&events).next.unwrap_or(empty));
        let store = Mutex::new(Kept { store, known_until, own: HashSet::new() });
        Ok(Catalog { store, current, events_max, refused: AtomicU64::new(0) })
    }

    /// What is served now. Wait-free; hold it for one answer, not longer.
    pub fn snapshot(&self) -> Guard<Arc<Snapshot>> {
        self.current.load()
    }

    /// How many new events the limit has refused since the start.
    pub fn refused_total(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Stores events that were seen online at `seen_at` (seconds since 1970-01-01T00:00:00Z) and
    /// then serves them. After an error nothing has been published.
    pub fn apply(&self, mut events: Vec<Event>, seen_at: i64) -> Result<Applied, StoreError> {
        let mut kept = self.lock();
        let current = self.current.load_full();
        let refused = self.refuse_beyond_limit(&current, &mut events);
        if !events.is_empty() {
            kept.store.apply(&events, seen_at)?;
        }
        kept.own = events.iter().map(|event| event.id).collect();
        let applied = current.apply(&events);
        if let Some(next) = applied.next {
            self.current.store(Arc::new(next));
        }
        Ok(Applied { new: applied.new, changed: applied.changed, refused })
    }

    /// Serves what other instances on the same store have seen as well: an event that was online only while another one polled,
    /// and versions that are newer than those served here. Returns how many events are new or changed. `now` is in seconds since
    /// 1970-01-01T00:00:00Z.
    ///
    /// What the last poll has applied stays: where clocks differ, the store may have kept an older version of it.
    ///
    /// # Errors
    /// The store does not work. The next call makes up for it.
    pub fn catch_up(&self, now: i64) -> Result<usize, StoreError> {
        let mut kept = self.lock();
        // A clock that was ahead, here or elsewhere, does not hide what is seen until that time has come.
        let since = kept.known_until.min(now.saturating_sub(CLOCKS_DIFFER_MAX));
        let records = kept.store.seen_since(since)?;
        kept.known_until = known_until(&records, since);
        let events = records.into_iter().map(|record| record.event);
        let mut events: Vec<Event> = events.filter(|event| !kept.own.contains(&event.id)).collect();
        let current = self.current.load_full();
        self.refuse_beyond_limit(&current, &mut events);
        let applied = current.apply(&events);
        if let Some(next) = applied.next {
            self.current.store(Arc::new(next));
        }
        Ok(applied.new + applied.changed)
    }

    /// The provider does not answer this instance: until it does, what others have seen is as good as what this one has.
    pub fn lost_sight(&self) {
        self.lock().own.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // A panic while the lock was held left nothing half done: the store's batch is a transaction.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse_beyond_limit(&self, current: &Snapshot, events: &mut Vec<Event>) -> usize {
        let before = events.len();
        let mut room = self.events_max.saturating_sub(current.len());
        events.retain(|event| {
            let known = current.contains(&event.id);
            let admitted = known || room > 0;
            room -= usize::from(admitted && !known);
            admitted
        });
        let refused = before - events.len();
        self.refused.fetch_add(refused as u64, Ordering::Relaxed);
        refused
    }
}

/// Until when everything is known that was last seen, given these records.
fn known_until(records: &[Record], before: i64) -> i64 {
    let newest = records.iter().map(|record| record.last_seen).max();
    newest.map_or(before, |newest| before.max(newest.saturating_sub(CLOCKS_DIFFER_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::tests::sample;
    use crate::query::Range;
    use jiff::civil::datetime;

    /// A store whose disk can be filled up, and which others can look into.
    #[derive(Clone, Default)]
    struct Fake(Arc<Mutex<(Vec<Event>, bool)>>);

    impl Store for Fake {
        fn load(&mut self) -> Result<Vec<Record>, StoreError> {
            let events = self.0.lock().expect("unpoisoned").0.clone();
            Ok(events
                .into_iter()
                .map(|event| Record { event, first_seen: 0, last_seen: 0 })
                .collect())
        }

        fn apply(&mut self, events: &[Event], _: i64) -> Result<(), StoreError> {
            let (stored, full) = &mut *self.0.lock().expect("unpoisoned");
            if *full {
                return Err("postgres:/"
                    .parse::<crate::store::Choice>()
                    .expect_err("an error to return"));
            }
            stored.extend_from_slice(events);
            Ok(())
        }
    }

    fn events(ids: std::ops::Range<u32>) -> Vec<Event> {
        let noon = datetime(2024, 6, 30, 12, 0, 0, 0);
        ids.map(|i| sample(&i.to_string(), noon, noon, "t")).collect()
    }

    /// Purpose: what the store could not keep is not served, and is served once it could.
    #[test]
    fn durable_before_published() {
        let fake = Fake::default();
        let catalog = Catalog::open(Box::new(fake.clone()), EVENTS_MAX).expect("opens");
        fake.0.lock().expect("unpoisoned").1 = true;
        catalog.apply(events(0..3), 1).expect_err("the disk is full");
        assert_eq!((catalog.snapshot().len(), catalog.snapshot().version()), (0, 0));
        fake.0.lock().expect("unpoisoned").1 = false;
        assert_eq!(catalog.apply(events(0..3), 2).map(|applied| applied.new), Ok(3));
        assert_eq!(catalog.snapshot().len(), 3);
    }

    /// Purpose: an event outlives both its absence from the feed and a restart.
    #[test]
    fn served_for_ever() {
        let fake = Fake::default();
        let catalog = Catalog::open(Box::new(fake.clone()), EVENTS_MAX).expect("opens");
        catalog.apply(events(0..2), 1).expect("applied");
        let answer = catalog.snapshot().answer(Range::ALL);
        assert_eq!(catalog.apply(events(0..1), 2), Ok(Applied::default()));
        assert_eq!(catalog.apply(Vec::new(), 3), Ok(Applied::default()));
        let reopened = Catalog::open(Box::new(fake), EVENTS_MAX).expect("opens");
        for catalog in [catalog, reopened] {
            assert_eq!(catalog.snapshot().answer(Range::ALL), answer);
            assert_eq!(catalog.snapshot().version(), 1);
        }
    }

    /// Purpose: the limit admits its bound exactly, refuses only what is new, and says how much.
    #[test]
    fn limit_on_events() {
        let fake = Fake::default();
        let catalog = Catalog::open(Box::new(fake.clone()), 3).expect("opens");
        catalog.apply(events(0..2), 1).expect("applied");
        let applied = catalog.apply(events(0..5), 2).expect("applied");
        assert_eq!(applied, Applied { new: 1, changed: 0, refused: 2 });
        assert_eq!((catalog.snapshot().len(), catalog.refused_total()), (3, 2));
        assert!(fake.0.lock().expect("unpoisoned").0.iter().all(|event| &*event.plan_id < "3"));
    }
}
