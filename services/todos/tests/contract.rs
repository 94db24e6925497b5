//! What clients see: the real binary, over real sockets.

mod service;

use highwater_testkit::{
    Answer, Call, Client, Document, Process, eventually, eventually_some, get, request,
    schemathesis, typescript,
};
use service::{SECRET, SECRET_FLAG, as_user, bearer, now, todos};
use tempfile::TempDir;

fn service() -> (Process, Client, TempDir) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let todos = todos(directory.path(), &[]);
    let client = todos.connect();
    (todos, client, directory)
}

/// The titles of a list, in order.
fn titles(answer: &Answer) -> Vec<String> {
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    let list = answer.json();
    let title = |todo: &serde_json::Value| todo["title"].as_str().expect("a title").to_owned();
    list.as_array().expect("a list").iter().map(title).collect()
}

/// Purpose: a todo's whole life, byte for byte where the contract says so: created, read, changed, deleted.
#[test]
fn a_life() {
    let (todos, mut client, _directory) = service();
    let mine = as_user("me");
    assert_eq!(client.call("GET", "/todos", "", "").text(), "[]");
    assert_eq!(client.call("GET", "/todos?limit=5", "", "").text(), "[]");

    let created =
        client.call("POST", "/todos", &mine, r#"{"title":"Tea","description":"gr\u00fcn"}"#);
    let id = created.member("id");
    assert_eq!((created.status, created.header("content-type")), (202, Some("application/json")));
    assert_eq!(created.text(), format!(r#"{{"id":"{id}","message":"Todo creation queued"}}"#));
    let path = format!("/todos/{id}");
    let shown = eventually_some("the todo", || Some(todos.get(&path)).filter(|a| a.status == 200));
    let json = shown.json();
    let (created_at, updated_at) = (json["created_at"].clone(), json["updated_at"].clone());
    let time = created_at.as_str().expect("a time");
    assert_eq!(created_at, updated_at);
    let expected = format!(
        r#"{{"id":"{id}","title":"Tea","description":"grün","completed":false,"user_id":"me","created_at":"{time}","updated_at":"{time}"}}"#
    );
    assert_eq!(shown.text(), expected);
    assert_eq!(client.call("GET", "/todos?limit=1", "", "").text(), format!("[{expected}]"));

    let updated = client.call("PUT", &path, &mine, r#"{"completed":true}"#);
    assert_eq!(updated.status, 202);
    assert_eq!(updated.text(), format!(r#"{{"id":"{id}","message":"Todo update queued"}}"#));
    let shown = eventually_some("the change", || {
        Some(todos.get(&path)).filter(|answer| answer.json()["completed"] == true)
    });
    assert_eq!(
        (&shown.json()["title"], &shown.json()["created_at"]),
        (&json["title"], &created_at)
    );
    assert_ne!(shown.json()["updated_at"], created_at);

    let deleted = client.call("DELETE", &path, &mine, "");
    assert_eq!(deleted.status, 202);
    assert_eq!(deleted.text(), format!(r#"{{"id":"{id}","message":"Todo deletion queued"}}"#));
    eventually("the deletion", || todos.get(&path).status == 404);
    assert_eq!(client.call("GET", "/todos", "", "").text(), "[]");
}

/// Purpose: with `?wait=applied` the answer is the todo, and every read that follows shows it.
#[test]
fn read_your_writes() {
    let (todos, mut client, _directory) = service();
    let mine = as_user("me");
    for number in 0..50 {
        let body = format!(r#"{{"title":"{number}"}}"#);
        let created = client.call("POST", "/todos?wait=applied", &mine, &body);
        assert_eq!(created.status, 201, "{}", created.text());
        // On another connection, and so perhaps on another worker.
        let listed = todos.get("/todos?limit=1");
        assert_eq!(listed.text(), format!("[{}]", created.text()));
        let path = format!("/todos/{}", created.member("id"));
        assert_eq!(todos.get(&path).text(), created.text());
        let changed =
            client.call("PUT", &format!("{path}?wait=applied"), &mine, r#"{"title":"new"}"#);
        assert_eq!((changed.status, &changed.json()["title"]), (200, &"new".into()));
        assert_eq!(todos.get(&path).text(), changed.text());
        if number % 2 == 0 {
            let gone = client.call("DELETE", &format!("{path}?wait=applied"), &mine, "");
            assert_eq!(gone.status, 200);
            let expected =
                format!(r#"{{"id":"{}","message":"Todo deleted"}}"#, created.member("id"));
            assert_eq!(gone.text(), expected);
            assert_eq!(todos.get(&path).status, 404);
        }
    }
    assert_eq!(titles(&todos.get("/todos")).len(), 25);
}

/// Purpose: lists are newest first and exact for every limit; a limit that is not a positive number means everything.
#[test]
fn lists() {
    let (todos, mut client, _directory) = service();
    let mine = as_user("me");
    for number in 0..7 {
        let body = format!(r#"{{"title":"{number}"}}"#);
        client.call("POST", "/todos?wait=applied", &mine, &body);
    }
    let all: Vec<String> = (0..7).rev().map(|number| number.to_string()).collect();
    let cases = [
        ("?limit=1", 1),
        ("?limit=6", 6),
        ("?limit=7", 7),
        ("?limit=8", 7),
        ("?limit=010", 7),
        ("?limit=+3", 3),
        ("?limit=99999999999999999999999", 7),
        ("?limit=0", 7),
        ("?limit=-1", 7),
        ("?limit=-99999999999999999999999", 7),
        ("?limit=", 7),
        ("", 7),
    ];
    for (query, count) in cases {
        assert_eq!(titles(&todos.get(&format!("/todos{query}"))), all[..count], "{query}");
    }
    // A name that is not known is refused, with the name that is: nothing is guessed.
    for query in ["?limt=1", "?limit=1&foo=2", "?foo", "?Limit=1", "?=1"] {
        let answer = todos.get(&format!("/todos{query}"));
        assert_eq!(answer.status, 400, "{query}");
        let details = answer.json()["details"].as_str().expect("details").to_owned();
        assert!(details.contains("unknown parameter") && details.contains("`limit`"), "{details}");
    }
    assert_eq!(todos.get("/todos?").status, 200);
    assert_eq!(todos.get("/todos?limit=1&").status, 200);
    let one =
        format!("/todos/{}", todos.get("/todos?limit=1").json()[0]["id"].as_str().expect("an id"));
    assert_eq!(todos.get(&one).status, 200);
    assert_eq!(todos.get(&format!("{one}?wait=applied")).status, 400);
    for query in ["?limit=ten", "?limit=1.5", "?limit=1&limit=2", "?limit=%31", "?limit=-"] {
        let answer = todos.get(&format!("/todos{query}"));
        assert_eq!(answer.status, 400, "{query}");
        let details = answer.json()["details"].as_str().expect("details").to_owned();
        assert!(details.starts_with("limit: "), "{query}: {details}");
    }
}

/// Purpose: an error in a body names its field, and nothing of it is stored.
#[test]
fn bad_input() {
    let (todos, mut client, _directory) = service();
    let mine = as_user("me");
    let created = client.call("POST", "/todos?wait=applied", &mine, r#"{"title":"there"}"#);
    let path = format!("/todos/{}", created.member("id"));
    let long = |count: usize| "ñ".repeat(count);
    let cases: &[(&str, String, u16, &str)] = &[
        ("POST", String::new(), 400, "JSON object"),
        ("POST", "{".into(), 400, "EOF"),
        ("POST", "null".into(), 400, "JSON object"),
        ("POST", r#"["a","b"]"#.into(), 400, "JSON object"),
        ("POST", r#"{"title":"a"} x"#.into(), 400, "trailing"),
        ("POST", "{}".into(), 400, "title: "),
        ("POST", r#"{"title":null}"#.into(), 400, "title: "),
        ("POST", r#"{"title":1}"#.into(), 400, "title: "),
        ("POST", r#"{"title":"a","description":{}}"#.into(), 400, "description: "),
        ("POST", r#"{"title":"a","descripton":"b"}"#.into(), 400, "descripton"),
        ("POST", r#"{"title":"a","completed":true}"#.into(), 400, "completed"),
        ("POST", r#"{"title":"a","title":"b"}"#.into(), 400, "title"),
        ("POST", r#"{"title":"\ud800"}"#.into(), 400, "title"),
        ("POST", r#"{"title":""}"#.into(), 422, "title: "),
        ("POST", r#"{"title":" \n"}"#.into(), 422, "title: "),
        ("POST", r#"{"title":"a\u0000b"}"#.into(), 422, "title: "),
        ("POST", r#"{"title":"a","description":"\u0000"}"#.into(), 422, "description: "),
        ("POST", format!(r#"{{"title":"{}"}}"#, long(501)), 422, "title: "),
        (
            "POST",
            format!(r#"{{"title":"a","description":"{}"}}"#, long(10_001)),
            422,
            "description: ",
        ),
        ("PUT", "{}".into(), 422, "title, description, completed"),
        ("PUT", r#"{"completed":"yes"}"#.into(), 400, "completed: "),
        ("PUT", r#"{"user_id":"other"}"#.into(), 400, "user_id"),
        ("PUT", r#"{"title":""}"#.into(), 422, "title: "),
        ("PUT", format!(r#"{{"title":"{}"}}"#, long(501)), 422, "title: "),
    ];
    for (method, body, status, expected) in cases {
        let target = if *method == "PUT" { &path } else { "/todos" };
        let answer = client.call(method, target, &mine, body);
        let shown = &body[..body.len().min(60)];
        assert_eq!(answer.status, *status, "{method} {shown}: {}", answer.text());
        assert_eq!(answer.json()["error"], "Invalid request");
        let details = answer.json()["details"].as_str().expect("details").to_owned();
        assert!(details.contains(expected), "{method} {shown}: {details}");
    }
    // Bytes that are no text.
    // The field is named once.
    let answer = client.call("POST", "/todos", &mine, r#"{"titel":"a"}"#);
    let details = answer.json()["details"].as_str().expect("details").to_owned();
    assert!(details.starts_with("unknown field `titel`, expected `title`"), "{details}");
    let answer = client.call("POST", "/todos?wait=applied&now=1", &mine, r#"{"title":"a"}"#);
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("`wait`"), "{}", answer.text());
    let mut raw = todos.connect();
    assert_eq!(raw.call("POST", "/todos", &mine, b"{\"title\":\"\xff\"}").status, 400);
    // At the limit it is taken.
    let most = format!(r#"{{"title":"{}","description":"{}"}}"#, long(500), long(10_000));
    assert_eq!(client.call("POST", "/todos?wait=applied", &mine, &most).status, 201);
    assert_eq!(titles(&todos.get("/todos")).len(), 2);
    assert_eq!(client.call("POST", "/todos?wait=soon", &mine, r#"{"title":"a"}"#).status, 400);
}

/// Purpose: every other error has the contract's shape, those of the protocol engine included.
#[test]
fn errors_have_one_shape() {
    let (todos, mut client, _directory) = service();
    let mine = as_user("me");
    let unknown = "/todos/0193b2f0-0000-7000-8000-000000000000";
    let cases = [
        (client.call("GET", unknown, "", ""), 404, "Todo not found"),
        (client.call("GET", "/todos/7", "", ""), 404, "Todo not found"),
        (client.call("PUT", unknown, &mine, r#"{"completed":true}"#), 404, "Todo not found"),
        (client.call("DELETE", unknown, &mine, ""), 404, "Todo not found"),
        (client.call("DELETE", "/todos/x", &mine, ""), 404, "Todo not found"),
        (client.call("GET", "/nothing", "", ""), 404, "Not found"),
        (client.call("PATCH", "/todos", &mine, "{}"), 405, "Method not allowed"),
        (client.call("POST", "/todos", "", r#"{"title":"a"}"#), 401, "Unauthorized"),
        (todos.ask("GET /todos HTTP/1.1\r\n\r\n"), 400, "Invalid request"),
        (
            todos.ask(request("POST", "/todos", &mine, "x".repeat((1 << 20) + 1))),
            413,
            "Request too large",
        ),
    ];
    for (answer, status, error) in cases {
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (status, Some("application/json"))
        );
        let json = answer.json();
        assert_eq!(json["error"], error, "{}", answer.text());
        let known = |key: &String| key == "error" || key == "details";
        assert!(json.as_object().expect("an object").keys().all(known), "{}", answer.text());
    }
}

/// Purpose: who may change a todo is its owner, whom the token names; others do not learn that it is there; and
/// what is refused is not queued.
#[test]
fn owners_and_tokens() {
    let (todos, mut client, _directory) = service();
    let (mine, other) = (as_user("me"), as_user("other"));
    let created = client.call("POST", "/todos?wait=applied", &mine, r#"{"title":"mine"}"#);
    let path = format!("/todos/{}", created.member("id"));
    for (method, body) in [("PUT", r#"{"title":"theirs"}"#), ("DELETE", "")] {
        assert_eq!(client.call(method, &path, &other, body).status, 404);
        assert_eq!(client.call(method, &path, "", body).status, 401);
    }
    let expired = highwater_todos::auth::issue(SECRET, "me", now() - 7200.0, 3600.0);
    let forged = highwater_todos::auth::issue("another secret", "me", now(), 3600.0);
    // {"alg":"none"} . {"sub":"me"} .
    let unsigned = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJtZSJ9.";
    for bad in [&*expired, &forged, unsigned, "x", "a.b.c"] {
        let answer = client.call("DELETE", &path, &bearer(bad), "");
        assert_eq!(
            (answer.status, answer.header("www-authenticate")),
            (401, Some("Bearer error=\"invalid_token\"")),
            "{bad}"
        );
        assert_eq!(answer.json()["error"], "Unauthorized");
    }
    assert_eq!(todos.get(&path).text(), created.text());
    assert_eq!(todos.metric(r#"todos_requests_total{answer="accepted"}"#), 1.0);
}

/// Purpose: a token that a worker has verified, and remembers, is refused from the second on in which it expires.
#[test]
fn a_remembered_token_expires() {
    let (_todos, mut client, _directory) = service();
    let short = bearer(&highwater_todos::auth::issue(SECRET, "me", now(), 2.0));
    let mut taken = 0;
    let refused = eventually_some("the expiry", || {
        let answer = client.call("POST", "/todos", &short, r#"{"title":"a"}"#);
        taken += u32::from(answer.status == 202);
        (answer.status == 401).then_some(answer)
    });
    assert!(taken > 0);
    assert!(refused.text().contains("expired"), "{}", refused.text());
}

/// Purpose: a write that comes in two pieces, cut at any byte, or in chunks, is the same write.
#[test]
fn split_anywhere() {
    let (todos, mut client, _directory) = service();
    let mine = as_user("me");
    let whole = request("POST", "/todos", &mine, r#"{"title":"cut","description":"ñ"}"#);
    for at in 1..whole.len() {
        client.send(&whole[..at]).expect("it reads");
        // The first piece is often read by itself; if not, this time the cut is not seen.
        std::thread::yield_now();
        client.send(&whole[at..]).expect("it reads");
        let answer = client.answer();
        assert_eq!(answer.status, 202, "cut at {at}: {}", answer.text());
    }
    client
        .send(format!(
            "POST /todos?wait=applied HTTP/1.1\r\nHost: test\r\n{mine}\
             Transfer-Encoding: chunked\r\n\r\n5\r\n{{\"tit\r\n10\r\nle\":\"in chunks\"}}\r\n0\r\n\r\n"
        ))
        .expect("it reads");
    let answer = client.answer();
    assert_eq!((answer.status, &answer.json()["title"]), (201, &"in chunks".into()));
    assert_eq!(titles(&todos.get("/todos")).len(), whole.len());
}

/// Purpose: pipelined requests are answered in order, writes that wait for the disk among them.
#[test]
fn pipelined() {
    let (_todos, mut client, _directory) = service();
    let mine = as_user("me");
    let mut requests = Vec::new();
    for number in 0..20 {
        let body = format!(r#"{{"title":"{number}"}}"#);
        requests.extend(request("POST", "/todos?wait=applied", &mine, body));
        requests.extend(get("/todos?limit=1"));
    }
    client.send(requests).expect("it reads");
    for number in 0..20 {
        let created = client.answer();
        assert_eq!((created.status, &created.json()["title"]), (201, &number.to_string().into()));
        let listed = client.answer();
        assert_eq!(listed.text(), format!("[{}]", created.text()));
    }
}

/// Purpose: health and readiness answer, `HEAD` is `GET` without the body, and the service counts what happened.
#[test]
fn health_and_metrics() {
    let (todos, mut client, _directory) = service();
    let mine = as_user("me");
    assert_eq!((todos.get("/health").status, todos.get("/health").text()), (200, "OK"));
    assert_eq!(todos.get("/ready").status, 200);
    client.call("POST", "/todos?wait=applied", &mine, r#"{"title":"a"}"#);
    let got = todos.get("/todos");
    let head = todos.ask("HEAD /todos HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!((head.status, head.header("content-length")), (200, got.header("content-length")));
    assert!(head.body.is_empty());
    assert_eq!(todos.metric(r#"todos_requests_total{answer="accepted"}"#), 1.0);
    assert_eq!(todos.metric(r#"todos_requests_total{answer="refused"}"#), 0.0);
    assert_eq!(todos.metric(r#"todos_commands_total{outcome="applied"}"#), 1.0);
    assert_eq!(todos.metric("http_store_size"), 1.0);
    eventually("an empty queue", || todos.metric("todos_queue_depth") == 0.0);
    assert_eq!((todos.metric("http_cache_misses"), todos.metric("http_cache_hits")), (1.0, 1.0));
    assert_eq!(todos.get_metrics("/readyz").status, 200);
}

/// Purpose: a setting of a part that the process does not have is refused, not ignored, with its value and the remedy: a user
/// who names a topic believes that writes go there. A variable may be meant for another process, and is ignored.
#[test]
fn settings_without_effect() {
    type Case<'a> = (&'a [&'a str], &'a [&'a str]);
    let postgres = "--database-url=postgres://u:hunter2@127.0.0.1:9/x";
    let kafka = "--kafka-brokers=127.0.0.1:9";
    let cases: [Case<'_>; 9] = [
        (&["--kafka-todo-topic=t"], &["--kafka-todo-topic \"t\"", "without --kafka-brokers"]),
        (&["--kafka-partitions=4"], &["--kafka-partitions \"4\"", "without --kafka-brokers"]),
        (&["--ack-timeout=1s"], &["--ack-timeout \"1s\"", "without --kafka-brokers"]),
        (&["--cache-ttl-sec=9"], &["--cache-ttl-sec \"9\"", "without --redis-url"]),
        (
            &[kafka, "--queue-bytes-max=64MiB"],
            &["--queue-bytes-max \"64MiB\"", "no embedded queue"],
        ),
        (&["worker", postgres, kafka, "--todos-max=5"], &["--todos-max \"5\"", "to the server"]),
        (&["worker", postgres, kafka, "--cache-ttl-sec=9"], &["--cache-ttl-sec \"9\""]),
        (&["seed", kafka], &["--kafka-brokers \"127.0.0.1:9\"", "into the store itself"]),
        (&["seed", "--redis-url=redis://:hunter2@a/0"], &["--redis-url", "into the store itself"]),
    ];
    for (args, words) in cases {
        let output = service::command(args).output().expect("the binary starts");
        let text = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        assert!(!text.contains("hunter2"), "a password: {text}");
        for word in words.iter().chain(&["has no effect", "leave"]) {
            assert!(text.contains(word), "{args:?}: no {word:?} in {text}");
        }
    }
    let data = tempfile::tempdir().expect("a folder");
    let path = data.path().to_str().expect("a plain name");
    let mut command =
        service::command(&["--listen=127.0.0.1:0", "--metrics=off", SECRET_FLAG, "--data", path]);
    Process::start(command.env("KAFKA_TODO_TOPIC", "t").env("CACHE_TTL_SEC", "9")).stop();
}

/// Purpose: an address that cannot be listened on ends the service with what to write instead.
#[test]
fn wrong_addresses() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let data = format!("--data={}", data.path().display());
    highwater_testkit::refuses_wrong_addresses(|address| {
        let listen = format!("--listen={address}");
        service::command(&[&format!("--jwt-secret={SECRET}"), "--metrics=off", &data, &listen])
    });
}

/// Purpose: what `/openapi.json` says is what the service does: for each operation with and without a token, with content
/// that it allows and with content that it does not, for a todo that is there and for one that is not.
#[test]
fn the_document_is_true() {
    let (todos, mut client, _directory) = service();
    let document = Document::new(todos.get("/openapi.json").text());
    assert_eq!(document.problems(), Vec::<String>::new());
    assert!(todos.get("/docs").text().starts_with("<!doctype html>"));
    let mine = as_user("me");
    let mut statuses = Vec::new();
    let mut check =
        |client: &mut Client, call: &Call, target: &str, fields: &str, content: &str| {
            let answer = client.call(&call.method, target, fields, content);
            let kind = answer.header("content-type");
            document.check(call, answer.status, kind, &answer.body).expect(target);
            statuses.push(answer.status);
        };
    let created = client.call("POST", "/todos?wait=applied", &mine, r#"{"title":"mine"}"#);
    let here = format!("/todos/{}", created.member("id"));
    let mut calls = document.calls();
    calls.sort_by_key(|call| call.method == "DELETE"); // Last, so that the todo is there for the others.
    assert_eq!(calls.len(), 7);
    for call in &calls {
        let target = if call.template == "/todos/{id}" { &here } else { &call.target };
        let content = match &*call.method {
            "PUT" => r#"{"completed":true}"#,
            _ => call.content.as_ref().map_or("", |(_, content)| content.as_str()),
        };
        check(&mut client, call, &call.target, &mine, content);
        check(&mut client, call, target, "", content);
        check(&mut client, call, target, &mine, "{");
        check(&mut client, call, target, &mine, r#"{"title":""}"#);
        check(&mut client, call, &format!("{target}?x=y"), &mine, content);
        check(&mut client, call, target, &mine, content);
        if call.is_secured {
            check(&mut client, call, &format!("{target}?wait=applied"), &mine, content);
        }
    }
    for status in [200, 201, 202, 400, 401, 404, 422] {
        assert!(statuses.contains(&status), "nothing was answered {status}");
    }
}

/// Purpose: so it is for whatever a client may send that the document allows, and much that it does not.
#[test]
fn the_document_is_true_for_values_that_nobody_thought_of() {
    let (todos, _client, _directory) = service();
    let authorization = as_user("me");
    schemathesis(
        &format!("http://{}/openapi.json", todos.address),
        &["--header", authorization.trim_end()],
    );
}

/// Purpose: a client that a tool makes of the document compiles, strictly, and does with the service what its types say.
#[test]
fn a_client_in_typescript() {
    let (todos, _client, _directory) = service();
    let authorization = as_user("me");
    let (_, token) = authorization.trim_end().split_once(": ").expect("a field");
    typescript(&format!("http://{}/openapi.json", todos.address), "todos.ts", &[token]);
}
