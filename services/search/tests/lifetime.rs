//! From start to end and over again: what survives, and what clients do not notice.

mod service;
mod stub;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use highwater_search::provider::generate;
use highwater_testkit::{Answer, Client, PATIENCE, Process, get, lasting_ports};
use service::{command, provider, search, wait_for_poll};
use stub::stub;

const TARGETS: [&str; 3] =
    ["/search", "/search?starts_at=2025-01-01", "/search?starts_at=2024-06-01&ends_at=2024-06-30"];

/// The answers to each target, without what differs from second to second.
fn answers(service: &Process) -> Vec<Answer> {
    let mut answers: Vec<Answer> = TARGETS.iter().map(|target| service.get(target)).collect();
    for answer in &mut answers {
        answer.headers.retain(|(name, _)| name != "date");
    }
    answers
}

fn feed(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).expect("writable");
    path.to_str().expect("a plain name").to_owned()
}

/// Purpose: what was served once is served by every later process, whether the one before it was
/// asked to stop or killed, without a provider, and from the first answer on.
#[test]
fn events_survive_restarts_and_kill_9() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let provider = provider(0, &["--events=500"]);
    let mut service = search(provider.address, directory.path());
    wait_for_poll(&service, "ok");
    let served = answers(&service);
    assert!(served[0].body.len() > 50_000, "500 events");
    let gone = provider.address;
    drop(provider);
    for signal in ["KILL", "TERM", "KILL", "INT"] {
        service.signal(signal);
        let status = service.wait();
        assert_eq!(status.success(), signal != "KILL", "{signal}: {status}");
        service = search(gone, directory.path());
        assert_eq!(answers(&service), served, "after SIG{signal}");
    }
}

/// Purpose: an event that goes offline, or is left out, stays as it was last seen online; one that
/// changes online changes.
#[test]
fn offline_events_stay() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let plan = |id: u32, title: &str, mode: &str| {
        format!(
            r#"<base_plan base_plan_id="{id}" sell_mode="{mode}" title="{title}"><plan plan_id="1" plan_start_date="2024-06-0{id}T20:00:00" plan_end_date="2024-06-0{id}T21:00:00"/></base_plan>"#
        )
    };
    let list =
        |plans: &[String]| format!("<planList><output>{}</output></planList>", plans.concat());
    let (online, offline) = ("online", "offline");
    let before =
        list(&[plan(1, "stays", online), plan(2, "leaves", online), plan(3, "old", online)]);
    let after = list(&[plan(1, "renamed while offline", offline), plan(3, "new", online)]);
    let before = feed(directory.path(), "before.xml", &before);
    let after = feed(directory.path(), "after.xml", &after);

    let port = lasting_ports(1);
    let first = provider(port, &["--file", &before]);
    let service = search(first.address, &directory.path().join("data"));
    wait_for_poll(&service, "ok");
    drop(first);
    let _second = provider(port, &["--file", &after]);
    service.wait_for(|line| line.contains(" outcome=ok ") && line.contains(" changed=1 "));
    let body = service.get("/search").body;
    let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
    let events = body["data"]["events"].as_array().expect("a list");
    let titles: Vec<_> = events.iter().map(|event| event["title"].as_str()).collect();
    assert_eq!(titles, [Some("stays"), Some("leaves"), Some("new")]);
}

/// Purpose: a start that waits for a store that is away says so, and ends at the first signal, with success.
#[test]
fn a_start_that_waits_can_be_ended() {
    let mut service = Process::start_unready(&mut command(&[
        "--listen=127.0.0.1:0",
        "--metrics=off",
        "--provider-url=http://127.0.0.1:1/",
        "--store=postgres://highwater@127.0.0.1:1/away",
    ]));
    service.wait_for(|line| line.contains("the start waits"));
    let asked = Instant::now();
    service.signal("INT");
    assert!(service.wait().success());
    assert!(asked.elapsed() < Duration::from_secs(5), "it waited on");
}

/// Purpose: answers that were begun when the service is told to stop are finished, whole, however
/// large, and then it ends with success.
#[test]
fn sigterm_finishes_large_answers() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let provider = provider(0, &["--events=10000"]);
    let mut service = search(provider.address, directory.path());
    wait_for_poll(&service, "ok");
    let whole = service.get("/search");
    assert!(whole.body.len() > 1 << 20, "larger than one send");
    let mut clients: Vec<Client> = (0..8).map(|_| service.connect()).collect();
    for client in &mut clients {
        client.send(get("/search")).expect("it reads");
    }
    // Once the last of them has its first byte, all have been read.
    for client in &mut clients {
        assert!(client.read_more().expect("an answer begins"));
    }
    service.signal("TERM");
    service.wait_for(|line| line.contains(" stopping "));
    for client in &mut clients {
        assert_eq!(client.answer().body, whole.body);
    }
    assert!(service.wait().success());
}

