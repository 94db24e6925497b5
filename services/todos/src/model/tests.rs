//! What readers see, against the plainest model: a map, sorted.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::chunk::ROWS_MAX;
use super::*;
use crate::store::{Revision, Store as _};
use crate::todo::tests::sample;

fn list(model: &Model, limit: i64) -> String {
    let Read::Ready(bytes) = model.list(Limit::of(limit)) else { unreachable!("it is in memory") };
    String::from_utf8(bytes.to_vec()).expect("JSON is text")
}

fn json(todo: &Todo) -> String {
    let mut out = Vec::new();
    todo.write_json(&mut out);
    String::from_utf8(out).expect("JSON is text")
}

fn revision(version: u64) -> Revision {
    Revision { timeline: 0, version }
}

fn changes(todos: Vec<Change>) -> Changes {
    Changes { revision: revision(1), todos, ..Changes::default() }
}

/// Purpose: an empty table is an empty list, and a limit is exact at one below, at and above the count.
#[test]
fn limits() {
    let model = Model::new(Loaded::default());
    assert_eq!(list(&model, 0), "[]");
    assert_eq!(list(&model, 1), "[]");
    let todos: Vec<Todo> = (0..3).map(|n| sample(n, n as i64)).collect();
    model.apply(changes(todos.iter().cloned().map(Change::Is).collect()));
    let newest = |count| {
        let shown: Vec<String> = todos.iter().rev().take(count).map(json).collect();
        format!("[{}]", shown.join(","))
    };
    for (limit, count) in [(1, 1), (2, 2), (3, 3), (4, 3), (0, 3), (-1, 3), (i64::MAX, 3)] {
        assert_eq!(list(&model, limit), newest(count), "{limit}");
    }
}

/// Purpose: no list has more than the contract's 10 000, and one has exactly that many.
#[test]
fn the_cap() {
    let todos = (0..10_001).map(|n| sample(n, 5)).collect();
    let model = Model::new(Loaded { revision: revision(1), todos, count: 0 });
    for (limit, count) in [(9_999, 9_999), (10_000, 10_000), (10_001, 10_000), (0, 10_000)] {
        let read: serde_json::Value = serde_json::from_str(&list(&model, limit)).expect("JSON");
        assert_eq!(read.as_array().map(Vec::len), Some(count));
        // Those of one moment are sorted by id.
        assert_eq!(read[0]["title"], "Todo 10000");
    }
}

/// Purpose: a chunk that is full is divided, and small neighbours are joined: the number of chunks follows
/// the number of todos, whatever was created and deleted.
#[test]
fn chunks_stay_few() {
    let model = Model::new(Loaded::default());
    for n in 0..2_000 {
        model.apply(changes(vec![Change::Is(sample(n, n as i64))]));
    }
    let lengths = model.snapshot().chunk_lengths();
    assert_eq!(lengths.iter().sum::<usize>(), 2_000);
    assert!(lengths.len() <= 2 * 2_000 / ROWS_MAX, "{lengths:?}");
    for n in (0..2_000).filter(|n| n % 20 != 0) {
        model.apply(changes(vec![Change::Gone(Uuid::from_u128(n))]));
    }
    let lengths = model.snapshot().chunk_lengths();
    assert_eq!(lengths.iter().sum::<usize>(), 100);
    assert!(lengths.len() <= 5, "{lengths:?}");
}

/// Purpose: a complete list from a feed replaces what was shown: todos that are missing in it are gone.
#[test]
fn replaced() {
    let model = Model::new(Loaded {
        count: 0,
        revision: revision(1),
        todos: (0..10).map(|n| sample(n, 0)).collect(),
    });
    model.replace(Loaded {
        count: 0,
        revision: revision(2),
        todos: (5..7).map(|n| sample(n, n as i64)).collect(),
    });
    assert_eq!(list(&model, 0), format!("[{},{}]", json(&sample(6, 6)), json(&sample(5, 5))));
    assert!(matches!(model.todo(Uuid::from_u128(0)), Read::Ready(None)));
    assert!(matches!(model.todo(Uuid::from_u128(5)), Read::Ready(Some(_))));
}

