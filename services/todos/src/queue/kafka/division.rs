//! The number of partitions that the commands of a topic are divided by.
//!
//! A todo's commands are in one partition, which its id decides, so that they stay in order. The number of partitions is
//! part of that decision. So it is stored with the todos when the topic is seen for the first time, and every instance uses
//! it, whatever number the topic has later:
//!
//! | the topic has | |
//! |---|---|
//! | as many partitions | all is well |
//! | more | commands go to the first ones, as before; a warning says how to use all of them |
//! | fewer: it was recreated | commands are refused until the operator confirms that nothing of the old topic is missing |
//!
//! `highwater-todos repartition` stores the topic's number, once everything in it is applied.

use std::fmt;

use highwater::logging::tracing;

use super::source::source_name;
use crate::store::{Store, StoreError};

/// Opens the store that knows the number.
type Open = Box<dyn Fn() -> Result<Box<dyn Store>, StoreError> + Send>;

/// The stored number of a topic.
pub struct Division {
    open: Open,
    source: String,
    /// The number that the warning was about.
    warned: u32,
}

impl Division {
    /// That of `topic`, in a store that is opened when it is asked.
    pub fn new(topic: &str, open: Open) -> Division {
        Division { open, source: source_name(topic), warned: 0 }
    }

    /// The stored number. If none is, `found` is stored now.
    ///
    /// # Errors
    ///
    /// If the store does not work.
    pub(super) fn stored(&self, found: Option<u32>) -> Result<Option<u32>, StoreError> {
        (self.open)()?.divided_by(&self.source, found)
    }

    /// Compares with the number that the topic has now. The first time that it has more, a warning is logged.
    ///
    /// # Errors
    ///
    /// It has fewer: what happened, and what to do about it.
    pub(super) fn compare(&mut self, topic: &str, divided: u32, found: u32) -> Result<(), String> {
        if found < divided {
            return Err(format!(
                "topic {topic} has {found} partitions, and its commands are divided by {divided}: it was recreated, and \
                 what was not applied went with the old one. If nothing of it is missed, stop all instances, run \
                 `highwater-todos repartition`, and start them again; or create the topic with {divided} partitions"
            ));
        }
        if found > divided && self.warned != found {
            tracing::warn!(
                %topic,
                partitions = found,
                used = divided,
                "the topic has got more partitions: commands go to the first ones, as before, so that the commands of each \
                 todo stay in order; to use all of them, stop all instances, wait until the workers have applied \
                 everything, run `highwater-todos repartition`, and start the instances again"
            );
        }
        self.warned = found;
        Ok(())
    }
}

impl fmt::Debug for Division {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Division({})", self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a topic with more partitions is no error, and is warned about; one with fewer is an error that names both
    /// numbers and the ways out.
    #[test]
    fn comparisons() {
        let open: Open = Box::new(|| Err(StoreError::new("not asked")));
        let mut division = Division::new("topic", open);
        assert_eq!(division.compare("topic", 4, 4), Ok(()));
        assert_eq!(division.compare("topic", 4, 6), Ok(()));
        assert_eq!(division.warned, 6);
        let fewer = division.compare("topic", 4, 3).expect_err("commands are in the fourth");
        for word in ["topic topic", "3 partitions", "divided by 4", "repartition"] {
            assert!(fewer.contains(word), "{word}: {fewer}");
        }
    }
}
