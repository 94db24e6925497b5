//! Which directives does a page have, and what is the page without them? Pure.
//!
//! `<!-- @name: key="value" key2='value' key3=value -->` outside of code. A value in quotes may hold anything, `-->` and line
//! ends too; a backslash keeps the next character. A word that ends in `.sql` names a file with the query; other words without
//! `=` mean nothing. Each directive is replaced by a mark, which passes through Markdown like a letter; its result replaces the
//! mark afterwards. The text between a directive and `<!-- @end -->` is the result from when the page was last filled (`fill`):
//! readers of the Markdown see it, and a built page has the new result in its place.

use std::collections::BTreeMap;
use std::ops::Range;

use pulldown_cmark::{Event, Parser, Tag};

use super::text::{MARK, options};

/// What ends the text that a directive made.
const END: &str = "end";
/// The parameter that names a file with the query.
const SQL: &str = "sql";
/// Bytes of such a file, at most.
const SQL_SIZE_MAX: usize = 64 * 1024;

/// One directive, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Directive {
    /// From 1.
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) parameters: BTreeMap<String, String>,
    /// Which bytes of the source stand between it and its `@end`, if it has one.
    pub(super) filled: Option<Range<usize>>,
}

/// What is wrong in a page, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// From 1.
    pub(super) line: usize,
    pub(super) what: String,
}

impl Problem {
    pub(super) fn new(line: usize, what: impl Into<String>) -> Problem {
        Problem { line, what: what.into() }
    }
}

/// A page whose directives are marks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Marked {
    pub(super) text: String,
    /// In order, as the marks count them.
    pub(super) directives: Vec<Directive>,
    /// From which byte of `text` on, which line of the source follows.
    pub(super) places: Vec<(usize, usize)>,
}

impl Marked {
    /// The line of the source that byte `at` of the text comes from.
    pub(super) fn line(&self, at: usize) -> usize {
        let last = self.places.iter().rev().find(|(from, _)| *from <= at);
        let (from, line) = last.copied().unwrap_or((0, 1));
        line + self.text.as_bytes()[from..at].iter().filter(|byte| **byte == b'\n').count()
    }

    fn push(&mut self, source: &str, range: Range<usize>) {
        self.places.push((self.text.len(), line_at(source, range.start)));
        self.text.push_str(&source[range]);
    }
}

/// Puts marks for directives.
pub(super) fn extract(text: &str) -> Result<Marked, Problem> {
    if let Some(at) = text.find([MARK.0, MARK.1]) {
        return Err(Problem::new(
            line_at(text, at),
            "U+E000 and U+E001 are kept for directives; remove it",
        ));
    }
    let code = code_ranges(text);
    let (mut out, mut at) = (Marked::default(), 0);
    while let Some(next) = text[at..].find("<!--").map(|offset| at + offset) {
        let inside = code.iter().find(|range| range.contains(&next));
        let body = text[next + 4..].trim_start();
        let begin = text.len() - body.len();
        match (inside, body.strip_prefix('@')) {
            (Some(range), _) => {
                let end = range.end.max(next + 4);
                out.push(text, at..end);
                at = end;
            }
            (None, Some(_)) => {
                out.push(text, at..next);
                let (mut directive, mut end) = read(text, next, begin + 1)?;
                if directive.name == END {
                    return Err(Problem::new(
                        directive.line,
                        "@end has no directive before it; remove it, or write the directive",
                    ));
                }
                if let Some((filled, behind)) = filled(text, end, &code)? {
                    directive.filled = Some(filled);
                    end = behind;
                }
                place(&mut out.text, out.directives.len(), &directive, &text[end..]);
                out.directives.push(directive);
                at = end;
            }
            // Another comment: it says nothing to readers.
            (None, None) => {
                out.push(text, at..next);
                at = text[next..].find("-->").map_or(text.len(), |offset| next + offset + 3);
            }
        }
    }
    out.push(text, at..text.len());
    Ok(out)
}

