//! Reads the figures of a row from a program's output. Pure.

use std::collections::BTreeMap;

use regex_lite::{Captures, Regex};
use serde_json::Value;

use super::plan::{Figure, Unit, put};

/// Characters of an output that a reason shows.
const SHOWN_MAX: usize = 200;

/// Reads `figures` from `output`; `words` replace the words in braces in patterns and factors.
///
/// # Errors
/// The output lacks one, with the end of it.
pub(super) fn read(
    figures: &BTreeMap<String, Figure>,
    words: &BTreeMap<String, String>,
    output: &str,
) -> Result<BTreeMap<String, f64>, String> {
    let json = figures.values().any(|figure| !figure.json.is_empty()).then(|| object(output));
    let json = json.flatten();
    let mut found = BTreeMap::new();
    for (name, figure) in figures {
        let value = match &figure.pattern {
            Some(pattern) => by_pattern(&put(pattern, words), figure.unit, output)?,
            None => json.as_ref().and_then(|json| by_keys(json, &figure.json)).map(|value| {
                let unit = if name.ends_with("_us") { figure.unit } else { None };
                value * unit.map_or(1.0, Unit::us)
            }),
        };
        let times = figure.times.as_ref().map_or(Ok(1.0), |times| put(times, words).parse());
        let times = times.map_err(|error| format!("{name}: times: {error}"))?;
        let value = value.map(|value| value * times).or(figure.absent).ok_or_else(|| {
            let place = figure.pattern.clone().unwrap_or_else(|| figure.json.join(" + "));
            format!("its output has no {name} ({place}): {}", end_of(output))
        })?;
        if !(value.is_finite() && value >= 0.0) {
            return Err(format!("its output has {value} as {name}"));
        }
        found.insert(name.clone(), value);
    }
    Ok(found)
}

/// The output if it is a JSON object, else its last line.
fn object(output: &str) -> Option<Value> {
    let last = output.trim().lines().last().unwrap_or_default();
    let texts = [output, last].into_iter();
    texts.filter_map(|text| serde_json::from_str(text).ok()).find(Value::is_object)
}

/// The sum of the values of `keys`; `None` if one is missing or not a number.
fn by_keys(json: &Value, keys: &[String]) -> Option<f64> {
    let of = |key: &String| key.split('.').try_fold(json, |within, part| within.get(part));
    keys.iter().map(|key| of(key)?.as_f64()).sum()
}

/// The last match counts: programs report their progress before.
fn by_pattern(pattern: &str, unit: Option<Unit>, output: &str) -> Result<Option<f64>, String> {
    let pattern = Regex::new(pattern).map_err(|error| format!("{pattern:?}: {error}"))?;
    Ok(pattern.captures_iter(output).last().and_then(|found| sum_of(&found, unit)))
}

/// The sum of the groups that are numbers, in the unit of the group that is one. `None` if there is no number.
fn sum_of(found: &Captures<'_>, unit: Option<Unit>) -> Option<f64> {
    let (mut sum, mut unit) = (None, unit);
    for group in found.iter().skip(1).flatten() {
        match (group.as_str().parse::<f64>(), Unit::named(group.as_str())) {
            (Ok(value), _) => sum = Some(sum.unwrap_or(0.0) + value),
            (Err(_), Some(named)) => unit = Some(named),
            (Err(_), None) => return None,
        }
    }
    sum.map(|sum| sum * unit.map_or(1.0, Unit::us))
}

