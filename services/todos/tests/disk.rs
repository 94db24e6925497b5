//! Disks that are full, stores that cannot be written, data that is in use or gone.

mod service;

use std::path::{Path, PathBuf};

use highwater::journal::{Batch, Directory, Journal, Options, Record};
use highwater_testkit::{Process, SmallDisk, eventually, eventually_some};
use service::{as_user, bearer, command, todos};

fn titles(service: &Process) -> Vec<String> {
    let list = service.get("/todos").json();
    let title = |todo: &serde_json::Value| todo["title"].as_str().expect("a title").to_owned();
    list.as_array().expect("a list").iter().map(title).collect()
}

/// Purpose: on a full disk a write is refused with 503 and `Retry-After`, and not one that was acknowledged is
/// missing later; reads go on; `/ready` names the part; and with room again, service goes on by itself.
#[test]
fn a_full_disk() {
    let mount = match SmallDisk::new("16m") {
        Ok(mount) => mount,
        Err(reason) => return highwater_skip::skip("root", reason),
    };
    let ballast = mount.path().join("ballast");
    // What is left is shared by the queue and the store. What the queue gets of it, the store needs up to twice when
    // there is room again: in its log and in its tables.
    std::fs::write(&ballast, vec![0; 12 << 20]).expect("there is room");
    let data = mount.path().join("data");
    let service = todos(&data, &[]);
    let mine = as_user("me");
    let mut client = service.connect();
    let description = "d".repeat(9000);
    let mut acknowledged = Vec::new();
    let refused = loop {
        let title = acknowledged.len().to_string();
        let body = format!(r#"{{"title":"{title}","description":"{description}"}}"#);
        let answer = client.call("POST", "/todos", &mine, &body);
        match answer.status {
            202 => acknowledged.push(title),
            _ => break answer,
        }
    };
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (503, Some("1")),
        "{}",
        refused.text()
    );
    assert_eq!(refused.json()["error"], "Request queued failed");
    assert!(acknowledged.len() > 20, "{}", acknowledged.len());
    let ready = service.get("/ready");
    assert_eq!(ready.status, 503, "{}", ready.text());
    assert!(
        ready.json()["status"].as_str().is_some_and(|status| status.contains("queue")),
        "{}",
        ready.text()
    );
    assert_eq!(service.get("/todos?limit=1").status, 200);

    std::fs::remove_file(&ballast).expect("it is there");
    // Nobody writes, since it is not ready: it finds out by itself.
    eventually("readiness", || service.get("/ready").status == 200);
    let answer = client.call("POST", "/todos?wait=applied", &mine, r#"{"title":"again"}"#);
    assert_eq!(answer.status, 201, "{}", answer.text());
    let mut expected = acknowledged;
    expected.push("again".into());
    expected.reverse();
    assert_eq!(titles(&service), expected);
}

/// Purpose: while the store cannot be written, writes are queued and acknowledged, reads go on, `/ready` names the
/// store; and everything is applied, in order, once it can be.
#[test]
fn a_store_that_cannot_be_written() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let service = todos(directory.path(), &["--wait-max=100ms"]);
    let mine = as_user("me");
    let mut client = service.connect();
    client.call("POST", "/todos?wait=applied", &mine, r#"{"title":"before"}"#);
    let blocker = rusqlite::Connection::open(directory.path().join("todos.db")).expect("the store");
    blocker.execute_batch("BEGIN IMMEDIATE").expect("it can be had");
    for number in 0..5 {
        let body = format!(r#"{{"title":"{number}"}}"#);
        let answer = client.call("POST", "/todos?wait=applied", &mine, &body);
        // Durable, and not visible in time.
        assert_eq!(answer.status, 202, "{}", answer.text());
    }
    assert_eq!(titles(&service), ["before"]);
    let ready = eventually_some("an absence", || {
        Some(service.get("/ready")).filter(|answer| answer.status == 503)
    });
    assert!(ready.json()["details"]["store"].is_string(), "{}", ready.text());
    // What is not there may be among what waits: the answer can be neither yes nor no.
    let unknown = "/todos/0193b2f0-0000-7000-8000-000000000000";
    let answer = client.call("DELETE", unknown, &mine, "");
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (503, Some("1")),
        "{}",
        answer.text()
    );
    blocker.execute_batch("COMMIT").expect("nothing was written");
    eventually("everything", || titles(&service) == ["4", "3", "2", "1", "0", "before"]);
    eventually("readiness", || service.get("/ready").status == 200);
    assert_eq!(client.call("DELETE", unknown, &mine, "").status, 404);
}

/// Purpose: a queue that has as much as it may refuses with 503 and `Retry-After`, keeps what it has acknowledged, and
/// takes commands again, by itself, once the store has caught up.
#[test]
fn a_full_queue() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let service = todos(directory.path(), &["--queue-bytes-max=32MiB"]);
    let mine = as_user("me");
    let mut client = service.connect();
    let blocker = rusqlite::Connection::open(directory.path().join("todos.db")).expect("the store");
    blocker.execute_batch("BEGIN IMMEDIATE").expect("it can be had");
    let body = format!(r#"{{"title":"a","description":"{}"}}"#, "\u{1F3B5}".repeat(10_000));
    let mut acknowledged = 0;
    let refused = loop {
        let answer = client.call("POST", "/todos", &mine, &body);
        match answer.status {
            202 => acknowledged += 1,
            _ => break answer,
        }
    };
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (503, Some("1")),
        "{}",
        refused.text()
    );
    assert!((400..900).contains(&acknowledged), "{acknowledged} of 40 KB in 32 MiB");
    let ready = service.get("/ready");
    assert!(ready.json()["details"]["queue"].is_string(), "{}", ready.text());
    blocker.execute_batch("COMMIT").expect("nothing was written");
    eventually("readiness", || service.get("/ready").status == 200);
    assert_eq!(client.call("POST", "/todos?wait=applied", &mine, r#"{"title":"b"}"#).status, 201);
    assert_eq!(service.metric("http_store_size") as usize, acknowledged + 1);
    assert_eq!(service.metric(r#"todos_requests_total{answer="refused"}"#), 1.0);
}

fn append(data: &Path, bodies: &[&[u8]]) {
    let directory = Directory::open(data.join("queue")).expect("nobody else has it");
    let journal = Journal::open(directory, Options::default()).expect("it is sound");
    let mut batch = Batch::new();
    for body in bodies {
        batch.push(Record { partition: 0, time_us: 0, id: 0, body });
    }
    let producer = journal.producer().expect("there are few");
    producer.append(batch).expect("there is room").wait().expect("the disk works");
    drop(producer);
    journal.close().expect("the disk works");
}

/// Purpose: bytes in the queue that are not a command become a dead letter with the reason; what is behind it is
/// applied all the same.
#[test]
fn poison_holds_up_nobody() {
    use highwater_todos::command::{Action, Command};
    let directory = tempfile::tempdir().expect("a temporary directory");
    drop(todos(directory.path(), &[]));
    let id = "0193b2f0-0000-7000-8000-000000000001".parse().expect("an id");
    let action = Action::Create { title: "behind".into(), description: String::new() };
    let good = Command { id, todo: id, user_id: "me".into(), requested_us: 1, action }.encode();
    append(directory.path(), &[b"\x00poison", br#"{"v":2}"#, &good]);
    let service = todos(directory.path(), &[]);
    assert_eq!(titles(&service), ["behind"]);
    assert_eq!(service.metric("todos_dead_letters_total"), 2.0);
    let store = rusqlite::Connection::open(directory.path().join("todos.db")).expect("the store");
    let mut letters =
        store.prepare("SELECT bytes, reason FROM dead_letters ORDER BY number").expect("a table");
    let letters: Vec<(Vec<u8>, String)> = letters
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .and_then(Iterator::collect)
        .expect("rows");
    assert_eq!(letters.len(), 2);
    assert_eq!(letters[0].0, b"\x00poison");
    assert!(letters[1].1.contains("version 2"), "{letters:?}");
}

/// Purpose: after a crash that has torn the queue's end the service starts, with nothing left to apply; it knows that a todo
/// is not there; and the position is committed past the cut, or a full disk would get no room.
#[test]
fn a_torn_queue() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mine = as_user("me");
    let service = todos(directory.path(), &[]);
    let body = r#"{"title":"before"}"#;
    assert_eq!(service.connect().call("POST", "/todos?wait=applied", &mine, body).status, 201);
    drop(service);
    let queue = directory.path().join("queue");
    let files = std::fs::read_dir(&queue).expect("it is there");
    let segments = files.map(|entry| entry.expect("it can be read").path());
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|suffix| suffix == "hwj");
    let newest = segments.filter(is_segment).max().expect("there is one");
    let torn = |mut file: std::fs::File| std::io::Write::write_all(&mut file, &[0xA5; 999]);
    std::fs::File::options().append(true).open(newest).and_then(torn).expect("it can be written");
    for opening in 0..2 {
        let service = todos(directory.path(), &[]);
        assert_eq!(service.log().contains("was repaired"), opening == 0, "{}", service.log());
        assert_eq!(service.metric("todos_queue_depth"), 0.0);
        let unknown = "/todos/0193b2f0-0000-7000-8000-000000000000";
        assert_eq!(service.connect().call("DELETE", unknown, &mine, "").status, 404);
        assert_eq!(titles(&service), ["before"]);
        service.stop();
    }
    let queue = Directory::open(&queue).expect("nobody else has it");
    let journal = Journal::open(queue, Options::default()).expect("it is sound");
    let end = journal.stat().next_offset;
    assert!(end > 1, "the cut offsets are not given again: {end}");
    assert_eq!(journal.consumers(), [("applier".to_owned(), end)]);
    drop(journal);
    let service = todos(directory.path(), &[]);
    let body = r#"{"title":"after"}"#;
    assert_eq!(service.connect().call("POST", "/todos?wait=applied", &mine, body).status, 201);
    assert_eq!(titles(&service), ["after", "before"]);
}

/// Purpose: a start that waits for a store which takes nothing says so, and SIGTERM ends it; what is queued is applied by a
/// later one.
#[test]
fn a_start_that_waits() {
    use highwater_todos::command::{Action, Command};
    let directory = tempfile::tempdir().expect("a temporary directory");
    let service = todos(directory.path(), &[]);
    service.stop();
    let id = "0193b2f0-0000-7000-8000-000000000001".parse().expect("an id");
    let action = Action::Create { title: "queued".into(), description: String::new() };
    let queued = Command { id, todo: id, user_id: "me".into(), requested_us: 1, action }.encode();
    append(directory.path(), &[&queued]);
    let change = |sql: &str| {
        let store = rusqlite::Connection::open(directory.path().join("todos.db"));
        store.expect("the store").execute_batch(sql).expect("it can be changed");
    };
    change(
        "CREATE TRIGGER refuse BEFORE INSERT ON todos BEGIN INSERT INTO not_now VALUES (1); END",
    );
    let data = text(directory.path());
    let secret = service::SECRET;
    let args = ["--listen=127.0.0.1:0", "--metrics=off", "--jwt-secret", secret, "--data", data];
    let mut waits = Process::start_unready(&mut command(&args));
    let line = waits.wait_for(|line| line.contains("the start waits until"));
    assert!(line.contains("not_now") && line.contains("left=1"), "{line}");
    waits.signal("TERM");
    let status = waits.ends_within(std::time::Duration::from_secs(10)).expect("it ends");
    assert!(status.success(), "{status}: {}", waits.log());
    assert!(!waits.log().contains(" serving "), "{}", waits.log());
    change("DROP TRIGGER refuse");
    assert_eq!(titles(&todos(directory.path(), &[])), ["queued"]);
}

/// Purpose: a queue that is older than the store, or gone, takes no command for one that is applied already.
#[test]
fn a_lost_queue() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mine = as_user("me");
    let write = |service: &Process, title: &str| {
        let mut client = service.connect();
        let body = format!(r#"{{"title":"{title}"}}"#);
        assert_eq!(client.call("POST", "/todos?wait=applied", &mine, &body).status, 201);
    };
    let service = todos(directory.path(), &[]);
    (0..3).for_each(|number| write(&service, &number.to_string()));
    drop(service);
    std::fs::remove_dir_all(directory.path().join("queue")).expect("it is there");
    let service = todos(directory.path(), &[]);
    write(&service, "after");
    assert_eq!(titles(&service), ["after", "2", "1", "0"]);
}

/// Purpose: `--todos-max` counts what is queued: creations that arrive together cannot pass it together, and one that
/// is deleted makes room. A service that starts with more than that serves, and refuses creations only.
#[test]
fn the_bound_of_todos() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let service = todos(directory.path(), &["--todos-max=5"]);
    let mine = as_user("me");
    let mut client = service.connect();
    let mut create = |title: &str, target: &str| {
        client.call("POST", target, &mine, format!(r#"{{"title":"{title}"}}"#))
    };
    // Nothing is applied meanwhile: all of them are queued.
    let blocker = rusqlite::Connection::open(directory.path().join("todos.db")).expect("the store");
    blocker.execute_batch("BEGIN IMMEDIATE").expect("it can be had");
    let answers: Vec<_> = (0..8).map(|number| create(&number.to_string(), "/todos")).collect();
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [202, 202, 202, 202, 202, 503, 503, 503]);
    assert!(answers[5].text().contains("--todos-max"), "{}", answers[5].text());
    blocker.execute_batch("COMMIT").expect("nothing was written");
    eventually("all are applied", || titles(&service).len() == 5);
    assert_eq!(create("6", "/todos").status, 503);
    service.stop();

    let service = todos(directory.path(), &["--todos-max=4"]);
    assert!(service.log().contains("--todos-max"), "{}", service.log());
    let mut client = service.connect();
    let delete_one = || {
        let list = service.get("/todos?limit=1").json();
        let target = format!("/todos/{}?wait=applied", list[0]["id"].as_str().expect("an id"));
        assert_eq!(service.connect().call("DELETE", &target, &mine, "").status, 200);
    };
    let body = r#"{"title":"again"}"#;
    let mut create = || client.call("POST", "/todos?wait=applied", &mine, body).status;
    assert_eq!(create(), 503);
    delete_one();
    assert_eq!(create(), 503);
    delete_one();
    assert_eq!([create(), create()], [201, 503]);
}

/// Purpose: everything is there after a restart, byte for byte, and the queue is at rest.
#[test]
fn a_restart_loads_everything() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mine = as_user("me");
    let service = todos(directory.path(), &[]);
    let mut client = service.connect();
    for number in 0..300 {
        let body = format!(r#"{{"title":"{number}","description":"ñ \"{number}\""}}"#);
        assert_eq!(client.call("POST", "/todos", &mine, &body).status, 202);
    }
    // Without waiting: what is queued is applied before the end.
    service.stop();
    let service = todos(directory.path(), &[]);
    let before = service.get("/todos");
    assert_eq!(before.json().as_array().map(Vec::len), Some(300));
    assert_eq!(service.metric(r#"todos_commands_total{outcome="applied"}"#), 0.0);
    service.stop();
    let service = todos(directory.path(), &[]);
    assert_eq!(service.get("/todos").body, before.body);
}

/// Runs it to its end: exit status, and output.
fn run(args: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let output = command(args).envs(variables.iter().copied()).output().expect("the binary starts");
    let bytes = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(bytes).expect("text"))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary directories have plain names")
}

/// Purpose: who tries the service with `--demo` and starts it again can go on with the token that it printed; one that is
/// signed with another key is refused with that reason.
#[test]
fn a_demo_keeps_its_secret() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let start = || {
        let flags = ["--demo", "--listen=127.0.0.1:0", "--metrics=off", "--workers=1", "--data"];
        Process::start(command(&flags).arg(directory.path().join("new")))
    };
    start().stop();
    let secret = std::fs::read_to_string(directory.path().join("new/demo-secret")).expect("kept");
    let token = |secret: &str| {
        let mine = highwater_todos::auth::issue(secret, "demo-user", service::now(), 60.0);
        bearer(&mine)
    };
    let service = start();
    let mut client = service.connect();
    let body = r#"{"title":"again"}"#;
    let answer = client.call("POST", "/todos?wait=applied", &token(secret.trim()), body);
    assert_eq!(answer.status, 201, "{}", answer.text());
    let answer = client.call("POST", "/todos", &token("another"), body);
    assert_eq!(answer.status, 401);
    assert!(answer.text().contains("another key"), "{}", answer.text());
}

/// Purpose: a wrong or missing setting ends with status 2 and says which, and what to write instead.
#[test]
fn wrong_settings() {
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a [&'a str]);
    let cases: [Case<'_>; 8] = [
        (&[], &[], &["--jwt-secret", "JWT_SECRET"]),
        (&["token"], &[], &["--jwt-secret", "JWT_SECRET"]),
        (&[], &[("JWT_SECRET", "")], &["JWT_SECRET", "empty"]),
        (&[], &[("JWT_SECRET", "secret")], &["JWT_SECRET", "6 bytes", "at least 32"]),
        (&["--title-max=0"], &[("JWT_SECRET", service::SECRET)], &["--title-max", "0", "1 to"]),
        (&["--wait-max=1d"], &[("JWT_SECRET", service::SECRET)], &["--wait-max", "1d"]),
        (&["seed", "--count=0"], &[], &["--count", "0"]),
        (&["token", "--ttl=0s", service::SECRET_FLAG], &[], &["--ttl", "0s"]),
    ];
    for (args, variables, words) in cases {
        let (status, text) = run(args, variables);
        assert_eq!(status, Some(2), "{args:?} {variables:?}: {text}");
        for word in words {
            assert!(text.contains(word), "{args:?} {variables:?}: no {word:?} in {text}");
        }
    }
}

/// Purpose: two processes on one directory would both apply: the second is refused by name, whichever it is; a
/// directory that cannot be used is named with the remedy.
#[test]
fn unusable_data() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let service = todos(directory.path(), &[]);
    let data = text(directory.path());
    for args in [
        &[service::SECRET_FLAG, "--listen=127.0.0.1:0", "--data", data][..],
        &["seed", "--data", data],
    ] {
        let (status, message) = run(args, &[]);
        assert_eq!(status, Some(1), "{message}");
        assert!(message.contains("in use by process") && message.contains(data), "{message}");
        assert_eq!(message.matches("stop it").count(), 1, "{message}");
    }
    assert_eq!(service.get("/todos").text(), "[]");
    let blocked: PathBuf = directory.path().join("file");
    std::fs::write(&blocked, "in the way").expect("writable");
    let (status, message) = run(&[service::SECRET_FLAG, "--data", text(&blocked)], &[]);
    assert_eq!(status, Some(1), "{message}");
    assert!(message.contains("file") && message.contains("--data"), "{message}");
}

/// Purpose: `seed` fills the store with what it says, `token` prints what the service takes, and both read their
/// settings as the service does.
#[test]
fn seed_and_token() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let data = text(directory.path());
    let (status, message) = run(&["seed", "--count=1234"], &[("HIGHWATER_DATA", data)]);
    assert_eq!(status, Some(0), "{message}");
    let service = todos(directory.path(), &[]);
    let list = service.get("/todos").json();
    assert_eq!(list.as_array().map(Vec::len), Some(1234));
    assert_eq!((&list[0]["title"], &list[1233]["title"]), (&"Todo 1234".into(), &"Todo 1".into()));
    assert_eq!(list[0]["description"], "Description for todo 1234");
    let (status, token) =
        run(&["token", "--subject=seed-user", "--ttl=1h"], &[("JWT_SECRET", service::SECRET)]);
    assert_eq!(status, Some(0), "{token}");
    let path = format!("/todos/{}?wait=applied", list[0]["id"].as_str().expect("an id"));
    let mut client = service.connect();
    assert_eq!(client.call("DELETE", &path, &bearer(token.trim()), "").status, 200);
}
