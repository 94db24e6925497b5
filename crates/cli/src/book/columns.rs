//! Which classes and which heads do a table's columns have, according to its `columns`? Pure.
//!
//! `columns='{"RPS": {"class": "rps", "label": "Requests per second"}}'`, by the query's names.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::database::Table;

/// What is asked for one column.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Column {
    class: Option<String>,
    label: Option<String>,
}

/// What is asked for each column of a table, by its place.
#[derive(Debug)]
pub(super) struct Columns {
    /// Whether anything was asked for: then no column has a class that was not.
    given: bool,
    all: Vec<Column>,
}

impl Columns {
    /// # Errors
    /// It is not JSON, has a name that is not known, or a column that the query does not have.
    pub(super) fn read(text: Option<&str>, table: &Table) -> Result<Columns, String> {
        let mut all = vec![Column::default(); table.columns.len()];
        let Some(text) = text else { return Ok(Columns { given: false, all }) };
        let wrong = |what: String| format!("@table: columns: {what}");
        let given: BTreeMap<String, Column> =
            serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        for (name, column) in given {
            let at = table.columns.iter().position(|known| *known == name).ok_or_else(|| {
                let known = table.columns.join(", ");
                wrong(format!("{name:?} is not a column of the query; it has {known}"))
            })?;
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_ ".contains(c);
            if let Some(class) = column.class.as_ref().filter(|class| !class.chars().all(is_plain))
            {
                let remedy = "write letters, digits, - and _";
                return Err(wrong(format!("{class:?} is not a class; {remedy}")));
            }
            all[at] = column;
        }
        Ok(Columns { given: true, all })
    }

    /// The attributes of a cell in column `at`, with a space before them.
    pub(super) fn attributes(&self, at: usize, is_number: bool) -> String {
        match (&self.all[at].class, self.given, is_number) {
            (Some(class), _, false) => format!(" class=\"{class}\""),
            (Some(class), _, true) => format!(" class=\"{class}\" data-number"),
            (None, true, true) => " data-number".to_owned(),
            (None, false, true) => " class=\"number\"".to_owned(),
            (None, _, false) => String::new(),
        }
    }

    /// What stands at the head of column `at`, if it is not the query's name.
    pub(super) fn label(&self, at: usize) -> Option<&str> {
        self.all[at].label.as_deref()
    }
}
