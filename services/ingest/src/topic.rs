//! The number of partitions, if `--partitions` is not given.
//!
//! It is the topic's number, as Kafka reports it at startup. A given number is checked when connecting to Kafka, where
//! a different one is an error.
//!
//! ```text
//!   Kafka answers: the topic's number; 1 for a topic that is to be created
//!   Kafka is unreachable: the number of the last start, saved in the data directory; without one, an error
//! ```
//!
//! If the topic's number has changed since the last start, the log says so when Kafka is back, and records wait in the
//! spool: the next start uses the topic's number, and delivers each record to its partition modulo that number.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::time::Duration;

use highwater::batcher::sink::kafka::{ErrorKind, Settings, partitions_of_topic};
use highwater::journal::storage::replace_file;

use crate::args::Plan;
use crate::failure::Failure;

/// How long Kafka may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// The file of the data directory with the topic and its number of partitions at the last start.
const FILE: &str = "kafka-partitions";

/// The plan with a number of partitions, and that number.
///
/// # Errors
/// Kafka does not answer and no number is saved; or the client cannot be created.
pub fn settle(plan: &Plan) -> Result<(Plan, u32), Failure> {
    let mut plan = plan.clone();
    let partitions = match (plan.partitions, &mut plan.kafka) {
        (Some(partitions), _) => partitions,
        (None, None) => 1,
        (None, Some(kafka)) => {
            kafka.partitions = find(kafka, &plan.data)?;
            kafka.partitions
        }
    };
    plan.partitions = Some(partitions);
    Ok((plan, partitions))
}

fn find(kafka: &Settings, data: &Path) -> Result<u32, Failure> {
    let topic = &kafka.topic;
    match partitions_of_topic(kafka, ANSWER_TIMEOUT) {
        Ok(Some(partitions)) => {
            tracing::info!(%topic, partitions, "partitions, as the topic has them");
            Ok(partitions)
        }
        Ok(None) => Ok(1),
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            let Some(partitions) = remembered(topic, data) else {
                return Err(Failure::setting(format!(
                    "{error}; so nobody says how many partitions topic {topic} has: give --partitions, or start again \
                     when Kafka answers"
                )));
            };
            tracing::warn!(%topic, partitions, "partitions, as the topic had them at the last start: {error}");
            Ok(partitions)
        }
        Err(error) => Err(error.into()),
    }
}

/// The number of the last start, if that had the same topic.
fn remembered(topic: &str, data: &Path) -> Option<u32> {
    let text = fs::read_to_string(data.join(FILE)).ok()?;
    let (name, partitions) = text.trim_end().split_once(' ')?;
    partitions.parse().ok().filter(|partitions| name == topic && *partitions > 0)
}

/// Saves the number for the next start; the directory is locked by now.
pub fn remember(plan: &Plan) {
    let Some(kafka) = plan.kafka.as_ref().filter(|_| plan.has_journal()) else { return };
    let (topic, partitions) = (&kafka.topic, kafka.partitions);
    if remembered(topic, &plan.data) == Some(partitions) {
        return;
    }
    // Durable: else a crash could leave an empty file, or the old one, and then a start without Kafka would fail, or divide by
    // another number.
    let text = format!("{topic} {partitions}\n");
    let file = plan.data.join(FILE);
    if let Err(error) = replace_file(&file, &OpenOptions::new(), text.as_bytes()) {
        // For example on a full disk. Only a start without Kafka needs the number.
        tracing::warn!(data = %plan.data.display(), "the number of partitions could not be noted: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the saved number is used for the same topic only, and a truncated or edited file does not prevent a
    /// start.
    #[test]
    fn what_is_remembered() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let file = folder.path().join(FILE);
        assert_eq!(remembered("events", folder.path()), None);
        for (text, expected) in [
            ("events 12\n", Some(12)),
            ("events 12", Some(12)),
            ("others 12\n", None),
            ("events 0\n", None),
            ("events x\n", None),
            ("events", None),
            ("", None),
        ] {
            fs::write(&file, text).expect("it can be written");
            assert_eq!(remembered("events", folder.path()), expected, "{text:?}");
        }
    }
}
