//! A real broker, from `scripts/services/kafka.sh`; what a topic holds, by a client that shares nothing with the code
//! under test but librdkafka.

use std::future::Future;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::pin::pin;
use std::process::{Child, Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{Headers as _, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;

/// Nothing here takes as long, however busy the machine is.
pub(crate) const LONG: Duration = Duration::from_secs(60);

fn script() -> Command {
    Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/services/kafka.sh"))
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The address of the broker that the tests share. Without one they say so and are skipped, which fails where the
/// machine has what it takes.
pub(crate) fn shared() -> Option<&'static str> {
    static URL: OnceLock<Result<String, String>> = OnceLock::new();
    let url = URL.get_or_init(|| {
        let output = script().arg("start").output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(text_of(&output));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    });
    match url {
        Ok(url) => Some(url),
        Err(reason) => {
            highwater_skip::skip("kafka", reason);
            None
        }
    }
}

/// A broker of a test's own, which it may kill. It ends with the thread that made it.
pub(crate) struct Own {
    port: u16,
    config: String,
    /// The port of the broker whose cluster it joins.
    joins: Option<u16>,
    child: Option<Child>,
}

impl Own {
    /// Starts a broker with these further lines in its configuration, and waits until it serves.
    pub(crate) fn start(config: &str) -> Option<Own> {
        let mut own = Own::new(config)?;
        own.start_again();
        // Somebody else may have taken its ports meanwhile: then it ends.
        for _ in 0..3 {
            if own.serves() {
                return Some(own);
            }
            own = Own::new(config)?;
            own.start_again();
        }
        eventually("a broker of the test's own serves", || own.serves());
        Some(own)
    }

    /// The same for a broker that our own clients cannot talk to: when it serves is not waited for.
    pub(crate) fn start_unseen(config: &str) -> Option<Own> {
        let mut own = Own::new(config)?;
        own.start_again();
        Some(own)
    }

    /// A further broker of its cluster, which has to run.
    pub(crate) fn joined(&self) -> Own {
        let mut own = Own::new_in(&self.config, Some(self.port)).expect("there is one already");
        own.restart();
        own
    }

    fn new(config: &str) -> Option<Own> {
        Own::new_in(config, None)
    }

    fn new_in(config: &str, joins: Option<u16>) -> Option<Own> {
        // The installation, and what to skip for, are found out by the shared one.
        shared()?;
        let own = Own { port: free_ports(), config: config.to_owned(), joins, child: None };
        let cleaned = own.script().arg("clean").output().expect("the script runs");
        assert!(cleaned.status.success(), "{}", text_of(&cleaned));
        Some(own)
    }

    pub(crate) fn url(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn script(&self) -> Command {
        let mut command = script();
        command.env("HW_KAFKA_PORT", self.port.to_string()).env("HW_KAFKA_CONFIG", &self.config);
        if let Some(port) = self.joins {
            command.env("HW_KAFKA_JOIN", port.to_string());
        }
        command
    }

    /// Starts it, on the data it had, and does not wait.
    pub(crate) fn start_again(&mut self) {
        assert!(self.child.is_none(), "it runs");
        let script = self.script();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(script.get_program()).arg("run");
        command.envs(script.get_envs().filter_map(|(name, value)| Some((name, value?))));
        self.child = Some(command.spawn().expect("setpriv starts"));
    }

    /// Starts it, on the data it had, and waits until it serves.
    pub(crate) fn restart(&mut self) {
        self.start_again();
        assert!(self.serves(), "the broker came back on its ports");
    }

    /// Waits until it serves; or until it has ended, which is no.
    fn serves(&mut self) -> bool {
        let url = self.url();
        let address: SocketAddr = url.parse().expect("it is one");
        let is_up = || {
            let connect = TcpStream::connect_timeout(&address, Duration::from_secs(1));
            connect.is_ok() && topics_known(&url).is_some()
        };
        let child = self.child.as_mut().expect("it was started");
        let mut has_ended = false;
        eventually("the broker serves", || {
            has_ended = child.try_wait().expect("it is a child").is_some();
            has_ended || is_up()
        });
        if has_ended {
            self.child = None;
        }
        !has_ended
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it runs");
        child.wait().expect("it is a child");
    }

    /// It hangs until [`Own::go_on`]: its sockets stay, and the kernel takes what is sent to them.
    pub(crate) fn hang(&self) {
        self.signal("STOP");
    }

    pub(crate) fn go_on(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let id = self.child.as_ref().expect("it runs").id().to_string();
        let status = Command::new("kill").args(["-s", name, &id]).status().expect("kill starts");
        assert!(status.success(), "{status}");
    }

    /// A clean stop.
    pub(crate) fn stop(&mut self) {
        let stopped = self.script().arg("stop").output().expect("the script runs");
        assert!(stopped.status.success(), "{}", text_of(&stopped));
        let mut child = self.child.take().expect("it runs");
        child.wait().expect("it is a child");
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = self.script().arg("clean").output();
    }
}

/// A port that is free together with the next one, below those that the kernel gives away by itself.
fn free_ports() -> u16 {
    let begin = std::process::id() as u64 * 37 + nanoseconds();
    for step in 0..2000 {
        let port = 20_000 + ((begin + step * 2) % 8_000) as u16;
        let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if is_free(port) && is_free(port + 1) {
            return port;
        }
    }
    panic!("no two ports are free between 20000 and 28000");
}

fn nanoseconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set");
    u64::try_from(now.as_nanos() % (1 << 62)).expect("it fits")
}

/// A topic's name that nobody else has.
pub(crate) fn unique(name: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{name}-{}-{next}-{:x}", std::process::id(), nanoseconds())
}

/// Waits until it is so, for a generous while.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {LONG:?}: {what}");
        sleep(Duration::from_millis(20));
    }
}

