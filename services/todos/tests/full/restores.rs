//! The store is restored from a backup, over and over, while instances are killed and Redis is restarted.
//!
//! `TORTURE_ROUNDS` says how many rounds (4).

use std::collections::{BTreeMap, BTreeSet};

use highwater_testkit::{PATIENCE, Process, eventually, within};
use highwater_todos::store::Store as _;
use highwater_todos::store::postgres::{Postgres, Timeouts, parse_url};

use crate::restarts::{ask, instance_with};
use crate::servers::{Redis, rows, schema, sql};
use crate::{creation, delivery};

const TABLES: [&str; 6] =
    ["todos", "todo_state", "todo_versions", "todo_tombstones", "applied_commands", "positions"];

fn back_up(url: &str) {
    let copy = |table: &str| {
        format!("DROP TABLE IF EXISTS b_{table}; CREATE TABLE b_{table} AS TABLE {table};")
    };
    let copies: String = TABLES.map(copy).concat();
    sql(url, &format!("BEGIN ISOLATION LEVEL REPEATABLE READ; {copies} COMMIT"));
}

fn restore(url: &str) {
    // Not by TRUNCATE, which waits for readers that wait for it.
    let copy = |table| format!("DELETE FROM {table}; INSERT INTO {table} TABLE b_{table};");
    sql(url, &format!("BEGIN; {} COMMIT", TABLES.map(copy).concat()));
}

/// Ids and titles, as an instance shows them.
fn shown(instance: &Process, list: &str) -> Vec<(String, String)> {
    let list = instance.get(list).json();
    let text = |todo: &serde_json::Value, key| todo[key].as_str().expect("text").to_owned();
    let todos = list.as_array().expect("a list").iter();
    todos.map(|todo| (text(todo, "id"), text(todo, "title"))).collect()
}

/// Purpose: a worker learns which commands of a topic its store never had, after a restore or once the topic has removed them,
/// and that a topic gives offsets to new commands that the store has passed; repetitions and a journal's gaps mean nothing.
#[test]
fn commands_that_are_missing() {
    let url = schema("full_breaks");
    let settings = parse_url(&url).expect("a URL");
    let mut store = Postgres::connect(&settings, Timeouts::default()).expect("connected");
    let mut breaks = |source: &str, offsets: &[u64], first: u64| {
        let numbers = offsets.iter().zip(first..);
        let batch: Vec<_> =
            numbers.map(|(&offset, number)| delivery(offset, creation(number))).collect();
        let applied = store.apply(source, &batch).expect("applied");
        applied.breaks.iter().map(|one| (one.expected, one.found)).collect::<Vec<_>>()
    };
    assert_eq!(breaks("kafka/t", &[0, 1, 2], 1), []);
    assert_eq!(breaks("kafka/t", &[1, 2, 3], 2), [], "two are repeated");
    assert_eq!(breaks("kafka/t", &[9, 10], 10), [(4, 9)]);
    assert_eq!(breaks("kafka/t", &[11], 12), []);
    assert_eq!(breaks("kafka/t", &[0, 1], 1), [], "they are repeated");
    assert_eq!(breaks("kafka/t", &[0, 1], 20), [(12, 0)]);
    assert_eq!(breaks("queue/t", &[5, 9], 30), []);
}

/// What is written, and then shown.
struct Writer {
    count: u32,
}