/// Purpose: a stop under load cuts no answer short: each request gets a whole answer, or its
/// connection ends cleanly before the first byte of one, so that the client knows to ask elsewhere.
#[test]
fn sigterm_under_load_cuts_no_answer() {
    const CLIENTS: usize = 16;
    const ANSWERS_BEFORE: usize = 50;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let provider = provider(0, &["--events=500"]);
    let mut service = search(provider.address, directory.path());
    wait_for_poll(&service, "ok");
    let expected = answers(&service);
    let address = service.address;
    let under_way = Arc::new(AtomicUsize::new(0));
    let (ready, everyone) = mpsc::channel();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (ready, expected, under_way) = (ready.clone(), expected.clone(), under_way.clone());
            thread::spawn(move || {
                let mut answered = 0;
                loop {
                    // Refused from the moment it stops listening: nothing was lost.
                    let Ok(mut client) = Client::try_connect(address) else { return answered };
                    loop {
                        let kind = (number + answered) % TARGETS.len();
                        let sent = client.send(get(TARGETS[kind]));
                        match sent.and_then(|()| client.try_answer()) {
                            Ok(Some(answer)) => assert_eq!(answer.body, expected[kind].body),
                            Ok(None) => break,
                            Err(error) => {
                                assert_ne!(error.kind(), io::ErrorKind::InvalidData, "{error}");
                                break;
                            }
                        }
                        answered += 1;
                        if answered == ANSWERS_BEFORE {
                            under_way.fetch_add(1, Ordering::SeqCst);
                            let _ = ready.send(());
                        }
                    }
                }
            })
        })
        .collect();
    for _ in 0..CLIENTS {
        everyone.recv_timeout(PATIENCE).expect("every client gets answers");
    }
    service.signal("TERM");
    assert!(service.wait().success());
    for client in clients {
        assert!(client.join().expect("no answer was cut off") >= ANSWERS_BEFORE);
    }
}

/// Purpose: a service whose poll hangs in a silent provider stops when told, not when the poll does.
#[test]
fn stops_in_the_middle_of_a_poll() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (begun, polled) = mpsc::channel();
    let (done, wait) = mpsc::channel::<()>();
    let (url, _heads) = stub(vec![Box::new(move |_| {
        let _ = begun.send(());
        let _ = wait.recv();
    })]);
    let data = directory.path().to_str().expect("a plain name");
    let mut service = Process::start(&mut command(&[
        "--listen=127.0.0.1:0",
        "--metrics=off",
        "--provider-url",
        &url,
        "--data",
        data,
    ]));
    polled.recv_timeout(PATIENCE).expect("the poll begins");
    service.signal("TERM");
    assert!(service.wait().success());
    // The provider was silent all along.
    drop(done);
}

/// Purpose: the demonstration needs nothing but itself, says where it is, and has events by then.
#[test]
fn demonstration() {
    use std::io::{BufRead as _, BufReader};
    use std::process::Stdio;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut command = command(&["--demo", "--listen=127.0.0.1:0", "--metrics=127.0.0.1:0"]);
    command.current_dir(directory.path()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the binary starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let urls: Vec<String> = lines
        .take_while(|line| !line.contains("Ctrl-C"))
        .filter_map(|line| Some(line.split_once("http://")?.1.to_owned()))
        .collect();
    let [search, docs, health, metrics, dashboard, feed] = &urls[..] else { panic!("{urls:?}") };
    for url in [search, docs, health, metrics, dashboard, feed] {
        let (address, path) = url.split_once('/').expect("a path");
        let answer = Client::connect(address.parse().expect("an address")).get(&format!("/{path}"));
        assert_eq!(answer.status, 200, "{url}");
    }
    let address = search.split_once('/').expect("a path").0.parse().expect("an address");
    let all = Client::connect(address).get("/search");
    let all: serde_json::Value = serde_json::from_slice(&all.body).expect("JSON");
    assert_eq!(all["data"]["events"].as_array().map(Vec::len), Some(10_000));
    assert!(directory.path().join("highwater-search-demo").is_dir());
    child.kill().expect("it runs");
    child.wait().expect("it was killed");
}

/// Purpose: the feed of the demonstration is the documented one.
#[test]
fn generated_feed_is_the_same_everywhere() {
    let provider = provider(0, &["--events=40", "--seed=7"]);
    assert_eq!(provider.get("/any/path").text(), generate(40, 7));
}
