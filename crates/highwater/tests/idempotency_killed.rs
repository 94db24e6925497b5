//! Idempotency keys on a disk: what was acknowledged once is never applied twice, though the process is killed.
#![forbid(unsafe_code)]

mod answers;
mod served;

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use highwater::journal::{Directory, ErrorKind, Options};
use highwater::layers::{Idempotency, idempotency};
use highwater::server::{LogFormat, TransportChoice};
use highwater::{Error, Router, State};
use highwater_testkit::{Answer, Client, Process, program, request};

const HOUR: Duration = Duration::from_secs(3600);

/// How often the process is killed.
const ROUNDS: usize = 4;

/// How many clients send at the same time, and how many answers they have when it is killed.
const CLIENTS: usize = 4;
const ANSWERS: usize = 40;

/// The folder of the child process.
const FOLDER: &str = "HW_IDEMPOTENCY_FOLDER";

/// What outlives the process: one line for each time that a request was applied.
struct Applied(File);

fn router(folder: &Path, once: impl Fn(Idempotency) -> Idempotency) -> Router {
    let keys = Directory::open(folder.join("keys")).expect("nobody else has it");
    let layer = once(idempotency(HOUR).journal(keys, Options::default()));
    let file = OpenOptions::new().create(true).append(true).open(folder.join("applied"));
    let applied = Arc::new(Applied(file.expect("a file")));
    async fn apply(State(applied): State<Arc<Applied>>, content: String) -> Result<String, Error> {
        (&applied.0).write_all(format!("{content}\n").as_bytes()).map_err(Error::internal)?;
        if content == "hang" {
            std::future::pending::<()>().await;
        }
        Ok(format!("applied {content}"))
    }
    Router::new().state(applied).layer(layer).post("/", apply)
}

/// How often each content was applied.
fn applied(folder: &Path) -> HashMap<String, usize> {
    let text = std::fs::read_to_string(folder.join("applied")).expect("a file");
    text.lines().fold(HashMap::new(), |mut counts, line| {
        *counts.entry(line.to_owned()).or_default() += 1;
        counts
    })
}

fn post(key: &str, content: &str) -> Vec<u8> {
    request("POST", "/", &format!("Idempotency-Key: {key}\r\n"), content)
}

fn is_replayed(answer: &Answer) -> bool {
    answer.header("idempotent-replayed") == Some("true")
}

/// Not a test: the server that another test starts in a process of its own, and kills.
#[test]
#[ignore = "another test runs it"]
fn child() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    highwater::logging::install(LogFormat::Text);
    let running = served::start(router(Path::new(&folder), |once| once), TransportChoice::Auto);
    eprintln!("child serving address={}", running.address());
    loop {
        std::thread::park();
    }
}

fn start(folder: &Path) -> Process {
    let me = std::env::current_exe().expect("it runs");
    let mut command = program(me.to_str().expect("a plain name"));
    command.args(["--exact", "child", "--ignored", "--nocapture"]).env(FOLDER, folder);
    Process::start_until(&mut command, "child serving")
}

/// What a client has sent, and whether it was acknowledged.
type Sent = Mutex<HashMap<String, bool>>;

