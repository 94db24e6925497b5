//! `highwater bench`: at which server does a request cost less? Measured so that the answer can be no.
//!
//! ```text
//!  plan (TOML) ─▶ run: cell by cell ─▶ record (JSON) ─▶ stats ─▶ gate: faster | slower | same | void
//!                   │  server (supervisor ▶ its processes) ⇄ load, ask (to the byte), tree (/proc), probe (the machine's speed)
//!                   │  or a program that is run to its end (supervisor ▶ its processes), and figures: what it printed
//!                   └  services and parts beside them
//! ```
//!
//! `export` writes records into a database. Pure: `plan` (except for reading the file), `figures`, `stats`, `interval`,
//! `gate`, `compare`, `show`. The other modules use processes, clocks and files. The load comes from the code of `highwater
//! load`.

mod ask;
mod background;
mod behind;
mod cell;
mod certificate;
mod compare;
mod export;
mod export_older;
mod export_overload;
mod export_tables;
mod figures;
mod gate;
mod interval;
mod machine;
mod metrics;
mod network;
mod others;
mod overload;
mod plan;
mod probe;
mod program;
mod reader;
mod record;
mod run;
mod sending;
mod server;
mod services;
mod show;
mod soak;
mod stats;
mod supervisor;
mod task;
#[cfg(test)]
mod tests;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use highwater_sys::cpu;
use serde_json::json;

pub(crate) use plan::parse_cpus;
use plan::{Cell, Cpus, Plan};
use record::Record;
use run::Ended;

use self::network::Network;
use crate::output::print;

/// Exit status for a plan, a record or a flag that is refused.
const REFUSED: u8 = 2;

/// Measure servers or programs side by side, and say which claims the measurements allow.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  highwater bench run bench/plans/framework.toml --out framework.json
  highwater bench run bench/plans/framework.toml --out framework.json --resume
  highwater bench show framework.json
  highwater bench claim framework.json --baseline axum --candidate ours --cell plaintext
  highwater bench compare old.json new.json

docs/benchmarks.md says how to read the results, and what a plan and a record look like.")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a plan: rounds of fresh servers or programs in random order, each row saved when it is measured
    #[command(after_help = "\
Examples:
  highwater bench run plan.toml                      the record goes to NAME.json
  highwater bench run plan.toml --out r.json --resume
  highwater bench run plan.toml --rounds 3 --only plaintext
  highwater bench run plan.toml --quick              its shorter form, if it has one

Exit status:
  0  everything was measured
  1  some rows are void, no row counts, or it was interrupted or could not be saved; the record
     and the message say why
  2  the plan or a flag is refused; nothing was started")]
    Run(RunArgs),
    /// Decide whether one server or program of a record may be called faster than another
    #[command(after_help = "\
Examples:
  highwater bench claim framework.json --baseline axum --candidate ours --cell plaintext
  highwater bench claim framework.json --baseline axum --candidate ours --json

Exit status:
  0  faster
  1  slower, or the same as far as can be said
  2  void: rows are void, or there are too few pairs; or a flag is wrong")]
    Claim(ClaimArgs),
    /// Compare two records of one plan
    #[command(after_help = "\
Example:
  highwater bench compare old.json new.json

Exit status:
  0  nothing has become slower
  1  something has
  2  void: a server or cell of OLD cannot be compared, and the output says why; or a flag is wrong")]
    Compare(CompareArgs),
    /// Print a record as a table
    #[command(after_help = "\
Example:
  highwater bench show framework.json

Exit status: 0; 2 if the record cannot be read, or a flag is wrong.")]
    Show(ShowArgs),
    /// Write records into a SQLite database, for `highwater book` and for SQL
    #[command(after_help = "\
