//! Runs a plan: the order of the rows, which rows are repeated, and where they are saved.
//!
//! ```text
//!  A/A: rounds × cells × the first of them twice ─▶ rounds × cells × servers or programs ─▶ rounds again, where pairs are missing
//!            each round's cells, and each cell's servers, in random order; the record is saved after every row
//! ```
//! The next row follows from the plan and the existing rows, so a killed run continues where it stopped.

use std::cell::Cell as Flag;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stderr};
use std::path::Path;
use std::time::{Duration, Instant};

use highwater_core::prng::Prng;
use highwater_sys::cpu;
use highwater_sys::signal::Signals;

use super::background::Background;
use super::machine;
use super::network::Network;
use super::plan::{self, Cell, Contender, Cpus, Plan, Server};
use super::program::ProgramRun;
use super::record::{Measured, Noise, NoiseOfCell, Record, Row};
use super::services::Services;
use super::stats::{self, Rules};
use super::task::{Failed, Task};
use super::{interval, overload};

/// Pairs that a comparison should have. A run continues until it has them, or until twice its rounds are over.
const PAIRS_ENOUGH: usize = 5;
/// A server that fails to start this often is skipped.
const STARTS_MAX: u32 = 2;
/// Estimated extra time per row, until one has been measured.
const ROW_EXTRA: Duration = Duration::from_millis(400);
/// How often progress is shown where it cannot be overwritten.
const SHOWN_EVERY: Duration = Duration::from_secs(5);

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Everything was measured.
    Complete,
    /// Some rows are void.
    SomeVoid,
    /// A signal interrupted it.
    Interrupted,
    /// A row could not be saved; with the reason.
    Failed(String),
}

/// Measures the rows that `record` lacks, and saves it in `out` after every row. With `only`, only those cells.
///
/// # Errors
/// The record cannot be created, or the CPUs cannot be used; nothing was started.
pub(super) fn run(
    record: &mut Record,
    cpus: &Cpus,
    network: Result<Network, String>,
    out: &Path,
    only: &[String],
) -> Result<Ended, String> {
    let signals = Signals::catch().map_err(|error| format!("catching signals: {error}"))?;
    // Everything except the server stays on the client's CPUs, including the threads that this one starts.
    cpu::pin_thread_to(&cpus.client).map_err(|error| format!("client_cpus: {error}"))?;
    record.save(out)?;
    let plan = record.plan.clone();
    let cells: Vec<&Cell> =
        plan.cells.iter().filter(|cell| only.is_empty() || only.contains(&cell.name)).collect();
    let mut run = Run {
        progress: Progress::new(&plan, missing(record, &plan, &cells)),
        failures: BTreeMap::new(),
        is_over: Flag::new(false),
        services: None,
        background: Background::default(),
        signals,
        plan: &plan,
        cpus,
        network,
        out,
    };
    let before = (record.aa.as_ref().map_or(0, |aa| aa.rows.len()), record.cells.len());
    let done = run.everything(record, &cells);
    run.progress.finish();
    let done = done.and_then(|()| void_rebuilt(record, before, out));
    Ok(match () {
        () if done.is_err() => Ended::Failed(done.err().unwrap_or_default()),
        () if run.is_over.get() => Ended::Interrupted,
        () if record.rows().any(|row| !row.is_ok()) => Ended::SomeVoid,
        () => Ended::Complete,
    })
}

/// Makes the rows after the first `aa` and `cells` void if their program is not the one that the record names: it was
/// rebuilt meanwhile, and nobody knows which of the two they measured.
fn void_rebuilt(
    record: &mut Record,
    (aa, cells): (usize, usize),
    out: &Path,
) -> Result<(), String> {
    let of_aa = record.aa.as_mut().map_or(&mut [][..], |found| &mut found.rows[aa..]);
    let mut rows: Vec<&mut Row> = of_aa.iter_mut().chain(&mut record.cells[cells..]).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let rebuilt = machine::rebuilt(&record.environment, &record.plan);
    // A server beside programs is a part of every row.
    let servers = record.plan.servers.iter().filter(|_| !record.plan.programs.is_empty());
    let is_beside = servers.map(|server| &server.name).any(|name| rebuilt.contains(name));
    rows.retain(|row| is_beside || rebuilt.contains(&row.server));
    if rows.is_empty() {
        return Ok(());
    }
    for row in rows {
        row.status = "void".to_owned();
        row.reason = Some("its program was changed during the run; give another --out".to_owned());
    }
    note_noise(record);
    overload::note_law(record);
    record.save(out)
}

/// Whether a record has every row of its plan, and none of them is void.
pub(super) fn is_complete(record: &Record) -> bool {
    let cells: Vec<&Cell> = record.plan.cells.iter().collect();
    missing(record, &record.plan, &cells) == 0 && record.rows().all(Row::is_ok)
}

