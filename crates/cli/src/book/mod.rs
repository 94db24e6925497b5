//! `highwater book`: documentation in which no number stands without its record.
//!
//! ```text
//!  Markdown ─▶ directive: marks and directives ─▶ make (database) ─▶ page: HTML, marks replaced
//! ```
//! `fill` goes the other way: it puts figures and tables into the Markdown itself, for pages that are read as Markdown.
//!
//! A page is one HTML file that loads nothing. Everything from the database is escaped. If a page needs data that the
//! database lacks, that is an error with file and line, and nothing is written.

mod chart;
mod columns;
mod database;
mod directive;
mod fill;
mod make;
mod page;
mod picture;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;

use database::Database;
use directive::{Marked, Problem};
use make::Made;
use page::{Page, Place};

/// Exit status if a page is wrong.
const WRONG: u8 = 1;
/// Exit status for a wrong flag, as clap has it.
const REFUSED: u8 = 2;
/// Pages of a book, and bytes of one, at most.
const PAGES_MAX: usize = 1000;
const PAGE_SIZE_MAX: u64 = 8 * 1024 * 1024;
/// Folders within folders, at most.
const DEPTH_MAX: usize = 8;

/// Build documentation whose figures come from a database of records.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  highwater bench export --db records.sqlite bench/evidence/*.json
  highwater book check book --db records.sqlite
  highwater book build book --db records.sqlite --out target/book

docs/book.md lists the directives.")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Write the pages as HTML files that load nothing
    #[command(after_help = "\
Example:
  highwater book build book --db records.sqlite --out target/book

