//! Results from several rows of a record: the law beside each share, each step beside the best fixed limit, and the
//! times at which signals rose. Pure.

use serde::Serialize;

use super::super::plan::Cell;
use super::super::record::{Measured, Overload, Record, Row, StepRow};
use super::super::stats::{self, Rules, median};
use super::steps::GOODPUT;
use super::{law, own_peak, rounded};

/// Goodput at a moment is the mean over this many seconds before it, so a time of convergence includes this.
const WINDOW_S: f64 = 0.3;
/// The end of a step, whose last point is incomplete.
const CUT_S: f64 = 0.15;

/// The figures of a row that counts.
fn overload(row: &Row, rules: Rules) -> Option<&Overload> {
    stats::rejection(row, rules).is_none().then_some(row.measured.as_ref()?.overload.as_ref()?)
}

/// Writes the law's value into each row, from the costs of refusals that the record has so far.
pub(in super::super) fn note_law(record: &mut Record) {
    let costs = refusals(record);
    for row in &mut record.cells {
        let cost = costs.iter().find(|(server, _)| *server == row.server).map(|(_, cost)| cost[1]);
        let Some(row) = row.measured.as_mut().and_then(|row| row.overload.as_mut()) else {
            continue;
        };
        let peak = own_peak(&row.peaks_per_s);
        row.law = row.load.zip(cost).map(|(k, cost)| rounded(law::share(k, cost * peak / 1e6), 4));
    }
}

/// CPU time of a refusal by server, in microseconds: least, middle, greatest of the rounds.
pub(in super::super) fn refusals(record: &Record) -> Vec<(String, [f64; 3])> {
    let rules = Rules::of(record);
    let of = |server: &str| {
        let rows = record.cells.iter().filter(|row| row.server == server);
        let costs: Vec<f64> = rows
            .filter_map(|row| overload(row, rules))
            .filter_map(|row| row.cpu_us_per_refusal)
            .collect();
        law::spread(&costs)
    };
    let servers = record.plan.servers.iter();
    servers.filter_map(|server| Some((server.name.clone(), of(&server.name)?))).collect()
}

/// The results of a server under a load: medians over the rounds.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct Goodput {
    pub(in super::super) cell: String,
    pub(in super::super) server: String,
    pub(in super::super) rounds: usize,
    /// In capacities of the server.
    pub(in super::super) load: Option<f64>,
    pub(in super::super) goodput_per_s: Option<f64>,
    pub(in super::super) of_peak: Option<f64>,
    pub(in super::super) law: Option<f64>,
    pub(in super::super) p50_us: Option<f64>,
    pub(in super::super) p99_us: Option<f64>,
    pub(in super::super) refused_per_s: Option<f64>,
    pub(in super::super) non_2xx_per_s: Option<f64>,
    pub(in super::super) timeouts_per_s: Option<f64>,
    pub(in super::super) softirq: Option<f64>,
    pub(in super::super) limit: Option<f64>,
}

/// All cells with a load and without steps, in the plan's order.
pub(in super::super) fn goodputs(record: &Record) -> Vec<Goodput> {
    let is_plain =
        |cell: &&Cell| cell.is_overload() && cell.steps.is_empty() && cell.refusal.is_none();
    let servers = &record.plan.servers;
    let cells = record.plan.cells.iter().filter(is_plain);
    cells
        .flat_map(|cell| servers.iter().map(|server| (&cell.name, &server.name)))
        .filter_map(|(cell, server)| goodput(record, cell, server))
        .collect()
}

