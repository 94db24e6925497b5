//! The store by itself: what was applied, what was applied before, and what is refused.

use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};

use super::*;
use crate::command::{Action, Command, Poison};
use crate::queue::Position;
use crate::store::{COMMANDS_KEPT_US, Change, Outcome};

const SOURCE: &str = "journal";

fn at(offset: u64, content: Result<Command, Poison>) -> Delivery {
    Delivery { position: Some(Position { partition: 0, offset }), content }
}

fn command(number: u128, user: &str, requested_us: i64, action: Action) -> Command {
    let todo = Uuid::from_u128(number);
    Command {
        id: Uuid::from_u128(1 << 64 | requested_us as u128),
        todo,
        user_id: user.into(),
        requested_us,
        action,
    }
}

fn create(number: u128, user: &str, requested_us: i64) -> Command {
    let action = Action::Create { title: format!("t{number}\0ñ"), description: "d".into() };
    command(number, user, requested_us, action)
}

fn complete(number: u128, user: &str, requested_us: i64) -> Command {
    let action = Action::Update { title: None, description: None, completed: Some(true) };
    command(number, user, requested_us, action)
}

fn outcomes(applied: &Applied) -> Vec<Outcome> {
    applied.changes.commands.iter().map(|(_, outcome)| outcome.clone()).collect()
}

fn loaded(store: &mut Sqlite) -> BTreeMap<Uuid, Todo> {
    let todos = store.load().expect("it works").todos;
    todos.into_iter().map(|todo| (todo.id, todo)).collect()
}

/// Purpose: commands have their effect, only the owner's do, and a new process loads what was applied.
#[test]
fn applies() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let nested = directory.path().join("made/when/missing");
    let mut store = Sqlite::open(&nested).expect("a new store");
    let renamed = Action::Update { title: Some("new".into()), description: None, completed: None };
    let applied = store
        .apply(
            SOURCE,
            &[
                at(0, Ok(create(1, "a", 10))),
                at(1, Ok(create(2, "a", 20))),
                at(2, Ok(complete(1, "b", 30))),
                at(3, Ok(command(1, "b", 40, Action::Delete))),
                at(4, Ok(command(1, "a", 5, renamed))),
                at(5, Ok(complete(1, "a", 60))),
                at(6, Ok(command(2, "a", 70, Action::Delete))),
                at(7, Ok(complete(2, "a", 80))),
            ],
        )
        .expect("it works");
    use Outcome::{Done, NotFound};
    assert_eq!(outcomes(&applied), [Done, Done, NotFound, NotFound, Done, Done, Done, NotFound]);
    let todo = Todo {
        id: Uuid::from_u128(1),
        title: "new".into(),
        description: "d".into(),
        completed: true,
        user_id: "a".into(),
        created_us: 10,
        updated_us: 60,
    };
    let gone = Change::Gone(Uuid::from_u128(2));
    assert_eq!(applied.changes.todos, [Change::Is(todo.clone()), gone]);
    assert_eq!(applied.changes.revision.version, 1);
    drop(store);
    let mut store = Sqlite::open(&nested).expect("the same store");
    let loaded = store.load().expect("it works");
    assert_eq!((loaded.revision.version, loaded.todos), (1, vec![todo]));
    assert_eq!(store.positions(SOURCE), Ok(vec![(0, 8)]));
    assert_eq!(store.positions("another"), Ok(vec![]));
}

/// Purpose: what comes again after a crash, in whatever pieces, changes nothing: neither brings a deletion back
/// nor an older value, and the version rests.
#[test]
fn applies_once() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut store = Sqlite::open(directory.path()).expect("a new store");
    let deliveries = [
        at(3, Ok(create(1, "a", 10))),
        at(4, Ok(create(2, "a", 20))),
        at(9, Ok(command(2, "a", 30, Action::Delete))),
        at(10, Ok(complete(1, "a", 40))),
    ];
    store.apply(SOURCE, &deliveries).expect("it works");
    let before = (loaded(&mut store), store.load().expect("it works").revision);
    for from in 0..deliveries.len() {
        let again = store.apply(SOURCE, &deliveries[from..]).expect("it works");
        assert_eq!(again.repeated as usize, deliveries.len() - from);
        assert!(again.changes.todos.is_empty());
        assert!(outcomes(&again).iter().all(|outcome| *outcome == Outcome::Done));
    }
    assert_eq!((loaded(&mut store), store.load().expect("it works").revision), before);
    // The same command from no queue: the todo is there, and stays as it is.
    let seeded = Delivery { position: None, content: Ok(create(1, "a", 10)) };
    assert!(store.apply("seed", &[seeded]).expect("it works").changes.todos.is_empty());
}

