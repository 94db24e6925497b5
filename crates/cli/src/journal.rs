//! `highwater journal`: what a journal holds, and whether it is intact, while it is in use or not.

use std::collections::VecDeque;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use highwater_journal::storage::Storage;
use highwater_journal::{Damage, Directory, Item, Reader, Report, Stored, View, verify};

/// How long `tail --follow` waits before it looks again.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// Look into a journal. Nothing is locked or changed, and another process may be writing to it.
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

/// Write the last records, each body and a newline.
#[derive(Debug, clap::Args)]
struct Tail {
    /// The journal's directory.
    dir: PathBuf,

    /// How many records.
    #[arg(short = 'n', long = "records", default_value_t = 10)]
    records: u64,

    /// Go on with those to come.
    #[arg(short, long)]
    follow: bool,

    /// Write a JSON object a line, with partition, offset, time, id and body.
    #[arg(long)]
    json: bool,
}

/// Write all records, each body and a newline. What is missing is said on standard error, and makes
/// the exit status 1.
#[derive(Debug, clap::Args)]
struct Cat {
    /// The journal's directory.
    dir: PathBuf,

    /// Begin with this offset.
    #[arg(long, value_name = "OFFSET")]
    from: Option<u64>,

    /// Write a JSON object a line, with partition, offset, time, id and body.
    #[arg(long)]
    json: bool,
}

/// Read everything and check every byte. The exit status is 1 if anything is damaged, and a line for
/// each damage says in which file, and where.
#[derive(Debug, clap::Args)]
struct Verify {
    /// The journal's directory.
    dir: PathBuf,
}

/// Say how much there is.
#[derive(Debug, clap::Args)]
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
    let intact = copy(&mut reader, args.json, &mut out)?;
    out.flush()?;
    Ok(if intact { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn tail(args: &Tail) -> Result<ExitCode, Problem> {
    let mut view = View::open(directory(&args.dir)?, 0)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let (last, mut next) = last_records(&view, args.records, args.json)?;
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
        copy(&mut reader, args.json, &mut out)?;
        next = reader.next_offset();
        out.flush()?;
    }
}

/// The last `count` records as lines, and where to go on.
fn last_records(view: &View, count: u64, json: bool) -> Result<(VecDeque<Vec<u8>>, u64), Problem> {
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
                    lines.push_back(line(&record, json));
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
fn copy(reader: &mut Reader, json: bool, out: &mut impl Write) -> Result<bool, Problem> {
    let mut intact = true;
    loop {
        match reader.next()? {
            Item::Record(record) => out.write_all(&line(&record, json))?,
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

fn line(record: &Stored<'_>, json: bool) -> Vec<u8> {
    if !json {
        return [record.body, b"\n"].concat();
    }
    let mut object = serde_json::json!({
        "partition": record.partition,
        "offset": record.offset,
        "time": rfc_3339(record.time_us),
        "id": format!("{:032x}", record.id),
    });
    match std::str::from_utf8(record.body) {
        Ok(text) => object["body"] = text.into(),
        Err(_) => object["body_base64"] = base64(record.body).into(),
    }
    format!("{object}\n").into_bytes()
}

fn check(args: &Verify) -> Result<ExitCode, Problem> {
    let report = verify(&directory(&args.dir)?)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let Report { records, segments, bytes, damage, .. } = &report;
    write!(out, "{report}")?;
    let Some(Damage { file, at, .. }) = damage.first() else {
        writeln!(out, "{records} records in {segments} segments, {bytes} bytes: intact")?;
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    };
    writeln!(out, "{records} records in {segments} segments, {bytes} bytes: all others intact")?;
    out.flush()?;
    let dir = args.dir.display();
    let count = damage.len() as u64 + report.damage_untold;
    Ok(failed(&format!("{dir} is damaged in {count} places, the first at {at} of {file}")))
}

fn stat(args: &Stat) -> Result<ExitCode, Problem> {
    let view = View::open(directory(&args.dir)?, 0)?;
    let Report { records, bytes, segments, first_offset, last_offset, .. } = view.report();
    let mut out = io::stdout().lock();
    if args.json {
        let stat = serde_json::json!({
            "records": records,
            "bytes": bytes,
            "segments": segments,
            "first_offset": first_offset,
            "last_offset": last_offset,
        });
        writeln!(out, "{stat}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let offset = |offset: &Option<u64>| offset.map_or("none".to_owned(), |at| at.to_string());
    writeln!(out, "records       {records}")?;
    writeln!(out, "bytes         {bytes}")?;
    writeln!(out, "segments      {segments}")?;
    writeln!(out, "first offset  {}", offset(first_offset))?;
    writeln!(out, "last offset   {}", offset(last_offset))?;
    Ok(ExitCode::SUCCESS)
}

/// A time as `2026-01-31T12:00:00.000000Z`.
fn rfc_3339(time_us: u64) -> String {
    let (seconds, micros) = (time_us / 1_000_000, time_us % 1_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Year, month and day of a day since 1970 (H. Hinnant, "chrono-compatible low-level date algorithms",
/// `civil_from_days`).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0, |bits: u32, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= chunk.len() { letter.into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: bodies that are no text come out as other programs read them; RFC 4648, section 10.
    #[test]
    fn base64_is_the_standards() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xef, 0xbe]), "/+++");
    }

    /// Purpose: times are in the form that other programs read, leap days and year ends included.
    #[test]
    fn times_are_rfc_3339() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
            (1_767_225_599, "2025-12-31T23:59:59.000000Z"),
        ] {
            assert_eq!(rfc_3339(seconds * 1_000_000), text);
        }
        assert_eq!(rfc_3339(1_234_567_890_123_456), "2009-02-13T23:31:30.123456Z");
    }
}
