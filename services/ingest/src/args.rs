//! The settings of the gateway itself; those of the server around it are the framework's.
//!
//! [`IngestArgs`] are the raw settings; [`Plan`] is a consistent set of them.

use std::path::PathBuf;
use std::time::Duration;

use highwater::batcher::PARTITIONS_MAX;
use highwater::batcher::sink::kafka::Settings;
use highwater::server::args::{Idle, ServerArgs, duration, number, one_of, size};

/// What 202 means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// The record is in this process's memory, and on its way.
    Memory,
    /// It is on the disk.
    Disk,
    /// Kafka has it, on all replicas in sync.
    Kafka,
}

/// Where records go in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkChoice {
    /// Into a journal on the disk.
    Journal,
    /// To Kafka; through a journal, unless `--ack kafka` waits for Kafka itself.
    Kafka,
    /// Nowhere: they are counted.
    Null,
}

const ACKS: &[(&str, Ack)] = &[("memory", Ack::Memory), ("disk", Ack::Disk), ("kafka", Ack::Kafka)];
const SINKS: &[(&str, SinkChoice)] =
    &[("journal", SinkChoice::Journal), ("kafka", SinkChoice::Kafka), ("null", SinkChoice::Null)];

/// The largest `--body-max` and `--batch-bytes` here. A journal batch has at most 64 MiB.
const RECORD_BYTES_MAX: u64 = 32 << 20;

/// The default linger where no client waits for the record.
const LINGER: Duration = Duration::from_millis(5);

/// Settings of the gateway.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Ingest")]
pub struct IngestArgs {
    /// What 202 means: the record is in memory, on the disk, or in Kafka [default: disk, or memory with --sink null]
    #[arg(long, value_name = "memory|disk|kafka", value_parser = one_of(ACKS))]
    pub ack: Option<Ack>,

    /// Where records go
    #[arg(long, value_name = "journal|kafka|null", default_value = "journal", value_parser = one_of(SINKS))]
    pub sink: SinkChoice,

    /// The directory of the journal
    #[arg(long, value_name = "DIR", default_value = "highwater-ingest-data")]
    pub data: PathBuf,

    /// Kafka's bootstrap brokers
    #[arg(long, env = "KAFKA_BROKERS", value_name = "HOST:PORT,…", value_delimiter = ',', value_parser = broker)]
    pub kafka_brokers: Vec<String>,

    /// Kafka's topic
    #[arg(long, value_name = "NAME", default_value = "events", value_parser = topic)]
    pub topic: String,

    /// A property of the Kafka client, by its name in librdkafka; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = property)]
    pub kafka_property: Vec<(String, String)>,

    /// Number of partitions over which records are spread, by Record-Key or in turn [default: those of the topic with
    /// --sink kafka, else 1]
    #[arg(long, value_name = "N", value_parser = number(1..=PARTITIONS_MAX))]
    pub partitions: Option<u32>,

    /// Maximum size of the records in a batch
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = size(1024..=RECORD_BYTES_MAX))]
    pub batch_bytes: u64,

    /// Longest wait of a record for others in its batch, while records keep coming [default: 5ms with --ack memory,
    /// else 0ms]
    #[arg(long, value_name = "TIME", value_parser = duration(Duration::ZERO..=Duration::from_secs(10)))]
    pub linger: Option<Duration>,

    /// Longest wait for the disk or Kafka under --ack disk and kafka; then 503
    #[arg(long, value_name = "TIME", default_value = "5s",
          value_parser = duration(Duration::from_millis(100)..=Duration::from_secs(600)))]
    pub ack_timeout: Duration,

    /// Maximum memory for batches, per worker; beyond it 503
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size((64 << 10)..=(1 << 40)))]
    pub memory_max: u64,

    /// Maximum size of the journal on the disk; beyond it 503 [default: the whole disk]
    #[arg(long, value_name = "SIZE", value_parser = size((16 << 20)..=(1 << 50)))]
    pub data_max: Option<u64>,

    /// With --sink journal: remove the oldest records when the journal is larger [default: keep all]
    #[arg(long, value_name = "SIZE", value_parser = size((1 << 20)..=(1 << 50)))]
    pub retain_bytes: Option<u64>,

    /// With --sink journal: remove records that are older [default: keep all]
    #[arg(long, value_name = "TIME", value_parser = duration(Duration::from_secs(1)..=Duration::from_secs(10 * 366 * 86_400)))]
    pub retain_age: Option<Duration>,
}

