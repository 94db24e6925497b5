//! Runs a plan: what is measured when, what is measured again, and where it is kept.
//!
//! ```text
//!  A/A: rounds × cells × the first server twice ─▶ rounds × cells × servers ─▶ rounds again, where pairs are missing
//!            each round's cells, and each cell's servers, in random order; the record is saved after every row
//! ```
//! What is next follows from the plan and the rows there are, so a run that was killed goes on where it was.

use std::cell::Cell as Flag;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stderr};
use std::path::Path;
use std::time::{Duration, Instant};

use highwater_core::prng::Prng;
use highwater_sys::cpu;
use highwater_sys::signal::Signals;

use super::machine;
use super::network::Network;
use super::overload;
use super::plan::{Cell, Cpus, Plan, Server};
use super::record::{Noise, NoiseOfCell, Record, Row};
use super::stats::{self, Speeds};
use super::task::{Failed, Task};

/// Pairs that a comparison should have. A run goes on until it has them, or twice its rounds are over.
const PAIRS_ENOUGH: usize = 5;
/// How often a server may fail to start before it is not tried any more.
const STARTS_MAX: u32 = 2;
/// Rows take this much longer than they measure, until it is known better.
const ROW_EXTRA: Duration = Duration::from_millis(400);
/// How often progress is shown where it cannot be overwritten.
const SHOWN_EVERY: Duration = Duration::from_secs(5);

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Everything was measured.
    Complete,
    /// Some rows are void.
    SomeVoid,
    /// A signal came.
    Interrupted,
}

/// Runs what is missing in `record`, and saves it in `out` after every row. With `only`, only those cells.
///
/// # Errors
/// The record cannot be saved, or the CPUs cannot be used.
pub(super) fn run(
    record: &mut Record,
    cpus: &Cpus,
    network: Result<Network, String>,
    out: &Path,
    only: &[String],
) -> Result<Ended, String> {
    let signals = Signals::block().map_err(|error| format!("blocking signals: {error}"))?;
    // The client's threads, which this one starts, and everything else but the server stay on its CPUs.
    cpu::pin_thread_to(&cpus.client).map_err(|error| format!("client_cpus: {error}"))?;
    record.save(out)?;
    let plan = record.plan.clone();
    let cells: Vec<&Cell> =
        plan.cells.iter().filter(|cell| only.is_empty() || only.contains(&cell.name)).collect();
    let mut run = Run {
        progress: Progress::new(&plan, missing(record, &plan, &cells)),
        failures: BTreeMap::new(),
        is_over: Flag::new(false),
        signals,
        plan: &plan,
        cpus,
        network,
        out,
    };
    let ended = run.everything(record, &cells);
    run.progress.finish();
    ended?;
    Ok(match () {
        () if run.is_over.get() => Ended::Interrupted,
        () if record.rows().any(|row| !row.is_ok()) => Ended::SomeVoid,
        () => Ended::Complete,
    })
}

/// Rows that are still to be measured, without rounds that pairs may need.
fn missing(record: &Record, plan: &Plan, cells: &[&Cell]) -> usize {
    let servers =
        |cell: &Cell| plan.servers.iter().filter(|server| cell.is_for(&server.name)).count();
    // A cell that a claim is made in has an A/A run.
    let rows = |cell: &&Cell| {
        (servers(cell) + if cell.is_overload() { 0 } else { 2 }) * cell.rounds(plan) as usize
    };
    let all: usize = cells.iter().map(rows).sum();
    let is_asked = |row: &&Row| cells.iter().any(|cell| cell.name == row.cell);
    all.saturating_sub(record.rows().filter(is_asked).count())
}

struct Run<'a> {
    plan: &'a Plan,
    cpus: &'a Cpus,
    /// Or why there is none.
    network: Result<Network, String>,
    out: &'a Path,
    signals: Signals,
    is_over: Flag<bool>,
    /// Servers that did not start: how often, and why.
    failures: BTreeMap<String, (u32, String)>,
    progress: Progress,
}

