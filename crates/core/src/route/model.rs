//! A router as simple as possible: it tries every pattern, segment by segment, and keeps the best.
//! It shares nothing with the tree. The fuzz target uses it too.

use core::cmp::Reverse;
use std::string::String;
use std::vec::Vec;

/// One pattern, as a list of segments. Only for patterns that a router accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(Vec<Segment>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Segment {
    // In order of precedence.
    Literal(String),
    /// More text in front comes first, then more behind.
    Param(Reverse<usize>, Reverse<usize>, String, String),
    Rest,
}

/// Text up to a parameter, doubled braces made one; and the rest.
fn literal(text: &str) -> (String, &str) {
    let mut made = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let doubled = matches!(first, '{' | '}') && rest[1..].starts_with(first);
        if first == '{' && !doubled {
            break;
        }
        made.push(first);
        rest = &rest[first.len_utf8() * if doubled { 2 } else { 1 }..];
    }
    (made, rest)
}

impl Pattern {
    /// Patterns are equal if they match the same paths.
    pub(super) fn new(pattern: &str) -> Self {
        let segment = |text: &str| {
            let (prefix, param) = literal(text);
            match param.split_once('}') {
                None => Segment::Literal(prefix),
                Some((name, _)) if name.starts_with("{*") => Segment::Rest,
                Some((_, after)) => {
                    let (suffix, _) = literal(after);
                    Segment::Param(Reverse(prefix.len()), Reverse(suffix.len()), prefix, suffix)
                }
            }
        };
        Pattern(pattern[1..].split('/').map(segment).collect())
    }

    /// The parameters' values, if `path` matches.
    fn captures<'p>(&self, path: &'p str) -> Option<Vec<&'p str>> {
        let mut values = Vec::new();
        let mut left = Some(path.strip_prefix('/')?);
        for segment in &self.0 {
            let text = left?;
            let (first, others) = match text.split_once('/') {
                Some((first, others)) => (first, Some(others)),
                None => (text, None),
            };
            left = others;
            match segment {
                Segment::Literal(literal) if literal == first => {}
                Segment::Param(_, _, prefix, suffix) => {
                    let value = first.strip_prefix(&**prefix)?.strip_suffix(&**suffix)?;
                    if value.is_empty() {
                        return None;
                    }
                    values.push(value);
                }
                Segment::Rest if !text.is_empty() => {
                    values.push(text);
                    left = None;
                }
                _ => return None,
            }
        }
        left.is_none().then_some(values)
    }
}

/// The index of the pattern that `path` belongs to, and its parameters' values.
pub(super) fn find<'p>(patterns: &[Pattern], path: &'p str) -> Option<(usize, Vec<&'p str>)> {
    let matching = patterns.iter().enumerate().filter_map(|(index, pattern)| {
        let values = pattern.captures(path)?;
        Some((&pattern.0, index, values))
    });
    let best = matching.min_by(|left, right| left.0.cmp(right.0))?;
    Some((best.1, best.2))
}
