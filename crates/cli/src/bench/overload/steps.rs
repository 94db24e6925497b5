//! Loads that follow each other, or run beside each other, while the server's metrics are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::super::metrics::{Series, Watch};
use super::super::plan::{Cell, Plan, Step};
use super::super::reader::{Reader, rounded};
use super::super::record::{Measured, Overload, StepRow};
use super::super::sending::{POINT, Sending};
use super::super::server::Running;
use super::super::task::{Failed, Task};
use crate::load::Outcome;

/// The name of the series of answers in time.
pub(in super::super) const GOODPUT: &str = "goodput_per_s";
/// How often a waiting step checks whether the run is over.
const TICK: Duration = Duration::from_millis(50);
/// Signals are smoothed: the effect of a load on them lasts this long after its end.
const SETTLE: Duration = Duration::from_millis(600);

/// The result of one step.
struct Done {
    /// With a colon, for messages.
    name: String,
    /// Since the cell began.
    at: Duration,
    outcome: Outcome,
}

pub(super) fn measure(
    task: &Task<'_>,
    running: &mut Running,
    capacity: Option<f64>,
) -> Result<Measured, Failed> {
    let cell = task.cell;
    let reader =
        Arc::new(Reader::new(running.processes(), task.cpus, task.background, Arc::default()));
    let began = Instant::now();
    let watched = running.metrics.clone().filter(|_| !cell.samples.is_empty());
    let watch = watched.map(|metrics| Watch::start(metrics, cell.samples.clone(), began));
    reader.read();
    let done = all(task, running.load_port(cell), capacity.unwrap_or(0.0), began);
    reader.read();
    std::thread::sleep(SETTLE);
    let series = watch.map_or_else(Series::new, Watch::stop);
    let done = done?;
    let loads: Vec<(&str, &Outcome)> =
        done.iter().map(|done| (done.name.as_str(), &done.outcome)).collect();
    super::in_time(&loads, &reader)?;
    let mut row = Overload { series, ..Overload::default() };
    row.peaks_per_s.extend(capacity);
    super::add_server_metrics(running, &mut row);
    // Where some requests may be refused, the server's count says nothing about the others.
    let some_may = cell.steps.iter().any(|step| step.may_be_refused);
    let counted = if some_may { Ok(0) } else { super::refusals_counted(running.metrics.as_ref()) };
    let mut outcomes = Vec::new();
    let mut points = Vec::new();
    for ((step, done), index) in cell.steps.iter().zip(done).zip(0..) {
        let name = name_of(step, index);
        let mut step_row = of_step(name, &done, &mut row.bottlenecks);
        let own = points_of(&done);
        points.extend_from_slice(&own);
        if has_neighbour(cell, task.plan, index) {
            step_row.points = own;
        }
        row.steps.push(step_row);
        outcomes.push(done.outcome);
    }
    points.sort_by(|a, b| a[0].total_cmp(&b[0]));
    row.series.insert(GOODPUT.to_owned(), points);
    let sum = |field: fn(&StepRow) -> u64| row.steps.iter().map(field).sum::<u64>();
    (row.sent, row.refused, row.timeouts) =
        (sum(|step| step.sent), sum(|step| step.refused), sum(|step| step.timeouts));
    let good: u64 = outcomes.iter().map(|outcome| outcome.tally.counts.good).sum();
    row.goodput_per_s = rounded(good as f64 / cell.duration(task.plan).0.as_secs_f64(), 1);
    let (sent, lost) = lost(task, &row);
    super::nothing_refused(task, sent, lost, || counted)?;
    super::whole(&reader, outcomes, row)
}

fn name_of(step: &Step, index: usize) -> String {
    if step.name.is_empty() { format!("step {}", index + 1) } else { step.name.clone() }
}

/// Whether another step runs beside this one, so that the points of the cell are not those of this step alone.
fn has_neighbour(cell: &Cell, plan: &Plan, index: usize) -> bool {
    let span = |index: usize| (cell.steps[index].at.0, cell.end_of(index, plan).0);
    let (begin, end) = span(index);
    let mut others = (0..cell.steps.len()).filter(|&other| other != index).map(span);
    others.any(|(from, to)| from < end && begin < to)
}

