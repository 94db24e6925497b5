//! Which metrics does the application add?
//!
//! A metric is registered once, at start, and read with every scrape. Names are checked when they
//! are registered, where the error reaches their author; a scrape cannot fail.
//!
//! Invariants: one kind and one help text per name; one source per name and label values; no name
//! that the server itself uses.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use super::exposition::{Kind, Number, Page, is_label_name, is_metric_name};

/// A number of the application that only grows. Clones share it; any thread may add.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Adds one.
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `amount`.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Relaxed);
    }

    /// What has been added so far.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Why a metric was not registered. The error is always the application's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricError {
    /// The name is not of the form `[a-zA-Z_][a-zA-Z0-9_]*`.
    Name(String),
    /// A label's name is not of that form, is `le`, begins with `__`, or is used twice.
    Label(String),
    /// The help text is empty.
    Help(String),
    /// A gauge is named like a counter.
    GaugeNamedTotal(String),
    /// The server itself has metrics of this name.
    Taken(String),
    /// Another metric of this name and these label values exists.
    Duplicate(String),
    /// Metrics of one name differ in kind, help text or label names.
    Mismatch(String),
}

impl fmt::Display for MetricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetricError::Name(name) => write!(
                f,
                "{name:?} cannot name a metric; use lower-case words, digits and underscores, \
                 not beginning with a digit, like cache_hits_total"
            ),
            MetricError::Label(name) => write!(
                f,
                "{name:?} cannot name a label here; use each name once, of lower-case words and \
                 underscores, not le and not beginning with __"
            ),
            MetricError::Help(name) => write!(f, "{name} has no help text; say what it counts"),
            MetricError::GaugeNamedTotal(name) => write!(
                f,
                "{name} is a gauge, but its name ends in _total as a counter's does; \
                 register a counter, or drop the suffix"
            ),
            MetricError::Taken(name) => write!(
                f,
                "{name} is a metric of the server itself; put your application's name in front"
            ),
            MetricError::Duplicate(name) => write!(
                f,
                "{name} is registered already with these label values; register it once and share \
                 it, or tell the two apart by a label"
            ),
            MetricError::Mismatch(name) => write!(
                f,
                "{name} is registered already with another kind, help text or set of labels; give \
                 all metrics of one name the same"
            ),
        }
    }
}

impl std::error::Error for MetricError {}

/// Where a value comes from.
#[derive(Clone)]
enum Source {
    Counter(Counter),
    CounterFn(Arc<dyn Fn() -> u64 + Send + Sync>),
    GaugeFn(Arc<dyn Fn() -> f64 + Send + Sync>),
}

impl Source {
    fn read(&self) -> Number {
        match self {
            Source::Counter(counter) => counter.get().into(),
            Source::CounterFn(read) => read().into(),
            Source::GaugeFn(read) => read().into(),
        }
    }
}

/// Label names and values of one sample.
type Labels = Vec<(String, String)>;

#[derive(Clone)]
struct Family {
    help: String,
    kind: Kind,
    /// By their labels.
    samples: Vec<(Labels, Source)>,
}

/// The application's metrics, by name.
#[derive(Default)]
pub(super) struct Registry {
    /// By their names. A scrape holds no lock while it calls the application: a metric that is added meanwhile goes into a
    /// copy.
    families: RwLock<Arc<Vec<(String, Family)>>>,
}

impl Registry {
    pub(super) fn counter(
        &self,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
    ) -> Result<Counter, MetricError> {
        let counter = Counter::default();
        let kind = Kind::of_counter(name);
        self.add(name, help, kind, labels, Source::Counter(counter.clone()))?;
        Ok(counter)
    }

    pub(super) fn counter_fn(
        &self,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        read: Arc<dyn Fn() -> u64 + Send + Sync>,
    ) -> Result<(), MetricError> {
        self.add(name, help, Kind::of_counter(name), labels, Source::CounterFn(read))
    }

    pub(super) fn gauge_fn(
        &self,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        read: Arc<dyn Fn() -> f64 + Send + Sync>,
    ) -> Result<(), MetricError> {
        if name.ends_with("_total") {
            return Err(MetricError::GaugeNamedTotal(name.to_owned()));
        }
        self.add(name, help, Kind::Gauge, labels, Source::GaugeFn(read))
    }

    fn add(
        &self,
        name: &str,
        help: &str,
        kind: Kind,
        labels: &[(&str, &str)],
        source: Source,
    ) -> Result<(), MetricError> {
        check(name, help, labels)?;
        let labels: Labels =
            labels.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let mut families = self.families.write().unwrap_or_else(PoisonError::into_inner);
        let families = Arc::make_mut(&mut families);
        let place = families.binary_search_by(|(other, _)| other.as_str().cmp(name));
        let place = place.unwrap_or_else(|place| {
            let family = Family { help: help.to_owned(), kind, samples: Vec::new() };
            families.insert(place, (name.to_owned(), family));
            place
        });
        let family = &mut families[place].1;
        let names_differ = |(other, _): &(Labels, Source)| {
            !other.iter().map(|l| &l.0).eq(labels.iter().map(|l| &l.0))
        };
        // All samples of a family have the names of its first.
        let is_other = family.samples.first().is_some_and(names_differ);
        if family.kind != kind || family.help != help || is_other {
            return Err(MetricError::Mismatch(name.to_owned()));
        }
        match family.samples.binary_search_by(|(other, _)| other.cmp(&labels)) {
            Ok(_) => Err(MetricError::Duplicate(name.to_owned())),
            Err(place) => {
                family.samples.insert(place, (labels, source));
                Ok(())
            }
        }
    }