impl Run<'_> {
    fn everything(&mut self, record: &mut Record, cells: &[&Cell]) -> Result<(), String> {
        let rounds = self.plan.rounds;
        for round in 0..2 * rounds {
            for cell in self.shuffled(round, "A/A", cells) {
                let rounds = cell.rounds(self.plan);
                let enough = pairs_aa(record, cell) >= PAIRS_ENOUGH.min(rounds as usize);
                let is_wanted = round < rounds || (!enough && round < 2 * rounds);
                if is_wanted && !cell.is_overload() && !self.pair(record, cell, round)? {
                    return Ok(());
                }
            }
        }
        for round in 0..2 * rounds {
            for cell in self.shuffled(round, "cells", cells) {
                for server in self.servers(record, cell, round) {
                    if !self.server(record, cell, &server, round)? {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// The first server twice, as if it were two. False if the run is over.
    fn pair(&mut self, record: &mut Record, cell: &Cell, round: u32) -> Result<bool, String> {
        let first = self.plan.servers.iter().find(|server| cell.is_for(&server.name));
        let Some(server) = first else { return Ok(true) };
        let of_round = |row: &&Row| row.cell == cell.name && row.round == round;
        let rows = &aa(record, self.plan).rows;
        for _ in rows.iter().filter(of_round).count()..2 {
            let Some(row) = self.row(cell, server, round) else { return Ok(false) };
            aa(record, self.plan).rows.push(row);
            note_noise(record);
            record.save(self.out)?;
        }
        Ok(true)
    }

    /// False if the run is over.
    fn server(
        &mut self,
        record: &mut Record,
        cell: &Cell,
        server: &str,
        round: u32,
    ) -> Result<bool, String> {
        let is_it = |row: &Row| row.cell == cell.name && row.server == server && row.round == round;
        if record.cells.iter().any(is_it) {
            return Ok(true);
        }
        let server = self.plan.servers.iter().find(|known| known.name == server);
        let Some(row) = server.and_then(|server| self.row(cell, server, round)) else {
            return Ok(false);
        };
        record.cells.push(row);
        overload::note_law(record);
        record.save(self.out)?;
        Ok(true)
    }

    /// The servers to measure in a round, in random order. After the plan's rounds: those that have too few pairs
    /// with the baseline, and the baseline.
    fn servers(&self, record: &Record, cell: &Cell, round: u32) -> Vec<String> {
        let names: Vec<&String> = self.plan.servers.iter().map(|server| &server.name).collect();
        let names: Vec<&String> = names.into_iter().filter(|name| cell.is_for(name)).collect();
        let mut chosen = names.clone();
        let rounds = cell.rounds(self.plan);
        if round >= rounds && (cell.is_overload() || round >= 2 * rounds) {
            chosen.clear();
        } else if round >= rounds {
            let speeds = Speeds::of(record.rows());
            let wanted = PAIRS_ENOUGH.min(rounds as usize);
            let is_void = |name: &str| {
                let mut rows = record.cells.iter().filter(|row| row.cell == cell.name);
                rows.any(|row| row.server == name && !row.is_ok())
            };
            chosen.retain(|name| {
                let pairs =
                    || stats::pairs(&record.cells, &cell.name, names[0], name, speeds).len();
                *name != names[0] && !is_void(names[0]) && !is_void(name) && pairs() < wanted
            });
            if !chosen.is_empty() {
                chosen.push(names[0]);
            }
        }
        self.shuffled(round, &cell.name, &chosen).into_iter().cloned().collect()
    }

    /// In an order of its own for each round and purpose, which the plan's seed decides.
    fn shuffled<T: Copy>(&self, round: u32, purpose: &str, items: &[T]) -> Vec<T> {
        let mix = |seed: u64, byte: u8| (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let bytes = purpose.bytes().chain(round.to_le_bytes());
        let mut items = items.to_vec();
        Prng::from_seed(bytes.fold(self.plan.seed, mix)).shuffle(&mut items);
        items
    }

    /// One row; `None` if the run is over.
    fn row(&mut self, cell: &Cell, server: &Server, round: u32) -> Option<Row> {
        if self.is_over() {
            return None;
        }
        self.progress.show(&format!("round {} {} {}", round + 1, cell.name, server.name));
        let mut row = Row {
            server: server.name.clone(),
            cell: cell.name.clone(),
            round,
            at: machine::now(),
            ..Row::default()
        };
        let result = match (&self.network, self.failures.get(&server.name)) {
            (Err(problem), _) => Err(Failed::Void(problem.clone())),
            (_, Some((STARTS_MAX, reason))) => {
                Err(Failed::Void(format!("not tried again: {reason}")))
            }
            (Ok(network), _) => {
                let (plan, cpus, is_over) = (self.plan, self.cpus, &|| self.is_over());
                Task { plan, server, cell, network, cpus, is_over }.measure()
            }
        };
        let reason = match result {
            Ok(measured) => {
                row.measured = Some(measured);
                None
            }
            Err(Failed::Interrupted) => {
                // The load may have taken the signal.
                self.is_over.set(true);
                return None;
            }
            Err(Failed::NotStarted(reason)) => {
                let known = self.failures.entry(server.name.clone()).or_default();
                *known = (known.0 + 1, reason.clone());
                Some(reason)
            }
            Err(Failed::Void(reason)) => Some(reason),
        };
        row.status = if reason.is_none() { "ok" } else { "void" }.to_owned();
        row.reason = reason;
        self.progress.step();
        Some(row)
    }

    fn is_over(&self) -> bool {
        if let Ok(Some(_)) = self.signals.wait_timeout(Duration::ZERO) {
            self.is_over.set(true);
        }
        self.is_over.get()
    }
}

/// The record's A/A run, which begins if there is none.
fn aa<'a>(record: &'a mut Record, plan: &Plan) -> &'a mut Noise {
    record.aa.get_or_insert_with(|| Noise {
        server: plan.baseline().name.clone(),
        pairs: 0,
        interval: None,
        cells: Vec::new(),
        rows: Vec::new(),
    })
}

fn pairs_aa(record: &Record, cell: &Cell) -> usize {
    let speeds = Speeds::of(record.rows());
    record.aa.as_ref().map_or(0, |aa| stats::pairs_aa(&aa.rows, &cell.name, speeds).len())
}

/// Works out the noise from the A/A rows there are.
fn note_noise(record: &mut Record) {
    let speeds = Speeds::of(record.rows());
    let Some(aa) = &mut record.aa else { return };
    let mut all = Vec::new();
    aa.cells.clear();
    for cell in &record.plan.cells {
        let pairs = stats::pairs_aa(&aa.rows, &cell.name, speeds);
        let ratios: Vec<f64> = pairs.iter().map(|pair| pair.ratio).collect();
        if aa.rows.iter().any(|row| row.cell == cell.name) {
            let interval = stats::interval(&ratios);
            aa.cells.push(NoiseOfCell { cell: cell.name.clone(), pairs: ratios.len(), interval });
        }
        all.extend(ratios);
    }
    aa.pairs = all.len();
    aa.interval = stats::interval(&all);
}

/// What a row takes, before one has been measured.
fn guess(plan: &Plan) -> Duration {
    let each = plan.cells.iter().map(|cell| cell.warm_up(plan).0 + cell.duration(plan).0);
    each.sum::<Duration>() / plan.cells.len().max(1) as u32 + ROW_EXTRA
}

/// One line on stderr: overwritten on a terminal, now and then elsewhere.
struct Progress {
    total: usize,
    done: usize,
    began: Instant,
    /// What a row takes until one has been measured.
    guess: Duration,
    is_terminal: bool,
    shown: Option<Instant>,
}

impl Progress {
    fn new(plan: &Plan, total: usize) -> Progress {
        Progress {
            total,
            done: 0,
            began: Instant::now(),
            guess: guess(plan),
            is_terminal: stderr().is_terminal(),
            shown: None,
        }
    }

    fn step(&mut self) {
        self.done += 1;
        // Rounds that pairs need come on top.
        self.total = self.total.max(self.done);
    }

    fn show(&mut self, what: &str) {
        if !self.is_terminal && self.shown.is_some_and(|shown| shown.elapsed() < SHOWN_EVERY) {
            return;
        }
        self.shown = Some(Instant::now());
        let row = if self.done == 0 { self.guess } else { self.began.elapsed() / self.done as u32 };
        let total = self.total.max(self.done + 1);
        let left = row.as_secs_f64() * (total - self.done) as f64;
        let line = format!("{}/{total} rows, {left:.0} s left: {what}", self.done);
        let line = if self.is_terminal { format!("\r\x1b[K{line}") } else { format!("{line}\n") };
        // The work goes on even if the terminal is gone.
        let _ = stderr().write_all(line.as_bytes());
    }

    fn finish(&self) {
        if self.is_terminal {
            let _ = stderr().write_all(b"\r\x1b[K");
        }
    }
}
