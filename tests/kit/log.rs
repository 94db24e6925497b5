//! What has a program said?

use std::io::{BufRead as _, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::PATIENCE;

/// How long the last lines of a program that has ended may take.
const LAST_LINES: Duration = Duration::from_secs(5);

/// The lines that a program has written to standard error, as they come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<(Mutex<Lines>, Condvar)>);

#[derive(Debug, Default)]
struct Lines {
    all: Vec<String>,
    /// How many of them were looked at.
    seen: usize,
    has_ended: bool,
}

impl Log {
    /// Reads `stderr` on a thread of its own, to its end.
    pub(crate) fn of(stderr: impl Read + Send + 'static) -> Log {
        let log = Log::default();
        let writer = log.clone();
        thread::spawn(move || {
            // What is not a text is shown as well as it can be: a program that dies may write anything.
            for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line);
                writer.update(|lines| lines.all.push(line.trim_end_matches('\r').to_owned()));
            }
            writer.update(|lines| lines.has_ended = true);
        });
        log
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut Lines)) {
        change(&mut self.lines());
        self.0.1.notify_all();
    }

    /// Everything.
    pub(crate) fn log(&self) -> String {
        self.lines().all.join("\n")
    }

    /// Waits until its last line is here: the program has ended, but its lines come by another thread. Not for long, as a
    /// process that it has started may keep its standard error open.
    pub(crate) fn wait_for_end(&self) {
        let is_open = |lines: &mut Lines| !lines.has_ended;
        drop(self.0.1.wait_timeout_while(self.lines(), LAST_LINES, is_open));
    }

    /// Takes everything so far for seen.
    pub(crate) fn skip(&self) {
        let mut lines = self.lines();
        lines.seen = lines.all.len();
    }

    /// The next line that satisfies `wanted`; lines up to it count as seen. `None` if none comes within [`PATIENCE`], or
    /// no line can come any more.
    pub(crate) fn wait_for(&self, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let until = Instant::now() + PATIENCE;
        let mut lines = self.lines();
        loop {
            while let Some(line) = lines.all.get(lines.seen).cloned() {
                lines.seen += 1;
                if wanted(&line) {
                    return Some(line);
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if lines.has_ended || left.is_zero() {
                return None;
            }
            let waited = self.0.1.wait_timeout(lines, left);
            lines = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