/// The end of an output, on one line.
pub(super) fn end_of(output: &str) -> String {
    let words: Vec<&str> = output.split_whitespace().collect();
    let text = words.join(" ");
    let skipped = text.chars().count().saturating_sub(SHOWN_MAX);
    let shown: String = text.chars().skip(skipped).collect();
    match (shown.is_empty(), skipped) {
        (true, _) => "it printed nothing".to_owned(),
        (false, 0) => format!("it printed: {shown}"),
        (false, _) => format!("it printed: …{shown}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What wrk prints, from its README, with latencies.
    const WRK: &str = "Running 30s test @ http://127.0.0.1:8080/index.html\n  12 threads and 400 connections\n  \
        Thread Stats   Avg      Stdev     Max   +/- Stdev\n    Latency   635.91us    0.89ms  12.92ms   93.69%\n  \
        Latency Distribution\n     50%  250.00us\n     75%  491.00us\n     90%  700.00us\n     99%    5.80ms\n  \
        22464657 requests in 30.00s, 17.76GB read\n  Socket errors: connect 1, read 2, write 3, timeout 4\nRequests/sec: 748868.53\n";

    fn figures(text: &str) -> BTreeMap<String, Figure> {
        toml::from_str(text).expect("figures as plans have them")
    }

    fn words(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// Purpose: patterns find numbers, sum their groups, and take the unit that the output has.
    #[test]
    fn patterns() {
        let figures = figures(
            "requests = { pattern = '(\\d+) requests in' }\nrps = { pattern = 'Requests/sec:\\s+([\\d.]+)' }\n\
             p50_us = { pattern = '50%\\s+([\\d.]+)(us|ms|s)' }\np99_us = { pattern = '99%\\s+([\\d.]+)(us|ms|s)' }\n\
             errors = { pattern = 'connect (\\d+), read (\\d+), write (\\d+), timeout (\\d+)', absent = 0 }\n\
             non_2xx = { pattern = 'Non-2xx or 3xx responses: (\\d+)', absent = 0 }\n",
        );
        let found = read(&figures, &BTreeMap::new(), WRK).expect("everything is there");
        let expected = [
            ("errors", 10.0),
            ("non_2xx", 0.0),
            ("p50_us", 250.0),
            ("p99_us", 5800.0),
            ("requests", 22_464_657.0),
            ("rps", 748_868.53),
        ];
        let found: Vec<(&str, f64)> = found.iter().map(|(a, b)| (a.as_str(), *b)).collect();
        assert_eq!(found, expected);
    }

    /// Purpose: keys find numbers at any depth, of an object that is the whole output or its last line.
    #[test]
    fn json_keys() {
        let figures = figures(
            "requests = { json = [\"ok\"], times = \"{lines}\" }\nerrors = { json = [\"errors\", \"timeouts\"] }\n\
             p99_us = { json = [\"latency.p99\"], unit = \"ms\" }\n",
        );
        let words = words(&[("lines", "100")]);
        for output in [
            "{\"ok\": 7,\n \"errors\": 1, \"timeouts\": 2, \"latency\": {\"p99\": 1.5}}\n",
            "it begins\n{\"ok\":7,\"errors\":1,\"timeouts\":2,\"latency\":{\"p99\":1.5}}\n",
        ] {
            let found = read(&figures, &words, output).expect("everything is there");
            assert_eq!(
                (found["requests"], found["errors"], found["p99_us"]),
                (700.0, 3.0, 1500.0),
                "{output}"
            );
        }
    }

    /// Purpose: the last match counts, and a word of the cell can stand in a pattern: a program that did less than it was
    /// asked to has no figure.
    #[test]
    fn the_last_of_what_was_asked() {
        let figures = figures("requests = { pattern = '({records}) records sent' }");
        let output = "400 records sent, 80 a second\n1000 records sent, 90 a second\n";
        let found = read(&figures, &words(&[("records", "1000")]), output);
        assert_eq!(found.expect("it is there")["requests"], 1000.0);
        let missing = read(&figures, &words(&[("records", "2000")]), output).expect_err("fewer");
        assert!(missing.contains("no requests"), "{missing}");
    }

    /// Purpose: a figure that is missing or not a number is reported with its name and the program's output.
    #[test]
    fn what_is_missing() {
        for (text, output, message) in [
            (
                "requests = { json = [\"ok\"] }",
                "{\"ok\": \"7\"}",
                "no requests (ok): it printed: {\"ok\"",
            ),
            ("requests = { json = [\"ok\"] }", "ok: 7", "no requests (ok)"),
            ("requests = { json = [\"a.b\"] }", "{\"a\": 7}", "no requests (a.b)"),
            ("requests = { pattern = '(\\d+) sent' }", "", "it printed nothing"),
            ("requests = { pattern = '(.*) sent' }", "some sent", "no requests"),
            ("requests = { pattern = '(.*) sent' }", "-1 sent", "-1 as requests"),
            ("requests = { pattern = '(.*) sent' }", "NaN sent", "NaN as requests"),
        ] {
            let problem = read(&figures(text), &BTreeMap::new(), output).expect_err(output);
            assert!(problem.contains(message), "{problem}");
        }
    }
}