/// Sends requests with new keys until the connection breaks.
fn send(process: &Process, (round, client): (usize, usize), sent: &Sent, answers: &AtomicUsize) {
    let mut connection: Client = process.connect();
    for number in 0.. {
        let key = format!("{round}-{client}-{number}");
        lock(sent).insert(key.clone(), false);
        match connection.try_ask(post(&key, &key)) {
            Ok(answer) => {
                assert_eq!((answer.status, answer.text()), (200, &*format!("applied {key}")));
                lock(sent).insert(key, true);
                answers.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => return,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Purpose: whenever the process is killed, a key that was acknowledged gets its answer from the next one, and no request that is
/// repeated with its key is applied a second time.
#[test]
fn killed_and_repeated() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let sent = Sent::default();
    for round in 0..ROUNDS {
        let mut process = start(folder);
        let answers = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let (served, sent, answers) = (&process, &sent, &answers);
            for client in 0..CLIENTS {
                scope.spawn(move || send(served, (round, client), sent, answers));
            }
            highwater_testkit::eventually("answers", || answers.load(Ordering::Relaxed) >= ANSWERS);
            served.signal("KILL");
        });
        process.kill();
    }
    let process = start(folder);
    let mut client: Client = process.connect();
    let before = applied(folder);
    for (key, is_acknowledged) in &*lock(&sent) {
        let answer = client.ask(post(key, key));
        match answer.status {
            200 => {
                assert_eq!(answer.text(), format!("applied {key}"));
                // New again only if the process ended before its handler began.
                assert_eq!(is_replayed(&answer), before.contains_key(key), "{key}");
            }
            409 => assert!(answer.text().contains("outcome_unknown"), "{}", answer.text()),
            status => panic!("{key}: {status}"),
        }
        assert!(!is_acknowledged || is_replayed(&answer), "{key} was acknowledged");
    }
    let twice: Vec<_> = applied(folder).into_iter().filter(|(_, count)| *count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

/// Purpose: a handler that was under way when the process was killed has applied its request or not: its key is refused, and its content is
/// compared, too; unless the application says that it may run again.
#[test]
fn killed_under_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let mut process = start(folder);
    let mut client: Client = process.connect();
    client.send(post("k", "hang")).expect("it is open");
    highwater_testkit::eventually("the handler", || applied(folder).contains_key("hang"));
    process.kill();

    let mut process = start(folder);
    let mut client: Client = process.connect();
    for (content, status) in [("hang", 409), ("other", 422), ("hang", 409)] {
        assert_eq!(client.ask(post("k", content)).status, status, "{content}");
    }
    assert_eq!(client.ask(post("new", "other")).status, 200);
    assert_eq!(applied(folder)["hang"], 1);
    process.kill();

    let router = router(folder, Idempotency::retry_interrupted);
    let running = served::start(router, TransportChoice::Auto);
    let mut client = Client::connect(running.address());
    let answer = client.ask(post("k", "other"));
    assert_eq!((answer.status, is_replayed(&answer)), (200, false));
    assert!(is_replayed(&client.ask(post("new", "other"))));
}

/// A process that another test starts at this moment has the lock, too, until it runs its program.
fn open_after_spawns(path: &Path) -> Directory {
    for _ in 0..100 {
        match Directory::open(path) {
            Err(error) if error.kind() == ErrorKind::InUse => {
                std::thread::sleep(Duration::from_millis(20));
            }
            opened => return opened.expect("nobody else has it"),
        }
    }
    Directory::open(path).expect("nobody else has it")
}

/// Purpose: a journal that does not hold keys is reported when the application is built, and so are limits that cannot work together.
#[test]
fn other_journals() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || open_after_spawns(&folder.path().join("keys"));
    write_foreign(folder.path().join("keys")).expect("it is empty");
    let build = |once: Idempotency| {
        let built = Router::new().layer(once).post("/", || "").build();
        built.expect_err("it cannot work").to_string()
    };
    let problem = build(idempotency(HOUR).journal(open(), Options::default()));
    assert!(problem.contains("the record 0 is not one of idempotency keys"), "{problem}");

    let mut options = Options::default();
    options.retention.bytes = Some(1 << 20);
    let problem = build(idempotency(HOUR).journal(open(), options));
    assert!(problem.contains("retention.bytes"), "{problem}");

    let once = idempotency(HOUR).journal(open(), Options::default()).answer_bytes_max(4 << 20);
    let problem = build(once);
    assert!(problem.contains("batch_bytes_max"), "{problem}");
}

/// A journal of something else.
fn write_foreign(path: PathBuf) -> io::Result<()> {
    use highwater::journal::{Batch, Journal, Record};

    let journal =
        Journal::open(Directory::open(path).map_err(io::Error::other)?, Options::default());
    let journal = journal.map_err(io::Error::other)?;
    let mut batch = Batch::new();
    batch.push(Record { partition: 0, time_us: u64::MAX, id: 1, body: b"an event" });
    let producer = journal.producer().map_err(io::Error::other)?;
    let receipt = producer.append(batch).map_err(|refused| io::Error::other(refused.error))?;
    receipt.wait().map_err(io::Error::other)?;
    drop(producer);
    journal.close().map_err(io::Error::other)
}

/// Purpose: if the journal cannot record its position, keys are kept all the same, and the log says so with the remedy.
#[test]
fn a_mark_that_cannot_be_written_is_logged() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = folder.path().join("keys");
    std::fs::create_dir(&keys).expect("the folder is empty");
    std::os::unix::fs::symlink("/dev/full", keys.join("written.pos")).expect("it is free");
    let process = start(folder.path());
    let mut client: Client = process.connect();
    for is_second in [false, true] {
        let answer = client.ask(post("k", "once"));
        assert_eq!((answer.status, is_replayed(&answer)), (200, is_second));
    }
    process.wait_for(|line| line.contains("written.pos") && line.contains("give the disk room"));
}
