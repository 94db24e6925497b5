//! Lists through a real Redis: several instances in one process, each with a model and a near cache of its own.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use highwater_testkit::eventually;
use highwater_todos::feed::{Feed, News};
use highwater_todos::health::Part;
use highwater_todos::model::Model;
use highwater_todos::near::{Forwarded, Link, Near};
use highwater_todos::reads::{Limit, Read, Reads as _};
use highwater_todos::store::{Change, Changes, Loaded, Revision, StoreError};
use highwater_todos::todo::Todo;

use crate::id;
use crate::servers::Redis;

const KEEP: Duration = Duration::from_secs(300);

/// An instance: at version n it has n todos.
struct Instance {
    model: Arc<Model>,
    link: Arc<Link>,
    near: Near,
}

impl Instance {
    /// One that has reached Redis.
    fn start(redis: &Redis) -> Instance {
        let model = Arc::new(Model::new(Loaded::default()));
        let link = Arc::new(Link::new(&redis.url()).expect("a URL"));
        let near = Near::new(Arc::clone(&model), Arc::clone(&link), KEEP);
        eventually("a connection to Redis", || link.part().down().is_none());
        Instance { model, link, near }
    }

    /// The model gets the next version, Redis does not.
    fn apply_to_model(&self, version: u64) {
        let todos = vec![Change::Is(todo(version))];
        self.model.apply(Changes {
            revision: at(version),
            count: version,
            todos,
            commands: Vec::new(),
        });
    }

    /// The model gets it, and Redis too.
    fn apply(&self, version: u64) {
        self.link.advance(at(version));
        self.apply_to_model(version);
    }

    fn list(&self, limit: i64) -> Bytes {
        match self.near.list(Limit::of(limit)) {
            Read::Ready(list) => list,
            Read::Later(list) => {
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                runtime.expect("a runtime").block_on(list).expect("a list")
            }
        }
    }

    /// Whether this process has the list in memory.
    fn is_near(&self, limit: i64) -> bool {
        matches!(self.near.list(Limit::of(limit)), Read::Ready(_))
    }
}

/// A version of the first timeline.
fn at(version: u64) -> Revision {
    Revision { timeline: 0, version }
}

fn todo(version: u64) -> Todo {
    let time = i64::try_from(version).expect("a small number");
    Todo {
        id: id(version),
        title: format!("v{version}."),
        description: String::new(),
        completed: false,
        user_id: "u".into(),
        created_us: time,
        updated_us: time,
    }
}

/// The version that a list shows: that of its newest todo.
fn version(list: &[u8]) -> u64 {
    let text = std::str::from_utf8(list).expect("JSON is text");
    let newest = text
        .split("\"title\":\"v")
        .nth(1)
        .map_or("0", |rest| rest.split('.').next().expect("it has one"));
    newest.parse().expect("a number")
}

/// The bytes of a key, if it is there.
fn key(redis: &Redis, key: &str) -> Option<Vec<u8>> {
    redis.ask(&["GET", key])
}

/// Purpose: every limit has a key with exactly the bytes that clients get, for a bounded time; other instances get them
/// from there; a write changes the lists of every limit in every instance, and leaves no key of the old version.
#[test]
fn a_write_changes_every_limit_everywhere() {
    let Some(redis) = Redis::start() else { return };
    let (a, b) = (Instance::start(&redis), Instance::start(&redis));
    let limits = [0, 1, 2, 3, 7, 10_000, -1];
    for number in 1..=5 {
        [&a, &b].iter().for_each(|instance| instance.apply(number));
        for limit in limits {
            for instance in [&a, &b] {
                eventually(&format!("version {number} at limit {limit}"), || {
                    version(&instance.list(limit)) == number
                });
                eventually("the list is near", || instance.is_near(limit));
            }
            assert_eq!(a.list(limit), b.list(limit));
            let name = if (1..10_000).contains(&limit) {
                format!("todos:limit:{limit}")
            } else {
                "todos:all".into()
            };
            eventually("the key is there", || {
                key(&redis, &name).is_some_and(|bytes| bytes == a.list(limit))
            });
            let left: i64 = redis.ask(&["PTTL", &name]);
            assert!((1..=300_000).contains(&left), "{left}");
        }
    }
    a.link.advance(at(6));
    eventually("no list of the old version", || {
        let keys: Vec<String> = redis.ask(&["KEYS", "todos:*"]);
        keys.iter().all(|key| key == "todos:state" || key == "todos:version")
    });
}

/// Purpose: the hot path does not ask Redis.
#[test]
fn hits_ask_nobody() {
    let Some(redis) = Redis::start() else { return };
    let instance = Instance::start(&redis);
    instance.apply(1);
    eventually("the list is near", || version(&instance.list(1)) == 1 && instance.is_near(1));
    let calls = || -> String {
        let stats: String = redis.ask(&["INFO", "commandstats"]);
        stats.lines().filter(|line| line.starts_with("cmdstat_get:")).collect()
    };
    let before = calls();
    (0..1000).for_each(|_| assert_eq!(version(&instance.list(1)), 1));
    assert_eq!(calls(), before, "reading a list again is no business of Redis");
}

