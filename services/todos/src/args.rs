//! The settings of the Todo service itself; those of the server around it are the framework's.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use highwater::logging::LogFormat;
use highwater::server::args::{Idle, address_or_off, duration, number, size};

use crate::http::Bounds;
use crate::near;
use crate::queue::journal;
use crate::store::postgres;

/// The service's parts. The same for the server, `worker` and `seed`.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Engines")]
pub struct EngineArgs {
    /// The directory of the embedded store and queue
    #[arg(
        long,
        env = "HIGHWATER_DATA",
        value_name = "DIR",
        default_value = "highwater-todos-data"
    )]
    pub data: PathBuf,

    /// Keep todos in this Postgres instead of a file
    #[arg(long, env = "DATABASE_URL", value_name = "URL", hide_env_values = true, value_parser = postgres_url)]
    pub database_url: Option<String>,

    /// Share lists through this Redis
    #[arg(long, env = "REDIS_URL", value_name = "URL", hide_env_values = true, value_parser = redis_url)]
    pub redis_url: Option<String>,

    /// Queue writes in Kafka instead of a file
    #[arg(long, env = "KAFKA_BROKERS", value_name = "HOST:PORT,…")]
    pub kafka_brokers: Option<String>,

    /// The topic of the queue in Kafka
    #[arg(long, env = "KAFKA_TODO_TOPIC", value_name = "TOPIC", default_value = "todo-commands")]
    pub kafka_todo_topic: String,

    /// How many partitions the topic gets if it is missing
    #[arg(long, env = "KAFKA_PARTITIONS", value_name = "N", default_value = "32", value_parser = number(1..=10_000_i32))]
    pub kafka_partitions: i32,

    /// How long Kafka may take to acknowledge a write; then it is refused: 503
    #[arg(long, env = "HIGHWATER_ACK_TIMEOUT", value_name = "TIME", default_value = "5s",
          value_parser = duration(Duration::from_millis(100)..=Duration::from_secs(300)))]
    pub ack_timeout: Duration,

    /// Longest lifetime of lists in Redis, in seconds; they are never stale during it
    #[arg(long, env = "CACHE_TTL_SEC", value_name = "N", default_value = "300", value_parser = number(1..=86_400_u32))]
    pub cache_ttl_sec: u32,

    /// Maximum size of the embedded queue on the disk; beyond it writes are refused: 503
    #[arg(long, env = "HIGHWATER_QUEUE_BYTES_MAX", value_name = "SIZE", default_value = "1GiB",
          value_parser = size(journal::BYTES_MIN..=1 << 40))]
    pub queue_bytes_max: u64,

    /// Memory for todos that are read: the newest are kept, the others are read from the store [default: 64MiB with
    /// --database-url, else all are kept]
    #[arg(long, env = "HIGHWATER_CACHE_BYTES", value_name = "SIZE", value_parser = size(1 << 20..=1 << 40))]
    pub cache_bytes: Option<u64>,

    /// Maximum number of todos; beyond it creations are refused: 503
    #[arg(long, env = "HIGHWATER_TODOS_MAX", value_name = "N", default_value = "1000000",
          value_parser = number(1..=100_000_000_u32))]
    pub todos_max: u32,
}

impl EngineArgs {
    /// The memory bound for todos, if there is one.
    pub fn cache_bytes(&self) -> Option<usize> {
        let default = self.database_url.as_ref().map(|_| CACHE_BYTES);
        self.cache_bytes.or(default).map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// Whether everything is in this process.
    pub fn is_embedded(&self) -> bool {
        self.database_url.is_none() && self.redis_url.is_none() && self.kafka_brokers.is_none()
    }

    /// The settings of parts that this process does not have: of Kafka, Redis or the embedded queue.
    fn idle(&self) -> Vec<Idle> {
        let mut idle = Vec::new();
        if self.kafka_brokers.is_none() {
            let kafka = "without --kafka-brokers nothing goes to Kafka; give them, or leave it out";
            idle.extend(OF_KAFKA.map(|setting| Idle::new(setting, kafka)));
        } else {
            let queue = "with --kafka-brokers there is no embedded queue; leave it out";
            idle.push(Idle::new("queue-bytes-max", queue));
        }
        if self.redis_url.is_none() {
            let redis = "without --redis-url no list goes to Redis; give it, or leave this out";
            idle.push(Idle::new("cache-ttl-sec", redis));
        }
        idle
    }
}

/// The default of `--cache-bytes` with Postgres: with the process itself and its queues well below 256 MiB.
const CACHE_BYTES: u64 = 64 << 20;

/// What only matters with Kafka.
const OF_KAFKA: [&str; 3] = ["kafka-todo-topic", "kafka-partitions", "ack-timeout"];

/// Settings of `worker`.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkerArgs {
    /// The service's parts.
    #[command(flatten)]
    pub engine: EngineArgs,

