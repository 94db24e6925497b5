//! The Postgres store and its feed. Each test has a schema of its own, so they can run together and again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use highwater_testkit::eventually;
use highwater_todos::command::{Action, Command, Poison};
use highwater_todos::feed::{Feed as _, News};
use highwater_todos::queue::Delivery;
use highwater_todos::store::postgres::{Postgres, PostgresFeed, Timeouts, parse_url};
use highwater_todos::store::{Change, Loaded, Outcome, Revision, Store as _};

use crate::servers::{number, schema, sql};
use crate::{command, creation, delivery, id};

fn connect(url: &str) -> Postgres {
    Postgres::connect(&parse_url(url).expect("a URL"), Timeouts::default()).expect("connected")
}

fn feed(url: &str) -> PostgresFeed {
    PostgresFeed::new(&parse_url(url).expect("a URL"), usize::MAX).expect("a runtime")
}

fn titles(loaded: &Loaded) -> BTreeSet<String> {
    loaded.todos.iter().map(|todo| todo.title.clone()).collect()
}

fn deliveries(commands: impl IntoIterator<Item = Command>) -> Vec<Delivery> {
    (0..).zip(commands).map(|(offset, command)| delivery(offset, command)).collect()
}

fn update(title: &str) -> Action {
    Action::Update { title: Some(title.into()), description: None, completed: Some(true) }
}

/// Purpose: commands have the effects that they are documented to have, several about one todo in a batch in their
/// order; outcomes and changes are reported; another connection sees the same.
#[test]
fn commands_are_applied_in_order() {
    let url = schema("full_apply");
    let mut store = connect(&url);
    let foreign = Command { user_id: "other".into(), ..command(5, 1, Action::Delete) };
    let batch = [
        creation(1),
        creation(2),
        command(3, 1, update("changed")),
        command(4, 2, Action::Delete),
        foreign,
        command(6, 9, update("missing")),
        creation(7),
    ];
    let applied = store.apply("test", &deliveries(batch)).expect("applied");
    let outcomes: Vec<Outcome> =
        applied.changes.commands.into_iter().map(|(_, outcome)| outcome).collect();
    use Outcome::{Done, NotFound};
    assert_eq!(outcomes, [Done, Done, Done, Done, NotFound, NotFound, Done]);
    assert_eq!((applied.dead, applied.repeated), (0, 0));
    let loaded = connect(&url).load().expect("loaded");
    assert_eq!(titles(&loaded), BTreeSet::from(["changed".to_owned(), "Todo 7".to_owned()]));
    assert_eq!(loaded.revision, applied.changes.revision);
    let changed = loaded.todos.iter().find(|todo| todo.id == id(1)).expect("it is there");
    assert!(changed.completed);
    assert_eq!(changed.created_us, creation(1).requested_us);
    assert_eq!(changed.updated_us, command(3, 1, Action::Delete).requested_us);
    assert_eq!(store.positions("test").expect("known"), [(0, 7)]);
}

/// Purpose: what a queue delivers again changes nothing and says what became of it, whatever its position: a todo that
/// was deleted does not come back, and an update is not done twice.
#[test]
fn repetitions_change_nothing() {
    let url = schema("full_repeat");
    let mut store = connect(&url);
    let batch =
        [creation(1), creation(2), command(3, 1, Action::Delete), command(4, 2, update("x"))];
    let first = store.apply("a", &deliveries(batch.clone())).expect("applied");
    let before = store.load().expect("loaded");
    for source in ["a", "b"] {
        let again = store.apply(source, &deliveries(batch.clone())).expect("applied");
        assert_eq!((again.repeated, again.changes.todos.len()), (4, 0));
        assert_eq!(again.changes.commands, first.changes.commands);
    }
    assert_eq!(store.load().expect("loaded"), before);
}