/// Purpose: bytes that are no command are kept with the reason, once, and hold up nobody.
#[test]
fn dead_letters() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut store = Sqlite::open(directory.path()).expect("a new store");
    let poison = Command::decode(b"\xff poison").expect_err("it is none");
    let deliveries = [
        at(0, Ok(create(1, "a", 10))),
        at(1, Err(poison.clone())),
        at(2, Ok(complete(1, "a", 20))),
    ];
    let applied = store.apply(SOURCE, &deliveries).expect("it works");
    assert_eq!((applied.dead, outcomes(&applied)), (1, vec![Outcome::Done, Outcome::Done]));
    store.apply(SOURCE, &deliveries).expect("it works");
    let letters = store.dead_letters(10).expect("it works");
    assert_eq!(letters.len(), 1);
    assert_eq!((&*letters[0].origin, &letters[0].bytes), ("journal/0/1", &poison.bytes));
    assert_eq!(letters[0].reason, poison.reason);
}

/// Purpose: a transaction that cannot be written applies nothing, and the same deliveries are applied when it can.
#[test]
fn all_or_nothing() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut store = Sqlite::open(directory.path()).expect("a new store");
    store.connection.pragma_update(None, "query_only", true).expect("a setting");
    let deliveries = [at(0, Ok(create(1, "a", 10))), at(1, Ok(create(2, "a", 20)))];
    store.apply(SOURCE, &deliveries).expect_err("it is read only");
    store.connection.pragma_update(None, "query_only", false).expect("a setting");
    assert_eq!((store.positions(SOURCE), loaded(&mut store).len()), (Ok(vec![]), 0));
    // Full in the middle: there is room for so many pages and no more.
    let pages: i64 =
        store.connection.query_row("PRAGMA page_count", [], |row| row.get(0)).expect("a number");
    store.connection.pragma_update(None, "max_page_count", pages).expect("a setting");
    let long = |number| {
        let action = Action::Create { title: "t".into(), description: "d".repeat(100_000) };
        at(number, Ok(command(u128::from(number), "a", 1, action)))
    };
    let message = store.apply(SOURCE, &[long(0), long(1)]).expect_err("it is full").to_string();
    assert!(message.contains("free some space"), "{message}");
    assert_eq!((store.positions(SOURCE), loaded(&mut store).len()), (Ok(vec![]), 0));
    store.connection.pragma_update(None, "max_page_count", 1_000_000).expect("a setting");
    store.apply(SOURCE, &deliveries).expect("it works");
    store.sync().expect("it works");
    assert_eq!(loaded(&mut store).len(), 2);
}

/// Purpose: the settings that durability rests on are in force, not just asked for.
#[test]
fn durable_settings() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = Sqlite::open(directory.path()).expect("a new store");
    let pragma = |name| {
        store
            .connection
            .pragma_query_value(None, name, |row| row.get::<_, rusqlite::types::Value>(0))
    };
    assert_eq!(pragma("synchronous").expect("a value"), 1.into());
    assert_eq!(pragma("journal_mode").expect("a value"), "wal".to_owned().into());
}

/// Purpose: a damaged, foreign or future file is refused by name with a remedy, and left as it is.
#[test]
fn refuses_what_it_cannot_trust() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join(FILE);
    let refusal = || Sqlite::open(directory.path()).expect_err("it is not usable").to_string();
    let mut store = Sqlite::open(directory.path()).expect("a new store");
    let many: Vec<Delivery> =
        (0..1000).map(|number| at(number, Ok(create(number.into(), "a", 1)))).collect();
    store.apply(SOURCE, &many).expect("it works");
    store.sync().expect("it works");
    drop(store);
    let sound = fs::read(&path).expect("it exists");

    let mut file = fs::OpenOptions::new().write(true).open(&path).expect("it exists");
    file.seek(SeekFrom::Start(3 * 4096)).expect("seekable");
    file.write_all(&[0xA5; 6 * 4096]).expect("writable");
    drop(file);
    let message = refusal();
    assert!(message.contains("todos.db is damaged") && message.contains(".recover"), "{message}");

    fs::write(&path, b"not a database, and longer than a header would have to be")
        .expect("writable");
    assert!(refusal().contains("todos.db is damaged"));

    fs::remove_file(&path).expect("it exists");
    let foreign = Connection::open(&path).expect("a new file");
    foreign.execute_batch("CREATE TABLE t (x)").expect("a foreign file");
    drop(foreign);
    assert!(refusal().contains("another program"));

    fs::write(&path, &sound).expect("writable");
    let future = Connection::open(&path).expect("it exists");
    future.execute("INSERT INTO schema_migrations VALUES (99, 0)", []).expect("a future file");
    drop(future);
    assert!(refusal().contains("layout 99, this version reads 4"));

    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(directory.path().join(format!("{FILE}{suffix}")));
    }
    fs::write(&path, &sound).expect("writable");
    assert_eq!(loaded(&mut Sqlite::open(directory.path()).expect("sound again")).len(), 1000);
}

