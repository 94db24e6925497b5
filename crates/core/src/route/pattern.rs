//! What does a pattern mean? Parses text to pieces, or to an error that says what to write instead.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::PARAMS_MAX;

/// A pattern taken apart.
///
/// Invariants: the first piece is literal and begins with `/`; no two literals follow each other; a
/// parameter follows a literal, and its suffix ends where the segment does; only the last piece is `Rest`, and follows
/// a literal that ends with `/`.
pub(super) struct Pattern {
    pub(super) pieces: Vec<Piece>,
    pub(super) param_names: Box<[Box<str>]>,
}

pub(super) enum Piece {
    Literal(Vec<u8>),
    /// A segment, or what of it is left, without this text at its end.
    Param(Vec<u8>),
    Rest,
}

impl Pattern {
    pub(super) fn parse(pattern: &str) -> Result<Pattern, InsertError> {
        parse(pattern).map_err(|kind| InsertError::new(pattern, kind))
    }
}

/// A pattern that was refused. The fault is the application's; [`fmt::Display`] says what to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsertError {
    pattern: Box<str>,
    kind: InsertErrorKind,
}

impl InsertError {
    pub(super) fn new(pattern: &str, kind: InsertErrorKind) -> Self {
        InsertError { pattern: pattern.into(), kind }
    }

    /// The pattern that was refused.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Why it was refused.
    pub fn kind(&self) -> &InsertErrorKind {
        &self.kind
    }
}

/// Why a pattern was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InsertErrorKind {
    /// Another route matches the same paths.
    Conflict {
        /// That route's pattern.
        existing: Box<str>,
    },
    /// It is empty or does not begin with `/`.
    NoLeadingSlash,
    /// It has a character that no request's path can have.
    NeverMatches {
        /// The first such character.
        character: char,
    },
    /// A `{` or `}` without its counterpart.
    UnpairedBrace {
        /// The segment it is in.
        segment: Box<str>,
    },
    /// Two parameters in one segment, or `{*rest}` with text beside it.
    PartOfSegment {
        /// That segment.
        segment: Box<str>,
    },
    /// `:name` or `*name`, which mean a parameter elsewhere.
    OtherSyntax {
        /// The segment that begins like that.
        segment: Box<str>,
    },
    /// A parameter's name is empty or not made of ASCII letters, digits, `_` and `-`.
    BadName {
        /// The name.
        name: Box<str>,
    },
    /// Two parameters have the same name.
    DuplicateName {
        /// The name.
        name: Box<str>,
    },
    /// Something follows `{*rest}`.
    RestNotLast {
        /// The parameter's name.
        name: Box<str>,
    },
    /// There are more than [`PARAMS_MAX`] parameters.
    TooManyParams,
}

impl fmt::Display for InsertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use InsertErrorKind as Kind;
        write!(f, "route `{}`: ", self.pattern)?;
        match &self.kind {
            Kind::Conflict { existing } => write!(
                f,
                "it matches the same paths as `{existing}`, which is already there; add what is \
                 new to that route, written `{existing}`, or choose another path"
            ),
            Kind::NoLeadingSlash => {
                let pattern = &self.pattern;
                write!(f, "it must begin with a slash; write `/{pattern}`")
            }
            Kind::NeverMatches { character: '?' } => f.write_str(
                "the query is not part of the path; leave out everything from the `?` and read \
                 the query in the handler",
            ),
            Kind::NeverMatches { character } => {
                write!(f, "a path on the wire never contains {character:?}; write `")?;
                character
                    .encode_utf8(&mut [0; 4])
                    .bytes()
                    .try_for_each(|b| write!(f, "%{b:02X}"))?;
                f.write_str("`")
            }
            Kind::UnpairedBrace { segment } => write!(
                f,
                "`{segment}` has a brace without its counterpart; a parameter is written `{{name}}`, \
                 a literal brace `{{{{` or `}}}}`"
            ),
            Kind::PartOfSegment { segment } => write!(
                f,
                "in `{segment}` it is not clear where a parameter ends; write one `{{name}}` between two \
                 slashes, with text before and behind it if you like, and `{{*rest}}` alone"
            ),
            Kind::OtherSyntax { segment } => {
                let name = segment.get(1..).filter(|name| is_name(name)).unwrap_or("name");
                let star = if segment.starts_with('*') { "*" } else { "" };
                write!(f, "`{segment}` is another framework's parameter; write `{{{star}{name}}}`")
            }
            Kind::BadName { name } => write!(
                f,
                "`{name}` is not a parameter name; use ASCII letters, digits, `_` and `-`, and \
                 check the value in the handler"
            ),
            Kind::DuplicateName { name } => {
                write!(f, "two parameters are called `{name}`; give one of them another name")
            }
            Kind::RestNotLast { name } => write!(
                f,
                "`{{*{name}}}` matches the rest of the path, so it must come last; write `{{{name}}}` for \
                 one segment"
            ),
            Kind::TooManyParams => write!(
                f,
                "it has more than {PARAMS_MAX} parameters; take several segments at once with \
                 `{{*rest}}`"
            ),
        }
    }
}

