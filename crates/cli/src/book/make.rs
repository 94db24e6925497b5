//! What does a directive make? HTML, from its parameters and the database.

use super::chart;
use super::columns;
use super::database::{Database, Table, Value};
use super::directive::Directive;
use super::picture;
use super::text::escape;

/// What stands where a directive stood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// Within a line of text.
    Inline(String),
    /// Between paragraphs.
    Block(String),
    /// At the end of the page.
    Footer,
    /// What the page is called, and nothing where it stood.
    Meta { title: Option<String> },
}

/// All directives, with their parameters. The footer takes any: those of earlier generators meant nothing either.
const NAMES: [(&str, &[&str]); 9] = [
    ("meta", &["title", "author", "generated"]),
    ("metric", &["tag", "field", "format", "query", "sql"]),
    (
        "chart",
        &["query", "sql", "title", "type", "x", "y", "series", "datasets", "options", "file"],
    ),
    ("table", &["query", "sql", "title", "columns"]),
    ("git", &["show"]),
    ("demo", &["num"]),
    ("c4", &["diagram", "title", "level"]),
    ("mermaid", &["diagram", "title"]),
    ("footer", &[]),
];
/// Ways to write a number.
const FORMATS: [&str; 4] = ["short", "comma", "decimal", "integer"];
/// What a metric is, if it does not say.
const USUAL_FIELD: &str = "baseline_rps";

/// Makes what `directive` asks for; `number` is its place among the page's.
///
/// # Errors
/// What is wrong with it, and how to mend it.
pub(super) fn make(
    directive: &Directive,
    database: &Database,
    number: usize,
) -> Result<Made, String> {
    let given = Given(directive);
    given.check()?;
    match directive.name.as_str() {
        "meta" => Ok(Made::Meta { title: given.get("title").map(str::to_owned) }),
        "footer" => Ok(Made::Footer),
        "metric" => metric(&given, database).map(|value| Made::Inline(escape(&value))),
        "chart" => {
            let table = given.rows(database)?;
            let settings = chart::Settings {
                title: given.get("title"),
                kind: given.get("type").unwrap_or("line"),
                x: given.get("x"),
                y: given.get("y"),
                series: given.get("series"),
                datasets: given.get("datasets"),
                options: given.get("options"),
                number,
            };
            chart::draw(&settings, &table).map(Made::Block)
        }
        "table" => {
            let rows = given.rows(database)?;
            let title = given.get("title").unwrap_or("Data Table");
            let columns = columns::Columns::read(given.get("columns"), &rows)?;
            Ok(Made::Block(table(title, &rows, &columns)))
        }
        "git" => git(&given, database).map(Made::Block),
        "demo" => demo(&given, database).map(Made::Block),
        "c4" | "mermaid" => {
            let title = given.get("title").map(escape).unwrap_or_default();
            let text = escape(given.need("diagram")?.trim());
            let class = &directive.name;
            Ok(Made::Block(format!(
                "<figure class=\"{class}\"><pre>{text}</pre><figcaption>{title}</figcaption></figure>"
            )))
        }
        other => Err(unknown(other)),
    }
}

fn unknown(name: &str) -> String {
    let names = NAMES.map(|(name, _)| name);
    format!("@{name} is not a directive; write one of {}", names.join(", "))
}

/// What a directive makes of a page that is read as Markdown.
pub(super) struct Written {
    pub(super) text: String,
    /// A file that the text shows, by its path from the page, and what is in it.
    pub(super) file: Option<(String, String)>,
}

/// What `directive` makes as Markdown, for a page that is read as it is.
///
/// # Errors
/// As [`make`]; or it makes nothing that Markdown has.
pub(super) fn markdown(directive: &Directive, database: &Database) -> Result<Written, String> {
    let given = Given(directive);
    given.check()?;
    let text = |text| Ok(Written { text, file: None });
    match directive.name.as_str() {
        "metric" => text(markdown_text(metric(&given, database)?.trim())),
        "table" => {
            let title = given.get("title").map(|title| format!("**{}**\n\n", markdown_text(title)));
            let rows = markdown_table(&given.rows(database)?);
            text(format!("\n\n{}{rows}\n", title.unwrap_or_default()))
        }
        "chart" => {
            let path = given.need("file")?;
            if !path.ends_with(".svg") || path.starts_with('/') {
                return Err(format!(
                    "@chart: file {path:?} is not a path to an .svg; write file=\"charts/name.svg\""
                ));
            }
            let Made::Block(figure) = make(directive, database, 0)? else {
                return Err("@chart draws nothing".to_owned());
            };
            let picture = picture::file(&figure).ok_or("@chart draws no picture")?;
            let title = markdown_text(given.get("title").unwrap_or("Chart"));
            let text = format!("\n\n![{title}]({path})\n\n");
            Ok(Written { text, file: Some((path.to_owned(), picture)) })
        }
        name if NAMES.iter().any(|(known, _)| *known == name) => Err(format!(
            "@{name} makes nothing that Markdown has; remove its @end, or write @table, @chart or @metric"
        )),
        other => Err(unknown(other)),
    }
}

