//! Requests to each of the small programs, which show that it does what its first line says.
#![forbid(unsafe_code)]
#![allow(dead_code, unreachable_pub)] // The programs are modules here: nobody calls their `main`.

#[path = "../examples/chat_room.rs"]
mod chat_room;
/// With tests of its own.
#[path = "../examples/contacts.rs"]
mod contacts;
#[path = "../examples/drain.rs"]
mod drain;
#[path = "../examples/errors.rs"]
mod errors;
#[path = "../examples/events.rs"]
mod events;
#[path = "../examples/hello.rs"]
mod hello;
#[path = "../examples/json_crud.rs"]
mod json_crud;
#[path = "../examples/limits_and_cache.rs"]
mod limits_and_cache;
#[path = "../examples/session.rs"]
mod session;
#[path = "../examples/static_site.rs"]
mod static_site;
/// With tests of its own.
#[path = "../examples/tested.rs"]
mod tested;
#[path = "../examples/tokens.rs"]
mod tokens;
#[path = "../examples/upload.rs"]
mod upload;
#[path = "../examples/validated.rs"]
mod validated;

use std::num::NonZero;
use std::sync::mpsc::Receiver;

use highwater::cookies::Key;
use highwater::testing::{Client, Response};
use highwater::{Method, Router, Running, Server, ServerConfig};
use serde_json::{Value, json};

/// A form, with the content type that it needs.
fn send_form(client: &Client, target: &str, form: &'static str) -> Response {
    let request = client.request(Method::POST, target);
    request.header("content-type", "application/x-www-form-urlencoded").body(form).send()
}

/// Serves on a real port.
fn start(router: Router) -> Running {
    let config = ServerConfig {
        listen: vec![([127, 0, 0, 1], 0).into()],
        metrics: None,
        workers: NonZero::new(1),
        ..ServerConfig::default()
    };
    Server::new(router).config(config).start().expect("it serves")
}

/// Purpose: who copies the program from the page gets the one that is compiled and tested here.
#[test]
fn the_page_of_five_minutes_has_the_tested_program() {
    let page = include_str!("../../../docs/first-api.md");
    let begins = page.find("```rust\n").expect("the page has a program") + "```rust\n".len();
    let length = page[begins..].find("```\n").expect("the program ends");
    let program = include_str!("../examples/contacts.rs");
    let (_, program) = program.split_once("#![forbid(unsafe_code)]\n\n").expect("it forbids it");
    assert_eq!(&page[begins..begins + length], program, "copy examples/contacts.rs to the page");
}

/// Purpose: the first program that somebody copies answers, over a real socket.
#[test]
fn the_smallest_program_says_hello() {
    let mut server = start(hello::router());
    let mut client = highwater_testkit::Client::connect(server.address());
    assert_eq!(client.get("/").text(), "Hello, World!");
    assert_eq!(client.get("/hello/you").text(), "Hello, you!");
    assert_eq!(client.get("/goodbye").status, 404);
    drop(client);
    server.stop().expect("it stops");
}

/// Purpose: what is created can be read, replaced and deleted; what is not there is 404, and wrong input names its field.
#[test]
fn todos_are_created_read_replaced_and_deleted() {
    let client = Client::new(json_crud::router());
    let created = client.post_json("/todos", &json!({ "title": "tea" }));
    assert_eq!((created.status.as_u16(), created.header("location")), (201, Some("/todos/1")));
    let done = json!({ "title": "tea", "done": true });
    assert_eq!(client.put_json("/todos/1", &done).status, 200);
    assert_eq!(client.get("/todos/1").json::<Value>(), done);
    assert_eq!(client.get("/todos").json::<Value>(), json!({ "1": done }));
    assert_eq!(client.delete("/todos/1").status, 204);
    for target in ["/todos/1", "/todos/2"] {
        assert_eq!(client.get(target).status, 404, "{target}");
        assert_eq!(client.put_json(target, &done).status, 404, "{target}");
        assert_eq!(client.delete(target).status, 404, "{target}");
    }
    let next = client.post_json("/todos", &json!({ "title": "milk" }));
    assert_eq!(next.header("location"), Some("/todos/2"), "no id is used again");
    let wrong = client.post_json("/todos", &json!({ "titel": "tea" }));
    assert_eq!(wrong.status, 422);
    assert!(wrong.text().contains("title"), "{}", wrong.text());
}

