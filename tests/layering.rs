//! Do the dependencies between crates and modules match ARCHITECTURE.md?
//!
//! Between crates it asks cargo; between modules it reads their imports (`layering/circles.rs`: those that
//! lead back).
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use highwater_tests::source::{self, File, code_only, line_at, without_tests, words};
use serde_json::Value;

#[path = "layering/circles.rs"]
mod circles;

/// Which of our crates each of them may depend on. `None`: any, but nothing depends on it.
const ARROWS: &[(&str, Option<&[&str]>)] = &[
    ("highwater-core", Some(&[])),
    ("highwater-sys", Some(&["highwater-core"])),
    ("highwater-journal", Some(&["highwater-core"])),
    ("highwater-batcher", Some(&["highwater-core", "highwater-journal"])),
    (
        "highwater",
        Some(&["highwater-batcher", "highwater-core", "highwater-journal", "highwater-sys"]),
    ),
    ("highwater-cli", Some(&["highwater", "highwater-core", "highwater-journal", "highwater-sys"])),
    ("highwater-kit", Some(&["highwater"])),
    ("highwater-search", Some(&["highwater", "highwater-kit"])),
    ("highwater-arena", Some(&["highwater"])),
    ("highwater-ingest", Some(&["highwater"])),
    ("highwater-todos", Some(&["highwater", "highwater-kit"])),
    ("highwater-example-axum", Some(&["highwater"])),
    ("highwater-example-chat", Some(&["highwater"])),
    ("highwater-example-everything", Some(&["highwater"])),
    ("highwater-example-postgres", Some(&["highwater"])),
    ("highwater-example-recipes", Some(&["highwater"])),
    ("highwater-example-small", Some(&["highwater"])),
    ("highwater-tests", None),
    ("highwater-instructions", Some(&["highwater", "highwater-arena", "highwater-core"])),
    ("highwater-skip", Some(&[])),
    ("highwater-syn", Some(&[])),
    ("highwater-testkit", Some(&["highwater-core", "highwater-skip"])),
    ("highwater-ui", Some(&["highwater"])),
];

/// What tests may use besides, wherever they stand: to skip, to run a program, to read responses.
const FOR_TESTS: &[&str] = &["highwater-skip", "highwater-testkit", "highwater-core"];

/// What the core may depend on at all: buffers, and vectors to look at bytes with. The latter's functions are only names for
/// instructions; without it the core would have `unsafe`, or more instructions for a head (book/changes.md).
const CORE_DEPENDENCIES: &[&str] = &["bytes", "safe_arch"];

/// The modules of `crates/highwater/src`, lowest first: one imports only from rows below its own.
const MODULES: &[&[&str]] = &[
    &["choice", "content", "escape", "page_checks", "proxies", "secret", "thread"],
    &["logging", "machine"],
    &["body_memory", "cache", "metrics"],
    &["admission"],
    &["app"],
    &["auth", "files", "layers", "sse", "websocket"],
    &["server"],
    &["tower"],
    &["sim"],
    &["testing"],
];

/// Folders of `highwater` with one front door: whoever is outside uses what their `mod.rs` names, never a module
/// within.
const CLOSED: &[&str] = &["server/worker"];

/// The modules of `highwater` that know messages, and no wire.
const WIRELESS: &[&str] = &["app", "tower"];

/// What they may know of the core.
const WIRELESS_CORE: &[&str] = &["http", "limit", "percent", "prng", "route", "time"];

/// The one crate that may hold `unsafe`.
const UNSAFE_CRATE: &str = "highwater-sys";

/// Where `unsafe` may stand: in that crate, and in what is not a part of this workspace.
const UNSAFE_FOLDERS: &[&str] = &["crates/sys/", "bench/", "fuzz/"];

/// Purpose: a dependency between crates that the architecture does not have must not creep in.
#[test]
fn crates_depend_downwards() {
    let findings: Vec<String> = packages().iter().flat_map(check_arrows).collect();
    report(&findings);
}

/// Purpose: a crate's promise to hold no `unsafe` is the compiler's to keep, and must be made by
/// every library and binary. Tests need not promise, only keep it.
#[test]
fn only_sys_may_be_unsafe_and_core_has_no_std() {
    let mut findings = Vec::new();
    for package in packages() {
        for root in shipped(&package) {
            let code = code_only(&std::fs::read_to_string(&root).expect("cargo named it"));
            let shown = Path::new(&root).strip_prefix(source::root()).unwrap_or(Path::new(&root));
            findings.extend(check_attributes(name(&package), &shown.to_string_lossy(), &code));
        }
    }
    findings.extend(source::files().iter().flat_map(check_unsafe));
    report(&findings);
}

