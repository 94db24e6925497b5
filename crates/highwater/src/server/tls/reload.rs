//! Certificates that are renewed while the server runs: when are their files read again?
//!
//! A thread looks at the files once per second: a look is one system call per file and follows links, so it also notices
//! Kubernetes, which swaps a link to a folder. Certificate and key are two files, which are written one after the other:
//! they are read once they have been the same for two looks. After SIGHUP they are read at once.
//!
//! A certificate that cannot be served is logged once, and the certificates in use stay; the next change is another
//! attempt.

#[cfg(unix)]
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fs, io};

use super::shared::Shared;

/// How often the files are looked at. Less: system calls for nothing; more: a renewed certificate is used later.
const PERIOD: Duration = Duration::from_secs(1);

/// By what a file is known to have changed: device, inode, length, and when it was changed. `None` if it is not there.
type Look = Option<(u64, u64, u64, i64, i64)>;

/// Files, and how they looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint(Vec<(PathBuf, Look)>);

impl Fingerprint {
    pub(super) fn of(files: Vec<PathBuf>) -> Self {
        let looked = |path: PathBuf| {
            let look = look(&path);
            (path, look)
        };
        Fingerprint(files.into_iter().map(looked).collect())
    }

    /// Whether there are no files.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Looks again. Returns whether something has changed.
    fn refresh(&mut self) -> bool {
        let mut has_changed = false;
        for (path, seen) in &mut self.0 {
            let now = look(path);
            has_changed |= *seen != now;
            *seen = now;
        }
        has_changed
    }
}

#[cfg(unix)]
fn look(path: &Path) -> Look {
    let about = fs::metadata(path).ok()?;
    Some((about.dev(), about.ino(), about.len(), about.mtime(), about.mtime_nsec()))
}

/// As far as the standard library tells: a file that is replaced by an equally long one of the same time is not noticed.
#[cfg(not(unix))]
fn look(path: &Path) -> Look {
    let about = fs::metadata(path).ok()?;
    let modified = about.modified().ok()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(modified.as_secs()).unwrap_or(i64::MAX);
    Some((0, 0, about.len(), seconds, i64::from(modified.subsec_nanos())))
}

/// The thread that reads certificates again. It ends when this is dropped.
#[derive(Debug)]
pub(in crate::server) struct Reloader {
    ask: Mutex<Option<Sender<()>>>,
    thread: Option<JoinHandle<()>>,
}

impl Reloader {
    /// `seen` is how the files looked before they were read.
    pub(super) fn start(shared: Arc<Shared>, seen: Fingerprint) -> io::Result<Self> {
        let (ask, asked) = mpsc::channel();
        let body = move || {
            let mut files = seen;
            let mut is_settling = false;
            loop {
                let is_due = match asked.recv_timeout(PERIOD) {
                    Ok(()) => {
                        files.refresh();
                        true
                    }
                    Err(RecvTimeoutError::Timeout) => {
                        let has_changed = files.refresh();
                        std::mem::replace(&mut is_settling, has_changed) && !has_changed
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                if is_due {
                    is_settling = false;
                    reload(&shared);
                }
            }
        };
        let thread = crate::thread::start("hw-certificates", Box::new(body))?;
        Ok(Reloader { ask: Mutex::new(Some(ask)), thread: Some(thread) })
    }

    /// Has the files read now.
    pub(in crate::server) fn ask(&self) {
        if let Some(ask) = &*self.ask.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = ask.send(());
        }
    }
}

impl Drop for Reloader {
    fn drop(&mut self) {
        self.ask.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn reload(shared: &Shared) {
    match shared.reload() {
        Ok(()) => tracing::info!("certificates reloaded; new connections use them"),
        Err(reason) => {
            tracing::warn!(
                reason,
                "the certificates could not be reloaded; the previous ones stay in use"
            );
        }
    }
}