/// The number of requests that could be answered, and how many of them were not.
fn lost(task: &Task<'_>, row: &Overload) -> (u64, u64) {
    let held = row.steps.iter().zip(&task.cell.steps).filter(|(_, step)| !step.may_be_refused);
    held.fold((0, 0), |(sent, lost), (done, _)| {
        (sent + done.sent, lost + done.sent - done.ok.min(done.sent))
    })
}

/// Runs all steps, each on its own thread.
fn all(task: &Task<'_>, port: u16, capacity: f64, began: Instant) -> Result<Vec<Done>, Failed> {
    let is_over = AtomicBool::new(false);
    // Only the fields that a thread needs: `Task` holds a function that other threads must not call.
    let (plan, cell, network) = (task.plan, task.cell, task.network);
    let threads = task.cpus.client.len();
    let results: Vec<Result<Done, Failed>> = std::thread::scope(|scope| {
        let started: Vec<_> = (cell.steps.iter().enumerate())
            .map(|(index, step)| {
                let is_over = &is_over;
                scope.spawn(move || {
                    let rate = step.rate + step.load * capacity;
                    let duration = cell.end_of(index, plan).0.saturating_sub(step.at.0);
                    let sending = Sending::of_step(plan, cell, step, rate, duration);
                    wait(began + step.at.0, is_over)?;
                    let at = began.elapsed();
                    let outcome = sending.send(network, port, threads, Box::new(|_| ()));
                    let outcome =
                        outcome.map_err(|problem| Failed::Void(format!("load: {problem}")))?;
                    if outcome.interrupted {
                        is_over.store(true, Ordering::Relaxed);
                        return Err(Failed::Interrupted);
                    }
                    Ok(Done { name: format!("{}: ", name_of(step, index)), at, outcome })
                })
            })
            .collect();
        let joined = started.into_iter().map(|thread| thread.join());
        joined
            .map(|result| {
                result.unwrap_or_else(|_| Err(Failed::Void("load: a step panicked".to_owned())))
            })
            .collect()
    });
    if results.iter().any(|result| matches!(result, Err(Failed::Interrupted))) {
        return Err(Failed::Interrupted);
    }
    results.into_iter().collect()
}

fn wait(until: Instant, is_over: &AtomicBool) -> Result<(), Failed> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if is_over.load(Ordering::Relaxed) {
            return Err(Failed::Interrupted);
        }
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(TICK));
    }
}

fn of_step(name: String, done: &Done, bottlenecks: &mut Vec<String>) -> StepRow {
    let outcome = &done.outcome;
    let counts = &outcome.tally.counts;
    let latency =
        |quantile| rounded(outcome.tally.latency.quantile(quantile).unwrap_or(0) as f64 / 1e3, 1);
    let span = outcome.span.as_secs_f64();
    bottlenecks.extend(super::client_problems(outcome, &format!("{name}: ")));
    StepRow {
        name,
        begin_s: rounded(done.at.as_secs_f64(), 3),
        end_s: rounded(done.at.as_secs_f64() + span, 3),
        rate: rounded(outcome.tally.asked as f64 / span.max(1e-9), 1),
        sent: counts.sent,
        ok: counts.ok,
        goodput_per_s: super::goodput(outcome),
        refused: counts.refused + counts.resets,
        timeouts: counts.timeouts,
        non_2xx: counts.non_2xx,
        errors: counts.errors() - counts.resets,
        p50_us: latency(0.5),
        p99_us: latency(0.99),
        max_us: latency(1.0),
        points: Vec::new(),
    }
}

/// Answers in time per second; a point stands for the moment at which it ends.
fn points_of(done: &Done) -> Vec<[f64; 2]> {
    let step = POINT.as_secs_f64();
    let whole = (done.outcome.span.as_secs_f64() / step).round() as usize;
    let points = done.outcome.tally.measured_series().iter().take(whole).zip(1_u32..);
    points
        .map(|(counts, number)| {
            let at = done.at.as_secs_f64() + f64::from(number) * step;
            [rounded(at, 3), counts.good as f64 / step]
        })
        .collect()
}
