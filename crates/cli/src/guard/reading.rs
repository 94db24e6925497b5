//! What does a source report about the server, and is the report plausible?
//!
//! Turns a page of metrics or the answer to a Prometheus query into a [`Reading`], or into the
//! [`SourceError`] with it. It judges each answer alone. `policy/` finds what only several answers
//! can show (a counter that was reset or stands still).
//!
//! Pure: text in, a value out. A number that is negative, infinite or not a number is never passed
//! on.

use std::fmt;

use serde_json::Value;

use crate::scrape::text::{self, Selector, Sum};

/// One answer of a source.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reading {
    /// Counters, since the server began.
    Totals(Totals),
    /// Answers per second, as the operator's query defines them.
    Rate(f64),
}

/// Counters of a server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Totals {
    /// The metric that counts what was completed.
    pub(crate) counter: String,
    pub(crate) completed: f64,
    /// Of those, the ones within their deadline, if the server reports it.
    pub(crate) good: Option<f64>,
    /// Time from receiving a request to answering it, as the server sees it.
    pub(crate) latency: Option<Timed>,
    /// Time that requests waited inside the server before it started them.
    pub(crate) queue_delay: Option<Timed>,
    /// When the oldest of these was sampled, in milliseconds since 1970, if the page says so.
    pub(crate) taken_ms: Option<i64>,
}

/// A sum of durations, and their number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Timed {
    pub(crate) seconds: f64,
    pub(crate) count: f64,
}

/// What is wrong with a source. The texts are for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SourceError {
    /// It did not answer, or refused to.
    Silent(String),
    /// Its answer is not a metrics page, or not a number.
    Wrong(String),
    /// The page is valid, but the wanted metric is not on it.
    Missing(String),
    /// A counter went back: the server was restarted.
    Reset(String),
    /// It repeats its last values, although much has happened since.
    Stale(String),
    /// A number that no server reaches.
    Absurd(String),
}

impl SourceError {
    /// Its name in metrics and JSON.
    pub(crate) fn name(&self) -> &'static str {
        self.parts().0
    }

    fn parts(&self) -> (&'static str, &str) {
        match self {
            SourceError::Silent(why) => ("silent", why),
            SourceError::Wrong(why) => ("wrong", why),
            SourceError::Missing(why) => ("missing", why),
            SourceError::Reset(why) => ("reset", why),
            SourceError::Stale(why) => ("stale", why),
            SourceError::Absurd(why) => ("absurd", why),
        }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, why) = self.parts();
        write!(f, "{name}: {why}")
    }
}

/// Counters of completed requests, the best first; the first one on the page is used. The names are
/// those that exporters and frameworks document.
pub(crate) const COUNTERS: &[&str] = &[
    "http_requests_total",                        // ours, and the convention
    "http_request_duration_seconds_count",        // client libraries' middleware
    "http_server_request_duration_seconds_count", // OpenTelemetry
    "http_server_requests_seconds_count",         // Spring, Micrometer
    "nginx_http_requests_total",                  // nginx-prometheus-exporter
    "nginx_connections_handled",                  // the same
    "caddy_http_request_duration_seconds_count",  // Caddy
    "haproxy_frontend_http_requests_total",       // HAProxy
    "traefik_entrypoint_requests_total",          // Traefik
    "envoy_http_downstream_rq_completed",         // Envoy
    "apache_accesses_total",                      // apache_exporter
    "promhttp_metric_handler_requests_total",
];

/// Only a Highwater server has these: answers within their deadline, and how long requests waited.
const GOODPUT: &str = "http_goodput_total";
const QUEUE_DELAY: &str = "http_queue_delay_seconds";

/// The histogram or summary of latencies that is used with a counter that has none of its own.
const LATENCY: &str = "http_request_duration_seconds";