/// Purpose: all wrong fields are named at once, and the document knows the rules that refuse them.
#[test]
fn guests_are_checked_and_described() {
    let client = Client::new(validated::router());
    let ann = json!({ "name": "Ann", "email": "ann@example.com", "seats": 2 });
    let invited = client.post_json("/guests", &ann);
    assert_eq!((invited.status.as_u16(), invited.json::<Value>()), (201, ann));
    // The document counts characters, so the rule has to.
    for (letters, status) in [(50, 201), (51, 422)] {
        let name = "ä".repeat(letters);
        let guest = json!({ "name": name, "email": "ann@example.com", "seats": 2 });
        assert_eq!(client.post_json("/guests", &guest).status, status, "{letters} letters");
    }
    let wrong = client.post_json("/guests", &json!({ "name": "", "email": "ann", "seats": 9 }));
    assert_eq!(wrong.status, 422);
    let wrong: Value = wrong.json();
    let fields = wrong["error"]["details"].as_array().expect("they are listed").iter();
    let mut fields: Vec<&str> = fields.filter_map(|one| one["field"].as_str()).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["email", "name", "seats"]);
    let document: Value = client.get("/openapi.json").json();
    let seats = &document["components"]["schemas"]["Guest"]["properties"]["seats"];
    assert_eq!((&seats["maximum"], &seats["description"]), (&8.into(), &"How many come.".into()));
    assert_eq!(client.get("/docs").status, 200);
}

/// Purpose: an error of the application, of the router and of an extractor have one shape, and a cause stays inside.
#[test]
fn errors_have_one_shape() {
    let client = Client::new(errors::router());
    assert_eq!(client.get("/orders/1").text(), "a kettle");
    for (target, status, reason) in [
        ("/orders/2", 409, "sold_out"),
        ("/orders/3", 500, "internal"),
        ("/orders/4", 404, "not_found"),
        ("/orders/x", 400, "invalid_path"),
        ("/nowhere", 404, "not_found"),
    ] {
        let failed = client.get(target);
        assert_eq!(failed.status, status, "{target}");
        let failure: Value = failed.json();
        assert_eq!(failure["reason"], reason, "{target}");
        assert!(!failed.text().contains("disk"), "{target}");
    }
}

/// Purpose: who has signed in is known until they sign out, and a cookie that somebody else has made is nobody's.
#[test]
fn a_session_lasts_until_its_end() {
    let client = Client::new(session::router(Key::from(&[7; 64])));
    assert_eq!(client.get("/me").status, 401);
    assert_eq!(send_form(&client, "/sign-in", "user=ann&password=guess").status, 401);
    let entered = send_form(&client, "/sign-in", "user=ann&password=open+sesame");
    assert_eq!((entered.status.as_u16(), entered.header("location")), (303, Some("/me")));
    let cookie = entered.header("set-cookie").expect("it sets one");
    assert!(cookie.contains("HttpOnly") && !cookie.contains("ann"), "{cookie}");
    let cookie = cookie.split(';').next().expect("it has a value").to_owned();
    client.set_header("cookie", &cookie);
    assert_eq!(client.get("/me").text(), "ann");
    let left = client.post("/sign-out", "");
    assert!(left.header("set-cookie").is_some_and(|cookie| cookie.contains("Max-Age=0")));

    let other = Client::new(session::router(Key::from(&[8; 64])));
    other.set_header("cookie", &cookie);
    assert_eq!(other.get("/me").status, 401);
}

/// Purpose: the token that a password buys opens the other routes; none, and one of another secret, do not.
#[test]
fn tokens_open_routes() {
    let secret = "of at least 32 bytes, from a file";
    let client = Client::new(tokens::router(secret));
    assert_eq!(client.get("/me").status, 401);
    assert_eq!(send_form(&client, "/token", "user=ann&password=guess").status, 401);
    let token: Value = send_form(&client, "/token", "user=ann&password=open+sesame").json();
    assert_eq!(token["expires_in"], 900);
    let token = token["access_token"].as_str().expect("it is text");
    client.set_header("authorization", &format!("Bearer {token}"));
    assert_eq!(client.get("/me").text(), "ann");
    let other = Client::new(tokens::router("another secret of 32 bytes or more"));
    other.set_header("authorization", &format!("Bearer {token}"));
    assert_eq!(other.get("/me").status, 401);
}

/// A form of two files, the second of which has so many bytes.
fn form_of(bytes: usize) -> Vec<u8> {
    let part = |name: &str| {
        format!("--b\r\nContent-Disposition: form-data; name=\"a\"; filename=\"{name}\"\r\n\r\n")
    };
    let head = [part("../../etc/passwd"), "root\r\n".to_owned(), part("b.png")].concat();
    [head.as_bytes(), &vec![0; bytes], b"\r\n--b--\r\n"].concat()
}

