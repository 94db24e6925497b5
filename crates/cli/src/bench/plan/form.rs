//! Reads a plan's form, and names everything that is wrong with it: TOML that is none, fields that are unknown, missing or of
//! another type. Pure.
//!
//! The parser ends at the first wrong field. So that field is taken out, and the rest is read again.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer, Error};

use super::draft::Draft;
use super::{Refused, check, findings, mend};

/// More findings than this help nobody.
const FINDINGS_MAX: usize = 50;

/// Reads and checks a plan; fields of `[cell_defaults]` are added to each cell that lacks them.
///
/// # Errors
/// Everything that is wrong with it, by lines. What only follows from another finding is left out.
pub(super) fn read(text: &str) -> Result<Draft, Vec<Refused>> {
    let (mut plan, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let mut all: Vec<Refused> = errors.iter().map(|error| refused(text, error)).collect();
        // What follows on the same line is seldom another mistake.
        all.sort_by_key(|refused| refused.line);
        all.dedup_by_key(|refused| refused.line);
        all.truncate(FINDINGS_MAX);
        return Err(all);
    }
    let mut form = Form { text, refused: Vec::new(), removed: Vec::new() };
    if let Some(defaults) = plan.get_mut().remove("cell_defaults")
        && let Err(error) = inherit(&mut plan, defaults)
    {
        form.refused.push(refused(text, &error));
    }
    match form.read(plan) {
        Some(draft) => {
            let findings = check::all(text, &draft);
            let is_new = |found: &Refused| !form.is_about_what_was_removed(found);
            form.refused.extend(findings.into_iter().filter(is_new).collect::<Vec<_>>());
            form.refused.sort_by_key(|refused| refused.line);
            if form.refused.is_empty() { Ok(draft) } else { Err(form.refused) }
        }
        None => {
            form.refused.sort_by_key(|refused| refused.line);
            Err(form.refused)
        }
    }
}

fn refused(text: &str, error: &Error) -> Refused {
    let at = error.span().map_or(0, |span| span.start);
    let what = mend::mend(error.message(), text.get(..at).unwrap_or_default());
    Refused { line: findings::line_at(text, at), what }
}

/// A plan that is read again without its wrong fields.
struct Form<'a> {
    text: &'a str,
    refused: Vec<Refused>,
    /// The wrong fields: the table that had it, and its name.
    removed: Vec<(Range<usize>, String)>,
}

impl Form<'_> {
    /// The plan without what is wrong; `None` if a table lacks a field that it must have.
    fn read(&mut self, mut plan: Spanned<DeTable<'_>>) -> Option<Draft> {
        let mut is_complete = true;
        while self.refused.len() < FINDINGS_MAX {
            let error = match Draft::deserialize(Deserializer::from(plan.clone())) {
                Ok(draft) => return is_complete.then_some(draft),
                Err(error) => error,
            };
            let is_missing = error.message().trim().starts_with("missing field");
            if !(is_missing && self.was_removed(&error)) {
                self.refused.push(refused(self.text, &error));
            }
            is_complete &= !is_missing;
            let around = plan.span();
            let wrong = error.span()?;
            if !self.remove(plan.get_mut(), &around, &wrong) {
                return None;
            }
        }
        None
    }

    /// Whether the field that is said to be missing is one that was wrong.
    fn was_removed(&self, error: &Error) -> bool {
        let name = error.message().split('`').nth(1).unwrap_or_default();
        let is_it = |(table, field): &(Range<usize>, String)| {
            error.span().as_ref() == Some(table) && field == name
        };
        self.removed.iter().any(is_it)
    }

    /// Takes out what stands at `wrong`: a field, wherever it was copied to, or a whole table of a list.
    fn remove(
        &mut self,
        table: &mut DeTable<'_>,
        around: &Range<usize>,
        wrong: &Range<usize>,
    ) -> bool {
        let is_it = |key: &Range<usize>, value: &Range<usize>| key == wrong || value == wrong;
        let found = table.iter().find(|(key, value)| is_it(&key.span(), &value.span()));
        let name = found.map(|(key, _)| key.get_ref().to_string());
        if let Some(name) = name {
            table.remove(name.as_str());
            self.removed.push((around.clone(), name));
            return true;
        }
        let mut has_removed = false;
        for (_, value) in table.iter_mut() {
            let around = value.span();
            has_removed |= self.remove_within(value.get_mut(), &around, wrong);
        }
        has_removed
    }

    fn remove_within(
        &mut self,
        value: &mut DeValue<'_>,
        around: &Range<usize>,
        wrong: &Range<usize>,
    ) -> bool {
        match value {
            DeValue::Table(table) => self.remove(table, around, wrong),
            DeValue::Array(elements) => {
                let all = std::mem::replace(elements, std::iter::empty().collect());
                let count = all.len();
                *elements = all.into_iter().filter(|element| element.span() != *wrong).collect();
                let mut has_removed = elements.len() < count;
                for element in elements.iter_mut() {
                    let around = element.span();
                    has_removed |= self.remove_within(element.get_mut(), &around, wrong);
                }
                has_removed
            }
            _ => false,
        }
    }

    /// Whether a finding may only follow from a field that was taken out: it is about a field of that name, or about the same
    /// table, or the field was a default of all cells.
    fn is_about_what_was_removed(&self, found: &Refused) -> bool {
        let tables: BTreeSet<usize> =
            self.refused.iter().map(|refused| self.table_of(refused.line)).collect();
        let header = |line: &usize| self.text.lines().nth(*line - 1).unwrap_or_default().trim();
        let table = self.table_of(found.line);
        let has_defaults = tables.iter().any(|line| header(line) == "[cell_defaults]");
        let field = found.what.split(": ").find(|word| !word.contains(' ')).unwrap_or_default();
        tables.contains(&table)
            || has_defaults && header(&table).starts_with("[[cell")
            || self.removed.iter().any(|(_, name)| name == field)
    }

    /// The line on which the table around `line` begins; 1 above all tables.
    fn table_of(&self, line: usize) -> usize {
        let is_header = |line: &str| line.starts_with('[') && !line.contains('.');
        let headers = self.text.lines().enumerate().take(line).filter(|(_, line)| is_header(line));
        headers.last().map_or(1, |(at, _)| at + 1)
    }
}

fn inherit<'a>(
    plan: &mut Spanned<DeTable<'a>>,
    defaults: Spanned<DeValue<'a>>,
) -> Result<(), Error> {
    let DeValue::Table(defaults) = defaults.into_inner() else {
        return Err(serde::de::Error::custom(
            "cell_defaults must be a table; write [cell_defaults], and under it the fields that cells have in common",
        ));
    };
    let Some(DeValue::Array(cells)) = plan.get_mut().get_mut("cell").map(Spanned::get_mut) else {
        return Ok(());
    };
    for cell in cells.iter_mut() {
        let DeValue::Table(cell) = cell.get_mut() else { continue };
        for (field, value) in &defaults {
            if !cell.contains_key(field.get_ref().as_ref()) {
                cell.insert(field.clone(), value.clone());
            }
        }
    }
    Ok(())
}
