//! The text format: the documentation's own example, malformed text, and random pages.

use proptest::prelude::*;

use super::*;

/// From the format's specification, without the histograms, which have the same format.
const EXAMPLE: &str = r#"# HELP http_requests_total The total number of HTTP requests.
# TYPE http_requests_total counter
http_requests_total{method="post",code="200"} 1027 1395066363000
http_requests_total{method="post",code="400"}    3 1395066363000

# Escaping in label values:
msdos_file_access_time_seconds{path="C:\\DIR\\FILE.TXT",error="Cannot find file:\n\"FILE.TXT\""} 1.458255915e9

# Minimalistic line:
metric_without_timestamp_and_labels 12.47

# A weird metric from before the epoch:
something_weird{problem="division by zero"} +Inf -3982045
"#;

fn selector(text: &str) -> Selector {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn sum(page: &str, wanted: &str) -> Option<f64> {
    sums(page, &[selector(wanted)]).expect("well-formed")[0].map(|sum| sum.value)
}

/// Purpose: the specification's example is read as the specification says.
#[test]
fn the_specifications_example() {
    assert_eq!(lines(EXAMPLE).count(), 5);
    for (wanted, value) in [
        ("http_requests_total", Some(1030.0)),
        (r#"http_requests_total{code="200"}"#, Some(1027.0)),
        (r#"http_requests_total{code="200",method="post"}"#, Some(1027.0)),
        (r#"http_requests_total{code="500"}"#, None),
        (r#"msdos_file_access_time_seconds{path="C:\\DIR\\FILE.TXT"}"#, Some(1_458_255_915.0)),
        (
            r#"msdos_file_access_time_seconds{error="Cannot find file:\n\"FILE.TXT\""}"#,
            Some(1_458_255_915.0),
        ),
        ("metric_without_timestamp_and_labels", Some(12.47)),
        ("something_weird", Some(f64::INFINITY)),
        ("http_requests", None),
    ] {
        assert_eq!(sum(EXAMPLE, wanted), value, "{wanted}");
    }
    let all = sums(EXAMPLE, &[selector("http_requests_total"), selector("something_weird")]);
    let taken: Vec<_> = all.expect("well-formed").iter().map(|sum| sum.unwrap().taken_ms).collect();
    assert_eq!(taken, [Some(1_395_066_363_000), Some(-3_982_045)]);
}

/// Purpose: an answer that is not metrics is refused as a whole, and the message shows where it is
/// wrong.
#[test]
fn what_is_no_metrics_page_is_refused() {
    for (page, line) in [
        ("<!DOCTYPE html>\n<html><body>502 Bad Gateway</body></html>", 1),
        ("{\"error\":\"unauthorized\"}", 1),
        ("a 1\nb", 2),
        ("a 1\nb{", 2),
        ("a{x=\"1} 1", 1),
        ("a{x=1} 1", 1),
        ("a{x=\"1\" y=\"2\"} 1", 1),
        ("a{,} 1", 1),
        ("a one", 1),
        ("a 1 2.5", 1),
        ("a 1 2 3", 1),
        ("1a 1", 1),
        ("a-b 1", 1),
        ("a\u{a0}1", 1),
        ("Active connections: 291", 1),
    ] {
        let malformed = lines(page).find_map(Result::err).unwrap_or_else(|| panic!("{page}"));
        assert_eq!(malformed.line, line, "{page}");
        assert!(malformed.begins.chars().count() <= SHOWN_MAX);
    }
}

/// Purpose: white space and commas where the format allows them change nothing.
#[test]
fn white_space_is_free() {
    for page in
        ["a{x=\"1\",} 2", " a { x = \"1\" , }\t2 ", "a{x=\"1\"}2\r\n", "\n\na{x=\"1\"} 2e0 7"]
    {
        assert_eq!(sum(page, "a{x=\"1\"}"), Some(2.0), "{page:?}");
    }
    assert_eq!(sum("a{} 1\na 2", "a"), Some(3.0));
}

/// Purpose: a mistyped `--metric` is refused before it is used; a right one is printed as it was
/// written.
#[test]
fn selectors_are_read_and_shown() {
    for text in ["a", "a:b_c", "a{x=\"1\"}", "a{x=\"1\",y=\"q\\\"q\"}"] {
        assert_eq!(selector(text).to_string(), text);
    }
    for text in ["", "a b", "a{x=~\"1\"}", "rate(a[1m])", "{x=\"1\"}", "a{x=\"1\"} 2"] {
        text.parse::<Selector>().expect_err(text);
    }
}

/// Writes a label's value the way the specification says.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

proptest! {
    /// Purpose: any text is read or refused without a panic, and a refused page yields nothing.
    #[test]
    fn any_text_is_read_or_refused(page in "\\PC*|([a-z_{}\"=,\\\\ #0-9.\\n+-]|NaN){0,200}") {
        let refused = lines(&page).any(|line| line.is_err());
        prop_assert_eq!(sums(&page, &[Selector::named("a")]).is_err(), refused);
    }

    /// Purpose: what a correct exporter writes is read back, whatever the labels contain.
    #[test]
    fn what_is_written_is_read(
        series in prop::collection::vec((any::<String>(), any::<f64>(), any::<Option<i64>>()), 0..20),
        wanted in any::<prop::sample::Index>(),
    ) {
        let line = |(label, value, taken): &(String, f64, Option<i64>)| {
            let taken = taken.map(|ms| format!(" {ms}")).unwrap_or_default();
            format!("m{{l=\"{}\"}} {value}{taken}\n", escaped(label))
        };
        let is_sane = |label: &str| !label.contains('\r');
        prop_assume!(series.iter().all(|(label, ..)| is_sane(label)));
        let page: String = series.iter().map(line).collect();
        let read: Vec<_> = lines(&page).collect::<Result<_, _>>().expect("well-formed");
        prop_assert_eq!(read.len(), series.len());
        for (read, (_, value, taken)) in read.iter().zip(&series) {
            prop_assert!(read.value == *value || (read.value.is_nan() && value.is_nan()));
            prop_assert_eq!(read.taken_ms, *taken);
        }
        if !series.is_empty() {
            let (label, ..) = wanted.get(&series);
            let selector = Selector { name: "m".into(), labels: vec![("l".into(), label.clone())] };
            let model: f64 = series.iter().filter(|(other, ..)| other == label).map(|(_, value, _)| value).sum();
            let sum = sums(&page, &[selector]).expect("well-formed")[0].expect("it is there").value;
            prop_assert!(sum == model || (sum.is_nan() && model.is_nan()));
        }
    }
}