/// Purpose: after a rebalance two consumers may hold the same commands. Both apply at once, and each command has its
/// effect once, in order.
#[test]
fn two_consumers_of_one_partition() {
    let url = schema("full_zombie");
    connect(&url);
    let steps = 40;
    let mut commands = vec![creation(1)];
    commands.extend((2..steps).map(|number| command(number, 1, update(&format!("step {number}")))));
    let all = deliveries(commands);
    let applied: u64 = thread::scope(|scope| {
        let consume = |begin: usize| {
            let (all, url) = (&all, &url);
            scope.spawn(move || {
                let mut store = connect(url);
                let batches = all[begin..].chunks(3);
                batches
                    .map(|batch| {
                        let applied = store.apply("test", batch).expect("applied");
                        batch.len() as u64 - applied.repeated
                    })
                    .sum::<u64>()
            })
        };
        let consumers = [consume(0), consume(0), consume(0)];
        consumers.into_iter().map(|consumer| consumer.join().expect("no panic")).sum()
    });
    assert_eq!(applied, all.len() as u64, "each command has its effect once");
    let loaded = connect(&url).load().expect("loaded");
    assert_eq!(titles(&loaded), BTreeSet::from([format!("step {}", steps - 1)]));
}

/// The same commands out of another partition.
fn in_partition(partition: u32, commands: impl IntoIterator<Item = Command>) -> Vec<Delivery> {
    let mut deliveries = deliveries(commands);
    deliveries.iter_mut().filter_map(|one| one.position.as_mut()).for_each(|position| {
        position.partition = partition;
    });
    deliveries
}

/// Purpose: workers apply their partitions at the same time. One that is held up in the middle of its transaction holds
/// up no other, and takes its version only when it ends: nobody sees a gap. (The row of the version was locked from
/// the first statement to the commit, so that all workers together were as fast as one.)
#[test]
fn partitions_do_not_wait_for_each_other() {
    let url = schema("full_partitions");
    let (mut one, mut two) = (connect(&url), connect(&url));
    one.apply("kafka/topic", &in_partition(0, [creation(1)])).expect("applied");
    let mut feed = feed(&url);
    news(&mut feed);
    let (locked, held) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    thread::scope(|scope| {
        // Moved, so that a failed assertion releases it.
        let release = release;
        let url = &url;
        scope.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let connected = tokio_postgres::connect(url, tokio_postgres::NoTls).await;
                let (client, connection) = connected.expect("connected");
                tokio::spawn(connection);
                let lock = format!("BEGIN; SELECT 1 FROM todos WHERE id = '{}' FOR UPDATE", id(1));
                client.batch_execute(&lock).await.expect("locked");
                locked.send(()).expect("the test waits");
                tokio::task::spawn_blocking(move || released.recv().ok()).await.expect("no panic");
            });
        });
        held.recv().expect("it is locked");
        let held_up = scope.spawn(move || {
            one.apply("kafka/topic", &in_partition(0, [command(2, 1, update("late"))]))
        });
        let waits = "SELECT count(*) FROM pg_stat_activity
            WHERE application_name = 'full_partitions' AND wait_event_type = 'Lock'";
        eventually("it waits", || number(url, waits) == 1);
        let quick = two.apply("kafka/topic", &in_partition(1, [creation(3)])).expect("applied");
        assert_eq!(quick.changes.revision.version, 2);
        let News::Changes(changes) = news(&mut feed) else { panic!("the difference is known") };
        assert_eq!(changes.commands, [(id(3), Outcome::Done)]);
        drop(release);
        let late = held_up.join().expect("no panic").expect("applied");
        assert_eq!(late.changes.revision.version, 3);
        let News::Changes(changes) = news(&mut feed) else { panic!("the difference is known") };
        assert_eq!(changes.commands, [(id(2), Outcome::Done)]);
    });
    let loaded = connect(&url).load().expect("loaded");
    assert_eq!((loaded.count, loaded.revision.version), (2, 3));
    assert_eq!(titles(&loaded), BTreeSet::from(["late".to_owned(), "Todo 3".to_owned()]));
}