Exit status:
  0  the pages were written
  1  a page is wrong; FILE:LINE says where, and nothing was written
  2  a flag is wrong")]
    Build {
        #[command(flatten)]
        source: Source,
        /// The folder to write to; created if it does not exist.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Report what is wrong with the pages; write nothing
    #[command(after_help = "\
Example:
  highwater book check book --db records.sqlite

Exit status:
  0  every directive has its record
  1  a page is wrong; FILE:LINE says where
  2  a flag is wrong")]
    Check {
        #[command(flatten)]
        source: Source,
    },
    /// Put figures and tables into the Markdown itself, for pages that are read as they are
    #[command(after_help = "\
Example:
  highwater book fill README.md docs --db records.sqlite

The text between <!-- @table: … -->, <!-- @chart: … file=\"x.svg\" --> or <!-- @metric: … --> and
<!-- @end --> is rewritten, and so are the files of charts; nothing else changes.

Exit status:
  0  every such place agrees with its records
  1  a directive is wrong, or, with --check, a place differs; FILE:LINE says where, and nothing was
     written
  2  a flag is wrong")]
    Fill {
        /// Markdown files, or folders of them.
        #[arg(required = true)]
        src: Vec<PathBuf>,
        /// The SQLite database with the records; it is only read.
        #[arg(long, value_name = "FILE.sqlite")]
        db: PathBuf,
        /// Write nothing; report the places that differ from the records.
        #[arg(long)]
        check: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Source {
    /// A Markdown file, or a folder of them.
    src: PathBuf,

    /// The SQLite database with the records; it is only read. Pages without figures need none.
    #[arg(long, value_name = "FILE.sqlite")]
    db: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let problems = match &args.verb {
        Verb::Build { source, out } => book(source, Some(out)),
        Verb::Check { source } => book(source, None),
        Verb::Fill { src, db, check } => fill(src, db, *check),
    };
    match problems {
        Ok(problems) if problems.is_empty() => ExitCode::SUCCESS,
        Ok(problems) => {
            problems.iter().for_each(|problem| complain(problem));
            ExitCode::from(WRONG)
        }
        Err(problem) => {
            complain(&format!("highwater book: {problem}"));
            ExitCode::from(REFUSED)
        }
    }
}

fn say(line: &str) {
    crate::output::say!("{line}");
}

#[expect(clippy::print_stderr, reason = "this is how a command complains")]
fn complain(problem: &str) {
    eprintln!("{problem}");
}

/// Reads everything, and writes if `out` is given and nothing is wrong. What is wrong, as `FILE:LINE: …`.
///
/// # Errors
/// There is no source, no database, or no place to write to.
fn book(source: &Source, out: Option<&Path>) -> Result<Vec<String>, String> {
    let database = Database::open(source.db.as_deref())?;
    let files = in_order(files(&source.src)?);
    let (mut pages, mut problems) = (Vec::new(), Vec::new());
    for (path, name) in &files {
        match read(path)? {
            Err(line) => problems.push(line),
            Ok(text) => match extract(&text.replace("\r\n", "\n"), path).and_then(|marked| {
                let page = page(&marked, &database)?;
                is_filled(&text, &database, path, source.db.as_deref())?;
                leads_somewhere(path, &page)?;
                Ok(page)
            }) {
                Ok(page) => pages.push((name, page)),
                Err(found) => problems.extend(found.iter().map(|problem| place(path, problem))),
            },
        }
    }
    if let (Some(out), true) = (out, problems.is_empty()) {
        write(out, &pages)?;
        if let Some((first, _)) = pages.first() {
            let (out, first) = (out.display(), first.with_added_extension("html"));
            let pages = if pages.len() == 1 {
                "1 page".to_owned()
            } else {
                format!("{} pages", pages.len())
            };
            say(&format!("{pages} written; open {out}/{}", first.display()));
        }
    }
    Ok(problems)
}

/// What [`book`] does, for [`Verb::Fill`]: writes pages whose places are not what the records say.
///
/// # Errors
/// There is no source, no database, or a page cannot be written.
fn fill(sources: &[PathBuf], db: &Path, check: bool) -> Result<Vec<String>, String> {
    let database = Database::open(Some(db))?;
    let (mut changed, mut problems) = (Vec::new(), Vec::new());
    for source in sources {
        for (path, _) in files(source)? {
            let text = match read(&path)? {
                Ok(text) => text,
                Err(line) => {
                    problems.push(line);
                    continue;
                }
            };
            let filled =
                extract(&text, &path).and_then(|marked| fill::fill(&text, &marked, &database));
            match filled {
                Err(found) => problems.extend(found.iter().map(|problem| place(&path, problem))),
                Ok(filled) if check => {
                    let stale = |line: &usize| place(&path, &stale(*line, &path, Some(db)));
                    problems.extend(changed_lines(&filled, &path).iter().map(stale));
                }
                Ok(filled) => {
                    for (_, name, file) in filled.files {
                        changed.push((beside(&path, &name), file));
                    }
                    if !filled.changed.is_empty() {
                        changed.push((path, filled.text));
                    }
                }
            }
        }
    }
    if problems.is_empty() {
        replace(changed)?;
    }
    Ok(problems)
}

/// Writes all `files`, or changes none: each is written beside its place, and takes it when all are written.
///
/// # Errors
/// The disk refuses, with the path.
fn replace(files: Vec<(PathBuf, String)>) -> Result<(), String> {
    // Where a link leads; and each file once, even if it was named twice.
    let place = |path: PathBuf| fs::canonicalize(&path).unwrap_or(path);
    let files: BTreeMap<PathBuf, String> =
        files.into_iter().map(|(path, text)| (place(path), text)).collect();
    let beside = |path: &Path| path.with_added_extension("new");
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let write = |path: &Path, text: &str| {
        fs::create_dir_all(path.parent().unwrap_or(Path::new("")))?;
        fs::write(beside(path), text)?;
        match fs::metadata(path) {
            Ok(old) => fs::set_permissions(beside(path), old.permissions()),
            Err(_) => Ok(()),
        }
    };
    let written = files
        .iter()
        .try_for_each(|(path, text)| write(path, text).map_err(|error| failed(path, error)));
    let done = written.and_then(|()| {
        let mut paths = files.keys();
        paths.try_for_each(|path| {
            fs::rename(beside(path), path).map_err(|error| failed(path, error))
        })
    });
    if done.is_err() {
        files.keys().for_each(|path| {
            // Most of them are there, and none is of use.
            let _ = fs::remove_file(beside(path));
        });
    }
    done
}

/// # Errors
/// Places that were filled and are not what the records say.
fn is_filled(
    text: &str,
    database: &Database,
    path: &Path,
    db: Option<&Path>,
) -> Result<(), Vec<Problem>> {
    let filled = extract(text, path).and_then(|marked| fill::fill(text, &marked, database))?;
    let lines = changed_lines(&filled, path);
    let problems: Vec<Problem> = lines.iter().map(|line| stale(*line, path, db)).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Lines of directives whose text, or whose file beside the page at `path`, is not what the records say.
fn changed_lines(filled: &fill::Filled, path: &Path) -> Vec<usize> {
    let mut lines = filled.changed.clone();
    let is_stale = |name: &str, file: &str| {
        fs::read_to_string(beside(path, name)).map_or(true, |found| found != *file)
    };
    let stale = filled.files.iter().filter(|(_, name, file)| is_stale(name, file));
    lines.extend(stale.map(|(line, ..)| *line));
    lines.sort_unstable();
    lines.dedup();
    lines
}

/// The file that the page at `path` calls `name`.
fn beside(path: &Path, name: &str) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).join(name)
}

/// The directives of the page at `path`, with the queries that stand in files.
fn extract(text: &str, path: &Path) -> Result<Marked, Vec<Problem>> {
    let read =
        |name: &str| fs::read_to_string(beside(path, name)).map_err(|error| error.to_string());
    let mut marked = directive::extract(text).map_err(|problem| vec![problem])?;
    directive::load_queries(&mut marked.directives, read).map_err(|problem| vec![problem])?;
    Ok(marked)
}

/// # Errors
/// Links to pages that are not there.
fn leads_somewhere(path: &Path, page: &Page) -> Result<(), Vec<Problem>> {
    let broken = page.links.iter().filter(|(_, link)| !beside(path, link).is_file());
    let problem = |(line, link): &(usize, String)| {
        let wanted = beside(path, link);
        let wanted = wanted.display();
        Problem::new(
            *line,
            format!("the link leads to {wanted}, which does not exist; correct the link"),
        )
    };
    let problems: Vec<Problem> = broken.map(problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

fn stale(line: usize, path: &Path, db: Option<&Path>) -> Problem {
    let path = path.display();
    let db = db.map_or_else(|| "FILE.sqlite".to_owned(), |db| db.display().to_string());
    Problem::new(
        line,
        format!("this text differs from the records; run highwater book fill {path} --db {db}"),
    )
}

fn place(path: &Path, problem: &Problem) -> String {
    format!("{}:{}: {}", path.display(), problem.line, problem.what)
}

/// The text of a page, or why it is none, as `FILE:LINE: …`.
fn read(path: &Path) -> Result<Result<String, String>, String> {
    let shown = path.display();
    let bytes = fs::read(path).map_err(|error| format!("{shown}: {error}"))?;
    if bytes.len() as u64 > PAGE_SIZE_MAX {
        return Ok(Err(format!(
            "{shown}:1: {} bytes; divide it into pages of 8 MiB at most",
            bytes.len()
        )));
    }
    Ok(String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..valid].iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("{shown}:{line}: this is not UTF-8; save it as UTF-8")
    }))
}

