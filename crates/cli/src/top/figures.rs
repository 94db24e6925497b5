//! How fast is the server, between two of its pages?
//!
//! Pure: two samples in, figures out. Counters become rates; a counter that went back, because the
//! server was restarted in between, has no rate until the next page. No rate is negative.

use std::collections::HashMap;

use super::histogram::{Histogram, Quantiles};
use super::sample::Sample;
use super::units;

/// Pages that are closer than this have no rates, in seconds: a division by next to nothing.
const SPAN_MIN: f64 = 0.01;

/// A start this much later is another process, in seconds; the page has hundredths.
const START_LATER: f64 = 0.05;

/// What happened between two pages.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// The later page.
    pub(crate) sample: Sample,
    /// Time between the two, in seconds; `None` if there are not two of the same process.
    pub(crate) span: Option<f64>,
    /// The later page is of a process that started after the earlier one.
    pub(crate) is_restarted: bool,
    /// Each per second.
    pub(crate) requests: Option<f64>,
    pub(crate) good: Option<f64>,
    pub(crate) refused: Option<f64>,
    /// CPU seconds per second.
    pub(crate) cpu: Option<f64>,
    pub(crate) latency: Quantiles,
    pub(crate) queue_delay: Quantiles,
    /// As in the sample.
    pub(crate) endpoints: Vec<Endpoint>,
    /// By layer and reason, as in the sample; per second.
    pub(crate) refusals: Vec<Option<f64>>,
}

/// What happened at an endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Endpoint {
    pub(crate) name: String,
    pub(crate) total: f64,
    /// Requests per second.
    pub(crate) rate: Option<f64>,
    pub(crate) latency: Quantiles,
}

impl Figures {
    /// What happened from `before` to `after`.
    pub(crate) fn between(before: Option<&Sample>, after: Sample) -> Figures {
        let is_restarted = before.is_some_and(|before| is_another(before, &after));
        let before = before.filter(|_| !is_restarted);
        let span = before.and_then(|before| span(before, &after));
        let Some((before, seconds)) = before.zip(span) else {
            return Figures {
                endpoints: since_ever(&after),
                ..Figures::first(after, is_restarted)
            };
        };
        let rate = |before: f64, after: f64| {
            let rate = (after - before) / seconds;
            (rate.is_finite() && rate >= 0.0).then_some(rate)
        };
        let known: HashMap<(&str, &str), f64> = before
            .refusals
            .iter()
            .map(|refusal| ((&*refusal.layer, &*refusal.reason), refusal.total))
            .collect();
        let refusals: Vec<Option<f64>> = after
            .refusals
            .iter()
            .map(|now| rate(*known.get(&(&*now.layer, &*now.reason)).unwrap_or(&0.0), now.total))
            .collect();
        let quantiles = |before: &Histogram, after: &Histogram| {
            after.since(before).unwrap_or_default().quantiles()
        };
        let cpu = before.process.cpu_seconds.zip(after.process.cpu_seconds);
        Figures {
            span,
            is_restarted,
            requests: rate(before.requests, after.requests),
            good: rate(before.good, after.good),
            refused: refusals.iter().copied().sum(),
            cpu: cpu.and_then(|(before, after)| rate(before, after)),
            latency: quantiles(&before.durations(), &after.durations()),
            queue_delay: quantiles(&before.queue_delay, &after.queue_delay),
            endpoints: endpoints(before, &after, rate),
            refusals,
            sample: after,
        }
    }

    /// What a page says without an earlier one.
    fn first(sample: Sample, is_restarted: bool) -> Figures {
        let refusals = vec![None; sample.refusals.len()];
        Figures { refusals, is_restarted, sample, ..Figures::default() }
    }

    /// What to say while each client gets its share of a standing queue.
    pub(crate) fn shares(&self) -> Option<String> {
        let count = self.sample.shares;
        (count > 0.0).then(|| {
            let clients = if count == 1.0 { "client has its" } else { "clients have their" };
            format!("{} {clients} share of the queue", units::count(count))
        })
    }