/// Purpose: within `highwater`, the application must not know the server that runs it, and nothing
/// must know the simulator.
#[test]
fn modules_import_downwards() {
    let findings: Vec<String> = source::files().iter().flat_map(check_imports).collect();
    report(&findings);
}

/// Purpose: the parts of a worker must be free to change without the server that runs it.
#[test]
fn closed_folders_have_one_door() {
    let findings: Vec<String> = source::files().iter().flat_map(check_doors).collect();
    report(&findings);
}

/// Purpose: an application must not be written for one version of the protocol, so that another can be
/// added beside it.
#[test]
fn messages_know_no_wire() {
    let findings: Vec<String> = source::files().iter().flat_map(check_wires).collect();
    report(&findings);
}

fn report(findings: &[String]) {
    assert!(findings.is_empty(), "\n\n{}\n", findings.join("\n"));
}

/// Our packages, as cargo sees them.
fn packages() -> Vec<Value> {
    let asked = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(source::root())
        .output()
        .expect("cargo runs this test");
    let problem = String::from_utf8_lossy(&asked.stderr);
    assert!(asked.status.success(), "cargo metadata: {problem}");
    let metadata: Value = serde_json::from_slice(&asked.stdout).expect("cargo writes JSON");
    array(&metadata, "packages").to_vec()
}

fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().expect("cargo's format has it")
}

fn name(value: &Value) -> &str {
    value["name"].as_str().expect("cargo's format has it")
}

fn check_arrows(package: &Value) -> Vec<String> {
    let from = name(package);
    let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == from) else {
        return vec![format!(
            "{from}: unknown here; say in ARROWS of tests/layering.rs what it may depend on, and in \
             ARCHITECTURE.md what question it answers"
        )];
    };
    let mut findings = Vec::new();
    for dependency in array(package, "dependencies") {
        let to = name(dependency);
        // For its tests, a package may also ask for itself with more features.
        let for_tests = dependency["kind"] == "dev"
            && (to == from || from != "highwater-skip" && FOR_TESTS.contains(&to));
        let ours = !for_tests && ARROWS.iter().any(|(known, _)| *known == to);
        if ours && !allowed.is_none_or(|allowed| allowed.contains(&to)) {
            findings.push(format!(
                "{from} depends on {to}, against the arrows of ARCHITECTURE.md; {}",
                if *allowed == Some(&["highwater"]) {
                    "if `highwater` does not offer what is needed, it should"
                } else {
                    "what both need belongs into the lower of them"
                }
            ));
        }
        if from == "highwater-core"
            && dependency["kind"] != "dev"
            && !CORE_DEPENDENCIES.contains(&to)
        {
            findings.push(format!(
                "{from} depends on {to}; the core decides with {CORE_DEPENDENCIES:?} alone: do what \
                 needs it one crate up, or argue for it in CORE_DEPENDENCIES of tests/layering.rs"
            ));
        }
    }
    findings
}

/// The files in which `package`'s libraries and binaries begin.
fn shipped(package: &Value) -> Vec<String> {
    let is_test = |target: &&Value| target["kind"] == serde_json::json!(["test"]);
    let path = |target: &Value| target["src_path"].as_str().expect("cargo's format has it").into();
    array(package, "targets").iter().filter(|target| !is_test(target)).map(path).collect()
}

fn check_attributes(package: &str, root: &str, code: &str) -> Vec<String> {
    let mut findings = Vec::new();
    if package != UNSAFE_CRATE && !code.contains("#![forbid(unsafe_code)]") {
        findings.push(format!(
            "{root}: add `#![forbid(unsafe_code)]` after its header; only {UNSAFE_CRATE} goes without"
        ));
    }
    let is_library = Path::new(root).ends_with("src/lib.rs");
    if package == "highwater-core" && is_library && !code.contains("#![no_std]") {
        findings
            .push(format!("{root}: add `#![no_std]`; it keeps sockets, clocks and threads out"));
    }
    findings
}

