//! What the Postgres store does in pieces, so that no amount holds it up.

use std::time::Duration;

use highwater_todos::command::Action;
use highwater_todos::feed::{Feed as _, News};
use highwater_todos::store::postgres::{Postgres, PostgresFeed, Timeouts, parse_url};
use highwater_todos::store::{Outcome, Store as _};

use crate::servers::{number, schema, sql};
use crate::{command, creation, delivery};

fn connect(url: &str, timeouts: Timeouts) -> Postgres {
    Postgres::connect(&parse_url(url).expect("a URL"), timeouts).expect("connected")
}

/// Purpose: however many ids have become too old, the work of removing them keeps up: it goes on with each batch, and while none
/// comes, until none is left. (10 000 were removed per minute, and a service that applied more grew without end.) A batch
/// waits only for as much as is in proportion to it. (10 000 were removed with each one.)
#[test]
fn cleaning_keeps_up() {
    let url = schema("full_cleaning");
    let mut store = connect(&url, Timeouts::default());
    sql(
        &url,
        "INSERT INTO applied_commands (id, batch, outcome, applied_at)
         SELECT gen_random_uuid(), 0, 'd', now() - interval '20 days' FROM generate_series(1, 50000)",
    );
    let old = || {
        let old =
            "SELECT count(*) FROM applied_commands WHERE applied_at < now() - interval '1 day'";
        number(&url, old)
    };
    store.clean_now().expect("cleaned");
    assert_eq!(old(), 40_000);
    let many: Vec<_> = (0..1000).map(|number| delivery(number, creation(number))).collect();
    store.apply("test", &many).expect("applied");
    assert_eq!(old(), 38_000, "twice what was added");
    store.apply("test", &[delivery(1000, creation(1000))]).expect("applied");
    let left = old();
    assert!((37_000..38_000).contains(&left), "{left}");
    for round in 0.. {
        if old() == 0 {
            break;
        }
        assert!(round < 40, "{} are left", old());
        store.idle();
    }
    assert_eq!(number(&url, "SELECT count(*) FROM applied_commands"), 1001);
}

/// Purpose: several workers that clean at the same time remove different rows.
#[test]
fn workers_share_the_cleaning() {
    let url = schema("full_shared_cleaning");
    let mut store = connect(&url, Timeouts::default());
    sql(
        &url,
        "INSERT INTO applied_commands (id, batch, outcome, applied_at)
         SELECT gen_random_uuid(), n, 'd', now() - interval '20 days' + n * interval '1 us'
         FROM generate_series(1, 15000) AS n",
    );
    let taken = "SELECT count(*) FROM applied_commands WHERE batch <= 10000";
    let left = "SELECT count(*) FROM applied_commands WHERE batch > 10000";
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let connected = tokio_postgres::connect(&url, tokio_postgres::NoTls).await;
        let (client, connection) = connected.expect("connected");
        tokio::spawn(connection);
        let lock = "BEGIN; SELECT FROM applied_commands WHERE batch <= 10000 FOR UPDATE";
        client.batch_execute(lock).await.expect("locked");
        let cleaned = tokio::task::spawn_blocking(move || store.clean_now());
        cleaned.await.expect("no panic").expect("cleaned");
    });
    assert_eq!((number(&url, taken), number(&url, left)), (10_000, 0));
}

/// Purpose: one value that the database refuses does not hold up the others on a slow connection: the one after the other,
/// all of them would take longer than an operation may.
#[test]
fn a_refused_value_on_a_slow_connection() {
    let url = schema("full_slow_poison");
    let timeouts = Timeouts { operation: Duration::from_secs(2), ..Timeouts::default() };
    let mut store = connect(&url, timeouts);
    sql(
        &url,
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql
             AS $$ BEGIN PERFORM pg_sleep(0.02); RETURN NULL; END $$;
         CREATE TRIGGER slow AFTER INSERT ON applied_commands
             FOR EACH STATEMENT EXECUTE FUNCTION slow()",
    );
    let nul = Action::Create { title: "a\0b".into(), description: String::new() };
    let mut batch: Vec<_> = (0..256).map(|n| delivery(n, creation(n))).collect();
    batch[100] = delivery(100, command(100, 100, nul));
    // In another piece, about the same todo.
    batch[250] = delivery(250, command(250, 1, Action::Delete));
    let applied = store.apply("kafka/topic", &batch).expect("applied");
    assert_eq!((applied.dead, applied.repeated), (1, 0));
    let changes = applied.changes;
    let is_dead = |outcome: &Outcome| matches!(outcome, Outcome::Dead(_));
    let places = |wanted: &dyn Fn(&Outcome) -> bool| -> Vec<usize> {
        (0..256).filter(|n| wanted(&changes.commands[*n].1)).collect()
    };
    assert_eq!((changes.commands.len(), places(&is_dead)), (256, vec![100]));
    assert_eq!((changes.count, changes.todos.len()), (253, 254));
    assert_eq!(store.positions("kafka/topic").expect("known"), [(0, 256)]);
    let again = store.apply("kafka/topic", &batch).expect("applied");
    assert_eq!((again.dead, again.repeated), (0, 256));
    assert_eq!(again.changes.commands, changes.commands);
}

/// Purpose: a difference has a limit, whatever it consists of: beyond it a feed says everything.
#[test]
fn a_difference_is_bounded() {
    let url = schema("full_difference");
    let mut store = connect(&url, Timeouts::default());
    let mut feed =
        PostgresFeed::new(&parse_url(&url).expect("a URL"), usize::MAX).expect("a runtime");
    let mut news = || feed.next(Duration::ZERO).expect("it works");
    assert!(matches!(news(), News::Everything(_)));
    let kinds = [
        "INSERT INTO todo_tombstones (id, batch)",
        "INSERT INTO applied_commands (outcome, id, batch)",
    ];
    for (round, kind) in (0..).zip(kinds) {
        let values = if round == 0 { "" } else { "'d', " };
        for (offset, rows, is_difference) in [(0, 9_990, true), (1, 10_001, false)] {
            let offset = round * 2 + offset;
            store.apply("test", &[delivery(offset, creation(offset))]).expect("applied");
            sql(
                &url,
                &format!(
                    "{kind} SELECT {values}gen_random_uuid(), (SELECT max(batch) FROM todo_versions)
                     FROM generate_series(1, {rows})"
                ),
            );
            assert_eq!(matches!(news(), News::Changes(_)), is_difference, "{kind}: {rows}");
        }
    }
}