/// A consistent set of settings.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What 202 means.
    pub ack: Ack,
    /// Where records go.
    pub sink: SinkChoice,
    /// The directory of the journal.
    pub data: PathBuf,
    /// Kafka's settings; `None` without Kafka.
    pub kafka: Option<Settings>,
    /// How many partitions; `None`: as many as the topic has ([`crate::topic`]).
    pub partitions: Option<u32>,
    /// Most bytes of records in a batch.
    pub batch_bytes: usize,
    /// Most bytes of a record.
    pub record_bytes_max: usize,
    /// The batcher's linger.
    pub linger: Duration,
    /// Longest wait for a receipt.
    pub ack_timeout: Duration,
    /// Most memory for batches, per worker.
    pub memory_max: usize,
    /// Most bytes of the journal.
    pub data_max: Option<u64>,
    /// Retention by size.
    pub retain_bytes: Option<u64>,
    /// Retention by age.
    pub retain_age: Option<Duration>,
}

impl Plan {
    /// Whether records are written to a journal: unless they go straight to Kafka, or nowhere.
    pub fn has_journal(&self) -> bool {
        self.ack != Ack::Kafka && self.sink != SinkChoice::Null
    }
}

impl IngestArgs {
    /// The settings that have no effect with the others. A setting for where records go, how much is kept, or for how
    /// long is never silently ignored, wherever it was set.
    pub fn idle(&self) -> Vec<Idle> {
        let sink = self.sink_name();
        let mut idle = Vec::new();
        if self.sink != SinkChoice::Kafka {
            let kafka = format!(
                "with --sink {sink} nothing goes to Kafka; use --sink kafka, or leave it out"
            );
            idle.push(Idle::new("kafka-brokers", &kafka).from_anywhere());
            idle.push(Idle::new("topic", &kafka).from_anywhere());
            idle.push(Idle::new("kafka-property", &kafka).from_anywhere().secret());
        }
        if self.sink != SinkChoice::Journal {
            let retain = format!(
                "with --sink {sink} nothing is kept for long: what Kafka has is removed from the spool at once; use \
                 --sink journal, or leave it out"
            );
            idle.push(Idle::new("retain-bytes", &retain).from_anywhere());
            idle.push(Idle::new("retain-age", &retain).from_anywhere());
        }
        if self.sink == SinkChoice::Null || self.ack == Some(Ack::Kafka) {
            let data = format!(
                "there is no journal with --sink {sink}{}; leave it out",
                if self.ack == Some(Ack::Kafka) { " and --ack kafka" } else { "" }
            );
            idle.push(Idle::new("data-max", data).from_anywhere());
        }
        idle
    }