/// Looks for `unsafe` where no crate of the workspace may have it.
fn check_unsafe(file: &File) -> Vec<String> {
    let outside = UNSAFE_FOLDERS.iter().any(|folder| file.path.starts_with(folder));
    if outside || !file.path.ends_with(".rs") {
        return Vec::new();
    }
    let code = code_only(&file.text);
    let found = words(&code).filter(|(_, word)| *word == "unsafe");
    found
        .map(|(at, _)| {
            let place = format!("{}:{}", file.path, line_at(&code, at));
            format!(
                "{place}: `unsafe`; what needs it belongs into crates/sys, behind a safe function"
            )
        })
        .collect()
}

/// Looks for imports that point up, in a file of `highwater`'s modules.
fn check_imports(file: &File) -> Vec<String> {
    let Some(path) = file.path.strip_prefix("crates/highwater/src/") else { return Vec::new() };
    let is_test = path.ends_with("tests.rs") || path.contains("/tests/");
    let (Some(own), false) = (module(path), is_test || path == "lib.rs") else { return Vec::new() };
    let rank = |of: &str| MODULES.iter().position(|row| row.contains(&of));
    let Some(own_rank) = rank(own) else {
        return vec![format!(
            "{}: the module `{own}` is unknown here; give it its row in MODULES of tests/layering.rs",
            file.path
        )];
    };
    let code = without_tests(&code_only(&file.text));
    let mut findings = Vec::new();
    for (at, imported) in imports(&code, depth(path)) {
        let place = format!("{}:{}", file.path, line_at(&code, at));
        if imported.starts_with(char::is_uppercase) {
            findings.push(format!(
                "{place}: `{imported}` is imported from the crate's root; write the module it comes \
                 from, so that the arrow can be seen"
            ));
        } else if imported != own && rank(imported).is_some_and(|rank| rank >= own_rank) {
            findings.push(format!(
                "{place}: `{own}` imports from `{imported}`, which is not below it (MODULES in \
                 tests/layering.rs); pass what it needs as an argument, or move it down"
            ));
        }
    }
    findings
}

/// Looks for paths that lead past the `mod.rs` of a closed folder, in a file outside of it.
fn check_doors(file: &File) -> Vec<String> {
    let Some(path) = file.path.strip_prefix("crates/highwater/src/") else { return Vec::new() };
    let code = without_tests(&code_only(&file.text));
    let mut findings = Vec::new();
    for folder in CLOSED.iter().filter(|folder| !path.starts_with(**folder)) {
        let (parent, name) = folder.rsplit_once('/').unwrap_or(("", folder));
        // A name that begins with a capital letter is an item of the folder, and what follows it that item's.
        let is_module = |rest: &str, at: usize, name: &str| {
            name.starts_with(char::is_lowercase) && rest[at + name.len()..].starts_with("::")
        };
        for (at, _) in words(&code).filter(|(_, word)| *word == name) {
            let from = &code[..at];
            let is_beside = from.ends_with("super::") || !from.ends_with("::");
            let is_it =
                from.ends_with(&format!("{parent}::")) || path.starts_with(parent) && is_beside;
            let Some(rest) = code[at + name.len()..].strip_prefix("::").filter(|_| is_it) else {
                continue;
            };
            for (_, part) in
                first_names(rest).into_iter().filter(|(at, part)| is_module(rest, *at, part))
            {
                findings.push(format!(
                    "{}:{}: `{name}::{part}::` leads into {folder}; name what is needed in \
                     {folder}/mod.rs, and use that",
                    file.path,
                    line_at(&code, at)
                ));
            }
        }
    }
    findings
}

/// Looks for parts of the core that say what a wire looks like, where only messages are known.
fn check_wires(file: &File) -> Vec<String> {
    let Some(path) = file.path.strip_prefix("crates/highwater/src/") else { return Vec::new() };
    let is_test = path.ends_with("tests.rs") || path.contains("/tests/");
    if is_test || !module(path).is_some_and(|own| WIRELESS.contains(&own)) {
        return Vec::new();
    }
    let code = without_tests(&code_only(&file.text));
    let mut findings = Vec::new();
    for (at, _) in words(&code).filter(|(_, word)| *word == "highwater_core") {
        let Some(rest) = code[at..].strip_prefix("highwater_core::") else { continue };
        for (_, part) in first_names(rest) {
            if !WIRELESS_CORE.contains(&part) {
                findings.push(format!(
                    "{}:{}: `{part}` of the core; here only {WIRELESS_CORE:?} are known, so that an \
                     application is the same in every version of HTTP: say it in the words of \
                     `highwater_core::http`",
                    file.path,
                    line_at(&code, at)
                ));
            }
        }
    }
    findings
}