    /// Writes every family, by name.
    pub(super) fn write(&self, page: &mut Page) {
        let families = self.families.read().unwrap_or_else(PoisonError::into_inner).clone();
        for (name, family) in families.iter() {
            let mut written = page.family(name, &family.help, family.kind);
            for (labels, source) in &family.samples {
                let labels: Vec<(&str, &str)> =
                    labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
                written.sample(&labels, source.read());
            }
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let families = self.families.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_list().entries(families.iter().map(|(name, _)| name)).finish()
    }
}

fn check(name: &str, help: &str, labels: &[(&str, &str)]) -> Result<(), MetricError> {
    if !is_metric_name(name) {
        return Err(MetricError::Name(name.to_owned()));
    }
    if super::is_own_name(name) {
        return Err(MetricError::Taken(name.to_owned()));
    }
    if help.is_empty() {
        return Err(MetricError::Help(name.to_owned()));
    }
    for (index, &(label, _)) in labels.iter().enumerate() {
        let repeated = labels[..index].iter().any(|&(earlier, _)| earlier == label);
        if !is_label_name(label) || label.starts_with("__") || label == "le" || repeated {
            return Err(MetricError::Label(label.to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(registry: &Registry) -> String {
        let mut page = Page::default();
        registry.write(&mut page);
        page.into_text()
    }

    /// Purpose: what an application registers is written, in an order that does not depend on when
    /// it was registered.
    #[test]
    fn registered_metrics_are_written_by_name() {
        let registry = Registry::default();
        let hits = registry.counter("http_cache_hits", "Hits.", &[]).expect("a fresh name");
        registry.counter_fn("b_total", "B.", &[("k", "2")], Arc::new(|| 7)).expect("fresh");
        registry.counter_fn("b_total", "B.", &[("k", "1")], Arc::new(|| 8)).expect("another label");
        registry.gauge_fn("a_ratio", "A.", &[], Arc::new(|| 0.5)).expect("a fresh name");
        hits.increment();
        hits.clone().add(2);
        assert_eq!(
            text(&registry),
            "# HELP a_ratio A.\n# TYPE a_ratio gauge\na_ratio 0.5\n\
             # HELP b_total B.\n# TYPE b_total counter\nb_total{k=\"1\"} 8\nb_total{k=\"2\"} 7\n\
             # HELP http_cache_hits Hits.\n# TYPE http_cache_hits untyped\nhttp_cache_hits 3\n"
        );
    }

    /// Purpose: every mistake is refused, with a message that says what to write instead.
    #[test]
    fn mistakes_are_refused() {
        let registry = Registry::default();
        registry.counter("x_total", "X.", &[("a", "1")]).expect("a fresh name");
        let refuse = |name: &str, help: &str, labels: &[(&str, &str)], word: &str| {
            let error = registry.counter(name, help, labels).expect_err(name);
            assert!(error.to_string().contains(word), "{error}");
        };
        refuse("x-total", "X.", &[], "underscores");
        refuse("y_total", "", &[], "say what it counts");
        refuse("y_total", "Y.", &[("le", "1")], "not le");
        refuse("y_total", "Y.", &[("__a", "1")], "not beginning with __");
        refuse("y_total", "Y.", &[("a", "1"), ("a", "2")], "once");
        refuse("http_requests_total", "Mine.", &[], "in front");
        refuse("http_request_duration_seconds_count", "Mine.", &[], "in front");
        refuse("http_queue_delay_seconds_count", "Mine.", &[], "in front");
        refuse("process_fds", "Mine.", &[], "in front");
        refuse("x_total", "X.", &[("a", "1")], "register it once");
        refuse("x_total", "Other.", &[("a", "2")], "the same");
        refuse("x_total", "X.", &[("b", "1")], "the same");
        let error = registry.gauge_fn("z_total", "Z.", &[], Arc::new(|| 0.0)).expect_err("a gauge");
        assert!(error.to_string().contains("drop the suffix"), "{error}");
        let error = registry.gauge_fn("x", "X.", &[], Arc::new(|| 0.0));
        assert_eq!(error, Ok(()));
        assert_eq!(
            text(&registry),
            "# HELP x X.\n# TYPE x gauge\nx 0\n# HELP x_total X.\n# TYPE x_total counter\n\
             x_total{a=\"1\"} 0\n"
        );
    }

    /// Purpose: an application that counts by thousands of labels is ready at once: what one registration costs must not
    /// grow with those before it. A registration that copied all earlier ones would allocate for each of them.
    #[test]
    fn registrations_copy_no_earlier_ones() {
        const LABELS: usize = 1000;
        let registry = Registry::default();
        let allocated = allocation_counter::measure(|| {
            for tenant in 0..LABELS {
                let tenant = tenant.to_string();
                registry
                    .counter("by_tenant_total", "T.", &[("tenant", &tenant)])
                    .expect("a new label");
            }
        });
        // Five each: the list of labels, its name and its value, the counter, and the text of `tenant`.
        assert!(allocated.count_total < 10 * LABELS as u64, "{allocated:?}");
        assert_eq!(text(&registry).lines().count(), LABELS + 2);
    }

    /// Purpose: a metric that registers another one while it is read must not lock up the scrape.
    #[test]
    fn a_source_may_use_the_registry() {
        let registry = Arc::new(Registry::default());
        let inner = Arc::clone(&registry);
        let read = move || {
            let _ = inner.counter("late_total", "Late.", &[]);
            1.0
        };
        registry.gauge_fn("early", "Early.", &[], Arc::new(read)).expect("a fresh name");
        assert!(!text(&registry).contains("late_total"));
        assert!(text(&registry).contains("late_total 0\n"));
    }
}