/// Purpose: while several workers apply, the changes that a feed reports one after the other always add up to what the
/// store has: none is left out because its transaction began before, and ended after, another one.
#[test]
fn a_feed_of_several_workers() {
    const WORKERS: u32 = 4;
    const ROUNDS: u64 = 60;
    let url = schema("full_several");
    connect(&url);
    let mut feed = feed(&url);
    news(&mut feed);
    let mut known = BTreeMap::new();
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let url = &url;
            scope.spawn(move || {
                let mut store = connect(url);
                let base = u64::from(worker) * 100_000;
                for round in 0..ROUNDS {
                    let number = base + round * 10;
                    let todo = base + round % 7;
                    let batch = [
                        command(number, todo, creation(todo).action),
                        command(number + 1, todo, update(&format!("{worker} {round}"))),
                        command(number + 2, base + (round + 3) % 7, Action::Delete),
                    ];
                    let applied = store.apply("kafka/topic", &in_partition(worker, batch));
                    assert_eq!(applied.expect("applied").repeated, 0);
                }
            });
        }
        let mut outcomes = 0;
        eventually("the outcomes of all commands", || {
            match feed.next(Duration::from_millis(50)).expect("it works") {
                News::Nothing => {}
                News::Changes(changes) => {
                    outcomes += changes.commands.len() as u64;
                    for change in changes.todos {
                        match change {
                            Change::Is(todo) => drop(known.insert(todo.id, todo)),
                            Change::Gone(id) => drop(known.remove(&id)),
                        }
                    }
                    assert_eq!(changes.count, known.len() as u64, "at {:?}", changes.revision);
                }
                News::Everything(_) => panic!("the difference is known"),
            }
            outcomes == u64::from(WORKERS) * ROUNDS * 3
        });
    });
    let loaded = connect(&url).load().expect("loaded");
    assert_eq!(loaded.revision.version, u64::from(WORKERS) * ROUNDS);
    assert_eq!(loaded.count, known.len() as u64);
    let stored: BTreeMap<_, _> = loaded.todos.into_iter().map(|todo| (todo.id, todo)).collect();
    assert_eq!(stored, known);
}

/// Purpose: history that is too old is removed: what an instance within it does not know is still reported as a difference,
/// and an instance that is behind it gets everything.
#[test]
fn old_history_is_removed() {
    let url = schema("full_history");
    let mut store = connect(&url);
    store.apply("test", &deliveries([creation(1), creation(2)])).expect("applied");
    let (mut behind, mut near) = (feed(&url), feed(&url));
    news(&mut behind);
    store.apply("test", &deliveries([command(3, 1, Action::Delete)])).expect("applied");
    sql(&url, "UPDATE todo_versions SET made_at = now() - interval '2 hours'");
    // So many versions are kept however old they are.
    for number in 10..1012 {
        store.apply("test", &deliveries([creation(number)])).expect("applied");
    }
    news(&mut near);
    store.clean_now().expect("cleaned");
    assert_eq!(number(&url, "SELECT horizon FROM todo_state"), 3);
    assert_eq!(number(&url, "SELECT count(*) FROM todo_versions"), 1002);
    assert_eq!(number(&url, "SELECT count(*) FROM todo_tombstones"), 0);
    let News::Everything(all) = news(&mut behind) else { panic!("the difference is not known") };
    assert_eq!(all.count, 1003);
    store.apply("test", &deliveries([creation(5000)])).expect("applied");
    let News::Changes(changes) = news(&mut near) else { panic!("the difference is known") };
    assert_eq!(changes.commands, [(id(5000), Outcome::Done)]);
}

/// Purpose: bytes that are no command, and a value that the database never takes, become dead letters with the reason,
/// once; what came with them is applied.
#[test]
fn poison_holds_up_nobody() {
    let url = schema("full_poison");
    let mut store = connect(&url);
    let poison = Poison { bytes: b"\xffgarbage\0".to_vec(), reason: "not a command".into() };
    let nul = Action::Create { title: "a\0b".into(), description: String::new() };
    let mut batch = deliveries([creation(1), command(2, 2, nul), creation(3), creation(4)]);
    batch[3].content = Err(poison.clone());
    let applied = store.apply("kafka/topic", &batch).expect("applied");
    assert_eq!(applied.dead, 2);
    assert!(
        matches!(&applied.changes.commands[1], (_, Outcome::Dead(reason)) if !reason.is_empty())
    );
    let again = store.apply("kafka/topic", &batch).expect("applied");
    assert_eq!((again.dead, again.repeated), (0, 4));
    let loaded = store.load().expect("loaded");
    assert_eq!(titles(&loaded), BTreeSet::from(["Todo 1".to_owned(), "Todo 3".to_owned()]));
    let letters = store.dead_letters(10).expect("known");
    assert_eq!(letters.len(), 2, "{letters:?}");
    let garbage = letters.iter().find(|letter| letter.bytes == poison.bytes).expect("it is kept");
    assert_eq!((&*garbage.origin, &*garbage.reason), ("kafka/topic/0/3", "not a command"));
    assert!(letters.iter().any(|letter| letter.origin == "kafka/topic/0/1"));
}