/// The top-level module that a file belongs to.
fn module(path: &str) -> Option<&str> {
    path.split('/').next()?.split('.').next()
}

/// How many `super::` lead from a file's module to the crate's root.
fn depth(path: &str) -> usize {
    let path = path.trim_end_matches("/mod.rs").trim_end_matches(".rs");
    path.split('/').count()
}

/// The names right under the crate's root that `code` mentions, with where it does.
fn imports(code: &str, depth: usize) -> BTreeSet<(usize, &str)> {
    let mut found = BTreeSet::new();
    let words: Vec<(usize, &str)> = words(code).collect();
    for (index, (at, word)) in words.iter().enumerate() {
        let from_root = match *word {
            "crate" if !code[..*at].ends_with('$') => true,
            "super" => is_at_root(code, &words[..=index], depth),
            _ => continue,
        };
        let Some(rest) = code[at + word.len()..].strip_prefix("::") else { continue };
        if from_root {
            let begin = code.len() - rest.len();
            found.extend(first_names(rest).into_iter().map(|(at, name)| (begin + at, name)));
        }
    }
    found
}

/// Whether the path of `super::` that ends with the last of `words` has reached the crate's root.
fn is_at_root(code: &str, words: &[(usize, &str)], depth: usize) -> bool {
    let mut end = None;
    let chain = words.iter().rev().take_while(|(at, word)| {
        let joined = end.is_none_or(|end| *word == "super" && &code[at + word.len()..end] == "::");
        end = Some(*at);
        joined
    });
    chain.count() >= depth
}

/// The first names of a path, or of each path in a group: of `a::b` it is `a`, of `{a::b, c}` they
/// are `a` and `c`.
fn first_names(rest: &str) -> Vec<(usize, &str)> {
    let Some(group) = rest.strip_prefix('{') else { return words(rest).take(1).collect() };
    let (mut depth, mut begin, mut names) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                let first = words(&group[begin..at]).next();
                names.extend(first.map(|(in_path, name)| (1 + begin + in_path, name)));
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    names
}

/// Purpose: a test that finds nothing must be known to find something: each wrong arrow is seen.
#[test]
fn wrong_arrows_are_seen() {
    let package = |from: &str, to: &str| serde_json::json!({ "name": from, "dependencies": [{ "name": to, "kind": null }] });
    for (from, to, wrong) in [
        ("highwater-core", "highwater-sys", 2), // not below it, and not `bytes`
        ("highwater-core", "libc", 1),
        ("highwater-core", "bytes", 0),
        ("highwater-sys", "highwater", 1),
        ("highwater-sys", "highwater-core", 0),
        ("highwater-search", "highwater-core", 1),
        ("highwater-search", "highwater-arena", 1),
        ("highwater-cli", "highwater", 0),
        ("highwater-tests", "highwater-core", 0),
        ("highwater", "highwater-tests", 1),
        ("newcomer", "bytes", 1),
    ] {
        assert_eq!(check_arrows(&package(from, to)).len(), wrong, "{from} → {to}");
    }
    for (from, to, kind, wrong) in [
        ("highwater", "highwater", Some("dev"), 0),
        ("highwater-sys", "highwater-skip", Some("dev"), 0),
        ("highwater-sys", "highwater-skip", None, 1),
        ("highwater-skip", "highwater-core", Some("dev"), 1),
        ("highwater-search", "highwater-core", Some("dev"), 0),
        ("highwater-search", "highwater-testkit", Some("dev"), 0),
        ("highwater-search", "highwater-testkit", None, 1),
        ("highwater-testkit", "highwater-core", None, 0),
        ("highwater-testkit", "highwater", None, 1),
        ("highwater-search", "highwater-sys", Some("dev"), 1),
    ] {
        let dependency = serde_json::json!({ "name": to, "kind": kind });
        let package = serde_json::json!({ "name": from, "dependencies": [dependency] });
        assert_eq!(check_arrows(&package).len(), wrong, "{from} → {to} for {kind:?}");
    }
    assert_eq!(check_attributes("highwater-core", "src/lib.rs", "").len(), 2);
    assert_eq!(check_attributes("highwater-sys", "src/lib.rs", "").len(), 0);
    assert_eq!(check_attributes("highwater", "src/lib.rs", "#![forbid(unsafe_code)]").len(), 0);
    for (path, text, wrong) in [
        ("crates/core/tests/a.rs", "fn a() { unsafe { b() } }", 1),
        ("crates/core/tests/a.rs", "// unsafe\nconst A: &str = \"unsafe\";", 0),
        ("crates/sys/src/a.rs", "unsafe fn a() {}", 0),
    ] {
        assert_eq!(check_unsafe(&File { path: path.into(), text: text.into() }).len(), wrong);
    }
}

