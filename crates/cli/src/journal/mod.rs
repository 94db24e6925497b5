//! `highwater journal`: which records does a journal hold, and is it intact? Whether or not it is in use.

mod form;

use std::collections::VecDeque;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use highwater_journal::storage::Storage;
use highwater_journal::{Damage, Directory, Item, Reader, Report, View, verify};

use form::Form;

/// How long `tail --follow` waits before it looks again.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// Read a journal. Nothing is locked or changed, and another process may be writing to it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  highwater journal tail -f data\n  highwater journal cat --json data\n  highwater journal verify data\n  highwater journal stat data"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Tail(Tail),
    Cat(Cat),
    Verify(Verify),
    Stat(Stat),
}

/// Write the last records, one body per line.
///
/// On a terminal, control characters are shown as escapes such as \u{1b}. Files and pipes get the bodies
/// as they are.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0; 1 if the journal cannot be read; 2 for a wrong argument.")]
struct Tail {
    /// The journal's directory.
    dir: PathBuf,

    /// How many records.
    #[arg(short = 'n', long = "records", default_value_t = 10)]
    records: u64,

    /// Keep waiting for new records, and write them.
    #[arg(short, long)]
    follow: bool,

    /// Write one JSON object per line, with partition, offset, time, id and body.
    #[arg(long)]
    json: bool,
}

/// Write all records, one body per line.
///
/// On a terminal, control characters are shown as escapes such as \u{1b}. Files and pipes get the bodies
/// as they are. Missing records are reported on standard error.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status: 0; 1 if records are missing, or the journal cannot be read; 2 for a wrong argument."
)]
struct Cat {
    /// The journal's directory.
    dir: PathBuf,

    /// Start with this offset.
    #[arg(long, value_name = "OFFSET")]
    from: Option<u64>,

    /// Write one JSON object per line, with partition, offset, time, id and body.
    #[arg(long)]
    json: bool,
}

/// Read everything and check every byte.
///
/// One line per damaged place names the file and the place.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status: 0; 1 if anything is damaged, or the journal cannot be read; 2 for a wrong argument."
)]
struct Verify {
    /// The journal's directory.
    dir: PathBuf,
}

