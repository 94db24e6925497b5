//! Postgres without Kafka: each instance has its own queue in files, and starts again with it.

use highwater_testkit::{Process, eventually, program, request};

use crate::servers::{number, schema, sql};

/// An instance on this store, with its queue in `data`.
fn instance(url: &str, data: &std::path::Path) -> Process {
    instance_with(url, data, &[])
}

pub(crate) fn instance_with(url: &str, data: &std::path::Path, more: &[&str]) -> Process {
    let mut command = program(env!("CARGO_BIN_EXE_highwater-todos"));
    command.env("DATABASE_URL", url).env("JWT_SECRET", SECRET).args([
        "--listen=127.0.0.1:0",
        "--metrics=127.0.0.1:0",
        "--workers=1",
        "--wait-max=40s",
    ]);
    for name in ["REDIS_URL", "KAFKA_BROKERS", "KAFKA_TODO_TOPIC"] {
        command.env_remove(name);
    }
    command.args(more).arg("--data").arg(data);
    Process::start(&mut command)
}

const SECRET: &str = "a secret of thirty-two characters";

pub(crate) fn ask(
    instance: &Process,
    method: &str,
    target: &str,
    body: &str,
) -> highwater_testkit::Answer {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = since.expect("after 1970").as_secs_f64();
    let token = highwater_todos::auth::issue(SECRET, "me", now, 3600.0);
    let authorization = format!("Authorization: Bearer {token}\r\n");
    instance.connect().ask(request(method, target, &authorization, body))
}

