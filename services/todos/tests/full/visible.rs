//! How soon every instance shows a write, at every limit, under load, while Redis is killed, hangs and comes back.
//!
//! A prober writes one todo after the other through nginx: it creates it, changes it and deletes it. For each write a
//! client of its own for each instance and limit asks that instance directly, again and again, until the list shows it.
//! Two delays are taken, both up to the moment at which the whole answer was read:
//!
//! - from *applied*: the time of the commit that Postgres keeps for the transaction which changed the row
//!   (`pg_xact_commit_timestamp` of its `xmin`; of its tombstone's if it was deleted). That is before the commit is durable,
//!   so nobody could have shown it earlier.
//! - from the 202.
//!
//! What was shown must stay shown: each list is asked for once more when all have shown it.
//!
//! `make todos-visible` runs it, for about a minute and a half; VISIBLE_OUT is where the record goes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, sleep};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio_postgres::NoTls;

use highwater_testkit::{Answer, PATIENCE, Process, lasting_ports};

use crate::record;
use crate::servers::repository;
use crate::stage::{Client, Stage};

/// What every instance is to keep, from applied on.
const WITHIN_MS: f64 = 100.0;

/// The todos that are there before.
const TODOS: usize = 1000;
/// Those that the load changes, again and again.
const CHANGED: usize = 100;
/// The load, in requests per second through nginx.
const WRITES_PER_S: u32 = 200;
const READS_PER_S: u32 = 2000;
const READERS: u32 = 4;

/// The limits that are watched, and how long a client waits before it asks again.
const LIMITS: [(&str, &str, Duration); 4] = [
    ("1", "/todos?limit=1", Duration::from_millis(1)),
    ("10", "/todos?limit=10", Duration::from_millis(1)),
    ("100", "/todos?limit=100", Duration::from_millis(2)),
    ("all", "/todos", Duration::from_millis(4)),
];

/// What is the matter with Redis when a write is applied.
const PHASES: [&str; 5] = ["up", "killed", "started again", "hangs", "goes on"];

/// What a list is to show.
#[derive(Clone)]
enum Wanted {
    Shown(String),
    Gone(String),
}

impl Wanted {
    fn is_in(&self, list: &str) -> bool {
        match self {
            Wanted::Shown(part) => list.contains(part.as_str()),
            Wanted::Gone(part) => !list.contains(part.as_str()),
        }
    }
}

/// A request to a watcher. It answers when it saw the todo, or whether it still does.
enum Look {
    Until(Wanted),
    Again(Wanted),
}

struct Watcher {
    requests: Sender<Look>,
    seen: Receiver<i64>,
    instance: usize,
    limit: &'static str,
}

/// One write at one instance and limit.
struct Delay {
    phase: usize,
    instance: usize,
    limit: &'static str,
    from_applied_us: i64,
    from_202_us: i64,
}

fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
    i64::try_from(since.as_micros()).expect("it is before 290 000")
}