fn client(url: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", url).set("group.id", "looks");
    config
}

pub(crate) fn admin(url: &str) -> AdminClient<DefaultClientContext> {
    client(url).create().expect("a client")
}

/// Waits for a future of the administration's client, which a thread of its own resolves.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let deadline = Instant::now() + LONG;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
        assert!(Instant::now() < deadline, "the broker does not answer");
        sleep(Duration::from_millis(5));
    }
}

/// Creates a topic with these settings.
pub(crate) fn create(url: &str, topic: &str, partitions: i32, settings: &[(&str, &str)]) {
    create_copied(url, topic, partitions, 1, settings);
}

/// Creates a topic with so many copies of each partition.
pub(crate) fn create_copied(
    url: &str,
    topic: &str,
    partitions: i32,
    copies: i32,
    settings: &[(&str, &str)],
) {
    let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(copies));
    for (name, value) in settings {
        new = new.set(name, value);
    }
    let created = wait(admin(url).create_topics([&new], &AdminOptions::new())).expect("created");
    assert!(created.iter().all(Result::is_ok), "{created:?}");
    eventually("the topic is known", || {
        topics_known(url).is_some_and(|all| all.iter().any(|one| one == topic))
    });
}

/// The names of all topics, if the broker answers.
pub(crate) fn topics_known(url: &str) -> Option<Vec<String>> {
    let consumer: BaseConsumer = client(url).create().expect("a client");
    let metadata = consumer.fetch_metadata(None, Duration::from_secs(2)).ok()?;
    let is_there = !metadata.brokers().is_empty();
    is_there.then(|| metadata.topics().iter().map(|topic| topic.name().to_owned()).collect())
}

/// A message, as a consumer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) partition: i32,
    pub(crate) id: String,
    pub(crate) time_ms: i64,
    pub(crate) value: Vec<u8>,
}

/// Everything that is in a topic now, by partition and offset.
pub(crate) fn consume(url: &str, topic: &str) -> Vec<Seen> {
    let consumer: BaseConsumer =
        client(url).set("enable.auto.commit", "false").create().expect("a client");
    let metadata = consumer.fetch_metadata(Some(topic), LONG).expect("the broker answers");
    let mut assigned = TopicPartitionList::new();
    let mut left = 0;
    let partitions = metadata.topics()[0].partitions().iter().map(|one| one.id());
    let mut all = Vec::new();
    for partition in partitions {
        // A broker that has just come back may not know its partitions yet, and a client that has asked too early may wait
        // for long until it asks again.
        let mut marks = None;
        eventually("it has marks", || {
            let asks: BaseConsumer = client(url).create().expect("a client");
            marks = asks.fetch_watermarks(topic, partition, Duration::from_secs(5)).ok();
            marks.is_some()
        });
        let (low, high) = marks.expect("it has");
        if high > low {
            assigned
                .add_partition_offset(topic, partition, Offset::Offset(low))
                .expect("an offset");
            left += 1;
        }
        all.push((partition, high));
    }
    consumer.assign(&assigned).expect("assigned");
    let mut seen = Vec::new();
    let deadline = Instant::now() + LONG;
    while left > 0 {
        assert!(
            Instant::now() < deadline,
            "{left} partitions of {topic} are not read to their ends"
        );
        let Some(message) = consumer.poll(Duration::from_millis(100)) else { continue };
        let code = message.as_ref().err().and_then(KafkaError::rdkafka_error_code);
        if code == Some(RDKafkaErrorCode::AllBrokersDown) {
            continue; // It has been restarted, and the client connects again.
        }
        let message = message.expect("no error");
        let headers = message.headers().expect("it has headers");
        assert_eq!(headers.count(), 1, "one header");
        let header = headers.get(0);
        assert_eq!(header.key, "id");
        let id = String::from_utf8(header.value.expect("a value").to_vec()).expect("digits");
        assert_eq!(message.key(), None, "no key");
        let value = message.payload().expect("an empty value is no missing value").to_vec();
        let time_ms = message.timestamp().to_millis().expect("a time");
        let high = all
            .iter()
            .find(|(partition, _)| *partition == message.partition())
            .expect("assigned")
            .1;
        left -= usize::from(message.offset() + 1 == high);
        seen.push((message.offset(), Seen { partition: message.partition(), id, time_ms, value }));
    }
    seen.sort_by_key(|(offset, one)| (one.partition, *offset));
    seen.into_iter().map(|(_, one)| one).collect()
}

/// The values of one partition, as text.
pub(crate) fn texts(seen: &[Seen], partition: i32) -> Vec<String> {
    let mine = seen.iter().filter(|one| one.partition == partition);
    mine.map(|one| String::from_utf8_lossy(&one.value).into_owned()).collect()
}

/// A directory that goes when this is dropped.
pub(crate) struct Place(std::path::PathBuf);

impl Place {
    pub(crate) fn new(name: &str) -> Place {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(unique(name));
        std::fs::create_dir_all(&path).expect("cargo gave a directory to write to");
        Place(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
