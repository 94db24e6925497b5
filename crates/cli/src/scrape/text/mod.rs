//! What does a page of metrics say?
//!
//! Reads the Prometheus text format 0.0.4 as strictly as Prometheus does: if one line is neither a comment nor a sample,
//! the whole page is refused. So a server's error page, a login form or half an answer is never taken for numbers. Values
//! are reported unchanged, including `NaN`; the caller decides what they mean.
//!
//! Pure: text in, samples out; no allocation, time linear in the text, no recursion. The caller
//! limits the length of the text.

use std::borrow::Cow;
use std::fmt;

/// One sample of a page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line<'a> {
    pub(crate) name: &'a str,
    labels: Labels<'a>,
    pub(crate) value: f64,
    /// When it was sampled, in milliseconds since 1970, if the page says so.
    pub(crate) taken_ms: Option<i64>,
}

impl<'a> Line<'a> {
    /// The value of the label `name`, unescaped; empty without such a label, which is the same to
    /// Prometheus.
    pub(crate) fn label(&self, name: &str) -> Cow<'a, str> {
        let found = self.labels.iter().find(|(known, _)| *known == name);
        found.map_or(Cow::Borrowed(""), |(_, value)| value)
    }
}

/// A line that is neither comment nor sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// Counted from 1.
    line: usize,
    /// Its beginning.
    begins: String,
}

/// How much of a malformed line the message shows, in characters.
const SHOWN_MAX: usize = 40;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} is not in the Prometheus text format: {:?}", self.line, self.begins)
    }
}

/// The samples of `page`, in its order. After the first error, no part of the page may be used.
pub(crate) fn lines(page: &str) -> impl Iterator<Item = Result<Line<'_>, Malformed>> {
    page.lines().enumerate().filter_map(|(index, text)| {
        let text = text.trim_matches(BLANK);
        if text.is_empty() || text.starts_with('#') {
            return None;
        }
        Some(line(text).ok_or_else(|| Malformed {
            line: index + 1,
            begins: text.chars().take(SHOWN_MAX).collect(),
        }))
    })
}

/// What separates the parts of a line.
const BLANK: [char; 2] = [' ', '\t'];

/// `name [{labels}] value [timestamp]`
fn line(text: &str) -> Option<Line<'_>> {
    let (name, labels, rest) = series(text)?;
    // Without labels, only a blank marks the end of the name.
    if labels.0.is_empty()
        && !rest.starts_with(BLANK)
        && !text[..text.len() - rest.len()].ends_with('}')
    {
        return None;
    }
    let mut words = rest.split(BLANK).filter(|word| !word.is_empty());
    let value = number(words.next()?)?;
    let taken_ms = words.next().map(|word| word.parse().ok());
    if taken_ms == Some(None) || words.next().is_some() {
        return None;
    }
    Some(Line { name, labels, value, taken_ms: taken_ms.flatten() })
}

/// Rust's grammar of numbers is the format's, except that it also accepts `infinity`.
fn number(word: &str) -> Option<f64> {
    word.parse().ok()
}

/// `name [{labels}]`, and what follows.
fn series(text: &str) -> Option<(&str, Labels<'_>, &str)> {
    let (name, rest) =
        name(text, |byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':')?;
    let Some(mut inside) = rest.trim_start_matches(BLANK).strip_prefix('{') else {
        return Some((name, Labels(""), rest));
    };
    let all = inside;
    loop {
        inside = inside.trim_start_matches(BLANK);
        if let Some(rest) = inside.strip_prefix('}') {
            return Some((name, Labels(&all[..all.len() - inside.len()]), rest));
        }
        let (_, _, rest) = label(inside)?;
        inside = rest.trim_start_matches(BLANK);
        // A comma may follow the last label too.
        match inside.strip_prefix(',') {
            Some(rest) => inside = rest,
            None if inside.starts_with('}') => {}
            None => return None,
        }
    }
}

