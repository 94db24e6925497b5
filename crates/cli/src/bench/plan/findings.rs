//! Findings about a plan, and checks that several of its parts share.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::Refused;

pub(super) const ROUNDS: RangeInclusive<u32> = 1..=1000;
pub(super) const WARM_UP_MAX: Duration = Duration::from_secs(60);
pub(super) const DURATION: RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(3600);

pub(super) const NAME_SIZE_MAX: usize = 64;
const WORKERS: RangeInclusive<u32> = 1..=1024;

/// The line, from 1, of byte `at`.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// Findings, and the part of the plan that is being checked.
pub(super) struct Check<'a> {
    pub(super) text: &'a str,
    /// Where its table begins, in bytes.
    pub(super) at: usize,
    /// Its name in findings.
    pub(super) of: String,
    pub(super) refused: Vec<Refused>,
}

impl Check<'_> {
    /// Notes a finding about `field`, on its line if it stands in the table, else on the table's.
    pub(super) fn refuse(&mut self, field: &str, what: impl std::fmt::Display) {
        let begin = line_at(self.text, self.at);
        let line = self.line_of(field, begin);
        // A field that is not in the cell is in the table of defaults.
        let defaults = || {
            let at = self.text.lines().position(|line| line.trim() == "[cell_defaults]")?;
            self.of.starts_with("cell ").then(|| self.line_of(field, at + 1))?
        };
        let line = line.or_else(defaults).unwrap_or(begin);
        self.refused.push(Refused { line, what: format!("{}{field}: {what}", self.of) });
    }

    /// The line of `field` in the table that begins on line `begin`.
    fn line_of(&self, field: &str, begin: usize) -> Option<usize> {
        let is_field = |line: &str| {
            let rest = line.trim_start().strip_prefix(field);
            rest.is_some_and(|rest| rest.trim_start().starts_with('='))
        };
        // A table ends where the next begins; its header may be its first line, and its subtables belong to it.
        let is_own = |line: &str| !line.starts_with("[[") && line.contains('.');
        let is_other = |line: &str| line.starts_with('[') && !is_own(line);
        let lines = self.text.lines().enumerate().skip(begin - 1);
        let mut own = lines.take_while(|(at, line)| *at < begin || !is_other(line));
        own.find(|(_, line)| is_field(line)).map(|(at, _)| at + 1)
    }

    pub(super) fn expect(&mut self, holds: bool, field: &str, what: impl std::fmt::Display) {
        if !holds {
            self.refuse(field, what);
        }
    }
}

pub(super) fn headers(check: &mut Check<'_>, headers: &BTreeMap<String, String>) {
    for (field, value) in headers {
        let is_fine = is_token(field) && !value.contains(['\r', '\n', '\0']);
        check.expect(
            is_fine,
            "headers",
            format!("{field:?} is not a header; write {{ Name = \"value\" }}"),
        );
        let framing = ["content-length", "transfer-encoding", "connection"];
        let is_ours = framing.iter().any(|name| field.eq_ignore_ascii_case(name));
        check.expect(
            !is_ours,
            "headers",
            format!("{field} follows from body and close; remove it"),
        );
    }
}

pub(super) fn path(check: &mut Check<'_>, field: &str, path: &str) {
    let is_fine = path.starts_with('/')
        && path.bytes().all(|byte| (0x21..=0x7e).contains(&byte) && byte != b'#');
    check.expect(
        is_fine,
        field,
        format!("{path:?} is not a path; write \"/path?query\", percent-encoded"),
    );
}

pub(super) fn is_token(text: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_token)
}

pub(super) fn command(check: &mut Check<'_>, command: &[String], program: Option<&str>) {
    check.expect(
        command.first().is_some_and(|program| !program.is_empty()),
        "command",
        "is empty; write [\"program\", \"--listen\", \"127.0.0.1:{port}\"]",
    );
    check.expect(
        !command.iter().any(|word| word.contains('\0')),
        "command",
        "holds a NUL; remove it",
    );
    check.expect(
        program != Some(""),
        "program",
        "is empty; write the program that command ends up as, or remove it",
    );
}

pub(super) fn environment(check: &mut Check<'_>, env: &BTreeMap<String, String>) {
    for (variable, value) in env {
        let is_fine = !variable.is_empty() && !variable.contains(['=', '\0']);
        check.expect(
            is_fine && !value.contains('\0'),
            "env",
            format!("{variable:?} is not a variable name, or holds a NUL; write NAME = \"value\""),
        );
    }
}

/// All contenders must have as many workers as the first.
pub(super) fn workers(check: &mut Check<'_>, workers: u32, (first, others): (&str, u32)) {
    check.expect(WORKERS.contains(&workers), "workers", "write 1 to 1024");
    check.expect(
        workers == others,
        "workers",
        format!(
            "{workers}, and {first:?} has {others}: unequal workers compare machines, not programs; start all \
             of them with as many"
        ),
    );
}

pub(super) fn name(check: &mut Check<'_>, name: &str) {
    let is_fine =
        !name.is_empty() && name.len() <= NAME_SIZE_MAX && !name.chars().any(char::is_control);
    check.expect(is_fine, "name", format!("write 1 to {NAME_SIZE_MAX} printable characters"));
}