impl Writer {
    fn create(&mut self, instance: &Process) -> (String, String) {
        self.count += 1;
        let title = format!("todo {}", self.count);
        // A request that waits for the outcome may not get it if the store is restored meanwhile.
        let created = ask(instance, "POST", "/todos", &format!(r#"{{"title":"{title}"}}"#));
        assert_eq!(created.status, 202, "{created:?}\n{}", instance.log());
        let id = created.member("id");
        eventually("it is shown", || instance.get(&format!("/todos/{id}")).status == 200);
        (id, title)
    }
}

/// Purpose: an instance whose store was restored says how many commands of its own queue are missing, and how to apply them
/// again; done so, they are there, and none is applied twice. A start that finds nothing missing says nothing.
#[test]
fn commands_of_a_queue_that_are_missing() {
    let url = schema("full_queue_breaks");
    let data = tempfile::tempdir().expect("a temporary directory");
    let start = || instance_with(&url, data.path(), &[]);
    let says = |instance: &Process| instance.log().contains("the store has lost commands");
    let (first, mut writer) = (start(), Writer { count: 0 });
    let mut all = BTreeMap::from([writer.create(&first)]);
    back_up(&url);
    all.extend([(); 3].map(|()| writer.create(&first)));
    first.stop();
    let second = start();
    assert!(!says(&second), "{}", second.log());
    second.stop();
    restore(&url);
    let third = start();
    assert_eq!(shown(&third, "/todos").len(), 1);
    let log = third.log();
    assert!(says(&third) && log.contains("commands=3"), "{log}");
    let position = "queue/consumer-applier.pos";
    assert!(log.contains(position), "{log}");
    third.stop();
    std::fs::remove_file(data.path().join(position)).expect("it is there");
    let fourth = start();
    assert_eq!(shown(&fourth, "/todos").into_iter().collect::<BTreeMap<_, _>>(), all);
    assert!(!says(&fourth), "{}", fourth.log());
    assert_eq!(fourth.metric(r#"todos_commands_total{outcome="repeated"}"#), 1.0);
}

/// Purpose: after each of many restores both instances show what the store has, at every limit, from Redis or without it:
/// what was applied before the backup and after the restore is there, and what the restore took away is shown by nobody,
/// whatever was killed meanwhile.
#[test]
fn torture_of_restores() {
    let Some(mut redis) = Redis::start() else { return };
    let rounds = std::env::var("TORTURE_ROUNDS").map_or(4, |text| text.parse().expect("a number"));
    let url = schema("full_restores");
    let data = [(); 2].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let redis_url = redis.url();
    let start = |number: usize| -> Process {
        instance_with(&url, data[number].path(), &["--redis-url", &redis_url])
    };
    let mut instances = [start(0), start(1)];
    let (mut writer, mut kept) = (Writer { count: 0 }, BTreeMap::new());
    // Journals that had not committed a deletion when it was taken by a restore may give it again.
    let mut may_be_gone = BTreeSet::new();
    let (mut applied, mut taken) = (0, 0);
    for round in 0..rounds {
        for number in 0..4 {
            kept.extend([writer.create(&instances[number % 2])]);
        }
        back_up(&url);
        let lost = [0, 1, 0].map(|number| writer.create(&instances[number]));
        let changed = kept.keys().nth(round % kept.len()).expect("there are some").clone();
        let target = format!("/todos/{changed}?wait=applied");
        assert_eq!(ask(&instances[1], "DELETE", &target, "").status, 200);
        may_be_gone.insert(changed);
        match round % 4 {
            0 => {}
            1 => instances[round / 4 % 2].kill(),
            2 => redis.server.end("KILL"),
            _ => instances.iter_mut().for_each(Process::kill),
        }
        restore(&url);
        match round % 4 {
            0 => {}
            1 => instances[round / 4 % 2] = start(round / 4 % 2),
            2 => redis.restart(),
            _ => instances = [start(0), start(1)],
        }
        // Which the instances do not see before they have noticed.
        for instance in &instances {
            kept.extend([writer.create(instance)]);
        }
        let mut report = String::new();
        let agree = within(PATIENCE, || {
            let stored = "SELECT id::text, title FROM todos ORDER BY created_at DESC, id DESC";
            let stored = rows(&url, stored);
            report = format!("the store has {stored:?}");
            instances.iter().all(|instance| {
                [1, 3, 10_000].iter().all(|limit| {
                    let list = shown(instance, &format!("/todos?limit={limit}"));
                    let is_it = list == stored[..stored.len().min(*limit)];
                    if !is_it {
                        report += &format!("\nshown at {limit}: {list:?}");
                    }
                    is_it
                })
            })
        });
        assert!(agree, "round {round}: {report}");
        let list: BTreeMap<_, _> = shown(&instances[0], "/todos").into_iter().collect();
        for (id, title) in &kept {
            let is_kept = may_be_gone.contains(id) || list.get(id) == Some(title);
            assert!(is_kept, "round {round}: {title} is lost");
        }
        taken += lost.iter().filter(|(id, _)| !list.contains_key(id)).count();
        applied += 10;
        kept = list;
        eventually("the store is shown by both", || {
            shown(&instances[0], "/todos") == shown(&instances[1], "/todos")
        });
    }
    assert!(taken > 0, "no restore took anything away");
    eprintln!(
        "{rounds} restores, {applied} writes applied, {taken} taken by restores: 0 lost, 0 back"
    );
}
