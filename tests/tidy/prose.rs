//! The rules about everything else that is text.

use highwater_tests::source::{File, resolve};

use super::code::is_rust;
use super::{Finding, Tree, is_data};

pub(crate) fn white_space(_: &Tree, file: &File) -> Vec<Finding> {
    if is_data(file) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(file.text.split('\n')) {
        if line.ends_with('\r') {
            findings.push((number, "ends in CR LF; write LF alone (.editorconfig)".into()));
        } else if line.ends_with([' ', '\t']) {
            findings.push((number, "trailing white space; remove it".into()));
        } else if is_rust(file) && line.contains('\t') {
            findings.push((number, "a tab; write four spaces, or `\\t` in a literal".into()));
        }
    }
    let last = file.text.lines().count();
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        findings.push((last, "the last line has no end; add a newline".into()));
    } else if file.text.ends_with("\n\n") {
        findings.push((last, "ends in empty lines; one newline is enough".into()));
    }
    findings
}

pub(crate) fn machine_paths(_: &Tree, file: &File) -> Vec<Finding> {
    const FORBIDDEN: &[&str] = &[
        concat!("/wo", "rk/"),
        concat!("/ho", "me/"),
        concat!("/ro", "ot/"),
        concat!("/tm", "p/hw"),
    ];
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(file.text.lines()) {
        // After a letter it is the middle of some other path, or of prose.
        let begins = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        for path in FORBIDDEN {
            if line.match_indices(path).any(|(at, _)| begins(at)) {
                let text = format!(
                    "`{path}` is on one machine only; write a path relative to the repository, or take \
                     it from the environment"
                );
                findings.push((number, text));
            }
        }
    }
    findings
}

/// The lines of a Markdown file, with their number and whether they stand in a code block.
fn markdown(file: &File) -> impl Iterator<Item = (usize, &str, bool)> {
    let mut in_block = false;
    (1..).zip(file.text.lines()).filter_map(move |(number, line)| {
        let fence = line.trim_start().starts_with("```");
        in_block ^= fence;
        (!fence).then_some((number, line, in_block))
    })
}

pub(crate) fn links(tree: &Tree, file: &File) -> Vec<Finding> {
    if !file.path.ends_with(".md") || is_data(file) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line, _) in markdown(file).filter(|(_, _, in_block)| !in_block) {
        // Every second piece between backticks is code.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        let inline = prose.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        let reference = prose.starts_with('[').then(|| prose.split_once("]: ")).flatten();
        for target in inline.chain(reference.map(|(_, target)| target)) {
            let path = target.split('#').next().unwrap_or(target);
            let outside = path.is_empty() || path.contains("://") || path.starts_with("mailto:");
            if !outside && !tree.paths.contains(&resolve(&file.path, path)) {
                findings.push((
                    number,
                    format!("`{target}` is not in this repository; where is it now?"),
                ));
            }
        }
    }
    findings
}

pub(crate) fn make_targets(tree: &Tree, file: &File) -> Vec<Finding> {
    if !file.path.ends_with(".md") || is_data(file) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line, in_block) in markdown(file) {
        let commands: Vec<&str> =
            if in_block { vec![line] } else { line.split('`').skip(1).step_by(2).collect() };
        for command in commands {
            let Some(arguments) = command.trim_start().strip_prefix("make ") else { continue };
            let named = arguments.split_whitespace().take_while(|word| !word.starts_with('#'));
            for target in
                named.filter(|word| !word.contains(['=', '…', '.']) && !word.starts_with('-'))
            {
                if !tree.targets.contains(target) {
                    let text =
                        format!("`make {target}`: the Makefile has no such target; `make help`");
                    findings.push((number, text));
                }
            }
        }
    }
    findings
}

pub(crate) fn evidence(_: &Tree, file: &File) -> Vec<Finding> {
    let Some(name) = file.path.strip_prefix("bench/evidence/") else { return Vec::new() };
    if !name.ends_with(".json") {
        return Vec::new();
    }
    let name = name.rsplit('/').next().unwrap_or(name);
    let mut findings = Vec::new();
    if !begins_with_date(name) {
        findings.push((
            1,
            "name it by its date, YYYY-MM-DD-what.json: records are read in order".into(),
        ));
    }
    if let Err(error) = serde_json::from_str::<serde_json::Value>(&file.text) {
        findings.push((
            error.line(),
            format!("not JSON ({error}): restore the record; never repair it by hand"),
        ));
    }
    findings
}

fn begins_with_date(name: &str) -> bool {
    let field = |from: usize, to: usize| name.get(from..to)?.parse::<u32>().ok();
    let dashes = name.get(4..5) == Some("-") && name.get(7..8) == Some("-");
    let ends = name.get(10..11).is_some_and(|next| next == "-" || next == "." || next == "T");
    let month = field(5, 7).is_some_and(|month| (1..=12).contains(&month));
    let day = field(8, 10).is_some_and(|day| (1..=31).contains(&day));
    dashes && ends && month && day && field(0, 4).is_some_and(|year| year >= 2020)
}