    /// The refusals that there were, the most frequent first: layer, reason, per second, total.
    pub(crate) fn refusals(&self) -> Vec<(&str, &str, Option<f64>, f64)> {
        let all = self.sample.refusals.iter().zip(&self.refusals);
        let mut some: Vec<_> = all
            .filter(|(refusal, _)| refusal.total > 0.0)
            .map(|(refusal, rate)| (&*refusal.layer, &*refusal.reason, *rate, refusal.total))
            .collect();
        some.sort_by(|a, b| {
            let by_rate = b.2.unwrap_or(0.0).total_cmp(&a.2.unwrap_or(0.0));
            by_rate.then(b.3.total_cmp(&a.3))
        });
        some
    }
}

/// Whether the pages are of different processes.
fn is_another(before: &Sample, after: &Sample) -> bool {
    let pair = |of: fn(&Sample) -> Option<f64>| of(before).zip(of(after));
    pair(|sample| sample.started).is_some_and(|(before, after)| after > before + START_LATER)
        || pair(|sample| sample.uptime).is_some_and(|(before, after)| after < before)
        || after.requests < before.requests
}

/// The time between the pages, by the server's clock if the page has it: the server knows when it counted.
fn span(before: &Sample, after: &Sample) -> Option<f64> {
    let by_server = before.uptime.zip(after.uptime).map(|(before, after)| after - before);
    let by_us = after.at.saturating_since(before.at).as_secs_f64();
    Some(by_server.unwrap_or(by_us)).filter(|seconds| *seconds >= SPAN_MIN)
}

fn endpoints(
    before: &Sample,
    after: &Sample,
    rate: impl Fn(f64, f64) -> Option<f64>,
) -> Vec<Endpoint> {
    let known: HashMap<&str, &super::sample::Endpoint> =
        before.endpoints.iter().map(|endpoint| (&*endpoint.name, endpoint)).collect();
    let nothing = super::sample::Endpoint::default();
    let of = |now: &super::sample::Endpoint| {
        let then = known.get(&*now.name).copied().unwrap_or(&nothing);
        Endpoint {
            name: now.name.clone(),
            total: now.requests,
            rate: rate(then.requests, now.requests),
            latency: now.durations.since(&then.durations).unwrap_or_default().quantiles(),
        }
    };
    after.endpoints.iter().map(of).collect()
}