/// Purpose: a restart applies nothing again, even if the ids of applied commands have been removed meanwhile: deleted
/// todos stay deleted, and changed ones keep their last title.
#[test]
fn a_restart_after_the_ids_are_gone() {
    let url = schema("full_restart");
    let data = tempfile::tempdir().expect("a temporary directory");
    let first = instance(&url, data.path());
    let create = |title: &str| {
        let answer =
            ask(&first, "POST", "/todos?wait=applied", &format!(r#"{{"title":"{title}"}}"#));
        assert_eq!(answer.status, 201, "{answer:?}");
        format!("/todos/{}?wait=applied", answer.member("id"))
    };
    let (deleted, renamed) = (create("to be deleted"), create("old title"));
    assert_eq!(ask(&first, "DELETE", &deleted, "").status, 200);
    assert_eq!(ask(&first, "PUT", &renamed, r#"{"title":"new title"}"#).status, 200);
    let before = first.get("/todos").text().to_owned();
    first.stop();
    // As if 14 days had passed, and the service had removed what is older.
    sql(&url, "DELETE FROM applied_commands");
    let second = instance(&url, data.path());
    assert_eq!(second.get("/todos").text(), before);
    assert_eq!(second.metric(r#"todos_commands_total{outcome="applied"}"#), 0.0);
    assert_eq!(second.metric(r#"todos_commands_total{outcome="repeated"}"#), 0.0);
}

/// Purpose: an instance that was killed before it had committed what it applied, and starts again when the ids of those commands
/// are gone, applies none of them again: the store knows how far this queue was applied.
#[test]
fn a_restart_after_a_kill_and_weeks() {
    let url = schema("full_killed_for_weeks");
    let data = tempfile::tempdir().expect("a temporary directory");
    let mut instance = instance(&url, data.path());
    for round in 0..4 {
        for _ in 0..3 {
            let created =
                ask(&instance, "POST", "/todos?wait=applied", r#"{"title":"short-lived"}"#);
            assert_eq!(created.status, 201, "{created:?}");
            let target = format!("/todos/{}?wait=applied", created.member("id"));
            assert_eq!(ask(&instance, "DELETE", &target, "").status, 200);
        }
        instance.kill();
        // What another instance would have done in two weeks.
        sql(&url, "DELETE FROM applied_commands; UPDATE todo_state SET forgotten_at = now()");
        instance = self::instance(&url, data.path());
        assert_eq!(instance.get("/todos").text(), "[]", "round {round}");
    }
}

/// Purpose: once the queue has removed its oldest applied commands, a restart finds nothing missing and makes no dead
/// letter.
#[test]
fn a_restart_after_retention() {
    let url = schema("full_retention");
    let data = tempfile::tempdir().expect("a temporary directory");
    let first = instance(&url, data.path());
    let description = "\u{1F3B5}".repeat(10_000);
    let body = format!(r#"{{"title":"long","description":"{description}"}}"#);
    for _ in 0..1000 {
        assert_eq!(ask(&first, "POST", "/todos", &body).status, 202);
    }
    let removed = || {
        let queue = std::fs::read_dir(data.path().join("queue")).expect("the queue");
        let bytes = queue.flatten().map(|file| file.metadata().map_or(0, |file| file.len()));
        bytes.sum::<u64>() < 30 << 20
    };
    eventually("the queue's first segments are removed", removed);
    first.stop();
    let second = instance(&url, data.path());
    assert_eq!(second.metric("todos_dead_letters_total"), 0.0, "{}", second.log());
    assert_eq!(second.metric("http_store_size"), 1000.0);
    assert_eq!(number(&url, "SELECT count(*) FROM dead_letters"), 0);
}

/// Purpose: an instance keeps only as many todos in memory as it may, and yet shows all of them: old ones by id, lists that
/// are longer than what it keeps, the number of all; and changes of old ones at once.
#[test]
fn a_store_larger_than_memory() {
    let url = schema("full_large");
    let data = tempfile::tempdir().expect("a temporary directory");
    // It makes the tables.
    instance(&url, data.path()).stop();
    sql(
        &url,
        "INSERT INTO todos SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'Todo ' || n, '',
             false, 'me', now() - interval '1 s' * (50000 - n), now() - interval '1 s' * (50000 - n), 1
         FROM generate_series(1, 50000) AS n;
         UPDATE todo_state SET version = 1, todos = 50000",
    );
    let service = instance_with(&url, data.path(), &["--cache-bytes=4MiB"]);
    assert_eq!(service.metric("http_store_size"), 50_000.0);
    let in_memory = service.metric("todos_in_memory");
    assert!((100.0..10_000.0).contains(&in_memory), "{in_memory}");
    let list = service.get("/todos").json();
    let list = list.as_array().expect("a list");
    assert_eq!((list.len(), &list[0]["title"]), (10_000, &"Todo 50000".into()));
    assert_eq!(list[9_999]["title"], "Todo 40001");

    let old = "/todos/00000000-0000-7000-8000-000000000007";
    let title = || service.get(old).json()["title"].clone();
    assert_eq!([title(), title()], ["Todo 7", "Todo 7"]);
    let waits = format!("{old}?wait=applied");
    for number in 0..20 {
        let renamed = format!("renamed {number}");
        let answer = ask(&service, "PUT", &waits, &format!(r#"{{"title":"{renamed}"}}"#));
        assert_eq!((answer.status, answer.member("title")), (200, renamed.clone()), "{answer:?}");
        assert_eq!([title(), title()], [&*renamed, &*renamed]);
    }
    assert_eq!(ask(&service, "DELETE", &waits, "").status, 200);
    assert_eq!(service.get(old).status, 404);
    assert_eq!(service.metric("http_store_size"), 49_999.0);

    // What is in memory shrinks, and is read again.
    let ids: Vec<&str> =
        list.iter().take(300).map(|todo| todo["id"].as_str().expect("an id")).collect();
    for id in &ids {
        assert_eq!(ask(&service, "DELETE", &format!("/todos/{id}"), "").status, 202);
    }
    eventually("they are gone", || service.metric("http_store_size") == 49_699.0);
    let newest = service.get("/todos?limit=10000").json();
    assert_eq!(newest[0]["title"], "Todo 49700");
    assert_eq!(newest[9_999]["title"], "Todo 39701");
}
