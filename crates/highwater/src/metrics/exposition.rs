//! Writes metrics in the Prometheus text format.
//!
//! Version 0.0.4: a `HELP` and a `TYPE` line once per family, then its samples. This module knows
//! the format but no metrics.
//!
//! ```
//! use highwater::metrics::exposition::{Kind, Page};
//!
//! let mut page = Page::default();
//! page.single("jobs_waiting", "Jobs that wait.", Kind::Gauge, 3_u32);
//! assert_eq!(
//!     page.into_text(),
//!     "# HELP jobs_waiting Jobs that wait.\n# TYPE jobs_waiting gauge\njobs_waiting 3\n"
//! );
//! ```
//!
//! Invariants: label values and help texts are escaped, so that no content can forge a line; the
//! order is that of the calls, so that equal numbers give equal bytes.

use std::fmt::{self, Write};

/// The media type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What kind of family it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by bucket.
    Histogram,
    /// A counter whose established name lacks `_total`. The convention demands `_total` of a
    /// declared counter (and `promtool` checks it).
    Untyped,
}

impl Kind {
    /// The kind of a counter named `name`.
    pub(super) fn of_counter(name: &str) -> Self {
        if name.ends_with("_total") { Kind::Counter } else { Kind::Untyped }
    }

    const fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Untyped => "untyped",
        }
    }
}

/// A sample's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Written without a point.
    Integer(u64),
    /// Written in its shortest unambiguous form; `NaN` and `+Inf` as in the format.
    Float(f64),
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Number::Integer(value)
    }
}

impl From<u32> for Number {
    fn from(value: u32) -> Self {
        Number::Integer(value.into())
    }
}

impl From<bool> for Number {
    fn from(value: bool) -> Self {
        Number::Integer(value.into())
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Number::Float(value)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Number::Integer(value) => write!(f, "{value}"),
            Number::Float(value) if value.is_nan() => f.write_str("NaN"),
            Number::Float(f64::INFINITY) => f.write_str("+Inf"),
            Number::Float(f64::NEG_INFINITY) => f.write_str("-Inf"),
            Number::Float(value) => write!(f, "{value}"),
        }
    }
}

/// A page of metrics being written.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
}

impl Page {
    /// Begins a family; its samples follow. Names are written as they are, so they are literals, or checked.
    pub fn family<'a>(&'a mut self, name: &'a str, help: &str, kind: Kind) -> Family<'a> {
        self.text.push_str("# HELP ");
        self.text.push_str(name);
        self.text.push(' ');
        escape(&mut self.text, help, false);
        self.text.push_str("\n# TYPE ");
        self.text.push_str(name);
        self.text.push(' ');
        self.text.push_str(kind.name());
        self.text.push('\n');
        Family { page: self, name }
    }

    /// A family with one sample and no labels.
    pub fn single(&mut self, name: &str, help: &str, kind: Kind, value: impl Into<Number>) {
        self.family(name, help, kind).sample(&[], value);
    }

    /// The whole page.
    pub fn into_text(self) -> String {
        self.text
    }
}

/// A family whose samples are being written.
#[derive(Debug)]
pub struct Family<'a> {
    page: &'a mut Page,
    name: &'a str,
}

impl Family<'_> {
    /// Writes a sample.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Into<Number>) {
        self.line("", labels, None, value.into());
    }

    /// Writes a histogram. `buckets` are `(upper bound, count in this bucket alone)`; the last
    /// bound is infinite. `sum` is the sum of everything observed.
    pub fn histogram(
        &mut self,
        labels: &[(&str, &str)],
        buckets: impl Iterator<Item = (f64, u64)>,
        sum: f64,
    ) {
        let mut count = 0;
        for (bound, in_bucket) in buckets {
            count += in_bucket;
            self.line("_bucket", labels, Some(bound), count.into());
        }
        self.line("_sum", labels, None, sum.into());
        self.line("_count", labels, None, count.into());
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], le: Option<f64>, value: Number) {
        let text = &mut self.page.text;
        text.push_str(self.name);
        text.push_str(suffix);
        let mut separator = '{';
        for (name, value) in labels {
            text.push(separator);
            text.push_str(name);
            text.push_str("=\"");
            escape(text, value, true);
            text.push('"');
            separator = ',';
        }
        if let Some(bound) = le {
            write!(text, "{separator}le=\"{}\"", Number::Float(bound))
                .expect("a String takes everything");
            separator = ',';
        }
        if separator == ',' {
            text.push('}');
        }
        writeln!(text, " {value}").expect("a String takes everything");
    }
}

/// Appends `value`, escaped as the format demands: backslash and line feed, and, within a label's
/// value, the quotation mark.
fn escape(text: &mut String, value: &str, quoted: bool) {
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if quoted => text.push_str("\\\""),
            other => text.push(other),
        }
    }
}

/// Whether `name` may name a metric. The format also allows colons, but those are for recording
/// rules.
pub(super) fn is_metric_name(name: &str) -> bool {
    is_label_name(name)
}

/// Whether `name` may name a label.
pub(super) fn is_label_name(name: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(word) && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the bytes are those of the format's own documentation.
    #[test]
    fn families_look_as_documented() {
        let mut page = Page::default();
        let mut family = page.family("a_total", "One\nline, with \\ and \".", Kind::Counter);
        family.sample(&[("path", "C:\\DIR\n\"x\""), ("m", "")], 3_u64);
        family.sample(&[], 4_u64);
        page.single("b", "B.", Kind::Gauge, f64::NEG_INFINITY);
        page.single("c", "C.", Kind::of_counter("c"), f64::NAN);
        assert_eq!(
            page.into_text(),
            "# HELP a_total One\\nline, with \\\\ and \".\n\
             # TYPE a_total counter\n\
             a_total{path=\"C:\\\\DIR\\n\\\"x\\\"\",m=\"\"} 3\n\
             a_total 4\n\
             # HELP b B.\n# TYPE b gauge\nb -Inf\n\
             # HELP c C.\n# TYPE c untyped\nc NaN\n"
        );
    }

    /// Purpose: buckets are cumulative, and the last one equals the count.
    #[test]
    fn histograms_add_up() {
        let mut page = Page::default();
        let buckets = [(0.05, 2), (1.0, 0), (f64::INFINITY, 3)];
        page.family("d", "D.", Kind::Histogram).histogram(&[("e", "x")], buckets.into_iter(), 1.5);
        assert_eq!(
            page.into_text(),
            "# HELP d D.\n# TYPE d histogram\n\
             d_bucket{e=\"x\",le=\"0.05\"} 2\n\
             d_bucket{e=\"x\",le=\"1\"} 2\n\
             d_bucket{e=\"x\",le=\"+Inf\"} 5\n\
             d_sum{e=\"x\"} 1.5\n\
             d_count{e=\"x\"} 5\n"
        );
    }

    /// Purpose: names that would break the page are refused.
    #[test]
    fn names_are_words() {
        assert!(is_metric_name("http_cache_hits") && is_metric_name("_x1"));
        for bad in ["", "1a", "a-b", "a b", "a:b", "é", "a\n"] {
            assert!(!is_metric_name(bad), "{bad:?}");
        }
    }
}
