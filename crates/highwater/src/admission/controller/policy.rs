//! What is refused, connections or requests, and what must proxies learn of an overload?
//!
//! A proxy keeps connections and opens further ones when those are busy. To a proxy, a refused connection means
//! a broken server: it answers 502, or leaves the server out for a while, with all the requests that its open
//! connections could have brought. So where connections are kept, they are all accepted, and the workers'
//! queues refuse requests. A proxy that opens a connection for each request learns of a refusal by a reset, and
//! never by silence, which it would wait out.
//!
//! Never here: a socket, or detecting a standing queue.

use highwater_core::limit::{EVIDENCE_MIN, LIMIT_MAX, Reuse, Sample};
use highwater_core::time::Instant;

use crate::admission::Refuse;
use crate::admission::strain::Strain;
use crate::metrics::Arrivals;

/// The decisions that follow from the kind of clients.
#[derive(Debug)]
pub(crate) struct Policy {
    refuse: Refuse,
    reuse: Reuse,
    strain: Option<Strain>,
    /// Proxies passed on most of the requests that were looked at last.
    is_proxied: bool,
    /// What was logged last.
    reported: Refuse,
}

impl Policy {
    pub(crate) fn new(refuse: Refuse, strain: Option<Strain>) -> Policy {
        Policy {
            refuse,
            reuse: Reuse::default(),
            strain,
            is_proxied: false,
            reported: Refuse::Connections,
        }
    }

    /// Takes in a sample, and how the requests of its `span` arrived. Returns whether the server is not ready.
    pub(super) fn on_sample(&mut self, now: Instant, sample: &Sample, came: Arrivals) -> bool {
        self.reuse.on_sample(sample.span, came.connections, came.requests);
        if came.judged >= u64::from(EVIDENCE_MIN) {
            self.is_proxied = came.passed_on * 2 >= came.judged;
        }
        if sample.standing > 0 {
            self.report();
        }
        let is_strained = |strain: &mut Strain| strain.on_sample(now, sample.standing > 0);
        self.strain.as_mut().is_some_and(is_strained)
    }

    /// Whether requests are refused, and no connections.
    pub(super) fn refuses_requests(&self) -> bool {
        match self.refuse {
            Refuse::Auto => self.reuse.are_kept(),
            Refuse::Connections => false,
            Refuse::Requests => true,
        }
    }

    /// The limit on connections, where the limiter says `limit`.
    pub(super) fn limit(&self, limit: u32) -> u32 {
        if self.refuses_requests() { LIMIT_MAX } else { limit }
    }

    /// Whether refusals may be silent. Proxies wait for an answer.
    pub(super) fn may_be_silent(&self) -> bool {
        !self.is_proxied
    }

    /// Whether most refused requests came over connections that are open already.
    pub(super) fn are_kept(&self) -> bool {
        self.reuse.are_kept()
    }

    fn report(&mut self) {
        let refuses = if self.refuses_requests() { Refuse::Requests } else { Refuse::Connections };
        if std::mem::replace(&mut self.reported, refuses) != refuses {
            let reason = match refuses {
                Refuse::Requests => "connections are kept for several requests each",
                _ => "connections bring a request or two each",
            };
            tracing::info!(refuses = refuses.name(), reason, "overload");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(standing: u32) -> Sample {
        Sample { span: Duration::from_millis(100), standing, workers: 1, ..Sample::default() }
    }

    fn came(connections: u64, requests: u64) -> Arrivals {
        Arrivals { connections, requests, ..Arrivals::default() }
    }

    /// Purpose: an explicit setting decides, whatever the clients are; auto follows the clients.
    #[test]
    fn the_setting_decides() {
        for (refuse, closed, kept) in [
            (Refuse::Auto, false, true),
            (Refuse::Connections, false, false),
            (Refuse::Requests, true, true),
        ] {
            let mut policy = Policy::new(refuse, None);
            policy.on_sample(Instant::ZERO, &sample(1), came(90, 90));
            assert_eq!(policy.refuses_requests(), closed, "{refuse:?}");
            assert_eq!(policy.limit(8), if closed { LIMIT_MAX } else { 8 });
            for _ in 0..50 {
                policy.on_sample(Instant::ZERO, &sample(1), came(0, 90));
            }
            assert_eq!(policy.refuses_requests(), kept, "{refuse:?}");
            assert_eq!(policy.limit(8), if kept { LIMIT_MAX } else { 8 });
        }
    }

    /// Purpose: proxies that open a connection for each request get resets; a few requests with their fields
    /// among many without do not change how the others are refused.
    #[test]
    fn proxies_are_not_left_waiting() {
        let mut policy = Policy::new(Refuse::Auto, None);
        let mut judge = |judged, passed_on| {
            let came = Arrivals { judged, passed_on, ..Arrivals::default() };
            policy.on_sample(Instant::ZERO, &sample(1), came);
            policy.may_be_silent()
        };
        assert!(judge(100, 49));
        assert!(!judge(100, 50));
        assert!(!judge(u64::from(EVIDENCE_MIN) - 1, 0), "too few to say");
        assert!(judge(u64::from(EVIDENCE_MIN), 0));
    }
}