/// What the feed says next, which is something.
fn news(feed: &mut PostgresFeed) -> News {
    let mut news = News::Nothing;
    eventually("news of what was applied", || {
        news = feed.next(Duration::from_millis(50)).expect("it works");
        news != News::Nothing
    });
    news
}

/// Purpose: an instance that follows the store gets everything first, then exactly what is different, deletions and
/// outcomes included; and everything again when the difference is not known any more, or the store went back.
#[test]
fn a_feed_leaves_nothing_out() {
    let url = schema("full_feed");
    let mut store = connect(&url);
    store.apply("test", &deliveries([creation(1), creation(2)])).expect("applied");
    let mut feed = feed(&url);
    let News::Everything(first) = news(&mut feed) else { panic!("everything comes first") };
    assert_eq!(titles(&first), BTreeSet::from(["Todo 1".to_owned(), "Todo 2".to_owned()]));
    assert_eq!(feed.next(Duration::ZERO), Ok(News::Nothing));

    store.apply("test", &deliveries([command(3, 1, Action::Delete)])).expect("applied");
    store
        .apply("test", &deliveries([creation(4), command(5, 1, Action::Delete)]))
        .expect("applied");
    let (mut changes, mut outcomes) = (Vec::new(), Vec::new());
    eventually("both transactions", || {
        let News::Changes(some) = news(&mut feed) else { panic!("the difference is known") };
        changes.extend(some.todos);
        outcomes.extend(some.commands);
        outcomes.len() == 3
    });
    assert!(changes.contains(&Change::Gone(id(1))), "{changes:?}");
    assert!(changes.iter().any(|change| matches!(change, Change::Is(todo) if todo.id == id(4))));
    assert!(outcomes.contains(&(id(5), Outcome::NotFound)), "{outcomes:?}");

    // It was away while what was deleted has been forgotten.
    store.apply("test", &deliveries([command(6, 2, Action::Delete)])).expect("applied");
    sql(&url, "UPDATE todo_state SET horizon = version; DELETE FROM todo_tombstones");
    let News::Everything(all) = news(&mut feed) else { panic!("the difference is not known") };
    assert_eq!(titles(&all), BTreeSet::from(["Todo 4".to_owned()]));

    // A backup was restored.
    sql(&url, "UPDATE todo_state SET version = 1, horizon = 0; UPDATE todos SET batch = 1");
    let News::Everything(restored) = news(&mut feed) else {
        panic!("nothing that was known holds")
    };
    assert_eq!(restored.revision.version, 1);
}