    fn sink_name(&self) -> &'static str {
        SINKS.iter().find(|(_, sink)| *sink == self.sink).map_or("", |(name, _)| name)
    }

    /// Combines them with the server's settings.
    ///
    /// # Errors
    /// Which settings contradict each other: names, values, and the remedy.
    pub fn plan(&self, server: &ServerArgs) -> Result<Plan, String> {
        let default = if self.sink == SinkChoice::Null { Ack::Memory } else { Ack::Disk };
        let ack = self.ack.unwrap_or(default);
        self.check(ack, server)?;
        // Where a client waits for the disk or for Kafka, lingering costs more than it saves: records that arrive while
        // an earlier batch is in flight share the next one anyway.
        let default = if ack == Ack::Memory { LINGER } else { Duration::ZERO };
        let linger = self.linger.unwrap_or(default);
        if ack != Ack::Memory && linger >= self.ack_timeout {
            return Err(format!(
                "--linger {linger:?} is not shorter than --ack-timeout {:?}: every record would be answered 503; \
                 give a shorter --linger, or leave it out",
                self.ack_timeout
            ));
        }
        let plan = Plan {
            ack,
            sink: self.sink,
            data: self.data.clone(),
            kafka: self.kafka(if ack == Ack::Kafka {
                linger
            } else {
                self.linger.unwrap_or(LINGER)
            })?,
            partitions: self.partitions.or((self.sink != SinkChoice::Kafka).then_some(1)),
            batch_bytes: to_usize(self.batch_bytes),
            record_bytes_max: to_usize(server.limits.body_max),
            linger,
            ack_timeout: self.ack_timeout,
            memory_max: to_usize(self.memory_max),
            data_max: self.data_max,
            retain_bytes: self.retain_bytes,
            retain_age: self.retain_age,
        };
        Ok(plan)
    }

    /// The Kafka client's settings, if there is one.
    fn kafka(&self, linger: Duration) -> Result<Option<Settings>, String> {
        if self.sink != SinkChoice::Kafka {
            return Ok(None);
        }
        let brokers = self.kafka_brokers.join(",");
        let mut settings = Settings::new(&brokers, &self.topic, self.partitions.unwrap_or(1));
        settings.linger = linger;
        settings.batch_bytes = to_usize(self.batch_bytes);
        settings.properties.clone_from(&self.kafka_property);
        settings.check().map_err(|error| error.to_string())?;
        Ok(Some(settings))
    }

    fn check(&self, ack: Ack, server: &ServerArgs) -> Result<(), String> {
        let sink = self.sink_name();
        if ack == Ack::Disk && self.sink == SinkChoice::Null {
            return Err("--ack disk and --sink null do not go together: the null sink writes to no disk; use \
                 --ack memory, or --sink journal"
                .to_owned());
        }
        if ack == Ack::Kafka && self.sink != SinkChoice::Kafka {
            return Err(format!(
                "--ack kafka and --sink {sink} do not go together: nothing goes to Kafka; use --sink kafka, or --ack disk"
            ));
        }
        if self.sink == SinkChoice::Kafka && self.kafka_brokers.is_empty() {
            return Err("--sink kafka needs --kafka-brokers; give one or more, as in --kafka-brokers 10.0.0.1:9092"
                .to_owned());
        }
        if server.limits.body_max > RECORD_BYTES_MAX {
            return Err(format!(
                "--body-max is {} bytes, and a record has at most {RECORD_BYTES_MAX} here; use --body-max 32MiB or less",
                server.limits.body_max
            ));
        }
        // Two batches, so that one can be filled while another is written.
        let least = 2 * self.batch_bytes.max(server.limits.body_max) + (64 << 10);
        if self.memory_max < least {
            return Err(format!(
                "--memory-max is {}, too little for two batches of --batch-bytes {} and records of --body-max {}; give \
                 {least} or more",
                self.memory_max, self.batch_bytes, server.limits.body_max
            ));
        }
        Ok(())
    }
}

/// Within the ranges above, and so within memory.
fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn broker(text: &str) -> Result<String, String> {
    let is_broker = text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    is_broker.then(|| text.to_owned()).ok_or_else(|| {
        "not a broker; use host:port, like 10.0.0.1:9092, with commas between several".to_owned()
    })
}

fn property(text: &str) -> Result<(String, String), String> {
    let property = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let property = property.map(|(name, value)| (name.to_owned(), value.to_owned()));
    property.ok_or_else(|| "not a property; use NAME=VALUE, like sasl.username=me".to_owned())
}

/// Kafka's own rule for names of topics.
fn topic(text: &str) -> Result<String, String> {
    let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_topic =
        (1..=249).contains(&text.len()) && text.bytes().all(may_be) && !matches!(text, "." | "..");
    is_topic.then(|| text.to_owned()).ok_or_else(|| {
        "not a topic's name; use 1 to 249 letters, digits, dots, underscores and dashes".to_owned()
    })
}
