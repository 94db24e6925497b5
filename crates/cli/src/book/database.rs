//! What does the database say? Read-only: a query that would write is refused before it runs.

use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

/// Rows of one query, at most.
const ROWS_MAX: usize = 10_000;
/// How much of a query a message shows, from where it is wrong.
const NEAR_CHARS: usize = 40;

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
}

impl Value {
    /// As a number, if it is one.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Value::Integer(number) => Some(*number as f64),
            Value::Real(number) => Some(*number),
            Value::Text(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
            Value::Null => None,
        }
    }

    /// As a whole number, to the last digit, if it is written as one.
    pub(super) fn whole(&self) -> Option<i128> {
        match self {
            Value::Integer(number) => Some(i128::from(*number)),
            Value::Text(text) => text.trim().parse().ok(),
            Value::Real(_) | Value::Null => None,
        }
    }

    /// As a reader sees it.
    pub(super) fn text(&self) -> String {
        match self {
            Value::Null => String::new(),
            Value::Integer(number) => number.to_string(),
            Value::Real(number) => number.to_string(),
            Value::Text(text) => text.clone(),
        }
    }
}

/// The rows of a query.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<Value>>,
}

/// A database that is only read; or none, for pages that have no figures.
pub(super) struct Database(Option<Connection>);

impl Database {
    /// Opens the database in `path`, if there is to be one.
    ///
    /// # Errors
    /// There is none at that path, or it is not SQLite's.
    pub(super) fn open(path: Option<&Path>) -> Result<Database, String> {
        let Some(path) = path else { return Ok(Database(None)) };
        let shown = path.display();
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(|error| {
            format!("--db {shown}: {error}; `highwater bench export` makes one")
        })?;
        // Opening reads nothing yet.
        connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
            .map_err(|error| format!("--db {shown}: {error}; give a SQLite database"))?;
        Ok(Database(Some(connection)))
    }

    /// The rows of `sql`, with `parameters` for its question marks.
    ///
    /// # Errors
    /// It is not one query, would write, fails, or has too many rows.
    pub(super) fn query(&self, sql: &str, parameters: &[&str]) -> Result<Table, String> {
        let Some(connection) = &self.0 else {
            return Err("this needs records; give --db FILE.sqlite".to_owned());
        };
        let mut words =
            sql.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
        let first = words.next().unwrap_or_default().to_ascii_uppercase();
        if !matches!(first.as_str(), "SELECT" | "WITH" | "VALUES") {
            return Err(format!(
                "the query would write, or is none: it begins with {first:?}; write SELECT"
            ));
        }
        if has_more(sql) {
            return Err("the query is followed by another; write one SELECT".to_owned());
        }
        let failed = |error: rusqlite::Error| self.failure(&error, sql);
        let mut statement = connection.prepare(sql).map_err(failed)?;
        if !statement.readonly() {
            return Err("the query would write; write SELECT".to_owned());
        }
        let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let mut rows = statement.query(rusqlite::params_from_iter(parameters)).map_err(failed)?;
        let mut table = Table { columns, rows: Vec::new() };
        while let Some(row) = rows.next().map_err(failed)? {
            if table.rows.len() == ROWS_MAX {
                return Err(format!(
                    "the query has more than {ROWS_MAX} rows; add LIMIT, or aggregate"
                ));
            }
            let values = (0..table.columns.len()).map(|at| row.get_ref(at).map(value));
            table.rows.push(values.collect::<Result<_, _>>().map_err(failed)?);
        }
        Ok(table)
    }

    /// Why a query fails, where in it, and what there is instead.
    fn failure(&self, error: &rusqlite::Error, sql: &str) -> String {
        let (msg, near) = match error {
            rusqlite::Error::SqlInputError { msg, offset, .. } => {
                let at = usize::try_from(*offset).unwrap_or(sql.len());
                let near = sql.get(at..).unwrap_or_default().trim();
                (msg.clone(), near.chars().take(NEAR_CHARS).collect::<String>())
            }
            rusqlite::Error::SqliteFailure(_, Some(msg)) => (msg.clone(), String::new()),
            error => (error.to_string(), String::new()),
        };
        let mut text = format!("the query fails: {msg}");
        if !near.is_empty() {
            text.push_str(&format!(", at {near:?}"));
        }
        let tables = self.tables();
        if msg.starts_with("no such table") {
            text.push_str(&format!("; the database has {}", tables.join(", ")));
        } else if msg.starts_with("no such column") {
            let is_used = |name: &&String| {
                sql.split(|c: char| !(c.is_alphanumeric() || c == '_'))
                    .any(|word| word.eq_ignore_ascii_case(name))
            };
            for table in tables.iter().filter(is_used) {
                let columns = self.columns(table).unwrap_or_default();
                text.push_str(&format!("; {table} has {}", columns.join(", ")));
            }
        }
        text
    }

    /// The names of all tables and views.
    fn tables(&self) -> Vec<String> {
        let sql = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') ORDER BY name";
        let found = self.query(sql, &[]);
        found.map_or_else(|_| Vec::new(), |t| t.rows.iter().map(|row| row[0].text()).collect())
    }

    /// The columns of `table`; none if there is no such table.
    pub(super) fn columns(&self, table: &str) -> Result<Vec<String>, String> {
        let found = self.query("SELECT name FROM pragma_table_info(?1)", &[table])?;
        Ok(found.rows.iter().map(|row| row[0].text()).collect())
    }
}

fn value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Text(bytes) => Value::Text(String::from_utf8_lossy(bytes).into_owned()),
        ValueRef::Blob(bytes) => Value::Text(format!("({} bytes)", bytes.len())),
    }
}

/// Whether anything but white space and comments follows the first statement, which `prepare` would leave out.
fn has_more(sql: &str) -> bool {
    let (mut rest, mut ended) = (sql, false);
    while let Some(c) = rest.chars().next() {
        let size = match c {
            '\'' | '"' | '`' => rest[1..].find(c).map_or(rest.len(), |end| end + 2),
            '[' => rest.find(']').map_or(rest.len(), |end| end + 1),
            '-' if rest.starts_with("--") => rest.find('\n').map_or(rest.len(), |end| end + 1),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            c => c.len_utf8(),
        };
        let is_comment = rest.starts_with("--") || rest.starts_with("/*");
        if ended && !is_comment && !c.is_whitespace() && c != ';' {
            return true;
        }
        ended |= c == ';';
        rest = &rest[size..];
    }
    false
}