/// Show how many records, bytes and segments there are, and which damage is known.
///
/// Of older segments only the last bytes are read: `verify` checks every byte.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status: 0; 1 if anything is damaged, or the journal cannot be read; 2 for a wrong argument."
)]
struct Stat {
    /// The journal's directory.
    dir: PathBuf,

    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let done = match &args.verb {
        Verb::Tail(args) => tail(args),
        Verb::Cat(args) => cat(args),
        Verb::Verify(args) => check(args),
        Verb::Stat(args) => stat(args),
    };
    match done {
        Ok(code) => code,
        // Whoever reads has seen enough, as `head` has.
        Err(Problem::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(Problem::Output(error)) => failed(&format!("writing: {error}")),
        Err(Problem::Journal(text)) => failed(&text),
    }
}

fn failed(text: &str) -> ExitCode {
    eprintln!("highwater journal: {text}");
    ExitCode::FAILURE
}

enum Problem {
    Journal(String),
    Output(io::Error),
}

impl From<highwater_journal::Error> for Problem {
    fn from(error: highwater_journal::Error) -> Problem {
        Problem::Journal(error.to_string())
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Problem {
        Problem::Output(error)
    }
}

/// The directory, if there is a journal in it: an empty one is rather the wrong one.
fn directory(dir: &Path) -> Result<Directory, Problem> {
    let directory = Directory::look(dir)?;
    let names =
        directory.list().map_err(|e| Problem::Journal(format!("{}: {e}", dir.display())))?;
    if names.iter().any(|name| name == "LOCK" || name.ends_with(".hwj")) {
        return Ok(directory);
    }
    let text = format!("{}: no journal here; its files end in .hwj", dir.display());
    Err(Problem::Journal(text))
}

fn cat(args: &Cat) -> Result<ExitCode, Problem> {
    let view = View::open(directory(&args.dir)?, 0)?;
    let mut reader = match args.from {
        Some(offset) => view.reader(offset),
        None => view.reader_from_start(),
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let form = Form::of(args.json, io::stdout().is_terminal());
    let intact = copy(&mut reader, form, &mut out)?;
    out.flush()?;
    Ok(if intact { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn tail(args: &Tail) -> Result<ExitCode, Problem> {
    let mut view = View::open(directory(&args.dir)?, 0)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let form = Form::of(args.json, io::stdout().is_terminal());
    let (last, mut next) = last_records(&view, args.records, form)?;
    for line in last {
        out.write_all(&line)?;
    }
    out.flush()?;
    if !args.follow {
        return Ok(ExitCode::SUCCESS);
    }
    loop {
        let Some(newer) = view.again()? else {
            std::thread::sleep(FOLLOW_INTERVAL);
            continue;
        };
        view = newer;
        let mut reader = view.reader(next);
        copy(&mut reader, form, &mut out)?;
        next = reader.next_offset();
        out.flush()?;
    }
}

/// The last `count` records as lines, and where to go on.
fn last_records(view: &View, count: u64, form: Form) -> Result<(VecDeque<Vec<u8>>, u64), Problem> {
    let report = view.report();
    let (first, end) = (report.first_offset.unwrap_or(0), report.last_offset.map_or(0, |l| l + 1));
    let mut distance = count;
    loop {
        // Offsets may be left out: then it begins further back.
        let from = end.saturating_sub(distance).max(first);
        let mut reader = view.reader(from);
        let mut lines = VecDeque::new();
        loop {
            match reader.next()? {
                Item::Record(record) => {
                    lines.push_back(form.line(&record));
                    if lines.len() as u64 > count {
                        lines.pop_front();
                    }
                }
                Item::Skipped(damage) => eprintln!("{damage}"),
                Item::End => break,
            }
        }
        if lines.len() as u64 >= count || from == first {
            return Ok((lines, reader.next_offset()));
        }
        distance = distance.saturating_mul(2);
    }
}

/// Writes what a reader has up to its end. False if something is missing.
fn copy(reader: &mut Reader, form: Form, out: &mut impl Write) -> Result<bool, Problem> {
    let mut intact = true;
    loop {
        match reader.next()? {
            Item::Record(record) => out.write_all(&form.line(&record))?,
            Item::Skipped(damage) => {
                intact = false;
                // In its place, if both go to one terminal.
                out.flush()?;
                eprintln!("{damage}");
            }
            Item::End => return Ok(intact),
        }
    }
}

fn check(args: &Verify) -> Result<ExitCode, Problem> {
    let report = verify(&directory(&args.dir)?)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let Report { records, segments, bytes, .. } = &report;
    write!(out, "{report}")?;
    let segments = match segments {
        1 => "1 segment".to_owned(),
        count => format!("{count} segments"),
    };
    let rest = if report.is_intact() { "intact" } else { "all others intact" };
    writeln!(out, "{records} records in {segments}, {bytes} bytes: {rest}")?;
    out.flush()?;
    Ok(verdict(&args.dir, &report))
}

fn stat(args: &Stat) -> Result<ExitCode, Problem> {
    let view = View::open(directory(&args.dir)?, 0)?;
    let report = view.report();
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", stat_json(&args.dir, report))?;
        return Ok(verdict(&args.dir, report));
    }
    let Report { records, bytes, segments, unscanned_bytes: unscanned, .. } = report;
    let offset = |offset: Option<u64>| offset.map_or("none".to_owned(), |at| at.to_string());
    writeln!(out, "records       {records}")?;
    writeln!(out, "bytes         {bytes}")?;
    writeln!(out, "segments      {segments}")?;
    writeln!(out, "first offset  {}", offset(report.first_offset))?;
    writeln!(out, "last offset   {}", offset(report.last_offset))?;
    write!(out, "{report}")?;
    if *unscanned > 0 {
        let dir = args.dir.display();
        writeln!(
            out,
            "{unscanned} bytes were not read; to check them: highwater journal verify {dir}"
        )?;
    }
    Ok(verdict(&args.dir, report))
}

fn stat_json(dir: &Path, report: &Report) -> serde_json::Value {
    let damage = |damage: &Damage| {
        let Damage { file, at, bytes, first_offset, next_offset, .. } = damage;
        serde_json::json!({
            "file": file, "at": at, "bytes": bytes, "first_offset": first_offset, "next_offset": next_offset,
            "problem": damage.to_string(),
        })
    };
    let tail = |tail: &highwater_journal::Tail| serde_json::json!({"file": tail.file, "at": tail.at, "bytes": tail.bytes});
    serde_json::json!({
        "records": report.records,
        "bytes": report.bytes,
        "segments": report.segments,
        "first_offset": report.first_offset,
        "last_offset": report.last_offset,
        "unscanned_bytes": report.unscanned_bytes,
        "damage": report.damage.iter().map(damage).collect::<Vec<_>>(),
        "damage_omitted": report.damage_omitted,
        "tail": report.tail.as_ref().map(tail),
        "remedy": (!report.is_intact()).then(|| remedy(dir)),
    })
}

/// The exit status; of damage, standard error says where it begins and what to do.
fn verdict(dir: &Path, report: &Report) -> ExitCode {
    let Some(Damage { file, at, .. }) = report.damage.first() else { return ExitCode::SUCCESS };
    let count = report.damage.len() as u64 + report.damage_omitted;
    let places =
        if count == 1 { "one place, at" } else { &format!("{count} places, the first at") };
    let (remedy, dir) = (remedy(dir), dir.display());
    failed(&format!("{dir} is damaged in {places} {at} of {file}; {remedy}"))
}

fn remedy(dir: &Path) -> String {
    format!(
        "the records that are left are served. To have the others back, stop the service, and put an intact copy of each \
         damaged file in its place; then run: highwater journal verify {}",
        dir.display()
    )
}
