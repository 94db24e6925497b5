//! The conformance cases: what a client sends and what it must hear, as data.
//!
//! One file per topic in `tests/cases/`. Cases are separated by empty lines; a line is one of
//!
//! ```text
//! # a remark
//! case chunked-two-chunks               the name, unique among all files
//! rfc 9112 7.1                          what the expectation follows from
//! probe COMP-CHUNKED-MULTI              tests of Http11Probe that ask the same (optional)
//! > POST / HTTP/1.1\r\nHost: h\r\n      bytes the client sends; the line's own end is not sent
//! < 200 "hello world"                   a response the client hears; see below
//! eof                                   the client finishes sending (half-closes)
//! closed                                the server closes, and sends nothing more before it does
//! open                                  the server waits for more
//! ```
//!
//! Bytes are written as ASCII with `\r \n \t \0 \s` (space) `\\ \" \{ \xHH` and `{text*N}` for
//! repetition. A `>` behind a `<` is sent only once the responses before it have come.
//!
//! A response is a status, then any of: `close`, `keep-alive` (its `Connection` field; without
//! either it has none), `head` (no content follows, whatever its fields say), `optional` (may be
//! missing: a 100 whose body came in time), `[name: value]` (has this field), `"content"`. Content
//! that is not given is not compared here, but is still compared between transports.

use std::collections::HashSet;
use std::path::Path;

/// A case: its identity and its steps.
#[derive(Clone, Debug)]
pub struct Case {
    /// Unique name.
    pub name: String,
    /// The section of the RFC that the expectation follows from.
    pub rfc: String,
    /// The tests of Http11Probe that ask the same question, if any do.
    pub probe: Option<String>,
    /// What happens, in order.
    pub steps: Vec<Step>,
    /// Whether the server closes the connection in the end.
    pub closed: bool,
}

/// Something the client does, or hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Hears this response.
    Hear(Expected),
    /// Finishes sending.
    Eof,
}

/// A response as far as a case cares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The status code.
    pub status: u16,
    /// The value of the `Connection` field.
    pub connection: Option<&'static str>,
    /// No content follows, whatever the fields say.
    pub head: bool,
    /// It may be missing.
    pub optional: bool,
    /// Fields it must have, names in lower case.
    pub fields: Vec<(String, String)>,
    /// Its content.
    pub content: Option<Vec<u8>>,
}

impl Case {
    /// Everything the client sends.
    pub fn sent(&self) -> Vec<u8> {
        let sends = self.steps.iter().filter_map(|step| match step {
            Step::Send(bytes) => Some(bytes.as_slice()),
            _ => None,
        });
        sends.collect::<Vec<_>>().concat()
    }

    /// The responses that the client expects.
    pub fn expected(&self) -> impl Iterator<Item = &Expected> {
        self.steps.iter().filter_map(|step| match step {
            Step::Hear(expected) => Some(expected),
            _ => None,
        })
    }

    /// Whether the client sends everything at once and waits for nothing in between.
    pub fn is_one_step(&self) -> bool {
        let mut has_expected = false;
        self.steps.iter().all(|step| {
            has_expected |= matches!(step, Step::Hear(_));
            !(has_expected && matches!(step, Step::Send(_)))
        })
    }
}

/// All cases of all files, sorted by file.
///
/// # Panics
/// If a file cannot be read or is malformed, with its name and line.
pub fn all() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .expect("tests/cases exists")
        .map(|entry| entry.expect("tests/cases can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a case file is UTF-8");
        match parse(&text) {
            Ok(parsed) => cases.extend(parsed),
            Err(error) => panic!("{}: {error}", file.display()),
        }
    }
    let mut names = HashSet::new();
    for case in &cases {
        assert!(names.insert(case.name.clone()), "two cases are named {}", case.name);
    }
    cases
}

/// Parses one file.
///
/// # Errors
/// The line that makes no sense, and why.
pub fn parse(text: &str) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    let mut block = Block::default();
    for (index, line) in text.lines().chain([""]).enumerate() {
        let done = block.line(line).map_err(|why| format!("line {}: {why}: {line}", index + 1))?;
        cases.extend(done);
    }
    Ok(cases)
}

/// The lines of a case read so far.
#[derive(Default)]
struct Block {
    name: Option<String>,
    rfc: Option<String>,
    probe: Option<String>,
    steps: Vec<Step>,
    closed: Option<bool>,
}

impl Block {
    fn line(&mut self, line: &str) -> Result<Option<Case>, String> {
        if line.is_empty() {
            return self.finish();
        }
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if self.closed.is_some() && !word.starts_with('#') {
            return Err("the case has ended; an empty line is missing".into());
        }
        match word {
            _ if word.starts_with('#') => {}
            "case" => self.name = Some(rest.trim().into()),
            "rfc" => self.rfc = Some(rest.trim().into()),
            "probe" => self.probe = Some(rest.trim().into()),
            ">" => self.send(unescape(rest)?),
            "<" => self.steps.push(Step::Hear(expected(rest)?)),
            "eof" => self.steps.push(Step::Eof),
            "open" | "closed" => self.closed = Some(word == "closed"),
            _ => return Err("no such kind of line".into()),
        }
        Ok(None)
    }

