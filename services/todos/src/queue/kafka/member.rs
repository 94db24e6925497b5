//! Which member of the group of workers is this process?
//!
//! A member that is killed keeps its partitions until its session has timed out. Two things keep that short:
//!
//! * The session is [`SESSION`], if the brokers allow it, else [`SESSION_BROKERS`], which they always do.
//! * A worker that starts again on the same machine is the same member again, and has the partitions at once: its id is
//!   the machine's name and the lowest number that no other worker there holds. A lock on a file is that hold; the system
//!   releases it however the process ends.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

/// How long a member may be silent until its partitions go to others. Together with the time to divide them anew, nobody
/// waits for a killed worker for more than two seconds.
pub(super) const SESSION: Duration = Duration::from_millis(1500);

/// The same where brokers have the default of `group.min.session.timeout.ms`.
pub(super) const SESSION_BROKERS: Duration = Duration::from_secs(6);

/// So many workers of one machine are told apart. More of them are members without an id.
const NUMBERS_MAX: usize = 256;

/// An id that no other process of this machine has, as long as this lives.
#[derive(Debug)]
pub(super) struct MemberId {
    pub(super) id: String,
    _held: File,
}

/// The lowest id that is free, for a worker of `topic`. `None`: none can be held; then the member has no id.
pub(super) fn take(topic: &str) -> Option<MemberId> {
    let machine = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    take_in(&std::env::temp_dir(), machine.trim(), topic)
}

fn take_in(folder: &Path, machine: &str, topic: &str) -> Option<MemberId> {
    (0..NUMBERS_MAX).find_map(|number| {
        let id = format!("highwater-todos-{machine}-{topic}-{number}");
        let file = folder.join(format!("{id}.lock"));
        let open = File::options().write(true).create(true).truncate(false).open(file);
        let held = open.ok()?;
        held.try_lock().ok()?;
        Some(MemberId { id, _held: held })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: workers of one machine have ids of their own, and one that starts again has the id that became free.
    #[test]
    fn ids_are_held() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let take = || take_in(folder.path(), "here", "topic").expect("one is free");
        let (first, second) = (take(), take());
        assert_ne!(first.id, second.id);
        let id = first.id.clone();
        drop(first);
        assert_eq!(take().id, id);
    }

    /// Purpose: where no file can be made, a worker works without an id.
    #[test]
    fn no_folder() {
        assert!(take_in(Path::new("/nonexistent"), "here", "topic").is_none());
    }
}
