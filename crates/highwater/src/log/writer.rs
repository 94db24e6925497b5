//! How does a line get out without keeping anybody waiting?
//!
//! A thread writes; whoever logs only puts the line into a bounded queue. If the reader of standard
//! error is slower than that, lines are dropped, counted, and the count is written once there is
//! room again. The thread ends when its writer is stopped.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use highwater_sys::capability::{self, Capability};

use super::line::{self, Level, Value};

/// Most lines that wait to be written; beyond it, new ones are dropped.
const LINES_MAX: usize = 1024;

/// Gets lines out.
pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    out: Mutex<Box<dyn Write + Send>>,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<String>,
    /// Since the last line that was written.
    dropped: u64,
    /// What was taken from the queue is not out yet.
    writing: bool,
    /// The thread ends when all is written.
    stopped: bool,
}

impl Writer {
    /// Starts the thread that writes to `out`. If the system starts no further thread, whoever logs
    /// writes: then logging may wait, but it works.
    pub(super) fn start(out: Box<dyn Write + Send>) -> Self {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            out: Mutex::new(out),
        });
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new().name("highwater-log".to_owned());
        let thread = thread.spawn(move || theirs.run()).ok();
        Writer { shared, thread }
    }

    /// Takes on a line, which includes its end.
    pub(super) fn write(&self, line: String) {
        if self.thread.is_none() {
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

    /// Ends once everything taken on is written, for which it waits for `patience` at most: what a stuck
    /// reader keeps from being written by then is written when it goes on.
    pub(super) fn stop(&mut self, patience: Duration) {
        self.flush(patience);
        let mut queue = self.shared.queue();
        queue.stopped = true;
        let is_done = !queue.writing && queue.lines.is_empty();
        drop(queue);
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && is_done
        {
            // It does not panic.
            let _ = thread.join();
        }
    }

    /// Waits until everything taken on so far is written, for `patience` at most.
    pub(super) fn flush(&self, patience: Duration) {
        let unwritten = |queue: &mut Queue| queue.writing || !queue.lines.is_empty();
        let queue = self.shared.queue();
        drop(self.shared.changed.wait_timeout_while(queue, patience, unwritten));
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, line: &str) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // A failure to log has nowhere to be told.
        let _ = out.write_all(line.as_bytes());
    }

    fn run(&self) {
        // It needs no rights. Where the system forbids to give them up, the workers say so.
        let _ = capability::give_up(&Capability::ALL);
        let mut queue = self.queue();
        loop {
            while queue.lines.is_empty() {
                if queue.stopped {
                    return;
                }
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            let mut lines = std::mem::take(&mut queue.lines);
            if queue.dropped > 0 {
                lines.push_back(dropped(std::mem::take(&mut queue.dropped)));
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

fn dropped(count: u64) -> String {
    let mut line =
        line::begin(super::format(), super::now(), Level::Warn, "log lines were dropped");
    line.field("count", &Value::from(count));
    line.end()
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

    /// Purpose: while nobody reads, logging goes on without waiting, within bounded memory; what is
    /// lost is owned up to.
    #[test]
    fn a_stuck_reader_stops_nobody() {
        let (allow, allowed) = mpsc::channel();
        let (taken, lines) = mpsc::channel();
        let writer = Writer::start(Box::new(Reluctant { allowed, taken }));
        writer.write("first\n".to_owned());
        // Until the thread holds the first line, it still has a place in the queue.
        while !writer.shared.queue().writing {
            thread::yield_now();
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
        assert!(lines[LINES_MAX + 1].ends_with("WARN  log lines were dropped count=3\n"));
    }

    /// Purpose: a writer that is stopped has written everything, and leaves no thread behind.
    #[test]
    fn stopping_writes_everything() {
        let (allow, allowed) = mpsc::channel();
        let (taken, lines) = mpsc::channel();
        let mut writer = Writer::start(Box::new(Reluctant { allowed, taken }));
        for _ in 0..3 {
            allow.send(()).expect("the thread lives");
            writer.write("a line\n".to_owned());
        }
        writer.stop(Duration::from_secs(20));
        assert_eq!(lines.try_iter().count(), 3);
        assert!(writer.thread.is_none() && Arc::strong_count(&writer.shared) == 1);
    }

    /// Purpose: a reader that is stuck for good delays the end of the process no more than allowed.
    #[test]
    fn flushing_gives_up() {
        let (_allow, allowed) = mpsc::channel();
        let (taken, lines) = mpsc::channel();
        let writer = Writer::start(Box::new(Reluctant { allowed, taken }));
        writer.write("first\n".to_owned());
        writer.flush(Duration::from_millis(1));
        assert!(lines.try_recv().is_err());
    }
}
