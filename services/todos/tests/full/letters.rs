//! Dead letters in Postgres are bounded.

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
