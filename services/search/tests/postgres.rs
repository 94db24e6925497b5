//! The Postgres store against a real server, which `scripts/services/postgres.sh` provides.
//!
//! Without a server these tests fail and say how to get one; they are never skipped in silence.
//! Each test has a schema of its own, so they can run together and again.

use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, SystemTime};

use highwater_search::catalog::{Catalog, EVENTS_MAX};
use highwater_search::event::Event;
use highwater_search::feed::{Feed, Limits};
use highwater_search::provider::generate;
use highwater_search::query::Range;
use highwater_search::store::{Postgres, Record, Store as _, Timeouts};
use tokio_postgres::{Config, NoTls};

/// The server's URL; starts it if it does not run.
fn server() -> &'static str {
    static URL: OnceLock<String> = OnceLock::new();
    URL.get_or_init(|| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/services/postgres.sh");
        let output = Command::new(script).arg("start").output().expect("the script starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "no Postgres to test with: {stderr}");
        String::from_utf8(output.stdout).expect("a URL").trim().to_owned()
    })
}

/// Runs SQL beside the store, as an operator would.
fn sql(statements: &str) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (client, connection) =
            tokio_postgres::connect(server(), NoTls).await.expect("connected");
        tokio::spawn(connection);
        client.batch_execute(statements).await.expect("executed");
    });
}

/// A configuration whose tables are in an empty schema of this name.
fn schema(name: &str) -> Config {
    sql(&format!("DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}"));
    let mut config: Config = server().parse().expect("the script prints a URL");
    config.options(format!("-csearch_path={name}")).application_name(name);
    config
}

fn connect(config: &Config) -> Postgres {
    Postgres::connect(config, Timeouts::default()).expect("connected")
}

fn events(seed: u64) -> Vec<Event> {
    Feed::read(generate(12_000, seed).as_bytes(), &Limits::default()).events
}

fn unix_seconds() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("the clock is set");
    i64::try_from(since.as_secs()).expect("it fits")
}

fn sorted(mut records: Vec<Record>) -> Vec<Record> {
    records.sort_by_key(|record| record.event.id);
    records
}

/// Purpose: what was applied is what another instance loads, over several statements, null and
/// Unicode included, and an event keeps its first sighting.
#[test]
fn round_trip() {
    let config = schema("test_round_trip");
    let mut events = events(1);
    connect(&config).apply(&events, 100).expect("applied");
    events[0].title = "Ñandú \u{1F3B5}\n'; --".into();
    let mut store = connect(&config);
    store
        .apply(&[Event { title: "older".into(), ..events[0].clone() }, events[0].clone()], 200)
        .expect("applied");
    let record =
        |(i, event)| Record { event, first_seen: 100, last_seen: if i == 0 { 200 } else { 100 } };
    let expected = sorted(events.into_iter().enumerate().map(record).collect());
    assert_eq!(sorted(connect(&config).load().expect("loaded")), expected);
}

/// Purpose: a restart with this store serves the same bytes.
#[test]
fn served_across_restarts() {
    let config = schema("test_restart");
    let catalog = Catalog::open(Box::new(connect(&config)), EVENTS_MAX).expect("opens");
    catalog.apply(events(2), 1).expect("applied");
    let reopened = Catalog::open(Box::new(connect(&config)), EVENTS_MAX).expect("opens");
    assert_eq!(reopened.snapshot().answer(Range::ALL), catalog.snapshot().answer(Range::ALL));
}

/// Purpose: a connection that the server ended while it was idle costs nothing.
#[test]
fn survives_a_lost_connection() {
    let config = schema("test_lost_connection");
    let (mut store, events) = (connect(&config), events(3));
    for round in 1..=3 {
        sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'test_lost_connection'",
        );
        store.apply(&events[..10], round).expect("reconnected");
        sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'test_lost_connection'",
        );
        let records = store.load().expect("reconnected");
        assert!(records.len() == 10 && records.iter().all(|record| record.last_seen == round));
    }
}

/// Purpose: of what two instances have seen of one event, what was seen last stays, whichever of them is done first.
#[test]
fn the_latest_sighting_stays() {
    let config = schema("test_latest");
    let event = events(5).swap_remove(0);
    let newer = Event { title: "newer".into(), ..event.clone() };
    connect(&config).apply(std::slice::from_ref(&newer), 200).expect("applied");
    // It began to download earlier, and took longer.
    connect(&config).apply(&[event], 100).expect("applied");
    let expected = Record { event: newer, first_seen: 200, last_seen: 200 };
    assert_eq!(connect(&config).load().expect("loaded"), [expected]);
}

/// Purpose: an event that only one instance has seen is served by the others, without a restart; and a newer version of it.
#[test]
fn instances_learn_from_each_other() {
    let config = schema("test_learn");
    let open = || Catalog::open(Box::new(connect(&config)), EVENTS_MAX).expect("opens");
    let (one, other) = (open(), open());
    let mut events = events(6);
    events.truncate(10);
    one.apply(events[..5].to_vec(), 1_000_000).expect("applied");
    other.apply(events[5..].to_vec(), 1_000_100).expect("applied");
    assert_eq!((other.snapshot().len(), other.catch_up(1_000_200)), (5, Ok(5)));
    assert_eq!((one.catch_up(1_000_200), one.catch_up(1_000_200)), (Ok(5), Ok(0)));
    let renamed = Event { title: "renamed".into(), ..events[0].clone() };
    one.apply(vec![renamed], 1_000_200).expect("applied");
    assert_eq!(other.catch_up(1_000_200), Ok(1));
    assert_eq!(one.snapshot().answer(Range::ALL), other.snapshot().answer(Range::ALL));
}