/// Purpose: a reader of any instance, with any limit, sees a write within 100 ms of when it was applied, also when Redis
/// is killed, hangs and comes back, and never sees it vanish again.
#[test]
#[ignore = "a measurement of a minute and a half: make todos-visible"]
fn within_100_ms() {
    let mut stage = Stage::start().expect("Postgres, Redis and Kafka can be had");
    let instances = [stage.instance(), stage.instance()];
    let _worker = stage.worker();
    let nginx = Nginx::start(&instances);
    seed(&stage);
    let watched: Vec<_> = instances.iter().map(|instance| stage.client(instance)).collect();
    let (address, postgres) = (nginx.address(), stage.postgres.url());
    let client = || stage.client_of(address);
    let (mut prober, mut writer) = (client(), client());
    let changed = make_changed(&mut writer);
    let readers: Vec<_> = (0..READERS).map(|_| client()).collect();
    let load = Load::default();
    let changed = &changed;
    let mut delays = Vec::new();
    let began = Instant::now();
    thread::scope(|scope| {
        let load = &load;
        let _stop = Stop(&load.stop);
        scope.spawn(move || load.write(writer, changed));
        readers.into_iter().for_each(|reader| drop(scope.spawn(move || load.read(reader))));
        let mut watchers = Vec::new();
        for (instance, client) in watched.iter().enumerate() {
            for (limit, target, pause) in LIMITS {
                let (requests, looks) = channel();
                let (sender, seen) = channel();
                let client = client.again();
                scope.spawn(move || watch(client, target, pause, &looks, &sender));
                watchers.push(Watcher { requests, seen, instance, limit });
            }
        }
        let redis = &mut stage.redis;
        scope.spawn(move || disturb(redis, load));
        let mut commits = Commits::connect(&postgres);
        for number in 0.. {
            if load.is_over.load(Ordering::Relaxed) {
                break;
            }
            probe(number, &mut prober, &watchers, load, &mut commits, &mut delays);
        }
    });
    report(&delays, &load, began.elapsed());
}

/// Ends the load also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Everything that is the matter with Redis, one after the other.
fn disturb(redis: &mut crate::servers::Redis, load: &Load) {
    let phase = |phase: usize, seconds: u64| {
        load.phase.store(phase, Ordering::Relaxed);
        sleep(Duration::from_secs(seconds));
    };
    phase(0, 20);
    for _ in 0..5 {
        redis.server.end("KILL");
        phase(1, 3);
        redis.restart();
        phase(2, 4);
    }
    for _ in 0..5 {
        redis.server.signal("STOP");
        phase(3, 2);
        redis.server.signal("CONT");
        phase(4, 3);
    }
    load.is_over.store(true, Ordering::Relaxed);
}