/// `name = "value"`, the value still escaped, and what follows.
fn label(text: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = name(text, |byte| byte.is_ascii_alphanumeric() || byte == b'_')?;
    let rest = rest.trim_start_matches(BLANK).strip_prefix('=')?;
    let value = rest.trim_start_matches(BLANK).strip_prefix('"')?;
    let mut escaped = false;
    for (at, byte) in value.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some((name, &value[..at], &value[at + 1..])),
            _ => {}
        }
    }
    None
}

fn name(text: &str, is_part: impl Fn(u8) -> bool) -> Option<(&str, &str)> {
    let length = text.bytes().take_while(|&byte| is_part(byte)).count();
    let (name, rest) = text.split_at(length);
    let first = name.bytes().next()?;
    (!first.is_ascii_digit()).then_some((name, rest))
}

/// A series' labels, as they stand between the braces; known to be well-formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Labels<'a>(&'a str);

impl<'a> Labels<'a> {
    fn iter(self) -> impl Iterator<Item = (&'a str, Cow<'a, str>)> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            let (name, value, after) = label(rest)?;
            rest = after;
            Some((name, unescape(value)))
        })
    }
}

/// `\\`, `\"` and `\n`; any other escape stays as it is, as in Prometheus.
fn unescape(value: &str) -> Cow<'_, str> {
    if !value.contains('\\') {
        return Cow::Borrowed(value);
    }
    let mut text = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match (character, character == '\\') {
            (_, true) => match characters.next() {
                Some('n') => text.push('\n'),
                Some(escaped @ ('\\' | '"')) => text.push(escaped),
                other => {
                    text.push('\\');
                    text.extend(other);
                }
            },
            (other, false) => text.push(other),
        }
    }
    Cow::Owned(text)
}

/// Selects series: those with this name and all these labels, whatever other labels they have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    name: String,
    labels: Vec<(String, String)>,
}

impl Selector {
    /// The selector of every series of `name`.
    pub(crate) fn named(name: &str) -> Self {
        Selector { name: name.to_owned(), labels: Vec::new() }
    }

    /// The same labels under another name.
    pub(crate) fn renamed(&self, name: &str) -> Self {
        Selector { name: name.to_owned(), labels: self.labels.clone() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn matches(&self, line: &Line<'_>) -> bool {
        let has = |wanted: &(String, String)| {
            line.labels.iter().any(|(name, value)| name == wanted.0 && value == *wanted.1)
        };
        line.name == self.name && self.labels.iter().all(has)
    }
}

impl std::str::FromStr for Selector {
    type Err = String;

    /// `name` or `name{label="value",…}`.
    fn from_str(text: &str) -> Result<Self, String> {
        match series(text) {
            Some((name, labels, "")) => Ok(Selector {
                name: name.to_owned(),
                labels: labels
                    .iter()
                    .map(|(name, value)| (name.to_owned(), value.into_owned()))
                    .collect(),
            }),
            _ => Err("write a metric's name, or name{label=\"value\"}".to_owned()),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        let mut separator = '{';
        for (name, value) in &self.labels {
            write!(f, "{separator}{name}={value:?}")?;
            separator = ',';
        }
        if separator == ',' { f.write_str("}") } else { Ok(()) }
    }
}

/// The sum over the selected series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sum {
    pub(crate) value: f64,
    /// When the oldest of them was sampled, in milliseconds since 1970, if the page says so.
    pub(crate) taken_ms: Option<i64>,
}

/// Adds up the series of each of `selectors` on `page`; `None` for a selector without series.
///
/// # Errors
/// The page is not in the format.
pub(crate) fn sums(page: &str, selectors: &[Selector]) -> Result<Vec<Option<Sum>>, Malformed> {
    let mut sums: Vec<Option<Sum>> = vec![None; selectors.len()];
    for line in lines(page) {
        let line = line?;
        for (selector, sum) in selectors.iter().zip(&mut sums) {
            if selector.matches(&line) {
                let before = sum.unwrap_or(Sum { value: 0.0, taken_ms: None });
                let oldest = [before.taken_ms, line.taken_ms].into_iter().flatten().min();
                *sum = Some(Sum { value: before.value + line.value, taken_ms: oldest });
            }
        }
    }
    Ok(sums)
}

#[cfg(test)]
mod tests;
