//! How is a line written without making its author wait?
//!
//! A thread writes; logging only puts the line into a bounded queue. If the reader of standard error is
//! slower than that, lines are dropped, counted, and the count is written once there is room again. The
//! thread starts with the first line, and lives as long as the process.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use highwater_sys::capability::{self, Capability};

/// Most lines that wait to be written; beyond it, new ones are dropped.
const LINES_MAX: usize = 1024;

/// Writes lines.
pub(super) struct Writer {
    shared: Arc<Shared>,
    /// Whether there is a thread, once one was wanted.
    thread: OnceLock<bool>,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    out: Mutex<Box<dyn Write + Send>>,
    /// The line that says how many were dropped.
    dropped: Box<dyn Fn(u64) -> String + Send + Sync>,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<String>,
    /// Since the last line that was written.
    dropped: u64,
    /// A line taken from the queue is not written yet.
    writing: bool,
}

impl Writer {
    /// Writes to `out`, and reports with `dropped` how many lines are missing.
    pub(super) fn new(
        out: Box<dyn Write + Send>,
        dropped: Box<dyn Fn(u64) -> String + Send + Sync>,
    ) -> Self {
        let shared = Shared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            out: Mutex::new(out),
            dropped,
        };
        Writer { shared: Arc::new(shared), thread: OnceLock::new() }
    }

    /// Queues a line, which includes its end. If the system starts no further thread, the caller writes it:
    /// then logging may wait, but it works.
    pub(super) fn write(&self, line: String) {
        if !self.thread.get_or_init(|| self.start()) {
            return self.shared.write(&line);
        }
        let mut queue = self.shared.queue();
        if queue.lines.len() < LINES_MAX {
            queue.lines.push_back(line);
            self.shared.changed.notify_all();
        } else {
            queue.dropped += 1;
        }
    }

    fn start(&self) -> bool {
        let shared = Arc::clone(&self.shared);
        crate::thread::start("highwater-log", Box::new(move || shared.run())).is_ok()
    }

    /// Waits until every line queued so far is written, for `patience` at most.
    pub(super) fn flush(&self, patience: Duration) {
        let unwritten = |queue: &mut Queue| queue.writing || !queue.lines.is_empty();
        let queue = self.shared.queue();
        drop(self.shared.changed.wait_timeout_while(queue, patience, unwritten));
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, line: &str) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // A failure to log cannot be reported.
        let _ = out.write_all(line.as_bytes());
    }

    fn run(&self) {
        // It needs no capabilities. If dropping them fails, the workers log that.
        let _ = capability::give_up(&Capability::ALL);
        let mut queue = self.queue();
        loop {
            while queue.lines.is_empty() {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            let mut lines = std::mem::take(&mut queue.lines);
            if queue.dropped > 0 {
                lines.push_back((self.dropped)(std::mem::take(&mut queue.dropped)));
            }
            queue.writing = true;
            drop(queue);
            lines.iter().for_each(|line| self.write(line));
            queue = self.queue();
            queue.writing = false;
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::mpsc::{self, Receiver, Sender};

    use super::*;

    /// Takes a line when the test allows it to.
    struct Reluctant {
        allowed: Receiver<()>,
        taken: Sender<String>,
    }

    impl Write for Reluctant {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.allowed.recv().map_err(io::Error::other)?;
            let line = String::from_utf8_lossy(bytes).into_owned();
            self.taken.send(line).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn writer(allowed: Receiver<()>, taken: Sender<String>) -> Writer {
        let dropped = |count| format!("dropped {count}\n");
        Writer::new(Box::new(Reluctant { allowed, taken }), Box::new(dropped))
    }

    /// Purpose: while standard error is not read, logging continues without waiting, within bounded memory;
    /// lost lines are reported.
    #[test]
    fn a_stuck_reader_stops_nobody() {
        let (allow, allowed) = mpsc::channel();
        let (taken, lines) = mpsc::channel();
        let writer = writer(allowed, taken);
        writer.write("first\n".to_owned());
        // Until the thread holds the first line, it still has a place in the queue.
        while !writer.shared.queue().writing {
            std::thread::yield_now();
        }
        for number in 0..LINES_MAX + 3 {
            writer.write(format!("{number}\n"));
        }
        for _ in 0..LINES_MAX + 2 {
            allow.send(()).expect("the thread lives");
        }
        writer.flush(Duration::MAX);
        let lines: Vec<String> = lines.try_iter().collect();
        assert_eq!(lines.len(), LINES_MAX + 2);
        assert_eq!((&*lines[0], &*lines[1]), ("first\n", "0\n"));
        assert_eq!(lines[LINES_MAX], format!("{}\n", LINES_MAX - 1));
        assert_eq!(lines[LINES_MAX + 1], "dropped 3\n");
    }

    /// Purpose: a reader that is stuck for good delays the end of the process no more than allowed.
    #[test]
    fn flushing_gives_up() {
        let (_allow, allowed) = mpsc::channel();
        let (taken, lines) = mpsc::channel();
        let writer = writer(allowed, taken);
        writer.write("first\n".to_owned());
        writer.flush(Duration::from_millis(1));
        assert!(lines.try_recv().is_err());
    }
}
