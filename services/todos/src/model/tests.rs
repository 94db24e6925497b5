//! What readers see, against the plainest model: a map, sorted.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::chunk::ROWS_MAX;
use super::*;
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
    Changes { revision: revision(1), todos, commands: Vec::new() }
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
    let model = Model::new(Loaded { revision: revision(1), todos });
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

/// Purpose: everything that a feed gives anew replaces what was shown: what is missing in it is gone.
#[test]
fn replaced() {
    let model = Model::new(Loaded {
        revision: revision(1),
        todos: (0..10).map(|n| sample(n, 0)).collect(),
    });
    model.replace(Loaded {
        revision: revision(2),
        todos: (5..7).map(|n| sample(n, n as i64)).collect(),
    });
    assert_eq!(list(&model, 0), format!("[{},{}]", json(&sample(6, 6)), json(&sample(5, 5))));
    assert!(matches!(model.todo(Uuid::from_u128(0)), Read::Ready(None)));
    assert!(matches!(model.todo(Uuid::from_u128(5)), Read::Ready(Some(_))));
}

/// Purpose: who waits for a command hears what became of it, and finds the effect there.
#[tokio::test]
async fn waiting() {
    let model = Arc::new(Model::new(Loaded::default()));
    let (command, todo) = (Uuid::from_u128(1), sample(2, 0));
    let wait = model.wait_for(command);
    let _given_up = model.wait_for(Uuid::from_u128(3));
    let teller = Arc::clone(&model);
    let commands = vec![(Uuid::from_u128(9), Outcome::NotFound), (command, Outcome::Done)];
    let told = Changes { revision: revision(1), todos: vec![Change::Is(todo.clone())], commands };
    std::thread::spawn(move || teller.apply(told)).join().expect("it does not panic");
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
