//! Settings: the cluster, the topic, and the client's options.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::config::FromClientConfigAndContext as _;
use rdkafka::producer::BaseProducer;

use super::error::{Error, ErrorKind};
use super::events::{Events, Quiet};

/// The most partitions a topic may have here. Each costs memory in the client and the broker; Kafka's own advice stays
/// below this by far.
pub(crate) const PARTITIONS_MAX: u32 = 100_000;
/// The longest linger.
pub(crate) const LINGER_MAX: Duration = Duration::from_secs(60);
/// The longest name of a topic, by Kafka's rules.
const TOPIC_NAME_MAX: usize = 249;

/// Properties that the guarantees depend on: they cannot be set by users.
const OWN_PROPERTIES: [&str; 26] = [
    "acks",
    "batch.num.messages",
    "batch.size",
    "bootstrap.servers",
    "client.software.name",
    "delivery.report.only.error",
    "delivery.timeout.ms",
    "dr_cb",
    "dr_msg_cb",
    "enable.gapless.guarantee",
    "enable.idempotence",
    "linger.ms",
    "log.queue",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "message.max.bytes",
    "message.send.max.retries",
    "message.timeout.ms",
    "metadata.broker.list",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.messages",
    "queue.buffering.max.ms",
    "queuing.strategy",
    "request.required.acks",
    "retries",
    "transactional.id",
];

/// The cluster, the topic, and the client's options.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The bootstrap servers: `host:port`, separated by commas.
    pub brokers: String,
    /// The topic: 1 to 249 letters, digits, `.`, `_` and `-`.
    pub topic: String,
    /// How many partitions the topic has, 1 to 100 000. Another number is an error at startup.
    pub partitions: u32,
    /// Whether the topic is created if it is missing. Yes.
    pub create_topic: bool,
    /// The replication factor of a created topic. `None`: the broker's default.
    pub replication: Option<u16>,
    /// How long a message waits for others to share a request with, at most 60 s. 5 ms.
    pub linger: Duration,
    /// The most bytes of one partition's messages in a request (or one message, if that is larger). 1 MB. The topic's
    /// `max.message.bytes` bounds it, too.
    pub batch_bytes: usize,
    /// More client properties, by their librdkafka names, such as `sasl.username`. Those that the guarantees depend on
    /// (`acks`, `enable.idempotence`, …) are refused.
    pub properties: Vec<(String, String)>,
}

impl Settings {
    /// This topic with this many partitions, and the defaults.
    pub fn new(brokers: &str, topic: &str, partitions: u32) -> Settings {
        Settings {
            brokers: brokers.to_owned(),
            topic: topic.to_owned(),
            partitions,
            create_topic: true,
            replication: None,
            linger: Duration::from_millis(5),
            batch_bytes: 1_000_000,
            properties: Vec::new(),
        }
    }