impl core::error::Error for InsertError {}

fn parse(pattern: &str) -> Result<Pattern, InsertErrorKind> {
    let path = pattern.strip_prefix('/').ok_or(InsertErrorKind::NoLeadingSlash)?;
    if let Some(character) = path.chars().find(|&c| !c.is_ascii_graphic() || matches!(c, '?' | '#'))
    {
        return Err(InsertErrorKind::NeverMatches { character });
    }
    let mut pieces = Vec::new();
    let mut names: Vec<Box<str>> = Vec::new();
    let mut literal = Vec::new();
    let mut segments = path.split('/').peekable();
    while let Some(segment) = segments.next() {
        literal.push(b'/');
        let (name, piece) = match Segment::parse(segment)? {
            Segment::Literal(text) => {
                literal.extend_from_slice(text.as_bytes());
                continue;
            }
            Segment::Param { prefix, name, suffix } => {
                literal.extend_from_slice(prefix.as_bytes());
                (name, Piece::Param(suffix.into_bytes()))
            }
            Segment::Rest(name) if segments.peek().is_none() => (name, Piece::Rest),
            Segment::Rest(name) => {
                return Err(InsertErrorKind::RestNotLast { name: name.into() });
            }
        };
        if names.iter().any(|known| **known == *name) {
            return Err(InsertErrorKind::DuplicateName { name: name.into() });
        }
        if names.len() == PARAMS_MAX {
            return Err(InsertErrorKind::TooManyParams);
        }
        names.push(name.into());
        pieces.push(Piece::Literal(core::mem::take(&mut literal)));
        pieces.push(piece);
    }
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(Pattern { pieces, param_names: names.into() })
}

/// What is between two slashes.
enum Segment<'a> {
    Literal(String),
    Param { prefix: String, name: &'a str, suffix: String },
    Rest(&'a str),
}

impl<'a> Segment<'a> {
    fn parse(segment: &'a str) -> Result<Segment<'a>, InsertErrorKind> {
        if segment.starts_with([':', '*']) {
            return Err(InsertErrorKind::OtherSyntax { segment: segment.into() });
        }
        let part = || InsertErrorKind::PartOfSegment { segment: segment.into() };
        let (prefix, from_brace) = literal_text(segment)?;
        let Some(inner) = from_brace.strip_prefix('{') else {
            return Ok(Segment::Literal(prefix));
        };
        let Some((inside, after)) = inner.split_once('}') else {
            return Err(InsertErrorKind::UnpairedBrace { segment: segment.into() });
        };
        let unpaired = |_| InsertErrorKind::UnpairedBrace { segment: segment.into() };
        let (suffix, another) = literal_text(after).map_err(unpaired)?;
        if !another.is_empty() {
            return Err(part());
        }
        let rest = inside.strip_prefix('*');
        let name = rest.unwrap_or(inside);
        if !is_name(name) {
            return Err(InsertErrorKind::BadName { name: name.into() });
        }
        match rest {
            None => Ok(Segment::Param { prefix, name, suffix }),
            Some(_) if !(prefix.is_empty() && suffix.is_empty()) => Err(part()),
            Some(_) => Ok(Segment::Rest(name)),
        }
    }
}

/// The text up to a parameter, with every doubled brace made one; and the remaining segment from the parameter's brace
/// on, or nothing.
fn literal_text(segment: &str) -> Result<(String, &str), InsertErrorKind> {
    let mut text = String::with_capacity(segment.len());
    let mut rest = segment;
    while let Some(brace) = rest.find(['{', '}']) {
        let (before, from_brace) = rest.split_at(brace);
        text.push_str(before);
        let (one, after) = from_brace.split_at(1);
        let Some(after) = after.strip_prefix(one) else {
            return match one {
                "{" => Ok((text, from_brace)),
                _ => Err(InsertErrorKind::UnpairedBrace { segment: segment.into() }),
            };
        };
        text.push_str(one);
        rest = after;
    }
    text.push_str(rest);
    Ok((text, ""))
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}
