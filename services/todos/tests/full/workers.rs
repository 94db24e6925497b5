//! How many commands one worker applies per second, and how many two, which share the partitions.
//!
//! In each round commands are accepted while the workers wait for a lock of the test's own on the table; they have their
//! partitions already. Then the lock goes, and the rate is that of the transactions from then on: the
//! middle four fifths of the rows, by the time of the commit that Postgres keeps for each
//! (`pg_xact_commit_timestamp`), so neither a start nor an end is part of it. The CPU time of the server, the workers and
//! the instance in that time, and samples of what Postgres's backends wait for, say what the bottleneck is.
//!
//! `make todos-workers` runs it, for about four minutes; WORKERS_OUT is where the record goes.

use std::collections::BTreeMap;
use std::process::Command;
use std::thread::{self, sleep};
use std::time::Duration;

use highwater_testkit::{Process, cpu_of, within};
use serde_json::{Value, json};
use tokio_postgres::NoTls;

use crate::record;
use crate::servers::rows;
use crate::stage::Stage;

const ROUNDS: usize = 5;
/// Commands per measurement, and the clients that send them.
const COMMANDS: usize = 60_000;
const CLIENTS: usize = 48;
/// Kafka waits three seconds for further members of a group; then each has its partitions.
const JOINED: Duration = Duration::from_secs(6);

/// What each backend that works for a worker does at a moment.
const WAITS: &str = "SELECT coalesce(wait_event_type || ' ' || wait_event, 'runs') FROM pg_stat_activity \
     WHERE state = 'active' AND pid <> pg_backend_pid()";

/// CPU time so far, in seconds: of Postgres, the workers, the instance.
type Cpu = [f64; 3];

/// Purpose: the figures of one worker and of two, alternating, and what limits them.
#[test]
#[ignore = "a measurement of four minutes: make todos-workers"]
fn two_beside_one() {
    let stage = Stage::start().expect("Postgres, Redis and Kafka can be had");
    let instance = stage.instance();
    let mut measured = Vec::new();
    for round in 0..ROUNDS {
        let order = if round % 2 == 0 { [1, 2] } else { [2, 1] };
        for workers in order {
            let row = measure(&stage, &instance, &format!("round {round} of {workers}"), workers);
            eprintln!("{row}");
            measured.push(row);
        }
    }
    report(&measured);
}

/// Has so many workers apply commands that were accepted before.
fn measure(stage: &Stage, instance: &Process, title: &str, count: usize) -> Value {
    let workers: Vec<Process> = (0..count).map(|_| stage.worker()).collect();
    sleep(JOINED);
    let url = stage.postgres.url();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let database = runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("connected");
        tokio::spawn(connection);
        let lock = "BEGIN; LOCK TABLE todos IN SHARE ROW EXCLUSIVE MODE";
        client.batch_execute(lock).await.expect("locked");
        client
    });
    fill(stage, instance, title);
    let before = cpu(instance, &workers);
    runtime.block_on(database.batch_execute("COMMIT")).expect("unlocked");
    let applied =
        |worker: &Process| worker.metric("todos_commands_total{outcome=\"applied\"}") as usize;
    let mut waits = BTreeMap::new();
    let all = within(Duration::from_secs(120), || {
        let active = runtime.block_on(database.query(WAITS, &[])).expect("a query");
        for row in active {
            *waits.entry(row.get::<_, String>(0)).or_insert(0) += 1;
        }
        workers.iter().map(applied).sum::<usize>() >= COMMANDS
    });
    assert!(all, "everything is applied");
    let used: Vec<f64> =
        cpu(instance, &workers).iter().zip(before).map(|(now, then)| now - then).collect();
    let shares: Vec<f64> =
        workers.iter().map(|worker| applied(worker) as f64 / COMMANDS as f64).collect();
    workers.into_iter().for_each(Process::stop);
    let span = "SELECT extract(epoch FROM percentile_disc(0.9) WITHIN GROUP (ORDER BY t) \
         - percentile_disc(0.1) WITHIN GROUP (ORDER BY t))::text, \
         extract(epoch FROM max(t) - min(t))::text \
         FROM (SELECT pg_xact_commit_timestamp(xmin) AS t FROM todos WHERE title = ";
    let spans = rows(&url, &format!("{span}'{title}') AS commits"));
    let seconds = |text: &str| text.parse::<f64>().expect("a number");
    let (middle, whole) = (seconds(&spans[0].0), seconds(&spans[0].1));
    assert!(shares.iter().all(|share| *share > 0.2), "each worker has its part: {shares:?}");
    json!({
        "workers": count, "applied_per_s": (0.8 * COMMANDS as f64 / middle).round(), "shares": shares,
        "cpus": {"postgres": used[0] / whole, "workers": used[1] / whole, "instance": used[2] / whole},
        "backends": waits,
    })
}

/// Sends the commands, each of which creates a todo of this title.
fn fill(stage: &Stage, instance: &Process, title: &str) {
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let mut client = stage.client(instance);
            scope.spawn(move || {
                for _ in 0..COMMANDS / CLIENTS {
                    let answer = client.create(title);
                    assert_eq!(answer.status, 202, "{answer:?}");
                }
            });
        }
    });
}

fn cpu(instance: &Process, workers: &[Process]) -> Cpu {
    // Nothing else that runs meanwhile has this name.
    let ids = Command::new("pgrep").args(["-x", "postgres"]).output().expect("there is pgrep");
    let ids = String::from_utf8(ids.stdout).expect("numbers");
    // A backend may have ended since.
    let of_postgres = ids.lines().filter_map(|id| cpu_of(id.parse().expect("a number")));
    let of_postgres: Duration = of_postgres.sum();
    let of_workers: Duration = workers.iter().map(Process::cpu).sum();
    [of_postgres, of_workers, instance.cpu()].map(|time| time.as_secs_f64())
}

fn report(measured: &[Value]) {
    let rates = |workers: usize| -> Vec<f64> {
        let of = measured.iter().filter(|row| row["workers"] == workers);
        of.map(|row| row["applied_per_s"].as_f64().expect("a number")).collect()
    };
    let mut ratios: Vec<f64> = rates(2).iter().zip(rates(1)).map(|(two, one)| two / one).collect();
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    eprintln!(
        "two workers apply {median:.2} times as much as one ({:.2} to {:.2} in {ROUNDS} rounds)",
        ratios[0],
        ratios[ROUNDS - 1]
    );
    let record = json!({
        "name": "todos-workers",
        "environment": record::environment(),
        "commands": COMMANDS, "partitions": 4, "rows": measured,
        "two_over_one": {"median": median, "least": ratios[0], "greatest": ratios[ROUNDS - 1]},
    });
    record::write("WORKERS_OUT", &record);
}