    /// Where to serve /metrics, /livez and /readyz, or off
    // The full path keeps clap from reading the type as "may be absent".
    #[arg(long, value_name = "ADDRESS|off", default_value = "off", value_parser = address_or_off)]
    pub metrics: ::core::option::Option<SocketAddr>,

    /// How events are written to standard error
    #[arg(long, value_name = "text|json|off", default_value = "text")]
    pub log: LogFormat,
}

/// Settings of the server alone.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Todos")]
pub struct TodosArgs {
    /// The service's parts.
    #[command(flatten)]
    pub engine: EngineArgs,

    /// The secret that tokens are signed with (HS256)
    #[arg(long, env = "JWT_SECRET", value_name = "SECRET", hide_env_values = true, value_parser = secret)]
    pub jwt_secret: Option<String>,

    /// Longest title, in characters; beyond it 422
    #[arg(long, value_name = "N", default_value = "500", value_parser = number(1..=100_000_u32))]
    pub title_max: u32,

    /// Longest description, in characters; beyond it 422
    #[arg(long, value_name = "N", default_value = "10000", value_parser = number(0..=1_000_000_u32))]
    pub description_max: u32,

    /// How long a request with ?wait=applied waits; then it is answered 202
    #[arg(long, value_name = "TIME", default_value = "5s",
          value_parser = duration(Duration::from_millis(10)..=Duration::from_secs(60)))]
    pub wait_max: Duration,

    /// Apply writes in this process, although other processes could [default: without Kafka]
    #[arg(long)]
    pub embedded_worker: bool,
}

impl WorkerArgs {
    /// The settings that have no effect here.
    pub fn idle(&self) -> Vec<Idle> {
        let reads =
            "a worker serves nothing and makes no topic; give it to the server, or leave it out";
        let mut idle = self.engine.idle();
        let of_server =
            ["kafka-partitions", "queue-bytes-max", "cache-ttl-sec", "cache-bytes", "todos-max"];
        idle.extend(of_server.map(|setting| Idle::new(setting, reads)));
        idle
    }
}

impl SeedArgs {
    /// The settings that have no effect here.
    pub fn idle(&self) -> Vec<Idle> {
        let direct = "seed writes into the store itself; leave it out";
        let mut idle = vec![Idle::new("redis-url", direct).secret()];
        let of_server = ["kafka-brokers", "cache-ttl-sec", "cache-bytes", "todos-max"];
        idle.extend(
            of_server.into_iter().chain(OF_KAFKA).map(|setting| Idle::new(setting, direct)),
        );
        idle
    }
}

impl TodosArgs {
    /// The settings that have no effect beside the others.
    pub fn idle(&self) -> Vec<Idle> {
        self.engine.idle()
    }

    /// The limits of requests.
    pub fn bounds(&self) -> Bounds {
        Bounds {
            title_max: self.title_max as usize,
            description_max: self.description_max as usize,
            todos_max: self.engine.todos_max as usize,
            wait_max: self.wait_max,
        }
    }
}

/// Settings of `seed`.
#[derive(Clone, Debug, clap::Args)]
pub struct SeedArgs {
    /// The service's parts.
    #[command(flatten)]
    pub engine: EngineArgs,

    /// How many todos to make
    #[arg(long, value_name = "N", default_value = "10000", value_parser = number(1..=10_000_000_u32))]
    pub count: u32,

    /// Whose they are
    #[arg(long, value_name = "SUBJECT", default_value = "seed-user")]
    pub subject: String,
}

/// Settings of `repartition`.
#[derive(Clone, Debug, clap::Args)]
pub struct RepartitionArgs {
    /// The service's parts.
    #[command(flatten)]
    pub engine: EngineArgs,
}