/// Purpose: a restore is noticed although new commands have taken the version to where it was, or past it; every feed
/// then says everything, under a timeline that is newer than whatever was seen, and the same for all.
#[test]
fn a_restore_that_the_version_does_not_show() {
    let url = schema("full_restore");
    let mut store = connect(&url);
    let apply = |store: &mut Postgres, commands: Vec<Command>| {
        store.apply("test", &deliveries(commands)).expect("applied");
    };
    apply(&mut store, vec![creation(1)]);
    sql(
        &url,
        "CREATE TABLE b_todos AS TABLE todos; CREATE TABLE b_state AS TABLE todo_state;
         CREATE TABLE b_versions AS TABLE todo_versions; CREATE TABLE b_commands AS TABLE applied_commands",
    );
    let restore = || {
        sql(
            &url,
            "TRUNCATE todos, todo_state, todo_versions, applied_commands; INSERT INTO todos TABLE b_todos;
             INSERT INTO todo_state TABLE b_state; INSERT INTO todo_versions TABLE b_versions;
             INSERT INTO applied_commands TABLE b_commands",
        );
    };
    apply(&mut store, vec![creation(2)]);
    let mut feeds = [feed(&url), feed(&url)];
    let mut known = Vec::new();
    for feed in &mut feeds {
        let News::Everything(all) = news(feed) else { panic!("everything comes first") };
        known.push(all.revision);
    }
    for (round, beyond) in (1..).zip([1, 3]) {
        restore();
        (0..beyond).for_each(|more| apply(&mut store, vec![creation(10 * round + more)]));
        let mut revisions = Vec::new();
        for (feed, known) in feeds.iter_mut().zip(&mut known) {
            let News::Everything(all) = news(feed) else { panic!("nothing that was known holds") };
            assert_eq!(all.todos.len() as u64, 1 + beyond, "{:?}", titles(&all));
            assert!(all.revision > *known, "{:?} after {known:?}", all.revision);
            *known = all.revision;
            revisions.push(all.revision);
        }
        assert_eq!(revisions[0], revisions[1]);
        assert_eq!(feeds[0].next(Duration::ZERO), Ok(News::Nothing));
    }
    // One that starts later, and learns from the others' cache that the store was further.
    let mut late = feed(&url);
    news(&mut late);
    late.was_seen(Revision { timeline: known[0].timeline, version: known[0].version + 5 });
    let News::Everything(all) = news(&mut late) else { panic!("the store went back") };
    assert!(all.revision.timeline > known[0].timeline);
}

/// Purpose: consumers that come weeks late are given everything again, and the ids of what was applied are removed
/// meanwhile: what was deleted stays deleted.
#[test]
fn consumers_that_come_late() {
    let url = schema("full_late");
    let mut store = connect(&url);
    let old = [creation(1), creation(2), command(3, 1, Action::Delete)];
    store.apply("kafka/topic", &deliveries(old.clone())).expect("applied");
    sql(
        &url,
        "DELETE FROM applied_commands; UPDATE todo_state SET forgotten_at = now() + interval '1 h'",
    );
    // In several transactions, as a long queue is.
    for delivery in deliveries(old) {
        let again = store.apply("kafka/topic", &[delivery]).expect("applied");
        assert_eq!((again.repeated, again.changes.todos.len()), (1, 0));
    }
    assert_eq!(titles(&store.load().expect("loaded")), BTreeSet::from(["Todo 2".to_owned()]));
}

/// Purpose: each dead letter of Kafka is given out to be sent until it was sent, to one worker at a time, and never again;
/// one of another queue is not.
#[test]
fn dead_letters_are_sent_once() {
    let url = schema("full_unsent");
    let (mut one, mut two) = (connect(&url), connect(&url));
    let poison = || Poison { bytes: b"garbage".to_vec(), reason: "not a command".into() };
    let mut batch = deliveries([creation(1), creation(2)]);
    batch[0].content = Err(poison());
    batch[1].content = Err(poison());
    one.apply("kafka/topic", &batch).expect("applied");
    one.apply("journal", &batch).expect("applied");
    let letters = one.unsent("kafka/topic", 10).expect("known");
    assert_eq!(letters.len(), 2, "{letters:?}");
    assert_eq!(two.unsent("kafka/topic", 10).expect("known"), [], "another one is sending");
    let numbers: Vec<i64> = letters.iter().map(|letter| letter.number).collect();
    one.were_sent(&numbers[..1]).expect("kept");
    let left = two.unsent("kafka/topic", 10).expect("known");
    assert_eq!(left, letters[1..]);
    two.were_sent(&numbers[1..]).expect("kept");
    assert_eq!(one.unsent("kafka/topic", 10).expect("known"), []);
    // A repetition makes no other one.
    one.apply("kafka/topic", &batch).expect("applied");
    assert_eq!(one.unsent("kafka/topic", 10).expect("known"), []);
}