/// Columns whose values are all numbers stand at the right.
fn markdown_table(table: &Table) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let rule = |is_number| if is_number { "--:" } else { "---" }.to_owned();
    let rule = numbers(table).into_iter().map(rule).collect();
    let head = table.columns.iter().map(|column| markdown_text(column)).collect();
    let row =
        |row: &Vec<Value>| line(row.iter().map(|value| markdown_text(&value.text())).collect());
    let rows: String = table.rows.iter().map(row).collect();
    format!("{}{}{rows}", line(head), line(rule))
}

/// Which columns hold numbers only, with what may stand around them: units, intervals, nothing.
fn numbers(table: &Table) -> Vec<bool> {
    // A hyphen behind the sign is a date's, or a name's.
    let is_number = |text: String| {
        let digits = text.strip_prefix('-').unwrap_or(&text);
        let begins = digits.starts_with(|c: char| "–0123456789".contains(c));
        text.is_empty() || (begins && !digits.contains('-'))
    };
    let columns = 0..table.columns.len();
    columns.map(|at| table.rows.iter().all(|row| is_number(row[at].text()))).collect()
}

/// Text without markup; code stays code.
fn markdown_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '|' | '*' | '[' | ']' | '<' | '>' => out.extend(['\\', c]),
            '\n' | '\r' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// The parameters of a directive.
struct Given<'a>(&'a Directive);

impl Given<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.parameters.get(key).map(String::as_str)
    }

    /// # Errors
    /// A parameter that the directive does not have: it would be ignored without a word.
    fn check(&self) -> Result<(), String> {
        let name = &self.0.name;
        let Some((_, known)) = NAMES.iter().find(|(known, _)| known == name) else { return Ok(()) };
        let is_strange = |key: &&String| !known.contains(&key.as_str());
        match self.0.parameters.keys().find(is_strange).filter(|_| name != "footer") {
            None => Ok(()),
            Some(key) => Err(format!(
                "@{name} has no parameter {key}; write one of {}, or remove it",
                known.join(", ")
            )),
        }
    }

    fn need(&self, key: &str) -> Result<&str, String> {
        let name = &self.0.name;
        self.get(key).ok_or_else(|| format!("@{name} needs {key}; write {key}=\"…\""))
    }

    /// The rows of `query`, one at least.
    fn rows(&self, database: &Database) -> Result<Table, String> {
        let name = &self.0.name;
        let table = database.query(self.need("query")?, &[]);
        let table = table.map_err(|problem| format!("@{name}: {problem}"))?;
        if table.rows.is_empty() {
            return Err(format!(
                "@{name}: the query has no rows; measure what is missing, or correct the query"
            ));
        }
        Ok(table)
    }
}

fn metric(given: &Given<'_>, database: &Database) -> Result<String, String> {
    let format = given.get("format");
    if let Some(unknown) = format.filter(|format| !FORMATS.contains(format)) {
        return Err(format!(
            "@metric: format {unknown:?} is unknown; write one of {}",
            FORMATS.join(", ")
        ));
    }
    let (value, what) = match (given.get("query"), given.get("tag")) {
        (Some(sql), _) => {
            let table =
                database.query(sql, &[]).map_err(|problem| format!("@metric: {problem}"))?;
            // Of several, one would be published that nobody chose.
            if table.columns.len() != 1 || table.rows.len() > 1 {
                return Err(format!(
                    "@metric: the query has {} rows of {} columns; select one value",
                    table.rows.len(),
                    table.columns.len()
                ));
            }
            (table.rows.into_iter().flatten().next(), "the query".to_owned())
        }
        (None, Some(tag)) => {
            let field = given.get("field").unwrap_or(USUAL_FIELD);
            let value =
                tagged(database, tag, field).map_err(|problem| format!("@metric: {problem}"))?;
            (value, format!("{field} of {tag:?}"))
        }
        (None, None) => return Err("@metric needs tag or query; write tag=\"…\"".to_owned()),
    };
    let value = value.filter(|value| *value != Value::Null);
    let value = value.ok_or_else(|| {
        format!("@metric: there is no record of {what}; measure it, or remove the metric")
    })?;
    if let (Some(whole), None | Some("comma" | "integer")) = (value.whole(), format) {
        return Ok(if format == Some("comma") { grouped(whole) } else { whole.to_string() });
    }
    match (value.number(), format) {
        (Some(number), _) => Ok(show(number, format.unwrap_or("integer"))),
        (None, None) => Ok(value.text()),
        (None, Some(format)) => Err(format!(
            "@metric: {:?} is not a number, so format {format:?} cannot be applied; remove it",
            value.text()
        )),
    }
}

