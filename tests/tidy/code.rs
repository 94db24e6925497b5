//! The rules about Rust.

use highwater_tests::source::{File, code_only, line_at, words};

use super::{Finding, Tree, is_data};

/// The longest a file of `src` may be, in lines.
pub(crate) const FILE_LINES_MAX: usize = 700;

/// Longer than this, and it must be in [`LONG_FILES`].
pub(crate) const FILE_LINES_SOFT_MAX: usize = 500;

/// Files of more than [`FILE_LINES_SOFT_MAX`] lines, each with the reason why it is one file.
pub(crate) const LONG_FILES: &[(&str, &str)] = &[
    ("crates/highwater/src/app/body/channel/mod.rs", "two ends of one queue, and their tests"),
    ("crates/highwater/src/sim/network.rs", "clients on one side of it, the worker on the other"),
    ("crates/highwater/src/sim/script/mod.rs", "what clients say, one kind after the other"),
];

/// Modules that still stand beside the folder of their children, each with the reason.
pub(crate) const BESIDE_FOLDERS: &[(&str, &str)] = &[];

pub(crate) fn is_rust(file: &File) -> bool {
    file.path.ends_with(".rs")
}

/// Whether it is Rust that is shipped or run: not a test, nor a sample for one.
fn is_source(file: &File) -> bool {
    is_rust(file) && file.path.contains("/src/")
}

pub(crate) fn module_header(_: &Tree, file: &File) -> Vec<Finding> {
    if !is_source(file) || file.text.starts_with("//!") {
        return Vec::new();
    }
    vec![(1, "begin with `//!`: what the module answers, never does, and what always holds".into())]
}

/// One convention for modules with children: `name/mod.rs`.
pub(crate) fn module_file(tree: &Tree, file: &File) -> Vec<Finding> {
    let Some(module) = file.path.strip_suffix(".rs").filter(|_| is_source(file)) else {
        return Vec::new();
    };
    let listed = BESIDE_FOLDERS.iter().any(|(path, _)| *path == file.path);
    if !tree.paths.contains(module) || listed {
        return Vec::new();
    }
    vec![(1, format!("a module with children is `{module}/mod.rs`: git mv {} there", file.path))]
}

pub(crate) fn file_length(_: &Tree, file: &File) -> Vec<Finding> {
    let lines = file.text.lines().count();
    let listed = LONG_FILES.iter().any(|(path, _)| *path == file.path);
    let text = if !is_source(file) {
        return Vec::new();
    } else if lines > FILE_LINES_MAX {
        format!("{lines} lines; at most {FILE_LINES_MAX}: find the two questions it answers")
    } else if lines > FILE_LINES_SOFT_MAX && !listed {
        format!(
            "{lines} lines; above {FILE_LINES_SOFT_MAX}, divide it by question, or say why not in \
             LONG_FILES of tests/tidy.rs"
        )
    } else if lines <= FILE_LINES_SOFT_MAX && listed {
        format!("{lines} lines now: take it off LONG_FILES of tests/tidy.rs")
    } else {
        return Vec::new();
    };
    vec![(1, text)]
}

pub(crate) fn unfinished(_: &Tree, file: &File) -> Vec<Finding> {
    const MARKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let mut findings = Vec::new();
    if !is_data(file) {
        for (at, word) in words(&file.text).filter(|(_, word)| MARKS.contains(word)) {
            let text = format!("`{word}`: do it, or open an issue; a reader can do neither");
            findings.push((line_at(&file.text, at), text));
        }
    }
    findings
}

pub(crate) fn names(_: &Tree, file: &File) -> Vec<Finding> {
    const EMPTY: &[&str] = &["manager", "helper", "helpers", "util", "utils"];
    const DECLARE: &[&str] = &["struct", "enum", "trait", "type", "union", "mod"];
    if !is_rust(file) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut check = |line: usize, name: &str| {
        if let Some(word) = parts(name).into_iter().find(|word| EMPTY.contains(&word.as_str())) {
            let text = format!("`{word}` in `{name}` says nothing: name it for what it answers");
            findings.push((line, text));
        }
    };
    let path = file.path.trim_end_matches(".rs");
    path.split('/').for_each(|name| check(1, name));
    let code = code_only(&file.text);
    let declared = words(&code).zip(words(&code).skip(1));
    for ((_, keyword), (at, name)) in declared {
        if DECLARE.contains(&keyword) {
            check(line_at(&code, at), name);
        }
    }
    findings
}

/// The words a name is made of, in lower case: of `HTTPHelper_v2` they are `http`, `helper`, `v2`.
fn parts(name: &str) -> Vec<String> {
    let chars: Vec<char> = name.chars().collect();
    let mut parts = vec![String::new()];
    for (at, c) in chars.iter().enumerate() {
        let after_lower = at > 0 && !chars[at - 1].is_uppercase();
        let before_lower = chars.get(at + 1).is_some_and(|next| next.is_lowercase());
        if !c.is_alphanumeric() || (c.is_uppercase() && (after_lower || before_lower)) {
            parts.push(String::new());
        }
        if c.is_alphanumeric() {
            parts.last_mut().expect("never empty").extend(c.to_lowercase());
        }
    }
    parts
}