/// Purpose: files are saved under names of the server's, which a restart does not repeat; one byte too many is 413, a form without
/// a file 422, and neither leaves a file.
#[test]
fn pictures_are_saved_within_limits() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = || std::fs::read_dir(folder.path()).expect("a folder").count();
    for start in 1..=2 {
        let client = Client::new(upload::router(folder.path().to_owned()));
        client.set_header("content-type", "multipart/form-data; boundary=b");
        let saved = client.post("/pictures", form_of(1 << 20));
        assert_eq!(saved.status, 201);
        let saved_as: Vec<_> =
            saved.text().lines().filter_map(|line| line.split_once(": ")).collect();
        assert_eq!((saved_as.len(), saved_as[0].1, saved_as[1].1), (2, "4 bytes", "1048576 bytes"));
        assert_eq!(std::fs::read(folder.path().join(saved_as[0].0)).expect("it is there"), b"root");
        assert_eq!(client.post("/pictures", form_of((1 << 20) + 1)).status, 413);
        assert_eq!(client.post("/pictures", "--b--\r\n").status, 422);
        assert_eq!(files(), 2 * start);
    }
}

/// Purpose: files, routes and the page of addresses that only a script knows stand side by side.
#[test]
fn a_site_is_served_beside_an_interface() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("index.html"), "<p>home").expect("a file");
    std::fs::write(folder.path().join("a.js"), "let a;").expect("a file");
    std::fs::write(folder.path().join("a.js.gz"), "zipped").expect("a file");
    let client = Client::new(static_site::router(folder.path().to_owned()));
    assert_eq!(client.get("/api/version").text(), "1");
    let script = client.get("/a.js");
    assert_eq!(script.text(), "let a;");
    assert_eq!(script.header("x-content-type-options"), Some("nosniff"));
    let page = client.request(Method::GET, "/account/settings").header("accept", "text/html");
    assert_eq!(page.send().text(), "<p>home");
    let zipped = client.request(Method::GET, "/a.js").header("accept-encoding", "gzip").send();
    assert_eq!((zipped.text(), zipped.header("content-encoding")), ("zipped", Some("gzip")));
    assert_eq!(client.get("/../Cargo.toml").status, 404);
}

/// Purpose: what one says all hear, and a message beyond the limit ends only its own connection.
#[test]
fn a_room_hears_each_message() {
    let client = Client::new(chat_room::router());
    let (mut ann, mut bob) = (client.websocket("/room"), client.websocket("/room"));
    ann.send("low tide");
    for member in [&mut ann, &mut bob] {
        assert_eq!(member.recv().expect("it is open").as_text(), Some("low tide"));
    }
    ann.send("x".repeat(4097));
    assert!(ann.recv().is_none(), "1009");
    bob.send("still here");
    assert_eq!(bob.recv().expect("it is open").as_text(), Some("still here"));
}

/// Purpose: events come once a second, and go on behind the one that a client names.
#[test]
fn events_go_on_where_a_client_left() {
    let client = Client::new(events::router());
    let data = |events: highwater::testing::Events<'_>| -> Vec<String> {
        events.take(3).map(|event| event.data).collect()
    };
    assert_eq!(data(client.events("/ticks")), ["0", "1", "2"]);
    assert_eq!(data(client.events_after("/ticks", "6")), ["7", "8", "9"]);
}

/// Purpose: a report is computed once for all, and who asks too often is refused without a report.
#[test]
fn a_report_is_kept_and_limited() {
    let client = Client::new(limits_and_cache::router());
    for number in 0..10 {
        assert_eq!(client.get("/report").text(), "report 1", "{number}");
    }
    let refused = client.get("/report");
    assert_eq!(refused.status, 429);
    assert!(refused.header("retry-after").is_some());
    assert_eq!(client.get("/").text(), "not limited");
}

/// The letters that were accepted, once the application is gone.
fn all(letters: &Receiver<String>) -> Vec<String> {
    letters.iter().collect()
}

/// Purpose: whatever was answered 202 is there after the drain, the outbox is bounded, and a long poll does not hold the
/// drain up.
#[test]
fn a_drain_keeps_what_was_accepted() {
    let (router, letters) = drain::router();
    let mut server = start(router);
    let mut client = highwater_testkit::Client::connect(server.address());
    for number in 0..drain::LETTERS_MAX {
        assert_eq!(client.call("POST", "/letters", "", number.to_string()).status, 202);
    }
    // In one piece, so that the poll has begun when the letter is refused.
    let letter = highwater_testkit::request("POST", "/letters", "", "one too many");
    client.send([letter, highwater_testkit::get("/wait")].concat()).expect("it is open");
    assert_eq!(client.answer().status, 503);
    let poll = std::thread::spawn(move || client.answer());
    server.stop().expect("it stops");
    drop(server);
    assert_eq!(poll.join().expect("it is answered").text(), "come back");
    let expected: Vec<String> = (0..drain::LETTERS_MAX).map(|number| number.to_string()).collect();
    assert_eq!(all(&letters), expected);
}
