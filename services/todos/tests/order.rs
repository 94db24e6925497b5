//! What readers see while others write: in order, never less than before, nothing half done.

mod service;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use highwater_testkit::{Client, eventually};
use service::{as_user, todos};

const WRITERS: usize = 4;
const CHANGES: usize = 100;

/// Purpose: changes of one todo are applied in the order in which they were acknowledged, whichever connection and
/// worker they came by: the last one acknowledged is what stays.
#[test]
fn one_todo_many_connections() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let todos = todos(directory.path(), &[]);
    let mine = as_user("me");
    // More connections than workers: they spread over all of them.
    let connect = |_| todos.connect();
    let mut clients: Vec<Client> = (0..8).map(connect).collect();
    let created = clients[0].call("POST", "/todos", &mine, r#"{"title":"start"}"#);
    let path = format!("/todos/{}", created.member("id"));
    for number in 0..200 {
        // It may not be applied yet: a todo that was acknowledged is found all the same.
        let client = &mut clients[number % 8];
        let answer = client.call("PUT", &path, &mine, format!(r#"{{"title":"{number}"}}"#));
        assert_eq!(answer.status, 202, "{}", answer.text());
    }
    let last =
        clients[3].call("PUT", &format!("{path}?wait=applied"), &mine, r#"{"completed":true}"#);
    assert_eq!((last.status, &last.json()["title"]), (200, &"199".into()));
    assert_eq!(clients[5].call("DELETE", &path, &mine, "").status, 202);
    let late =
        clients[6].call("PUT", &format!("{path}?wait=applied"), &mine, r#"{"completed":false}"#);
    assert_eq!(late.status, 404, "{}", late.text());
}

/// Purpose: a client that writes at once to what it has just created is never told that it is not there, however
/// busy the applier is.
#[test]
fn what_was_acknowledged_is_found() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let todos = todos(directory.path(), &[]);
    let (address, done) = (todos.address, AtomicBool::new(false));
    thread::scope(|scope| {
        let busy = || {
            let (mut client, other) = (Client::connect(address), as_user("other"));
            while !done.load(Ordering::Relaxed) {
                let answer = client.call("POST", "/todos", &other, r#"{"title":"noise"}"#);
                assert_eq!(answer.status, 202, "{}", answer.text());
            }
        };
        (0..2).for_each(|_| drop(scope.spawn(busy)));
        let mine = as_user("me");
        let mut clients = [0, 1].map(|_| Client::connect(address));
        for _ in 0..CHANGES {
            let created = clients[0].call("POST", "/todos", &mine, r#"{"title":"a"}"#);
            let path = format!("/todos/{}", created.member("id"));
            assert_eq!(clients[1].call("PUT", &path, &mine, r#"{"title":"b"}"#).status, 202);
            assert_eq!(clients[0].call("DELETE", &path, &mine, "").status, 202);
            assert_eq!(clients[1].call("DELETE", &path, &as_user("other"), "").status, 404);
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Purpose: no reader ever sees less than a reader before it, by list or by id, on whichever connection; and a
/// write that was acknowledged as visible is visible.
#[test]
fn readers_never_go_back() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let todos = todos(directory.path(), &[]);
    let (address, done) = (todos.address, AtomicBool::new(false));
    thread::scope(|scope| {
        let writers: Vec<_> =
            (0..WRITERS).map(|number| scope.spawn(move || write(address, number))).collect();
        for limit in [0, 1, 3, 10] {
            let done = &done;
            scope.spawn(move || read(address, limit, done));
        }
        for writer in writers {
            writer.join().expect("what it was told is visible");
        }
        done.store(true, Ordering::Relaxed);
    });
    let newest = todos.get("/todos?limit=1").json()[0]["id"].as_str().map(str::to_owned);
    let path = format!("/todos/{}", newest.expect("there are some"));
    eventually("the todo", || todos.get(&path).status == 200);
}

/// Creates todos and counts up in their titles; looks after each change.
fn write(address: std::net::SocketAddr, number: usize) {
    let mine = as_user(&format!("writer-{number}"));
    let mut clients = [0, 1].map(|_| Client::connect(address));
    for _ in 0..5 {
        let created = clients[0].call("POST", "/todos?wait=applied", &mine, r#"{"title":"0"}"#);
        assert_eq!(created.status, 201, "{}", created.text());
        let path = format!("/todos/{}", created.member("id"));
        for count in 1..=CHANGES / 5 {
            let body = format!(r#"{{"title":"{count}"}}"#);
            let changed = clients[0].call("PUT", &format!("{path}?wait=applied"), &mine, &body);
            assert_eq!(changed.status, 200, "{}", changed.text());
            assert_eq!(clients[1].call("GET", &path, "", "").text(), changed.text());
            let all = clients[1].call("GET", "/todos", "", "");
            assert!(all.text().contains(changed.text()), "{} is missing", changed.text());
        }
    }
}

/// Polls a list, and the todos in it by id. What was seen once is there from then on, with the same title or a
/// later one.
fn read(address: std::net::SocketAddr, limit: usize, done: &AtomicBool) {
    let mut seen = std::collections::HashMap::<String, u64>::new();
    let mut newest = String::new();
    let mut clients = [0, 1].map(|_| Client::connect(address));
    for turn in 0.. {
        if done.load(Ordering::Relaxed) {
            break;
        }
        let list = clients[turn % 2].call("GET", &format!("/todos?limit={limit}"), "", "").json();
        let list = list.as_array().expect("a list");
        let mut look = |todo: &serde_json::Value| {
            let id = todo["id"].as_str().expect("an id").to_owned();
            let count =
                todo["title"].as_str().and_then(|title| title.parse().ok()).expect("a number");
            let before = seen.insert(id, count).unwrap_or(0);
            assert!(count >= before, "{count} after {before}");
        };
        list.iter().for_each(&mut look);
        if let Some(first) = list.first() {
            let created = first["created_at"].as_str().expect("a time").to_owned();
            assert!(created.len() < 20 || newest.len() < 20 || created[..19] >= newest[..19]);
            newest = created;
            let path = format!("/todos/{}", first["id"].as_str().expect("an id"));
            let one = clients[(turn + 1) % 2].call("GET", &path, "", "");
            assert_eq!(one.status, 200, "a list showed it");
            look(&one.json());
        }
    }
}