/// Puts queries in place of the files that have them; `read` reads a file that is named relative to the page.
///
/// # Errors
/// A file cannot be read, is too long, or stands beside a query.
pub(super) fn load_queries(
    directives: &mut [Directive],
    read: impl Fn(&str) -> Result<String, String>,
) -> Result<(), Problem> {
    for directive in directives {
        let Some(file) = directive.parameters.get(SQL) else { continue };
        let wrong =
            |what: String| Problem::new(directive.line, format!("@{}: {what}", directive.name));
        if directive.parameters.contains_key("query") {
            return Err(wrong(format!("both query and {file}; write one of them")));
        }
        let query = read(file).map_err(|error| wrong(format!("{file}: {error}")))?;
        if query.len() > SQL_SIZE_MAX {
            return Err(wrong(format!(
                "{file} has {} bytes; write {SQL_SIZE_MAX} at most",
                query.len()
            )));
        }
        directive.parameters.insert("query".to_owned(), query);
    }
    Ok(())
}

/// Puts the mark of directive `index`: in a paragraph of its own, if it stands alone on its lines.
fn place(out: &mut String, index: usize, directive: &Directive, rest: &str) {
    let before = out.rsplit('\n').next().unwrap_or_default().to_owned();
    let is_alone =
        before.trim().is_empty() && rest.split('\n').next().is_none_or(|end| end.trim().is_empty());
    let mark = format!("{}{index}{}", MARK.0, MARK.1);
    if is_alone && directive.name != "metric" {
        // With the same indentation, so that a list goes on.
        *out += &format!("\n\n{before}{mark}\n");
    } else {
        *out += &mark;
    }
}

/// What stands between a directive that ends at `at` and its `@end`, and where that ends; none if the next directive is
/// another.
fn filled(
    text: &str,
    at: usize,
    code: &[Range<usize>],
) -> Result<Option<(Range<usize>, usize)>, Problem> {
    let comments = text[at..].match_indices("<!--").map(|(offset, _)| at + offset);
    for comment in comments.filter(|at| !code.iter().any(|range| range.contains(at))) {
        let body = text[comment + 4..].trim_start();
        if body.starts_with('@') {
            let (next, end) = read(text, comment, text.len() - body.len() + 1)?;
            return Ok((next.name == END).then_some((at..comment, end)));
        }
    }
    Ok(None)
}

/// The parts of a page that are code, in bytes.
fn code_ranges(text: &str) -> Vec<Range<usize>> {
    let events = Parser::new_ext(text, options()).into_offset_iter();
    events
        .filter(|(event, _)| matches!(event, Event::Code(_) | Event::Start(Tag::CodeBlock(_))))
        .map(|(_, range)| range)
        .collect()
}

/// The directive that begins at `comment`, its name at `at`; and where it ends.
fn read(text: &str, comment: usize, at: usize) -> Result<(Directive, usize), Problem> {
    let line = line_at(text, comment);
    let rest = &text[at..];
    let name_end =
        rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    let mut directive =
        Directive { line, name: rest[..name_end].to_owned(), ..Directive::default() };
    let open = || {
        Problem::new(line, format!("@{}: the directive does not end; write -->", &rest[..name_end]))
    };
    let mut at = at + name_end;
    at += usize::from(text[at..].starts_with(':'));
    loop {
        at += text[at..].len() - text[at..].trim_start().len();
        let rest = &text[at..];
        if rest.is_empty() {
            return Err(open());
        }
        if rest.starts_with("-->") {
            return Ok((directive, at + 3));
        }
        let end = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
        let end = rest.find("-->").map_or(end, |close| close.min(end));
        let key = &rest[..end];
        at += end;
        if !text[at..].starts_with('=') {
            if key.ends_with(".sql") {
                directive.parameters.insert(SQL.to_owned(), key.to_owned());
            }
            continue;
        }
        let (value, size) = value(&text[at + 1..]).ok_or_else(open)?;
        at += 1 + size;
        directive.parameters.insert(key.to_owned(), value);
    }
}

/// A value, and how many bytes it takes; `None` if its quotes do not close.
fn value(text: &str) -> Option<(String, usize)> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''));
    let Some(quote) = quote else {
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        let end = text.find("-->").map_or(end, |close| close.min(end));
        return Some((text[..end].to_owned(), end));
    };
    let mut value = String::new();
    let mut rest = text.char_indices().skip(1);
    while let Some((at, c)) = rest.next() {
        match c {
            '\\' => value.push(rest.next()?.1),
            c if c == quote => return Some((value, at + 1)),
            c => value.push(c),
        }
    }
    None
}

/// The line, from 1, of byte `at`.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}
