//! The rules of CONTRIBUTING.md that a machine can check, but for those that clippy checks: the length of functions
//! (clippy.toml), unfinished and printing code.
//!
//! Each rule is a function from a file to findings, and has samples that it must catch and samples
//! that it must pass. A finding says where, what, and what to write instead.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use highwater_tests::source::{self, File};

#[path = "tidy/code.rs"]
mod code;
#[path = "tidy/prose.rs"]
mod prose;

use code::{BESIDE_FOLDERS, FILE_LINES_MAX, FILE_LINES_SOFT_MAX, LONG_FILES};
use code::{file_length, module_file, module_header, names, unfinished};
use prose::{evidence, links, machine_paths, make_targets, white_space};

/// Files whose bytes are data, not prose or code: untidiness in them is intended.
const DATA: &[&str] = &["tests/cases/", "fuzz/corpus/", "bench/evidence/", "scripts/mutations/"];

/// The parts of the repository that rules about one file need.
struct Tree {
    /// Files, and the folders they stand in.
    paths: BTreeSet<String>,
    /// The makefile's targets.
    targets: BTreeSet<String>,
}

/// Where in a file, by line from 1, something is wrong, and what to write instead.
type Finding = (usize, String);

struct Rule {
    name: &'static str,
    check: fn(&Tree, &File) -> Vec<Finding>,
    /// Path, text, and the line of the one finding.
    caught: &'static [(&'static str, &'static str, usize)],
    /// Path and text without a finding.
    passed: &'static [(&'static str, &'static str)],
}

const RULES: &[Rule] = &[
    Rule {
        name: "module header",
        check: module_header,
        caught: &[
            ("crates/core/src/a.rs", "use b;\n", 1),
            ("services/search/src/a.rs", "/// not a header\n", 1),
        ],
        passed: &[
            ("crates/core/src/a.rs", "//! What it answers.\n"),
            ("tests/ui/a.rs", "fn main() {}\n"),
        ],
    },
    Rule {
        name: "module file",
        check: module_file,
        caught: &[("crates/core/src/room.rs", "//! Beside the folder of its children.\n", 1)],
        passed: &[
            ("crates/core/src/room/mod.rs", "//! In the folder of its children.\n"),
            ("crates/core/src/door.rs", "//! Without children.\n"),
            ("tests/room.rs", "//! Not a module of a library.\n"),
        ],
    },
    Rule {
        name: "unfinished",
        check: unfinished,
        caught: &[
            ("a.sh", concat!("# TO", "DO: more\n"), 1),
            ("a.md", concat!("\nFIX", "ME\n"), 2),
        ],
        passed: &[("a.sh", "mktemp -d hw.XXXXXX; echo $KAFKA_TODO_TOPIC\n")],
    },
    Rule {
        name: "names",
        check: names,
        caught: &[
            ("crates/core/src/time_utils.rs", "//! .\n", 1),
            ("crates/core/src/helpers/mod.rs", "//! .\n", 1),
            ("a.rs", "\nstruct ConnectionManager;\n", 2),
            ("a.rs", "pub(crate) trait HTTPHelper {}\n", 1),
            ("a.rs", "mod util;\n", 1),
        ],
        passed: &[
            ("a.rs", "struct Utilization; struct Managed; // ConnectionManager\n"),
            ("deploy/helpers.md", ""),
        ],
    },
    Rule {
        name: "white space",
        check: white_space,
        caught: &[
            ("a.md", "a \n", 1),
            ("a.rs", "fn a() {\n\tb()\n}\n", 2),
            ("a.sh", "a\r\nb\n", 1),
            ("a.toml", "a = 1", 1),
            ("a.md", "a\n\n", 2),
        ],
        passed: &[("Makefile", "a:\n\tb\n"), ("tests/cases/a.txt", "GET / \r\n"), ("a.toml", "")],
    },
    Rule {
        name: "machine paths",
        check: machine_paths,
        caught: &[
            ("a.md", concat!("see /wo", "rk/main\n"), 1),
            ("bench/evidence/2026-01-01-a.json", concat!("{\n\"at\": \"/ho", "me/me/a\"}\n"), 2),
            ("a.sh", concat!("flock /tm", "p/hw-cpu.lock a\n"), 1),
        ],
        passed: &[("a.rs", "const A: &str = \"/work?us=10\";\n"), ("a.md", "mean/work/turn\n")],
    },
    Rule {
        name: "links",
        check: links,
        caught: &[
            ("README.md", "\n[a](gone.md)\n", 2),
            ("README.md", "[a]: gone.md\n", 1),
            ("book/a.md", "[a](README.md)\n", 1),
        ],
        passed: &[
            ("README.md", "[a](Makefile#x) [b](book) [c](#here) [d](https://example.org/x)\n"),
            ("book/a.md", "[a](../Makefile) [b](b.md)\n\n```text\n[a](gone)\n```\n`[a](gone)`\n"),
        ],
    },
    Rule {
        name: "make targets",
        check: make_targets,
        caught: &[
            ("README.md", "\nrun `make gone` now\n", 2),
            ("README.md", "```sh\nmake run\nmake gone    # does a\n```\n", 3),
        ],
        passed: &[(
            "README.md",
            "`make run`, and make do\n```sh\nmake run SEEDS=1 # make sense\n```\n",
        )],
    },
    Rule {
        name: "evidence",
        check: evidence,
        caught: &[
            ("bench/evidence/2026-07-01-a.json", "{", 1),
            ("bench/evidence/a.json", "{}\n", 1),
            ("bench/evidence/2026-13-01.json", "{}\n", 1),
        ],
        passed: &[
            ("bench/evidence/2026-07-01-floor.json", "{}\n"),
            ("bench/evidence/README.md", "records\n"),
            ("a.json", "{\n"),
        ],
    },
    Rule { name: "file length", check: file_length, caught: &[], passed: &[] },
];

