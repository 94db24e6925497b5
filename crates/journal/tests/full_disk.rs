//! A disk that is really full: a small tmpfs, where root may mount one. Elsewhere the simulation and
//! `bytes_max` have to do.

mod common;

use std::process::Command;

use common::{Place, batch, ids, read};
use highwater_journal::{Directory, ErrorKind, Health, Journal, Options, SEGMENT_BYTES_MIN};

/// A file system of its own, which goes when this is dropped.
struct Mount(Place);

impl Mount {
    fn new() -> Option<Mount> {
        let place = Place::new("tmpfs");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=512k", "tmpfs"]).arg(place.path());
        let done = mount.output().is_ok_and(|output| output.status.success());
        done.then_some(Mount(place))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

/// Purpose: a full disk is reported as `Full`, loses nothing that was acknowledged, and ends when there is
/// room again; opening works on a full disk, too.
#[test]
fn a_full_disk_is_survived() {
    let Some(mount) = Mount::new() else {
        eprintln!("skipped: mounting a tmpfs needs root");
        return;
    };
    let path = mount.0.path();
    // What another program wrote, and will remove.
    let ballast = path.join("ballast");
    std::fs::write(&ballast, vec![0; 100 << 10]).expect("there is room");
    let mut options = Options::default();
    options.segment_bytes = 4 * SEGMENT_BYTES_MIN;
    let open = || {
        let directory = Directory::open(path).expect("nobody else has it");
        Journal::open(directory, options.clone()).expect("it can be opened")
    };
    let journal = open();
    let producer = journal.producer().expect("there are few");
    let mut acknowledged = Vec::new();
    for id in 0.. {
        match producer.append(batch([id], 3000)).expect("there is room in the queue").wait() {
            Ok(_) => acknowledged.push(id),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                break;
            }
        }
    }
    assert!(acknowledged.len() > 50, "{}", acknowledged.len());
    assert!(matches!(journal.health(), Health::Full(_)), "{:?}", journal.health());
    drop((producer, journal));

    let journal = open();
    let (records, missing) = read(&mut journal.reader_from_start());
    assert_eq!((ids(&records), missing.len()), (acknowledged.clone(), 0));
    let producer = journal.producer().expect("there are few");
    let error = producer.append(batch([1000], 20_000)).expect("it has room").wait();
    assert_eq!(error.expect_err("the disk has none").kind(), ErrorKind::Full);
    std::fs::remove_file(&ballast).expect("it is there");
    producer.append(batch([1001], 20_000)).expect("it has room").wait().expect("the disk has room");
    assert!(matches!(journal.health(), Health::Serving));
    acknowledged.push(1001);
    let (records, missing) = read(&mut journal.reader_from_start());
    assert_eq!((ids(&records), missing.len()), (acknowledged, 0));
}
