//! What is the guard doing, in one line?
//!
//! On a terminal: one line that is redrawn. Into a file or a journal: one line every ten seconds.
//! With `--json`: one object per second, for programs.
//!
//! If the output cannot be written, the guard keeps guarding and drops the line.

use std::io::{self, IsTerminal, Write};
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

/// Writes a line from time to time.
#[derive(Debug)]
pub(crate) struct Line {
    form: Form,
    due: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Terminal,
    Journal,
    Machine,
}

impl Line {
    pub(crate) fn new(is_json: bool, now: Instant) -> Self {
        let form = match (is_json, io::stdout().is_terminal()) {
            (true, _) => Form::Machine,
            (false, true) => Form::Terminal,
            (false, false) => Form::Journal,
        };
        Line { form, due: now }
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
        let mut stdout = io::stdout().lock();
        let _ = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush());
    }

    /// Makes room for other output: the next line is drawn below it.
    pub(crate) fn make_room(&mut self) {
        if self.form == Form::Terminal {
            let _ = io::stdout().lock().write_all(b"\r\x1b[K");
        }
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
        rate(report.rates.admitted),
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
        "admitted_per_s": round(report.rates.admitted),
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
