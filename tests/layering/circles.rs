//! Do sibling modules import from each other, directly or in a circle?
//!
//! It reads paths that begin with `crate` or `super`. An item behind a parent's re-export counts as the
//! parent's, and is not followed.

use std::collections::{BTreeMap, BTreeSet};

use highwater_tests::source::{self, File, code_only, without_tests, words};

/// Circles that are known: the folder under `crates/`, the modules, and why it is as it is.
const CIRCLES: &[(&str, &[&str], &str)] = &[
    (
        "sys",
        &["dial", "epoll", "uring"],
        "`dial` defines the dialer and names both implementations; each one is built on its driver",
    ),
    (
        "highwater/sim",
        &["network", "threads"],
        "the simulated network holds the threads that act during its steps; the threads act on the network",
    ),
];

/// Modules of one folder of which each leads to each other: the folder, and their names.
type Circle = (String, BTreeSet<String>);

/// By folder: which of its modules imports from which.
type Arrows = BTreeMap<Vec<String>, BTreeMap<String, BTreeSet<String>>>;

/// Purpose: two modules that import from each other are one in two files: neither can be read, tested or
/// moved alone. No such circle may be added, and one that was removed must not come back.
#[test]
fn modules_import_in_no_circle() {
    let findings = check_circles(&circles(&source::files()));
    assert!(findings.is_empty(), "\n\n{}\n", findings.join("\n"));
}

/// Compares the circles that there are with those that are known.
fn check_circles(found: &[Circle]) -> Vec<String> {
    let known = |folder: &str, names: &BTreeSet<String>| {
        let is_it = |(of, members, _): &&(&str, &[&str], &str)| {
            *of == folder && names.iter().all(|name| members.contains(&name.as_str()))
        };
        CIRCLES.iter().position(|entry| is_it(&entry))
    };
    let new = found.iter().filter(|(folder, names)| known(folder, names).is_none());
    let mut findings: Vec<String> = new
        .map(|(folder, names)| {
            format!(
                "crates/{folder}: {names:?} import from each other; move what they share into a module \
                 below them, or add it with its reason to CIRCLES of tests/layering/circles.rs"
            )
        })
        .collect();
    for (index, (folder, members, _)) in CIRCLES.iter().enumerate() {
        if !found.iter().any(|(of, names)| known(of, names) == Some(index)) {
            findings.push(format!(
                "crates/{folder}: {members:?} import in no circle any more; take them off CIRCLES of \
                 tests/layering/circles.rs"
            ));
        }
    }
    findings
}

/// All circles in the crates under `crates/`.
fn circles(files: &[File]) -> Vec<Circle> {
    let mut modules: BTreeMap<Vec<String>, &File> =
        files.iter().filter_map(|file| Some((module(&file.path)?, file))).collect();
    let tests: Vec<Vec<String>> =
        modules.iter().flat_map(|(name, file)| test_modules(name, &file.text)).collect();
    modules.retain(|name, _| !tests.iter().any(|test| name.starts_with(test)));
    let mut arrows = Arrows::new();
    for (from, file) in &modules {
        let code = without_tests(&code_only(&file.text));
        for path in mentioned(&code, from) {
            // The longest part of the path that is a module; what follows is an item of it.
            let is_module = |len: &usize| modules.contains_key(&path[..*len]);
            let to = &path[..(1..=path.len()).rev().find(is_module).unwrap_or(0)];
            let same = from.iter().zip(to).take_while(|(a, b)| a == b).count();
            if let (Some(own), Some(other)) = (from.get(same), to.get(same)) {
                let folder = arrows.entry(from[..same].to_vec()).or_default();
                folder.entry(own.clone()).or_default().insert(other.clone());
            }
        }
    }
    arrows.iter().flat_map(|(folder, arrows)| circles_in(&folder.join("/"), arrows)).collect()
}

/// The module that a file holds, from the crate's name on. `None` for a crate's root, whose imports lead
/// to nothing beside it, and for tests.
fn module(path: &str) -> Option<Vec<String>> {
    let (name, path) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let path = path.strip_suffix(".rs")?;
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if matches!(path, "lib" | "main") || path.split('/').any(|part| part == "tests") {
        return None;
    }
    Some([name].into_iter().chain(path.split('/')).map(String::from).collect())
}

/// The modules that only tests see of those that the module `name` declares: `#[cfg(test)] mod a;`.
fn test_modules(name: &[String], text: &str) -> Vec<Vec<String>> {
    let declared = code_only(text);
    let marked = declared.split("#[cfg(test)]").skip(1);
    let of = |rest: &str| {
        let (below, _) = rest.trim_start().strip_prefix("mod ")?.split_once(';')?;
        let is_name = below.chars().all(|c| c.is_alphanumeric() || c == '_');
        is_name.then(|| [name, &[below.to_owned()]].concat())
    };
    marked.filter_map(of).collect()
}

/// Every path that `code` mentions from the crate's root, or from a parent of the module `from` on.
fn mentioned(code: &str, from: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (at, word) in words(code) {
        let base = match word {
            "crate" if !code[..at].ends_with('$') => &from[..1],
            "super" if !code[..at].ends_with("super::") => {
                let supers = code[at..].split("::").take_while(|part| *part == "super").count();
                &from[..from.len().saturating_sub(supers)]
            }
            _ => continue,
        };
        let rest = code[at + word.len()..].trim_start_matches("::super");
        let Some(rest) = rest.strip_prefix("::") else { continue };
        found.extend(paths(rest).into_iter().map(|path| {
            base.iter().map(String::as_str).chain(path).map(String::from).collect::<Vec<_>>()
        }));
    }
    found
}