/// Purpose: an instance that is behind fills in nothing, and a list that is behind is not used: neither can put back what Redis,
/// or the instance, knows to be old.
#[test]
fn nobody_goes_back() {
    let Some(redis) = Redis::start() else { return };
    let (late, early) = (Instance::start(&redis), Instance::start(&redis));
    [&late, &early].iter().for_each(|instance| instance.apply(1));
    eventually("version 1 is shared", || {
        version(&late.list(1)) == 1 && key(&redis, "todos:limit:1").is_some()
    });
    // Redis knows of version 2; one instance does not yet.
    early.link.advance(at(2));
    eventually("Redis knows", || key(&redis, "todos:limit:1").is_none());
    for _ in 0..20 {
        assert_eq!(version(&late.list(1)), 1, "it has nothing newer");
        assert_eq!(key(&redis, "todos:limit:1"), None, "an older list was filled in");
    }
    early.apply_to_model(2);
    eventually("version 2 is shared", || {
        version(&early.list(1)) == 2 && key(&redis, "todos:limit:1").is_some()
    });
    assert_eq!(version(&late.list(1)), 2, "what is in Redis is newer than what it has");
    // The instance knows of version 3; Redis does not yet.
    early.apply_to_model(3);
    assert_eq!(version(&early.list(1)), 3);
    assert_eq!(version(&early.list(2)), 3);
}

/// Purpose: a Redis that was emptied, restarted, or lost the state but not the lists, serves nothing old, and hears of
/// the version again.
#[test]
fn a_redis_that_forgets() {
    let Some(mut redis) = Redis::start() else { return };
    let instance = Instance::start(&redis);
    for number in 1..=6 {
        instance.apply(number);
        eventually("it is shared", || {
            version(&instance.list(1)) == number && key(&redis, "todos:limit:1").is_some()
        });
        match number % 3 {
            0 => {
                let () = redis.ask(&["FLUSHALL"]);
            }
            1 => {
                // As if the state had been evicted; the list that stays behind is not to be believed.
                let () = redis.ask(&["SET", "todos:limit:1", "old"]);
                let () = redis.ask(&["DEL", "todos:state", "todos:version"]);
            }
            _ => {
                redis.server.end("TERM");
                assert_eq!(version(&instance.list(1)), number, "Redis is down");
                redis.restart();
            }
        }
        eventually("it is shared again", || {
            let list = instance.list(1);
            assert_eq!(version(&list), number, "{list:?}");
            key(&redis, "todos:limit:1").is_some_and(|bytes| bytes == list)
        });
    }
}

/// Purpose: a Redis that hangs delays nobody, and is reported as down; when it continues, so does everything.
#[test]
fn a_redis_that_hangs() {
    let Some(redis) = Redis::start() else { return };
    let instance = Instance::start(&redis);
    instance.apply(1);
    eventually("version 1", || version(&instance.list(1)) == 1);
    redis.server.signal("STOP");
    instance.apply(2);
    eventually("version 2, from memory", || version(&instance.list(1)) == 2);
    eventually("Redis is reported as down", || instance.link.part().down().is_some());
    assert_eq!(version(&instance.list(3)), 2);
    redis.server.signal("CONT");
    eventually("it is back", || instance.link.part().down().is_none());
    eventually("version 2 is shared", || {
        version(&instance.list(1)) == 2 && key(&redis, "todos:limit:1").is_some()
    });
}

/// Purpose: a Redis without memory, or one that runs no scripts, is named with what to do about it; lists come from memory
/// meanwhile, and nothing old is shown.
#[test]
fn a_redis_that_refuses() {
    let Some(redis) = Redis::start() else { return };
    let instance = Instance::start(&redis);
    instance.apply(1);
    eventually("version 1 is shared", || {
        version(&instance.list(1)) == 1 && key(&redis, "todos:limit:1").is_some()
    });
    let () = redis.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    let () = redis.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    // It takes no list, but forgets those that are old: that frees memory.
    instance.apply(2);
    eventually("no list of the old version", || key(&redis, "todos:limit:1").is_none());
    for limit in 0..4 {
        assert_eq!(version(&instance.list(limit)), 2);
    }
    let () = redis.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    let () = redis.ask(&["ACL", "SETUSER", "default", "-evalsha", "-eval"]);
    instance.apply(3);
    eventually("the remedy is named", || {
        instance.link.part().down().is_some_and(|why| why.contains("EVALSHA"))
    });
    assert_eq!(version(&instance.list(1)), 3);
    let () = redis.ask(&["ACL", "SETUSER", "default", "+evalsha", "+eval"]);
    eventually("version 3 is shared", || {
        version(&instance.list(1)) == 3 && key(&redis, "todos:limit:1").is_some()
    });
}

/// A feed whose news the test decides.
struct Scripted(Vec<News>, Part);

impl Feed for Scripted {
    fn next(&mut self, _wait: Duration) -> Result<News, StoreError> {
        Ok(if self.0.is_empty() { News::Nothing } else { self.0.remove(0) })
    }

    fn was_seen(&mut self, _revision: Revision) {}