    fn send(&mut self, bytes: Vec<u8>) {
        match self.steps.last_mut() {
            Some(Step::Send(sent)) => sent.extend_from_slice(&bytes),
            _ => self.steps.push(Step::Send(bytes)),
        }
    }

    fn finish(&mut self) -> Result<Option<Case>, String> {
        let Block { name, rfc, probe, steps, closed } = std::mem::take(self);
        let Some(name) = name else {
            return if steps.is_empty() { Ok(None) } else { Err("a case without a name".into()) };
        };
        let rfc = rfc.ok_or_else(|| format!("{name} names no RFC"))?;
        let closed = closed.ok_or_else(|| format!("{name} says neither open nor closed"))?;
        Ok(Some(Case { name, rfc, probe, steps, closed }))
    }
}

fn expected(line: &str) -> Result<Expected, String> {
    let (status, mut rest) = line.split_at_checked(3).ok_or("a status has three digits")?;
    let status = status.parse().map_err(|_| "a status has three digits")?;
    let mut expected = Expected { status, ..Expected::default() };
    loop {
        rest = rest.trim_start();
        if let Some(field) = rest.strip_prefix('[') {
            let (field, after) = field.split_once(']').ok_or("a [field] does not end")?;
            let (name, value) = field.split_once(": ").ok_or("a [field] is [name: value]")?;
            expected.fields.push((name.into(), value.into()));
            rest = after;
        } else if let Some(content) = rest.strip_prefix('"') {
            let content = content.strip_suffix('"').ok_or("\"content\" comes last")?;
            expected.content = Some(unescape(content)?);
            return Ok(expected);
        } else {
            let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
            match word {
                "" => return Ok(expected),
                "close" => expected.connection = Some("close"),
                "keep-alive" => expected.connection = Some("keep-alive"),
                "head" => expected.head = true,
                "optional" => expected.optional = true,
                _ => return Err(format!("{word} says nothing about a response")),
            }
            rest = after;
        }
    }
}

/// The bytes that `text` stands for.
fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'\\' => {
                let (&kind, after) = rest.split_first().ok_or("a lone backslash")?;
                rest = after;
                out.push(match kind {
                    b'r' => b'\r',
                    b'n' => b'\n',
                    b't' => b'\t',
                    b's' => b' ',
                    b'0' => 0,
                    b'\\' | b'"' | b'{' => kind,
                    b'x' => {
                        let (digits, after) = rest.split_at_checked(2).ok_or("\\x needs digits")?;
                        rest = after;
                        let digits = std::str::from_utf8(digits).map_err(|_| "\\x needs digits")?;
                        u8::from_str_radix(digits, 16).map_err(|_| "\\x needs digits")?
                    }
                    _ => return Err(format!("unknown escape \\{}", kind as char)),
                });
            }
            b'{' => {
                let end = rest.iter().position(|&b| b == b'}').ok_or("a { without }")?;
                let inside = std::str::from_utf8(&rest[..end]).map_err(|_| "not ASCII")?;
                let (text, count) = inside.rsplit_once('*').ok_or("{text*N} has no *")?;
                let count = count.parse().map_err(|_| "{text*N} has no number")?;
                out.extend(unescape(text)?.repeat(count));
                rest = &rest[end + 1..];
            }
            0x20..=0x7e => out.push(byte),
            _ => return Err("write bytes that are not printable ASCII as \\xHH".into()),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: every construct of the format means what the header says.
    #[test]
    fn format() {
        let text = "# x\ncase a\nrfc 1\n> G\\r\\x41\n> {b\\t*2}\n< 200 close [a: b c] \"\\\"x\"\neof\nclosed\n";
        let cases = parse(text).unwrap();
        assert_eq!(cases.len(), 1);
        assert_eq!(cases[0].sent(), b"G\rAb\tb\t");
        assert!(cases[0].closed && cases[0].is_one_step());
        let expected = cases[0].expected().next().unwrap();
        assert_eq!((expected.status, expected.connection), (200, Some("close")));
        assert_eq!(expected.fields, [("a".into(), "b c".into())]);
        assert_eq!(expected.content.as_deref(), Some(&b"\"x"[..]));
    }

    /// Purpose: a slip of the pen in a case is an error, never a case that tests nothing.
    #[test]
    fn mistakes_are_errors() {
        for bad in [
            "case a\nrfc 1\n> x\n",
            "case a\nopen\n",
            "> x\nopen\n",
            "case a\nrfc 1\n< 20\nopen\n",
            "case a\nrfc 1\n< 200 closed\nopen\n",
            "case a\nrfc 1\n> \\q\nopen\n",
            "case a\nrfc 1\n> {a}\nopen\n",
            "case a\nrfc 1\nopen\n> x\n",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