/// Of the first page only the totals are known.
fn since_ever(sample: &Sample) -> Vec<Endpoint> {
    let of = |endpoint: &super::sample::Endpoint| Endpoint {
        name: endpoint.name.clone(),
        total: endpoint.requests,
        ..Endpoint::default()
    };
    sample.endpoints.iter().map(of).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use highwater_core::time::Instant;

    use super::*;

    /// A page of a server that is `uptime` seconds old and started at `started`.
    pub(crate) fn page(started: f64, uptime: f64, requests: f64, refused: f64) -> String {
        let good = requests * 0.9;
        format!(
            "highwater_build_info{{version=\"1.2.3\"}} 1\nhttp_requests_total {requests}\n\
             http_goodput_total {good}\nhttp_connections_active 7\nhttp_connections_in_flight 3\n\
             http_requests_by_endpoint{{endpoint=\"/a\"}} {requests}\n\
             http_requests_by_endpoint{{endpoint=\"/b\"}} 0\n\
             http_request_duration_seconds_bucket{{endpoint=\"/a\",le=\"0.0005\"}} 0\n\
             http_request_duration_seconds_bucket{{endpoint=\"/a\",le=\"0.001\"}} {good}\n\
             http_request_duration_seconds_bucket{{endpoint=\"/a\",le=\"0.01\"}} {requests}\n\
             http_request_duration_seconds_bucket{{endpoint=\"/a\",le=\"+Inf\"}} {requests}\n\
             http_queue_delay_seconds_bucket{{le=\"0.0005\"}} 0\n\
             http_queue_delay_seconds_bucket{{le=\"0.001\"}} {requests}\n\
             http_queue_delay_seconds_bucket{{le=\"+Inf\"}} {requests}\n\
             http_rejections_total{{layer=\"kernel\",reason=\"reset\"}} {refused}\n\
             http_rejections_total{{layer=\"queue\",reason=\"delay\"}} 0\n\
             http_scaling_connection_limit 12\nhttp_scaling_demand_ratio 1.5\n\
             http_scaling_needs_scaleout 1\nhttp_scaling_saturation_ratio 0.75\n\
             highwater_worker_busy_ratio{{worker=\"0\"}} 0.25\n\
             highwater_worker_busy_ratio{{worker=\"1\"}} 0.999\n\
             highwater_gate_info{{mechanism=\"ebpf\",reason=\"ebpf works here\"}} 1\n\
             highwater_transport_info{{transport=\"uring\",reason=\"io_uring works here\"}} 1\n\
             highwater_limiter_info{{limiter=\"gradient\"}} 1\n\
             process_resident_memory_bytes 14323712\nprocess_cpu_seconds_total {uptime}\n\
             process_open_fds 12\nprocess_max_fds 1024\n\
             http_uptime_seconds {uptime}\nprocess_start_time_seconds {started}\n"
        )
    }

    pub(crate) fn sample(started: f64, uptime: f64, requests: f64, refused: f64) -> Sample {
        let at = Instant::ZERO + Duration::from_secs_f64(started + uptime);
        Sample::read(&page(started, uptime, requests, refused), at).expect("a server's page")
    }

    /// Purpose: rates are counts over the time that the server counted, and quantiles those of the
    /// requests in that time.
    #[test]
    fn counters_become_rates() {
        let before = sample(100.0, 10.0, 1000.0, 5.0);
        let after = sample(100.0, 12.0, 1200.0, 25.0);
        let figures = Figures::between(Some(&before), after);
        assert_eq!(figures.span, Some(2.0));
        assert_eq!((figures.requests, figures.good), (Some(100.0), Some(90.0)));
        assert_eq!((figures.refused, figures.cpu), (Some(10.0), Some(1.0)));
        assert_eq!(figures.refusals(), [("kernel", "reset", Some(10.0), 25.0)]);
        let p99 = figures.latency.p99.expect("there were requests").seconds;
        assert!((p99 - 0.0091).abs() < 1e-9, "{p99}");
        assert_eq!(figures.queue_delay.p50.map(|p50| p50.seconds), Some(0.000_75));
        assert_eq!(figures.endpoints[0].rate, Some(100.0));
        assert_eq!(figures.endpoints[0].latency, figures.latency);
        assert_eq!(figures.endpoints[1].rate, Some(0.0));
        assert_eq!(figures.endpoints[1].latency, Quantiles::default());
    }

    /// Purpose: a restart, however it shows, yields no rate instead of a negative one.
    #[test]
    fn a_restart_has_no_rates() {
        let before = sample(100.0, 10.0, 1000.0, 5.0);
        for after in [
            // It counts less; it has counted more already; its clock alone tells.
            sample(111.0, 1.0, 10.0, 0.0),
            sample(111.0, 30.0, 5000.0, 100.0),
            sample(100.0, 9.0, 1000.0, 5.0),
        ] {
            let figures = Figures::between(Some(&before), after);
            assert!(figures.is_restarted);
            assert_eq!((figures.requests, figures.good, figures.refused), (None, None, None));
            assert_eq!((figures.span, figures.cpu), (None, None));
            assert_eq!(figures.latency, Quantiles::default());
            assert!(figures.endpoints.iter().all(|endpoint| endpoint.rate.is_none()));
            assert_eq!(figures.refusals.len(), figures.sample.refusals.len());
        }
    }

    /// Purpose: a counter that alone went back has no rate, and the others keep theirs.
    #[test]
    fn one_counter_goes_back() {
        let before = sample(100.0, 10.0, 1000.0, 5.0);
        let figures = Figures::between(Some(&before), sample(100.0, 11.0, 1001.0, 2.0));
        assert!(!figures.is_restarted);
        assert_eq!((figures.requests, figures.refused), (Some(1.0), None));
    }

    /// Purpose: the first page, and one at the same moment, have totals and no rates.
    #[test]
    fn one_page_is_not_enough() {
        let page = sample(100.0, 10.0, 1000.0, 5.0);
        for before in [None, Some(&page)] {
            let figures = Figures::between(before, page.clone());
            assert!(!figures.is_restarted);
            assert_eq!((figures.requests, figures.span), (None, None));
            assert_eq!(figures.endpoints[0].total, 1000.0);
            assert_eq!(figures.refusals(), [("kernel", "reset", None, 5.0)]);
        }
    }
}