/// One page, with everything that is wrong with it.
fn page(marked: &Marked, database: &Database) -> Result<Page, Vec<Problem>> {
    let (mut made, mut problems) = (Vec::new(), Vec::new());
    for (number, directive) in marked.directives.iter().enumerate() {
        match make::make(directive, database, number) {
            Ok(html) => made.push((directive.line, html)),
            Err(what) => {
                problems.push(Problem::new(directive.line, what));
                // Its mark must not look like something else that is wrong.
                made.push((directive.line, Made::Footer));
            }
        }
    }
    match page::render(marked, &made) {
        Ok(page) if problems.is_empty() => Ok(page),
        Ok(_) => Err(problems),
        Err(found) => {
            problems.extend(found);
            problems.sort_by_key(|problem| problem.line);
            Err(problems)
        }
    }
}

/// The Markdown files of `src`, in order, each with its name below `src` without its ending.
fn files(src: &Path) -> Result<Vec<(PathBuf, PathBuf)>, String> {
    let shown = src.display();
    let metadata = fs::metadata(src).map_err(|error| format!("{shown}: {error}"))?;
    if metadata.is_file() {
        let name = src.file_stem().ok_or_else(|| format!("{shown} has no name"))?;
        return Ok(vec![(src.to_owned(), PathBuf::from(name))]);
    }
    let mut found = Vec::new();
    collect(src, Path::new(""), 0, &mut found)?;
    match found.len() {
        0 => Err(format!("{shown} has no file that ends in .md")),
        1..=PAGES_MAX => Ok(found),
        count => Err(format!("{shown} has {count} pages; give {PAGES_MAX} at most")),
    }
}

/// Pages in the order in which the first of them, the index, links to them; then all others.
fn in_order(mut files: Vec<(PathBuf, PathBuf)>) -> Vec<(PathBuf, PathBuf)> {
    let Some((index, _)) = files.first() else { return files };
    // A page that cannot be read says so later.
    let text = fs::read_to_string(index).unwrap_or_default();
    let place = |name: &Path| {
        let link = format!("]({}.md", name.display());
        text.find(&link).unwrap_or(usize::MAX)
    };
    files[1..].sort_by_key(|(_, name)| place(name));
    files
}

/// `index.md` comes first, then names in order, folders last.
fn collect(
    folder: &Path,
    below: &Path,
    depth: usize,
    found: &mut Vec<(PathBuf, PathBuf)>,
) -> Result<(), String> {
    let shown = folder.display();
    if depth > DEPTH_MAX {
        return Err(format!("{shown} is more than {DEPTH_MAX} folders deep"));
    }
    let entries = fs::read_dir(folder).map_err(|error| format!("{shown}: {error}"))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort_by_key(|path| {
        (path.is_dir(), path.file_stem() != Some("index".as_ref()), path.clone())
    });
    for path in paths {
        let Some(name) = path.file_name() else { continue };
        if path.is_dir() {
            collect(&path, &below.join(name), depth + 1, found)?;
        } else if path.extension().is_some_and(|ending| ending == "md") {
            let name = below.join(name).with_extension("");
            found.push((path, name));
        }
    }
    Ok(())
}

/// Writes all pages.
///
/// # Errors
/// The disk refuses, with the path.
fn write(out: &Path, pages: &[(&PathBuf, Page)]) -> Result<(), String> {
    for (index, (name, page)) in pages.iter().enumerate() {
        let depth = name.components().count().saturating_sub(1);
        let link = |name: &Path| {
            format!("{}{}", "../".repeat(depth), name.with_added_extension("html").display())
        };
        let contents: Vec<(String, String)> =
            pages.iter().map(|(name, page)| (link(name), page.title.clone())).collect();
        let path = out.join(name).with_added_extension("html");
        let folder = path.parent().unwrap_or(out);
        fs::create_dir_all(folder)
            .map_err(|error| format!("--out {}: {error}", folder.display()))?;
        let html = page.html(&Place { pages: &contents, index });
        fs::write(&path, html).map_err(|error| format!("--out {}: {error}", path.display()))?;
    }
    Ok(())
}
