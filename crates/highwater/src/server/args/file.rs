//! What does the configuration file say?
//!
//! One flat TOML table whose keys are the long names of flags. This module turns it into
//! command-line arguments; their meaning is decided in one place for all sources.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::source::Place;

/// Largest configuration file, in bytes: far more than every setting there is.
const SIZE_MAX: u64 = 1 << 20;

/// The settings of a file.
#[derive(Debug)]
pub(super) struct File {
    pub(super) entries: Vec<Entry>,
}

/// One setting of a file.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) place: Place,
    /// More than one if it is an array.
    pub(super) values: Vec<String>,
    pub(super) is_array: bool,
}

impl File {
    /// Parses `text`, which was read from `path`.
    ///
    /// # Errors
    /// A line for the operator, beginning with the position of the mistake.
    pub(super) fn parse(path: &Path, text: &str) -> Result<File, String> {
        let at = |offset: usize| format!("{}:{}", path.display(), line_of(text, offset));
        let table = DeTable::parse(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            format!("{}: not TOML: {}", at(offset), error.message())
        })?;
        let mut entries = Vec::new();
        for (key, value) in table.get_ref() {
            let is_array = value.get_ref().is_array();
            let values = words(value.get_ref()).ok_or_else(|| {
                format!(
                    "{}: {} is of type {}; a setting is a string, a number, true or false, at the top \
                     level of the file",
                    at(key.span().start),
                    key.get_ref(),
                    value.get_ref().type_str()
                )
            })?;
            let line = line_of(text, key.span().start);
            let place = Place { path: path.to_owned(), line };
            entries.push(Entry { key: key.get_ref().to_string(), place, values, is_array });
        }
        entries.sort_by_key(|entry| entry.place.line);
        Ok(File { entries })
    }

    /// The setting called `key`.
    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }
}

/// Reads the file at `path`, if it is no larger than a configuration can be.
pub(super) fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = fs::File::open(path)?.take(SIZE_MAX + 1).read_to_string(&mut text)?;
    if read as u64 > SIZE_MAX {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    Ok(text)
}

/// The line that `offset` is on, counted from 1.
fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|&byte| byte == b'\n').count() + 1
}

fn words(value: &DeValue<'_>) -> Option<Vec<String>> {
    match value {
        DeValue::Array(values) => values.iter().map(|value| word(value.get_ref())).collect(),
        single => word(single).map(|word| vec![word]),
    }
}

/// A value as one would write it on the command line.
fn word(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(integer) => {
            let decimal = i128::from_str_radix(integer.as_str(), integer.radix());
            Some(decimal.map_or_else(|_| integer.as_str().to_owned(), |value| value.to_string()))
        }
        DeValue::Float(float) => Some(float.as_str().to_owned()),
        DeValue::Boolean(flag) => Some(flag.to_string()),
        DeValue::Datetime(time) => Some(time.to_string()),
        DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<(String, usize, Vec<String>)>, String> {
        let file = File::parse(Path::new("a.toml"), text)?;
        Ok(file.entries.into_iter().map(|e| (e.key, e.place.line, e.values)).collect())
    }

    /// Purpose: every scalar becomes the word one would have typed, and knows its line.
    #[test]
    fn values_become_words() {
        let text = "# comment\nlisten = \"0.0.0.0:80\"\n\nworkers = 1_0\nbody-max = 0x400\n\
                    ratio = 0.5\nquiet = true\ntags = [\"a\", 2]\n";
        let entry = |key: &str, line, values: &[&str]| {
            (key.to_owned(), line, values.iter().map(|&v| v.to_owned()).collect())
        };
        let expected = vec![
            entry("listen", 2, &["0.0.0.0:80"]),
            entry("workers", 4, &["10"]),
            entry("body-max", 5, &["1024"]),
            entry("ratio", 6, &["0.5"]),
            entry("quiet", 7, &["true"]),
            entry("tags", 8, &["a", "2"]),
        ];
        assert_eq!(parse(text), Ok(expected));
    }

    /// Purpose: every value that cannot be a setting is refused with its position.
    #[test]
    fn mistakes_name_their_line() {
        let error = |text| parse(text).expect_err(text);
        assert!(error("a = 1\nb =\n").starts_with("a.toml:2: not TOML: "));
        assert!(error("a = 1\na = 2\n").starts_with("a.toml:2: not TOML: "));
        assert!(
            error("x = 1\n[server]\nlisten = \"\"\n")
                .starts_with("a.toml:2: server is of type table;")
        );
        assert!(error("a.b = 1").starts_with("a.toml:1: a is of type table;"));
        assert!(error("a = [[1]]").starts_with("a.toml:1: a is of type array;"));
    }
}