/// The number of rows still to measure, without extra rounds for missing pairs.
fn missing(record: &Record, plan: &Plan, cells: &[&Cell]) -> usize {
    let rows = |cell: &&Cell| {
        let twice = if cell.has_aa() { 2 } else { 0 };
        (plan.contenders_of(cell).count() + twice) * cell.rounds(plan) as usize
    };
    let all: usize = cells.iter().map(rows).sum();
    let is_asked = |row: &&Row| cells.iter().any(|cell| cell.name == row.cell);
    all.saturating_sub(record.rows().filter(is_asked).count())
}

struct Run<'a> {
    plan: &'a Plan,
    cpus: &'a Cpus,
    /// Or the reason why there is none.
    network: Result<Network, String>,
    out: &'a Path,
    signals: Signals,
    is_over: Flag<bool>,
    /// Set from the first row on.
    services: Option<Services>,
    background: Background,
    /// Contenders that did not start: how often, and why.
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
                if is_wanted && cell.has_aa() && !self.pair(record, cell, round)? {
                    return Ok(());
                }
            }
        }
        for round in 0..2 * rounds {
            for cell in self.shuffled(round, "cells", cells) {
                for name in self.contenders(record, cell, round) {
                    if !self.contender(record, cell, &name, round)? {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Measures the first contender twice, as if it were two. False if the run is over.
    fn pair(&mut self, record: &mut Record, cell: &Cell, round: u32) -> Result<bool, String> {
        let first = self.plan.contenders().find(|contender| cell.is_for(contender.name()));
        let Some(first) = first else { return Ok(true) };
        let of_round = |row: &&Row| row.cell == cell.name && row.round == round;
        let rows = &aa(record, self.plan).rows;
        for _ in rows.iter().filter(of_round).count()..2 {
            let Some(row) = self.row(cell, first, round) else { return Ok(false) };
            aa(record, self.plan).rows.push(row);
            note_noise(record);
            record.save(self.out)?;
        }
        Ok(true)
    }

    /// False if the run is over.
    fn contender(
        &mut self,
        record: &mut Record,
        cell: &Cell,
        name: &str,
        round: u32,
    ) -> Result<bool, String> {
        let is_it = |row: &Row| row.cell == cell.name && row.server == name && row.round == round;
        if record.cells.iter().any(is_it) {
            return Ok(true);
        }
        let contender = self.plan.contenders().find(|contender| contender.name() == name);
        let Some(row) = contender.and_then(|contender| self.row(cell, contender, round)) else {
            return Ok(false);
        };
        record.cells.push(row);
        overload::note_law(record);
        record.save(self.out)?;
        Ok(true)
    }

    /// The contenders of a round, in random order. After the plan's rounds: those with too few pairs with the
    /// baseline, and the baseline.
    fn contenders(&self, record: &Record, cell: &Cell, round: u32) -> Vec<String> {
        let names: Vec<&str> = self.plan.contenders_of(cell).collect();
        let mut chosen = names.clone();
        let rounds = cell.rounds(self.plan);
        if round >= rounds && (cell.is_overload() || round >= 2 * rounds) {
            chosen.clear();
        } else if round >= rounds {
            let rules = Rules::of(record);
            let wanted = PAIRS_ENOUGH.min(rounds as usize);
            let is_void = |name: &str| {
                let mut rows = record.cells.iter().filter(|row| row.cell == cell.name);
                rows.any(|row| row.server == name && !row.is_ok())
            };
            chosen.retain(|name| {
                let pairs = || stats::pairs(&record.cells, &cell.name, names[0], name, rules).len();
                *name != names[0] && !is_void(names[0]) && !is_void(name) && pairs() < wanted
            });
            if !chosen.is_empty() {
                chosen.push(names[0]);
            }
        }
        self.shuffled(round, &cell.name, &chosen).into_iter().map(str::to_owned).collect()
    }

    /// Shuffles by the plan's seed, differently for each round and purpose.
    fn shuffled<T: Copy>(&self, round: u32, purpose: &str, items: &[T]) -> Vec<T> {
        let mix = |seed: u64, byte: u8| (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let bytes = purpose.bytes().chain(round.to_le_bytes());
        let mut items = items.to_vec();
        Prng::from_seed(bytes.fold(self.plan.seed, mix)).shuffle(&mut items);
        items
    }

    /// One row; `None` if the run is over.
    fn row(&mut self, cell: &Cell, contender: Contender<'_>, round: u32) -> Option<Row> {
        if self.is_over() {
            return None;
        }
        let name = contender.name();
        self.start_services()?;
        self.progress.show(&format!("round {} {} {name}", round + 1, cell.name));
        let mut row = Row {
            server: name.to_owned(),
            cell: cell.name.clone(),
            round,
            at: machine::now(),
            ..Row::default()
        };
        let result = match (&self.network, self.failures.get(name)) {
            (Err(problem), _) => Err(Failed::Void(problem.clone())),
            (_, Some((STARTS_MAX, reason))) => {
                Err(Failed::Void(format!("not tried again: {reason}")))
            }
            (Ok(network), _) => self.measure(cell, contender, network),
        };
        let reason = match result {
            Ok(measured) => {
                row.measured = Some(measured);
                None
            }
            Err(Failed::Interrupted) => {
                // The load may have consumed the signal.
                self.is_over.set(true);
                return None;
            }
            Err(Failed::NotStarted(reason)) => {
                let known = self.failures.entry(name.to_owned()).or_default();
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

    fn measure(
        &self,
        cell: &Cell,
        contender: Contender<'_>,
        network: &Network,
    ) -> Result<Measured, Failed> {
        let (plan, cpus, background, is_over) =
            (self.plan, self.cpus, &self.background, &|| self.is_over());
        let services = self.services.as_ref();
        if let Some(problem) = services.and_then(|services| services.problem(plan, contender)) {
            return Err(Failed::Void(problem));
        }
        let words = services.map(Services::words).unwrap_or_default();
        let filled = |server: &Server| Server {
            command: server.command.iter().map(|text| plan::put(text, &words)).collect(),
            env: server.env.iter().map(|(a, b)| (a.clone(), plan::put(b, &words))).collect(),
            ..server.clone()
        };
        match contender {
            Contender::Server(server) => {
                let server = &filled(server);
                Task { plan, server, cell, network, cpus, background, is_over }.measure()
            }
            Contender::Program(program) => {
                let server = plan.server_beside(program, cell).map(filled);
                let (server, services) = (server.as_ref(), &words);
                ProgramRun {
                    plan,
                    program,
                    server,
                    cell,
                    network,
                    cpus,
                    background,
                    services,
                    is_over,
                }
                .measure()
            }
        }
    }

    /// Starts the plan's services before the first row; `None` if the run is over.
    fn start_services(&mut self) -> Option<()> {
        if let (None, Ok(network)) = (&self.services, &self.network) {
            if !self.plan.services.is_empty() {
                self.progress.show("starting services");
            }
            let place = (network, &self.cpus.server[..]);
            let services = Services::start(self.plan, place, &|| self.is_over()).ok()?;
            self.background =
                Background { parts: self.plan.parts.clone(), supervisors: services.supervisors() };
            self.services = Some(services);
        }
        Some(())
    }

    fn is_over(&self) -> bool {
        if let Ok(Some(_)) = self.signals.wait_timeout(Duration::ZERO) {
            self.is_over.set(true);
        }
        self.is_over.get()
    }
}

/// The record's A/A run, which is created if there is none.
fn aa<'a>(record: &'a mut Record, plan: &Plan) -> &'a mut Noise {
    record.aa.get_or_insert_with(|| Noise {
        server: plan.contenders().next().map_or_else(String::new, |first| first.name().to_owned()),
        pairs: 0,
        interval: None,
        cells: Vec::new(),
        rows: Vec::new(),
    })
}

fn pairs_aa(record: &Record, cell: &Cell) -> usize {
    let rules = Rules::of(record);
    record.aa.as_ref().map_or(0, |aa| stats::pairs_aa(&aa.rows, &cell.name, rules).len())
}

/// Computes the noise from the existing A/A rows.
fn note_noise(record: &mut Record) {
    let rules = Rules::of(record);
    let Some(aa) = &mut record.aa else { return };
    let mut all = Vec::new();
    aa.cells.clear();
    for cell in &record.plan.cells {
        let pairs = stats::pairs_aa(&aa.rows, &cell.name, rules);
        let ratios: Vec<f64> = pairs.iter().map(|pair| pair.ratio).collect();
        if aa.rows.iter().any(|row| row.cell == cell.name) {
            let interval = interval::of_median(&ratios);
            aa.cells.push(NoiseOfCell { cell: cell.name.clone(), pairs: ratios.len(), interval });
        }
        all.extend(ratios);
    }
    aa.pairs = all.len();
    aa.interval = interval::of_median(&all);
}

/// The estimated time of a row, before one has been measured.
fn guess(plan: &Plan) -> Duration {
    let each = plan.cells.iter().map(|cell| cell.warm_up(plan).0 + cell.duration(plan).0);
    each.sum::<Duration>() / plan.cells.len().max(1) as u32 + ROW_EXTRA
}

/// One line on stderr: overwritten on a terminal, now and then elsewhere.
struct Progress {
    total: usize,
    done: usize,
    began: Instant,
    /// The estimated time of a row until one has been measured.
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
        // Extra rounds for missing pairs are not included.
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