/// Purpose: the repository keeps every rule.
#[test]
fn the_repository_is_tidy() {
    let files = source::files();
    let mut tree = Tree::of(&files);
    // A link may lead to a picture.
    tree.paths.extend(source::paths());
    let findings: Vec<String> = files.iter().flat_map(|file| check(&tree, file)).collect();
    assert!(findings.is_empty(), "\n\n{}\n\n{} findings\n", findings.join("\n"), findings.len());
}

/// Purpose: a rule that catches nothing would pass for ever; each catches its samples, at their
/// lines, and lets pass what only looks like them.
#[test]
fn every_rule_catches_what_it_is_for() {
    let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
    let tree = Tree::of(&[
        file("Makefile", "run: ## Run\n\ttrue\n"),
        file("book/b.md", ""),
        file("crates/core/src/room/window.rs", ""),
    ]);
    for rule in RULES {
        for (path, text, line) in rule.caught {
            let found = (rule.check)(&tree, &file(path, text));
            let lines: Vec<usize> = found.iter().map(|(line, _)| *line).collect();
            assert_eq!(lines, [*line], "{}: {path}: {text:?}: {found:?}", rule.name);
        }
        for (path, text) in rule.passed {
            let found = (rule.check)(&tree, &file(path, text));
            assert!(found.is_empty(), "{}: {path}: {text:?}: {found:?}", rule.name);
        }
    }
}

/// Purpose: the limits on the length of files hold at the limit and one above it, and the list of exceptions lists
/// exceptions only.
#[test]
fn file_lengths_are_checked_at_their_limits() {
    let found = |path: &str, lines: usize| {
        let file = File { path: path.into(), text: "a\n".repeat(lines) };
        file_length(&Tree::of(&[]), &file).len()
    };
    let (listed, _) = LONG_FILES[0];
    for (path, lines, findings) in [
        ("crates/core/src/a.rs", FILE_LINES_SOFT_MAX, 0),
        ("crates/core/src/a.rs", FILE_LINES_SOFT_MAX + 1, 1),
        (listed, FILE_LINES_SOFT_MAX, 1),
        (listed, FILE_LINES_SOFT_MAX + 1, 0),
        (listed, FILE_LINES_MAX, 0),
        (listed, FILE_LINES_MAX + 1, 1),
        ("CHANGELOG.md", FILE_LINES_MAX + 1, 0),
    ] {
        assert_eq!(found(path, lines), findings, "{path} of {lines} lines");
    }
}