/// The paths of an import: of `a::{b, c::d} …` they are `a::b` and `a::c::d`.
fn paths(tree: &str) -> Vec<Vec<&str>> {
    let tree = tree.trim_start();
    if let Some(group) = tree.strip_prefix('{') {
        return members(group).into_iter().flat_map(paths).collect();
    }
    let end = tree.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(tree.len());
    let (name, rest) = tree.split_at(end);
    if name.is_empty() {
        return Vec::new();
    }
    let below = rest.strip_prefix("::").map(paths).unwrap_or_default();
    if below.is_empty() {
        return vec![vec![name]];
    }
    below.into_iter().map(|path| [&[name], path.as_slice()].concat()).collect()
}

/// What stands between the commas of a group whose opening brace has been read.
fn members(group: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut found) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                found.push(&group[begin..at]);
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    found
}

/// The circles among the modules of one folder.
fn circles_in(folder: &str, arrows: &BTreeMap<String, BTreeSet<String>>) -> Vec<Circle> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        arrows.keys().map(|from| (from, reach(from, arrows))).collect();
    let leads = |from: &String, to: &String| reached.get(from).is_some_and(|all| all.contains(to));
    let mut found = Vec::new();
    for from in arrows.keys().filter(|from| leads(from, from)) {
        let circle: BTreeSet<String> = arrows
            .keys()
            .filter(|other| leads(from, other) && leads(other, from))
            .cloned()
            .collect();
        if circle.first() == Some(from) {
            found.push((folder.to_owned(), circle));
        }
    }
    found
}

/// The modules that imports lead to from `from` on.
fn reach<'a>(
    from: &'a String,
    arrows: &'a BTreeMap<String, BTreeSet<String>>,
) -> BTreeSet<&'a String> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        next.extend(arrows.get(module).into_iter().flatten().filter(|to| seen.insert(*to)));
    }
    seen
}

/// Purpose: a circle is seen however its imports are written, and none where there is none.
#[test]
fn circles_are_seen() {
    let file =
        |path: &str, text: &str| File { path: format!("crates/x/src/{path}"), text: text.into() };
    let found = |files: &[(&str, &str)]| {
        let files: Vec<File> = files.iter().map(|(path, text)| file(path, text)).collect();
        let shown = |(folder, names): Circle| {
            format!("{folder}: {}", names.into_iter().collect::<Vec<_>>().join(" "))
        };
        circles(&files).into_iter().map(shown).collect::<Vec<_>>()
    };
    assert_eq!(found(&[("a.rs", "use crate::b::B;"), ("b.rs", "use super::a::A;")]), ["x: a b"]);
    assert_eq!(found(&[("a.rs", "use crate::b::B;"), ("b.rs", "use super::A;")]), [""; 0]);
    let three = [
        ("f/a.rs", "use super::{c::{self, C}, d};"),
        ("f/b.rs", "fn b() { super::a::a::<u8>() }"),
        ("f/c/mod.rs", "use self::e::E;"),
        ("f/c/e.rs", "use super::super::b::B; use super::C;"),
        ("f/d.rs", "const TEXT: &str = \"super::a\"; // use super::b;"),
        ("f/mod.rs", "use self::a::A;"),
        ("lib.rs", "use crate::f::F;"),
    ];
    assert_eq!(found(&three), ["x/f: a b c"]);
    let tests = [
        ("a.rs", "use crate::b::B;"),
        ("b.rs", "#[cfg(test)]\nmod tests { use crate::a::A; }"),
        ("b/tests.rs", "use crate::a::A;"),
        ("c/mod.rs", "#[cfg(test)]\nmod d;\nuse crate::b::B;"),
        ("c/d.rs", "use crate::a::A;"),
        ("a/e.rs", "use crate::c::C;"),
    ];
    assert_eq!(found(&tests), [""; 0]);
    let shipped = [
        ("a.rs", ""),
        ("a/e.rs", "use crate::c::C;"),
        ("c/mod.rs", "mod d;"),
        ("c/d.rs", "use crate::a::A;"),
    ];
    assert_eq!(found(&shipped), ["x: a c"]);
}

/// Purpose: an unknown circle is reported, a known one or a part of it is not, and a known one that no longer
/// exists is.
#[test]
fn circles_are_compared() {
    let circle = |folder: &str, names: &[&str]| -> Circle {
        (folder.into(), names.iter().map(|name| String::from(*name)).collect())
    };
    let all: Vec<Circle> = CIRCLES.iter().map(|(of, names, _)| circle(of, names)).collect();
    assert_eq!(check_circles(&all), [""; 0]);
    assert_eq!(check_circles(&all[1..]).len(), 1);
    let mut smaller = all.clone();
    smaller[0].1.pop_first();
    assert_eq!(check_circles(&smaller), [""; 0]);
    let newcomer = circle("core/http1", &["connection", "request_body"]);
    assert_eq!(check_circles(&[all, vec![newcomer]].concat()).len(), 1);
}