/// Reads a page of metrics. `wanted` is the counter of completed requests; without it, the first of
/// [`COUNTERS`] on the page is used.
pub(crate) fn page(text: &str, wanted: Option<&Selector>) -> Result<Reading, SourceError> {
    let candidates: Vec<Selector> = match wanted {
        Some(selector) => vec![selector.clone()],
        None => COUNTERS.iter().map(|name| Selector::named(name)).collect(),
    };
    let found = sums(text, &candidates)?;
    let Some((counter, completed)) =
        candidates.iter().zip(found).find_map(|(selector, sum)| Some((selector, sum?)))
    else {
        return Err(SourceError::Missing(absent(wanted)));
    };
    let base = counter.name().strip_suffix("_seconds_count").map(|base| format!("{base}_seconds"));
    let latency = match base {
        Some(base) => counter.renamed(&base),
        None => Selector::named(LATENCY),
    };
    let rest = [
        Selector::named(GOODPUT),
        latency.renamed(&format!("{}_sum", latency.name())),
        latency.renamed(&format!("{}_count", latency.name())),
        Selector::named(&format!("{QUEUE_DELAY}_sum")),
        Selector::named(&format!("{QUEUE_DELAY}_count")),
    ];
    let found = sums(text, &rest)?;
    let taken_ms = found.iter().flatten().chain([&completed]).filter_map(|sum| sum.taken_ms).min();
    let value =
        |index: usize| found[index].map(|sum| counted(rest[index].name(), sum.value)).transpose();
    Ok(Reading::Totals(Totals {
        counter: counter.to_string(),
        completed: counted(counter.name(), completed.value)?,
        good: value(0)?,
        latency: timed(value(1)?, value(2)?),
        queue_delay: timed(value(3)?, value(4)?),
        taken_ms,
    }))
}

fn sums(text: &str, selectors: &[Selector]) -> Result<Vec<Option<Sum>>, SourceError> {
    text::sums(text, selectors).map_err(|malformed| SourceError::Wrong(malformed.to_string()))
}

fn absent(wanted: Option<&Selector>) -> String {
    match wanted {
        Some(wanted) => format!("{wanted} is not on the page"),
        None => "no counter of requests that is known; name one with --metric".to_owned(),
    }
}

fn timed(seconds: Option<f64>, count: Option<f64>) -> Option<Timed> {
    Some(Timed { seconds: seconds?, count: count? })
}

/// A valid value of a counter.
fn counted(name: &str, value: f64) -> Result<f64, SourceError> {
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(SourceError::Wrong(format!("{name} is {value}; it must be a number from 0 on")))
    }
}