Examples:
  highwater bench export --db records.sqlite bench/evidence/*.json
  highwater bench export --db records.sqlite --sql book/tables.sql bench/evidence/*.json

Exit status: 0; 2 if a record, the database or a flag is refused.")]
    Export(export::Args),
    /// Start a command that ends with this process
    #[command(hide = true)]
    Keep(supervisor::Args),
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// The plan, a TOML file.
    plan: PathBuf,

    /// Where to write the record [default: NAME.json, with the plan's name].
    #[arg(long, value_name = "FILE.json")]
    out: Option<PathBuf>,

    /// Continue the existing record up to the rounds it was begun with; rows that it has are not measured again. Refused
    /// if the machine, its CPUs or a program has changed.
    #[arg(long)]
    resume: bool,

    /// Rounds, instead of the plan's; fixed when a record is begun.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,

    /// Run the plan's shorter form, its `[quick]`: an impression, not a proof.
    #[arg(long)]
    quick: bool,

    /// Measure only this cell. May be given several times.
    #[arg(long, value_name = "CELL")]
    only: Vec<String>,

    /// Print the summary as JSON instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct ClaimArgs {
    /// The record of a run.
    record: PathBuf,

    /// The server or program to compare with.
    #[arg(long)]
    baseline: String,

    /// The server or program that the claim is about.
    #[arg(long)]
    candidate: String,

    /// The cell [default: all of them].
    #[arg(long)]
    cell: Option<String>,

    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct CompareArgs {
    old: PathBuf,
    new: PathBuf,

    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    record: PathBuf,

    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let done = match &args.verb {
        Verb::Run(args) => run_plan(args),
        Verb::Claim(args) => claim(args),
        Verb::Compare(args) => compare(args),
        Verb::Show(args) => show(args),
        Verb::Export(args) => export::run(args).map(|()| 0),
        Verb::Keep(args) => return supervisor::run(args),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(problem) => {
            complain(&problem);
            ExitCode::from(REFUSED)
        }
    }
}

#[expect(clippy::print_stderr, reason = "this is how a command complains")]
fn complain(problem: &str) {
    for line in problem.lines() {
        eprintln!("highwater bench: {line}");
    }
}

fn run_plan(args: &RunArgs) -> Result<u8, String> {
    let mut plan = Plan::read(&args.plan)?;
    if args.quick {
        plan = plan.shortened().map_err(|problem| format!("{}: {problem}", args.plan.display()))?;
    }
    if let Some(rounds) = args.rounds {
        plan.rounds = rounds;
    }
    for only in &args.only {
        let known: Vec<&str> = plan.cells.iter().map(|cell| cell.name.as_str()).collect();
        if !known.contains(&only.as_str()) {
            return Err(format!(
                "--only {only}: no cell of this plan; it has {}",
                known.join(", ")
            ));
        }
    }
    let allowed = cpu::allowed().map_err(|error| format!("which CPUs may be used: {error}"))?;
    let cpus = Cpus::choose(&plan, &allowed)
        .map_err(|problem| format!("{}: {problem}", args.plan.display()))?;
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("{}.json", plan.name)));
    let network = match plan.network.namespaces {
        true => Network::isolated(&cpus),
        false => Ok(Network::loopback()),
    };
    let mut record = begin(plan, &cpus, &network, &out, args.resume)?;
    let rows = record.rows().count();
    absent(&record.plan, &args.only).iter().for_each(|absent| complain(absent));
    if let Some(busy) = others::before(&cpus) {
        complain(&busy);
    }
    let ended = run::run(&mut record, &cpus, network, &out, &args.only)?;
    match args.json {
        true => print(&format!("{}\n", summary(&record, ended == Ended::Complete))),
        false => print(&show::text(&record)),
    }
    let shown = out.display();
    match &ended {
        Ended::Interrupted => complain(&format!("interrupted; --resume --out {shown} goes on")),
        Ended::Failed(problem) => complain(&format!(
            "{problem}\nthe rows that were saved are in {shown}; --resume --out {shown} goes on"
        )),
        _ if record.rows().count() == rows => {
            complain(&format!("{shown} is complete; nothing was measured"));
        }
        _ => {}
    }
    let counts = stats::counts_any(&record);
    if !counts {
        complain(&show::nothing_counts(&record));
    }
    Ok(u8::from(ended != Ended::Complete || !counts))
}

/// The contenders without a program. Their rows become void one by one, as others fail, but nobody has to wait to learn it.
fn absent(plan: &Plan, only: &[String]) -> Vec<String> {
    let is_asked = |cell: &&Cell| only.is_empty() || only.contains(&cell.name);
    let cells: Vec<&Cell> = plan.cells.iter().filter(is_asked).collect();
    let asked = plan.contenders().filter(|it| cells.iter().any(|cell| cell.is_for(it.name())));
    let absent = asked.filter_map(|contender| {
        let problem = server::find(contender.measured_program()).err()?;
        Some(format!("{}: {problem}; without it, all its rows are void", contender.name()))
    });
    absent.collect()
}

fn summary(record: &Record, is_complete: bool) -> serde_json::Value {
    json!({
        "plan": record.plan.name,
        "complete": is_complete,
        "summaries": show::summaries(record),
        "steps": overload::judged(record),
        "signals": overload::signals(record),
        "noise": record.aa.as_ref().and_then(|aa| aa.interval),
    })
}

/// A new record, or the one in `out` with --resume.
///
/// # Errors
/// An existing record would be lost, or is of another plan, machine or program.
fn begin(
    plan: Plan,
    cpus: &Cpus,
    network: &Result<Network, String>,
    out: &Path,
    resume: bool,
) -> Result<Record, String> {
    let shown = out.display();
    let found = Record::find(out)?;
    let network = network.as_ref().map_or("none", Network::describe);
    let environment = || machine::describe(&plan, cpus, network, plan.seed);
    match found {
        Some(_) if !resume => Err(format!(
            "{shown} exists: --resume goes on with it; or give another --out, or remove it"
        )),
        Some(old) => {
            let rounds = old.plan.rounds;
            if rounds != plan.rounds && old.plan == (Plan { rounds, ..plan.clone() }) {
                return Err(format!(
                    "{shown} was begun with {rounds} rounds, and this would be {}: how many is decided before \
                     anything is measured, or a run could be ended when it looks good; give another --out",
                    plan.rounds
                ));
            }
            if old.plan != plan {
                return Err(format!(
                    "{shown} is of another plan, or of this one before it was changed: give another --out"
                ));
            }
            // Rows of another machine or program would look like rows of this one.
            match machine::difference(&old.environment, &environment()) {
                Some(changed) => {
                    Err(format!("{shown}: {changed}; give another --out, or remove the file"))
                }
                None => Ok(Record { plan, ..old }),
            }
        }
        None => {
            let environment = environment();
            Ok(Record { plan, environment, cells: Vec::new(), aa: None })
        }
    }
}

fn claim(args: &ClaimArgs) -> Result<u8, String> {
    let record = Record::read(&args.record)?;
    let claim = gate::claim(&record, &args.baseline, &args.candidate, args.cell.as_deref())?;
    match args.json {
        true => print(&format!("{}\n", json!(claim))),
        false => print(&show::claim(&claim)),
    }
    Ok(claim.verdict.code())
}

fn compare(args: &CompareArgs) -> Result<u8, String> {
    let changes = compare::compare(&Record::read(&args.old)?, &Record::read(&args.new)?)?;
    match args.json {
        true => print(&format!("{}\n", json!({ "changes": changes }))),
        false => changes.iter().for_each(|change| print(&show::change(change))),
    }
    let has = |verdict| changes.iter().any(|change| change.verdict == verdict);
    // What was not compared may have become slower, too.
    Ok(if has("void") { REFUSED } else { u8::from(has("slower")) })
}

fn show(args: &ShowArgs) -> Result<u8, String> {
    let record = Record::read(&args.record)?;
    match args.json {
        true => print(&format!("{}\n", summary(&record, run::is_complete(&record)))),
        false => print(&show::text(&record)),
    }
    Ok(0)
}