/// Creates, changes and deletes one todo, and notes how long each took to be seen by every watcher.
fn probe(
    number: u64,
    client: &mut Client,
    watchers: &[Watcher],
    load: &Load,
    commits: &mut Commits,
    delays: &mut Vec<Delay>,
) {
    let (made, changed) = (format!("probe {number} made"), format!("probe {number} changed"));
    let created = client.create(&made);
    let (id, at) = (created.member("id"), now_us());
    let mut see = |answer: Answer, at: i64, wanted: &Wanted, of: &str| {
        assert_eq!(answer.status, 202, "Postgres and Kafka are there: {answer:?}");
        let phase = load.phase.load(Ordering::Relaxed);
        for watcher in watchers {
            watcher.requests.send(Look::Until(wanted.clone())).expect("it watches");
        }
        let seen: Vec<i64> = watchers.iter().map(Watcher::answer).collect();
        let applied = commits.time_us(of, &id);
        for (watcher, seen) in watchers.iter().zip(seen) {
            let Watcher { instance, limit, .. } = *watcher;
            let (from_applied_us, from_202_us) = (seen - applied, seen - at);
            delays.push(Delay { phase, instance, limit, from_applied_us, from_202_us });
            watcher.requests.send(Look::Again(wanted.clone())).expect("it watches");
        }
        let still = watchers.iter().filter(|watcher| watcher.answer() == 1).count();
        assert_eq!(still, watchers.len(), "what was shown is not shown any more");
    };
    see(created, at, &Wanted::Shown(made), "todos");
    let target = format!("/todos/{id}");
    let answer = client.ask("PUT", &target, &format!(r#"{{"title":"{changed}"}}"#));
    see(answer, now_us(), &Wanted::Shown(changed), "todos");
    let answer = client.ask("DELETE", &target, "");
    see(answer, now_us(), &Wanted::Gone(id.clone()), "todo_tombstones");
}

impl Watcher {
    fn answer(&self) -> i64 {
        let seen = self.seen.recv_timeout(PATIENCE);
        seen.unwrap_or_else(|_| panic!("instance {} at limit {}", self.instance, self.limit))
    }
}

/// Asks for one list of one instance, on request.
fn watch(
    mut client: Client,
    target: &str,
    pause: Duration,
    looks: &Receiver<Look>,
    seen: &Sender<i64>,
) {
    let mut list = || {
        let answer = client.get(target);
        assert_eq!(answer.status, 200, "reads go on: {answer:?}");
        String::from_utf8(answer.body).expect("JSON is text")
    };
    for look in looks {
        let answer = match look {
            Look::Again(wanted) => i64::from(wanted.is_in(&list())),
            Look::Until(wanted) => {
                // The prober does not wait for longer either.
                let until = Instant::now() + PATIENCE;
                while !wanted.is_in(&list()) && Instant::now() < until {
                    sleep(pause);
                }
                if Instant::now() < until { now_us() } else { continue }
            }
        };
        // The prober may have failed.
        let _ = seen.send(answer);
    }
}

/// What runs beside the prober.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    is_over: AtomicBool,
    phase: AtomicUsize,
    writes: AtomicU64,
    reads: AtomicU64,
}

impl Load {
    /// Calls `step` so often a second, until it is over.
    fn paced(&self, per_s: u32, mut step: impl FnMut()) {
        let interval = Duration::from_secs(1) / per_s;
        let mut next = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            step();
            // Who is late does not catch up in a burst.
            next = (next + interval).max(Instant::now() - interval);
            sleep(next.saturating_duration_since(Instant::now()));
        }
    }

    fn write(&self, mut client: Client, ids: &[String]) {
        let mut number = 0;
        self.paced(WRITES_PER_S, || {
            let target = format!("/todos/{}", ids[number % ids.len()]);
            let answer = client.ask("PUT", &target, &format!(r#"{{"title":"step {number}"}}"#));
            assert_eq!(answer.status, 202, "{answer:?}");
            number += 1;
            self.writes.fetch_add(1, Ordering::Relaxed);
        });
    }

    fn read(&self, mut client: Client) {
        // Whole lists are rare, and large.
        let targets = [1, 10, 1, 100].map(|limit| format!("/todos?limit={limit}"));
        let all = "/todos".to_owned();
        let mut targets = targets.iter().cycle().take(24).chain([&all]).cycle();
        self.paced(READS_PER_S / READERS, || {
            let answer = client.get(targets.next().expect("it goes round"));
            assert_eq!(answer.status, 200, "{answer:?}");
            self.reads.fetch_add(1, Ordering::Relaxed);
        });
    }
}

/// When Postgres committed what.
struct Commits {
    runtime: tokio::runtime::Runtime,
    client: tokio_postgres::Client,
}

impl Commits {
    fn connect(url: &str) -> Commits {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let client = runtime.block_on(async {
            let (client, connection) =
                tokio_postgres::connect(url, NoTls).await.expect("connected");
            tokio::spawn(connection);
            client
        });
        Commits { runtime, client }
    }

    fn time_us(&mut self, table: &str, id: &str) -> i64 {
        let sql = format!(
            "SELECT (extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000000)::bigint \
             FROM {table} WHERE id = '{id}'"
        );
        let row = self.runtime.block_on(self.client.query_one(&sql, &[]));
        row.expect("it is applied, for it is shown").get(0)
    }
}

/// nginx as it is deployed, in front of both instances.
struct Nginx(u16);

impl Nginx {
    fn start(instances: &[Process; 2]) -> Nginx {
        let nginx = Nginx(lasting_ports(1));
        let upstreams = instances.each_ref().map(|instance| instance.address.to_string());
        nginx.script(&["start", &upstreams[0], &upstreams[1]]);
        nginx
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.0))
    }

    fn script(&self, arguments: &[&str]) {
        let mut script = Command::new(repository("scripts/services/nginx.sh"));
        let output = script.args(arguments).env("HW_NGINX_PORT", self.0.to_string()).output();
        let output = output.expect("there is bash");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.script(&["stop"]);
    }
}