    /// Checks the settings, without contacting Kafka.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Setting`], with the setting, the value and the remedy.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::new(ErrorKind::Setting, text));
        let is_broker = |broker: &str| {
            let port = broker.rsplit_once(':').and_then(|(host, port)| {
                (!host.is_empty() && !host.contains(char::is_whitespace)).then_some(port)
            });
            port.is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
        };
        if !self.brokers.split(',').all(|broker| is_broker(broker.trim())) {
            let brokers = &self.brokers;
            return refuse(format!(
                "brokers {brokers:?}: write host:port, several with commas between"
            ));
        }
        let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let length = self.topic.len();
        if !(1..=TOPIC_NAME_MAX).contains(&length)
            || !self.topic.bytes().all(may_be)
            || [".", ".."].contains(&self.topic.as_str())
        {
            let topic = &self.topic;
            return refuse(format!(
                "topic {topic:?}: write 1 to {TOPIC_NAME_MAX} letters, digits, '.', '_' or '-'"
            ));
        }
        if !(1..=PARTITIONS_MAX).contains(&self.partitions) {
            return refuse(format!("partitions {}: write 1 to {PARTITIONS_MAX}", self.partitions));
        }
        if self.replication == Some(0) {
            return refuse("replication 0: a topic has at least one replica".to_owned());
        }
        if self.linger > LINGER_MAX {
            return refuse(format!("linger {:?}: write at most {LINGER_MAX:?}", self.linger));
        }
        if !(1..=BATCH_BYTES_MAX).contains(&self.batch_bytes) {
            let bytes = self.batch_bytes;
            return refuse(format!("batch_bytes {bytes}: write 1 to {BATCH_BYTES_MAX}"));
        }
        for (name, _) in &self.properties {
            if OWN_PROPERTIES.contains(&name.as_str()) {
                return refuse(format!(
                    "Kafka property {name}: it cannot be set, because delivery guarantees depend on it; remove it"
                ));
            }
        }
        // The client knows its properties best.
        let client = BaseProducer::<Events<Quiet>>::from_config_and_context(
            &self.config(),
            Events::new(Quiet),
        );
        match client {
            Ok(_) => Ok(()),
            Err(error) => {
                refuse(format!("Kafka properties: {error}; see librdkafka's CONFIGURATION.md"))
            }
        }
    }

    /// The configuration common to all clients.
    pub(crate) fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("client.id", "highwater")
            // Reconnect quickly: records are waiting for the cluster.
            .set("reconnect.backoff.ms", "50")
            .set("reconnect.backoff.max.ms", "1000")
            .set("retry.backoff.max.ms", "500")
            // Do not log that idle connections are closed.
            .set("log.connection.close", "false");
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        config.set("bootstrap.servers", &self.brokers);
        config
    }

    /// A producer for messages of at most `message_bytes_max`, in batches of at most `batch_bytes_max`, acknowledged by all
    /// replicas, each once.
    pub(crate) fn producer_config(
        &self,
        message_bytes_max: usize,
        batch_bytes_max: usize,
    ) -> ClientConfig {
        let mut config = self.config();
        let batch_bytes = self.batch_bytes.min(batch_bytes_max);
        config
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("message.max.bytes", message_bytes_max.clamp(1000, BATCH_BYTES_MAX).to_string())
            .set("batch.size", batch_bytes.to_string())
            .set("batch.num.messages", "100000")
            .set("linger.ms", format!("{:.3}", self.linger.as_secs_f64() * 1000.0))
            // Our own limits apply: librdkafka's would refuse in the middle of a batch.
            .set("queue.buffering.max.messages", "0")
            .set("queue.buffering.max.kbytes", "2147483647");
        config
    }
}

/// The largest request size that librdkafka accepts.
const BATCH_BYTES_MAX: usize = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Settings)) -> String {
        let mut settings = Settings::new("127.0.0.1:9092", "events", 8);
        change(&mut settings);
        let error = settings.check().expect_err("it is wrong");
        assert_eq!(error.kind(), ErrorKind::Setting);
        error.to_string()
    }

    /// Purpose: a wrong setting is reported at startup, by name, and not by a broker later.
    #[test]
    fn wrong_settings_are_named() {
        Settings::new("kafka-1:9092, [::1]:9093", "a.topic_of-mine", 1)
            .check()
            .expect("it is right");
        for brokers in ["", "kafka", "kafka:", ":9092", "kafka:0", "kafka:99999", "a:1,", "a b:1"] {
            assert!(refused(|settings| settings.brokers = brokers.into()).contains("host:port"));
        }
        for topic in ["", ".", "..", "with space", "ö", &"x".repeat(250)] {
            assert!(refused(|settings| settings.topic = topic.into()).contains("topic"));
        }
        for partitions in [0, PARTITIONS_MAX + 1] {
            assert!(refused(|settings| settings.partitions = partitions).contains("partitions"));
        }
        assert!(refused(|settings| settings.replication = Some(0)).contains("replication"));
        assert!(refused(|settings| settings.batch_bytes = 0).contains("batch_bytes"));
        let late = LINGER_MAX + Duration::from_millis(1);
        assert!(refused(|settings| settings.linger = late).contains("linger"));
        let property = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        assert!(refused(|settings| settings.properties = property("acks", "0")).contains("acks"));
        let unknown = refused(|settings| settings.properties = property("no.such.thing", "1"));
        assert!(unknown.contains("no.such.thing"), "{unknown}");
    }
}
