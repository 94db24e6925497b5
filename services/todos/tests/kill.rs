//! `kill -9` again and again: what was acknowledged is applied, once, and in order.

mod service;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use highwater_testkit::{Client, eventually, request};
use service::{as_user, todos};

/// How many rounds there are, unless the environment says.
const ROUNDS: u32 = 5;
const VARIABLE: &str = "TORTURE_ROUNDS";
const CLIENTS: usize = 4;

/// What one client knows of its todos.
#[derive(Default)]
struct Ledger {
    /// By id: what was acknowledged last (`None`: deleted), and what was asked for and not answered.
    todos: BTreeMap<String, (Option<String>, Option<Option<String>>)>,
    /// The title of a creation that was not answered.
    unanswered: Option<String>,
}

/// Purpose: over many kills at random instants, every acknowledged command is applied after the restart, none
/// twice, none of one todo before another that came earlier; and what was not acknowledged is there or not, whole.
#[test]
fn acknowledged_commands_survive_kill_9() {
    let rounds = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (mut count, mut uncertain, mut acknowledged) = (0, 0, 0);
    let mut service = todos(directory.path(), &[]);
    for round in 0..rounds {
        let address = service.address;
        let ledgers = thread::scope(|scope| {
            let work = |client| move || work(address, round, client);
            let clients: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(work(client))).collect();
            thread::sleep(Duration::from_millis(fastrand::u64(5..200)));
            service.kill();
            clients
                .into_iter()
                .map(|client| client.join().expect("it only fails by the kill"))
                .collect::<Vec<_>>()
        });
        service = todos(directory.path(), &[]);
        // The port opens once everything is applied: no waiting here.
        let mut client = service.connect();
        for ledger in &ledgers {
            acknowledged += ledger.todos.len();
            count += check(&mut client, ledger);
            uncertain += ledger.unanswered.iter().count();
        }
        // None was applied twice under another id, and nothing else came to be.
        let stored = service.metric("http_store_size") as usize;
        assert!(
            (count..=count + uncertain).contains(&stored),
            "{stored} of {count} and {uncertain}"
        );
        assert_eq!(service.metric(r#"todos_commands_total{outcome="dead"}"#), 0.0);
    }
    assert!(acknowledged > 0, "no client got an answer before any kill");
    service.stop();
}

/// Creates, changes and deletes todos until the service is gone.
fn work(address: SocketAddr, round: u32, client: usize) -> Ledger {
    let mut ledger = Ledger::default();
    let mine = as_user(&format!("client-{client}"));
    let Ok(mut connection) = Client::try_connect(address) else { return ledger };
    for number in 0.. {
        let title = format!("{round}/{client}/{number}");
        let body = format!(r#"{{"title":"{title}"}}"#);
        let create = request("POST", "/todos", &mine, &body);
        let Ok(created) = connection.try_ask(create) else {
            ledger.unanswered = Some(title);
            return ledger;
        };
        assert_eq!(created.status, 202, "{}", created.text());
        let id = created.member("id");
        let entry = ledger.todos.entry(id.clone()).or_default();
        entry.0 = Some(title.clone());
        let changes = (1..=3).map(|change| Some(format!("{title} {change}")));
        let deletion = (number % 3 == 0).then_some(None);
        for wanted in changes.chain(deletion) {
            let (method, body) = match &wanted {
                Some(title) => ("PUT", format!(r#"{{"title":"{title}"}}"#)),
                None => ("DELETE", String::new()),
            };
            match connection.try_ask(request(method, &format!("/todos/{id}"), &mine, &body)) {
                Ok(answer) => assert_eq!(answer.status, 202, "{}", answer.text()),
                _ => {
                    entry.1 = Some(wanted);
                    return ledger;
                }
            }
            entry.0 = wanted;
        }
    }
    unreachable!("numbers do not end")
}

/// Compares what is there with what a client was answered, and returns how many of its todos are there.
fn check(client: &mut Client, ledger: &Ledger) -> usize {
    let mut count = 0;
    for (id, (acknowledged, unanswered)) in &ledger.todos {
        let answer = client.call("GET", &format!("/todos/{id}"), "", "");
        let title = match answer.status {
            200 => Some(answer.json()["title"].as_str().expect("a title").to_owned()),
            404 => None,
            other => panic!("{other}: {}", answer.text()),
        };
        let may_be = title == *acknowledged || unanswered.as_ref() == Some(&title);
        assert!(may_be, "{id}: {title:?} after {acknowledged:?}, perhaps {unanswered:?}");
        count += usize::from(title.is_some());
    }
    count
}

/// Purpose: a kill while the applier is behind loses nothing either: what was queued is applied at the start, before
/// the port opens, in full.
#[test]
fn a_backlog_is_applied_at_the_start() {
    const COMMANDS: usize = 500;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut service = todos(directory.path(), &[]);
    let mine = as_user("me");
    // The applier cannot write while somebody else does.
    let blocker = rusqlite::Connection::open(directory.path().join("todos.db")).expect("the store");
    blocker.execute_batch("BEGIN IMMEDIATE").expect("it can be had");
    let mut client = service.connect();
    for number in 0..COMMANDS {
        let answer = client.call("POST", "/todos", &mine, format!(r#"{{"title":"{number}"}}"#));
        assert_eq!(answer.status, 202, "{}", answer.text());
    }
    eventually("a backlog", || service.metric("todos_queue_depth") > 0.0);
    service.kill();
    drop(blocker);
    let service = todos(directory.path(), &[]);
    assert_eq!(service.metric("http_store_size") as usize, COMMANDS);
    service.stop();
}