impl RepartitionArgs {
    /// The settings that have no effect here.
    pub fn idle(&self) -> Vec<Idle> {
        let reads = "repartition serves nothing and makes no topic; leave it out";
        let mut idle = self.engine.idle();
        idle.push(Idle::new("redis-url", reads).secret());
        let of_server = ["kafka-partitions", "ack-timeout", "cache-bytes", "todos-max"];
        idle.extend(of_server.map(|setting| Idle::new(setting, reads)));
        idle
    }
}

/// Settings of `token`.
#[derive(Clone, Debug, clap::Args)]
pub struct TokenArgs {
    /// Who the bearer is
    #[arg(long, value_name = "SUBJECT", default_value = "test-user", value_parser = subject)]
    pub subject: String,

    /// How long the token is valid
    #[arg(long, value_name = "TIME", default_value = "24h",
          value_parser = duration(Duration::from_secs(1)..=Duration::from_secs(366 * 86_400)))]
    pub ttl: Duration,

    /// The secret to sign it with (HS256)
    #[arg(long, env = "JWT_SECRET", value_name = "SECRET", hide_env_values = true, value_parser = secret)]
    pub jwt_secret: Option<String>,
}

/// The shortest secret, in bytes: as long as the hash of HS256 (RFC 7518 §3.2).
const SECRET_BYTES_MIN: usize = 32;

/// The error when there is no secret.
pub const SECRET_MISSING: &str = "--jwt-secret is missing; give the secret that tokens are signed with, as in \
    JWT_SECRET=$(openssl rand -hex 32)";

fn secret(text: &str) -> Result<String, String> {
    match text.len() {
        0 => {
            Err("it is empty: anybody could sign tokens; use JWT_SECRET=$(openssl rand -hex 32)"
                .into())
        }
        bytes @ 1..SECRET_BYTES_MIN => Err(format!(
            "it has {bytes} bytes, and can be guessed; use at least {SECRET_BYTES_MIN}: JWT_SECRET=$(openssl rand -hex 32)"
        )),
        _ => Ok(text.to_owned()),
    }
}

fn postgres_url(text: &str) -> Result<String, String> {
    postgres::parse_url(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn redis_url(text: &str) -> Result<String, String> {
    near::check_url(text).map(|()| text.to_owned())
}

fn subject(text: &str) -> Result<String, String> {
    let may_be = (1..=crate::auth::USER_BYTES_MAX).contains(&text.len()) && !text.contains('\0');
    may_be
        .then(|| text.to_owned())
        .ok_or_else(|| "write 1 to 255 bytes, for example test-user".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory as _, Parser};

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        todos: TodosArgs,
    }

    /// Purpose: the declared settings are consistent, and their defaults are the documented ones.
    #[test]
    fn defaults() {
        Cli::command().debug_assert();
        let todos = Cli::try_parse_from(["test"]).expect("every setting has a default").todos;
        assert_eq!(todos.engine.kafka_todo_topic, "todo-commands");
        assert_eq!((todos.engine.cache_ttl_sec, todos.engine.todos_max), (300, 1_000_000));
        assert_eq!((todos.title_max, todos.description_max), (500, 10_000));
        assert_eq!(todos.wait_max, Duration::from_secs(5));
    }

    /// Purpose: a wrong value exits 2 and names the setting, the value and what to write.
    #[test]
    fn wrong_values_teach() {
        let cases = [
            ("--jwt-secret", "", "openssl"),
            ("--jwt-secret", "a secret of thirty-one bytes...", "at least 32"),
            ("--cache-ttl-sec", "0", "1"),
            ("--database-url", "mysql://db", "postgres://user:password@host"),
            ("--redis-url", "127.0.0.1", "redis://host"),
            ("--kafka-partitions", "0", "1"),
            ("--ack-timeout", "1ms", "100ms"),
            ("--queue-bytes-max", "1KiB", "MiB"),
            ("--todos-max", "0", "1"),
            ("--title-max", "x", "number"),
            ("--wait-max", "1h", "1m"),
        ];
        for (flag, value, remedy) in cases {
            let error = Cli::try_parse_from(["test", &format!("{flag}={value}")]).expect_err(flag);
            let text = error.to_string();
            assert_eq!(error.exit_code(), 2);
            assert!(text.contains(flag) && text.contains(value) && text.contains(remedy), "{text}");
        }
    }
}