/// Purpose: a request that waits for a command gets its outcome, and finds the effect there.
#[tokio::test]
async fn waiting() {
    let model = Arc::new(Model::new(Loaded::default()));
    let (command, todo) = (Uuid::from_u128(1), sample(2, 0));
    let wait = model.wait_for(command);
    let _given_up = model.wait_for(Uuid::from_u128(3));
    let teller = Arc::clone(&model);
    let commands = vec![(Uuid::from_u128(9), Outcome::NotFound), (command, Outcome::Done)];
    let changes = Changes {
        revision: revision(1),
        count: 1,
        todos: vec![Change::Is(todo.clone())],
        commands,
    };
    std::thread::spawn(move || teller.apply(changes)).join().expect("it does not panic");
    assert_eq!(wait.await, Some(Outcome::Done));
    assert_eq!(list(&model, 1), format!("[{}]", json(&todo)));
}

use crate::store::Outcome;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Purpose: after every history of creations, changes and deletions, every list and every todo is that of
    /// the plainest model.
    #[test]
    fn equals_the_model(
        batches in prop::collection::vec(
            prop::collection::vec((0..400u128, 0..50i64, 0..4u8, 0..50usize), 0..200), 1..6),
        limits in prop::collection::vec(0..450i64, 1..5),
    ) {
        let model = Model::new(Loaded::default());
        let mut expected: BTreeMap<Uuid, Todo> = BTreeMap::new();
        for batch in batches {
            let mut changed = BTreeMap::new();
            for (number, created_us, what, length) in batch {
                let id = Uuid::from_u128(number);
                // A todo keeps its time of creation while it exists.
                let created_us = expected.get(&id).map_or(created_us, |todo| todo.created_us);
                // A few are so long that a chunk has room for two of them.
                let description = "d".repeat(if length == 0 { 30_000 } else { length });
                let todo = Todo { description, ..sample(number, created_us) };
                match what {
                    0 => {
                        expected.remove(&id);
                        changed.insert(id, Change::Gone(id));
                    }
                    _ => {
                        expected.insert(id, todo.clone());
                        changed.insert(id, Change::Is(todo));
                    }
                }
            }
            model.apply(changes(changed.into_values().collect()));
        }
        let mut sorted: Vec<&Todo> = expected.values().collect();
        sorted.sort_by_key(|todo| std::cmp::Reverse((todo.created_us, todo.id)));
        for limit in limits {
            let count = if limit == 0 { sorted.len() } else { limit as usize };
            let shown: Vec<String> = sorted.iter().take(count).map(|todo| json(todo)).collect();
            prop_assert_eq!(list(&model, limit), format!("[{}]", shown.join(",")));
        }
        for number in 0..400 {
            let id = Uuid::from_u128(number);
            let Read::Ready(found) = model.todo(id) else { unreachable!("it is in memory") };
            let found = found.map(|shown| String::from_utf8(shown.json.to_vec()).expect("text"));
            prop_assert_eq!(found, expected.get(&id).map(json));
        }
    }
}

/// A store that has these todos, in memory.
struct Remembered(Arc<Mutex<BTreeMap<Key, Todo>>>);

impl crate::store::Store for Remembered {
    fn newest(&mut self, rows_max: usize, _bytes: usize) -> Result<Loaded, StoreError> {
        let todos = self.0.lock().expect("no panic");
        let newest = todos.values().rev().take(rows_max).cloned().collect();
        Ok(Loaded { revision: revision(1), count: todos.len() as u64, todos: newest })
    }

    fn find(&mut self, id: Uuid) -> Result<Option<Todo>, StoreError> {
        Ok(self.0.lock().expect("no panic").values().find(|todo| todo.id == id).cloned())
    }

    fn apply(
        &mut self,
        _: &str,
        _: &[crate::queue::Delivery],
    ) -> Result<crate::store::Applied, StoreError> {
        unreachable!("it is only read")
    }