fn goodput(record: &Record, cell: &str, server: &str) -> Option<Goodput> {
    let rows = record.cells.iter().filter(|row| row.cell == cell && row.server == server);
    let rules = Rules::of(record);
    let rows: Vec<(&Measured, &Overload)> =
        rows.filter_map(|row| Some((row.measured.as_ref()?, overload(row, rules)?))).collect();
    let middle = |of: &dyn Fn(&Measured, &Overload) -> Option<f64>| {
        median(&rows.iter().filter_map(|(row, more)| of(row, more)).collect::<Vec<_>>())
    };
    let per_s = |count: u64, row: &Measured| Some(count as f64 / row.seconds.max(1e-9));
    (!rows.is_empty()).then(|| Goodput {
        cell: cell.to_owned(),
        server: server.to_owned(),
        rounds: rows.len(),
        load: middle(&|_, more| more.load),
        goodput_per_s: middle(&|_, more| Some(more.goodput_per_s)),
        of_peak: middle(&|_, more| more.goodput_of_peak),
        law: middle(&|_, more| more.law),
        p50_us: middle(&|row, _| Some(row.p50_us)),
        p99_us: middle(&|row, _| Some(row.p99_us)),
        refused_per_s: middle(&|row, more| per_s(more.refused, row)),
        non_2xx_per_s: middle(&|row, _| per_s(row.non_2xx, row)),
        timeouts_per_s: middle(&|row, more| per_s(more.timeouts, row)),
        softirq: middle(&|_, more| Some(more.softirq)),
        limit: middle(&|_, more| more.limit),
    })
}

/// A step of a cell: one server's medians over the rounds, beside the best of the servers it is compared with.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(in super::super) struct StepVerdict {
    pub(in super::super) cell: String,
    pub(in super::super) server: String,
    pub(in super::super) step: String,
    pub(in super::super) rounds: usize,
    pub(in super::super) sent: u64,
    /// Without a 2xx.
    pub(in super::super) lost: u64,
    pub(in super::super) max_us: f64,
    pub(in super::super) p99_us: f64,
    /// In the second half of the step.
    pub(in super::super) goodput_per_s: Option<f64>,
    /// The best of the servers that the cell names, and its goodput.
    pub(in super::super) best: Option<String>,
    pub(in super::super) of_best: Option<f64>,
    /// Time until goodput is within 5 % of the best and stays so, in the slowest round; `None` if a round never was.
    pub(in super::super) after_s: Option<f64>,
    pub(in super::super) swing: Option<f64>,
}

/// A metric during a step: medians over the rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(in super::super) struct Signal {
    pub(in super::super) cell: String,
    pub(in super::super) server: String,
    pub(in super::super) step: String,
    pub(in super::super) metric: String,
    pub(in super::super) least: f64,
    /// In the second half of the step.
    pub(in super::super) settled: Option<f64>,
    pub(in super::super) most: f64,
    /// Time from the step's beginning until it was not zero, in the slowest round.
    pub(in super::super) raised_after_s: Option<f64>,
    /// Time until it was zero again for good.
    pub(in super::super) cleared_after_s: Option<f64>,
    /// How often it went from zero to not zero, all rounds together.
    pub(in super::super) rises: usize,
}

fn half_of(step: &StepRow) -> (f64, f64) {
    (f64::midpoint(step.begin_s, step.end_s), step.end_s - CUT_S)
}

/// The step's own points; those of the cell if no step runs beside it.
fn goodput_of<'a>(row: &'a Overload, step: &'a StepRow) -> &'a [[f64; 2]] {
    match &step.points[..] {
        [] => row.series.get(GOODPUT).map_or(&[], Vec::as_slice),
        own => own,
    }
}

/// Mean goodput in the second half of a step.
fn settled(row: &Overload, step: &StepRow) -> Option<f64> {
    let (half, end) = half_of(step);
    let values = law::within(goodput_of(row, step), half, end);
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// All steps of all cells, in the plan's order.
pub(in super::super) fn steps(record: &Record) -> Vec<StepVerdict> {
    let cells = record.plan.cells.iter().filter(|cell| !cell.steps.is_empty());
    cells
        .flat_map(|cell| (0..cell.steps.len()).flat_map(|step| of_step(record, cell, step)))
        .collect()
}

/// The rows of one server in one cell, each with its step `index`.
fn rows_of<'a>(
    record: &'a Record,
    cell: &str,
    server: &str,
    index: usize,
) -> Vec<(&'a Overload, &'a StepRow)> {
    let rows = record.cells.iter().filter(|row| row.cell == cell && row.server == server);
    let rules = Rules::of(record);
    rows.filter_map(|row| overload(row, rules))
        .filter_map(|row| Some((row, row.steps.get(index)?)))
        .collect()
}