/// Purpose: a connection that the server ended costs nothing but a new one: for the store and for a feed.
#[test]
fn survives_lost_connections() {
    let url = schema("full_lost");
    let (mut store, mut feed) = (connect(&url), feed(&url));
    let terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name = 'full_lost' AND pid <> pg_backend_pid()";
    news(&mut feed);
    for number in 1..4 {
        sql(&url, terminate);
        store.apply("test", &deliveries([creation(number)])).expect("connected again");
        sql(&url, terminate);
        let News::Changes(changes) = news(&mut feed) else { panic!("the difference is known") };
        assert_eq!(changes.todos.len(), 1);
    }
}

/// Purpose: tables of a later version are refused, not guessed at; a server that is not there is named without its
/// password.
#[test]
fn refuses_what_it_cannot_trust() {
    let url = schema("full_future");
    connect(&url);
    sql(&url, "INSERT INTO schema_migrations (version) VALUES (99)");
    let refusal = |url: &str| {
        let timeouts = Timeouts { connect: Duration::from_millis(300), ..Timeouts::default() };
        Postgres::connect(&parse_url(url).expect("a URL"), timeouts).expect_err(url).to_string()
    };
    assert!(refusal(&url).contains("at 99"), "{}", refusal(&url));
    // A server that takes no writes is named with what to do, and nothing is lost: the deliveries are given again.
    let fresh = schema("full_read_only");
    let read_only = "%20-cdefault_transaction_read_only%3Don";
    let read_only = fresh.replace("&application_name=full_read_only", read_only);
    let message = refusal(&read_only);
    assert!(message.contains("primary") && message.contains("read-only"), "{message}");
    let port = highwater_testkit::lasting_ports(1);
    let message = refusal(&format!("postgres://u:hunter2@127.0.0.1:{port}/db"));
    assert!(
        message.contains(&format!("127.0.0.1:{port}/db")) && message.contains("DATABASE_URL"),
        "{message}"
    );
    assert!(!message.contains("hunter2"));
}

/// Purpose: the first number by which commands are divided stays until an operator changes it, for each topic, whatever
/// is found later.
#[test]
fn the_number_of_partitions_is_kept() {
    let url = schema("full_division");
    let (mut one, mut two) = (connect(&url), connect(&url));
    assert_eq!(one.divided_by("kafka/a", None), Ok(None));
    assert_eq!(one.divided_by("kafka/a", Some(4)), Ok(Some(4)));
    assert_eq!(two.divided_by("kafka/a", Some(8)), Ok(Some(4)));
    assert_eq!(two.divided_by("kafka/b", Some(8)), Ok(Some(8)));
    two.divide_by("kafka/a", 8).expect("stored");
    assert_eq!(one.divided_by("kafka/a", None), Ok(Some(8)));
}

/// Purpose: whether a command is known does not depend on clocks: the id of one that was requested by a clock three weeks
/// ahead stays three weeks longer, and one whose id has gone is known by its place, whatever the time is now.
#[test]
fn clocks_that_are_weeks_off() {
    let url = schema("full_clocks");
    let mut store = connect(&url);
    let day_us = 86_400_000_000;
    let requested = |days: i64, commands: [Command; 2]| {
        let requested_us = highwater_todos::todo::now_us() + days * day_us;
        deliveries(commands.map(|command| Command { requested_us, ..command }))
    };
    let ahead = requested(21, [creation(1), command(2, 1, Action::Delete)]);
    store.apply("kafka/ahead", &ahead).expect("applied");
    let kept =
        "SELECT count(*) FROM applied_commands WHERE applied_at > now() + interval '20 days'";
    assert_eq!(number(&url, kept), 2);

    let old = requested(-27, [creation(3), command(4, 3, Action::Delete)]);
    store.apply("kafka/old", &old).expect("applied");
    // As it would have been then.
    sql(
        &url,
        "UPDATE applied_commands SET applied_at = now() - interval '27 days'
         WHERE batch = (SELECT max(batch) FROM applied_commands)",
    );
    store.clean_now().expect("cleaned");
    assert_eq!(number(&url, "SELECT count(*) FROM applied_commands"), 2);
    for (source, deliveries) in [("kafka/ahead", ahead), ("kafka/old", old)] {
        let again = store.apply(source, &deliveries).expect("applied");
        assert_eq!((again.repeated, again.changes.todos.len()), (2, 0), "{source}");
    }
    assert_eq!(store.load().expect("loaded").todos, []);
}