    fn positions(&mut self, _: &str) -> Result<Vec<(u32, u64)>, StoreError> {
        unreachable!("it is only read")
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        unreachable!("it is only read")
    }

    fn dead_letters(&mut self, _: usize) -> Result<Vec<crate::store::DeadLetter>, StoreError> {
        unreachable!("it is only read")
    }

    fn unsent(&mut self, _: &str, _: usize) -> Result<Vec<crate::store::DeadLetter>, StoreError> {
        unreachable!("it is only read")
    }

    fn were_sent(&mut self, _: &[i64]) -> Result<(), StoreError> {
        unreachable!("it is only read")
    }

    fn divided_by(&mut self, _: &str, _: Option<u32>) -> Result<Option<u32>, StoreError> {
        unreachable!("it is only read")
    }

    fn divide_by(&mut self, _: &str, _: u32) -> Result<(), StoreError> {
        unreachable!("it is only read")
    }
}

fn now<T>(read: Read<T>) -> T {
    match read {
        Read::Ready(value) => value,
        Read::Later(later) => {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime.expect("a runtime").block_on(later).expect("the store works")
        }
    }
}

/// Purpose: with a bound, the memory that todos take is bounded, and every read shows what a store with all of them shows,
/// whatever is created, changed and deleted, inside the bound and beyond it, and after a reload.
#[test]
fn a_store_larger_than_memory() {
    let store: Arc<Mutex<BTreeMap<Key, Todo>>> = Arc::default();
    let opened = Arc::clone(&store);
    let beyond = Beyond::new(move || Ok(Box::new(Remembered(Arc::clone(&opened))) as _));
    const BYTES: usize = 400_000;
    let model = Model::bounded(Loaded::default(), BYTES, beyond.expect("threads"));
    let mut random = fastrand::Rng::with_seed(17);
    for round in 0..4_000u64 {
        let mut todos = store.lock().expect("no panic");
        let old = todos.len().checked_sub(1).map(|last| random.usize(..=last));
        let old = old.and_then(|at| todos.values().nth(at).cloned());
        let change = match (old, random.u32(..10)) {
            (Some(old), 0..2) => {
                todos.remove(&old.key());
                Change::Gone(old.id)
            }
            (Some(mut old), 2..4) => {
                old.title = format!("changed {round}");
                todos.insert(old.key(), old.clone());
                Change::Is(old)
            }
            // Some were requested long before.
            _ => {
                let todo = sample(u128::from(round), random.i64(..round as i64 + 1));
                todos.insert(todo.key(), todo.clone());
                Change::Is(todo)
            }
        };
        let count = todos.len() as u64;
        drop(todos);
        let revision = revision(round + 1);
        model.apply(Changes { revision, count, todos: vec![change], commands: Vec::new() });
        if round == 2_000 {
            let loaded = Remembered(Arc::clone(&store)).newest(200, usize::MAX);
            model.replace(Loaded { revision, ..loaded.expect("it works") });
        }
        let all = store.lock().expect("no panic").clone();
        let id = Uuid::from_u128(random.u64(..=round).into());
        for _ in 0..2 {
            let shown = now(model.todo(id)).map(|shown| shown.json.to_vec());
            let expected =
                all.values().find(|todo| todo.id == id).map(json).map(String::into_bytes);
            assert_eq!(shown, expected, "round {round}");
        }
        if round % 20 == 0 {
            for limit in [1, 50, 700, 10_000] {
                let shown: Vec<String> = all.values().rev().take(limit).map(json).collect();
                let list = now(model.list(Limit::of(limit as i64)));
                assert!(list == format!("[{}]", shown.join(",")), "round {round}, limit {limit}");
            }
        }
        assert!(model.snapshot().bytes() <= BYTES / 2);
        assert_eq!(model.snapshot().count(), all.len() as u64);
    }
    assert!(!model.snapshot().is_whole() && !model.snapshot().is_empty(), "{model:?}");
}
