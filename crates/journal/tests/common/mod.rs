//! A directory for a test, and short ways to fill a journal.
// Each test is a crate of its own and uses a part of this.
#![allow(dead_code, unreachable_pub)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use highwater_journal::{Batch, Damage, Item, Reader, Record};

/// A directory that goes when this is dropped.
#[derive(Debug)]
pub struct Place(PathBuf);

impl Place {
    pub fn new(name: &str) -> Place {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("journal-{name}-{}-{next}", std::process::id()));
        std::fs::create_dir_all(&path).expect("cargo gave a directory to write to");
        Place(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The segments' files, oldest first.
    pub fn segments(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).expect("it is there");
        let paths = entries.map(|entry| entry.expect("it can be read").path());
        let mut segments: Vec<PathBuf> =
            paths.filter(|path| path.extension().is_some_and(|suffix| suffix == "hwj")).collect();
        segments.sort();
        segments
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A batch of records with these numbers as ids and `length` bytes each.
pub fn batch(ids: impl IntoIterator<Item = u64>, length: usize) -> Batch {
    let mut batch = Batch::new();
    for id in ids {
        let (body, partition) = (body(id, length), (id % 7) as u32);
        batch.push(Record { partition, time_us: 1000 + id, id: id.into(), body: &body });
    }
    batch
}

pub fn body(id: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (id.wrapping_mul(31) + at) as u8).collect()
}

/// Offsets and ids of all that is there, and what is missing.
pub fn read(reader: &mut Reader) -> (Vec<(u64, u64)>, Vec<Damage>) {
    let (mut records, mut missing) = (Vec::new(), Vec::new());
    loop {
        match reader.next().expect("the disk works") {
            Item::Record(record) => {
                let id = u64::try_from(record.id).expect("ids are small here");
                assert_eq!(record.body, body(id, record.body.len()), "the body of {id}");
                records.push((record.offset, id));
            }
            Item::Skipped(damage) => missing.push(damage),
            Item::End => return (records, missing),
        }
    }
}

pub fn ids(records: &[(u64, u64)]) -> Vec<u64> {
    records.iter().map(|(_, id)| *id).collect()
}