fn seed(stage: &Stage) {
    let count = TODOS.to_string();
    let seeded = stage.command().args(["seed", "--count", &count]).output().expect("it runs");
    assert!(seeded.status.success(), "{}", String::from_utf8_lossy(&seeded.stderr));
}

/// The todos that the load changes. They are older than any that is probed: what is new is first in every list.
fn make_changed(client: &mut Client) -> Vec<String> {
    let mut made = |number: usize| {
        let body = format!(r#"{{"title":"step {number}","description":""}}"#);
        let answer = client.ask("POST", "/todos?wait=applied", &body);
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.member("id")
    };
    (0..CHANGED).map(&mut made).collect()
}

/// The rank of a share, of sorted numbers, in milliseconds.
fn rank_ms(sorted_us: &[i64], share: f64) -> f64 {
    let index = (sorted_us.len() as f64 * share).ceil() as usize;
    sorted_us[index.clamp(1, sorted_us.len()) - 1] as f64 / 1000.0
}

fn summary(mut us: Vec<i64>) -> Value {
    us.sort_unstable();
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| rank_ms(&us, share));
    json!({"writes": us.len(), "p50_ms": p50, "p99_ms": p99, "max_ms": max})
}

fn report(delays: &[Delay], load: &Load, took: Duration) {
    let mut groups: BTreeMap<(usize, usize, usize), Vec<&Delay>> = BTreeMap::new();
    for delay in delays {
        let limit = LIMITS.iter().position(|(limit, ..)| *limit == delay.limit);
        let key = (delay.phase, delay.instance, limit.expect("one of them"));
        groups.entry(key).or_default().push(delay);
    }
    let of = |load: &AtomicU64| load.load(Ordering::Relaxed) as f64 / took.as_secs_f64();
    let (reads, writes) = (of(&load.reads), of(&load.writes));
    eprintln!("load through nginx: {reads:.0} reads/s, {writes:.0} writes/s beside the prober's");
    eprintln!(
        "{:14} instance limit  writes | from applied, ms: p50 p99 max | from the 202",
        "Redis"
    );
    let mut rows = Vec::new();
    for ((phase, instance, limit), delays) in &groups {
        let applied = summary(delays.iter().map(|delay| delay.from_applied_us).collect());
        let from_202 = summary(delays.iter().map(|delay| delay.from_202_us).collect());
        let number = |of: &Value, name: &str| of[name].as_f64().expect("a number");
        let three = |of: &Value| {
            ["p50_ms", "p99_ms", "max_ms"].map(|name| format!("{:6.1}", number(of, name))).join(" ")
        };
        let (phase, limit) = (PHASES[*phase], LIMITS[*limit].0);
        eprintln!(
            "{phase:14} {instance:8} {limit:>5} {:7} | {} | {}",
            delays.len(),
            three(&applied),
            three(&from_202)
        );
        rows.push(json!({"redis": phase, "instance": instance, "limit": limit,
            "from_applied": applied, "from_202": from_202}));
    }
    let late = delays.iter().filter(|delay| delay.from_applied_us as f64 > WITHIN_MS * 1000.0);
    let late = late.count();
    eprintln!(
        "{late} of {} were seen later than {WITHIN_MS} ms after they were applied",
        delays.len()
    );
    let mut environment = record::environment();
    environment["at_us"] = now_us().into();
    let record = json!({
        "name": "todos-visible",
        "environment": environment,
        "load": {"reads_per_s": reads, "writes_per_s": writes, "todos": TODOS, "instances": 2, "workers": 1},
        "within_ms": WITHIN_MS, "late": late, "seen": delays.len(), "rows": rows,
    });
    record::write("VISIBLE_OUT", &record);
    assert!(late * 100 <= delays.len(), "more than one in a hundred is late");
}