/// A field of what was measured under a tag: of `versions`, else of its latest run.
fn tagged(database: &Database, tag: &str, field: &str) -> Result<Option<Value>, String> {
    let versions = database.columns("versions")?;
    let results = database.columns("benchmark_results")?;
    let runs = database.columns("benchmark_runs")?;
    // A name that is a column's can be put into SQL.
    let sql = if versions.iter().any(|column| column == field) {
        format!("SELECT \"{field}\" FROM versions WHERE tag = ?1")
    } else if results.iter().any(|column| column == field) {
        let id = if runs.iter().any(|column| column == "id") { "id" } else { "rowid" };
        format!(
            "SELECT r.\"{field}\" FROM benchmark_results r JOIN benchmark_runs b ON r.run_id = b.{id} \
             JOIN commits c ON b.commit_hash = c.hash WHERE c.tag = ?1 ORDER BY b.started_at DESC, b.rowid DESC LIMIT 1"
        )
    } else {
        let known: Vec<String> = versions.into_iter().chain(results).collect();
        let known = if known.is_empty() {
            "the database has neither versions nor benchmark_results; write query=\"…\"".to_owned()
        } else {
            format!("write one of {}", known.join(", "))
        };
        return Err(format!("there is no column {field:?}; {known}"));
    };
    let table = database.query(&sql, &[tag])?;
    Ok(table.rows.into_iter().next().and_then(|row| row.into_iter().next()))
}

/// `541K`, `541,275`, `541275.4`, `541275`.
pub(super) fn show(number: f64, format: &str) -> String {
    match format {
        "short" if number.abs() >= 999_500.0 => format!("{:.1}M", number / 1e6),
        "short" if number.abs() >= 999.5 => format!("{:.0}K", number / 1e3),
        "comma" => comma(number),
        "decimal" => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

/// A whole number to the last digit: a floating-point number would lose those beyond 2^53.
fn grouped(number: i128) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", by_threes(&number.unsigned_abs().to_string()))
}

fn comma(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let sign = if number < 0.0 && digits != "0" { "-" } else { "" };
    format!("{sign}{}", by_threes(&digits))
}

fn by_threes(digits: &str) -> String {
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn table(title: &str, table: &Table, columns: &columns::Columns) -> String {
    let attributes: Vec<String> = numbers(table)
        .into_iter()
        .enumerate()
        .map(|(at, is_number)| columns.attributes(at, is_number))
        .collect();
    let head: String = (0..table.columns.len())
        .map(|at| {
            let label = columns.label(at).unwrap_or(&table.columns[at]);
            format!("<th{}>{}</th>", attributes[at], escape(label))
        })
        .collect();
    let cell = |(value, attributes): (&Value, &String)| {
        format!("<td{attributes}>{}</td>", escape(&value.text()))
    };
    let rows: String = table
        .rows
        .iter()
        .map(|row| {
            let cells: String = row.iter().zip(&attributes).map(cell).collect();
            format!("<tr>{cells}</tr>\n")
        })
        .collect();
    format!(
        "<div class=\"table-container\"><table class=\"data-table\"><caption>{}</caption>\n\
         <thead><tr>{}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>",
        escape(title),
        head
    )
}

/// The versions in order, with what each reached.
fn git(given: &Given<'_>, database: &Database) -> Result<String, String> {
    let what = given.need("show")?;
    if what != "branches" {
        return Err(format!("@git: show {what:?} is unknown; write show=\"branches\""));
    }
    let sql = "SELECT tag, title, baseline_rps FROM versions ORDER BY chapter_number, tag";
    let versions = database.query(sql, &[]).map_err(|problem| format!("@git: {problem}"))?;
    if versions.rows.is_empty() {
        return Err("@git: there are no versions; add a record, or remove the directive".to_owned());
    }
    let last = versions.rows.len() - 1;
    let items: String = versions
        .rows
        .iter()
        .enumerate()
        .map(|(at, row)| {
            let rps =
                row[2].number().map(|rps| format!(" <b>{} requests/s</b>", show(rps, "comma")));
            let class = if at == last { " class=\"final\"" } else { "" };
            let (tag, title) = (escape(&row[0].text()), escape(&row[1].text()));
            format!("<li{class}><code>{tag}</code> {title}{}</li>\n", rps.unwrap_or_default())
        })
        .collect();
    Ok(format!("<ol class=\"timeline\">\n{items}</ol>"))
}

fn demo(given: &Given<'_>, database: &Database) -> Result<String, String> {
    let number = given.need("num")?;
    let sql = "SELECT title, description, output FROM demo_outputs WHERE demo_number = ?1";
    let demos = database.query(sql, &[number]).map_err(|problem| format!("@demo: {problem}"))?;
    let [row, ..] = &demos.rows[..] else {
        return Err(format!(
            "@demo: there is no demo {number}; record it, or remove the directive"
        ));
    };
    let [title, description, output] = [0, 1, 2].map(|at| escape(&row[at].text()));
    Ok(format!(
        "<figure class=\"demo\"><figcaption><b>{title}</b> {description}</figcaption><pre>{output}</pre></figure>"
    ))
}