/// Reads Prometheus's answer to an instant query: one number, a rate.
pub(crate) fn query(text: &str) -> Result<Reading, SourceError> {
    let answer: Value = serde_json::from_str(text).map_err(|error| {
        SourceError::Wrong(format!("not the JSON of Prometheus's API: {error}"))
    })?;
    if answer["status"] != "success" {
        let reason = answer["error"].as_str().unwrap_or("not the JSON of Prometheus's API");
        return Err(SourceError::Wrong(reason.to_owned()));
    }
    let (kind, result) = (&answer["data"]["resultType"], &answer["data"]["result"]);
    let sample = match (kind.as_str(), result.as_array().map(Vec::as_slice)) {
        (Some("vector"), Some([])) => {
            return Err(SourceError::Missing("the query has no result".to_owned()));
        }
        (Some("vector"), Some([only])) => &only["value"][1],
        (Some("vector"), Some(several)) => {
            let count = several.len();
            let text = format!("the query has {count} results; write sum(…) around it");
            return Err(SourceError::Wrong(text));
        }
        (Some("scalar"), Some([_, value])) => value,
        _ => {
            return Err(SourceError::Wrong(format!(
                "the query's result is a {kind}, not a number"
            )));
        }
    };
    let value = sample.as_str().and_then(|text| text.parse().ok());
    let value =
        value.ok_or_else(|| SourceError::Wrong(format!("the query's result is {sample}")))?;
    counted("the query's result", value).map(Reading::Rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(text: &str, metric: Option<&str>) -> Result<Totals, SourceError> {
        let metric = metric.map(|metric| metric.parse().expect("a selector"));
        match page(text, metric.as_ref())? {
            Reading::Totals(totals) => Ok(totals),
            Reading::Rate(_) => panic!("pages have counters"),
        }
    }

    /// Purpose: everything that a Highwater server reports is used, not only a counter.
    #[test]
    fn our_own_page_is_used_whole() {
        let text = "http_scaling_connection_limit 64\nhttp_requests_total 1000\n\
                    http_goodput_total 900\nhttp_request_duration_seconds_sum{endpoint=\"a\"} 1.5\n\
                    http_request_duration_seconds_sum{endpoint=\"b\"} 0.5\n\
                    http_request_duration_seconds_count{endpoint=\"a\"} 600\n\
                    http_request_duration_seconds_count{endpoint=\"b\"} 400\n\
                    http_queue_delay_seconds_sum 3\nhttp_queue_delay_seconds_count 1000\n";
        let expected = Totals {
            counter: "http_requests_total".into(),
            completed: 1000.0,
            good: Some(900.0),
            latency: Some(Timed { seconds: 2.0, count: 1000.0 }),
            queue_delay: Some(Timed { seconds: 3.0, count: 1000.0 }),
            taken_ms: None,
        };
        assert_eq!(totals(text, None), Ok(expected));
    }

    /// Purpose: the counter of a known exporter is found without being named; a named one is
    /// preferred, and only series with its labels count.
    #[test]
    fn the_counter_is_found() {
        let nginx = "nginx_connections_active 3\nnginx_connections_handled 7 5\nnginx_http_requests_total 9 4\n";
        let found = totals(nginx, None).expect("it is known");
        assert_eq!((found.counter.as_str(), found.completed), ("nginx_http_requests_total", 9.0));
        assert_eq!(found.taken_ms, Some(4));
        assert_eq!(totals(nginx, Some("nginx_connections_handled")).expect("there").completed, 7.0);

        let labelled = "r_seconds_count{code=\"200\"} 5\nr_seconds_count{code=\"503\"} 90\n\
                        r_seconds_sum{code=\"200\"} 2\nr_seconds_sum{code=\"503\"} 0.1\n";
        let found = totals(labelled, Some("r_seconds_count{code=\"200\"}")).expect("it is there");
        assert_eq!(found.completed, 5.0);
        assert_eq!(found.latency, Some(Timed { seconds: 2.0, count: 5.0 }));
    }

    /// Purpose: a value that is not a count is never used as one, and the operator learns which it is
    /// and what to do.
    #[test]
    fn wrong_pages_are_told_apart() {
        for (text, metric, name) in [
            ("<html>", None, "wrong"),
            ("http_requests_total NaN", None, "wrong"),
            ("http_requests_total -1", None, "wrong"),
            ("http_requests_total +Inf", None, "wrong"),
            ("http_requests_total 1\nhttp_goodput_total NaN", None, "wrong"),
            ("", None, "missing"),
            ("up 1", None, "missing"),
            ("http_requests_total 1", Some("other_total"), "missing"),
            (
                "http_requests_total{code=\"500\"} 1",
                Some("http_requests_total{code=\"200\"}"),
                "missing",
            ),
        ] {
            assert_eq!(totals(text, metric).expect_err(text).name(), name, "{text}");
        }
    }

    /// Purpose: Prometheus's answers, as its API's documentation shows them, and everything else
    /// that may come instead.
    #[test]
    fn queries_yield_one_number() {
        let vector = |result: &str| {
            format!(r#"{{"status":"success","data":{{"resultType":"vector","result":{result}}}}}"#)
        };
        let one = r#"{"metric":{"job":"a"},"value":[1435781451.781,"12.5"]}"#;
        assert_eq!(query(&vector(&format!("[{one}]"))), Ok(Reading::Rate(12.5)));
        let scalar = r#"{"status":"success","data":{"resultType":"scalar","result":[1,"3"]}}"#;
        assert_eq!(query(scalar), Ok(Reading::Rate(3.0)));

        let error =
            r#"{"status":"error","errorType":"bad_data","error":"parse error: unexpected end"}"#;
        let string = r#"{"status":"success","data":{"resultType":"string","result":[1,"x"]}}"#;
        for (text, name) in [
            (vector("[]"), "missing"),
            (vector(&format!("[{one},{one}]")), "wrong"),
            (vector(&format!("[{}]", one.replace("12.5", "NaN"))), "wrong"),
            (vector(&format!("[{}]", one.replace("12.5", "-1"))), "wrong"),
            (vector(&format!("[{}]", one.replace("12.5", "+Inf"))), "wrong"),
            (vector(&format!("[{}]", one.replace("\"12.5\"", "12.5"))), "wrong"),
            (vector("7"), "wrong"),
            (error.to_owned(), "wrong"),
            (string.to_owned(), "wrong"),
            ("<html>".to_owned(), "wrong"),
            ("[]".to_owned(), "wrong"),
            (String::new(), "wrong"),
        ] {
            assert_eq!(query(&text).expect_err(&text).name(), name, "{text}");
        }
    }
}