/// Purpose: an exception that is no longer one would hide the next file of that name.
#[test]
fn modules_beside_their_folders_are_listed_only_while_they_are() {
    let tree = Tree::of(&source::files());
    for (path, _) in BESIDE_FOLDERS {
        let folder = path.trim_end_matches(".rs");
        let is_beside = tree.paths.contains(*path) && tree.paths.contains(folder);
        assert!(is_beside, "{path} is in mod.rs now: take it off BESIDE_FOLDERS of tests/tidy.rs");
    }
}

fn check(tree: &Tree, file: &File) -> Vec<String> {
    let show =
        |rule: &Rule, (line, text): Finding| format!("{}:{line}: {}: {text}", file.path, rule.name);
    RULES
        .iter()
        .flat_map(|rule| (rule.check)(tree, file).into_iter().map(move |found| show(rule, found)))
        .collect()
}

impl Tree {
    fn of(files: &[File]) -> Tree {
        let mut paths = BTreeSet::new();
        for file in files {
            let ends = file.path.match_indices('/').map(|(at, _)| at).chain([file.path.len()]);
            paths.extend(ends.map(|end| file.path[..end].to_owned()));
        }
        let makefile = files.iter().find(|file| file.path == "Makefile");
        let target = |line: &str| Some(line.split_once(':')?.0.to_owned());
        let targets =
            makefile.iter().flat_map(|file| file.text.lines()).filter_map(target).collect();
        Tree { paths, targets }
    }
}

fn is_data(file: &File) -> bool {
    DATA.iter().any(|folder| file.path.starts_with(folder))
}

/// Purpose: two rules of one name could not be told apart in a finding.
#[test]
fn rules_have_names_of_their_own() {
    let mut counts = BTreeMap::new();
    RULES.iter().for_each(|rule| *counts.entry(rule.name).or_insert(0) += 1);
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
}

/// Purpose: what names its interpreter can be run, as `make` and the documentation do.
#[test]
fn scripts_can_be_run() {
    let is_script = |file: &File| file.text.starts_with("#!/");
    let may_run = |file: &File| {
        let metadata = source::root().join(&file.path).metadata();
        metadata.is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
    };
    let (scripts, others): (Vec<_>, Vec<_>) = source::files().into_iter().partition(is_script);
    let dead: Vec<_> = scripts.iter().filter(|file| !may_run(file)).map(|f| &f.path).collect();
    assert!(!scripts.is_empty() && dead.is_empty(), "chmod +x {dead:?}");
    assert!(others.iter().any(|file| !may_run(file)), "modes cannot be told apart here");
}

/// Purpose: every patch of `make sim-mutations` applies to the code as it is. Changes to the worker left eleven
/// of them behind, and the fixes that they revert were no longer known to be tested.
#[test]
fn mutations_apply() {
    if !source::root().join(".git").exists() {
        return highwater_skip::skip("git", "this is no work tree");
    }
    let is_patch = |file: &File| file.path.starts_with("scripts/mutations/");
    let patches: Vec<File> = source::files().into_iter().filter(is_patch).collect();
    assert!(!patches.is_empty(), "scripts/mutations/ has moved");
    let problems: String = patches.iter().filter_map(problem_of_patch).collect();
    assert!(problems.is_empty(), "rewrite these for the code as it is now:\n{problems}");
}

/// Why a patch is of no use, if so.
fn problem_of_patch(patch: &File) -> Option<String> {
    if !patch.text.starts_with("What: ") {
        return Some(format!("{}: begins with \"What: \" and what it reverts\n", patch.path));
    }
    let applied = Command::new("git")
        .args(["-c", "safe.directory=*", "apply", "--check", &patch.path])
        .current_dir(source::root())
        .output()
        .expect("git is installed");
    let problem = || format!("{}: {}", patch.path, String::from_utf8_lossy(&applied.stderr));
    (!applied.status.success()).then(problem)
}
