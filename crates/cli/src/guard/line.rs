//! What is the guard doing, in one line?
//!
//! On a terminal: one line that is redrawn. Into a file or a journal: one line every ten seconds.
//! With `--json`: one object per second, for programs.
//!
//! A thread writes the lines. While the reader of standard output does not read, or a terminal is stopped, lines are dropped:
//! the guard keeps guarding.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use highwater_core::time::Instant;
use serde_json::json;

use super::report::Report;

/// How often, for each kind of output.
const TERMINAL: Duration = Duration::from_millis(250);
const JOURNAL: Duration = Duration::from_secs(10);
const MACHINE: Duration = Duration::from_secs(1);

/// The longest line that is redrawn in place; a longer one would scroll. In characters.
const COLUMNS: usize = 79;

/// Lines that wait to be written; further ones are dropped. A guess: old lines tell nothing about this moment.
const WAITING_MAX: usize = 4;

/// Writes a line from time to time.
#[derive(Debug)]
pub(crate) struct Line {
    form: Form,
    due: Instant,
    /// To the thread that writes.
    lines: SyncSender<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Terminal,
    Journal,
    Machine,
}

impl Line {
    /// # Errors
    /// The system starts no further thread.
    pub(crate) fn new(is_json: bool, now: Instant) -> io::Result<Self> {
        let form = match (is_json, io::stdout().is_terminal()) {
            (true, _) => Form::Machine,
            (false, true) => Form::Terminal,
            (false, false) => Form::Journal,
        };
        let (lines, waiting) = sync_channel(WAITING_MAX);
        thread::Builder::new().name("guard-line".to_owned()).spawn(move || write(&waiting))?;
        Ok(Line { form, due: now, lines })
    }

    /// Writes the line if it is time.
    pub(crate) fn show(&mut self, now: Instant, report: &Report) {
        if now < self.due {
            return;
        }
        let (period, line) = match self.form {
            Form::Terminal => (TERMINAL, format!("\r\x1b[K{:.*}", COLUMNS, text(report))),
            Form::Journal => (JOURNAL, text(report) + "\n"),
            Form::Machine => (MACHINE, json(report) + "\n"),
        };
        self.due = now + period;
        let _ = self.lines.try_send(line);
    }

    /// Makes room for other output: the next line is drawn below it.
    pub(crate) fn make_room(&mut self) {
        if self.form == Form::Terminal {
            let _ = self.lines.try_send("\r\x1b[K".to_owned());
        }
    }
}

/// Writes lines until there are no more. A line that cannot be written is dropped.
fn write(lines: &Receiver<String>) {
    for line in lines {
        let mut stdout = io::stdout().lock();
        let _ = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush());
    }
}

/// A quantity, unless it is not known.
fn known(value: Option<impl std::fmt::Display>) -> String {
    value.map_or_else(|| "unknown".to_owned(), |value| value.to_string())
}

fn text(report: &Report) -> String {
    if report.counted.listeners == 0 {
        return format!("limit {} · nothing listens on the port", report.limit);
    }
    let rate = |rate: f64| format!("{rate:.0}/s");
    format!(
        "limit {} · in flight {} · in {} · refused {} · done {} · waits {} · source {}",
        report.limit,
        known(report.in_flight),
        known(report.rates.admitted.map(rate)),
        rate(report.rates.refused),
        known(report.rates.completed.map(rate)),
        known(report.waited.map(|waited| format!("{} ms", waited.as_millis()))),
        report.source.name(),
    )
}

pub(crate) fn json(report: &Report) -> String {
    let round = |value: f64| (value * 10.0).round() / 10.0;
    json!({
        "listening": report.counted.listeners > 0,
        "limit": report.limit,
        "in_flight": report.in_flight,
        "idle": report.counted.idle,
        "admitted_total": report.counted.admitted,
        "refused_total": report.counted.refused,
        "completed_total": report.counted.completed,
        "admitted_per_s": report.rates.admitted.map(round),
        "refused_per_s": round(report.rates.refused),
        "completed_per_s": report.rates.completed.map(round),
        "queue_delay_ms": report.waited.map(|waited| round(waited.as_secs_f64() * 1e3)),
        "saturation_ratio": report.signals.saturation_ratio,
        "demand_ratio": report.signals.demand_ratio,
        "needs_scaleout": report.signals.needs_scaleout,
        "source": report.source.name(),
        "source_detail": report.source.to_string(),
        "mechanism": report.mechanism,
        "limiter": report.limiter,
    })
    .to_string()
}
