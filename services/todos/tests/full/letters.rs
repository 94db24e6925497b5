//! Dead letters in Postgres are bounded.

use highwater_todos::store::Store as _;
use highwater_todos::store::postgres::{Postgres, Timeouts, parse_url};

use crate::servers::{number, schema, sql};

/// Purpose: the newest 100 000 dead letters are kept and the oldest go, as with SQLite; as many as are allowed all stay.
#[test]
fn the_oldest_go() {
    let url = schema("full_letters");
    let config = parse_url(&url).expect("the script prints a URL");
    let mut store = Postgres::connect(&config, Timeouts::default()).expect("connected");
    let insert = |from: u32, to: u32| {
        sql(
            &url,
            &format!(
                "INSERT INTO dead_letters (origin, bytes, reason)
                 SELECT 'journal/0/' || n, 'x', 'poison' FROM generate_series({from}, {to}) AS n"
            ),
        );
    };
    let count = || number(&url, "SELECT count(*) FROM dead_letters");
    insert(1, 100_000);
    store.clean_now().expect("cleaned");
    assert_eq!(count(), 100_000);
    insert(100_001, 100_003);
    store.clean_now().expect("cleaned");
    assert_eq!(count(), 100_000);
    let oldest = "SELECT min(substring(origin FROM 11)::bigint) FROM dead_letters";
    assert_eq!(number(&url, oldest), 4);
}

/// Purpose: a worker that cannot read the dead letters does not keep others from sending them.
#[test]
fn who_cannot_read_them_lets_others_send() {
    let url = schema("full_letters_unread");
    let config = parse_url(&url).expect("the script prints a URL");
    let connect = || Postgres::connect(&config, Timeouts::default()).expect("connected");
    let (mut one, mut two) = (connect(), connect());
    let insert = "INSERT INTO dead_letters (origin, bytes, reason) VALUES ('kafka/topic/0/1', 'x', 'poison')";
    sql(&url, insert);
    sql(&url, "ALTER TABLE dead_letters RENAME COLUMN reason TO hidden");
    for _ in 0..2 {
        one.unsent("kafka/topic", 10).expect_err("a column is missing");
    }
    sql(&url, "ALTER TABLE dead_letters RENAME COLUMN hidden TO reason");
    let letters = two.unsent("kafka/topic", 10).expect("known");
    assert_eq!(letters.len(), 1, "nobody else holds the lock");
    two.were_sent(&[letters[0].number]).expect("kept");
}
