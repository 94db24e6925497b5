//! Marks: each partition's end when the position in the journal was committed.
//!
//! Everything in a partition below its mark was written before the last commit, so an uncommitted record can only be
//! after it: that is where a start looks for records delivered without an acknowledgement.
//!
//! ```text
//!   highwater-delivery 1
//!   topic NAME
//!   partitions N
//!   clean | open          open: messages may be on their way
//!   PARTITION OFFSET      one line per partition
//!   end
//! ```
//!
//! The file is replaced after each commit and never before, and it is not synced: after a power cut it may be older than
//! the position, and then more of the topic is read; or be damaged, and then the topic's end is read.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The contents of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) topic: String,
    pub(super) partitions: u32,
    /// No message is in flight.
    pub(super) is_clean: bool,
    /// By partition: the lowest offset that an uncommitted record may have.
    pub(super) offsets: BTreeMap<u32, i64>,
}

impl Marks {
    /// Reads the file; `None` if it is missing or malformed.
    pub(super) fn load(path: &Path) -> Option<Marks> {
        Marks::parse(&fs::read_to_string(path).ok()?)
    }

    fn parse(text: &str) -> Option<Marks> {
        let mut lines = text.strip_suffix("end\n")?.lines();
        (lines.next()? == "highwater-delivery 1").then_some(())?;
        let topic = lines.next()?.strip_prefix("topic ")?.to_owned();
        let partitions = lines.next()?.strip_prefix("partitions ")?.parse().ok()?;
        let is_clean = match lines.next()? {
            "clean" => true,
            "open" => false,
            _ => return None,
        };
        let mark = |line: &str| {
            let (partition, offset) = line.split_once(' ')?;
            Some((partition.parse().ok()?, offset.parse().ok()?))
        };
        let offsets = lines.map(mark).collect::<Option<_>>()?;
        Some(Marks { topic, partitions, is_clean, offsets })
    }

    fn text(&self) -> String {
        let state = if self.is_clean { "clean" } else { "open" };
        let (topic, partitions) = (&self.topic, self.partitions);
        let mut text =
            format!("highwater-delivery 1\ntopic {topic}\npartitions {partitions}\n{state}\n");
        for (partition, offset) in &self.offsets {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{partition} {offset}");
        }
        text + "end\n"
    }

    /// Replaces the file.
    pub(super) fn store(&self, path: &Path) -> io::Result<()> {
        let mut new = PathBuf::from(path);
        new.set_extension("new");
        fs::write(&new, self.text())?;
        fs::rename(new, path)
    }

    /// A committed record is at `offset` of `partition`. Returns false, and passes nothing, if that is before the mark: then
    /// the partition counts from a lower offset than before, or Kafka has not said where the record is.
    pub(super) fn pass(&mut self, partition: u32, offset: i64) -> bool {
        let mark = self.offsets.entry(partition).or_default();
        let is_behind = offset >= *mark;
        if is_behind {
            *mark = offset + 1;
        }
        is_behind
    }

    /// The mark of a partition, if that ends before it, at `end`. The mark is then lowered to `to`, which no uncommitted
    /// record is before.
    pub(super) fn lower(&mut self, partition: u32, end: i64, to: i64) -> Option<i64> {
        let mark = self.offsets.get_mut(&partition).filter(|mark| **mark > end)?;
        Some(std::mem::replace(mark, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a partition that has lost what was delivered is told from one that has not: only an offset before the mark is
    /// suspect, only an end before it is a loss, and the loss is found once.
    #[test]
    fn a_partition_that_counts_from_a_lower_offset() {
        let mut marks = Marks::default();
        assert!(marks.pass(0, 0) && marks.pass(0, 41));
        assert!(!marks.pass(0, 7), "it is before the mark");
        let lower = |marks: &mut Marks, partition, end| marks.lower(partition, end, 8);
        assert_eq!(lower(&mut marks, 0, 42), None, "others have written behind it");
        assert_eq!(lower(&mut marks, 1, 0), None, "nothing was delivered there");
        assert_eq!((lower(&mut marks, 0, 10), lower(&mut marks, 0, 10)), (Some(42), None));
        assert!(marks.pass(0, 8));
        assert_eq!(marks.offsets, BTreeMap::from([(0, 9)]));
    }

    /// Purpose: a written file reads back; one that a power cut truncated anywhere is refused, or a record after its
    /// mark would be sent twice.
    #[test]
    fn a_file_counts_only_whole() {
        let mut marks = Marks { topic: "events".into(), partitions: 12, ..Marks::default() };
        marks.pass(3, 41);
        marks.pass(3, 7);
        marks.pass(11, 0);
        assert_eq!(marks.offsets, BTreeMap::from([(3, 42), (11, 1)]));
        let text = marks.text();
        assert_eq!(Marks::parse(&text), Some(marks.clone()));
        for length in 0..text.len() {
            assert_eq!(Marks::parse(&text[..length]), None, "{length}");
        }
        let folder = tempfile::tempdir().expect("a temporary directory");
        let place = folder.path().join("marks");
        marks.is_clean = true;
        marks.store(&place).expect("a file for the test");
        assert_eq!(Marks::load(&place), Some(marks));
        fs::remove_file(&place).expect("it is there");
        assert_eq!(Marks::load(&place), None);
    }
}