fn of_step(record: &Record, cell: &Cell, index: usize) -> Vec<StepVerdict> {
    let rows = |server: &str| rows_of(record, &cell.name, server, index);
    let middle = |server: &str| {
        let each = rows(server).into_iter().filter_map(|(row, step)| settled(row, step));
        median(&each.collect::<Vec<_>>())
    };
    let marks = cell.best_of.iter().filter_map(|server| Some((server, middle(server)?)));
    let best = marks.max_by(|a, b| a.1.total_cmp(&b.1));
    let target = best.map_or(0.0, |(_, target)| target);
    let servers = record.plan.servers.iter().map(|server| (server, rows(&server.name)));
    servers
        .filter(|(_, rows)| !rows.is_empty())
        .map(|(server, rows)| {
            let each = |of: &dyn Fn(&Overload, &StepRow) -> Option<f64>| -> Vec<Option<f64>> {
                rows.iter().map(|(row, step)| of(row, step)).collect()
            };
            let known = |values: Vec<Option<f64>>| values.into_iter().flatten().collect::<Vec<_>>();
            let after = each(&|row, step| {
                let goodput = law::smoothed(goodput_of(row, step), WINDOW_S);
                law::converged_after(&goodput, step.begin_s, step.end_s - CUT_S, target)
            });
            let swing = each(&|row, step| {
                let (half, end) = half_of(step);
                law::swing(law::within(&law::smoothed(goodput_of(row, step), WINDOW_S), half, end))
            });
            let goodput = middle(&server.name);
            let sent = rows.iter().map(|(_, step)| step.sent).sum();
            let ok: u64 = rows.iter().map(|(_, step)| step.ok).sum();
            let most =
                |of: fn(&StepRow) -> f64| rows.iter().map(|(_, step)| of(step)).fold(0.0, f64::max);
            StepVerdict {
                cell: cell.name.clone(),
                server: server.name.clone(),
                step: rows[0].1.name.clone(),
                rounds: rows.len(),
                sent,
                lost: sent - ok.min(sent),
                max_us: most(|step| step.max_us),
                p99_us: most(|step| step.p99_us),
                goodput_per_s: goodput,
                best: best.map(|(server, _)| server.clone()),
                of_best: goodput.filter(|_| target > 0.0).map(|goodput| goodput / target),
                // One round that never converges is the result, however quick the others were.
                after_s: (target > 0.0 && after.iter().all(Option::is_some))
                    .then(|| known(after).into_iter().fold(0.0, f64::max)),
                swing: median(&known(swing)),
            }
        })
        .collect()
}

/// Each sampled metric in each step.
pub(in super::super) fn signals(record: &Record) -> Vec<Signal> {
    let mut found = Vec::new();
    for cell in record.plan.cells.iter().filter(|cell| !cell.samples.is_empty()) {
        for index in 0..cell.steps.len() {
            for server in &record.plan.servers {
                let rows = rows_of(record, &cell.name, &server.name, index);
                found.extend(
                    cell.samples
                        .iter()
                        .filter_map(|metric| signal(&cell.name, &server.name, metric, &rows)),
                );
            }
        }
    }
    found
}

fn signal(
    cell: &str,
    server: &str,
    metric: &str,
    rows: &[(&Overload, &StepRow)],
) -> Option<Signal> {
    let mut values = Vec::new();
    let (mut middles, mut raised, mut cleared) = (Vec::new(), Vec::new(), Vec::new());
    let mut rises = 0;
    for (row, step) in rows {
        let series = row.series.get(metric)?;
        let (begin, end) = (step.begin_s, step.end_s);
        let inside = law::within(series, begin, end);
        rises += law::rises(&inside);
        values.extend(inside);
        middles.extend(median(&law::within(series, half_of(step).0, end)));
        raised.push(law::raised_after(series, begin, end));
        cleared.push(law::cleared_after(series, begin, end));
    }
    let [least, _, most] = law::spread(&values)?;
    let slowest = |each: Vec<Option<f64>>| {
        let all = each.into_iter().collect::<Option<Vec<f64>>>()?;
        all.into_iter().reduce(f64::max)
    };
    Some(Signal {
        cell: cell.to_owned(),
        server: server.to_owned(),
        step: rows.first()?.1.name.clone(),
        metric: metric.to_owned(),
        least,
        settled: median(&middles),
        most,
        raised_after_s: slowest(raised),
        cleared_after_s: slowest(cleared),
        rises,
    })
}
