//! Starts and ends with parts that cannot be used: the log says why, and signals are handled.

use std::net::TcpListener;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use highwater_testkit::{Process, eventually, program};
use highwater_todos::store::Store as _;
use highwater_todos::store::postgres::{Postgres, Timeouts, parse_url};
use tempfile::TempDir;

use crate::servers::{schema, sql};

/// The service on this store, with its data in `data`.
fn command(url: &str, data: &TempDir) -> Command {
    let mut command = program(env!("CARGO_BIN_EXE_highwater-todos"));
    command
        .env("DATABASE_URL", url)
        .args(["--listen=127.0.0.1:0", "--metrics=off", "--workers=1"])
        .args(["--jwt-secret=a secret of thirty-two characters", "--data"])
        .arg(data.path());
    command
}

/// Purpose: a store that a newer version has written, or a server that does not accept the user, ends the start at once,
/// with the reason and the remedy: it is not waited for, as a server is that starts at the same time.
#[test]
fn a_store_that_no_waiting_helps() {
    let newer = schema("full_newer");
    let mut store = Postgres::connect(&parse_url(&newer).expect("a URL"), Timeouts::default());
    store.as_mut().expect("connected").load().expect("loaded");
    sql(&newer, "INSERT INTO schema_migrations SELECT max(version) + 1 FROM schema_migrations");
    let stranger = newer.replace("//highwater@", "//stranger@");
    let data = tempfile::tempdir().expect("a temporary directory");
    for (url, words) in [(newer, "run the version that wrote it"), (stranger, "check DATABASE_URL")]
    {
        let Output { status, stderr, .. } = command(&url, &data).output().expect("it runs");
        let message = String::from_utf8_lossy(&stderr);
        assert!(!status.success() && message.contains(words), "{message}");
        assert!(!message.contains("waits for the store"), "{message}");
    }
}

/// Purpose: a start that waits for a store that is away ends at the first signal, with success, and not after all of its
/// patience.
#[test]
fn a_start_that_waits_can_be_ended() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let away = "postgres://highwater@127.0.0.1:1/away";
    let mut service = Process::start_unready(&mut command(away, &data));
    service.wait_for(|line| line.contains("the start waits for the store"));
    let asked = Instant::now();
    service.signal("INT");
    assert!(service.wait().success());
    assert!(asked.elapsed() < Duration::from_secs(10), "it waited on");
}

/// Purpose: an end that waits for a broker that is away says so, and a further signal ends it at once.
#[test]
fn an_end_that_waits_can_be_ended() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let mut command = program(env!("CARGO_BIN_EXE_highwater-todos"));
    command
        .args([
            "--listen=127.0.0.1:0",
            "--metrics=off",
            "--workers=1",
            "--kafka-brokers=127.0.0.1:1",
        ])
        .args(["--jwt-secret=a secret of thirty-two characters", "--data"])
        .arg(data.path());
    let mut service = Process::start(&mut command);
    service.signal("INT");
    service.wait_for(|line| line.contains("the end waits for queued commands"));
    let asked = Instant::now();
    service.signal("INT");
    assert!(service.wait().success());
    assert!(asked.elapsed() < Duration::from_secs(3), "it waited on");
}

/// Purpose: a server that is read-only, as one is during a failover, is waited for, and the log says so with the remedy;
/// once it takes writes, the service starts.
#[test]
fn a_store_that_is_read_only() {
    let url = schema("full_read_only");
    sql(
        &url,
        "DROP ROLE IF EXISTS full_read_only; CREATE ROLE full_read_only LOGIN SUPERUSER;
         ALTER ROLE full_read_only SET default_transaction_read_only = on",
    );
    let theirs = url.replace("//highwater@", "//full_read_only@");
    let data = tempfile::tempdir().expect("a temporary directory");
    let mut service = Process::start_unready(&mut command(&theirs, &data));
    service.wait_for(|line| line.contains("the start waits for the store"));
    sql(&url, "ALTER ROLE full_read_only RESET default_transaction_read_only");
    service.begins(" serving ");
    let message = service.log();
    assert!(message.contains("give DATABASE_URL of the primary"), "{message}");
}

/// Purpose: an instance whose role may not read the todos any more is not ready, although nothing has changed that it would have
/// to read, and the rest of the store answers; once the role may, the instance is ready again.
#[test]
fn a_role_that_may_not_read_any_more() {
    let url = schema("full_no_select");
    let data = tempfile::tempdir().expect("a temporary directory");
    Process::start(&mut command(&url, &data)).stop();
    sql(
        &url,
        "DO $$ BEGIN DROP OWNED BY full_no_select; EXCEPTION WHEN undefined_object THEN END $$;
         DROP ROLE IF EXISTS full_no_select; CREATE ROLE full_no_select LOGIN;
         GRANT ALL ON SCHEMA full_no_select TO full_no_select;
         GRANT ALL ON ALL TABLES IN SCHEMA full_no_select TO full_no_select;
         GRANT ALL ON ALL SEQUENCES IN SCHEMA full_no_select TO full_no_select",
    );
    let theirs = url.replace("//highwater@", "//full_no_select@");
    let service = Process::start(&mut command(&theirs, &data));
    let ready = || service.get("/ready");
    eventually("it is ready", || ready().status == 200);
    for table in ["todos", "todo_tombstones", "applied_commands"] {
        sql(&url, &format!("REVOKE SELECT ON {table} FROM full_no_select"));
        eventually("it is not ready", || ready().status == 503);
        let said = ready().text().to_owned();
        assert!(said.contains("store") && said.contains("permission denied"), "{said}");
        // It stays that way: what still answers does not count.
        let stays = std::iter::repeat_with(|| ready().status).take(200).all(|status| status == 503);
        assert!(stays, "it was ready in between");
        sql(&url, &format!("GRANT SELECT ON {table} TO full_no_select"));
        eventually("it is ready again", || ready().status == 200);
    }
}

/// Purpose: a start that is asked to stop while it waits for a server that does not answer ends at once, and not as a failure:
/// that of an instance, and that of a worker.
#[test]
fn a_start_that_is_asked_to_stop() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("postgres://highwater@{}/todos", silent.local_addr().expect("it is bound"));
    let data = tempfile::tempdir().expect("a temporary directory");
    let mut worker = program(env!("CARGO_BIN_EXE_highwater-todos"));
    worker.env("DATABASE_URL", &url).args([
        "worker",
        "--metrics=off",
        "--kafka-brokers=127.0.0.1:1",
    ]);
    for mut command in [command(&url, &data), worker] {
        let mut service = Process::start_unready(&mut command);
        let held = silent.accept().expect("it connects");
        let asked = Instant::now();
        service.signal("TERM");
        assert!(service.wait().success());
        assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
        drop(held);
    }
}