/// Purpose: the same, for the arrows between modules, in every way an import can be written.
#[test]
fn imports_that_point_up_are_seen() {
    for (path, text, wrong) in [
        ("app/router.rs", "use crate::server::Worker;", 1),
        ("app/router.rs", "use crate::{app::Handler, server::{Worker, Config}, sim};", 2),
        ("app/router.rs", "use super::super::server::Worker;", 1),
        ("app/router.rs", "use super::server::Worker;", 0), // app::server
        ("app/mod.rs", "fn f() { super::server::run() }", 1),
        ("app/mod.rs", "use self::server::X;", 0),
        ("app/mod.rs", "use crate::cache::Cache; use crate::{logging, metrics::Counters};", 0),
        ("app/mod.rs", "use crate::Response;", 1),
        ("app/mod.rs", "macro_rules! m { () => { $crate::server::run() } }", 0),
        ("app/mod.rs", "// use crate::server;\nconst S: &str = \"crate::server\";", 0),
        ("app/mod.rs", "#[cfg(test)]\nmod tests { use crate::testing::Client; }", 0),
        ("app/tests.rs", "use crate::testing::Client;", 0),
        ("app/build.rs", "use crate::admission::Concurrency;", 0),
        ("admission/worker.rs", "use crate::app::Handler;", 1),
        ("admission/worker.rs", "use crate::server::ServerConfig;", 1),
        ("cache.rs", "use super::metrics::Counters;", 1), // not below it, but beside
        ("server/worker.rs", "use crate::app::Router; use crate::logging;", 0),
        ("sim/mod.rs", "use crate::server::Worker;", 0),
        ("newcomer.rs", "", 1),
    ] {
        let file = File { path: format!("crates/highwater/src/{path}"), text: text.into() };
        let findings = check_imports(&file);
        assert_eq!(findings.len(), wrong, "{path}: {text}\n{findings:#?}");
    }
}

/// Purpose: the same, for folders with one door.
#[test]
fn ways_past_the_door_are_seen() {
    for (path, text, wrong) in [
        ("server/threads.rs", "use super::worker::run::{self, Phase};", 1),
        ("server/threads.rs", "use super::worker::{Phase, run::serve, inbox::Inbox};", 2),
        (
            "server/threads.rs",
            "use super::worker::{self, Phase, run}; fn f() { worker::run(1) }",
            0,
        ),
        ("server/threads.rs", "fn f() { worker::Phase::default() }", 0),
        ("server/config.rs", "use crate::admission::worker::terms::Terms;", 0),
        ("server/worker/mod.rs", "use super::worker::run::Phase;", 0),
        ("sim/world.rs", "use crate::server::worker::run::Phase;", 1),
        ("sim/world.rs", "use crate::admission::worker::terms::Terms;", 0),
    ] {
        let file = File { path: format!("crates/highwater/src/{path}"), text: text.into() };
        let findings = check_doors(&file);
        assert_eq!(findings.len(), wrong, "{path}: {text}\n{findings:#?}");
    }
}

/// Purpose: the same, for the parts of the core.
#[test]
fn wires_are_seen() {
    for (path, text, wrong) in [
        ("app/request.rs", "use highwater_core::http::Head;", 0),
        ("app/request.rs", "use highwater_core::http1::Connection;", 1),
        ("app/request.rs", "use highwater_core::{http1::FieldLines, route, driver::ConnId};", 2),
        ("app/request.rs", "fn f() -> highwater_core::http1::Scratch { f() }", 1),
        ("app/request.rs", "// highwater_core::http1", 0),
        ("app/tests/mod.rs", "use highwater_core::http1::Connection;", 0),
        ("tower/upgrade.rs", "use hyper::server::conn::http1;", 0),
        ("tower/body.rs", "use highwater_core::http1::Decoder;", 1),
        ("server/serve.rs", "use highwater_core::http1::Next;", 0),
    ] {
        let file = File { path: format!("crates/highwater/src/{path}"), text: text.into() };
        let findings = check_wires(&file);
        assert_eq!(findings.len(), wrong, "{path}: {text}\n{findings:#?}");
    }
}