    fn part(&self) -> Part {
        self.1.clone()
    }
}

/// Purpose: when a store is restored to an older version, lists of the time before are not served any more.
#[test]
fn a_store_that_was_restored() {
    let Some(redis) = Redis::start() else { return };
    let instance = Instance::start(&redis);
    let loaded = |timeline: u64, version: u64| {
        let todos = (1..=version).map(todo).collect();
        News::Everything(Loaded { revision: Revision { timeline, version }, count: version, todos })
    };
    let news = vec![loaded(0, 9), loaded(1, 2)];
    let mut feed = Forwarded::new(Scripted(news, Part::new("store")), Arc::clone(&instance.link));
    for expected in [9, 2] {
        let Ok(News::Everything(loaded)) = feed.next(Duration::ZERO) else {
            panic!("the test has it panic")
        };
        instance.model.replace(loaded);
        eventually("what the store has", || version(&instance.list(1)) == expected);
        eventually("it is shared", || {
            key(&redis, "todos:limit:1").is_some_and(|bytes| version(&bytes) == expected)
        });
    }
}

/// Purpose: a restore reaches every cache although Redis hung, and lost its connections, at that moment; and an
/// instance that has not noticed it, and repeats its old version with each heartbeat, does not undo it.
#[test]
fn a_restore_while_redis_hangs() {
    let Some(redis) = Redis::start() else { return };
    let (instance, late) = (Instance::start(&redis), Instance::start(&redis));
    for number in 1..=4 {
        [&instance, &late].iter().for_each(|instance| instance.apply(number));
    }
    eventually("it is shared", || {
        let list = instance.list(0);
        version(&list) == 4 && key(&redis, "todos:all").is_some_and(|bytes| bytes == list)
    });
    redis.server.signal("STOP");
    eventually("Redis is reported as down", || instance.link.part().down().is_some());
    let restored = Revision { timeline: 1, version: 2 };
    let todos = vec![todo(1), todo(2)];
    let news = vec![News::Everything(Loaded { revision: restored, count: 2, todos })];
    let mut feed = Forwarded::new(Scripted(news, Part::new("store")), Arc::clone(&instance.link));
    let Ok(News::Everything(loaded)) = feed.next(Duration::ZERO) else {
        panic!("the test gave it everything")
    };
    instance.model.replace(loaded);
    assert_eq!(version(&instance.list(0)), 2, "the model has what the store has");
    redis.server.signal("CONT");
    eventually("both are connected", || {
        [&instance, &late].iter().all(|instance| instance.link.part().down().is_none())
    });
    eventually("what the store has is shared", || {
        let list = instance.list(0);
        assert_eq!(version(&list), 2, "a list of the lost time");
        key(&redis, "todos:all").is_some_and(|bytes| bytes == list)
    });
    // Several heartbeats of the one that does not know.
    let heartbeats: usize = 4;
    let evaluations = || -> u64 {
        let stats: String = redis.ask(&["INFO", "commandstats"]);
        let calls = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:"));
        let calls = calls.and_then(|line| line.split(['=', ',']).nth(1)).unwrap_or("0");
        calls.parse().expect("a number")
    };
    let before = evaluations();
    eventually("heartbeats", || evaluations() > before + 4 * heartbeats as u64);
    assert_eq!(version(&instance.list(0)), 2);
    assert_eq!(version(&instance.list(3)), 2);
    // A write after the restore changes every list, although its version was known before.
    instance.link.advance(Revision { timeline: 1, version: 3 });
    eventually("no list of the version before", || key(&redis, "todos:all").is_none());
}

/// Purpose: whatever the order of writes, reads, losses and restarts: no instance shows less than it has heard of when it
/// was asked, nor anything that was never written; and in the end all show the last version at every limit.
#[test]
fn under_load_nothing_is_stale() {
    let Some(redis) = Redis::start() else { return };
    let instances = [Instance::start(&redis), Instance::start(&redis), Instance::start(&redis)];
    let until = Instant::now() + Duration::from_secs(4);
    let last = std::sync::atomic::AtomicU64::new(0);
    use std::sync::atomic::Ordering::SeqCst;
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1.. {
                if Instant::now() >= until {
                    break;
                }
                last.store(number, SeqCst);
                // Each instance learns of it at a different time; some announce it to Redis before, some after.
                instances[fastrand::usize(..3)].link.advance(at(number));
                for instance in &instances {
                    thread::sleep(Duration::from_micros(fastrand::u64(0..3000)));
                    instance.apply_to_model(number);
                }
                if number % 50 == 0 {
                    let () = redis.ask(&["FLUSHALL"]);
                }
            }
        });
        for instance in &instances {
            scope.spawn(move || {
                while Instant::now() < until {
                    let known = instance.model.snapshot().revision().version;
                    let shown = version(&instance.list(fastrand::i64(0..4)));
                    assert!(shown >= known, "it knew of {known} and showed {shown}");
                }
            });
        }
    });
    let last = last.load(SeqCst);
    for instance in &instances {
        instance.link.advance(at(last));
        for limit in 0..4 {
            eventually("the last version", || version(&instance.list(limit)) == last);
        }
    }
}
