//! A progress line on a terminal; no output elsewhere.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// How often the line is drawn.
const PERIOD: Duration = Duration::from_millis(100);

/// Progress towards a known number.
pub(crate) struct Progress {
    what: &'static str,
    total: u64,
    began: Instant,
    drawn: Instant,
    visible: bool,
}

impl Progress {
    pub(crate) fn new(what: &'static str, total: u64) -> Self {
        let now = Instant::now();
        Progress { what, total, began: now, drawn: now, visible: stderr().is_terminal() }
    }

    /// Draws the line if it is time.
    pub(crate) fn set(&mut self, done: u64) {
        if !self.visible || self.drawn.elapsed() < PERIOD {
            return;
        }
        self.drawn = Instant::now();
        let share = done as f64 / self.total.max(1) as f64;
        let left = self.began.elapsed().mul_f64((1.0 - share).max(0.0) / share.max(1e-9));
        let bar: String =
            (0..30).map(|at| if f64::from(at) < share * 30.0 { '#' } else { '.' }).collect();
        let line = format!(
            "\r{} [{bar}] {done}/{} {:.0} s left ",
            self.what,
            self.total,
            left.as_secs_f64()
        );
        // The work continues even if the terminal is gone.
        let _ = stderr().write_all(line.as_bytes());
    }

    /// Clears the line.
    pub(crate) fn finish(self) {
        if self.visible {
            let _ = stderr().write_all(b"\r\x1b[K");
        }
    }
}