/// Purpose: an instance whose clock is ahead keeps nobody's later version out of the store, and learns of it; also where it
/// alone was ahead, once.
#[test]
fn a_clock_that_is_ahead() {
    let config = schema("test_ahead");
    let open = || Catalog::open(Box::new(connect(&config)), EVENTS_MAX).expect("opens");
    let (ahead, right) = (open(), open());
    let now = unix_seconds();
    for wrong in [now + 3000, now + 1_000_000] {
        let old = Event { title: format!("old {wrong}").into(), ..events(7).swap_remove(0) };
        ahead.apply(vec![old.clone()], wrong).expect("applied");
        let new = Event { title: format!("new {wrong}").into(), ..old };
        right.apply(vec![new.clone()], now).expect("applied");
        let stored = connect(&config).load().expect("loaded");
        assert_eq!((&stored[0].event, stored[0].last_seen), (&new, now));
        assert_eq!(right.catch_up(now), Ok(0));
        ahead.lost_sight();
        assert_eq!(ahead.catch_up(now), Ok(1), "it was set right");
        assert_eq!(ahead.snapshot().answer(Range::ALL), right.snapshot().answer(Range::ALL));
    }
}

/// Purpose: what an instance has just seen is served by it, though its clock is behind and the store keeps what another one
/// has seen "later"; without sight of the provider, what the store has is served.
#[test]
fn a_clock_that_is_behind() {
    let config = schema("test_behind");
    let open = || Catalog::open(Box::new(connect(&config)), EVENTS_MAX).expect("opens");
    let (right, behind) = (open(), open());
    let now = unix_seconds();
    let old = events(8).swap_remove(0);
    let new = Event { title: "new".into(), ..old.clone() };
    right.apply(vec![old], now - 10).expect("applied");
    behind.apply(vec![new], now - 2000).expect("applied");
    let served = behind.snapshot().answer(Range::ALL);
    for _ in 0..2 {
        assert_eq!(behind.catch_up(now - 1990), Ok(0));
        assert_eq!(behind.snapshot().answer(Range::ALL), served);
    }
    behind.lost_sight();
    assert_eq!(behind.catch_up(now - 1990), Ok(1));
    assert_eq!(behind.snapshot().answer(Range::ALL), right.snapshot().answer(Range::ALL));
}

/// Purpose: instances that start together and write the same events in different orders all succeed.
#[test]
fn instances_do_not_deadlock() {
    let config = schema("test_instances");
    let forward = events(4);
    let backward: Vec<Event> = forward.iter().rev().cloned().collect();
    thread::scope(|scope| {
        for events in [&forward, &backward, &forward, &backward] {
            scope.spawn(|| {
                let mut store = connect(&config);
                (0..2).for_each(|at| store.apply(events, at).expect("applied"));
            });
        }
    });
    assert_eq!(connect(&config).load().expect("loaded").len(), forward.len());
}

/// Purpose: a statement that hangs is given up on, and the store works again afterwards.
#[test]
fn hanging_statement() {
    let config = schema("test_hanging");
    let timeouts = Timeouts { operation: Duration::from_millis(300), ..Timeouts::default() };
    let mut store = Postgres::connect(&config, timeouts).expect("connected");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (client, connection) = config.connect(NoTls).await.expect("connected");
        tokio::spawn(connection);
        client.batch_execute("BEGIN; LOCK TABLE search_events").await.expect("locked");
        let message = thread::scope(|scope| {
            scope
                .spawn(|| store.load())
                .join()
                .expect("no panic")
                .expect_err("it is locked")
                .to_string()
        });
        assert!(message.contains("no answer within 300ms"), "{message}");
        client.batch_execute("ROLLBACK").await.expect("unlocked");
    });
    assert_eq!(store.load(), Ok(Vec::new()));
}

/// Purpose: a start without a server fails within its timeout, and says which server and what to check.
#[test]
fn unreachable() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .expect("a free port")
        .local_addr()
        .expect("bound")
        .port();
    let config: Config =
        format!("postgres://u:hunter2@127.0.0.1:{free}/db").parse().expect("a URL");
    let timeouts = Timeouts { connect: Duration::from_millis(300), ..Timeouts::default() };
    let message = Postgres::connect(&config, timeouts).expect_err("no server listens").to_string();
    assert!(
        message.contains(&format!("127.0.0.1:{free}/db")) && message.contains("--store"),
        "{message}"
    );
    assert!(!message.contains("hunter2"), "{message}");
    let config: Config = server().replace("/highwater", "/nowhere").parse().expect("a URL");
    let message =
        Postgres::connect(&config, Timeouts::default()).expect_err("no such database").to_string();
    assert!(message.contains("nowhere") && message.contains("does not exist"), "{message}");
}

/// Purpose: tables of a later version and values that no version writes are refused, not guessed
/// at.
#[test]
fn refuses_what_it_cannot_trust() {
    let config = schema("test_refuses");
    let mut store = connect(&config);
    store.apply(&events(5)[..1], 1).expect("applied");
    sql("UPDATE test_refuses.search_events SET start_at = 'soon'");
    let message = store.load().expect_err("damaged").to_string();
    assert!(message.contains("start_at is not one we wrote"), "{message}");
    sql("UPDATE test_refuses.search_schema SET version = 2");
    let message =
        Postgres::connect(&config, Timeouts::default()).expect_err("from the future").to_string();
    assert!(message.contains("layout 2, this version reads 1"), "{message}");
}