/// Purpose: a topic that is deleted and recreated counts from 0 again: its commands are new ones and are applied, while
/// one that is delivered twice is applied once, wherever it stands. So it is with what is no command.
#[test]
fn a_recreated_topic() {
    const TOPIC: &str = "kafka/topic";
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut store = Sqlite::open(directory.path()).expect("a new store");
    let now = now_us();
    let poison = |text: &str| Poison { bytes: text.into(), reason: "not a command".into() };
    let first = [
        at(0, Ok(create(1, "a", now))),
        at(1, Ok(command(1, "a", now + 1, Action::Delete))),
        at(2, Err(poison("first"))),
    ];
    assert_eq!(store.apply(TOPIC, &first).expect("it works").dead, 1);
    let again = store.apply(TOPIC, &first).expect("it works");
    assert_eq!((again.repeated, again.dead, again.changes.todos.len()), (3, 0, 0));
    let recreated = [
        at(0, Ok(create(2, "a", now + 2))),
        at(1, Ok(create(1, "a", now))),
        at(2, Err(poison("second"))),
    ];
    let applied = store.apply(TOPIC, &recreated).expect("it works");
    assert_eq!((applied.repeated, applied.dead), (1, 1));
    assert_eq!(loaded(&mut store).into_keys().collect::<Vec<_>>(), [Uuid::from_u128(2)]);
    // Those that come weeks late, after their ids were removed, are recognized by their place.
    store.connection.execute_batch("DELETE FROM applied_commands").expect("it works");
    let old = at(1, Ok(create(3, "a", now - 2 * COMMANDS_KEPT_US)));
    assert_eq!(store.apply(TOPIC, &[old]).expect("it works").repeated, 1);
}

/// Purpose: a dead letter of Kafka is to be sent until it was; one of the journal is not.
#[test]
fn dead_letters_are_sent_once() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut store = Sqlite::open(directory.path()).expect("a new store");
    let poison = || Err(Poison { bytes: b"x".to_vec(), reason: "not a command".into() });
    store.apply("kafka/topic", &[at(0, poison()), at(1, poison())]).expect("it works");
    store.apply(SOURCE, &[at(0, poison())]).expect("it works");
    let letters = store.unsent("kafka/topic", 10).expect("it works");
    assert_eq!(letters.len(), 2);
    store.were_sent(&[letters[0].number]).expect("it works");
    assert_eq!(store.unsent("kafka/topic", 10).expect("it works"), letters[1..]);
}

/// Purpose: what a process does is never taken for older than what another did with the same file, also if that was
/// restored from a backup.
#[test]
fn every_opening_is_a_timeline() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let revision = || {
        let mut store = Sqlite::open(directory.path()).expect("a store");
        store.load().expect("it works").revision
    };
    let first = revision();
    assert!(revision() > first);
}

/// Purpose: the first number by which commands are divided stays until an operator changes it; it is known beside the
/// connection that applies, and after a restart.
#[test]
fn the_number_of_partitions_is_kept() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = Sqlite::open(directory.path()).expect("a new store");
    let mut beside = Sqlite::open_to_note(directory.path()).expect("it is there");
    assert_eq!(beside.divided_by("kafka/a", None), Ok(None));
    assert_eq!(beside.divided_by("kafka/a", Some(4)), Ok(Some(4)));
    assert_eq!(beside.divided_by("kafka/a", Some(8)), Ok(Some(4)));
    drop((beside, store));
    let mut store = Sqlite::open(directory.path()).expect("it is there");
    assert_eq!(store.divided_by("kafka/a", None), Ok(Some(4)));
    store.divide_by("kafka/a", 8).expect("stored");
    assert_eq!(store.divided_by("kafka/a", Some(2)), Ok(Some(8)));
}
