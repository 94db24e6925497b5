//! This process's identity in the consumer group of workers.
//!
//! A member that is killed keeps its partitions until its session has timed out. Two things keep that short:
//!
//! * The session is [`SESSION`], if the brokers allow it, else [`SESSION_BROKERS`], which they always do.
//! * A worker that restarts on the same machine is the same member again, and has the partitions at once. Its id is the
//!   machine's name and a number that no other worker there holds: of the free ones, the one whose worker was alive
//!   most recently. A file lock holds the number, and the system releases it however the process ends; the file's
//!   modification time records when its worker was last alive.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// How long a member may be silent until its partitions go to others. Including the rebalance, a killed worker delays
/// commands by at most two seconds.
pub(super) const SESSION: Duration = Duration::from_millis(1500);

/// The same where brokers have the default of `group.min.session.timeout.ms`.
pub(super) const SESSION_BROKERS: Duration = Duration::from_secs(6);

/// The most workers with ids on one machine. Further ones are members without an id.
const NUMBERS_MAX: usize = 256;

/// An id that no other process of this machine has, as long as this lives.
#[derive(Debug)]
pub(super) struct MemberId {
    pub(super) id: String,
    held: File,
}

impl MemberId {
    /// Records that this worker is alive. Call it about once per second.
    pub(super) fn touch(&self) {
        // Where it fails, the next worker may take the number of another one that has ended.
        let _ = self.held.set_modified(SystemTime::now());
    }
}

/// The id for a worker of `topic` that starts. `None`: none can be held; then the member has no id.
pub(super) fn take(topic: &str) -> Option<MemberId> {
    let machine = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    take_in(&std::env::temp_dir(), machine.trim(), topic)
}

fn take_in(folder: &Path, machine: &str, topic: &str) -> Option<MemberId> {
    let mut free: Vec<(SystemTime, MemberId)> = Vec::new();
    for number in 0..NUMBERS_MAX {
        let id = format!("highwater-todos-{machine}-{topic}-{number}");
        let file = folder.join(format!("{id}.lock"));
        let is_new = !file.exists();
        if is_new && !free.is_empty() {
            break;
        }
        let open = File::options().write(true).create(true).truncate(false).open(file);
        let held = open.ok()?;
        let lived = held.metadata().and_then(|file| file.modified()).ok()?;
        if held.try_lock().is_ok() {
            free.push((lived, MemberId { id, held }));
            if is_new {
                break;
            }
        }
    }
    let (_, member) = free.into_iter().max_by_key(|(lived, _)| *lived)?;
    member.touch();
    Some(member)
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

    /// Purpose: a worker that is killed and started again has its own id, although there are others of workers that ended
    /// before; else it would wait for its own session.
    #[test]
    fn the_last_that_lived() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let take = || take_in(folder.path(), "here", "topic").expect("one is free");
        let members = [take(), take(), take()];
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        for (member, seconds) in members.iter().zip([10, 30, 20]) {
            member.held.set_modified(at(seconds)).expect("it is ours");
        }
        let ids: Vec<String> = members.iter().map(|member| member.id.clone()).collect();
        drop(members);
        let again = [take(), take(), take()];
        let again: Vec<&str> = again.iter().map(|member| &*member.id).collect();
        assert_eq!(again, [&*ids[1], &*ids[2], &*ids[0]]);
    }

    /// Purpose: where no file can be made, a worker works without an id.
    #[test]
    fn no_folder() {
        assert!(take_in(Path::new("/nonexistent"), "here", "topic").is_none());
    }
}
