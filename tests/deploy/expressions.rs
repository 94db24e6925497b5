//! Queries: whether Prometheus can parse them, and whether what they name exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use highwater_tests::source;

/// Words of the query language that look like names of metrics.
const LANGUAGE: &[&str] = &[
    "and",
    "by",
    "ceil",
    "count",
    "histogram_quantile",
    "ignoring",
    "max",
    "max_over_time",
    "on",
    "or",
    "rate",
    "sum",
    "time",
    "topk",
    "unless",
    "without",
];

/// Has `promtool` parse every query of `queries`, which is what the file for it is called.
pub(crate) fn parse(name: &str, queries: &[String]) {
    let rules: Vec<serde_json::Value> = queries
        .iter()
        .enumerate()
        .map(|(index, query)| serde_json::json!({ "record": format!("query_{index}"), "expr": query }))
        .collect();
    let groups = serde_json::json!({ "groups": [{ "name": "queries", "rules": rules }] });
    let folder = source::root().join("target/deploy-tests");
    fs::create_dir_all(&folder).expect("the build's own folder");
    let file = folder.join(format!("{name}-{}.yml", std::process::id()));
    fs::write(&file, groups.to_string()).expect("JSON is YAML");
    promtool(&["check", "rules", &file.to_string_lossy()]);
    fs::remove_file(&file).expect("it was written");
}

/// Runs `promtool`, which must be content; answers what it said.
///
/// # Panics
/// If it is missing or complains.
pub(crate) fn promtool(arguments: &[&str]) -> String {
    let output = Command::new("promtool")
        .args(arguments)
        .current_dir(source::root().join("deploy/prometheus"))
        .output()
        .expect("promtool is missing: install Debian's package prometheus (make test does)");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {arguments:?}:\n{text}");
    text.into_owned()
}

/// The names of metrics, and of recorded series, that `query` asks for: its words that are neither
/// language, nor labels in braces or parentheses behind `by` and its like, nor quoted.
pub(crate) fn names(query: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut rest = query;
    let mut labels_follow = false;
    while let Some(begin) = rest.find(|c: char| c.is_ascii_alphabetic() || "_\"'{[(".contains(c)) {
        let found = &rest[begin..];
        let skip_to = |end: char| 1 + found[1..].find(end).expect("promtool has parsed it") + 1;
        let length = match found.as_bytes()[0] {
            b'"' => skip_to('"'),
            b'\'' => skip_to('\''),
            b'{' => skip_to('}'),
            b'[' => skip_to(']'),
            b'(' if labels_follow => skip_to(')'),
            b'(' => 1,
            _ => {
                let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
                let end = found.find(|c| !is_name(c)).unwrap_or(found.len());
                let word = &found[..end];
                labels_follow = ["by", "without", "on", "ignoring"].contains(&word);
                if !LANGUAGE.contains(&word) {
                    names.insert(word.to_owned());
                }
                rest = &found[end..];
                continue;
            }
        };
        labels_follow = false;
        rest = &found[length..];
    }
    names
}

/// Which of `names` is on no page: neither a family of `page`, nor made by Prometheus itself.
pub(crate) fn strangers(names: &BTreeSet<String>, page: &str) -> Vec<String> {
    let typed = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let kinds: BTreeMap<&str, &str> = typed.collect();
    let is_known = |name: &str| {
        let kind = kinds.get(name);
        let ends = ["_bucket", "_sum", "_count"];
        let of_histogram = ends.iter().find_map(|end| kinds.get(name.strip_suffix(end)?));
        kind.is_some_and(|kind| *kind != "histogram")
            || of_histogram == Some(&"histogram")
            || ["up", "ALERTS"].contains(&name)
    };
    names.iter().filter(|name| !is_known(name)).cloned().collect()
}

/// Purpose: a reader of queries that overlooks a name would let every mistake pass.
#[test]
fn names_are_found() {
    for (query, expected) in [
        ("a > 1 and rate(b_total{c=\"d\"}[1m]) > 0", vec!["a", "b_total"]),
        ("x:y:z / on (job) count by (job, i) (w)", vec!["w", "x:y:z"]),
        ("histogram_quantile(0.99, sum by (le) (rate(h_bucket[5m])))", vec!["h_bucket"]),
        ("max(m{n=~'o|p'}) by (q)", vec!["m"]),
    ] {
        assert_eq!(names(query).into_iter().collect::<Vec<_>>(), expected, "{query}");
    }
    let page = "# TYPE h histogram\n# TYPE m gauge\n";
    let asked = names("h_bucket + h_count + h + m + m_count + up");
    assert_eq!(strangers(&asked, page), ["h", "m_count"]);
}
